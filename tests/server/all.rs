//! `RL.ALL`: several limits in one step. All are charged, or none is, whatever the others are.

use redis::{Connection, Value};

use crate::memory::fill_memory;
use support::forms::{ALL, KEYS_OF_ALL, all};
use support::random::Random;
use support::{
    AnswerOfAll, Options, SECOND, Server, Snapshot, T0, WRONG_TYPE, ask, ask_all, c_library,
    changes, error, error_text, info, send, send_bytes, snapshot, try_send,
};

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// A limit of each kind on a key of its own, with a single command that takes all there is of it.
const LIMITS: [(&str, &str, &str); 5] = [
    ("f", "FIXED 5 60000", "RL.FIXED f 5 60000 COST 5"),
    ("t", "TOKEN 5 1 60000", "RL.TOKEN t 5 1 60000 COST 5"),
    ("s", "SLIDE 5 60000", "RL.SLIDE s 5 60000 COST 5"),
    (
        "e",
        "SLIDE 5 60000 EXACT",
        "RL.SLIDE e 5 60000 EXACT COST 5",
    ),
    ("l", "LEASE 1 60000 me", "RL.LEASE l 1 60000 other"),
];

fn limits() -> Vec<(&'static str, &'static str)> {
    LIMITS.map(|(key, policy, _)| (key, policy)).to_vec()
}

fn run(connection: &mut Connection, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    send::<Value>(connection, &words);
}

fn snapshots(connection: &mut Connection) -> [Snapshot; 5] {
    KEYS_OF_ALL.map(|key| snapshot(connection, key))
}

/// The call of one limit by its own command.
fn alone(key: &str, policy: &str) -> String {
    let (name, rest) = policy.split_once(' ').expect("an algorithm");
    format!("RL.{name} {key} {rest}")
}

/// Every key, the dirty count and the stream stay as they are.
fn all_stays(connection: &mut Connection, what: &str, done: impl FnOnce(&mut Connection)) {
    let all = |connection: &mut Connection| {
        let aof = info(connection, "persistence", "aof_current_size");
        (snapshots(connection), changes(connection), aof)
    };
    let before = all(connection);
    done(connection);
    assert_eq!(all(connection), before, "{what}");
}

/// And whoever watches is not told.
fn nothing_happens(server: &Server, what: &str, done: impl FnOnce(&mut Connection)) {
    let mut watcher = server.connect();
    send::<()>(&mut watcher, &[&["WATCH"], &KEYS_OF_ALL[..]].concat());
    all_stays(&mut server.connect(), what, done);
    send::<()>(&mut watcher, &["MULTI"]);
    send::<()>(&mut watcher, &["PING"]);
    let ran: Option<Vec<String>> = send(&mut watcher, &["EXEC"]);
    assert!(ran.is_some(), "{what}: somebody who watches was told");
}

/// The append-only file has every byte of the stream; "always" writes it before the reply.
fn with_log() -> Options {
    let options = Options::new().clock(T0).arg("appendonly", "yes");
    options.arg("appendfsync", "always")
}

#[test]
fn every_limit_is_told_and_charged() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let reply = ask_all(&mut connection, ALL);
    let expected: AnswerOfAll = (
        1,
        0,
        vec![
            [1, 5, 4, 0, 60_000],
            [1, 5, 4, 0, 60_000],
            [1, 5, 4, 0, 120_000],
            [1, 5, 4, 0, 60_000],
            [1, 5, 4, 0, 60_000],
        ],
    );
    assert_eq!(reply, expected);
    let held: i64 = send(&mut connection, &["ZSCORE", "l", "me"]);
    assert_eq!(held, 1_779_331_260_000);
    assert_eq!(send::<i64>(&mut connection, &["LLEN", "e"]), 1);
    assert_eq!(send::<i64>(&mut connection, &["GET", "f"]), 1);
}

/// Random policies with every word, on keys that are there or not. Admitted: replies, values and
/// expiries are those of each limit's own command on a twin of the key. Refused: what a look tells,
/// and nothing else.
#[test]
fn an_admitted_call_does_what_each_command_does_and_a_refused_one_nothing() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut random = Random::from(11);
    let mut us = T0;
    let mut answers = [0_u32; 2];
    for step in 0..1_500 {
        let most_us = random.of(&[1_000, SECOND, 5 * SECOND]);
        us += random.below(most_us);
        server.set_clock(us);
        let mut chosen = Vec::new();
        for kind in 0..=random.below(6) {
            // Two of a kind may be there.
            let kind_of = random.below(5);
            let key = format!("{kind}{}", ["f", "t", "s", "e", "l"][kind_of as usize]);
            let window_ms = random.of(&[1_000, 20_000]);
            let limit = random.of(&[3, 12, 40]);
            let cost = random.of(&[1, 1, 2, 5, 15]);
            let words = match random.below(6) {
                0 => format!(" REFUND {cost}"),
                1 if kind_of < 3 => format!(" COST {cost} FORCE"),
                2 => String::new(),
                _ => format!(" COST {cost}"),
            };
            let policy = match kind_of {
                0 => format!("FIXED {limit} {window_ms}{words}"),
                1 => format!("TOKEN {limit} {} {window_ms}{words}", random.of(&[1, 7])),
                2 => format!("SLIDE {limit} {window_ms}{words}"),
                3 => format!("SLIDE {limit} {window_ms} EXACT{words}"),
                _ => format!(
                    "LEASE {limit} {window_ms} {}{}",
                    random.below(20),
                    random.of(&["", "", "", " RENEW", " RELEASE"])
                ),
            };
            chosen.push((key, policy));
        }
        let pairs: Vec<(&str, &str)> = chosen.iter().map(|(k, p)| (&**k, &**p)).collect();
        let call = all(&pairs);
        let twin = |key: &str| format!("twin:{key}");
        let looks: Vec<_> = chosen
            .iter()
            .map(|(key, policy)| {
                let settles = ["REFUND", "FORCE", "RENEW", "RELEASE"];
                let look = format!("RL.PEEK {key} {policy}");
                let looks = !settles.iter().any(|word| policy.contains(word));
                looks.then(|| ask(&mut connection, &look))
            })
            .collect();
        let (allowed, wait_ms, replies) = ask_all(&mut connection, &call);
        answers[usize::from(allowed == 1)] += 1;
        assert_eq!(replies.len(), chosen.len());
        let in_the_way = chosen.iter().zip(&replies).filter(|((_, policy), _)| {
            let never = ["FORCE", "REFUND", "RELEASE"];
            !never.iter().any(|word| policy.contains(word))
        });
        let waits = in_the_way.clone().map(|(_, reply)| reply[3]);
        let never = waits.clone().any(|wait_ms| wait_ms == -1);
        let longest_ms = if never { -1 } else { waits.max().unwrap_or(0) };
        assert_eq!(wait_ms, longest_ms, "step {step}: {call}");
        let all_fit = in_the_way.clone().all(|(_, reply)| reply[0] == 1);
        assert_eq!(allowed == 1, all_fit, "step {step}: {call}");
        for ((key, policy), (reply, look)) in chosen.iter().zip(replies.iter().zip(looks)) {
            let shown = format!("step {step}: {policy} in {call}");
            if allowed == 1 {
                let own = ask(&mut connection, &alone(&twin(key), policy));
                assert_eq!(*reply, own, "{shown}");
            } else if let Some(look) = look {
                assert_eq!(*reply, look, "{shown}");
            }
            let copy = snapshot(&mut connection, &twin(key));
            assert_eq!(snapshot(&mut connection, key), copy, "{shown}");
        }
    }
    assert!(answers.iter().all(|count| *count > 250), "{answers:?}");
}

