//! What `INFO` tells of the calls: exact, whoever makes them, and how.

use std::collections::BTreeMap;
use std::thread;

use redis::Connection;

use support::forms::ON_OWN_KEYS;
use support::{
    Options, SECOND, Server, T0, ask, error, info_text, module, send, try_send, wait_until,
};

/// Every figure that is not zero.
fn figures(connection: &mut Connection) -> BTreeMap<String, u64> {
    let text = info_text(connection, "rl");
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
        .filter(|(_, value)| *value > 0)
        .collect()
}

fn expect(figures_at_hand: &BTreeMap<String, u64>, expected: &[(&str, u64)]) {
    let expected: BTreeMap<String, u64> = expected
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect();
    assert_eq!(*figures_at_hand, expected);
}

#[test]
fn each_call_is_counted_once_by_what_it_came_to() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    expect(&figures(&mut connection), &[]);
    for line in [
        "RL.FIXED f 2 60000",
        "RL.FIXED f 2 60000",
        "RL.FIXED f 2 60000",
        "RL.FIXED f 2 60000 COST 3",
        "RL.TOKEN t 1 1 60000",
        "RL.SLIDE s 1 60000",
        "RL.SLIDE e 1 60000 EXACT",
        "RL.SLIDE e 1 60000 EXACT",
        "RL.PEEK f FIXED 2 60000",
        "RL.PEEK f FIXED 9 60000",
        "RL.PEEK t TOKEN 1 1 60000 COST 2",
        "RL.PEEK s SLIDE 1 60000",
        "RL.PEEK e SLIDE 1 60000 EXACT",
    ] {
        ask(&mut connection, line);
    }
    for line in [
        "RL.FIXED f 0 60000",
        "RL.TOKEN t 1 1 1 COST",
        "RL.SLIDE s 1 60000 EXACTLY",
        "RL.SLIDE s 1 60000 EXACTLY",
        "RL.FIXED t 2 60000",
        "RL.TOKEN e 2 1 60000",
        "RL.PEEK f WHAT 1 1",
        "RL.PEEK f TOKEN 1 1 1",
    ] {
        error(&mut connection, line);
    }
    let told = figures(&mut connection);
    expect(
        &told,
        &[
            ("rl_fixed_admitted", 2),
            ("rl_fixed_refused", 2),
            ("rl_fixed_refused_above_limit", 1),
            ("rl_fixed_invalid_arguments", 1),
            ("rl_fixed_invalid_state", 1),
            ("rl_fixed_peeks", 2),
            ("rl_token_admitted", 1),
            ("rl_token_invalid_arguments", 1),
            ("rl_token_invalid_state", 1),
            ("rl_token_peeks", 2),
            ("rl_slide_admitted", 2),
            ("rl_slide_refused", 1),
            ("rl_slide_invalid_arguments", 2),
            ("rl_slide_peeks", 2),
            ("rl_peek_admitted", 1),
            ("rl_peek_refused", 4),
            ("rl_peek_refused_above_limit", 1),
            ("rl_peek_invalid_arguments", 1),
            ("rl_peek_invalid_state", 1),
        ],
    );
    // The server does not tell a module of this.
    send::<()>(&mut connection, &["CONFIG", "RESETSTAT"]);
    assert_eq!(figures(&mut connection), told);
}

