//! A cluster: redirections, hash tags, and one limit while its slot moves from node to node.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use redis::{Connection, FromRedisValue, Value};

use support::{
    AnswerOfAll, Options, Server, ask, ask_all, error, error_text, free_port, send, try_send,
    wait_until,
};

/// Primaries that share the slots evenly.
pub struct Cluster {
    pub nodes: [Server; 3],
    bus_ports: [u16; 3],
}

impl Cluster {
    pub fn start() -> Self {
        // The usual bus port, 10000 above the other, may be taken.
        let bus_ports = [free_port(), free_port(), free_port()];
        let nodes = bus_ports.map(|bus_port| node_options(bus_port).start());
        let cluster = Self { nodes, bus_ports };
        for (node, [first, last]) in [[0, 5_461], [5_462, 10_922], [10_923, 16_383]]
            .into_iter()
            .enumerate()
        {
            let connection = &mut cluster.nodes[node].connect();
            run(
                connection,
                &format!("CLUSTER SET-CONFIG-EPOCH {}", node + 1),
            );
            run(connection, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        }
        for (from, to) in [(0, 1), (0, 2), (1, 2)] {
            let port = cluster.nodes[to].port();
            let meet = format!("CLUSTER MEET 127.0.0.1 {port} {}", cluster.bus_ports[to]);
            run(&mut cluster.nodes[from].connect(), &meet);
        }
        for node in &cluster.nodes {
            let mut connection = node.connect();
            wait_until("a cluster", || {
                let info: String = send(&mut connection, &["CLUSTER", "INFO"]);
                ["cluster_state:ok", "cluster_known_nodes:3"]
                    .iter()
                    .all(|line| info.lines().any(|found| found == *line))
            });
        }
        cluster
    }

    pub fn connect(&self) -> [Connection; 3] {
        self.nodes.each_ref().map(Server::connect)
    }

    /// The node at an address.
    fn at(&self, address: &str) -> usize {
        let port: u16 = address
            .strip_prefix("127.0.0.1:")
            .and_then(|port| port.parse().ok())
            .unwrap_or_else(|| panic!("no node is at {address}"));
        let found = self.nodes.iter().position(|node| node.port() == port);
        found.unwrap_or_else(|| panic!("no node is at {address}"))
    }
}

fn node_options(bus_port: u16) -> Options {
    Options::new()
        .tcp()
        .arg("bind", "127.0.0.1")
        .arg("cluster-enabled", "yes")
        .arg("cluster-port", &bus_port.to_string())
}

fn run(connection: &mut Connection, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    send::<Value>(connection, &words);
}

fn slot_of(connection: &mut Connection, key: &str) -> u16 {
    send(connection, &["CLUSTER", "KEYSLOT", key])
}

/// The node that serves a slot, the initial distribution being in force.
fn owner_of(slot: u16) -> usize {
    usize::from(slot > 5_461) + usize::from(slot > 10_922)
}

/// Where an error sends the caller: the kind and the address.
fn redirection(text: &str, slot: u16) -> Option<(&str, &str)> {
    let mut words = text.split(' ');
    let (kind, at, address) = (words.next()?, words.next()?, words.next()?);
    (at == slot.to_string() && words.next().is_none()).then_some((kind, address))
}

/// Every form of the commands, on a key.
fn forms(key: &str) -> [String; 11] {
    [
        format!("RL.FIXED {key} 5 3600000"),
        format!("RL.FIXED {key} 5 3600000 COST 6"),
        format!("RL.TOKEN {key} 5 1 3600000"),
        format!("RL.SLIDE {key} 5 3600000"),
        format!("RL.SLIDE {key} 5 3600000 EXACT"),
        format!("RL.SLIDE {key} 5 3600000 COST 2 EXACT"),
        format!("RL.PEEK {key} TOKEN 5 1 3600000"),
        format!("RL.PEEK {key} SLIDE 5 3600000 EXACT"),
        format!("RL.PEEK {key} LEASE 5 3600000 me"),
        format!("RL.LEASE {key} 5 3600000 me"),
        format!("RL.LEASE {key} 5 3600000 me RELEASE"),
    ]
}

#[test]
fn the_wrong_node_says_where_the_key_is_and_hash_tags_keep_keys_together() {
    let cluster = Cluster::start();
    let mut nodes = cluster.connect();
    // One of them for each node.
    let mut seen = [false; 3];
    for key in ["a", "b", "c", "{b}", "x{c}y", "{a}:{b}"] {
        let slot = slot_of(&mut nodes[0], key);
        let owner = owner_of(slot);
        seen[owner] = true;
        for call in forms(key) {
            for (node, connection) in nodes.iter_mut().enumerate() {
                if node == owner {
                    assert_eq!(ask(connection, &call).len(), 5, "{call}");
                    run(connection, &format!("DEL {key}"));
                } else {
                    let text = error(connection, &call);
                    let moved = redirection(&text, slot).expect("a redirection");
                    assert_eq!(moved.0, "MOVED", "{call}: {text}");
                    assert_eq!(cluster.at(moved.1), owner, "{call}: {text}");
                }
            }
        }
    }
    assert_eq!(seen, [true; 3], "every node was asked for a key of its own");

    // Two limiters of one tenant, decided in one transaction and in one script.
    let keys = ["{tenant:42}:read", "{tenant:42}:write"];
    let slot = slot_of(&mut nodes[0], "tenant:42");
    assert_eq!(keys.map(|key| slot_of(&mut nodes[0], key)), [slot; 2]);
    let elsewhere = if owner_of(slot_of(&mut nodes[0], "a")) == owner_of(slot) {
        "b"
    } else {
        "a"
    };
    let home = &mut nodes[owner_of(slot)];
    run(home, "MULTI");
    for key in keys {
        run(home, &format!("RL.TOKEN {key} 2 1 3600000"));
    }
    let replies: Vec<Vec<i64>> = send(home, &["EXEC"]);
    assert!(replies.iter().all(|reply| reply[..3] == [1, 2, 1]));
    let script = "local read = redis.call('RL.TOKEN', KEYS[1], 2, 1, 3600000) \
                  local write = redis.call('RL.TOKEN', KEYS[2], 2, 1, 3600000) \
                  return {read[3], write[3]}";
    let left: Vec<i64> = send(home, &["EVAL", script, "2", keys[0], keys[1]]);
    assert_eq!(left, [0, 0]);
    // Keys apart can't be decided together, and nothing of it happens.
    run(home, "MULTI");
    run(home, "RL.FIXED {tenant:42}:new 2 3600000");
    let elsewhere = format!("RL.FIXED {elsewhere} 2 3600000");
    assert!(error(home, &elsewhere).starts_with("MOVED "));
    assert!(error(home, "EXEC").starts_with("EXECABORT "));
    let left: i64 = send(home, &["EXISTS", "{tenant:42}:new"]);
    assert_eq!(left, 0);
}

#[test]
fn several_limits_have_to_be_in_one_slot_and_are_where_that_is() {
    let cluster = Cluster::start();
    let mut nodes = cluster.connect();
    let slot = slot_of(&mut nodes[0], "{t}:");
    let owner = owner_of(slot);
    let policies = "FIXED 5 3600000 SLIDE 5 3600000 EXACT LEASE 5 3600000 me";
    for (node, connection) in nodes.iter_mut().enumerate() {
        let call = format!("RL.ALL 3 {{t}}:f {{t}}:e {{t}}:l {policies}");
        if node == owner {
            assert_eq!(ask_all(connection, &call).0, 1);
        } else {
            let text = error(connection, &call);
            let (kind, address) = redirection(&text, slot).expect("a redirection");
            assert_eq!((kind, cluster.at(address)), ("MOVED", owner), "{text}");
        }
        // Wherever the one that is elsewhere stands, and however many are of this node.
        for keys in ["{t}:f {t}:e a", "{t}:f a {t}:l", "a {t}:e {t}:l", "a b c"] {
            let text = error(connection, &format!("RL.ALL 3 {keys} {policies}"));
            assert!(text.starts_with("CROSSSLOT "), "{keys}: {text}");
        }
    }
    let node = &mut nodes[owner];
    assert_eq!(send::<i64>(node, &["GET", "{t}:f"]), 1);
    assert_eq!(send::<usize>(node, &["DBSIZE"]), 3);
    // What the server can't find keys in is an error of ours.
    for (call, code) in [
        (
            "RL.ALL 0 a FIXED 1 1",
            "ERR invalid rate limit policy: numkeys",
        ),
        (
            "RL.ALL 33 a FIXED 1 1",
            "ERR invalid rate limit policy: numkeys",
        ),
        ("RL.ALL 9 a FIXED 1 1", "ERR syntax error"),
    ] {
        let text = error(node, call);
        assert!(text.starts_with(code), "{call}: {text}");
    }

    // While the slot moves: all here, all there, or neither.
    let to = (owner + 1) % 3;
    let ids = [owner, to].map(|node| send::<String>(&mut nodes[node], &["CLUSTER", "MYID"]));
    run(
        &mut nodes[to],
        &format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[0]),
    );
    run(
        &mut nodes[owner],
        &format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[1]),
    );
    let call = format!("RL.ALL 3 {{t}}:f {{t}}:e {{t}}:l {policies}");
    assert_eq!(ask_all(&mut nodes[owner], &call).0, 1);
    let port = cluster.nodes[to].port();
    for (moved, key) in ["{t}:f", "{t}:e", "{t}:l"].into_iter().enumerate() {
        let text = match moved {
            0 => String::new(),
            _ => error(&mut nodes[owner], &call),
        };
        assert!(moved == 0 || text.starts_with("TRYAGAIN "), "{text}");
        run(&mut nodes[to], "ASKING");
        let text = error(&mut nodes[to], &call);
        assert!(text.starts_with("TRYAGAIN "), "{text}");
        run(
            &mut nodes[owner],
            &format!("MIGRATE 127.0.0.1 {port} {key} 0 10000"),
        );
    }
    let text = error(&mut nodes[owner], &call);
    let asked = redirection(&text, slot).expect("a redirection");
    assert_eq!((asked.0, cluster.at(asked.1)), ("ASK", to), "{text}");
    run(&mut nodes[to], "ASKING");
    let (allowed, _, replies) = ask_all(&mut nodes[to], &call);
    let left: Vec<i64> = replies.iter().map(|reply| reply[2]).collect();
    assert_eq!((allowed, left), (1, vec![2, 2, 4]));
}

