//! Refusals as keyspace events, for those who ask for them.

use redis::{Connection, PubSub};

use support::{DEADLINE, Options, Server, ask, ask_all, c_library, changes, error, send};

fn events(server: &Server) -> Vec<(String, String)> {
    let mut connection = server.connect();
    let mut listener = server.connect();
    let mut pubsub = listener.as_pubsub();
    pubsub.psubscribe("__key*__:*").expect("a subscription");
    pubsub.set_read_timeout(Some(DEADLINE)).expect("a time-out");
    calls(&mut connection);
    send::<()>(&mut connection, &["PUBLISH", "__key__:end", "end"]);
    until_the_end(&mut pubsub)
}

/// Six of these are refused: what is forced is charged, but has not fitted. A release that finds
/// nothing is not.
fn calls(connection: &mut Connection) {
    for (call, allowed) in [
        ("RL.FIXED f 1 60000", 1),
        ("RL.FIXED f 1 60000", 0),
        ("RL.PEEK f FIXED 1 60000", 0),
        ("RL.SLIDE e 1 60000 EXACT COST 2", 0),
        ("RL.TOKEN t 1 1 60000", 1),
        ("RL.TOKEN t 1 1 60000 REFUND 2", 1),
        ("RL.TOKEN t 1 1 60000 REFUND 2", 1),
        ("RL.TOKEN t 1 1 60000 FORCE", 1),
        ("RL.TOKEN t 1 1 60000 COST 2 FORCE", 0),
        ("RL.SLIDE s 3 60000 UPTO 9", 3),
        ("RL.SLIDE s 3 60000 UPTO 9", 0),
        ("RL.PEEK s SLIDE 3 60000 UPTO 9", 0),
        ("RL.LEASE l 1 60000 me", 1),
        ("RL.LEASE l 1 60000 me RENEW", 1),
        ("RL.LEASE l 1 60000 other", 0),
        ("RL.LEASE l 1 60000 other RENEW", 0),
        ("RL.LEASE l 1 60000 other RELEASE", 0),
        ("RL.PEEK l LEASE 1 60000 other", 0),
    ] {
        assert_eq!(ask(connection, call)[0], allowed, "{call}");
    }
    error(connection, "RL.TOKEN f 1 1 60000");
    error(connection, "RL.TOKEN f 1 1 60000 FORCE");
}

fn until_the_end(pubsub: &mut PubSub<'_>) -> Vec<(String, String)> {
    let mut events = Vec::new();
    loop {
        let message = pubsub.get_message().expect("a message");
        let payload: String = message.get_payload().expect("text");
        if payload == "end" {
            return events;
        }
        events.push((message.get_channel_name().to_owned(), payload));
    }
}

#[test]
fn a_refusal_is_told_to_those_who_listen_for_modules_events() {
    let server = Options::new().arg("notify-keyspace-events", "KEd").start();
    let told = events(&server);
    let told: Vec<(&str, &str)> = told
        .iter()
        .map(|(channel, payload)| (channel.as_str(), payload.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("__keyspace@0__:f", "rl.refused"),
            ("__keyevent@0__:rl.refused", "f"),
            ("__keyspace@0__:e", "rl.refused"),
            ("__keyevent@0__:rl.refused", "e"),
            ("__keyspace@0__:t", "rl.refused"),
            ("__keyevent@0__:rl.refused", "t"),
            ("__keyspace@0__:s", "rl.refused"),
            ("__keyevent@0__:rl.refused", "s"),
            ("__keyspace@0__:l", "rl.refused"),
            ("__keyevent@0__:rl.refused", "l"),
            ("__keyspace@0__:l", "rl.refused"),
            ("__keyevent@0__:rl.refused", "l"),
        ]
    );
}

/// One for each limit that stood in the way, and for what was charged although it did not fit.
#[test]
fn each_of_several_limits_that_stands_in_the_way_is_told() {
    let server = Options::new().arg("notify-keyspace-events", "Kd").start();
    let (mut connection, mut listener) = (server.connect(), server.connect());
    let mut pubsub = listener.as_pubsub();
    pubsub.psubscribe("__key*__:*").expect("a subscription");
    pubsub.set_read_timeout(Some(DEADLINE)).expect("a time-out");
    let mut told_of = |call: &str, allowed: i64| {
        assert_eq!(ask_all(&mut connection, call).0, allowed, "{call}");
        send::<()>(&mut connection, &["PUBLISH", "__key__:end", "end"]);
        let told = until_the_end(&mut pubsub).into_iter();
        let keys = told.map(|(channel, event)| {
            assert_eq!(event, "rl.refused");
            channel.rsplit(':').next().expect("a key").to_owned()
        });
        keys.collect::<Vec<_>>().join(" ")
    };
    let call = "RL.ALL 3 a b l FIXED 1 60000 SLIDE 1 60000 EXACT LEASE 1 60000 me";
    assert_eq!(told_of(call, 1), "");
    // The lease is its own.
    assert_eq!(told_of(call, 0), "a b");
    assert_eq!(told_of(&call.replace(" me", " you"), 0), "a b l");
    // What would be charged in any case, or ends what is not there, does not stand in the way.
    let forced =
        "RL.ALL 3 a s l FIXED 1 60000 COST 2 FORCE SLIDE 1 60000 LEASE 1 60000 you RELEASE";
    assert_eq!(told_of(forced, 1), "a");
    assert_eq!(told_of(forced, 0), "s");
    let renewed = "RL.ALL 2 f l FIXED 1 60000 LEASE 1 60000 you RENEW";
    assert_eq!(told_of(renewed, 0), "l");
}

#[test]
fn nobody_else_is_told() {
    for flags in ["", "KE$lgx"] {
        let server = Options::new().arg("notify-keyspace-events", flags).start();
        assert_eq!(events(&server), [], "{flags:?}");
    }
}

#[test]
fn a_refusal_that_is_told_is_no_change() {
    let server = Options::new().arg("notify-keyspace-events", "AKE").start();
    let mut connection = server.connect();
    ask(&mut connection, "RL.FIXED f 1 60000");
    let before = changes(&mut connection);
    assert_eq!(ask(&mut connection, "RL.FIXED f 1 60000")[0], 0);
    assert_eq!(changes(&mut connection), before);
}

#[test]
fn another_module_may_delete_the_key_that_it_is_told_of() {
    let deleter = c_library("deleter");
    let server = Options::new()
        .arg("loadmodule", deleter.to_str().expect("a path"))
        .arg("notify-keyspace-events", "Kd")
        .start();
    let mut connection = server.connect();
    for call in [
        "RL.FIXED k 2 60000",
        "RL.TOKEN k 2 1 60000",
        "RL.SLIDE k 2 60000",
        "RL.SLIDE k 2 60000 EXACT",
    ] {
        for _ in 0..20 {
            for allowed in [1, 1, 0] {
                assert_eq!(ask(&mut connection, call)[0], allowed, "{call}");
            }
            assert_eq!(send::<usize>(&mut connection, &["EXISTS", "k"]), 0);
        }
    }
}
