//! The tables: what is measured in which order, and how it is put down.
//!
//! A round takes every row once, each for a short slice, so that a machine which grows slower or
//! faster does so for all of them. Each figure is the median of the rounds, each ratio that of the
//! ratios within a round.

use std::fs;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::Connection;
use support::{Server, caught_up, follow, info, send};

use crate::callgrind::{self, find};
use crate::load::{self, Load, Slice};
use crate::recorded;
use crate::rows::{
    self, BASE, NO_LIMIT, Row, Shown, USUAL_LIMIT, compare_answers, keys, rows, send_all,
};
use crate::several;

const PIPED: Load = Load {
    connections: 4,
    pipeline: 100,
};
const SINGLE: Load = Load {
    connections: 20,
    pipeline: 1,
};

/// How long all this may take: rounds, and the calls of a slice, in full pipelines and one by one.
struct Plan {
    rounds: usize,
    piped: usize,
    single: usize,
}

impl Plan {
    /// So many rounds, unless `ROUNDS` asks for others.
    fn new(rounds: usize, piped: usize, single: usize) -> Self {
        let asked = std::env::var("ROUNDS").ok();
        let rounds = asked.map_or(rounds, |text| text.parse().expect("ROUNDS is a number"));
        Self {
            rounds,
            piped,
            single,
        }
    }
}

/// What the rounds came to for one row: for each round a run in pipelines, and one without.
struct Measured<'a> {
    row: &'a Row,
    rounds: Vec<[Slice; 2]>,
}

impl Measured<'_> {
    fn each(&self, figure: impl Fn(&[Slice; 2]) -> f64) -> Vec<f64> {
        self.rounds.iter().map(figure).collect()
    }

    fn cpu_us(&self) -> Vec<f64> {
        self.each(|[piped, _]| piped.cpu_us)
    }

    fn single_cpu_us(&self) -> Vec<f64> {
        self.each(|[_, single]| single.cpu_us)
    }

    /// Thousands of calls a second in pipelines, the same one by one, and the p99 of those in µs.
    fn rates_and_p99(&self) -> [Vec<f64>; 3] {
        [
            self.each(|[piped, _]| piped.calls_per_second / 1_000.0),
            self.each(|[_, single]| single.calls_per_second / 1_000.0),
            self.each(|[_, single]| single.p99_us),
        ]
    }
}

/// The table of the page.
pub fn quick(names: &[String]) {
    let shown = |row: &Row| row.shown == Shown::Page && is_named(row, names);
    page(&Plan::new(7, 100_000, 20_000), &shown);
}

/// Every table.
pub fn full(names: &[String]) {
    let plan = Plan::new(11, 100_000, 20_000);
    println!("### 10,000 keys\n");
    page(&plan, &|row| {
        row.shown != Shown::Count && is_named(row, names)
    });
    for (name, size) in sizes() {
        println!("\nBytes per key of {name}: {size:.0}");
    }
    several::cell();

    let few = [
        BASE,
        "RL.FIXED admitted",
        "RL.TOKEN admitted",
        "RL.SLIDE admitted",
        "RL.SLIDE EXACT 10 refused",
    ];
    let few = |row: &Row| few.contains(&row.name.as_str()) && is_named(row, names);
    for keys in [1_000, 10_000, 100_000, 1_000_000] {
        println!("\n### {keys} keys\n");
        let (server, rows) = server_and_rows(USUAL_LIMIT, &few);
        side_by_side(&interleave(&server, &rows, keys, &plan));
    }
    let shown = |row: &Row| row.shown == Shown::Page && is_named(row, names);
    println!("\n### One hot key\n");
    let (server, rows) = server_and_rows(NO_LIMIT, &|row| shown(row) && row.calls.is_none());
    side_by_side(&interleave(&server, &rows, 1, &plan));
    println!(
        "\n### 10,000 keys, with an AOF (`everysec`) and a replica that shares the processors\n"
    );
    let followed = Followed::start();
    let rows = rows_of(&followed.server, USUAL_LIMIT, &shown);
    side_by_side(&interleave(&followed.server, &rows, 10_000, &plan));
}

