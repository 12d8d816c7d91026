//! The tables: what is measured in which order, and how it is put down.
//!
//! A round takes every row once, each for a short slice, so that a machine which grows slower or
//! faster does so for all of them. Each figure is the median of the rounds with half the distance
//! of their quartiles, each ratio that of the ratios within a round.

use std::borrow::Borrow;
use std::fs;
use std::io::IsTerminal;
use std::thread;
use std::time::{Duration, Instant};

use crate::callgrind::{self, Count};
use crate::load::{self, Slice};
use crate::rows::{BASE, Lines, NO_LIMIT, Row, USUAL_LIMIT, rows, shuffled};
use crate::server::{self, Server};
use crate::stats::{Summary, percentiles};
use crate::wire::{Calls, Client, Control, DEADLINE, Reply};

/// Connections that are measured without a pipeline.
const CONNECTIONS: usize = 20;
/// Commands in a full pipeline, and how many connections have one under way.
const PIPELINE: usize = 100;
const PIPELINES: usize = 4;

/// How long all this may take.
struct Plan {
    rounds: usize,
    /// Calls in a slice: in full pipelines, and one by one.
    piped: usize,
    single: usize,
    /// Keys of which the size is taken.
    sized: usize,
}

pub fn quick(names: &[String]) {
    let plan = Plan {
        rounds: rounds(7),
        piped: 20_000,
        single: 4_000,
        sized: 100_000,
    };
    introduce();
    main_table(&plan, &|row| row.main && is_named(row, names));
}

pub fn full(names: &[String]) {
    let plan = Plan {
        rounds: rounds(11),
        piped: 40_000,
        single: 10_000,
        sized: 1_000_000,
    };
    introduce();
    side_by_side(&plan, &|row| is_named(row, names));
    let admitted = |row: &Row| {
        let few = [
            "RL.FIXED admitted",
            "RL.TOKEN admitted",
            "RL.SLIDE admitted",
        ];
        row.name == BASE || few.contains(&row.name.as_str())
    };
    let grows = |row: &Row| admitted(row) || row.name == "RL.SLIDE EXACT 10 refused";
    by_keys(&plan, &|row| grows(row) && is_named(row, names));
    hot_key(&plan, &|row| row.main && is_named(row, names));
    followed(&plan, &|row| row.main && is_named(row, names));
    at_rates(&|row| admitted(row) && is_named(row, names));
}

/// So many, unless `ROUNDS` asks for others.
fn rounds(count: usize) -> usize {
    let asked = std::env::var("ROUNDS").ok();
    asked.map_or(count, |text| text.parse().expect("ROUNDS is a number"))
}

fn is_named(row: &Row, names: &[String]) -> bool {
    row.name == BASE || names.is_empty() || names.iter().any(|part| row.name.contains(part))
}

/// The machine and the server.
pub fn introduce() {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("?", |(_, model)| model);
    let count = thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (version, build) = server::version();
    println!(
        "{version} (build {build}), {count} × {model}, Linux {}\n",
        kernel.trim()
    );
}

/// What [`Figures::cells`] holds.
const COLUMNS: [&str; 9] = [
    "CPU, piped",
    "÷",
    "CPU, unpiped",
    "÷",
    "k/s, piped",
    "k/s, unpiped",
    "p50",
    "p99",
    "p99.9",
];

/// What the rounds came to for one row.
#[derive(Default)]
struct Figures {
    piped_cpu_us: Vec<f64>,
    single_cpu_us: Vec<f64>,
    piped_rate: Vec<f64>,
    single_rate: Vec<f64>,
    latencies_us: [Vec<f64>; 3],
    /// The share of a processor that the server was busy.
    single_busy: Vec<f64>,
}

impl Figures {
    fn add_piped(&mut self, slice: &Slice) {
        self.piped_cpu_us.push(slice.cpu_us());
        self.piped_rate.push(slice.thousands_per_second());
    }

