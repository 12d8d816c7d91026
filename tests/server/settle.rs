//! `UPTO`, `REFUND` and `COST … FORCE`: what a server answers, and how long it keeps the keys. What
//! they send, count and need is told where that is told of all calls.

use std::fs;
use std::thread;

use redis::{Connection, Value};
use tempfile::TempDir;

use support::forms::{ON_ONE_KEY, ON_OWN_KEYS};
use support::random::Random;
use support::{Options, SECOND, Server, T0, ask, caught_up, follow, send, snapshot};

fn key_of(call: &str) -> &str {
    call.split(' ').nth(1).expect("a key")
}

/// The first three integers: a limit of 5, with nothing of it back while the clock is held.
#[test]
fn each_form_takes_what_there_is_and_gives_it_back() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for form in ON_ONE_KEY {
        let mut answer = |words: &str| ask(&mut connection, &format!("{form} {words}"));
        assert_eq!(answer("REFUND 3"), [1, 5, 5, 0, 0], "{form}");
        let taken = answer("UPTO 3");
        assert_eq!(taken[..4], [3, 5, 2, 0], "{form}");
        assert_eq!(answer("UPTO 9")[..3], [2, 5, 0], "{form}");
        let none = answer("UPTO 9");
        assert_eq!(none[..3], [0, 5, 0], "{form}");
        assert!(none[3] > 0, "{form}: it can't be never: {none:?}");
        assert_eq!(answer("REFUND 2"), [1, 5, 2, 0, taken[4]], "{form}");
        assert_eq!(answer("REFUND 2")[..4], [1, 5, 4, 0], "{form}");
        assert_eq!(answer("REFUND 2"), [1, 5, 5, 0, 0], "{form}");
        assert_eq!(answer("UPTO 9007199254740991")[..3], [5, 5, 0], "{form}");
        assert_eq!(answer("REFUND 9007199254740991"), [1, 5, 5, 0, 0], "{form}");
        assert_eq!(send::<i64>(&mut connection, &["DBSIZE"]), 0, "{form}");
    }
}

/// After exactly the wait that `UPTO` is told there is one unit, and a millisecond sooner none.
#[test]
fn waiting_as_told_is_enough_and_a_millisecond_less_is_not() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for form in ON_OWN_KEYS {
        let call = format!("{form} UPTO 3");
        server.set_clock(T0);
        ask(&mut connection, &call);
        server.set_clock(T0 + 7 * SECOND);
        assert_eq!(ask(&mut connection, &call)[0], 2, "{form}");
        let [allowed, .., wait_ms, _] = ask(&mut connection, &call);
        assert_eq!(allowed, 0, "{form}");
        let then = T0 + 7 * SECOND + u64::try_from(wait_ms).unwrap() * 1_000;
        server.set_clock(then - 1_000);
        assert_eq!(ask(&mut connection, &call)[0], 0, "{form}");
        server.set_clock(then);
        assert!(ask(&mut connection, &call)[0] > 0, "{form}");
    }
}

#[test]
fn a_forced_charge_is_told_as_its_cost_would_be() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for (call, words, expected) in [
        ("RL.FIXED f 5 60000", "FORCE", [1, 5, 4, 0, 60_000]),
        (
            "RL.FIXED f 5 60000",
            "force cost 3",
            [1, 5, 1, 60_000, 60_000],
        ),
        (
            "RL.FIXED f 5 60000",
            "COST 2 FORCE",
            [0, 5, 0, 60_000, 60_000],
        ),
        ("RL.FIXED f 5 60000", "COST 6 FORCE", [0, 5, 0, -1, 60_000]),
        ("RL.TOKEN t 5 1 1000", "FORCE", [1, 5, 4, 0, 1_000]),
        (
            "RL.TOKEN t 5 1 1000",
            "COST 4 FORCE",
            [1, 5, 0, 4_000, 5_000],
        ),
        (
            "RL.TOKEN t 5 1 1000",
            "COST 2 FORCE",
            [0, 5, 0, 4_000, 7_000],
        ),
        ("RL.TOKEN t 5 1 1000", "COST 6 FORCE", [0, 5, 0, -1, 13_000]),
        ("RL.TOKEN t 5 1 1000", "COST 1", [0, 5, 0, 9_000, 13_000]),
        ("RL.TOKEN t 5 1 1000", "UPTO 5", [0, 5, 0, 9_000, 13_000]),
        ("RL.SLIDE s 5 60000", "FORCE", [1, 5, 4, 0, 120_000]),
        ("RL.SLIDE s 5 60000", "COST 9 FORCE", [0, 5, 0, -1, 120_000]),
        // 10 are used: 6 of them have left 36 s into the next window.
        ("RL.SLIDE s 5 60000", "COST 1", [0, 5, 0, 96_000, 120_000]),
    ] {
        let call = format!("{call} {words}");
        assert_eq!(ask(&mut connection, &call), expected, "{call}");
    }
}

