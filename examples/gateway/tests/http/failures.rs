//! What happens while Redis can't judge, and that it ends by itself.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gateway::{
    API_KEYS, Client, Gateway, calls, hourly, keys, kill, redis_url, route, rules,
};
use crate::proxy::Proxy;
use support::{Options, Server, send, snapshot, wait_until};

/// How long a gateway may take to ask Redis again once it is back: the pause of its breaker, and an
/// attempt to connect, with room for a busy machine.
const RECOVERY: Duration = Duration::from_secs(3);

/// The longest wait that a local limiter counts, 2^61 ns, in seconds.
const LONGEST: u64 = 2_305_843_010;

const TIMEOUT: Duration = Duration::from_millis(300);

/// One route that fails closed and one that fails open, ten an hour each, shared by two gateways.
fn both(timeout: Duration) -> Value {
    let closed = route("closed", &hourly(10));
    let mut open = route("open", &hourly(10));
    open["on_failure"] = json!("open");
    let mut rules = rules(&[closed, open]);
    rules["processes"] = json!(2);
    rules["timeout_ms"] = json!(timeout.as_millis().to_string().parse::<u64>().unwrap());
    rules
}

/// The policies of both routes, at a gateway that has been asked for neither while it is alone.
fn assert_alone(client: &Client) {
    let answer = client.get("/closed");
    assert_eq!(answer.code(), (503, "limiter_unavailable"));
    assert!(answer.limits().is_empty(), "{answer:?}");
    for tenant in [0, 1] {
        let get = || client.get_as("/open", API_KEYS[tenant].1, &[]);
        for _ in 0..5 {
            let answer = get();
            assert_eq!(answer.code(), (200, "ok"));
            // What all gateways together have admitted is not known.
            assert_eq!(
                answer.limits(),
                [("ratelimit-policy", "\"open\";q=10;w=3600")]
            );
        }
        let answer = get();
        assert_eq!(answer.code(), (429, "rate_limited"));
        assert_eq!(answer.field("ratelimit"), None);
        // Ten an hour are five for each of two: one every twelve minutes.
        let seconds: u64 = answer.field("retry-after").unwrap().parse().unwrap();
        assert!((700..=720).contains(&seconds), "{seconds}");
    }
}

/// Waits until Redis judges a request, of a tenant that nothing else calls as.
fn wait_until_judged(client: &Client) {
    wait_until("a judged request", || {
        let answer = client.get_as("/closed", API_KEYS[2].1, &[]);
        answer.status == 200 && answer.is_shared()
    });
}

/// Waits until Redis judges again, for no longer than it may take.
fn assert_recovers(client: &Client, since: Instant) {
    wait_until_judged(client);
    let took = since.elapsed();
    println!("recovered in {took:?}");
    assert!(took < RECOVERY, "{took:?}");
    assert!(client.get_as("/open", API_KEYS[2].1, &[]).is_shared());
}

#[test]
fn an_invalid_counter_concerns_nobody_else() {
    let server = Server::start();
    let gateway = Gateway::start(&redis_url(&server), &both(Duration::from_secs(10)));
    let client = gateway.client();
    for path in ["/closed", "/open"] {
        assert!(client.get(path).is_shared());
    }
    let keys = keys(&server);
    let mut connection = server.connect();
    send::<()>(
        &mut connection,
        &["SET", &keys[0], "no counter", "PX", "3600000"],
    );
    send::<()>(&mut connection, &["DEL", &keys[1]]);
    send::<()>(&mut connection, &["HSET", &keys[1], "another", "type"]);
    let before = [&keys[0], &keys[1]].map(|key| snapshot(&mut connection, key));
    for _ in 0..8 {
        let answer = client.get("/closed");
        assert_eq!(answer.code(), (503, "limiter_unavailable"));
    }
    for status in [200, 200, 200, 200, 200, 429] {
        let answer = client.get("/open");
        assert_eq!(answer.status, status);
        assert!(!answer.is_shared());
    }
    // More errors than open the breaker, and it is closed: other keys are judged.
    for path in ["/closed", "/open"] {
        assert!(client.get_as(path, API_KEYS[1].1, &[]).is_shared());
    }
    let line = format!("invalid counter state, key left unchanged, for {}", keys[0]);
    assert_eq!(gateway.logged(&line), 8, "{}", gateway.log());
    let after = [&keys[0], &keys[1]].map(|key| snapshot(&mut connection, key));
    assert_eq!(before, after);
}

