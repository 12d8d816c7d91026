//! What the tests of the module and those of the gateway share.
//!
//! | module | owns |
//! |---|---|
//! | `call` | policies as raw numbers, the worked examples' instant, and the ends of the clock |
//! | `forms` | one call of each form, as a client sends it |
//! | `random` | a random source |
//! | the rest | servers, and speaking to them |
//!
//! A server of its own for each test: own folder, unix socket, deadline, and, if the test wants
//! it, a wall clock that the test holds. Nothing is left running, and the server's log is shown
//! when a test fails.
//!
//! `REDIS_SERVER` names the binary, `redis-server` unless set. `REDIS_URL` names a server that is
//! running already, for the tests in `any`, which then take turns on it.

#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::new_without_default,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

pub mod call;
pub mod forms;
pub mod random;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Connection, ConnectionLike, FromRedisValue, RedisError, Value};
use tempfile::TempDir;

pub use call::{SECOND, T0};

/// How long anything may take before it counts as hung.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// What the module says of state that is none of the command's.
pub const INVALID_STATE: &str = "INVALIDSTATE invalid counter state, key left unchanged";
/// What a server says of a value of another type.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

pub fn server_binary() -> OsString {
    std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// The module as users get it: `RL_MODULE`, or the release build, which is brought up to date.
pub fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        if let Some(path) = std::env::var_os("RL_MODULE") {
            return fs::canonicalize(path).expect("RL_MODULE names a file");
        }
        let cargo = ["build", "--release", "--lib", "--package", "redis-rl"];
        let status = Command::new(env!("CARGO"))
            .args(cargo)
            .args(["--locked", "--quiet"])
            .current_dir(top())
            .status();
        assert!(status.expect("cargo runs").success(), "the module builds");
        target().join("release/libredis_rl.so")
    })
}

/// The top folder of the project.
fn top() -> &'static Path {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    top.expect("this crate is two folders below it")
}

/// Where cargo builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(top().join("target"), PathBuf::from)
}

/// A C library whose source lies in this crate's folder, compiled once.
pub fn c_library(name: &'static str) -> PathBuf {
    static COMPILED: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().expect("every library compiles");
    let compile = || {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{name}.c"));
        let folder = target().join("tmp");
        fs::create_dir_all(&folder).expect("a folder for libraries");
        let library = folder.join(format!("{name}-{}.so", std::process::id()));
        let compiler = std::env::var_os("RL_CC").unwrap_or_else(|| "cc".into());
        let status = Command::new(compiler)
            .args([
                "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o",
            ])
            .args([&library, &source])
            .status();
        assert!(
            status.expect("a C compiler runs").success(),
            "{name}.c compiles"
        );
        library
    };
    compiled.entry(name).or_insert_with(compile).clone()
}

/// A running server.
pub struct Server {
    url: String,
    process: Option<Process>,
    control: Mutex<Option<Connection>>,
    _turn: Option<MutexGuard<'static, ()>>,
}

/// A server of the test's own.
struct Process {
    child: Child,
    dir: TempDir,
    port: u16,
    clock: Option<File>,
}

/// How a server is to be started.
#[derive(Clone)]
#[must_use]
pub struct Options {
    args: Vec<String>,
    module: bool,
    under: Vec<String>,
    clock: Option<u64>,
    port: u16,
    preload: Vec<PathBuf>,
    env: Vec<(&'static str, PathBuf)>,
    address_space: Option<u64>,
}

impl Options {
    pub fn new() -> Self {
        Self {
            args: Vec::new(),
            module: true,
            under: Vec::new(),
            clock: None,
            port: 0,
            preload: Vec::new(),
            env: Vec::new(),
            address_space: None,
        }
    }

    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.args.extend([format!("--{name}"), value.to_owned()]);
        self
    }

    /// One more word of the argument before.
    pub fn word(mut self, word: &str) -> Self {
        self.args.push(word.to_owned());
        self
    }

    /// Hold the wall clock, at first at `us` µs since the epoch. A key that is over then goes
    /// when it is next looked at, and not before.
    pub fn clock(mut self, us: u64) -> Self {
        self.clock = Some(us);
        self
    }

    /// Load a C library of this crate's folder before all others.
    pub fn preload(mut self, name: &'static str) -> Self {
        self.preload.push(c_library(name));
        self
    }

    pub fn env(mut self, name: &'static str, path: &Path) -> Self {
        self.env.push((name, path.to_owned()));
        self
    }

