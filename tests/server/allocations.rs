//! No call allocates memory of the module's own: what a command needs fits on the stack, or is the
//! server's.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use redis::{Connection, Value};

use support::forms::{ON_OWN_KEYS, all};
use support::{Options, Server, T0, send, try_send};

/// What `allocations.c` tells, in its order.
struct Counts {
    allocations: u64,
    found: u64,
}

/// A server in which the allocations of one library are counted.
struct Counted {
    server: Server,
    page: File,
}

impl Counted {
    fn start(library: &Path) -> Self {
        let dir = tempfile::TempDir::new().expect("a temporary folder");
        let path = dir.path().join("allocations");
        let page = File::create_new(&path).expect("a file to share");
        page.write_all_at(&[0; 16], 0).expect("a file to share");
        let server = Options::new()
            .clock(T0)
            .preload("allocations")
            .env("RL_TEST_ALLOCATIONS", &path)
            .env("RL_TEST_LIBRARY", library)
            .arg("enable-module-command", "yes")
            .start_in(dir);
        let page = File::open(server.dir().join("allocations")).expect("a file to share");
        Self { server, page }
    }

    /// A server with the module, and two keys that are none of the commands'.
    fn with_module() -> (Self, Connection) {
        let counted = Self::start(support::module());
        let mut connection = counted.server.connect();
        assert!(counted.counts().found > 0, "the module is in the server");
        send::<()>(&mut connection, &["HSET", "hash", "f", "v"]);
        let text = ["SET", "text", "some text", "PX", "60000"];
        send::<()>(&mut connection, &text);
        (counted, connection)
    }

    /// Makes a call that is answered as expected, and after which there are no more allocations.
    fn expect(&self, before: u64, connection: &mut Connection, line: &str, expected: Option<i64>) {
        assert_eq!(allowed(&call(connection, line)), expected, "{line}");
        assert_eq!(self.counts().allocations, before, "{line} allocates");
    }

    fn counts(&self) -> Counts {
        let mut bytes = [0; 16];
        self.page.read_exact_at(&mut bytes, 0).expect("two numbers");
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        Counts {
            allocations: number(0),
            found: number(8),
        }
    }
}

/// A library that allocates when it is loaded as a module, in Rust as the module is.
fn allocating_library(dir: &Path) -> PathBuf {
    let source = dir.join("allocates.rs");
    let text = r#"
        #[unsafe(no_mangle)]
        pub extern "C" fn RedisModule_OnLoad(_: *mut (), _: *mut (), words: i32) -> i32 {
            let bytes = vec![7_u8; 100 + words as usize];
            i32::from(std::hint::black_box(bytes).len() > 0)
        }"#;
    fs::write(&source, text).expect("a file");
    let library = dir.join("allocates.so");
    let status = Command::new("rustc")
        .args(["--edition", "2024", "--crate-type", "cdylib", "-O", "-o"])
        .args([&library, &source])
        .status();
    assert!(
        status.expect("rustc runs").success(),
        "the library compiles"
    );
    library
}

/// Without this, a count of 0 could mean that nothing is counted.
#[test]
fn an_allocation_is_counted() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let library = allocating_library(dir.path());
    let counted = Counted::start(&library);
    let mut connection = counted.server.connect();
    assert_eq!(counted.counts().found, 0);
    for loads in 1..=3 {
        // It allocates once, and then says that it can't be loaded.
        let load = ["MODULE", "LOAD", library.to_str().unwrap()];
        assert!(try_send::<()>(&mut connection, &load).is_err());
        let counts = counted.counts();
        assert_eq!((counts.found, counts.allocations), (loads, loads));
    }
}

fn call(connection: &mut Connection, line: &str) -> Value {
    let words: Vec<&str> = line.split_whitespace().collect();
    try_send(connection, &words).unwrap_or(Value::Nil)
}

const ADMITTED: Option<i64> = Some(1);
const REFUSED: Option<i64> = Some(0);
const ERROR: Option<i64> = None;

