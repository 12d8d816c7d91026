//! Keys that somebody else made, and keys that are over.

use crate::support::{Server, T0, ask, error, send};

const CALLS: [&str; 4] = [
    "RL.FIXED k 5 60000",
    "RL.TOKEN k 5 1 60000",
    "RL.SLIDE k 5 60000",
    "RL.SLIDE k 5 60000 EXACT",
];

#[test]
fn a_log_holds_ten_thousand_entries_at_most() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let time = T0.to_string();
    let mut push = vec!["RPUSH", "k"];
    push.extend(std::iter::repeat_n(time.as_str(), 10_000));
    send::<()>(&mut connection, &push);
    send::<()>(&mut connection, &["PEXPIRE", "k", "100000"]);
    assert_eq!(
        ask(&mut connection, "RL.SLIDE k 10000 60000 EXACT"),
        [0, 10_000, 0, 60_000, 60_000]
    );
    assert_eq!(
        ask(&mut connection, "RL.SLIDE k 5 60000 EXACT"),
        [0, 5, 0, 60_000, 60_000]
    );
    send::<()>(&mut connection, &["RPUSH", "k", &time]);
    let invalid = "INVALIDSTATE invalid counter state, key left unchanged";
    assert_eq!(error(&mut connection, CALLS[3]), invalid, "10,001 entries");
    assert_eq!(send::<i64>(&mut connection, &["LLEN", "k"]), 10_001);
}

#[test]
fn counters_made_by_hand_are_taken_over() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let script = "local n = redis.call('INCR', KEYS[1]) \
                  if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end return n";
    for make in [
        vec![vec!["SET", "k", "3", "PX", "60000"]],
        vec![vec!["INCRBY", "k", "3"], vec!["PEXPIRE", "k", "60000"]],
        vec![vec!["EVAL", script, "1", "k", "60000"]; 3],
    ] {
        for words in &make {
            send::<redis::Value>(&mut connection, words);
        }
        server.set_clock(T0 + 10_000_000);
        assert_eq!(
            ask(&mut connection, CALLS[0]),
            [1, 5, 1, 0, 50_000],
            "{make:?}"
        );
        assert_eq!(
            ask(&mut connection, "RL.FIXED k 5 1000 COST 2"),
            [0, 5, 1, 50_000, 50_000]
        );
        assert_eq!(ask(&mut connection, CALLS[0]), [1, 5, 0, 50_000, 50_000]);
        // And back: it is the counter that INCR knows.
        assert_eq!(send::<i64>(&mut connection, &["INCR", "k"]), 6);
        assert_eq!(send::<i64>(&mut connection, &["PTTL", "k"]), 50_000);
        assert_eq!(ask(&mut connection, CALLS[0]), [0, 5, 0, 50_000, 50_000]);
        send::<()>(&mut connection, &["DEL", "k"]);
        server.set_clock(T0);
    }
}

#[test]
fn a_key_at_the_end_of_its_window_starts_anew_and_past_its_ttl_is_absent() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for call in ["RL.FIXED k 1 1000", "RL.FIXED k 1 1000 COST 1"] {
        assert_eq!(ask(&mut connection, call), [1, 1, 0, 1_000, 1_000]);
        server.set_clock(T0 + 999_999);
        assert_eq!(ask(&mut connection, call), [0, 1, 0, 1, 1]);
        server.set_clock(T0 + 1_000_000);
        assert_eq!(
            send::<i64>(&mut connection, &["PTTL", "k"]),
            0,
            "Redis still shows it"
        );
        assert_eq!(ask(&mut connection, call), [1, 1, 0, 1_000, 1_000]);
        send::<()>(&mut connection, &["DEL", "k"]);
        server.set_clock(T0);
    }
    for (index, call) in CALLS.iter().enumerate() {
        send::<()>(&mut connection, &["SET", "k", "hello", "PX", "10"]);
        assert!(error(&mut connection, call).ends_with(if index == 3 {
            "kind of value"
        } else {
            "unchanged"
        }));
        server.set_clock(T0 + 11_000);
        assert_eq!(ask(&mut connection, call)[..3], [1, 5, 4], "{call}");
        send::<()>(&mut connection, &["DEL", "k"]);
        server.set_clock(T0);
    }
}

#[test]
fn a_log_is_checked_where_its_window_is_looked_for() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let invalid = "INVALIDSTATE invalid counter state, key left unchanged";
    for middle in [
        "x",
        "1779331000000000",
        "1779331300000000",
        "177933110000000",
    ] {
        let mut push = vec!["RPUSH", "k", "1779331100000000"];
        push.extend([middle; 7]);
        push.push("1779331200000000");
        send::<()>(&mut connection, &push);
        send::<()>(&mut connection, &["PEXPIRE", "k", "100000"]);
        assert_eq!(error(&mut connection, CALLS[3]), invalid, "{middle}");
        send::<()>(&mut connection, &["DEL", "k"]);
    }
}
