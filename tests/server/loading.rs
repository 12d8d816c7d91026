//! Loading, unloading, and refusing to load.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redis::Value;
use tempfile::TempDir;

use support::{Options, T0, ask, ask_all, error, info_text, module, send};

fn modules(connection: &mut redis::Connection) -> usize {
    let list = format!("{:?}", send::<Value>(connection, &["MODULE", "LIST"]));
    list.matches("'\"rl\"'").count()
}

#[test]
fn it_can_be_loaded_and_unloaded_while_the_server_runs() {
    let server = Options::new()
        .without_module()
        .clock(T0)
        .arg("enable-module-command", "yes")
        .start();
    let mut connection = server.connect();
    let path = module().to_str().unwrap();
    send::<()>(&mut connection, &["MODULE", "LOAD", path]);
    let calls = [
        "RL.FIXED f 3 60000",
        "RL.TOKEN t 3 1 60000",
        "RL.SLIDE e 3 60000 EXACT",
    ];
    for call in calls {
        assert_eq!(ask(&mut connection, call)[2], 2, "{call}");
    }
    let lease = |id: &str| format!("RL.LEASE l 3 60000 {id}");
    let both = |id: &str| format!("RL.ALL 2 x y FIXED 3 60000 LEASE 3 60000 {id}");
    assert_eq!(ask(&mut connection, &lease("a"))[2], 2);
    assert_eq!(ask_all(&mut connection, &both("a")).0, 1);
    assert_eq!(modules(&mut connection), 1);

    // Loaded twice, it stays loaded once, and the server goes on.
    assert!(error(&mut connection, &format!("MODULE LOAD {path}")).starts_with("ERR "));
    assert_eq!(modules(&mut connection), 1);

    send::<()>(&mut connection, &["MODULE", "UNLOAD", "rl"]);
    assert!(error(&mut connection, calls[0]).starts_with("ERR unknown command"));
    assert_eq!(
        send::<String>(&mut connection, &["GET", "f"]),
        "1",
        "keys are plain data"
    );
    send::<()>(&mut connection, &["MODULE", "LOAD", path]);
    for call in calls {
        assert_eq!(
            ask(&mut connection, call)[2],
            1,
            "{call} goes on where it was"
        );
    }
    assert_eq!(ask(&mut connection, &lease("b"))[2], 1);
    let (_, _, replies) = ask_all(&mut connection, &both("b"));
    assert_eq!([replies[0][2], replies[1][2]], [1, 1]);
}

#[test]
fn it_refuses_to_load_where_a_command_that_it_replicates_is_renamed() {
    for command in [
        "SET",
        "INCR",
        "INCRBY",
        "DECRBY",
        "RPUSH",
        "LPOP",
        "RPOP",
        "LTRIM",
        "ZADD",
        "ZREM",
        "ZREMRANGEBYSCORE",
        "ZCOUNT",
        "ZRANGE",
        "DEL",
        "PEXPIREAT",
        "SELECT",
        "MULTI",
        "EXEC",
    ] {
        let mut options = Options::new().arg("rename-command", command);
        options = options.word("").arg("loglevel", "warning");
        let mut server = options.spawn_in(TempDir::new().unwrap());
        assert_eq!(server.wait().code(), Some(1));
        let why = format!(
            "redis-rl is not loaded: it needs this command under its own name: {command}\n"
        );
        assert!(server.log().contains(&why), "{}", server.log());
    }
}

#[test]
fn it_refuses_arguments_and_says_where_they_stand() {
    let server = Options::new()
        .without_module()
        .arg("enable-module-command", "yes")
        .start();
    let mut connection = server.connect();
    let load = format!("MODULE LOAD {}", module().display());
    assert!(error(&mut connection, &format!("{load} limit 5")).starts_with("ERR "));
    assert_eq!(modules(&mut connection), 0);
    let why = "redis-rl is not loaded: it takes no arguments: end the loadmodule line after \
               libredis_rl.so\n";
    assert!(server.log().contains(why), "{}", server.log());
    let words: Vec<&str> = load.split(' ').collect();
    send::<()>(&mut connection, &words);
    assert_eq!(modules(&mut connection), 1);
}

/// Neither loading nor asking for memory runs a command of the server's, or counts as one.
#[test]
fn the_servers_own_commands_are_not_counted() {
    let server = Options::new().start();
    let mut connection = server.connect();
    send::<()>(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]);
    assert!(error(&mut connection, "RL.FIXED k 5 60000").starts_with("OOM "));
    let text = info_text(&mut connection, "commandstats");
    assert!(text.contains("cmdstat_rl.fixed:"), "{text}");
    for command in ["set", "multi", "select", "ltrim"] {
        assert!(!text.contains(&format!("cmdstat_{command}:")), "{text}");
    }
}

