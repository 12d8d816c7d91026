//! The limiters: what all of them can do, and how long their keys live.
//!
//! A limiter is what a policy and a key's state come to at one instant. Judging ([`Limiter::peek`])
//! is apart from charging ([`Limiter::charge`]): several limiters can be judged before any is
//! charged. A call on one key does both ([`Limiter::decide`]). Nothing here changes a key. What is to
//! be stored is told at the end, as a change that the shell applies.
//!
//! | file | limiter | state |
//! |---|---|---|
//! | [`fixed`] | `RL.FIXED` | String: `count`, as `INCRBY` would |
//! | [`token`] | `RL.TOKEN` | String: `T1:level:period_us:time_us` |
//! | [`slide`] | `RL.SLIDE` | String: `S1:window_ms:start_ms:previous:current` |
//! | [`log`] | `RL.SLIDE … EXACT` | List: one `time_us` per unit |
//! | [`lease`] | `RL.LEASE` | Sorted Set: each id, and when its lease ends, in ms |
//! | [`text`] | | what the three texts share |

pub mod fixed;
pub mod lease;
pub mod log;
pub mod slide;
pub mod text;
pub mod token;

use crate::decision::{Decision, RetryAfter};
use crate::error::InvalidState;
use crate::policy::{Charge, Units};

/// What one limiter knows of one key at one instant.
///
/// The algorithms differ in how they count. How a count becomes an answer is the same for all.
pub trait Limiter: Sized {
    /// What is to be stored.
    type Change;

    /// The limit or capacity that the call named.
    fn limit(&self) -> Units;

    /// Whole units that can be taken now: 0 … [`Self::limit`].
    fn remaining(&self) -> u64;

    /// The least whole ms after which `cost` units can be taken, for a cost that is within the
    /// limit but not within what remains.
    ///
    /// # Errors
    ///
    /// [`InvalidState`] if that has to be read from the key, and is not valid.
    fn wait_ms(&mut self, cost: Units) -> Result<u64, InvalidState>;

    /// The least whole ms after which nothing is used.
    fn reset_after_ms(&self) -> u64;

    /// Whether the clock was set back, so that the stored time has to move.
    fn stepped_back(&self) -> bool;

    /// Whether units were taken or given back.
    fn is_changed(&self) -> bool;

    /// Takes `cost` units, whether or not they remain.
    fn charge(&mut self, cost: Units);

    /// Gives `units` units back, or as many as are used. If none are, nothing changes.
    ///
    /// # Errors
    ///
    /// As those of [`Self::wait_ms`].
    fn refund(&mut self, units: Units) -> Result<(), InvalidState>;

    /// What is to be stored where [`Self::stores`] says so: of a limiter that was charged or given
    /// back to, or else with the stored time alone moved.
    fn change(&self) -> Self::Change;

    /// The answer to a call that is judged as one of `cost`, is told `allowed`, and after which so
    /// many units remain: the waits follow the same rule whether it was admitted or refused.
    ///
    /// # Errors
    ///
    /// As those of [`Self::wait_ms`].
    #[expect(clippy::inline_always, reason = "some 100 instructions of every call")]
    #[inline(always)]
    fn decision(
        &mut self,
        allowed: u64,
        cost: Units,
        remaining: u64,
    ) -> Result<Decision, InvalidState> {
        let retry_after = if cost > self.limit() {
            RetryAfter::Never
        } else if cost.get() <= remaining {
            RetryAfter::Ms(0)
        } else {
            RetryAfter::Ms(self.wait_ms(cost)?)
        };
        Ok(Decision {
            allowed,
            limit: self.limit(),
            remaining,
            retry_after,
            reset_after_ms: self.reset_after_ms(),
        })
    }

