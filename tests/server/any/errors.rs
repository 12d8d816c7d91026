//! Every error, by its full text and in its order, and what it leaves as it was.

use support::{Server, ask, changes, error, send, snapshot};

const LIMIT: &str =
    "ERR invalid rate limit policy: limit must be an integer between 1 and 9007199254740991";
const EXACT_LIMIT: &str =
    "ERR invalid rate limit policy: limit must be an integer between 1 and 10000";
const WINDOW: &str =
    "ERR invalid rate limit policy: window_ms must be an integer between 1 and 3153600000000";
const CAPACITY: &str =
    "ERR invalid rate limit policy: capacity must be an integer between 1 and 9007199254740991";
const REFILL: &str =
    "ERR invalid rate limit policy: refill must be an integer between 1 and 9007199254740991";
const PERIOD: &str =
    "ERR invalid rate limit policy: period_ms must be an integer between 1 and 3153600000000";
const COST: &str =
    "ERR invalid rate limit policy: cost must be an integer between 1 and 9007199254740991";
const FILL: &str =
    "ERR invalid rate limit policy: capacity * period_ms / refill must be at most 3153600000000";
const SYNTAX: &str = "ERR syntax error";

#[test]
fn arguments_are_checked_from_left_to_right() {
    let server = Server::start();
    let mut connection = server.connect();
    // A key of the wrong type shows that arguments come before the key.
    send::<()>(&mut connection, &["HSET", "k", "f", "v"]);
    for (call, text) in [
        ("RL.FIXED k 0 0", LIMIT),
        ("RL.FIXED k -1 1", LIMIT),
        ("RL.FIXED k 9007199254740992 1", LIMIT),
        ("RL.FIXED k 18446744073709551617 1", LIMIT),
        ("RL.FIXED k 1.0 1", LIMIT),
        ("RL.FIXED k 1e3 1", LIMIT),
        ("RL.FIXED k 0x10 1", LIMIT),
        ("RL.FIXED k +1 1", LIMIT),
        ("RL.FIXED k 01 1", LIMIT),
        ("RL.FIXED k x y COST z", LIMIT),
        ("RL.FIXED k 1 0", WINDOW),
        ("RL.FIXED k 1 3153600000001", WINDOW),
        ("RL.FIXED k 1 y COST z", WINDOW),
        ("RL.FIXED k 1 1 COST 0", COST),
        ("RL.FIXED k 1 1 COST 9007199254740992", COST),
        ("RL.FIXED k 1 1 cost z extra", COST),
        ("RL.FIXED k 1 1 COST", SYNTAX),
        ("RL.FIXED k 1 1 COST 1 COST 1", SYNTAX),
        ("RL.FIXED k 1 1 EXACT", SYNTAX),
        ("RL.FIXED k 1 1 1", SYNTAX),
        ("RL.TOKEN k 0 0 0", CAPACITY),
        ("RL.TOKEN k 1 0 0", REFILL),
        ("RL.TOKEN k 1 1 0", PERIOD),
        ("RL.TOKEN k 1 1 1 COST x", COST),
        ("RL.TOKEN k 1 1 1 EXACT", SYNTAX),
        ("RL.TOKEN k 2 1 3153600000000", FILL),
        ("RL.TOKEN k 2 1 3153600000000 COST 0", COST),
        ("RL.TOKEN k 2 1 3153600000000 what", SYNTAX),
        ("RL.SLIDE k 0 0", LIMIT),
        ("RL.SLIDE k 1 0 EXACT", WINDOW),
        ("RL.SLIDE k 0 1 EXACT", EXACT_LIMIT),
        ("RL.SLIDE k 10001 1 EXACT", EXACT_LIMIT),
        ("RL.SLIDE k 10001 1 EXACT COST 0", COST),
        ("RL.SLIDE k 10001 0 EXACT", WINDOW),
        ("RL.SLIDE k 1 1 EXACT EXACT", SYNTAX),
        ("RL.SLIDE k 1 1 EXACT COST", SYNTAX),
        ("RL.SLIDE k 1 1 PRECISE", SYNTAX),
    ] {
        assert_eq!(error(&mut connection, call), text, "{call}");
    }
    for (call, name) in [
        ("RL.FIXED", "rl.fixed"),
        ("RL.FIXED k", "rl.fixed"),
        ("RL.FIXED k 0", "rl.fixed"),
        ("RL.TOKEN k 0 1", "rl.token"),
        ("RL.SLIDE k 0", "rl.slide"),
    ] {
        let text = format!("ERR wrong number of arguments for '{name}' command");
        assert_eq!(error(&mut connection, call), text, "{call}");
    }
}

#[test]
fn an_error_leaves_everything_as_it_was() {
    let server = Server::start();
    let mut connection = server.connect();
    send::<()>(&mut connection, &["SET", "text", "hello", "PX", "100000"]);
    send::<()>(&mut connection, &["RPUSH", "list", "a"]);
    send::<()>(&mut connection, &["SADD", "set", "a"]);
    let keys = ["text", "list", "set"];
    let before: Vec<_> = keys
        .iter()
        .map(|key| snapshot(&mut connection, key))
        .collect();
    let dirty = changes(&mut connection);
    for key in keys {
        for call in [
            format!("RL.FIXED {key} 5 1000"),
            format!("RL.FIXED {key} 5 1000 COST 6"),
            format!("RL.FIXED {key} 0 1000"),
            format!("RL.TOKEN {key} 5 1 1000"),
            format!("RL.SLIDE {key} 5 1000"),
            format!("RL.SLIDE {key} 5 1000 EXACT"),
        ] {
            error(&mut connection, &call);
        }
    }
    let after: Vec<_> = keys
        .iter()
        .map(|key| snapshot(&mut connection, key))
        .collect();
    assert_eq!(before, after);
    assert_eq!(dirty, changes(&mut connection));
}

#[test]
fn rights_are_the_servers_to_give() {
    let server = Server::start();
    let mut connection = server.connect();
    // Redis 7.0 can't be told the categories of a module's command.
    let version: String = send(&mut connection, &["INFO", "server"]);
    let knows_categories = !version.contains("redis_version:7.0.");
    for (rights, calls, allowed) in [
        (
            "+@all %R~*",
            ["RL.FIXED k 1 1", "RL.TOKEN k 1 1 1", "RL.SLIDE k 1 1"],
            false,
        ),
        (
            "+@all -@write ~*",
            ["RL.FIXED k 1 1", "RL.TOKEN k 1 1 1", "RL.SLIDE k 1 1"],
            false,
        ),
        (
            "+@all ~other:*",
            ["RL.FIXED k 1 1", "RL.TOKEN k 1 1 1", "RL.SLIDE k 1 1"],
            false,
        ),
        (
            "-@all +@write ~*",
            ["RL.FIXED f 1 1", "RL.TOKEN t 1 1 1", "RL.SLIDE s 1 1"],
            true,
        ),
        (
            "-@all +rl.fixed +rl.token +rl.slide ~*",
            ["RL.FIXED f 1 1", "RL.TOKEN t 1 1 1", "RL.SLIDE s 1 1"],
            true,
        ),
    ] {
        if rights.contains("@write") && !knows_categories {
            continue;
        }
        let mut caller = server.connect_as(rights);
        for call in calls {
            if allowed {
                assert_eq!(ask(&mut caller, call).len(), 5, "{rights}: {call}");
            } else {
                let text = error(&mut caller, call);
                assert!(text.starts_with("NOPERM "), "{rights}: {call}: {text}");
            }
        }
        send::<()>(&mut connection, &["ACL", "DELUSER", "user"]);
    }
}
