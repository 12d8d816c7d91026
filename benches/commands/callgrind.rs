//! Instructions per command, counted by callgrind in a server whose clock and randomness are held
//! (`tests/support/steady.c`), so that they are the same in every run.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use redis::{Connection, Pipeline, Value};
use support::{Server, module, send, wait_until};

use crate::load;
use crate::rows::{Row, USUAL_LIMIT, keys, rows};

/// 2026-05-21T02:40:15Z: a quarter into a minute.
const T0_US: u64 = 1_779_331_215_000_000;

/// So many commands come at once, and as much time passes with each batch as it takes a server
/// that is well used: with it come the server's own chores, ten times a second.
const PIPELINE: usize = 100;
const BATCH_US: u64 = 1_001;

/// As full a dictionary as one of 10,000 keys: 625 of 1,024.
const KEYS: usize = 625;
/// Where each key is new, so many share the growth of the dictionary and the server's chores.
const NEW_KEYS: usize = 10_000;
/// How often each key is called.
const TURNS: usize = 4;

/// Instructions per call.
#[derive(Clone, Copy)]
pub struct Count {
    /// Of the whole server, from the socket to the socket.
    pub all: f64,
    /// Of this module's own code.
    pub own: f64,
}

/// The count of a row that was counted.
pub fn find(counts: &[(String, Count)], name: &str) -> Count {
    let found = counts.iter().find(|(row, _)| row == name);
    found.unwrap_or_else(|| panic!("{name} is counted")).1
}

/// Counts the rows that `shown` picks, and leaves their profiles in a folder, if there is one.
pub fn count(shown: impl Fn(&Row) -> bool, profiles: Option<&Path>) -> Vec<(String, Count)> {
    let mut counter = Counter::start(profiles);
    let rows = rows(&mut counter.control, USUAL_LIMIT);
    let rows = rows.into_iter().filter(shown);
    rows.map(|row| (row.name.clone(), counter.count(&row)))
        .collect()
}

struct Counter {
    server: Server,
    /// Makes the state.
    control: Connection,
    /// Makes the calls that are counted.
    client: Connection,
    page: Page,
    /// The instant, in µs: a minute on for each row, so that all meet the same part of one.
    now_us: u64,
    profiles: Option<PathBuf>,
}

impl Counter {
    fn start(profiles: Option<&Path>) -> Self {
        let shared = tempfile::NamedTempFile::new().expect("a temporary file");
        let page = Page(shared.reopen().expect("a file to share"));
        page.write(0, T0_US);
        page.write(1, 0);
        let server = load::options()
            .under(&[
                "valgrind",
                "--tool=callgrind",
                "--callgrind-out-file=counts.%p",
            ])
            // REDIS_SERVER may name a script that becomes the server.
            .under(&[
                "--trace-children=yes",
                "--compress-strings=no",
                "--compress-pos=no",
            ])
            // It would wait by a clock that is held, which is no waiting.
            .arg("jemalloc-bg-thread", "no")
            .arg("enable-debug-command", "yes")
            .preload("steady")
            .env("RL_STEADY_PAGE", shared.path())
            .start();
        let (mut control, client) = (server.connect(), server.connect());
        // A connection whose replies come as thick as these keeps a large buffer for them. Here
        // its server would take it for idle, as the clock leaps from row to row.
        let _ =
            support::try_send::<Value>(&mut control, &["DEBUG", "REPLYBUFFER", "RESIZING", "0"]);
        Self {
            server,
            control,
            client,
            page,
            now_us: T0_US,
            profiles: profiles.map(Path::to_owned),
        }
    }

    fn count(&mut self, row: &Row) -> Count {
        let keys = keys(match row.calls {
            Some(1) => NEW_KEYS,
            _ => row.keys(KEYS),
        });
        self.now_us += 60_000_000;
        let now_us = self.now_us;
        self.page.write(0, now_us);
        row.make(&mut self.control, &keys, now_us);
        // The first turn meets state that no call has touched yet, unless that is all it can meet.
        let warm = if row.calls.is_none() { keys.len() } else { 0 };
        let calls = warm + keys.len() * row.calls.map_or(TURNS, |calls| calls.min(TURNS));
        let batches = (calls - warm) / PIPELINE;
        let first = calls - batches * PIPELINE;
        if first > 0 {
            self.send(row, &keys, 0, first);
        }
        self.ask(1);
        for batch in 0..batches {
            self.page.write(0, now_us + (batch as u64 + 1) * BATCH_US);
            self.send(row, &keys, first + batch * PIPELINE, PIPELINE);
        }
        self.ask(2);
        let calls = (batches * PIPELINE) as f64;
        let (all, own) = self.read(&row.name);
        Count {
            all: all as f64 / calls,
            own: own as f64 / calls,
        }
    }

    /// Sends so many calls together, the keys taking turns.
    fn send(&mut self, row: &Row, keys: &[String], first: usize, calls: usize) {
        let mut pipeline = Pipeline::new();
        for nth in first..first + calls {
            for command in row.call(&keys[nth % keys.len()], nth / keys.len()) {
                pipeline.add_command(command);
            }
        }
        let replies: Vec<Value> = pipeline.query(&mut self.client).expect("no errors");
        let other = replies.iter().find(|reply| !row.fits(reply));
        assert!(other.is_none(), "{}: {other:?}", row.name);
    }

    /// Has the counts set to zero (1) or written (2).
    fn ask(&mut self, what: u64) {
        self.page.write(1, what);
        // Wakes the server up, which then looks.
        send::<()>(&mut self.control, &["PING"]);
        wait_until("callgrind", || self.page.read(1) == 0);
    }

    /// Reads and removes what was written: all instructions, and those of the module.
    fn read(&self, name: &str) -> (u64, u64) {
        let files = fs::read_dir(self.server.dir()).expect("the server's folder");
        let mut paths = files.map(|file| file.expect("a file").path());
        let counts = format!("counts.{}.", self.server.pid());
        let dump = paths.find(|path| path.to_string_lossy().contains(&counts));
        let dump = dump.expect("callgrind has written its counts");
        let text = fs::read_to_string(&dump).expect("counts");
        if let Some(profiles) = &self.profiles {
            let name = name.replace(|char: char| !char.is_alphanumeric(), "-");
            fs::write(profiles.join(name), &text).expect("a folder for profiles");
        }
        fs::remove_file(&dump).expect("a file");
        totals(&text)
    }
}

/// All instructions of a profile, and those of the module.
fn totals(text: &str) -> (u64, u64) {
    let module = format!("ob={}", module().display());
    let (mut all, mut own) = (0, 0);
    let mut inside = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("ob=") {
            inside = line == module;
        } else if line.starts_with("calls=") {
            // What the callee took stands with the callee.
            lines.next();
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let cost = line.split(' ').nth(1);
            let cost: u64 = cost.expect("a cost").parse().expect("a number");
            all += cost;
            own += if inside { cost } else { 0 };
        }
    }
    (all, own)
}

/// The file that the server shares with this process: its clock, and what is asked of callgrind.
struct Page(File);

impl Page {
    fn write(&self, word: u64, value: u64) {
        let written = self.0.write_all_at(&value.to_ne_bytes(), word * 8);
        written.expect("a file to share");
    }

    fn read(&self, word: u64) -> u64 {
        let mut bytes = [0; 8];
        let read = self.0.read_exact_at(&mut bytes, word * 8);
        read.expect("a file to share");
        u64::from_ne_bytes(bytes)
    }
}
