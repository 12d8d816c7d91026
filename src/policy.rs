//! Validated policies: what a caller may ask for, with every range as a named constant.
//!
//! A policy that exists is in range, so no algorithm checks again, and no zero can reach a
//! division. The ranges also bound every product that the algorithms form; each says so where it
//! does.

use core::num::NonZeroU64;

use crate::wide::product;

/// Largest limit, capacity, refill or cost: 2^53 − 1, exact in every client language.
pub const MAX_UNITS: u64 = 9_007_199_254_740_991;
/// Longest window or period, and longest time in which a bucket may fill: 100 years, in ms.
pub const MAX_SPAN_MS: u64 = 3_153_600_000_000;
/// The same in µs.
pub const MAX_SPAN_US: u64 = MAX_SPAN_MS * 1_000;
/// Largest limit of an exact sliding window, whose log holds one entry per unit.
pub const MAX_LOG_LIMIT: u64 = 10_000;
/// Largest number of leases at once, each of which is a member of a set.
pub const MAX_LEASES: u64 = 10_000;
/// Longest id of a lease, in bytes.
pub const MAX_ID: usize = 128;
/// Most limits of one call.
pub const MAX_LIMITS: usize = 32;

/// A number of units (requests, bytes, whatever is limited): 1 … [`MAX_UNITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Units(NonZeroU64);

impl Units {
    /// One unit: what a call costs unless it says otherwise.
    pub const ONE: Self = Self(NonZeroU64::MIN);

    /// `n` units, if `n` is in 1 … [`MAX_UNITS`].
    #[must_use]
    pub const fn new(n: u64) -> Option<Self> {
        match NonZeroU64::new(n) {
            Some(n) if n.get() <= MAX_UNITS => Some(Self(n)),
            _ => None,
        }
    }

    /// The number, which is never 0.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The number as a divisor.
    #[must_use]
    pub const fn nonzero(self) -> NonZeroU64 {
        self.0
    }
}

/// The length of a window or a period: 1 … [`MAX_SPAN_MS`] ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(NonZeroU64);

impl Span {
    /// A span of `ms` milliseconds, if `ms` is in 1 … [`MAX_SPAN_MS`].
    #[must_use]
    pub const fn from_ms(ms: u64) -> Option<Self> {
        match NonZeroU64::new(ms) {
            Some(ms) if ms.get() <= MAX_SPAN_MS => Some(Self(ms)),
            _ => None,
        }
    }

    /// A span of `us` microseconds, if that is a whole number of ms in range.
    #[must_use]
    pub const fn from_us(us: u64) -> Option<Self> {
        if us % 1_000 != 0 {
            return None;
        }
        Self::from_ms(us / 1_000)
    }

    /// Milliseconds.
    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0.get()
    }

    /// Milliseconds, as a divisor.
    #[must_use]
    pub const fn nonzero_ms(self) -> NonZeroU64 {
        self.0
    }

    /// Microseconds, as a divisor: at most 3.2 × 10^15.
    #[must_use]
    pub const fn nonzero_us(self) -> NonZeroU64 {
        self.0.saturating_mul(MS)
    }

    /// Microseconds: at most 3.2 × 10^15.
    #[must_use]
    pub const fn as_us(self) -> u64 {
        self.nonzero_us().get()
    }
}

/// One millisecond in µs.
const MS: NonZeroU64 = match NonZeroU64::new(1_000) {
    Some(ms) => ms,
    None => NonZeroU64::MIN,
};

/// At most `limit` units in each window; a window starts with the first call admitted in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedPolicy {
    /// Units admitted in one window.
    pub limit: Units,
    /// How long a window that this call opens will be.
    pub window: Span,
}

/// A bucket of `capacity` tokens into which `refill` tokens flow, evenly, in every `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenPolicy {
    capacity: Units,
    refill: Units,
    period: Span,
}

impl TokenPolicy {
    /// The policy, if an empty bucket fills within [`MAX_SPAN_MS`].
    #[must_use]
    pub fn new(capacity: Units, refill: Units, period: Span) -> Option<Self> {
        // Both products are below 2^53 × 2^42 = 2^95.
        let fill = product(capacity.get(), period.as_ms());
        let longest = product(refill.get(), MAX_SPAN_MS);
        (fill <= longest).then_some(Self {
            capacity,
            refill,
            period,
        })
    }

    /// The most tokens that the bucket holds.
    #[must_use]
    pub const fn capacity(self) -> Units {
        self.capacity
    }

    /// Tokens that flow in per [`Self::period`].
    #[must_use]
    pub const fn refill(self) -> Units {
        self.refill
    }

    /// The time in which [`Self::refill`] tokens flow in.
    #[must_use]
    pub const fn period(self) -> Span {
        self.period
    }
}

/// At most `limit` units in a window that slides with the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidePolicy {
    /// Units admitted in one window.
    pub limit: Units,
    /// The length of the window.
    pub window: Span,
}

