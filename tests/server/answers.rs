//! What the server itself answers instead of running a command, by its own text, and that nothing
//! has happened then: not to a limiter that is known, and not to one that is not.

use std::fs;

use redis::{Client, Connection, Value};

use support::{
    DEADLINE, Options, Snapshot, ask, ask_all, changes, error, error_text, free_port, info, send,
    snapshot, try_send, wait_until,
};

/// Each form, on a key of its own that holds 1 of 5 units once it was called.
const FORMS: [(&str, &str); 4] = [
    ("{k}fixed", "RL.FIXED {k}fixed 5 3600000"),
    ("{k}token", "RL.TOKEN {k}token 5 1 3600000"),
    ("{k}slide", "RL.SLIDE {k}slide 5 315360000000"),
    ("{k}exact", "RL.SLIDE {k}exact 5 3600000 EXACT"),
];

const LEASE: &str = "RL.LEASE {k}lease 5 3600000 me";

/// Two of these keys.
const ALL: &str = "RL.ALL 2 {k}fixed {k}lease FIXED 5 3600000 LEASE 5 3600000 other";

/// All that a call could change.
#[derive(Debug, PartialEq, Eq)]
struct Everything {
    keys: Vec<Snapshot>,
    count: i64,
    changes: i64,
}

fn everything(observer: &mut Connection) -> Everything {
    let keys = FORMS.iter().map(|(key, _)| *key).chain(["{k}lease"]);
    Everything {
        keys: keys.map(|key| snapshot(observer, key)).collect(),
        count: send(observer, &["DBSIZE"]),
        changes: changes(observer),
    }
}

fn fill(connection: &mut Connection) {
    for (_, call) in FORMS {
        assert_eq!(ask(connection, call)[..3], [1, 5, 4], "{call}");
    }
    assert_eq!(ask(connection, LEASE)[..3], [1, 5, 4]);
}

/// Calls that would be admitted on a known key and on an absent one, refused, and never admitted,
/// and those that settle.
fn calls() -> Vec<String> {
    let mut calls = Vec::new();
    for (_, call) in FORMS {
        calls.extend([
            call.to_owned(),
            call.replace("{k}", "{k}new"),
            format!("{call} COST 5"),
            format!("{call} COST 6"),
            format!("{call} UPTO 2"),
            format!("{call} REFUND 1"),
            format!("{} REFUND 1", call.replace("{k}", "{k}new")),
        ]);
        if !call.ends_with("EXACT") {
            calls.push(format!("{call} COST 6 FORCE"));
        }
    }
    for words in ["", " RENEW", " RELEASE"] {
        calls.push(format!("{LEASE}{words}"));
    }
    calls.extend([
        LEASE.replace(" me", " other"),
        LEASE.replace("{k}", "{k}new"),
        ALL.to_owned(),
        ALL.replace("{k}", "{k}new"),
        ALL.replace("3600000 LEASE", "3600000 COST 5 LEASE"),
    ]);
    calls
}

/// Every call gets the answer, and nothing happens.
fn all_get(caller: &mut Connection, answer: &str, observer: &mut Connection) {
    let before = everything(observer);
    for call in calls() {
        assert_eq!(error(caller, &call), answer, "{call}");
    }
    assert_eq!(everything(observer), before, "{answer}");
}

/// Once the cause is gone, the limiters go on where they were.
fn all_go_on(connection: &mut Connection) {
    for (_, call) in FORMS {
        assert_eq!(ask(connection, call)[..3], [1, 5, 3], "{call}");
    }
    let renewed = ask(connection, &format!("{LEASE} RENEW"));
    assert_eq!(renewed[..3], [1, 5, 4]);
    let (allowed, _, replies) = ask_all(connection, ALL);
    assert_eq!(allowed, 1);
    assert_eq!([replies[0][2], replies[1][2]], [2, 3]);
}

/// What the server answers to a plain write command, which the calls have to get too.
fn answer_to_a_write(connection: &mut Connection) -> String {
    error(connection, "SET {k}plain 1")
}

fn set(connection: &mut Connection, name: &str, value: &str) {
    send::<()>(connection, &["CONFIG", "SET", name, value]);
}

