//! A server whose memory is full: known limiters go on, only what needs more memory is told so, as
//! `SET` is, and what each eviction policy takes of the limiters.

use redis::{Connection, ConnectionLike, Value};

use support::{
    Options, SECOND, Server, T0, ask, changes, error, error_text, info, info_text, send,
    send_bytes, snapshot, try_send, wait_until,
};

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Each form, with 5 units.
const FORMS: [&str; 4] = [
    "RL.FIXED KEY 5 3600000",
    "RL.TOKEN KEY 5 1 3600000",
    "RL.SLIDE KEY 5 3600000",
    EXACT,
];
const EXACT: &str = "RL.SLIDE KEY 5 3600000 EXACT";

/// The call of a form on a key of the form's own.
fn on(form: &str, key: &str) -> String {
    let form_and_key = form.replace(' ', "-").replace("KEY", key);
    form.replace("KEY", &form_and_key)
}

fn key_of(call: &str) -> &str {
    call.split(' ').nth(1).expect("a key")
}

fn set(connection: &mut Connection, name: &str, value: &str) {
    send::<()>(connection, &["CONFIG", "SET", name, value]);
}

/// Leaves no memory for anything new.
pub fn fill_memory(connection: &mut Connection) {
    let used = info(connection, "memory", "used_memory");
    set(connection, "maxmemory", &(used / 2).to_string());
    assert_eq!(error(connection, "SET plain 1"), OOM);
}

/// The replies to lines sent as one, errors among them.
fn send_all<S: AsRef<str>>(connection: &mut Connection, lines: &[S]) -> Vec<Value> {
    let mut pipe = redis::pipe();
    for line in lines {
        let mut words = line.as_ref().split(' ');
        pipe.cmd(words.next().expect("a command"));
        words.for_each(|word| {
            pipe.arg(word);
        });
    }
    let replies = connection.req_packed_commands(&pipe.get_packed_pipeline(), 0, lines.len());
    let replies = replies.expect("replies");
    assert_eq!(replies.len(), lines.len());
    replies
}

fn reply(integers: [i64; 5]) -> Value {
    Value::Array(integers.map(Value::Int).to_vec())
}

fn is_oom(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "OOM")
}

fn is_admitted(value: &Value) -> bool {
    matches!(value, Value::Array(integers) if integers.first() == Some(&Value::Int(1)))
}

#[test]
fn known_limiters_are_judged_and_charged_as_ever() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let forms = [
        "RL.FIXED KEY 20 3600000",
        "RL.TOKEN KEY 20 1 3600000",
        "RL.SLIDE KEY 20 3600000",
    ];
    // Admitted, refused and never admitted, and a count that gets a digit more.
    let costs = [7, 13, 21, 2, 11, 10, 1];
    let later = |connection: &mut Connection, form: &str, key: &str| {
        let call = on(form, key);
        let replies = costs.map(|cost| ask(connection, &format!("{call} COST {cost}")));
        let text: String = send(connection, &["GET", key_of(&call)]);
        let expire_at_ms: i64 = send(connection, &["PEXPIRETIME", key_of(&call)]);
        (replies, text, expire_at_ms)
    };
    for form in forms {
        ask(&mut connection, &on(form, "free"));
        ask(&mut connection, &on(form, "full"));
    }
    let free = forms.map(|form| later(&mut connection, form, "free"));
    fill_memory(&mut connection);
    for (form, free) in forms.into_iter().zip(free) {
        assert_eq!(free.0.map(|reply| reply[0]), [1, 0, 0, 1, 0, 1, 0]);
        assert_eq!(later(&mut connection, form, "full"), free, "{form}");
    }
    assert_eq!(error(&mut connection, "SET plain 1"), OOM, "still full");
}