    fn add_single(&mut self, mut slice: Slice) {
        self.single_cpu_us.push(slice.cpu_us());
        self.single_rate.push(slice.thousands_per_second());
        self.single_busy
            .push(slice.cpu.as_secs_f64() / slice.wall.as_secs_f64());
        let percentiles = percentiles(&mut slice.latencies_ns);
        for (figures, figure) in self.latencies_us.iter_mut().zip(percentiles) {
            figures.push(figure);
        }
    }

    /// The cells of a table's row, beside the row that ratios are to.
    fn cells(&self, base: &Self) -> String {
        let [p50, p99, p999] = self.latencies_us.each_ref().map(|us| summary(us));
        format!(
            "{} | {} | {} | {} | {} | {} | {p50} | {p99} | {p999}",
            summary(&self.piped_cpu_us),
            ratio(&self.piped_cpu_us, &base.piped_cpu_us),
            summary(&self.single_cpu_us),
            ratio(&self.single_cpu_us, &base.single_cpu_us),
            summary(&self.piped_rate),
            summary(&self.single_rate),
        )
    }
}

fn summary(figures: &[f64]) -> Summary {
    Summary::of(figures.iter().copied())
}

/// The median of what each round's figure is of the same round's base.
fn ratio(figures: &[f64], base: &[f64]) -> String {
    let ratios = figures.iter().zip(base).map(|(figure, base)| figure / base);
    format!("{:.2}", Summary::of(ratios).median)
}

/// A row in a database of its own.
struct Lane<'a> {
    row: &'a Row,
    keys: Vec<String>,
    database: usize,
    figures: Figures,
}

impl Lane<'_> {
    /// So many calls, or as many as the keys' state bears, other keys in each round.
    fn calls(&self, round: usize, count: usize) -> Calls {
        let most = self
            .row
            .calls_per_key
            .map_or(usize::MAX, |calls| calls * self.keys.len());
        let count = count.min(most);
        self.row.calls(&self.keys, round * count, count)
    }
}

/// A server and the connections that load it.
struct Bed<'a> {
    server: &'a Server,
    control: Control,
    piped: Vec<Client>,
    single: Vec<Client>,
}

impl<'a> Bed<'a> {
    fn new(server: &'a Server) -> Self {
        let clients = |count: usize| {
            (0..count)
                .map(|_| Client::connect(&server.socket))
                .collect()
        };
        Self {
            server,
            control: server.control(),
            piped: clients(PIPELINES),
            single: clients(CONNECTIONS),
        }
    }

    /// Makes the state of each row in a database of its own.
    fn lanes<'r>(&mut self, rows: &[&'r Row], keys: usize) -> Vec<Lane<'r>> {
        let mut lanes = Vec::new();
        for (database, &row) in rows.iter().enumerate() {
            let lane = Lane {
                row,
                keys: shuffled(keys.min(row.keys)),
                database,
                figures: Figures::default(),
            };
            self.make(&lane);
            if row.calls_per_key.is_none() {
                // State that no call has touched yet is not what calls usually meet.
                self.warm_up(&lane);
            }
            lanes.push(lane);
        }
        lanes
    }

    fn make(&mut self, lane: &Lane<'_>) {
        self.control.must(&format!("SELECT {}", lane.database));
        lane.row.make(&mut self.control, &lane.keys, now_us());
    }

    fn warm_up(&mut self, lane: &Lane<'_>) {
        self.select(lane);
        let calls = lane.calls(0, lane.keys.len());
        for at in (0..calls.len()).step_by(PIPELINE) {
            let count = PIPELINE.min(calls.len() - at);
            self.piped[0].send(&calls, at, count);
            self.piped[0].receive(&calls);
        }
    }

    fn select(&mut self, lane: &Lane<'_>) {
        let select = format!("SELECT {}", lane.database);
        for client in self.piped.iter_mut().chain(&mut self.single) {
            client.command(&select);
        }
    }

    /// Makes everything ready for a slice, and encodes its calls.
    fn prepare(&mut self, lane: &Lane<'_>, round: usize, count: usize) -> Calls {
        if lane.row.calls_per_key.is_some() {
            self.make(lane);
        }
        self.select(lane);
        lane.calls(round, count)
    }

    fn run_piped(&mut self, lane: &Lane<'_>, round: usize, count: usize) -> Slice {
        let calls = self.prepare(lane, round, count);
        load::closed(self.server, &mut self.piped, &calls, PIPELINE)
    }

    fn run_single(&mut self, lane: &Lane<'_>, round: usize, count: usize) -> Slice {
        let calls = self.prepare(lane, round, count);
        load::closed(self.server, &mut self.single, &calls, 1)
    }

    fn run_at_rate(&mut self, lane: &Lane<'_>, round: usize, per_second: f64) -> Slice {
        let calls = self.prepare(lane, round, per_second as usize);
        load::at_rate(self.server, &mut self.single, &calls, per_second)
    }
}