/// Whichever limit stands in the way, and wherever it stands among the others; those that would write
/// in any case are among them.
#[test]
fn a_refusal_by_any_limit_leaves_every_key_as_it_was() {
    let server = with_log().start();
    let mut connection = server.connect();
    for (stands, _, fill) in LIMITS {
        for rotation in 0..5 {
            run(&mut connection, "FLUSHALL");
            for (key, policy, _) in LIMITS.iter().filter(|(key, ..)| *key != stands) {
                let policy = policy.replace("LEASE 1", "LEASE 2");
                assert_eq!(ask(&mut connection, &alone(key, &policy))[0], 1);
            }
            assert_eq!(ask(&mut connection, fill)[0], 1, "{fill}");
            let mut limits = limits();
            for (key, policy) in &mut limits {
                match *key {
                    key if key == stands => {}
                    "f" => *policy = "FIXED 5 60000 COST 9 FORCE",
                    "t" => *policy = "TOKEN 5 1 60000 REFUND 1",
                    "l" => *policy = "LEASE 1 60000 me RELEASE",
                    _ => {}
                }
            }
            limits.rotate_left(rotation);
            let call = all(&limits);
            server.set_clock(T0 + 10 * SECOND);
            nothing_happens(&server, &call, |connection| {
                for _ in 0..3 {
                    let (allowed, wait_ms, replies) = ask_all(connection, &call);
                    assert_eq!(allowed, 0, "{call}");
                    assert!(wait_ms > 0, "{call}");
                    for ((key, _), reply) in limits.iter().zip(replies) {
                        let fits = i64::from(*key != stands && *key != "f");
                        assert_eq!(reply[0], fits, "{key} in {call}");
                        if *key == stands {
                            assert_eq!(reply[3], wait_ms, "{call}");
                        }
                    }
                }
            });
            server.set_clock(T0);
        }
    }
}

#[test]
fn the_longest_wait_counts_and_never_is_longer_than_any() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    run(&mut connection, "RL.FIXED short 1 1000");
    run(&mut connection, "RL.FIXED long 1 5000");
    run(&mut connection, "RL.LEASE held 1 9000 other");
    let [short, long, held] = [
        ("short", "FIXED 1 1000"),
        ("long", "FIXED 1 5000"),
        ("held", "LEASE 1 9000 me"),
    ];
    let never = ("k", "FIXED 1 1000 COST 2");
    let lost = ("k", "LEASE 1 1000 me RENEW");
    for (limits, wait_ms) in [
        (&[short, long][..], 5_000),
        (&[long, short], 5_000),
        (&[short, held, long], 9_000),
        (&[short, never], -1),
        (&[never, held, long], -1),
        (&[held, lost], -1),
        // These say never, and don't stand in the way.
        (&[short, ("k", "FIXED 1 1000 COST 2 FORCE")], 1_000),
        (&[short, ("k", "LEASE 1 1000 me RELEASE")], 1_000),
    ] {
        let call = all(limits);
        let (allowed, told_ms, _) = ask_all(&mut connection, &call);
        assert_eq!((allowed, told_ms), (0, wait_ms), "{call}");
        if wait_ms > 0 {
            // A millisecond sooner it is not, and then it is.
            let copies = |connection: &mut Connection, back: bool| {
                for (key, _) in limits {
                    let copy = format!("copy:{key}");
                    let (from, to) = if back { (&*copy, *key) } else { (*key, &*copy) };
                    run(connection, &format!("DEL {to}"));
                    run(connection, &format!("COPY {from} {to}"));
                }
            };
            copies(&mut connection, false);
            let then = T0 + u64::try_from(wait_ms).unwrap() * 1_000;
            server.set_clock(then - 1_000);
            assert_eq!(ask_all(&mut connection, &call).1, 1, "{call}");
            server.set_clock(then);
            assert_eq!(ask_all(&mut connection, &call).0, 1, "{call}");
            server.set_clock(T0);
            copies(&mut connection, true);
        }
    }
}

