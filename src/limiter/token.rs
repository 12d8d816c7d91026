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
//! use redis_rl::limiter::Limiter;
//! use redis_rl::limiter::text::{Stored, TextLimiter};
//! use redis_rl::limiter::token::TokenBucket;
//! use redis_rl::policy::{Charge, Span, TokenPolicy, Units};
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
//! let mut bucket = TokenBucket::at(policy, Some(stored), now).unwrap();
//! assert_eq!(bucket.decide(Charge::Cost(units(4))).unwrap().reply(), [1, 10, 0, 1_000, 2_500]);
//! ```

use core::num::{NonZeroU64, NonZeroU128};

use super::text::{self, Change, State, Stored, Text, TextLimiter};
use super::{Lifetime, Limiter};
use crate::clock::{Judged, Timestamp};
use crate::decimal;
use crate::error::InvalidState;
use crate::policy::{MAX_SPAN_US, MAX_UNITS, Span, TokenPolicy, Units};
use crate::wide::{div_ceil, div_floor, product};

/// A bucket at one instant.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    policy: TokenPolicy,
    now: Timestamp,
    /// The instant that `level` holds for, and whether it is before the stored one.
    judged: Judged,
    /// In units of 1/period token: at most `full`, below 0 for a bucket that owes.
    level: i128,
    /// The capacity in the same units: below 2^53 × 2^52.
    full: i128,
    /// What is stored, full if nothing is, and until when.
    stored: Level,
    expire_at_ms: Option<u64>,
    /// Whether units were taken or given back.
    changed: bool,
}

impl TokenBucket {
    fn units(&self, tokens: Units) -> i128 {
        signed(product(tokens.get(), self.policy.period().as_us()))
    }

    /// When the level will have reached `goal`, at most the capacity.
    #[expect(clippy::inline_always, reason = "some 40 instructions of every call")]
    #[inline(always)]
    fn ms_until(&self, goal: i128) -> u64 {
        let missing = u128::try_from(goal.saturating_sub(self.level)).unwrap_or(0);
        // Full within 100 years, also a bucket that owes: 3.2 × 10^15.
        let wait_us = div_ceil(missing, self.policy.refill().nonzero());
        self.now
            .ms_until(self.judged.at.as_us().saturating_add(wait_us))
    }

    /// The key may go once the bucket is full again. The expiry is set with as much slack as a
    /// key may have, so that a bucket in use rarely needs a new one.
    fn lifetime(&self) -> Lifetime {
        let now_ms = self.now.as_ms();
        // Twice the time to fill from empty: 2^53 × 2^43 before the division, below 2 × 2^42 after.
        let period_ms = self.policy.period().as_ms();
        let double = product(self.policy.capacity().get(), period_ms.saturating_mul(2));
        let double_fill_ms = div_floor(double, self.policy.refill().nonzero());
        let least_ms = now_ms.saturating_add(self.reset_after_ms());
        // A bucket that owes may take longer than twice the time to fill.
        let most_ms = now_ms
            .saturating_add(double_fill_ms)
            .saturating_add(1_000)
            .max(least_ms);
        Lifetime {
            least_ms,
            most_ms,
            fresh_ms: most_ms,
        }
    }
}

impl TextLimiter for TokenBucket {
    type Policy = TokenPolicy;
    type State = Level;