/// Only a bucket carries a debt over.
#[test]
fn windows_forget_what_was_beyond_their_limit_and_buckets_do_not() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let calls = [
        "RL.FIXED f 5 1000",
        "RL.TOKEN t 5 5 1000",
        "RL.SLIDE s 5 1000",
    ];
    for call in calls {
        ask(&mut connection, &format!("{call} COST 50 FORCE"));
    }
    server.set_clock(T0 + 2 * SECOND);
    let remaining = calls.map(|call| ask(&mut connection, call)[2]);
    assert_eq!(remaining, [4, 0, 4]);
    // 45 owed at first: 0 after nine seconds, full after ten.
    for (second, remaining) in [(9, 0), (10, 5), (11, 5)] {
        server.set_clock(T0 + second * SECOND);
        let look = ask(&mut connection, "RL.PEEK t TOKEN 5 5 1000");
        assert_eq!(look[2], remaining, "{second} s");
    }
}

/// The longest debt is one that is over in 100 years; a bucket that takes as long to fill has none.
#[test]
fn a_debt_stops_at_a_hundred_years() {
    const HUNDRED_YEARS_MS: i64 = 3_153_600_000_000;
    let server = Server::at(T0);
    let mut connection = server.connect();
    for (policy, reset_ms) in [
        ("5 1 1000", HUNDRED_YEARS_MS),
        ("1 1 3153600000000", HUNDRED_YEARS_MS),
        (
            "9007199254740991 9007199254740991 3153600000000",
            HUNDRED_YEARS_MS,
        ),
        ("1 9007199254740991 1", 3),
    ] {
        for _ in 0..3 {
            let call = format!("RL.TOKEN k {policy} COST 9007199254740991 FORCE");
            let reply = ask(&mut connection, &call);
            assert!(reply[4] <= HUNDRED_YEARS_MS, "{call}: {reply:?}");
            let ttl_ms: i64 = send(&mut connection, &["PTTL", "k"]);
            assert!(ttl_ms >= reply[4], "{call}: {reply:?}, {ttl_ms}");
        }
        let look = format!("RL.PEEK k TOKEN {policy}");
        let reply = ask(&mut connection, &look);
        assert_eq!(reply[4], reset_ms, "{look}");
        send::<()>(&mut connection, &["DEL", "k"]);
    }
}

