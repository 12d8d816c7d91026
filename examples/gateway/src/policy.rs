//! The policy of a limit: its numbers, their ranges, and how a command says them.

use redis::Cmd;
use serde::Deserialize;

/// 2^53 - 1
pub(crate) const MAX_UNITS: u64 = 9_007_199_254_740_991;
/// Of an exact window, and of leases.
const MAX_ENTRIES: u64 = 10_000;
/// 100 years
const MAX_MS: u64 = 3_153_600_000_000;
/// A day: no request is handled for longer.
const MAX_LEASE_MS: u64 = 86_400_000;

/// A command of the module and its numbers.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(tag = "algorithm", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Policy {
    Fixed {
        limit: u64,
        window_ms: u64,
    },
    Token {
        capacity: u64,
        refill: u64,
        period_ms: u64,
    },
    Slide {
        limit: u64,
        window_ms: u64,
        #[serde(default)]
        exact: bool,
    },
    /// How many requests are handled at once.
    Lease {
        limit: u64,
        ttl_ms: u64,
    },
}

/// What a command takes of a limit.
#[derive(Clone, Copy)]
pub(crate) enum Take<'a> {
    Cost(u64),
    Upto(u64),
    /// A place, under this id.
    Lease(&'a str),
}

impl Policy {
    pub(crate) fn check(&self) -> Result<(), String> {
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

    /// The most units at once.
    pub(crate) fn limit(&self) -> u64 {
        match *self {
            Self::Fixed { limit, .. } | Self::Slide { limit, .. } | Self::Lease { limit, .. } => {
                limit
            }
            Self::Token { capacity, .. } => capacity,
        }
    }

    /// How many units come back in how many milliseconds, at the latest.
    pub(crate) fn rate(&self) -> (u64, u64) {
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

    /// The time in which `limit` units come back: a window, what it takes to fill a bucket,
    /// or how long a lease may be held.
    pub(crate) fn window_ms(&self) -> u64 {
        let (units, per_ms) = self.rate();
        let product = u128::from(self.limit()).saturating_mul(u128::from(per_ms));
        u64::try_from(product.div_ceil(u128::from(units.max(1)))).unwrap_or(u64::MAX)
    }

    /// What tells one stored state from another that this policy could not go on with. A limit can
    /// change on a live key, and so can a rate; with another algorithm, or another window of a
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

    /// The rest of the policy, in either command, with what is to be taken.
    pub(crate) fn write(&self, take: Take<'_>, command: &mut Cmd) {
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
        match take {
            Take::Cost(units) => command.arg("COST").arg(units),
            Take::Upto(units) => command.arg("UPTO").arg(units),
            Take::Lease(id) => command.arg(id),
        };
        if matches!(self, Self::Slide { exact: true, .. }) {
            command.arg("EXACT");
        }
    }
}

pub(crate) fn range(name: &str, value: u64, most: u64) -> Result<(), String> {
    if (1..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("{name} must be between 1 and {most}"))
    }
}
