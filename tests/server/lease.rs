//! `RL.LEASE`: never more than the limit at once, whoever takes, holds, releases or is gone.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, Value};

use support::forms::LEASE;
use support::random::Random;
use support::{
    INVALID_STATE, Options, SECOND, Server, T0, WRONG_TYPE, ask, ask_all, changes, error,
    error_text, info_text, send, send_bytes, snapshot, try_send,
};

const T0_MS: u64 = T0 / 1_000;

fn key_exists(connection: &mut Connection) -> bool {
    send::<usize>(connection, &["EXISTS", "k"]) == 1
}

#[test]
fn a_place_is_taken_once_renewed_and_released() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut at = |second: u64, words: &str, expected: [i64; 5]| {
        server.set_clock(T0 + second * SECOND);
        let reply = ask(&mut connection, &format!("RL.LEASE k 2 30000 {words}"));
        assert_eq!(reply, expected, "{words} at {second} s");
    };
    at(0, "a RENEW", [0, 2, 2, -1, 0]);
    at(0, "a", [1, 2, 1, 0, 30_000]);
    // The same call again takes no second place.
    at(10, "a", [1, 2, 1, 0, 30_000]);
    at(20, "b", [1, 2, 0, 0, 30_000]);
    at(20, "c", [0, 2, 0, 20_000, 30_000]);
    at(30, "a renew", [1, 2, 0, 0, 30_000]);
    at(30, "c", [0, 2, 0, 20_000, 30_000]);
    // A millisecond before it ends, and when it does.
    server.set_clock(T0 + 50 * SECOND - 1_000);
    at(50, "b RENEW", [0, 2, 1, -1, 10_000]);
    at(50, "c", [1, 2, 0, 0, 30_000]);
    // Too late: what it frees is nobody's.
    at(50, "b RELEASE", [0, 2, 0, -1, 30_000]);
    at(50, "d", [0, 2, 0, 10_000, 30_000]);
    at(50, "a Release", [1, 2, 1, 0, 30_000]);
    at(50, "a RELEASE", [0, 2, 1, -1, 30_000]);
    at(50, "d", [1, 2, 0, 0, 30_000]);
    at(50, "c RELEASE", [1, 2, 1, 0, 30_000]);
    at(50, "d RELEASE", [1, 2, 2, 0, 0]);
    assert!(!key_exists(&mut connection), "the last one takes the key");
}

#[test]
fn a_lease_that_is_told_to_wait_is_admitted_then_and_no_sooner() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for (id, ttl_ms) in [("a", 7_001), ("b", 5_000), ("c", 9_999)] {
        ask(&mut connection, &format!("RL.LEASE k 3 {ttl_ms} {id}"));
    }
    for (limit, wait_ms) in [(3, 5_000), (2, 7_001), (1, 9_999)] {
        let call = format!("RL.LEASE k {limit} 60000 d");
        server.set_clock(T0);
        assert_eq!(ask(&mut connection, &call)[3], wait_ms, "{call}");
        let then = T0 + u64::try_from(wait_ms).unwrap() * 1_000;
        server.set_clock(then - 1_000);
        assert_eq!(ask(&mut connection, &call)[..4], [0, limit, 0, 1], "{call}");
        server.set_clock(then);
        send::<()>(&mut connection, &["COPY", "k", "before"]);
        assert_eq!(ask(&mut connection, &call)[0], 1, "{call}");
        send::<()>(&mut connection, &["RENAME", "before", "k"]);
    }
}

#[test]
fn a_sorted_set_shows_who_holds_what() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for (id, ttl_ms) in [("slow", 60_000), ("quick", 5_000)] {
        ask(&mut connection, &format!("RL.LEASE k 9 {ttl_ms} {id}"));
    }
    let held: Vec<(String, u64)> = send(&mut connection, &["ZRANGE", "k", "0", "-1", "WITHSCORES"]);
    let expected = [("quick", T0_MS + 5_000), ("slow", T0_MS + 60_000)];
    assert_eq!(held, expected.map(|(id, end_ms)| (id.to_owned(), end_ms)));
    // An operator may take a lease away, or all of them.
    send::<()>(&mut connection, &["ZREM", "k", "slow"]);
    assert_eq!(ask(&mut connection, "RL.LEASE k 9 1 slow RENEW")[3], -1);
    send::<()>(&mut connection, &["DEL", "k"]);
    let fresh = ask(&mut connection, "RL.LEASE k 9 1000 new");
    assert_eq!(fresh, [1, 9, 8, 0, 1_000]);
}