#[test]
fn a_damaged_counter_does_not_fill_the_log() {
    let server = Server::start();
    let gateway = Gateway::start(&redis_url(&server), &both(Duration::from_secs(10)));
    let client = gateway.client();
    client.get("/closed");
    let key = &keys(&server)[0];
    send::<()>(&mut server.connect(), &["SET", key, "no counter"]);
    let began = Instant::now();
    for _ in 0..200 {
        assert_eq!(client.get("/closed").status, 503);
    }
    // Ten at once, and ten a second.
    let most = 10 + began.elapsed().as_millis() / 100;
    let lines = gateway.logged("INVALIDSTATE");
    assert!(
        lines >= 10 && u128::try_from(lines).unwrap() <= most + 1,
        "{lines}, {most}"
    );
}

/// Whose cost, limit and processes come out how: by each gateway alone.
#[test]
fn a_share_is_one_unit_or_one_request_at_least() {
    let (units, years) = (9_007_199_254_740_991_u64, 3_153_600_000_000_u64);
    let fixed =
        |limit, window_ms| json!({ "algorithm": "fixed", "limit": limit, "window_ms": window_ms });
    let token = json!({ "algorithm": "token", "capacity": 4, "refill": 2, "period_ms": 60_000 });
    let cases = [
        (
            "less-than-one",
            fixed(1, 3_600_000),
            1,
            &[200, 429][..],
            Some(7_200),
        ),
        ("dear", fixed(10, 3_600_000), 8, &[200, 429], Some(8 * 720)),
        ("above", fixed(10, 3_600_000), 11, &[429], None),
        ("bucket", token, 1, &[200, 200, 429], Some(60)),
        ("large", fixed(units, 1), units, &[429], None),
        ("long", fixed(1, years), 1, &[200, 429], Some(LONGEST)),
    ];
    let routes = cases.each_ref().map(|(name, policy, cost, ..)| {
        let mut route = route(name, policy);
        route["limits"][0]["cost"] = json!(cost);
        route["on_failure"] = json!("open");
        route
    });
    let mut rules = rules(&routes);
    rules["processes"] = json!(2);
    rules["timeout_ms"] = json!(20);
    let gateway = Gateway::start("redis://127.0.0.1:1", &rules);
    let client = gateway.client();
    for (name, _, _, statuses, retry_after) in cases {
        let mut last = None;
        for status in statuses {
            let answer = client.get(&format!("/{name}"));
            assert_eq!(answer.status, *status, "{name}");
            last = Some(answer);
        }
        let last = last.unwrap();
        let seconds = last
            .field("retry-after")
            .map(|value| value.parse::<u64>().unwrap());
        let (told, expected) = (seconds.unwrap_or(0), retry_after.unwrap_or(0));
        assert!(
            told <= expected && told + 20 >= expected,
            "{name}: {told} for {expected}"
        );
        assert_eq!(seconds.is_some(), retry_after.is_some(), "{name}");
    }
}

#[test]
fn a_share_of_the_longest_window_can_be_counted() {
    let policy = json!({ "algorithm": "fixed", "limit": 10, "window_ms": 3_153_600_000_000_u64 });
    let mut route = route("long", &policy);
    route["limits"][0]["cost"] = json!(10);
    route["on_failure"] = json!("open");
    let mut rules = rules(&[route]);
    rules["processes"] = json!(u32::MAX);
    rules["timeout_ms"] = json!(20);
    let gateway = Gateway::start("redis://127.0.0.1:1", &rules);
    assert_eq!(gateway.get("/long").code(), (200, "ok"));
    assert_eq!(gateway.get("/long").code(), (429, "rate_limited"));
}

#[test]
fn why_there_is_no_connection_is_said() {
    let server = Options::new().start();
    send::<()>(
        &mut server.connect(),
        &["CONFIG", "SET", "requirepass", "secret"],
    );
    let url = format!("{}?pass=wrong", redis_url(&server));
    let gateway = Gateway::start(&url, &both(TIMEOUT));
    wait_until("a reason", || gateway.logged("WRONGPASS") == 1);
    assert_alone(&gateway.client());
}

