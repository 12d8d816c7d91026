//! What a gateway refuses without asking Redis.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gateway::{API_KEYS, Gateway, calls, hourly, keys, redis_url, route, route_with, rules};
use support::{Server, send};

/// A route that remembers refusals, as one does unless it says otherwise.
fn remembering(name: &str, policy: &Value) -> Value {
    let mut route = route(name, policy);
    route.as_object_mut().unwrap().remove("remember_refusals");
    route
}

/// One that asks for `cost` units of the limit of another route.
fn dear(of: &Value, cost: u64) -> Value {
    let mut route = of.clone();
    route["path"] = json!("/dear");
    route["limits"][0]["cost"] = json!(cost);
    route
}

#[test]
fn a_refused_caller_that_hammers_sends_redis_nothing_until_its_wait_is_over() {
    let server = Server::start();
    let window = Duration::from_millis(1_500);
    let policy = json!({ "algorithm": "fixed", "limit": 1, "window_ms": 1_500 });
    let rules = rules(&[remembering("search", &policy)]);
    let gateway = Gateway::start(&redis_url(&server), &rules);
    let client = gateway.client();
    let before = Instant::now();
    assert_eq!(client.get("/search").code(), (200, "ok"));
    let first = Instant::now();
    let mut hammered = 0;
    loop {
        let sent = Instant::now();
        let answer = client.get("/search");
        if answer.status == 200 {
            // A window begins on a whole millisecond.
            assert!(before.elapsed() + Duration::from_millis(1) >= window);
            break;
        }
        // A caller that has waited is admitted.
        assert!(sent - first < window, "{:?}", sent - first);
        assert_eq!(answer.code(), (429, "rate_limited"));
        assert_eq!(answer.field("ratelimit-policy"), Some("\"search\";q=1;w=2"));
        assert_eq!(answer.field("x-ratelimit-remaining"), Some("0"));
        // What is left of the wait is told, and not what there was.
        if sent - first > Duration::from_millis(700) {
            assert_eq!(answer.field("retry-after"), Some("1"));
            assert_eq!(answer.field("x-ratelimit-reset"), Some("1"));
            assert_eq!(answer.field("ratelimit"), Some("\"search\";r=0;t=1"));
        }
        hammered += 1;
        // Others are not concerned.
        if hammered == 10 {
            assert_eq!(client.get_as("/search", API_KEYS[1].1, &[]).status, 200);
        }
    }
    println!("{hammered} refused in between");
    assert!(hammered > 50, "{hammered}");
    // Two that were admitted, the other caller, one refusal; and as the gateway counts from before it
    // asked, the last millisecond may be asked for again.
    let calls = calls(&server, "rl.fixed");
    assert!((4..=8).contains(&calls), "{calls} for {hammered}");
}

#[test]
fn a_refusal_for_one_cost_says_nothing_of_another() {
    let server = Server::start();
    let search = remembering("search", &hourly(5));
    let rules = rules(&[dear(&search, 5), search]);
    let gateway = Gateway::start(&redis_url(&server), &rules);
    let client = gateway.client();
    assert_eq!(client.get("/search").status, 200);
    for _ in 0..3 {
        assert_eq!(client.get("/dear").code(), (429, "rate_limited"));
    }
    assert_eq!(calls(&server, "rl.fixed"), 2);
    for _ in 0..4 {
        assert_eq!(client.get("/search").status, 200);
    }
    assert_eq!(client.get("/search").status, 429);
}

#[test]
fn a_request_that_never_passes_is_not_told_to_wait() {
    let server = Server::start();
    let search = remembering("search", &hourly(5));
    let mut both = dear(&search, 6);
    both["path"] = json!("/both");
    // Another limit would refuse it for a while.
    let used_up = json!({ "name": "used-up", "policy": hourly(1) });
    both["limits"].as_array_mut().unwrap().push(used_up);
    let routes = [dear(&search, 6), both, remembering("used-up", &hourly(1))];
    let gateway = Gateway::start(&redis_url(&server), &rules(&routes));
    assert_eq!(gateway.get("/used-up").status, 200);
    for path in ["/dear", "/both"] {
        for _ in 0..3 {
            let answer = gateway.get(path);
            assert_eq!(answer.code(), (429, "cost_above_limit"));
            assert_eq!(answer.field("retry-after"), None);
        }
    }
    assert_eq!(calls(&server, "rl.fixed"), 1 + 3);
    assert_eq!(calls(&server, "rl.all"), 3);
}