/// Also those that a server keeps as numbers, and those that look like one of our words.
#[test]
fn any_bytes_are_an_id() {
    let longest = [0xff; 128];
    let ids: [&[u8]; 24] = [
        b"\0",
        b"a\0b",
        b"a\0c",
        b"a",
        b" ",
        b"a b",
        b"\r\n",
        b"\n",
        b"1",
        b"01",
        b"1.0",
        b"-1",
        b"9223372036854775807",
        b"9223372036854775808",
        b"inf",
        b"%s%n",
        b"RENEW",
        b"RELEASE",
        b"COST",
        &longest[..127],
        &longest,
        b"\xc3\x28",
        "\u{1f4a3}".as_bytes(),
        &[b'x'; 65],
    ];
    let count = ids.len().to_string();
    // As few as in each encoding of the server's.
    for most_packed in ["0", "1000"] {
        let options = Options::new().clock(T0);
        let server = options
            .arg("zset-max-listpack-entries", most_packed)
            .start();
        let mut connection = server.connect();
        let mut call = |id: &[u8], word: &[u8]| -> [i64; 5] {
            let mut words: Vec<&[u8]> = vec![b"RL.LEASE", b"k", count.as_bytes(), b"1000", id];
            words.extend((!word.is_empty()).then_some(word));
            send_bytes(&mut connection, &words).expect("a reply")
        };
        let count = i64::try_from(ids.len()).unwrap();
        for (left, id) in (0..count).rev().zip(ids) {
            for _ in 0..2 {
                assert_eq!(call(id, b""), [1, count, left, 0, 1_000], "{id:?}");
            }
        }
        assert_eq!(call(b"other", b"")[0], 0);
        for id in ids {
            assert_eq!(call(id, b"RENEW")[0], 1, "{id:?}");
        }
        for (left, id) in (1..=count).zip(ids) {
            assert_eq!(call(id, b"RELEASE")[..4], [1, count, left, 0], "{id:?}");
            assert_eq!(call(id, b"RELEASE")[..4], [0, count, left, -1], "{id:?}");
        }
        assert!(!key_exists(&mut connection));
    }
}

/// How long the test below goes on, in ms.
fn busy_ms() -> u64 {
    std::env::var("RL_LEASE_MS").map_or(1_500, |ms| ms.parse().expect("a number"))
}

/// A count that the holders keep themselves: raised once a lease is theirs, lowered before it is
/// released. So it can't be above what the server has admitted.
#[test]
fn fifty_clients_never_hold_more_than_seven_at_once() {
    const LIMIT: u64 = 7;
    let server = Options::new().start();
    let [held, most, taken] = [const { AtomicU64::new(0) }; 3];
    let end = Instant::now() + Duration::from_millis(busy_ms());
    thread::scope(|scope| {
        for client in 0..50 {
            let mut connection = server.connect();
            let (held, most, taken) = (&held, &most, &taken);
            scope.spawn(move || {
                let mut random = Random::from(client);
                // Some hold it together with a rate.
                let call = |words: &str| match client % 3 {
                    0 => format!(
                        "RL.ALL 2 {{k}} {{k}}:rate LEASE 7 60000 {client} {words} \
                         FIXED 9000000000000000 3600000"
                    ),
                    _ => format!("RL.LEASE {{k}} 7 60000 {client} {words}"),
                };
                let admitted = |connection: &mut Connection, words: &str| {
                    let line = call(words);
                    if line.starts_with("RL.ALL") {
                        ask_all(connection, &line).2[0][0] == 1
                    } else {
                        ask(connection, &line)[0] == 1
                    }
                };
                while Instant::now() < end {
                    if !admitted(&mut connection, "") {
                        thread::sleep(Duration::from_micros(500));
                        continue;
                    }
                    let now = held.fetch_add(1, SeqCst) + 1;
                    most.fetch_max(now, SeqCst);
                    taken.fetch_add(1, SeqCst);
                    for word in ["", "RENEW"]
                        .into_iter()
                        .cycle()
                        .take(random.below(4) as usize)
                    {
                        thread::sleep(Duration::from_micros(random.below(1_000)));
                        assert!(admitted(&mut connection, word), "{client} holds one");
                    }
                    held.fetch_sub(1, SeqCst);
                    assert!(admitted(&mut connection, "RELEASE"), "{client} held one");
                }
            });
        }
    });
    assert_eq!(most.into_inner(), LIMIT);
    assert!(taken.into_inner() > 10 * LIMIT, "leases come and go");
    let left: usize = send(&mut server.connect(), &["EXISTS", "{k}"]);
    assert_eq!(left, 0);
}

