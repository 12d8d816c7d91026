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

use core::cmp::Ordering;

use arrayvec::ArrayVec;

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
    /// Whether the clock was set back, so that stored times move with it.
    #[must_use]
    pub const fn stepped_back(&self) -> bool {
        self.retimed > 0
    }

    /// Whether the log is longer afterwards, and so needs memory.
    #[must_use]
    pub const fn lengthens(&self) -> bool {
        self.appended > self.trimmed
    }
}

/// What was read between the ends of a log: index and time. Two searches halve [`MAX_LOG_LIMIT`]
/// entries at most 28 times each.
type Between = ArrayVec<(u64, Timestamp), 64>;

/// A log of which every entry that is read is in order with all that were read before; its ends
/// always are.
struct Reader<'a, L> {
    log: &'a mut L,
    len: u64,
    oldest: Timestamp,
    newest: Timestamp,
    /// Lent, as it is too large to be moved about.
    between: &'a mut Between,
}

impl<'a, L: Log> Reader<'a, L> {
    fn new(log: &'a mut L, between: &'a mut Between) -> Result<Self, InvalidState> {
        let len = log.len();
        if !(1..=MAX_LOG_LIMIT).contains(&len) {
            return Err(InvalidState);
        }
        let newest = log.get(len.saturating_sub(1))?;
        let oldest = if len == 1 { newest } else { log.get(0)? };
        if oldest > newest {
            return Err(InvalidState);
        }
        Ok(Self {
            log,
            len,
            oldest,
            newest,
            between,
        })
    }

    fn get(&mut self, index: u64) -> Result<Timestamp, InvalidState> {
        if index == 0 {
            return Ok(self.oldest);
        }
        if index == self.len.saturating_sub(1) {
            return Ok(self.newest);
        }
        let (mut earliest, mut latest) = (self.oldest, self.newest);
        for &(at, time) in &*self.between {
            match at.cmp(&index) {
                Ordering::Less => earliest = earliest.max(time),
                Ordering::Equal => return Ok(time),
                Ordering::Greater => latest = latest.min(time),
            }
        }
        let time = self.log.get(index)?;
        if time < earliest || time > latest || self.between.try_push((index, time)).is_err() {
            return Err(InvalidState);
        }
        Ok(time)
    }

    /// The first entry after an instant, or the length if there is none.
    ///
    /// Mostly few entries or none have left a window, so the distance from the oldest entry is
    /// doubled first and then halved: as few steps as halving the whole, and near ones first.
    fn first_after(&mut self, instant_us: u64) -> Result<u64, InvalidState> {
        if self.newest.as_us() <= instant_us {
            return Ok(self.len);
        }
        if self.oldest.as_us() > instant_us {
            return Ok(0);
        }
        // `low` is not after the instant, `high` is.
        let (mut low, mut high) = (0, self.len.saturating_sub(1));
        let mut stride = 1_u64;
        loop {
            let gap = high.saturating_sub(low);
            if gap <= 1 {
                return Ok(high);
            }
            let index = low.saturating_add(stride.min(gap / 2));
            if self.get(index)?.as_us() > instant_us {
                high = index;
            } else {
                low = index;
            }
            stride = stride.saturating_mul(2);
        }
    }
}

/// What a log says of one instant. Entries before `first` have left the window; the newest
/// `future` ones lie in the future of a clock that was set back, and count as taken at `at`.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// The instant that is judged.
    at: Timestamp,
    first: u64,
    used: u64,
    future: u64,
}