/// Each line: a call of a limit of 5 without its policy, and the figures that it adds one to.
#[test]
fn what_settles_is_counted_beside_what_it_came_to() {
    const ABOVE: &str = "refused_above_limit";
    let lines: &[(&str, &[&str])] = &[
        ("REFUND 1", &["admitted", "refunds"]),
        ("UPTO 2", &["admitted"]),
        ("UPTO 9", &["admitted", "partial"]),
        ("UPTO 9", &["refused"]),
        ("UPTO 1", &["refused"]),
        ("REFUND 2", &["admitted", "refunds"]),
        ("UPTO 2", &["admitted"]),
        ("REFUND 9", &["admitted", "refunds"]),
        ("REFUND 9", &["admitted", "refunds"]),
        ("REFUND 0", &["invalid_arguments"]),
        ("UPTO 0", &["invalid_arguments"]),
        ("UPTO 1 COST 1", &["invalid_arguments"]),
        ("COST 1 REFUND 1", &["invalid_arguments"]),
    ];
    let forced: &[(&str, &[&str])] = &[
        ("FORCE", &["admitted", "forced"]),
        ("COST 4 FORCE", &["admitted", "forced"]),
        ("FORCE", &["refused", "forced"]),
        ("COST 6 FORCE", &["refused", ABOVE, "forced"]),
        ("UPTO 1", &["refused"]),
        ("COST 0 FORCE", &["invalid_arguments"]),
    ];
    for (form, name) in ON_OWN_KEYS
        .into_iter()
        .zip(["fixed", "token", "slide", "slide"])
    {
        let server = Server::at(T0);
        let mut connection = server.connect();
        let mut expected = BTreeMap::new();
        let takes_force = !form.ends_with("EXACT");
        let forced = forced.iter().filter(|_| takes_force);
        for (words, counted) in lines.iter().chain(forced) {
            let call = format!("{form} {words}");
            let words: Vec<&str> = call.split(' ').collect();
            let result = try_send::<Vec<i64>>(&mut connection, &words);
            let is_error = counted.contains(&"invalid_arguments");
            assert_eq!(result.is_err(), is_error, "{call}");
            for figure in *counted {
                *expected.entry(format!("rl_{name}_{figure}")).or_insert(0) += 1;
            }
            assert_eq!(figures(&mut connection), expected, "{call}");
        }
    }
}

/// Each line: a call of the last id of one lease of one, and the figures that it adds one to.
#[test]
fn calls_on_leases_are_counted_by_what_became_of_them() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    send::<()>(&mut connection, &["ZADD", "foreign", "1", "a"]);
    send::<()>(&mut connection, &["SET", "text", "a"]);
    let mut expected = BTreeMap::new();
    for (call, counted) in [
        ("RL.LEASE l 1 60000 a RELEASE", &["not_live"][..]),
        ("RL.LEASE l 1 60000 a RENEW", &["refused", "not_live"]),
        ("RL.LEASE l 1 60000 a", &["admitted"]),
        ("RL.LEASE l 1 60000 a", &["admitted"]),
        ("RL.LEASE l 1 60000 a RENEW", &["admitted"]),
        ("RL.LEASE l 1 60000 b", &["refused"]),
        ("RL.LEASE l 1 60000 b RELEASE", &["not_live"]),
        ("RL.LEASE l 1 60000 a RELEASE", &["admitted", "releases"]),
        ("RL.LEASE l 0 60000 a", &["invalid_arguments"]),
        ("RL.LEASE l 1 60000 a FORCE", &["invalid_arguments"]),
        ("RL.LEASE foreign 1 60000 a", &["invalid_state"]),
        ("RL.LEASE text 1 60000 a", &["invalid_state"]),
    ] {
        let words: Vec<&str> = call.split(' ').collect();
        let result = try_send::<Vec<i64>>(&mut connection, &words);
        assert_eq!(result.is_err(), counted[0].starts_with("invalid"), "{call}");
        for figure in counted {
            *expected.entry(format!("rl_lease_{figure}")).or_insert(0) += 1;
        }
        assert_eq!(figures(&mut connection), expected, "{call}");
    }
    for (look, came_to) in [
        ("RL.PEEK l LEASE 1 60000 a", "admitted"),
        ("RL.PEEK foreign LEASE 1 60000 a", "invalid_state"),
    ] {
        let words: Vec<&str> = look.split(' ').collect();
        let _ = try_send::<Vec<i64>>(&mut connection, &words);
        *expected.entry("rl_lease_peeks".to_owned()).or_insert(0) += 1;
        expected.insert(format!("rl_peek_{came_to}"), 1);
        assert_eq!(figures(&mut connection), expected, "{look}");
    }
    send::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]);
    error(&mut connection, "RL.LEASE l 1 60000 a");
    expected.insert("rl_lease_out_of_memory".to_owned(), 1);
    assert_eq!(figures(&mut connection), expected);
}