/// The rounds, all rows in each.
fn interleave(server: &Server, rows: &[&Row], keys: usize, plan: &Plan) -> Vec<Figures> {
    let mut bed = Bed::new(server);
    let mut lanes = bed.lanes(rows, keys);
    for round in 0..plan.rounds {
        progress(&format!("round {} of {}", round + 1, plan.rounds));
        for lane in &mut lanes {
            let slice = bed.run_piped(lane, round, plan.piped);
            lane.figures.add_piped(&slice);
            let slice = bed.run_single(lane, round, plan.single);
            lane.figures.add_single(slice);
        }
    }
    progress("");
    lanes.into_iter().map(|lane| lane.figures).collect()
}

/// Says how far it is: in one line of a terminal, otherwise line by line.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    } else if !text.is_empty() {
        eprintln!("{text}");
    }
}

fn pick<'a>(rows: &'a [Row], wanted: &dyn Fn(&Row) -> bool) -> Vec<&'a Row> {
    rows.iter().filter(|row| wanted(row)).collect()
}

fn base_of<'a>(rows: &[impl Borrow<Row>], figures: &'a [Figures]) -> &'a Figures {
    let at = rows.iter().position(|row| row.borrow().name == BASE);
    &figures[at.expect("the base is always measured")]
}

pub fn table(columns: &[&str]) {
    println!("| {} |", columns.join(" | "));
    println!("|---{}|", "|--:".repeat(columns.len() - 1));
}

/// All that is measured of rows side by side.
struct Measured {
    rows: Vec<Row>,
    figures: Vec<Figures>,
    instructions: Vec<(String, Count)>,
    sizes: Vec<Option<f64>>,
    streamed: Vec<f64>,
}

impl Measured {
    fn take(plan: &Plan, wanted: &dyn Fn(&Row) -> bool) -> Self {
        let server = Server::start(&[]);
        let mut rows = rows(&mut server.control(), USUAL_LIMIT);
        compare_answers(&mut server.control(), &rows);
        rows.retain(wanted);
        let picked: Vec<&Row> = rows.iter().collect();
        let figures = interleave(&server, &picked, 10_000, plan);
        drop(server);
        progress("counting instructions");
        let instructions = instructions(wanted);
        progress("bytes per key");
        let sizes = sizes(plan, wanted);
        progress("bytes replicated");
        let streamed = streamed(wanted);
        progress("");
        Self {
            rows,
            figures,
            instructions,
            sizes,
            streamed,
        }
    }

    fn base(&self) -> &Figures {
        base_of(&self.rows, &self.figures)
    }

    /// Instructions, and their ratio to the base.
    fn instructions(&self, row: &Row) -> String {
        let counted = |name: &str| self.instructions.iter().find(|(row, _)| row == name);
        match (counted(&row.name), counted(BASE)) {
            (Some((_, count)), Some((_, base))) => {
                format!("{:.0} | {:.2}", count.all, count.all / base.all)
            }
            _ => "– | –".to_owned(),
        }
    }

    /// Bytes per key, and bytes on the replication stream.
    fn bytes(&self, at: usize) -> String {
        let size = self.sizes[at].map_or("–".to_owned(), |size| format!("{size:.0}"));
        format!("{size} | {:.0}", self.streamed[at])
    }
}

