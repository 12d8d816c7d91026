//! A window ends when it did, whoever is the primary by then, and whatever its clock.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use redis::Value;
use tempfile::TempDir;

use support::{
    Options, SECOND, Server, T0, ask, ask_all, caught_up, follow, free_port, send, server_binary,
    snapshot, try_send, wait_until,
};

/// Ten of each.
const FORMS: [(&str, &str); 4] = [
    ("f", "RL.FIXED f 10 60000"),
    ("t", "RL.TOKEN t 10 1 1000"),
    ("s", "RL.SLIDE s 10 60000"),
    ("e", "RL.SLIDE e 10 60000 EXACT"),
];

fn options(clock_us: u64) -> Options {
    Options::new()
        .clock(clock_us)
        .arg("repl-timeout", "2147483647")
        .arg("repl-diskless-sync", "no")
}

#[test]
fn a_promoted_replica_answers_as_the_primary_would_have() {
    let primary = options(T0).tcp().start();
    let replica = options(T0).start();
    follow(&replica, &primary);
    let mut old = primary.connect();
    for (_, call) in FORMS {
        ask(&mut old, &format!("{call} COST 7"));
    }
    caught_up(&replica, &primary);
    let mut new = replica.connect();
    send::<()>(&mut new, &["REPLICAOF", "NO", "ONE"]);
    for us in [0, 59_999_999, 60_000_000, 60_001_000, 125_000_000] {
        primary.set_clock(T0 + us);
        replica.set_clock(T0 + us);
        for (key, call) in FORMS {
            for cost in [8, 2, 1, 1] {
                let call = format!("{call} COST {cost}");
                assert_eq!(
                    ask(&mut new, &call),
                    ask(&mut old, &call),
                    "{call}, {us} µs"
                );
            }
            assert_eq!(
                snapshot(&mut new, key),
                snapshot(&mut old, key),
                "{call}, {us} µs"
            );
        }
    }
}

#[test]
fn an_open_window_ends_at_its_original_instant() {
    let primary = options(T0).tcp().start();
    let replica = options(T0 + 20 * SECOND).start();
    follow(&replica, &primary);
    let call = "RL.FIXED f 10 60000";
    assert_eq!(ask(&mut primary.connect(), &format!("{call} COST 7"))[2], 3);
    caught_up(&replica, &primary);
    drop(primary.kill());
    let mut connection = replica.connect();
    send::<()>(&mut connection, &["REPLICAOF", "NO", "ONE"]);
    let taken = ask(&mut connection, &format!("{call} COST 3"));
    assert_eq!(taken, [1, 10, 0, 40_000, 40_000]);
    replica.set_clock(T0 + 60 * SECOND - 1_000);
    assert_eq!(ask(&mut connection, call), [0, 10, 0, 1, 1]);
    replica.set_clock(T0 + 60 * SECOND);
    assert_eq!(ask(&mut connection, call), [1, 10, 9, 0, 60_000]);
}

/// Also where the new one's clock is ahead: each lease ends when it did.
#[test]
fn leases_and_several_limits_go_on_where_they_were() {
    let primary = options(T0).tcp().start();
    let replica = options(T0 + 20 * SECOND).start();
    follow(&replica, &primary);
    let mut connection = primary.connect();
    let call = |id: &str| format!("RL.ALL 2 l f LEASE 2 60000 {id} FIXED 10 60000 COST 3");
    for id in ["a", "b"] {
        assert_eq!(ask_all(&mut connection, &call(id)).0, 1);
    }
    caught_up(&replica, &primary);
    drop(primary.kill());
    let mut connection = replica.connect();
    send::<()>(&mut connection, &["REPLICAOF", "NO", "ONE"]);
    let expected = [[0, 2, 0, 40_000, 40_000], [1, 10, 4, 0, 40_000]];
    let refused = ask_all(&mut connection, &call("c"));
    assert_eq!(refused, (0, 40_000, expected.to_vec()));
    assert_eq!(
        ask(&mut connection, "RL.LEASE l 2 60000 a RENEW")[4],
        60_000
    );
    replica.set_clock(T0 + 60 * SECOND - 1_000);
    assert_eq!(ask_all(&mut connection, &call("c")).1, 1);
    replica.set_clock(T0 + 60 * SECOND);
    let admitted = ask_all(&mut connection, &call("c"));
    let expected = [[1, 2, 0, 0, 60_000], [1, 10, 7, 0, 60_000]];
    assert_eq!(admitted, (1, 0, expected.to_vec()));
    assert_eq!(ask(&mut connection, "RL.LEASE l 2 60000 b RELEASE")[3], -1);
}

