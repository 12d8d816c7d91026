//! A server of its own: started, pinned, measured, ended.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::wire::{Control, DEADLINE};

pub fn server_binary() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// The module as users get it: `RL_MODULE`, or the release build.
pub fn module() -> PathBuf {
    let path = std::env::var_os("RL_MODULE").map_or_else(
        || {
            let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
                || Path::new(env!("CARGO_MANIFEST_DIR")).join("target"),
                PathBuf::from,
            );
            target.join("release/libredis_rl.so")
        },
        PathBuf::from,
    );
    fs::canonicalize(&path)
        .unwrap_or_else(|_| panic!("build the module first: no {}", path.display()))
}

/// The arguments with which every server is started, in its folder.
pub fn arguments() -> Vec<String> {
    let mut args: Vec<String> = [
        "--unixsocket",
        "redis.sock",
        "--save",
        "",
        "--dir",
        ".",
        "--logfile",
        "log",
        "--databases",
        "64",
        "--loadmodule",
    ]
    .map(str::to_owned)
    .into();
    args.push(module().display().to_string());
    if let Ok(cell) = std::env::var("REDIS_CELL_SO") {
        args.extend(["--loadmodule".to_owned(), cell]);
    }
    args
}

/// A running server, ended when it is dropped.
pub struct Server {
    child: Child,
    dir: TempDir,
    pub socket: PathBuf,
    /// Process time is read from this clock, in ns.
    cpu: libc::clockid_t,
}

impl Server {
    /// One that is measured.
    pub fn start(extra: &[&str]) -> Self {
        let server = Self::start_beside(extra);
        // The server on the first processor, the load on the last. Only the thread that runs the
        // commands is bound: others that the server has (AOF, lazy freeing) go where there is room.
        let processors = processors();
        bind(server.pid(), &processors[..1]);
        bind(0, &processors[processors.len() - 1..]);
        server
    }

    /// One that only goes along.
    pub fn start_beside(extra: &[&str]) -> Self {
        let mut command = Command::new(server_binary());
        command.args(arguments()).args(extra);
        Self::spawn(&mut command)
    }

    /// Runs a command that becomes, or runs, a server with [`arguments`].
    pub fn spawn(command: &mut Command) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        command
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if !command.get_args().any(|arg| arg == "--port") {
            command.args(["--port", "0"]);
        }
        let processors = processors();
        // SAFETY: two system calls between fork and exec, which touch no memory but the set above:
        // the server ends with the thread that started it, even if that is killed, and is not
        // bound as that may be.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                bind(0, processors);
                Ok(())
            });
        }
        let child = command.spawn().expect("a server starts");
        let mut cpu = 0;
        // SAFETY: the function fills the number it is given.
        let status = unsafe { libc::clock_getcpuclockid(child.id() as libc::pid_t, &raw mut cpu) };
        assert_eq!(status, 0, "a process has a clock");
        let socket = dir.path().join("redis.sock");
        let mut server = Self {
            child,
            dir,
            socket,
            cpu,
        };
        let deadline = Instant::now() + DEADLINE;
        while Control::connect(&server.socket).is_err() {
            let ended = server.child.try_wait().expect("a child").is_some();
            assert!(
                !ended && Instant::now() < deadline,
                "no server came up: {}",
                fs::read_to_string(server.dir().join("log")).unwrap_or_default()
            );
            thread::sleep(Duration::from_millis(10));
        }
        server
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn control(&self) -> Control {
        Control::connect(&self.socket).expect("a live server")
    }

    /// The processor time that the server has taken so far, all its threads together.
    pub fn cpu_time(&self) -> Duration {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the function fills the struct it is given.
        let status = unsafe { libc::clock_gettime(self.cpu, &raw mut time) };
        assert_eq!(status, 0, "the server is still there");
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `--version` says, in short: `redis-7.0.15 build=…`.
pub fn version() -> (String, String) {
    let output = Command::new(server_binary())
        .arg("--version")
        .output()
        .expect("REDIS_SERVER names a server");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let field = |name: &str| {
        text.split_whitespace()
            .find_map(|word| word.strip_prefix(name))
            .unwrap_or("?")
            .to_owned()
    };
    let kind = text.split_whitespace().next().unwrap_or("?").to_lowercase();
    (format!("{kind}-{}", field("v=")), field("build="))
}

/// The processors that there are for this benchmark.
fn processors() -> &'static [usize] {
    static PROCESSORS: OnceLock<Vec<usize>> = OnceLock::new();
    PROCESSORS.get_or_init(|| {
        // SAFETY: all zeroes is an empty set, which the call fills.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
            (0..libc::CPU_SETSIZE as usize)
                .filter(|processor| libc::CPU_ISSET(*processor, &set))
                .collect()
        }
    })
}

/// Binds a thread, 0 being this one, to processors.
fn bind(thread: u32, processors: &[usize]) {
    // SAFETY: the set is a plain value, and the processors exist.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for processor in processors {
            libc::CPU_SET(*processor, &mut set);
        }
        let size = size_of::<libc::cpu_set_t>();
        libc::sched_setaffinity(thread as libc::pid_t, size, &raw const set);
    }
}
