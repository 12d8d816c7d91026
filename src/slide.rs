//! `RL.SLIDE`: a sliding window that is estimated from two counters.
//!
//! Windows lie on multiples of their length since the epoch. The last window's units are taken to
//! have been spread evenly, so that they leave at an even rate:
//!
//! ```text
//! used = previous × (window − elapsed) / window + current
//! admitted if used + cost ≤ limit
//! ```
//!
//! This is the counter that Cloudflare described ("How we built rate limiting capable of scaling
//! to millions of domains", 2017), with the fraction kept exact. 100 a minute, 80 in the last
//! window, 30 in this one, 15 s into it: 80 × 0.75 + 30 = 90, admitted.
//!
//! ```
//! use redis_rl::clock::Timestamp;
//! use redis_rl::policy::{SlidePolicy, Span, Units};
//! use redis_rl::slide::decide;
//! use redis_rl::state::{State, Stored};
//!
//! let policy = SlidePolicy { limit: Units::new(100).unwrap(), window: Span::from_ms(60_000).unwrap() };
//! let now = Timestamp::from_us(1_779_331_215_000_000).unwrap();
//! let text = b"S1:60000:1779331200000:80:30";
//! let stored = Stored { text, expire_at_ms: Some(1_779_331_320_000) };
//! let outcome = decide(&policy, Some(stored), now, Units::new(10).unwrap()).unwrap();
//! // The next 10 have to wait until 10 of the 80 have left, which takes 7.5 s.
//! assert_eq!(outcome.decision.reply(), [1, 100, 0, 7_500, 105_000]);
//! assert_eq!(outcome.write.unwrap().state.encode().as_slice(), b"S1:60000:1779331200000:80:40");
//! ```

use core::num::NonZeroU64;

use crate::clock::{Elapsed, Timestamp};
use crate::decision::{Decision, Usage};
use crate::error::InvalidState;
use crate::outcome::Outcome;
use crate::policy::{SlidePolicy, Span, Units};
use crate::state::{self, Lifetime, MAX_COUNT, Stored, Windows, Write};
use crate::wide::{div_ceil, div_floor, product};

/// The counters at one instant, by the window that they were stored for.
#[derive(Clone, Copy, Debug)]
struct Counters {
    limit: Units,
    now: Timestamp,
    /// The instant that is judged: now, or up to a millisecond ahead of a jittering clock.
    at_us: u64,
    /// Whose current window holds `at_us`.
    windows: Windows,
    /// What of the previous window still counts, rounded up.
    fading: u64,
}

impl Counters {
    fn at(policy: SlidePolicy, stored: Option<Windows>, now: Timestamp) -> Self {
        let Some(stored) = stored else {
            let windows = empty(policy.window, now.as_us());
            return Self {
                limit: policy.limit,
                now,
                at_us: now.as_us(),
                windows,
                fading: 0,
            };
        };
        let (at_us, windows) = match Elapsed::between(start_us(&stored), now) {
            Elapsed::At(at_us) => (at_us, advance(stored, at_us)),
            Elapsed::SteppedBack => (now.as_us(), merge(stored, now)),
        };
        Self {
            limit: policy.limit,
            now,
            at_us,
            windows,
            fading: fading(&windows, at_us),
        }
    }

    /// Whole units in use, rounded up.
    fn used(&self) -> u64 {
        self.windows.current.saturating_add(self.fading)
    }

    /// The same counters after `cost` units were taken in a window of length `window`.
    fn take(mut self, window: Span, cost: Units) -> Self {
        if window == self.windows.window {
            self.windows.current = self.windows.current.saturating_add(cost.get());
        } else {
            let used = self.used();
            self.windows = empty(window, self.at_us);
            self.windows.current = used.saturating_add(cost.get());
            self.fading = 0;
        }
        self
    }

    /// The first instant, in µs, at which `cost` units fit.
    ///
    /// What is used only falls, first at the rate of the previous window's units, then, in the
    /// next window, at the rate of the current one's.
    fn admitted_at_us(&self, cost: Units) -> u64 {
        let spare = self.limit.get().saturating_sub(cost.get());
        let window = self.windows.window;
        let next_us = start_us(&self.windows).saturating_add(window.as_us());
        if let Some(spare) = spare.checked_sub(self.windows.current) {
            return next_us.saturating_sub(faded_before_us(self.windows.previous, spare, window));
        }
        let after_us = next_us.saturating_add(window.as_us());
        after_us.saturating_sub(faded_before_us(self.windows.current, spare, window))
    }

    fn reset_at_ms(&self) -> u64 {
        let lasts = match self.windows {
            Windows { current: 1.., .. } => 2,
            Windows { previous: 1.., .. } => 1,
            _ => return self.now.as_ms(),
        };
        // Below 10^13 + 2 × 3.2 × 10^12.
        self.windows
            .start_ms
            .saturating_add(self.windows.window.as_ms().saturating_mul(lasts))
    }