/// Where nothing else refuses, they are done, however they come out.
#[test]
fn what_settles_never_stands_in_the_way() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let call = all(&[
        ("f", "FIXED 5 60000 COST 6 FORCE"),
        ("t", "TOKEN 5 1 60000 COST 7 FORCE"),
        ("s", "SLIDE 5 60000 REFUND 9"),
        ("e", "SLIDE 5 60000 REFUND 2 EXACT"),
        ("l", "LEASE 1 60000 nobody RELEASE"),
    ]);
    let (allowed, wait_ms, replies) = ask_all(&mut connection, &call);
    assert_eq!((allowed, wait_ms), (1, 0));
    let told: Vec<&[i64]> = replies.iter().map(|reply| &reply[..4]).collect();
    assert_eq!(
        told,
        [
            [0, 5, 0, -1],
            [0, 5, 0, -1],
            [1, 5, 5, 0],
            [1, 5, 5, 0],
            [0, 1, 1, -1],
        ]
    );
    let keys: Vec<i64> = KEYS_OF_ALL
        .map(|key| send(&mut connection, &["EXISTS", key]))
        .into();
    assert_eq!(keys, [1, 1, 0, 0, 0]);
    assert_eq!(send::<i64>(&mut connection, &["GET", "f"]), 6);
}

/// A limit that is refused on the id says that the first try was admitted.
#[test]
fn a_requests_id_makes_a_retry_free() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let call = all(&[("rate", "FIXED 9 60000"), ("id:1", "FIXED 1 60000")]);
    assert_eq!(ask_all(&mut connection, &call).0, 1);
    let (allowed, _, replies) = ask_all(&mut connection, &call);
    assert_eq!(allowed, 0);
    assert_eq!([replies[0][0], replies[1][0]], [1, 0]);
    assert_eq!(send::<i64>(&mut connection, &["GET", "rate"]), 1);
}

/// With one limit, all is as with the single command, texts of errors included.
#[test]
fn one_limit_is_told_as_its_own_command_tells_it() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for (key, policy) in limits() {
        for _ in 0..2 {
            let own = ask(&mut connection, &alone("own", policy));
            let (allowed, wait_ms, replies) = ask_all(&mut connection, &all(&[(key, policy)]));
            assert_eq!((allowed, wait_ms, replies), (own[0], own[3], vec![own]));
            let copy = snapshot(&mut connection, "own");
            assert_eq!(snapshot(&mut connection, key), copy, "{policy}");
        }
        run(&mut connection, "PERSIST own");
        run(&mut connection, &format!("PERSIST {key}"));
        let wrong = policy.replacen(' ', " x", 1);
        for (own, of_one) in [
            (alone("own", policy), all(&[(key, policy)])),
            (alone("own", &wrong), all(&[(key, &wrong)])),
        ] {
            let text = error(&mut connection, &own);
            assert_eq!(error(&mut connection, &of_one), text, "{of_one}");
        }
        run(&mut connection, "DEL own");
    }
}

#[test]
fn thirty_two_limits_are_decided_as_one() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let names: Vec<String> = (0..32).map(|n| format!("k{n}")).collect();
    let policies = LIMITS.map(|(_, policy, _)| policy);
    let limits: Vec<(&str, &str)> = names
        .iter()
        .enumerate()
        .map(|(n, key)| (&**key, policies[n % 5]))
        .collect();
    let call = all(&limits);
    for left in (0..5).rev() {
        let (allowed, _, replies) = ask_all(&mut connection, &call);
        assert_eq!((allowed, replies.len()), (1, 32));
        for (reply, (_, policy)) in replies.iter().zip(&limits) {
            let left = if policy.starts_with("LEASE") { 0 } else { left };
            assert_eq!(reply[2], left, "{policy}");
        }
    }
    assert_eq!(send::<i64>(&mut connection, &["DBSIZE"]), 32);
    let (allowed, _, replies) = ask_all(&mut connection, &call);
    assert_eq!(allowed, 0);
    let admitted = replies.iter().filter(|reply| reply[0] == 1).count();
    assert_eq!(admitted, 6, "the leases are their holder's");
    assert_eq!(ask_all(&mut connection, &all(&limits[..31])).0, 0);

    let more: Vec<(&str, &str)> = [&limits[..], &[("more", policies[0])]].concat();
    let text = error(&mut connection, &all(&more));
    assert_eq!(text, KEY_COUNT);
}

const KEY_COUNT: &str =
    "ERR invalid rate limit policy: numkeys must be an integer between 1 and 32";
const SYNTAX: &str = "ERR syntax error";
const SAME: &str = "ERR invalid rate limit policy: keys must differ";

