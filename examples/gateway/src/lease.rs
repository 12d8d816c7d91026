//! What a request holds while it is handled: a lease in Redis, or a place of this process alone.
//! Both are given back when the response has been sent, and when the caller hangs up.
//!
//! A lease ends by its `ttl_ms` if nobody gives it back, as when this process is killed or Redis is
//! out of reach. So a request is handled for at most nine tenths of that time: what outlives its
//! lease would be one more than the limit. Nothing is renewed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use redis::Cmd;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::answer;
use crate::limiter::Limiter;
use crate::local::Place;

/// Nothing, on a route without a limit of this kind.
#[derive(Default)]
pub(crate) struct Held {
    lease: Option<Lease>,
    place: Option<Place>,
    /// When the request has to be over.
    ends: Option<Instant>,
}

/// A lease that may have been taken. Dropped, it is given back in the background, and once: if Redis
/// does not answer, it ends by its time.
pub(crate) struct Lease {
    limiter: Arc<Limiter>,
    key: String,
    release: Cmd,
    timeout: Duration,
    taken: bool,
}

impl Lease {
    pub(crate) fn new(limiter: &Arc<Limiter>, key: &str, release: Cmd, timeout: Duration) -> Self {
        Self {
            limiter: Arc::clone(limiter),
            key: key.to_owned(),
            release,
            timeout,
            taken: true,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.taken {
            let (key, release) = (self.key.clone(), self.release.clone());
            self.limiter.release(key, release, self.timeout);
        }
    }
}

impl Held {
    /// A lease, from before Redis is asked for it: a request that is given up before there is an
    /// answer may have got it.
    pub(crate) fn lease(lease: Lease, ttl: Duration) -> Self {
        let handled = ttl.saturating_sub(ttl.checked_div(10).unwrap_or_default());
        Self {
            lease: Some(lease),
            place: None,
            ends: Instant::now().checked_add(handled),
        }
    }

    /// The lease was not taken, so there is none to give back.
    pub(crate) fn not_taken(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.taken = false;
        }
    }

    pub(crate) fn add(&mut self, place: Option<Place>) {
        self.place = place;
    }

    /// Holds all until the request has been handled and its response sent.
    pub(crate) async fn during(self, handling: impl Future<Output = Response>) -> Response {
        let Some(ends) = self.ends else {
            return handling.await;
        };
        match timeout_at(ends, handling).await {
            Ok(response) => response.map(|body| {
                Body::new(HeldBody {
                    body,
                    ends: Box::pin(sleep_until(ends)),
                    _held: self,
                })
            }),
            Err(_) => answer::took_too_long(),
        }
    }
}

/// A response that is being sent. It breaks off when its time is over.
struct HeldBody {
    body: Body,
    ends: Pin<Box<Sleep>>,
    _held: Held,
}

impl http_body::Body for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ends.as_mut().poll(context).is_ready() {
            let error = axum::Error::new("the request outlived its lease");
            return Poll::Ready(Some(Err(error)));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