/// The table of the README.
fn main_table(plan: &Plan, wanted: &dyn Fn(&Row) -> bool) {
    let measured = Measured::take(plan, wanted);
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
    for (at, (row, taken)) in measured.rows.iter().zip(&measured.figures).enumerate() {
        println!(
            "| `{}` | {} | {} | {} | {} | {} | {} |",
            row.name,
            measured.instructions(row),
            summary(&taken.piped_cpu_us).median(),
            summary(&taken.piped_rate).median(),
            summary(&taken.single_rate).median(),
            summary(&taken.latencies_us[1]).median(),
            measured.bytes(at),
        );
    }
}

fn side_by_side(plan: &Plan, wanted: &dyn Fn(&Row) -> bool) {
    let measured = Measured::take(plan, wanted);
    println!("### Side by side\n");
    println!(
        "10,000 keys (100 with logs of 10,000 entries). Server CPU in µs per command, in a pipeline of \
         {PIPELINE} and unpipelined; ÷ is the ratio to `{BASE}`. Throughput in thousands per \
         second. Latency in µs, unpipelined over {CONNECTIONS} connections that never pause. \
         `INCR + PEXPIRE` counts as one command.\n"
    );
    let before = ["command", "instructions", "÷"];
    let after = ["bytes per key", "bytes on the stream"];
    table(&[&before[..], &COLUMNS, &after].concat());
    for (at, (row, taken)) in measured.rows.iter().zip(&measured.figures).enumerate() {
        println!(
            "| `{}` | {} | {} | {} |",
            row.name,
            measured.instructions(row),
            taken.cells(measured.base()),
            measured.bytes(at),
        );
    }
    let busy = measured.figures.iter().flat_map(|taken| &taken.single_busy);
    println!(
        "\nUnpipelined, the server was busy {:.0} % of the time. The same bucket as a Hash of two \
         fields takes {:.0} bytes per key.\n",
        Summary::of(busy.copied()).median * 100.0,
        hash_size(plan),
    );
}

/// Makes sure that the scripts do the same work: they give the same answers.
fn compare_answers(control: &mut Control, rows: &[Row]) {
    for row in rows {
        let name = Row::script(&row.name);
        let Some(script) = rows.iter().find(|row| Some(&row.name) == name.as_ref()) else {
            continue;
        };
        let mut answers = Vec::new();
        // On a busy machine a bucket may get a token between two calls.
        let alike = (0..10).any(|_| {
            answers = [row, script]
                .map(|row| row.answer(control, now_us()))
                .into();
            let pairs = answers[0].iter().zip(&answers[1]).enumerate();
            // The last two are times, and the second call came later.
            pairs
                .into_iter()
                .all(|(at, (one, other))| one.abs_diff(*other) <= if at < 3 { 0 } else { 1_000 })
        });
        assert!(alike, "{}: {answers:?}", row.name);
    }
}

/// Instructions per command, if there is a valgrind.
fn instructions(wanted: &dyn Fn(&Row) -> bool) -> Vec<(String, Count)> {
    if callgrind::available() {
        return callgrind::count(wanted, None);
    }
    println!("There is no valgrind here, so no instructions are counted.\n");
    Vec::new()
}

/// Bytes per key, for rows that tell how such a key comes about.
fn sizes(plan: &Plan, wanted: &dyn Fn(&Row) -> bool) -> Vec<Option<f64>> {
    let server = Server::start(&[]);
    let rows = rows(&mut server.control(), USUAL_LIMIT);
    let rows = pick(&rows, wanted);
    let size = |row: &&Row| {
        let (fill, entries) = row.fill.as_ref()?;
        Some(size(&server, fill, plan.sized / entries))
    };
    rows.iter().map(size).collect()
}

fn hash_size(plan: &Plan) -> f64 {
    let fill = [
        "HSET KEY l 999999000000 t 1779331200000000".to_owned(),
        "PEXPIRE KEY 86400000".to_owned(),
    ];
    size(&Server::start(&[]), &fill, plan.sized)
}

