//! Statuses, header fields and bodies of what Redis has decided.

use serde_json::{Value, json};

use crate::gateway::{Gateway, hourly, keys, redis_url, route, rules};
use support::{Server, T0, send};

fn start(server: &Server, routes: &[Value]) -> Gateway {
    Gateway::start(&redis_url(server), &rules(routes))
}

#[test]
fn three_are_admitted_and_the_fourth_is_refused() {
    let server = Server::at(T0);
    let policy = json!({ "algorithm": "fixed", "limit": 3, "window_ms": 60_000 });
    let gateway = start(&server, &[route("search", &policy)]);
    for remaining in ["2", "1", "0"] {
        let answer = gateway.get("/search");
        assert_eq!(answer.code(), (200, "ok"));
        let expected = [
            ("ratelimit", &*format!("\"search\";r={remaining};t=60")),
            ("ratelimit-policy", "\"search\";q=3;w=60"),
            ("x-ratelimit-limit", "3"),
            ("x-ratelimit-remaining", remaining),
            ("x-ratelimit-reset", "60"),
        ];
        assert_eq!(answer.limits(), expected);
    }
    // 58,999 ms are left then, and 1 ms.
    for (us, seconds) in [(0, "60"), (1_001_000, "59"), (59_999_000, "1")] {
        server.set_clock(T0 + us);
        let answer = gateway.get("/search");
        assert_eq!(answer.code(), (429, "rate_limited"));
        let expected = [
            ("ratelimit", &*format!("\"search\";r=0;t={seconds}")),
            ("ratelimit-policy", "\"search\";q=3;w=60"),
            ("retry-after", seconds),
            ("x-ratelimit-limit", "3"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", seconds),
        ];
        assert_eq!(answer.limits(), expected);
        assert_eq!(answer.field("content-type"), Some("application/json"));
    }
    server.set_clock(T0 + 60_000_000);
    assert_eq!(gateway.get("/search").code(), (200, "ok"));
}

/// `RateLimit` names the time until there is more, which must not be after `Retry-After`; the
/// bucket is full only later.
#[test]
fn a_bucket_refills_sooner_than_it_is_full() {
    let server = Server::at(T0);
    let policy = json!({ "algorithm": "token", "capacity": 3, "refill": 1, "period_ms": 20_000 });
    let gateway = start(&server, &[route("search", &policy)]);
    for (remaining, more, full) in [(2, 20, 20), (1, 40, 40), (0, 20, 60), (0, 20, 60)] {
        let answer = gateway.get("/search");
        let expected = format!("\"search\";r={remaining};t={more}");
        assert_eq!(answer.field("ratelimit"), Some(&*expected));
        assert_eq!(
            answer.field("ratelimit-policy"),
            Some("\"search\";q=3;w=60")
        );
        assert_eq!(answer.field("x-ratelimit-reset"), Some(&*full.to_string()));
    }
    assert_eq!(gateway.get("/search").field("retry-after"), Some("20"));
    server.set_clock(T0 + 20_000_000);
    assert_eq!(gateway.get("/search").code(), (200, "ok"));
}

#[test]
fn a_cost_above_the_limit_is_refused_for_good() {
    let server = Server::start();
    let mut dear = route("dear", &hourly(10));
    dear["limits"][0]["cost"] = json!(11);
    let mut fair = route("fair", &hourly(10));
    fair["limits"][0]["cost"] = json!(10);
    let gateway = start(&server, &[dear, fair]);
    let answer = gateway.get("/dear");
    assert_eq!(answer.code(), (429, "cost_above_limit"));
    assert_eq!(answer.field("retry-after"), None);
    assert_eq!(answer.field("ratelimit"), Some("\"dear\";r=10;t=0"));
    assert_eq!(gateway.get("/fair").code(), (200, "ok"));
    assert_eq!(gateway.get("/fair").code(), (429, "rate_limited"));
}

#[test]
fn a_field_never_holds_more_digits_than_it_may() {
    let server = Server::start();
    let gateway = start(&server, &[route("huge", &hourly(9_007_199_254_740_991))]);
    let answer = gateway.get("/huge");
    let policy = "\"huge\";q=999999999999999;w=3600";
    assert_eq!(answer.field("ratelimit-policy"), Some(policy));
    let limit = answer.field("ratelimit").unwrap();
    assert_eq!(limit, "\"huge\";r=999999999999999;t=3600");
    assert_eq!(
        answer.field("x-ratelimit-remaining"),
        Some("9007199254740990")
    );
}

#[test]
fn every_algorithm_has_keys_of_its_own_that_name_nobody() {
    let server = Server::start();
    let token = json!({ "algorithm": "token", "capacity": 9, "refill": 1, "period_ms": 60_000 });
    let slide = json!({ "algorithm": "slide", "limit": 9, "window_ms": 3_600_000 });
    let exact = json!({ "algorithm": "slide", "limit": 9, "window_ms": 3_600_000, "exact": true });
    let policies = [
        ("f", &hourly(9)),
        ("t", &token),
        ("s", &slide),
        ("e", &exact),
    ];
    let routes = policies.map(|(name, policy)| route(name, policy));
    let gateway = start(&server, &routes);
    for (name, _) in policies {
        let answer = gateway.get(&format!("/{name}"));
        assert_eq!(answer.code(), (200, "ok"), "{name}");
        assert_eq!(answer.field("x-ratelimit-remaining"), Some("8"), "{name}");
    }
    let keys = keys(&server);
    let (tag, _) = keys[0].split_once('}').unwrap();
    assert_eq!(tag.len(), "rl:{".len() + 32, "{tag}");
    let names = ["e:exact", "f:fixed", "s:slide-3600000", "t:token"];
    assert_eq!(keys, names.map(|name| format!("{tag}}}:{name}")));
    let kinds = ["list", "string", "string", "string"];
    let kind = |key: &String| send::<String>(&mut server.connect(), &["TYPE", key]);
    assert_eq!(keys.iter().map(kind).collect::<Vec<_>>(), kinds);
}
