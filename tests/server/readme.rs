//! Every transcript in the README and the other documents, run as it stands.
//!
//! In a block of `console`, a line after the prompt is a command, and what follows is what
//! redis-cli prints. `# … later` moves the clock; each block starts on an empty database.

use redis::{Connection, Value};

use support::{SECOND, Server, T0, ask, error_text, send_bytes};

const PROMPT: &str = "127.0.0.1:6379> ";

fn shown(value: &Value) -> String {
    match value {
        Value::Nil => "(nil)".to_owned(),
        Value::Int(number) => format!("(integer) {number}"),
        Value::Okay => "OK".to_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::BulkString(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Value::Array(values) if values.is_empty() => "(empty array)".to_owned(),
        Value::Array(values) => {
            let lines = values.iter().enumerate();
            let lines: Vec<_> = lines
                .map(|(index, value)| format!("{}) {}", index + 1, shown(value)))
                .collect();
            lines.join("\n")
        }
        other => panic!("no transcript shows {other:?}"),
    }
}

/// Microseconds in a line such as `# 15 seconds later`.
fn later(line: &str) -> u64 {
    let words: Vec<&str> = line.trim_start_matches('#').split_whitespace().collect();
    let [number, unit, "later"] = words[..] else {
        panic!("not a time: {line}")
    };
    let number: u64 = number.parse().unwrap();
    number
        * match unit.trim_end_matches('s') {
            "ms" | "m" | "millisecond" => 1_000,
            "second" => 1_000_000,
            "minute" => 60_000_000,
            _ => panic!("not a unit: {line}"),
        }
}

/// Splits a command as redis-cli does, as far as the transcripts need it.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in command.split('"').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// A server on which transcripts are run.
pub struct Stage {
    pub server: Server,
    connection: Connection,
    now_us: u64,
}

impl Stage {
    pub fn on(server: Server) -> Self {
        Self {
            connection: server.connect(),
            server,
            now_us: T0,
        }
    }

    /// Runs a transcript on an empty database and tells how many commands that were.
    pub fn run(&mut self, block: &str) -> usize {
        send_bytes::<()>(&mut self.connection, &[b"FLUSHALL"]).unwrap();
        self.set_clock(T0);
        let mut commands = 0;
        let mut lines = block.lines().peekable();
        while let Some(line) = lines.next() {
            let Some(command) = line.strip_prefix(PROMPT) else {
                self.set_clock(self.now_us + later(line));
                continue;
            };
            let mut expected = Vec::new();
            while let Some(line) =
                lines.next_if(|line| !line.starts_with(PROMPT) && !line.starts_with('#'))
            {
                expected.push(line.trim_start());
            }
            let words = words(command);
            let bytes: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            let reply = match send_bytes::<Value>(&mut self.connection, &bytes) {
                Ok(value) => shown(&value),
                Err(error) => format!("(error) {}", error_text(&error)),
            };
            assert_eq!(reply, expected.join("\n"), "{command}");
            commands += 1;
        }
        commands
    }

    fn set_clock(&mut self, us: u64) {
        self.now_us = us;
        self.server.set_clock(us);
    }
}

/// Runs every transcript of a document and tells how many commands that were.
fn run_transcripts(document: &str) -> usize {
    let mut stage = Stage::on(Server::at(T0));
    let blocks = document.split("```console\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    blocks
        .filter(|block| block.contains(PROMPT))
        .map(|block| stage.run(block))
        .sum()
}

#[test]
fn the_readme_shows_what_happens() {
    let commands = run_transcripts(include_str!("../../README.md"));
    assert!(commands >= 7, "only {commands} commands found");
}

#[test]
fn the_commands_answer_as_their_page_shows() {
    let commands = run_transcripts(include_str!("../../docs/commands.md"));
    assert!(commands >= 18, "only {commands} commands found");
}

#[test]
fn what_is_stored_is_what_its_page_shows() {
    let commands = run_transcripts(include_str!("../../docs/stored.md"));
    assert!(commands >= 14, "only {commands} commands found");
}

#[test]
fn the_page_for_operators_shows_what_happens() {
    let commands = run_transcripts(include_str!("../../docs/operating.md"));
    assert!(commands >= 12, "only {commands} commands found");
}

#[test]
fn moving_over_works_as_it_is_shown() {
    let commands = run_transcripts(include_str!("../../docs/moving-over.md"));
    assert!(commands >= 20, "only {commands} commands found");
}

#[test]
fn several_limits_work_as_they_are_shown() {
    let commands = run_transcripts(include_str!("../../docs/several-limits.md"));
    assert!(commands >= 20, "only {commands} commands found");
}

#[test]
fn leases_work_as_they_are_shown() {
    let commands = run_transcripts(include_str!("../../docs/leases.md"));
    assert!(commands >= 30, "only {commands} commands found");
}

#[test]
fn recipes_work_as_they_are_shown() {
    let commands = run_transcripts(include_str!("../../docs/recipes.md"));
    assert!(commands >= 40, "only {commands} commands found");
}

#[test]
fn settling_works_as_it_is_shown() {
    let commands = run_transcripts(include_str!("../../docs/settling.md"));
    assert!(commands >= 30, "only {commands} commands found");
}

/// The number on the page about settling.
#[test]
fn five_windows_given_back_in_the_sixth_let_60_pass_in_a_window_of_10() {
    for call in ["RL.FIXED k 10 60000", "RL.SLIDE k 10 60000 EXACT"] {
        let server = Server::at(T0);
        let mut connection = server.connect();
        let mut take = || ask(&mut connection, &format!("{call} COST 10"))[0];
        for window in 1..=5 {
            assert_eq!(take(), 1, "{call}");
            server.set_clock(T0 + window * 60 * SECOND);
        }
        let mut passed = take() * 10;
        for _ in 1..=5 {
            ask(&mut server.connect(), &format!("{call} REFUND 10"));
            passed += take() * 10;
        }
        assert_eq!(passed, 60, "{call}");
        assert_eq!(take(), 0, "{call}");
    }
}