#[test]
fn what_needs_more_memory_gets_the_servers_error_and_writes_nothing() {
    let server = Server::at(T0);
    let mut admin = server.connect();
    // The rights of others are nothing to the answer.
    let mut user = server.connect_as("~* -@all +rl.fixed +rl.token +rl.slide");
    let log = on(EXACT, "known");
    ask(&mut admin, &format!("{log} COST 2"));
    fill_memory(&mut admin);
    let known = snapshot(&mut admin, key_of(&log));
    let changes_before = changes(&mut admin);
    for form in FORMS {
        let call = on(form, "new");
        for connection in [&mut admin, &mut user] {
            assert_eq!(error(connection, &call), OOM);
            assert_eq!(error(connection, &format!("{call} COST 5")), OOM);
            let never = ask(connection, &format!("{call} COST 6"));
            assert_eq!(never, [0, 5, 5, -1, 0], "{call}");
            let text = error(connection, &format!("{call} COST 0"));
            assert!(text.starts_with("ERR invalid rate limit policy"), "{text}");
        }
    }
    for connection in [&mut admin, &mut user] {
        assert_eq!(error(connection, &log), OOM, "a longer log");
        let wait_ms = 3_600_000;
        for (more, expected) in [
            (" COST 4", [0, 5, 3, wait_ms, wait_ms]),
            (" COST 6", [0, 5, 3, -1, wait_ms]),
        ] {
            assert_eq!(ask(connection, &format!("{log}{more}")), expected);
        }
    }
    assert_eq!(snapshot(&mut admin, key_of(&log)), known);
    assert_eq!(send::<i64>(&mut admin, &["DBSIZE"]), 1);
    assert_eq!(changes(&mut admin), changes_before);
    assert_eq!(error(&mut admin, "SET plain 1"), OOM, "still full");

    set(&mut admin, "maxmemory", "0");
    for form in FORMS {
        assert_eq!(ask(&mut user, &on(form, "new"))[..3], [1, 5, 4], "{form}");
    }
    assert_eq!(ask(&mut user, &log)[..3], [1, 5, 2]);
}

/// What settles needs memory only where it makes a key or lengthens a log.
#[test]
fn what_settles_goes_on_for_known_limiters_only() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for form in FORMS {
        ask(&mut connection, &format!("{} COST 2", on(form, "known")));
    }
    fill_memory(&mut connection);
    for form in FORMS {
        let new = on(form, "new");
        let dirty = changes(&mut connection);
        if form != EXACT {
            assert_eq!(error(&mut connection, &format!("{new} FORCE")), OOM);
            let dear = format!("{new} COST 6 FORCE");
            assert_eq!(error(&mut connection, &dear), OOM, "{dear}");
        }
        assert_eq!(error(&mut connection, &format!("{new} UPTO 9")), OOM);
        let nothing = ask(&mut connection, &format!("{new} REFUND 1"));
        assert_eq!(nothing, [1, 5, 5, 0, 0], "{new}");
        assert_eq!(send::<i64>(&mut connection, &["EXISTS", key_of(&new)]), 0);

        let known = on(form, "known");
        let mut known = |words: &str| ask(&mut connection, &format!("{known} {words}"));
        if form == EXACT {
            let call = on(form, "known");
            let before = snapshot(&mut connection, key_of(&call));
            for words in ["UPTO 1", "UPTO 9"] {
                let text = error(&mut connection, &format!("{call} {words}"));
                assert_eq!(text, OOM, "{words}");
            }
            assert_eq!(snapshot(&mut connection, key_of(&call)), before);
            assert_eq!(changes(&mut connection), dirty);
            for left in [4, 5, 5] {
                let reply = ask(&mut connection, &format!("{call} REFUND 1"));
                assert_eq!(reply[..4], [1, 5, left, 0]);
            }
        } else {
            assert_eq!(known("UPTO 2")[..3], [2, 5, 1], "{form}");
            assert_eq!(known("REFUND 1")[..3], [1, 5, 2], "{form}");
            // A text that grows.
            assert_eq!(known("COST 20 FORCE")[..4], [0, 5, 0, -1], "{form}");
            assert_eq!(known("UPTO 1")[..3], [0, 5, 0], "{form}");
            assert_eq!(known("REFUND 20")[..3], [1, 5, 2], "{form}");
            assert_eq!(known("REFUND 20"), [1, 5, 5, 0, 0], "{form}");
        }
        let gone = on(form, "known");
        assert_eq!(send::<i64>(&mut connection, &["EXISTS", key_of(&gone)]), 0);
    }
    assert_eq!(send::<i64>(&mut connection, &["DBSIZE"]), 0);
    assert_eq!(error(&mut connection, "SET plain 1"), OOM, "still full");
}

