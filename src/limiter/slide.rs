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
//! use redis_rl::limiter::Limiter;
//! use redis_rl::limiter::slide::SlidingWindow;
//! use redis_rl::limiter::text::{Change, State, Stored, TextLimiter};
//! use redis_rl::policy::{Charge, SlidePolicy, Span, Units};
//!
//! let policy = SlidePolicy { limit: Units::new(100).unwrap(), window: Span::from_ms(60_000).unwrap() };
//! let now = Timestamp::from_us(1_779_331_215_000_000).unwrap();
//! let text = b"S1:60000:1779331200000:80:30";
//! let stored = Stored { text, expire_at_ms: Some(1_779_331_320_000) };
//! let mut window = SlidingWindow::at(policy, Some(stored), now).unwrap();
//! let decision = window.decide(Charge::Cost(Units::new(10).unwrap())).unwrap();
//! // The next 10 have to wait until 10 of the 80 have left, which takes 7.5 s.
//! assert_eq!(decision.reply(), [1, 100, 0, 7_500, 105_000]);
//! let Change::Set { state, .. } = window.change() else { unreachable!() };
//! assert_eq!(state.encode().as_slice(), b"S1:60000:1779331200000:80:40");
//! ```

use core::num::NonZeroU64;

use super::text::{self, Change, MAX_COUNT, State, Stored, Text, TextLimiter};
use super::{Lifetime, Limiter};
use crate::clock::{Judged, Timestamp};
use crate::decimal;
use crate::error::InvalidState;
use crate::policy::{SlidePolicy, Span, Units};
use crate::wide::{div_ceil, div_floor, product};

/// The counters at one instant, by the window that they were stored for.
#[derive(Clone, Copy, Debug)]
pub struct SlidingWindow {
    policy: SlidePolicy,
    now: Timestamp,
    judged: Judged,
    /// The current one holds the instant that is judged.
    windows: Windows,
    /// What of the previous window still counts, rounded up.
    fading: u64,
    /// Until when what is stored is kept.
    expire_at_ms: Option<u64>,
    /// Whether units were taken or given back.
    changed: bool,
}

impl SlidingWindow {
    /// Under another window length, all that is used becomes the current count of the new window.
    fn move_to_policy(&mut self) {
        let window = self.policy.window;
        if window != self.windows.window {
            self.windows = Windows {
                current: self.used().min(MAX_COUNT),
                ..empty(window, self.judged.at)
            };
            self.fading = 0;
        }
    }

    /// Whole units in use, rounded up.
    fn used(&self) -> u64 {
        self.windows.current.saturating_add(self.fading)
    }

    /// The first instant, in µs, at which `cost` units fit.
    ///
    /// What is used only falls, first at the rate of the previous window's units, then, in the
    /// next window, at the rate of the current one's.
    fn admitted_at_us(&self, cost: Units) -> u64 {
        let spare = self.policy.limit.get().saturating_sub(cost.get());
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

impl TextLimiter for SlidingWindow {
    type Policy = SlidePolicy;
    type State = Windows;

    #[expect(
        clippy::inline_always,
        reason = "a limiter is too large to be moved about"
    )]
    #[inline(always)]
    fn at(
        policy: SlidePolicy,
        stored: Option<Stored<'_>>,
        now: Timestamp,
    ) -> Result<Self, InvalidState> {
        let Some(stored) = stored else {
            return Ok(Self {
                policy,
                now,
                judged: Judged::now(now),
                windows: empty(policy.window, now),
                fading: 0,
                expire_at_ms: None,
                changed: false,
            });
        };
        let then: Windows = stored.read()?;
        let judged = Judged::between(start_us(&then), now);
        let windows = if judged.stepped_back {
            merge(then, now)
        } else {
            advance(then, judged.at)
        };
        Ok(Self {
            policy,
            now,
            judged,
            windows,
            fading: fading(&windows, judged.at),
            expire_at_ms: stored.expire_at_ms,
            changed: false,
        })
    }
}

impl Limiter for SlidingWindow {
    type Change = Change<Windows>;

    fn limit(&self) -> Units {
        self.policy.limit
    }

    fn remaining(&self) -> u64 {
        self.policy.limit.get().saturating_sub(self.used())
    }

    fn wait_ms(&mut self, cost: Units) -> Result<u64, InvalidState> {
        Ok(self.now.ms_until(self.admitted_at_us(cost)))
    }

    fn reset_after_ms(&self) -> u64 {
        self.reset_at_ms().saturating_sub(self.now.as_ms())
    }

    fn stepped_back(&self) -> bool {
        self.judged.stepped_back
    }

    fn is_changed(&self) -> bool {
        self.changed
    }

    fn charge(&mut self, cost: Units) {
        self.move_to_policy();
        let current = self.windows.current.saturating_add(cost.get());
        self.windows.current = current.min(MAX_COUNT);
        self.changed = true;
    }

    /// The current window's count falls first, then the previous one's.
    fn refund(&mut self, units: Units) -> Result<(), InvalidState> {
        if self.used() == 0 {
            return Ok(());
        }
        self.move_to_policy();
        let rest = units.get().saturating_sub(self.windows.current);
        self.windows.current = self.windows.current.saturating_sub(units.get());
        self.windows.previous = self.windows.previous.saturating_sub(rest);
        self.fading = fading(&self.windows, self.judged.at);
        self.changed = true;
        Ok(())
    }

