//! A slow way to a server: passes bytes both ways, the answers late.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

pub struct Proxy {
    port: u16,
    delay_ms: Arc<AtomicU64>,
}

impl Proxy {
    /// To a server that listens on a socket in `dir`. Its threads end with the connections.
    pub fn start(dir: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let delay_ms = Arc::new(AtomicU64::new(0));
        let (socket, delay) = (dir.join("redis.sock"), Arc::clone(&delay_ms));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                connect(client, &socket, &delay);
            }
        });
        Self { port, delay_ms }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How long an answer is held back from now on.
    pub fn delay(&self, ms: u64) {
        self.delay_ms.store(ms, Ordering::Relaxed);
    }
}

fn connect(client: TcpStream, socket: &PathBuf, delay_ms: &Arc<AtomicU64>) {
    let Ok(server) = UnixStream::connect(socket) else {
        return;
    };
    let (from, to) = (client.try_clone(), server.try_clone());
    let delay_ms = Arc::clone(delay_ms);
    thread::spawn(move || pass(from.expect("a stream"), to.expect("a stream"), || 0));
    thread::spawn(move || pass(server, client, || delay_ms.load(Ordering::Relaxed)));
}

fn pass(mut from: impl Read, mut to: impl Write, delay_ms: impl Fn() -> u64) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        thread::sleep(Duration::from_millis(delay_ms()));
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
}
