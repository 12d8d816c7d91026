//! The script for several limits that `docs/several-limits.md` prints: all are charged, or none is.

use redis::{Connection, Value};

use crate::memory::fill_memory;
use crate::readme::scripts;
use support::{Options, Server, T0, ask, changes, error_text, send, snapshot, try_send};

const PAGE: &str = include_str!("../../docs/several-limits.md");

/// Each limit as a key and the words after it.
type Limits<'a> = [(&'a str, &'a str)];

fn script() -> &'static str {
    scripts(PAGE).next().expect("a script on the page")
}

/// `allowed`, `retry_after_ms`, and the reply of each limit.
type Reply = (i64, i64, Vec<[i64; 5]>);

fn call(connection: &mut Connection, limits: &Limits<'_>) -> Result<Reply, String> {
    let count = limits.len().to_string();
    let mut words = vec!["EVAL", script(), &count];
    words.extend(limits.iter().map(|limit| limit.0));
    words.extend(limits.iter().map(|limit| limit.1));
    try_send(connection, &words).map_err(|error| error_text(&error))
}

fn keys(connection: &mut Connection) -> usize {
    send(connection, &["DBSIZE"])
}

#[test]
fn all_are_charged_when_all_admit() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let limits = [
        ("f", "FIXED 5 60000"),
        ("t", "TOKEN 10 1 1000 COST 4"),
        ("s", "SLIDE 20 60000 COST 2"),
        ("e", "slide 3 60000 exact"),
    ];
    let expected = vec![
        [1, 5, 4, 0, 60_000],
        [1, 10, 6, 0, 4_000],
        [1, 20, 18, 0, 120_000],
        [1, 3, 2, 0, 60_000],
    ];
    assert_eq!(call(&mut connection, &limits), Ok((1, 0, expected)));
    // Each as its own command would have answered, a key that is there or not.
    let (allowed, wait, replies) = call(&mut connection, &limits).expect("a reply");
    assert_eq!((allowed, wait), (1, 2_000), "the bucket has 2 of 4 left");
    let remaining: Vec<i64> = replies.iter().map(|reply| reply[2]).collect();
    assert_eq!(remaining, [3, 2, 16, 1]);
}

#[test]
fn one_that_refuses_leaves_the_others_alone() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    ask(&mut connection, "RL.FIXED narrow 1 1000");
    ask(&mut connection, "RL.FIXED broad 10 60000");
    let changes_before = changes(&mut connection);
    let broad = snapshot(&mut connection, "broad");
    let [narrow, wide, new] = [
        ("narrow", "FIXED 1 1000"),
        ("broad", "FIXED 10 60000"),
        ("new", "TOKEN 10 1 1000"),
    ];
    for limits in [[narrow, wide, new], [new, wide, narrow]] {
        let (allowed, wait, mut replies) = call(&mut connection, &limits).expect("a reply");
        assert_eq!((allowed, wait), (0, 1_000));
        replies.sort_unstable();
        // The others as they are, untaken.
        let expected = [
            [0, 1, 0, 1_000, 1_000],
            [1, 10, 9, 0, 60_000],
            [1, 10, 10, 0, 0],
        ];
        assert_eq!(replies, expected);
    }
    // The longest wait counts, and never is longer than any.
    let never = ("never", "FIXED 1 1000 COST 2");
    let reply = call(&mut connection, &[never, narrow, wide]).expect("a reply");
    assert_eq!((reply.0, reply.1), (0, -1));
    assert_eq!(snapshot(&mut connection, "broad"), broad);
    assert_eq!(keys(&mut connection), 2);
    assert_eq!(changes(&mut connection), changes_before);
}

#[test]
fn an_error_of_one_charges_none() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    send::<()>(&mut connection, &["SET", "foreign", "text", "PX", "60000"]);
    send::<()>(&mut connection, &["HSET", "hash", "field", "1"]);
    let good = ("good", "FIXED 5 60000");
    for (bad, text) in [
        (("foreign", "FIXED 5 60000"), "INVALIDSTATE invalid counter"),
        (("hash", "TOKEN 5 1 1000"), "WRONGTYPE "),
        (
            ("k", "FIXED 0 60000"),
            "ERR invalid rate limit policy: limit",
        ),
        (("k", "BUCKET 5 60000"), "ERR syntax error"),
        (("k", ""), "ERR Wrong number of args"),
        (("good", "FIXED 5 60000"), "ERR keys must differ"),
    ] {
        for limits in [[good, bad], [bad, good]] {
            let error = call(&mut connection, &limits).expect_err("an error");
            assert!(error.contains(text), "{bad:?}: {error}");
        }
    }
    for words in [&["1", "good"][..], &["1", "good", "FIXED 5 60000", "more"]] {
        let words = [&["EVAL", script()], words].concat();
        let error = try_send::<Value>(&mut connection, &words).expect_err("an error");
        assert_eq!(error_text(&error), "ERR one limit for each key");
    }
    assert_eq!(keys(&mut connection), 2);
}

#[test]
fn full_memory_stops_what_is_new_and_charges_nothing() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let [known, other, log, new] = [
        ("known", "FIXED 5 60000"),
        ("other", "TOKEN 5 1 60000"),
        ("log", "SLIDE 5 60000 EXACT"),
        ("new", "FIXED 5 60000"),
    ];
    call(&mut connection, &[known, other, log]).expect("a reply");
    fill_memory(&mut connection);
    let reply = call(&mut connection, &[known, other]).expect("a reply");
    assert_eq!((reply.0, reply.1), (1, 0));
    let before = ["known", "other"].map(|key| snapshot(&mut connection, key));
    for limits in [
        [known, new, other],
        [new, known, other],
        [log, known, other],
    ] {
        let error = call(&mut connection, &limits).expect_err("an error");
        assert!(error.starts_with("OOM "), "{error}");
    }
    // A refusal needs no memory.
    let reply = call(&mut connection, &[("known", "FIXED 1 60000"), new]).expect("a reply");
    assert_eq!(reply.0, 0);
    let after = ["known", "other"].map(|key| snapshot(&mut connection, key));
    assert_eq!(after, before);
    assert_eq!(keys(&mut connection), 3);
}

#[test]
fn the_rights_that_the_page_names_are_enough() {
    let server = Options::new().start();
    // By name, as Redis 7.0 has no `@ratelimit`.
    let ours = "+rl.fixed +rl.token +rl.slide +rl.peek";
    let rights = format!("~rl:* {ours} +eval +evalsha +exists +script|load");
    let mut user = server.connect_as(&rights);
    let sha: String = send(&mut user, &["SCRIPT", "LOAD", script()]);
    assert!(PAGE.contains(&format!("EVALSHA {sha} ")), "{sha}");
    let limits = [
        "2",
        "rl:{a}:1",
        "rl:{a}:2",
        "FIXED 5 60000",
        "TOKEN 5 1 1000",
    ];
    let reply: Reply = send(&mut user, &[&["EVALSHA", &*sha], &limits[..]].concat());
    assert_eq!(reply.0, 1);
}