/// A clock relative to that of the primary that was lost, and for each form what is left there
/// with the reply to a call that takes it.
struct Promoted {
    clock_us: i64,
    takes: [(u64, [i64; 5]); 4],
}

/// Four of ten were taken at `T0` (of the bucket, seven), and, but for the fixed window, three ten
/// seconds before. The bucket had three left.
const PROMOTED: [Promoted; 5] = [
    // A jitter: judged as the primary would have at its last call; only the waits are longer.
    Promoted {
        clock_us: -500,
        takes: [
            (6, [1, 10, 0, 60_001, 60_001]),
            (3, [1, 10, 0, 3_001, 10_001]),
            (3, [1, 10, 0, 60_001, 120_001]),
            (3, [1, 10, 0, 50_001, 60_001]),
        ],
    },
    // Behind: no time has passed. The counter's windows are one, and the log's newest are now.
    Promoted {
        clock_us: -5_000_000,
        takes: [
            (6, [1, 10, 0, 65_000, 65_000]),
            (3, [1, 10, 0, 3_000, 10_000]),
            (3, [1, 10, 0, 23_000, 65_000]),
            (3, [1, 10, 0, 55_000, 60_000]),
        ],
    },
    Promoted {
        clock_us: -3_600_000_000,
        takes: [
            (6, [1, 10, 0, 3_660_000, 3_660_000]),
            (3, [1, 10, 0, 3_000, 10_000]),
            (3, [1, 10, 0, 78_000, 120_000]),
            (3, [1, 10, 0, 60_000, 60_000]),
        ],
    },
    // Ahead: time has passed.
    Promoted {
        clock_us: 30_000_000,
        takes: [
            (6, [1, 10, 0, 30_000, 30_000]),
            (10, [1, 10, 0, 10_000, 10_000]),
            (4, [1, 10, 0, 45_000, 90_000]),
            (3, [1, 10, 0, 20_000, 60_000]),
        ],
    },
    Promoted {
        clock_us: 3_600_000_000,
        takes: [
            (10, [1, 10, 0, 60_000, 60_000]),
            (10, [1, 10, 0, 10_000, 10_000]),
            (10, [1, 10, 0, 120_000, 120_000]),
            (10, [1, 10, 0, 60_000, 60_000]),
        ],
    },
];

#[test]
fn a_promoted_host_with_another_clock_grants_nothing_for_it() {
    let primary = options(T0 - 10 * SECOND).tcp().start();
    let replicas: Vec<(Server, &Promoted)> = PROMOTED
        .iter()
        .map(|promoted| {
            let us = T0.checked_add_signed(promoted.clock_us).unwrap();
            (options(us).start(), promoted)
        })
        .collect();
    let mut connection = primary.connect();
    for call in ["RL.SLIDE s 10 60000", "RL.SLIDE e 10 60000 EXACT"] {
        ask(&mut connection, &format!("{call} COST 3"));
    }
    primary.set_clock(T0);
    for (key, call) in FORMS {
        let cost = if key == "t" { 7 } else { 4 };
        ask(&mut connection, &format!("{call} COST {cost}"));
        // The same state twice.
        send::<()>(&mut connection, &["COPY", key, &format!("{key}2")]);
    }
    for (replica, _) in &replicas {
        follow(replica, &primary);
    }
    drop(primary.kill());

    for (replica, Promoted { clock_us, takes }) in &replicas {
        let mut connection = replica.connect();
        send::<()>(&mut connection, &["REPLICAOF", "NO", "ONE"]);
        for ((key, call), (cost, reply)) in FORMS.into_iter().zip(takes) {
            let again = call.replace(key, &format!("{key}2"));
            let call = call.to_owned();
            let shown = format!("{call} COST {cost}, clock {clock_us} µs off");
            assert_eq!(
                ask(&mut connection, &format!("{call} COST {cost}")),
                *reply,
                "{shown}"
            );
            assert_eq!(ask(&mut connection, &call)[..3], [0, 10, 0], "{shown}");
            // A refusal before it makes no difference.
            let remaining = i64::try_from(*cost).unwrap();
            if *cost < 10 {
                let more = format!("{again} COST {}", cost + 1);
                assert_eq!(
                    ask(&mut connection, &more)[..3],
                    [0, 10, remaining],
                    "{shown}"
                );
            }
            assert_eq!(
                ask(&mut connection, &format!("{again} COST {cost}")),
                *reply,
                "{shown}"
            );
        }
    }
}

