//! One thing beside another: several limits in one step and their own commands, leases and plain
//! commands, both and Lua, redis-cell and ours.

use crate::callgrind::{self, find};
use crate::load::{self, Load};
use crate::rows::{Row, USUAL_LIMIT, rows};
use crate::tables::{digits, median, now_us, progress, table};

const SEVERAL: [(&str, &str); 12] = [
    ("RL.ALL of 1 admitted", "1 commands admitted"),
    ("RL.ALL of 2 admitted", "2 commands admitted"),
    ("RL.ALL of 5 admitted", "5 commands admitted"),
    ("RL.ALL of 2 admitted", "Lua all of 2 admitted"),
    ("RL.ALL of 1 refused", "1 commands refused"),
    ("RL.ALL of 2 refused", "2 commands refused"),
    ("RL.ALL of 5 refused", "5 commands refused"),
    ("RL.ALL of 2 refused", "Lua all of 2 refused"),
    ("RL.LEASE taken", "Lua lease taken"),
    ("RL.LEASE released", "Lua lease released"),
    ("RL.LEASE refused", "Lua lease refused"),
    ("RL.LEASE taken", "ZADD + PEXPIREAT"),
];

/// Each algorithm in a state, and redis-cell in the same one.
const CELL: [(&str, &str); 4] = [
    ("admitted", "CL.THROTTLE k 9999 1000 1, key known, admitted"),
    (
        "admitted",
        "CL.THROTTLE k 1000000 1 60, key known, admitted",
    ),
    (
        "on a new key",
        "CL.THROTTLE k 1000000 1 60, key new, admitted",
    ),
    ("refused", "CL.THROTTLE k 99 1 3600, key known, refused"),
];

/// Rounds of each row, in turn, so that a machine that grows slower or faster does so for both.
const ROUNDS: usize = 11;
const CALLS: usize = 5_000;

/// Prints the tables of several limits and of leases.
pub fn tables() {
    instructions(&SEVERAL.map(|(ours, other)| (ours.to_owned(), other.to_owned())));
    one_by_one();
}

/// Prints the table of redis-cell, if `REDIS_CELL_SO` has it measured.
pub fn cell() {
    if std::env::var_os("REDIS_CELL_SO").is_some() {
        let pairs = CELL.map(|(state, cell)| {
            let algorithms = ["RL.FIXED", "RL.TOKEN", "RL.SLIDE"];
            algorithms.map(|name| (format!("{name} {state}"), cell.to_owned()))
        });
        instructions(&pairs.concat());
    }
}

fn instructions(pairs: &[(String, String)]) {
    progress("counting instructions");
    let named = |row: &Row| pairs.iter().any(|(a, b)| *a == row.name || *b == row.name);
    let counts = callgrind::count(named, None);
    table(&["instructions", "", "beside", "", "÷"]);
    for (ours, other) in pairs {
        let [a, b] = [ours, other].map(|name| find(&counts, name).all);
        println!("| {ours} | {a:.0} | {other} | {b:.0} | {:.2} |", a / b);
    }
    println!();
}

/// How long a client takes that sends a command, waits for its reply, and sends the next.
fn one_by_one() {
    let server = load::start(load::options());
    let mut control = server.connect();
    let rows = rows(&mut control, USUAL_LIMIT);
    let alone = Load {
        connections: 1,
        pipeline: 1,
    };
    let mut time_us = |name: &str| -> f64 {
        let row = rows.iter().find(|row| row.name == name).expect("a row");
        row.make(&mut control, &load::keys(1), now_us());
        let slices = row
            .lines()
            .map(|line| alone.redis_benchmark(&server, line, 0, 1, CALLS));
        slices.map(|slice| 1e6 / slice.calls_per_second).sum()
    };
    progress("one call after the other");
    table(&["µs for one after the other", "", "beside", "", "÷"]);
    for (ours, other) in SEVERAL
        .iter()
        .filter(|(ours, _)| ours.starts_with("RL.ALL"))
    {
        let rounds: Vec<[f64; 2]> = (0..ROUNDS)
            .map(|_| [time_us(ours), time_us(other)])
            .collect();
        let [a, b] = [0, 1].map(|at| median(rounds.iter().map(|round| round[at])));
        let ratio = a / b;
        println!(
            "| {ours} | {} | {other} | {} | {ratio:.2} |",
            digits(a),
            digits(b)
        );
    }
    println!();
}