/// A log that gives back, in full memory, a few units or many.
#[test]
fn a_log_gives_back_whatever_the_memory() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let call = "RL.SLIDE k 10000 60000 EXACT";
    ask(&mut connection, &format!("{call} UPTO 10000"));
    fill_memory(&mut connection);
    for (units, left) in [(1, 9_999), (8, 9_991), (9, 9_982), (5_000, 4_982)] {
        let reply = ask(&mut connection, &format!("{call} REFUND {units}"));
        assert_eq!(reply[..3], [1, 10_000, 10_000 - left]);
        assert_eq!(send::<i64>(&mut connection, &["LLEN", "k"]), left);
    }
    // Back: what lies in the future becomes now, and is shorter than it was.
    server.set_clock(T0 - 10 * SECOND);
    assert_eq!(
        ask(&mut connection, &format!("{call} REFUND 982"))[2],
        6_000
    );
    let newest: u64 = send(&mut connection, &["LINDEX", "k", "-1"]);
    assert_eq!(newest, T0 - 10 * SECOND);
    assert_eq!(ask(&mut connection, &format!("{call} REFUND 4000"))[4], 0);
    assert_eq!(send::<i64>(&mut connection, &["DBSIZE"]), 0);
}

/// A set needs memory where it gets one member more.
#[test]
fn leases_go_on_where_the_set_gets_no_larger() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for (id, ttl_ms) in [("a", 60_000), ("b", 60_000), ("over", 1)] {
        ask(&mut connection, &format!("RL.LEASE k 5 {ttl_ms} {id}"));
    }
    fill_memory(&mut connection);
    let mut call = |key: &str, words: &str| -> Result<[i64; 5], String> {
        let line = format!("RL.LEASE {key} {words}");
        let words: Vec<&str> = line.split(' ').collect();
        let before = snapshot(&mut connection, key);
        let result = try_send(&mut connection, &words).map_err(|error| error_text(&error));
        if result.is_err() {
            assert_eq!(snapshot(&mut connection, key), before, "{line}");
        }
        result
    };
    let oom = Err(OOM.to_owned());
    assert_eq!(call("k", "5 60000 c"), oom);
    assert_eq!(call("new", "5 60000 a"), oom);
    for (words, expected) in [
        ("5 60000 a", [1, 5, 2, 0, 60_000]),
        ("5 60000 a RENEW", [1, 5, 2, 0, 60_000]),
        ("2 60000 c", [0, 2, 0, 60_000, 60_000]),
        ("5 60000 c RENEW", [0, 5, 2, -1, 60_000]),
        ("5 60000 c RELEASE", [0, 5, 2, -1, 60_000]),
    ] {
        assert_eq!(call("k", words), Ok(expected), "{words}");
    }
    assert_eq!(call("new", "5 60000 a RELEASE"), Ok([0, 5, 5, -1, 0]));
    server.set_clock(T0 + 1_000);
    // One that is over makes room for one, and its own too.
    assert_eq!(call("k", "5 60000 c"), Ok([1, 5, 2, 0, 60_000]));
    assert_eq!(call("k", "5 60000 d"), oom);
    assert_eq!(call("k", "5 60000 c RELEASE"), Ok([1, 5, 3, 0, 59_999]));
    server.set_clock(T0 + 60 * SECOND);
    assert_eq!(call("k", "5 60000 a"), Ok([1, 5, 4, 0, 60_000]));
    assert_eq!(call("k", "5 60000 a RELEASE"), Ok([1, 5, 5, 0, 0]));
    assert_eq!(error(&mut connection, "SET plain 1"), OOM, "still full");
}

#[test]
fn a_log_that_loses_as_much_as_it_gains_goes_on() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let call = "RL.SLIDE k 5 60000 EXACT COST";
    ask(&mut connection, &format!("{call} 2"));
    server.set_clock(T0 + 10 * SECOND);
    ask(&mut connection, &format!("{call} 3"));
    fill_memory(&mut connection);
    // When, what it costs, and how many it has left: units leave after a minute.
    for (second, cost, left) in [
        (59, 1, None),
        (60, 1, Some(1)),
        (60, 1, None),
        (70, 3, Some(1)),
        (70, 1, None),
        // All have left.
        (190, 5, None),
        (190, 4, Some(1)),
        (190, 1, None),
    ] {
        let now = T0 + second * SECOND;
        server.set_clock(now);
        let before = snapshot(&mut connection, "k");
        let changes_before = changes(&mut connection);
        let call = format!("{call} {cost}");
        if let Some(left) = left {
            assert_eq!(ask(&mut connection, &call)[..3], [1, 5, left], "{second} s");
            let newest: u64 = send(&mut connection, &["LINDEX", "k", "-1"]);
            assert!((newest - now) < 10_000, "{second} s");
            continue;
        }
        match try_send::<Vec<i64>>(&mut connection, &call.split(' ').collect::<Vec<_>>()) {
            Ok(reply) => assert_eq!((second, reply[0]), (59, 0)),
            Err(error) => assert_eq!(error_text(&error), OOM, "{second} s"),
        }
        assert_eq!(snapshot(&mut connection, "k"), before, "{second} s");
        assert_eq!(changes(&mut connection), changes_before, "{second} s");
    }
}