/// Rule 4: a TTL that covers what is used, and at most about twice that of a full bucket or window;
/// longer only for a bucket that owes. Nothing used, no key.
#[test]
fn every_key_lives_as_long_as_it_is_of_use_and_not_for_ever() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut random = Random::from(7);
    for (form, longest_ms, owes) in [
        ("RL.FIXED k 50 1000", 1_000, false),
        ("RL.TOKEN k 50 7 1000", 2 * 50 * 1_000 / 7 + 1_000, true),
        ("RL.SLIDE k 50 1000", 3_000, false),
        ("RL.SLIDE k 50 1000 EXACT", 3_000, false),
    ] {
        let mut us = T0;
        for _ in 0..600 {
            us += random.below(150_000);
            server.set_clock(us);
            let units = random.of(&[1, 1, 2, 5, 20, 70]);
            let words = match random.below(4) {
                0 => format!("UPTO {units}"),
                1 => format!("REFUND {units}"),
                2 if !form.ends_with("EXACT") => format!("COST {units} FORCE"),
                _ => format!("COST {units}"),
            };
            let call = format!("{form} {words}");
            let reply = ask(&mut connection, &call);
            let ttl_ms: i64 = send(&mut connection, &["PTTL", "k"]);
            if ttl_ms == -2 {
                assert_eq!(reply[4], 0, "{call}: {reply:?}");
                continue;
            }
            let forced = words.ends_with("FORCE");
            if reply[0] == 0 && !forced {
                continue;
            }
            let most_ms = if owes {
                longest_ms.max(reply[4])
            } else {
                longest_ms
            };
            let range = reply[4]..=most_ms;
            let kept = words.starts_with("REFUND") && reply[4] == 0;
            assert!(
                kept || range.contains(&ttl_ms),
                "{call}: {reply:?}, {ttl_ms}"
            );
        }
        send::<()>(&mut connection, &["DEL", "k"]);
        server.set_clock(T0);
    }
}

/// A bucket that owes is still there, and still owes, for as long as it does.
#[test]
fn a_debt_outlives_twice_the_time_to_fill() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let call = "RL.TOKEN k 5 1 1000";
    // Twice the time to fill and a second: 11 s. This takes 55.
    let [.., reset_ms] = ask(&mut connection, &format!("{call} COST 55 FORCE"));
    assert_eq!(reset_ms, 55_000);
    for second in [11, 12, 49] {
        server.set_clock(T0 + second * SECOND);
        let ttl_ms: i64 = send(&mut connection, &["PTTL", "k"]);
        let left_ms = 55_000 - i64::try_from(second).unwrap() * 1_000;
        assert!(ttl_ms >= left_ms, "{second} s: {ttl_ms}");
        let reply = ask(&mut connection, call);
        assert_eq!((reply[0], reply[4]), (0, left_ms), "{second} s");
    }
    server.set_clock(T0 + 51 * SECOND);
    assert_eq!(ask(&mut connection, call)[0], 1);
}

#[test]
fn transactions_and_scripts_settle_alike() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    send::<()>(&mut connection, &["MULTI"]);
    for words in ["UPTO 3", "COST 9 FORCE", "REFUND 8", "REFUND 99"] {
        let call = format!("RL.TOKEN k 5 1 1000 {words}");
        let words: Vec<&str> = call.split(' ').collect();
        send::<()>(&mut connection, &words);
    }
    let replies: Vec<Vec<i64>> = send(&mut connection, &["EXEC"]);
    let expected = [
        [3, 5, 2, 0, 3_000],
        [0, 5, 0, -1, 12_000],
        [1, 5, 1, 0, 4_000],
        [1, 5, 5, 0, 0],
    ];
    assert_eq!(replies, expected);
    let script = "local replies = {}
                  for i = 1, #ARGV, 2 do
                    replies[#replies + 1] = redis.call('RL.SLIDE', KEYS[1], 100, 60000, 'EXACT',
                                                       ARGV[i], ARGV[i + 1])
                  end
                  return replies";
    let words = "UPTO 30 REFUND 1 REFUND 20 UPTO 200 REFUND 200";
    let mut eval = vec!["EVAL", script, "1", "e"];
    eval.extend(words.split(' '));
    let replies: Vec<Vec<i64>> = send(&mut connection, &eval);
    let told: Vec<_> = replies.iter().map(|reply| (reply[0], reply[2])).collect();
    assert_eq!(told, [(30, 70), (1, 71), (1, 91), (91, 0), (1, 100)]);
    assert_eq!(send::<i64>(&mut connection, &["DBSIZE"]), 0);
}

/// The server's own command removes many entries, and must go through wherever ours does.
#[test]
fn a_user_of_the_command_alone_may_give_back_many_units() {
    let server = Server::at(T0);
    let mut user = server.connect_as("-@all +rl.slide ~k");
    let call = "RL.SLIDE k 100 60000 EXACT";
    assert_eq!(ask(&mut user, &format!("{call} UPTO 60"))[0], 60);
    assert_eq!(ask(&mut user, &format!("{call} REFUND 40"))[2], 80);
    assert_eq!(ask(&mut user, &format!("{call} REFUND 40"))[2], 100);
}

