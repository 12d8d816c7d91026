//! How many requests are handled at once, as the application behind the gateway counts them.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gateway::{API_KEYS, Gateway, calls, hourly, keys, kill, redis_url, route_with, rules};
use crate::proxy::Proxy;
use crate::upstream::Upstream;
use support::{DEADLINE, Options, Server, T0, send, wait_until};

/// A lease of a minute: none ends by itself while a test runs.
fn at_once(limit: u64) -> Value {
    at_once_for(limit, 60_000)
}

fn at_once_for(limit: u64, ttl_ms: u64) -> Value {
    let policy = json!({ "algorithm": "lease", "limit": limit, "ttl_ms": ttl_ms });
    json!({ "name": "at-once", "policy": policy })
}

/// A gateway with one route, `/report`.
fn start(redis_url: &str, upstream: &Upstream, limits: &[Value]) -> Gateway {
    let rules = rules(&[route_with("report", limits)]);
    start_with(redis_url, upstream, &rules)
}

fn start_with(redis_url: &str, upstream: &Upstream, rules: &Value) -> Gateway {
    let settings = [("GATEWAY_UPSTREAM", upstream.address())];
    Gateway::start_with(redis_url, rules, &settings)
}

/// How many leases the server counts.
fn leases(server: &Server) -> u64 {
    let keys = keys(server).into_iter();
    let mut leases = keys.filter(|key| key.ends_with(":lease"));
    leases.next().map_or(0, |key| {
        assert!(key.starts_with("rl:{"), "{key}");
        send(&mut server.connect(), &["ZCARD", &key])
    })
}

#[test]
fn two_gateways_never_handle_more_at_once_than_the_limit() {
    let server = Server::start();
    let upstream = Upstream::start();
    let limits = [
        at_once(3),
        json!({ "name": "hour", "policy": hourly(10_000) }),
    ];
    let gateways = [(); 2].map(|()| start(&redis_url(&server), &upstream, &limits));
    thread::scope(|scope| {
        for gateway in gateways.iter().cycle().take(8) {
            scope.spawn(|| {
                let client = gateway.client();
                let began = Instant::now();
                let mut handled = 0;
                while handled < 10 {
                    assert!(began.elapsed() < DEADLINE, "no place");
                    match client.get("/report").status {
                        201 => handled += 1,
                        429 => thread::sleep(Duration::from_millis(1)),
                        status => panic!("status {status}"),
                    }
                }
            });
        }
    });
    assert_eq!(upstream.most(), 3);
    wait_until("all leases back", || leases(&server) == 0);
    // What was refused for want of a place is not counted as used.
    let used = 10_000 - 80 - 1;
    let answer = gateways[0].get("/report");
    assert!(
        answer
            .field("ratelimit")
            .unwrap()
            .contains(&format!("\"hour\";r={used};"))
    );
}

#[test]
fn a_refusal_of_either_kind_takes_nothing_of_the_other() {
    let server = Server::at(T0);
    let upstream = Upstream::start();
    let limits = [json!({ "name": "hour", "policy": hourly(2) }), at_once(1)];
    let gateway = start(&redis_url(&server), &upstream, &limits);
    upstream.hold(true);
    let caller = gateway.open("/report");
    wait_until("a request", || upstream.now() == 1);
    for _ in 0..3 {
        let answer = gateway.get("/report");
        assert_eq!(answer.code(), (429, "rate_limited"));
        let expected = [
            ("ratelimit", "\"hour\";r=1;t=3600, \"at-once\";r=0;t=60"),
            (
                "ratelimit-policy",
                "\"hour\";q=2;w=3600, \"at-once\";q=1;qu=\"concurrent-requests\"",
            ),
            ("retry-after", "60"),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "1"),
            ("x-ratelimit-reset", "3600"),
        ];
        assert_eq!(answer.limits(), expected);
    }
    drop(caller);
    wait_until("a lease back", || leases(&server) == 0);
    upstream.hold(false);
    let answer = gateway.get("/report");
    assert_eq!(answer.code(), (201, "from upstream"));
    let expected = "\"hour\";r=0;t=3600, \"at-once\";r=0";
    assert_eq!(answer.field("ratelimit"), Some(expected));
    wait_until("a lease back", || leases(&server) == 0);
    assert_eq!(gateway.get("/report").field("retry-after"), Some("3600"));
    assert_eq!(leases(&server), 0);
    // What was refused had nothing to give back.
    assert_eq!(calls(&server, "rl.all"), 6);
    assert_eq!(calls(&server, "rl.lease"), 2);
}

#[test]
fn a_lease_is_given_back_when_its_caller_hangs_up() {
    let server = Server::start();
    let upstream = Upstream::start();
    let gateway = start(&redis_url(&server), &upstream, &[at_once(1)]);
    upstream.hold(true);
    let caller = gateway.open("/report");
    wait_until("a request", || upstream.now() == 1);
    assert_eq!(leases(&server), 1);
    assert_eq!(gateway.get("/report").code(), (429, "rate_limited"));
    // Others have a limit of their own.
    let other = thread::scope(|scope| {
        let other = scope.spawn(|| {
            gateway
                .client()
                .get_as("/report", API_KEYS[1].1, &[])
                .status
        });
        wait_until("another tenant's request", || upstream.now() == 2);
        drop(caller);
        wait_until("its end", || upstream.now() == 1);
        upstream.hold(false);
        other.join().unwrap()
    });
    assert_eq!(other, 201);
    wait_until("a place", || gateway.get("/report").status == 201);
}