/// What was used is over, but the key is still there.
#[test]
fn only_a_key_that_is_gone_needs_memory_anew() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let calls = [
        "RL.FIXED f 1 1000",
        "RL.TOKEN t 1 1 1000",
        "RL.SLIDE s 1 500",
    ];
    for call in calls {
        assert_eq!(ask(&mut connection, call)[0], 1);
    }
    fill_memory(&mut connection);
    server.set_clock(T0 + SECOND);
    for call in calls {
        assert_eq!(ask(&mut connection, call)[..3], [1, 1, 0], "{call}");
        assert_eq!(ask(&mut connection, call)[0], 0, "{call}");
    }
    server.set_clock(T0 + 4 * SECOND);
    for call in calls {
        assert_eq!(error(&mut connection, call), OOM);
    }
    assert_eq!(send::<i64>(&mut connection, &["EXISTS", "f", "t", "s"]), 0);
}

#[test]
fn a_step_back_is_stored_all_the_same() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let calls = [
        "RL.TOKEN t 5 1 60000 COST 5",
        "RL.SLIDE s 5 60000 COST 5",
        "RL.SLIDE e 5 60000 EXACT COST 5",
    ];
    for call in calls {
        assert_eq!(ask(&mut connection, call)[0], 1);
    }
    fill_memory(&mut connection);
    server.set_clock(T0 - 10 * SECOND);
    for call in calls {
        let before = snapshot(&mut connection, key_of(call));
        assert_eq!(ask(&mut connection, call)[0], 0, "{call}");
        assert_ne!(snapshot(&mut connection, key_of(call)), before, "{call}");
    }
    let times: Vec<u64> = send(&mut connection, &["LRANGE", "e", "0", "-1"]);
    assert_eq!(times, [T0 - 10 * SECOND; 5]);
}

#[test]
fn transactions_get_the_same_answers() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    let mut admin = server.connect();
    for form in FORMS {
        ask(&mut connection, &on(form, "known"));
    }
    let mut lines = vec!["MULTI".to_owned()];
    for form in FORMS {
        let (known, new) = (on(form, "known"), on(form, "new"));
        lines.extend([known, new.clone(), format!("{new} COST 6")]);
    }
    send_all(&mut connection, &lines);
    let mut plain = server.connect();
    send_all(&mut plain, &["MULTI", "SET plain 1"]);

    fill_memory(&mut admin);
    let replies = send_all(&mut connection, &["EXEC"]).remove(0);
    let Value::Array(replies) = replies else {
        panic!("{replies:?}")
    };
    for (form, replies) in FORMS.into_iter().zip(replies.chunks(3)) {
        assert_eq!(is_oom(&replies[0]), form == EXACT, "{form}: {replies:?}");
        assert_eq!(is_admitted(&replies[0]), form != EXACT, "{form}");
        assert!(is_oom(&replies[1]), "{form}: {replies:?}");
        assert_eq!(replies[2], reply([0, 5, 5, -1, 0]), "{form}");
    }
    assert!(error(&mut plain, "EXEC").contains(OOM), "so does SET");
    assert_eq!(send::<i64>(&mut admin, &["DBSIZE"]), 4);
}

/// A command that began with memory to spare is not stopped halfway.
#[test]
fn memory_that_fills_up_within_a_transaction_stops_neither_set_nor_limiters() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    set(&mut connection, "maxmemory", "1gb");
    let mut lines = vec!["MULTI".to_owned(), "CONFIG SET maxmemory 1".to_owned()];
    lines.extend(FORMS.map(|form| on(form, "new")));
    lines.extend(["SET plain 1".to_owned(), "EXEC".to_owned()]);
    let exec = send_all(&mut connection, &lines).pop();
    let Some(Value::Array(replies)) = exec else {
        panic!("{exec:?}")
    };
    assert_eq!(replies.first(), Some(&Value::Okay));
    assert!(replies[1..5].iter().all(is_admitted), "{replies:?}");
    assert_eq!(replies.last(), Some(&Value::Okay));
    assert_eq!(error(&mut connection, "SET plain 2"), OOM);
    assert_eq!(error(&mut connection, &on(FORMS[0], "newer")), OOM);
}