/// Together, callers who take what there is get no more than the limit, and get all of it.
#[test]
fn concurrent_callers_who_take_what_there_is_share_the_limit() {
    let server = Options::new().start();
    for form in [
        "RL.FIXED f 1000 3600000",
        "RL.TOKEN t 1000 1 3600000",
        "RL.SLIDE s 1000 315360000000",
        "RL.SLIDE e 1000 3600000 EXACT",
    ] {
        let taken: i64 = thread::scope(|scope| {
            let callers: Vec<_> = (0..20)
                .map(|_| {
                    let mut connection = server.connect();
                    scope.spawn(move || {
                        let call = format!("{form} UPTO 7");
                        (0..10).map(|_| ask(&mut connection, &call)[0]).sum::<i64>()
                    })
                })
                .collect();
            callers
                .into_iter()
                .map(|caller| caller.join().unwrap())
                .sum()
        });
        assert_eq!(taken, 1_000, "{form}");
    }
}

/// Primary and replica, with the module or without, hold the same bytes after every single step,
/// and so do the files once they are loaded.
#[test]
fn copies_hold_the_same_bytes() {
    for replica_has_module in [true, false] {
        let options = Options::new().clock(T0).arg("repl-timeout", "2147483647");
        let with_log = options.clone().arg("appendonly", "yes");
        let primary = with_log
            .clone()
            .arg("repl-diskless-sync", "no")
            .tcp()
            .start();
        let replica = if replica_has_module {
            options.clone().start()
        } else {
            options.clone().without_module().start()
        };
        follow(&replica, &primary);
        let (mut connection, mut copy) = (primary.connect(), replica.connect());
        for (second, words) in [
            (0, "REFUND 1"),
            (0, "UPTO 3"),
            (0, "REFUND 1"),
            (0, "COST 9 FORCE"),
            (1, "REFUND 4"),
            (1, "UPTO 9"),
            (0, "COST 1 FORCE"),
            (0, "REFUND 2"),
            (2, "REFUND 99"),
            (2, "COST 6 FORCE"),
            (2, "UPTO 2"),
        ] {
            primary.set_clock(T0 + second * SECOND);
            replica.set_clock(T0 + second * SECOND);
            for form in ON_OWN_KEYS {
                if form.ends_with("EXACT") && words.ends_with("FORCE") {
                    continue;
                }
                ask(&mut connection, &format!("{form} {words}"));
            }
            caught_up(&replica, &primary);
            for form in ON_OWN_KEYS {
                let key = key_of(form);
                let what = format!("{form} {words}");
                assert_eq!(same(&mut copy, key), same(&mut connection, key), "{what}");
            }
        }
        let keys = ON_OWN_KEYS.map(key_of);
        let original = keys.map(|key| same(&mut connection, key));
        send::<()>(&mut connection, &["SAVE"]);
        let rdb = TempDir::new().unwrap();
        fs::copy(primary.dir().join("dump.rdb"), rdb.path().join("dump.rdb")).unwrap();
        let us = T0 + 2 * SECOND;
        let reloaded = options.without_module().clock(us).start_in(rdb);
        let mut copy = reloaded.connect();
        assert_eq!(keys.map(|key| same(&mut copy, key)), original, "the RDB");
        let dir = primary.stop("NOSAVE");
        let reloaded = with_log.without_module().clock(us).start_in(dir);
        let mut copy = reloaded.connect();
        assert_eq!(keys.map(|key| same(&mut copy, key)), original, "the AOF");
    }
}

/// Value, bytes as `DUMP` gives them, and expiry.
fn same(connection: &mut Connection, key: &str) -> (Value, Option<Vec<u8>>, i64) {
    let of_key = snapshot(connection, key);
    let value: Value = if of_key.kind == "list" {
        send(connection, &["LRANGE", key, "0", "-1"])
    } else {
        send(connection, &["GET", key])
    };
    (value, of_key.dump, of_key.expire_at_ms)
}
