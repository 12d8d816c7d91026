//! A refusal is free, and an admitted call is one change.

use redis::Connection;

use support::{Options, SECOND, Server, T0, ask, changes, info, send, snapshot, try_send};

/// One call per algorithm that admits two and then refuses.
const CALLS: [&str; 4] = [
    "RL.FIXED k 2 3600000",
    "RL.TOKEN k 2 1 3600000",
    "RL.SLIDE k 2 3600000",
    "RL.SLIDE k 2 3600000 EXACT",
];

#[test]
fn refused_call_changes_nothing() {
    // The append-only file has every byte of the stream; "always" writes it before the reply.
    let options = Options::new()
        .clock(T0)
        .arg("appendonly", "yes")
        .arg("appendfsync", "always");
    let server = options.start();
    let mut connection = server.connect();
    for call in CALLS {
        for _ in 0..2 {
            assert_eq!(ask(&mut connection, call)[0], 1, "{call}");
        }
        let before = snapshot(&mut connection, "k");
        let dirty = changes(&mut connection);
        let aof = info(&mut connection, "persistence", "aof_current_size");
        server.set_clock(T0 + 1_000_000);
        for refused in [
            call.to_owned(),
            format!("{call} COST 2"),
            format!("{call} COST 3"),
            format!("{call} UPTO 1"),
            format!("{call} UPTO 3"),
        ] {
            for _ in 0..3 {
                assert_eq!(ask(&mut connection, &refused)[0], 0, "{refused}");
            }
        }
        assert_eq!(snapshot(&mut connection, "k"), before, "{call}");
        assert_eq!(changes(&mut connection), dirty);
        assert_eq!(
            info(&mut connection, "persistence", "aof_current_size"),
            aof
        );
        send::<()>(&mut connection, &["DEL", "k"]);
        server.set_clock(T0);
    }
}

/// Whether a transaction still runs that watches a key.
fn watch_survives(watcher: &mut Connection) -> bool {
    send::<()>(watcher, &["MULTI"]);
    send::<()>(watcher, &["PING"]);
    let ran: Option<Vec<String>> = send(watcher, &["EXEC"]);
    ran.is_some()
}

/// Asks for a refund where nothing is used, and shows that nothing at all has happened.
fn gives_nothing_back(connection: &mut Connection, watcher: &mut Connection, call: &str) {
    let before = snapshot(connection, "k");
    let dirty = changes(connection);
    let aof = info(connection, "persistence", "aof_current_size");
    send::<()>(watcher, &["WATCH", "k"]);
    for units in ["1", "2", "9007199254740991"] {
        let call = format!("{call} REFUND {units}");
        assert_eq!(ask(connection, &call), [1, 2, 2, 0, 0], "{call}");
    }
    assert_eq!(snapshot(connection, "k"), before, "{call}");
    assert_eq!(changes(connection), dirty, "{call}");
    let aof_after = info(connection, "persistence", "aof_current_size");
    assert_eq!(aof_after, aof, "{call}");
    assert!(watch_survives(watcher), "{call}");
}

#[test]
fn a_refund_of_nothing_changes_nothing() {
    let options = Options::new()
        .clock(T0)
        .arg("appendonly", "yes")
        .arg("appendfsync", "always");
    let server = options.start();
    let mut connection = server.connect();
    let mut watcher = server.connect();
    // When what was taken is over, while the key is still there.
    for (call, over_us) in [
        ("RL.FIXED k 2 60000", 60 * SECOND),
        ("RL.TOKEN k 2 1 30000", 60 * SECOND),
        ("RL.SLIDE k 2 60000", 120 * SECOND),
        ("RL.SLIDE k 2 60000 EXACT", 60 * SECOND),
    ] {
        server.set_clock(T0);
        gives_nothing_back(&mut connection, &mut watcher, call);
        assert_eq!(ask(&mut connection, &format!("{call} COST 2"))[0], 1);
        server.set_clock(T0 + over_us - 1_000);
        assert_ne!(ask(&mut connection, &format!("{call} COST 3"))[4], 0);
        server.set_clock(T0 + over_us);
        assert_eq!(send::<i64>(&mut connection, &["EXISTS", "k"]), 1, "{call}");
        gives_nothing_back(&mut connection, &mut watcher, call);
        send::<()>(&mut connection, &["DEL", "k"]);
    }
}

#[test]
fn a_refund_of_something_is_a_change() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut watcher = server.connect();
    for call in CALLS {
        assert_eq!(ask(&mut connection, &format!("{call} UPTO 9"))[0], 2);
        for left in [1, 0] {
            send::<()>(&mut watcher, &["WATCH", "k"]);
            let dirty = changes(&mut connection);
            ask(&mut connection, &format!("{call} REFUND 1"));
            assert!(changes(&mut connection) > dirty, "{call}");
            assert!(!watch_survives(&mut watcher), "{call}");
            assert_eq!(send::<i64>(&mut connection, &["EXISTS", "k"]), left);
        }
    }
}

