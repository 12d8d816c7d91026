//! What is being protected: the application that requests are passed on to. Without an address of
//! one, requests are answered here, to try the gateway out.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    CONNECTION, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use axum::http::uri::{Authority, Scheme};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, Version};
use axum::response::Response;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;

use crate::answer;

/// These are between two neighbours, and not passed on.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

pub(crate) struct Upstream {
    authority: Option<Authority>,
    client: Client<HttpConnector, Body>,
}

impl Upstream {
    /// `address` is a host and port, or empty.
    pub(crate) fn new(address: &str) -> Result<Self, String> {
        let authority = match address {
            "" => None,
            address => Some(address.parse().map_err(|error| format!("{error}"))?),
        };
        Ok(Self {
            authority,
            client: Client::builder(TokioExecutor::new()).build_http(),
        })
    }

    pub(crate) async fn answer(&self, request: Request) -> Response {
        let Some(authority) = &self.authority else {
            return answer::json(StatusCode::OK, &json!({ "code": "ok" }));
        };
        let answer = self.client.request(passed_on(request, authority)).await;
        let Ok(answer) = answer else {
            return answer::unreachable();
        };
        let mut answer = answer.map(Body::new);
        keep_end_to_end(answer.headers_mut());
        answer
    }
}

fn passed_on(mut request: Request, authority: &Authority) -> Request {
    let mut parts = request.uri().clone().into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(authority.clone());
    // A path is all that was missing, and a request always has one.
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    keep_end_to_end(headers);
    headers.remove(HOST);
    request
}

fn keep_end_to_end(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}
