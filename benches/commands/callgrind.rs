//! Instructions per command, counted by callgrind in a server whose clock and randomness are held,
//! so that they are the same in every run.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::rows::{Row, USUAL_LIMIT, first_calls, rows, shuffled, words};
use crate::server::{self, Server};
use crate::several::several;
use crate::wire::{Client, Control, DEADLINE};

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

/// Instructions per decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count {
    /// Of the whole server, from the socket to the socket.
    pub all: f64,
    /// Of this module's own code.
    pub own: f64,
}

/// Whether there is what counting needs.
pub fn available() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok()
}

/// Counts the rows that `wanted` picks, and leaves their profiles in a folder, if there is one.
pub fn count(wanted: impl Fn(&Row) -> bool, profiles: Option<&Path>) -> Vec<(String, Count)> {
    let mut counter = Counter::start(profiles);
    let mut control = counter.server.control();
    let mut rows = rows(&mut control, USUAL_LIMIT);
    rows.extend(first_calls(USUAL_LIMIT));
    rows.extend(words());
    rows.extend(several(&mut control));
    rows.iter()
        .filter(|row| wanted(row))
        .map(|row| (row.name.clone(), counter.count(&mut control, row)))
        .collect()
}

struct Counter {
    server: Server,
    client: Client,
    page: Page,
    /// The instant, in µs: a minute on for each row, so that all meet the same part of one.
    now_us: u64,
    module: PathBuf,
    profiles: Option<PathBuf>,
}

/// What the server under callgrind shares with this process; `steady.c` tells more.
struct Page(File);

impl Page {
    fn create(path: &Path) -> Self {
        let page = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .expect("a file to share");
        let page = Self(page);
        page.write(0, T0_US);
        page.write(1, 0);
        page
    }

    fn write(&self, word: u64, value: u64) {
        self.0
            .write_all_at(&value.to_ne_bytes(), word * 8)
            .expect("a file to share");
    }

    fn read(&self, word: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0
            .read_exact_at(&mut bytes, word * 8)
            .expect("a file to share");
        u64::from_ne_bytes(bytes)
    }
}

impl Counter {
    fn start(profiles: Option<&Path>) -> Self {
        let shared = tempfile::NamedTempFile::new().expect("a temporary file");
        let page = Page::create(shared.path());
        let mut command = Command::new("valgrind");
        command
            .args(["--tool=callgrind", "--callgrind-out-file=counts.%p"])
            // REDIS_SERVER may name a script that becomes the server.
            .arg("--trace-children=yes")
            .arg(server::server_binary())
            .args(server::arguments())
            // It would wait by a clock that is held, which is no waiting.
            .args(["--jemalloc-bg-thread", "no"])
            .args(["--enable-debug-command", "yes"])
            .env("LD_PRELOAD", steady_library())
            .env("RL_BENCH_PAGE", shared.path());
        let server = Server::spawn(&mut command);
        let client = Client::connect(&server.socket);
        // A connection whose replies come as thick as these keeps a large buffer for them. Here
        // its server would take it for idle, as the clock leaps from row to row.
        server.control().line("DEBUG REPLYBUFFER RESIZING 0");
        Self {
            client,
            server,
            page,
            now_us: T0_US,
            module: server::module(),
            profiles: profiles.map(Path::to_owned),
        }
    }

    fn count(&mut self, control: &mut Control, row: &Row) -> Count {
        let keys = shuffled(match row.calls_per_key {
            Some(1) => NEW_KEYS,
            _ => KEYS.min(row.keys),
        });
        self.now_us += 60_000_000;
        let now_us = self.now_us;
        self.page.write(0, now_us);
        row.make(control, &keys, now_us);
        let turns = TURNS.min(row.calls_per_key.unwrap_or(TURNS));
        // The first turn meets state that no call has touched yet, unless that is all it can meet.
        let warm = if row.calls_per_key.is_none() {
            keys.len()
        } else {
            0
        };
        let calls = row.calls(&keys, 0, keys.len() * turns + warm);
        let batches = (calls.len() - warm) / PIPELINE;
        let start = calls.len() - batches * PIPELINE;
        for at in (0..start).step_by(PIPELINE) {
            self.client.send(&calls, at, PIPELINE.min(start - at));
            self.client.receive(&calls);
        }
        self.ask(control, 1);
        for batch in 0..batches {
            self.page.write(0, now_us + (batch as u64 + 1) * BATCH_US);
            self.client.send(&calls, start + batch * PIPELINE, PIPELINE);
            self.client.receive(&calls);
        }
        self.ask(control, 2);
        let decisions = (batches * PIPELINE) as f64;
        let (all, own) = self.read(&row.name);
        Count {
            all: all as f64 / decisions,
            own: own as f64 / decisions,
        }
    }

    /// Has the counts set to zero (1) or written (2).
    fn ask(&self, control: &mut Control, what: u64) {
        self.page.write(1, what);
        // Wakes the server up, which then looks.
        control.must("PING");
        let deadline = Instant::now() + DEADLINE;
        while self.page.read(1) != 0 {
            assert!(Instant::now() < deadline, "callgrind does not answer");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reads and removes what was written: all instructions, and those of the module.
    fn read(&self, name: &str) -> (u64, u64) {
        let dump = fs::read_dir(self.server.dir())
            .expect("the server's folder")
            .map(|entry| entry.expect("a file").path())
            .find(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with(&format!("counts.{}.", self.server.pid()))
            })
            .expect("callgrind has written its counts");
        let text = fs::read_to_string(&dump).expect("counts");
        if let Some(profiles) = &self.profiles {
            let name: String = name
                .split(|char: char| !char.is_alphanumeric())
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("-");
            fs::copy(&dump, profiles.join(name)).expect("a folder for profiles");
        }
        fs::remove_file(&dump).expect("a file");
        totals(&text, &self.module)
    }
}

/// All instructions of a profile, and those of one object file.
fn totals(text: &str, object: &Path) -> (u64, u64) {
    let object = object.to_string_lossy();
    let (mut all, mut own) = (0, 0);
    // Names are given once, and by number after that.
    let mut number = None;
    let mut inside = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(named) = line.strip_prefix("ob=") {
            let (id, name) = named.split_once(' ').unwrap_or((named, ""));
            if name == object {
                number = Some(id.to_owned());
            }
            inside = number.as_deref() == Some(id);
        } else if let Some(called) = line.strip_prefix("cob=") {
            match called.split_once(' ') {
                Some((id, name)) if name == object => number = Some(id.to_owned()),
                _ => {}
            }
        } else if line.starts_with("calls=") {
            // What the callee took stands with the callee.
            lines.next();
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split(' ').nth(1);
            let cost: u64 = cost.and_then(|cost| cost.parse().ok()).unwrap_or(0);
            all += cost;
            own += if inside { cost } else { 0 };
        }
    }
    (all, own)
}

/// The library that makes a server's counts repeat, compiled anew.
fn steady_library() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/commands/steady.c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("steady.so");
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"])
        .arg("-o")
        .args([&library, &source])
        .status();
    assert!(
        status.expect("a C compiler runs").success(),
        "the library that holds clock and randomness compiles"
    );
    library
}
