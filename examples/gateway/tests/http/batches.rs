//! Units that gateways fetch ahead: how many requests pass, and how many commands that takes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::{API_KEYS, Gateway, calls, hourly, redis_url, route, rules};
use crate::proxy::Proxy;
use support::{Options, Server, T0};

/// Two gateways with batches of ten.
fn two(server: &Server, policy: &Value) -> [Gateway; 2] {
    let rules = rules(&[batched(policy)]);
    [(); 2].map(|()| Gateway::start(&redis_url(server), &rules))
}

fn batched(policy: &Value) -> Value {
    let mut route = route("search", policy);
    route["batch"] = json!(10);
    route
}

fn admitted(gateway: &Gateway) -> usize {
    let client = gateway.client();
    (0..1_000)
        .take_while(|_| client.get("/search").status == 200)
        .count()
}

#[test]
fn two_gateways_admit_the_limit_of_a_fixed_window_and_not_one_more() {
    let server = Server::start();
    let gateways = two(&server, &hourly(100));
    let admitted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for gateway in gateways.iter().cycle().take(8) {
            scope.spawn(|| {
                let client = gateway.client();
                for _ in 0..50 {
                    match client.get("/search").status {
                        200 => admitted.fetch_add(1, Ordering::Relaxed),
                        429 => break,
                        status => panic!("status {status}"),
                    };
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 100);
    // Ten that brought units, and one that brought none for each caller.
    let calls = calls(&server, "rl.fixed");
    assert!((11..=18).contains(&calls), "{calls}");
}

/// What one gateway holds, the other can't hand out.
#[test]
fn units_that_a_gateway_holds_are_refused_elsewhere() {
    let server = Server::start();
    let [first, second] = two(&server, &hourly(15));
    assert_eq!(first.get("/search").status, 200);
    assert_eq!(admitted(&second), 5);
    assert_eq!(admitted(&first), 9);
}

/// The worst that the page states: all gateways hold all but one unit of their batches, and the bucket
/// has filled in the meantime.
#[test]
fn two_gateways_admit_no_more_than_a_bucket_and_what_they_held() {
    let server = Server::at(T0);
    let policy = json!({ "algorithm": "token", "capacity": 20, "refill": 1, "period_ms": 60_000 });
    let gateways = two(&server, &policy);
    for gateway in &gateways {
        assert_eq!(gateway.get("/search").status, 200);
    }
    server.set_clock(T0 + 20 * 60_000_000);
    let admitted: usize = gateways.iter().map(admitted).sum();
    assert_eq!(admitted, 20 + 2 * (10 - 1));
}

#[test]
fn units_are_dropped_when_their_window_is_over() {
    // The server's clock stands still, and the gateway's doesn't.
    let server = Server::at(T0);
    let policy = json!({ "algorithm": "fixed", "limit": 30, "window_ms": 400 });
    let gateway = Gateway::start(&redis_url(&server), &rules(&[batched(&policy)]));
    let client = gateway.client();
    let remaining = || {
        let answer = client.get("/search");
        answer.field("x-ratelimit-remaining").unwrap().to_owned()
    };
    assert_eq!(remaining(), "29");
    thread::sleep(Duration::from_millis(401));
    assert_eq!(remaining(), "19");
    assert_eq!(calls(&server, "rl.fixed"), 2);
}

#[test]
fn callers_are_told_what_is_left_for_them() {
    let server = Server::at(T0);
    let gateway = Gateway::start(&redis_url(&server), &rules(&[batched(&hourly(12))]));
    let client = gateway.client();
    for remaining in (0..12).rev() {
        let answer = client.get("/search");
        assert_eq!(answer.code(), (200, "ok"));
        let remaining = remaining.to_string();
        assert_eq!(answer.field("x-ratelimit-remaining"), Some(&*remaining));
        let limit = answer.field("ratelimit").unwrap();
        assert!(
            limit.starts_with(&format!("\"search\";r={remaining};t=")),
            "{limit}"
        );
    }
    let answer = client.get("/search");
    assert_eq!(answer.code(), (429, "rate_limited"));
    assert_eq!(answer.field("retry-after"), Some("3600"));
    // Ten, two and none.
    assert_eq!(calls(&server, "rl.fixed"), 3);
    // Every tenant has its own.
    assert_eq!(client.get_as("/search", API_KEYS[1].1, &[]).status, 200);
}

/// Many that come at once fetch one batch, and not one each.
#[test]
fn one_request_fetches_and_the_others_wait() {
    let server = Server::start();
    let proxy = Proxy::start(server.dir());
    let gateway = Gateway::start(&proxy.url(), &rules(&[batched(&hourly(100))]));
    assert_eq!(
        gateway
            .client()
            .get_as("/search", API_KEYS[1].1, &[])
            .status,
        200
    );
    proxy.delay(200);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(gateway.get("/search").status, 200));
        }
    });
    assert_eq!(calls(&server, "rl.fixed"), 2);
}

#[test]
fn batches_go_on_without_redis_while_they_last() {
    let server = Options::new().tcp().start();
    let mut rules = rules(&[batched(&hourly(100))]);
    rules["timeout_ms"] = json!(300);
    let gateway = Gateway::start(&redis_url(&server), &rules);
    assert_eq!(gateway.get("/search").status, 200);
    drop(server);
    assert_eq!(admitted(&gateway), 9);
    assert_eq!(gateway.get("/search").code(), (503, "limiter_unavailable"));
}

#[test]
fn other_rules_drop_units() {
    let server = Server::start();
    let limited = |limit| rules(&[batched(&hourly(limit))]);
    let gateway = Gateway::start(&redis_url(&server), &limited(20));
    assert_eq!(gateway.get("/search").status, 200);
    gateway.reload(&limited(10).to_string(), "rules reloaded");
    assert_eq!(gateway.get("/search").status, 429);
}
