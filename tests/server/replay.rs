//! Decisions computed by an independent model, replayed on a real server whose clock the test
//! holds.

use redis::Connection;
use serde::Deserialize;

use support::{Server, send, snapshot};

#[derive(Deserialize)]
struct Scenario {
    name: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    at_us: u64,
    call: Vec<String>,
    reply: [i64; 5],
    #[serde(default)]
    same: bool,
    #[serde(default)]
    gone: bool,
    ttl_ms: Option<i64>,
}

fn replay(scenarios: &str, least_steps: usize) {
    let server = Server::at(support::T0);
    let mut connection = server.connect();
    let mut steps = 0;
    for line in scenarios.lines() {
        let scenario: Scenario = serde_json::from_str(line).expect("a scenario");
        for (index, step) in scenario.steps.iter().enumerate() {
            take(&server, &mut connection, step)
                .unwrap_or_else(|what| panic!("{} step {index}: {what}", scenario.name));
            steps += 1;
        }
        send::<()>(&mut connection, &["FLUSHALL"]);
    }
    assert!(steps >= least_steps, "only {steps} steps were replayed");
}

fn take(server: &Server, connection: &mut Connection, step: &Step) -> Result<(), String> {
    let call: Vec<&str> = step.call.iter().map(String::as_str).collect();
    let key = call[1];
    server.set_clock(step.at_us);
    let before = step.same.then(|| snapshot(connection, key));
    let reply: Vec<i64> = send(connection, &call);
    if reply != step.reply {
        return Err(format!(
            "{call:?} at {}: {reply:?}, not {:?}",
            step.at_us, step.reply
        ));
    }
    if before.is_some_and(|before| before != snapshot(connection, key)) {
        return Err(format!("{call:?} changed the key"));
    }
    let ttl_ms: i64 = send(connection, &["PTTL", key]);
    let exists = ttl_ms != -2;
    if step.gone && exists {
        return Err(format!("{call:?} left the key"));
    }
    let forced = call.iter().any(|word| word.eq_ignore_ascii_case("FORCE"));
    if (reply[0] >= 1 || forced) && call[0] != "RL.PEEK" {
        let longest_ms = step.ttl_ms.unwrap_or(i64::MAX);
        let nothing_is_used = !exists && step.reply[4] == 0;
        if !nothing_is_used && !(step.reply[4]..=longest_ms).contains(&ttl_ms) {
            return Err(format!(
                "{call:?}: TTL {ttl_ms}, not {}..={longest_ms}",
                step.reply[4]
            ));
        }
    }
    Ok(())
}

#[test]
fn replayed_calls_are_decided_as_the_model_decides() {
    replay(include_str!("../data/replay.jsonl"), 3_912);
}

#[test]
fn a_look_before_each_call_tells_what_the_model_tells_and_changes_nothing() {
    replay(include_str!("../data/peek.jsonl"), 1_660);
}

#[test]
fn what_is_settled_is_decided_as_the_model_decides() {
    replay(include_str!("../data/settle.jsonl"), 1);
}

#[test]
fn edges_are_decided_as_the_model_decides() {
    replay(include_str!("../data/edges.jsonl"), 1);
}
