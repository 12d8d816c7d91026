//! Every error text that the module replies with, in one place.
//!
//! Fixed ASCII that never repeats what a client sent. The errors that the server has words of its
//! own for (arity, `READONLY`, `NOPERM`, …) are the server's to give.

use core::ffi::CStr;

use arrayvec::ArrayVec;

/// Why a call could not be judged. Nothing was charged and nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Too few arguments; the server words this one.
    Arity,
    /// `limit` is no integer in range.
    Limit,
    /// `limit` is no integer in the range of a log or of leases, which hold an entry for each.
    EntryLimit,
    /// `window_ms` is no integer in range.
    Window,
    /// `capacity` is no integer in range.
    Capacity,
    /// `refill` is no integer in range.
    Refill,
    /// `period_ms` is no integer in range.
    Period,
    /// `cost` is no integer in range.
    Cost,
    /// What `UPTO` names is no integer in range.
    UpTo,
    /// What `REFUND` names is no integer in range.
    Refund,
    /// `ttl_ms` is no integer in range.
    Ttl,
    /// The id of a lease is empty or too long.
    Id,
    /// `numkeys` is no integer in range.
    KeyCount,
    /// Two limits of one call are on the same key.
    SameKeys,
    /// An empty bucket would take longer than 100 years to fill.
    FillTime,
    /// An unknown, repeated or valueless keyword.
    Syntax,
    /// The key holds another type than this command keeps its state in.
    WrongType,
    /// The right type, but nothing that this command could have written, or no expiry.
    InvalidState,
    /// The server's clock is before 2001 or after 2286.
    Clock,
    /// The call needs memory that the server does not have.
    OutOfMemory,
    /// A defect of this module, caught before it could reach the server.
    Internal,
}

impl Error {
    /// The reply, with its error code, as a C string for the server.
    #[must_use]
    pub const fn text(self) -> &'static CStr {
        match self {
            Self::Arity => c"ERR wrong number of arguments",
            Self::Limit => {
                c"ERR invalid rate limit policy: limit must be an integer between 1 and 9007199254740991"
            }
            Self::EntryLimit => {
                c"ERR invalid rate limit policy: limit must be an integer between 1 and 10000"
            }
            Self::Window => {
                c"ERR invalid rate limit policy: window_ms must be an integer between 1 and 3153600000000"
            }
            Self::Capacity => {
                c"ERR invalid rate limit policy: capacity must be an integer between 1 and 9007199254740991"
            }
            Self::Refill => {
                c"ERR invalid rate limit policy: refill must be an integer between 1 and 9007199254740991"
            }
            Self::Period => {
                c"ERR invalid rate limit policy: period_ms must be an integer between 1 and 3153600000000"
            }
            Self::Cost => {
                c"ERR invalid rate limit policy: cost must be an integer between 1 and 9007199254740991"
            }
            Self::UpTo => {
                c"ERR invalid rate limit policy: upto must be an integer between 1 and 9007199254740991"
            }
            Self::Refund => {
                c"ERR invalid rate limit policy: refund must be an integer between 1 and 9007199254740991"
            }
            Self::Ttl => {
                c"ERR invalid rate limit policy: ttl_ms must be an integer between 1 and 3153600000000"
            }
            Self::Id => c"ERR invalid rate limit policy: id must have 1 to 128 bytes",
            Self::KeyCount => {
                c"ERR invalid rate limit policy: numkeys must be an integer between 1 and 32"
            }
            Self::SameKeys => c"ERR invalid rate limit policy: keys must differ",
            Self::FillTime => {
                c"ERR invalid rate limit policy: capacity * period_ms / refill must be at most 3153600000000"
            }
            Self::Syntax => c"ERR syntax error",
            Self::WrongType => {
                c"WRONGTYPE Operation against a key holding the wrong kind of value"
            }
            Self::InvalidState => c"INVALIDSTATE invalid counter state, key left unchanged",
            Self::Clock => c"ERR server clock out of range",
            Self::OutOfMemory => {
                c"OOM command not allowed when used memory > 'maxmemory'."
            }
            Self::Internal => c"ERR internal error, please report it",
        }
    }

    /// This error, of the limit at an index (from 0) of so many.
    #[cold]
    #[must_use]
    pub fn of(self, index: usize, count: usize) -> ErrorOf {
        ErrorOf {
            error: self,
            number: if count > 1 {
                index.saturating_add(1)
            } else {
                0
            },
        }
    }
}