#[test]
fn errors_of_arguments_tell_the_first_and_which_policy_it_is_in() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    // A key of the wrong type shows that arguments come before the keys.
    run(&mut connection, "SADD a x");
    let policy =
        |number: u32, rest: &str| format!("ERR invalid rate limit policy {number}: {rest}");
    let units = |name: &str| format!("{name} must be an integer between 1 and 9007199254740991");
    let span = |name: &str| format!("{name} must be an integer between 1 and 3153600000000");
    let entries = "limit must be an integer between 1 and 10000";
    let fill = "capacity * period_ms / refill must be at most 3153600000000";
    for (words, text) in [
        ("0 a FIXED 1 1", KEY_COUNT.to_owned()),
        ("33 a FIXED 1 1", KEY_COUNT.to_owned()),
        ("-1 a FIXED 1 1", KEY_COUNT.to_owned()),
        ("x a FIXED 1 1", KEY_COUNT.to_owned()),
        ("01 a FIXED 1 1", KEY_COUNT.to_owned()),
        ("4294967297 a FIXED 1 1", KEY_COUNT.to_owned()),
        ("18446744073709551617 a FIXED 1 1", KEY_COUNT.to_owned()),
        ("1 a FIXED", SYNTAX.to_owned()),
        ("1 a FIXED 1", SYNTAX.to_owned()),
        ("1 a TOKEN 1 1", SYNTAX.to_owned()),
        ("1 a LEASE 1 1", SYNTAX.to_owned()),
        ("1 a BUCKET 1 1", SYNTAX.to_owned()),
        ("1 a PEEK 1 1", SYNTAX.to_owned()),
        ("1 a FIXED 1 1 EXACT", SYNTAX.to_owned()),
        ("1 a FIXED 1 1 UPTO 1", SYNTAX.to_owned()),
        ("1 a FIXED 1 1 COST", SYNTAX.to_owned()),
        ("1 a FIXED 1 1 FIXED 1 1", SYNTAX.to_owned()),
        ("1 a LEASE 1 1 id RENEW RELEASE", SYNTAX.to_owned()),
        ("1 a SLIDE 1 1 EXACT FORCE", SYNTAX.to_owned()),
        ("9 a b c d", SYNTAX.to_owned()),
        ("2 a b FIXED 1 1", SYNTAX.to_owned()),
        ("3 a b FIXED 1 1 FIXED 1 1", SYNTAX.to_owned()),
        ("2 a b FIXED 1 1 FIXED 1 1 FIXED 1 1", SYNTAX.to_owned()),
        ("2 a b FIXED 1 1 FIXED 1", SYNTAX.to_owned()),
        // One limit names no number.
        (
            "1 a FIXED 0 1",
            format!("ERR invalid rate limit policy: {}", units("limit")),
        ),
        ("2 a b FIXED 0 1 FIXED 0 1", policy(1, &units("limit"))),
        ("2 a b FIXED 1 1 FIXED 0 1", policy(2, &units("limit"))),
        ("2 a b FIXED 1 1 FIXED 1 0", policy(2, &span("window_ms"))),
        ("2 a b FIXED 1 1 TOKEN 0 0 0", policy(2, &units("capacity"))),
        ("2 a b FIXED 1 1 TOKEN 1 0 0", policy(2, &units("refill"))),
        ("2 a b FIXED 1 1 TOKEN 1 1 0", policy(2, &span("period_ms"))),
        (
            "2 a b FIXED 1 1 COST 0 FIXED 0 1",
            policy(1, &units("cost")),
        ),
        (
            "2 a b FIXED 1 1 REFUND 0 FIXED 0 1",
            policy(1, &units("refund")),
        ),
        ("2 a b LEASE 10001 1 id FIXED 0 1", policy(1, entries)),
        ("2 a b FIXED 1 1 LEASE 1 0 id", policy(2, &span("ttl_ms"))),
        // Each is checked whole, its joining rules too, before the next.
        ("2 a b TOKEN 2 1 3153600000000 FIXED 0 1", policy(1, fill)),
        ("2 a b SLIDE 10001 1 EXACT FIXED 0 1", policy(1, entries)),
        ("2 a b SLIDE 10001 1 FIXED 0 1", policy(2, &units("limit"))),
        ("2 a b FIXED 1 1 UPTO 1 FIXED 0 1", SYNTAX.to_owned()),
        // That keys differ comes after all policies, and before what they hold.
        ("2 a a FIXED 1 1 FIXED 0 1", policy(2, &units("limit"))),
        ("2 a a FIXED 1 1 FIXED 1 1 x", SYNTAX.to_owned()),
        ("2 a a FIXED 1 1 FIXED 1 1", SAME.to_owned()),
        ("3 a b a FIXED 1 1 FIXED 1 1 SLIDE 1 1", SAME.to_owned()),
        ("3 b c c FIXED 1 1 FIXED 1 1 LEASE 1 1 x", SAME.to_owned()),
        ("2 a b FIXED 1 1 FIXED 1 1", WRONG_TYPE.to_owned()),
    ] {
        assert_eq!(
            error(&mut connection, &format!("RL.ALL {words}")),
            text,
            "{words}"
        );
    }
    let long = "x".repeat(129);
    for id in ["", &long] {
        let words = [
            "RL.ALL", "2", "b", "c", "FIXED", "1", "1", "LEASE", "1", "1", id,
        ];
        let told = error_text(&try_send::<Value>(&mut connection, &words).unwrap_err());
        assert_eq!(told, policy(2, "id must have 1 to 128 bytes"));
    }
    let arity = "ERR wrong number of arguments for 'rl.all' command";
    for call in ["RL.ALL", "RL.ALL 1", "RL.ALL x a"] {
        assert_eq!(error(&mut connection, call), arity);
    }
    assert_eq!(send::<i64>(&mut connection, &["DBSIZE"]), 1);
    // Words in any case, and any order.
    let line = "rl.all 4 b c d g fixed 5 1000 cost 2 slide 5 1000 exact cost 2 \
                token 5 1 1000 force cost 2 lease 5 1000 COST";
    let left: Vec<i64> = ask_all(&mut connection, line)
        .2
        .iter()
        .map(|reply| reply[2])
        .collect();
    assert_eq!(left, [3, 3, 3, 4]);
}

