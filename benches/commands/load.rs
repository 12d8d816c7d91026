//! The load that a server is put under: redis-benchmark's, or, for what it can't send, our own.
//!
//! The server has the first processor, and redis-benchmark the last.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use redis::{Connection, Pipeline};
use serde::Deserialize;
use support::{Options, Server, send};

use crate::rows::Row;

/// How many connections there are, and how many calls each has under way.
#[derive(Clone, Copy)]
pub struct Load {
    pub connections: usize,
    pub pipeline: usize,
}

/// What a run of calls came to: not a number, if it was not measured.
pub struct Slice {
    /// The server's processor time per call.
    pub cpu_us: f64,
    pub calls_per_second: f64,
    pub p99_us: f64,
}

impl Slice {
    pub const NONE: Self = Self {
        cpu_us: f64::NAN,
        calls_per_second: f64::NAN,
        p99_us: f64::NAN,
    };
}

/// A line of redis-benchmark's `--csv`.
#[derive(Deserialize)]
struct Line {
    rps: f64,
    p99_latency_ms: f64,
}

/// The keys that redis-benchmark makes of `__rand_int__`.
pub fn keys(count: usize) -> Vec<String> {
    (0..count).map(|nth| format!("{nth:012}")).collect()
}

impl Load {
    /// Runs so many calls on the first of [`keys`], in one database.
    pub fn run(
        self,
        server: &Server,
        row: &Row,
        database: usize,
        keys: usize,
        calls: usize,
    ) -> Slice {
        let before = cpu_time(server);
        let mut slice = match row.line() {
            Some(line) => self.redis_benchmark(server, line, database, keys, calls),
            None if self.pipeline == 1 => return Slice::NONE,
            None => self.own(server, row, database, keys, calls),
        };
        let cpu = cpu_time(server).saturating_sub(before);
        slice.cpu_us = cpu.as_secs_f64() * 1e6 / calls as f64;
        slice
    }

    pub fn redis_benchmark(
        self,
        server: &Server,
        line: &str,
        database: usize,
        keys: usize,
        calls: usize,
    ) -> Slice {
        let (_, processor) = processors();
        let Self {
            connections,
            pipeline,
        } = self;
        let socket = server.dir().join("redis.sock");
        let socket = socket.display();
        let line = line.replace("KEY", "__rand_int__");
        let words = format!(
            "-c {processor} redis-benchmark --csv --precision 3 -s {socket} --dbnum {database} \
             -c {connections} -P {pipeline} -n {calls} -r {keys} {line}"
        );
        let output = Command::new("taskset")
            .args(words.split_whitespace())
            .output()
            .expect("taskset is there");
        assert!(output.status.success(), "{line}: {output:?}");
        let mut lines = csv::Reader::from_reader(&output.stdout[..]).into_deserialize();
        let line: Line = lines.next().expect("a line").expect("its figures");
        Slice {
            calls_per_second: line.rps,
            p99_us: line.p99_latency_ms * 1_000.0,
            ..Slice::NONE
        }
    }

    /// For calls of two commands, and for those that differ from time to time: redis-benchmark sends
    /// neither. It is for pipelines, where the server takes most of the time. One by one it is the
    /// client that does, and figures of two clients don't compare.
    fn own(self, server: &Server, row: &Row, database: usize, keys: usize, calls: usize) -> Slice {
        let keys = self::keys(keys);
        let batches = (0..calls / self.pipeline).map(|batch| {
            let mut pipeline = Pipeline::new();
            for nth in batch * self.pipeline..(batch + 1) * self.pipeline {
                for command in row.call(&keys[nth % keys.len()], nth / keys.len()) {
                    pipeline.add_command(command);
                }
            }
            pipeline.get_packed_pipeline()
        });
        let batches: Vec<Vec<u8>> = batches.collect();
        let connections = (0..self.connections).map(|_| {
            let mut connection = server.connect();
            send::<()>(&mut connection, &["SELECT", &database.to_string()]);
            connection
        });
        let mut connections: Vec<Connection> = connections.collect();
        let start = Instant::now();
        // The server answers connections in the order in which they have asked: waiting for each in
        // turn keeps all of them busy.
        for at in 0..batches.len() + self.connections {
            let connection = &mut connections[at % self.connections];
            if at >= self.connections {
                for _ in 0..self.pipeline * row.commands() {
                    let reply = connection.recv_response().expect("a reply");
                    assert!(row.fits(&reply), "{}: {reply:?}", row.name);
                }
            }
            if let Some(batch) = batches.get(at) {
                connection.send_packed_command(batch).expect("a server");
            }
        }
        Slice {
            calls_per_second: calls as f64 / start.elapsed().as_secs_f64(),
            ..Slice::NONE
        }
    }
}

/// How every server is started: with redis-cell too, if `REDIS_CELL_SO` names it.
pub fn options() -> Options {
    let options = Options::new().arg("databases", "64");
    match std::env::var("REDIS_CELL_SO") {
        Ok(cell) => options.arg("loadmodule", &cell),
        Err(_) => options,
    }
}

/// Starts a server that is measured. Only the thread that runs its commands is bound: others that
/// it has (AOF, lazy freeing) go where there is room.
pub fn start(options: Options) -> Server {
    let server = options.start();
    let (first, _) = processors();
    let bound = Command::new("taskset")
        .args(["-cp", &first, &server.pid().to_string()])
        .output();
    assert!(
        bound.expect("taskset is there").status.success(),
        "the server is bound"
    );
    server
}

/// The first and the last processor that there is for this benchmark.
fn processors() -> (String, String) {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mut numbers = list.expect("a list").trim().split([',', '-']);
    let first = numbers.next().expect("a processor").to_owned();
    let last = numbers.next_back().unwrap_or(&first).to_owned();
    (first, last)
}

/// The processor time that a server has taken so far, all its threads together.
pub fn cpu_time(server: &Server) -> Duration {
    let pid = server.pid().try_into().expect("a process id");
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the first call fills the number that it is given, and the second one the struct.
    let status = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) | libc::clock_gettime(clock, &raw mut time)
    };
    assert_eq!(status, 0, "the server is still there");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
