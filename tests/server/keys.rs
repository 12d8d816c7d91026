//! Keys that somebody else made, and keys that are over.

use support::forms::{EXACT, FIXED, LEASE, ON_ONE_KEY, settling};
use support::{INVALID_STATE, Options, Server, T0, ask, error, send, snapshot, try_send};

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
    assert_eq!(
        error(&mut connection, EXACT),
        INVALID_STATE,
        "10,001 entries"
    );
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
            ask(&mut connection, FIXED),
            [1, 5, 1, 0, 50_000],
            "{make:?}"
        );
        assert_eq!(
            ask(&mut connection, "RL.FIXED k 5 1000 COST 2"),
            [0, 5, 1, 50_000, 50_000]
        );
        assert_eq!(ask(&mut connection, FIXED), [1, 5, 0, 50_000, 50_000]);
        // And back: it is the counter that INCR knows.
        assert_eq!(send::<i64>(&mut connection, &["INCR", "k"]), 6);
        assert_eq!(send::<i64>(&mut connection, &["PTTL", "k"]), 50_000);
        assert_eq!(ask(&mut connection, FIXED), [0, 5, 0, 50_000, 50_000]);
        send::<()>(&mut connection, &["DEL", "k"]);
        server.set_clock(T0);
    }
}

/// A server keeps one object for all small numbers, which must not change under other keys.
#[test]
fn counters_made_by_hand_settle_alone() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for (words, allowed, count) in [
        ("REFUND 1", 1, Some("2")),
        ("REFUND 3", 1, None),
        ("REFUND 9", 1, None),
        ("UPTO 9", 2, Some("5")),
        ("COST 3 FORCE", 0, Some("6")),
        ("COST 97 FORCE", 0, Some("100")),
    ] {
        for key in ["k", "other"] {
            send::<()>(&mut connection, &["SET", key, "3", "PX", "60000"]);
        }
        let reply = ask(&mut connection, &format!("{FIXED} {words}"));
        assert_eq!(reply[0], allowed, "{words}");
        let left: Option<String> = send(&mut connection, &["GET", "k"]);
        assert_eq!(left.as_deref(), count, "{words}");
        if count.is_some() {
            assert_eq!(send::<i64>(&mut connection, &["PTTL", "k"]), 60_000);
        }
        let other: String = send(&mut connection, &["GET", "other"]);
        assert_eq!(other, "3", "{words}");
    }
}

/// The unit that is the newest after a refund says how long something is used, so it is read.
#[test]
fn a_log_that_gives_back_is_checked_where_its_newest_unit_is_looked_for() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for (damage, valid) in [
        ("x", false),
        ("1779331100000000", false),
        ("1779331198000000", true),
    ] {
        let push = [
            "RPUSH",
            "k",
            "1779331196000000",
            "1779331197000000",
            damage,
            "1779331199000000",
        ];
        send::<()>(&mut connection, &push);
        send::<()>(&mut connection, &["PEXPIRE", "k", "100000"]);
        let before = snapshot(&mut connection, "k");
        let call = format!("{EXACT} REFUND 1");
        if valid {
            assert_eq!(ask(&mut connection, &call), [1, 5, 2, 0, 58_000]);
        } else {
            assert_eq!(error(&mut connection, &call), INVALID_STATE, "{damage}");
            assert_eq!(snapshot(&mut connection, "k"), before, "{damage}");
            // What leaves needs no reading.
            let call = format!("{EXACT} REFUND 2");
            assert_eq!(ask(&mut connection, &call), [1, 5, 3, 0, 57_000]);
        }
        send::<()>(&mut connection, &["DEL", "k"]);
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
    for (index, call) in ON_ONE_KEY.iter().enumerate() {
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
        assert_eq!(error(&mut connection, EXACT), INVALID_STATE, "{middle}");
        send::<()>(&mut connection, &["DEL", "k"]);
    }
}