#[test]
fn too_few_arguments_are_the_servers_error() {
    let server = Options::new().start();
    let mut connection = server.connect();
    fill(&mut connection);
    let before = everything(&mut connection);
    for call in FORMS.iter().map(|(_, call)| *call).chain([LEASE, ALL]) {
        let words: Vec<&str> = call.split_whitespace().collect();
        let name = words[0].to_lowercase();
        let least = match name.as_str() {
            "rl.token" | "rl.lease" => 5,
            _ => 4,
        };
        for count in 1..least {
            assert_eq!(
                error(&mut connection, &words[..count].join(" ")),
                format!("ERR wrong number of arguments for '{name}' command")
            );
        }
    }
    assert_eq!(everything(&mut connection), before);
    all_go_on(&mut connection);
}

#[test]
fn a_replica_says_that_it_is_read_only() {
    let primary = Options::new().primary().start();
    let mut on_primary = primary.connect();
    fill(&mut on_primary);
    let replica = Options::new().start();
    let mut connection = replica.connect();
    let port = primary.port().to_string();
    send::<()>(&mut connection, &["REPLICAOF", "127.0.0.1", &port]);
    wait_until("the replica to link", || {
        let text: String = send(&mut connection, &["INFO", "replication"]);
        text.contains("master_link_status:up")
    });
    let answer = answer_to_a_write(&mut connection);
    assert!(answer.starts_with("READONLY "), "{answer}");
    all_get(&mut connection, &answer, &mut replica.connect());
    let keys = everything(&mut on_primary).keys;
    assert_eq!(everything(&mut connection).keys, keys);

    send::<()>(&mut connection, &["REPLICAOF", "NO", "ONE"]);
    all_go_on(&mut connection);
}

#[test]
fn a_user_needs_the_command_and_both_rights_to_the_key() {
    let server = Options::new().start();
    let mut admin = server.connect();
    fill(&mut admin);
    let before = everything(&mut admin);
    // The texts differ from server to server, in more than the user's name.
    for (rights, about_key) in [
        ("-@all ~*", false),
        (
            "+@all -rl.fixed -rl.token -rl.slide -rl.lease -rl.all ~*",
            false,
        ),
        ("+@all", true),
        ("+@all ~other", true),
        ("+@all %R~*", true),
        ("+@all %W~*", true),
        ("+@all %R~{k}* %W~other", true),
    ] {
        let mut user = server.connect_as(rights);
        for call in calls() {
            let text = error(&mut user, &call);
            assert!(text.starts_with("NOPERM "), "{rights}: {call}: {text}");
            assert_eq!(text.contains(" key"), about_key, "{rights}: {call}: {text}");
        }
        assert_eq!(everything(&mut admin), before, "{rights}");
    }
    // And no other command, such as those that replicas get instead.
    let rights = "-@all +rl.fixed +rl.token +rl.slide +rl.lease +rl.all %R~{k}* %W~{k}*";
    all_go_on(&mut server.connect_as(rights));
}

#[test]
fn a_server_that_cannot_save_takes_no_writes() {
    let server = Options::new().arg("save", "3600 1000000").start();
    let mut connection = server.connect();
    fill(&mut connection);
    // PING fails too, so no connection can be made then.
    let mut observer = server.connect();
    // No file can take the place of a folder.
    let dump = server.dir().join("dump.rdb");
    fs::create_dir(&dump).unwrap();
    send::<()>(&mut connection, &["BGSAVE"]);
    wait_until("a save to fail", || {
        let text: String = send(&mut connection, &["INFO", "persistence"]);
        text.contains("rdb_last_bgsave_status:err")
    });
    let answer = answer_to_a_write(&mut connection);
    assert!(answer.starts_with("MISCONF "), "{answer}");
    all_get(&mut connection, &answer, &mut observer);

    set(&mut connection, "stop-writes-on-bgsave-error", "no");
    all_go_on(&mut connection);
}

#[test]
fn a_server_without_enough_replicas_takes_no_writes() {
    let server = Options::new().start();
    let mut connection = server.connect();
    fill(&mut connection);
    set(&mut connection, "min-replicas-to-write", "1");
    let answer = answer_to_a_write(&mut connection);
    assert!(answer.starts_with("NOREPLICAS "), "{answer}");
    all_get(&mut connection, &answer, &mut server.connect());

    set(&mut connection, "min-replicas-to-write", "0");
    all_go_on(&mut connection);
}

