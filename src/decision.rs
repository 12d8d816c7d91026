//! The decision: one type for all commands, and the one rule that makes it from what is used.

use crate::policy::Units;

/// What a limiter answers to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Admitted and charged; otherwise refused, and nothing was charged.
    pub allowed: bool,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// Admitted after exactly so many ms, and not one sooner; 0 is at once.
    Ms(u64),
    /// The call costs more than its limit.
    Never,
}

impl Decision {
    /// The five integers of the reply, in order.
    ///
    /// Values above `i64::MAX` (a window whose end somebody has set that far) stop there.
    #[must_use]
    pub fn reply(self) -> [i64; 5] {
        let integer = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let retry_after_ms = match self.retry_after {
            RetryAfter::Ms(ms) => integer(ms),
            RetryAfter::Never => -1,
        };
        [
            i64::from(self.allowed),
            integer(self.limit.get()),
            integer(self.remaining),
            retry_after_ms,
            integer(self.reset_after_ms),
        ]
    }
}

/// What an algorithm knows of one key at one instant.
///
/// The algorithms differ in how they count; how a count becomes an answer is the same for all.
pub trait Usage {
    /// The limit or capacity that the call named.
    fn limit(&self) -> Units;
    /// Whole units that can be taken now: 0 … [`Self::limit`].
    fn remaining(&self) -> u64;
    /// The least whole ms after which `cost` units can be taken, for a cost that is within the
    /// limit but not within what remains.
    fn wait_ms(&self, cost: Units) -> u64;
    /// The least whole ms after which nothing is used.
    fn reset_after_ms(&self) -> u64;

    /// Whether `cost` units can be taken now.
    fn admits(&self, cost: Units) -> bool {
        cost.get() <= self.remaining()
    }

    /// The answer to a call of `cost` that was, or was not, `allowed`: the waits follow the same
    /// rule in both cases.
    fn decision(&self, allowed: bool, cost: Units) -> Decision {
        let remaining = self.remaining();
        let retry_after = if cost > self.limit() {
            RetryAfter::Never
        } else if cost.get() <= remaining {
            RetryAfter::Ms(0)
        } else {
            RetryAfter::Ms(self.wait_ms(cost))
        };
        Decision {
            allowed,
            limit: self.limit(),
            remaining,
            retry_after,
            reset_after_ms: self.reset_after_ms(),
        }
    }

    /// What the answer to a call of `cost` would be, with nothing taken.
    fn preview(&self, cost: Units) -> Decision {
        self.decision(self.admits(cost), cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_is_five_integers_in_order() {
        let decision = Decision {
            allowed: true,
            limit: Units::new(10).unwrap(),
            remaining: 9,
            retry_after: RetryAfter::Ms(3),
            reset_after_ms: 4,
        };
        assert_eq!(decision.reply(), [1, 10, 9, 3, 4]);
        let never = Decision {
            allowed: false,
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
}