    #[expect(clippy::inline_always, reason = "some 40 instructions of every call")]
    #[inline(always)]
    fn change(&self) -> Change<Windows> {
        let state = match self.windows {
            Windows {
                current: 0,
                previous: 0,
                ..
            } => return Change::Delete,
            // A stored current count is never 0: the window before is stored in its place.
            Windows {
                current: 0,
                previous,
                window,
                start_ms,
            } => Windows {
                window,
                start_ms: start_ms.saturating_sub(window.as_ms()),
                previous: 0,
                current: previous,
            },
            windows => windows,
        };
        Change::Set {
            state,
            expire_at_ms: if self.changed {
                self.lifetime().renew(self.expire_at_ms)
            } else {
                None
            },
            increment: 0,
        }
    }
}

fn start_us(windows: &Windows) -> u64 {
    windows.start_ms.saturating_mul(1_000)
}

/// Windows in which nothing was taken, around an instant.
fn empty(window: Span, at: Timestamp) -> Windows {
    let at_ms = at.as_ms();
    let start_ms = at_ms.saturating_sub(at_ms % window.nonzero_ms());
    Windows {
        window,
        start_ms,
        previous: 0,
        current: 0,
    }
}

/// Moves the windows on until the current one holds an instant that is not before them.
fn advance(windows: Windows, at: Timestamp) -> Windows {
    let window_us = windows.window.as_us();
    let elapsed_us = at.as_us().saturating_sub(start_us(&windows));
    match elapsed_us / windows.window.nonzero_us() {
        0 => windows,
        1 => Windows {
            start_ms: windows.start_ms.saturating_add(window_us / 1_000),
            previous: windows.current,
            current: 0,
            ..windows
        },
        _ => empty(windows.window, at),
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
        ..empty(windows.window, now)
    }
}

/// What still counts of the previous window's units, rounded up: at most those units.
fn fading(windows: &Windows, at: Timestamp) -> u64 {
    if windows.previous == 0 {
        return 0;
    }
    let elapsed_us = at.as_us().saturating_sub(start_us(windows));
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

/// The counters of a sliding window, as they are stored: that of the window that begins at
/// `start_ms`, and that of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The length of both windows.
    pub window: Span,
    /// Where the current window begins: a multiple of `window` since the epoch.
    pub start_ms: u64,
    /// Units taken in the window before, 0 … [`MAX_COUNT`].
    pub previous: u64,
    /// Units taken in the current window, 1 … [`MAX_COUNT`] when stored.
    pub current: u64,
}

impl Windows {
    const TAG: &'static [u8] = b"S1:";
}

impl State for Windows {
    #[expect(clippy::inline_always, reason = "some 20 instructions of every call")]
    #[inline(always)]
    fn parse(text: &[u8]) -> Option<Self> {
        let mut rest = text::body(text, Self::TAG)?;
        let window = Span::from_ms(decimal::take(&mut rest)?)?;
        let start_ms = decimal::take(&mut rest)?;
        let previous = decimal::take(&mut rest)?;
        let current = decimal::parse(rest)?;
        let on_grid = start_ms % window.nonzero_ms() == 0;
        let in_range = start_ms <= Timestamp::MAX.as_ms()
            && start_ms.saturating_add(window.as_ms()) > Timestamp::MIN.as_ms();
        let counts = previous <= MAX_COUNT && (1..=MAX_COUNT).contains(&current);
        // A window before the clock's range holds nothing.
        let has_previous = start_ms > Timestamp::MIN.as_ms();
        (on_grid && in_range && counts && (has_previous || previous == 0)).then_some(Self {
            window,
            start_ms,
            previous,
            current,
        })
    }

    fn encode(self) -> Text {
        let mut text = text::tagged(Self::TAG, self.window.as_ms());
        text::push_field(&mut text, self.start_ms);
        text::push_field(&mut text, self.previous);
        text::push_field(&mut text, self.current);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::MAX_SPAN_MS;

    #[test]
    fn windows_read_as_they_are_written() {
        let windows = Windows {
            window: Span::from_ms(60_000).unwrap(),
            start_ms: 1_779_331_200_000,
            previous: 80,
            current: 30,
        };
        assert_eq!(windows.encode().as_slice(), b"S1:60000:1779331200000:80:30");
        assert_eq!(Windows::decode(&windows.encode()), Ok(windows));
    }

    #[test]
    fn the_longest_windows_fit() {
        let windows = Windows {
            window: Span::from_ms(MAX_SPAN_MS).unwrap(),
            start_ms: MAX_SPAN_MS,
            previous: MAX_COUNT,
            current: MAX_COUNT,
        };
        assert_eq!(Windows::decode(&windows.encode()), Ok(windows));
    }

    #[test]
    fn damaged_text_is_no_windows() {
        for text in [
            "",
            "S1:60000:1779331200000:80",
            "S1:60000:1779331200000:80:30:1",
            "S1:60000:1779331200000:80:0",
            "S1:60000:1779331200000:080:1",
            "S1:60000:1779331200001:80:1",
            "S1:60000:10000000020000:80:1",
            "S1:60000:999999960000:80:9223372036854775808",
            "S1:60000:999999900000:80:1",
            "S1:0:0:80:1",
            "S1:60000:1779331200000:9223372036854775808:1",
            "T1:60000:1779331200000:80:1",
            "S1:60000:1779331200000:18446744073709551617:1",
            "S1:18446744073709611616:1779331200000:80:1",
        ] {
            assert_eq!(
                Windows::decode(text.as_bytes()),
                Err(InvalidState),
                "{text:?}"
            );
        }
        assert!(Windows::decode(b"S1:3153600000000:0:0:1").is_ok());
    }
}
