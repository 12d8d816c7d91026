//! Stored text to state and back, and how long a key has to live.
//!
//! What is read from a key is checked whole: text that the same command could not have written is
//! [`InvalidState`], never repaired. The text is readable, carries a tag and a version, and its
//! decoder never panics, whatever the bytes.
//!
//! | command | text |
//! |---|---|
//! | `RL.FIXED` | `count`, as `INCRBY` would |
//! | `RL.TOKEN` | `T1:level:period_us:time_us` |
//! | `RL.SLIDE` | `S1:window_ms:start_ms:previous:current` |
//! | `RL.SLIDE … EXACT` | a list of `time_us` |

use arrayvec::ArrayVec;

use crate::clock::Timestamp;
use crate::decimal;
use crate::error::InvalidState;
use crate::policy::{MAX_UNITS, Span, Units};
use crate::wide::product;

/// The longest text: a tag, two spans and two counts, or a level of 32 digits, a span and a time.
pub const MAX_TEXT: usize = 72;

/// State as it is stored, without a heap allocation.
pub type Text = ArrayVec<u8, MAX_TEXT>;

/// The largest count that is kept, as `INCRBY` knows it.
pub const MAX_COUNT: u64 = 9_223_372_036_854_775_807;

/// What a key of the right type holds.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// The value.
    pub text: &'a [u8],
    /// When the key expires, in ms since the epoch; `None` without a TTL.
    pub expire_at_ms: Option<u64>,
}

/// What one key knows of its limiter, and how it is stored as a text.
pub trait State: Copy {
    /// Reads a state; `None` for anything that [`Self::encode`] does not write for a limiter in use.
    fn parse(text: &[u8]) -> Option<Self>;

    /// Reads a state.
    ///
    /// # Errors
    ///
    /// [`InvalidState`] where [`Self::parse`] gives `None`.
    #[inline]
    fn decode(text: &[u8]) -> Result<Self, InvalidState> {
        Self::parse(text).ok_or(InvalidState)
    }

    /// Writes the state.
    fn encode(self) -> Text;
}

/// What is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<S> {
    /// The new state.
    pub state: S,
    /// The new expiry in ms since the epoch; `None` keeps the one that is there.
    pub expire_at_ms: Option<u64>,
    /// Set where the new value is the old one plus so many, so that it can be told that way.
    pub added: Option<Units>,
}

/// The bounds within which a key's expiry has to lie, in ms since the epoch.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    /// Until then the state is of use.
    pub least_ms: u64,
    /// No key lives longer.
    pub most_ms: u64,
    /// What to set where the expiry at hand is out of bounds.
    pub fresh_ms: u64,
}

impl Lifetime {
    /// The expiry to set, or `None` if the one at hand does. Setting one costs a server more than
    /// any other step of a call, and most calls can do without.
    #[must_use]
    pub fn renew(self, current_ms: Option<u64>) -> Option<u64> {
        match current_ms {
            Some(at) if (self.least_ms..=self.most_ms).contains(&at) => None,
            _ => Some(self.fresh_ms),
        }
    }
}

/// A key's expiry. One without has not been written by these commands.
pub(crate) fn expiry(stored: Stored<'_>) -> Result<u64, InvalidState> {
    stored.expire_at_ms.ok_or(InvalidState)
}

/// What a key holds. It has to have an expiry.
#[expect(clippy::inline_always, reason = "some 50 instructions of every call")]
#[inline(always)]
pub(crate) fn read<S: State>(stored: Option<Stored<'_>>) -> Result<Option<S>, InvalidState> {
    stored
        .map(|stored| {
            expiry(stored)?;
            S::decode(stored.text)
        })
        .transpose()
}

/// The used count of a fixed window, 1 … [`MAX_COUNT`].
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

    fn encode(self) -> Text {
        let mut text = Text::new();
        push(&mut text, self.0);
        text
    }
}

/// A token bucket at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// What the bucket holds, in units of 1/`period` (in µs) token.
    pub level: u128,
    /// The unit of `level`.
    pub period: Span,
    /// When it held that much.
    pub time: Timestamp,
}

impl Bucket {
    const TAG: &'static [u8] = b"T1:";
}

impl State for Bucket {
    #[expect(clippy::inline_always, reason = "some 20 instructions of every call")]
    #[inline(always)]
    fn parse(text: &[u8]) -> Option<Self> {
        let mut rest = body(text, Self::TAG)?;
        let level = decimal::take_wide(&mut rest)?;
        let period = Span::from_us(decimal::take(&mut rest)?)?;
        let time = Timestamp::from_us(decimal::sixteen_digits(rest)?)?;
        // Of the largest bucket: 2^53 × 2^52.
        let full = product(MAX_UNITS, period.as_us());
        (level < full).then_some(Self {
            level,
            period,
            time,
        })
    }

    fn encode(self) -> Text {
        let mut text = tagged(Self::TAG);
        push(&mut text, self.level);
        push_field(&mut text, self.period.as_us());
        push_field(&mut text, self.time.as_us());
        text
    }
}