    #[expect(
        clippy::inline_always,
        reason = "a limiter is too large to be moved about"
    )]
    #[inline(always)]
    fn at(
        policy: TokenPolicy,
        stored: Option<Stored<'_>>,
        now: Timestamp,
    ) -> Result<Self, InvalidState> {
        let full = signed(product(policy.capacity().get(), policy.period().as_us()));
        let mut bucket = Self {
            policy,
            now,
            judged: Judged::now(now),
            level: full,
            full,
            stored: Level {
                level: full,
                period: policy.period(),
                time: now,
            },
            expire_at_ms: None,
            changed: false,
        };
        if let Some(stored) = stored {
            let then: Level = stored.read()?;
            let judged = Judged::between(then.time.as_us(), now);
            let elapsed_us = judged.at.as_us().saturating_sub(then.time.as_us());
            // Below 2^54 µs × 2^53.
            let refilled = signed(product(elapsed_us, policy.refill().get()));
            let level = if then.level < 0 {
                convert_debt(then.level, then.period, policy.period()).max(least(&policy, full))
            } else {
                signed(convert(
                    then.level.unsigned_abs(),
                    then.period,
                    policy.period(),
                ))
            };
            bucket.judged = judged;
            bucket.level = level.saturating_add(refilled).min(full);
            bucket.stored = then;
            bucket.expire_at_ms = stored.expire_at_ms;
        }
        Ok(bucket)
    }
}

impl Limiter for TokenBucket {
    type Change = Change<Level>;

    fn limit(&self) -> Units {
        self.policy.capacity()
    }

    fn remaining(&self) -> u64 {
        // At most the capacity, and 0 where the bucket owes.
        let level = u128::try_from(self.level).unwrap_or(0);
        div_floor(level, self.policy.period().nonzero_us())
    }

    fn wait_ms(&mut self, cost: Units) -> Result<u64, InvalidState> {
        Ok(self.ms_until(self.units(cost)))
    }

    #[expect(clippy::inline_always, reason = "some 40 instructions of every call")]
    #[inline(always)]
    fn reset_after_ms(&self) -> u64 {
        if self.level == self.full {
            return 0;
        }
        self.ms_until(self.full)
    }

    fn stepped_back(&self) -> bool {
        self.judged.stepped_back
    }

    fn is_changed(&self) -> bool {
        self.changed
    }

    /// A bucket owes at most what it gets back in 100 years, from the bottom up to full.
    fn charge(&mut self, cost: Units) {
        self.level = self.level.saturating_sub(self.units(cost));
        // Above 0 the bound can't matter, and costs a product.
        if self.level < 0 {
            self.level = self.level.max(least(&self.policy, self.full));
        }
        self.changed = true;
    }

    fn refund(&mut self, units: Units) -> Result<(), InvalidState> {
        if self.level < self.full {
            let level = self.level.saturating_add(self.units(units));
            self.level = level.min(self.full);
            self.changed = true;
        }
        Ok(())
    }

    #[expect(clippy::inline_always, reason = "some 40 instructions of every call")]
    #[inline(always)]
    fn change(&self) -> Change<Level> {
        let time = self.judged.at;
        if !self.changed {
            return Change::Set {
                state: Level {
                    time,
                    ..self.stored
                },
                expire_at_ms: None,
                increment: 0,
            };
        }
        if self.level == self.full {
            return Change::Delete;
        }
        Change::Set {
            state: Level {
                level: self.level,
                period: self.policy.period(),
                time,
            },
            expire_at_ms: self.lifetime().renew(self.expire_at_ms),
            increment: 0,
        }
    }
}

/// The lowest level, from which a bucket is full again within 100 years. At most 0, as every policy
/// fills within that time, and above −2^105.
fn least(policy: &TokenPolicy, full: i128) -> i128 {
    full.saturating_sub(signed(product(MAX_SPAN_US, policy.refill().get())))
}

/// All that is computed here is below 2^127.
fn signed(number: u128) -> i128 {
    i128::try_from(number).unwrap_or(i128::MAX)
}

/// `level` in units of 1/`to` token instead of 1/`from`, rounded down.
///
/// Whole tokens and the fraction of one are converted apart, as their product needs up to 157
/// bits: below 2^53 × 2^52 for the tokens, below 2^52 × 2^52 for the fraction.
#[inline]
fn convert(level: u128, from: Span, to: Span) -> u128 {
    if from == to {
        return level;
    }
    convert_to_other(level, from, to)
}