/// A key that one limit can't use is the error of the call, wherever it stands; of two, the first.
#[test]
fn a_key_that_is_none_of_ours_is_named_and_all_stay_as_they_were() {
    let server = with_log().start();
    let mut connection = server.connect();
    let foreign = [
        ("f", "SET f hello PX 60000"),
        ("t", "SET t 7 PX 60000"),
        ("s", "SET s T1:1:1000:1779331200000000 PX 60000"),
        ("e", "RPUSH e job"),
        ("l", "ZADD l 1 me"),
    ];
    for (bad, make) in foreign {
        for rotation in 0..5 {
            run(&mut connection, "FLUSHALL");
            // One is known, the others are not.
            for (key, policy, _) in &LIMITS[..2] {
                ask(&mut connection, &alone(key, policy));
            }
            run(&mut connection, &format!("DEL {bad}"));
            run(&mut connection, make);
            run(&mut connection, &format!("PEXPIRE {bad} 60000"));
            let mut limits = limits();
            limits.rotate_left(rotation);
            let number = 1 + limits.iter().position(|(key, _)| *key == bad).unwrap();
            let expected = format!(
                "INVALIDSTATE invalid counter state of key {number}, all keys left unchanged"
            );
            let call = all(&limits);
            nothing_happens(&server, &call, |connection| {
                assert_eq!(error(connection, &call), expected, "{call}");
                // An error is told even where another limit would refuse for ever.
                let dear = call.replace("FIXED 5 60000", "FIXED 5 60000 COST 6");
                assert_eq!(error(connection, &dear), expected, "{dear}");
            });
            run(&mut connection, &format!("DEL {bad}"));
            run(&mut connection, &format!("SADD {bad} x"));
            nothing_happens(&server, &call, |connection| {
                assert_eq!(error(connection, &call), WRONG_TYPE, "{call}");
            });
        }
    }
    run(&mut connection, "FLUSHALL");
    for (key, make) in foreign {
        run(&mut connection, make);
        run(&mut connection, &format!("PEXPIRE {key} 60000"));
    }
    let first = "INVALIDSTATE invalid counter state of key 1, all keys left unchanged";
    assert_eq!(error(&mut connection, ALL), first);
    run(&mut connection, "DEL f");
    run(&mut connection, "SADD f x");
    assert_eq!(error(&mut connection, ALL), WRONG_TYPE);
}

#[test]
fn protocols_transactions_and_scripts_get_the_same_nested_reply() {
    let server = Server::at(T0);
    let integers =
        |integers: &[i64]| Value::Array(integers.iter().copied().map(Value::Int).collect());
    let answer = |allowed, wait_ms, replies: [[i64; 5]; 2]| {
        let limits = replies.iter().map(|reply| integers(reply)).collect();
        Value::Array(vec![
            Value::Int(allowed),
            Value::Int(wait_ms),
            Value::Array(limits),
        ])
    };
    let admitted = answer(1, 1_000, [[1, 1, 0, 1_000, 1_000], [1, 3, 2, 0, 5_000]]);
    let refused = answer(0, 1_000, [[0, 1, 0, 1_000, 1_000], [1, 3, 2, 0, 5_000]]);
    let call = "RL.ALL 2 f l FIXED 1 1000 LEASE 3 5000 me";
    let words: Vec<&str> = call.split(' ').collect();
    for mut connection in [server.connect(), server.connect_resp3()] {
        for expected in [&admitted, &refused] {
            assert_eq!(send::<Value>(&mut connection, &words), *expected);
        }
        run(&mut connection, "FLUSHALL");
        send::<()>(&mut connection, &["MULTI"]);
        for _ in 0..2 {
            send::<()>(&mut connection, &words);
        }
        // A call that can't be judged, among others that can.
        send::<()>(&mut connection, &["RL.FIXED", "other", "5", "1000"]);
        let replies: Vec<Value> = send(&mut connection, &["EXEC"]);
        assert_eq!(replies[..2], [admitted.clone(), refused.clone()]);
        run(&mut connection, "FLUSHALL");
        let script = "local replies = {} for n = 1, 2 do \
                      replies[n] = redis.call('RL.ALL', #KEYS, KEYS[1], KEYS[2], unpack(ARGV)) end \
                      return replies";
        let eval = [&["EVAL", script, "2"], &words[2..]].concat();
        let replies: Vec<Value> = send(&mut connection, &eval);
        assert_eq!(replies, [admitted.clone(), refused.clone()]);
        run(&mut connection, "FLUSHALL");
    }
    let mut connection = server.connect();
    let script = "return redis.pcall('RL.ALL', 2, KEYS[1], KEYS[1], unpack(ARGV)).err";
    let eval = [&["EVAL", script, "1", "k"], &words[4..]].concat();
    assert!(send::<String>(&mut connection, &eval).starts_with(SAME));
}

/// What needs memory stops the call; what is known goes on, and a refusal is a refusal.
#[test]
fn full_memory_charges_none_where_one_would_need_more() {
    let server = with_log().start();
    let mut connection = server.connect();
    let [known, bucket, window, log, leases] = [
        ("f", "FIXED 5 60000"),
        ("t", "TOKEN 5 1 60000"),
        ("s", "SLIDE 5 60000"),
        ("e", "SLIDE 5 60000 EXACT"),
        ("l", "LEASE 5 60000 other"),
    ];
    ask_all(&mut connection, ALL);
    fill_memory(&mut connection);
    let call = all(&[known, bucket, window, ("l", "LEASE 5 60000 me")]);
    let (allowed, wait_ms, _) = ask_all(&mut connection, &call);
    assert_eq!(
        (allowed, wait_ms),
        (1, 0),
        "known ones, and a lease that is renewed"
    );
    let new = ("new", "FIXED 5 60000");
    for needy in [
        log,
        leases,
        new,
        ("new", "TOKEN 5 1 60000 COST 9 FORCE"),
        ("new", "SLIDE 5 60000"),
        ("new", "SLIDE 5 60000 EXACT"),
        ("new", "LEASE 5 60000 me"),
    ] {
        for limits in [
            [needy, known, bucket, window],
            [known, bucket, needy, window],
            [known, bucket, window, needy],
        ] {
            let call = all(&limits);
            all_stays(&mut connection, &call, |connection| {
                assert_eq!(error(connection, &call), OOM, "{call}");
                // One that is refused anyway.
                let refused = call.replace("FIXED 5 60000", "FIXED 2 60000");
                let refused = refused.replace("TOKEN 5 1 60000", "TOKEN 5 1 60000 COST 4");
                let refused = refused.replace("COST 4 COST 9 FORCE", "COST 9 FORCE");
                assert_eq!(ask_all(connection, &refused).0, 0, "{refused}");
            });
        }
    }
    // What frees, or has nothing to free, needs none.
    let call = all(&[
        known,
        ("t", "TOKEN 5 1 60000 REFUND 9"),
        ("e", "SLIDE 5 60000 EXACT REFUND 1"),
        ("l", "LEASE 5 60000 me RELEASE"),
        ("new", "SLIDE 5 60000 REFUND 1"),
    ]);
    assert_eq!(ask_all(&mut connection, &call).0, 1);
    let left: Vec<String> = send(&mut connection, &["KEYS", "*"]);
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(error(&mut connection, "SET plain 1"), OOM, "still full");
}

