//! State that is kept as one readable text: a count, or numbers behind a tag with a version.
//!
//! What is read from a key is checked whole: text that the same command could not have written is
//! [`InvalidState`], never repaired. Decoding never panics, whatever the bytes.

use arrayvec::ArrayVec;

use super::Limiter;
use crate::clock::Timestamp;
use crate::error::InvalidState;

/// The longest text: a tag, a span, a start and two counts, or a level of 32 digits, a span and a time.
pub const MAX_TEXT: usize = 72;

/// State as it is stored, without a heap allocation.
pub type Text = ArrayVec<u8, MAX_TEXT>;

/// The largest count that is kept, as `INCRBY` knows it.
pub const MAX_COUNT: u64 = 9_223_372_036_854_775_807;

/// A limiter whose state is one text.
pub trait TextLimiter: Limiter<Change = Change<Self::State>> {
    /// The policy that a call names.
    type Policy: Copy;
    /// What is stored.
    type State: State;

    /// The limiter as it stands at an instant. Without anything stored, nothing is used.
    ///
    /// # Errors
    ///
    /// [`InvalidState`] if the text is none that this limiter writes, or if the key has no expiry.
    fn at(
        policy: Self::Policy,
        stored: Option<Stored<'_>>,
        now: Timestamp,
    ) -> Result<Self, InvalidState>;
}

/// What a key of the right type holds.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// The value.
    pub text: &'a [u8],
    /// When the key expires, in ms since the epoch; `None` without a TTL.
    pub expire_at_ms: Option<u64>,
}

impl Stored<'_> {
    /// The key's expiry. These commands write no key without one.
    pub(super) fn expiry(&self) -> Result<u64, InvalidState> {
        self.expire_at_ms.ok_or(InvalidState)
    }

    /// The state, of a key that has an expiry.
    #[expect(clippy::inline_always, reason = "some 50 instructions of every call")]
    #[inline(always)]
    pub(super) fn read<S: State>(&self) -> Result<S, InvalidState> {
        self.expiry()?;
        S::decode(self.text)
    }
}

/// What is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<S> {
    /// A text.
    Set {
        /// The new state.
        state: S,
        /// The new expiry in ms since the epoch; `None` keeps the one that is there.
        expire_at_ms: Option<u64>,
        /// How much more or less the new value is, where it is an integer and the expiry stays:
        /// replicas can be told that way. 0 otherwise.
        increment: i64,
    },
    /// Nothing is used any more: the key goes.
    Delete,
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

/// What follows the tag. A longer text can't be ours: it is not scanned.
pub(super) fn body<'a>(text: &'a [u8], tag: &[u8]) -> Option<&'a [u8]> {
    if text.len() > MAX_TEXT {
        return None;
    }
    text.strip_prefix(tag)
}

/// A text that begins with its tag and its first number.
pub(super) fn tagged(tag: &[u8], number: impl itoa::Integer) -> Text {
    let mut text = Text::new();
    append(&mut text, tag);
    push(&mut text, number);
    text
}

/// A text of one number.
pub(super) fn number(number: impl itoa::Integer) -> Text {
    let mut text = Text::new();
    push(&mut text, number);
    text
}

/// Appends a `:` and a number.
pub(super) fn push_field(text: &mut Text, number: impl itoa::Integer) {
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
