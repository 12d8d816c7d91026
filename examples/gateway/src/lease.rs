//! What a request holds while it is handled: a lease in Redis, or a place of this process alone.
//! Both are given back when the response has been sent, and when the caller hangs up.
//!
//! A lease ends by its `ttl_ms` if nobody gives it back, as when this process is killed or Redis is
//! out of reach. So a request is handled for at most nine tenths of that time: what outlives its
//! lease would be one more than the limit. Nothing is renewed.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use redis::Cmd;
use tokio::task::AbortHandle;
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
            Ok(response) => response.map(|body| Body::new(Sending::new(body, self, ends))),
            Err(_) => answer::took_too_long(),
        }
    }
}

/// A response that is being sent. It breaks off when its time is over, even if the caller has stopped
/// reading: then nobody asks for the next part of the body, so a task of its own drops it.
struct Sending {
    rest: Rest,
    /// Wakes the connection.
    ends: Pin<Box<Sleep>>,
    end: AbortHandle,
}

/// What has not been sent, and what is held meanwhile.
type Rest = Arc<Mutex<Option<(Body, Held)>>>;

impl Sending {
    fn new(body: Body, held: Held, ends: Instant) -> Self {
        let rest: Rest = Arc::new(Mutex::new(Some((body, held))));
        let dropped = Arc::clone(&rest);
        let end = tokio::spawn(async move {
            sleep_until(ends).await;
            lock(&dropped).take();
        });
        Self {
            rest,
            ends: Box::pin(sleep_until(ends)),
            end: end.abort_handle(),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        lock(&self.rest).take();
        self.end.abort();
    }
}

fn lock(rest: &Rest) -> MutexGuard<'_, Option<(Body, Held)>> {
    rest.lock().unwrap_or_else(PoisonError::into_inner)
}

impl http_body::Body for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let over = self.ends.as_mut().poll(context).is_ready();
        match &mut *lock(&self.rest) {
            Some((body, _)) if !over => Pin::new(body).poll_frame(context),
            _ => {
                let error = axum::Error::new("the request outlived its lease");
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let rest = lock(&self.rest);
        rest.as_ref().is_some_and(|(body, _)| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let rest = lock(&self.rest);
        let hint = rest.as_ref().map(|(body, _)| body.size_hint());
        hint.unwrap_or_default()
    }
}