/// More than eight units leave by a command of the server's, which has to be let in as ours was.
#[test]
fn many_units_leave_on_a_node_that_takes_the_slot_over() {
    let cluster = Cluster::start();
    let mut nodes = cluster.connect();
    let slot = slot_of(&mut nodes[0], "k");
    let (from, to) = (owner_of(slot), (owner_of(slot) + 1) % 3);
    let from_id: String = send(&mut nodes[from], &["CLUSTER", "MYID"]);
    let import = format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}");
    run(&mut nodes[to], &import);
    // As old as can be, and one of now.
    let node = &mut nodes[to];
    let push = format!("RPUSH k{}", " 1000000000000000".repeat(30));
    for line in [push.as_str(), "PEXPIRE k 3600000"] {
        run(node, "ASKING");
        run(node, line);
    }
    for left in [69, 68] {
        run(node, "ASKING");
        assert_eq!(ask(node, "RL.SLIDE k 70 3600000 EXACT")[..3], [1, 70, left]);
    }
    run(node, "ASKING");
    assert_eq!(send::<i64>(node, &["LLEN", "k"]), 2);
    // The same for leases that are over, of which the server is asked for more than one number.
    run(node, "ASKING");
    run(node, "DEL k");
    let leases = (0..30).map(|n| (format!("id{n}"), 1_000_000_000_000_u64 + n));
    let live = (0..30).map(|n| (format!("live{n}"), 9_999_999_999_000_u64 + n));
    let leases = leases
        .chain(live)
        .map(|(id, end_ms)| format!("{end_ms} {id}"));
    let add = format!("ZADD k {}", leases.collect::<Vec<_>>().join(" "));
    for line in [add.as_str(), "PEXPIRE k 3600000"] {
        run(node, "ASKING");
        run(node, line);
    }
    for (limit, allowed) in [(15, 0), (31, 1)] {
        run(node, "ASKING");
        let reply = ask(node, &format!("RL.LEASE k {limit} 3600000 new"));
        assert_eq!(reply[..3], [allowed, limit, 0]);
    }
    run(node, "ASKING");
    assert_eq!(send::<i64>(node, &["ZCARD", "k"]), 31);
}

