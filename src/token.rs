//! `RL.TOKEN`: a token bucket that refills evenly, at microsecond steps, without a fraction lost.
//!
//! The bucket is that of Turner (1986) and of RFC 2697, kept in whole numbers: the level is counted
//! in units of 1/`period_us` token, so that every microsecond adds exactly `refill` of them.
//!
//! ```text
//! level(now) = min(capacity × period_us, level(then) + (now − then) × refill)
//! admitted if level ≥ cost × period_us, which then leave
//! ```
//!
//! It is also the leaky bucket as a meter, and GCRA (ITU-T I.371): the burst is `capacity`, the
//! emission interval `period / refill`.
//!
//! ```
//! use redis_rl::clock::Timestamp;
//! use redis_rl::policy::{Span, TokenPolicy, Units};
//! use redis_rl::state::Stored;
//! use redis_rl::token::decide;
//!
//! // 10 tokens at most, 4 per second; 3 of them are left at some instant.
//! let units = |n| Units::new(n).unwrap();
//! let policy = TokenPolicy::new(units(10), units(4), Span::from_ms(1_000).unwrap()).unwrap();
//! let then = 1_779_331_200_000_000;
//! let text = b"T1:3000000:1000000:1779331200000000";
//! let stored = Stored { text, expire_at_ms: Some(then / 1_000 + 60_000) };
//! // A quarter of a second later there are 4, and all of them are taken. The next 4 take a
//! // second to flow in, and the whole bucket 2.5.
//! let now = Timestamp::from_us(then + 250_000).unwrap();
//! let outcome = decide(&policy, Some(stored), now, units(4)).unwrap();
//! assert_eq!(outcome.decision.reply(), [1, 10, 0, 1_000, 2_500]);
//! ```

use core::num::NonZeroU64;

use crate::clock::{Elapsed, Timestamp};
use crate::decision::{Decision, Usage};
use crate::error::InvalidState;
use crate::outcome::Outcome;
use crate::policy::{Span, TokenPolicy, Units};
use crate::state::{self, Bucket, Lifetime, Stored, Write};
use crate::wide::{div_ceil, div_floor, product};

/// A bucket at one instant.
#[derive(Clone, Copy, Debug)]
struct Fill {
    policy: TokenPolicy,
    now: Timestamp,
    /// The instant that `level` holds for: now, or up to a millisecond ahead of a jittering clock.
    at_us: u64,
    /// 0 … `full`, in units of 1/period token.
    level: u128,
    /// The capacity in the same units: below 2^53 × 2^52.
    full: u128,
}

impl Fill {
    fn at(policy: TokenPolicy, stored: Option<Bucket>, now: Timestamp) -> Self {
        let full = product(policy.capacity().get(), policy.period().as_us());
        let Some(bucket) = stored else {
            return Self {
                policy,
                now,
                at_us: now.as_us(),
                level: full,
                full,
            };
        };
        let (at_us, elapsed_us) = match Elapsed::between(bucket.time.as_us(), now) {
            Elapsed::At(at_us) => (at_us, at_us.saturating_sub(bucket.time.as_us())),
            Elapsed::SteppedBack => (now.as_us(), 0),
        };
        // Below 2^54 µs × 2^53.
        let refilled = product(elapsed_us, policy.refill().get());
        let level = convert(bucket.level, bucket.period, policy.period()).saturating_add(refilled);
        Self {
            policy,
            now,
            at_us,
            level: level.min(full),
            full,
        }
    }

    /// The same bucket without `cost` tokens, which it holds.
    fn take(mut self, cost: Units) -> Self {
        self.level = self.level.saturating_sub(self.units(cost));
        self
    }

    fn units(&self, cost: Units) -> u128 {
        product(cost.get(), self.policy.period().as_us())
    }

    /// When the level will have reached `goal`, at most the capacity.
    fn ms_until(&self, goal: u128) -> u64 {
        let missing = goal.saturating_sub(self.level);
        // A policy fills within 100 years: 3.2 × 10^15.
        let wait_us = div_ceil(missing, self.policy.refill().nonzero());
        self.now.ms_until(self.at_us.saturating_add(wait_us))
    }

