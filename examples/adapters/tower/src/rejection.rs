//! The answer to a request that is not handled, or not to its end.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};

use crate::decision::Decision;
use crate::headers::{describe, put, seconds};
use crate::layer::ResponseBody;
use crate::limit::Charge;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Why a request got no answer of the service. It is an extension of the response, so a layer
/// outside of this one can write another answer.
///
/// | | HTTP | body | gRPC |
/// |---|---|---|---|
/// | a limit refuses | 429, with `Retry-After` | `rate_limited` | `RESOURCE_EXHAUSTED` |
/// | a cost above its limit | 429, without: no wait helps | `cost_above_limit` | `RESOURCE_EXHAUSTED` |
/// | `InvalidCharges` | 500 | `invalid_charges` | `INTERNAL` |
/// | `Unavailable` | 503 | `limiter_unavailable` | `UNAVAILABLE` |
/// | `TookTooLong` | 504 | `took_too_long` | `DEADLINE_EXCEEDED` |
///
/// The body is JSON, with that word as its `code` and a `message`. A gRPC client gets
/// `grpc-retry-pushback-ms` instead of `Retry-After`, negative where no wait helps.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// A limit refuses it. Nothing is charged.
    Refused(Decision),
    /// No server would take its charges: a mistake of the service, which is logged.
    InvalidCharges,
    /// Redis could not decide.
    Unavailable,
    /// Its lease would have ended first.
    TookTooLong,
}

impl Rejection {
    /// The response to an HTTP request.
    #[must_use]
    pub fn http(self, charges: &[Charge]) -> Response<ResponseBody> {
        let (status, code, message) = match &self {
            Self::Refused(Decision {
                retry_after_ms: Some(_),
                ..
            }) => (
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limited",
                "Too many requests. Try again after Retry-After seconds.",
            ),
            Self::Refused(_) => (
                StatusCode::TOO_MANY_REQUESTS,
                "cost_above_limit",
                "This request costs more than the limit ever allows.",
            ),
            Self::InvalidCharges => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "invalid_charges",
                "The service charges this request in a way that is not possible.",
            ),
            Self::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "limiter_unavailable",
                "The rate limiter is out of reach. Try again later.",
            ),
            Self::TookTooLong => (
                StatusCode::GATEWAY_TIMEOUT,
                "took_too_long",
                "The request took longer than it may.",
            ),
        };
        let body = format!(r#"{{"code":"{code}","message":"{message}"}}"#);
        let body = Full::from(body).map_err(|never| match never {});
        let mut response = Response::new(body.boxed_unsync());
        *response.status_mut() = status;
        put(response.headers_mut(), CONTENT_TYPE, "application/json");
        if let Self::Refused(decision) = &self {
            let headers = response.headers_mut();
            describe(headers, charges, decision.standings.as_deref());
            if let Some(ms) = decision.retry_after_ms {
                put(headers, RETRY_AFTER, seconds(ms).max(1));
            }
        }
        response.extensions_mut().insert(self);
        response
    }

    /// The response to a gRPC request: trailers only, in the place of the header.
    #[must_use]
    pub fn grpc(self, charges: &[Charge]) -> Response<ResponseBody> {
        let (status, message) = match &self {
            Self::Refused(Decision {
                retry_after_ms: Some(_),
                ..
            }) => (8, "Too many requests."),
            Self::Refused(_) => (8, "This request costs more than the limit ever allows."),
            Self::InvalidCharges => (
                13,
                "The service charges this request in a way that is not possible.",
            ),
            Self::Unavailable => (14, "The rate limiter is out of reach."),
            Self::TookTooLong => (4, "The request took longer than it may."),
        };
        let body = Empty::new().map_err(|never| match never {});
        let mut response = Response::new(body.boxed_unsync());
        let headers = response.headers_mut();
        put(headers, CONTENT_TYPE, "application/grpc");
        put(headers, GRPC_STATUS, status);
        put(headers, GRPC_MESSAGE, message);
        if let Self::Refused(decision) = &self {
            describe(headers, charges, decision.standings.as_deref());
            match decision.retry_after_ms {
                Some(ms) => put(headers, GRPC_PUSHBACK, ms.max(1)),
                None => put(headers, GRPC_PUSHBACK, -1),
            }
        }
        response.extensions_mut().insert(self);
        response
    }
}
