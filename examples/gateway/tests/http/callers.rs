//! Who calls, and that all processes count together.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::gateway::{API_KEY, API_KEYS, Gateway, hourly, keys, redis_url, route, rules};
use support::Server;

#[test]
fn only_a_known_api_key_is_let_in() {
    let server = Server::start();
    let routes = [route("search", &hourly(3))];
    let gateway = Gateway::start(&redis_url(&server), &rules(&routes));
    let client = gateway.client();
    let right = format!("Bearer {API_KEY}");
    let refused: [&[(&str, &str)]; 8] = [
        &[],
        &[("authorization", "Bearer key-of-nobody")],
        &[("authorization", "Bearer ")],
        &[("authorization", API_KEY)],
        &[("authorization", &format!("Basic {API_KEY}"))],
        &[("authorization", &format!("{right}x"))],
        &[("authorization", &right), ("authorization", "Bearer other")],
        &[("x-api-key", API_KEY)],
    ];
    for fields in refused {
        for path in ["/search", "/no-such-route"] {
            let answer = client.send(path, fields);
            assert_eq!(answer.code(), (401, "unknown_api_key"), "{fields:?}");
            assert_eq!(answer.field("www-authenticate"), Some("Bearer"));
            assert!(answer.limits().is_empty(), "{answer:?}");
        }
    }
    for path in ["/", "/search/", "/Search", "/%73earch", "//search"] {
        assert_eq!(client.get(path).code(), (404, "unknown_route"), "{path}");
    }
    // Nobody who is turned away costs the server a key.
    assert!(keys(&server).is_empty());
    assert_eq!(client.get("/search?q=1").code(), (200, "ok"));
    let answer = client.send(
        "/search",
        &[("authorization", &format!("bEARER {API_KEY}"))],
    );
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("1"));
}

#[test]
fn forged_header_fields_change_nothing() {
    let server = Server::start();
    let routes = [route("search", &hourly(3))];
    let gateway = Gateway::start(&redis_url(&server), &rules(&routes));
    let client = gateway.client();
    let forged: [&[(&str, &str)]; 4] = [
        &[
            ("x-forwarded-for", "203.0.113.1"),
            ("x-real-ip", "203.0.113.2"),
        ],
        &[("forwarded", "for=203.0.113.3"), ("via", "1.1 elsewhere")],
        &[
            ("x-user-id", "second@example.com"),
            ("x-tenant", "second@example.com"),
        ],
        &[
            ("x-api-key", API_KEYS[1].1),
            ("cookie", "user=second@example.com"),
        ],
    ];
    for (fields, status) in forged.into_iter().zip([200, 200, 200, 429]) {
        assert_eq!(
            client.get_as("/search", API_KEY, fields).status,
            status,
            "{fields:?}"
        );
    }
    assert_eq!(keys(&server).len(), 1);
}

#[test]
fn a_tenant_has_one_limit_for_all_its_api_keys_and_others_have_theirs() {
    let server = Server::start();
    let routes = [route("search", &hourly(2)), route("report", &hourly(2))];
    let gateway = Gateway::start(&redis_url(&server), &rules(&routes));
    let client = gateway.client();
    let remaining = |path, api_key| {
        let answer = client.get_as(path, api_key, &[]);
        answer.field("x-ratelimit-remaining").unwrap().to_owned()
    };
    assert_eq!(remaining("/search", API_KEYS[2].1), "1");
    assert_eq!(remaining("/search", API_KEYS[3].1), "0");
    assert_eq!(remaining("/search", API_KEYS[0].1), "1");
    assert_eq!(remaining("/report", API_KEYS[2].1), "1");
    assert_eq!(client.get_as("/search", API_KEYS[3].1, &[]).status, 429);
}

#[test]
fn two_processes_share_one_limit() {
    let server = Server::start();
    let limit = 100;
    let rules = rules(&[route("search", &hourly(100))]);
    let gateways = [(); 2].map(|()| Gateway::start(&redis_url(&server), &rules));
    let [admitted, refused] = [(); 2].map(|()| AtomicUsize::new(0));
    thread::scope(|scope| {
        for gateway in gateways.iter().cycle().take(8) {
            scope.spawn(|| {
                let client = gateway.client();
                for _ in 0..50 {
                    match client.get("/search").status {
                        200 => admitted.fetch_add(1, Ordering::Relaxed),
                        429 => refused.fetch_add(1, Ordering::Relaxed),
                        status => panic!("status {status}"),
                    };
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), limit);
    assert_eq!(refused.into_inner(), 8 * 50 - limit);
}