#[test]
fn what_a_dead_holder_held_comes_back_after_its_ttl_and_no_sooner() {
    const TTL_MS: u64 = 400;
    let server = Options::new().start();
    let mut waiting = server.connect();
    let begun = Instant::now();
    for id in 0..3 {
        // The connection ends without a word.
        let call = format!("RL.LEASE k 3 {TTL_MS} {id}");
        assert_eq!(ask(&mut server.connect(), &call)[0], 1);
    }
    let call = format!("RL.LEASE k 3 {TTL_MS} waiting");
    let mut refused = 0;
    loop {
        let [allowed, .., wait_ms, _] = ask(&mut waiting, &call);
        if allowed == 1 {
            break;
        }
        refused += 1;
        // Asked now and then, and in the end as told.
        let ms = u64::try_from(wait_ms)
            .unwrap()
            .min(if refused < 4 { 50 } else { TTL_MS });
        thread::sleep(Duration::from_millis(ms));
    }
    // A lease ends on a whole millisecond.
    assert!(begun.elapsed() >= Duration::from_millis(TTL_MS - 1));
    assert!((1..=5).contains(&refused), "the wait is as told: {refused}");
}

/// Every call of one id, with the words of all that could be asked.
fn calls() -> [String; 6] {
    [
        LEASE.to_owned(),
        format!("{LEASE} RENEW"),
        format!("{LEASE} RELEASE"),
        "RL.LEASE k 10000 3153600000000 other".to_owned(),
        "RL.PEEK k LEASE 5 60000 me".to_owned(),
        "RL.ALL 1 k LEASE 5 60000 me".to_owned(),
    ]
}

/// Every call fails, and nothing is changed.
fn all_fail(connection: &mut Connection, text: &str, what: &str) {
    let (before, dirty) = (snapshot(connection, "k"), changes(connection));
    for call in calls() {
        assert_eq!(error(connection, &call), text, "{call} on {what}");
    }
    assert_eq!(snapshot(connection, "k"), before, "{what}");
    assert_eq!(changes(connection), dirty, "{what}");
}

fn run(connection: &mut Connection, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    send::<Value>(connection, &words);
}

#[test]
fn a_sorted_set_of_anything_else_is_invalid_and_stays() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for scores in [
        "1779331260000.5 a",
        "1779331260000 a 1779331270000.25 b",
        "-5 a",
        "0 a",
        "-inf a",
        "inf a",
        "1779331260000 a inf b",
        "1e300 a",
        "-1e300 a",
        "18446744073709551616 a",
        "1779331260 a",
        "999999999999 a",
        "13153600000000 a",
        "1779331260000000 a",
    ] {
        run(&mut connection, &format!("ZADD k {scores}"));
        run(&mut connection, "PEXPIRE k 100000");
        all_fail(&mut connection, INVALID_STATE, scores);
        run(&mut connection, "DEL k");
    }
    // The ends of the range are in it: one lease that is over, and one that is not.
    for (score, remaining) in [(1_000_000_000_000_u64, 4), (13_153_599_999_999, 3)] {
        run(&mut connection, &format!("ZADD k {score} a"));
        run(&mut connection, "PEXPIRE k 100000");
        assert_eq!(ask(&mut connection, LEASE)[2], remaining, "{score}");
        run(&mut connection, "DEL k");
    }
    for without_ttl in ["ZADD k 1779331260000 a", "ZADD k 1779331260000 me"] {
        run(&mut connection, without_ttl);
        all_fail(&mut connection, INVALID_STATE, without_ttl);
        run(&mut connection, "DEL k");
    }
    for other in [
        "SET k 1",
        "RPUSH k 1779331260000",
        "HSET k f v",
        "SADD k me",
    ] {
        run(&mut connection, other);
        run(&mut connection, "PEXPIRE k 100000");
        all_fail(&mut connection, WRONG_TYPE, other);
        run(&mut connection, "DEL k");
    }
}

