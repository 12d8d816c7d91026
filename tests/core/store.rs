//! The key in memory, spoken to in raw numbers.

use redis_rl::clock::Timestamp;
use redis_rl::error::InvalidState;
use redis_rl::limiter::fixed::Counter;
use redis_rl::limiter::log::{self, Entries};
use redis_rl::limiter::slide::Windows;
use redis_rl::limiter::text::State;
use redis_rl::limiter::token::Level;
use redis_rl::policy::{
    self, ExactPolicy, FixedPolicy, MAX_LOG_LIMIT, SlidePolicy, Span, TokenPolicy, Units,
};

use crate::call::{Policy, Reply};
pub use crate::key::Key;
use crate::key::Value;
use crate::word::Word;

/// A policy as the core takes it.
pub fn valid(policy: Policy) -> policy::Policy {
    let windowed = |limit, window_ms| SlidePolicy {
        limit: units(limit),
        window: span(window_ms),
    };
    match policy {
        Policy::Fixed { limit, window_ms } => {
            let SlidePolicy { limit, window } = windowed(limit, window_ms);
            policy::Policy::Fixed(FixedPolicy { limit, window })
        }
        Policy::Token {
            capacity,
            refill,
            period_ms,
        } => policy::Policy::Token(
            TokenPolicy::new(units(capacity), units(refill), span(period_ms)).unwrap(),
        ),
        Policy::Slide { limit, window_ms } => policy::Policy::Slide(windowed(limit, window_ms)),
        Policy::Exact { limit, window_ms } => {
            policy::Policy::Exact(ExactPolicy::new(windowed(limit, window_ms)).unwrap())
        }
    }
}

impl Key {
    /// A key that holds a text.
    pub fn text(text: &str, expire_at_ms: u64) -> Self {
        Self {
            value: Value::Text(text.as_bytes().to_vec()),
            expire_at_ms: Some(expire_at_ms),
        }
    }

    /// A key that holds a list of instants.
    pub fn log(entries_us: &[u64], expire_at_ms: u64) -> Self {
        Self {
            value: Value::Log(entries_us.iter().map(|us| timestamp(*us)).collect()),
            expire_at_ms: Some(expire_at_ms),
        }
    }

    pub fn expire_at_ms(&self) -> Option<u64> {
        self.expire_at_ms
    }

    /// What a text key holds; empty if it is no such key.
    pub fn get(&self) -> &str {
        match &self.value {
            Value::Text(text) => core::str::from_utf8(text).unwrap(),
            _ => "",
        }
    }

    /// What a log holds; nothing if it is no such key.
    pub fn entries_us(&self) -> Vec<u64> {
        match &self.value {
            Value::Log(entries) => entries.iter().map(|entry| entry.as_us()).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether a call at an instant finds the key. One whose TTL has passed counts as absent.
    pub fn is_live(&self, now_us: u64) -> bool {
        self.is_live_at(now_us / 1_000)
    }

    /// One call.
    pub fn call(
        &mut self,
        policy: Policy,
        now_us: u64,
        word: impl Into<Word>,
    ) -> Result<Reply, InvalidState> {
        let charge = word.into().charge();
        let (decision, _) = self.decide(valid(policy), timestamp(now_us), charge)?;
        Ok(decision.reply())
    }

    /// What a call would be told, with nothing taken.
    pub fn peek(
        &self,
        policy: Policy,
        now_us: u64,
        word: impl Into<Word>,
    ) -> Result<Reply, InvalidState> {
        let charge = word.into().charge();
        let decision = self.look(valid(policy), timestamp(now_us), charge)?;
        Ok(decision.reply())
    }

    /// Fails unless a later call of the same policy can read what is stored, and would write it
    /// the same.
    pub fn assert_valid(&self, policy: Policy) {
        match &self.value {
            Value::Nothing => return,
            Value::Text(text) => {
                let again = match policy {
                    Policy::Fixed { .. } => Counter::decode(text).unwrap().encode(),
                    Policy::Token { .. } => Level::decode(text).unwrap().encode(),
                    Policy::Slide { .. } => Windows::decode(text).unwrap().encode(),
                    Policy::Exact { .. } => panic!("a log is no text"),
                };
                assert_eq!(again.as_slice(), text.as_slice());
            }
            Value::Log(entries) => {
                assert!(entries.is_sorted(), "{entries:?}");
                assert!((1..=MAX_LOG_LIMIT).contains(&entries.count()));
                for alike in entries.chunk_by(|a, b| a == b) {
                    let entry = &alike[0];
                    assert_eq!(log::decode_entry(&log::encode_entry(*entry)), Ok(*entry));
                }
            }
        }
        assert!(self.expire_at_ms.is_some(), "a key without a TTL");
    }
}

pub fn timestamp(us: u64) -> Timestamp {
    Timestamp::from_us(us).unwrap()
}

pub fn units(n: u64) -> Units {
    Units::new(n).unwrap()
}

pub fn span(ms: u64) -> Span {
    Span::from_ms(ms).unwrap()
}
