//! `RL.FIXED`: a fixed window that starts at the first call admitted in it.
//!
//! The state is the used count, and the window's end is the key's expiry:
//!
//! ```text
//! no open window:  admitted if cost ≤ limit;  count = cost, end = now + window
//! open window:     admitted if count + cost ≤ limit;  count = count + cost, end stays
//! ```
//!
//! That is the counter with an expiry which most applications build from `INCR` and `EXPIRE`, in
//! one step. Its known edge: up to twice the limit can pass around the end of a window.
//!
//! ```
//! use redis_rl::clock::Timestamp;
//! use redis_rl::limiter::Limiter;
//! use redis_rl::limiter::fixed::{Counter, FixedWindow};
//! use redis_rl::limiter::text::{Change, Stored, TextLimiter};
//! use redis_rl::policy::{Charge, FixedPolicy, Span, Units};
//!
//! let policy = FixedPolicy { limit: Units::new(100).unwrap(), window: Span::from_ms(60_000).unwrap() };
//! let now = Timestamp::from_us(1_779_331_200_000_000).unwrap();
//! // 97 are used, and the window has 20 s to go.
//! let stored = Stored { text: b"97", expire_at_ms: Some(now.as_ms() + 20_000) };
//! let mut window = FixedWindow::at(policy, Some(stored), now).unwrap();
//! let decision = window.decide(Charge::Cost(Units::new(3).unwrap())).unwrap();
//! assert_eq!(decision.reply(), [1, 100, 0, 20_000, 20_000]);
//! let change = Change::Set { state: Counter(100), expire_at_ms: None, increment: 3 };
//! assert_eq!(window.change(), change);
//! ```

use super::Limiter;
use super::text::{self, Change, MAX_COUNT, State, Stored, Text, TextLimiter};
use crate::clock::Timestamp;
use crate::decimal;
use crate::error::InvalidState;
use crate::policy::{FixedPolicy, Units};

/// A window at one instant. One that is not open has a count of 0 and ends now.
#[derive(Clone, Copy, Debug)]
pub struct FixedWindow {
    policy: FixedPolicy,
    now: Timestamp,
    count: u64,
    end_ms: u64,
    /// The count that was found; 0 if no window is open.
    stored: u64,
}

impl TextLimiter for FixedWindow {
    type Policy = FixedPolicy;
    type State = Counter;

    #[inline]
    fn at(
        policy: FixedPolicy,
        stored: Option<Stored<'_>>,
        now: Timestamp,
    ) -> Result<Self, InvalidState> {
        let mut window = Self {
            policy,
            now,
            count: 0,
            end_ms: now.as_ms(),
            stored: 0,
        };
        if let Some(stored) = stored {
            let end_ms = stored.expiry()?;
            // At its very end a window is over, while Redis still shows the key.
            if end_ms > now.as_ms() {
                window.stored = Counter::decode(stored.text)?.0;
                window.count = window.stored;
                window.end_ms = end_ms;
            }
        }
        Ok(window)
    }
}

impl Limiter for FixedWindow {
    type Change = Change<Counter>;

    fn limit(&self) -> Units {
        self.policy.limit
    }

    fn remaining(&self) -> u64 {
        self.limit().get().saturating_sub(self.count)
    }

    fn wait_ms(&mut self, _cost: Units) -> Result<u64, InvalidState> {
        Ok(self.reset_after_ms())
    }

    fn reset_after_ms(&self) -> u64 {
        self.end_ms.saturating_sub(self.now.as_ms())
    }

    /// No time is stored.
    fn stepped_back(&self) -> bool {
        false
    }

    fn is_changed(&self) -> bool {
        self.count != self.stored
    }

    fn charge(&mut self, cost: Units) {
        if self.count == 0 {
            self.end_ms = self.now.as_ms().saturating_add(self.policy.window.as_ms());
        }
        self.count = self.count.saturating_add(cost.get()).min(MAX_COUNT);
    }

    /// The end of the window stays, unless nothing is used any more.
    fn refund(&mut self, units: Units) -> Result<(), InvalidState> {
        self.count = self.count.saturating_sub(units.get());
        if self.count == 0 {
            self.end_ms = self.now.as_ms();
        }
        Ok(())
    }

    #[expect(clippy::inline_always, reason = "some 40 instructions of every call")]
    #[inline(always)]
    fn change(&self) -> Change<Counter> {
        if self.count == 0 {
            return Change::Delete;
        }
        let opened = self.stored == 0;
        Change::Set {
            state: Counter(self.count),
            expire_at_ms: opened.then_some(self.end_ms),
            increment: if opened {
                0
            } else {
                signed(self.count).saturating_sub(signed(self.stored))
            },
        }
    }
}

/// Counts are at most [`MAX_COUNT`], the largest of its type.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The used count of an open window, 1 … [`MAX_COUNT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter(pub u64);

impl State for Counter {
    #[inline]
    fn parse(text: &[u8]) -> Option<Self> {
        match decimal::parse(text)? {
            count @ 1..=MAX_COUNT => Some(Self(count)),
            _ => None,
        }
    }

    #[expect(clippy::inline_always, reason = "some 20 instructions of every call")]
    #[inline(always)]
    fn encode(self) -> Text {
        text::number(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_reads_as_it_is_written() {
        for count in [1, 42, MAX_COUNT] {
            let text = Counter(count).encode();
            assert_eq!(text.as_slice(), count.to_string().as_bytes());
            assert_eq!(Counter::decode(&text), Ok(Counter(count)));
        }
    }

    #[test]
    fn a_count_is_a_canonical_integer_above_zero() {
        for text in [
            "",
            "0",
            "-1",
            "01",
            "1.0",
            "1 ",
            "abc",
            "9223372036854775808",
            "12345678901234567890",
        ] {
            assert_eq!(
                Counter::decode(text.as_bytes()),
                Err(InvalidState),
                "{text:?}"
            );
        }
    }
}
