//! `RL.LEASE`: how many at once.
//!
//! A counting semaphore whose permits end by themselves, as a lease does (Gray and Cheriton, 1989):
//! a holder that crashed gives its place back when its time is up.
//!
//! ```text
//! live = leases that end after now
//! admitted if the id's own lease is live, or if live < limit;  the id's lease ends at now + ttl
//! ```
//!
//! So a call that is sent again takes no second place, and a lease is renewed by taking it again. All
//! instants are whole milliseconds. Nothing is stored of the clock: after a step back leases last
//! longer by the step, as every TTL of the server does.
//!
//! ```
//! use redis_rl::clock::Timestamp;
//! use redis_rl::limiter::lease::{Change, LeaseSet, Stored};
//! use redis_rl::policy::{Hold, LeasePolicy, Span, Units};
//!
//! let policy = LeasePolicy::new(Units::new(2).unwrap(), Span::from_ms(30_000).unwrap()).unwrap();
//! let now = Timestamp::from_us(1_779_331_200_000_000).unwrap();
//! // Both places are taken, by others; the first is free in 10 s.
//! let ms = now.as_ms();
//! let mut ends = vec![ms + 10_000, ms + 20_000];
//! let expire_at_ms = Some(ms + 60_000);
//! let stored = Stored { leases: &mut ends, own_end_ms: None, expire_at_ms };
//! let mut set = LeaseSet::at(policy, Hold::Take, Some(stored), now).unwrap();
//! assert_eq!(set.decide().unwrap().reply(), [0, 2, 0, 10_000, 20_000]);
//! assert_eq!(set.change(), None);
//!
//! // The one that has the first place keeps it, for another 30 s.
//! let stored = Stored { leases: &mut ends, own_end_ms: Some(ms + 10_000), expire_at_ms };
//! let mut set = LeaseSet::at(policy, Hold::Take, Some(stored), now).unwrap();
//! assert_eq!(set.decide().unwrap().reply(), [1, 2, 0, 0, 30_000]);
//! let change = Change::Hold { end_ms: ms + 30_000, over: 0, expire_at_ms: None };
//! assert_eq!(set.change(), Some(change));
//! ```

use super::Lifetime;
use crate::clock::Timestamp;
use crate::decision::{Decision, RetryAfter};
use crate::error::Error;
use crate::policy::{Hold, LeasePolicy, MAX_LEASES, MAX_SPAN_MS};

/// The leases that a key holds, in the order in which they end.
pub trait Leases {
    /// How many there are, those that are over included.
    fn count(&self) -> u64;

    /// When the lease at a rank ends, in ms since the epoch; 0 is the rank of the one that ends first.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidState`] if that is no whole number; [`Error::Internal`] if it can't be read.
    fn end_at(&mut self, rank: u64) -> Result<u64, Error>;

    /// How many end at an instant or before, in ms since the epoch.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if that can't be counted.
    fn over(&mut self, now_ms: u64) -> Result<u64, Error>;
}

/// The ends of all leases, sorted.
impl Leases for Vec<u64> {
    fn count(&self) -> u64 {
        u64::try_from(self.len()).unwrap_or(u64::MAX)
    }

    fn end_at(&mut self, rank: u64) -> Result<u64, Error> {
        let end_ms = usize::try_from(rank).ok().and_then(|rank| self.get(rank));
        end_ms.copied().ok_or(Error::InvalidState)
    }

    fn over(&mut self, now_ms: u64) -> Result<u64, Error> {
        let over = self.partition_point(|end_ms| *end_ms <= now_ms);
        Ok(u64::try_from(over).unwrap_or(u64::MAX))
    }
}

/// What a key of the right type holds, as the call of one id sees it.
#[derive(Debug)]
pub struct Stored<'a, L> {
    /// The leases, at least one.
    pub leases: &'a mut L,
    /// When the id's own ends, in ms since the epoch; `None` if it is not among them.
    pub own_end_ms: Option<u64>,
    /// When the key expires, in ms since the epoch; `None` without a TTL.
    pub expire_at_ms: Option<u64>,
}

/// The first instant at which a lease can end: the clock's first, in ms.
const MIN_END_MS: u64 = Timestamp::MIN.as_ms();
/// The last one: that of a lease of 100 years, taken at the clock's last instant.
const MAX_END_MS: u64 = Timestamp::MAX.as_ms().saturating_add(MAX_SPAN_MS);

