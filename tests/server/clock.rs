//! Clocks that jitter and clocks that are set: what is stored, and that nothing is granted.

use support::call::{FIRST, LAST};
use support::{SECOND, Server, T0, ask, changes, error, error_text, send, snapshot, try_send};

const CLOCK: &str = "ERR server clock out of range";

#[test]
fn a_step_back_across_a_windows_edge_grants_nothing() {
    for back_us in [1, 999, 1_000, 1_001, 2_000, 3_600 * SECOND] {
        let server = Server::at(T0 - 500);
        let mut connection = server.connect();
        let call = "RL.SLIDE k 100 60000";
        assert_eq!(
            ask(&mut connection, &format!("{call} COST 80"))[..3],
            [1, 100, 20]
        );
        server.set_clock(T0);
        assert_eq!(
            ask(&mut connection, &format!("{call} COST 20"))[..3],
            [1, 100, 0]
        );
        server.set_clock(T0 - back_us);
        assert_eq!(
            ask(&mut connection, call)[..3],
            [0, 100, 0],
            "{back_us} µs back"
        );
        if back_us < 60 * SECOND {
            server.set_clock(T0);
            assert_eq!(
                ask(&mut connection, call)[..3],
                [0, 100, 0],
                "and forth again"
            );
        }
    }
}

#[test]
fn a_step_back_leaves_tokens_and_log_as_they_were() {
    for back_us in [1, 1_000, 1_001, 2_000, 3_600 * SECOND] {
        let server = Server::at(T0);
        let mut connection = server.connect();
        ask(&mut connection, "RL.TOKEN t 10 1 1000 COST 7");
        ask(&mut connection, "RL.SLIDE e 10 60000 EXACT COST 7");
        ask(&mut connection, "RL.FIXED f 10 60000 COST 7");
        server.set_clock(T0 - back_us);
        assert_eq!(
            ask(&mut connection, "RL.TOKEN t 10 1 1000 COST 3")[..3],
            [1, 10, 0]
        );
        assert_eq!(
            ask(&mut connection, "RL.SLIDE e 10 60000 EXACT COST 3")[..3],
            [1, 10, 0]
        );
        assert_eq!(
            ask(&mut connection, "RL.FIXED f 10 60000 COST 3")[..3],
            [1, 10, 0]
        );
        for call in [
            "RL.TOKEN t 10 1 1000",
            "RL.SLIDE e 10 60000 EXACT",
            "RL.FIXED f 10 60000",
        ] {
            assert_eq!(
                ask(&mut connection, call)[0],
                0,
                "{call}, {back_us} µs back"
            );
        }
        // A token flows in a second after the step, not an hour and a second.
        server.set_clock(T0 - back_us + SECOND + 1_000);
        assert_eq!(
            ask(&mut connection, "RL.TOKEN t 10 1 1000")[0],
            1,
            "{back_us} µs back"
        );
    }
}

/// The one change that a refusal makes is that of the stored time.
#[test]
fn a_refused_call_stores_a_step_back_and_only_that() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for (fill, more, text) in [
        (
            "RL.TOKEN k 5 1 60000 COST 5",
            "RL.TOKEN k 7 1 1000",
            Some("T1:0:60000000:1779331198000000"),
        ),
        (
            "RL.SLIDE k 5 60000 COST 5",
            "RL.SLIDE k 4 1000",
            Some("S1:60000:1779331140000:0:5"),
        ),
        (
            "RL.SLIDE k 5 60000 EXACT COST 5",
            "RL.SLIDE k 4 1000 EXACT",
            None,
        ),
    ] {
        ask(&mut connection, fill);
        let first = snapshot(&mut connection, "k");
        let dirty = changes(&mut connection);

        // Jitter stores nothing, nor does a call that can never be admitted.
        server.set_clock(T0 - 1_000);
        assert_eq!(ask(&mut connection, more)[0], 0);
        server.set_clock(T0 - 2 * SECOND);
        assert_eq!(ask(&mut connection, &format!("{more} COST 9"))[3], -1);
        assert_eq!(snapshot(&mut connection, "k"), first, "{more}");
        assert_eq!(changes(&mut connection), dirty);

        assert_eq!(ask(&mut connection, more)[0], 0);
        assert!(changes(&mut connection) > dirty);
        let moved = snapshot(&mut connection, "k");
        assert_eq!(moved.expire_at_ms, first.expire_at_ms, "{more}");
        if let Some(text) = text {
            assert_eq!(send::<String>(&mut connection, &["GET", "k"]), text);
        } else {
            let times: Vec<u64> = send(&mut connection, &["LRANGE", "k", "0", "-1"]);
            assert_eq!(times, [T0 - 2 * SECOND; 5]);
        }
        // Once is enough.
        assert_eq!(ask(&mut connection, more)[0], 0);
        assert_eq!(snapshot(&mut connection, "k"), moved, "{more}");
        send::<()>(&mut connection, &["DEL", "k"]);
        server.set_clock(T0);
    }
}

