//! The middleware: who is charged for a request, and what becomes of it.

use std::error::Error;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use tower_layer::Layer;
use tower_service::Service;

use crate::headers::describe;
use crate::lease::Held;
use crate::limit::Charge;
use crate::limiter::{Failure, Limiter};
use crate::rejection::Rejection;

/// Any error of a body.
pub type BoxError = Box<dyn Error + Send + Sync>;
/// The body of a response, which holds the request's lease, if it has one.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

type Charges = dyn Fn(&Parts) -> Vec<Charge> + Send + Sync;

/// Limits the requests of a service, over HTTP or gRPC.
#[derive(Clone)]
pub struct RateLimitLayer {
    limiter: Limiter,
    charges: Arc<Charges>,
    fail_open: bool,
}

impl RateLimitLayer {
    /// `charges` says what a request is charged for: up to 32 limits, each with a key of its own. All
    /// admit it and are charged, or none is. A request without any is not limited. One with charges
    /// that no server would take is answered with 500.
    pub fn new(
        limiter: Limiter,
        charges: impl Fn(&Parts) -> Vec<Charge> + Send + Sync + 'static,
    ) -> Self {
        Self {
            limiter,
            charges: Arc::new(charges),
            fail_open: false,
        }
    }

    /// Lets all requests pass while Redis can't decide, instead of none. Not those with invalid charges.
    #[must_use]
    pub fn fail_open(self) -> Self {
        Self {
            fail_open: true,
            ..self
        }
    }

    /// What is held for a request that may pass, or why it may not. Fields for its response are put
    /// into `headers`.
    async fn judge(&self, charges: &[Charge], headers: &mut HeaderMap) -> Result<Held, Rejection> {
        match self.limiter.ask(charges).await {
            (Ok(decision), held) if decision.allowed => {
                describe(headers, charges, decision.standings.as_deref());
                Ok(held)
            }
            (Ok(decision), _) => Err(Rejection::Refused(decision)),
            (Err(Failure::InvalidCharges), _) => Err(Rejection::InvalidCharges),
            (Err(_), held) if self.fail_open => {
                describe(headers, charges, None);
                Ok(held)
            }
            (Err(_), _) => Err(Rejection::Unavailable),
        }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        let layer = self.clone();
        RateLimit { inner, layer }
    }
}

/// A service whose requests are limited.
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    layer: RateLimitLayer,
}

impl<S, Q, A> Service<Request<Q>> for RateLimit<S>
where
    S: Service<Request<Q>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    Q: Send + 'static,
    A: Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // The one that is ready, and not its clone.
        let next = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, next);
        let layer = self.layer.clone();
        let (parts, body) = request.into_parts();
        let charges = (layer.charges)(&parts);
        let reject = if is_grpc(&parts.headers) {
            Rejection::grpc
        } else {
            Rejection::http
        };
        let request = Request::from_parts(parts, body);
        Box::pin(async move {
            if charges.is_empty() {
                let response = inner.call(request).await?;
                return Ok(response.map(|body| Held::default().until_sent(body)));
            }
            let mut fields = HeaderMap::new();
            let held = match layer.judge(&charges, &mut fields).await {
                Ok(held) => held,
                Err(rejection) => return Ok(reject(rejection, &charges)),
            };
            let mut response = match held.wait(inner.call(request)).await {
                Some(response) => response?.map(|body| held.until_sent(body)),
                None => reject(Rejection::TookTooLong, &charges),
            };
            response.headers_mut().extend(fields);
            Ok(response)
        })
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    media_type.is_some_and(|value| value.starts_with(b"application/grpc"))
}