/// A change to a set of leases, in the order in which it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The lease of the call's id lasts from now on.
    Hold {
        /// When it ends, in ms since the epoch.
        end_ms: u64,
        /// How many are over, and leave.
        over: u64,
        /// The new expiry in ms since the epoch; `None` keeps the one that is there.
        expire_at_ms: Option<u64>,
    },
    /// The lease of the call's id leaves, and others are live.
    Release {
        /// How many are over, and leave too.
        over: u64,
    },
    /// No lease is live any more: the key goes.
    Delete,
}

impl Change {
    /// How many are over, and leave.
    #[must_use]
    pub const fn over(&self) -> u64 {
        match self {
            Self::Hold { over, .. } | Self::Release { over } => *over,
            Self::Delete => 0,
        }
    }
}

/// Leases at one instant, as one call sees them.
pub struct LeaseSet<'a, L> {
    policy: LeasePolicy,
    hold: Hold,
    now_ms: u64,
    leases: Option<&'a mut L>,
    /// When the key expires.
    expire_at_ms: Option<u64>,
    /// Leases that the key holds, and how many of them are over.
    count: u64,
    over: u64,
    /// When the last one ends; now, if none is live.
    last_ms: u64,
    /// When the id's own ends, if it is live.
    own_end_ms: Option<u64>,
    change: Option<Change>,
}

impl<'a, L: Leases> LeaseSet<'a, L> {
    /// The leases as they stand at an instant, from those of a key and its expiry.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidState`] if the key has no expiry, or more than [`MAX_LEASES`] leases, or if one that
    /// is read (the last one and the id's own always are) ends at no instant that a lease can.
    pub fn at(
        policy: LeasePolicy,
        hold: Hold,
        stored: Option<Stored<'a, L>>,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let now_ms = now.as_ms();
        let mut set = Self {
            policy,
            hold,
            now_ms,
            leases: None,
            expire_at_ms: None,
            count: 0,
            over: 0,
            last_ms: now_ms,
            own_end_ms: None,
            change: None,
        };
        if let Some(stored) = stored {
            let leases = stored.leases;
            set.expire_at_ms = Some(stored.expire_at_ms.ok_or(Error::InvalidState)?);
            set.count = leases.count();
            if !(1..=MAX_LEASES).contains(&set.count) {
                return Err(Error::InvalidState);
            }
            let last_ms = valid(leases.end_at(set.count.saturating_sub(1))?)?;
            set.last_ms = last_ms.max(now_ms);
            set.over = leases.over(now_ms)?;
            if set.over > 0 {
                valid(leases.end_at(0)?)?;
            }
            if let Some(own_end_ms) = stored.own_end_ms {
                set.own_end_ms = Some(valid(own_end_ms)?).filter(|end_ms| *end_ms > now_ms);
            }
            set.leases = Some(leases);
        }
        Ok(set)
    }

    fn live(&self) -> u64 {
        self.count.saturating_sub(self.over)
    }

    /// How many more can be taken while so many are live.
    fn remaining(&self, live: u64) -> u64 {
        self.policy.limit().get().saturating_sub(live)
    }

    /// Tells what [`Self::decide`] would, with nothing changed.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidState`] if a lease that is read for it ends at no instant that a lease can.
    pub fn peek(&mut self) -> Result<Decision, Error> {
        let limit = self.policy.limit().get();
        let retry_after = match (self.hold, self.own_end_ms) {
            (_, Some(_)) => RetryAfter::Ms(0),
            (Hold::Renew | Hold::Release, None) => RetryAfter::Never,
            (Hold::Take, None) => match self.live().checked_sub(limit) {
                None => RetryAfter::Ms(0),
                // So many, and one more, have to end.
                Some(too_many) => {
                    let ends_ms = self.end_at(self.over.saturating_add(too_many))?;
                    RetryAfter::Ms(ends_ms.saturating_sub(self.now_ms))
                }
            },
        };
        let live = self.live();
        let allowed = u64::from(retry_after == RetryAfter::Ms(0));
        Ok(self.decision(allowed, live, retry_after, self.last_ms))
    }

    /// Judges the call, and does what it says if it is admitted.
    ///
    /// # Errors
    ///
    /// As those of [`Self::peek`].
    pub fn decide(&mut self) -> Result<Decision, Error> {
        let told = self.peek()?;
        if told.is_admitted() {
            self.admit()
        } else {
            Ok(told)
        }
    }

