//! The instructions in the repository, `benches/instructions.tsv`, and whether they still hold.
//!
//! On the very build of a server for which they were counted they repeat, to a fraction of a per
//! cent, and all of them are compared. Another build does its own part with other instructions:
//! there, those of this module's own code are compared, which are the same on all servers, and the
//! ratio to the base.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::callgrind::{self, Count};
use crate::report::compare_instructions;
use crate::rows::BASE;
use crate::server;

/// How much dearer a command may get, in per cent.
const TOLERANCE: f64 = 4.0;
/// The same where another compiler has built it.
const COMPILER_TOLERANCE: f64 = 8.0;
/// How far, on a build that is not recorded, its ratio to [`BASE`] may lie above the highest that is.
const RATIO_TOLERANCE: f64 = 10.0;

fn text() -> String {
    fs::read_to_string(file()).unwrap_or_default()
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.tsv")
}

const HEADER: &str = "\
# Instructions per command: the server's and ours together, and ours alone. `make instructions`
# rewrites the lines of the server at hand, `make check-instructions` compares.
";
const COLUMNS: &str = "server\tcommand\tall\tours\n";

/// The compiler at hand, as a line of the file.
fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    format!("# Built by {}\n", text.unwrap_or_default().trim())
}

/// By row.
type Counts = [(String, Count)];
/// By server's build.
type Recorded = BTreeMap<String, Vec<(String, Count)>>;

/// A server's build.
fn build() -> String {
    let (version, build) = server::version();
    format!("{version}-{build}")
}

fn read(text: &str) -> Recorded {
    let mut recorded = Recorded::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [build, row, all, own] = fields[..] else {
            continue;
        };
        // The heading has no numbers.
        let (Ok(all), Ok(own)) = (all.parse(), own.parse()) else {
            continue;
        };
        recorded
            .entry(build.to_owned())
            .or_default()
            .push((row.to_owned(), Count { all, own }));
    }
    recorded
}

/// Counts and prints.
pub fn print(names: &[String]) {
    print!("{}", compare_instructions(&count_named(names, None)));
}

/// The same, with a profile of each row.
pub fn profile(names: &[String]) {
    let profiles = Path::new(env!("CARGO_TARGET_TMPDIR")).join("profiles");
    fs::create_dir_all(&profiles).expect("a folder for profiles");
    let counts = count_named(names, Some(&profiles));
    print!("{}", compare_instructions(&counts));
    println!(
        "\nLook at one with: callgrind_annotate --inclusive=no {}/…",
        profiles.display()
    );
}

fn count_named(names: &[String], profiles: Option<&Path>) -> Vec<(String, Count)> {
    let wanted = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part));
    callgrind::count(|row| row.name == BASE || wanted(&row.name), profiles)
}

/// Counts, prints, and records.
pub fn update() {
    let counts = callgrind::count(|_| true, None);
    print!("{}", compare_instructions(&counts));
    let mut recorded = read(&text());
    recorded.insert(build(), counts);
    let mut text = format!("{HEADER}{}{COLUMNS}", compiler());
    for (build, counts) in &recorded {
        for (row, Count { all, own }) in counts {
            text += &format!("{build}\t{row}\t{all:.0}\t{own:.0}\n");
        }
    }
    fs::write(file(), text).expect("a file that can be written");
}

/// Counts and compares. What is not ours is not compared, but it is what ours is measured by.
pub fn check() -> ExitCode {
    let counts = callgrind::count(|_| true, None);
    print!("{}", compare_instructions(&counts));
    println!();
    let text = text();
    let recorded = read(&text);
    let tolerance = if text.contains(&compiler()) {
        TOLERANCE
    } else {
        println!("Another compiler than the one at hand has built what is recorded.");
        COMPILER_TOLERANCE
    };
    let build = build();
    let same = recorded.get(&build);
    if same.is_none() {
        println!("{build} is not recorded: ratios are compared, and our own instructions.");
    }
    let (mut dearer, mut cheaper) = (false, false);
    for (row, now) in counts.iter().filter(|(row, _)| row.starts_with("RL.")) {
        let compared = match same {
            Some(same) => compare_counts(*now, find(same, row), tolerance),
            None => compare_ratios(row, *now, &counts, &recorded, tolerance),
        };
        let Some(compared) = compared else {
            println!("{row} is not recorded");
            dearer = true;
            continue;
        };
        for figure in compared {
            let change = figure.change();
            if change > figure.tolerance || (same.is_some() && change < -figure.tolerance) {
                println!("{row}, {figure}");
                *if change > 0.0 {
                    &mut dearer
                } else {
                    &mut cheaper
                } = true;
            }
        }
    }
    println!(
        "{}",
        match (dearer, cheaper) {
            (true, _) => "Dearer than recorded. If that has to be: make instructions",
            (false, true) => "Cheaper than recorded. To keep it so: make instructions",
            (false, false) => "As recorded.",
        }
    );
    if dearer {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// A figure beside the one that was recorded for it.
struct Compared {
    what: &'static str,
    then: f64,
    now: f64,
    /// In per cent.
    tolerance: f64,
}

impl Compared {
    /// In per cent.
    fn change(&self) -> f64 {
        (self.now / self.then - 1.0) * 100.0
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.then < 100.0 { 2 } else { 0 };
        let Self {
            what, then, now, ..
        } = self;
        write!(
            f,
            "{what}: {then:.digits$} recorded, {now:.digits$} counted, {:+.1} %",
            self.change()
        )
    }
}

fn find(counts: &Counts, row: &str) -> Option<Count> {
    let (_, count) = counts.iter().find(|(name, _)| name == row)?;
    Some(*count)
}

fn compare_counts(now: Count, then: Option<Count>, tolerance: f64) -> Option<[Compared; 2]> {
    let then = then?;
    let figures = [("all", then.all, now.all), ("ours", then.own, now.own)];
    Some(figures.map(|(what, then, now)| Compared {
        what,
        then,
        now,
        tolerance,
    }))
}

/// Compares with the dearest that is recorded.
fn compare_ratios(
    row: &str,
    now: Count,
    counts: &Counts,
    recorded: &Recorded,
    tolerance: f64,
) -> Option<[Compared; 2]> {
    let most = |figure: &dyn Fn(&Counts) -> Option<f64>| {
        let figures = recorded.values().filter_map(|counts| figure(counts));
        figures.max_by(f64::total_cmp)
    };
    let ratio = |counts: &Counts| Some(find(counts, row)?.all / find(counts, BASE)?.all);
    Some([
        Compared {
            what: "ratio",
            then: most(&ratio)?,
            now: ratio(counts)?,
            tolerance: RATIO_TOLERANCE,
        },
        Compared {
            what: "ours",
            then: most(&|counts| Some(find(counts, row)?.own))?,
            now: now.own,
            tolerance,
        },
    ])
}
