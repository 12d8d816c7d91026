//! Units that were fetched ahead: with `UPTO n`, up to `n` at once, which this process then hands out
//! itself.
//!
//! A key has at most one batch, and at most one request fetches it, so a process never holds more
//! than `n - 1` units of a key that it hasn't handed out. It drops them when all that was used is
//! back in Redis (`reset_after_ms`, counted from before it asked): by then the window is over, or the
//! bucket full. So a fixed window never admits more than its limit. For the other algorithms, `g`
//! processes may together admit up to `g * (n - 1)` more in any span than the limit has, as units
//! are used later than they were taken.

use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use redis_rl_tower::{Decision, Failure, Standing};
use tokio::time::timeout;

/// The batches of at most so many keys. Those that were used the longest ago are dropped, and their
/// units lost.
const MOST: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

pub(crate) struct Batches(Mutex<LruCache<String, Arc<tokio::sync::Mutex<Option<Batch>>>>>);

struct Batch {
    /// Not handed out yet.
    units: u64,
    /// Where the limit stood when Redis gave them, and when it was asked.
    standing: Standing,
    since: Instant,
}

impl Batches {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(LruCache::new(MOST)))
    }

    /// Takes a unit of the key's batch, and fetches one if there is none. A request waits for at most
    /// `patience` while another fetches.
    pub(crate) async fn take(
        &self,
        key: &str,
        patience: Duration,
        fetch: impl Future<Output = Result<Decision, Failure>>,
    ) -> Result<Decision, Failure> {
        let batch = self.of(key);
        let Ok(mut batch) = timeout(patience, batch.lock()).await else {
            return Err(Failure::NotJudged);
        };
        let since = Instant::now();
        if let Some(decision) = batch.as_mut().and_then(|batch| batch.take(since)) {
            return Ok(decision);
        }
        *batch = None;
        let decision = fetch.await?;
        // A refusal, which may be one that is remembered, brings no units.
        let fetched = decision.standings.as_deref().and_then(<[_]>::first);
        let Some(standing) = fetched.filter(|_| decision.allowed) else {
            return Ok(decision);
        };
        let fetched = batch.insert(Batch {
            units: standing.allowed,
            standing: standing.clone(),
            since,
        });
        Ok(fetched.take(since).unwrap_or(decision))
    }

    fn of(&self, key: &str) -> Arc<tokio::sync::Mutex<Option<Batch>>> {
        let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(batches.get_or_insert_ref(key, Arc::default))
    }
}

impl Batch {
    /// One unit, unless there is none, or what there is has to be dropped.
    fn take(&mut self, now: Instant) -> Option<Decision> {
        let elapsed = now.saturating_duration_since(self.since);
        let mut standing = self.standing.after(elapsed);
        // Redis' windows begin on whole milliseconds, so they may end within the last one.
        if standing.reset_after_ms <= 1 {
            return None;
        }
        self.units = self.units.checked_sub(1)?;
        if self.units > 0 {
            standing.remaining = standing.remaining.saturating_add(self.units);
            standing.retry_after_ms = Some(0);
        }
        Some(Decision::of_one(standing))
    }
}