/// Under `all` alone, and what settles once for each limit of an admitted call.
#[test]
fn a_call_on_several_limits_is_counted_once_under_its_own_name() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    send::<()>(&mut connection, &["SADD", "set", "a"]);
    let mut expected = BTreeMap::new();
    let two = |words: &str| format!("RL.ALL 2 f l {words}");
    for (call, counted) in [
        (two("FIXED 2 60000 LEASE 1 60000 a"), &["admitted"][..]),
        (two("FIXED 2 60000 LEASE 1 60000 b"), &["refused"]),
        (
            two("FIXED 2 60000 COST 3 LEASE 1 60000 a"),
            &["refused", "refused_above_limit"],
        ),
        (
            two("FIXED 2 60000 LEASE 1 60000 b RENEW"),
            &["refused", "refused_above_limit"],
        ),
        (
            two("FIXED 2 60000 FORCE LEASE 1 60000 a RELEASE"),
            &["admitted", "forced", "releases"],
        ),
        (
            two("FIXED 2 60000 FORCE LEASE 1 60000 a RELEASE"),
            &["admitted", "forced", "not_live"],
        ),
        (
            two("FIXED 2 60000 REFUND 1 TOKEN 1 1 1 REFUND 1"),
            &["admitted", "refunds", "refunds"],
        ),
        // What settles is not done where another refuses.
        (
            "RL.ALL 4 f t l s FIXED 2 60000 TOKEN 1 1 1 REFUND 1 LEASE 1 1 a RELEASE \
             SLIDE 1 1 COST 9 FORCE"
                .to_owned(),
            &["refused"],
        ),
        (
            "RL.ALL 0 f FIXED 2 60000".to_owned(),
            &["invalid_arguments"],
        ),
        (
            "RL.ALL 2 f f FIXED 2 1 FIXED 2 1".to_owned(),
            &["invalid_arguments"],
        ),
        (
            "RL.ALL 2 f set FIXED 2 1 FIXED 2 1".to_owned(),
            &["invalid_state"],
        ),
        (
            "RL.ALL 2 f k FIXED 2 1 SLIDE 2 1 UPTO 1".to_owned(),
            &["invalid_arguments"],
        ),
        (
            "RL.ALL 2 k f TOKEN 2 1 1 TOKEN 2 1 1".to_owned(),
            &["invalid_state"],
        ),
    ] {
        let words: Vec<&str> = call.split_whitespace().collect();
        let result = try_send::<redis::Value>(&mut connection, &words);
        assert_eq!(result.is_err(), counted[0].starts_with("invalid"), "{call}");
        for figure in counted {
            *expected.entry(format!("rl_all_{figure}")).or_insert(0) += 1;
        }
        assert_eq!(figures(&mut connection), expected, "{call}");
    }
    send::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]);
    error(&mut connection, "RL.ALL 2 x y FIXED 2 60000 FIXED 2 60000");
    expected.insert("rl_all_out_of_memory".to_owned(), 1);
    server.set_clock(1);
    error(&mut connection, "RL.ALL 2 x y FIXED 2 60000 FIXED 2 60000");
    expected.insert("rl_clock_out_of_range".to_owned(), 1);
    assert_eq!(figures(&mut connection), expected);
}

