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
//! use redis_rl::limiter::Limiter;
//! use redis_rl::limiter::log::{Change, Seen, SlidingLog};
//! use redis_rl::policy::{Charge, ExactPolicy, SlidePolicy, Span, Units};
//!
//! let policy = ExactPolicy::new(SlidePolicy {
//!     limit: Units::new(3).unwrap(),
//!     window: Span::from_ms(1_000).unwrap(),
//! }).unwrap();
//! let at = |ms: u64| Timestamp::from_us(1_779_331_200_000_000 + ms * 1_000).unwrap();
//! // At 1.2 s the unit of 0.1 s has left the window, and the next two leave at 1.5 and 1.9 s.
//! let mut entries = vec![at(100), at(500), at(900)];
//! let stored = Some((&mut entries, Some(at(3_000).as_ms())));
//! let mut seen = Seen::new();
//! let mut log = SlidingLog::at(policy, stored, at(1_200), &mut seen).unwrap();
//! assert_eq!(log.decide(Charge::Cost(Units::ONE)).unwrap().reply(), [1, 3, 0, 300, 1_000]);
//! let change = Change { oldest: 1, newest: 0, appended: 1, time: at(1_200), expire_at_ms: None };
//! assert_eq!(log.change(), change);
//! ```

use core::cmp::Ordering;

use arrayvec::ArrayVec;

use super::text::{self, Text};
use super::{Lifetime, Limiter};
use crate::clock::{Judged, Timestamp};
use crate::decimal;
use crate::error::InvalidState;
use crate::policy::{ExactPolicy, MAX_LOG_LIMIT, Units};

/// The admission times that a key holds, oldest first.
pub trait Entries {
    /// The number of entries.
    fn count(&self) -> u64;

    /// The entry at `index`, 0 being the oldest.
    ///
    /// # Errors
    ///
    /// [`InvalidState`] if that is no instant of 16 digits.
    fn get(&mut self, index: u64) -> Result<Timestamp, InvalidState>;
}

impl Entries for Vec<Timestamp> {
    fn count(&self) -> u64 {
        u64::try_from(self.len()).unwrap_or(u64::MAX)
    }

    fn get(&mut self, index: u64) -> Result<Timestamp, InvalidState> {
        let entry = usize::try_from(index)
            .ok()
            .and_then(|index| self.as_slice().get(index));
        entry.copied().ok_or(InvalidState)
    }
}

/// Reads one entry: an instant of 16 digits.
///
/// # Errors
///
/// [`InvalidState`] for anything else.
#[inline]
pub fn decode_entry(text: &[u8]) -> Result<Timestamp, InvalidState> {
    decimal::sixteen_digits(text)
        .and_then(Timestamp::from_us)
        .ok_or(InvalidState)
}

/// Writes one entry.
#[must_use]
pub fn encode_entry(time: Timestamp) -> Text {
    text::number(time.as_us())
}

/// A change to a log, in the order in which it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// So many of the oldest entries leave.
    pub oldest: u64,
    /// So many of the newest entries leave.
    pub newest: u64,
    /// So many entries of `time` are appended.
    pub appended: u64,
    /// Now, or the newest entry while the clock jitters.
    pub time: Timestamp,
    /// The new expiry in ms since the epoch; `None` keeps the one that is there.
    pub expire_at_ms: Option<u64>,
}

impl Change {
    /// So many entries leave.
    #[must_use]
    pub const fn leaving(&self) -> u64 {
        self.oldest.saturating_add(self.newest)
    }

    /// Whether the log is longer afterwards, and so needs memory.
    #[must_use]
    pub const fn lengthens(&self) -> bool {
        self.appended > self.leaving()
    }
}

/// What was read between the ends of a log: index and time. Two searches halve [`MAX_LOG_LIMIT`]
/// entries at most 28 times each.
pub type Seen = ArrayVec<(u64, Timestamp), 64>;

/// A log of which every entry that is read is in order with all that were read before; its ends
/// always are.
struct Reader<'a, E> {
    entries: &'a mut E,
    len: u64,
    oldest: Timestamp,
    newest: Timestamp,
    /// Lent, as it is too large to be moved about.
    seen: &'a mut Seen,
}

