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
//! use redis_rl::fixed::decide;
//! use redis_rl::policy::{FixedPolicy, Span, Units};
//! use redis_rl::state::{Counter, Stored};
//!
//! let policy = FixedPolicy { limit: Units::new(100).unwrap(), window: Span::from_ms(60_000).unwrap() };
//! let now = Timestamp::from_us(1_779_331_200_000_000).unwrap();
//! // 97 are used, and the window has 20 s to go.
//! let stored = Stored { text: b"97", expire_at_ms: Some(now.as_ms() + 20_000) };
//! let outcome = decide(&policy, Some(stored), now, Units::new(3).unwrap()).unwrap();
//! assert_eq!(outcome.decision.reply(), [1, 100, 0, 20_000, 20_000]);
//! assert_eq!(outcome.write.unwrap().state, Counter(100));
//! ```

use crate::clock::Timestamp;
use crate::decision::{Decision, Usage};
use crate::error::InvalidState;
use crate::outcome::Outcome;
use crate::policy::{FixedPolicy, Units};
use crate::state::{self, Counter, State, Stored, Write};

/// A window at one instant. One that is not open has a count of 0 and ends now.
#[derive(Clone, Copy, Debug)]
struct Window {
    limit: Units,
    count: u64,
    now: Timestamp,
    end_ms: u64,
}

impl Window {
    fn at(
        policy: &FixedPolicy,
        stored: Option<Stored<'_>>,
        now: Timestamp,
    ) -> Result<Self, InvalidState> {
        let mut window = Self {
            limit: policy.limit,
            count: 0,
            now,
            end_ms: now.as_ms(),
        };
        if let Some(stored) = stored {
            let end_ms = state::expiry(stored)?;
            // At its very end a window is over, while Redis still shows the key.
            if end_ms > now.as_ms() {
                window.count = Counter::decode(stored.text)?.0;
                window.end_ms = end_ms;
            }
        }
        Ok(window)
    }

    /// The same window after `cost` units were taken, and what to store of it.
    fn take(mut self, policy: &FixedPolicy, cost: Units) -> (Self, Write<Counter>) {
        let opens = self.count == 0;
        if opens {
            self.end_ms = self.now.as_ms().saturating_add(policy.window.as_ms());
        }
        // At most the limit: the cost was within what remained.
        self.count = self.count.saturating_add(cost.get());
        let write = Write {
            state: Counter(self.count),
            expire_at_ms: opens.then_some(self.end_ms),
            added: (!opens).then_some(cost),
        };
        (self, write)
    }
}

impl Usage for Window {
    fn limit(&self) -> Units {
        self.limit
    }

    fn remaining(&self) -> u64 {
        self.limit.get().saturating_sub(self.count)
    }

    fn wait_ms(&self, _cost: Units) -> u64 {
        self.reset_after_ms()
    }

    fn reset_after_ms(&self) -> u64 {
        self.end_ms.saturating_sub(self.now.as_ms())
    }
}

/// Decides one call.
///
/// # Errors
///
/// [`InvalidState`] if the key holds no count ≥ 1 or has no expiry.
#[inline]
pub fn decide(
    policy: &FixedPolicy,
    stored: Option<Stored<'_>>,
    now: Timestamp,
    cost: Units,
) -> Result<Outcome<Counter>, InvalidState> {
    let window = Window::at(policy, stored, now)?;
    if !window.admits(cost) {
        return Ok(Outcome::refused(&window, cost));
    }
    let (window, write) = window.take(policy, cost);
    Ok(Outcome::admitted(&window, cost, write, false))
}

/// Tells what [`decide`] would, with nothing taken.
///
/// # Errors
///
/// As those of [`decide`].
pub fn peek(
    policy: &FixedPolicy,
    stored: Option<Stored<'_>>,
    now: Timestamp,
    cost: Units,
) -> Result<Decision, InvalidState> {
    let window = Window::at(policy, stored, now)?;
    Ok(window.preview(cost))
}