#[test]
fn what_settles_and_fails_is_counted_as_an_error_only() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    send::<()>(&mut connection, &["SET", "text", "x", "PX", "60000"]);
    send::<()>(&mut connection, &["SADD", "set", "x"]);
    for words in ["FORCE", "UPTO 3", "REFUND 1"] {
        error(&mut connection, &format!("RL.TOKEN text 5 1 1000 {words}"));
        error(&mut connection, &format!("RL.TOKEN set 5 1 1000 {words}"));
    }
    send::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]);
    for words in ["FORCE", "COST 6 FORCE", "UPTO 3"] {
        let oom = error(&mut connection, &format!("RL.TOKEN new 5 1 1000 {words}"));
        assert!(oom.starts_with("OOM"), "{oom}");
    }
    expect(
        &figures(&mut connection),
        &[("rl_token_invalid_state", 6), ("rl_token_out_of_memory", 3)],
    );
}

/// A look at what `UPTO` would take is a look, and neither it nor `COST` counts as settling.
#[test]
fn a_look_at_what_settles_is_counted_as_a_look() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    ask(&mut connection, "RL.FIXED f 5 60000 COST 3");
    for (words, allowed) in [("UPTO 9", 2), ("UPTO 1", 1), ("COST 3", 0)] {
        let look = format!("RL.PEEK f FIXED 5 60000 {words}");
        assert_eq!(ask(&mut connection, &look)[0], allowed);
    }
    error(&mut connection, "RL.PEEK f FIXED 5 60000 REFUND 1");
    error(&mut connection, "RL.PEEK f FIXED 5 60000 FORCE");
    expect(
        &figures(&mut connection),
        &[
            ("rl_fixed_admitted", 1),
            ("rl_fixed_peeks", 3),
            ("rl_peek_admitted", 2),
            ("rl_peek_refused", 1),
            ("rl_peek_invalid_arguments", 2),
        ],
    );
}

/// A step back that a refund or a forced charge stores is counted once, as that of any call.
#[test]
fn a_clock_step_that_is_settled_shows() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut steps = 0;
    for (seconds, words) in [
        (10, "REFUND 1"),
        (20, "UPTO 1"),
        (30, "FORCE"),
        (40, "REFUND 99"),
    ] {
        for call in &ON_OWN_KEYS[1..] {
            if words == "FORCE" && call.ends_with("EXACT") {
                continue;
            }
            server.set_clock(T0);
            let key = call.split(' ').nth(1).expect("a key");
            send::<()>(&mut connection, &["DEL", key]);
            ask(&mut connection, &format!("{call} COST 3"));
            server.set_clock(T0 - seconds * SECOND);
            for _ in 0..2 {
                ask(&mut connection, &format!("{call} {words}"));
            }
            steps += 1;
            assert_eq!(
                figures(&mut connection)["rl_clock_steps"],
                steps,
                "{call} {words}"
            );
        }
    }
}

#[test]
fn calls_from_everywhere_are_counted_to_the_last() {
    const CLIENTS: u64 = 8;
    const CALLS: u64 = 2_000;
    let server = Options::new().start();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut connection = server.connect();
                for batch in 0..CALLS / 100 {
                    let mut pipe = redis::pipe();
                    if batch % 2 == 0 {
                        pipe.atomic();
                    }
                    for _ in 0..100 {
                        let words = ["hot", "5000", "3600000"];
                        pipe.cmd("RL.FIXED").arg(&words);
                    }
                    pipe.exec(&mut connection).expect("replies");
                }
                let script = "return redis.call('RL.FIXED', KEYS[1], 5000, 3600000)";
                send::<Vec<i64>>(&mut connection, &["EVAL", script, "1", "hot"]);
            });
        }
    });
    expect(
        &figures(&mut server.connect()),
        &[
            ("rl_fixed_admitted", 5_000),
            ("rl_fixed_refused", CLIENTS * (CALLS + 1) - 5_000),
        ],
    );
}