impl<'a, E: Entries> Reader<'a, E> {
    fn new(entries: &'a mut E, seen: &'a mut Seen) -> Result<Self, InvalidState> {
        let len = entries.count();
        if !(1..=MAX_LOG_LIMIT).contains(&len) {
            return Err(InvalidState);
        }
        let newest = entries.get(len.saturating_sub(1))?;
        let oldest = if len == 1 { newest } else { entries.get(0)? };
        if oldest > newest {
            return Err(InvalidState);
        }
        Ok(Self {
            entries,
            len,
            oldest,
            newest,
            seen,
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
        for &(at, time) in &*self.seen {
            match at.cmp(&index) {
                Ordering::Less => earliest = earliest.max(time),
                Ordering::Equal => return Ok(time),
                Ordering::Greater => latest = latest.min(time),
            }
        }
        let time = self.entries.get(index)?;
        if time < earliest || time > latest || self.seen.try_push((index, time)).is_err() {
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

/// A log at one instant. Entries before `first` have left the window. The newest `future` ones lie
/// in the future of a clock that was set back, and count as taken at the instant that is judged.
pub struct SlidingLog<'a, E> {
    policy: ExactPolicy,
    now: Timestamp,
    entries: Option<Reader<'a, E>>,
    /// When the key expires.
    expire_at_ms: Option<u64>,
    /// The instant that is judged.
    at: Timestamp,
    first: u64,
    /// Entries in the window.
    used: u64,
    future: u64,
    /// Units that this call has charged, on top of `used`.
    charged: u64,
    /// Units of `used` that this call has given back.
    refunded: u64,
    /// When the newest of the units in use was taken.
    newest: Timestamp,
}

impl<'a, E: Entries> SlidingLog<'a, E> {
    /// The log as it stands at an instant, from the entries and the expiry of its key. `seen` is
    /// for what is read of it.
    ///
    /// # Errors
    ///
    /// [`InvalidState`] if the log has more than [`MAX_LOG_LIMIT`] entries or no expiry, or if an
    /// entry that is read (the ends always are) is no instant or out of order.
    #[expect(
        clippy::inline_always,
        reason = "a limiter is too large to be moved about"
    )]
    #[inline(always)]
    pub fn at(
        policy: ExactPolicy,
        stored: Option<(&'a mut E, Option<u64>)>,
        now: Timestamp,
        seen: &'a mut Seen,
    ) -> Result<Self, InvalidState> {
        let mut log = Self {
            policy,
            now,
            entries: None,
            expire_at_ms: None,
            at: now,
            first: 0,
            used: 0,
            future: 0,
            charged: 0,
            refunded: 0,
            newest: now,
        };
        if let Some((entries, expire_at_ms)) = stored {
            log.expire_at_ms = Some(expire_at_ms.ok_or(InvalidState)?);
            let entries = log.entries.insert(Reader::new(entries, seen)?);
            let Judged { at, stepped_back } = Judged::between(entries.newest.as_us(), now);
            log.at = at;
            log.newest = entries.newest.min(at);
            if stepped_back {
                log.future = entries
                    .len
                    .saturating_sub(entries.first_after(now.as_us())?);
            }
            let window_us = policy.window().as_us();
            log.first = entries.first_after(at.as_us().saturating_sub(window_us))?;
            log.used = entries.len.saturating_sub(log.first);
        }
        Ok(log)
    }

    /// Units in use.
    fn in_use(&self) -> u64 {
        self.used
            .saturating_add(self.charged)
            .saturating_sub(self.refunded)
    }

    /// When the nth (from 1) of the units in use was taken.
    fn taken(&mut self, nth: u64) -> Result<Timestamp, InvalidState> {
        match &mut self.entries {
            Some(entries) if nth <= self.used => {
                let index = self.first.saturating_add(nth).saturating_sub(1);
                entries.get(index).map(|time| time.min(self.at))
            }
            _ => Ok(self.at),
        }
    }

    /// When a unit that was taken at `time` has left the window, in µs.
    fn leaves_at_us(&self, time: Timestamp) -> u64 {
        time.as_us().saturating_add(self.policy.window().as_us())
    }

    /// The key may go once the last unit has left the window. The expiry is set with as much slack
    /// as a key may have, so that a log in use rarely needs a new one.
    fn lifetime(&self) -> Lifetime {
        let now_ms = self.now.as_ms();
        let most_ms = now_ms
            .saturating_add(self.policy.window().as_ms().saturating_mul(2))
            .saturating_add(1_000);
        Lifetime {
            least_ms: now_ms.saturating_add(self.reset_after_ms()),
            most_ms,
            fresh_ms: most_ms,
        }
    }
}

impl<E: Entries> Limiter for SlidingLog<'_, E> {
    type Change = Change;

    fn limit(&self) -> Units {
        self.policy.limit()
    }

    fn remaining(&self) -> u64 {
        self.limit().get().saturating_sub(self.in_use())
    }

    /// Reads the entry that has to leave before the cost fits.
    fn wait_ms(&mut self, cost: Units) -> Result<u64, InvalidState> {
        let leaving = self
            .in_use()
            .saturating_add(cost.get())
            .saturating_sub(self.limit().get());
        let last_to_leave = self.taken(leaving)?;
        Ok(self.now.ms_until(self.leaves_at_us(last_to_leave)))
    }

    fn reset_after_ms(&self) -> u64 {
        if self.in_use() == 0 {
            return 0;
        }
        self.now.ms_until(self.leaves_at_us(self.newest))
    }

    fn stepped_back(&self) -> bool {
        self.future > 0
    }

    fn is_changed(&self) -> bool {
        self.charged > 0 || self.refunded > 0
    }

    fn charge(&mut self, cost: Units) {
        self.charged = cost.get();
        self.newest = self.at;
    }

    /// The newest units leave.
    fn refund(&mut self, units: Units) -> Result<(), InvalidState> {
        self.refunded = units.get().min(self.used);
        let left = self.used.saturating_sub(self.refunded);
        if self.refunded > 0 && left > 0 {
            self.newest = self.taken(left)?;
        }
        Ok(())
    }

    /// Entries that lie in the future of a clock that was set back become `time`.
    fn change(&self) -> Change {
        let changed = self.is_changed();
        // The newest units are given back first, and those of the future are the newest.
        let retimed = self.future.saturating_sub(self.refunded);
        Change {
            oldest: if changed { self.first } else { 0 },
            newest: self.future.max(self.refunded),
            appended: retimed.saturating_add(self.charged),
            time: self.at,
            expire_at_ms: if changed && self.in_use() > 0 {
                self.lifetime().renew(self.expire_at_ms)
            } else {
                None
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_as_it_is_written() {
        let time = Timestamp::from_us(1_779_331_200_000_001).unwrap();
        assert_eq!(encode_entry(time).as_slice(), b"1779331200000001");
        assert_eq!(decode_entry(b"1779331200000001"), Ok(time));
    }

    #[test]
    fn what_is_no_instant_is_no_entry() {
        for text in [
            "",
            "job-42",
            "177933120000000",
            "17793312000000010",
            "0779331200000001",
            "1779331200000 01",
        ] {
            assert_eq!(decode_entry(text.as_bytes()), Err(InvalidState), "{text:?}");
        }
    }
}
