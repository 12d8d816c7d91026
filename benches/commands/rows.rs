//! What is measured: each command line, the state that it meets, and the reply that it gets.
//!
//! A row's state is made once, in one key, and copied to the others. So every key of a row meets
//! the command alike, and a log of 10,000 entries costs no more to make than one of 10.

use crate::several::SUFFIXES;
use crate::wire::{Calls, Control, Reply};

/// A command line, or several that make one decision; `KEY` stands for the key.
pub type Lines = Vec<String>;

pub struct Row {
    pub name: String,
    /// Whether it is one of the main rows.
    pub main: bool,
    /// How many keys take turns, at most.
    pub keys: usize,
    /// How many keys one call is on: `KEY`, `KEY:b` and so on.
    on_keys: usize,
    /// How often a key can be called before its state has to be made anew; `None` is forever.
    pub calls_per_key: Option<usize>,
    /// The state at an instant in µs.
    state: Box<dyn Fn(u64) -> Lines>,
    /// The call, given how often the key was called before.
    call: Box<dyn Fn(usize) -> Lines>,
    /// What the reply starts with.
    expect: &'static str,
    /// How many lines it has.
    reply_lines: usize,
    /// What makes such a key for its size to be taken, and how many entries it then holds.
    pub fill: Option<(Lines, usize)>,
}

/// Keys of ten bytes.
pub fn key(index: usize) -> String {
    format!("k:{index:08}")
}

/// `count` keys in an order that a processor's caches can't guess.
pub fn shuffled(count: usize) -> Vec<String> {
    let mut keys: Vec<String> = (0..count).map(key).collect();
    let mut random: u64 = 1;
    for at in (1..count).rev() {
        // Knuth's MMIX generator.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        keys.swap(at, (random >> 33) as usize % (at + 1));
    }
    keys
}

impl Row {
    pub fn new(name: &str, call: &str) -> Self {
        Self {
            name: name.to_owned(),
            main: true,
            keys: 1_000_000,
            on_keys: 1,
            calls_per_key: None,
            state: Box::new(lines(call)),
            call: Box::new(lines(call)),
            expect: "+OK\r\n",
            reply_lines: 1,
            fill: None,
        }
    }

    /// Answered by a decision.
    fn decides(name: &str, call: &str, allowed: bool) -> Self {
        Self {
            expect: if allowed {
                "*5\r\n:1\r\n"
            } else {
                "*5\r\n:0\r\n"
            },
            reply_lines: 6,
            ..Self::new(name, call)
        }
    }

    pub fn replies(self, expect: &'static str, reply_lines: usize) -> Self {
        Self {
            expect,
            reply_lines,
            ..self
        }
    }

    /// Meets a state that these lines make, `|` between them.
    pub fn meets(self, state: &str) -> Self {
        Self {
            state: Box::new(lines(state)),
            ..self
        }
    }

    /// One of several calls, given how often the key was called before.
    pub fn calling(
        name: &str,
        calls_per_key: Option<usize>,
        call: Box<dyn Fn(usize) -> Lines>,
    ) -> Self {
        Self {
            calls_per_key,
            call,
            ..Self::new(name, "")
        }
    }

    /// One call is on so many keys.
    pub fn on_keys(self, on_keys: usize) -> Self {
        Self { on_keys, ..self }
    }

    /// The lines of one call on a key.
    pub fn lines(&self, key: &str) -> Lines {
        let lines = (self.call)(0);
        lines.iter().map(|line| line.replace("KEY", key)).collect()
    }

    /// Its keys' size is that after these lines.
    fn sized(self, fill: &str, entries: usize) -> Self {
        Self {
            fill: Some((split(fill), entries)),
            ..self
        }
    }

    pub fn also(self) -> Self {
        Self {
            main: false,
            ..self
        }
    }

