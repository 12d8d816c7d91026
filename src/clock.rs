//! The instant of a call, and what a clock that runs backwards means.
//!
//! Time is always an argument: nothing in the core reads a clock.

/// How far behind the stored time a clock may be and still count as jitter, in µs.
pub const JITTER_US: u64 = 1_000;

/// An instant of the server's wall clock, in whole µs since the Unix epoch.
///
/// Always 16 digits: from [`Timestamp::MIN`] (2001-09-09) to [`Timestamp::MAX`] (2286-11-20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The first instant of 16 digits.
    pub const MIN: Self = Self(1_000_000_000_000_000);
    /// The last instant of 16 digits.
    pub const MAX: Self = Self(9_999_999_999_999_999);

    /// The instant `us` µs after the epoch, if it lies in [`Self::MIN`] … [`Self::MAX`].
    #[must_use]
    pub const fn from_us(us: u64) -> Option<Self> {
        if us < Self::MIN.0 || us > Self::MAX.0 {
            return None;
        }
        Some(Self(us))
    }

    /// µs since the epoch.
    #[must_use]
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// Whole ms since the epoch, rounded down as Redis does.
    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0 / 1_000
    }

    /// The least whole number of ms after which an instant `at_us` has come; 0 if it has.
    #[must_use]
    pub const fn ms_until(self, at_us: u64) -> u64 {
        at_us.saturating_sub(self.0).saturating_add(999) / 1_000
    }
}

/// The instant that a call is judged at, given the time that its key's state holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Now, or the stored time while the clock jitters.
    pub at: Timestamp,
    /// The clock was set back: no time has passed, and the stored time moves to now.
    pub stepped_back: bool,
}

impl Judged {
    /// Without a stored time: now.
    #[must_use]
    pub const fn now(now: Timestamp) -> Self {
        Self {
            at: now,
            stepped_back: false,
        }
    }

    /// Compares `now` with the stored time `stored_us`, in µs since the epoch.
    #[must_use]
    pub const fn between(stored_us: u64, now: Timestamp) -> Self {
        if stored_us <= now.0 {
            return Self::now(now);
        }
        let jitters = stored_us.saturating_sub(now.0) <= JITTER_US;
        let at = if jitters && stored_us <= Timestamp::MAX.0 {
            Timestamp(stored_us)
        } else {
            now
        };
        Self {
            at,
            stepped_back: !jitters,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_digits_are_the_whole_range() {
        assert_eq!(Timestamp::from_us(999_999_999_999_999), None);
        assert_eq!(
            Timestamp::from_us(1_000_000_000_000_000),
            Some(Timestamp::MIN)
        );
        assert_eq!(
            Timestamp::from_us(9_999_999_999_999_999),
            Some(Timestamp::MAX)
        );
        assert_eq!(Timestamp::from_us(10_000_000_000_000_000), None);
    }

    #[test]
    fn a_wait_is_rounded_up_to_whole_milliseconds() {
        let now = Timestamp::MIN;
        for (ahead_us, wait_ms) in [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(now.ms_until(now.as_us() + ahead_us), wait_ms);
        }
        assert_eq!(now.ms_until(now.as_us() - 1), 0);
    }

    #[test]
    fn one_millisecond_back_is_jitter_and_more_is_a_step() {
        let now = Timestamp::MIN;
        let us = now.as_us();
        let at = |us: u64| Judged::now(Timestamp::from_us(us).unwrap());
        assert_eq!(Judged::between(us - 5, now), at(us));
        assert_eq!(Judged::between(us, now), at(us));
        assert_eq!(Judged::between(us + 1, now), at(us + 1));
        assert_eq!(Judged::between(us + 1_000, now), at(us + 1_000));
        let stepped_back = Judged {
            at: now,
            stepped_back: true,
        };
        assert_eq!(Judged::between(us + 1_001, now), stepped_back);
    }

    #[test]
    fn the_last_instant_is_not_passed_while_the_clock_jitters() {
        let last = Timestamp::MAX;
        let judged = Judged::between(last.as_us() + 1, last);
        assert_eq!(judged, Judged::now(last));
    }
}