#[test]
fn scripts_get_the_same_answers() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    for form in FORMS {
        ask(&mut connection, &on(form, "known"));
    }
    fill_memory(&mut connection);
    let script = |lines: &[&str]| {
        let calls: Vec<_> = lines
            .iter()
            .map(|line| format!("redis.pcall('{}')", line.replace(' ', "','")))
            .collect();
        let each = "local texts = {} for i, r in ipairs(replies) do \
                    texts[i] = type(r) == 'table' and (r.err or r[1] .. '/' .. r[3]) or r end";
        format!(
            "local replies = {{{}}} {each} return texts",
            calls.join(",")
        )
    };
    let mut run =
        |lines: &[&str]| -> Vec<String> { send(&mut connection, &["EVAL", &script(lines), "0"]) };
    assert_eq!(run(&["SET plain 1"]), [OOM]);
    for form in FORMS {
        let (known, new) = (on(form, "known"), on(form, "new"));
        assert_eq!(run(&[&new]), [OOM], "{form}");
        assert_eq!(run(&[&format!("{new} COST 6")]), ["0/5"], "{form}");
        let first = if form == EXACT { OOM } else { "1/3" };
        assert_eq!(run(&[&known]), [first], "{form}");
        // A server that lets a script end what it began can't tell a module that it does.
        assert_eq!(run(&["DEL nothing", &new])[1], OOM, "{form}");
    }
    assert_eq!(send::<i64>(&mut connection, &["DBSIZE"]), 4);
}

/// With `#!lua`, and in functions, the server refuses the whole script before it runs, unless its
/// flags say otherwise.
#[test]
fn flags_keep_scripts_and_functions_going() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    ask(&mut connection, "RL.FIXED known 5 3600000");
    let library = "#!lua name=limits
        local function take(keys) return redis.call('RL.FIXED', keys[1], 5, 3600000) end
        local function look(keys) return redis.call('RL.PEEK', keys[1], 'FIXED', 5, 3600000) end
        redis.register_function('take', take)
        redis.register_function('look', look)
        local function register(name, callback, flag)
          redis.register_function{function_name = name, callback = callback, flags = {flag}}
        end
        register('take_allow_oom', take, 'allow-oom')
        register('look_no_writes', look, 'no-writes')";
    send::<()>(&mut connection, &["FUNCTION", "LOAD", library]);
    fill_memory(&mut connection);
    let mut run = |words: &[&str]| -> Result<i64, String> {
        let reply = try_send::<[i64; 5]>(&mut connection, words);
        reply
            .map(|reply| reply[2])
            .map_err(|error| error_text(&error))
    };
    let take = "return redis.call('RL.FIXED', KEYS[1], 5, 3600000)";
    let look = "return redis.call('RL.PEEK', KEYS[1], 'FIXED', 5, 3600000)";
    let oom = |result: Result<i64, String>| result.is_err_and(|text| text.starts_with(OOM));
    for (head, script, remaining) in [
        ("", take, Some(3)),
        ("#!lua\n", take, None),
        ("#!lua flags=allow-oom\n", take, Some(2)),
        ("", look, Some(2)),
        ("#!lua\n", look, None),
        ("#!lua flags=no-writes\n", look, Some(2)),
    ] {
        let script = format!("{head}{script}");
        let result = run(&["EVAL", &script, "1", "known"]);
        match remaining {
            Some(remaining) => assert_eq!(result, Ok(remaining), "{script}"),
            None => assert!(oom(result), "{script}"),
        }
        if script.contains("RL.FIXED") {
            assert!(oom(run(&["EVAL", &script, "1", "new"])), "{script}");
        }
    }
    for (function, remaining) in [
        ("take", None),
        ("take_allow_oom", Some(1)),
        ("look", None),
        ("look_no_writes", Some(1)),
    ] {
        let result = run(&["FCALL", function, "1", "known"]);
        match remaining {
            Some(remaining) => assert_eq!(result, Ok(remaining), "{function}"),
            None => assert!(oom(result), "{function}"),
        }
    }
    assert!(oom(run(&["FCALL", "take_allow_oom", "1", "new"])));
    assert_eq!(send::<usize>(&mut connection, &["EXISTS", "new"]), 0);
}