    /// Judges one call of a plain cost, and charges it if it is admitted.
    ///
    /// # Errors
    ///
    /// As those of [`Self::wait_ms`].
    #[expect(clippy::inline_always, reason = "some 100 instructions of every call")]
    #[inline(always)]
    fn take(&mut self, cost: Units) -> Result<Decision, InvalidState> {
        let remaining = self.remaining();
        let Some(left) = remaining.checked_sub(cost.get()) else {
            return self.decision(0, cost, remaining);
        };
        self.charge(cost);
        debug_assert_eq!(left, self.remaining(), "whole units are charged");
        self.decision(1, cost, left)
    }

    /// Judges one call, and charges it or gives back as it says.
    ///
    /// # Errors
    ///
    /// As those of [`Self::wait_ms`].
    #[expect(
        clippy::inline_always,
        reason = "called by name, it would keep the limiter in memory: 50 instructions of every call"
    )]
    #[inline(always)]
    fn decide(&mut self, charge: Charge) -> Result<Decision, InvalidState> {
        match charge {
            Charge::Cost(cost) => self.take(cost),
            Charge::Force(cost) => {
                let fits = u64::from(cost.get() <= self.remaining());
                self.charge(cost);
                let left = self.remaining();
                self.decision(fits, cost, left)
            }
            Charge::UpTo(most) => {
                let remaining = self.remaining();
                let taken = most.get().min(remaining);
                if let Some(cost) = Units::new(taken) {
                    self.charge(cost);
                }
                self.decision(taken, Units::ONE, remaining.saturating_sub(taken))
            }
            Charge::Refund(units) => {
                self.refund(units)?;
                Ok(self.given_back())
            }
        }
    }

    /// The answer to a call that gives units back.
    fn given_back(&self) -> Decision {
        Decision {
            allowed: 1,
            limit: self.limit(),
            remaining: self.remaining(),
            retry_after: RetryAfter::Ms(0),
            reset_after_ms: self.reset_after_ms(),
        }
    }

    /// Whether there is something to store after a call that was decided so: units that were taken
    /// or given back, or, after a step back of the clock, the time alone; but not for a call that
    /// is refused for ever.
    #[inline]
    fn stores(&self, decision: &Decision) -> bool {
        self.is_changed()
            || (self.stepped_back()
                && !decision.is_admitted()
                && decision.retry_after != RetryAfter::Never)
    }

    /// Tells what [`Self::decide`] would of a cost, forced or not, or of as many units as there are,
    /// with nothing taken. To give units back is always admitted.
    ///
    /// # Errors
    ///
    /// As those of [`Self::wait_ms`].
    #[inline]
    fn peek(&mut self, charge: Charge) -> Result<Decision, InvalidState> {
        let remaining = self.remaining();
        match charge {
            Charge::Cost(cost) | Charge::Force(cost) => {
                let fits = u64::from(cost.get() <= remaining);
                self.decision(fits, cost, remaining)
            }
            Charge::UpTo(most) => self.decision(most.get().min(remaining), Units::ONE, remaining),
            Charge::Refund(_) => Ok(self.given_back()),
        }
    }
}

/// The bounds within which a key's expiry has to lie, in ms since the epoch.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    /// Until then the state is of use.
    pub least_ms: u64,
    /// No key lives longer.
    pub most_ms: u64,
    /// What to set where the current expiry is out of bounds.
    pub fresh_ms: u64,
}

impl Lifetime {
    /// The expiry to set, or `None` if the current expiry is in range. Setting one costs a server
    /// more than any other step of a call, and most calls can do without.
    #[must_use]
    pub fn renew(self, current_ms: Option<u64>) -> Option<u64> {
        match current_ms {
            Some(at) if (self.least_ms..=self.most_ms).contains(&at) => None,
            _ => Some(self.fresh_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_set_only_when_the_current_one_is_out_of_range() {
        let lifetime = Lifetime {
            least_ms: 10,
            most_ms: 20,
            fresh_ms: 15,
        };
        for (current_ms, renewed_ms) in [
            (None, Some(15)),
            (Some(9), Some(15)),
            (Some(10), None),
            (Some(20), None),
            (Some(21), Some(15)),
        ] {
            assert_eq!(lifetime.renew(current_ms), renewed_ms);
        }
    }
}