/// The counters of a sliding window: that of the window that begins at `start_ms`, and that of
/// the one before.
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
        let mut rest = body(text, Self::TAG)?;
        let window = Span::from_ms(decimal::take(&mut rest)?)?;
        let start_ms = decimal::take(&mut rest)?;
        let previous = decimal::take(&mut rest)?;
        let current = decimal::parse(rest)?;
        let on_grid = start_ms % window.nonzero_ms() == 0;
        let in_range = start_ms <= Timestamp::MAX.as_ms()
            && start_ms.saturating_add(window.as_ms()) > Timestamp::MIN.as_ms();
        let counts = previous <= MAX_COUNT && (1..=MAX_COUNT).contains(&current);
        (on_grid && in_range && counts).then_some(Self {
            window,
            start_ms,
            previous,
            current,
        })
    }

    fn encode(self) -> Text {
        let mut text = tagged(Self::TAG);
        push(&mut text, self.window.as_ms());
        push_field(&mut text, self.start_ms);
        push_field(&mut text, self.previous);
        push_field(&mut text, self.current);
        text
    }
}

/// Reads one entry of a log: an instant of 16 digits.
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

/// Writes one entry of a log.
#[must_use]
pub fn encode_entry(time: Timestamp) -> Text {
    let mut text = Text::new();
    push(&mut text, time.as_us());
    text
}

/// What follows the tag, unless the text is longer than any of ours: somebody's megabytes are not
/// read to their end.
fn body<'a>(text: &'a [u8], tag: &[u8]) -> Option<&'a [u8]> {
    if text.len() > MAX_TEXT {
        return None;
    }
    text.strip_prefix(tag)
}

fn tagged(tag: &[u8]) -> Text {
    let mut text = Text::new();
    append(&mut text, tag);
    text
}

fn push_field(text: &mut Text, number: impl itoa::Integer) {
    append(text, b":");
    push(text, number);
}

fn push(text: &mut Text, number: impl itoa::Integer) {
    append(text, itoa::Buffer::new().format(number).as_bytes());
}

fn append(text: &mut Text, bytes: &[u8]) {
    let fits = text.try_extend_from_slice(bytes);
    debug_assert!(fits.is_ok(), "MAX_TEXT holds the longest state");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::MAX_SPAN_MS;

    fn span(ms: u64) -> Span {
        Span::from_ms(ms).unwrap()
    }

    #[test]
    fn states_read_as_they_are_written() {
        let time = Timestamp::from_us(1_779_331_200_000_001).unwrap();
        let bucket = Bucket {
            level: 5_940_000_000,
            period: span(60_000),
            time,
        };
        assert_eq!(
            bucket.encode().as_slice(),
            b"T1:5940000000:60000000:1779331200000001"
        );
        assert_eq!(Bucket::decode(&bucket.encode()), Ok(bucket));
        let windows = Windows {
            window: span(60_000),
            start_ms: 1_779_331_200_000,
            previous: 80,
            current: 30,
        };
        assert_eq!(windows.encode().as_slice(), b"S1:60000:1779331200000:80:30");
        assert_eq!(Windows::decode(&windows.encode()), Ok(windows));
        assert_eq!(Counter(42).encode().as_slice(), b"42");
        assert_eq!(encode_entry(time).as_slice(), b"1779331200000001");
        assert_eq!(decode_entry(b"1779331200000001"), Ok(time));
    }

    #[test]
    fn the_longest_states_fit() {
        let period = span(MAX_SPAN_MS);
        let level = u128::from(MAX_UNITS) * u128::from(period.as_us()) - 1;
        let bucket = Bucket {
            level,
            period,
            time: Timestamp::MAX,
        };
        assert_eq!(Bucket::decode(&bucket.encode()), Ok(bucket));
        let windows = Windows {
            window: period,
            start_ms: MAX_SPAN_MS,
            previous: MAX_COUNT,
            current: MAX_COUNT,
        };
        assert_eq!(Windows::decode(&windows.encode()), Ok(windows));
        assert_eq!(
            Counter::decode(&Counter(MAX_COUNT).encode()),
            Ok(Counter(MAX_COUNT))
        );
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

    #[test]
    fn damaged_text_is_not_a_state() {
        for text in [
            "",
            "T1",
            "T1:",
            "5",
            "T1:1:1000",
            "T1:1:1000:1779331200000001:",
            "T1:1:1000:1779331200000001:0",
            "T1:1:1000:17793312000000010",
            "T1:1:1000:177933120000000",
            "T1:1:1000:0779331200000001",
            "T1:01:1000:1779331200000001",
            "T1::1000:1779331200000001",
            "T1:-1:1000:1779331200000001",
            "T1:1:1001:1779331200000001",
            "T1:1:0:1779331200000001",
            "T1:1:3153600000001000:1779331200000001",
            "T1:9007199254740991000:1000:1779331200000001",
            "T2:1:1000:1779331200000001",
            "S1:1:1000:1779331200000001",
            " T1:1:1000:1779331200000001",
            "T1:1:1000:1779331200000001\n",
        ] {
            assert_eq!(
                Bucket::decode(text.as_bytes()),
                Err(InvalidState),
                "{text:?}"
            );
        }
        assert!(Bucket::decode(b"T1:9007199254740990999:1000:1779331200000001").is_ok());
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

    #[test]
    fn an_expiry_is_set_only_when_the_one_at_hand_is_out_of_bounds() {
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
