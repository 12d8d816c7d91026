//! State is checked, never repaired: what a command could not have written is an error, and value,
//! type and expiry stay exactly as they were.

use redis::Connection;

use support::forms::{EXACT, FIXED, ON_ONE_KEY, SLIDE, TOKEN, settling};
use support::{
    INVALID_STATE as INVALID, Server, WRONG_TYPE, ask, error, send, send_bytes, snapshot,
};

const ON_STRINGS: [&str; 3] = [FIXED, TOKEN, SLIDE];

fn run(connection: &mut Connection, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    send::<redis::Value>(connection, &words);
}

/// Every call gives the error, also one that costs too much and one that settles, and changes
/// nothing.
fn all_fail(connection: &mut Connection, calls: &[&str], text: &str, what: &str) {
    let before = snapshot(connection, "k");
    for call in calls {
        assert_eq!(error(connection, call), text, "{call} on {what}");
        let dear = format!("{call} COST 6");
        assert_eq!(error(connection, &dear), text, "{dear} on {what}");
        for settling in settling(call) {
            let told = error(connection, &settling);
            assert_eq!(told, text, "{settling} on {what}");
        }
    }
    assert_eq!(snapshot(connection, "k"), before, "{what}");
}

#[test]
fn another_type_is_the_wrong_type() {
    let server = Server::start();
    let mut connection = server.connect();
    for make in ["SADD k a", "HSET k f v", "ZADD k 1 a", "XADD k 1-1 f v"] {
        run(&mut connection, make);
        all_fail(&mut connection, &ON_ONE_KEY, WRONG_TYPE, make);
        run(&mut connection, "PEXPIRE k 100000");
        all_fail(&mut connection, &ON_ONE_KEY, WRONG_TYPE, make);
        run(&mut connection, "DEL k");
    }
    run(&mut connection, "SET k 1");
    all_fail(&mut connection, &[EXACT], WRONG_TYPE, "a string");
    run(&mut connection, "DEL k");
    run(&mut connection, "RPUSH k 1779331200000000");
    all_fail(&mut connection, &ON_STRINGS, WRONG_TYPE, "a list");
}

#[test]
fn text_that_no_command_wrote_is_invalid() {
    let server = Server::start();
    let mut connection = server.connect();
    let values: [&[u8]; 31] = [
        b"",
        b" ",
        b"hello",
        b"1.5",
        b"-1",
        b"0",
        b"-0",
        b"01",
        b"+1",
        b"1 ",
        b"1\n",
        b"0x1",
        b"1e3",
        b"9223372036854775808",
        b"12345678901234567890",
        b"99999999999999999999",
        b"\0",
        b"1\0",
        b"\xff\xfe",
        b"NaN",
        b"inf",
        b"{\"count\":1}",
        b"%n%s%n",
        b"T1",
        b"S1",
        b"T1:1:1000",
        b"T1:::",
        b"S1::::",
        b"T2:1:1000:1779331200000000",
        b"S2:60000:1779331200000:0:1",
        "\u{661}".as_bytes(),
    ];
    for value in values {
        let what = String::from_utf8_lossy(value);
        send_bytes::<()>(&mut connection, &[b"SET", b"k", value, b"PX", b"100000"]).unwrap();
        all_fail(&mut connection, &ON_STRINGS, INVALID, &what);
    }
    let large = vec![b'7'; 1 << 20];
    send_bytes::<()>(&mut connection, &[b"SET", b"k", &large, b"PX", b"100000"]).unwrap();
    all_fail(
        &mut connection,
        &ON_STRINGS,
        INVALID,
        "a megabyte of digits",
    );
}

#[test]
fn one_commands_state_is_invalid_to_the_others() {
    let server = Server::start();
    let mut connection = server.connect();
    for writer in ON_STRINGS {
        run(&mut connection, writer);
        let others: Vec<_> = ON_STRINGS
            .into_iter()
            .filter(|call| *call != writer)
            .collect();
        all_fail(&mut connection, &others, INVALID, writer);
        all_fail(&mut connection, &[EXACT], WRONG_TYPE, writer);
        assert_eq!(ask(&mut connection, writer)[0], 1, "{writer} still works");
        run(&mut connection, "DEL k");
    }
    run(&mut connection, EXACT);
    all_fail(&mut connection, &ON_STRINGS, WRONG_TYPE, EXACT);
}