    /// Does what the call says, which is admitted.
    fn admit(&mut self) -> Result<Decision, Error> {
        let own = u64::from(self.own_end_ms.is_some());
        let others = self.live().saturating_sub(own);
        let others_end_ms = self.others_end_ms(others)?;
        let (live, last_ms) = match self.hold {
            Hold::Take | Hold::Renew => {
                let end_ms = self.now_ms.saturating_add(self.policy.ttl().as_ms());
                let last_ms = others_end_ms.max(end_ms);
                self.change = Some(Change::Hold {
                    end_ms,
                    over: self.over,
                    expire_at_ms: self.lifetime(last_ms).renew(self.expire_at_ms),
                });
                (others.saturating_add(1), last_ms)
            }
            Hold::Release => {
                self.change = Some(match others {
                    0 => Change::Delete,
                    _ => Change::Release { over: self.over },
                });
                (others, others_end_ms)
            }
        };
        Ok(self.decision(1, live, RetryAfter::Ms(0), last_ms))
    }

    fn decision(&self, allowed: u64, live: u64, retry_after: RetryAfter, last_ms: u64) -> Decision {
        Decision {
            allowed,
            limit: self.policy.limit(),
            remaining: self.remaining(live),
            retry_after,
            reset_after_ms: last_ms.saturating_sub(self.now_ms),
        }
    }

    /// When the last of so many live leases but the id's own ends; now, if there is none.
    fn others_end_ms(&mut self, others: u64) -> Result<u64, Error> {
        match self.own_end_ms {
            _ if others == 0 => Ok(self.now_ms),
            // Its own ends last, perhaps with others: the last but one ends as the last other does.
            Some(own_end_ms) if own_end_ms == self.last_ms => {
                self.end_at(self.count.saturating_sub(2))
            }
            _ => Ok(self.last_ms),
        }
    }

    fn end_at(&mut self, rank: u64) -> Result<u64, Error> {
        match &mut self.leases {
            Some(leases) => valid(leases.end_at(rank)?),
            None => Ok(self.now_ms),
        }
    }

    /// The key may go once the last lease has ended. The expiry is set with half of the slack that a key
    /// may have: both bounds move on as leases come and go, and rarely pass it.
    fn lifetime(&self, last_ms: u64) -> Lifetime {
        let lasts_ms = last_ms.saturating_sub(self.now_ms);
        // 10^13 + 2 × 3.2 × 10^12, also where the clock was set back by all its range.
        let most_ms = last_ms.saturating_add(lasts_ms).saturating_add(1_000);
        Lifetime {
            least_ms: last_ms,
            most_ms,
            fresh_ms: last_ms.midpoint(most_ms),
        }
    }

    /// What is to be stored of a call that was decided; `None` if nothing is.
    #[must_use]
    pub fn change(&self) -> Option<Change> {
        self.change
    }

    /// Whether the set is larger after the call, and so needs memory. Where leases are over they leave,
    /// and one of them may be the id's own.
    #[must_use]
    pub fn lengthens(&self) -> bool {
        matches!(self.change, Some(Change::Hold { over: 0, .. })) && self.own_end_ms.is_none()
    }
}

