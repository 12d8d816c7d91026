//! Decisions computed by an independent model, replayed on a real server whose clock the test
//! holds.

use redis::{Connection, Value};
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
    reply: Reply,
    #[serde(default)]
    same: bool,
    #[serde(default)]
    gone: bool,
    /// Of a call on several keys.
    #[serde(default)]
    keys: Vec<String>,
    ttl_ms: Option<i64>,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
enum Reply {
    Integer(i64),
    Array(Vec<Reply>),
}

impl Reply {
    fn from(value: Value) -> Self {
        match value {
            Value::Int(integer) => Self::Integer(integer),
            Value::Array(values) => Self::Array(values.into_iter().map(Self::from).collect()),
            other => panic!("no reply of ours: {other:?}"),
        }
    }

    /// The five integers of each limit.
    fn decisions(&self) -> Vec<[i64; 5]> {
        let Self::Array(parts) = self else {
            panic!("no array")
        };
        let integer = |part: &Self| match part {
            Self::Integer(integer) => *integer,
            Self::Array(_) => panic!("no integer"),
        };
        if let Some(Self::Array(limits)) = parts.last() {
            return limits.iter().flat_map(Self::decisions).collect();
        }
        let integers: Vec<i64> = parts.iter().map(integer).collect();
        vec![integers.try_into().expect("five integers")]
    }

    /// The first integer: whether the call was admitted.
    fn is_admitted(&self) -> bool {
        let Self::Array(parts) = self else {
            panic!("no array")
        };
        parts.first() != Some(&Self::Integer(0))
    }
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
    let keys = match &step.keys[..] {
        [] => vec![call[1]],
        keys => keys.iter().map(String::as_str).collect(),
    };
    server.set_clock(step.at_us);
    let snapshots = |connection: &mut Connection| -> Vec<_> {
        let keys = keys.iter().filter(|_| step.same);
        keys.map(|key| snapshot(connection, key)).collect()
    };
    let before = snapshots(connection);
    let reply = Reply::from(send(connection, &call));
    if reply != step.reply {
        return Err(format!(
            "{call:?} at {}: {reply:?}, not {:?}",
            step.at_us, step.reply
        ));
    }
    if before != snapshots(connection) {
        return Err(format!("{call:?} changed a key"));
    }
    let forced = call.iter().any(|word| word.eq_ignore_ascii_case("FORCE"));
    let charged = call[0] != "RL.PEEK" && (forced || reply.is_admitted());
    for (key, decision) in keys.iter().zip(step.reply.decisions()) {
        let ttl_ms: i64 = send(connection, &["PTTL", key]);
        let exists = ttl_ms != -2;
        if step.gone && exists {
            return Err(format!("{call:?} left the key"));
        }
        // A forced limit says nothing of one that is refused with it.
        if !charged || keys.len() > 1 && !reply.is_admitted() {
            continue;
        }
        let longest_ms = step.ttl_ms.unwrap_or(i64::MAX);
        let nothing_is_used = !exists && decision[4] == 0;
        if !nothing_is_used && !(decision[4]..=longest_ms).contains(&ttl_ms) {
            return Err(format!(
                "{call:?}: TTL {ttl_ms}, not {}..={longest_ms}",
                decision[4]
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

#[test]
fn leases_are_decided_as_the_model_decides() {
    replay(include_str!("../data/lease.jsonl"), 988);
}

#[test]
fn several_limits_are_decided_as_the_model_decides() {
    replay(include_str!("../data/all.jsonl"), 1_685);
}