#[test]
fn a_node_whose_cluster_serves_no_slot_is_down() {
    let server = node_options(free_port()).start();
    let mut connection = server.connect();
    for call in forms("k") {
        let text = error(&mut connection, &call);
        assert!(text.starts_with("CLUSTERDOWN "), "{call}: {text}");
    }
    assert_eq!(send::<i64>(&mut connection, &["DBSIZE"]), 0);
}

/// A client that goes where it is sent.
struct Caller<'a> {
    cluster: &'a Cluster,
    nodes: [Connection; 3],
    /// The node that it asks first.
    home: usize,
}

impl Caller<'_> {
    /// The reply to a call, and the node that gave it.
    fn call<T: FromRedisValue>(&mut self, slot: u16, line: &str) -> (T, usize) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (mut at, mut asking) = (self.home, false);
        for _ in 0..10_000 {
            let node = &mut self.nodes[at];
            if asking {
                run(node, "ASKING");
            }
            let text = match try_send::<T>(node, &words) {
                Ok(reply) => return (reply, at),
                Err(error) => error_text(&error),
            };
            // Some of its keys are here, and some are there.
            if text.starts_with("TRYAGAIN ") {
                thread::yield_now();
                (at, asking) = (self.home, false);
                continue;
            }
            match redirection(&text, slot) {
                Some(("MOVED", address)) => {
                    at = self.cluster.at(address);
                    (self.home, asking) = (at, false);
                }
                Some(("ASK", address)) => (at, asking) = (self.cluster.at(address), true),
                _ => panic!("{line}: {text}"),
            }
        }
        panic!("{line} is sent from node to node");
    }
}

