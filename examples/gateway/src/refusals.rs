//! Refusals that still hold: until a stated wait is over, the same request would be refused again,
//! so it is, without asking Redis.
//!
//! Waits are exact. All that can end one sooner is a refund, a raised limit, a deleted key or a clock
//! of Redis that is set forward. Time is counted from before Redis was asked, so a refusal ends here
//! no later than there.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use redis_rl_tower::Decision;

/// At most so many are remembered: of a few hundred bytes each. Those that were asked for the longest
/// ago are dropped, which costs a command each.
const MOST: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

pub(crate) struct Refusals(Mutex<LruCache<Asked, Refusal>>);

/// What was refused: keys, and what it would have taken of each. A refusal that was for a cost of 5
/// says nothing of a cost of 1. The keys' policies are those of the rules in force, with which this
/// memory begins and ends.
pub(crate) type Asked = Vec<(String, u64)>;

struct Refusal {
    decision: Decision,
    since: Instant,
    wait: Duration,
}

impl Refusals {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(LruCache::new(MOST)))
    }

    /// The refusal, if it still holds.
    pub(crate) fn recall(&self, asked: &Asked, now: Instant) -> Option<Decision> {
        let mut refusals = self.lock();
        let refusal = refusals.get(asked)?;
        let elapsed = now.saturating_duration_since(refusal.since);
        if elapsed < refusal.wait {
            return Some(refusal.decision.after(elapsed));
        }
        refusals.pop(asked);
        None
    }

    /// Remembers a refusal, from before Redis was asked until `wait` is over.
    pub(crate) fn remember(
        &self,
        asked: Asked,
        decision: Decision,
        since: Instant,
        wait: Duration,
    ) {
        let refusal = Refusal {
            decision,
            since,
            wait,
        };
        self.lock().put(asked, refusal);
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Asked, Refusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
