//! Several limits in one step, beside the same commands one by one, and leases: the rows, and the
//! tables of both.

use std::time::Instant;

use crate::callgrind::{self, Count};
use crate::report::table;
use crate::rows::{Lines, Row, load_script};
use crate::server::Server;
use crate::stats::Summary;
use crate::wire::Control;

/// A policy as `RL.ALL` takes it, and what makes a key that refuses it. `L` stands for the limit.
struct Limit {
    algorithm: &'static str,
    policy: &'static str,
}

const LIMITS: [Limit; 5] = [
    Limit {
        algorithm: "TOKEN",
        policy: "L 1 60000",
    },
    Limit {
        algorithm: "FIXED",
        policy: "L 3600000",
    },
    Limit {
        algorithm: "SLIDE",
        policy: "L 86400000",
    },
    Limit {
        algorithm: "FIXED",
        policy: "L 86400000",
    },
    Limit {
        algorithm: "TOKEN",
        policy: "L 10 60000",
    },
];

/// The names of keys beside the first one, whose name they begin with.
pub const SUFFIXES: [&str; 5] = ["", ":b", ":c", ":d", ":e"];

impl Limit {
    fn policy(&self, limit: u64) -> String {
        self.policy.replace('L', &limit.to_string())
    }

    /// Its own command.
    fn command(&self, suffix: &str, limit: u64) -> String {
        format!("RL.{} KEY{suffix} {}", self.algorithm, self.policy(limit))
    }
}

/// Calls on several keys, one command or one each.
fn rows_of(limits: &[Limit], what: &str, limit: u64, used: u64) -> [Row; 2] {
    let count = limits.len();
    let keys = SUFFIXES.map(|suffix| format!(" KEY{suffix}"))[..count].concat();
    let policies: Vec<String> = limits
        .iter()
        .map(|one| format!("{} {}", one.algorithm, one.policy(limit)))
        .collect();
    let policies = policies.join(" ");
    let commands: Lines = limits
        .iter()
        .zip(SUFFIXES)
        .map(|(one, suffix)| one.command(suffix, limit))
        .collect();
    let state: Lines = commands
        .iter()
        .map(|command| format!("{command} COST {used}"))
        .collect();
    let allowed = what == "admitted";
    let (together, alone) = if allowed {
        ("*3\r\n:1\r\n", "*5\r\n:1\r\n")
    } else {
        ("*3\r\n:0\r\n", "*5\r\n:0\r\n")
    };
    [
        Row::new(
            &format!("RL.ALL of {count} {what}"),
            &format!("RL.ALL {count}{keys} {policies}"),
        )
        .replies(together, 4 + 6 * count),
        Row::new(&format!("{count} commands {what}"), &commands.join("|"))
            .replies(alone, 6 * count),
    ]
    .map(|row| row.meets(&state.join("|")).on_keys(count).also())
}

/// Every row of several limits, and of leases.
pub fn several(control: &mut Control) -> Vec<Row> {
    let mut rows = Vec::new();
    for count in [1, 2, 5] {
        let limits = &LIMITS[..count];
        rows.extend(rows_of(limits, "admitted", 1_000_000, 1));
        rows.extend(rows_of(limits, "refused", 100, 100));
    }
    let script = load_script(control, include_str!("../lua/all.lua"), 2);
    let call = |limit: u64| format!("{script} KEY KEY:b {limit} 1 60000 {limit} 3600000");
    rows.extend(
        [
            ("Lua all of 2 admitted", 1_000_000, 1, "*3\r\n:1\r\n"),
            ("Lua all of 2 refused", 100, 100, "*3\r\n:0\r\n"),
        ]
        .map(|(name, limit, used, expect)| {
            Row::new(name, &format!("{} 1", call(limit)))
                .replies(expect, 16)
                .meets(&format!("{} {used}", call(limit)))
                .on_keys(2)
                .also()
        }),
    );
    rows.extend(leases(control));
    rows
}

/// A day, so that no lease ends while it is measured.
const TTL_MS: u64 = 86_400_000;

