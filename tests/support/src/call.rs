//! Calls as raw numbers: what the oracle and the code under test are both told.

/// The five integers of a reply.
pub type Reply = [i64; 5];

/// An instant at which windows of a second, ten seconds and a minute begin, in µs.
pub const T0: u64 = 1_779_331_200_000_000;

/// The clock's first and last instant, in µs.
pub const FIRST: u64 = 1_000_000_000_000_000;
pub const LAST: u64 = 9_999_999_999_999_999;

/// The largest limit, capacity, refill and cost.
pub const MAX_UNITS: u64 = (1 << 53) - 1;

/// A hundred years of 365 days, in ms.
pub const MAX_SPAN_MS: u64 = 100 * YEAR_MS;
pub const YEAR_MS: u64 = 365 * 86_400_000;

/// The largest limit of an exact window.
pub const MAX_LOG: u64 = 10_000;

/// µs of a few spans.
pub const MS: u64 = 1_000;
pub const SECOND: u64 = 1_000_000;
pub const HOUR: u64 = 3_600 * SECOND;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
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
    },
    Exact {
        limit: u64,
        window_ms: u64,
    },
}

pub fn fixed(limit: u64, window_ms: u64) -> Policy {
    Policy::Fixed { limit, window_ms }
}

pub fn token(capacity: u64, refill: u64, period_ms: u64) -> Policy {
    Policy::Token {
        capacity,
        refill,
        period_ms,
    }
}

pub fn slide(limit: u64, window_ms: u64) -> Policy {
    Policy::Slide { limit, window_ms }
}

pub fn exact(limit: u64, window_ms: u64) -> Policy {
    Policy::Exact { limit, window_ms }
}

impl Policy {
    pub fn limit(self) -> u64 {
        match self {
            Self::Fixed { limit, .. }
            | Self::Token {
                capacity: limit, ..
            }
            | Self::Slide { limit, .. }
            | Self::Exact { limit, .. } => limit,
        }
    }

    /// The window or period.
    pub fn span_ms(self) -> u64 {
        match self {
            Self::Fixed { window_ms, .. }
            | Self::Token {
                period_ms: window_ms,
                ..
            }
            | Self::Slide { window_ms, .. }
            | Self::Exact { window_ms, .. } => window_ms,
        }
    }
}

/// The four algorithms with the same limit in the same span.
pub fn all(limit: u64, span_ms: u64) -> [Policy; 4] {
    [
        fixed(limit, span_ms),
        token(limit, limit, span_ms),
        slide(limit, span_ms),
        exact(limit, span_ms),
    ]
}
