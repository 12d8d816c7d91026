//! The replication stream carries results, as plain commands with absolute expiry, and nothing
//! for a call that changes nothing. The tests read it as a replica does.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use redis::{Connection, Value};

use support::forms::{ALL, ON_OWN_KEYS, settling};
use support::{DEADLINE, Options, SECOND, Server, T0, ask, ask_all, error, send, try_send};

/// The stream of a server from now on, as one line per command.
struct Stream {
    reader: BufReader<UnixStream>,
    server: Server,
    connection: Connection,
    marks: u32,
}

impl Stream {
    fn at(us: u64) -> Self {
        // However far the clock is set, the reader is not given up.
        let server = Options::new()
            .clock(us)
            .arg("repl-timeout", "2147483647")
            .start();
        let connection = server.connect();
        let mut socket = UnixStream::connect(server.dir().join("redis.sock")).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        socket.write_all(b"PSYNC ? -1\r\n").unwrap();
        let mut stream = Self {
            reader: BufReader::new(socket),
            server,
            connection,
            marks: 0,
        };
        let resync = stream.line();
        assert!(resync.starts_with("+FULLRESYNC "), "{resync}");
        let header = stream.line();
        let rdb_len = header.strip_prefix('$').and_then(|len| len.parse().ok());
        stream.bytes(rdb_len.expect("the length of an RDB"));
        stream
    }