#[test]
fn a_key_without_expiry_is_invalid() {
    let server = Server::start();
    let mut connection = server.connect();
    for call in ON_ONE_KEY {
        run(&mut connection, call);
        run(&mut connection, "PERSIST k");
        all_fail(&mut connection, &[call], INVALID, "a key without expiry");
        run(&mut connection, "DEL k");
    }
    run(&mut connection, "SET k 1");
    all_fail(&mut connection, &[FIXED], INVALID, "SET without PX");
}

#[test]
fn damaged_state_is_invalid() {
    let server = Server::start();
    let mut connection = server.connect();
    for (call, damage) in [
        (FIXED, "APPEND k x"),
        (FIXED, "SETRANGE k 0 -"),
        (FIXED, "SETRANGE k 3 7"),
        (FIXED, "INCRBYFLOAT k 0.5"),
        (FIXED, "DECRBY k 1"),
        (TOKEN, "APPEND k 0"),
        (TOKEN, "APPEND k :1"),
        (TOKEN, "SETRANGE k 0 t"),
        (TOKEN, "SETRANGE k 4 -"),
        (TOKEN, "SETRANGE k 100 x"),
        (SLIDE, "APPEND k x"),
        (SLIDE, "APPEND k :"),
        (SLIDE, "SETRANGE k 1 2"),
        (SLIDE, "SETRANGE k 21 7"),
        (EXACT, "RPUSH k x"),
        (EXACT, "LPUSH k x"),
        (EXACT, "LSET k 0 -779331200000000"),
        (EXACT, "LSET k 0 0779331200000000"),
        (EXACT, "LPUSH k 9779331200000000"),
        (EXACT, "RPUSH k 17793312000000001"),
    ] {
        run(&mut connection, call);
        run(&mut connection, damage);
        all_fail(&mut connection, &[call], INVALID, damage);
        run(&mut connection, "DEL k");
    }
}

/// A bucket that owes has a level below 0, and no other state has a sign.
#[test]
fn a_level_below_zero_is_a_debt_down_to_its_bound() {
    let server = Server::start();
    let mut connection = server.connect();
    for (level, valid) in [
        ("-1", true),
        // 3153600000000000 * (2^53 - 1).
        ("-28405103569751189217600000000000", true),
        ("-28405103569751189217600000000001", false),
        ("-99999999999999999999999999999999", false),
        ("-999999999999999999999999999999999999999999", false),
        ("-0", false),
        ("--1", false),
        ("-01", false),
        ("-", false),
        ("+1", false),
        ("- 1", false),
    ] {
        let state = format!("T1:{level}:60000000:1779331200000000");
        send::<()>(&mut connection, &["SET", "k", &state, "PX", "100000"]);
        if valid {
            ask(&mut connection, TOKEN);
        } else {
            all_fail(&mut connection, &[TOKEN], INVALID, &state);
        }
    }
    for state in [
        "T1:1:-60000000:1779331200000000",
        "T1:1:60000000:-779331200000000",
        "S1:60000:1779331200000:-1:1",
        "S1:60000:1779331200000:0:-1",
        "S1:60000:1779331200000:0:0",
    ] {
        send::<()>(&mut connection, &["SET", "k", state, "PX", "100000"]);
        all_fail(&mut connection, &ON_STRINGS, INVALID, state);
    }
}

#[test]
fn a_list_of_anything_else_is_no_log() {
    let server = Server::start();
    let mut connection = server.connect();
    for words in [
        "a b c",
        "1 2 3",
        "1779331200 1779331201",
        "1779331200000 1779331200001",
        "550e8400-e29b-41d4-a716-446655440000",
        "{\"job\":1} {\"job\":2}",
        "1779331200000000 1779331199999999",
        "1779331200000000 x",
        "x 1779331200000000",
        "1779331200000000.0",
    ] {
        run(&mut connection, &format!("RPUSH k {words}"));
        run(&mut connection, "PEXPIRE k 100000");
        all_fail(&mut connection, &[EXACT], INVALID, words);
        run(&mut connection, "DEL k");
    }
}