/// Of others' leases only the first, the last and the one that is waited for are read; one's own is
/// always.
#[test]
fn a_damaged_score_of_ones_own_is_invalid() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for score in ["1779331260000.5", "1779331260000.001"] {
        for id in ["a", "me", "z"] {
            ask(&mut connection, &format!("RL.LEASE k 5 60000 {id}"));
        }
        run(&mut connection, &format!("ZADD k {score} me"));
        run(&mut connection, "ZADD k 1779331280000 z");
        let before = snapshot(&mut connection, "k");
        for word in ["", "RENEW", "RELEASE"] {
            let call = format!("{LEASE} {word}");
            assert_eq!(error(&mut connection, &call), INVALID_STATE, "{call}");
        }
        assert_eq!(snapshot(&mut connection, "k"), before);
        // The others go on.
        assert_eq!(ask(&mut connection, "RL.LEASE k 5 60000 a RENEW")[0], 1);
        run(&mut connection, "DEL k");
    }
}

/// So many leases from an instant on, of a hundred ms more each.
fn make_leases(connection: &mut Connection, now_ms: u64, count: u64) {
    for first in (0..count).step_by(1_000) {
        let last = count.min(first + 1_000);
        let leases = (first..last).map(|n| format!("{} id{n}", now_ms + (n + 1) * 100));
        let leases = leases.collect::<Vec<_>>().join(" ");
        run(connection, &format!("ZADD k {leases}"));
    }
    run(connection, "PEXPIRE k 86400000");
}

#[test]
fn ten_thousand_leases_are_the_most() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    make_leases(&mut connection, T0_MS, 10_000);
    let call = |limit: u64| format!("RL.LEASE k {limit} 60000 new");
    // After now, all of these limits are full, and each waits for its own lease.
    for limit in [10_000, 9_999, 9_992, 9_990, 5_000, 100, 10, 2, 1] {
        let wait_ms = i64::try_from((10_000 - limit + 1) * 100).unwrap();
        let reply = ask(&mut connection, &call(limit));
        assert_eq!(
            reply,
            [0, limit as i64, 0, wait_ms, 1_000_000],
            "a limit of {limit}"
        );
    }
    // Its own is always renewed, and released, whatever the limit.
    assert_eq!(ask(&mut connection, "RL.LEASE k 1 60000 id77 RENEW")[0], 1);
    assert_eq!(
        ask(&mut connection, "RL.LEASE k 1 60000 id77 RELEASE")[0],
        1
    );
    assert_eq!(ask(&mut connection, &call(10_000))[..3], [1, 10_000, 0]);
    run(&mut connection, "ZADD k 1779331260000 more");
    all_fail(&mut connection, INVALID_STATE, "10,001 members");

    // Thousands are over.
    run(&mut connection, "DEL k");
    make_leases(&mut connection, T0_MS, 10_000);
    server.set_clock(T0 + 600 * SECOND);
    for (limit, wait_ms) in [(4_000, 100), (3_000, 100_100), (1, 400_000)] {
        let reply = ask(&mut connection, &call(limit));
        assert_eq!(reply[3], wait_ms, "a limit of {limit}");
    }
    assert_eq!(send::<i64>(&mut connection, &["ZCARD", "k"]), 10_000);
    assert_eq!(ask(&mut connection, &call(4_001))[..3], [1, 4_001, 0]);
    assert_eq!(send::<i64>(&mut connection, &["ZCARD", "k"]), 4_001);
    server.set_clock(T0 + 999 * SECOND);
    // Ten are left, and those that are over leave with the first that is released.
    assert_eq!(
        ask(&mut connection, "RL.LEASE k 4001 60000 id9995 RELEASE")[..4],
        [1, 4_001, 3_992, 0]
    );
    assert_eq!(send::<i64>(&mut connection, &["ZCARD", "k"]), 9);
}

