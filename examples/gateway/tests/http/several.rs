//! Several limits on one route: all admit and are charged, or none is.

use std::process::Command;

use serde_json::json;

use crate::gateway::{
    API_KEY, API_KEYS, Gateway, calls, hourly, keys, redis_url, route, route_with, rules,
};
use support::{Server, T0};

#[test]
fn what_the_narrow_limit_refuses_leaves_the_broad_one_alone() {
    let server = Server::at(T0);
    let minute = json!({ "algorithm": "fixed", "limit": 2, "window_ms": 60_000 });
    let limits = [
        json!({ "name": "minute", "policy": minute }),
        json!({ "name": "day", "policy": hourly(100), "cost": 10 }),
    ];
    let gateway = Gateway::start(
        &redis_url(&server),
        &rules(&[route_with("report", &limits)]),
    );
    for (minute, day) in [(1, 90), (0, 80)] {
        let answer = gateway.get("/report");
        assert_eq!(answer.code(), (200, "ok"));
        let expected = format!("\"minute\";r={minute};t=60, \"day\";r={day};t=3600");
        assert_eq!(answer.field("ratelimit"), Some(&*expected));
    }
    for _ in 0..9 {
        let answer = gateway.get("/report");
        assert_eq!(answer.code(), (429, "rate_limited"));
        let expected = [
            ("ratelimit", "\"minute\";r=0;t=60, \"day\";r=80;t=3600"),
            (
                "ratelimit-policy",
                "\"minute\";q=2;w=60, \"day\";q=100;w=3600",
            ),
            ("retry-after", "60"),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "60"),
        ];
        assert_eq!(answer.limits(), expected);
    }
    // One command each.
    assert_eq!(calls(&server, "rl.all"), 11);
    assert_eq!(calls(&server, "rl.fixed"), 0);
    server.set_clock(T0 + 60_000_000);
    let answer = gateway.get("/report");
    let expected = "\"minute\";r=1;t=60, \"day\";r=70;t=3540";
    assert_eq!(answer.field("ratelimit"), Some(expected));
}

#[test]
fn the_longest_wait_counts() {
    let server = Server::at(T0);
    let minute = json!({ "algorithm": "fixed", "limit": 1, "window_ms": 60_000 });
    let limits = [
        json!({ "name": "minute", "policy": minute }),
        json!({ "name": "hour", "policy": hourly(1) }),
    ];
    let mut dear = limits.clone();
    dear[1]["cost"] = json!(2);
    let routes = [route_with("report", &limits), route_with("dear", &dear)];
    let gateway = Gateway::start(&redis_url(&server), &rules(&routes));
    assert_eq!(gateway.get("/report").code(), (200, "ok"));
    let answer = gateway.get("/report");
    assert_eq!(answer.field("retry-after"), Some("3600"));
    let answer = gateway.get("/dear");
    assert_eq!(answer.code(), (429, "cost_above_limit"));
    assert_eq!(answer.field("retry-after"), None);
}

#[test]
fn routes_share_a_limit_by_its_name() {
    let server = Server::start();
    let day = json!({ "name": "day", "policy": hourly(10) });
    let mut dear = day.clone();
    dear["cost"] = json!(5);
    let own = |name| json!({ "name": name, "policy": hourly(9) });
    let routes = [
        route_with("search", &[own("search"), day]),
        route_with("report", &[dear]),
    ];
    let gateway = Gateway::start(&redis_url(&server), &rules(&routes));
    let remaining = |path| {
        let answer = gateway.get(path);
        answer.field("ratelimit").unwrap().to_owned()
    };
    assert!(remaining("/search").contains("\"day\";r=9;"));
    assert!(remaining("/report").contains("\"day\";r=4;"));
    assert!(remaining("/search").contains("\"search\";r=7;"));
    // All of a tenant's keys are in one slot.
    let keys = keys(&server);
    let slots: Vec<_> = keys.iter().map(|key| key.split_once('}')).collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(slots[0].unwrap().0, slots[1].unwrap().0);
}