/// The first integer of a decision, `None` for an error.
fn allowed(reply: &Value) -> Option<i64> {
    match reply {
        Value::Array(integers) => match integers.first() {
            Some(Value::Int(allowed)) => Some(*allowed),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn no_command_allocates() {
    let (counted, mut connection) = Counted::with_module();
    send::<()>(&mut connection, &["RPUSH", "list", "a", "b", "c"]);
    send::<()>(&mut connection, &["PEXPIRE", "list", "60000"]);
    // Loading may allocate; calls must not, not even the first.
    let before = counted.counts().allocations;
    let expect = |connection: &mut Connection, line: &str, expected: Option<i64>| {
        counted.expect(before, connection, line, expected);
    };

    for form in [
        "RL.FIXED f 5 60000",
        "RL.TOKEN t 5 1 60000",
        "RL.SLIDE s 5 60000",
        "RL.SLIDE e 5 60000 EXACT",
    ] {
        expect(&mut connection, form, ADMITTED);
        expect(&mut connection, &format!("{form} COST 3"), ADMITTED);
        expect(&mut connection, &format!("{form} COST 6"), REFUSED);
        expect(&mut connection, form, ADMITTED);
        expect(&mut connection, form, REFUSED);
    }
    // Long logs: many are appended, many read, many leave.
    expect(
        &mut connection,
        "RL.SLIDE long 10000 60000 EXACT COST 9999",
        ADMITTED,
    );
    expect(&mut connection, "RL.SLIDE long 10000 60000 EXACT", ADMITTED);
    expect(
        &mut connection,
        "RL.SLIDE long 10000 60000 EXACT COST 500",
        REFUSED,
    );
    for form in [
        "RL.FIXED wide",
        "RL.TOKEN wide:token 9007199254740991",
        "RL.SLIDE wide:slide",
    ] {
        let line = format!("{form} 9007199254740991 3153600000000 COST 9007199254740990");
        expect(&mut connection, &line, ADMITTED);
    }
    for error in [
        "RL.FIXED f",
        "RL.TOKEN t 1 1",
        "RL.SLIDE s 1",
        "RL.FIXED f 0 1",
        "RL.TOKEN t 0 1 1",
        "RL.SLIDE s 1 0",
        "RL.SLIDE e 10001 1 EXACT",
        "RL.FIXED f 1 1 EXACT",
        "RL.TOKEN t 1 1 1 COST",
        "RL.SLIDE s 1 1 COST x",
        "RL.TOKEN t 2 1 3153600000000",
        "RL.FIXED hash 1 1",
        "RL.TOKEN hash 1 1 1",
        "RL.SLIDE hash 1 1",
        "RL.SLIDE hash 1 1 EXACT",
        "RL.FIXED text 1 1",
        "RL.TOKEN text 1 1 1",
        "RL.SLIDE text 1 1",
        "RL.SLIDE list 1 1 EXACT",
    ] {
        expect(&mut connection, error, ERROR);
    }

    // A clock that was set back is stored, even by a refusal.
    counted.server.set_clock(T0 - 5_000_000);
    for form in [
        "RL.TOKEN t 5 1 60000",
        "RL.SLIDE s 5 60000",
        "RL.SLIDE e 5 60000 EXACT",
    ] {
        expect(&mut connection, form, REFUSED);
    }
    // All that was taken has left.
    counted.server.set_clock(T0 + 300_000_000);
    for form in [
        "RL.FIXED f 5 60000",
        "RL.TOKEN t 5 1 60000",
        "RL.SLIDE s 5 60000",
        "RL.SLIDE e 5 60000 EXACT",
        "RL.SLIDE long 10000 60000 EXACT",
    ] {
        expect(&mut connection, form, ADMITTED);
    }
    // No memory left: what needs none is answered, the rest is refused.
    send::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]);
    expect(&mut connection, "RL.FIXED f 5 60000", ADMITTED);
    expect(&mut connection, "RL.FIXED new 5 60000", ERROR);
    expect(&mut connection, "RL.SLIDE new 5 60000 EXACT", ERROR);
    send::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", "0"]);
    counted.server.set_clock(1);
    expect(&mut connection, "RL.FIXED f 5 60000", ERROR);
}

#[test]
fn no_settling_call_allocates() {
    let (counted, mut connection) = Counted::with_module();
    let before = counted.counts().allocations;
    let expect = |connection: &mut Connection, line: &str, expected: Option<i64>| {
        counted.expect(before, connection, line, expected);
    };
    for form in ON_OWN_KEYS {
        let exact = form.ends_with("EXACT");
        expect(&mut connection, &format!("{form} REFUND 1"), ADMITTED);
        expect(&mut connection, &format!("{form} UPTO 9"), Some(5));
        expect(&mut connection, &format!("{form} UPTO 9"), REFUSED);
        expect(&mut connection, &format!("{form} REFUND 3"), ADMITTED);
        expect(&mut connection, &format!("{form} UPTO 9"), Some(3));
        expect(&mut connection, &format!("{form} REFUND 9"), ADMITTED);
        expect(&mut connection, &format!("{form} REFUND 9"), ADMITTED);
        if !exact {
            expect(&mut connection, &format!("{form} FORCE"), ADMITTED);
            expect(&mut connection, &format!("{form} COST 9 FORCE"), REFUSED);
            expect(&mut connection, &format!("{form} UPTO 9"), REFUSED);
            expect(&mut connection, &format!("{form} REFUND 5"), ADMITTED);
        }
        expect(&mut connection, &format!("{form} UPTO 5"), {
            if exact { Some(5) } else { REFUSED }
        });
    }
    expect(
        &mut connection,
        "RL.SLIDE long 10000 60000 EXACT UPTO 10000",
        Some(10_000),
    );
    // They leave at the new end too, few or many.
    for (words, expected) in [
        ("REFUND 5", ADMITTED),
        ("REFUND 5000", ADMITTED),
        ("UPTO 9000", Some(5_005)),
    ] {
        let call = format!("RL.SLIDE long 10000 60000 EXACT {words}");
        expect(&mut connection, &call, expected);
    }
    for error in [
        "RL.FIXED f 1 1 UPTO 0",
        "RL.TOKEN t 1 1 1 REFUND x",
        "RL.SLIDE s 1 1 EXACT FORCE",
        "RL.FIXED hash 1 1 FORCE",
        "RL.TOKEN text 1 1 1 REFUND 1",
        "RL.SLIDE hash 1 1 EXACT UPTO 1",
    ] {
        expect(&mut connection, error, ERROR);
    }
    // A clock that was set back is stored by what gives back, too.
    counted.server.set_clock(T0 - 5_000_000);
    for form in ON_OWN_KEYS {
        expect(&mut connection, &format!("{form} REFUND 1"), ADMITTED);
    }
    expect(
        &mut connection,
        "RL.SLIDE long 10000 60000 EXACT REFUND 7",
        ADMITTED,
    );
    send::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]);
    expect(&mut connection, "RL.TOKEN new 5 1 60000 FORCE", ERROR);
    expect(&mut connection, "RL.SLIDE new 5 60000 UPTO 9", ERROR);
    expect(&mut connection, "RL.FIXED f 5 60000 COST 9 FORCE", REFUSED);
    expect(
        &mut connection,
        "RL.SLIDE long 10000 60000 EXACT REFUND 9999",
        ADMITTED,
    );
}

