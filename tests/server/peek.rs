//! `RL.PEEK`: what a call would be answered, from anywhere that may read, with nothing written.

use redis::{Connection, Value};

use support::{
    INVALID_STATE, Options, SECOND, Server, T0, WRONG_TYPE, ask, caught_up, changes, error, follow,
    info, send, send_bytes, snapshot,
};

/// Each form, as a call and as a look.
const FORMS: [(&str, &str); 4] = [
    ("RL.FIXED f 5 3600000", "RL.PEEK f FIXED 5 3600000"),
    ("RL.TOKEN t 5 1 3600000", "RL.PEEK t TOKEN 5 1 3600000"),
    ("RL.SLIDE s 5 3600000", "RL.PEEK s SLIDE 5 3600000"),
    (
        "RL.SLIDE e 5 3600000 EXACT",
        "RL.PEEK e SLIDE 5 3600000 EXACT",
    ),
];

fn fill(connection: &mut Connection) {
    for (call, _) in FORMS {
        assert_eq!(ask(connection, &format!("{call} COST 3"))[0], 1);
    }
    for id in ["a", "b"] {
        assert_eq!(ask(connection, &format!("RL.LEASE l 3 3600000 {id}"))[0], 1);
    }
}

/// Looks at what [`fill`] left: 2 units are there, so 2 fit and 3 do not.
fn look(connection: &mut Connection) {
    for (_, peek) in FORMS {
        let [allowed, limit, remaining, retry_after_ms, reset_after_ms] = ask(connection, peek);
        assert_eq!(
            [allowed, limit, remaining, retry_after_ms],
            [1, 5, 2, 0],
            "{peek}"
        );
        assert!(reset_after_ms > 0, "{peek}");
        let refused = ask(connection, &format!("{peek} COST 3"));
        assert_eq!(refused[..3], [0, 5, 2], "{peek}");
        assert!(refused[3] > 0, "{peek}");
        let never = ask(connection, &format!("{peek} COST 6"));
        assert_eq!(never[..4], [0, 5, 2, -1], "{peek}");
        for (most, allowed) in [(1, 1), (2, 2), (3, 2), (9, 2)] {
            let most = ask(connection, &format!("{peek} UPTO {most}"));
            assert_eq!(most[..4], [allowed, 5, 2, 0], "{peek}");
        }
    }
    for (limit, id, allowed, remaining) in [
        (3, "a", 1, 1),
        (3, "c", 1, 1),
        (2, "a", 1, 0),
        (2, "c", 0, 0),
        (1, "b", 1, 0),
    ] {
        let peek = format!("RL.PEEK l LEASE {limit} 3600000 {id}");
        let told = ask(connection, &peek);
        assert_eq!(told[..3], [allowed, limit, remaining], "{peek}");
        assert_eq!(told[3] == 0, allowed == 1, "{peek}");
        assert!(told[4] > 0, "{peek}");
    }
}

#[test]
fn a_look_at_nothing_sees_all_of_it() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for (_, peek) in FORMS {
        assert_eq!(ask(&mut connection, peek), [1, 5, 5, 0, 0], "{peek}");
        assert_eq!(
            ask(&mut connection, &format!("{peek} COST 6")),
            [0, 5, 5, -1, 0],
            "{peek}"
        );
        let most = ask(&mut connection, &format!("{peek} UPTO 6"));
        assert_eq!(most, [5, 5, 5, 0, 0], "{peek}");
    }
    let lease = "RL.PEEK l LEASE 3 3600000 a";
    assert_eq!(ask(&mut connection, lease), [1, 3, 3, 0, 0]);
    assert_eq!(send::<usize>(&mut connection, &["DBSIZE"]), 0);
}

