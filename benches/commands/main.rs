//! The commands beside what one would use instead, measured on a real server: `make bench`.
//!
//! | file | owns |
//! |---|---|
//! | `rows.txt`, `rows` | what is measured: each call and the state it meets |
//! | `load` | servers under load, by redis-benchmark |
//! | `callgrind` | instructions per command |
//! | `recorded` | the instructions in the repository, and whether they still hold |
//! | `tables` | the tables of the commands |
//! | `several` | tables of one thing beside another: several limits in one step, leases, redis-cell |
//! | `worst.txt`, `worst` | the table of the slowest single calls |
//!
//! `REDIS_SERVER` names the server, `RL_MODULE` the module (the release build unless set), and
//! `REDIS_CELL_SO`, if set, redis-cell's module to measure beside it. `ROUNDS` sets how many rounds
//! there are. Tables go to the standard output, and what goes on meanwhile to the standard error.
#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::format_push_string,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a benchmark may fail"
)]

mod callgrind;
mod load;
mod recorded;
mod rows;
mod several;
mod tables;
mod worst;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo bench --bench commands -- [MODE] [PART OF A ROW'S NAME]...
  full          every table (the default)
  quick         the page's table, in about three minutes
  several       several limits in one step beside one by one, and leases
  worst         the slowest single calls, beside plain commands with the same result
  instructions  instructions per command
  profile       the same, and where they go
  check         the same, against benches/instructions.tsv: fails where a command got dearer
  update        the same, written to benches/instructions.tsv";

fn main() -> ExitCode {
    // cargo itself adds `--bench`.
    let mut args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let mode = if args.is_empty() {
        "full".to_owned()
    } else {
        args.remove(0)
    };
    tables::introduce();
    match mode.as_str() {
        "full" => tables::full(&args),
        "quick" => tables::quick(&args),
        "several" => several::tables(),
        "worst" => worst::table_of_worst_calls(),
        "instructions" => recorded::print(&args),
        "profile" => recorded::profile(&args),
        "check" => return recorded::check(),
        "update" => recorded::update(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