fn size(server: &Server, fill: &[String], keys: usize) -> f64 {
    let mut control = server.control();
    let keys = shuffled(keys);
    control.must("FLUSHALL SYNC");
    let before = control.info("used_memory");
    for some in keys.chunks(10_000) {
        let lines: Lines = some
            .iter()
            .flat_map(|key| fill.iter().map(move |line| line.replace("KEY", key)))
            .collect();
        control.must_all(&lines);
    }
    // The dictionaries finish growing.
    thread::sleep(Duration::from_millis(300));
    (control.info("used_memory") - before) as f64 / keys.len() as f64
}

/// A server that a replica and an AOF follow.
pub struct Followed {
    pub server: Server,
    _replica: Server,
}

impl Followed {
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener
            .local_addr()
            .expect("an address")
            .port()
            .to_string();
        drop(listener);
        let server = Server::start(&[
            "--port",
            &port,
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--auto-aof-rewrite-percentage",
            "0",
            "--repl-diskless-sync-delay",
            "0",
            "--repl-ping-replica-period",
            "3600",
        ]);
        let replica = Server::start_beside(&["--replicaof", "127.0.0.1", &port]);
        let mut control = replica.control();
        let deadline = Instant::now() + DEADLINE;
        let linked = |control: &mut Control| match control.must("INFO replication") {
            Reply::Text(text) => text.contains("master_link_status:up"),
            _ => false,
        };
        while !linked(&mut control) {
            assert!(Instant::now() < deadline, "the replica does not follow");
            thread::sleep(Duration::from_millis(20));
        }
        Self {
            server,
            _replica: replica,
        }
    }
}

/// Bytes per call on the replication stream.
fn streamed(wanted: &dyn Fn(&Row) -> bool) -> Vec<f64> {
    const CALLS: usize = 5_000;
    let followed = Followed::start();
    let rows = rows(&mut followed.server.control(), USUAL_LIMIT);
    let rows = pick(&rows, wanted);
    let mut bed = Bed::new(&followed.server);
    let mut figures = Vec::new();
    for lane in bed.lanes(&rows, 1_000) {
        let calls = bed.prepare(&lane, 0, CALLS);
        let before = bed.control.info("master_repl_offset");
        let slice = load::closed(bed.server, &mut bed.piped, &calls, PIPELINE);
        let after = bed.control.info("master_repl_offset");
        figures.push((after - before) as f64 / slice.calls as f64);
    }
    figures
}

fn by_keys(plan: &Plan, wanted: &dyn Fn(&Row) -> bool) {
    println!("### By number of keys\n");
    println!(
        "Server CPU in µs per command, in a pipeline of {PIPELINE}, and its ratio to `{BASE}`.\n"
    );
    table(&[
        "command",
        "1,000",
        "÷",
        "10,000",
        "÷",
        "100,000",
        "÷",
        "1,000,000",
        "÷",
    ]);
    let mut cells: Vec<String> = Vec::new();
    for keys in [1_000, 10_000, 100_000, 1_000_000] {
        let server = Server::start(&[]);
        let rows = rows(&mut server.control(), USUAL_LIMIT);
        let rows = pick(&rows, wanted);
        let figures = interleave(&server, &rows, keys, plan);
        let base = base_of(&rows, &figures);
        cells.resize(rows.len(), String::new());
        for ((row, taken), cell) in rows.iter().zip(&figures).zip(&mut cells) {
            if cell.is_empty() {
                *cell = format!("| `{}` |", row.name);
            }
            *cell += &format!(
                " {} | {} |",
                summary(&taken.piped_cpu_us),
                ratio(&taken.piped_cpu_us, &base.piped_cpu_us)
            );
        }
    }
    println!("{}\n", cells.join("\n"));
}

fn hot_key(plan: &Plan, wanted: &dyn Fn(&Row) -> bool) {
    println!("### One hot key\n");
    let server = Server::start(&[]);
    let rows = rows(&mut server.control(), NO_LIMIT);
    // What needs its state made anew has not enough of it in one key.
    let rows = pick(&rows, &|row| wanted(row) && row.calls_per_key.is_none());
    compact(&rows, &interleave(&server, &rows, 1, plan));
}