#[test]
fn a_look_writes_nothing() {
    let server = Server::at(T0);
    let (mut connection, mut observer) = (server.connect(), server.connect());
    fill(&mut connection);
    // A counter as others make it, which the server keeps as a number.
    send::<()>(
        &mut connection,
        &["SET", "taken:over", "3", "PX", "3600000"],
    );
    let keys = ["f", "t", "s", "e", "l", "taken:over"];
    let before = keys.map(|key| snapshot(&mut observer, key));
    let dirty = changes(&mut observer);
    send::<()>(
        &mut connection,
        &["WATCH", "f", "t", "s", "e", "l", "taken:over"],
    );
    look(&mut observer);
    let taken_over = "RL.PEEK taken:over FIXED 5 3600000";
    assert_eq!(ask(&mut observer, taken_over), [1, 5, 2, 0, 3_600_000]);
    // A clock that was set back is for the next call to store.
    server.set_clock(T0 - 60 * SECOND);
    for (_, peek) in FORMS {
        assert_eq!(ask(&mut observer, peek)[..3], [1, 5, 2], "{peek}");
        assert_eq!(ask(&mut observer, &format!("{peek} COST 3"))[0], 0);
    }
    server.set_clock(T0);
    assert_eq!(keys.map(|key| snapshot(&mut observer, key)), before);
    assert_eq!(changes(&mut observer), dirty);
    send::<()>(&mut connection, &["MULTI"]);
    send::<()>(&mut connection, &["PING"]);
    let done: Option<Vec<String>> = send(&mut connection, &["EXEC"]);
    assert_eq!(done, Some(vec!["PONG".to_owned()]), "a look is no change");
}

#[test]
fn a_replica_looks_at_its_copy() {
    let primary = Options::new()
        .primary()
        // Nothing but commands goes to the replica.
        .arg("repl-ping-replica-period", "3600")
        .start();
    let replica = Options::new().tcp().start();
    follow(&replica, &primary);
    fill(&mut primary.connect());
    caught_up(&replica, &primary);
    let mut connection = replica.connect();
    look(&mut connection);
    for (call, _) in FORMS {
        assert!(error(&mut connection, call).starts_with("READONLY"));
    }
    let offset = |server: &Server| info(&mut server.connect(), "replication", "master_repl_offset");
    let before = offset(&primary);
    look(&mut primary.connect());
    assert_eq!(offset(&primary), before, "nothing is replicated");
}

#[test]
fn a_user_who_may_only_read_looks() {
    let server = Options::new().start();
    fill(&mut server.connect());
    let mut reader = server.connect_as("%R~* +@all");
    look(&mut reader);
    for (call, _) in FORMS {
        assert!(error(&mut reader, call).starts_with("NOPERM"), "{call}");
    }
}

#[test]
fn a_look_needs_no_memory() {
    let server = Options::new().start();
    let mut connection = server.connect();
    fill(&mut connection);
    send::<()>(
        &mut connection,
        &["SET", "taken:over", "3", "PX", "3600000"],
    );
    let used = info(&mut connection, "memory", "used_memory");
    let half = (used / 2).to_string();
    send::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", &half]);
    assert!(error(&mut connection, "SET plain 1").starts_with("OOM"));
    look(&mut connection);
    let taken_over = "RL.PEEK taken:over FIXED 5 3600000";
    assert_eq!(ask(&mut connection, taken_over)[..4], [1, 5, 2, 0]);
    for (_, peek) in FORMS {
        let absent = peek.replacen("RL.PEEK ", "RL.PEEK new:", 1);
        assert_eq!(ask(&mut connection, &absent), [1, 5, 5, 0, 0], "{absent}");
    }
}

#[test]
fn a_look_checks_what_it_reads() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    send::<()>(&mut connection, &["SET", "text", "x", "PX", "60000"]);
    send::<()>(&mut connection, &["SET", "forever", "1"]);
    send::<()>(&mut connection, &["HSET", "hash", "a", "b"]);
    send::<()>(&mut connection, &["RPUSH", "list", "a", "b"]);
    send::<()>(&mut connection, &["PEXPIRE", "list", "60000"]);
    for (_, peek) in FORMS {
        let exact = peek.contains("EXACT");
        let at = |key: &str| {
            let mut words: Vec<&str> = peek.split(' ').collect();
            words[1] = key;
            words.join(" ")
        };
        let of_text = if exact { WRONG_TYPE } else { INVALID_STATE };
        let of_list = if exact { INVALID_STATE } else { WRONG_TYPE };
        assert_eq!(error(&mut connection, &at("text")), of_text, "{peek}");
        assert_eq!(error(&mut connection, &at("forever")), of_text, "{peek}");
        assert_eq!(error(&mut connection, &at("list")), of_list, "{peek}");
        assert_eq!(error(&mut connection, &at("hash")), WRONG_TYPE, "{peek}");
    }
}

