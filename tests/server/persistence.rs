//! A copy of the data is the data: on a replica, with or without the module, from the append-only
//! file or from an RDB, after a crash, and in another key, database or server.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use redis::{Connection, Value};
use tempfile::TempDir;

use support::random::Random;
use support::{
    DEADLINE, Options, SECOND, Server, T0, ask, caught_up, changes, follow, info, send, send_bytes,
    snapshot, try_send, wait_until,
};

/// A server whose clock is held may count on from it for a millisecond or two, until it reads it
/// again (see `clock.c`): keys that end that soon are not compared.
const SLACK_MS: u64 = 5;

/// Random calls on a few keys in two databases, with whatever else may happen to such keys.
struct Mix {
    random: Random,
    us: u64,
    connections: [Connection; 2],
    /// Admitted, refused, and answered with an error.
    answers: [u64; 3],
}

impl Mix {
    fn new(seed: u64, server: &Server) -> Self {
        let mut connections = [server.connect(), server.connect()];
        send::<()>(&mut connections[1], &["SELECT", "1"]);
        Self {
            random: Random::from(seed),
            us: T0,
            connections,
            answers: [0; 3],
        }
    }

    /// Mostly forward by little, now and then back, or past many a TTL.
    fn tick(&mut self) -> u64 {
        const BACK: [u64; 8] = [
            1,
            1_000,
            1_001,
            20_000,
            100_000,
            SECOND,
            5 * SECOND,
            3_600 * SECOND,
        ];
        let random = &mut self.random;
        match random.below(200) {
            0..8 => self.us -= random.of(&BACK),
            8 => self.us += random.of(&[120, 3_600]) * SECOND,
            _ => {
                let most_us = random.of(&[2, 1_000, 50_000, 50_000, SECOND]);
                self.us += random.below(most_us);
            }
        }
        self.us
    }

    /// Each key has a policy, from which one call in ten differs.
    fn call(&mut self) -> Vec<String> {
        if self.random.percent(15) {
            return self.call_on_several();
        }
        self.call_on_one()
    }

    /// Several at once, on keys that differ or not.
    fn call_on_several(&mut self) -> Vec<String> {
        let count = 1 + self.random.below(4);
        let calls: Vec<_> = (0..count)
            .map(|_| {
                loop {
                    let call = self.call_on_one();
                    if !call.iter().any(|word| word == "UPTO") {
                        break call;
                    }
                }
            })
            .collect();
        let keys = calls.iter().map(|call| call[1].clone());
        let policies = calls.iter().flat_map(|call| {
            let name = call[0].strip_prefix("RL.").unwrap().to_owned();
            [name].into_iter().chain(call[2..].iter().cloned())
        });
        ["RL.ALL".to_owned(), count.to_string()]
            .into_iter()
            .chain(keys)
            .chain(policies)
            .collect()
    }

    fn call_on_one(&mut self) -> Vec<String> {
        let random = &mut self.random;
        let form = random.of(&["f", "t", "s", "e", "e", "l"]);
        // Seldom another form's key.
        let home = if random.percent(3) { "e" } else { form };
        let index = random.below(4);
        let key = format!("{home}{index}");
        let [mut limit, mut span_ms] =
            [[10, 50], [40, 1_000], [10, 1_000], [20, 60_000]][usize::try_from(index).unwrap()];
        if random.percent(10) {
            (limit, span_ms) = (random.of(&[1, 3, 40]), random.of(&[1, 200, 60_000]));
        }
        let mut cost = random.of(&[1, 1, 1, 2, 5, 41]);
        if form == "e" && random.percent(5) {
            (limit, cost) = (500, random.of(&[127, 128, 129, 300]));
        }
        let mut words = match form {
            "t" => format!(
                "RL.TOKEN {key} {limit} {} {span_ms}",
                random.of(&[1, 7, 100])
            ),
            "f" => format!("RL.FIXED {key} {limit} {span_ms}"),
            "l" => format!("RL.LEASE {key} {limit} {span_ms} {}", random.below(40)),
            _ => format!("RL.SLIDE {key} {limit} {span_ms}"),
        };
        if form == "e" {
            words += " EXACT";
        }
        let charge = match random.below(8) {
            0 if form == "l" => "RENEW".to_owned(),
            1 | 2 if form == "l" => "RELEASE".to_owned(),
            _ if form == "l" => String::new(),
            0 => format!("REFUND {cost}"),
            1 => format!("UPTO {cost}"),
            2 if form != "e" => format!("COST {cost} FORCE"),
            _ if cost == 1 => String::new(),
            _ => format!("COST {cost}"),
        };
        words
            .split(' ')
            .chain(charge.split_terminator(' '))
            .map(str::to_owned)
            .collect()
    }

