//! The instructions in the repository, `benches/instructions.tsv`, and whether they still hold.
//!
//! On the build of a server for which they were counted they repeat, to a fraction of a per cent,
//! and all of them are compared. Another build does its own part with other instructions: there,
//! those of this module's own code are compared, which are the same on all servers, and the ratio
//! to the base.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde::{Deserialize, Serialize};

use crate::callgrind::{self, Count, find};
use crate::rows::{BASE, Row};
use crate::tables::table;

/// How much dearer a command may get, in per cent.
const TOLERANCE: f64 = 4.0;
/// The same where another compiler has built it.
const COMPILER_TOLERANCE: f64 = 8.0;
/// How far, on a build that is not recorded, its ratio to [`BASE`] may lie above the highest that is.
const RATIO_TOLERANCE: f64 = 10.0;

const HEADER: &str = "\
# Instructions per command: the server's and ours together, and ours alone. `make instructions`
# rewrites the lines of the server at hand, `make check-instructions` compares.
";

/// A line of the file.
#[derive(Deserialize, Serialize)]
struct Recorded {
    server: String,
    command: String,
    all: u64,
    ours: u64,
}

type Counts = [(String, Count)];

/// Counts and prints.
pub fn print(names: &[String]) {
    show(&count_named(names, None));
}

/// The same, with a profile of each row.
pub fn profile(names: &[String]) {
    let profiles = Path::new(env!("CARGO_TARGET_TMPDIR")).join("profiles");
    fs::create_dir_all(&profiles).expect("a folder for profiles");
    show(&count_named(names, Some(&profiles)));
    println!(
        "\nLook at one with: callgrind_annotate --inclusive=no {}/…",
        profiles.display()
    );
}

fn count_named(names: &[String], profiles: Option<&Path>) -> Vec<(String, Count)> {
    let wanted = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part));
    callgrind::count(|row| row.name == BASE || wanted(&row.name), profiles)
}

/// Prints counts, with ratios to the base and to the same algorithm as a script.
fn show(counts: &Counts) {
    let base = find(counts, BASE).all;
    table(&[
        "command",
        "instructions",
        "ours",
        "÷ `SET … PX`",
        "÷ the same in Lua",
    ]);
    for (row, count) in counts {
        let script = Row::script(row);
        let script = counts
            .iter()
            .find(|(name, _)| Some(name) == script.as_ref());
        let script = script.map_or("–".to_owned(), |(_, script)| {
            format!("{:.2}", count.all / script.all)
        });
        let Count { all, own } = count;
        println!(
            "| `{row}` | {all:.0} | {own:.0} | {:.2} | {script} |",
            all / base
        );
    }
}

/// Counts, prints, and records.
pub fn update() {
    let counts = count_named(&[], None);
    show(&counts);
    let build = build();
    let mut recorded = read();
    recorded.retain(|line| line.server != build);
    recorded.extend(counts.into_iter().map(|(command, count)| Recorded {
        server: build.clone(),
        command,
        all: count.all.round() as u64,
        ours: count.own.round() as u64,
    }));
    recorded.sort_by(|a, b| a.server.cmp(&b.server));
    let header = format!("{HEADER}{}", compiler());
    let mut file = csv::WriterBuilder::new()
        .delimiter(b'\t')
        .from_writer(header.into_bytes());
    for line in recorded {
        file.serialize(line).expect("memory");
    }
    let text = file.into_inner().expect("memory");
    fs::write(self::file(), text).expect("a file that can be written");
}

/// Counts and compares. What is not ours is not compared, but it is what ours is measured by.
pub fn check() -> ExitCode {
    let counts = count_named(&[], None);
    show(&counts);
    println!();
    let mut tolerance = TOLERANCE;
    if !fs::read_to_string(file())
        .expect("the file")
        .contains(&compiler())
    {
        println!("Another compiler than the one at hand has built what is recorded.");
        tolerance = COMPILER_TOLERANCE;
    }
    let (recorded, build) = (read(), build());
    let same = recorded.iter().any(|line| line.server == build);
    if !same {
        println!("{build} is not recorded: ratios are compared, and our own instructions.");
    }
    let base = find(&counts, BASE).all;
    let ratio = |line: &Recorded| {
        let mut bases = recorded.iter().filter(|base| base.command == BASE);
        let base = bases.find(|base| base.server == line.server);
        line.all as f64 / base.expect("the base is recorded").all as f64
    };
    let (mut dearer, mut cheaper) = (false, false);
    for (row, now) in counts.iter().filter(|(row, _)| row.starts_with("RL.")) {
        // The highest figure that is recorded of this row, on any server if this one is not.
        let most = |figure: &dyn Fn(&Recorded) -> f64| {
            let lines = recorded.iter().filter(|line| line.command == *row);
            let lines = lines.filter(|line| !same || line.server == build);
            lines.map(figure).fold(0.0, f64::max)
        };
        let all = if same {
            ("all", most(&|line| line.all as f64), now.all, tolerance)
        } else {
            ("ratio", most(&ratio), now.all / base, RATIO_TOLERANCE)
        };
        let ours = ("ours", most(&|line| line.ours as f64), now.own, tolerance);
        for (what, then, now, tolerance) in [all, ours] {
            // What is not recorded counts as 0, and so as dearer.
            let change = (now / then - 1.0) * 100.0;
            if change > tolerance || (same && change < -tolerance) {
                println!("{row}, {what}: {then:.2} recorded, {now:.2} counted, {change:+.1} %");
                *(if change > 0.0 {
                    &mut dearer
                } else {
                    &mut cheaper
                }) = true;
            }
        }
    }
    let (text, code) = match (dearer, cheaper) {
        (true, _) => (
            "Dearer than recorded. If that has to be: make instructions",
            ExitCode::FAILURE,
        ),
        (false, true) => (
            "Cheaper than recorded. To keep it so: make instructions",
            ExitCode::SUCCESS,
        ),
        (false, false) => ("As recorded.", ExitCode::SUCCESS),
    };
    println!("{text}");
    code
}

fn read() -> Vec<Recorded> {
    let file = csv::ReaderBuilder::new()
        .delimiter(b'\t')
        .comment(Some(b'#'))
        .from_path(file());
    let lines = file.expect("the file").into_deserialize();
    lines
        .map(|line| line.expect("a line of four fields"))
        .collect()
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.tsv")
}

/// The compiler at hand, as a line of the file.
fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    format!("# Built by {}\n", text.unwrap_or_default().trim())
}

/// The server at hand, `redis-7.0.15-…`, by what `--version` says of it.
pub fn build() -> String {
    let output = Command::new(support::server_binary())
        .arg("--version")
        .output();
    let text = String::from_utf8_lossy(&output.expect("a server").stdout).to_lowercase();
    let field = |name| {
        text.split_whitespace()
            .find_map(|word| word.strip_prefix(name))
            .unwrap_or("?")
    };
    let kind = text.split_whitespace().next().unwrap_or("?");
    format!("{kind}-{}-{}", field("v="), field("build="))
}