#[test]
fn a_look_takes_what_the_command_of_its_algorithm_takes() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let arity = "ERR wrong number of arguments for 'rl.peek' command";
    let syntax = "ERR syntax error";
    for (line, expected) in [
        ("RL.PEEK", arity),
        ("RL.PEEK k", arity),
        ("RL.PEEK k FIXED 1", arity),
        ("RL.PEEK k TOKEN 0 0", arity),
        ("RL.PEEK k BUCKET 1 1", syntax),
        ("RL.PEEK k EXACT 1 1", syntax),
        ("RL.PEEK k FIXED 1 1 EXACT", syntax),
        ("RL.PEEK k SLIDE 1 1 EXACT EXACT", syntax),
        ("RL.PEEK k FIXED 1 1 FORCE", syntax),
        ("RL.PEEK k FIXED 1 1 COST 1 FORCE", syntax),
        ("RL.PEEK k TOKEN 1 1 1 FORCE COST 1", syntax),
        ("RL.PEEK k FIXED 1 1 REFUND 1", syntax),
        ("RL.PEEK k TOKEN 1 1 1 REFUND 1", syntax),
        ("RL.PEEK k SLIDE 1 1 REFUND 0", syntax),
        ("RL.PEEK k SLIDE 1 1 EXACT REFUND 1", syntax),
        ("RL.PEEK k SLIDE 1 1 COST 1 UPTO 1", syntax),
        ("RL.PEEK k SLIDE 1 1 UPTO 1 UPTO 1", syntax),
        ("RL.PEEK k FIXED 1 1 UPTO", syntax),
        ("RL.PEEK k LEASE 1 1", arity),
        ("RL.PEEK k LEASE 1 1 id RENEW", syntax),
        ("RL.PEEK k LEASE 1 1 id RELEASE", syntax),
        ("RL.PEEK k LEASE 1 1 id COST 1", syntax),
        ("RL.PEEK k ALL 1 k FIXED 1 1", syntax),
        (
            "RL.PEEK k LEASE 10001 1 id",
            "ERR invalid rate limit policy: limit must be an integer between 1 and 10000",
        ),
        (
            "RL.PEEK k FIXED 1 1 UPTO 0",
            "ERR invalid rate limit policy: upto must be an integer between 1 and 9007199254740991",
        ),
        (
            "RL.PEEK k FIXED 1 0",
            "ERR invalid rate limit policy: window_ms must be an integer between 1 and 3153600000000",
        ),
        (
            "RL.PEEK k SLIDE 10001 1 EXACT",
            "ERR invalid rate limit policy: limit must be an integer between 1 and 10000",
        ),
        (
            "RL.PEEK k TOKEN 2 1 3153600000000",
            "ERR invalid rate limit policy: capacity * period_ms / refill must be at most 3153600000000",
        ),
    ] {
        assert_eq!(error(&mut connection, line), expected, "{line}");
    }
    let reply = ask(&mut connection, "rl.peek k token 9 3 1000 cost 4");
    assert_eq!(reply, [1, 9, 9, 0, 0]);
}

#[test]
fn no_bytes_make_a_look_fail_otherwise() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for word in [&b"\0"[..], b"\xff\xfe", b"%s%n", b"", b"FIXED\0"] {
        let reply: Result<Value, _> =
            send_bytes(&mut connection, &[b"RL.PEEK", word, word, word, word]);
        assert!(reply.is_err(), "{word:?}");
        let key: Result<Value, _> =
            send_bytes(&mut connection, &[b"RL.PEEK", word, b"FIXED", b"1", b"1"]);
        assert!(key.is_ok(), "{word:?} names a key");
    }
}