/// A limiter, or several in one call, that is called by many while its slot moves.
struct Moving {
    keys: &'static [&'static str],
    call: &'static str,
    /// Units admitted so far, by all callers.
    admitted: AtomicU64,
    /// The same by the node that admitted them.
    by_node: [AtomicU64; 3],
}

const LIMIT: u64 = 1_200;
const STEPS: u64 = 6;
const PART: u64 = LIMIT / (STEPS + 1);

/// None of them gives anything back while the test runs. `?` is the cost.
const MOVING: [(&[&str], &str); 5] = [
    (
        &["{move}:fixed"],
        "RL.FIXED {move}:fixed 1200 3600000 COST ?",
    ),
    (
        &["{move}:token"],
        "RL.TOKEN {move}:token 1200 1 2628000000 COST ?",
    ),
    (
        &["{move}:slide"],
        "RL.SLIDE {move}:slide 1200 3153600000000 COST ?",
    ),
    (
        &["{move}:exact"],
        "RL.SLIDE {move}:exact 1200 3600000 EXACT COST ?",
    ),
    (
        &["{move}:1", "{move}:2", "{move}:3", "{move}:4", "{move}:5"],
        "RL.ALL 5 {move}:1 {move}:2 {move}:3 {move}:4 {move}:5 FIXED 1200 3600000 COST ? \
         TOKEN 1200 1 2628000000 COST ? SLIDE 1200 3153600000000 COST ? \
         SLIDE 1200 3600000 EXACT COST ? LEASE 9 3600000 me",
    ),
];

/// The first integer of a reply: whether a call was admitted.
fn is_admitted(reply: &Value) -> bool {
    matches!(reply, Value::Array(parts) if parts[0] == Value::Int(1))
}

/// How a slot is moved: over `nodes`, from one to another.
type Move = fn(&Cluster, &mut [Connection; 3], u16, usize, usize);