/// The least time of some rounds of a call, by the server's own count, in µs a call.
fn least_us(connection: &mut Connection, call: &str) -> f64 {
    let round = |connection: &mut Connection| {
        run(connection, "CONFIG RESETSTAT");
        let mut pipe = redis::pipe();
        let words: Vec<&str> = call.split(' ').collect();
        for _ in 0..50 {
            pipe.cmd(words[0]).arg(&words[1..]);
        }
        let replies: Vec<[i64; 5]> = pipe.query(connection).expect("replies");
        assert!(replies.iter().all(|reply| reply[0] == 0), "{call}");
        let text = info_text(connection, "commandstats");
        let of = text
            .lines()
            .find(|line| line.starts_with("cmdstat_rl.lease"));
        let us = of.and_then(|line| line.split_once("usec_per_call=")?.1.split(',').next());
        us.and_then(|us| us.parse::<f64>().ok()).expect("a time")
    };
    (0..20).map(|_| round(connection)).fold(f64::MAX, f64::min)
}

/// A walk through all of them would take about a hundred times as long.
#[test]
fn a_refusal_among_ten_thousand_takes_about_as_long_as_among_few() {
    // A clock that is held would measure nothing.
    let server = Options::new().start();
    let mut connection = server.connect();
    let mut of = |count: u64, limit: u64| {
        run(&mut connection, "DEL k");
        let (seconds, _): (u64, u64) = send(&mut connection, &["TIME"]);
        make_leases(&mut connection, (seconds + 3_600) * 1_000, count);
        least_us(&mut connection, &format!("RL.LEASE k {limit} 60000 new"))
    };
    let few = of(20, 10);
    for limit in [10_000, 5_000, 1] {
        let many = of(10_000, limit);
        assert!(many < 20.0 * few, "{many} µs, not {few} µs, at {limit}");
    }
}

/// A small set is stored in one way and a large one in another, and it may grow from one to the other.
#[test]
fn both_encodings_give_the_same_answers() {
    let servers = ["0", "128", "8"].map(|entries| {
        let options = Options::new().clock(T0);
        options.arg("zset-max-listpack-entries", entries).start()
    });
    let mut connections = servers.each_ref().map(Server::connect);
    let mut random = Random::from(7);
    let mut us = T0;
    for _ in 0..400 {
        us += random.below(300) * 1_000;
        let limit = random.of(&[1, 5, 12, 30]);
        let ttl_ms = random.of(&[50, 1_000, 5_000, 20_000]);
        let id = random.below(25);
        let word = random.of(&["", "", "", "RENEW", "RELEASE"]);
        let call = format!("RL.LEASE k {limit} {ttl_ms} {id} {word}");
        let mut told = connections
            .iter_mut()
            .zip(&servers)
            .map(|(connection, server)| {
                server.set_clock(us);
                let reply = ask(connection, &call);
                let all = ["ZRANGE", "k", "0", "-1", "WITHSCORES"];
                let held: Vec<(String, u64)> = send(connection, &all);
                let expire_at_ms: i64 = send(connection, &["PEXPIRETIME", "k"]);
                (reply, held, expire_at_ms)
            });
        let first = told.next().unwrap();
        assert!(told.all(|other| other == first), "{call} at {us}");
    }
    let encoding = |connection: &mut Connection| -> String {
        run(connection, "DEL k");
        ask(connection, LEASE);
        send(connection, &["OBJECT", "ENCODING", "k"])
    };
    let encodings = connections.each_mut().map(encoding);
    assert_eq!(encodings, ["skiplist", "listpack", "listpack"]);
}

#[test]
fn leases_last_longer_by_a_step_back_and_end_sooner_by_one_forward() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let call = "RL.LEASE k 1 60000 other";
    ask(&mut connection, "RL.LEASE k 1 60000 holder");
    let before = snapshot(&mut connection, "k");
    for (us, wait_ms) in [
        (T0 - 1, 60_001),
        (T0 - 10 * SECOND, 70_000),
        (T0 - 3_600 * SECOND, 3_660_000),
        (T0 + 59 * SECOND, 1_000),
    ] {
        server.set_clock(us);
        assert_eq!(ask(&mut connection, call), [0, 1, 0, wait_ms, wait_ms]);
        // Nothing of the clock is stored.
        assert_eq!(snapshot(&mut connection, "k"), before);
    }
    // One that is renewed after a step back ends by the new clock, and its key with it.
    server.set_clock(T0 - 3_600 * SECOND);
    let renewed = ask(&mut connection, "RL.LEASE k 1 60000 holder RENEW");
    assert_eq!(renewed, [1, 1, 0, 0, 60_000]);
    let ttl_ms: i64 = send(&mut connection, &["PTTL", "k"]);
    assert!((60_000..=121_000).contains(&ttl_ms), "{ttl_ms}");
    server.set_clock(T0 + 60 * SECOND);
    assert_eq!(ask(&mut connection, call), [1, 1, 0, 0, 60_000]);
}

