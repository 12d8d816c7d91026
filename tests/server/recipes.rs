//! The steps of `docs/recipes.md` that need an application, walked on a server with a held clock.

use std::collections::BTreeMap;

use redis::Connection;

use support::call::MS;
use support::random::Random;
use support::{Options, SECOND, Server, T0, ask, send, try_send};

const MINUTE: u64 = 60 * SECOND;
const DAY_MS: u64 = 86_400_000;

/// `allowed`, `retry_after_ms`, and the five integers of each limit.
type Several = (i64, i64, Vec<[i64; 5]>);

fn ask_all(connection: &mut Connection, line: &str) -> Several {
    let words: Vec<&str> = line.split(' ').collect();
    send(connection, &words)
}

fn ms(number: i64) -> u64 {
    u64::try_from(number).expect("not negative")
}

/// Both limits of a login in two calls. The first is given back where the second refuses.
fn two_calls(connection: &mut Connection, account: u64, address: u64) -> i64 {
    let account = format!("RL.TOKEN login:account:{account} 5 1 60000");
    if ask(connection, &account)[0] == 0 {
        return 0;
    }
    let address = format!("RL.TOKEN login:address:{address} 20 1 3000");
    if ask(connection, &address)[0] == 1 {
        return 1;
    }
    ask(connection, &format!("{account} REFUND 1"));
    0
}

#[test]
fn a_login_in_two_calls_is_answered_as_one_call_would() {
    let [apart, together] = [(); 2].map(|()| Server::at(T0));
    let [mut one, mut other] = [&apart, &together].map(Server::connect);
    let mut random = Random::from(42);
    let (mut now_us, mut admitted, mut refused) = (T0, 0, 0);
    for _ in 0..2_000 {
        now_us += random.below(2 * SECOND);
        apart.set_clock(now_us);
        together.set_clock(now_us);
        let [account, address] = [random.below(30), random.below(2)];
        let both = format!(
            "RL.ALL 2 login:account:{account} login:address:{address} \
             TOKEN 5 1 60000 TOKEN 20 1 3000"
        );
        let expected = ask_all(&mut other, &both).0;
        assert_eq!(two_calls(&mut one, account, address), expected);
        if expected == 1 {
            admitted += 1;
        } else {
            refused += 1;
        }
    }
    assert!(admitted > 200 && refused > 200, "{admitted} and {refused}");
}

#[test]
fn a_login_in_a_cluster_takes_two_calls_or_one_slot() {
    let node = Options::new().tcp().arg("cluster-enabled", "yes").start();
    let mut connection = node.connect();
    send::<()>(&mut connection, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    support::wait_until("a cluster", || {
        let info: String = send(&mut connection, &["CLUSTER", "INFO"]);
        info.contains("cluster_state:ok")
    });
    let policies = "TOKEN 5 1 60000 TOKEN 20 1 3000";
    let apart = format!("RL.ALL 2 login:account:1 login:address:2 {policies}");
    let words: Vec<&str> = apart.split(' ').collect();
    let error = try_send::<Several>(&mut connection, &words).expect_err("two slots");
    assert_eq!(error.code(), Some("CROSSSLOT"));
    let tagged = format!("RL.ALL 2 {{login}}:account:1 {{login}}:address:2 {policies}");
    assert_eq!(ask_all(&mut connection, &tagged).0, 1);
    assert_eq!(two_calls(&mut connection, 1, 2), 1);
}

/// Whether a request goes on, tried for the first time or again.
fn admitted_once(connection: &mut Connection, id: u64) -> bool {
    let (allowed, _, limits) = ask_all(
        connection,
        &format!("RL.ALL 2 rl:request:{id} rl:calls FIXED 1 60000 TOKEN 10 1 1000"),
    );
    allowed == 1 || limits[0][0] == 0
}

#[test]
fn a_request_that_is_tried_again_is_charged_once() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let remaining =
        |connection: &mut Connection| ask(connection, "RL.PEEK rl:calls TOKEN 10 1 1000")[2];
    for id in 1..=10 {
        for _ in 0..3 {
            assert!(admitted_once(&mut connection, id));
            assert_eq!(remaining(&mut connection), 10 - i64::try_from(id).unwrap());
        }
    }
    // A new one is refused and so may be admitted later, while those admitted before go on.
    assert!(!admitted_once(&mut connection, 11));
    assert!(!admitted_once(&mut connection, 11));
    assert!(admitted_once(&mut connection, 10));
    server.set_clock(T0 + SECOND);
    assert!(admitted_once(&mut connection, 11));
    assert!(admitted_once(&mut connection, 11));
    assert_eq!(remaining(&mut connection), 0);
}

