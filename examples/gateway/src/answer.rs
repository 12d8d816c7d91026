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
//! Those of 429, 503 and 504, and the header fields about limits, are those of `redis-rl-tower`.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};

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
    let scheme = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    response
}

pub(crate) fn unknown_route() -> Response {
    error(
        StatusCode::NOT_FOUND,
        "unknown_route",
        "There is no such route.",
    )
}

pub(crate) fn unreachable() -> Response {
    let message = "The application is out of reach. Try again later.";
    error(StatusCode::BAD_GATEWAY, "application_unreachable", message)
}