/// Redis 7.0 takes no command into a transaction while memory is full.
#[test]
fn a_transaction_that_begins_in_full_memory_goes_on_from_7_2() {
    let server = Server::at(T0);
    let mut connection = server.connect();
    ask(&mut connection, "RL.FIXED known 5 3600000");
    fill_memory(&mut connection);
    let is_7_0 = info_text(&mut connection, "server").contains("redis_version:7.0.");
    send::<()>(&mut connection, &["MULTI"]);
    if is_7_0 {
        assert_eq!(error(&mut connection, "GET known"), OOM);
        assert!(error(&mut connection, "EXEC").starts_with("EXECABORT"));
        return;
    }
    send::<()>(&mut connection, &["RL.FIXED", "known", "5", "3600000"]);
    let replies: Vec<[i64; 5]> = send(&mut connection, &["EXEC"]);
    assert_eq!(replies[0][..3], [1, 5, 3]);
}

#[test]
fn calls_go_on_while_the_server_makes_room() {
    let server = Options::new()
        .arg("maxmemory-policy", "allkeys-random")
        // It takes a few keys each time, and is over its limit meanwhile.
        .arg("maxmemory-eviction-tenacity", "0")
        .start();
    let mut connection = server.connect();
    let log = on(EXACT, "long");
    let lines: Vec<_> = (0..20_000).map(|n| format!("SET {n:0100} 1")).collect();
    send_all(&mut connection, &lines);
    let used = info(&mut connection, "memory", "used_memory");
    let mut lines = vec![format!("CONFIG SET maxmemory {}", used / 2)];
    lines.extend(FORMS.map(|form| on(form, "new")));
    lines.extend([log.clone(), log, "SET plain 1".to_owned()]);
    lines.push("INFO memory".to_owned());
    let replies = send_all(&mut connection, &lines);
    assert!(replies[1..7].iter().all(is_admitted), "{replies:?}");
    assert_eq!(replies[7], Value::Okay);
    let memory: String = redis::from_redis_value(replies[8].clone()).unwrap();
    let used_then: i64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"))
        .and_then(|used| used.trim().parse().ok())
        .unwrap();
    assert!(used_then > used / 2, "the server was over its limit");
}

/// With this factor each access adds one to what the server counts of a key. Where more than eight
/// units leave, the server's own command is an access too.
#[test]
fn a_call_counts_as_one_access() {
    let server = Options::new()
        .clock(T0)
        .arg("maxmemory-policy", "allkeys-lfu")
        .arg("lfu-log-factor", "0")
        .start();
    let mut connection = server.connect();
    for ms in 0..200 {
        server.set_clock(T0 + ms * 150_000);
        ask(&mut connection, "RL.SLIDE e 10000 60000 EXACT COST 50");
    }
    // The whole log, then half of it, has not left its window.
    for (after_us, call, accesses) in [
        (30 * SECOND, "RL.FIXED f 5 60000", 1),
        (30 * SECOND, "RL.TOKEN t 5 1 60000", 1),
        (30 * SECOND, "RL.SLIDE s 5 60000", 1),
        (30 * SECOND, "RL.SLIDE e 10000 60000 EXACT", 1),
        (30 * SECOND, "RL.LEASE l 5 60000 me", 1),
        (30 * SECOND, "RL.PEEK l LEASE 5 60000 me", 1),
        (
            75 * SECOND,
            "RL.PEEK e SLIDE 10000 60000 EXACT COST 7777",
            1,
        ),
        (75 * SECOND, "RL.SLIDE e 10000 60000 EXACT COST 9999", 1),
        (75 * SECOND, "RL.SLIDE e 10000 60000 EXACT", 2),
        (75 * SECOND, "RL.SLIDE e 10000 60000 EXACT", 1),
    ] {
        let key = call.split(' ').nth(1).unwrap();
        if key != "e" {
            ask(&mut connection, call);
        }
        server.set_clock(T0 + after_us);
        // A new count is 5, and the end of what can be counted 255.
        let dump: Vec<u8> = redis::cmd("DUMP").arg(key).query(&mut connection).unwrap();
        let words: [&[u8]; 5] = [b"RESTORE", key.as_bytes(), b"100000", &dump, b"REPLACE"];
        send_bytes::<()>(&mut connection, &words).unwrap();
        let before: i64 = send(&mut connection, &["OBJECT", "FREQ", key]);
        ask(&mut connection, call);
        let after: i64 = send(&mut connection, &["OBJECT", "FREQ", key]);
        assert_eq!(after - before, accesses, "{call}");
    }
}