#[test]
fn other_rules_forget_refusals() {
    let server = Server::start();
    let limited = |limit| rules(&[remembering("search", &hourly(limit))]);
    let gateway = Gateway::start(&redis_url(&server), &limited(1));
    let statuses = [200, 429, 429].map(|_| gateway.get("/search").status);
    assert_eq!(statuses, [200, 429, 429]);
    assert_eq!(calls(&server, "rl.fixed"), 2);
    gateway.reload(&limited(2).to_string(), "rules reloaded");
    assert_eq!(gateway.get("/search").status, 200);
}

#[test]
fn a_route_that_remembers_nothing_sees_a_raised_limit_at_once() {
    let server = Server::start();
    let gateway = Gateway::start(&redis_url(&server), &rules(&[route("search", &hourly(1))]));
    assert_eq!(gateway.get("/search").status, 200);
    assert_eq!(gateway.get("/search").status, 429);
    send::<()>(&mut server.connect(), &["DEL", &keys(&server)[0]]);
    assert_eq!(gateway.get("/search").status, 200);
}

#[test]
fn several_limits_are_remembered_together() {
    let server = Server::start();
    let limits = [(5, "minute"), (2, "hour")]
        .map(|(limit, name)| json!({ "name": name, "policy": hourly(limit) }));
    let mut both = route_with("both", &limits);
    both["remember_refusals"] = json!(true);
    let minute = remembering("minute", &hourly(5));
    let gateway = Gateway::start(&redis_url(&server), &rules(&[both, minute]));
    let statuses = [(); 6].map(|()| gateway.get("/both").status);
    assert_eq!(statuses, [200, 200, 429, 429, 429, 429]);
    assert_eq!(calls(&server, "rl.all"), 3);
    // The one that did not refuse goes on.
    assert_eq!(gateway.get("/minute").status, 200);
}

/// Also where the route fails open: the limit is known to be used up.
#[test]
fn a_refusal_outlives_the_server() {
    let server = support::Options::new().tcp().start();
    let mut open = remembering("open", &hourly(4));
    open["on_failure"] = json!("open");
    let mut rules = rules(&[open]);
    rules["timeout_ms"] = json!(300);
    let gateway = Gateway::start(&redis_url(&server), &rules);
    let statuses = [(); 5].map(|()| gateway.get("/open").status);
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
    drop(server);
    let answer = gateway.get("/open");
    assert_eq!((answer.status, answer.is_shared()), (429, true));
    let other = gateway.client().get_as("/open", API_KEYS[1].1, &[]);
    assert_eq!((other.status, other.is_shared()), (200, false));
}

/// More would be a way to fill the gateway's memory. Each cost of a route is a refusal of its own.
#[test]
fn ten_thousand_refusals_are_remembered_and_no_more() {
    let server = Server::start();
    let all = remembering("all", &hourly(20_000));
    let costing = |cost: u64| {
        let mut route = all.clone();
        route["path"] = json!(format!("/{cost}"));
        route["limits"][0]["cost"] = json!(cost);
        route
    };
    let last = 10_001;
    let mut routes: Vec<Value> = (1..=last).map(costing).collect();
    routes.push(costing(20_000));
    let gateway = Gateway::start(&redis_url(&server), &rules(&routes));
    let client = gateway.client();
    assert_eq!(client.get("/20000").status, 200);
    let refused = |cost| assert_eq!(client.get(&format!("/{cost}")).status, 429, "{cost}");
    let most = (1..last).map(|cost| format!("/{cost}"));
    assert_eq!(gateway.refused(most), 10_000);
    let asked = last;
    assert_eq!(calls(&server, "rl.fixed"), asked);
    // All are remembered, the first as the one that was asked for last.
    refused(2);
    refused(1);
    assert_eq!(calls(&server, "rl.fixed"), asked);
    // One more takes the place of the one that was asked for the longest ago.
    refused(last);
    refused(1);
    refused(2);
    assert_eq!(calls(&server, "rl.fixed"), asked + 1);
    refused(3);
    assert_eq!(calls(&server, "rl.fixed"), asked + 2);
}