/// The same for leases: refused where all are held, to renew one that is lost, or to release it.
#[test]
fn a_lease_that_is_refused_or_lost_changes_nothing_and_one_that_is_held_is_a_change() {
    let options = Options::new()
        .clock(T0)
        .arg("appendonly", "yes")
        .arg("appendfsync", "always");
    let server = options.start();
    let mut connection = server.connect();
    let mut watcher = server.connect();
    // On no key, on one with a lease that is over, and on one with two that are live.
    for (id, words, allowed, changed) in [
        ("a", "RENEW", 0, false),
        ("a", "RELEASE", 0, false),
        ("a", "", 1, true),
        ("over", "", 1, true),
        ("over", "RENEW", 0, false),
        ("over", "RELEASE", 0, false),
        ("b", "", 1, true),
        ("c", "", 0, false),
        ("c", "RENEW", 0, false),
        ("c", "RELEASE", 0, false),
        ("a", "", 1, true),
        ("a", "RENEW", 1, true),
        ("a", "RELEASE", 1, true),
        ("b", "RELEASE", 1, true),
    ] {
        let ttl_ms = if id == "over" && words.is_empty() {
            1
        } else {
            60_000
        };
        let call = format!("RL.LEASE k 2 {ttl_ms} {id} {words}");
        let before = snapshot(&mut connection, "k");
        let dirty = changes(&mut connection);
        let aof = info(&mut connection, "persistence", "aof_current_size");
        send::<()>(&mut watcher, &["WATCH", "k"]);
        assert_eq!(ask(&mut connection, &call)[0], allowed, "{call}");
        assert_eq!(!watch_survives(&mut watcher), changed, "{call}");
        assert_eq!(changes(&mut connection) > dirty, changed, "{call}");
        let aof_after = info(&mut connection, "persistence", "aof_current_size");
        assert_eq!(aof_after > aof, changed, "{call}");
        if !changed {
            assert_eq!(snapshot(&mut connection, "k"), before, "{call}");
        }
        if id == "over" && changed {
            server.set_clock(T0 + 1_000);
        }
    }
    assert_eq!(send::<i64>(&mut connection, &["EXISTS", "k"]), 0);
}

#[test]
fn a_cost_above_the_limit_creates_no_key() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for call in CALLS {
        let reply = ask(&mut connection, &format!("{call} COST 3"));
        assert_eq!(reply, [0, 2, 2, -1, 0], "{call}");
    }
    assert_eq!(send::<i64>(&mut connection, &["DBSIZE"]), 0);
    assert_eq!(changes(&mut connection), 0);
}

#[test]
fn only_an_admitted_call_breaks_a_watch() {
    let server = Server::at(T0);
    let mut watcher = server.connect();
    let mut caller = server.connect();
    for call in CALLS {
        for (admitted, survives) in [(true, false), (true, false), (false, true)] {
            send::<()>(&mut watcher, &["WATCH", "k"]);
            assert_eq!(ask(&mut caller, call)[0] == 1, admitted, "{call}");
            assert_eq!(watch_survives(&mut watcher), survives, "{call}");
        }
        // Neither does an error.
        send::<()>(&mut watcher, &["WATCH", "k"]);
        try_send::<()>(&mut caller, &["RL.TOKEN", "k", "1", "x", "1"]).unwrap_err();
        try_send::<()>(&mut caller, &["ZADD", "k", "1", "x"]).unwrap_err();
        send::<()>(&mut watcher, &["MULTI"]);
        send::<()>(&mut watcher, &["PING"]);
        assert!(send::<Option<Vec<String>>>(&mut watcher, &["EXEC"]).is_some());
        send::<()>(&mut caller, &["DEL", "k"]);
    }
}

#[test]
fn an_admitted_call_counts_as_a_change() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for call in CALLS {
        let dirty = changes(&mut connection);
        ask(&mut connection, call);
        assert!(changes(&mut connection) > dirty);
        send::<()>(&mut connection, &["DEL", "k"]);
    }
}

#[test]
fn every_admitted_call_leaves_a_ttl_that_covers_the_reset() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for (call, longest_ms) in [
        ("RL.FIXED k 50 1000", 1_000),
        ("RL.TOKEN k 50 7 1000", 2 * 50 * 1_000 / 7 + 1_000),
        ("RL.SLIDE k 50 1000", 3_000),
        ("RL.SLIDE k 50 1000 EXACT", 3_000),
    ] {
        for step in 0..300 {
            server.set_clock(T0 + step * 33_333);
            let reply = ask(&mut connection, call);
            let ttl_ms: i64 = send(&mut connection, &["PTTL", "k"]);
            if reply[0] == 1 {
                assert!(
                    (reply[4]..=longest_ms).contains(&ttl_ms),
                    "{call}: {reply:?}, {ttl_ms}"
                );
            }
        }
        send::<()>(&mut connection, &["DEL", "k"]);
        server.set_clock(T0);
    }
}
