//! The same answers in transactions, in scripts and in both protocols.

use redis::Value;

use support::{Server, T0, send};

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