fn page(plan: &Plan, shown: &dyn Fn(&Row) -> bool) {
    compare_answers();
    let (server, rows) = server_and_rows(USUAL_LIMIT, shown);
    let measured = interleave(&server, &rows, 10_000, plan);
    progress("counting instructions");
    let counts = callgrind::count(shown, None);
    let bytes = bytes(shown);
    table(&[
        "command",
        "instructions",
        "÷ `SET … PX`",
        "CPU, µs",
        "1,000 calls/s, pipelined",
        "1,000 calls/s, one by one",
        "p99, µs",
        "bytes per key",
        "bytes replicated",
    ]);
    let base = find(&counts, BASE).all;
    for (measured, bytes) in measured.iter().zip(bytes) {
        let name = &measured.row.name;
        let count = find(&counts, name).all;
        let cpu = digits(median(measured.cpu_us()));
        let [piped, single, p99] = measured
            .rates_and_p99()
            .map(|figures| digits(median(figures)));
        let ratio = count / base;
        println!(
            "| `{name}` | {count:.0} | {ratio:.2} | {cpu} | {piped} | {single} | {p99} | {bytes} |"
        );
    }
}

fn is_named(row: &Row, names: &[String]) -> bool {
    row.name == BASE || names.is_empty() || names.iter().any(|part| row.name.contains(part))
}

/// Says what goes on, beside the tables.
pub fn progress(text: &str) {
    eprintln!("{text} …");
}

/// The server and the machine.
pub fn introduce() {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = cpus.lines();
    let model = lines.find_map(|line| line.strip_prefix("model name\t: "));
    let count = thread::available_parallelism().map_or(0, usize::from);
    eprintln!("{}, {count} × {}", recorded::build(), model.unwrap_or("?"));
}

fn rows_of(server: &Server, limit: u64, shown: &dyn Fn(&Row) -> bool) -> Vec<Row> {
    let rows = rows(&mut server.connect(), limit);
    rows.into_iter().filter(shown).collect()
}

fn server_and_rows(limit: u64, shown: &dyn Fn(&Row) -> bool) -> (Server, Vec<Row>) {
    let server = load::start(load::options());
    let rows = rows_of(&server, limit, shown);
    (server, rows)
}

/// The rounds, all rows in each, every row in a database of its own.
fn interleave<'a>(server: &Server, rows: &'a [Row], keys: usize, plan: &Plan) -> Vec<Measured<'a>> {
    let mut control = server.connect();
    let mut measured = Vec::new();
    progress("making the state of each row");
    for (database, row) in rows.iter().enumerate() {
        make(&mut control, row, database, row.keys(keys));
        if row.calls.is_none() {
            // State that no call has touched yet is not what calls usually meet.
            let calls = plan.piped.max(keys);
            PIPED.run(server, row, database, row.keys(keys), calls);
        }
        measured.push(Measured {
            row,
            rounds: Vec::new(),
        });
    }
    for round in 1..=plan.rounds {
        progress(&format!("load, round {round} of {}", plan.rounds));
        for (database, Measured { row, rounds }) in measured.iter_mut().enumerate() {
            let keys = row.keys(keys);
            rounds.push(
                [(PIPED, plan.piped), (SINGLE, plan.single)].map(|(load, calls)| {
                    if row.calls.is_some() {
                        make(&mut control, row, database, keys);
                    }
                    // A fifth of what the state bears, as some of the keys are called more often.
                    let most = row.calls.map_or(calls, |calls| calls * keys / 5);
                    load.run(server, row, database, keys, calls.min(most))
                }),
            );
            check(&mut control, row, database);
        }
    }
    measured
}

fn make(control: &mut Connection, row: &Row, database: usize, keys: usize) {
    send::<()>(control, &["SELECT", &database.to_string()]);
    row.make(control, &load::keys(keys), now_us());
}

/// Makes sure that a key is still answered as the row's name says: redis-benchmark doesn't look.
fn check(control: &mut Connection, row: &Row, database: usize) {
    send::<()>(control, &["SELECT", &database.to_string()]);
    if row.line().is_some() {
        let reply = row.call(&load::keys(1)[0], 0)[0].query(control);
        let reply = reply.expect("a reply");
        assert!(row.fits(&reply), "{}: {reply:?}", row.name);
    }
}

pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a clock after 1970").as_micros() as u64
}