#[test]
fn a_server_that_loads_says_so() {
    let options = Options::new().arg("rdbcompression", "no");
    let server = options.clone().start();
    let mut connection = server.connect();
    // It answers each time that so many bytes were read: there have to be some.
    for number in 0..1_000 {
        let key = format!("{number:0100}");
        send::<()>(&mut connection, &["SET", &key, &key]);
    }
    fill(&mut connection);
    let before = everything(&mut connection);
    let dir = server.stop("SAVE");

    let url = format!("redis+unix://{}", dir.path().join("redis.sock").display());
    let server = options
        .arg("key-load-delay", "5000")
        .arg("loading-process-events-interval-bytes", "1024")
        .spawn_in(dir);
    let mut connection = None;
    wait_until("a server that loads", || {
        connection = connect(&url);
        connection.is_some()
    });
    let mut connection = connection.unwrap();
    let answer = error_text(&try_send::<Value>(&mut connection, &["DBSIZE"]).unwrap_err());
    assert!(answer.starts_with("LOADING "), "{answer}");
    for call in calls() {
        assert_eq!(error(&mut connection, &call), answer, "{call}");
    }
    assert_eq!(info(&mut connection, "persistence", "loading"), 1);

    set(&mut connection, "key-load-delay", "0");
    wait_until("a server that has loaded", || {
        info(&mut connection, "persistence", "loading") == 0
    });
    let after = everything(&mut connection);
    assert_eq!((after.keys, after.count), (before.keys, before.count));
    assert_eq!(after.changes, 0);
    all_go_on(&mut connection);
    drop(server);
}

/// A connection that is not asked whether it works.
fn connect(url: &str) -> Option<Connection> {
    let client = Client::open(url).ok()?;
    let connection = client.get_connection_with_timeout(DEADLINE).ok()?;
    connection.set_read_timeout(Some(DEADLINE)).ok()?;
    Some(connection)
}

/// A server asks every module whether it can bear that: one that can't costs all readers of the
/// replica their answers for as long as it loads.
#[test]
fn a_replica_may_go_on_answering_while_it_loads() {
    let primary = Options::new().primary().start();
    fill(&mut primary.connect());
    let replica = Options::new().arg("repl-diskless-load", "swapdb").start();
    let mut connection = replica.connect();
    let port = primary.port().to_string();
    send::<()>(&mut connection, &["REPLICAOF", "127.0.0.1", &port]);
    wait_until("the replica to link", || {
        let text: String = send(&mut connection, &["INFO", "replication"]);
        text.contains("master_link_status:up")
    });
    let keys: usize = send(&mut connection, &["DBSIZE"]);
    assert_eq!(keys, FORMS.len() + 1);
    let log = replica.log();
    assert!(!log.contains("Skipping diskless-load"), "{log}");
}

#[test]
fn a_node_whose_cluster_is_down_says_so() {
    let server = Options::new()
        .tcp()
        .arg("bind", "127.0.0.1")
        .arg("cluster-enabled", "yes")
        .arg("cluster-port", &free_port().to_string())
        .start();
    let mut connection = server.connect();
    let all = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
    send::<()>(&mut connection, &all);
    wait_until("a cluster", || {
        let text: String = send(&mut connection, &["CLUSTER", "INFO"]);
        text.contains("cluster_state:ok")
    });
    fill(&mut connection);
    let before = everything(&mut connection);

    // The slot of another key.
    let slot: u16 = send(&mut connection, &["CLUSTER", "KEYSLOT", "other"]);
    let slot = slot.to_string();
    send::<()>(&mut connection, &["CLUSTER", "DELSLOTS", &slot]);
    for reads in ["no", "yes"] {
        set(&mut connection, "cluster-allow-reads-when-down", reads);
        let answer = answer_to_a_write(&mut connection);
        assert!(answer.starts_with("CLUSTERDOWN "), "{answer}");
        for call in calls() {
            assert_eq!(error(&mut connection, &call), answer, "{call}");
        }
    }
    assert_eq!(everything(&mut connection), before);
    // A slot that nobody serves, in a cluster that is not down.
    set(&mut connection, "cluster-require-full-coverage", "no");
    wait_until("a cluster", || {
        try_send::<Value>(&mut connection, &["SET", "{k}plain", "1"]).is_ok()
    });
    for call in FORMS.iter().map(|(_, call)| *call).chain([LEASE, ALL]) {
        let answer = error(&mut connection, &call.replace("{k}", "{other}"));
        assert!(answer.starts_with("CLUSTERDOWN "), "{call}: {answer}");
    }
    all_go_on(&mut connection);
}