    fn count(&mut self, reply: &Value) {
        let kind = match reply {
            Value::Array(integers) => usize::from(integers[0] == Value::Int(0)),
            _ => 2,
        };
        self.answers[kind] += 1;
    }

    fn step(&mut self) {
        let connection = usize::from(self.random.percent(20));
        let send = |mix: &mut Self, words: &[String]| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            try_send::<Value>(&mut mix.connections[connection], &words).unwrap_or(Value::Nil)
        };
        match self.random.below(100) {
            0..2 => {
                let key = self.call_on_one().swap_remove(1);
                send(self, &["DEL".to_owned(), key]);
            }
            2..4 => {
                // A counter of somebody else's.
                let [key, count, ttl_ms] = [
                    format!("f{}", self.random.below(4)),
                    self.random.below(12).to_string(),
                    self.random.of(&["1", "500", "60000"]).to_owned(),
                ];
                let words = ["SET".to_owned(), key, count, "PX".to_owned(), ttl_ms];
                send(self, &words);
            }
            4..6 => {
                let key = self.call_on_one().swap_remove(1);
                let ttl_ms = self.random.of(&["1", "3000", "900000"]).to_owned();
                send(self, &["PEXPIRE".to_owned(), key, ttl_ms]);
            }
            6 => {
                let key = self.call_on_one().swap_remove(1);
                send(self, &["PERSIST".to_owned(), key]);
            }
            7..11 => {
                send(self, &["MULTI".to_owned()]);
                for _ in 0..3 {
                    let call = self.call();
                    send(self, &call);
                }
                send(self, &["EXEC".to_owned()]);
            }
            11..15 => {
                let script = "redis.pcall(ARGV[1], KEYS[1], unpack(ARGV, 2)) \
                              return redis.pcall(ARGV[1], KEYS[1], unpack(ARGV, 2))";
                let mut call = self.call();
                call.swap(0, 1);
                let mut words = ["EVAL", script, "1"].map(str::to_owned).to_vec();
                words.append(&mut call);
                let reply = send(self, &words);
                self.count(&reply);
            }
            _ => {
                let call = self.call();
                let reply = send(self, &call);
                self.count(&reply);
            }
        }
    }
}

