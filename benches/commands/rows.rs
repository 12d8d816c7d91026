//! What is measured, as `rows.txt` lists it: each call, and the state that it meets.
//!
//! A row's state is made once, in one key, and copied to the others. So every key of a row meets
//! the command alike, and a log of 10,000 entries costs no more to make than one of 10.

use redis::{Cmd, Connection, Pipeline, Value};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use support::{Options, T0, send};

/// What the others are compared with.
pub const BASE: &str = "SET k 1 PX n";
/// What a gateway may let a tenant do: 10,000 a minute, or 1,000 a second in bursts of 10,000.
pub const USUAL_LIMIT: u64 = 10_000;
/// So much that no key comes to the end of it.
pub const NO_LIMIT: u64 = 1_000_000_000;

const SCRIPTS: [(&str, &str); 6] = [
    ("fixed.lua", include_str!("../lua/fixed.lua")),
    ("token.lua", include_str!("../lua/token.lua")),
    ("slide.lua", include_str!("../lua/slide.lua")),
    ("all.lua", include_str!("../lua/all.lua")),
    // Before the other, whose name is in its own.
    ("release.lua", include_str!("../lua/release.lua")),
    ("lease.lua", include_str!("../lua/lease.lua")),
];

/// In which tables a row is shown.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Shown {
    Page,
    Full,
    Count,
    Size,
}

/// A line of `rows.txt`, which explains the fields.
#[derive(Deserialize)]
pub struct Row {
    pub shown: Shown,
    pub calls: Option<usize>,
    keys: Option<usize>,
    pub name: String,
    state: String,
    call: String,
}

/// Every row that this server can answer, those that admit under such a limit.
pub fn rows(control: &mut Connection, limit: u64) -> Vec<Row> {
    let mut rows = all(control, limit);
    rows.retain(|row| row.shown != Shown::Size);
    rows
}

/// Every row that makes keys whose size is taken.
pub fn sizes(control: &mut Connection) -> Vec<Row> {
    let mut rows = all(control, USUAL_LIMIT);
    rows.retain(|row| row.shown == Shown::Size);
    rows
}

fn all(control: &mut Connection, limit: u64) -> Vec<Row> {
    let mut text = include_str!("rows.txt").replace("LIMIT", &limit.to_string());
    for (name, script) in SCRIPTS {
        let hash: String = send(control, &["SCRIPT", "LOAD", script]);
        text = text.replace(name, &hash);
    }
    let mut rows: Vec<Row> = read_table(&text);
    rows.retain(|row| row.is_known(control));
    rows
}

/// Reads a table of cells with `|` between them.
pub fn read_table<T: DeserializeOwned>(text: &str) -> Vec<T> {
    let table = csv::ReaderBuilder::new()
        .delimiter(b'|')
        .comment(Some(b'#'))
        .quoting(false)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let lines = table.into_deserialize();
    lines
        .map(|line| line.expect("a line with a cell for each column"))
        .collect()
}

/// Keys of ten bytes.
pub fn keys(count: usize) -> Vec<String> {
    (0..count).map(|nth| format!("k:{nth:08}")).collect()
}

/// The commands of a text, semicolons between them.
pub fn commands(text: &str) -> impl Iterator<Item = Cmd> {
    let lines = text.split(';').filter(|line| !line.trim().is_empty());
    lines.map(|line| {
        let mut command = Cmd::new();
        command.arg(line.split_whitespace().collect::<Vec<_>>());
        command
    })
}

/// Sends commands, many at once, to none of which an error is an answer.
pub fn send_all(control: &mut Connection, commands: impl IntoIterator<Item = Cmd>) {
    let mut commands = commands.into_iter().peekable();
    while commands.peek().is_some() {
        let mut pipeline = Pipeline::new();
        for command in commands.by_ref().take(1_000) {
            pipeline.add_command(command);
        }
        pipeline.exec(control).expect("no errors");
    }
}

impl Row {
    fn is_known(&self, control: &mut Connection) -> bool {
        let command = self.call.split_whitespace().next().expect("a command");
        let found: Vec<Value> = send(control, &["COMMAND", "INFO", command]);
        found != [Value::Nil]
    }