/// It may have been taken before its caller was told.
#[test]
fn a_lease_whose_caller_does_not_wait_for_redis_is_given_back() {
    let server = Server::start();
    let upstream = Upstream::start();
    let proxy = Proxy::start(server.dir());
    let gateway = start(&proxy.url(), &upstream, &[at_once(1)]);
    assert_eq!(gateway.get("/report").status, 201);
    wait_until("a lease back", || leases(&server) == 0);
    proxy.delay(1_000);
    let caller = gateway.open("/report");
    wait_until("a lease", || leases(&server) == 1);
    drop(caller);
    wait_until("a lease back", || leases(&server) == 0);
    assert_eq!(upstream.most(), 1);
}

#[test]
fn a_lease_of_a_gateway_that_is_killed_ends_by_its_time() {
    let server = Server::at(T0);
    let upstream = Upstream::start();
    let [killed, other] = [(); 2].map(|()| start(&redis_url(&server), &upstream, &[at_once(1)]));
    upstream.hold(true);
    let caller = killed.open("/report");
    wait_until("a request", || upstream.now() == 1);
    killed.signal(libc::SIGKILL);
    wait_until("its end", || upstream.now() == 0);
    upstream.hold(false);
    for (ms, status, wait) in [
        (0, 429, Some("60")),
        (59_999, 429, Some("1")),
        (60_000, 201, None),
    ] {
        server.set_clock(T0 + ms * 1_000);
        let answer = other.get("/report");
        assert_eq!(answer.status, status, "{ms}");
        assert_eq!(answer.field("retry-after"), wait);
    }
    drop(caller);
}

#[test]
fn a_request_that_outlives_its_lease_is_ended() {
    let server = Server::start();
    let upstream = Upstream::start();
    let gateway = start(&redis_url(&server), &upstream, &[at_once_for(1, 1_000)]);
    upstream.hold(true);
    let began = Instant::now();
    let answer = gateway.get("/report");
    assert_eq!(answer.code(), (504, "took_too_long"));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(900), "{took:?}");
    // With room for a busy machine.
    assert!(took < Duration::from_secs(2), "{took:?}");
    wait_until("its end in the application", || upstream.now() == 0);
    upstream.hold(false);
    wait_until("a place", || gateway.get("/report").status == 201);
}

#[test]
fn a_response_that_outlives_its_lease_is_cut_off() {
    let server = Server::start();
    let upstream = Upstream::start();
    let gateway = start(&redis_url(&server), &upstream, &[at_once_for(1, 1_000)]);
    upstream.cut(true);
    let mut response = String::new();
    let mut caller = gateway.open("/report");
    std::io::Read::read_to_string(&mut caller, &mut response).expect("the end of the response");
    assert!(
        response.starts_with("HTTP/1.1 201 Created\r\n"),
        "{response}"
    );
    assert!(response.ends_with("\r\n\r\n{"), "{response}");
    wait_until("its end in the application", || upstream.now() == 0);
    upstream.cut(false);
    wait_until("a place", || gateway.get("/report").status == 201);
}

/// Its response fills all buffers, so nobody asks the application for more.
#[test]
fn a_caller_that_does_not_read_its_response_is_cut_off() {
    let server = Server::start();
    let upstream = Upstream::start();
    let gateway = start(&redis_url(&server), &upstream, &[at_once_for(1, 1_000)]);
    upstream.endless(true);
    let caller = gateway.open("/report");
    wait_until("a request", || upstream.handled() == 1);
    wait_until("its end in the application", || upstream.now() == 0);
    upstream.endless(false);
    wait_until("a place", || gateway.get("/report").status == 201);
    drop(caller);
}

#[test]
fn a_refusal_for_want_of_a_place_is_not_remembered() {
    let server = Server::start();
    let upstream = Upstream::start();
    let mut route = route_with(
        "report",
        &[at_once(1), json!({ "name": "hour", "policy": hourly(2) })],
    );
    route["remember_refusals"] = json!(true);
    let gateway = start_with(&redis_url(&server), &upstream, &rules(&[route]));
    upstream.hold(true);
    let caller = gateway.open("/report");
    wait_until("a request", || upstream.now() == 1);
    for asked in 2..5 {
        assert_eq!(gateway.get("/report").status, 429);
        assert_eq!(calls(&server, "rl.all"), asked);
    }
    drop(caller);
    wait_until("a lease back", || leases(&server) == 0);
    upstream.hold(false);
    assert_eq!(gateway.get("/report").status, 201);
    wait_until("a lease back", || leases(&server) == 0);
    // That of the rate is.
    for _ in 0..3 {
        assert_eq!(gateway.get("/report").status, 429);
        assert_eq!(calls(&server, "rl.all"), 6);
    }
}

