//! Concurrent callers, transactions, scripts, protocols.

use std::thread;

use redis::Value;

use support::{Server, ask, ask_all, send};

fn admitted_of(server: &Server, threads: usize, calls: usize, line: &'static str) -> i64 {
    let callers: Vec<_> = (0..threads)
        .map(|_| {
            let mut connection = server.connect();
            thread::spawn(move || {
                (0..calls)
                    .map(|_| ask(&mut connection, line)[0])
                    .sum::<i64>()
            })
        })
        .collect();
    callers
        .into_iter()
        .map(|caller| caller.join().unwrap())
        .sum()
}

#[test]
fn concurrent_callers_share_one_limit() {
    let server = Server::start();
    for line in [
        "RL.FIXED f 3 3600000",
        "RL.TOKEN t 3 1 3600000",
        "RL.SLIDE s 3 315360000000",
        "RL.SLIDE e 3 3600000 EXACT",
    ] {
        assert_eq!(admitted_of(&server, 40, 1, line), 3, "{line}");
    }
    assert_eq!(
        admitted_of(&server, 50, 20, "RL.TOKEN wide 100 1 31536000000"),
        100
    );
    assert_eq!(
        admitted_of(&server, 50, 20, "RL.FIXED wider 100 3600000"),
        100
    );
}

#[test]
fn concurrent_callers_share_several_limits() {
    let server = Server::start();
    let callers = 40;
    let admitted: i64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..callers)
            .map(|caller| {
                let mut connection = server.connect();
                let call = format!(
                    "RL.ALL 4 {{k}}f {{k}}t {{k}}e {{k}}l FIXED 1000 3600000 \
                     TOKEN 90 1 31536000000 COST 2 SLIDE 50 3600000 EXACT \
                     LEASE 17 3600000 {caller}"
                );
                scope.spawn(move || ask_all(&mut connection, &call).0)
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(admitted, 17);
    let mut connection = server.connect();
    assert_eq!(send::<i64>(&mut connection, &["GET", "{k}f"]), 17);
    assert_eq!(send::<i64>(&mut connection, &["LLEN", "{k}e"]), 17);
    assert_eq!(send::<i64>(&mut connection, &["ZCARD", "{k}l"]), 17);
    let bucket = "RL.PEEK {k}t TOKEN 90 1 31536000000";
    assert_eq!(ask(&mut connection, bucket)[2], 90 - 2 * 17);
}

#[test]
fn keys_are_independent() {
    let server = Server::start();
    let mut connection = server.connect();
    for key in ["a", "b", "{a}b", "a:b"] {
        for _ in 0..2 {
            assert_eq!(
                ask(&mut connection, &format!("RL.FIXED {key} 2 3600000"))[0],
                1
            );
        }
        assert_eq!(
            ask(&mut connection, &format!("RL.FIXED {key} 2 3600000"))[0],
            0
        );
    }
    send::<()>(&mut connection, &["SELECT", "1"]);
    assert_eq!(
        ask(&mut connection, "RL.FIXED a 2 3600000")[0],
        1,
        "so are databases"
    );
}

#[test]
fn the_server_knows_the_commands() {
    let server = Server::start();
    let mut connection = server.connect();
    for (name, arity, flags) in [
        ("rl.fixed", -4, vec!["write", "fast"]),
        ("rl.token", -5, vec!["write", "fast"]),
        ("rl.slide", -4, vec!["write"]),
        ("rl.lease", -5, vec!["write"]),
    ] {
        let info: Vec<Value> = send(&mut connection, &["COMMAND", "INFO", name]);
        let Value::Array(info) = &info[0] else {
            panic!("{info:?}")
        };
        let text = |value: &Value| match value {
            Value::SimpleString(text) => text.clone(),
            Value::BulkString(text) => String::from_utf8(text.clone()).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(text(&info[0]), name);
        assert_eq!(info[1], Value::Int(arity));
        let (Value::Array(known) | Value::Set(known)) = &info[2] else {
            panic!("{info:?}")
        };
        let known: Vec<String> = known
            .iter()
            .map(text)
            .filter(|flag| flag != "module")
            .collect();
        assert_eq!(known, flags, "{name}");
        assert_eq!(
            info[3..6],
            [Value::Int(1), Value::Int(1), Value::Int(1)],
            "{name}"
        );
        let keys: Vec<String> = send(
            &mut connection,
            &["COMMAND", "GETKEYS", name, "some:key", "1", "1", "1"],
        );
        assert_eq!(keys, ["some:key"]);
    }
}
