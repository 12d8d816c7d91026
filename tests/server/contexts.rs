//! The same answers in transactions, in scripts and in both protocols.

use redis::{Connection, Value};

use support::{SECOND, Server, T0, ask, send};

#[test]
fn transactions_and_scripts_get_the_same_answers() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let call = ["RL.TOKEN", "k", "5", "1", "1000", "COST", "2"];
    send::<()>(&mut connection, &["MULTI"]);
    for _ in 0..3 {
        send::<()>(&mut connection, &call);
    }
    let replies: Vec<Vec<i64>> = send(&mut connection, &["EXEC"]);
    assert_eq!(
        replies,
        [
            [1, 5, 3, 0, 2_000],
            [1, 5, 1, 1_000, 4_000],
            [0, 5, 1, 1_000, 4_000]
        ]
    );

    let script = "return redis.call('RL.SLIDE', KEYS[1], unpack(ARGV))";
    for expected in [[1, 1, 0, 1_000, 1_000], [0, 1, 0, 1_000, 1_000]] {
        let reply: Vec<i64> = send(
            &mut connection,
            &["EVAL", script, "1", "s", "1", "1000", "EXACT"],
        );
        assert_eq!(reply, expected);
    }
    let script = "local r = redis.pcall('RL.FIXED', KEYS[1], 0, 1) return r.err";
    let text: String = send(&mut connection, &["EVAL", script, "1", "x"]);
    assert!(
        text.starts_with("ERR invalid rate limit policy: limit"),
        "{text}"
    );
}

const CONTEXTS: [&str; 3] = ["alone", "in a transaction", "in a script"];

/// The reply to a call in one of the contexts; `eval` makes it in a script.
fn in_context(context: &str, user: &mut Connection, call: &[&str], eval: &[&str]) -> [i64; 5] {
    match context {
        "alone" => send(user, call),
        "in a script" => send(user, eval),
        _ => {
            send::<()>(user, &["MULTI"]);
            send::<()>(user, call);
            let replies: Vec<[i64; 5]> = send(user, &["EXEC"]);
            replies[0]
        }
    }
}

/// More than eight units leave by a command of the server's, which must go through wherever ours does.
#[test]
fn many_units_leave_in_any_context() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut user = server.connect_as("-@all +rl.slide +multi +exec +eval ~k");
    let call = ["RL.SLIDE", "k", "100", "60000", "EXACT", "COST", "2"];
    let script = "return redis.call('RL.SLIDE', KEYS[1], unpack(ARGV))";
    let eval = [
        "EVAL", script, "1", "k", "100", "60000", "EXACT", "COST", "2",
    ];
    for context in CONTEXTS {
        server.set_clock(T0);
        send::<()>(&mut connection, &["DEL", "k"]);
        ask(&mut connection, "RL.SLIDE k 100 60000 EXACT COST 30");
        server.set_clock(T0 + SECOND);
        ask(&mut connection, "RL.SLIDE k 100 60000 EXACT COST 5");
        server.set_clock(T0 + 60 * SECOND);
        let reply = in_context(context, &mut user, &call, &eval);
        assert_eq!(reply, [1, 100, 93, 0, 60_000], "{context}");
        let len: i64 = send(&mut connection, &["LLEN", "k"]);
        assert_eq!(len, 7, "{context}");
        let ttl_ms: i64 = send(&mut connection, &["PTTL", "k"]);
        assert!(ttl_ms >= 60_000, "{context}: {ttl_ms}");
    }
}

/// The same for leases that are over, however many.
#[test]
fn leases_that_are_over_leave_in_any_context() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut user = server.connect_as("-@all +rl.lease +multi +exec +eval ~k");
    let call = ["RL.LEASE", "k", "100", "60000", "new"];
    let script = "return redis.call('RL.LEASE', KEYS[1], unpack(ARGV))";
    let eval = [&["EVAL", script, "1"], &call[1..]].concat();
    for over in [1, 30] {
        for context in CONTEXTS {
            server.set_clock(T0);
            send::<()>(&mut connection, &["DEL", "k"]);
            for id in 0..over {
                ask(&mut connection, &format!("RL.LEASE k 100 60000 {id}"));
            }
            ask(&mut connection, "RL.LEASE k 100 90000 last");
            server.set_clock(T0 + 60 * SECOND);
            let reply = in_context(context, &mut user, &call, &eval);
            assert_eq!(reply, [1, 100, 98, 0, 60_000], "{context}");
            let held: Vec<String> = send(&mut connection, &["ZRANGE", "k", "0", "-1"]);
            assert_eq!(held, ["last", "new"], "{context}");
        }
    }
}

#[test]
fn both_protocols_carry_five_integers() {
    let server = Server::at(T0);
    let integers = |integers: [i64; 5]| Value::Array(integers.map(Value::Int).to_vec());
    for mut connection in [server.connect(), server.connect_resp3()] {
        let call = ["RL.FIXED", "k", "1", "1000"];
        send::<()>(&mut connection, &["DEL", "k"]);
        assert_eq!(
            send::<Value>(&mut connection, &call),
            integers([1, 1, 0, 1_000, 1_000])
        );
        assert_eq!(
            send::<Value>(&mut connection, &call),
            integers([0, 1, 0, 1_000, 1_000])
        );
    }
}
