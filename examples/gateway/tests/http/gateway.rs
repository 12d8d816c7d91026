//! A gateway of its own for each test: own folder, port, rules and deadline. Nothing is left
//! running, and its log is shown when a test fails.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use support::{DEADLINE, end_of, end_with_this_thread, wait_until};
pub use support::{calls, keys, kill, redis_url};

/// Tenants and their API keys. The third has two.
pub const API_KEYS: [(&str, &str); 4] = [
    ("first@example.com", "key-of-the-first"),
    ("second@example.com", "key-of-the-second"),
    ("third@example.com", "key-of-the-third"),
    ("third@example.com", "other-key-of-the-third"),
];

/// The API key of the tenant that most tests call as.
pub const API_KEY: &str = API_KEYS[0].1;

/// The application, as cargo builds it for these tests.
pub const BINARY: &str = env!("CARGO_BIN_EXE_gateway");

/// `GET /<name>` with one limit of that name, which fails closed.
pub fn route(name: &str, policy: &Value) -> Value {
    route_with(name, &[json!({ "name": name, "policy": policy })])
}

/// The same with these limits. Refusals are not remembered: a gateway times them by its own clock,
/// and many tests set that of the server.
pub fn route_with(name: &str, limits: &[Value]) -> Value {
    json!({
        "method": "GET",
        "path": format!("/{name}"),
        "limits": limits,
        "on_failure": "closed",
        "remember_refusals": false,
    })
}

/// A limit in windows of an hour: none ends while a test runs.
pub fn hourly(limit: u64) -> Value {
    json!({ "algorithm": "fixed", "limit": limit, "window_ms": 3_600_000 })
}

/// Rules for all of [`API_KEYS`]. A time-out that only a test about time-outs meets.
pub fn rules(routes: &[Value]) -> Value {
    let tenants: Vec<Value> = API_KEYS
        .iter()
        .map(|(id, api_key)| {
            let hash = hex::encode(Sha256::digest(api_key));
            json!({ "id": id, "api_keys_sha256": [hash] })
        })
        .collect();
    json!({ "processes": 1, "timeout_ms": 10_000, "tenants": tenants, "routes": routes })
}

/// A running gateway.
pub struct Gateway {
    child: Child,
    dir: TempDir,
    url: String,
}

impl Gateway {
    pub fn start(redis_url: &str, rules: &Value) -> Self {
        Self::start_with(redis_url, rules, &[])
    }

    pub fn start_with(redis_url: &str, rules: &Value, settings: &[(&str, &str)]) -> Self {
        let mut gateway = Self::spawn(redis_url, &rules.to_string(), settings);
        let deadline = Instant::now() + DEADLINE;
        let address = loop {
            let log = gateway.log();
            // A line without its end may be half an address.
            let said = log.split_inclusive('\n').find_map(|line| {
                line.strip_prefix("gateway: listening on ")?
                    .strip_suffix('\n')
            });
            if let Some(address) = said {
                break address.to_owned();
            }
            let ended = gateway.child.try_wait().expect("a child").is_some();
            assert!(!ended && Instant::now() < deadline, "no gateway came up");
            thread::sleep(Duration::from_millis(5));
        };
        gateway.url = format!("http://{address}");
        gateway
    }

    /// Starts without waiting for anything. The rules are read again at SIGHUP alone, unless
    /// `settings` say otherwise: an empty one is left out.
    pub fn spawn(redis_url: &str, rules: &str, settings: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        fs::write(dir.path().join("rules.json"), rules).expect("rules");
        let log = File::create(dir.path().join("log")).expect("a log");
        let mut command = Command::new(BINARY);
        command
            .current_dir(dir.path())
            .env("GATEWAY_LISTEN", "127.0.0.1:0")
            .env("GATEWAY_REDIS", redis_url)
            .env("GATEWAY_RULES", "rules.json")
            .env("GATEWAY_SECRET", "the secret of all tests")
            .env("GATEWAY_POLL_MS", "3600000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        for (name, value) in settings {
            match *value {
                "" => command.env_remove(name),
                value => command.env(name, value),
            };
        }
        end_with_this_thread(&mut command);
        let child = command.spawn().expect("a gateway starts");
        Self {
            child,
            dir,
            url: String::new(),
        }
    }

