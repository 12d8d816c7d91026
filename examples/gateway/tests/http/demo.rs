//! What `make demo` shows, and that nothing of it stays.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use tempfile::TempDir;

use crate::gateway::{BINARY, kill_group};
use support::{end_of, module, server_binary, wait_until};

/// A demo in a process group of its own, with a folder for its files.
struct Demo {
    child: Child,
    temporary: TempDir,
    shown: TempDir,
}

impl Demo {
    fn start() -> Self {
        let [temporary, shown] = [(); 2].map(|()| TempDir::new().expect("a temporary folder"));
        let output = File::create(shown.path().join("output")).expect("a file");
        let child = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/demo"))
            .env("TMPDIR", temporary.path())
            .env("REDIS_SERVER", server_binary())
            .env("MODULE", module())
            .env("GATEWAY", BINARY)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output)
            .spawn()
            .expect("bash runs");
        Self {
            child,
            temporary,
            shown,
        }
    }

    fn wait(&mut self) -> ExitStatus {
        end_of("the demo", &mut self.child)
    }

    fn shown(&self) -> String {
        fs::read_to_string(self.shown.path().join("output")).expect("text")
    }

    /// Neither a process nor a file.
    fn assert_nothing_left(&self) {
        wait_until("the end of all processes", || {
            !kill_group(self.child.id(), 0)
        });
        assert_eq!(fs::read_dir(self.temporary.path()).unwrap().count(), 0);
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        kill_group(self.child.id(), libc::SIGKILL);
        let _ = self.child.wait();
    }
}

#[test]
fn the_demo_shows_four_answers_and_leaves_nothing() {
    let mut demo = Demo::start();
    let status = demo.wait();
    let shown = demo.shown();
    assert!(status.success(), "{shown}");
    let lines = |start: &str| -> Vec<String> {
        let lines = shown.lines().filter(|line| line.starts_with(start));
        lines.map(|line| line.trim_end().to_owned()).collect()
    };
    let [ok, refused] = ["HTTP/1.1 200 OK", "HTTP/1.1 429 Too Many Requests"];
    assert_eq!(lines("HTTP/"), [ok, ok, ok, refused], "{shown}");
    let policy = "ratelimit-policy: \"search\";q=3;w=60";
    assert_eq!(lines("ratelimit-policy:"), [policy; 4], "{shown}");
    assert_eq!(lines("retry-after:").len(), 1, "{shown}");
    demo.assert_nothing_left();
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let mut demo = Demo::start();
    // On a busy machine it may be over before anyone has looked.
    wait_until("a server", || {
        let mut folders = fs::read_dir(demo.temporary.path()).unwrap();
        folders.any(|folder| folder.unwrap().path().join("redis.sock").exists())
            || demo.child.try_wait().unwrap().is_some()
    });
    kill_group(demo.child.id(), libc::SIGINT);
    demo.wait();
    demo.assert_nothing_left();
}