    /// The key may go once the bucket is full again. The expiry is set with as much slack as a
    /// key may have, so that a bucket in use rarely needs a new one.
    fn lifetime(&self) -> Lifetime {
        let now_ms = self.now.as_ms();
        // Twice the time to fill from empty: 2^53 × 2^43 before the division, below 2 × 2^42 after.
        let period_ms = self.policy.period().as_ms();
        let double = product(self.policy.capacity().get(), period_ms.saturating_mul(2));
        let double_fill_ms = div_floor(double, self.policy.refill().nonzero());
        let most_ms = now_ms.saturating_add(double_fill_ms).saturating_add(1_000);
        Lifetime {
            least_ms: now_ms.saturating_add(self.reset_after_ms()),
            most_ms,
            fresh_ms: most_ms,
        }
    }
}

impl Usage for Fill {
    fn limit(&self) -> Units {
        self.policy.capacity()
    }

    fn remaining(&self) -> u64 {
        // At most the capacity.
        div_floor(self.level, self.policy.period().nonzero_us())
    }

    fn wait_ms(&self, cost: Units) -> u64 {
        self.ms_until(self.units(cost))
    }

    fn reset_after_ms(&self) -> u64 {
        if self.level == self.full {
            return 0;
        }
        self.ms_until(self.full)
    }
}

/// `level` in units of 1/`to` token instead of 1/`from`, rounded down.
///
/// Whole tokens and the fraction of one are converted apart, as their product needs up to 157
/// bits: below 2^53 × 2^52 for the tokens, below 2^52 × 2^52 for the fraction.
fn convert(level: u128, from: Span, to: Span) -> u128 {
    if from == to {
        return level;
    }
    let from: NonZeroU64 = from.nonzero_us();
    let tokens = div_floor(level, from);
    let fraction = level
        .saturating_sub(product(tokens, from.get()))
        .saturating_mul(u128::from(to.as_us()));
    product(tokens, to.as_us()).saturating_add(u128::from(div_floor(fraction, from)))
}

/// Decides one call.
///
/// # Errors
///
/// [`InvalidState`] if the key holds no bucket or has no expiry.
#[inline]
pub fn decide(
    policy: &TokenPolicy,
    stored: Option<Stored<'_>>,
    now: Timestamp,
    cost: Units,
) -> Result<Outcome<Bucket>, InvalidState> {
    let bucket: Option<Bucket> = state::read(stored)?;
    let fill = Fill::at(*policy, bucket, now);
    // Then the instant that is judged is before the stored one.
    let stepped_back = bucket.is_some_and(|bucket| fill.at_us < bucket.time.as_us());
    if fill.admits(cost) {
        let fill = fill.take(cost);
        let time = Timestamp::from_us(fill.at_us).unwrap_or(now);
        let bucket = Bucket {
            level: fill.level,
            period: policy.period(),
            time,
        };
        let write = Write {
            state: bucket,
            expire_at_ms: fill
                .lifetime()
                .renew(stored.and_then(|stored| stored.expire_at_ms)),
            added: None,
        };
        return Ok(Outcome::admitted(&fill, cost, write, stepped_back));
    }
    let mut outcome = Outcome::refused(&fill, cost);
    match bucket {
        Some(bucket) if stepped_back && cost <= policy.capacity() => {
            let bucket = Bucket {
                time: now,
                ..bucket
            };
            outcome.move_back(bucket);
        }
        _ => {}
    }
    Ok(outcome)
}

/// Tells what [`decide`] would, with nothing taken.
///
/// # Errors
///
/// As those of [`decide`].
pub fn peek(
    policy: &TokenPolicy,
    stored: Option<Stored<'_>>,
    now: Timestamp,
    cost: Units,
) -> Result<Decision, InvalidState> {
    let bucket: Option<Bucket> = state::read(stored)?;
    Ok(Fill::at(*policy, bucket, now).preview(cost))
}