#[test]
fn only_future_entries_of_a_log_become_now() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let call = "RL.SLIDE k 6 60000 EXACT";
    for second in [0, 1, 2, 3, 4, 5] {
        server.set_clock(T0 + second * SECOND);
        assert_eq!(ask(&mut connection, call)[0], 1);
    }
    server.set_clock(T0 + 2 * SECOND + 500_000);
    assert_eq!(ask(&mut connection, call), [0, 6, 0, 57_500, 60_000]);
    let times: Vec<u64> = send(&mut connection, &["LRANGE", "k", "0", "-1"]);
    let expected_us = [0, 1_000_000, 2_000_000, 2_500_000, 2_500_000, 2_500_000];
    assert_eq!(times, expected_us.map(|us| T0 + us));
}

#[test]
fn an_open_fixed_window_lasts_longer_by_a_step_back() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    assert_eq!(
        ask(&mut connection, "RL.FIXED k 1 60000"),
        [1, 1, 0, 60_000, 60_000]
    );
    server.set_clock(T0 - 3_600 * SECOND);
    assert_eq!(
        ask(&mut connection, "RL.FIXED k 1 60000"),
        [0, 1, 0, 3_660_000, 3_660_000]
    );
    // A step forward is time that passes.
    server.set_clock(T0 + 3_600 * SECOND);
    assert_eq!(
        ask(&mut connection, "RL.FIXED k 1 60000"),
        [1, 1, 0, 60_000, 60_000]
    );
}

#[test]
fn the_clock_is_that_of_the_command() {
    let server = Server::at(T0 + 123_456);
    let mut connection = server.connect();
    let time: Vec<u64> = send(&mut connection, &["TIME"]);
    ask(&mut connection, "RL.TOKEN k 5 1 1000");
    let text: String = send(&mut connection, &["GET", "k"]);
    let stored: u64 = text.rsplit(':').next().unwrap().parse().unwrap();
    // Some servers count on from the wall clock between readings.
    assert!(
        (stored - (time[0] * SECOND + time[1])) < 10_000,
        "{text} at {time:?}"
    );
}

#[test]
fn a_clock_outside_sixteen_digits_is_an_error() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    send::<()>(&mut connection, &["HSET", "hash", "f", "v"]);
    for us in [1_000_000, FIRST - 1, LAST + 1, 15_000_000_000_000_000] {
        server.set_clock(us);
        for call in [
            "RL.FIXED k 1 1",
            "RL.TOKEN k 1 1 1",
            "RL.SLIDE k 1 1",
            "RL.SLIDE k 1 1 EXACT",
            "RL.LEASE k 1 1 id",
            "RL.LEASE k 1 1 id RELEASE",
            "RL.PEEK k LEASE 1 1 id",
            "RL.ALL 2 k hash FIXED 1 1 LEASE 1 1 id",
            "RL.ALL 2 k l FIXED 1 1 LEASE 1 1 id",
        ] {
            assert_eq!(error(&mut connection, call), CLOCK, "{call} at {us}");
        }
        let argument = error(&mut connection, "RL.FIXED k 0 1");
        assert!(
            argument.starts_with("ERR invalid rate limit policy"),
            "arguments come first"
        );
        let argument = error(&mut connection, "RL.ALL 2 k k FIXED 1 1 FIXED 1 1");
        assert!(argument.ends_with("keys must differ"), "{argument}");
        assert_eq!(error(&mut connection, "RL.FIXED hash 1 1"), CLOCK);
    }
    for us in [FIRST, LAST] {
        server.set_clock(us);
        send::<()>(&mut connection, &["FLUSHALL"]);
        for call in [
            "RL.FIXED f 1 3153600000000",
            "RL.TOKEN t 1 1 3153600000000",
            "RL.SLIDE s 1 3153600000000",
            "RL.SLIDE e 1 3153600000000 EXACT",
            "RL.LEASE l 1 3153600000000 id",
            "RL.LEASE l 1 3153600000000 id RENEW",
        ] {
            assert_eq!(ask(&mut connection, call)[..3], [1, 1, 0], "{call}");
        }
        let refused = ask(&mut connection, "RL.LEASE l 1 1 other");
        let hundred_years_ms = 3_153_600_000_000;
        assert_eq!(refused, [0, 1, 0, hundred_years_ms, hundred_years_ms]);
    }
}

#[test]
fn every_clock_gets_an_answer() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for us in [
        1,
        FIRST,
        FIRST + 1,
        LAST,
        LAST + 1,
        T0,
        4_000_000_000_000_000,
        T0 - 1,
        100,
    ] {
        server.set_clock(us);
        for call in [
            [
                "RL.FIXED",
                "f",
                "9007199254740991",
                "3153600000000",
                "COST",
                "9007199254740991",
            ]
            .as_slice(),
            &[
                "RL.TOKEN",
                "t",
                "9007199254740991",
                "9007199254740991",
                "3153600000000",
                "COST",
                "9007199254740991",
            ],
            &[
                "RL.SLIDE",
                "s",
                "9007199254740991",
                "3153600000000",
                "COST",
                "9007199254740991",
            ],
            &[
                "RL.SLIDE",
                "e",
                "10000",
                "3153600000000",
                "EXACT",
                "COST",
                "10000",
            ],
            &["RL.LEASE", "l", "1", "3153600000000", "id"],
        ] {
            match try_send::<Vec<i64>>(&mut connection, call) {
                Ok(reply) => assert_eq!(reply.len(), 5),
                Err(error) => {
                    assert_eq!(error_text(&error), CLOCK, "{call:?}");
                }
            }
        }
        assert_eq!(send::<String>(&mut connection, &["PING"]), "PONG");
    }
}
