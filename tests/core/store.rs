//! The key in memory, spoken to in raw numbers.

use redis_rl::clock::Timestamp;
use redis_rl::error::InvalidState;
use redis_rl::limiter::fixed::Counter;
use redis_rl::limiter::log::{self, Entries};
use redis_rl::limiter::slide::Windows;
use redis_rl::limiter::text::State;
use redis_rl::limiter::token::Level;
use redis_rl::policy::{
    self, ExactPolicy, FixedPolicy, MAX_LEASES, MAX_LOG_LIMIT, SlidePolicy, Span, TokenPolicy,
    Units,
};

use crate::call::{FIRST, LAST, MAX_SPAN_MS, MS, Policy, Reply};
pub use crate::key::Key;
use crate::key::Value;
use crate::limit::{Lease, Limit};
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

    /// A key that holds leases: who holds one, and until when.
    pub fn leases_of(members: &[(u16, u64)], expire_at_ms: u64) -> Self {
        let member = |(id, end_ms): &(u16, u64)| (id.to_be_bytes().to_vec(), *end_ms);
        Self {
            value: Value::Leases(members.iter().map(member).collect()),
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

    /// Who holds a lease until when, by id; nobody if it is no such key.
    pub fn members(&self) -> Vec<(u16, u64)> {
        let Value::Leases(leases) = &self.value else {
            return Vec::new();
        };
        let member = |(id, end_ms): (&Vec<u8>, &u64)| {
            let id = id.as_slice().try_into().unwrap();
            (u16::from_be_bytes(id), *end_ms)
        };
        leases.iter().map(member).collect()
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
        self.ask(&Limit::Units(policy, word.into()), now_us)
    }

    /// What a call would be told, with nothing taken.
    pub fn peek(
        &self,
        policy: Policy,
        now_us: u64,
        word: impl Into<Word>,
    ) -> Result<Reply, InvalidState> {
        self.ask_look(&Limit::Units(policy, word.into()), now_us)
    }

    /// One call on leases.
    pub fn hold(&mut self, lease: Lease, now_us: u64) -> Result<Reply, InvalidState> {
        self.ask(&Limit::Lease(lease), now_us)
    }

    /// What a call on leases would be told, with nothing taken.
    pub fn peek_hold(&self, lease: Lease, now_us: u64) -> Result<Reply, InvalidState> {
        self.ask_look(&Limit::Lease(lease), now_us)
    }

    /// One call of any kind.
    pub fn ask(&mut self, limit: &Limit, now_us: u64) -> Result<Reply, InvalidState> {
        let (decision, _) = self.decide(&limit.call(), timestamp(now_us))?;
        Ok(decision.reply())
    }

    fn ask_look(&self, limit: &Limit, now_us: u64) -> Result<Reply, InvalidState> {
        let decision = self.look(&limit.call(), timestamp(now_us))?;
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
            Value::Leases(_) => panic!("leases count no units"),
        }
        assert!(self.expire_at_ms.is_some(), "a key without a TTL");
    }

    /// Fails unless a later call on leases can read what is stored.
    pub fn assert_valid_leases(&self) {
        let Value::Leases(leases) = &self.value else {
            assert_eq!(*self, Self::default());
            return;
        };
        let ends_ms = FIRST / MS..=LAST / MS + MAX_SPAN_MS;
        assert!(leases.values().all(|end_ms| ends_ms.contains(end_ms)));
        assert!((1..=MAX_LEASES).contains(&u64::try_from(leases.len()).unwrap()));
        let last_ms = leases.values().max();
        assert!(self.expire_at_ms.as_ref() >= last_ms, "{self:?}");
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