    /// Let the server have so many bytes of memory, used or not, and no more.
    pub fn address_space(mut self, bytes: u64) -> Self {
        self.address_space = Some(bytes);
        self
    }

    /// Run the server under a program, `valgrind` for one: its words, before those of the server.
    pub fn under(mut self, words: &[&str]) -> Self {
        self.under
            .extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// A plain server, without the module.
    pub fn without_module(mut self) -> Self {
        self.module = false;
        self
    }

    /// Listen on a free port of 127.0.0.1 too.
    pub fn tcp(mut self) -> Self {
        self.port = free_port();
        self
    }

    /// Listen on a port, and give a replica its copy as soon as it asks.
    pub fn primary(self) -> Self {
        self.tcp().arg("repl-diskless-sync-delay", "0")
    }

    pub fn start(self) -> Server {
        self.start_in(TempDir::new().expect("a temporary folder"))
    }

    /// Starts in a folder that a server may have left data in.
    pub fn start_in(self, dir: TempDir) -> Server {
        let mut server = self.spawn_in(dir);
        let deadline = Instant::now() + DEADLINE;
        let ready = loop {
            if server.try_connect().is_ok() {
                break true;
            }
            if Instant::now() > deadline || server.has_ended() {
                break false;
            }
            thread::sleep(Duration::from_millis(5));
        };
        assert!(ready, "no server came up: {}", server.log());
        if server.process().clock.is_some() {
            // Redis 7.2 and later look for keys at their end, to the millisecond, and delete them at
            // any moment: a test would see a key or not, as chance has it.
            send::<()>(&mut server.connect(), &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        }
        server
    }

    /// Starts without waiting for an answer.
    pub fn spawn_in(self, dir: TempDir) -> Server {
        let mut words = self
            .under
            .into_iter()
            .map(OsString::from)
            .chain([server_binary()]);
        let mut command = Command::new(words.next().expect("the server at least"));
        command
            .args(words)
            .current_dir(dir.path())
            .args([
                "--port",
                &self.port.to_string(),
                "--unixsocket",
                "redis.sock",
                "--save",
                "",
            ])
            .args(["--dir", ".", "--logfile", "log", "--loglevel", "notice"]);
        if self.module {
            command.arg("--loadmodule").arg(module());
        }
        command
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut preload = self.preload;
        let clock = self.clock.map(|us| {
            let path = dir.path().join("clock");
            let clock = File::create(&path).expect("a clock file");
            set_clock(&clock, us);
            command.env("RL_TEST_CLOCK", path);
            command.args(["--enable-debug-command", "yes"]);
            preload.push(c_library("clock"));
            clock
        });
        if !preload.is_empty() {
            let paths = std::env::join_paths(preload).expect("paths without a colon");
            command.env("LD_PRELOAD", paths);
        }
        command.envs(self.env);
        end_with_this_thread(&mut command);
        if let Some(bytes) = self.address_space {
            limit_address_space(&mut command, bytes);
        }
        let child = command
            .spawn()
            .expect("a server starts; REDIS_SERVER may name another binary");
        let url = format!("redis+unix://{}", dir.path().join("redis.sock").display());
        let process = Process {
            child,
            dir,
            port: self.port,
            clock,
        };
        Server {
            url,
            process: Some(process),
            control: Mutex::new(None),
            _turn: None,
        }
    }
}

fn set_clock(clock: &File, us: u64) {
    clock
        .write_all_at(&us.to_ne_bytes(), 0)
        .expect("a clock that can be set");
}

/// A port of 127.0.0.1 that nobody listens on.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

impl Server {
    /// A server as the machine's clock has it: `REDIS_URL`, emptied, or one of the test's own.
    pub fn start() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let Ok(url) = std::env::var("REDIS_URL") else {
            return Options::new().start();
        };
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let server = Self {
            url,
            process: None,
            control: Mutex::new(None),
            _turn: Some(turn),
        };
        send::<()>(&mut server.connect(), &["FLUSHALL"]);
        server
    }

    /// A server whose wall clock stands at `us` until [`Self::set_clock`].
    pub fn at(us: u64) -> Self {
        Options::new().clock(us).start()
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("a server of the test's own")
    }

    fn process_mut(&mut self) -> &mut Process {
        self.process.as_mut().expect("a server of the test's own")
    }

    /// Sets the wall clock, and waits until the server has looked at it.
    pub fn set_clock(&self, us: u64) {
        let clock = self
            .process()
            .clock
            .as_ref()
            .expect("a server with a held clock");
        set_clock(clock, us);
        let mut control = self.control.lock().expect("no test has failed here");
        let control = control.get_or_insert_with(|| self.connect());
        let deadline = Instant::now() + DEADLINE;
        loop {
            let (seconds, micros): (u64, u64) = send(control, &["TIME"]);
            if seconds * SECOND + micros == us {
                return;
            }
            assert!(Instant::now() < deadline, "the server's clock can't be set");
        }
    }

    /// The folder that the server runs in.
    pub fn dir(&self) -> &Path {
        self.process().dir.path()
    }

    /// The port of a server that listens on one.
    pub fn port(&self) -> u16 {
        self.process().port
    }

    pub fn pid(&self) -> u32 {
        self.process().child.id()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir().join("log")).unwrap_or_default()
    }