/// An instant at which a lease can end, in ms since the epoch.
fn valid(end_ms: u64) -> Result<u64, Error> {
    if (MIN_END_MS..=MAX_END_MS).contains(&end_ms) {
        Ok(end_ms)
    } else {
        Err(Error::InvalidState)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Span, Units};

    /// The instant of all calls here, in ms.
    const NOW_MS: u64 = 1_779_331_200_000;

    /// A call under a limit and for 10 s, on leases that end so many ms from now, of which its own may
    /// be one, in a key that expires 60 s from now.
    struct Case {
        limit: u64,
        hold: Hold,
        ends: Vec<i64>,
        own: Option<i64>,
    }

    impl Case {
        fn new(limit: u64, hold: Hold, ends: &[i64], own: Option<i64>) -> Self {
            let ends = ends.to_vec();
            Self {
                limit,
                hold,
                ends,
                own,
            }
        }

        /// The reply, what is stored, and whether that needs memory.
        fn decide(&self) -> ([i64; 5], Option<Change>, bool) {
            let at = |ms: i64| NOW_MS.checked_add_signed(ms).unwrap();
            let mut leases: Vec<u64> = self.ends.iter().copied().map(at).collect();
            let stored = (!leases.is_empty()).then_some(Stored {
                leases: &mut leases,
                own_end_ms: self.own.map(at),
                expire_at_ms: Some(at(60_000)),
            });
            let ttl = Span::from_ms(10_000).unwrap();
            let policy = LeasePolicy::new(Units::new(self.limit).unwrap(), ttl).unwrap();
            let now = Timestamp::from_us(NOW_MS * 1_000 + 999).unwrap();
            let mut set = LeaseSet::at(policy, self.hold, stored, now).unwrap();
            let reply = set.decide().unwrap().reply();
            (reply, set.change(), set.lengthens())
        }
    }

    fn held(over: u64, expiry: Option<u64>) -> Change {
        Change::Hold {
            end_ms: NOW_MS + 10_000,
            over,
            expire_at_ms: expiry.map(|ms| NOW_MS + ms),
        }
    }

    #[test]
    fn a_lease_is_taken_where_fewer_than_the_limit_are_live() {
        use Hold::Take;
        for (case, reply, change, lengthens) in [
            // What is left of the last one, and half of the slack: of as much again, and a second.
            (
                Case::new(2, Take, &[], None),
                [1, 2, 1, 0, 10_000],
                Some(held(0, Some(15_500))),
                true,
            ),
            (
                Case::new(2, Take, &[30_000], None),
                [1, 2, 0, 0, 30_000],
                Some(held(0, None)),
                true,
            ),
            (
                Case::new(2, Take, &[5_000, 30_000], None),
                [0, 2, 0, 5_000, 30_000],
                None,
                false,
            ),
            // One that ends now is over.
            (
                Case::new(2, Take, &[-7, 0, 1], None),
                [1, 2, 0, 0, 10_000],
                Some(held(2, Some(15_500))),
                false,
            ),
            // Two too many, and one of them all has to go.
            (
                Case::new(1, Take, &[-7, 1, 2, 2, 40_000], None),
                [0, 1, 0, 40_000, 40_000],
                None,
                false,
            ),
            (
                Case::new(3, Take, &[-7, 1, 2, 2, 40_000], None),
                [0, 3, 0, 2, 40_000],
                None,
                false,
            ),
        ] {
            assert_eq!(case.decide(), (reply, change, lengthens), "{:?}", case.ends);
        }
    }

    #[test]
    fn its_own_lease_is_renewed_and_takes_no_second_place() {
        for hold in [Hold::Take, Hold::Renew] {
            for (case, reply, change) in [
                // Too many are live, and it was the last of them.
                (
                    Case::new(1, hold, &[5_000, 8_000], Some(8_000)),
                    [1, 1, 0, 0, 10_000],
                    held(0, Some(15_500)),
                ),
                (
                    Case::new(3, hold, &[5_000, 40_000], Some(5_000)),
                    [1, 3, 1, 0, 40_000],
                    held(0, None),
                ),
                // It ends sooner than it did, and the other that ended with it does not.
                (
                    Case::new(3, hold, &[-1, 50_000, 50_000], Some(50_000)),
                    [1, 3, 1, 0, 50_000],
                    held(1, None),
                ),
                (
                    Case::new(3, hold, &[50_000], Some(50_000)),
                    [1, 3, 2, 0, 10_000],
                    held(0, Some(15_500)),
                ),
            ] {
                assert_eq!(case.decide(), (reply, Some(change), false));
            }
        }
        // Over, and not yet removed: it is taken, which needs no memory, but not renewed.
        let over = |hold| Case::new(1, hold, &[-5], Some(-5)).decide();
        let taken = ([1, 1, 0, 0, 10_000], Some(held(1, Some(15_500))), false);
        assert_eq!(over(Hold::Take), taken);
        assert_eq!(over(Hold::Renew), ([0, 1, 1, -1, 0], None, false));
    }

    #[test]
    fn only_a_live_lease_is_released() {
        for (ends, own, reply, change) in [
            (vec![], None, [0, 2, 2, -1, 0], None),
            (vec![9], None, [0, 2, 1, -1, 9], None),
            (vec![0, 9], Some(0), [0, 2, 1, -1, 9], None),
            (vec![9], Some(9), [1, 2, 2, 0, 0], Some(Change::Delete)),
            // Nothing that is live is left.
            (vec![-4, 9], Some(9), [1, 2, 2, 0, 0], Some(Change::Delete)),
            (
                vec![-4, 3, 9],
                Some(9),
                [1, 2, 1, 0, 3],
                Some(Change::Release { over: 1 }),
            ),
            (
                vec![3, 9, 9],
                Some(3),
                [1, 2, 0, 0, 9],
                Some(Change::Release { over: 0 }),
            ),
        ] {
            let case = Case::new(2, Hold::Release, &ends, own);
            assert_eq!(case.decide(), (reply, change, false), "{ends:?}");
        }
    }

    #[test]
    fn what_is_over_leaves_only_where_others_stay() {
        assert_eq!(held(3, None).over(), 3);
        assert_eq!(Change::Release { over: 2 }.over(), 2);
        assert_eq!(Change::Delete.over(), 0);
    }
}