    /// Makes the state of the row's keys in the selected database.
    pub fn make(&self, control: &mut Control, keys: &[String], now_us: u64) {
        control.must("FLUSHDB SYNC");
        let (first, others) = keys.split_first().expect("a row has keys");
        for line in (self.state)(now_us) {
            control.must(&line.replace("KEY", first));
        }
        let suffixes = &SUFFIXES[..self.on_keys];
        let copies: Lines = others
            .iter()
            .flat_map(|key| {
                let copy = move |suffix| format!("COPY {first}{suffix} {key}{suffix} REPLACE");
                suffixes.iter().map(copy)
            })
            .collect();
        control.must_all(&copies);
    }

    /// The script that answers as this row does, by its name.
    pub fn script(name: &str) -> Option<String> {
        let name = name.strip_prefix("RL.")?;
        Some(format!("Lua {}", name.to_lowercase()))
    }

    /// What a key answers when it is called for the first time.
    pub fn answer(&self, control: &mut Control, now_us: u64) -> Vec<i64> {
        let keys = [key(0)];
        self.make(control, &keys, now_us);
        let call = (self.call)(0).remove(0).replace("KEY", &keys[0]);
        match control.must(&call) {
            Reply::Array(integers) => integers
                .iter()
                .map(|reply| match reply {
                    Reply::Integer(integer) => *integer,
                    other => panic!("{call}: {other:?}"),
                })
                .collect(),
            other => panic!("{call}: {other:?}"),
        }
    }

    /// Encodes so many calls, the keys taking turns from a first one on.
    pub fn calls(&self, keys: &[String], first: usize, count: usize) -> Calls {
        let mut calls = Calls::new(self.expect, self.reply_lines);
        let mut call = Vec::new();
        for at in 0..count {
            if at % keys.len() == 0 {
                call = (self.call)(at / keys.len());
            }
            let key = &keys[(first + at) % keys.len()];
            let lines: Lines = call.iter().map(|line| line.replace("KEY", key)).collect();
            calls.push(&lines);
        }
        calls
    }
}

fn split(text: &str) -> Lines {
    text.split('|').map(str::to_owned).collect()
}

fn lines<T>(text: &str) -> impl Fn(T) -> Lines + use<T> {
    let lines = split(text);
    move |_| lines.clone()
}

/// A day, so that nothing leaves or expires while it is measured.
const DAY_MS: u64 = 86_400_000;
const MINUTE_MS: u64 = 60_000;

/// What a gateway may let a tenant do: 10,000 a minute, or 1,000 a second in bursts of 10,000.
pub const USUAL_LIMIT: u64 = 10_000;
/// So much that no key comes to the end of it.
pub const NO_LIMIT: u64 = 1_000_000_000;

/// Every row that this server can answer, those that admit under such a limit.
pub fn rows(control: &mut Control, limit: u64) -> Vec<Row> {
    let mut rows = natives();
    if knows(control, "INCREX") {
        rows.push(
            Row::new("INCREX", &format!("INCREX KEY UBOUND {limit} PX 60000 ENX"))
                .replies("*2\r\n", 3),
        );
    }
    rows.extend(limiters(limit));
    for limit in [10, 100, 10_000] {
        rows.extend(logs(limit));
    }
    rows.extend(scripts(control, limit));
    if knows(control, "CL.THROTTLE") {
        rows.push(
            Row::new("CL.THROTTLE admitted", "CL.THROTTLE KEY 1000000 1 60")
                .replies("*5\r\n:0\r\n", 6)
                .sized("CL.THROTTLE KEY 1000000 1 60", 1),
        );
        rows.push(
            Row::new("CL.THROTTLE refused", "CL.THROTTLE KEY 0 1 86400")
                .replies("*5\r\n:1\r\n", 6)
                .also(),
        );
    }
    rows
}

fn knows(control: &mut Control, command: &str) -> bool {
    match control.must(&format!("COMMAND INFO {command}")) {
        Reply::Array(found) => found.iter().any(|entry| *entry != Reply::Nil),
        _ => false,
    }
}

/// What the others are compared with.
pub const BASE: &str = "SET k 1 PX n";

fn natives() -> Vec<Row> {
    vec![
        Row::new(BASE, "SET KEY 1 PX 60000").sized("SET KEY 1 PX 86400000", 1),
        Row::new("INCR", "INCR KEY").replies(":", 1),
        Row::new("INCR + PEXPIRE", "INCR KEY|PEXPIRE KEY 60000").replies(":", 2),
    ]
}