/// Redis shows a key whose TTL has passed for as long as a script runs.
#[test]
fn a_key_past_its_ttl_is_absent_even_while_the_server_shows_it() {
    // The server looks at the clock again only when the script has run for so many ms.
    let server = Options::new().arg("busy-reply-threshold", "10").start();
    let mut connection = server.connect();
    for (index, make) in [
        "SET k 1 PX 50",
        "SET k hello PX 50",
        "HSET k f v",
        "RPUSH k 1",
    ]
    .iter()
    .enumerate()
    {
        for call in ON_ONE_KEY {
            let (call, make): (Vec<&str>, Vec<&str>) = (
                call.split_whitespace().collect(),
                make.split_whitespace().collect(),
            );
            let quoted = |words: &[&str]| {
                words
                    .iter()
                    .map(|word| format!("'{word}'"))
                    .collect::<Vec<_>>()
                    .join(",")
            };
            let script = format!(
                "redis.call({}) redis.call('PEXPIRE','k','50') \
                 local n = 0 for i = 1, 30000000 do n = n + i % 7 end \
                 return {{redis.call('EXISTS','k'), redis.call({})}}",
                quoted(&make),
                quoted(&call)
            );
            let reply: Result<(i64, Vec<i64>), _> =
                try_send(&mut connection, &["EVAL", &script, "0"]);
            let (exists, reply) = reply.unwrap_or_else(|error| panic!("{index} {call:?}: {error}"));
            assert_eq!(
                (exists, &reply[..3]),
                (1, [1, 5, 4].as_slice()),
                "{make:?}, {call:?}"
            );
            let ttl_ms: i64 = send(&mut connection, &["PTTL", "k"]);
            assert!(ttl_ms > 50_000, "{make:?}, {call:?}: {ttl_ms}");
            send::<()>(&mut connection, &["DEL", "k"]);
        }
    }
}

/// The same for what settles: there is nothing to give back, and the whole limit to take.
#[test]
fn what_settles_finds_nothing_in_a_key_past_its_ttl() {
    let server = Options::new().arg("busy-reply-threshold", "10").start();
    let mut connection = server.connect();
    let makes = [
        "'SET', key, '1'",
        "'SET', key, 'hello'",
        "'HSET', key, 'f', 'v'",
        "'RPUSH', key, '1'",
        "'ZADD', key, '9999999999999', 'me'",
    ];
    let mut cases = Vec::new();
    for make in makes {
        for form in ON_ONE_KEY {
            let settling = settling(form).into_iter();
            cases.extend(settling.map(|call| (make, call)));
        }
        let leases = ["", " RENEW", " RELEASE"].map(|word| (make, format!("{LEASE}{word}")));
        cases.extend(leases);
    }
    let numbered = || cases.iter().enumerate();
    let first: Vec<_> = numbered()
        .map(|(index, (make, _))| {
            let key = format!("key = 'k{index}'");
            format!("{key} redis.call({make}) redis.call('PEXPIRE', key, 50) ")
        })
        .collect();
    let then: Vec<_> = numbered()
        .map(|(index, (_, call))| {
            let words: Vec<_> = call.split(' ').collect();
            let (name, rest) = (words[0], words[2..].join("','"));
            format!(
                "key = 'k{index}' exists = redis.call('EXISTS', key) \
                 replies[{}] = {{exists, redis.call('{name}', key, '{rest}')}} ",
                index + 1
            )
        })
        .collect();
    let (first, then) = (first.concat(), then.concat());
    let script = format!(
        "local key {first} local n = 0 for i = 1, 30000000 do n = n + i % 7 end \
         local replies = {{}} local exists {then} return replies"
    );
    let replies: Vec<(i64, [i64; 5])> = send(&mut connection, &["EVAL", &script, "0"]);
    assert_eq!(replies.len(), cases.len());
    for (index, ((exists, reply), (make, call))) in replies.into_iter().zip(cases).enumerate() {
        assert_eq!(exists, 1, "{make}, {call}");
        let key = format!("k{index}");
        let ttl_ms: i64 = send(&mut connection, &["PTTL", &key]);
        if call.contains("REFUND") {
            assert_eq!(reply, [1, 5, 5, 0, 0], "{make}, {call}");
            assert!(ttl_ms <= 0, "{make}, {call}: {ttl_ms}");
            continue;
        }
        if call.ends_with("RENEW") || call.ends_with("RELEASE") {
            assert_eq!(reply, [0, 5, 5, -1, 0], "{make}, {call}");
            assert!(ttl_ms <= 0, "{make}, {call}: {ttl_ms}");
            continue;
        }
        let expected = match call.rsplit_once(' ') {
            Some((_, "6")) => [5, 5, 0],
            _ if call.contains("COST 2") => [1, 5, 3],
            _ => [1, 5, 4],
        };
        assert_eq!(reply[..3], expected, "{make}, {call}");
        assert!(ttl_ms > 50_000, "{make}, {call}: {ttl_ms}");
    }
}

#[test]
fn a_sliding_counter_lives_until_the_end_of_the_next_window_of_the_call_at_hand() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for (window_ms, end_ms) in [(1_500, 3_000), (1_000, 2_000), (7_000, 0), (1_000, 2_000)] {
        ask(&mut connection, &format!("RL.SLIDE s 9 {window_ms}"));
        let start_ms = T0 / 1_000 / window_ms * window_ms;
        let expected_ms = if end_ms == 0 {
            start_ms + 2 * window_ms
        } else {
            T0 / 1_000 + end_ms
        };
        assert_eq!(
            send::<u64>(&mut connection, &["PEXPIRETIME", "s"]),
            expected_ms,
            "{window_ms}"
        );
    }
}