    /// The key lives until the end of the window after the current one, which is when it is of no
    /// use any more: its expiry is set once a window.
    fn lifetime(&self) -> Lifetime {
        let end_ms = self.reset_at_ms();
        Lifetime {
            least_ms: end_ms,
            most_ms: end_ms,
            fresh_ms: end_ms,
        }
    }
}

impl Usage for Counters {
    fn limit(&self) -> Units {
        self.limit
    }

    fn remaining(&self) -> u64 {
        self.limit.get().saturating_sub(self.used())
    }

    fn wait_ms(&self, cost: Units) -> u64 {
        self.now.ms_until(self.admitted_at_us(cost))
    }

    fn reset_after_ms(&self) -> u64 {
        self.reset_at_ms().saturating_sub(self.now.as_ms())
    }
}

fn start_us(windows: &Windows) -> u64 {
    windows.start_ms.saturating_mul(1_000)
}

/// Windows in which nothing was taken, around an instant.
fn empty(window: Span, at_us: u64) -> Windows {
    let at_ms = at_us / 1_000;
    let start_ms = at_ms.saturating_sub(at_ms % window.nonzero_ms());
    Windows {
        window,
        start_ms,
        previous: 0,
        current: 0,
    }
}

/// Moves the windows on until the current one holds an instant that is not before them.
fn advance(windows: Windows, at_us: u64) -> Windows {
    let window_us = windows.window.as_us();
    match at_us.saturating_sub(start_us(&windows)) / windows.window.nonzero_us() {
        0 => windows,
        1 => Windows {
            start_ms: windows.start_ms.saturating_add(window_us / 1_000),
            previous: windows.current,
            current: 0,
            ..windows
        },
        _ => empty(windows.window, at_us),
    }
}

/// After a step back all units count as taken in the window that now lies in.
///
/// They stop at [`MAX_COUNT`], a thousand times the largest limit.
fn merge(windows: Windows, now: Timestamp) -> Windows {
    let current = windows
        .previous
        .saturating_add(windows.current)
        .min(MAX_COUNT);
    Windows {
        current,
        ..empty(windows.window, now.as_us())
    }
}

/// What still counts of the previous window's units, rounded up: at most those units.
fn fading(windows: &Windows, at_us: u64) -> u64 {
    if windows.previous == 0 {
        return 0;
    }
    let elapsed_us = at_us.saturating_sub(start_us(windows));
    let left_us = windows.window.as_us().saturating_sub(elapsed_us);
    // Below 2^63 × 2^52.
    div_ceil(
        product(windows.previous, left_us),
        windows.window.nonzero_us(),
    )
}

/// How long before the end of the window in which `units` fade away no more than `spare` of them
/// still count, in µs: 0 … the window.
fn faded_before_us(units: u64, spare: u64, window: Span) -> u64 {
    match NonZeroU64::new(units) {
        // Below 2^53 × 2^52.
        Some(units) if units.get() > spare => div_floor(product(spare, window.as_us()), units),
        _ => window.as_us(),
    }
}

/// Decides one call.
///
/// # Errors
///
/// [`InvalidState`] if the key holds no such counters or has no expiry.
#[inline]
pub fn decide(
    policy: &SlidePolicy,
    stored: Option<Stored<'_>>,
    now: Timestamp,
    cost: Units,
) -> Result<Outcome<Windows>, InvalidState> {
    let windows: Option<Windows> = state::read(stored)?;
    let counters = Counters::at(*policy, windows, now);
    // Then the instant that is judged is before the stored one.
    let stepped_back = windows.is_some_and(|windows| counters.at_us < start_us(&windows));
    if counters.admits(cost) {
        let counters = counters.take(policy.window, cost);
        let write = Write {
            state: counters.windows,
            expire_at_ms: counters
                .lifetime()
                .renew(stored.and_then(|stored| stored.expire_at_ms)),
            added: None,
        };
        return Ok(Outcome::admitted(&counters, cost, write, stepped_back));
    }
    let mut outcome = Outcome::refused(&counters, cost);
    if stepped_back && cost <= policy.limit {
        outcome.move_back(counters.windows);
    }
    Ok(outcome)
}

/// Tells what [`decide`] would, with nothing taken.
///
/// # Errors
///
/// As those of [`decide`].
pub fn peek(
    policy: &SlidePolicy,
    stored: Option<Stored<'_>>,
    now: Timestamp,
    cost: Units,
) -> Result<Decision, InvalidState> {
    let windows: Option<Windows> = state::read(stored)?;
    Ok(Counters::at(*policy, windows, now).preview(cost))
}
