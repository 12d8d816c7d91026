//! Every error, by its full text and in its order, and what it leaves as it was.

use support::forms::{ON_ONE_KEY, settling};
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
const UPTO: &str =
    "ERR invalid rate limit policy: upto must be an integer between 1 and 9007199254740991";
const REFUND: &str =
    "ERR invalid rate limit policy: refund must be an integer between 1 and 9007199254740991";
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
    // Each form knows the words that settle, with the same ranges.
    for form in ON_ONE_KEY {
        for (words, text) in [
            ("UPTO 0", UPTO),
            ("UPTO -1", UPTO),
            ("UPTO 01", UPTO),
            ("UPTO x", UPTO),
            ("UPTO 9007199254740992", UPTO),
            ("UPTO COST", UPTO),
            ("UPTO", SYNTAX),
            ("REFUND 0", REFUND),
            ("REFUND -1", REFUND),
            ("REFUND 1.0", REFUND),
            ("REFUND 9007199254740992", REFUND),
            ("refund x extra", REFUND),
            ("REFUND FORCE", REFUND),
            ("REFUND", SYNTAX),
        ] {
            let call = format!("{form} {words}");
            assert_eq!(error(&mut connection, &call), text, "{call}");
        }
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

/// Which of the keywords may stand together, in whatever order.
#[test]
fn keywords_that_exclude_each_other_are_a_syntax_error() {
    let server = Server::start();
    let mut connection = server.connect();
    let keywords = ["COST 1", "FORCE", "UPTO 1", "REFUND 1", "EXACT"];
    let is_allowed = |words: &[&str], slide: bool| {
        let has = |word: &str| words.contains(&word);
        let amounts = [has("COST 1"), has("UPTO 1"), has("REFUND 1")];
        amounts.into_iter().filter(|here| *here).count() <= 1
            && !(has("FORCE") && (has("UPTO 1") || has("REFUND 1") || has("EXACT")))
            && (slide || !has("EXACT"))
    };
    for form in [
        "RL.FIXED k 5 60000",
        "RL.TOKEN k 5 1 60000",
        "RL.SLIDE k 5 60000",
    ] {
        let slide = form.starts_with("RL.SLIDE");
        let mut check = |words: &[&str]| {
            let repeats = (1..words.len()).any(|at| words[..at].contains(&words[at]));
            let call = format!("{form} {}", words.join(" "));
            if is_allowed(words, slide) && !repeats {
                ask(&mut connection, &call);
                send::<()>(&mut connection, &["DEL", "k"]);
                ask(&mut connection, &call.to_lowercase());
                send::<()>(&mut connection, &["DEL", "k"]);
            } else {
                assert_eq!(error(&mut connection, &call), SYNTAX, "{call}");
            }
        };
        for first in keywords {
            check(&[first]);
            for second in keywords {
                check(&[first, second]);
                for third in keywords {
                    check(&[first, second, third]);
                }
            }
        }
    }
    assert_eq!(send::<i64>(&mut connection, &["DBSIZE"]), 0);
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
        for form in ON_ONE_KEY {
            for call in settling(&form.replace(" k ", &format!(" {key} "))) {
                error(&mut connection, &call);
            }
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
                for call in settling(call) {
                    assert_eq!(ask(&mut caller, &call).len(), 5, "{rights}: {call}");
                }
            } else {
                let text = error(&mut caller, call);
                assert!(text.starts_with("NOPERM "), "{rights}: {call}: {text}");
                for call in settling(call) {
                    let text = error(&mut caller, &call);
                    assert!(text.starts_with("NOPERM "), "{rights}: {call}: {text}");
                }
            }
        }
        send::<()>(&mut connection, &["ACL", "DELUSER", "user"]);
    }
}