fn limiters(limit: u64) -> Vec<Row> {
    // Twice, so that the value is one that was written over.
    let twice = |call: &str| format!("{call}|{call}");
    vec![
        Row::decides(
            "RL.FIXED admitted",
            &format!("RL.FIXED KEY {limit} 60000"),
            true,
        )
        .sized(&twice("RL.FIXED KEY 10000 86400000"), 1),
        Row::decides("RL.FIXED refused", "RL.FIXED KEY 100 3600000", false)
            .meets("RL.FIXED KEY 100 3600000 COST 100"),
        Row::decides(
            "RL.TOKEN admitted",
            &format!("RL.TOKEN KEY {limit} 1000 1000"),
            true,
        )
        .sized(&twice("RL.TOKEN KEY 1000000 10 1000"), 1),
        Row::decides("RL.TOKEN refused", "RL.TOKEN KEY 100 1 3600000", false)
            .meets("RL.TOKEN KEY 100 1 3600000 COST 100"),
        Row {
            state: windows(MINUTE_MS, "80", "30"),
            ..Row::decides(
                "RL.SLIDE admitted",
                &format!("RL.SLIDE KEY {limit} 60000"),
                true,
            )
            .sized(&twice("RL.SLIDE KEY 10000 60000"), 1)
        },
        Row {
            state: windows(DAY_MS, "80", "100"),
            ..Row::decides("RL.SLIDE refused", "RL.SLIDE KEY 100 86400000", false)
        },
    ]
}

/// The first call on a key, which makes it. A million keys are called once in no time, so these rows
/// are for counting alone.
pub fn first_calls(limit: u64) -> Vec<Row> {
    let exact = Row::decides("RL.SLIDE EXACT", "RL.SLIDE KEY 100 60000 EXACT", true);
    let base = natives().into_iter().filter(|row| row.name == BASE);
    base.chain(limiters(limit))
        .chain([exact])
        .filter(|row| !row.name.ends_with("refused"))
        .map(|row| Row {
            name: format!("{} on a new key", row.name.trim_end_matches(" admitted")),
            state: Box::new(|_| Vec::new()),
            calls_per_key: Some(1),
            ..row.also()
        })
        .collect()
}

/// The four words, on keys that are half used. A million keys are rows for counting alone, too.
pub fn words() -> Vec<Row> {
    const WORDS: [(&str, &str); 4] = [
        ("COST 2", "*5\r\n:1\r\n"),
        ("COST 2 FORCE", "*5\r\n:1\r\n"),
        ("UPTO 2", "*5\r\n:2\r\n"),
        ("REFUND 2", "*5\r\n:1\r\n"),
    ];
    let rows = |command: &str, call: &str| {
        WORDS.map(|(word, expect)| {
            Row::new(&format!("{command} {word}"), &format!("{call} {word}"))
                .meets(&format!("{call} COST 5000"))
                .replies(expect, 6)
                .also()
        })
    };
    let slide = rows("RL.SLIDE", "RL.SLIDE KEY 10000 60000").map(|row| Row {
        state: windows(MINUTE_MS, "80", "5000"),
        ..row
    });
    let fixed = rows("RL.FIXED", "RL.FIXED KEY 10000 60000");
    let token = rows("RL.TOKEN", "RL.TOKEN KEY 10000 1 1000");
    fixed.into_iter().chain(token).chain(slide).collect()
}

/// The state of a sliding window that both this window and the one before have used.
fn windows(
    window_ms: u64,
    previous: &'static str,
    current: &'static str,
) -> Box<dyn Fn(u64) -> Lines> {
    Box::new(move |now_us| {
        let start_ms = now_us / 1_000 / window_ms * window_ms;
        let end_ms = start_ms + 2 * window_ms;
        vec![format!(
            "SET KEY S1:{window_ms}:{start_ms}:{previous}:{current} PXAT {end_ms}"
        )]
    })
}

