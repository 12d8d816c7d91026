//! No byte from a client or a key stops the server, and every one gets its answer.

use redis::Value;

use support::{Server, error_text, send, send_bytes};

fn hostile_words() -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = [
        "",
        "\0",
        "a\0b",
        "\r\n",
        "a\r\nb",
        "\u{100}",
        "\u{10a}",
        "%n",
        "%s%s%s%n",
        "%",
        "'",
        "\"",
        "\\",
        "-1",
        "\u{0}1",
        "1\0",
        "NaN",
        "COST",
        "EXACT",
        "FORCE",
        "UPTO",
        "REFUND",
        "*3\r\n$4\r\nPING\r\n",
        "\u{1f4a3}",
    ]
    .iter()
    .map(|word| word.as_bytes().to_vec())
    .collect();
    words.extend([
        vec![0xff],
        vec![0xff, 0xfe, 0],
        vec![0xc4, 0x80],
        vec![0x80; 300],
    ]);
    words.extend([vec![b'9'; 1 << 20], vec![0; 1 << 20]]);
    words
}

#[test]
fn every_key_name_works() {
    let server = Server::start();
    let mut connection = server.connect();
    for key in hostile_words() {
        for (call, kind) in [
            (vec!["RL.FIXED", "2", "3600000"], "string"),
            (vec!["RL.TOKEN", "2", "1", "3600000"], "string"),
            (vec!["RL.SLIDE", "2", "3600000"], "string"),
            (vec!["RL.SLIDE", "2", "3600000", "EXACT"], "list"),
        ] {
            let mut words: Vec<&[u8]> = call.iter().map(|word| word.as_bytes()).collect();
            words.insert(1, &key);
            for left in [1, 0] {
                let reply: Vec<i64> = send_bytes(&mut connection, &words).unwrap();
                assert_eq!(reply[..3], [1, 2, left]);
            }
            let found: String = send_bytes(&mut connection, &[b"TYPE", &key]).unwrap();
            assert_eq!(found, kind);
            send_bytes::<()>(&mut connection, &[b"DEL", &key]).unwrap();
        }
        for id in [b"a", b"b"] {
            let words: [&[u8]; 5] = [b"RL.LEASE", &key, b"2", b"3600000", id];
            let reply: Vec<i64> = send_bytes(&mut connection, &words).unwrap();
            assert_eq!(reply[..2], [1, 2]);
        }
        send_bytes::<()>(&mut connection, &[b"DEL", &key]).unwrap();
        let words: [&[u8]; 9] = [
            b"RL.ALL", b"2", &key, b"other", b"FIXED", b"2", b"3600000", b"SLIDE", b"2",
        ];
        let words = [&words[..], &[b"3600000", b"EXACT"]].concat();
        for allowed in [1, 1, 0] {
            let reply: Vec<Value> = send_bytes(&mut connection, &words).unwrap();
            assert_eq!(reply[0], Value::Int(allowed));
        }
        send_bytes::<()>(&mut connection, &[b"DEL", &key, b"other"]).unwrap();
    }
}

/// In each place of a call on leases or on several limits: an answer, or one of our errors.
#[test]
fn every_word_of_a_lease_and_of_several_limits_gets_an_answer() {
    let server = Server::start();
    let mut connection = server.connect();
    for call in [
        "RL.LEASE k 5 60000 me",
        "RL.LEASE k 5 60000 me RENEW",
        "RL.PEEK k LEASE 5 60000 me",
        "RL.ALL 2 k l FIXED 5 60000 COST 1 LEASE 5 60000 me RELEASE",
        "RL.ALL 3 k l m TOKEN 5 1 60000 FORCE SLIDE 5 60000 REFUND 1 SLIDE 5 60000 EXACT",
    ] {
        let parts: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
        for at in 1..=parts.len() {
            for word in hostile_words() {
                let mut words = parts.clone();
                if at < words.len() {
                    words[at] = &word;
                } else {
                    words.push(&word);
                }
                if let Err(error) = send_bytes::<Vec<Value>>(&mut connection, &words) {
                    let text = error_text(&error);
                    assert!(
                        text.starts_with("ERR invalid rate limit policy")
                            || text == "ERR syntax error"
                            || text.starts_with("WRONGTYPE ")
                            || text.starts_with("INVALIDSTATE "),
                        "{text}"
                    );
                }
                // A key may have got a name of these.
                send::<()>(&mut connection, &["FLUSHDB"]);
            }
        }
    }
    let mut many: Vec<&[u8]> = vec![b"RL.ALL", b"32"];
    many.extend(std::iter::repeat_n(b"FIXED".as_slice(), 100_000));
    assert!(send_bytes::<Value>(&mut connection, &many).is_err());
    assert_eq!(send::<String>(&mut connection, &["PING"]), "PONG");
}

