//! The slowest single calls: what one client can ask of the server at once, beside plain commands
//! with the same result.

use crate::report::{Followed, table};
use crate::server::Server;
use crate::stats::Summary;
use crate::wire::{Control, Reply};

/// How often each is measured.
const TIMES: usize = 15;
const MIB: usize = 1 << 20;
/// The most units of an exact window, and the most leases.
const MOST: usize = 10_000;
/// An instant in the year 2100, in ms.
const LATER_MS: usize = 4_102_444_800_000;
/// The most limits of one call.
const MOST_LIMITS: usize = 32;

/// A call and the state that it meets.
struct Case {
    name: &'static str,
    key: String,
    state: Vec<String>,
    call: String,
    /// Plain commands that come to the same, on the same state.
    plain: Vec<String>,
}

/// Prints the table.
pub fn table_of_worst_calls() {
    let followed = Followed::start();
    let server = &followed.server;
    let mut control = server.control();
    println!();
    table(&[
        "call",
        "ms",
        "bytes of stream",
        "plain commands, ms",
        "bytes",
    ]);
    for case in cases()
        .into_iter()
        .chain(cases_of_leases())
        .chain(cases_on_many_keys())
    {
        let ours = measure(
            server,
            &mut control,
            &case,
            std::slice::from_ref(&case.call),
        );
        let plain = measure(server, &mut control, &case, &case.plain);
        let [ours, plain] = [ours, plain].map(|(ms, bytes)| format!("{} | {bytes}", ms.median()));
        println!("| {} | {ours} | {plain} |", case.name);
    }
    println!();
}

/// Milliseconds that the server takes for the lines, from reading them to sending their results
/// to its AOF and its replica, and the bytes of the latter.
fn measure(
    server: &Server,
    control: &mut Control,
    case: &Case,
    lines: &[String],
) -> (Summary, i64) {
    let mut bytes = 0;
    let times = (0..TIMES).map(|_| {
        control.must(&format!("DEL {}", case.key));
        control.must_all(&case.state);
        settle(control);
        let offset = control.info("master_repl_offset");
        let before = server.cpu_time();
        for line in lines {
            if let Reply::Error(error) = control.line(line) {
                panic!("{}: {error}", case.name);
            }
        }
        let after = server.cpu_time();
        bytes = control.info("master_repl_offset") - offset;
        (after.saturating_sub(before)).as_secs_f64() * 1_000.0
    });
    (Summary::of(times.collect::<Vec<_>>()), bytes)
}

/// Waits until what was sent before has been written and has reached the replica.
fn settle(control: &mut Control) {
    control.must("WAIT 1 10000");
    std::thread::sleep(std::time::Duration::from_millis(30));
}

fn case(name: &'static str, key: &str, state: Vec<String>, call: &str, plain: Vec<String>) -> Case {
    let with_key = |line: String| line.replace("KEY", key);
    Case {
        name,
        key: key.to_owned(),
        state: state.into_iter().map(with_key).collect(),
        call: call.replace("KEY", key),
        plain: plain.into_iter().map(with_key).collect(),
    }
}