#[test]
fn no_call_on_leases_allocates() {
    let (counted, mut connection) = Counted::with_module();
    let before = counted.counts().allocations;
    let expect = |connection: &mut Connection, line: &str, expected: Option<i64>| {
        counted.expect(before, connection, line, expected);
    };
    for (words, expected) in [
        ("a RENEW", REFUSED),
        ("a RELEASE", REFUSED),
        ("a", ADMITTED),
        ("a RENEW", ADMITTED),
        ("b", ADMITTED),
        ("c", REFUSED),
        ("a RELEASE", ADMITTED),
        ("b RELEASE", ADMITTED),
    ] {
        expect(
            &mut connection,
            &format!("RL.LEASE l 2 60000 {words}"),
            expected,
        );
    }
    // Many: the server itself is asked for what is far from both ends, and removes what is over.
    for id in 0..100 {
        let ttl_ms = 1_000 + id;
        expect(
            &mut connection,
            &format!("RL.LEASE many 100 {ttl_ms} {id}"),
            ADMITTED,
        );
    }
    for limit in [100, 50, 1] {
        expect(
            &mut connection,
            &format!("RL.LEASE many {limit} 60000 new"),
            REFUSED,
        );
        expect(
            &mut connection,
            &format!("RL.PEEK many LEASE {limit} 60000 new"),
            REFUSED,
        );
    }
    counted.server.set_clock(T0 + 1_050_000);
    expect(&mut connection, "RL.LEASE many 10 60000 new", REFUSED);
    expect(&mut connection, "RL.LEASE many 100 60000 new", ADMITTED);
    expect(
        &mut connection,
        "RL.LEASE many 100 60000 new RELEASE",
        ADMITTED,
    );
    for error in [
        "RL.LEASE l",
        "RL.LEASE l 0 1 id",
        "RL.LEASE l 1 0 id",
        "RL.LEASE l 1 1 id FORCE",
        "RL.LEASE hash 1 1 id",
        "RL.LEASE text 1 1 id",
        "RL.PEEK hash LEASE 1 1 id",
    ] {
        expect(&mut connection, error, ERROR);
    }
    send::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]);
    expect(&mut connection, "RL.LEASE new 1 60000 id", ERROR);
}