    /// As many keys, or as many as fit in memory.
    pub fn keys(&self, most: usize) -> usize {
        self.keys.map_or(most, |keys| keys.min(most))
    }

    /// The call as one line that is the same whenever it is called, if there is one.
    pub fn line(&self) -> Option<&str> {
        let differs = ["TURN", "WINDOW", ";"];
        let fixed = !differs.iter().any(|word| self.call.contains(word));
        fixed.then_some(&self.call)
    }

    /// The lines of the call.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.call.split(';')
    }

    /// How many commands one call is.
    pub fn commands(&self) -> usize {
        self.lines().count()
    }

    /// The call on a key that was called so often before.
    pub fn call(&self, key: &str, turn: usize) -> Vec<Cmd> {
        let window = format!(
            "{}500000",
            (2 * self.calls.unwrap_or(0)).saturating_sub(turn + 1)
        );
        let call = self.call.replace("KEY", key).replace("WINDOW", &window);
        commands(&call.replace("TURN", &turn.to_string())).collect()
    }

    /// Makes the state of the row's keys in the selected database, at an instant.
    pub fn make(&self, control: &mut Connection, keys: &[String], now_us: u64) {
        send::<()>(control, &["FLUSHDB", "SYNC"]);
        let (first, others) = keys.split_first().expect("a row has keys");
        send_all(control, self.state(first, now_us));
        let made: Vec<String> = send(control, &["KEYS", "*"]);
        let copies = others.iter().flat_map(|key| {
            made.iter().map(move |from| {
                let mut copy = redis::cmd("COPY");
                copy.arg(from)
                    .arg(from.replacen(first, key, 1))
                    .arg("REPLACE");
                copy
            })
        });
        send_all(control, copies);
    }

    fn state(&self, key: &str, now_us: u64) -> Vec<Cmd> {
        let now_ms = now_us / 1_000;
        let entries = (1..=2 * self.calls.unwrap_or(0) as u64).rev();
        let log: Vec<String> = entries
            .map(|age| (now_us - age * 1_000_000_000).to_string())
            .collect();
        let mut text = match self.state.as_str() {
            "=" => self.call.clone(),
            state => state.replace("LOG", &log.join(" ")),
        };
        for (name, span_ms) in [("MINUTE", 60_000), ("DAY", 86_400_000)] {
            let start_ms = now_ms - now_ms % span_ms;
            text = text
                .replace(&format!("{name}+2"), &(start_ms + 2 * span_ms).to_string())
                .replace(name, &start_ms.to_string());
        }
        let text = text.replace("KEY", key);
        let (times, text) = text.split_once(" times ").unwrap_or(("1", &text));
        let times: usize = times.parse().expect("how often");
        (0..times)
            .flat_map(|turn| commands(&text.replace("TURN", &turn.to_string())).collect::<Vec<_>>())
            .collect()
    }

    /// Whether a reply is what the row's name says: admitted or refused.
    pub fn fits(&self, reply: &Value) -> bool {
        let Value::Array(reply) = reply else {
            return *reply != Value::Nil;
        };
        let first = reply.first() != Some(&Value::Int(0));
        // The first integer of redis-cell says whether a call is refused.
        let admitted = first != self.call.starts_with("CL.");
        admitted != self.name.contains("refused")
    }

    /// The script that answers as this row does, by its name.
    pub fn script(name: &str) -> Option<String> {
        Some(format!("Lua {}", name.strip_prefix("RL.")?.to_lowercase()))
    }
}

/// Makes sure that the scripts do the same work: at the same instant they give the same answers.
pub fn compare_answers() {
    let server = Options::new().clock(T0 + 15_000_000).start();
    let mut control = server.connect();
    let rows = rows(&mut control, USUAL_LIMIT);
    let mut answer = |row: &Row| -> Value {
        row.make(&mut control, &keys(1), T0 + 15_000_000);
        let answer = row.call(&keys(1)[0], 0)[0].query(&mut control);
        answer.expect("an answer")
    };
    for row in &rows {
        let name = Row::script(&row.name);
        if let Some(script) = rows.iter().find(|row| Some(&row.name) == name.as_ref()) {
            assert_eq!(answer(row), answer(script), "{}", row.name);
        }
    }
}
