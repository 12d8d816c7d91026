//! What the caller gets: statuses, header fields, and a JSON body with a `code` that stays.
//!
//! | status | `code` |
//! |---|---|
//! | 401 | `unknown_api_key` |
//! | 404 | `unknown_route` |
//! | 429 | `rate_limited`, with `Retry-After` |
//! | 429 | `cost_above_limit`, without: no wait helps |
//! | 502 | `application_unreachable` |
//! | 503 | `limiter_unavailable` |
//! | 504 | `took_too_long` |
//!
//! `RateLimit-Policy` and `RateLimit` are those of draft-ietf-httpapi-ratelimit-headers-10 (September
//! 2025; revision 11 is of May 2026): lists of structured fields (RFC 9651), one item each, with the
//! policy's name, `q` the quota, `w` the window in seconds, `r` what remains, and `t` the seconds
//! until there is more: those of `Retry-After` where the same request would have to wait now, otherwise
//! at most so long, until nothing is used any more. A limit of requests at once has no window, but
//! a unit, `qu`. `X-RateLimit-*` is what clients knew before: the limit, what remains, and the seconds
//! until nothing is used any more.

use std::fmt::Display;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};

use crate::decision::{Decision, Standing};
use crate::route::{Charge, Route};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The largest integer of a structured field, which has 15 digits; a limit may have 16.
const LARGEST: u64 = 999_999_999_999_999;

pub(crate) fn json(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn error(status: StatusCode, code: &str, message: &str) -> Response {
    json(status, &json!({ "code": code, "message": message }))
}

/// The same for a key that is missing and one that is wrong.
pub(crate) fn unknown_api_key() -> Response {
    let message = "Send your API key as Authorization: Bearer <key>.";
    let mut response = error(StatusCode::UNAUTHORIZED, "unknown_api_key", message);
    put(response.headers_mut(), WWW_AUTHENTICATE, "Bearer");
    response
}

pub(crate) fn unknown_route() -> Response {
    error(
        StatusCode::NOT_FOUND,
        "unknown_route",
        "There is no such route.",
    )
}

pub(crate) fn unavailable() -> Response {
    let message = "The rate limiter is out of reach. Try again later.";
    error(
        StatusCode::SERVICE_UNAVAILABLE,
        "limiter_unavailable",
        message,
    )
}

pub(crate) fn unreachable() -> Response {
    let message = "The application is out of reach. Try again later.";
    error(StatusCode::BAD_GATEWAY, "application_unreachable", message)
}

/// What came of the request is not known.
pub(crate) fn took_too_long() -> Response {
    let message = "The request took longer than it may.";
    error(StatusCode::GATEWAY_TIMEOUT, "took_too_long", message)
}

pub(crate) fn refused(route: &Route, decision: &Decision) -> Response {
    let (code, message) = match decision.retry_after_ms {
        Some(_) => (
            "rate_limited",
            "Too many requests. Try again after Retry-After seconds.",
        ),
        None => (
            "cost_above_limit",
            "This request costs more than the limit ever allows.",
        ),
    };
    let mut response = error(StatusCode::TOO_MANY_REQUESTS, code, message);
    let headers = response.headers_mut();
    describe(headers, route, decision);
    if let Some(retry_after_ms) = decision.retry_after_ms {
        put(headers, RETRY_AFTER, seconds(retry_after_ms).max(1));
    }
    response
}

/// Tells the caller where it stands, as far as that is known: this process alone knows the policies,
/// but not what the others have admitted.
pub(crate) fn describe(headers: &mut HeaderMap, route: &Route, decision: &Decision) {
    put(headers, POLICY, list(route.charges.iter().map(policy)));
    let Some(standings) = &decision.standings else {
        return;
    };
    let limits = route.charges.iter().zip(standings);
    put(headers, LIMIT, list(limits.map(limit)));
    // These have room for one limit, and mean a rate: of those that refuse, or else of all, the one
    // with the least left.
    let rates = route.charges.iter().zip(standings);
    let rates = rates.filter(|(charge, _)| charge.lease().is_none());
    let least = rates.min_by_key(|(_, standing)| (standing.allowed > 0, standing.remaining));
    if let Some((_, least)) = least {
        put(headers, X_LIMIT, least.limit);
        put(headers, X_REMAINING, least.remaining);
        put(headers, X_RESET, seconds(least.reset_after_ms));
    }
}

fn policy(charge: &Charge) -> String {
    let (name, policy) = (&charge.limit.name, &charge.limit.policy);
    let quota = policy.limit().min(LARGEST);
    if charge.lease().is_some() {
        return format!("\"{name}\";q={quota};qu=\"concurrent-requests\"");
    }
    let window = seconds(policy.window_ms());
    format!("\"{name}\";q={quota};w={window}")
}

fn limit((charge, standing): (&Charge, &Standing)) -> String {
    // Where the same request would have to wait, that is when there is more: a client must not be told
    // to wait for longer than Retry-After. Otherwise the reply doesn't tell when the next unit comes, and
    // by the time that nothing is used there is more for certain.
    let name = &charge.limit.name;
    let remaining = standing.remaining.min(LARGEST);
    let more = match standing.retry_after_ms {
        Some(retry_after_ms) if retry_after_ms > 0 => seconds(retry_after_ms),
        // Places come back as requests end.
        _ if charge.lease().is_some() => return format!("\"{name}\";r={remaining}"),
        _ => seconds(standing.reset_after_ms),
    };
    format!("\"{name}\";r={remaining};t={more}")
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// Rounded up: who waits as long as told must not be refused for waiting too little.
fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1000)
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: impl Display) {
    // Numbers and names that the rules allow: always a valid value.
    if let Ok(value) = HeaderValue::try_from(value.to_string()) {
        headers.insert(name, value);
    }
}