fn cases() -> Vec<Case> {
    let now_us = crate::report::now_us();
    let expiry = "PEXPIREAT KEY 4102444800000".to_owned();
    let entries = |count: usize, at_us: u64| format!(" {at_us}").repeat(count);
    let log = |old: usize, newer: String| {
        let push = format!("RPUSH KEY{}{newer}", entries(old, now_us - 30 * 60_000_000));
        vec![push, expiry.clone()]
    };
    let push = |count| format!("RPUSH KEY{}", entries(count, now_us));
    let set = "SET KEY T1:99000000:1000000:1779331200000000 PXAT 4102444800000".to_owned();
    let exact = |cost: usize| format!("RL.SLIDE KEY 10000 60000 EXACT COST {cost}");
    let long = "k".repeat(8 * MIB);
    let mib = "k".repeat(MIB);
    // Entries an hour ahead, as of a clock that was set back since.
    let ahead = || entries(MOST, now_us + 3_600_000_000);
    vec![
        case(
            "`RL.TOKEN`, a new key",
            "k",
            vec![],
            "RL.TOKEN KEY 100 10 1000",
            vec![set.clone()],
        ),
        case(
            "`RL.TOKEN`, a key's name of 8 MiB",
            &long,
            vec![],
            "RL.TOKEN KEY 100 10 1000",
            vec![set],
        ),
        case(
            "`EXACT`, `COST 10000`",
            "k",
            vec![],
            &exact(MOST),
            vec![push(MOST), expiry.clone()],
        ),
        case(
            "`EXACT`, 9,999 units leave and one is left",
            "k",
            log(MOST - 1, entries(1, now_us)),
            &exact(1),
            vec!["LTRIM KEY 9999 -1".to_owned(), push(1)],
        ),
        case(
            "`EXACT`, 9,999 leave, `COST 9999`",
            "k",
            log(MOST - 1, entries(1, now_us)),
            &exact(MOST - 1),
            vec!["LTRIM KEY 9999 -1".to_owned(), push(MOST - 1)],
        ),
        case(
            "`EXACT`, the clock was set back before all of 10,000",
            "k",
            log(0, ahead()),
            &exact(1),
            vec!["DEL KEY".to_owned(), push(MOST), expiry.clone()],
        ),
        case(
            "`EXACT`, refused, 10,000 units",
            "k",
            log(0, entries(MOST, now_us)),
            &exact(2),
            vec!["LINDEX KEY 5000".to_owned()],
        ),
        case(
            "`EXACT`, `COST 10000`, a key's name of 1 MiB",
            &mib,
            vec![],
            &exact(MOST),
            vec![push(MOST), expiry.clone()],
        ),
        case(
            "`EXACT`, `COST 10000`, a key's name of 8 MiB",
            &long,
            vec![],
            &exact(MOST),
            vec![push(MOST), expiry],
        ),
    ]
}

fn cases_of_leases() -> Vec<Case> {
    let now_ms = crate::report::now_us() as usize / 1_000;
    // Some that have ended, and some that end in the year 2100.
    let leases = |over: usize, live: usize| {
        let ends = (0..over).map(|nth| now_ms - 30_000 + nth);
        let ends = ends.chain((0..live).map(|nth| LATER_MS + nth));
        let pairs: Vec<String> = ends
            .enumerate()
            .map(|(nth, end_ms)| format!("{end_ms} {nth}"))
            .collect();
        vec![
            format!("ZADD KEY {}", pairs.join(" ")),
            format!("PEXPIREAT KEY {}", LATER_MS + MOST),
        ]
    };
    vec![
        case(
            "`RL.LEASE`, 9,999 are over and one is live",
            "k",
            leases(MOST - 1, 1),
            "RL.LEASE KEY 10000 60000 new",
            vec![
                format!("ZREMRANGEBYSCORE KEY 0 {now_ms}"),
                format!("ZADD KEY {} new", now_ms + 60_000),
            ],
        ),
        case(
            "`RL.LEASE`, refused, 10,000 are live and the limit is 5,000",
            "k",
            leases(0, MOST),
            "RL.LEASE KEY 5000 60000 new",
            vec!["ZRANGE KEY 5000 5000 WITHSCORES".to_owned()],
        ),
    ]
}

fn cases_on_many_keys() -> [Case; 2] {
    let expiry = format!("PEXPIREAT KEY {LATER_MS}");
    let push = format!(
        "RPUSH KEY{}",
        format!(" {}", crate::report::now_us()).repeat(MOST)
    );
    [
        on_many_keys(
            "`RL.ALL` of 32 fixed windows",
            "FIXED 1000000 86400000",
            &["SET KEY 1 PXAT 4102444800000".to_owned()],
        ),
        on_many_keys(
            "`RL.ALL` of 32 with `EXACT`, `COST 10000`",
            "SLIDE 10000 60000 EXACT COST 10000",
            &[push, expiry],
        ),
    ]
}

/// A call with the most limits that there can be, all of them alike and on new keys.
fn on_many_keys(name: &'static str, policy: &str, plain: &[String]) -> Case {
    let keys: Vec<String> = (0..MOST_LIMITS).map(|nth| format!("k:{nth}")).collect();
    let names = keys.join(" ");
    let policies = vec![policy; MOST_LIMITS].join(" ");
    let plain_on = |key: &String| -> Vec<String> {
        plain.iter().map(|line| line.replace("KEY", key)).collect()
    };
    Case {
        name,
        key: names.clone(),
        state: Vec::new(),
        call: format!("RL.ALL {MOST_LIMITS} {names} {policies}"),
        plain: keys.iter().flat_map(plain_on).collect(),
    }
}