fn leases(control: &mut Control) -> Vec<Row> {
    let script = load_script(control, include_str!("../lua/lease.lua"), 1);
    let release = load_script(control, include_str!("../lua/release.lua"), 1);
    // Eight are held, by ids of eight bytes.
    let id = |nth: usize| format!("holder:{nth}");
    let held = (0..8)
        .map(|nth| format!("RL.LEASE KEY 100 {TTL_MS} {}", id(nth)))
        .collect::<Vec<_>>()
        .join("|");
    let row = |name: &str, calls: Option<usize>, call: Box<dyn Fn(usize) -> Lines>| {
        Row::calling(name, calls, call).meets(&held).also()
    };
    let taken = "*5\r\n:1\r\n";
    let refused = "*5\r\n:0\r\n";
    let new = move |turn: usize| id(10 + turn);
    vec![
        row(
            "RL.LEASE taken",
            Some(8),
            Box::new(move |turn| vec![format!("RL.LEASE KEY 100 {TTL_MS} {}", new(turn))]),
        )
        .replies(taken, 6),
        row(
            "RL.LEASE renewed",
            None,
            Box::new(move |_| vec![format!("RL.LEASE KEY 100 {TTL_MS} {} RENEW", id(3))]),
        )
        .replies(taken, 6),
        row(
            "RL.LEASE released",
            Some(6),
            Box::new(move |turn| vec![format!("RL.LEASE KEY 100 {TTL_MS} {} RELEASE", id(turn))]),
        )
        .replies(taken, 6),
        row(
            "RL.LEASE refused",
            None,
            Box::new(move |_| vec![format!("RL.LEASE KEY 8 {TTL_MS} {}", id(9))]),
        )
        .replies(refused, 6),
        row(
            "ZADD + PEXPIREAT",
            Some(8),
            Box::new(move |turn| {
                let end_ms = 4_102_444_800_000_u64;
                vec![
                    format!("ZADD KEY {end_ms} {}", new(turn)),
                    format!("PEXPIREAT KEY {end_ms}"),
                ]
            }),
        )
        .replies(":1\r\n", 2),
        row(
            "Lua lease taken",
            Some(8),
            Box::new({
                let script = script.clone();
                move |turn| vec![format!("{script} KEY 100 {TTL_MS} {}", new(turn))]
            }),
        )
        .replies(taken, 6),
        row(
            "Lua lease released",
            Some(6),
            Box::new(move |turn| vec![format!("{release} KEY 100 {}", id(turn))]),
        )
        .replies(taken, 6),
        row(
            "Lua lease refused",
            None,
            Box::new(move |_| vec![format!("{script} KEY 8 {TTL_MS} {}", id(9))]),
        )
        .replies(refused, 6),
    ]
}

/// What each row is compared with.
fn pairs() -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for what in ["admitted", "refused"] {
        for count in [1, 2, 5] {
            pairs.push((
                format!("RL.ALL of {count} {what}"),
                format!("{count} commands {what}"),
            ));
        }
        pairs.push((
            format!("RL.ALL of 2 {what}"),
            format!("Lua all of 2 {what}"),
        ));
    }
    for what in ["taken", "released", "refused"] {
        pairs.push((format!("RL.LEASE {what}"), format!("Lua lease {what}")));
    }
    pairs.push(("RL.LEASE taken".into(), "ZADD + PEXPIREAT".into()));
    pairs
}

/// Prints both tables.
pub fn tables() {
    let pairs = pairs();
    if callgrind::available() {
        let named = |row: &Row| pairs.iter().any(|(a, b)| *a == row.name || *b == row.name);
        let counts = callgrind::count(named, None);
        let find = |name: &str| -> Count {
            let count = counts.iter().find(|(row, _)| row == name);
            count.expect("every row of a pair is counted").1
        };
        println!();
        table(&["instructions", "", "beside", "", "÷"]);
        for (ours, other) in &pairs {
            let [a, b] = [ours, other].map(|name| find(name).all);
            println!("| {ours} | {a:.0} | {other} | {b:.0} | {:.2} |", a / b);
        }
    }
    println!();
    table(&["µs for one after the other", "", "beside", "", "÷"]);
    let server = Server::start(&[]);
    let mut control = server.control();
    let rows = several(&mut control);
    let find = |name: &str| rows.iter().find(|row| row.name == name).expect("a row");
    for (ours, other) in pairs.iter().filter(|(ours, _)| ours.starts_with("RL.ALL")) {
        let [a, b] = one_by_one(&mut control, [find(ours), find(other)]);
        let ratio = a.median / b.median;
        println!(
            "| {ours} | {} | {other} | {} | {ratio:.2} |",
            a.median(),
            b.median()
        );
    }
    println!();
}

/// Rounds of each, in turn, so that a machine that grows slower or faster does so for both.
const ROUNDS: usize = 40;
const CALLS: usize = 500;

/// Microseconds per decision of a client that sends a line, waits for its reply, and sends the next.
fn one_by_one(control: &mut Control, rows: [&Row; 2]) -> [Summary; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (row, times) in rows.iter().zip(&mut times) {
            let keys = [crate::rows::key(0)];
            row.make(control, &keys, crate::report::now_us());
            let lines = row.lines(&keys[0]);
            let words: Vec<Vec<&str>> = lines
                .iter()
                .map(|line| line.split_whitespace().collect())
                .collect();
            let start = Instant::now();
            for _ in 0..CALLS {
                for words in &words {
                    control.send(words);
                }
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / CALLS as f64);
        }
    }
    times.map(Summary::of)
}