/// Before it builds anything.
#[test]
fn make_run_says_that_the_port_is_in_use() {
    let server = Options::new().tcp().start();
    let make = Command::new("make")
        .args(["--no-print-directory", "run"])
        .arg(format!("PORT={}", server.port()))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_remove("MAKEFLAGS")
        .output()
        .expect("make runs");
    let says = format!("Port {} of this machine is in use.", server.port());
    let text = String::from_utf8_lossy(&make.stdout);
    assert!(!make.status.success());
    assert!(
        text.starts_with(&says) && text.lines().count() == 1,
        "{text}"
    );
    let another = format!("make run PORT={}", server.port() + 1);
    assert!(text.contains(&another), "{text}");
}

/// For `REDIS_SERVER` older than 7.0; `make test-servers` runs it there.
#[test]
#[ignore = "needs a server that is too old"]
fn a_too_old_server_says_why_and_ends_in_its_usual_way() {
    let mut server = Options::new().spawn_in(TempDir::new().unwrap());
    let status = server.wait();
    assert_eq!(status.code(), Some(1), "not by a signal: {status}");
    let log = server.log();
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("redis-rl"))
        .collect();
    let [line] = lines[..] else {
        panic!("one line of ours in {log}")
    };
    let needs = "redis-rl is not loaded: it needs Redis 7.0 or Valkey 8.0 or later, \
                 this server lacks RedisModule_";
    assert!(line.contains(needs), "{line}");

    let server = Options::new().without_module().start();
    let mut connection = server.connect();
    assert!(
        error(
            &mut connection,
            &format!("MODULE LOAD {}", module().display())
        )
        .starts_with("ERR ")
    );
    assert_eq!(send::<String>(&mut connection, &["PING"]), "PONG");
}

#[test]
fn the_module_asks_nothing_unusual_of_the_system() {
    let output = Command::new("ldd")
        .arg(module())
        .output()
        .expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout);
    for library in text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
    {
        let known = ["linux-vdso", "libc.so", "libgcc_s.so", "ld-linux", "/lib"];
        assert!(
            known.iter().any(|name| library.starts_with(name)),
            "{library} in {text}"
        );
    }
}

/// A server frees the commands of a module that goes, while clients may still refer to them: in a
/// transaction that they have begun, and by the last command that they sent, which `CLIENT LIST` reads.
/// So the clients have to go first.
#[test]
fn a_new_build_takes_over_once_the_clients_are_disconnected() {
    let server = Options::new()
        .without_module()
        .arg("enable-module-command", "yes")
        .start();
    // Each build has a file of its own.
    let builds = TempDir::new().unwrap();
    let build = |number: usize| {
        let path = builds.path().join(format!("libredis_rl-{number}.so"));
        std::fs::copy(module(), &path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut control = server.connect();
    send::<()>(&mut control, &["MODULE", "LOAD", &build(0)]);
    let done = AtomicBool::new(false);
    // Calls that were admitted, and calls whose answer was lost.
    let calls: Vec<[i64; 2]> = thread::scope(|scope| {
        let call = || {
            let (mut admitted, mut lost) = (0, 0);
            while !done.load(Ordering::Relaxed) {
                let Ok(mut connection) = server.try_connect() else {
                    continue;
                };
                let mut pipe = redis::pipe();
                pipe.atomic();
                pipe.cmd("RL.FIXED").arg(&["f", "1000000", "3600000"]);
                loop {
                    match pipe.query::<Vec<[i64; 5]>>(&mut connection) {
                        Ok(replies) => admitted += replies[0][0],
                        Err(error) => {
                            let text = error.to_string();
                            assert!(!text.contains("unknown command"), "{text}");
                            lost += 1;
                            break;
                        }
                    }
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            }
            [admitted, lost]
        };
        let callers: [_; 4] = std::array::from_fn(|_| scope.spawn(call));
        for number in 1..=20 {
            let build = build(number);
            send::<()>(&mut control, &["MULTI"]);
            send::<()>(&mut control, &["CLIENT", "KILL", "TYPE", "normal"]);
            send::<()>(&mut control, &["MODULE", "UNLOAD", "rl"]);
            send::<()>(&mut control, &["MODULE", "LOAD", &build]);
            let replies: Vec<Value> = send(&mut control, &["EXEC"]);
            assert_eq!(replies[1..], [Value::Okay, Value::Okay]);
        }
        done.store(true, Ordering::Relaxed);
        callers.map(|caller| caller.join().unwrap()).into()
    });
    let sum = |at: usize| calls.iter().map(|counts| counts[at]).sum::<i64>();
    let (admitted, lost) = (sum(0), sum(1));
    let count: i64 = send(&mut control, &["GET", "f"]);
    assert!(admitted > 0 && lost > 0, "{calls:?}");
    assert!(
        (admitted..=admitted + lost).contains(&count),
        "{count}: {calls:?}"
    );
}
