//! A service behind the layer, and its callers.

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Request, Response};
use axum::routing::any;
use redis_rl_tower::{Charge, Limit, Limiter, Policy, RateLimitLayer};
use support::{DEADLINE, Server, redis_url};
use tower::ServiceExt;

/// A limiter with a time-out that only a test about time-outs meets.
pub fn limiter(server: &Server) -> Limiter {
    let limiter = Limiter::connect(&redis_url(server)).expect("an address");
    limiter.timeout(DEADLINE)
}

pub fn limit(name: &str, policy: Policy) -> Limit {
    Limit::new(name, policy).expect("a valid limit")
}

/// A fixed window of an hour.
pub fn hourly(limit: u64) -> Policy {
    let window_ms = 3_600_000;
    Policy::Fixed { limit, window_ms }
}

/// Leases of a minute: none ends by itself while a test runs.
pub fn at_once(limit: u64) -> Policy {
    let ttl_ms = 60_000;
    Policy::Lease { limit, ttl_ms }
}

/// Who calls, as an earlier layer would have found out.
pub fn user(request: &Parts) -> &str {
    field(&request.headers, "x-user").expect("every caller of a test has a name")
}

pub fn field<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().expect("text"))
}

/// Charges each caller on these limits.
pub fn on<const N: usize>(limits: [Limit; N]) -> impl Fn(&Parts) -> Vec<Charge> + Send + Sync {
    move |request| limits.iter().map(|limit| limit.of(user(request))).collect()
}

/// Says `ok` to each request that may pass.
pub fn app(layer: RateLimitLayer) -> Router {
    Router::new().fallback(any(async || "ok")).layer(layer)
}

pub fn request(user: &str) -> Request<Body> {
    let request = Request::get("/").header("x-user", user);
    request.body(Body::empty()).expect("a request")
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.headers, name)
    }

    /// What is said of limits.
    pub fn limits(&self) -> Vec<(&str, &str)> {
        let names = self.headers.keys().map(HeaderName::as_str);
        let mut limits: Vec<_> = names
            .filter(|name| name.contains("ratelimit") || *name == "retry-after")
            .map(|name| (name, self.field(name).expect("a field")))
            .collect();
        limits.sort_unstable();
        limits
    }
}

pub async fn send(app: &Router, request: Request<Body>) -> Response<Body> {
    app.clone().oneshot(request).await.expect("never an error")
}

/// The whole answer to a request.
pub async fn call(app: &Router, request: Request<Body>) -> Answer {
    let (parts, body) = send(app, request).await.into_parts();
    let body = to_bytes(body, 1 << 20).await.expect("a whole body");
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8(body.into()).expect("text"),
    }
}

pub async fn get(app: &Router, user: &str) -> Answer {
    call(app, request(user)).await
}

/// Asks again until a caller gets this status.
pub async fn wait_for_status(app: &Router, user: &str, status: u16) -> Answer {
    let began = Instant::now();
    loop {
        let answer = get(app, user).await;
        if answer.status == status {
            return answer;
        }
        assert!(
            began.elapsed() < DEADLINE,
            "waited for {status}: {answer:?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
