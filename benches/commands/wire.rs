//! The protocol, spoken over a unix socket.
//!
//! Nothing here costs more than it must: commands are encoded before the clock runs, and a reply
//! is over when so many line ends have come as such a reply has.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long anything may take before it counts as hung.
pub const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Nil,
    Text(String),
    Error(String),
    Integer(i64),
    Array(Vec<Reply>),
}

/// Appends a command.
pub fn encode(to: &mut Vec<u8>, words: &[&str]) {
    let mut write = |args: std::fmt::Arguments<'_>| to.write_fmt(args).expect("memory");
    write(format_args!("*{}\r\n", words.len()));
    for word in words {
        write(format_args!("${}\r\n{word}\r\n", word.len()));
    }
}

/// A connection for everything whose time is not taken.
pub struct Control(BufReader<UnixStream>);

impl Control {
    pub fn connect(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        Ok(Self(BufReader::new(stream)))
    }

    pub fn send(&mut self, words: &[&str]) -> Reply {
        self.pipeline([words])
            .pop()
            .expect("a reply to each command")
    }

    /// Sends a line of words.
    pub fn line(&mut self, line: &str) -> Reply {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.send(&words)
    }

    /// Sends a line of words, to which an error is no answer.
    pub fn must(&mut self, line: &str) -> Reply {
        match self.line(line) {
            Reply::Error(error) => panic!("{line:.80}: {error}"),
            reply => reply,
        }
    }

    /// Sends lines of words together, to none of which an error is an answer.
    pub fn must_all<S: AsRef<str>>(&mut self, lines: &[S]) {
        for batch in lines.chunks(100) {
            let words: Vec<Vec<&str>> = batch
                .iter()
                .map(|line| line.as_ref().split_whitespace().collect())
                .collect();
            for (reply, line) in self
                .pipeline(words.iter().map(Vec::as_slice))
                .iter()
                .zip(batch)
            {
                if let Reply::Error(error) = reply {
                    panic!("{:.80}: {error}", line.as_ref());
                }
            }
        }
    }

    fn pipeline<'a>(&mut self, commands: impl IntoIterator<Item = &'a [&'a str]>) -> Vec<Reply> {
        let mut bytes = Vec::new();
        let mut count = 0;
        for words in commands {
            encode(&mut bytes, words);
            count += 1;
        }
        self.0.get_mut().write_all(&bytes).expect("a live server");
        (0..count).map(|_| self.read()).collect()
    }

    fn read(&mut self) -> Reply {
        let mut line = String::new();
        self.0
            .read_line(&mut line)
            .expect("a reply within the deadline");
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).expect("the server is still there");
        let number = || -> i64 { rest.parse().expect("a number") };
        match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(number()),
            "$" | "*" if number() < 0 => Reply::Nil,
            "$" => {
                let mut bytes = vec![0; number() as usize + 2];
                self.0.read_exact(&mut bytes).expect("a whole reply");
                bytes.truncate(bytes.len() - 2);
                Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            "*" => Reply::Array((0..number()).map(|_| self.read()).collect()),
            _ => panic!("no reply: {line}"),
        }
    }

    /// A figure of `INFO`, 0 where it is missing.
    pub fn info(&mut self, field: &str) -> i64 {
        let Reply::Text(text) = self.must("INFO everything") else {
            return 0;
        };
        text.lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or(0)
    }
}

/// Encoded calls, one after the other, and where each ends.
pub struct Calls {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// What a reply starts with.
    pub expect: &'static str,
    /// How many lines it has.
    pub lines: usize,
}

impl Calls {
    pub fn new(expect: &'static str, lines: usize) -> Self {
        Self {
            bytes: Vec::new(),
            ends: vec![0],
            expect,
            lines,
        }
    }

    /// Adds a call, of one command or more.
    pub fn push(&mut self, commands: &[String]) {
        for command in commands {
            let words: Vec<&str> = command.split_whitespace().collect();
            encode(&mut self.bytes, &words);
        }
        self.ends.push(self.bytes.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len() - 1
    }

    /// `count` calls from `at` on.
    pub fn batch(&self, at: usize, count: usize) -> &[u8] {
        &self.bytes[self.ends[at]..self.ends[at + count]]
    }
}

/// A connection for what is measured.
pub struct Client {
    stream: UnixStream,
    buffer: Box<[u8]>,
    /// Lines still to come.
    lines: usize,
    /// Whether none has come yet.
    waits: bool,
}

impl Client {
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("a live server");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        Self {
            stream,
            buffer: vec![0; 1 << 16].into(),
            lines: 0,
            waits: false,
        }
    }

    /// Runs one command that is answered by one line.
    pub fn command(&mut self, line: &str) {
        let mut calls = Calls::new("+", 1);
        calls.push(&[line.to_owned()]);
        self.send(&calls, 0, 1);
        self.receive(&calls);
    }

    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.stream
            .set_nonblocking(nonblocking)
            .expect("a socket that can");
    }

    pub fn send(&mut self, calls: &Calls, at: usize, count: usize) {
        self.lines = calls.lines * count;
        self.waits = true;
        self.stream
            .write_all(calls.batch(at, count))
            .expect("a live server");
    }

    /// Reads on until every reply is there.
    pub fn receive(&mut self, calls: &Calls) {
        while !self.poll(calls) {}
    }

    /// Reads once, and tells whether every reply is there.
    pub fn poll(&mut self, calls: &Calls) -> bool {
        let read = match self.stream.read(&mut self.buffer) {
            Ok(0) => panic!("the server has closed a connection"),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
            Err(error) => panic!("no reply: {error}"),
        };
        let bytes = &self.buffer[..read];
        #[allow(clippy::naive_bytecount, reason = "a crate of its own is not worth it")]
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        let expected = calls.expect.as_bytes();
        assert!(
            !self.waits || bytes.len() < expected.len() || bytes.starts_with(expected),
            "not the reply that this row is about: {}",
            bytes[..read.min(60)].escape_ascii()
        );
        self.waits = false;
        self.lines = self.lines.checked_sub(lines).expect("no more than asked");
        self.lines == 0
    }
}