fn convert_to_other(level: u128, from: Span, to: Span) -> u128 {
    let from: NonZeroU64 = from.nonzero_us();
    let tokens = div_floor(level, from);
    let fraction = level
        .saturating_sub(product(tokens, from.get()))
        .saturating_mul(u128::from(to.as_us()));
    product(tokens, to.as_us()).saturating_add(u128::from(div_floor(fraction, from)))
}

/// The same of a level below 0, rounded down, that is, away from 0. Where that does not fit, it is
/// below every bound.
fn convert_debt(level: i128, from: Span, to: Span) -> i128 {
    if from == to {
        return level;
    }
    let (from, to) = (NonZeroU128::from(from.nonzero_us()), u128::from(to.as_us()));
    let owed = level.unsigned_abs();
    let (tokens, fraction) = (owed / from, owed % from);
    // Below 2^52 × 2^52.
    let fraction = fraction.saturating_mul(to).div_ceil(from.get());
    let converted = tokens
        .checked_mul(to)
        .and_then(|whole| whole.checked_add(fraction));
    converted.map_or(i128::MIN, |owed| signed(owed).saturating_neg())
}

/// What a bucket held at some instant, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// What the bucket held, in units of 1/`period` (in µs) token; below 0 if it owed.
    pub level: i128,
    /// The unit of `level`.
    pub period: Span,
    /// When it held that much.
    pub time: Timestamp,
}

/// The lowest level that is stored: what the largest refill gives back in 100 years.
const LEAST: i128 = -28_405_103_569_751_189_217_600_000_000_000;

impl Level {
    const TAG: &'static [u8] = b"T1:";
}

impl State for Level {
    #[expect(clippy::inline_always, reason = "some 20 instructions of every call")]
    #[inline(always)]
    fn parse(text: &[u8]) -> Option<Self> {
        let mut rest = text::body(text, Self::TAG)?;
        let level = decimal::take_signed(&mut rest)?;
        let period = Span::from_us(decimal::take(&mut rest)?)?;
        let time = Timestamp::from_us(decimal::sixteen_digits(rest)?)?;
        // Of the largest bucket: 2^53 × 2^52.
        let full = signed(product(MAX_UNITS, period.as_us()));
        (LEAST..full).contains(&level).then_some(Self {
            level,
            period,
            time,
        })
    }

