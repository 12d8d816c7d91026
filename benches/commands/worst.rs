//! The slowest single calls: what one client can ask of the server at once, beside plain commands
//! with the same result.

use crate::report::{Followed, table};
use crate::server::Server;
use crate::stats::Summary;
use crate::wire::{Control, Reply};

/// How often each is measured.
const TIMES: usize = 15;
const MIB: usize = 1 << 20;
/// The most units of an exact window.
const MOST: usize = 10_000;

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
    for case in cases() {
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
    let case = |name, key: &str, state: Vec<String>, call: &str, plain: Vec<String>| {
        let with_key = |line: &String| line.replace("KEY", key);
        Case {
            name,
            key: key.to_owned(),
            state: state.iter().map(with_key).collect(),
            call: call.replace("KEY", key),
            plain: plain.iter().map(with_key).collect(),
        }
    };
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