/// A [`SlidePolicy`] whose limit, 1 … [`MAX_LOG_LIMIT`], a log of single units can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactPolicy(SlidePolicy);

impl ExactPolicy {
    /// The policy, if its limit is at most [`MAX_LOG_LIMIT`].
    #[must_use]
    pub const fn new(policy: SlidePolicy) -> Option<Self> {
        if policy.limit.get() > MAX_LOG_LIMIT {
            return None;
        }
        Some(Self(policy))
    }

    /// Units admitted in one window.
    #[must_use]
    pub const fn limit(self) -> Units {
        self.0.limit
    }

    /// The length of the window.
    #[must_use]
    pub const fn window(self) -> Span {
        self.0.window
    }
}

/// At most `limit` leases at once, each of which ends by itself after `ttl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasePolicy {
    limit: Units,
    ttl: Span,
}

impl LeasePolicy {
    /// The policy, if its limit is at most [`MAX_LEASES`].
    #[must_use]
    pub const fn new(limit: Units, ttl: Span) -> Option<Self> {
        if limit.get() > MAX_LEASES {
            return None;
        }
        Some(Self { limit, ttl })
    }

    /// Leases that may be live at once.
    #[must_use]
    pub const fn limit(self) -> Units {
        self.limit
    }

    /// How long a lease lasts from the call that takes or renews it.
    #[must_use]
    pub const fn ttl(self) -> Span {
        self.ttl
    }
}

/// The policy of one limiter of units, as a call names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A fixed window.
    Fixed(FixedPolicy),
    /// A token bucket.
    Token(TokenPolicy),
    /// A sliding window of two counters.
    Slide(SlidePolicy),
    /// A sliding window that logs every unit, for the keyword `EXACT`.
    Exact(ExactPolicy),
}

/// What a call takes or gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// So many units, all or nothing.
    Cost(Units),
    /// So many units, whether or not they fit.
    Force(Units),
    /// As many units as there are, at most so many.
    UpTo(Units),
    /// Gives so many units back, at most those that are counted.
    Refund(Units),
}

impl Charge {
    /// Whether a call of this kind can be refused. What is charged in any case, or given back,
    /// can't.
    #[must_use]
    pub const fn can_be_refused(self) -> bool {
        matches!(self, Self::Cost(_) | Self::UpTo(_))
    }
}

/// What a call does with the lease of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Takes one, or renews the one that is live.
    Take,
    /// Renews the one that is live.
    Renew,
    /// Ends the one that is live.
    Release,
}

impl Hold {
    /// Whether a call of this kind can be refused. A release that finds nothing is no refusal.
    #[must_use]
    pub const fn can_be_refused(self) -> bool {
        matches!(self, Self::Take | Self::Renew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_spans_hold_their_ranges() {
        assert_eq!(Units::new(0), None);
        assert_eq!(Units::new(1), Some(Units::ONE));
        assert_eq!(Units::new(MAX_UNITS).map(Units::get), Some(MAX_UNITS));
        assert_eq!(Units::new(MAX_UNITS + 1), None);
        assert_eq!(Span::from_ms(0), None);
        assert_eq!(
            Span::from_ms(MAX_SPAN_MS).map(Span::as_us),
            Some(MAX_SPAN_MS * 1_000)
        );
        assert_eq!(Span::from_ms(MAX_SPAN_MS + 1), None);
        assert_eq!(Span::from_us(1_500), None);
        assert_eq!(Span::from_us(2_000), Span::from_ms(2));
    }

    #[test]
    fn a_bucket_must_fill_within_a_hundred_years() {
        let fits = |capacity, refill, period_ms| {
            TokenPolicy::new(
                Units::new(capacity).unwrap(),
                Units::new(refill).unwrap(),
                Span::from_ms(period_ms).unwrap(),
            )
            .is_some()
        };
        assert!(fits(1, 1, MAX_SPAN_MS));
        assert!(!fits(2, 1, MAX_SPAN_MS));
        assert!(fits(MAX_UNITS, MAX_UNITS, MAX_SPAN_MS));
        assert!(!fits(MAX_UNITS, MAX_UNITS - 1, MAX_SPAN_MS));
        // 3 × period / 2 is just over the bound, by half a millisecond.
        assert!(!fits(3, 2, 2_102_400_000_001));
        assert!(fits(3, 2, 2_102_400_000_000));
    }

    #[test]
    fn an_exact_window_holds_ten_thousand() {
        let policy = |limit| {
            ExactPolicy::new(SlidePolicy {
                limit: Units::new(limit).unwrap(),
                window: Span::from_ms(1).unwrap(),
            })
        };
        assert!(policy(MAX_LOG_LIMIT).is_some());
        assert!(policy(MAX_LOG_LIMIT + 1).is_none());
    }
}