#[test]
fn full_memory_concerns_new_keys_only() {
    let server = Server::start();
    let gateway = Gateway::start(&redis_url(&server), &both(Duration::from_secs(10)));
    let client = gateway.client();
    assert!(client.get("/closed").is_shared());
    send::<()>(&mut server.connect(), &["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..6 {
        let answer = client.get_as("/closed", API_KEYS[1].1, &[]);
        assert_eq!(answer.code(), (503, "limiter_unavailable"));
    }
    assert_eq!(
        client.get("/closed").field("x-ratelimit-remaining"),
        Some("8")
    );
    assert_eq!(
        client.get("/open").limits().len(),
        1,
        "by this gateway alone"
    );
}

#[test]
fn a_server_without_the_module_is_no_judge() {
    let server = Options::new().without_module().start();
    let gateway = Gateway::start(&redis_url(&server), &both(Duration::from_secs(10)));
    assert_alone(&gateway.client());
}

#[test]
fn a_stopped_server_is_found_again() {
    let options = Options::new().tcp();
    let server = options.clone().start();
    let gateway = Gateway::start(&redis_url(&server), &both(TIMEOUT));
    let client = gateway.client();
    wait_until_judged(&client);
    let dir = server.stop("NOSAVE");
    assert_alone(&client);
    let started = options.start_in(dir);
    assert_recovers(&client, Instant::now());
    drop(started);
}

/// Without a request in between: nobody has to pay for finding out, however long it took.
#[test]
fn a_restart_that_nobody_saw_costs_nobody_a_request() {
    let options = Options::new().tcp();
    let server = options.clone().start();
    let gateway = Gateway::start(&redis_url(&server), &both(Duration::from_secs(10)));
    assert!(gateway.get("/closed").is_shared());
    let dir = server.stop("NOSAVE");
    // Longer than it takes to be refused a connection once.
    thread::sleep(Duration::from_millis(500));
    let server = options.start_in(dir);
    wait_until("a connection", || {
        let clients: String = send(&mut server.connect(), &["CLIENT", "LIST"]);
        clients.contains("resp=3")
    });
    assert!(gateway.get("/closed").is_shared());
}

#[test]
fn a_gateway_may_start_before_its_server() {
    let options = Options::new().tcp();
    let server = options.clone().start();
    let url = redis_url(&server);
    let dir = server.stop("NOSAVE");
    let gateway = Gateway::start(&url, &both(TIMEOUT));
    let client = gateway.client();
    assert_alone(&client);
    let started = options.start_in(dir);
    assert_recovers(&client, Instant::now());
    drop(started);
}

/// Accepts connections and commands, and answers none.
#[test]
fn a_frozen_server_piles_up_no_requests() {
    let server = Options::new().tcp().start();
    let gateway = Gateway::start(&redis_url(&server), &both(TIMEOUT));
    let client = gateway.client();
    wait_until_judged(&client);
    let mut connection = server.connect();
    send::<()>(&mut connection, &["CONFIG", "RESETSTAT"]);

    kill(server.pid(), libc::SIGSTOP);
    // One at a time: five wait for the time-out, and then only one in half a second.
    let frozen = Instant::now();
    for _ in 0..60 {
        assert_eq!(client.get("/closed").code(), (503, "limiter_unavailable"));
    }
    let took = frozen.elapsed();
    println!("60 requests to a frozen server took {took:?}");
    assert!(took < TIMEOUT * 60 / 2, "{took:?}");
    // Many at a time, over two pauses: nobody waits for longer than for the time-out.
    let until = Instant::now() + Duration::from_millis(1_300);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let client = gateway.client();
                while Instant::now() < until {
                    assert_eq!(client.get("/closed").status, 503);
                }
            });
        }
    });
    assert_alone(&client);
    let took = frozen.elapsed();

    kill(server.pid(), libc::SIGCONT);
    let thawed = Instant::now();
    assert_recovers(&client, thawed);
    // What the server finds once it thaws: what was sent before the breaker opened, and one
    // command per pause; and what has found it again.
    let calls = u128::from(calls(&server, "rl.fixed"));
    println!("{calls} requests reached the server, which was frozen for {took:?}");
    assert!(
        calls <= 5 + took.as_millis() / 500 + 1 + 4,
        "{calls}, {took:?}"
    );
    assert_eq!(gateway.logged("does not answer in time"), 1);
    assert_eq!(gateway.logged("answers again"), 1);
}

#[test]
fn a_slow_server_is_waited_for_until_the_time_out() {
    let server = Server::start();
    let proxy = Proxy::start(server.dir());
    let gateway = Gateway::start(&proxy.url(), &both(Duration::from_secs(1)));
    let client = gateway.client();
    wait_until_judged(&client);
    proxy.delay(100);
    for _ in 0..3 {
        let asked = Instant::now();
        assert!(client.get("/closed").is_shared());
        assert!(asked.elapsed() >= Duration::from_millis(100));
    }
    proxy.delay(2_000);
    assert_alone(&client);
    proxy.delay(0);
    // Answers that were held back may still be on their way.
    wait_until_judged(&client);
}

#[test]
fn a_request_that_its_caller_gives_up_does_not_keep_the_breaker_open() {
    let server = Options::new().tcp().start();
    let gateway = Gateway::start(&redis_url(&server), &both(TIMEOUT));
    let client = gateway.client();
    wait_until_judged(&client);
    kill(server.pid(), libc::SIGSTOP);
    wait_until("an open breaker", || {
        assert_eq!(client.get("/closed").status, 503);
        gateway.logged("does not answer in time") == 1
    });
    // Each is gone before the time-out, also the one that the breaker lets through.
    let until = Instant::now() + Duration::from_millis(1_200);
    while Instant::now() < until {
        gateway.give_up("/closed", TIMEOUT / 10);
    }
    kill(server.pid(), libc::SIGCONT);
    assert_recovers(&client, Instant::now());
}