    pub fn client(&self) -> Client {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(DEADLINE));
        Client {
            agent: config.build().into(),
            url: self.url.clone(),
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// `GET` as the first tenant, on a connection of its own.
    pub fn get(&self, path: &str) -> Answer {
        self.client().get(path)
    }

    /// Sends a request. Its caller hangs up when the connection is dropped.
    pub fn open(&self, path: &str) -> TcpStream {
        let address = self.url.strip_prefix("http://").expect("a URL");
        let mut stream = TcpStream::connect(address).expect("a connection");
        let lines = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {API_KEY}\r\n\r\n"
        );
        stream.write_all(lines.as_bytes()).expect("a request");
        let _ = stream.set_read_timeout(Some(DEADLINE));
        stream
    }

    /// Sends requests on one connection, without waiting in between, and tells how many of them were
    /// refused.
    pub fn refused(&self, paths: impl Iterator<Item = String> + Send) -> usize {
        let mut reader = self.open("/no-such-route");
        let mut writer = BufWriter::new(reader.try_clone().expect("a stream"));
        thread::scope(|scope| {
            scope.spawn(move || {
                for path in paths {
                    write!(writer, "GET {path} HTTP/1.1\r\nHost: x\r\n").expect("a request");
                    write!(writer, "Authorization: Bearer {API_KEY}\r\n\r\n").expect("a request");
                }
                write!(
                    writer,
                    "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                )
                .expect("the last");
                writer.flush().expect("requests");
            });
            let mut answers = String::new();
            reader.read_to_string(&mut answers).expect("answers");
            answers.matches("HTTP/1.1 429").count()
        })
    }

    /// Sends a request and closes the connection after `patience`, if there is no answer yet.
    pub fn give_up(&self, path: &str, patience: Duration) {
        let mut stream = self.open(path);
        let _ = stream.set_read_timeout(Some(patience));
        let _ = stream.read(&mut [0; 1]);
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// How often a line with these words has been logged.
    pub fn logged(&self, words: &str) -> usize {
        self.log().matches(words).count()
    }

    /// The folder that the gateway runs in, with its `rules.json`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn signal(&self, signal: libc::c_int) {
        kill(self.child.id(), signal);
    }

    /// Puts other rules in the file, has them read, and waits until it is said what came of it.
    pub fn reload(&self, rules: &str, outcome: &str) {
        let before = self.logged(outcome);
        fs::write(self.dir.path().join("rules.json"), rules).expect("rules");
        self.signal(libc::SIGHUP);
        wait_until(outcome, || self.logged(outcome) > before);
    }

    /// Waits until the process has ended by itself, and tells whether all was well.
    pub fn wait(&mut self) -> bool {
        end_of("the gateway", &mut self.child).success()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- the gateway's log\n{}---", self.log());
        }
    }
}

/// Sends a signal to all processes of a group, 0 being none. False if there is none left.
pub fn kill_group(leader: u32, signal: libc::c_int) -> bool {
    let leader: libc::pid_t = leader.try_into().expect("a process id");
    // SAFETY: no memory is passed.
    unsafe { libc::kill(-leader, signal) == 0 }
}

/// One caller, who keeps connections open.
pub struct Client {
    agent: ureq::Agent,
    url: String,
}

impl Client {
    pub fn get(&self, path: &str) -> Answer {
        self.get_as(path, API_KEY, &[])
    }

    pub fn get_as(&self, path: &str, api_key: &str, fields: &[(&str, &str)]) -> Answer {
        let authorization = format!("Bearer {api_key}");
        let own = [("authorization", authorization.as_str())];
        self.send(path, &[&own, fields].concat())
    }

    pub fn send(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut response = request.call().expect("an answer");
        let fields = response.headers().iter().map(|(name, value)| {
            let value = value.to_str().expect("ASCII").to_owned();
            (name.to_string(), value)
        });
        let fields = fields.collect();
        let body = response.body_mut().read_to_string().expect("a body");
        Answer {
            status: response.status().as_u16(),
            fields,
            body: serde_json::from_str(&body).expect("JSON"),
        }
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub fields: BTreeMap<String, String>,
    pub body: Value,
}

impl Answer {
    pub fn code(&self) -> (u16, &str) {
        (self.status, self.body["code"].as_str().expect("a code"))
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// All header fields that tell of limits.
    pub fn limits(&self) -> Vec<(&str, &str)> {
        let telling = |name: &str| name.contains("ratelimit") || name == "retry-after";
        let fields = self.fields.iter();
        fields
            .filter(|(name, _)| telling(name))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    /// Whether Redis judged, and not the gateway alone.
    pub fn is_shared(&self) -> bool {
        self.field("ratelimit").is_some()
    }
}