/// The numbers of the page.
#[test]
fn a_forced_shadow_refuses_what_a_plain_one_admits() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut admitted = BTreeMap::new();
    for call in 0..240 {
        server.set_clock(T0 + call * 500 * MS);
        for (key, words) in [("real", ""), ("plain", ""), ("forced", " COST 1 FORCE")] {
            let line = format!("RL.TOKEN {key} 10 1 1000{words}");
            *admitted.entry(key).or_insert(0) += ask(&mut connection, &line)[0];
        }
    }
    let expected = BTreeMap::from([("real", 129), ("plain", 129), ("forced", 19)]);
    assert_eq!(admitted, expected);
}

fn offence(connection: &mut Connection, who: &str) {
    let counted = ask(
        connection,
        &format!("RL.FIXED offences:{{{who}}} 1000000 86400000"),
    );
    let number = u32::try_from(counted[1] - counted[2]).unwrap();
    let seconds = 4_u64
        .saturating_pow(number - 1)
        .saturating_mul(60)
        .min(86_400);
    ask(
        connection,
        &format!("RL.TOKEN ban:{{{who}}} 1 1 1000 COST {seconds} FORCE"),
    );
}

fn banned_for_ms(connection: &mut Connection, who: &str) -> i64 {
    ask(connection, &format!("RL.PEEK ban:{{{who}}} TOKEN 1 1 1000"))[3]
}

#[test]
fn a_ban_grows_with_each_offence_of_a_day() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut now_us = T0;
    assert_eq!(banned_for_ms(&mut connection, "a"), 0);
    for minutes in [1, 4, 16, 64, 256] {
        offence(&mut connection, "a");
        assert_eq!(banned_for_ms(&mut connection, "a"), minutes * 60_000);
        // To the millisecond, and no longer.
        now_us += ms(minutes) * MINUTE;
        server.set_clock(now_us - MS);
        assert_eq!(banned_for_ms(&mut connection, "a"), 1);
        server.set_clock(now_us);
        assert_eq!(banned_for_ms(&mut connection, "a"), 0);
    }
    offence(&mut connection, "a");
    assert_eq!(banned_for_ms(&mut connection, "a"), 1024 * 60_000);
    assert_eq!(banned_for_ms(&mut connection, "b"), 0);

    // The next day begins: the first is a minute again, on top of what is left of the ban.
    server.set_clock(T0 + DAY_MS * MS);
    let left_ms = banned_for_ms(&mut connection, "a");
    offence(&mut connection, "a");
    assert_eq!(banned_for_ms(&mut connection, "a"), left_ms + 60_000);

    // Two at one moment count as two. None is longer than a day.
    offence(&mut connection, "b");
    offence(&mut connection, "b");
    assert_eq!(banned_for_ms(&mut connection, "b"), 5 * 60_000);
    for _ in 0..20 {
        offence(&mut connection, "c");
    }
    let before_ms = banned_for_ms(&mut connection, "c");
    offence(&mut connection, "c");
    assert_eq!(banned_for_ms(&mut connection, "c") - before_ms, 86_400_000);
}