/// An error of a call with several limits, and which of them it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorOf {
    /// What is wrong.
    pub error: Error,
    /// The number of the limit, from 1; 0 if it is of no limit, or of the only one.
    number: usize,
}

/// An error text that names a limit, with a NUL behind it.
pub type NumberedText = ArrayVec<u8, 160>;

impl ErrorOf {
    /// The reply, with the number of the limit where it says more than the error's own text;
    /// `None` where that is all there is to say.
    #[must_use]
    pub fn numbered_text(self) -> Option<NumberedText> {
        const POLICY: &[u8] = b"ERR invalid rate limit policy";
        let own = self.error.text().to_bytes_with_nul();
        let mut buffer = itoa::Buffer::new();
        let number = match self.number {
            0 => return None,
            number => buffer.format(number).as_bytes(),
        };
        let parts = match self.error {
            Error::InvalidState => [
                b"INVALIDSTATE invalid counter state of key ".as_slice(),
                number,
                b", all keys left unchanged\0",
            ],
            _ => [
                b"ERR invalid rate limit policy ",
                number,
                own.strip_prefix(POLICY)?,
            ],
        };
        let mut text = NumberedText::new();
        for part in parts {
            text.try_extend_from_slice(part).ok()?;
        }
        Some(text)
    }
}

impl From<Error> for ErrorOf {
    fn from(error: Error) -> Self {
        Self { error, number: 0 }
    }
}

/// The key's state is not what this command could have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidState;

impl From<InvalidState> for Error {
    fn from(InvalidState: InvalidState) -> Self {
        Self::InvalidState
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{MAX_ID, MAX_LEASES, MAX_LIMITS, MAX_LOG_LIMIT, MAX_SPAN_MS, MAX_UNITS};

    #[test]
    fn texts_name_the_ranges_that_the_parser_checks() {
        for (error, argument, max) in [
            (Error::Limit, "limit", MAX_UNITS),
            (Error::EntryLimit, "limit", MAX_LOG_LIMIT),
            (Error::Window, "window_ms", MAX_SPAN_MS),
            (Error::Capacity, "capacity", MAX_UNITS),
            (Error::Refill, "refill", MAX_UNITS),
            (Error::Period, "period_ms", MAX_SPAN_MS),
            (Error::Cost, "cost", MAX_UNITS),
            (Error::UpTo, "upto", MAX_UNITS),
            (Error::Refund, "refund", MAX_UNITS),
            (Error::EntryLimit, "limit", MAX_LEASES),
            (Error::Ttl, "ttl_ms", MAX_SPAN_MS),
            (
                Error::KeyCount,
                "numkeys",
                u64::try_from(MAX_LIMITS).unwrap(),
            ),
        ] {
            let text = format!(
                "ERR invalid rate limit policy: {argument} must be an integer between 1 and {max}"
            );
            assert_eq!(error.text().to_str(), Ok(text.as_str()));
        }
        let id = format!("ERR invalid rate limit policy: id must have 1 to {MAX_ID} bytes");
        assert_eq!(Error::Id.text().to_str(), Ok(id.as_str()));
        let fill = format!(
            "ERR invalid rate limit policy: capacity * period_ms / refill must be at most {MAX_SPAN_MS}"
        );
        assert_eq!(Error::FillTime.text().to_str(), Ok(fill.as_str()));
    }
}
