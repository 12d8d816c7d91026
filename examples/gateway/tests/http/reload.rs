//! Rules that change while the gateway runs, and how it ends.

use std::fs;
use std::os::unix::fs::symlink;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gateway::{
    API_KEY, API_KEYS, Gateway, hourly, keys, redis_url, route, route_with, rules,
};
use support::{DEADLINE, Server, wait_until};

const RELOADED: &str = "rules reloaded";
const KEPT: &str = "the old rules stay in force";

#[test]
fn rules_change_under_load() {
    let server = Server::start();
    let limited = |limit| rules(&[route("search", &hourly(limit))]).to_string();
    let gateway = Gateway::start(&redis_url(&server), &rules(&[route("search", &hourly(20))]));
    let [admitted, refused] = [(); 2].map(|()| AtomicUsize::new(0));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let client = gateway.client();
                // If the wait below fails, nobody says that it is done.
                let began = Instant::now();
                while !done.load(Ordering::Relaxed) && began.elapsed() < DEADLINE * 5 {
                    match client.get("/search").status {
                        200 => admitted.fetch_add(1, Ordering::Relaxed),
                        429 => refused.fetch_add(1, Ordering::Relaxed),
                        status => panic!("status {status}"),
                    };
                }
            });
        }
        // What is used stays used: a limit that grows by five admits five more.
        for limit in [20, 25, 30, 35] {
            if limit > 20 {
                gateway.reload(&limited(limit), RELOADED);
            }
            let before = refused.load(Ordering::Relaxed);
            let limit = usize::try_from(limit).unwrap();
            // An admitted caller may be slow to count itself.
            wait_until("refused requests", || {
                refused.load(Ordering::Relaxed) > before + 10
                    && admitted.load(Ordering::Relaxed) >= limit
            });
            let admitted = admitted.load(Ordering::Relaxed);
            if admitted != limit {
                done.store(true, Ordering::Relaxed);
                panic!("{admitted} of {limit}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(admitted.into_inner(), 35);
    assert_eq!(keys(&server).len(), 1);
}

#[test]
fn another_algorithm_starts_with_a_key_of_its_own() {
    let server = Server::start();
    let slide = |window_ms| json!({ "algorithm": "slide", "limit": 9, "window_ms": window_ms });
    let exact = json!({ "algorithm": "slide", "limit": 9, "window_ms": 3_600_000, "exact": true });
    let token = json!({ "algorithm": "token", "capacity": 9, "refill": 1, "period_ms": 60_000 });
    let gateway = Gateway::start(&redis_url(&server), &rules(&[route("search", &hourly(9))]));
    gateway.get("/search");
    for policy in [token, slide(3_600_000), slide(86_400_000), exact] {
        gateway.reload(&rules(&[route("search", &policy)]).to_string(), RELOADED);
        let answer = gateway.get("/search");
        assert_eq!(answer.field("x-ratelimit-remaining"), Some("8"), "{policy}");
    }
    // The bucket goes on where it was, although its rate has changed.
    let faster = json!({ "algorithm": "token", "capacity": 9, "refill": 1, "period_ms": 50_000 });
    gateway.reload(&rules(&[route("search", &faster)]).to_string(), RELOADED);
    assert_eq!(
        gateway.get("/search").field("x-ratelimit-remaining"),
        Some("7")
    );
}

#[test]
fn an_api_key_and_a_route_come_and_go() {
    let server = Server::start();
    let all = rules(&[route("search", &hourly(9)), route("report", &hourly(9))]);
    let gateway = Gateway::start(&redis_url(&server), &all);
    let client = gateway.client();
    let mut fewer = rules(&[route("search", &hourly(9))]);
    fewer["tenants"].as_array_mut().unwrap().remove(1);
    for _ in 0..2 {
        assert_eq!(client.get_as("/search", API_KEYS[1].1, &[]).status, 200);
        assert_eq!(client.get("/report").status, 200);
        gateway.reload(&fewer.to_string(), RELOADED);
        assert_eq!(client.get_as("/search", API_KEYS[1].1, &[]).status, 401);
        assert_eq!(client.get("/report").status, 404);
        assert_eq!(client.get("/search").status, 200);
        gateway.reload(&all.to_string(), RELOADED);
    }
}

/// Valid rules with one thing changed.
fn changed(path: &str, value: Value) -> String {
    let mut rules = rules(&[route("search", &hourly(3))]);
    *rules.pointer_mut(path).unwrap() = value;
    rules.to_string()
}

fn policy(policy: Value) -> String {
    changed("/routes/0/limits/0/policy", policy)
}

fn invalid() -> Vec<String> {
    let token = |capacity: u64, refill: u64, period_ms: u64| {
        policy(json!({
            "algorithm": "token", "capacity": capacity, "refill": refill, "period_ms": period_ms,
        }))
    };
    let hash = rules(&[])["tenants"][0]["api_keys_sha256"][0].clone();
    let search = route("search", &hourly(3));
    let mut other_limit = search.clone();
    other_limit["limits"][0]["name"] = json!("other");
    let mut other_policy = route("search", &hourly(4));
    other_policy["path"] = json!("/other");
    let mut other_per = search.clone();
    other_per["path"] = json!("/other");
    other_per["limits"][0]["per"] = json!("address");
    let limit = search["limits"][0].clone();
    let named = |n| json!({ "name": format!("n{n}"), "policy": hourly(3) });
    let batched = |units, limits: &[Value]| {
        let mut route = route_with("search", limits);
        route["batch"] = json!(units);
        route
    };
    let mut dear = limit.clone();
    dear["cost"] = json!(2);
    let lease = |limit: u64, ttl_ms: u64| {
        let policy = json!({ "algorithm": "lease", "limit": limit, "ttl_ms": ttl_ms });
        json!({ "name": "at-once", "policy": policy })
    };
    let mut other_lease = lease(10, 1_000);
    other_lease["name"] = json!("other");
    let mut dear_lease = lease(10, 1_000);
    dear_lease["cost"] = json!(2);
    let many: Vec<Value> = (0..33).map(named).collect();
    let valid = rules(slice::from_ref(&search)).to_string();
    vec![
        String::new(),
        valid[..valid.len() / 2].to_owned(),
        "[]".to_owned(),
        changed("/processes", json!(0)),
        changed("/timeout_ms", json!(0)),
        changed("/timeout_ms", json!(60_001)),
        changed("/tenants/0/id", json!(7)),
        changed("/tenants/0/api_keys_sha256/0", json!(API_KEY)),
        changed("/tenants/0/api_keys_sha256/0", json!("+1".repeat(32))),
        changed("/tenants/0/api_keys_sha256", json!([hash, hash])),
        changed("/tenants/1/api_keys_sha256", json!([hash])),
        changed(
            "/tenants/0",
            json!({ "id": "x", "api_keys_sha256": [], "quota": 1 }),
        ),
        changed("/routes", json!([search, other_limit])),
        changed("/routes", json!([search, other_policy])),
        changed("/routes", json!([search, other_per])),
        changed("/routes/0/limits", json!([])),
        changed("/routes/0/limits", json!([limit, limit])),
        changed("/routes/0/limits", json!(many)),
        changed("/routes/0/limits/0/name", json!("a\"b")),
        changed("/routes/0/limits/0/name", json!("")),
        changed(
            "/routes/0/limits/0",
            json!({ "name": "search", "per": "user", "policy": hourly(3) }),
        ),
        changed("/routes/0/method", json!("GET /")),
        changed("/routes/0/on_failure", json!("shut")),
        changed("/routes/0", batched(4, slice::from_ref(&limit))),
        changed("/routes/0", batched(0, slice::from_ref(&limit))),
        changed("/routes/0", batched(2, &[limit.clone(), named(0)])),
        changed("/routes/0", batched(2, &[dear])),
        changed("/routes/0", batched(2, &[lease(10, 1_000)])),
        changed("/routes/0/limits", json!([lease(10, 1_000), other_lease])),
        changed("/routes/0/limits", json!([dear_lease])),
        changed("/routes/0/limits", json!([lease(10_001, 1_000)])),
        changed("/routes/0/limits", json!([lease(10, 0)])),
        changed("/routes/0/limits", json!([lease(10, 86_400_001)])),
        policy(hourly(0)),
        policy(hourly(9_007_199_254_740_992)),
        policy(json!({ "algorithm": "fixed", "limit": -1, "window_ms": 1000 })),
        policy(json!({ "algorithm": "fixed", "limit": 1, "window_ms": 0 })),
        policy(json!({ "algorithm": "fixed", "limit": 1, "window_ms": 1000, "refill": 1 })),
        policy(json!({ "algorithm": "fixed", "limit": 1 })),
        policy(json!({ "algorithm": "leaky", "limit": 1, "window_ms": 1000 })),
        policy(json!({ "algorithm": "slide", "limit": 10_001, "window_ms": 1, "exact": true })),
        token(0, 1, 1),
        token(1, 0, 1),
        token(1, 1, 0),
        token(2, 1, 3_153_600_000_000),
    ]
}

#[test]
fn invalid_rules_change_nothing() {
    let server = Server::start();
    let gateway = Gateway::start(
        &redis_url(&server),
        &rules(&[route("search", &hourly(100))]),
    );
    let client = gateway.client();
    for (invalid, used) in invalid().into_iter().zip(1_u64..) {
        gateway.reload(&invalid, KEPT);
        let answer = client.get("/search");
        assert_eq!(answer.code(), (200, "ok"), "{invalid}");
        let remaining = (100 - used).to_string();
        assert_eq!(
            answer.field("x-ratelimit-remaining"),
            Some(&*remaining),
            "{invalid}"
        );
    }
    assert_eq!(gateway.logged(RELOADED), 0);
    // Why is said, and where.
    let last = "rules.json: limit search: capacity * period_ms / refill must be between 1 and";
    assert_eq!(gateway.logged(last), 1, "{}", gateway.log());
    gateway.reload(&rules(&[route("search", &hourly(1))]).to_string(), RELOADED);
    assert_eq!(client.get("/search").status, 429);
}

/// As in a mounted `ConfigMap`: `rules.json` leads through `..data`, which is swapped.
#[test]
fn a_swapped_link_is_seen_without_a_signal() {
    let server = Server::start();
    let limited = |limit| rules(&[route("search", &hourly(limit))]);
    let gateway = Gateway::start_with(
        &redis_url(&server),
        &limited(3),
        // As often as a gateway looks by itself.
        &[("GATEWAY_POLL_MS", "")],
    );
    let dir = gateway.dir();
    for (version, limit) in [("..1", 3), ("..2", 4)] {
        fs::create_dir(dir.join(version)).unwrap();
        fs::write(
            dir.join(version).join("rules.json"),
            limited(limit).to_string(),
        )
        .unwrap();
    }
    let link = |to: &str, name: &str| {
        symlink(to, dir.join("..new")).unwrap();
        fs::rename(dir.join("..new"), dir.join(name)).unwrap();
    };
    link("..1", "..data");
    link("..data/rules.json", "rules.json");
    let limit = || {
        gateway
            .get("/search")
            .field("x-ratelimit-limit")
            .map(str::to_owned)
    };
    assert_eq!(limit().as_deref(), Some("3"));
    link("..2", "..data");
    wait_until("other rules", || gateway.logged(RELOADED) == 1);
    assert_eq!(limit().as_deref(), Some("4"));
}

#[test]
fn an_invalid_file_is_reported_once_and_changes_nothing() {
    let server = Server::start();
    let limited = |limit| rules(&[route("search", &hourly(limit))]);
    let gateway = Gateway::start_with(
        &redis_url(&server),
        &limited(3),
        &[("GATEWAY_POLL_MS", "5")],
    );
    let file = gateway.dir().join("rules.json");
    fs::write(&file, "{}").unwrap();
    wait_until("a report", || gateway.logged("missing field") == 1);
    fs::remove_file(&file).unwrap();
    wait_until("a report", || gateway.logged("No such file") == 1);
    // Some polls later there is still one line each.
    thread::sleep(Duration::from_millis(200));
    assert_eq!(gateway.logged("missing field"), 1, "{}", gateway.log());
    assert_eq!(gateway.logged("No such file"), 1, "{}", gateway.log());
    assert_eq!(gateway.get("/search").field("x-ratelimit-limit"), Some("3"));
    fs::write(gateway.dir().join("new"), limited(4).to_string()).unwrap();
    fs::rename(gateway.dir().join("new"), &file).unwrap();
    wait_until("other rules", || gateway.logged(RELOADED) == 1);
    assert_eq!(gateway.get("/search").field("x-ratelimit-limit"), Some("4"));
}

#[test]
fn a_gateway_without_valid_settings_does_not_start() {
    let valid = rules(&[]).to_string();
    for (redis, rules, settings, reason) in [
        (
            "redis://127.0.0.1:1",
            "{}",
            &[][..],
            "rules.json: missing field",
        ),
        (
            "redis://127.0.0.1:1",
            &valid,
            &[("GATEWAY_SECRET", "too short")],
            "at least 16 characters",
        ),
        (
            "redis://127.0.0.1:1",
            &valid,
            &[("GATEWAY_POLL_MS", "0")],
            "GATEWAY_POLL_MS must be",
        ),
        ("http://127.0.0.1:1", &valid, &[][..], "Redis URL"),
    ] {
        let mut gateway = Gateway::spawn(redis, rules, settings);
        assert!(!gateway.wait(), "{reason}");
        assert_eq!(gateway.logged(reason), 1, "{}", gateway.log());
    }
}

#[test]
fn a_gateway_ends_when_asked() {
    let server = Server::start();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut gateway = Gateway::start(&redis_url(&server), &rules(&[]));
        gateway.signal(signal);
        assert!(gateway.wait());
    }
}

#[test]
fn the_rules_beside_the_example_are_valid() {
    let rules = include_str!("../../rules.json");
    let server = Server::start();
    let gateway = Gateway::start(&redis_url(&server), &serde_json::from_str(rules).unwrap());
    for path in ["/search", "/tile", "/report"] {
        let answer = gateway.client().get_as(path, "demo-key", &[]);
        assert_eq!(answer.code(), (200, "ok"), "{path}");
        assert!(answer.is_shared(), "{path}");
    }
}