/// Both kinds of keys under every policy: limiters, which have an expiry, and data without one.
#[test]
fn every_eviction_policy_makes_room_and_volatile_ones_take_limiters_only() {
    const DATA: usize = 300;
    const LIMITERS: usize = 1_000;
    let server = Options::new().start();
    let mut connection = server.connect();
    let limiters = |name: &str| -> Vec<_> {
        (0..LIMITERS)
            .map(|n| on(FORMS[n % 4], &format!("{name}-{n:0100}")))
            .collect()
    };
    let data: Vec<_> = (0..DATA).map(|n| format!("SET {n:0200} 1")).collect();
    for policy in [
        "volatile-lru",
        "volatile-lfu",
        "volatile-ttl",
        "volatile-random",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
    ] {
        set(&mut connection, "maxmemory", "0");
        set(&mut connection, "maxmemory-policy", policy);
        send::<()>(&mut connection, &["FLUSHALL"]);
        send_all(&mut connection, &data);
        send_all(&mut connection, &limiters("old"));
        let evicted = info(&mut connection, "stats", "evicted_keys");
        let used = info(&mut connection, "memory", "used_memory");
        set(&mut connection, "maxmemory", &used.to_string());

        let replies = send_all(&mut connection, &limiters("new"));
        assert!(replies.iter().all(is_admitted), "{policy}");
        let plain: Value = send(&mut connection, &["SET", "plain", "1", "EX", "1000"]);
        assert_eq!(plain, Value::Okay, "{policy}");
        assert!(info(&mut connection, "stats", "evicted_keys") > evicted);
        let mut exists = vec!["EXISTS"];
        exists.extend(data.iter().map(|line| key_of(line)));
        let left: usize = send(&mut connection, &exists);
        let volatile = policy.starts_with("volatile");
        assert_eq!(left == DATA, volatile, "{policy}: {left} of the data left");

        // Until nothing is left that it may take.
        set(&mut connection, "maxmemory", "1");
        wait_until("all to be evicted", || {
            send_all(&mut connection, &["SET plain 1 EX 1000"])
                .iter()
                .all(is_oom)
        });
        for form in FORMS {
            let call = on(form, "late");
            assert_eq!(error(&mut connection, &call), OOM, "{policy}");
            let never = ask(&mut connection, &format!("{call} COST 6"));
            assert_eq!(never, [0, 5, 5, -1, 0]);
        }
        let left: usize = send(&mut connection, &["DBSIZE"]);
        assert_eq!(left, if volatile { DATA } else { 0 }, "{policy}");
    }
}

/// Two groups of limiters of which one is squeezed out first.
struct Groups {
    first: Vec<String>,
    last: Vec<String>,
}

impl Groups {
    fn new(first: [&str; 4], last: [&str; 4]) -> Self {
        let group = |forms: [&str; 4], name: &str| {
            (0..200)
                .map(|n| on(forms[n % 4], &format!("{name}-{n:0100}")))
                .collect()
        };
        Self {
            first: group(first, "first"),
            last: group(last, "last"),
        }
    }

    fn call_all(&self, connection: &mut Connection) {
        for group in [&self.last, &self.first] {
            let replies = send_all(connection, group);
            assert!(replies.iter().all(is_admitted));
        }
    }

    /// Takes memory away until some keys have gone, and shows which.
    fn squeeze(&self, connection: &mut Connection, policy: &str) {
        let evicted = info(connection, "stats", "evicted_keys");
        let mut most = info(connection, "memory", "used_memory");
        while info(connection, "stats", "evicted_keys") < evicted + 20 {
            most -= 4_096;
            set(connection, "maxmemory", &most.to_string());
        }
        set(connection, "maxmemory", "0");
        let mut left = |group: &[String]| -> usize {
            let mut words = vec!["EXISTS"];
            words.extend(group.iter().map(|call| key_of(call)));
            send(connection, &words)
        };
        assert!(left(&self.first) > 0, "{policy}: too many went");
        assert!(left(&self.first) < self.first.len(), "{policy}");
        assert_eq!(left(&self.last), self.last.len(), "{policy}");
    }
}

fn eviction_at(us: u64) -> Server {
    Options::new()
        .clock(us)
        // It looks at more keys before it takes one, and at the clock more often.
        .arg("maxmemory-samples", "64")
        .arg("hz", "100")
        .start()
}

#[test]
fn volatile_ttl_takes_the_limiters_that_end_soonest_first() {
    let server = eviction_at(T0);
    let mut connection = server.connect();
    set(&mut connection, "maxmemory-policy", "volatile-ttl");
    let soon = FORMS.map(|form| form.replace("3600000", "60000"));
    let groups = Groups::new(soon.each_ref().map(String::as_str), FORMS);
    groups.call_all(&mut connection);
    groups.squeeze(&mut connection, "volatile-ttl");
}