#[test]
fn every_argument_gets_an_answer_that_does_not_repeat_it() {
    let server = Server::start();
    let mut connection = server.connect();
    let calls: [&[&str]; 11] = [
        &["RL.FIXED", "k", "1", "1"],
        &["RL.FIXED", "k", "1", "1", "COST", "1"],
        &["RL.TOKEN", "k", "1", "1", "1"],
        &["RL.TOKEN", "k", "1", "1", "1", "COST", "1"],
        &["RL.SLIDE", "k", "1", "1", "COST", "1"],
        &["RL.SLIDE", "k", "1", "1", "COST", "1", "EXACT"],
        &["RL.FIXED", "k", "1", "1", "COST", "1", "FORCE"],
        &["RL.TOKEN", "k", "1", "1", "1", "UPTO", "1"],
        &["RL.SLIDE", "k", "1", "1", "REFUND", "1"],
        &["RL.SLIDE", "k", "1", "1", "UPTO", "1", "EXACT"],
        &["RL.SLIDE", "k", "1", "1", "EXACT", "REFUND", "1"],
    ];
    for call in calls {
        for at in 2..=call.len() {
            for word in hostile_words() {
                let mut words: Vec<&[u8]> = call.iter().map(|word| word.as_bytes()).collect();
                if at < words.len() {
                    words[at] = &word;
                } else {
                    words.push(&word);
                }
                match send_bytes::<Value>(&mut connection, &words) {
                    // A keyword in the place of another, or behind the last.
                    Ok(_) => assert!(
                        ["COST", "EXACT", "FORCE", "UPTO", "REFUND"]
                            .iter()
                            .any(|keyword| keyword.as_bytes() == word)
                    ),
                    Err(error) => {
                        let text = error_text(&error);
                        assert!(
                            text.starts_with("ERR invalid rate limit policy: ")
                                || text == "ERR syntax error",
                            "{text}"
                        );
                    }
                }
                send::<()>(&mut connection, &["DEL", "k"]);
            }
        }
    }
    let mut many: Vec<&[u8]> = vec![b"RL.FIXED", b"k", b"1", b"1"];
    many.extend(std::iter::repeat_n(b"COST".as_slice(), 100_000));
    assert!(send_bytes::<Value>(&mut connection, &many).is_err());
    assert_eq!(send::<String>(&mut connection, &["PING"]), "PONG");
}

/// Every single byte, and every state with one byte replaced by every other.
#[test]
fn every_stored_byte_gets_an_answer() {
    let server = Server::start();
    let mut connection = server.connect();
    let calls = [
        "RL.FIXED k 5 60000",
        "RL.TOKEN k 5 1 60000",
        "RL.SLIDE k 5 60000",
        "RL.FIXED k 5 60000 REFUND 2",
        "RL.TOKEN k 5 1 60000 COST 9 FORCE",
        "RL.TOKEN k 5 1 60000 REFUND 2",
        "RL.SLIDE k 5 60000 UPTO 9",
        "RL.SLIDE k 5 60000 REFUND 2",
    ];
    let mut values: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    for state in [
        "3",
        "T1:3000:1000:1779331200000000",
        "T1:-3000:1000:1779331200000000",
        "S1:60000:1779331200000:2:3",
    ] {
        for at in 0..state.len() {
            for byte in (0..=255_u8).step_by(5).chain(*b"0189:") {
                let mut value = state.as_bytes().to_vec();
                value[at] = byte;
                values.push(value);
            }
            values.push(state.as_bytes()[..at].to_vec());
        }
    }
    for value in values {
        let mut pipe = redis::pipe();
        for call in calls {
            pipe.cmd("SET")
                .arg("k")
                .arg(&value)
                .arg("PX")
                .arg(100_000)
                .ignore();
            let mut words = call.split_whitespace();
            pipe.cmd(words.next().unwrap())
                .arg(words.collect::<Vec<_>>());
            pipe.cmd("GET").arg("k");
        }
        // An error ends the reading of a pipeline in some clients; count on each by itself.
        let replies: Vec<Value> = connection_values(&mut connection, &pipe);
        assert_eq!(replies.len(), 3 * calls.len());
        for reply in replies.chunks(3) {
            match &reply[1] {
                Value::ServerError(error) => {
                    assert_eq!(error.code(), "INVALIDSTATE", "{value:?}");
                    assert_eq!(reply[2], Value::BulkString(value.clone()));
                }
                Value::Array(integers) => assert_eq!(integers.len(), 5),
                other => panic!("{value:?}: {other:?}"),
            }
        }
    }
}

/// The raw replies of a pipeline, errors among them.
fn connection_values(connection: &mut redis::Connection, pipe: &redis::Pipeline) -> Vec<Value> {
    use redis::ConnectionLike;
    let count = pipe.cmd_iter().count();
    connection
        .req_packed_commands(&pipe.get_packed_pipeline(), 0, count)
        .unwrap()
}