#[test]
fn full_memory_and_a_stepping_clock_show() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for call in ON_OWN_KEYS {
        ask(&mut connection, call);
    }
    // Jitter is no step.
    server.set_clock(T0 - 1_000);
    for call in ["RL.TOKEN t 5 1 60000", "RL.SLIDE e 5 60000 EXACT"] {
        ask(&mut connection, call);
    }
    assert_eq!(figures(&mut connection).get("rl_clock_steps"), None);
    server.set_clock(T0 - 600 * SECOND);
    for call in ON_OWN_KEYS {
        ask(&mut connection, call);
    }
    assert_eq!(figures(&mut connection)["rl_clock_steps"], 3);
    // Each key is set back once; also where the call is refused, and where it is never admitted
    // there is nothing to store.
    server.set_clock(T0 - 1_200 * SECOND);
    for call in [
        "RL.TOKEN t 5 1 60000 COST 6",
        "RL.TOKEN t 5 1 60000 COST 5",
        "RL.TOKEN t 5 1 60000 COST 5",
        "RL.SLIDE s 5 60000 COST 5",
        "RL.SLIDE e 5 60000 EXACT COST 5",
    ] {
        assert_eq!(ask(&mut connection, call)[0], 0, "{call}");
    }
    assert_eq!(figures(&mut connection)["rl_clock_steps"], 6);

    send::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]);
    for call in [
        "RL.FIXED new 5 60000",
        "RL.TOKEN new 5 1 60000",
        "RL.SLIDE e 5 60000 EXACT",
    ] {
        assert!(error(&mut connection, call).starts_with("OOM"), "{call}");
    }
    let told = figures(&mut connection);
    for name in ["fixed", "token", "slide"] {
        assert_eq!(told[&format!("rl_{name}_out_of_memory")], 1);
    }
}

#[test]
fn an_impossible_clock_shows() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    server.set_clock(10_000_000_000_000_000);
    let refused = error(&mut connection, "RL.FIXED f 5 60000");
    assert_eq!(refused, "ERR server clock out of range");
    expect(&figures(&mut connection), &[("rl_clock_out_of_range", 1)]);
}

#[test]
fn each_section_can_be_asked_for() {
    let server = Server::start();
    let mut connection = server.connect();
    for section in ["fixed", "token", "slide", "lease", "all", "peek", "health"] {
        let section = format!("rl_{section}");
        let text = info_text(&mut connection, &section);
        assert!(text.contains(&format!("# {section}\r\n")), "{text}");
        assert_eq!(text.matches('#').count(), 1, "{text}");
    }
    for all in ["everything", "modules"] {
        let text = info_text(&mut connection, all);
        assert_eq!(text.matches("# rl_").count(), 7, "INFO {all}");
    }
}

#[test]
fn counts_begin_when_the_module_is_loaded() {
    let server = Options::new()
        .without_module()
        .arg("enable-module-command", "yes")
        .start();
    let mut connection = server.connect();
    let path = module().to_str().expect("a path");
    for _ in 0..2 {
        send::<()>(&mut connection, &["MODULE", "LOAD", path]);
        expect(&figures(&mut connection), &[]);
        ask(&mut connection, "RL.FIXED f 5 60000");
        assert_eq!(figures(&mut connection)["rl_fixed_admitted"], 1);
        send::<()>(&mut connection, &["MODULE", "UNLOAD", "rl"]);
    }
}

#[test]
fn a_replica_counts_what_it_was_asked_itself() {
    let primary = Options::new().primary().start();
    let replica = Options::new().tcp().start();
    support::follow(&replica, &primary);
    ask(&mut primary.connect(), "RL.FIXED f 5 60000");
    support::caught_up(&replica, &primary);
    let mut connection = replica.connect();
    wait_until("the key on the replica", || {
        send::<usize>(&mut connection, &["EXISTS", "f"]) == 1
    });
    expect(&figures(&mut connection), &[]);
    ask(&mut connection, "RL.PEEK f FIXED 5 60000");
    assert!(try_send::<Vec<i64>>(&mut connection, &["RL.FIXED", "f", "5", "60000"]).is_err());
    expect(
        &figures(&mut connection),
        &[("rl_fixed_peeks", 1), ("rl_peek_admitted", 1)],
    );
}