    pub fn try_connect(&self) -> Result<Connection, RedisError> {
        connect(&self.url)
    }

    pub fn connect(&self) -> Connection {
        self.try_connect().expect("a connection")
    }

    /// A connection that speaks RESP3.
    pub fn connect_resp3(&self) -> Connection {
        connect(&format!("{}?protocol=resp3", self.url)).expect("a connection")
    }

    /// A connection of a user who has these rights, and no others.
    pub fn connect_as(&self, rights: &str) -> Connection {
        let mut rules = vec!["ACL", "SETUSER", "user", "reset", "on", "nopass"];
        rules.extend(rights.split(' '));
        send::<()>(&mut self.connect(), &rules);
        let mut user = self.connect();
        send::<()>(&mut user, &["AUTH", "user", "any"]);
        user
    }

    fn has_ended(&mut self) -> bool {
        self.process_mut()
            .child
            .try_wait()
            .expect("a child")
            .is_some()
    }

    /// Waits until the server has ended by itself, and tells how.
    pub fn wait(&mut self) -> ExitStatus {
        end_of("the server", &mut self.process_mut().child)
    }

    /// Shuts the server down (`SAVE` or `NOSAVE`) and gives the folder with its data.
    pub fn stop(mut self, how: &str) -> TempDir {
        // The connection ends without a reply.
        let _ = try_send::<()>(&mut self.connect(), &["SHUTDOWN", how]);
        assert!(self.wait().success(), "{}", self.log());
        self.process.take().expect("a server of the test's own").dir
    }

    /// Ends the server as a crash would and gives the folder with its data.
    pub fn kill(mut self) -> TempDir {
        let mut process = self.process.take().expect("a server of the test's own");
        process.child.kill().expect("a running server");
        process.child.wait().expect("a child");
        process.dir
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.child.kill();
            let _ = process.child.wait();
            if thread::panicking() {
                eprintln!("--- the server's log\n{}---", self.log());
            }
        }
    }
}

/// Asks until the answer is yes.
pub fn wait_until(what: &str, mut yes: impl FnMut() -> bool) {
    wait_for(what, || yes().then_some(()));
}

/// Asks until there is an answer.
fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited for {what} in vain");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a process has ended by itself, and tells how.
pub fn end_of(what: &str, child: &mut Child) -> ExitStatus {
    let what = format!("the end of {what}");
    wait_for(&what, || child.try_wait().expect("a child"))
}