/// However many limits there are.
#[test]
fn no_call_on_several_limits_allocates() {
    let (counted, mut connection) = Counted::with_module();
    let listen = ["CONFIG", "SET", "notify-keyspace-events", "KEd"];
    send::<()>(&mut connection, &listen);
    send::<()>(&mut connection, &["COMMAND", "GETKEYS", "GET", "k"]);
    let policies = [
        "FIXED 3 60000",
        "TOKEN 3 1 60000",
        "SLIDE 3 60000",
        "SLIDE 3 60000 EXACT",
        "LEASE 3 60000 me",
    ];
    let before = counted.counts().allocations;
    let expect = |connection: &mut Connection, line: &str, expected: Option<i64>| {
        counted.expect(before, connection, line, expected);
    };
    for count in [1, 5, 8, 32] {
        let keys: Vec<String> = (0..count).map(|n| format!("{count}:{n}")).collect();
        let limits: Vec<(&str, &str)> = keys
            .iter()
            .enumerate()
            .map(|(n, key)| (&**key, policies[n % 5]))
            .collect();
        let line = all(&limits);
        for expected in [ADMITTED, ADMITTED, ADMITTED, REFUSED] {
            expect(&mut connection, &line, expected);
        }
        let forced = line.replace("FIXED 3 60000", "FIXED 3 60000 COST 9 FORCE");
        expect(
            &mut connection,
            &forced,
            if count == 1 { ADMITTED } else { REFUSED },
        );
        expect(&mut connection, &line.replace("FIXED 3", "FIXED 0"), ERROR);
        expect(
            &mut connection,
            &line.replace(":0 ", ":1 "),
            if count == 1 { ADMITTED } else { ERROR },
        );
        // The server asks for its keys.
        let words: Vec<&str> = line.split_whitespace().collect();
        let words = [&["COMMAND", "GETKEYS"], &words[..]].concat();
        let told: Vec<String> = send(&mut connection, &words);
        assert_eq!(told, keys);
        assert_eq!(counted.counts().allocations, before, "{line} allocates");
    }
    for error in [
        "RL.ALL 2 hash x FIXED 1 1 FIXED 1 1",
        "RL.ALL 2 x text FIXED 1 1 TOKEN 1 1 1",
        "RL.ALL 2147483647 x FIXED 1 1",
        "RL.ALL 2 x y FIXED 1 1",
    ] {
        expect(&mut connection, error, ERROR);
    }
    // Back, and when all has left, by commands of the server's too.
    expect(
        &mut connection,
        "RL.SLIDE 5:3 100 60000 EXACT COST 50",
        ADMITTED,
    );
    for id in 0..20 {
        expect(
            &mut connection,
            &format!("RL.LEASE 5:4 100 60000 {id}"),
            ADMITTED,
        );
    }
    let line = "RL.ALL 5 5:0 5:1 5:2 5:3 5:4 FIXED 3 60000 TOKEN 3 1 60000 SLIDE 3 60000 \
                SLIDE 100 60000 EXACT LEASE 100 60000 me";
    counted.server.set_clock(T0 - 5_000_000);
    expect(&mut connection, line, REFUSED);
    counted.server.set_clock(T0 + 50_000_000);
    expect(&mut connection, "RL.SLIDE 5:3 100 60000 EXACT", ADMITTED);
    expect(&mut connection, "RL.LEASE 5:4 100 60000 new", ADMITTED);
    counted.server.set_clock(T0 + 80_000_000);
    let line = line.replace("SLIDE 3 60000 ", "SLIDE 9 60000 ");
    expect(
        &mut connection,
        &line.replace("TOKEN 3 1", "TOKEN 3 3"),
        ADMITTED,
    );
    send::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]);
    expect(&mut connection, "RL.ALL 2 x y FIXED 1 1 FIXED 1 1", ERROR);
}

#[test]
fn no_look_allocates_and_no_refusal_that_somebody_listens_for() {
    let (counted, mut connection) = Counted::with_module();
    let listen = ["CONFIG", "SET", "notify-keyspace-events", "KEd"];
    send::<()>(&mut connection, &listen);
    let before = counted.counts().allocations;
    let expect = |connection: &mut Connection, line: &str, expected: Option<i64>| {
        counted.expect(before, connection, line, expected);
    };
    for (form, look) in [
        ("RL.FIXED f 5 60000", "RL.PEEK f FIXED 5 60000"),
        ("RL.TOKEN t 5 1 60000", "RL.PEEK t TOKEN 5 1 60000"),
        ("RL.SLIDE s 5 60000", "RL.PEEK s SLIDE 5 60000"),
        ("RL.SLIDE e 5 60000 EXACT", "RL.PEEK e SLIDE 5 60000 EXACT"),
    ] {
        expect(&mut connection, look, Some(1));
        expect(&mut connection, &format!("{form} COST 5"), Some(1));
        expect(&mut connection, look, Some(0));
        expect(&mut connection, &format!("{look} UPTO 2"), Some(0));
        expect(&mut connection, form, Some(0));
    }
    for error in [
        "RL.PEEK f WHAT 1 1",
        "RL.PEEK f TOKEN 1 1",
        "RL.PEEK f FIXED 0 1",
        "RL.PEEK f TOKEN 1 1 1",
        "RL.PEEK hash FIXED 1 1",
        "RL.PEEK hash SLIDE 1 1 EXACT",
    ] {
        expect(&mut connection, error, None);
    }
}