#[test]
fn a_gateway_that_is_asked_to_end_sees_that_its_leases_are_back() {
    let server = Server::start();
    let upstream = Upstream::start();
    let proxy = Proxy::start(server.dir());
    let mut gateway = start(&proxy.url(), &upstream, &[at_once(1)]);
    upstream.hold(true);
    let caller = gateway.open("/report");
    wait_until("a request", || upstream.now() == 1);
    assert_eq!(leases(&server), 1);
    proxy.delay(300);
    gateway.signal(libc::SIGTERM);
    let answered = Instant::now();
    upstream.hold(false);
    assert!(gateway.wait());
    // It has waited until Redis had said so.
    assert!(answered.elapsed() >= Duration::from_millis(300));
    assert_eq!(leases(&server), 0);
    drop(caller);
}

#[test]
fn a_gateway_that_is_asked_to_end_does_not_wait_for_a_frozen_server() {
    let server = Options::new().tcp().start();
    let upstream = Upstream::start();
    let mut rules = rules(&[route_with("report", &[at_once(1)])]);
    rules["timeout_ms"] = json!(300);
    let mut gateway = start_with(&redis_url(&server), &upstream, &rules);
    upstream.hold(true);
    let caller = gateway.open("/report");
    wait_until("a request", || upstream.now() == 1);
    kill(server.pid(), libc::SIGSTOP);
    gateway.signal(libc::SIGTERM);
    upstream.hold(false);
    assert!(gateway.wait());
    assert_eq!(gateway.logged("a lease is not given back, for rl:{"), 1);
    drop(caller);
}

/// A lease that Redis was asked for and did not confirm in time may be there.
#[test]
fn a_lease_that_is_not_confirmed_in_time_is_given_back() {
    let server = Server::start();
    let upstream = Upstream::start();
    let proxy = Proxy::start(server.dir());
    let mut rules = rules(&[route_with("report", &[at_once(1)])]);
    rules["timeout_ms"] = json!(300);
    let gateway = start_with(&proxy.url(), &upstream, &rules);
    wait_until("an answer", || gateway.get("/report").status == 201);
    wait_until("a lease back", || leases(&server) == 0);
    let before = calls(&server, "rl.lease");
    proxy.delay(1_000);
    assert_eq!(gateway.get("/report").code(), (503, "limiter_unavailable"));
    wait_until("both commands", || calls(&server, "rl.lease") >= before + 2);
    assert_eq!(leases(&server), 0);
    assert_eq!(upstream.now(), 0);
}

/// It reads both what was asked and what was given up, once it goes on; what is not given back by then
/// ends by its time.
#[test]
fn a_frozen_server_costs_no_place_for_longer_than_a_lease() {
    let server = Options::new().tcp().start();
    let upstream = Upstream::start();
    let limits = [
        at_once_for(1, 2_000),
        json!({ "name": "hour", "policy": hourly(10_000) }),
    ];
    let mut rules = rules(&[route_with("report", &limits)]);
    rules["timeout_ms"] = json!(300);
    let gateway = start_with(&redis_url(&server), &upstream, &rules);
    wait_until("an answer", || gateway.get("/report").status == 201);
    wait_until("a lease back", || leases(&server) == 0);
    let handled = upstream.handled();
    kill(server.pid(), libc::SIGSTOP);
    let began = Instant::now();
    for _ in 0..30 {
        assert_eq!(gateway.get("/report").code(), (503, "limiter_unavailable"));
    }
    // The breaker spares them the wait.
    assert!(
        began.elapsed() < Duration::from_millis(300) * 15,
        "{:?}",
        began.elapsed()
    );
    assert_eq!(upstream.handled(), handled);
    kill(server.pid(), libc::SIGCONT);
    wait_until("a place", || gateway.get("/report").status == 201);
}

#[test]
fn a_gateway_that_is_alone_handles_its_share_at_once() {
    let upstream = Upstream::start();
    let limits = [
        json!({ "name": "hour", "policy": hourly(10_000) }),
        at_once(5),
    ];
    let mut open = route_with("open", &limits);
    open["on_failure"] = json!("open");
    let mut rules = rules(&[open, route_with("closed", &limits)]);
    rules["processes"] = json!(2);
    rules["timeout_ms"] = json!(20);
    let gateway = start_with("redis://127.0.0.1:1", &upstream, &rules);
    assert_eq!(gateway.get("/closed").code(), (503, "limiter_unavailable"));
    upstream.hold(true);
    let [first, second] = [(); 2].map(|()| gateway.open("/open"));
    wait_until("two requests", || upstream.now() == 2);
    let answer = gateway.get("/open");
    assert_eq!(answer.code(), (429, "rate_limited"));
    assert_eq!(answer.field("retry-after"), Some("60"));
    drop(first);
    wait_until("the end of one", || upstream.now() == 1);
    upstream.hold(false);
    wait_until("a place", || gateway.get("/open").status == 201);
    drop(second);
    assert_eq!(upstream.most(), 2);
}