/// Bytes per key, and bytes per call on the replication stream.
fn bytes(shown: &dyn Fn(&Row) -> bool) -> Vec<String> {
    const CALLS: usize = 5_000;
    progress("bytes per key");
    let sizes = sizes();
    progress("bytes replicated");
    let followed = Followed::start();
    let mut control = followed.server.connect();
    let keys = keys(1_000);
    let rows = rows_of(&followed.server, USUAL_LIMIT, shown);
    let bytes_of = |row: &Row| {
        row.make(&mut control, &keys, now_us());
        let before = info(&mut control, "replication", "master_repl_offset");
        let calls = (0..CALLS).flat_map(|nth| row.call(&keys[nth % keys.len()], nth / keys.len()));
        send_all(&mut control, calls);
        let after = info(&mut control, "replication", "master_repl_offset");
        let size = sizes.iter().find(|(name, _)| *name == row.name);
        let size = size.map_or("–".to_owned(), |(_, size)| format!("{size:.0}"));
        format!("{size} | {:.0}", (after - before) as f64 / CALLS as f64)
    };
    rows.iter().map(bytes_of).collect()
}

fn sizes() -> Vec<(String, f64)> {
    let server = load::options().start();
    let mut control = server.connect();
    let rows = rows::sizes(&mut control);
    let size_of = |row: Row| {
        send::<()>(&mut control, &["FLUSHALL", "SYNC"]);
        let before = info(&mut control, "memory", "used_memory");
        let keys = keys(row.keys(usize::MAX));
        send_all(&mut control, keys.iter().flat_map(|key| row.call(key, 0)));
        // The dictionaries finish growing.
        thread::sleep(Duration::from_millis(300));
        let after = info(&mut control, "memory", "used_memory");
        (row.name, (after - before) as f64 / keys.len() as f64)
    };
    rows.into_iter().map(size_of).collect()
}

/// A server that a replica and an AOF follow.
pub struct Followed {
    pub server: Server,
    _replica: Server,
}

impl Followed {
    pub fn start() -> Self {
        let server = load::start(
            load::options()
                .primary()
                .arg("appendonly", "yes")
                .arg("auto-aof-rewrite-percentage", "0")
                // Its pings would be counted as bytes that a call replicates.
                .arg("repl-ping-replica-period", "3600"),
        );
        let replica = load::options().start();
        follow(&replica, &server);
        caught_up(&replica, &server);
        Self {
            server,
            _replica: replica,
        }
    }
}

/// CPU is the server's, in µs per call; ÷ is the ratio to the base within a round.
fn side_by_side(measured: &[Measured<'_>]) {
    table(&[
        "command",
        "CPU, pipelined",
        "÷",
        "CPU, one by one",
        "÷",
        "1,000 calls/s, pipelined",
        "1,000 calls/s, one by one",
        "p99, µs",
    ]);
    let base = measured.iter().find(|measured| measured.row.name == BASE);
    let base = base.expect("the base is always measured");
    let ratio = |figures: &[f64], base: &[f64]| {
        let ratios = figures.iter().zip(base).map(|(figure, base)| figure / base);
        format!("{} | {}", summary(figures), digits(median(ratios)))
    };
    for measured in measured {
        let name = &measured.row.name;
        let cpu = ratio(&measured.cpu_us(), &base.cpu_us());
        let single_cpu = ratio(&measured.single_cpu_us(), &base.single_cpu_us());
        let rates = measured
            .rates_and_p99()
            .map(|figures| summary(&figures))
            .join(" | ");
        println!("| `{name}` | {cpu} | {single_cpu} | {rates} |");
    }
}

/// Prints the head of a table whose first column is text. (Crates that print Markdown tables don't
/// align columns as GitHub does.)
pub fn table(columns: &[&str]) {
    println!(
        "| {} |\n|---{}|",
        columns.join(" | "),
        "|--:".repeat(columns.len() - 1)
    );
}

pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    quantile(figures, 0.5)
}

/// A quantile, between neighbours in proportion.
fn quantile(figures: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let at = share * (sorted.len() - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * at.fract()
}

/// A median, and half the distance between the quartiles.
fn summary(figures: &[f64]) -> String {
    let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| quantile(figures.to_vec(), share));
    format!("{} ± {}", digits(middle), digits((high - low) / 2.0))
}

/// A figure in three digits or more, if there is one.
pub fn digits(figure: f64) -> String {
    match figure {
        figure if figure.is_nan() => "–".to_owned(),
        figure if figure < 10.0 => format!("{figure:.2}"),
        figure if figure < 100.0 => format!("{figure:.1}"),
        figure => format!("{figure:.0}"),
    }
}