#[test]
fn lru_takes_the_limiters_that_were_not_called_for_longest_first() {
    for policy in ["volatile-lru", "allkeys-lru"] {
        let server = eviction_at(T0);
        let mut connection = server.connect();
        set(&mut connection, "maxmemory-policy", policy);
        let groups = Groups::new(FORMS, FORMS);
        groups.call_all(&mut connection);
        server.set_clock(T0 + 100 * SECOND);
        let key = key_of(&groups.first[0]);
        wait_until("the server to see that time has passed", || {
            send::<i64>(&mut connection, &["OBJECT", "IDLETIME", key]) == 100
        });
        // A refused call is a call too: what is attacked stays.
        refuse_all(&mut connection, &groups.last);
        groups.squeeze(&mut connection, policy);
    }
}

#[test]
fn lfu_takes_the_limiters_that_are_called_least_first() {
    for policy in ["volatile-lfu", "allkeys-lfu"] {
        let server = eviction_at(T0);
        let mut connection = server.connect();
        set(&mut connection, "maxmemory-policy", policy);
        // Every call counts.
        set(&mut connection, "lfu-log-factor", "0");
        let groups = Groups::new(FORMS, FORMS);
        groups.call_all(&mut connection);
        for _ in 0..5 {
            refuse_all(&mut connection, &groups.last);
        }
        groups.squeeze(&mut connection, policy);
    }
}

/// Calls each of a group so that it is refused.
fn refuse_all(connection: &mut Connection, group: &[String]) {
    let lines: Vec<_> = group.iter().map(|call| format!("{call} COST 5")).collect();
    let refused = |value: &Value| matches!(value, Value::Array(reply) if reply[0] == Value::Int(0));
    assert!(send_all(connection, &lines).iter().all(refused));
}

/// Waits until the replica has the same keys, values and expiries.
fn follows(on_primary: &mut Connection, on_replica: &mut Connection) {
    let all = |connection: &mut Connection| {
        let mut keys: Vec<String> = send(connection, &["KEYS", "*"]);
        keys.sort();
        let snapshots: Vec<_> = keys.iter().map(|key| snapshot(connection, key)).collect();
        (keys, snapshots)
    };
    wait_until("the replica to follow", || {
        all(on_primary) == all(on_replica)
    });
}

#[test]
fn a_replica_follows_whatever_its_own_memory() {
    let primary = Options::new().primary().start();
    let mut on_primary = primary.connect();
    let replica = Options::new()
        .arg("maxmemory", "1")
        .arg("maxmemory-policy", "allkeys-random")
        .arg("replica-ignore-maxmemory", "yes")
        .start();
    let mut on_replica = replica.connect();
    let port = primary.port().to_string();
    send::<()>(&mut on_replica, &["REPLICAOF", "127.0.0.1", &port]);
    wait_until("the replica to link", || {
        let text: String = send(&mut on_replica, &["INFO", "replication"]);
        text.contains("master_link_status:up")
    });
    let lines: Vec<_> = (0..80)
        .map(|n| on(FORMS[n % 4], &format!("{n:0100}")))
        .collect();
    assert!(send_all(&mut on_primary, &lines).iter().all(is_admitted));
    follows(&mut on_primary, &mut on_replica);
    assert_eq!(info(&mut on_replica, "stats", "evicted_keys"), 0);

    // What got no memory on the primary is not sent.
    fill_memory(&mut on_primary);
    for form in FORMS {
        assert_eq!(error(&mut on_primary, &on(form, "new")), OOM);
    }
    assert_eq!(send::<i64>(&mut on_primary, &["WAIT", "1", "10000"]), 1);
    follows(&mut on_primary, &mut on_replica);

    // What the primary evicts goes there too, and nothing else.
    set(&mut on_primary, "maxmemory", "0");
    set(&mut on_primary, "maxmemory-policy", "volatile-ttl");
    let mut most = info(&mut on_primary, "memory", "used_memory");
    while info(&mut on_primary, "stats", "evicted_keys") == 0 {
        most -= 4_096;
        set(&mut on_primary, "maxmemory", &most.to_string());
    }
    set(&mut on_primary, "maxmemory", "0");
    follows(&mut on_primary, &mut on_replica);
    assert_eq!(info(&mut on_replica, "stats", "evicted_keys"), 0);
}