/// The one change of a refused call: the stored time of the keys that it judged by a clock that was
/// set back, and none where it can never be admitted.
#[test]
fn a_refused_call_stores_a_step_back_of_the_clock_and_only_that() {
    let server = with_log().start();
    let mut connection = server.connect();
    for (_, _, fill) in LIMITS {
        run(&mut connection, fill);
    }
    let before = snapshots(&mut connection);
    server.set_clock(T0 - 5 * SECOND);
    // Never admitted: by its cost, or for a lease that is lost.
    for never in [
        ALL.replace("FIXED 5 60000", "FIXED 5 60000 COST 6"),
        ALL.replace("60000 me", "60000 me RENEW"),
    ] {
        nothing_happens(&server, &never, |connection| {
            let (allowed, wait_ms, _) = ask_all(connection, &never);
            assert_eq!((allowed, wait_ms), (0, -1), "{never}");
        });
    }
    assert_eq!(snapshots(&mut connection), before);
    // A forced cost above the limit does not say so.
    let call = ALL.replace("FIXED 5 60000", "FIXED 5 60000 COST 6 FORCE");
    assert_eq!(ask_all(&mut connection, &call).0, 0);
    let after = snapshots(&mut connection);
    for (index, key) in KEYS_OF_ALL.iter().enumerate() {
        let has_stored_time = ["t", "s", "e"].contains(key);
        assert_eq!(after[index] != before[index], has_stored_time, "{key}");
        assert_eq!(after[index].expire_at_ms, before[index].expire_at_ms);
    }
    let now_us = T0 - 5 * SECOND;
    let times: Vec<u64> = send(&mut connection, &["LRANGE", "e", "0", "-1"]);
    assert_eq!(times, [now_us; 5]);
    let bucket: String = send(&mut connection, &["GET", "t"]);
    assert_eq!(bucket, format!("T1:0:60000000:{now_us}"));
    // Once is enough, and a step is counted for each of the three.
    nothing_happens(&server, &call, |connection| {
        assert_eq!(ask_all(connection, &call).0, 0);
        assert_eq!(info(connection, "rl_health", "rl_clock_steps"), 3);
    });
}

/// The server deletes them when the call looks at them.
#[test]
fn keys_that_are_over_count_as_absent_among_others() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    run(&mut connection, "RL.FIXED f 5 60000 COST 3");
    run(&mut connection, "SADD t x");
    run(&mut connection, "RL.SLIDE s 5 3153600000000 COST 3");
    run(&mut connection, "SET e hello");
    run(&mut connection, "RL.LEASE l 1 100 other");
    for key in ["t", "e", "l"] {
        run(&mut connection, &format!("PEXPIRE {key} 1000"));
    }
    server.set_clock(T0 + 2 * SECOND);
    let call = ALL.replace("SLIDE 5 60000 SLIDE", "SLIDE 5 3153600000000 SLIDE");
    let (allowed, _, replies) = ask_all(&mut connection, &call);
    let left: Vec<i64> = replies.iter().map(|reply| reply[2]).collect();
    assert_eq!((allowed, left), (1, vec![1, 4, 1, 4, 4]));
}

/// Redis shows a key whose TTL has passed for as long as a script runs.
#[test]
fn keys_past_their_ttl_count_as_absent_even_while_the_server_shows_them() {
    let server = Options::new().arg("busy-reply-threshold", "10").start();
    let mut connection = server.connect();
    let quoted = ALL.split_whitespace().collect::<Vec<_>>().join("','");
    let script = format!(
        "redis.call('SET', 't', 'hello', 'PX', 50) redis.call('RPUSH', 'e', 'x') \
         redis.call('ZADD', 'l', 'inf', 'me') redis.call('HSET', 's', 'f', 'v') \
         redis.call('RL.FIXED', 'f', 5, 60000) \
         for _, key in ipairs({{'e', 'l', 's'}}) do redis.call('PEXPIRE', key, 50) end \
         local n = 0 for i = 1, 30000000 do n = n + i % 7 end \
         local shown = redis.call('EXISTS', 't', 's', 'e', 'l') \
         return {{shown, redis.call('{quoted}')}}"
    );
    let (shown, reply): (i64, AnswerOfAll) = send(&mut connection, &["EVAL", &script, "0"]);
    let left: Vec<i64> = reply.2.iter().map(|reply| reply[2]).collect();
    assert_eq!((shown, reply.0, left), (4, 1, vec![3, 4, 4, 4, 4]));
    for key in KEYS_OF_ALL {
        let ttl_ms: i64 = send(&mut connection, &["PTTL", key]);
        assert!(ttl_ms > 50_000, "{key}: {ttl_ms}");
    }
}

/// Fills a log and a set of leases so that more than eight of each leave with the next call, by
/// commands of the server's to which others may listen.
fn many_leave(server: &Server, connection: &mut Connection) {
    server.set_clock(T0);
    run(connection, "FLUSHALL");
    run(connection, "RL.SLIDE e 100 60000 EXACT COST 30");
    for id in 0..12 {
        run(connection, &format!("RL.LEASE l 100 60000 {id}"));
    }
    server.set_clock(T0 + 30 * SECOND);
    run(connection, "RL.SLIDE e 100 60000 EXACT COST 5");
    run(connection, "RL.LEASE l 100 60000 last");
    run(connection, "RL.FIXED f 100 600000");
    run(connection, "RL.TOKEN t 100 1 600000");
    run(connection, "RL.SLIDE s 100 3153600000000");
    server.set_clock(T0 + 60 * SECOND);
}