#[test]
fn each_address_of_a_tenant_may_have_a_limit_of_its_own() {
    let server = Server::start();
    let limits = [
        json!({ "name": "address", "per": "address", "policy": hourly(1) }),
        json!({ "name": "tenant", "policy": hourly(3) }),
    ];
    let gateway = Gateway::start(&redis_url(&server), &rules(&[route_with("login", &limits)]));
    let get = |from: &str, api_key: &str| {
        let output = Command::new("curl")
            .args(["--silent", "--output", "/dev/null", "--write-out"])
            .args(["%{http_code}", "--interface", from, "--header"])
            .arg(format!("Authorization: Bearer {api_key}"))
            .arg(format!("{}/login", gateway.url()))
            .output();
        String::from_utf8(output.expect("curl runs").stdout).unwrap()
    };
    assert_eq!(get("127.0.0.1", API_KEY), "200");
    assert_eq!(get("127.0.0.1", API_KEY), "429");
    assert_eq!(get("127.0.0.2", API_KEY), "200");
    // Of another tenant it is another limit.
    assert_eq!(get("127.0.0.1", API_KEYS[1].1), "200");
    assert_eq!(get("127.0.0.3", API_KEY), "200");
    assert_eq!(get("127.0.0.4", API_KEY), "429");
    for key in keys(&server) {
        assert!(!key.contains("127.0.0"), "{key}");
    }
}

#[test]
fn all_limits_of_a_route_fail_together() {
    let limits = [
        json!({ "name": "broad", "policy": hourly(100) }),
        json!({ "name": "narrow", "policy": hourly(2) }),
    ];
    let mut open = route_with("open", &limits);
    open["on_failure"] = json!("open");
    let mut rules = rules(&[open, route_with("closed", &limits)]);
    rules["timeout_ms"] = json!(20);
    let gateway = Gateway::start("redis://127.0.0.1:1", &rules);
    for status in [200, 200, 429] {
        let answer = gateway.get("/open");
        assert_eq!(answer.status, status);
        assert!(!answer.is_shared());
    }
    assert_eq!(gateway.get("/closed").code(), (503, "limiter_unavailable"));
}

/// A share of 5 that has room for the dearest request, of whichever route.
#[test]
fn routes_share_a_limit_without_redis_too() {
    let shared = |path: &str, cost: u64| {
        let mut route = route("day", &hourly(10));
        route["path"] = json!(path);
        route["limits"][0]["cost"] = json!(cost);
        route["on_failure"] = json!("open");
        route
    };
    let mut rules = rules(&[shared("/cheap", 1), shared("/dear", 8)]);
    rules["processes"] = json!(2);
    rules["timeout_ms"] = json!(20);
    let gateway = Gateway::start("redis://127.0.0.1:1", &rules);
    assert_eq!(gateway.get("/dear").status, 200);
    assert_eq!(gateway.get("/cheap").status, 429);
}

#[test]
fn one_damaged_counter_of_several_charges_none() {
    let server = Server::start();
    let limits = ["first", "second"].map(|name| json!({ "name": name, "policy": hourly(9) }));
    let routes = [route_with("both", &limits), route("first", &hourly(9))];
    let gateway = Gateway::start(&redis_url(&server), &rules(&routes));
    assert_eq!(gateway.get("/both").code(), (200, "ok"));
    let keys = keys(&server);
    support::send::<()>(&mut server.connect(), &["SET", &keys[1], "no counter"]);
    assert_eq!(gateway.get("/both").code(), (503, "limiter_unavailable"));
    assert_eq!(gateway.logged("INVALIDSTATE"), 1, "{}", gateway.log());
    assert_eq!(
        gateway.get("/first").field("x-ratelimit-remaining"),
        Some("7")
    );
}

#[test]
fn the_older_fields_show_the_limit_that_refuses_or_the_one_with_the_least_left() {
    let server = Server::start();
    let limits = [
        json!({ "name": "units", "policy": hourly(13), "cost": 5 }),
        json!({ "name": "calls", "policy": hourly(3) }),
    ];
    let gateway = Gateway::start(
        &redis_url(&server),
        &rules(&[route_with("report", &limits)]),
    );
    for (status, limit, remaining) in [(200, "3", "2"), (200, "3", "1"), (429, "13", "3")] {
        let answer = gateway.get("/report");
        assert_eq!(answer.status, status);
        assert_eq!(answer.field("x-ratelimit-limit"), Some(limit));
        assert_eq!(answer.field("x-ratelimit-remaining"), Some(remaining));
    }
}