impl Found {
    fn read(
        log: &mut Reader<'_, impl Log>,
        policy: ExactPolicy,
        now: Timestamp,
    ) -> Result<Self, InvalidState> {
        let (at, future) = match Elapsed::between(log.newest.as_us(), now) {
            Elapsed::At(at_us) => (Timestamp::from_us(at_us).unwrap_or(now), 0),
            Elapsed::SteppedBack => (now, log.len.saturating_sub(log.first_after(now.as_us())?)),
        };
        let first = log.first_after(at.as_us().saturating_sub(policy.window().as_us()))?;
        Ok(Self {
            at,
            first,
            used: log.len.saturating_sub(first),
            future,
        })
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

/// A log and what it says of one instant.
struct View<'a, L> {
    policy: ExactPolicy,
    now: Timestamp,
    log: Option<Reader<'a, L>>,
    found: Found,
}

impl<'a, L: Log> View<'a, L> {
    fn new(
        policy: ExactPolicy,
        log: Option<&'a mut L>,
        now: Timestamp,
        between: &'a mut Between,
    ) -> Result<Self, InvalidState> {
        let mut log = log.map(|log| Reader::new(log, between)).transpose()?;
        let found = match &mut log {
            Some(log) => Found::read(log, policy, now)?,
            None => Found {
                at: now,
                first: 0,
                used: 0,
                future: 0,
            },
        };
        Ok(Self {
            policy,
            now,
            log,
            found,
        })
    }

    fn admits(&self, cost: Units) -> bool {
        self.found.used.saturating_add(cost.get()) <= self.policy.limit().get()
    }

    /// What is used once so many more units are taken, as far as a call of `cost` asks.
    fn usage(&mut self, taken: u64, cost: Units) -> Result<InUse, InvalidState> {
        let limit = self.policy.limit();
        let used = self.found.used.saturating_add(taken);
        // So many of the used units have to leave before the same call fits.
        let leaving = used.saturating_add(cost.get()).saturating_sub(limit.get());
        let waits = cost <= limit && leaving > 0;
        let last_to_leave = if waits {
            self.taken(leaving)?
        } else {
            self.now
        };
        let newest = self.taken(used)?;
        let window_us = self.policy.window().as_us();
        Ok(InUse {
            limit,
            units: used,
            now: self.now,
            admitted_at_us: last_to_leave.as_us().saturating_add(window_us),
            reset_at_us: if used == 0 {
                self.now.as_us()
            } else {
                newest.as_us().saturating_add(window_us)
            },
        })
    }

    /// When the nth (from 1) of the used units was taken.
    fn taken(&mut self, nth: u64) -> Result<Timestamp, InvalidState> {
        match &mut self.log {
            Some(log) if nth <= self.found.used => {
                let index = self.found.first.saturating_add(nth).saturating_sub(1);
                log.get(index).map(|time| time.min(self.found.at))
            }
            _ => Ok(self.found.at),
        }
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
    let mut between = Between::new();
    let (log, expire_at_ms) = checked(stored)?;
    let mut view = View::new(policy, log, now, &mut between)?;
    let allowed = view.admits(cost);
    let appended = if allowed { cost.get() } else { 0 };
    let usage = view.usage(appended, cost)?;
    let found = view.found;
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
    let changes = allowed || (found.future > 0 && cost <= policy.limit());
    Ok(Outcome {
        decision: usage.decision(allowed, cost),
        change: changes.then_some(change),
    })
}

/// Tells what [`decide`] would, with nothing taken.
///
/// # Errors
///
/// As those of [`decide`].
pub fn peek(
    policy: ExactPolicy,
    stored: Option<(&mut impl Log, Option<u64>)>,
    now: Timestamp,
    cost: Units,
) -> Result<Decision, InvalidState> {
    let mut between = Between::new();
    let (log, _) = checked(stored)?;
    let mut view = View::new(policy, log, now, &mut between)?;
    let allowed = view.admits(cost);
    Ok(view.usage(0, cost)?.decision(allowed, cost))
}

/// A log and the expiry of its key, which has to have one.
fn checked<L>(stored: Option<(L, Option<u64>)>) -> Result<(Option<L>, Option<u64>), InvalidState> {
    match stored {
        Some((log, expire_at_ms)) => Ok((Some(log), Some(expire_at_ms.ok_or(InvalidState)?))),
        None => Ok((None, None)),
    }
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