const MANY_LEAVE: &str = "RL.ALL 5 f e t l s FIXED 100 600000 SLIDE 100 60000 EXACT \
                          TOKEN 100 1 600000 LEASE 100 60000 me SLIDE 100 3153600000000";

#[test]
fn many_units_and_many_leases_leave_in_one_call() {
    let server = with_log().start();
    let mut admin = server.connect();
    // Who may call it needs no right to what the server does for it.
    for rights in ["~* +@all", "~* -@all +rl.all"] {
        many_leave(&server, &mut admin);
        let mut user = server.connect_as(rights);
        let (allowed, _, replies) = ask_all(&mut user, MANY_LEAVE);
        let left: Vec<i64> = replies.iter().map(|reply| reply[2]).collect();
        assert_eq!((allowed, left), (1, vec![98, 94, 98, 98, 98]), "{rights}");
        assert_eq!(send::<i64>(&mut admin, &["LLEN", "e"]), 6);
        assert_eq!(send::<i64>(&mut admin, &["ZCARD", "l"]), 2);
        // Refused, nothing leaves.
        many_leave(&server, &mut admin);
        let refused = MANY_LEAVE.replace("FIXED 100", "FIXED 1");
        nothing_happens(&server, &refused, |connection| {
            assert_eq!(ask_all(connection, &refused).0, 0);
        });
    }
}

/// A module that deletes keys of the same call as soon as it hears of what leaves. The call is
/// answered as it was judged.
#[test]
fn another_module_may_delete_any_key_of_the_call_meanwhile() {
    let deleter = c_library("deleter");
    for victims in [
        &KEYS_OF_ALL[..],
        &["f", "t", "s"],
        &["e"],
        &["l"],
        &["l", "e"],
    ] {
        let mut options = Options::new()
            .clock(T0)
            .arg("loadmodule", deleter.to_str().expect("a path"));
        for victim in victims {
            options = options.word(victim);
        }
        let server = options.start();
        let mut connection = server.connect();
        for call in [
            MANY_LEAVE.to_owned(),
            MANY_LEAVE.replace("60000 me", "60000 last RELEASE"),
            MANY_LEAVE.replace("EXACT", "EXACT REFUND 1"),
        ] {
            many_leave(&server, &mut connection);
            let (allowed, _, replies) = ask_all(&mut connection, &call);
            assert_eq!((allowed, replies.len()), (1, 5), "{victims:?}: {call}");
            for key in ["f", "t", "s"] {
                let left: bool = send(&mut connection, &["EXISTS", key]);
                assert_eq!(left, !victims.contains(&key), "{victims:?}: {key}");
            }
        }
        assert_eq!(info(&mut connection, "rl_health", "rl_internal_errors"), 0);
    }
}

/// A key that is over goes when the call looks at it. Whoever hears of that may delete one that the
/// call has looked at before: it is judged as absent then.
#[test]
fn another_module_may_delete_a_key_of_the_call_when_another_expires() {
    let deleter = c_library("deleter");
    for victim in KEYS_OF_ALL {
        let server = Options::new()
            .clock(T0)
            .arg("loadmodule", deleter.to_str().expect("a path"))
            .word(victim)
            .start();
        let mut connection = server.connect();
        for _ in 0..20 {
            server.set_clock(T0);
            run(&mut connection, "FLUSHALL");
            for _ in 0..2 {
                assert_eq!(ask_all(&mut connection, ALL).0, 1);
            }
            run(&mut connection, "SET over x PX 1000");
            server.set_clock(T0 + 2 * SECOND);
            let call = format!("{ALL} FIXED 5 60000");
            let call = call.replace("RL.ALL 5 f t s e l", "RL.ALL 6 f t s e l over");
            let (allowed, _, replies) = ask_all(&mut connection, &call);
            assert_eq!((allowed, replies[5][2]), (1, 4));
            for ((key, is_victim), reply) in KEYS_OF_ALL
                .iter()
                .map(|key| (key, *key == victim))
                .zip(&replies)
            {
                let left = if is_victim || *key == "l" { 4 } else { 2 };
                assert_eq!(reply[2], left, "{key} without {victim}");
                let ttl_ms: i64 = send(&mut connection, &["PTTL", key]);
                assert!(ttl_ms > 0, "{key} without {victim}: {ttl_ms}");
            }
        }
        assert_eq!(info(&mut connection, "rl_health", "rl_internal_errors"), 0);
    }
}

/// The server tells of a key that the call makes. Whoever hears of that may delete one that the call
/// has changed before, or has still to change.
#[test]
fn another_module_may_delete_a_key_of_the_call_when_the_call_makes_another() {
    let deleter = c_library("deleter");
    for victim in KEYS_OF_ALL {
        let server = Options::new()
            .clock(T0)
            .arg("loadmodule", deleter.to_str().expect("a path"))
            .word("new")
            .word(victim)
            .start();
        let mut connection = server.connect();
        for (call, keys) in [
            (format!("{ALL} FIXED 5 60000"), "6 f t s e l new"),
            (
                ALL.replace("FIXED", "FIXED 5 60000 FIXED"),
                "6 new f t s e l",
            ),
        ] {
            run(&mut connection, "FLUSHALL");
            // The first call makes all, and loses the victim. The second makes that alone.
            ask_all(&mut connection, ALL);
            ask_all(&mut connection, ALL);
            assert!(send::<bool>(&mut connection, &["EXISTS", victim]));
            let call = call.replace("5 f t s e l", keys);
            assert_eq!(ask_all(&mut connection, &call).0, 1, "{call}");
            for key in KEYS_OF_ALL {
                let left: bool = send(&mut connection, &["EXISTS", key]);
                assert_eq!(left, key != victim, "{key} without {victim}");
            }
        }
        assert_eq!(info(&mut connection, "rl_health", "rl_internal_errors"), 0);
    }
}

