//! Keys of every form that come and go, by the million: memory returns to where it was, and no key
//! without a TTL is ever seen.
//!
//! `RL_SOAK_KEYS` says how many. `RL_SOAK_RSS` says by how many bytes the process may have grown in
//! the end, for where its size is not the server's doing. The test holds the server's clock and
//! moves it on between one lot of calls and the next, so that keys expire as fast as calls can make
//! them.

use std::thread;
use std::time::{Duration, Instant};

use redis::Connection;

use support::{DEADLINE, Server, T0, info, send, wait_until};

/// New keys between two moves of the clock: a fifth of each form.
const LOT: u64 = 2_000;
/// What the clock moves on by.
const STEP_US: u64 = 100_000;
/// Windows are 100 … 1,000 ms long, so no key lives longer than two of them and a second.
const LONGEST_TTL_MS: i64 = 3_000;
/// So many keys come and go before memory is measured, and what a server allocates once is there.
const WARM_UP: u64 = 100_000;

/// What used memory may have grown by: an allocation lost for every tenth key of the short form is
/// more.
const USED_TOLERANCE: i64 = 256 << 10;
/// What the process may have grown by, once the allocator has given back what it can.
const RSS_TOLERANCE: i64 = 8 << 20;

fn setting(name: &str, default: i64) -> i64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
#[ignore = "takes a while: `make soak`"]
fn soak_leaves_nothing_behind() {
    let keys = setting("RL_SOAK_KEYS", 200_000) as u64;
    let mut soak = Soak::start();
    soak.sees_what_it_looks_for();
    soak.come_and_go(WARM_UP.min(keys));
    let before = soak.memory();
    let gone = info(&mut soak.connection, "stats", "expired_keys");
    (soak.calls, soak.most_keys, soak.most_used) = (0, 0, 0);

    let begun = Instant::now();
    soak.come_and_go(keys);
    let seconds = begun.elapsed().as_secs_f64();
    let gone = info(&mut soak.connection, "stats", "expired_keys") - gone;
    assert!(gone >= keys as i64, "only {gone} keys have expired");
    let after = soak.memory_once(|memory| memory.is_within(&before));
    println!(
        "soak: {keys} keys, {} calls in {seconds:.0} s, {:.0} calls/s; \
         at most {} keys and {} bytes at once; \
         used {} bytes before, {} after; resident {} before, {} after",
        soak.calls,
        soak.calls as f64 / seconds,
        soak.most_keys,
        soak.most_used,
        before.used,
        after.used,
        before.resident,
        after.resident,
    );
    assert!(after.is_within(&before), "{before:?}, then {after:?}");
}

#[derive(Clone, Copy, Debug)]
struct Memory {
    used: i64,
    resident: i64,
}

impl Memory {
    fn is_within(&self, before: &Self) -> bool {
        self.used <= before.used + USED_TOLERANCE
            && self.resident <= before.resident + setting("RL_SOAK_RSS", RSS_TOLERANCE)
    }
}

struct Soak {
    server: Server,
    connection: Connection,
    now_us: u64,
    keys: u64,
    calls: u64,
    most_keys: i64,
    most_used: i64,
}

impl Soak {
    fn start() -> Self {
        let server = Server::at(T0);
        let mut connection = server.connect();
        // Here the server is to find keys that are over by itself.
        send::<()>(&mut connection, &["DEBUG", "SET-ACTIVE-EXPIRE", "1"]);
        Self {
            server,
            connection,
            now_us: T0,
            keys: 0,
            calls: 0,
            most_keys: 0,
            most_used: 0,
        }
    }

    /// A key without TTL and a megabyte are noticed, or the rest shows nothing.
    fn sees_what_it_looks_for(&mut self) {
        let before = self.memory();
        let text = "x".repeat(1 << 20);
        send::<()>(&mut self.connection, &["SET", "k", &text]);
        assert_eq!(self.keys_and_immortal(), (1, 1));
        assert_eq!(self.sampled_ttls(), [-1]);
        assert!(!self.memory().is_within(&before));
        send::<()>(&mut self.connection, &["DEL", "k"]);
    }

    fn come_and_go(&mut self, keys: u64) {
        let end = self.keys + keys;
        for lot in 0.. {
            if self.keys >= end {
                break;
            }
            self.come(LOT.min(end - self.keys));
            let (live, immortal) = self.keys_and_immortal();
            assert_eq!(immortal, 0, "of {live} keys");
            self.most_keys = self.most_keys.max(live);
            if lot % 10 == 0 {
                let used = info(&mut self.connection, "memory", "used_memory");
                self.most_used = self.most_used.max(used);
                for ttl_ms in self.sampled_ttls() {
                    assert!(ttl_ms == -2 || (0..=LONGEST_TTL_MS).contains(&ttl_ms));
                }
            }
            self.move_clock(STEP_US);
        }
        self.move_clock(LONGEST_TTL_MS as u64 * 1_000 + STEP_US);
        let connection = &mut self.connection;
        wait_until("all keys to be gone", || {
            send::<i64>(connection, &["DBSIZE"]) == 0
        });
    }

