//! `RL.SLIDE … EXACT`: a sliding window that remembers when each of its units was taken.
//!
//! The sliding log: a unit taken at t counts until t + window, exclusive.
//!
//! ```text
//! used = number of entries in (now − window, now]
//! admitted if used + cost ≤ limit;  what has left the window is trimmed, cost × now appended
//! ```
//!
//! As long as the clock does not step, no window of that length ever holds more than the limit,
//! which no estimate from counters can promise. It pays with an entry per unit.
//!
//! ```
//! use redis_rl::clock::Timestamp;
//! use redis_rl::exact::{decide, Change};
//! use redis_rl::policy::{ExactPolicy, SlidePolicy, Span, Units};
//!
//! let policy = ExactPolicy::new(SlidePolicy {
//!     limit: Units::new(3).unwrap(),
//!     window: Span::from_ms(1_000).unwrap(),
//! }).unwrap();
//! let at = |ms: u64| Timestamp::from_us(1_779_331_200_000_000 + ms * 1_000).unwrap();
//! // At 1.2 s the unit of 0.1 s has left the window, and the next two leave at 1.5 and 1.9 s.
//! let mut log = vec![at(100), at(500), at(900)];
//! let expire_at_ms = Some(at(3_000).as_ms());
//! let outcome = decide(policy, Some((&mut log, expire_at_ms)), at(1_200), Units::ONE).unwrap();
//! assert_eq!(outcome.decision.reply(), [1, 3, 0, 300, 1_000]);
//! let change = Change { trimmed: 1, retimed: 0, appended: 1, time: at(1_200), expire_at_ms: None };
//! assert_eq!(outcome.change, Some(change));
//! ```

use crate::clock::{Elapsed, Timestamp};
use crate::decision::{Decision, Usage};
use crate::error::InvalidState;
use crate::policy::{ExactPolicy, MAX_LOG_LIMIT, Units};
use crate::state::Lifetime;

/// The admission times that a key holds, oldest first.
pub trait Log {
    /// The number of entries.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at `index`, 0 being the oldest.
    ///
    /// # Errors
    ///
    /// [`InvalidState`] if that is no instant of 16 digits.
    fn get(&mut self, index: u64) -> Result<Timestamp, InvalidState>;
}

impl Log for Vec<Timestamp> {
    fn len(&self) -> u64 {
        u64::try_from(self.as_slice().len()).unwrap_or(u64::MAX)
    }

    fn get(&mut self, index: u64) -> Result<Timestamp, InvalidState> {
        let entry = usize::try_from(index)
            .ok()
            .and_then(|index| self.as_slice().get(index));
        entry.copied().ok_or(InvalidState)
    }
}

/// The decision on one call and the change that it makes to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The answer.
    pub decision: Decision,
    /// What is to change. A refusal changes nothing, unless the clock was set back.
    pub change: Option<Change>,
}

/// A change to a log, in the order in which it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// So many of the oldest entries leave.
    pub trimmed: u64,
    /// So many of the newest entries, which lie in the future, become `time`.
    pub retimed: u64,
    /// So many entries of `time` are appended.
    pub appended: u64,
    /// Now, or the newest entry while the clock jitters.
    pub time: Timestamp,
    /// The new expiry in ms since the epoch; `None` keeps the one that is there.
    pub expire_at_ms: Option<u64>,
}

impl Change {
    /// Whether the log is longer afterwards, and so needs memory.
    #[must_use]
    pub const fn lengthens(&self) -> bool {
        self.appended > self.trimmed
    }
}

/// What is known of a log that was found in order.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// The instant that is judged.
    at: Timestamp,
    len: u64,
    /// Entries before this one have left the window.
    first: u64,
    /// The time of the entry `first`, if there is one.
    first_time: Timestamp,
    /// So many of the newest entries lie in the future of a clock that was set back.
    future: u64,
    newest: Timestamp,
}

impl Found {
    fn nothing(now: Timestamp) -> Self {
        Self {
            at: now,
            len: 0,
            first: 0,
            first_time: now,
            future: 0,
            newest: now,
        }
    }

    fn read(log: &mut impl Log, policy: ExactPolicy, now: Timestamp) -> Result<Self, InvalidState> {
        let len = log.len();
        if !(1..=MAX_LOG_LIMIT).contains(&len) {
            return Err(InvalidState);
        }
        // The newest first: it decides which instant is judged.
        let newest = log.get(len.saturating_sub(1))?;
        let oldest = if len == 1 { newest } else { log.get(0)? };
        if oldest > newest {
            return Err(InvalidState);
        }
        let mut search = Search {
            log,
            len,
            oldest,
            newest,
        };
        let (at, future) = match Elapsed::between(newest.as_us(), now) {
            Elapsed::At(at_us) => (Timestamp::from_us(at_us).unwrap_or(now), 0),
            Elapsed::SteppedBack => (now, len.saturating_sub(search.first_after(now.as_us())?.0)),
        };
        let left_us = at.as_us().saturating_sub(policy.window().as_us());
        let (first, first_time) = search.first_after(left_us)?;
        Ok(Self {
            at,
            len,
            first,
            first_time,
            future,
            newest,
        })
    }

    fn used(&self) -> u64 {
        self.len.saturating_sub(self.first)
    }