/// What is deleted between the decision and the change is made anew, with a TTL as any key has.
#[test]
fn a_key_of_the_call_that_another_module_deletes_comes_back_with_a_ttl() {
    let deleter = c_library("deleter");
    let server = Options::new()
        .clock(T0)
        .arg("loadmodule", deleter.to_str().expect("a path"))
        .word("e")
        .word("l")
        .start();
    let mut connection = server.connect();
    let swapped = "RL.ALL 2 l e LEASE 100 60000 me SLIDE 100 60000 EXACT";
    for (call, deleted) in [(MANY_LEAVE, "l"), (swapped, "e")] {
        many_leave(&server, &mut connection);
        assert_eq!(ask_all(&mut connection, call).0, 1);
        let ttl_ms: i64 = send(&mut connection, &["PTTL", deleted]);
        assert!(ttl_ms >= 60_000, "{deleted}: {ttl_ms}");
    }
}

/// One that deletes each key on which a call was refused.
#[test]
fn another_module_may_delete_the_keys_that_stood_in_the_way() {
    let deleter = c_library("deleter");
    let server = Options::new()
        .clock(T0)
        .arg("loadmodule", deleter.to_str().expect("a path"))
        .arg("notify-keyspace-events", "Kd")
        .start();
    let mut connection = server.connect();
    for (_, _, fill) in LIMITS {
        run(&mut connection, fill);
    }
    let call = all(&limits());
    assert_eq!(ask_all(&mut connection, &call).0, 0);
    assert_eq!(send::<usize>(&mut connection, &["DBSIZE"]), 0);
    assert_eq!(ask_all(&mut connection, &call).0, 1);
    // A forced one that did not fit, in a call that is admitted.
    let forced = call.replace("FIXED 5 60000", "FIXED 5 60000 COST 5 FORCE");
    assert_eq!(ask_all(&mut connection, &forced).0, 1);
    let left: Vec<String> = send(&mut connection, &["KEYS", "*"]);
    assert_eq!((left.len(), left.contains(&"f".to_owned())), (4, false));
}

#[test]
fn the_server_knows_the_keys_and_asks_for_each_of_them() {
    let server = with_log().start();
    let mut admin = server.connect();
    let words: Vec<&str> = ALL.split_whitespace().collect();
    let ask_server = [&["COMMAND", "GETKEYS"], &words[..]].concat();
    assert_eq!(send::<Vec<String>>(&mut admin, &ask_server), KEYS_OF_ALL);
    let ask_server = [&["COMMAND", "GETKEYSANDFLAGS"], &words[..]].concat();
    let keys: Vec<(String, Vec<String>)> = send(&mut admin, &ask_server);
    let flags = ["RW", "access", "update"].map(str::to_owned).to_vec();
    assert_eq!(keys, KEYS_OF_ALL.map(|key| (key.to_owned(), flags.clone())));

    ask_all(&mut admin, ALL);
    for rights in [
        "+@all ~f ~t ~s ~e",
        "+@all ~t ~s ~e ~l",
        "+@all ~f ~t ~e ~l %R~s",
        "+@all ~f ~t ~e ~l %W~s",
        "+@all %R~* ~f",
        "+@all ~other",
        "+@all -rl.all ~*",
        "+@all %R~*",
    ] {
        let mut user = server.connect_as(rights);
        nothing_happens(&server, rights, |_| {
            for call in [ALL, &ALL.replace("FIXED 5", "FIXED 1")] {
                let text = error(&mut user, call);
                assert!(text.starts_with("NOPERM "), "{rights}: {text}");
            }
        });
    }
    for rights in ["-@all +rl.all ~f ~t ~s ~e ~l", "-@all +rl.all %RW~*"] {
        let mut user = server.connect_as(rights);
        assert_eq!(ask_all(&mut user, ALL).0, 1, "{rights}");
    }
    // Selectors hold for a call as a whole.
    let mut user = server.connect_as("-@all +rl.all ~f (+rl.all ~t ~s ~e ~l)");
    assert!(error(&mut user, ALL).starts_with("NOPERM "));
}

/// What a client says of how many keys there are is checked before it is believed: by the server, for
/// a user whose keys it checks, in a cluster, and by us. The server could not have as much memory.
#[test]
fn no_number_of_keys_does_harm_in_little_address_space() {
    let counts: [&[u8]; 20] = [
        b"0",
        b"-1",
        b"-2147483648",
        b"-9223372036854775808",
        b"3",
        b"32",
        b"33",
        b"1000000",
        b"2000000000",
        b"2147483646",
        b"2147483647",
        b"2147483648",
        b"4294967294",
        b"4294967295",
        b"4294967297",
        b"9223372036854775807",
        b"99999999999999999999",
        b"1.0",
        b"one",
        b"",
    ];
    for cluster in ["no", "yes"] {
        let port = support::free_port().to_string();
        let server = Options::new()
            .tcp()
            .arg("cluster-enabled", cluster)
            .arg("cluster-port", &port)
            .address_space(2 << 30)
            .start();
        let mut admin = server.connect();
        let mut users = [server.connect(), server.connect_as("+@all ~k*")];
        for count in counts {
            let call: [&[u8]; 6] = [b"RL.ALL", count, b"k", b"FIXED", b"5", b"60000"];
            for word in [&b"GETKEYS"[..], b"GETKEYSANDFLAGS"] {
                let words = [&[b"COMMAND", word], &call[..]].concat();
                let told: Result<Vec<Value>, _> = send_bytes(&mut admin, &words);
                // Three words do follow: by number, they are keys.
                assert_eq!(told.is_ok(), count == b"3", "{count:?}");
            }
            for user in &mut users {
                let told = send_bytes::<Value>(user, &call).unwrap_err();
                let text = error_text(&told);
                let codes = ["ERR", "NOPERM", "CROSSSLOT", "CLUSTERDOWN"];
                assert!(codes.iter().any(|code| text.starts_with(code)), "{text}");
            }
        }
        assert_eq!(send::<usize>(&mut admin, &["DBSIZE"]), 0);
    }
}