/// Calls from several threads while the slot goes once around the cluster: each node admits, and
/// all of them together admit the limit. During a move one call in `pace` takes something.
fn limits_hold_while(pace: u64, move_slot: Move) {
    let cluster = Cluster::start();
    let mut nodes = cluster.connect();
    let slot = slot_of(&mut nodes[0], "{move}");
    let first = owner_of(slot);
    let limiters = MOVING.map(|(keys, call)| Moving {
        keys,
        call,
        admitted: AtomicU64::new(0),
        by_node: [const { AtomicU64::new(0) }; 3],
    });
    // Moves begun and ended. Each of these steps has a part of every limit: some of it is used before
    // a move and some during it, and the rest after the last one.
    let steps = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        for home in [0, 1, 2, first] {
            let mut caller = Caller {
                cluster: &cluster,
                nodes: cluster.connect(),
                home,
            };
            let (limiters, steps, failed) = (&limiters, &steps, &failed);
            scope.spawn(move || {
                let _alarm = Alarm(failed);
                let mut refused = 0;
                for round in 0.. {
                    let step = steps.load(Ordering::SeqCst);
                    let moving = step % 2 == 1;
                    if refused == 3 || failed.load(Ordering::SeqCst) {
                        break;
                    }
                    refused += usize::from(step == STEPS);
                    for limiter in limiters {
                        let used = limiter.admitted.load(Ordering::SeqCst);
                        let has_part = used < PART * (step + 1) || step == STEPS;
                        // Who has no part left, or makes it last, asks for all, which must be
                        // refused.
                        let takes = has_part && (!moving || round % pace == 0);
                        let cost = if takes { 1 } else { LIMIT };
                        let call = limiter.call.replace('?', &cost.to_string());
                        let (reply, node) = caller.call::<Value>(slot, &call);
                        if is_admitted(&reply) {
                            limiter.admitted.fetch_add(cost, Ordering::SeqCst);
                            limiter.by_node[node].fetch_add(cost, Ordering::SeqCst);
                            refused = 0;
                        }
                    }
                }
            });
        }
        let _alarm = Alarm(&failed);
        for moved in 0..3 {
            let (from, to) = ((first + moved) % 3, (first + moved + 1) % 3);
            let part_used = PART * (steps.load(Ordering::SeqCst) + 1);
            wait_until("calls", || {
                assert!(!failed.load(Ordering::SeqCst), "a caller failed");
                let used = |limiter: &Moving| limiter.admitted.load(Ordering::SeqCst);
                limiters.iter().all(|limiter| used(limiter) >= part_used)
            });
            steps.fetch_add(1, Ordering::SeqCst);
            move_slot(&cluster, &mut nodes, slot, from, to);
            steps.fetch_add(1, Ordering::SeqCst);
        }
    });
    for limiter in &limiters {
        let by_node = limiter.by_node.each_ref().map(|n| n.load(Ordering::SeqCst));
        assert_eq!(by_node.iter().sum::<u64>(), LIMIT, "{}", limiter.call);
        assert!(
            by_node.iter().all(|n| *n > 0),
            "{}: {by_node:?}",
            limiter.call
        );
        let call = limiter.call.replace('?', "1");
        if limiter.keys.len() == 1 {
            assert_eq!(ask(&mut nodes[first], &call)[..3], [0, 1_200, 0]);
        } else {
            let (allowed, _, replies): AnswerOfAll = ask_all(&mut nodes[first], &call);
            assert_eq!(allowed, 0);
            let told: Vec<&[i64]> = replies.iter().map(|reply| &reply[..3]).collect();
            assert_eq!(told[..4], [[0, 1_200, 0]; 4]);
            assert_eq!(told[4], [1, 9, 8]);
        }
        for key in limiter.keys {
            assert!(send::<i64>(&mut nodes[first], &["PTTL", key]) > 0);
        }
    }
    let all_keys: usize = MOVING.iter().map(|(keys, _)| keys.len()).sum();
    for (node, connection) in nodes.iter_mut().enumerate() {
        let keys = if node == first { all_keys } else { 0 };
        wait_until("the keys to be where they belong", || {
            send::<usize>(connection, &["DBSIZE"]) == keys
        });
    }
}

/// Tells the other threads when its own panics.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

#[test]
fn limits_hold_while_a_slot_moves_key_by_key() {
    limits_hold_while(1, |cluster, nodes, slot, from, to| {
        let ids = [from, to].map(|node| send::<String>(&mut nodes[node], &["CLUSTER", "MYID"]));
        let [from_id, to_id] = &ids;
        run(
            &mut nodes[to],
            &format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"),
        );
        run(
            &mut nodes[from],
            &format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"),
        );
        let port = cluster.nodes[to].port();
        loop {
            let slot = slot.to_string();
            let words = ["CLUSTER", "GETKEYSINSLOT", &slot, "1"];
            let keys: Vec<String> = send(&mut nodes[from], &words);
            let Some(key) = keys.first() else { break };
            run(
                &mut nodes[from],
                &format!("MIGRATE 127.0.0.1 {port} {key} 0 10000"),
            );
        }
        for node in [to, from, 3 - to - from] {
            run(
                &mut nodes[node],
                &format!("CLUSTER SETSLOT {slot} NODE {to_id}"),
            );
        }
    });
}

/// Valkey 9 can hand over a slot as a whole.
#[test]
fn limits_hold_while_a_slot_moves_as_a_whole() {
    let words = ["COMMAND", "INFO", "CLUSTER|MIGRATESLOTS"];
    let known: Vec<Value> = send(&mut Options::new().start().connect(), &words);
    if known == [Value::Nil] {
        return;
    }
    limits_hold_while(8, |cluster, nodes, slot, from, to| {
        let id: String = send(&mut nodes[to], &["CLUSTER", "MYID"]);
        run(
            &mut nodes[from],
            &format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {id}"),
        );
        wait_until("the slot to move", || {
            nodes.iter_mut().enumerate().all(|(node, connection)| {
                let words = ["TYPE", MOVING[0].0[0]];
                match try_send::<String>(connection, &words) {
                    Ok(_) => node == to,
                    Err(error) => redirection(&error_text(&error), slot)
                        .is_some_and(|(_, address)| cluster.at(address) == to),
                }
            })
        });
    });
}