    /// When the `nth` (from 1) unit that is in use was taken.
    fn taken(&self, log: Option<&mut impl Log>, nth: u64) -> Result<Timestamp, InvalidState> {
        let time = match (log, nth) {
            (_, ..=1) => self.first_time,
            (Some(log), _) if nth < self.used() => {
                let time = log.get(self.first.saturating_add(nth).saturating_sub(1))?;
                if time < self.first_time || time > self.newest {
                    return Err(InvalidState);
                }
                time
            }
            _ => self.newest,
        };
        Ok(time.min(self.at))
    }
}

/// A log whose ends are in order. The order of what lies between is checked as far as it is read.
struct Search<'a, L> {
    log: &'a mut L,
    len: u64,
    oldest: Timestamp,
    newest: Timestamp,
}

impl<L: Log> Search<'_, L> {
    /// The first entry after an instant, and its time; the length and the newest if there is none.
    ///
    /// Mostly few entries or none have left a window, so the distance from the oldest entry is
    /// doubled first and then halved: as few steps as halving the whole, and near ones first.
    fn first_after(&mut self, instant_us: u64) -> Result<(u64, Timestamp), InvalidState> {
        if self.oldest.as_us() > instant_us {
            return Ok((0, self.oldest));
        }
        if self.newest.as_us() <= instant_us {
            return Ok((self.len, self.newest));
        }
        // `low` is not after the instant, `high` is.
        let (mut low, mut low_time) = (0_u64, self.oldest);
        let (mut high, mut high_time) = (self.len.saturating_sub(1), self.newest);
        let mut stride = 1_u64;
        loop {
            let gap = high.saturating_sub(low);
            if gap <= 1 {
                return Ok((high, high_time));
            }
            let index = low.saturating_add(stride.min(gap / 2));
            let time = self.log.get(index)?;
            if time < low_time || time > high_time {
                return Err(InvalidState);
            }
            if time.as_us() > instant_us {
                (high, high_time) = (index, time);
            } else {
                (low, low_time) = (index, time);
            }
            stride = stride.saturating_mul(2);
        }
    }
}

/// What is used, as far as a call of one certain cost asks.
struct InUse {
    limit: Units,
    units: u64,
    now: Timestamp,
    /// When enough units have left for the cost.
    admitted_at_us: u64,
    /// When the last unit has left.
    reset_at_us: u64,
}

impl Usage for InUse {
    fn limit(&self) -> Units {
        self.limit
    }

    fn remaining(&self) -> u64 {
        self.limit.get().saturating_sub(self.units)
    }

    fn wait_ms(&self, _cost: Units) -> u64 {
        self.now.ms_until(self.admitted_at_us)
    }

    fn reset_after_ms(&self) -> u64 {
        self.now.ms_until(self.reset_at_us)
    }
}

/// Decides one call on a log and the expiry of its key.
///
/// # Errors
///
/// [`InvalidState`] if the log has more than [`MAX_LOG_LIMIT`] entries or no expiry, or if an
/// entry that is read (the ends always are) is no instant or out of order.
pub fn decide(
    policy: ExactPolicy,
    stored: Option<(&mut impl Log, Option<u64>)>,
    now: Timestamp,
    cost: Units,
) -> Result<Outcome, InvalidState> {
    let (mut log, expire_at_ms) = match stored {
        Some((log, expire_at_ms)) => (Some(log), Some(expire_at_ms.ok_or(InvalidState)?)),
        None => (None, None),
    };
    let found = match &mut log {
        Some(log) => Found::read(*log, policy, now)?,
        None => Found::nothing(now),
    };

    let limit = policy.limit();
    let allowed = found.used().saturating_add(cost.get()) <= limit.get();
    let appended = if allowed { cost.get() } else { 0 };
    let used = found.used().saturating_add(appended);
    let newest = if allowed {
        found.at
    } else {
        found.newest.min(found.at)
    };

    // So many of the used units have to leave before the same call fits.
    let leaving = used.saturating_add(cost.get()).saturating_sub(limit.get());
    let taken = if cost > limit || leaving == 0 {
        now
    } else if leaving <= found.used() {
        found.taken(log, leaving)?
    } else {
        found.at
    };
    let window_us = policy.window().as_us();
    let usage = InUse {
        limit,
        units: used,
        now,
        admitted_at_us: taken.as_us().saturating_add(window_us),
        reset_at_us: if used == 0 {
            now.as_us()
        } else {
            newest.as_us().saturating_add(window_us)
        },
    };

    let change = Change {
        trimmed: if allowed { found.first } else { 0 },
        retimed: found.future,
        appended,
        time: found.at,
        expire_at_ms: if allowed {
            lifetime(policy, &usage).renew(expire_at_ms)
        } else {
            None
        },
    };
    let changes = allowed || (found.future > 0 && cost <= limit);
    Ok(Outcome {
        decision: usage.decision(allowed, cost),
        change: changes.then_some(change),
    })
}

/// The key may go once the last unit has left the window. The expiry is set with as much slack as
/// a key may have, so that a log in use rarely needs a new one.
fn lifetime(policy: ExactPolicy, usage: &InUse) -> Lifetime {
    let now_ms = usage.now.as_ms();
    let most_ms = now_ms
        .saturating_add(policy.window().as_ms().saturating_mul(2))
        .saturating_add(1_000);
    Lifetime {
        least_ms: now_ms.saturating_add(usage.reset_after_ms()),
        most_ms,
        fresh_ms: most_ms,
    }
}