/// `RL.SLIDE … EXACT` at one limit.
fn logs(limit: usize) -> [Row; 3] {
    let keys = 1_000_000 / limit;
    let call = format!("RL.SLIDE KEY {limit} {DAY_MS} EXACT");
    let row = |what: &str, allowed| Row {
        main: limit == 100,
        keys,
        ..Row::decides(&format!("RL.SLIDE EXACT {limit} {what}"), &call, allowed)
    };
    let half = limit / 2;
    [
        Row {
            calls_per_key: Some(half),
            ..row("admitted, none leaves", true).meets(&format!("{call} COST {half}"))
        }
        .sized(&format!("{call} COST {limit}"), limit),
        one_leaves(limit, row("admitted, one leaves", true)),
        row("refused", false).meets(&format!("{call} COST {limit}")),
    ]
}

/// A full log of which each call makes one entry leave, however fast the calls come: the entries
/// lie 1,000 s apart, and each call of a key names a window that is 1,000 s shorter.
fn one_leaves(limit: usize, row: Row) -> Row {
    const APART_MS: usize = 1_000_000;
    let window_ms = move |turn: usize| (limit - turn) * APART_MS - APART_MS / 2;
    Row {
        calls_per_key: Some(limit / 2),
        state: Box::new(move |now_us| {
            let mut push = "RPUSH KEY".to_owned();
            for age in (1..=limit).rev() {
                push += &format!(" {}", now_us - (age * APART_MS * 1_000) as u64);
            }
            // Long enough for every window, and not too long for any: half of the first at least.
            let expire_ms = now_us / 1_000 + (window_ms(0) + APART_MS) as u64;
            vec![push, format!("PEXPIREAT KEY {expire_ms}")]
        }),
        call: Box::new(move |turn| {
            let window_ms = window_ms(turn);
            vec![format!("RL.SLIDE KEY {limit} {window_ms} EXACT")]
        }),
        ..row
    }
}

/// Loads a script, and gives the words that call it: its keys and arguments follow.
pub fn load_script(control: &mut Control, text: &str, keys: usize) -> String {
    match control.send(&["SCRIPT", "LOAD", text]) {
        Reply::Text(sha) => format!("EVALSHA {sha} {keys}"),
        reply => panic!("a script is not taken: {reply:?}"),
    }
}

/// The same algorithms as scripts.
fn scripts(control: &mut Control, limit: u64) -> Vec<Row> {
    let mut load = |text: &str| format!("{} KEY", load_script(control, text, 1));
    let fixed = load(include_str!("../lua/fixed.lua"));
    let token = load(include_str!("../lua/token.lua"));
    let slide = load(include_str!("../lua/slide.lua"));
    let slide_at = |window_ms: u64, current: &'static str| -> Box<dyn Fn(u64) -> Lines> {
        Box::new(move |now_us| {
            let start_ms = now_us / 1_000 / window_ms * window_ms;
            let end_ms = start_ms + 2 * window_ms;
            vec![
                format!("HSET KEY s {start_ms} p 80 c {current}"),
                format!("PEXPIREAT KEY {end_ms}"),
            ]
        })
    };
    vec![
        Row::decides(
            "Lua fixed admitted",
            &format!("{fixed} {limit} 60000 1"),
            true,
        ),
        Row::decides(
            "Lua fixed refused",
            &format!("{fixed} 100 3600000 1"),
            false,
        )
        .meets(&format!("{fixed} 100 3600000 100"))
        .also(),
        Row::decides(
            "Lua token admitted",
            &format!("{token} {limit} 1000 1000 1"),
            true,
        ),
        Row::decides(
            "Lua token refused",
            &format!("{token} 100 1 3600000 1"),
            false,
        )
        .meets(&format!("{token} 100 1 3600000 100"))
        .also(),
        Row {
            state: slide_at(MINUTE_MS, "30"),
            ..Row::decides(
                "Lua slide admitted",
                &format!("{slide} {limit} 60000 1"),
                true,
            )
        },
        Row {
            state: slide_at(DAY_MS, "100"),
            ..Row::decides(
                "Lua slide refused",
                &format!("{slide} 100 86400000 1"),
                false,
            )
            .also()
        },
    ]
}