/// A sentinel in a folder of its own.
struct Sentinel {
    child: Child,
    dir: TempDir,
    url: String,
}

impl Sentinel {
    fn start(primary_port: u16) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let port = free_port();
        let conf = dir.path().join("sentinel.conf");
        let lines = format!(
            "port {port}\nunixsocket redis.sock\ndir .\nlogfile log\n\
             sentinel monitor rl 127.0.0.1 {primary_port} 2\n\
             sentinel down-after-milliseconds rl 1000\n\
             sentinel failover-timeout rl 3000\n"
        );
        fs::write(&conf, lines).expect("a configuration");
        let mut command = Command::new(server_binary());
        command
            .current_dir(dir.path())
            .args(["sentinel.conf", "--sentinel"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // SAFETY: one system call between fork and exec, which touches no memory.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = command.spawn().expect("a sentinel starts");
        let url = format!("redis://127.0.0.1:{port}");
        Self { child, dir, url }
    }

    /// A field of what it knows of the primary.
    fn knows(&self, field: &str) -> Option<String> {
        let mut connection = redis::Client::open(self.url.as_str())
            .and_then(|client| client.get_connection())
            .ok()?;
        let words = ["SENTINEL", "MASTER", "rl"];
        let fields: Vec<String> = try_send(&mut connection, &words).ok()?;
        let mut pairs = fields.chunks(2);
        pairs.find_map(|pair| (pair[0] == field).then(|| pair[1].clone()))
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            eprintln!("--- a sentinel's log\n{log}---");
        }
    }
}

fn role(server: &Server) -> Option<String> {
    let mut connection = server.try_connect().ok()?;
    let role: Vec<Value> = try_send(&mut connection, &["ROLE"]).ok()?;
    redis::from_redis_value(role.into_iter().next()?).ok()
}

#[test]
fn sentinels_fail_over_in_the_middle_of_a_window() {
    let primary = Options::new().tcp().arg("repl-diskless-sync", "no").start();
    let replica = Options::new().tcp().start();
    follow(&replica, &primary);
    let sentinels = [(); 3].map(|()| Sentinel::start(primary.port()));

    let mut connection = primary.connect();
    let calls = [
        ("f", "RL.FIXED f 10 3600000"),
        ("t", "RL.TOKEN t 10 1 3600000"),
        // The window's edge comes once in a hundred years.
        ("s", "RL.SLIDE s 10 3153600000000"),
        ("e", "RL.SLIDE e 10 3600000 EXACT"),
    ];
    for (_, call) in calls {
        assert_eq!(ask(&mut connection, &format!("{call} COST 7"))[2], 3);
    }
    let before = calls.map(|(key, _)| snapshot(&mut connection, key));
    caught_up(&replica, &primary);

    wait_until("sentinels that know of each other", || {
        sentinels.iter().all(|sentinel| {
            sentinel.knows("num-other-sentinels").as_deref() == Some("2")
                && sentinel.knows("num-slaves").as_deref() == Some("1")
        })
    });
    drop(primary.kill());
    let port = replica.port().to_string();
    wait_until("a failover", || {
        role(&replica).as_deref() == Some("master")
            && sentinels
                .iter()
                .all(|sentinel| sentinel.knows("port").as_ref() == Some(&port))
    });

    let mut connection = replica.connect();
    for ((key, call), before) in calls.into_iter().zip(before) {
        let now = snapshot(&mut connection, key);
        assert_eq!(now, before, "{call}");
        assert_eq!(
            ask(&mut connection, &format!("{call} COST 4"))[0],
            0,
            "{call}"
        );
        let reply = ask(&mut connection, &format!("{call} COST 3"));
        assert_eq!(reply[..3], [1, 10, 0], "{call}");
        assert_eq!(
            send::<i64>(&mut connection, &["PEXPIRETIME", key]),
            before.expire_at_ms,
            "{call}"
        );
    }
}