fn followed(plan: &Plan, wanted: &dyn Fn(&Row) -> bool) {
    println!("### With an AOF (`everysec`) and a replica\n");
    println!("10,000 keys. The replica has to share the machine's processors.\n");
    let followed = Followed::start();
    let rows = rows(&mut followed.server.control(), USUAL_LIMIT);
    let rows = pick(&rows, wanted);
    compact(&rows, &interleave(&followed.server, &rows, 10_000, plan));
}

fn compact(rows: &[&Row], figures: &[Figures]) {
    table(&[&["command"][..], &COLUMNS].concat());
    let base = base_of(rows, figures);
    for (row, taken) in rows.iter().zip(figures) {
        println!("| `{}` | {} |", row.name, taken.cells(base));
    }
    println!();
}

/// Latency where calls come at a rate of their own, whether the last ones are answered or not.
fn at_rates(wanted: &dyn Fn(&Row) -> bool) {
    const SHARES: [f64; 5] = [0.5, 0.8, 0.9, 0.95, 1.0];
    const ROUNDS: usize = 5;
    println!("### Latency under a given load\n");
    println!(
        "100,000 keys, {CONNECTIONS} connections, unpipelined. *most* is what they reach when none \
         ever pauses, in thousands per second; the shares of it come at even times, and their \
         latency counts from when a call was due. p50 / p99 / p99.9 in µs.\n"
    );
    table(&[
        "command",
        "most",
        "never pausing",
        "50 %",
        "80 %",
        "90 %",
        "95 %",
        "100 %",
    ]);
    let server = Server::start(&[]);
    let rows = rows(&mut server.control(), USUAL_LIMIT);
    let rows = pick(&rows, wanted);
    let mut bed = Bed::new(&server);
    let mut lanes = bed.lanes(&rows, 100_000);
    let mut at_rate: Vec<[[Vec<f64>; 3]; SHARES.len()]> = Vec::new();
    at_rate.resize_with(lanes.len(), Default::default);
    for round in 0..ROUNDS {
        for (lane, at_rate) in lanes.iter_mut().zip(&mut at_rate) {
            let slice = bed.run_single(lane, round, 100_000);
            lane.figures.add_single(slice);
            let most = 1_000.0 * summary(&lane.figures.single_rate).median;
            for (share, figures) in SHARES.iter().zip(at_rate) {
                let mut slice = bed.run_at_rate(lane, round, most * share);
                let percentiles = percentiles(&mut slice.latencies_ns);
                for (figures, figure) in figures.iter_mut().zip(percentiles) {
                    figures.push(figure);
                }
            }
        }
    }
    for (lane, at_rate) in lanes.iter().zip(&at_rate) {
        let cell = |figures: &[Vec<f64>; 3]| {
            figures
                .each_ref()
                .map(|us| format!("{:.0}", summary(us).median))
                .join(" / ")
        };
        let cells: Vec<String> = at_rate.iter().map(cell).collect();
        println!(
            "| `{}` | {} | {} | {} |",
            lane.row.name,
            summary(&lane.figures.single_rate),
            cell(&lane.figures.latencies_us),
            cells.join(" | ")
        );
    }
    println!();
}

pub fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("a clock after 1970").as_micros() as u64
}

/// Counts as a table, with ratios to the base and to the same algorithm as a script.
pub fn compare_instructions(counts: &[(String, Count)]) -> String {
    let find = |name: &str| counts.iter().find(|(row, _)| row == name);
    let ratio = |count: &Count, to: Option<&(String, Count)>| {
        to.map_or("–".to_owned(), |(_, to)| {
            format!("{:.2}", count.all / to.all)
        })
    };
    let mut text = format!(
        "| command | instructions | ours | ÷ `{BASE}` | ÷ the same in Lua |\n|---|--:|--:|--:|--:|\n"
    );
    for (row, count) in counts {
        let script = Row::script(row);
        text += &format!(
            "| `{row}` | {:.0} | {:.0} | {} | {} |\n",
            count.all,
            count.own,
            ratio(count, find(BASE)),
            ratio(count, script.and_then(|script| find(&script))),
        );
    }
    text
}
