//! The policy of a limit: its numbers, their ranges, and how a command says them.

use std::error::Error;
use std::fmt::{self, Display, Formatter};

use redis::Cmd;

/// The largest limit, capacity, refill and cost: 2^53 - 1.
pub const MAX_UNITS: u64 = 9_007_199_254_740_991;
/// Of an exact window, and of leases.
const MAX_ENTRIES: u64 = 10_000;
/// 100 years
const MAX_MS: u64 = 3_153_600_000_000;
/// A day: no request is handled for longer.
const MAX_LEASE_MS: u64 = 86_400_000;

/// A command of redis-rl and its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize),
    serde(tag = "algorithm", rename_all = "snake_case", deny_unknown_fields)
)]
pub enum Policy {
    /// `RL.FIXED`: so many units in a window, which begins with its first request.
    Fixed {
        /// Units per window, 1 to 2^53 - 1.
        limit: u64,
        /// Milliseconds, up to 100 years.
        window_ms: u64,
    },
    /// `RL.TOKEN`: a bucket of tokens that fills evenly.
    Token {
        /// The most tokens that the bucket holds, 1 to 2^53 - 1.
        capacity: u64,
        /// Tokens that flow in per period, 1 to 2^53 - 1.
        refill: u64,
        /// Milliseconds. The bucket has to fill within 100 years.
        period_ms: u64,
    },
    /// `RL.SLIDE`: so many units in a window that moves along.
    Slide {
        /// Units per window, 1 to 2^53 - 1, or to 10,000 with `exact`.
        limit: u64,
        /// Milliseconds, up to 100 years.
        window_ms: u64,
        /// Log each unit instead of estimating.
        #[cfg_attr(feature = "serde", serde(default))]
        exact: bool,
    },
    /// `RL.LEASE`: so many requests at once.
    Lease {
        /// Requests, 1 to 10,000.
        limit: u64,
        /// Milliseconds, up to a day. A request is handled for nine tenths of it at most.
        ttl_ms: u64,
    },
}

/// Why a limit can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidLimit(String);

impl Display for InvalidLimit {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for InvalidLimit {}

impl InvalidLimit {
    pub(crate) fn new(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

impl Policy {
    /// Checks the numbers, as the server will.
    ///
    /// # Errors
    ///
    /// If one is out of its range.
    pub fn check(&self) -> Result<(), InvalidLimit> {
        let most = match self {
            Self::Slide { exact: true, .. } | Self::Lease { .. } => MAX_ENTRIES,
            _ => MAX_UNITS,
        };
        match *self {
            Self::Fixed { limit, window_ms }
            | Self::Slide {
                limit, window_ms, ..
            } => {
                range("limit", limit, most)?;
                range("window_ms", window_ms, MAX_MS)
            }
            Self::Token {
                capacity,
                refill,
                period_ms,
            } => {
                range("capacity", capacity, MAX_UNITS)?;
                range("refill", refill, MAX_UNITS)?;
                range("period_ms", period_ms, MAX_MS)?;
                range("capacity * period_ms / refill", self.window_ms(), MAX_MS)
            }
            Self::Lease { limit, ttl_ms } => {
                range("limit", limit, most)?;
                range("ttl_ms", ttl_ms, MAX_LEASE_MS)
            }
        }
    }

    /// Whether it limits how many requests are handled at once.
    #[must_use]
    pub fn is_lease(&self) -> bool {
        matches!(self, Self::Lease { .. })
    }

    /// The most units at once.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match *self {
            Self::Fixed { limit, .. } | Self::Slide { limit, .. } | Self::Lease { limit, .. } => {
                limit
            }
            Self::Token { capacity, .. } => capacity,
        }
    }

    /// How many units come back in how many milliseconds, at the latest.
    #[must_use]
    pub fn rate(&self) -> (u64, u64) {
        match *self {
            Self::Fixed { limit, window_ms }
            | Self::Slide {
                limit, window_ms, ..
            } => (limit, window_ms),
            Self::Token {
                refill, period_ms, ..
            } => (refill, period_ms),
            Self::Lease { limit, ttl_ms } => (limit, ttl_ms),
        }
    }

    /// The time in which `limit` units come back: a window, the time to fill a bucket, or how long a
    /// lease may be held.
    #[must_use]
    pub fn window_ms(&self) -> u64 {
        let (units, per_ms) = self.rate();
        let product = u128::from(self.limit()).saturating_mul(u128::from(per_ms));
        u64::try_from(product.div_ceil(u128::from(units.max(1)))).unwrap_or(u64::MAX)
    }

    /// What tells one stored state from another that this policy could not go on with. A limit can
    /// change on a live key, and so can a rate. With another algorithm, or another window of a
    /// sliding counter, the limiter needs a key of its own, which the old one can't disturb.
    pub(crate) fn version(&self) -> String {
        match self {
            Self::Fixed { .. } => "fixed".to_owned(),
            Self::Token { .. } => "token".to_owned(),
            Self::Slide { exact: true, .. } => "exact".to_owned(),
            Self::Slide { window_ms, .. } => format!("slide-{window_ms}"),
            Self::Lease { .. } => "lease".to_owned(),
        }
    }

    /// The algorithm, as `RL.ALL` names it. The command of its own has `RL.` before it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Fixed { .. } => "FIXED",
            Self::Token { .. } => "TOKEN",
            Self::Slide { .. } => "SLIDE",
            Self::Lease { .. } => "LEASE",
        }
    }

    /// The numbers, in either command, with the words that say what is taken.
    pub(crate) fn write(&self, take: impl FnOnce(&mut Cmd), command: &mut Cmd) {
        match *self {
            Self::Fixed { limit, window_ms }
            | Self::Slide {
                limit, window_ms, ..
            } => command.arg(limit).arg(window_ms),
            Self::Token {
                capacity,
                refill,
                period_ms,
            } => command.arg(capacity).arg(refill).arg(period_ms),
            Self::Lease { limit, ttl_ms } => command.arg(limit).arg(ttl_ms),
        };
        take(command);
        if matches!(self, Self::Slide { exact: true, .. }) {
            command.arg("EXACT");
        }
    }
}

fn range(name: &str, value: u64, most: u64) -> Result<(), InvalidLimit> {
    if (1..=most).contains(&value) {
        Ok(())
    } else {
        Err(InvalidLimit(format!("{name} must be between 1 and {most}")))
    }
}
