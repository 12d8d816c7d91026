//! Who is charged for what, and what callers are told.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::mem;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use redis_rl_tower::{Limit, Limiter, MAX_UNITS, Policy, RateLimitLayer, Rejection};
use support::{Server, T0, calls, info, keys, redis_url};
use tokio::task::JoinSet;
use tower::{Layer, Service, ServiceExt};

use crate::app::{
    Answer, app, at_once, call, field, get, hourly, limit, limiter, on, request, user,
};

const RATE_LIMITED: &str = r#"{"code":"rate_limited","message":"Too many requests. Try again after Retry-After seconds."}"#;

/// Many callers at once, and how many of them were admitted.
async fn admitted(apps: &[Router], callers: usize) -> usize {
    let mut answers = JoinSet::new();
    for app in apps.iter().cycle().take(callers) {
        let app = app.clone();
        answers.spawn(async move { get(&app, "someone").await.status });
    }
    let answers = answers.join_all().await;
    assert!(answers.iter().all(|status| [200, 429].contains(status)));
    answers.iter().filter(|status| **status == 200).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_pass_until_the_limit_and_again_after_the_wait() {
    let server = Server::at(T0);
    let bucket = Policy::Token {
        capacity: 2,
        refill: 1,
        period_ms: 1_500,
    };
    let app = app(RateLimitLayer::new(
        limiter(&server),
        on([limit("search", bucket)]),
    ));
    for (at_ms, status, expected) in [
        (0, 200, ("\"search\";r=1;t=2", None, "1", "2")),
        (0, 200, ("\"search\";r=0;t=2", None, "0", "3")),
        (0, 429, ("\"search\";r=0;t=2", Some("2"), "0", "3")),
        (1_499, 429, ("\"search\";r=0;t=1", Some("1"), "0", "2")),
        (1_500, 200, ("\"search\";r=0;t=2", None, "0", "3")),
    ] {
        server.set_clock(T0 + at_ms * 1_000);
        let answer = get(&app, "someone").await;
        assert_eq!(answer.status, status, "{answer:?}");
        let (now, retry_after, remaining, reset) = expected;
        let mut limits = vec![
            ("ratelimit", now),
            ("ratelimit-policy", "\"search\";q=2;w=3"),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", remaining),
            ("x-ratelimit-reset", reset),
        ];
        if let Some(seconds) = retry_after {
            limits.insert(2, ("retry-after", seconds));
            assert_eq!(answer.body, RATE_LIMITED);
            assert_eq!(answer.field("content-type"), Some("application/json"));
        }
        assert_eq!(answer.limits(), limits, "{at_ms}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_caller_has_a_limit_of_its_own() {
    let server = Server::start();
    let app = app(RateLimitLayer::new(
        limiter(&server),
        on([limit("hour", hourly(1))]),
    ));
    for user in ["first", "second"] {
        assert_eq!(get(&app, user).await.status, 200);
        assert_eq!(get(&app, user).await.status, 429);
    }
    let expected = ["rl:{first}:hour:fixed", "rl:{second}:hour:fixed"];
    assert_eq!(keys(&server), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_charge_is_not_limited() {
    let server = Server::start();
    let hour = limit("hour", hourly(1));
    let layer = RateLimitLayer::new(limiter(&server), move |request| {
        match field(&request.headers, "x-user") {
            Some(user) if request.method == Method::GET => vec![hour.of(user)],
            _ => vec![],
        }
    });
    let app = app(layer);
    assert_eq!(get(&app, "someone").await.status, 200);
    assert_eq!(get(&app, "someone").await.status, 429);
    let post = || Request::post("/").header("x-user", "someone");
    for _ in 0..3 {
        for request in [post(), Request::get("/")] {
            let answer = call(&app, request.body(Body::empty()).unwrap()).await;
            assert_eq!((answer.status, &*answer.body), (200, "ok"));
            assert_eq!(answer.limits(), []);
        }
    }
    assert_eq!(calls(&server, "rl.fixed"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_limits_admit_together_or_none_is_charged() {
    let server = Server::at(T0);
    let limits = [limit("hour", hourly(5)), limit("burst", hourly(2))];
    let app = app(RateLimitLayer::new(limiter(&server), on(limits)));
    for _ in 0..2 {
        assert_eq!(get(&app, "someone").await.status, 200);
    }
    for _ in 0..5 {
        let answer = get(&app, "someone").await;
        assert_eq!(answer.status, 429);
        let expected = [
            ("ratelimit", "\"hour\";r=3;t=3600, \"burst\";r=0;t=3600"),
            (
                "ratelimit-policy",
                "\"hour\";q=5;w=3600, \"burst\";q=2;w=3600",
            ),
            ("retry-after", "3600"),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "3600"),
        ];
        assert_eq!(answer.limits(), expected);
    }
    assert_eq!(calls(&server, "rl.all"), 7);
    assert_eq!(calls(&server, "rl.fixed"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_and_each_of_its_users_are_charged_in_one_step() {
    let server = Server::start();
    let [tenant, each] = [("tenant", 3), ("user", 2)].map(|(name, most)| limit(name, hourly(most)));
    let layer = RateLimitLayer::new(limiter(&server), move |request| {
        vec![tenant.of("acme"), each.of_part("acme", user(request))]
    });
    let app = app(layer);
    for (user, status) in [("a", 200), ("a", 200), ("a", 429), ("b", 200), ("b", 429)] {
        assert_eq!(get(&app, user).await.status, status, "{user}");
    }
    let expected = [
        "rl:{acme}:tenant:fixed",
        "rl:{acme}:user:a:fixed",
        "rl:{acme}:user:b:fixed",
    ];
    assert_eq!(keys(&server), expected);
}

/// Whatever their names are.
#[test]
fn no_two_callers_share_a_key() {
    let minute = limit("minute", hourly(1));
    let names = [
        "",
        "%",
        "%7D",
        "a",
        "a}:minute:x",
        "x}:minute",
        "}",
        "{",
        "{a",
        ":",
        "a:b",
        "\n",
        "é",
    ];
    let mut keys = HashSet::new();
    let mut tags = HashSet::new();
    for caller in names {
        let tag = hash_tag(minute.of(caller).key()).to_owned();
        for part in names {
            let charge = minute.of_part(caller, part);
            assert_eq!(hash_tag(charge.key()), tag);
            assert!(keys.insert(charge.key().to_owned()), "{}", charge.key());
        }
        assert!(
            keys.insert(minute.of(caller).key().to_owned()),
            "{caller:?}"
        );
        assert!(tags.insert(tag), "{caller:?}");
    }
    for (charge, key) in [
        (minute.of("a@b.c"), "rl:{a@b.c}:minute:fixed"),
        (
            minute.of("2001:db8::1"),
            "rl:{2001%3Adb8%3A%3A1}:minute:fixed",
        ),
        (minute.of(""), "rl:{%}:minute:fixed"),
        (minute.of_part("", "{}"), "rl:{%}:minute:%7B%7D:fixed"),
    ] {
        assert_eq!(charge.key(), key);
    }
}

/// What a cluster chooses a key's slot by.
fn hash_tag(key: &str) -> &str {
    let (_, rest) = key.split_once('{').expect("a brace");
    let (tag, _) = rest.split_once('}').expect("its end");
    assert_ne!(tag, "", "{key}");
    tag
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_says_what_it_costs() {
    let server = Server::start();
    let hour = limit("hour", hourly(10));
    let layer = RateLimitLayer::new(limiter(&server), move |request| {
        let cost = field(&request.headers, "x-cost").unwrap().parse();
        vec![hour.of(user(request)).cost(cost.unwrap())]
    });
    let app = app(layer);
    let ask = async |cost: u64| {
        let mut request = request("someone");
        request.headers_mut().insert("x-cost", cost.into());
        call(&app, request).await
    };
    for (cost, status, left) in [(7, 200, "3"), (4, 429, "3"), (11, 429, "3"), (3, 200, "0")] {
        let answer = ask(cost).await;
        assert_eq!(answer.status, status, "{cost}");
        assert_eq!(answer.field("x-ratelimit-remaining"), Some(left));
        // No wait helps where the cost is above the limit.
        let never = cost > 10;
        assert_eq!(answer.body.contains("cost_above_limit"), never);
        let waits = status == 429 && !never;
        assert_eq!(answer.field("retry-after").is_some(), waits, "{cost}");
    }
}

/// Each would be an error reply on every request, and so admit everything.
#[tokio::test(flavor = "multi_thread")]
async fn charges_that_no_server_takes_never_fail_open() {
    let server = Server::start();
    let (hour, day) = (limit("hour", hourly(9)), limit("day", hourly(9)));
    let many = |count: usize| (0..count).map(|each| hour.of(&each.to_string()));
    let places = limit("at-once", at_once(9));
    let most = MAX_UNITS;
    for (status, charges) in [
        (500, many(33).collect()),
        (500, vec![hour.of("a"), day.of("a"), hour.of("a")]),
        (500, vec![hour.of("a").upto(1), day.of("a")]),
        (500, vec![day.of("a"), hour.of("a").upto(1)]),
        (500, vec![hour.of("a").cost(0)]),
        (500, vec![hour.of("a").upto(0)]),
        (500, vec![hour.of("a").cost(most + 1)]),
        (500, vec![hour.of("a"), day.of("a").cost(0), places.of("a")]),
        (200, many(32).collect()),
        (200, vec![hour.of("b").upto(most)]),
        (429, vec![hour.of("b").cost(most)]),
        (200, vec![places.of("b").cost(0)]),
    ] {
        let before = calls(&server, "rl.all") + calls(&server, "rl.fixed");
        let shown = format!("{charges:?}");
        let layer = RateLimitLayer::new(limiter(&server), move |_| charges.clone());
        let answer = get(&app(layer.fail_open()), "someone").await;
        assert_eq!(answer.status, status, "{shown}: {answer:?}");
        if status == 500 {
            assert!(answer.body.contains("\"invalid_charges\""), "{answer:?}");
            assert_eq!(answer.limits(), []);
            let after = calls(&server, "rl.all") + calls(&server, "rl.fixed");
            assert_eq!(after, before, "{shown} is sent");
        } else {
            assert!(answer.field("ratelimit").is_some(), "{shown}: {answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_callers_at_once_as_many_pass_as_the_limit_says() {
    let policies = [
        hourly(3),
        Policy::Token {
            capacity: 3,
            refill: 1,
            period_ms: 3_600_000,
        },
        Policy::Slide {
            limit: 3,
            window_ms: 3_600_000,
            exact: false,
        },
        Policy::Slide {
            limit: 3,
            window_ms: 3_600_000,
            exact: true,
        },
    ];
    let server = Server::at(T0);
    for policy in policies {
        // Two services, each with a connection of its own, share the limit.
        let apps = [(); 2].map(|()| {
            let limits = [limit("hour", policy), limit("day", hourly(100))];
            app(RateLimitLayer::new(limiter(&server), on(limits)))
        });
        assert_eq!(admitted(&apps, 50).await, 3, "{policy:?}");
        support::send::<()>(&mut server.connect(), &["FLUSHALL"]);
    }
}

/// Also that of the limits which would have admitted it.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_is_not_charged() {
    let server = Server::at(T0);
    let limits = [limit("day", hourly(100)), limit("hour", hourly(3))];
    let app = app(RateLimitLayer::new(limiter(&server), on(limits)));
    assert_eq!(admitted(&[app], 50).await, 3);
    for key in keys(&server) {
        let used: u64 = support::send(&mut server.connect(), &["GET", &key]);
        assert_eq!(used, 3, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_may_change_while_requests_come() {
    let server = Server::start();
    let most = Arc::new(AtomicU64::new(3));
    let now = Arc::clone(&most);
    let layer = RateLimitLayer::new(limiter(&server), move |request| {
        let policy = hourly(now.load(Ordering::SeqCst));
        vec![limit("hour", policy).of(user(request))]
    });
    let app = app(layer);
    let load = tokio::spawn({
        let app = app.clone();
        async move { admitted(&[app], 200).await }
    });
    // In the middle of the load, wherever that is.
    while calls(&server, "rl.fixed") < 20 {
        tokio::task::yield_now().await;
    }
    most.store(8, Ordering::SeqCst);
    let more = admitted(slice::from_ref(&app), 50).await;
    assert_eq!(load.await.unwrap() + more, 8);
    // Lowered, what is used stays used.
    most.store(5, Ordering::SeqCst);
    let answer = get(&app, "someone").await;
    assert_eq!(answer.status, 429);
    assert_eq!(
        answer.field("ratelimit-policy"),
        Some("\"hour\";q=5;w=3600")
    );
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_outside_may_write_another_rejection() {
    async fn own_words(response: Response) -> Response {
        match response.extensions().get() {
            Some(Rejection::Refused(decision)) => {
                let wait = decision.retry_after_ms.unwrap();
                (StatusCode::IM_A_TEAPOT, format!("wait {wait} ms")).into_response()
            }
            _ => response,
        }
    }
    let server = Server::at(T0);
    let layer = RateLimitLayer::new(limiter(&server), on([limit("hour", hourly(1))]));
    let app = app(layer).layer(map_response(own_words));
    let Answer { status, body, .. } = get(&app, "someone").await;
    assert_eq!((status, &*body), (200, "ok"));
    let Answer { status, body, .. } = get(&app, "someone").await;
    assert_eq!((status, &*body), (418, "wait 3600000 ms"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_of_the_application_is_used() {
    let server = Server::start();
    let client = redis::Client::open(redis_url(&server)).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let limits = on([limit("hour", hourly(1))]);
    let app = app(RateLimitLayer::new(Limiter::new(connection), limits));
    let before = info(&mut server.connect(), "stats", "total_connections_received");
    assert_eq!(get(&app, "someone").await.status, 200);
    assert_eq!(get(&app, "someone").await.status, 429);
    let after = info(&mut server.connect(), "stats", "total_connections_received");
    assert_eq!(after, before + 1, "that of the test itself");
}

/// A service that may be called once for each time that it was ready, as its clones are not.
#[derive(Default)]
struct Once(bool);

impl Clone for Once {
    fn clone(&self) -> Self {
        Self(false)
    }
}

impl Service<Request<Body>> for Once {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0 = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(mem::take(&mut self.0), "called before it was ready");
        ready(Ok(Response::default()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_that_is_ready_is_called() {
    let server = Server::start();
    let layer = RateLimitLayer::new(limiter(&server), on([limit("hour", hourly(1))]));
    let mut service = layer.layer(Once::default());
    for status in [200, 429, 429] {
        let service = service.ready().await.unwrap();
        let response = service.call(request("someone")).await.unwrap();
        assert_eq!(response.status(), status);
    }
}

#[test]
fn a_limit_that_no_server_would_take_is_an_error() {
    let name = "a name has lower-case letters, digits and hyphens";
    let lease = |limit, ttl_ms| Policy::Lease { limit, ttl_ms };
    let bucket = Policy::Token {
        capacity: 1 << 52,
        refill: 1,
        period_ms: 1_000,
    };
    let exact = Policy::Slide {
        limit: 10_001,
        window_ms: 1,
        exact: true,
    };
    for (given, policy, expected) in [
        ("", hourly(1), name),
        ("per hour", hourly(1), name),
        ("\"", hourly(1), name),
        (
            "a",
            hourly(0),
            "limit must be between 1 and 9007199254740991",
        ),
        ("a", exact, "limit must be between 1 and 10000"),
        ("a", lease(10_001, 1), "limit must be between 1 and 10000"),
        ("a", lease(1, 0), "ttl_ms must be between 1 and 86400000"),
        (
            "a",
            bucket,
            "capacity * period_ms / refill must be between 1 and 3153600000000",
        ),
    ] {
        let error = Limit::new(given, policy).unwrap_err();
        assert_eq!(error.to_string(), expected, "{given:?}, {policy:?}");
    }
}