    #[expect(clippy::inline_always, reason = "some 20 instructions of every call")]
    #[inline(always)]
    fn encode(self) -> Text {
        let mut text = text::tagged(Self::TAG, self.level);
        text::push_field(&mut text, self.period.as_us());
        text::push_field(&mut text, self.time.as_us());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::MAX_SPAN_MS;

    #[test]
    fn a_level_reads_as_it_is_written() {
        let level = Level {
            level: 5_940_000_000,
            period: Span::from_ms(60_000).unwrap(),
            time: Timestamp::from_us(1_779_331_200_000_001).unwrap(),
        };
        assert_eq!(
            level.encode().as_slice(),
            b"T1:5940000000:60000000:1779331200000001"
        );
        assert_eq!(Level::decode(&level.encode()), Ok(level));
    }

    #[test]
    fn the_longest_level_fits() {
        let period = Span::from_ms(MAX_SPAN_MS).unwrap();
        let level = Level {
            level: signed(product(MAX_UNITS, period.as_us())) - 1,
            period,
            time: Timestamp::MAX,
        };
        assert_eq!(Level::decode(&level.encode()), Ok(level));
    }

    #[test]
    fn damaged_text_is_no_level() {
        for text in [
            "",
            "T1",
            "T1:",
            "5",
            "T1:1:1000",
            "T1:1:1000:1779331200000001:",
            "T1:1:1000:1779331200000001:0",
            "T1:1:1000:17793312000000010",
            "T1:1:1000:177933120000000",
            "T1:1:1000:0779331200000001",
            "T1:01:1000:1779331200000001",
            "T1::1000:1779331200000001",
            "T1:-0:1000:1779331200000001",
            "T1:1:1001:1779331200000001",
            "T1:1:0:1779331200000001",
            "T1:1:3153600000001000:1779331200000001",
            "T1:9007199254740991000:1000:1779331200000001",
            "T2:1:1000:1779331200000001",
            "S1:1:1000:1779331200000001",
            " T1:1:1000:1779331200000001",
            "T1:1:1000:1779331200000001\n",
        ] {
            assert_eq!(
                Level::decode(text.as_bytes()),
                Err(InvalidState),
                "{text:?}"
            );
        }
        assert!(Level::decode(b"T1:9007199254740990999:1000:1779331200000001").is_ok());
    }

    fn ms(ms: u64) -> Span {
        Span::from_ms(ms).unwrap()
    }

    #[test]
    fn a_debt_is_a_canonical_number_below_zero() {
        for number in ["-0", "-01", "--1", "-", "- 1", "+1", "-1-", "-+1"] {
            let text = format!("T1:{number}:1000:1779331200000001");
            assert_eq!(
                Level::decode(text.as_bytes()),
                Err(InvalidState),
                "{text:?}"
            );
        }
        for level in [-1, -9, -10, -1_000, i128::from(i64::MIN) - 1, LEAST] {
            let level = Level {
                level,
                period: ms(1),
                time: Timestamp::MIN,
            };
            assert_eq!(Level::decode(&level.encode()), Ok(level));
        }
    }

    #[test]
    fn the_lowest_level_is_what_the_largest_refill_gives_back_in_a_hundred_years() {
        assert_eq!(LEAST, -signed(product(MAX_SPAN_US, MAX_UNITS)));
        for period in [ms(1), ms(MAX_SPAN_MS)] {
            let text = |level: i128| {
                let time = Timestamp::MAX;
                Level {
                    level,
                    period,
                    time,
                }
                .encode()
            };
            assert!(Level::decode(&text(LEAST)).is_ok());
            assert_eq!(Level::decode(&text(LEAST - 1)), Err(InvalidState));
        }
    }

    #[test]
    fn a_debt_is_converted_towards_minus_infinity() {
        for (level, from, to, converted) in [
            (-1, 1, 1, -1),
            (-1, 1, 2, -2),
            (-1, 2, 1, -1),
            (-2, 2, 1, -1),
            (-3, 2, 1, -2),
            (-1, MAX_SPAN_MS, 1, -1),
            (-3_153_600_000_000_001, MAX_SPAN_MS, 1, -1_001),
        ] {
            let told = convert_debt(level, ms(from), ms(to));
            assert_eq!(told, converted, "{level} of {from} to {to}");
        }
        for from in 1..=12 {
            for to in 1..=12 {
                for level in -50..0_i128 {
                    let floor = (level * i128::from(to)).div_euclid(i128::from(from));
                    assert_eq!(convert_debt(level, ms(from), ms(to)), floor);
                }
            }
        }
    }

    /// A debt of the shortest period may be 3.2 × 10^12 times as large in the longest, which no
    /// integer holds: the bound of a debt cuts it off.
    #[test]
    fn a_debt_that_does_not_fit_is_below_every_bound() {
        let longest = ms(MAX_SPAN_MS);
        assert_eq!(convert_debt(LEAST, ms(1), longest), i128::MIN);
        assert_eq!(convert_debt(LEAST, longest, longest), LEAST);
        let text = format!("T1:{LEAST}:1000:1779331200000000");
        let stored = Stored {
            text: text.as_bytes(),
            expire_at_ms: Some(u64::MAX),
        };
        let now = Timestamp::from_us(1_779_331_200_000_000).unwrap();
        let policy = TokenPolicy::new(Units::ONE, Units::ONE, longest).unwrap();
        let bucket = TokenBucket::at(policy, Some(stored), now).unwrap();
        // This one takes 100 years to fill, so it can't owe.
        assert_eq!((bucket.level, bucket.reset_after_ms()), (0, MAX_SPAN_MS));
    }
}