/// A process that ends with the thread that starts it, even if that is killed.
pub fn end_with_this_thread(command: &mut Command) {
    // SAFETY: one system call between fork and exec, which touches no memory.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

fn limit_address_space(command: &mut Command, bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: one system call between fork and exec, which reads what was moved into the closure.
    unsafe {
        command.pre_exec(
            move || match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
}

fn connect(url: &str) -> Result<Connection, RedisError> {
    let mut connection = Client::open(url)?.get_connection_with_timeout(DEADLINE)?;
    connection.set_read_timeout(Some(DEADLINE))?;
    redis::cmd("PING").exec(&mut connection)?;
    Ok(connection)
}

/// Sends words as one command.
pub fn send<T: FromRedisValue>(connection: &mut impl ConnectionLike, words: &[&str]) -> T {
    try_send(connection, words).unwrap_or_else(|error| panic!("{words:?}: {}", error_text(&error)))
}

pub fn try_send<T: FromRedisValue>(
    connection: &mut impl ConnectionLike,
    words: &[&str],
) -> Result<T, RedisError> {
    let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    send_bytes(connection, &bytes)
}

pub fn send_bytes<T: FromRedisValue>(
    connection: &mut impl ConnectionLike,
    words: &[&[u8]],
) -> Result<T, RedisError> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command.query(connection)
}

/// Sends a line of words as one command and gives the five integers of its reply.
pub fn ask(connection: &mut impl ConnectionLike, line: &str) -> [i64; 5] {
    let words: Vec<&str> = line.split_whitespace().collect();
    send::<Vec<i64>>(connection, &words)
        .try_into()
        .expect("five integers")
}

/// What a call on several limits is answered: `allowed`, `retry_after_ms`, and the five integers of
/// each limit.
pub type AnswerOfAll = (i64, i64, Vec<[i64; 5]>);

/// Sends a line of words as one call on several limits.
pub fn ask_all(connection: &mut impl ConnectionLike, line: &str) -> AnswerOfAll {
    let words: Vec<&str> = line.split_whitespace().collect();
    send(connection, &words)
}

/// Sends a line of words as one command and gives the error that it comes to.
pub fn error(connection: &mut impl ConnectionLike, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    match try_send::<Value>(connection, &words) {
        Ok(reply) => panic!("{line}: no error but {reply:?}"),
        Err(error) => error_text(&error),
    }
}

/// An error reply as the server sent it.
pub fn error_text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

/// Everything that a call could change of a key: value, type, expiry.
#[derive(Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub dump: Option<Vec<u8>>,
    pub kind: String,
    pub expire_at_ms: i64,
}

pub fn snapshot(connection: &mut impl ConnectionLike, key: &str) -> Snapshot {
    Snapshot {
        dump: send(connection, &["DUMP", key]),
        kind: send(connection, &["TYPE", key]),
        expire_at_ms: send(connection, &["PEXPIRETIME", key]),
    }
}

/// A section of `INFO`.
pub fn info_text(connection: &mut impl ConnectionLike, section: &str) -> String {
    match send(connection, &["INFO", section]) {
        Value::BulkString(bytes) => String::from_utf8(bytes).expect("text"),
        Value::VerbatimString { text, .. } => text,
        other => panic!("no text but {other:?}"),
    }
}

/// A number from `INFO`.
pub fn info(connection: &mut impl ConnectionLike, section: &str, field: &str) -> i64 {
    let text = info_text(connection, section);
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or_else(|| panic!("INFO has {field}"))
}

/// The address of a server for an application.
pub fn redis_url(server: &Server) -> String {
    match server.port() {
        0 => format!("redis+unix://{}", server.dir().join("redis.sock").display()),
        port => format!("redis://127.0.0.1:{port}"),
    }
}

/// Sends a signal to a process.
pub fn kill(pid: u32, signal: libc::c_int) {
    let pid = pid.try_into().expect("a process id");
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "a running process");
}

/// All keys of a server, in order.
pub fn keys(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = send(&mut server.connect(), &["KEYS", "*"]);
    keys.sort();
    keys
}

/// How often a server has been sent a command.
pub fn calls(server: &Server, command: &str) -> u64 {
    let statistics = info_text(&mut server.connect(), "commandstats");
    let start = format!("cmdstat_{command}:calls=");
    let calls = statistics.lines().find_map(|line| {
        let (calls, _) = line.strip_prefix(&start)?.split_once(',')?;
        calls.parse().ok()
    });
    calls.unwrap_or(0)
}

/// What the server has counted as changes since it last saved.
pub fn changes(connection: &mut impl ConnectionLike) -> i64 {
    info(connection, "persistence", "rdb_changes_since_last_save")
}

/// Makes a server a replica of `primary`, which listens on a port, and waits for its copy.
pub fn follow(replica: &Server, primary: &Server) {
    let mut connection = replica.connect();
    let port = primary.port().to_string();
    send::<()>(&mut connection, &["REPLICAOF", "127.0.0.1", &port]);
    wait_until("a replica that follows", || {
        let role: Vec<Value> = send(&mut connection, &["ROLE"]);
        role.get(3) == Some(&Value::BulkString(b"connected".to_vec()))
    });
    caught_up(replica, primary);
}

/// Waits until a replica has all that its primary has sent.
pub fn caught_up(replica: &Server, primary: &Server) {
    let (mut replica, mut primary) = (replica.connect(), primary.connect());
    wait_until("a replica that has caught up", || {
        info(&mut replica, "replication", "slave_repl_offset")
            == info(&mut primary, "replication", "master_repl_offset")
    });
}