/// Type, value and expiry of every key of both databases that outlives `ms`.
fn contents(server: &Server, ms: u64) -> BTreeMap<String, (String, Vec<String>, i64)> {
    let mut connection = server.connect();
    let mut contents = BTreeMap::new();
    for database in ["0", "1"] {
        send::<()>(&mut connection, &["SELECT", database]);
        for key in send::<Vec<String>>(&mut connection, &["KEYS", "*"]) {
            let expire_at_ms: i64 = send(&mut connection, &["PEXPIRETIME", &key]);
            if expire_at_ms != -1 && expire_at_ms <= ms.try_into().unwrap() {
                continue;
            }
            let kind: String = send(&mut connection, &["TYPE", &key]);
            let value = match kind.as_str() {
                "string" => vec![send(&mut connection, &["GET", &key])],
                "list" => send(&mut connection, &["LRANGE", &key, "0", "-1"]),
                "zset" => send(&mut connection, &["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
                _ => panic!("{key} is a {kind}"),
            };
            contents.insert(format!("{database}:{key}"), (kind, value, expire_at_ms));
        }
    }
    contents
}

/// Runs the random calls of a seed, or of `RL_SEED`, and compares the server with a replica, with its append-only file reloaded
/// and with its RDB reloaded, all of them without the module. `rewrite` is how the append-only
/// file is rewritten half way, if it is.
fn copies_are_the_same(seed: u64, rewrite: Option<&str>, replica_has_module: bool) {
    let seed = std::env::var("RL_SEED").map_or(seed, |seed| seed.parse().expect("a seed"));
    let seen = format!("RL_SEED={seed}");
    let options = Options::new()
        .clock(T0)
        .arg("repl-timeout", "2147483647")
        .arg("repl-diskless-sync", "no");
    let with_log = options
        .clone()
        .arg("appendonly", "yes")
        .arg("appendfsync", "no");
    let primary = with_log.clone().tcp().start();
    let replica = if replica_has_module {
        options.clone().start()
    } else {
        options.clone().without_module().start()
    };
    follow(&replica, &primary);

    let mut mix = Mix::new(seed, &primary);
    let mut control = primary.connect();
    for step in 0..1_200 {
        if let Some(preamble) = rewrite.filter(|_| step == 600) {
            send::<()>(
                &mut control,
                &["CONFIG", "SET", "aof-use-rdb-preamble", preamble],
            );
            send::<()>(&mut control, &["BGREWRITEAOF"]);
        }
        let us = mix.tick();
        primary.set_clock(us);
        replica.set_clock(us);
        mix.step();
        if step % 50 == 0 {
            caught_up(&replica, &primary);
            let ms = us / 1_000 + SLACK_MS;
            let original = contents(&primary, ms);
            assert_eq!(
                contents(&replica, ms),
                original,
                "{seen}: the replica, step {step}"
            );
        }
    }
    let [admitted, refused, errors] = mix.answers;
    assert!(
        admitted > 300 && refused > 100 && errors > 20,
        "{seen}: {:?} is no mix",
        mix.answers
    );
    wait_until("the rewritten file", || {
        info(&mut control, "persistence", "aof_rewrite_in_progress") == 0
            && info(&mut control, "persistence", "aof_rewrite_scheduled") == 0
    });
    caught_up(&replica, &primary);
    let ms = mix.us / 1_000 + SLACK_MS;
    let original = contents(&primary, ms);
    assert!(original.len() >= 6, "{seen}: {original:?}");
    assert_eq!(contents(&replica, ms), original, "{seen}: the replica");

    send::<()>(&mut control, &["SAVE"]);
    let rdb = TempDir::new().unwrap();
    fs::copy(primary.dir().join("dump.rdb"), rdb.path().join("dump.rdb")).unwrap();
    let reloaded = options.without_module().clock(mix.us).start_in(rdb);
    assert_eq!(contents(&reloaded, ms), original, "{seen}: the RDB");

    let reloaded = with_log
        .without_module()
        .clock(mix.us)
        .start_in(primary.stop("NOSAVE"));
    assert_eq!(contents(&reloaded, ms), original, "{seen}: the AOF");
}

#[test]
fn copies_without_the_module_are_the_same() {
    copies_are_the_same(1, None, false);
}

#[test]
fn copies_are_the_same_when_the_log_is_rewritten_as_an_rdb() {
    copies_are_the_same(2, Some("yes"), true);
}

#[test]
fn copies_are_the_same_when_the_log_is_rewritten_as_commands() {
    copies_are_the_same(3, Some("no"), false);
}

/// Redis 7.0 gives a module no instant of the command: there, a key may be past its TTL by the
/// clock that is judged by, while the server, for which time stands still, has yet to delete it.
#[test]
fn copies_are_the_same_where_a_ttl_ends_within_a_script() {
    let options = Options::new().arg("appendonly", "yes");
    let primary = options
        .clone()
        .arg("repl-diskless-sync", "no")
        .tcp()
        .start();
    let replica = Options::new().without_module().start();
    follow(&replica, &primary);
    let script = "for _, key in ipairs({'f1', 't1', 's1', 'e1'}) do
                    redis.call('RL.FIXED', key, 5, 1)
                    redis.call('RPUSH', key .. '+', 'x')
                    redis.call('PEXPIRE', key .. '+', 1)
                  end
                  redis.call('RL.LEASE', 'l1', 5, 1, 'a')
                  redis.call('PEXPIRE', 'l1', 1)
                  for _ = 1, 2000000 do end
                  for _, more in ipairs({'', '+'}) do
                    redis.pcall('RL.FIXED', 'f1' .. more, 5, 600000)
                    redis.pcall('RL.TOKEN', 't1' .. more, 5, 1, 600000)
                    redis.pcall('RL.SLIDE', 's1' .. more, 5, 3153600000000)
                    redis.pcall('RL.SLIDE', 'e1' .. more, 5, 600000, 'EXACT')
                  end
                  redis.pcall('RL.ALL', 2, 'l1', 'f3', 'LEASE', 5, 600000, 'b', 'FIXED', 5, 600000)
                  return redis.call('RL.FIXED', 'f2', 5, 600000)";
    let mut connection = primary.connect();
    let _: Value = send(&mut connection, &["EVAL", script, "0"]);
    caught_up(&replica, &primary);
    // All that lives on was made with a longer window than this.
    let seconds: Vec<u64> = send(&mut connection, &["TIME"]);
    let ms = seconds[0] * 1_000 + 60_000;
    let original = contents(&primary, ms);
    assert_eq!(contents(&replica, ms), original, "the replica");
    let reloaded = options.without_module().start_in(primary.kill());
    assert_eq!(contents(&reloaded, ms), original, "the AOF");
}

/// Calls that may go on for long: key, call, cost.
const ENDLESS: [(&str, &str, u64); 5] = [
    ("f", "RL.FIXED f 1000000 3600000 COST 3", 3),
    ("t", "RL.TOKEN t 1000000 1 1000000 COST 2", 2),
    ("s", "RL.SLIDE s 1000000 3153600000000", 1),
    ("e", "RL.SLIDE e 10000 3600000 EXACT COST 2", 2),
    ("small", "RL.FIXED small 100 3600000", 1),
];

/// What is charged together is there together, however the server ends.
#[test]
fn several_limits_are_all_there_or_none_when_the_server_is_killed() {
    const CLIENTS: u64 = 4;
    let options = Options::new()
        .arg("appendonly", "yes")
        .arg("appendfsync", "always");
    let admitted = AtomicU64::new(0);
    let mut dir = TempDir::new().unwrap();
    for round in 1..=2 {
        let server = options.clone().start_in(dir);
        let clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        let mut control = server.connect();
        dir = thread::scope(|scope| {
            for (client, mut connection) in clients.into_iter().enumerate() {
                let admitted = &admitted;
                scope.spawn(move || {
                    for n in 0.. {
                        let call = format!(
                            "RL.ALL 3 f e l FIXED 10000 3600000 SLIDE 10000 3600000 EXACT \
                             LEASE 10000 3600000 {round}:{client}:{n}"
                        );
                        let words: Vec<&str> = call.split_whitespace().collect();
                        let reply = try_send::<(i64, i64, Vec<[i64; 5]>)>(&mut connection, &words);
                        let Ok((allowed, ..)) = reply else { return };
                        assert_eq!(allowed, 1);
                        admitted.fetch_add(1, Relaxed);
                    }
                });
            }
            if round == 2 {
                send::<()>(&mut control, &["BGREWRITEAOF"]);
            }
            wait_until("answers", || admitted.load(Relaxed) >= round * 200);
            server.kill()
        });
        let server = options.clone().start_in(dir);
        let mut connection = server.connect();
        let count: u64 = send(&mut connection, &["GET", "f"]);
        assert_eq!(send::<u64>(&mut connection, &["LLEN", "e"]), count);
        assert_eq!(send::<u64>(&mut connection, &["ZCARD", "l"]), count);
        // Each client may have had one call in the air at each kill.
        let admitted = admitted.load(Relaxed);
        assert!(
            (admitted..=admitted + CLIENTS * round).contains(&count),
            "{count}"
        );
        dir = server.kill();
    }
}

/// What is used of each of [`ENDLESS`].
fn used(server: &Server) -> [u64; 5] {
    let mut connection = server.connect();
    let mut number = |words: &[&str]| -> u64 {
        let text: Option<String> = send(&mut connection, words);
        text.map_or(0, |text| text.parse().unwrap())
    };
    let [fixed, small] = [number(&["GET", "f"]), number(&["GET", "small"])];
    let log = number(&["LLEN", "e"]);
    // A call that costs too much takes nothing and tells what remains.
    let remaining = |call: &str| ask(&mut server.connect(), call)[2];
    let token = 1_000_000 - remaining("RL.TOKEN t 1000000 1 1000000 COST 1000001");
    let slide = 1_000_000 - remaining("RL.SLIDE s 1000000 3153600000000 COST 1000001");
    [
        fixed,
        token.try_into().unwrap(),
        slide.try_into().unwrap(),
        log,
        small,
    ]
}

#[test]
fn no_answered_call_is_lost_when_the_server_is_killed() {
    const CLIENTS: u64 = 4;
    const ROUNDS: u64 = 3;
    let options = Options::new()
        .arg("appendonly", "yes")
        .arg("appendfsync", "always");
    let admitted = [const { AtomicU64::new(0) }; 5];
    let answers = AtomicU64::new(0);
    let mut dir = TempDir::new().unwrap();
    for round in 1..=ROUNDS {
        let server = options.clone().start_in(dir);
        let clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        let mut control = server.connect();
        dir = thread::scope(|scope| {
            for mut client in clients {
                let (admitted, answers) = (&admitted, &answers);
                scope.spawn(move || {
                    for (index, (_, call, cost)) in ENDLESS.iter().enumerate().cycle() {
                        let words: Vec<&str> = call.split(' ').collect();
                        let Ok(reply) = try_send::<Vec<i64>>(&mut client, &words) else {
                            return;
                        };
                        admitted[index].fetch_add(cost * u64::from(reply[0] == 1), Relaxed);
                        answers.fetch_add(1, Relaxed);
                    }
                });
            }
            // One of the kills meets a rewrite of the file.
            if round == 2 {
                send::<()>(&mut control, &["BGREWRITEAOF"]);
            }
            wait_until("answers", || answers.load(Relaxed) >= round * 400);
            server.kill()
        });
        let server = options.clone().start_in(dir);
        for (index, used) in used(&server).into_iter().enumerate() {
            let (key, _, cost) = ENDLESS[index];
            let admitted = admitted[index].load(Relaxed);
            // Each client may have had one call in the air at each kill.
            let most = admitted + CLIENTS * round * cost;
            assert!(
                (admitted..=most).contains(&used),
                "{key}: {used} used, {admitted} admitted, round {round}"
            );
        }
        dir = server.kill();
    }
    // Those that make it up to the limit were admitted, and their answers were lost.
    let small = admitted[4].load(Relaxed);
    assert!(
        (100 - CLIENTS * ROUNDS..=100).contains(&small),
        "{small} of 100"
    );
}

#[test]
fn save_points_count_the_calls() {
    for call in [
        "RL.FIXED k 40 60000",
        "RL.TOKEN k 40 1 60000",
        "RL.SLIDE k 40 60000",
        "RL.SLIDE k 40 60000 EXACT",
    ] {
        let server = Server::at(T0);
        let mut connection = server.connect();
        send::<()>(&mut connection, &["CONFIG", "SET", "save", "1 40"]);
        server.set_clock(T0 + 10 * SECOND);
        let dump = server.dir().join("dump.rdb");
        for taken in 1..=39 {
            assert_eq!(ask(&mut connection, call)[0], 1);
            if taken == 20 {
                assert!((20..30).contains(&changes(&mut connection)), "{call}");
                assert!(!dump.exists(), "{call}");
            }
        }
        // A refusal is no change.
        let before = changes(&mut connection);
        ask(&mut connection, &format!("{call} COST 40"));
        assert_eq!(changes(&mut connection), before, "{call}");
        ask(&mut connection, call);
        wait_until("a save", || dump.exists());
        wait_until("its end", || changes(&mut connection) == 0);

        let reloaded = Options::new()
            .clock(T0 + 10 * SECOND)
            .start_in(server.kill());
        assert_eq!(
            ask(&mut reloaded.connect(), call)[..3],
            [0, 40, 0],
            "{call}"
        );
    }
}

/// One call per form, with a key to be put in.
const FORMS: [(&str, &str); 5] = [
    ("l", "RL.LEASE KEY 10 60000"),
    ("f", "RL.FIXED KEY 10 60000"),
    ("t", "RL.TOKEN KEY 10 1 6000"),
    ("s", "RL.SLIDE KEY 10 60000"),
    ("e", "RL.SLIDE KEY 10 60000 EXACT"),
];

/// A call that takes so many units, or a lease of that name.
fn call(connection: &mut Connection, form: &str, key: &str, cost: u64) -> [i64; 5] {
    let word = if form.starts_with("RL.LEASE") {
        "id"
    } else {
        "COST "
    };
    ask(
        connection,
        &format!("{} {word}{cost}", form.replace("KEY", key)),
    )
}

/// Uses six of ten units of every form, now and ten seconds later.
fn fill(server: &Server) -> Connection {
    let mut connection = server.connect();
    for us in [T0, T0 + 10 * SECOND] {
        server.set_clock(us);
        for (key, form) in FORMS {
            assert_eq!(call(&mut connection, form, key, 3)[0], 1);
        }
    }
    connection
}

/// A limiter that has moved to `key` goes on as the one that stayed, at whatever time.
fn goes_on_as(
    stayed: (&Server, &mut Connection),
    moved: (&Server, &mut Connection),
    form: &str,
    keys: [&str; 2],
) {
    let (stayed_at, stayed) = stayed;
    let (moved_at, moved) = moved;
    assert_eq!(
        snapshot(moved, keys[1]),
        snapshot(stayed, keys[0]),
        "{form}"
    );
    for second in [10, 11, 59, 60, 61, 130] {
        stayed_at.set_clock(T0 + second * SECOND);
        moved_at.set_clock(T0 + second * SECOND);
        for cost in [9, 3, 1, 1, 1] {
            let expected = call(stayed, form, keys[0], cost);
            assert_eq!(
                call(moved, form, keys[1], cost),
                expected,
                "{form} at {second} s"
            );
            assert_eq!(
                snapshot(moved, keys[1]),
                snapshot(stayed, keys[0]),
                "{form}"
            );
        }
    }
}

#[test]
fn a_limiter_that_is_copied_renamed_moved_or_restored_goes_on() {
    let control = Server::at(T0);
    let server = Server::at(T0);
    for (key, form) in FORMS {
        for how in [
            "COPY",
            "RENAME",
            "MOVE",
            "SWAPDB",
            "RESTORE",
            "DEBUG RELOAD",
        ] {
            let mut stayed = fill(&control);
            let mut moved = fill(&server);
            let mut at = "moved";
            match how {
                "COPY" => {
                    send::<()>(&mut moved, &["COPY", key, at]);
                    // The original is independent of its copy.
                    let before = snapshot(&mut moved, key);
                    call(&mut moved, form, at, 1);
                    assert_eq!(snapshot(&mut moved, key), before, "{form}");
                    send::<()>(&mut moved, &["COPY", key, at, "REPLACE"]);
                }
                "RENAME" => send::<()>(&mut moved, &["RENAME", key, at]),
                "MOVE" => {
                    at = key;
                    assert_eq!(send::<i64>(&mut moved, &["MOVE", key, "7"]), 1);
                    send::<()>(&mut moved, &["SELECT", "7"]);
                }
                "SWAPDB" => {
                    at = key;
                    send::<()>(&mut moved, &["SWAPDB", "0", "5"]);
                    assert_eq!(call(&mut moved, form, key, 1)[2], 9, "{form}: a new one");
                    send::<()>(&mut moved, &["SELECT", "5"]);
                }
                "RESTORE" => {
                    let dump: Vec<u8> = send(&mut moved, &["DUMP", key]);
                    let end_ms: i64 = send(&mut moved, &["PEXPIRETIME", key]);
                    send::<()>(&mut moved, &["DEL", key]);
                    let end_ms = end_ms.to_string();
                    let words: [&[u8]; 5] = [
                        b"RESTORE",
                        at.as_bytes(),
                        end_ms.as_bytes(),
                        &dump,
                        b"ABSTTL",
                    ];
                    send_bytes::<()>(&mut moved, &words).unwrap();
                }
                _ => {
                    at = key;
                    send::<()>(&mut moved, &["DEBUG", "RELOAD"]);
                }
            }
            goes_on_as(
                (&control, &mut stayed),
                (&server, &mut moved),
                form,
                [key, at],
            );
            for server in [&control, &server] {
                send::<()>(&mut server.connect(), &["FLUSHALL"]);
            }
        }
    }
}

#[test]
fn a_limiter_that_migrates_goes_on() {
    let control = Server::at(T0);
    let source = Server::at(T0);
    let target = Options::new().clock(T0 + 10 * SECOND).tcp().start();
    let port = target.port().to_string();
    let ms = DEADLINE.as_millis().to_string();
    let mut moved = target.connect();
    for (key, form) in FORMS {
        let mut stayed = fill(&control);
        let mut left = fill(&source);
        target.set_clock(T0 + 10 * SECOND);
        let words = ["MIGRATE", "127.0.0.1", &port, key, "0", &ms];
        send::<()>(&mut left, &words);
        assert_eq!(send::<i64>(&mut left, &["EXISTS", key]), 0);
        goes_on_as(
            (&control, &mut stayed),
            (&target, &mut moved),
            form,
            [key, key],
        );
        for server in [&control, &source, &target] {
            send::<()>(&mut server.connect(), &["FLUSHALL"]);
        }
    }
}