/// A queue in front of a service that starts one request per interval, or one in two intervals where it
/// costs two. Requests come in bursts, evenly, and after pauses.
fn starts_of(server: &Server, policy: [u64; 3], step_us: u64) -> usize {
    let [capacity, refill, period_ms] = policy;
    let mut connection = server.connect();
    let mut random = Random::from(7);
    let interval = |count: u64| count * period_ms * 1_000; // in µs / refill
    let mut now_us = T0;
    // The earliest time for the next start, in µs × refill.
    let (mut free, mut refused, mut starts) = (0, 0, 0);
    for _ in 0..3_000 {
        now_us += match random.below(10) {
            0 => step_us * random.below(3_000_000 / step_us),
            1..=4 => step_us * random.below(200_000 / step_us),
            _ => 0,
        };
        server.set_clock(now_us);
        let cost = 1 + random.below(2);
        let line = format!("RL.TOKEN queue {capacity} {refill} {period_ms} COST {cost}");
        let [allowed, .., reset_ms] = ask(&mut connection, &line);
        let due = free.max(now_us * refill);
        let waiting = due - now_us * refill;
        if allowed == 0 {
            assert!(
                waiting > interval(capacity - cost),
                "there is room in the queue"
            );
            refused += 1;
            continue;
        }
        assert!(waiting <= interval(capacity - cost), "the queue is full");
        let start = (now_us + ms(reset_ms) * MS) * refill - interval(cost);
        let late = start.checked_sub(due).expect("not before its turn");
        assert!(late < MS * refill, "{late}");
        if step_us == MS && period_ms % refill == 0 {
            assert_eq!(late, 0, "exactly one interval apart");
        }
        free = due + interval(cost);
        starts += 1;
    }
    assert!(refused > 100, "only {refused} refused");
    starts
}

#[test]
fn delayed_requests_start_one_interval_apart() {
    for policy in [[6, 10, 1_000], [2, 1, 100], [6, 30, 1_000], [11, 7, 1_000]] {
        for step_us in [MS, 1] {
            let server = Server::at(T0);
            let starts = starts_of(&server, policy, step_us);
            assert!(starts > 500, "only {starts} of {policy:?}");
        }
    }
}

/// The time to midnight (UTC), by a clock that may be wrong: the first midnight that is at least
/// `ahead_ms` away.
fn window_ms(clock_ms: u64, ahead_ms: u64) -> u64 {
    ((clock_ms + ahead_ms) / DAY_MS + 1) * DAY_MS - clock_ms
}

/// How much of a limit of 1,000 a day passes in the two seconds around a midnight, while two callers
/// whose clocks differ take all they get.
fn around_midnight(ahead_ms: u64) -> i64 {
    let midnight_ms = (T0 / MS / DAY_MS + 1) * DAY_MS;
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut passed = 0;
    let mut take = |at_ms: u64, caller: u64| {
        server.set_clock(at_ms * MS);
        // The callers' clocks: 200 ms ahead, and 300 ms behind.
        let clock_ms = [at_ms + 200, at_ms - 300][usize::from(caller == 1)];
        let window_ms = window_ms(clock_ms, ahead_ms);
        let line = format!("RL.FIXED quota 1000 {window_ms} UPTO 1000");
        passed += ask(&mut connection, &line)[0];
    };
    take(T0 / MS, 0);
    for at_ms in (midnight_ms - 1_000..=midnight_ms + 1_000).step_by(50) {
        take(at_ms, 1);
        take(at_ms, 0);
    }
    passed
}

#[test]
fn each_day_has_one_window_although_clocks_differ() {
    // The old day's, and the new day's.
    assert_eq!(around_midnight(1_000), 2 * 1_000);
    // Without that second, the caller who is behind opens the old day once more.
    assert_eq!(around_midnight(0), 3 * 1_000);
}

#[test]
fn nobody_calls_an_upstream_while_it_pauses() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let paused_ms = || ask(&mut server.connect(), "RL.PEEK upstream:pause FIXED 1 1")[3];
    assert_eq!(paused_ms(), 0);
    ask(&mut connection, "RL.FIXED upstream:pause 1 30000");
    assert_eq!(paused_ms(), 30_000);
    server.set_clock(T0 + 10 * SECOND);
    let second = ask(&mut connection, "RL.FIXED upstream:pause 1 25000");
    assert_eq!((second[0], paused_ms()), (0, 20_000));
    server.set_clock(T0 + 30 * SECOND - MS);
    assert_eq!(paused_ms(), 1);
    server.set_clock(T0 + 30 * SECOND);
    assert_eq!(paused_ms(), 0);
    // Looking has not opened a window, so the next 429 pauses for its own time.
    ask(&mut connection, "RL.FIXED upstream:pause 1 25000");
    assert_eq!(paused_ms(), 25_000);
}