    /// The next line; empty ones only keep the connection alive.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).expect("a line");
            let text = line.trim_end();
            if !text.is_empty() {
                return text.to_owned();
            }
            assert!(line.ends_with('\n'), "the stream ended");
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.reader.read_exact(&mut bytes).expect("bytes");
        bytes
    }

    fn number(&mut self, sign: char) -> usize {
        let line = self.line();
        let number = line.strip_prefix(sign).and_then(|text| text.parse().ok());
        number.unwrap_or_else(|| panic!("{sign} and a number, not {line}"))
    }

    /// The next command, its words parted by spaces.
    fn command(&mut self) -> String {
        let words = self.number('*');
        let words = (0..words).map(|_| {
            let len = self.number('$');
            let word = self.bytes(len);
            assert_eq!(self.bytes(2), b"\r\n");
            String::from_utf8(word).expect("text")
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// What has been sent since the last look, but for the server's own affairs.
    fn sent(&mut self) -> Vec<String> {
        self.marks += 1;
        let mark = format!("SET mark {}", self.marks);
        let words: Vec<&str> = mark.split(' ').collect();
        send::<()>(&mut self.connection, &words);
        let mut commands = Vec::new();
        loop {
            let command = self.command();
            if command == mark {
                return commands;
            }
            if command != "SELECT 0" && !command.eq_ignore_ascii_case("PING") {
                commands.push(command);
            }
        }
    }

    /// Makes a call that is told `allowed`, and compares what is sent with `expected`, one command a
    /// line.
    fn answers(&mut self, call: &str, allowed: i64, expected: &str) {
        assert_eq!(ask(&mut self.connection, call)[0], allowed, "{call}");
        assert_eq!(self.sent().join("\n"), lines(expected), "{call}");
    }

    /// The same for a call that is admitted.
    fn admits(&mut self, call: &str, expected: &str) {
        self.answers(call, 1, expected);
    }

    /// The same for a call on several limits.
    fn answers_all(&mut self, call: &str, allowed: i64, expected: &str) {
        assert_eq!(ask_all(&mut self.connection, call).0, allowed, "{call}");
        assert_eq!(self.sent().join("\n"), lines(expected), "{call}");
    }

    /// The same for a call that is refused.
    fn refuses(&mut self, call: &str, expected: &str) {
        self.answers(call, 0, expected);
    }

    fn set_clock(&self, us: u64) {
        self.server.set_clock(us);
    }
}

fn lines(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_fixed_window_sends_its_count_once_and_then_increments() {
    let mut stream = Stream::at(T0);
    let call = "RL.FIXED k 10 60000";
    stream.admits(call, "SET k 1 PXAT 1779331260000");
    stream.admits(call, "INCR k");
    stream.set_clock(T0 + 30 * SECOND);
    stream.admits("RL.FIXED k 10 1000", "INCR k");
    stream.admits("RL.FIXED k 10 60000 COST 7", "INCRBY k 7");
    // At its very end a window is over, and Redis still has the key.
    stream.set_clock(T0 + 60 * SECOND);
    let call = "RL.FIXED k 10 60000 COST 4";
    stream.admits(call, "SET k 4 PXAT 1779331320000");

    send::<()>(&mut stream.connection, &["SET", "k", "3", "PX", "5000"]);
    assert_eq!(stream.sent(), ["SET k 3 PXAT 1779331265000"]);
    stream.admits(call, "INCRBY k 4");
}

#[test]
fn a_bucket_sends_its_state_and_an_expiry_only_when_that_is_new() {
    let mut stream = Stream::at(T0);
    let call = "RL.TOKEN k 10 1 1000";
    stream.admits(
        call,
        "SET k T1:9000000:1000000:1779331200000000 PXAT 1779331221000",
    );
    stream.admits(call, "SET k T1:8000000:1000000:1779331200000000 KEEPTTL");
    stream.set_clock(T0 + 3 * SECOND / 2);
    let cost_9 = format!("{call} COST 9");
    stream.admits(&cost_9, "SET k T1:500000:1000000:1779331201500000 KEEPTTL");
    // The bucket will be full later than the key may go.
    stream.set_clock(T0 + 15 * SECOND);
    stream.admits(
        &cost_9,
        "SET k T1:1000000:1000000:1779331215000000 PXAT 1779331236000",
    );
    stream.admits(call, "SET k T1:0:1000000:1779331215000000 KEEPTTL");
    // Back by more than a jitter: the new time, admitted or not.
    stream.set_clock(T0 + 5 * SECOND);
    stream.refuses(call, "SET k T1:0:1000000:1779331205000000 KEEPTTL");
    stream.refuses(call, "");
    stream.set_clock(T0 + 7 * SECOND);
    // By this clock and by that policy, the key would live longer than any may.
    stream.admits(
        call,
        "SET k T1:1000000:1000000:1779331207000000 PXAT 1779331228000",
    );
    stream.set_clock(T0 + 8 * SECOND);
    stream.admits(call, "SET k T1:1000000:1000000:1779331208000000 KEEPTTL");
    stream.admits(
        "RL.TOKEN k 1 1 1000",
        "SET k T1:0:1000000:1779331208000000 PXAT 1779331211000",
    );
}

#[test]
fn counters_send_their_state_and_a_new_window_its_expiry() {
    let mut stream = Stream::at(T0);
    let call = "RL.SLIDE k 10 60000";
    stream.admits(call, "SET k S1:60000:1779331200000:0:1 PXAT 1779331320000");
    stream.admits(
        "RL.SLIDE k 10 60000 COST 4",
        "SET k S1:60000:1779331200000:0:5 KEEPTTL",
    );
    stream.set_clock(T0 + 90 * SECOND);
    stream.admits(call, "SET k S1:60000:1779331260000:5:1 PXAT 1779331380000");
    stream.admits(call, "SET k S1:60000:1779331260000:5:2 KEEPTTL");
    // Another window: what is used becomes its current count.
    stream.admits(
        "RL.SLIDE k 10 1000",
        "SET k S1:1000:1779331290000:0:6 PXAT 1779331292000",
    );
    stream.set_clock(T0 + 80 * SECOND);
    stream.refuses(
        "RL.SLIDE k 6 1000",
        "SET k S1:1000:1779331280000:0:6 KEEPTTL",
    );
    stream.refuses("RL.SLIDE k 6 1000", "");
}

#[test]
fn a_log_sends_what_enters_and_what_leaves() {
    let mut stream = Stream::at(T0);
    let call = "RL.SLIDE k 8 1000 EXACT";
    stream.admits(
        call,
        "MULTI
         RPUSH k 1779331200000000
         PEXPIREAT k 1779331203000
         EXEC",
    );
    stream.set_clock(T0 + 100_000);
    stream.admits(
        "RL.SLIDE k 8 1000 EXACT COST 3",
        "RPUSH k 1779331200100000 1779331200100000 1779331200100000",
    );
    stream.set_clock(T0 + 500_000);
    stream.admits(call, "RPUSH k 1779331200500000");
    // One leaves, then three at once.
    stream.set_clock(T0 + SECOND);
    stream.admits(
        call,
        "MULTI
         LPOP k
         RPUSH k 1779331201000000
         EXEC",
    );
    stream.set_clock(T0 + 1_100_000);
    stream.admits(
        "RL.SLIDE k 8 1000 EXACT COST 2",
        "MULTI
         LPOP k 3
         RPUSH k 1779331201100000 1779331201100000
         EXEC",
    );
    // The key goes when the newest unit has left, and no sooner.
    stream.set_clock(T0 + 2_000_001);
    stream.admits(
        call,
        "MULTI
         LPOP k 2
         RPUSH k 1779331202000001
         EXEC",
    );
    stream.set_clock(T0 + 2_500_000);
    stream.admits(
        call,
        "MULTI
         LPOP k 2
         RPUSH k 1779331202500000
         PEXPIREAT k 1779331205500
         EXEC",
    );
    // All have left.
    stream.set_clock(T0 + 5_000_000);
    stream.admits(
        call,
        "MULTI
         DEL k
         RPUSH k 1779331205000000
         PEXPIREAT k 1779331208000
         EXEC",
    );
}

#[test]
fn a_log_sends_the_future_that_became_now() {
    let mut stream = Stream::at(T0);
    let call = "RL.SLIDE k 4 60000 EXACT";
    for second in 0..3 {
        stream.set_clock(T0 + second * SECOND);
        assert_eq!(ask(&mut stream.connection, call)[0], 1);
    }
    stream.sent();
    // Back by a jitter: it is still the time of the newest.
    stream.set_clock(T0 + 2 * SECOND - 1_000);
    stream.admits(call, "RPUSH k 1779331202000000");
    // Two lie in the future; a refusal stores that.
    stream.set_clock(T0 + SECOND);
    stream.refuses(
        call,
        "MULTI
         RPOP k 2
         RPUSH k 1779331201000000 1779331201000000
         EXEC",
    );
    stream.refuses(call, "");
    // One lies in the future, and one is added.
    send::<()>(&mut stream.connection, &["DEL", "k"]);
    for second in [60, 61] {
        stream.set_clock(T0 + second * SECOND);
        assert_eq!(ask(&mut stream.connection, call)[0], 1);
    }
    stream.sent();
    stream.set_clock(T0 + 60 * SECOND + 500_000);
    stream.admits(
        call,
        "MULTI
         RPOP k
         RPUSH k 1779331260500000 1779331260500000
         EXEC",
    );
    // All of them: the list is made anew, and ends when it did.
    let end_ms: i64 = send(&mut stream.connection, &["PEXPIRETIME", "k"]);
    stream.set_clock(T0);
    stream.refuses(
        &format!("{call} COST 2"),
        &format!(
            "MULTI
             DEL k
             RPUSH k {T0} {T0} {T0}
             PEXPIREAT k {end_ms}
             EXEC"
        ),
    );
    assert_eq!(
        send::<i64>(&mut stream.connection, &["PEXPIRETIME", "k"]),
        end_ms
    );
}

#[test]
fn a_fixed_window_that_settles_sends_by_how_much_its_count_moves() {
    let mut stream = Stream::at(T0);
    let call = "RL.FIXED k 10 60000";
    for (words, allowed, expected) in [
        ("REFUND 1", 1, ""),
        ("UPTO 4", 4, "SET k 4 PXAT 1779331260000"),
        ("UPTO 1", 1, "INCR k"),
        ("UPTO 3", 3, "INCRBY k 3"),
        ("UPTO 9", 2, "INCRBY k 2"),
        ("UPTO 9", 0, ""),
        ("COST 3 FORCE", 0, "INCRBY k 3"),
        ("FORCE", 0, "INCR k"),
        ("COST 11 FORCE", 0, "INCRBY k 11"),
        ("REFUND 1", 1, "DECRBY k 1"),
        ("REFUND 19", 1, "DECRBY k 19"),
        ("REFUND 5", 1, "DEL k"),
        ("REFUND 5", 1, ""),
        ("COST 12 FORCE", 0, "SET k 12 PXAT 1779331260000"),
        ("REFUND 9007199254740991", 1, "DEL k"),
        ("COST 2 FORCE", 1, "SET k 2 PXAT 1779331260000"),
    ] {
        stream.answers(&format!("{call} {words}"), allowed, expected);
    }
    // No call moves the end of an open window.
    stream.set_clock(T0 + 30 * SECOND);
    stream.admits("RL.FIXED k 10 1000 REFUND 1", "DECRBY k 1");
    stream.admits("RL.FIXED k 10 1000 COST 2 FORCE", "INCRBY k 2");
    // At its very end a window is over.
    stream.set_clock(T0 + 60 * SECOND);
    stream.admits(&format!("{call} REFUND 1"), "");
    stream.answers(
        &format!("{call} UPTO 20"),
        10,
        "SET k 10 PXAT 1779331320000",
    );
    // Counts stop at 2^63 - 1.
    let set = ["SET", "k", "9223372036854775802", "PX", "60000"];
    send::<()>(&mut stream.connection, &set);
    stream.sent();
    stream.refuses(&format!("{call} COST 9 FORCE"), "INCRBY k 5");
    stream.refuses(&format!("{call} COST 9 FORCE"), "");
    stream.admits(&format!("{call} REFUND 1"), "DECRBY k 1");
    let count: String = send(&mut stream.connection, &["GET", "k"]);
    assert_eq!(count, "9223372036854775806");
}

#[test]
fn a_bucket_that_settles_sends_its_state_or_that_it_is_gone() {
    let mut stream = Stream::at(T0);
    let call = "RL.TOKEN k 10 1 1000";
    let state =
        |level: &str, us: u64, expiry: &str| format!("SET k T1:{level}:1000000:{us} {expiry}");
    let steps = [
        (0, "REFUND 1", 1, String::new()),
        (0, "UPTO 4", 4, state("6000000", T0, "PXAT 1779331221000")),
        (0, "REFUND 1", 1, state("7000000", T0, "KEEPTTL")),
        (0, "COST 9 FORCE", 0, state("-2000000", T0, "KEEPTTL")),
        // It is full again later than the key may go, and later than twice the time to fill.
        (
            0,
            "COST 20 FORCE",
            0,
            state("-22000000", T0, "PXAT 1779331232000"),
        ),
        (0, "UPTO 3", 0, String::new()),
        (
            0,
            "REFUND 20",
            1,
            state("-2000000", T0, "PXAT 1779331221000"),
        ),
        (0, "REFUND 12", 1, "DEL k".to_owned()),
        (0, "REFUND 1", 1, String::new()),
        (
            0,
            "COST 11 FORCE",
            0,
            state("-1000000", T0, "PXAT 1779331221000"),
        ),
        (
            5,
            "REFUND 3",
            1,
            state("7000000", T0 + 5 * SECOND, "KEEPTTL"),
        ),
        // Back: the new time is stored with what is taken, and alone where that is nothing.
        (0, "FORCE", 1, state("6000000", T0, "KEEPTTL")),
        (
            -10,
            "REFUND 1",
            1,
            state("7000000", T0 - 10 * SECOND, "PXAT 1779331211000"),
        ),
        (-10, "UPTO 9", 7, state("0", T0 - 10 * SECOND, "KEEPTTL")),
        (-20, "UPTO 9", 0, state("0", T0 - 20 * SECOND, "KEEPTTL")),
        (-20, "REFUND 99", 1, "DEL k".to_owned()),
    ];
    for (second, words, allowed, expected) in steps {
        stream.set_clock(T0.checked_add_signed(second * SECOND as i64).unwrap());
        stream.answers(&format!("{call} {words}"), allowed, &expected);
    }
}

#[test]
fn counters_that_settle_send_their_state_or_that_they_are_gone() {
    let mut stream = Stream::at(T0);
    for (second, call, allowed, expected) in [
        (0, "10 60000 REFUND 1", 1, ""),
        (
            0,
            "10 60000 UPTO 4",
            4,
            "SET k S1:60000:1779331200000:0:4 PXAT 1779331320000",
        ),
        (
            0,
            "10 60000 COST 9 FORCE",
            0,
            "SET k S1:60000:1779331200000:0:13 KEEPTTL",
        ),
        (
            0,
            "10 60000 REFUND 5",
            1,
            "SET k S1:60000:1779331200000:0:8 KEEPTTL",
        ),
        // Half of the window before has left.
        (
            90,
            "7 60000 UPTO 9",
            3,
            "SET k S1:60000:1779331260000:8:3 PXAT 1779331380000",
        ),
        (90, "7 60000 UPTO 9", 0, ""),
        // Nothing of the current window is left: that before is stored as the current one.
        (
            90,
            "10 60000 REFUND 3",
            1,
            "SET k S1:60000:1779331200000:0:8 PXAT 1779331320000",
        ),
        (
            90,
            "10 60000 REFUND 2",
            1,
            "SET k S1:60000:1779331200000:0:6 KEEPTTL",
        ),
        // Another window: what is used becomes its current count.
        (
            90,
            "10 1000 REFUND 1",
            1,
            "SET k S1:1000:1779331290000:0:2 PXAT 1779331292000",
        ),
        (90, "10 1000 REFUND 2", 1, "DEL k"),
        (90, "10 1000 REFUND 2", 1, ""),
        (
            90,
            "10 60000 COST 11 FORCE",
            0,
            "SET k S1:60000:1779331260000:0:11 PXAT 1779331380000",
        ),
        // Back by more than a jitter.
        (
            30,
            "10 60000 REFUND 1",
            1,
            "SET k S1:60000:1779331200000:0:10 PXAT 1779331320000",
        ),
        (30, "10 60000 REFUND 99", 1, "DEL k"),
    ] {
        stream.set_clock(T0 + second * SECOND);
        stream.answers(&format!("RL.SLIDE k {call}"), allowed, expected);
    }
}

#[test]
fn a_log_that_settles_sends_what_leaves_at_either_end() {
    let mut stream = Stream::at(T0);
    let call = "RL.SLIDE k 20 60000 EXACT";
    let push = |count: usize, us: u64| format!("RPUSH k{}", format!(" {us}").repeat(count));
    let all = |commands: &[String]| format!("MULTI\n{}\nEXEC", commands.join("\n"));
    let expiry = |ms: u64| format!("PEXPIREAT k {ms}");
    let text = str::to_owned;
    let at = |second: i64| T0.checked_add_signed(second * SECOND as i64).unwrap();
    for (second, words, allowed, expected) in [
        (0, "REFUND 1", 1, text("")),
        (
            0,
            "UPTO 3",
            3,
            all(&[push(3, T0), expiry(1_779_331_321_000)]),
        ),
        (0, "REFUND 1", 1, text("RPOP k")),
        (1, "UPTO 30", 18, push(18, at(1))),
        (1, "UPTO 30", 0, text("")),
        (1, "REFUND 8", 1, text("RPOP k 8")),
        (1, "REFUND 9", 1, text("LTRIM k 0 -10")),
        (1, "REFUND 9", 1, text("DEL k")),
        (1, "REFUND 9", 1, text("")),
        // At both ends.
        (
            1,
            "UPTO 2",
            2,
            all(&[push(2, at(1)), expiry(1_779_331_322_000)]),
        ),
        (2, "UPTO 3", 3, push(3, at(2))),
        (61, "REFUND 1", 1, all(&[text("LPOP k 2"), text("RPOP k")])),
        (61, "REFUND 3", 1, text("DEL k")),
        (
            61,
            "UPTO 6",
            6,
            all(&[push(6, at(61)), expiry(1_779_331_382_000)]),
        ),
        (62, "UPTO 6", 6, push(6, at(62))),
        (121, "REFUND 4", 1, text("LTRIM k 6 -5")),
        // What is there has left the window.
        (122, "REFUND 2", 1, text("")),
        (
            122,
            "UPTO 1",
            1,
            all(&[text("DEL k"), push(1, at(122)), expiry(1_779_331_382_000)]),
        ),
        (122, "REFUND 2", 1, text("DEL k")),
        // The clock steps back: what lies in the future becomes now, or leaves.
        (
            0,
            "UPTO 2",
            2,
            all(&[push(2, T0), expiry(1_779_331_321_000)]),
        ),
        (10, "UPTO 5", 5, push(5, at(10))),
        (5, "REFUND 2", 1, all(&[text("RPOP k 5"), push(3, at(5))])),
        (5, "REFUND 4", 1, text("RPOP k 4")),
        (-10, "REFUND 1", 1, text("DEL k")),
        (
            -10,
            "UPTO 2",
            2,
            all(&[push(2, at(-10)), expiry(1_779_331_311_000)]),
        ),
        (
            -20,
            "REFUND 1",
            1,
            all(&[text("DEL k"), push(1, at(-20)), expiry(1_779_331_301_000)]),
        ),
    ] {
        stream.set_clock(at(second));
        stream.answers(&format!("{call} {words}"), allowed, &expected);
    }
}

/// The expiry has slack, so most calls send none.
#[test]
fn leases_send_who_holds_until_when_and_who_is_gone() {
    let mut stream = Stream::at(T0);
    let at = |second: u64| 1_779_331_200_000 + second * 1_000;
    let held = |id: &str, second: u64| format!("ZADD k {} {id}", at(second + 30));
    let expires = |ms: u64| format!("PEXPIREAT k {}", at(0) + ms);
    for (second, words, allowed, expected) in [
        (0, "30000 a RENEW", 0, vec![]),
        (0, "30000 a RELEASE", 0, vec![]),
        (0, "30000 a", 1, vec![held("a", 0), expires(45_500)]),
        (0, "30000 a", 1, vec![held("a", 0)]),
        (1, "30000 a RENEW", 1, vec![held("a", 1)]),
        // The key would go before the lease ends.
        (20, "30000 b", 1, vec![held("b", 20), expires(65_500)]),
        (20, "30000 c", 0, vec![]),
        (30, "30000 a", 1, vec![held("a", 30)]),
        (32, "30000 b", 1, vec![held("b", 32)]),
        (33, "30000 a RELEASE", 1, vec!["ZREM k a".to_owned()]),
        (33, "30000 a RELEASE", 0, vec![]),
        (34, "30000 c", 1, vec![held("c", 34)]),
        // One is over, and leaves with the next that is taken or released.
        (
            62,
            "30000 d",
            1,
            vec![
                format!("ZREMRANGEBYSCORE k 0 {}", at(62)),
                held("d", 62),
                expires(107_500),
            ],
        ),
        (63, "30000 c", 1, vec![held("c", 63)]),
        (92, "30000 c RELEASE", 1, vec!["DEL k".to_owned()]),
        (92, "30000 a", 1, vec![held("a", 92), expires(137_500)]),
        (93, "30000 b", 1, vec![held("b", 93)]),
        // All are over. The expiry that goes with them is set again.
        (
            123,
            "10000 c",
            1,
            vec![
                "DEL k".to_owned(),
                format!("ZADD k {} c", at(133)),
                expires(137_500),
            ],
        ),
        (123, "10000 c RELEASE", 1, vec!["DEL k".to_owned()]),
    ] {
        stream.set_clock(T0 + second * SECOND);
        let expected = match &expected[..] {
            [] | [_] => expected.concat(),
            several => format!("MULTI\n{}\nEXEC", several.join("\n")),
        };
        stream.answers(&format!("RL.LEASE k 2 {words}"), allowed, &expected);
    }
    // Some are over when another is released.
    for id in ["a", "b", "c"] {
        let ttl_ms = if id == "a" { 1_000 } else { 60_000 };
        ask(
            &mut stream.connection,
            &format!("RL.LEASE k 3 {ttl_ms} {id}"),
        );
    }
    stream.sent();
    stream.set_clock(T0 + 124 * SECOND);
    let expected = format!("MULTI\nZREMRANGEBYSCORE k 0 {}\nZREM k b\nEXEC", at(124));
    stream.admits("RL.LEASE k 3 30000 b RELEASE", &expected);
}

/// However many are over.
#[test]
fn many_leases_leave_by_one_command() {
    let mut stream = Stream::at(T0);
    for over in [1, 8, 9, 500] {
        stream.set_clock(T0);
        send::<()>(&mut stream.connection, &["DEL", "k"]);
        for id in 0..over {
            ask(
                &mut stream.connection,
                &format!("RL.LEASE k 10000 1000 {id}"),
            );
        }
        ask(&mut stream.connection, "RL.LEASE k 10000 60000 last");
        stream.sent();
        stream.set_clock(T0 + SECOND);
        stream.admits(
            "RL.LEASE k 10000 60000 new",
            "MULTI
             ZREMRANGEBYSCORE k 0 1779331201000
             ZADD k 1779331261000 new
             EXEC",
        );
        let held: Vec<String> = send(&mut stream.connection, &["ZRANGE", "k", "0", "-1"]);
        assert_eq!(held, ["last", "new"]);
    }
}

/// What the server tells of comes last, each with no other key open.
#[test]
fn several_limits_send_their_results_as_one_transaction() {
    let mut stream = Stream::at(T0);
    stream.answers_all(
        ALL,
        1,
        "MULTI
         SET f 1 PXAT 1779331260000
         SET t T1:240000000:60000000:1779331200000000 PXAT 1779331801000
         SET s S1:60000:1779331200000:0:1 PXAT 1779331320000
         RPUSH e 1779331200000000
         PEXPIREAT e 1779331321000
         ZADD l 1779331260000 me
         PEXPIREAT l 1779331290500
         EXEC",
    );
    stream.set_clock(T0 + SECOND);
    stream.answers_all(
        ALL,
        1,
        "MULTI
         INCR f
         SET t T1:181000000:60000000:1779331201000000 KEEPTTL
         SET s S1:60000:1779331200000:0:2 KEEPTTL
         RPUSH e 1779331201000000
         ZADD l 1779331261000 me
         EXEC",
    );
    // One change needs no frame; nothing sends nothing.
    stream.answers_all(
        "RL.ALL 2 f new FIXED 5 60000 SLIDE 5 60000 REFUND 1",
        1,
        "INCR f",
    );
    let nothing = "RL.ALL 2 new l TOKEN 5 1 1000 REFUND 1 LEASE 5 60000 nobody RELEASE";
    stream.answers_all(nothing, 1, "");
    // What settles.
    stream.answers_all(
        "RL.ALL 5 f t s e l FIXED 5 60000 COST 4 FORCE TOKEN 5 1 60000 COST 5 FORCE \
         SLIDE 5 60000 REFUND 1 SLIDE 5 60000 EXACT REFUND 1 LEASE 5 60000 me RELEASE",
        1,
        "MULTI
         INCRBY f 4
         SET t T1:-119000000:60000000:1779331201000000 KEEPTTL
         SET s S1:60000:1779331200000:0:1 KEEPTTL
         RPOP e
         DEL l
         EXEC",
    );
    // Refused, and an error.
    stream.answers_all(ALL, 0, "");
    error(&mut stream.connection, &ALL.replace("60000 me", "0 me"));
    send::<()>(&mut stream.connection, &["SADD", "l", "x"]);
    stream.sent();
    error(&mut stream.connection, ALL);
    assert_eq!(stream.sent(), Vec::<String>::new());
    // Back: a refused call sends the stored times that moved, and no call that can never be admitted
    // does.
    send::<()>(&mut stream.connection, &["DEL", "l"]);
    stream.sent();
    stream.set_clock(T0 - 2 * SECOND);
    stream.answers_all(&ALL.replace("FIXED 5 60000", "FIXED 5 60000 COST 6"), 0, "");
    stream.answers_all(
        ALL,
        0,
        "MULTI
         SET t T1:-119000000:60000000:1779331198000000 KEEPTTL
         SET s S1:60000:1779331140000:0:1 KEEPTTL
         DEL e
         RPUSH e 1779331198000000
         PEXPIREAT e 1779331321000
         EXEC",
    );
    stream.answers_all(ALL, 0, "");
}

#[test]
fn what_the_server_removes_for_several_limits_is_sent_once_and_within_their_transaction() {
    let mut stream = Stream::at(T0);
    let call = "RL.ALL 4 e f l t SLIDE 100 60000 EXACT FIXED 9 600000 LEASE 100 60000 me \
                TOKEN 9 1 600000";
    ask(&mut stream.connection, "RL.SLIDE e 100 60000 EXACT COST 30");
    for id in 0..12 {
        ask(
            &mut stream.connection,
            &format!("RL.LEASE l 100 60000 {id}"),
        );
    }
    stream.set_clock(T0 + 30 * SECOND);
    ask(&mut stream.connection, "RL.SLIDE e 100 60000 EXACT");
    ask(&mut stream.connection, "RL.LEASE l 100 60000 last");
    stream.set_clock(T0 + 60 * SECOND);
    stream.sent();
    stream.answers_all(
        call,
        1,
        "MULTI
         LTRIM e 30 -1
         RPUSH e 1779331260000000
         SET f 1 PXAT 1779331860000
         ZREMRANGEBYSCORE l 0 1779331260000
         ZADD l 1779331320000 me
         PEXPIREAT l 1779331350500
         SET t T1:4800000000:600000000:1779331260000000 PXAT 1779342061000
         EXEC",
    );
    // Within a transaction, and in a script, they are part of that.
    send::<()>(&mut stream.connection, &["MULTI"]);
    for call in [
        "RL.ALL 2 f n FIXED 9 600000 FIXED 1 1000",
        "RL.FIXED f 9 600000",
    ] {
        let words: Vec<&str> = call.split(' ').collect();
        send::<()>(&mut stream.connection, &words);
    }
    let _: Value = send(&mut stream.connection, &["EXEC"]);
    let sent = stream.sent().join("\n");
    let expected = "MULTI\nINCR f\nSET n 1 PXAT 1779331261000\nINCR f\nEXEC";
    assert_eq!(sent, expected);
    let script = "redis.call('RL.ALL', 2, 'f', 'm', 'FIXED', 9, 600000, 'FIXED', 1, 1000)
                  return redis.call('RL.ALL', 1, 'f', 'FIXED', 9, 600000)";
    let _: Value = send(&mut stream.connection, &["EVAL", script, "0"]);
    let sent = stream.sent().join("\n");
    assert_eq!(
        sent,
        "MULTI\nINCR f\nSET m 1 PXAT 1779331261000\nINCR f\nEXEC"
    );
}

/// The name of the key goes out once, however many units are taken.
#[test]
fn many_units_go_in_one_command() {
    let mut stream = Stream::at(T0);
    for (key, cost) in [("a", 2), ("b", 17), ("c", 300), ("d", 10_000)] {
        let call = format!("RL.SLIDE {key} 10000 60000 EXACT COST {cost}");
        ask(&mut stream.connection, &call);
        let push = format!("RPUSH {key}{}", " 1779331200000000".repeat(cost));
        let expiry = format!("PEXPIREAT {key} 1779331321000");
        assert_eq!(stream.sent(), ["MULTI", &push, &expiry, "EXEC"]);
    }
}

/// However many units leave, or lie in the future of a clock that was set back.
#[test]
fn many_units_leave_by_one_command() {
    let mut stream = Stream::at(T0);
    let call = |cost: u64| format!("RL.SLIDE k 10000 60000 EXACT COST {cost}");
    ask(&mut stream.connection, &call(9_000));
    stream.server.set_clock(T0 + 30 * SECOND);
    ask(&mut stream.connection, &call(1_000));
    stream.sent();

    // 9,000 leave.
    stream.server.set_clock(T0 + 60 * SECOND);
    let expected = "MULTI
        LTRIM k 9000 -1
        RPUSH k 1779331260000000 1779331260000000
        EXEC";
    stream.admits(&call(2), expected);

    // The clock steps back before all that are left: all become now.
    stream.server.set_clock(T0);
    let again = " 1779331200000000".repeat(1_002);
    let expected = format!("MULTI\nDEL k\nRPUSH k{again}\nPEXPIREAT k 1779331321000\nEXEC");
    stream.refuses(&call(10_000), &expected);

    // Before some of them: those alone.
    stream.server.set_clock(T0 + 20 * SECOND);
    ask(&mut stream.connection, &call(500));
    stream.sent();
    stream.server.set_clock(T0 + 10 * SECOND);
    let again = " 1779331210000000".repeat(500);
    let expected = format!("MULTI\nLTRIM k 0 -501\nRPUSH k{again}\nEXEC");
    stream.refuses(&call(10_000), &expected);
    let len: u64 = send(&mut stream.connection, &["LLEN", "k"]);
    assert_eq!(len, 1_502);
}

/// Around the number of entries up to which they are popped one by one.
#[test]
fn few_and_many_units_leave_alike() {
    for leaving in 1..=20 {
        let mut stream = Stream::at(T0);
        let call = |cost: u64| format!("RL.SLIDE k 100 60000 EXACT COST {cost}");
        ask(&mut stream.connection, &call(leaving));
        stream.server.set_clock(T0 + SECOND);
        ask(&mut stream.connection, &call(5));
        stream.server.set_clock(T0 + 60 * SECOND);
        stream.sent();
        let left = match leaving {
            1 => "LPOP k".to_owned(),
            2..=8 => format!("LPOP k {leaving}"),
            _ => format!("LTRIM k {leaving} -1"),
        };
        let expected = format!("MULTI\n{left}\nRPUSH k 1779331260000000\nEXEC");
        stream.admits(&call(1), &expected);
        let entries: Vec<String> = send(&mut stream.connection, &["LRANGE", "k", "0", "-1"]);
        let mut kept = vec!["1779331201000000"; 5];
        kept.push("1779331260000000");
        assert_eq!(entries, kept);
    }
}

/// The name of a key is the largest thing that a caller can send. What goes to replicas and the AOF
/// is at most a few times what a plain command with the same result takes.
#[test]
fn a_long_key_is_not_multiplied_on_the_stream() {
    const LEN: usize = 100_000;
    let key = "k".repeat(LEN);
    for (form, names, rest) in [
        ("RL.FIXED {} 10000 60000", 1, 100),
        ("RL.TOKEN {} 10000 1 60000", 1, 150),
        ("RL.SLIDE {} 10000 60000", 1, 150),
        // DEL or LTRIM, RPUSH, PEXPIREAT.
        ("RL.SLIDE {} 10000 60000 EXACT", 3, 10_000 * 25),
        // DEL or ZREMRANGEBYSCORE, ZADD, PEXPIREAT.
        ("RL.LEASE {} 10000 60000", 3, 300),
    ] {
        // The server itself deletes a key whose TTL has passed.
        let names = names + 1;
        let mut stream = Stream::at(T0);
        let call = form.replace("{}", &key);
        for (at_us, cost) in [
            (T0, 1),
            (T0 + SECOND, 9_999),
            (T0 + 60 * SECOND, 1),
            (T0 + 121 * SECOND, 10_000),
            // Back: a log's units move with the clock.
            (T0 + 60 * SECOND, 10_000),
        ] {
            stream.server.set_clock(at_us);
            let words = if form.starts_with("RL.LEASE") {
                format!("id{cost}")
            } else {
                format!("COST {cost}")
            };
            ask(&mut stream.connection, &format!("{call} {words}"));
            let sent: usize = stream.sent().iter().map(String::len).sum();
            assert!(sent <= names * LEN + rest, "{form} of {cost}: {sent} bytes");
        }
    }
}

#[test]
fn refusals_and_errors_send_nothing() {
    let mut stream = Stream::at(T0);
    for call in ON_OWN_KEYS {
        assert_eq!(ask(&mut stream.connection, &format!("{call} COST 4"))[0], 1);
    }
    for words in [
        "SET text hello PX 60000",
        "SET endless 3",
        "RPUSH list 1779331200000000",
        "HSET hash field value",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        send::<()>(&mut stream.connection, &words);
    }
    stream.sent();
    // Later, and back by no more than a jitter.
    for us in [T0 + SECOND, T0, T0 - 1_000] {
        stream.set_clock(us);
        for call in ON_OWN_KEYS {
            stream.refuses(&format!("{call} COST 2"), "");
            stream.refuses(&format!("{call} COST 6"), "");
            // A refund of nothing is admitted, and changes nothing.
            let of_nothing = call.replacen(' ', " new:", 1);
            stream.admits(&format!("{of_nothing} REFUND 1"), "");
        }
        for call in [
            "RL.FIXED t 5 60000",
            "RL.FIXED e 5 60000",
            "RL.FIXED text 5 60000",
            "RL.FIXED endless 5 60000",
            "RL.TOKEN f 5 1 60000",
            "RL.SLIDE t 5 60000",
            "RL.SLIDE s 5 60000 EXACT",
            "RL.SLIDE list 5 60000 EXACT",
            "RL.SLIDE hash 5 60000 EXACT",
        ] {
            for call in settling(call) {
                error(&mut stream.connection, &call);
                assert_eq!(stream.sent(), Vec::<String>::new(), "{call}");
            }
        }
        for call in [
            "RL.FIXED f 0 60000",
            "RL.FIXED f 1 60000 COST",
            "RL.FIXED f",
            "RL.FIXED t 5 60000",
            "RL.FIXED e 5 60000",
            "RL.FIXED text 5 60000",
            "RL.FIXED endless 5 60000",
            "RL.TOKEN f 5 1 60000",
            "RL.TOKEN t 9007199254740991 1 60000",
            "RL.SLIDE t 5 60000",
            "RL.SLIDE e 5 60000",
            "RL.SLIDE s 5 60000 EXACT",
            "RL.SLIDE s 5 60000 EXACT EXACT",
            "RL.SLIDE list 5 60000 EXACT",
            "RL.SLIDE hash 5 60000 EXACT",
        ] {
            error(&mut stream.connection, call);
            assert_eq!(stream.sent(), Vec::<String>::new(), "{call}");
        }
    }
    // Nor does a step back send anything for a cost that can never be admitted.
    stream.set_clock(T0 - 5 * SECOND);
    for call in ON_OWN_KEYS {
        stream.refuses(&format!("{call} COST 6"), "");
    }
}

/// The server deletes a key that is past its TTL, and says so, with the call.
#[test]
fn a_key_past_its_ttl_is_deleted_before_it_is_made_anew() {
    let mut stream = Stream::at(T0);
    let mut us = T0;
    for (call, ttl_ms, expected) in [
        ("RL.FIXED k 5 1000", 1_000, "SET k 1 PXAT"),
        ("RL.TOKEN k 5 1 1000", 11_000, "SET k T1:"),
        ("RL.SLIDE k 5 1000", 2_000, "SET k S1:"),
        ("RL.SLIDE k 5 1000 EXACT", 3_000, "RPUSH k"),
    ] {
        ask(&mut stream.connection, call);
        stream.sent();
        us += (ttl_ms + 1) * 1_000;
        stream.set_clock(us);
        assert_eq!(ask(&mut stream.connection, call)[..3], [1, 5, 4], "{call}");
        let sent = stream.sent();
        let of_the_call = |command: &&String| !["MULTI", "EXEC"].contains(&command.as_str());
        let sent: Vec<_> = sent.iter().filter(of_the_call).collect();
        assert!(
            ["DEL k", "UNLINK k"].contains(&sent[0].as_str()),
            "{call}: {sent:?}"
        );
        let made = sent
            .iter()
            .find(|command| !command.ends_with("L k") && !command.ends_with("K k"));
        assert!(made.unwrap().starts_with(expected), "{call}: {sent:?}");
        send::<()>(&mut stream.connection, &["DEL", "k"]);
        // The windows of the counter lie on whole seconds.
        us = us.next_multiple_of(SECOND);
        stream.set_clock(us);
    }
}

#[test]
fn transactions_and_scripts_send_their_results_as_one() {
    let mut stream = Stream::at(T0);
    send::<()>(&mut stream.connection, &["MULTI"]);
    for call in [
        "RL.FIXED f 1 60000",
        "RL.FIXED f 1 60000",
        "RL.FIXED f 0 60000",
        "RL.SLIDE e 5 60000 EXACT",
        "RL.SLIDE e 5 60000 EXACT",
    ] {
        let words: Vec<&str> = call.split(' ').collect();
        send::<()>(&mut stream.connection, &words);
    }
    // One of the replies is an error.
    let _ = try_send::<Value>(&mut stream.connection, &["EXEC"]);
    assert_eq!(
        stream.sent().join("\n"),
        lines(
            "MULTI
             SET f 1 PXAT 1779331260000
             RPUSH e 1779331200000000
             PEXPIREAT e 1779331321000
             RPUSH e 1779331200000000
             EXEC"
        )
    );

    // One that changes nothing sends nothing, not even its frame.
    send::<()>(&mut stream.connection, &["MULTI"]);
    send::<()>(&mut stream.connection, &["RL.FIXED", "f", "1", "60000"]);
    send::<Value>(&mut stream.connection, &["EXEC"]);
    assert_eq!(stream.sent(), Vec::<String>::new());

    let script = "for _ = 1, 3 do redis.call('RL.FIXED', KEYS[1], 2, 60000) end
                  return redis.call('RL.TOKEN', KEYS[2], 5, 1, 1000)";
    let words = ["EVAL", script, "2", "g", "t"];
    send::<Value>(&mut stream.connection, &words);
    assert_eq!(
        stream.sent().join("\n"),
        lines(
            "MULTI
             SET g 1 PXAT 1779331260000
             INCR g
             SET t T1:4000000:1000000:1779331200000000 PXAT 1779331211000
             EXEC"
        )
    );
}

#[test]
fn a_call_is_sent_for_the_database_that_it_was_made_in() {
    let mut stream = Stream::at(T0);
    let mut other = stream.server.connect();
    send::<()>(&mut other, &["SELECT", "3"]);
    ask(&mut other, "RL.FIXED k 5 60000");
    assert_eq!(stream.sent(), ["SELECT 3", "SET k 1 PXAT 1779331260000"]);
}
