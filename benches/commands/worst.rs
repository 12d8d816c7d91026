//! The slowest single calls: what one client can ask of the server at once, beside plain commands
//! with the same result.

use redis::{Cmd, Connection, Value};
use serde::Deserialize;
use support::{info, send};

use crate::load::cpu_time;
use crate::rows::{commands, read_table};
use crate::tables::{Followed, digits, median, now_us, progress, table};

/// How often each is measured.
const TIMES: usize = 15;
/// The most limits of one call.
const MOST_LIMITS: usize = 32;

/// A line of `worst.txt`, which explains the fields.
#[derive(Deserialize)]
struct Case {
    name: String,
    key: String,
    state: String,
    call: String,
    plain: String,
}

/// Prints the table: the server's processor time, from reading the call to sending its result to
/// its AOF and its replica, and the bytes of the latter.
pub fn table_of_worst_calls() {
    let followed = Followed::start();
    let mut control = followed.server.connect();
    let mut measure = |keys: &[String], state: &str, calls: &[Cmd]| -> String {
        let mut bytes = 0;
        let times_ms = (0..TIMES).map(|_| {
            for key in keys {
                send::<()>(&mut control, &["DEL", key]);
            }
            run(&mut control, &filled_in(state, &keys[0]));
            settle(&mut control);
            let offset = info(&mut control, "replication", "master_repl_offset");
            let before = cpu_time(&followed.server);
            run(&mut control, calls);
            let time = cpu_time(&followed.server).saturating_sub(before);
            bytes = info(&mut control, "replication", "master_repl_offset") - offset;
            time.as_secs_f64() * 1_000.0
        });
        format!("{} | {bytes}", digits(median(times_ms.collect::<Vec<_>>())))
    };
    table(&[
        "call",
        "ms",
        "bytes of stream",
        "plain commands, ms",
        "bytes",
    ]);
    for Case {
        name,
        key,
        state,
        call,
        plain,
    } in read_table(include_str!("worst.txt"))
    {
        progress(&name);
        let keys = match key.as_str() {
            "1 B" => vec!["k".to_owned()],
            "1 MiB" => vec!["k".repeat(1 << 20)],
            "8 MiB" => vec!["k".repeat(8 << 20)],
            _ => (0..MOST_LIMITS).map(|nth| format!("k:{nth}")).collect(),
        };
        let call = match call.strip_prefix("RL.ALL 32 ") {
            Some(policy) => {
                let policies = vec![policy; MOST_LIMITS].join(" ");
                format!("RL.ALL {MOST_LIMITS} {} {policies}", keys.join(" "))
            }
            None => call,
        };
        let plain: Vec<Cmd> = keys.iter().flat_map(|key| filled_in(&plain, key)).collect();
        let ours = measure(&keys, &state, &filled_in(&call, &keys[0]));
        let plain = measure(&keys, &state, &plain);
        println!("| {name} | {ours} | {plain} |");
    }
    println!();
}

fn run(control: &mut Connection, commands: &[Cmd]) {
    for command in commands {
        command.query::<Value>(control).expect("no error");
    }
}

/// Waits until what was sent before has been written and has reached the replica.
fn settle(control: &mut Connection) {
    send::<()>(control, &["WAIT", "1", "10000"]);
    std::thread::sleep(std::time::Duration::from_millis(30));
}

/// The commands of a text, `9999 x WORD` replaced by so many entries.
fn filled_in(text: &str, key: &str) -> Vec<Cmd> {
    let Some((before, rest)) = text.split_once(" x ") else {
        return commands(&text.replace("KEY", key)).collect();
    };
    let (before, count) = before.rsplit_once(' ').expect("how many");
    let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
    let count: u64 = count.parse().expect("a number");
    let now_us = now_us();
    let entry = |nth| match word {
        "NOW" => now_us.to_string(),
        "NOW_MS" => (now_us / 1_000).to_string(),
        "OLD" => (now_us - 1_800_000_000).to_string(),
        "AHEAD" => (now_us + 3_600_000_000).to_string(),
        "OVER" => format!("{} over:{nth}", now_us / 1_000 - 30_000 + nth),
        "LIVE" => format!("{} live:{nth}", 4_102_444_800_000 + nth),
        _ => panic!("what is {word}?"),
    };
    let entries: Vec<String> = (0..count).map(entry).collect();
    filled_in(&format!("{before} {} {after}", entries.join(" ")), key)
}