/// Jobs that take a lease and a unit of a rate, run for some time, renew, and end or crash.
#[test]
fn so_many_jobs_run_at_once_and_refused_ones_are_not_charged() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut random = Random::from(3);
    let mut running: Vec<(u64, u64)> = Vec::new(); // id, end of its lease in ms
    // One unit of the rate comes in 6 s.
    let (mut rate_ms, mut started, mut refused) = (60_000, 0, [0, 0]);
    for id in 0..1_000 {
        let now_us = T0 + id * 3 * SECOND;
        rate_ms = u64::min(rate_ms + 3_000, 60_000);
        let now_ms = now_us / MS;
        server.set_clock(now_us);
        running.retain(|job| job.1 > now_ms); // those that crashed lose their places
        let line = format!("RL.ALL 2 running rate LEASE 2 30000 job-{id} TOKEN 10 10 60000");
        let (allowed, _, limits) = ask_all(&mut connection, &line);
        let [is_free, is_in_rate] = [running.len() < 2, rate_ms >= 6_000];
        assert_eq!(limits[0][0], i64::from(is_free), "{id}");
        assert_eq!(limits[1][0], i64::from(is_in_rate), "{id}");
        assert_eq!(allowed, i64::from(is_free && is_in_rate), "{id}");
        refused[0] += u64::from(!is_free && is_in_rate);
        refused[1] += u64::from(is_free && !is_in_rate);
        if allowed == 1 {
            started += 1;
            rate_ms -= 6_000;
            running.push((id, now_ms + 30_000));
        }
        assert!(running.len() <= 2);
        assert_eq!(limits[0][2], 2 - i64::try_from(running.len()).unwrap());
        for index in (0..running.len()).rev() {
            let lease = format!("RL.LEASE running 2 30000 job-{}", running[index].0);
            match random.below(10) {
                0..=2 => {
                    assert_eq!(ask(&mut connection, &format!("{lease} RELEASE"))[0], 1);
                    running.remove(index);
                }
                3..=5 => {
                    assert_eq!(ask(&mut connection, &format!("{lease} RENEW"))[0], 1);
                    running[index].1 = now_ms + 30_000;
                }
                _ => {}
            }
        }
    }
    assert!(started > 300, "only {started}");
    assert!(
        refused.iter().all(|count| *count > 50),
        "by one limit alone: {refused:?}"
    );
}

/// The page about several limits says so.
#[test]
fn a_user_needs_the_command_and_each_of_its_keys() {
    let server = Options::new().start();
    let mut user = server.connect_as("~rl:* +rl.all");
    let policies = "FIXED 5 60000 LEASE 2 60000 a";
    let line = format!("RL.ALL 2 rl:1 rl:2 {policies}");
    assert_eq!(ask_all(&mut user, &line).0, 1);
    let line = format!("RL.ALL 2 rl:1 other:2 {policies}");
    let words: Vec<&str> = line.split(' ').collect();
    let error = try_send::<Several>(&mut user, &words).expect_err("no right");
    assert_eq!(error.code(), Some("NOPERM"));
}

/// A key that a script's sorted set has made is gone on with, and the script goes on with it.
#[test]
fn a_semaphore_of_end_times_and_leases_share_one_limit() {
    const SCRIPT: &str = "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1]) \
        if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end \
        redis.call('ZADD', KEYS[1], ARGV[1] + ARGV[3], ARGV[4]) \
        redis.call('PEXPIRE', KEYS[1], ARGV[3]) return 1";
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut random = Random::from(5);
    let mut held: Vec<u64> = Vec::new();
    for id in 0..500 {
        let now_us = T0 + id * SECOND;
        let now_ms = now_us / MS;
        server.set_clock(now_us);
        held.retain(|end_ms| *end_ms > now_ms);
        let expected = i64::from(held.len() < 4);
        let (now, id) = (now_ms.to_string(), format!("job-{id}"));
        let taken: i64 = if random.percent(50) {
            send(
                &mut connection,
                &["EVAL", SCRIPT, "1", "k", &now, "4", "5000", &id],
            )
        } else {
            ask(&mut connection, &format!("RL.LEASE k 4 5000 {id}"))[0]
        };
        assert_eq!(taken, expected, "{id}");
        if taken == 1 {
            held.push(now_ms + 5_000);
        }
    }
}