    /// Three calls on each of so many new keys: two are admitted and take all there is, one is
    /// refused. (Of leases: two are taken, and one is renewed or released.) And one call on some that came a while ago, which may be gone.
    fn come(&mut self, keys: u64) {
        let new = self.keys..self.keys + keys;
        self.keys = new.end;
        let mut pipe = redis::pipe();
        for n in new.clone() {
            for (nth, cost) in [1, 2, 1].into_iter().enumerate() {
                let mut call = call(n, cost);
                if n % 10 == 9 && nth == 2 {
                    call.arg("RELEASE");
                }
                pipe.add_command(call);
            }
        }
        let old = new.map(|n| n.saturating_sub(n % 32 * LOT)).step_by(7);
        for n in old.clone() {
            pipe.add_command(call(n, 1));
        }
        let replies: Vec<[i64; 5]> = pipe.query(&mut self.connection).expect("decisions");
        self.calls += replies.len() as u64;
        let (fresh, again) = replies.split_at(keys as usize * 3);
        for (n, replies) in (self.keys - keys..).zip(fresh.chunks(3)) {
            let decided: Vec<&[i64]> = replies.iter().map(|reply| &reply[..3]).collect();
            let expected = match n % 10 {
                4 => [[1, 3, 2], [1, 3, 1], [1, 3, 1]],
                9 => [[1, 3, 2], [1, 3, 1], [1, 3, 2]],
                _ => [[1, 3, 2], [1, 3, 0], [0, 3, 0]],
            };
            assert_eq!(decided, expected);
        }
        assert_eq!(again.len(), old.count());
    }

    fn move_clock(&mut self, us: u64) {
        self.now_us += us;
        self.server.set_clock(self.now_us);
    }

    /// The number of keys, and of those without a TTL.
    fn keys_and_immortal(&mut self) -> (i64, i64) {
        let text: String = send(&mut self.connection, &["INFO", "keyspace"]);
        let Some(line) = text.lines().find_map(|line| line.strip_prefix("db0:")) else {
            return (0, 0);
        };
        let number = |name: &str| -> i64 {
            let value = line.split(',').find_map(|field| field.strip_prefix(name));
            value.and_then(|value| value.parse().ok()).expect("a count")
        };
        (number("keys="), number("keys=") - number("expires="))
    }

    /// The TTLs of about a hundred keys from somewhere in the table.
    fn sampled_ttls(&mut self) -> Vec<i64> {
        let somewhere = self.now_us.reverse_bits().to_string();
        let (_, keys): (String, Vec<String>) =
            send(&mut self.connection, &["SCAN", &somewhere, "COUNT", "100"]);
        let mut pipe = redis::pipe();
        for key in keys {
            pipe.cmd("PTTL").arg(key);
        }
        pipe.query(&mut self.connection).expect("TTLs")
    }

    /// Memory with nothing stored, once it is level.
    fn memory(&mut self) -> Memory {
        let mut last = i64::MAX;
        self.memory_once(|memory| std::mem::replace(&mut last, memory.used) == memory.used)
    }

    /// Memory, when it meets a condition or the deadline has passed.
    fn memory_once(&mut self, mut settled: impl FnMut(&Memory) -> bool) -> Memory {
        let deadline = Instant::now() + DEADLINE;
        loop {
            send::<()>(&mut self.connection, &["MEMORY", "PURGE"]);
            // The server looks at its resident size ten times a second.
            thread::sleep(Duration::from_millis(300));
            let memory = Memory {
                used: info(&mut self.connection, "memory", "used_memory"),
                resident: info(&mut self.connection, "memory", "used_memory_rss"),
            };
            if settled(&memory) || Instant::now() > deadline {
                return memory;
            }
        }
    }
}

/// A call on the `n`th key, whose form and window follow from `n`.
fn call(n: u64, cost: u64) -> redis::Cmd {
    let window_ms = 100 + n * 37 % 901;
    let mut call = redis::Cmd::new();
    match n % 5 {
        0 => call.arg("RL.FIXED").arg(n).arg(3).arg(window_ms),
        1 => call.arg("RL.TOKEN").arg(n).arg(3).arg(3).arg(window_ms),
        2 => call.arg("RL.SLIDE").arg(n).arg(3).arg(window_ms),
        4 => {
            let id = format!("id{cost}");
            call.arg("RL.LEASE").arg(n).arg(3).arg(window_ms).arg(id);
            return call;
        }
        _ => call
            .arg("RL.SLIDE")
            .arg(n)
            .arg(3)
            .arg(window_ms)
            .arg("EXACT"),
    };
    call.arg("COST").arg(cost);
    call
}