/// An expiry has slack, so that leases that come and go keep it; and no key outlives its use by more
/// than the longest lease and a second.
#[test]
fn the_key_lives_as_long_as_the_last_lease_and_not_much_longer() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut random = Random::from(3);
    let (mut us, mut renewed) = (T0, 0);
    let mut expire_at_ms = 0;
    for _ in 0..500 {
        us += random.below(2_000) * 1_000;
        server.set_clock(us);
        let id = random.below(8);
        let word = random.of(&["", "", "RENEW", "RELEASE"]);
        let reply = ask(&mut connection, &format!("RL.LEASE k 5 10000 {id} {word}"));
        let ttl_ms: i64 = send(&mut connection, &["PTTL", "k"]);
        let is_gone = ttl_ms == -2 && reply[4] == 0;
        assert!(
            is_gone || (reply[4]..=21_000).contains(&ttl_ms),
            "{ttl_ms}: {reply:?}"
        );
        let now: i64 = send(&mut connection, &["PEXPIRETIME", "k"]);
        renewed += usize::from(now != expire_at_ms);
        expire_at_ms = now;
    }
    assert!(
        (2..150).contains(&renewed),
        "the expiry moved {renewed} times"
    );
}

#[test]
fn errors_tell_what_is_wrong_from_left_to_right() {
    const LIMIT: &str =
        "ERR invalid rate limit policy: limit must be an integer between 1 and 10000";
    const TTL: &str =
        "ERR invalid rate limit policy: ttl_ms must be an integer between 1 and 3153600000000";
    const ID: &str = "ERR invalid rate limit policy: id must have 1 to 128 bytes";
    const SYNTAX: &str = "ERR syntax error";
    let server = Server::at(T0);
    let mut connection = server.connect();
    // A key of the wrong type shows that arguments come before the key.
    run(&mut connection, "HSET k f v");
    let long = "x".repeat(129);
    for (words, text) in [
        (&["0", "0", ""][..], LIMIT),
        (&["10001", "1", "id"], LIMIT),
        (&["+1", "1", "id"], LIMIT),
        (&["01", "x", ""], LIMIT),
        (&["1", "0", ""], TTL),
        (&["1", "3153600000001", "id"], TTL),
        (&["1", "1.0", "id"], TTL),
        (&["1", "1", ""], ID),
        (&["1", "1", &long, "WHAT"], ID),
        (&["1", "1", "id", "WHAT"], SYNTAX),
        (&["1", "1", "id", ""], SYNTAX),
        (&["1", "1", "id", "COST", "1"], SYNTAX),
        (&["1", "1", "id", "FORCE"], SYNTAX),
        (&["1", "1", "id", "UPTO", "1"], SYNTAX),
        (&["1", "1", "id", "REFUND", "1"], SYNTAX),
        (&["1", "1", "id", "EXACT"], SYNTAX),
        (&["1", "1", "id", "RENEW", "RENEW"], SYNTAX),
        (&["1", "1", "id", "RENEW", "RELEASE"], SYNTAX),
        (&["1", "1", "id", "RELEASE", "RELEASE"], SYNTAX),
        (&["10000", "3153600000000", "id", "RELEASE"], WRONG_TYPE),
    ] {
        let words = [&["RL.LEASE", "k"], words].concat();
        let told = try_send::<Value>(&mut connection, &words).unwrap_err();
        assert_eq!(error_text(&told), text, "{words:?}");
    }
    let arity = "ERR wrong number of arguments for 'rl.lease' command";
    for call in ["RL.LEASE", "RL.LEASE k", "RL.LEASE k 0", "RL.LEASE k 0 0"] {
        assert_eq!(error(&mut connection, call), arity);
    }
}
