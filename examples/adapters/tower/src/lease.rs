//! What a request holds while it is handled. It is given back when the response has been sent, and when
//! the caller hangs up.
//!
//! A lease ends by its `ttl_ms` if nobody gives it back, as when this process is killed or Redis is
//! out of reach. So a request is handled for at most nine tenths of that time: what outlives its
//! lease would be one more than the limit. Nothing is renewed.

use std::any::Any;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use redis::Cmd;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::layer::{BoxError, ResponseBody};
use crate::limit::Charge;
use crate::limiter::Limiter;

/// What a request holds: a lease, or nothing. Dropped, it is given back in the background. If Redis does
/// not answer, it is sent again every half second, until the lease has ended by its time.
#[derive(Default)]
#[must_use = "dropped, it gives the lease back"]
pub struct Held {
    lease: Option<Lease>,
    also: Option<Box<dyn Any + Send + Sync>>,
    /// When the request has to be over.
    ends: Option<Instant>,
}

/// Leases that may have been taken, in one step.
pub(crate) struct Lease {
    limiter: Limiter,
    leases: Vec<Charge>,
    release: Cmd,
}

impl Lease {
    pub(crate) fn new(limiter: &Limiter, leases: Vec<Charge>, release: Cmd) -> Self {
        Self {
            limiter: limiter.clone(),
            leases,
            release,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.limiter.release(lease.leases, lease.release);
        }
    }
}

impl Held {
    pub(crate) fn lease(lease: Lease, ttl: Duration) -> Self {
        let handled = ttl.saturating_sub(ttl.checked_div(10).unwrap_or_default());
        Self {
            lease: Some(lease),
            also: None,
            ends: Instant::now().checked_add(handled),
        }
    }

    /// The lease was not taken, so there is none to give back.
    pub(crate) fn not_taken(&mut self) {
        self.lease = None;
    }

    /// Drops something else together with the lease, for a request that takes one.
    pub fn hold(&mut self, also: impl Any + Send + Sync) {
        self.also = Some(Box::new(also));
    }

    /// Waits for a response, for as long as a lease lasts. None if that is over.
    pub async fn wait<T>(&self, handling: impl Future<Output = T>) -> Option<T> {
        match self.ends {
            Some(ends) => timeout_at(ends, handling).await.ok(),
            None => Some(handling.await),
        }
    }

    /// Holds all until the body has ended or is dropped. With a lease, it breaks off when its time is
    /// over.
    ///
    /// # Panics
    ///
    /// With a lease outside of a Tokio runtime.
    pub fn until_sent<B>(self, body: B) -> ResponseBody
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let body = body.map_err(Into::into).boxed_unsync();
        match self.ends {
            Some(ends) => Sending::new(body, self, ends).boxed_unsync(),
            None => body,
        }
    }
}

/// A response that is being sent. It breaks off when its time is over, even if the caller has stopped
/// reading: then nobody asks for the next part of the body, so a task of its own drops it.
struct Sending {
    rest: Arc<Mutex<Rest>>,
    /// Wakes the connection.
    ends: Pin<Box<Sleep>>,
    end: AbortHandle,
}

enum Rest {
    /// What has not been sent, and what is held meanwhile.
    Open {
        body: ResponseBody,
        _held: Held,
    },
    Sent,
    BrokenOff,
}

impl Sending {
    fn new(body: ResponseBody, held: Held, ends: Instant) -> Self {
        let rest = Arc::new(Mutex::new(Rest::Open { body, _held: held }));
        let dropped = Arc::clone(&rest);
        let end = tokio::spawn(async move {
            sleep_until(ends).await;
            close(&dropped, Rest::BrokenOff);
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
        close(&self.rest, Rest::Sent);
        self.end.abort();
    }
}

fn lock(rest: &Mutex<Rest>) -> MutexGuard<'_, Rest> {
    rest.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops what is open. Not under the lock: a body may do anything when it is dropped.
fn close(rest: &Mutex<Rest>, how: Rest) {
    let mut rest = lock(rest);
    if let Rest::Open { .. } = &*rest {
        let open = mem::replace(&mut *rest, how);
        drop(rest);
        drop(open);
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ends.as_mut().poll(context).is_ready() {
            close(&self.rest, Rest::BrokenOff);
        }
        let frame = match &mut *lock(&self.rest) {
            Rest::Open { body, .. } => Pin::new(body).poll_frame(context),
            Rest::Sent => Poll::Ready(None),
            Rest::BrokenOff => Poll::Ready(Some(Err("the request outlived its lease".into()))),
        };
        if let Poll::Ready(None) = frame {
            close(&self.rest, Rest::Sent);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &*lock(&self.rest) {
            Rest::Open { body, .. } => body.is_end_stream(),
            Rest::Sent => true,
            Rest::BrokenOff => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &*lock(&self.rest) {
            Rest::Open { body, .. } => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}
