//! The decision: one type for all commands.

use crate::policy::Units;

/// What a limiter answers to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// 0 if the call was refused; 1 if it was admitted, or how many units it was given if it asked
    /// for as many as there are. A forced call is charged in any case: 0 says that it did not fit.
    pub allowed: u64,
    /// The limit or capacity that the call named.
    pub limit: Units,
    /// Whole units that could be taken now: 0 … `limit`.
    pub remaining: u64,
    /// How long until the same call would be admitted if nobody else calls.
    pub retry_after: RetryAfter,
    /// How long until nothing is used any more, in whole ms rounded up; 0 if nothing is.
    pub reset_after_ms: u64,
}

/// How long the same call has to wait. "Not now" and "never" are different answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryAfter {
    /// Admitted after exactly so many ms, and not one sooner; 0 is at once.
    Ms(u64),
    /// The call costs more than its limit, or its lease is not live. Longer than any wait.
    Never,
}

impl RetryAfter {
    /// As the reply tells it: -1 for never. It stops at `i64::MAX`.
    #[must_use]
    pub fn reply(self) -> i64 {
        match self {
            Self::Ms(ms) => i64::try_from(ms).unwrap_or(i64::MAX),
            Self::Never => -1,
        }
    }
}

/// What several limits come to together: all are charged, or none is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether every limit that can stand in the way admitted.
    pub is_admitted: bool,
    /// How long until the same call would be admitted if nobody else calls: the longest wait of
    /// the limits that can stand in the way.
    pub retry_after: RetryAfter,
}

impl Verdict {
    /// That of no limit: nothing stands in the way.
    pub const NOTHING: Self = Self {
        is_admitted: true,
        retry_after: RetryAfter::Ms(0),
    };

    /// Together with that of one limit more that can stand in the way.
    #[must_use]
    pub fn and(self, limit: Self) -> Self {
        Self {
            is_admitted: self.is_admitted && limit.is_admitted,
            retry_after: self.retry_after.max(limit.retry_after),
        }
    }

    /// Whether anything may be stored: a refused call changes a stored time at most, and not even
    /// that if it is refused for ever.
    #[must_use]
    pub fn stores(&self) -> bool {
        self.is_admitted || self.retry_after != RetryAfter::Never
    }
}

impl Decision {
    /// Whether the call was admitted, and when it will be.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        Verdict {
            is_admitted: self.is_admitted(),
            retry_after: self.retry_after,
        }
    }

    /// Whether the call was admitted, or, if it was forced, would have been.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.allowed > 0
    }

    /// The five integers of the reply, in order.
    ///
    /// Values above `i64::MAX` (a window whose end somebody has set that far) stop there.
    #[must_use]
    pub fn reply(self) -> [i64; 5] {
        let integer = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        // At most 2^53: the same bits as a signed number.
        let units = |n: u64| i64::from_ne_bytes(n.to_ne_bytes());
        [
            units(self.allowed),
            units(self.limit.get()),
            units(self.remaining),
            self.retry_after.reply(),
            integer(self.reset_after_ms),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_is_five_integers_in_order() {
        let decision = Decision {
            allowed: 1,
            limit: Units::new(10).unwrap(),
            remaining: 9,
            retry_after: RetryAfter::Ms(3),
            reset_after_ms: 4,
        };
        assert_eq!(decision.reply(), [1, 10, 9, 3, 4]);
        let never = Decision {
            allowed: 0,
            retry_after: RetryAfter::Never,
            ..decision
        };
        assert_eq!(never.reply(), [0, 10, 9, -1, 4]);
        let far = Decision {
            reset_after_ms: u64::MAX,
            ..decision
        };
        assert_eq!(far.reply(), [1, 10, 9, 3, i64::MAX]);
    }

    #[test]
    fn several_limits_admit_only_together_and_wait_for_the_longest() {
        let told = |allowed, retry_after| Decision {
            allowed,
            limit: Units::new(10).unwrap(),
            remaining: 0,
            retry_after,
            reset_after_ms: 0,
        };
        let (ms, never) = (RetryAfter::Ms, RetryAfter::Never);
        for (decisions, is_admitted, retry_after) in [
            (vec![], true, ms(0)),
            (vec![told(1, ms(0)), told(1, ms(7))], true, ms(7)),
            (vec![told(0, ms(5)), told(1, ms(7))], false, ms(7)),
            (vec![told(1, ms(0)), told(0, ms(5))], false, ms(5)),
            (vec![told(0, never), told(0, ms(u64::MAX))], false, never),
            (vec![told(0, ms(5)), told(0, never)], false, never),
        ] {
            let limits = decisions.iter().map(Decision::verdict);
            let verdict = limits.fold(Verdict::NOTHING, Verdict::and);
            let expected = Verdict {
                is_admitted,
                retry_after,
            };
            assert_eq!(verdict, expected, "{decisions:?}");
        }
    }
}
