//! An application behind a gateway, which counts how many requests it handles at once; and what a
//! gateway passes on to it.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::gateway::{API_KEY, Gateway, hourly, redis_url, route, rules};
use support::{Server, free_port, wait_until};

pub struct Upstream {
    address: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// While set, no request is answered.
    held: AtomicBool,
    /// While set, no answer is sent to its end.
    cut: AtomicBool,
    /// While set, answers are as long as anyone takes them.
    endless: AtomicBool,
    now: AtomicUsize,
    most: AtomicUsize,
    handled: AtomicUsize,
    last: Mutex<String>,
}

impl Upstream {
    /// Its threads end with their connections.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || state.handle(stream));
            }
        });
        Self { address, state }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether requests are kept waiting from now on, those that are there included.
    pub fn hold(&self, hold: bool) {
        self.state.held.store(hold, Ordering::SeqCst);
    }

    /// Whether answers stop in their middle from now on.
    pub fn cut(&self, cut: bool) {
        self.state.cut.store(cut, Ordering::SeqCst);
    }

    /// Whether answers never end from now on.
    pub fn endless(&self, endless: bool) {
        self.state.endless.store(endless, Ordering::SeqCst);
    }

    /// How many requests are being handled.
    pub fn now(&self) -> usize {
        self.state.now.load(Ordering::SeqCst)
    }

    /// How many have been handled, or are being handled.
    pub fn handled(&self) -> usize {
        self.state.handled.load(Ordering::SeqCst)
    }

    /// How many were being handled at once at most.
    pub fn most(&self) -> usize {
        self.state.most.load(Ordering::SeqCst)
    }
}

impl State {
    fn handle(&self, mut stream: TcpStream) {
        let Some(head) = head(&mut stream) else {
            return;
        };
        *self.last.lock().unwrap() = head;
        self.handled.fetch_add(1, Ordering::SeqCst);
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let cut = self.cut.load(Ordering::SeqCst);
        let body = r#"{"code":"from upstream"}"#;
        let head = format!(
            "HTTP/1.1 201 Created\r\nContent-Length: {}\r\nX-Own: yes\r\nX-Hop: no\r\n\
             Connection: close, x-hop\r\n\r\n",
            body.len()
        );
        if cut {
            let _ = write!(stream, "{head}{{");
        }
        if self.endless.load(Ordering::SeqCst) {
            let _ = stream.write_all(b"HTTP/1.1 201 Created\r\nConnection: close\r\n\r\n");
            while stream.write_all(&[b' '; 1 << 14]).is_ok() {}
        }
        let began = Instant::now();
        // Some work, however fast the machine is.
        while cut || self.held.load(Ordering::SeqCst) || began.elapsed() < Duration::from_millis(5)
        {
            if is_closed(&mut stream) {
                break;
            }
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
        if !cut {
            let _ = write!(stream, "{head}{body}");
        }
    }
}

fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    String::from_utf8(head).ok()
}

/// Whether the caller has closed the connection, after a moment.
fn is_closed(stream: &mut TcpStream) -> bool {
    let _ = stream.set_read_timeout(Some(Duration::from_millis(2)));
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

#[test]
fn an_admitted_request_is_passed_on() {
    let server = Server::start();
    let upstream = Upstream::start();
    let gateway = Gateway::start_with(
        &redis_url(&server),
        &rules(&[route("search", &hourly(1))]),
        &[("GATEWAY_UPSTREAM", upstream.address())],
    );
    let client = gateway.client();
    let fields = [
        ("x-own", "kept"),
        ("x-hop", "left out"),
        ("connection", "x-hop"),
    ];
    let answer = client.get_as("/search?q=1", API_KEY, &fields);
    assert_eq!(answer.code(), (201, "from upstream"));
    assert_eq!(answer.field("x-own"), Some("yes"));
    assert_eq!(answer.field("x-hop"), None);
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("0"));
    let head = upstream.state.last.lock().unwrap().to_ascii_lowercase();
    assert!(head.starts_with("get /search?q=1 http/1.1\r\n"), "{head}");
    assert!(
        head.contains(&format!("\r\nhost: {}\r\n", upstream.address())),
        "{head}"
    );
    assert!(head.contains("\r\nx-own: kept\r\n"), "{head}");
    assert!(!head.contains("hop"), "{head}");
    assert_eq!(client.get("/search").code(), (429, "rate_limited"));
    assert_eq!(upstream.most(), 1);
}

#[test]
fn an_application_that_is_not_there_is_no_limit() {
    let server = Server::start();
    let nobody = format!("127.0.0.1:{}", free_port());
    let gateway = Gateway::start_with(
        &redis_url(&server),
        &rules(&[route("search", &hourly(9))]),
        &[("GATEWAY_UPSTREAM", &nobody)],
    );
    let answer = gateway.get("/search");
    assert_eq!(answer.code(), (502, "application_unreachable"));
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("8"));
}

#[test]
fn the_application_hears_of_a_caller_that_hangs_up() {
    let server = Server::start();
    let upstream = Upstream::start();
    let gateway = Gateway::start_with(
        &redis_url(&server),
        &rules(&[route("search", &hourly(9))]),
        &[("GATEWAY_UPSTREAM", upstream.address())],
    );
    upstream.hold(true);
    let caller = gateway.open("/search");
    wait_until("a request", || upstream.now() == 1);
    drop(caller);
    wait_until("its end", || upstream.now() == 0);
}
