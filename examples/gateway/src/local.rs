//! The limiter of this process alone, for as long as Redis can't judge and the route fails open.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::clock::Clock;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use redis_rl_tower::{Decision, Policy};

/// Longest time in which a local bucket fills: governor counts nanoseconds in 64 bits.
const LONGEST_NS: u128 = 1 << 61;

/// With so many buckets, those that are full again are forgotten.
const MANY: usize = 10_000;

/// This process' share of a limit, by key. A reload of the rules empties it.
pub(crate) enum Local {
    Rate(Buckets),
    AtOnce(Places),
}

impl Local {
    /// The share of one of `processes`, at least one unit. Where a single request costs more than
    /// the share, a bucket is as large as that, and fills no faster.
    pub(crate) fn share(policy: &Policy, cost: u64, processes: NonZeroU32) -> Self {
        match policy {
            Policy::Lease { .. } => Self::AtOnce(Places::share(policy, processes)),
            _ => Self::Rate(Buckets::share(policy, cost, processes)),
        }
    }

    /// A decision, and what is taken until it is dropped.
    pub(crate) fn ask(&self, key: &str, cost: u64) -> (Decision, Option<Place>) {
        match self {
            Self::Rate(buckets) => (buckets.ask(key, cost), None),
            Self::AtOnce(places) => match places.take(key) {
                Some(place) => (Decision::alone(true, Some(0)), Some(place)),
                None => (Decision::alone(false, Some(places.ttl_ms)), None),
            },
        }
    }
}

/// Of the requests that are handled at once, those that this process admitted alone.
pub(crate) struct Places {
    most: u64,
    /// By then one is free again.
    ttl_ms: u64,
    taken: Arc<Mutex<HashMap<String, u64>>>,
}

impl Places {
    fn share(policy: &Policy, processes: NonZeroU32) -> Self {
        let share = policy.limit().checked_div(u64::from(processes.get()));
        Self {
            most: share.unwrap_or(0).max(1),
            ttl_ms: policy.window_ms(),
            taken: Arc::default(),
        }
    }

    fn take(&self, key: &str) -> Option<Place> {
        let mut taken = lock(&self.taken);
        let count = taken.get(key).copied().unwrap_or(0);
        if count >= self.most {
            return None;
        }
        taken.insert(key.to_owned(), count.saturating_add(1));
        Some(Place {
            taken: Arc::clone(&self.taken),
            key: key.to_owned(),
        })
    }
}

/// One that is taken. Dropped, it is free.
pub(crate) struct Place {
    taken: Arc<Mutex<HashMap<String, u64>>>,
    key: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        match taken.get_mut(&self.key) {
            Some(count @ 2..) => *count = count.saturating_sub(1),
            _ => drop(taken.remove(&self.key)),
        }
    }
}

fn lock(taken: &Mutex<HashMap<String, u64>>) -> MutexGuard<'_, HashMap<String, u64>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A token bucket per key. It starts full.
pub(crate) struct Buckets {
    by_key: DefaultKeyedRateLimiter<String>,
    /// How many buckets there have to be before the full ones are looked for.
    many: AtomicUsize,
    limit: u64,
}

impl Buckets {
    fn share(policy: &Policy, cost: u64, processes: NonZeroU32) -> Self {
        let limit = policy.limit();
        let share = limit.checked_div(u64::from(processes.get())).unwrap_or(0);
        let burst = u32::try_from(share.max(cost)).unwrap_or(u32::MAX);
        let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
        let (units, per_ms) = policy.rate();
        let unit_ns = u128::from(per_ms)
            .saturating_mul(1_000_000)
            .saturating_mul(u128::from(processes.get()))
            .checked_div(u128::from(units))
            .unwrap_or(LONGEST_NS)
            .clamp(1, LONGEST_NS.div_ceil(u128::from(burst.get())));
        let unit = Duration::from_nanos(u64::try_from(unit_ns).unwrap_or(u64::MAX));
        let quota = Quota::with_period(unit)
            .unwrap_or(Quota::per_second(NonZeroU32::MIN))
            .allow_burst(burst);
        Self {
            by_key: RateLimiter::hashmap(quota),
            many: AtomicUsize::new(MANY),
            limit,
        }
    }

    fn ask(&self, key: &str, cost: u64) -> Decision {
        let never = Decision::alone(false, None);
        let Some(units) = u32::try_from(cost).ok().and_then(NonZeroU32::new) else {
            return never;
        };
        if cost > self.limit {
            return never;
        }
        self.forget_full();
        match self.by_key.check_key_n(&key.to_owned(), units) {
            Ok(Ok(())) => Decision::alone(true, Some(0)),
            Ok(Err(refused)) => {
                let wait = refused.wait_time_from(self.by_key.clock().now());
                let retry_after_ms = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).ok();
                Decision::alone(false, retry_after_ms)
            }
            Err(_) => never,
        }
    }

    /// A limit per address has as many buckets as there are addresses.
    fn forget_full(&self) {
        if self.by_key.len() >= self.many.load(Ordering::Relaxed) {
            self.by_key.retain_recent();
            // Not again before as many have come: looking at each takes time.
            let many = self.by_key.len().saturating_mul(2).max(MANY);
            self.many.store(many, Ordering::Relaxed);
        }
    }
}
