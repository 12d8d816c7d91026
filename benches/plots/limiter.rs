//! A policy, its key in memory, and the replies to calls at instants that are µs after its start.

use redis_rl::clock::Timestamp;
use redis_rl::decision::Decision;
use redis_rl::request::{self, AnyCall};

use crate::key::Key;

/// In µs.
pub const MS: u32 = 1_000;
pub const SECOND: u32 = 1_000 * MS;
/// A moment at which windows of a minute and of ten seconds begin, in µs.
const T0_US: u64 = 1_779_331_200_000_000;

pub struct Limiter {
    call: AnyCall<'static>,
    key: Key,
}

/// Of the five integers, those that pictures show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub admitted: bool,
    pub remaining: u32,
    pub retry_after_us: u32,
    pub reset_after_us: u32,
}

impl Limiter {
    /// A policy as the words that `RL.PEEK` takes: `TOKEN 10 1 1000`.
    pub fn new(policy: &'static str) -> Self {
        let words: Vec<&[u8]> = policy.split(' ').map(str::as_bytes).collect();
        let call = request::peek(words.into_iter()).expect(policy);
        let key = Key::default();
        Self { call, key }
    }

    /// One call.
    pub fn call(&mut self, at_us: u32) -> Reply {
        let now = instant(at_us);
        let (decision, _) = self.key.decide(&self.call, now).expect("a valid key");
        decision.into()
    }

    /// What a call would be answered.
    pub fn look(&self, at_us: u32) -> Reply {
        let looked = self.key.look(&self.call, instant(at_us));
        looked.expect("a valid key").into()
    }
}

fn instant(at_us: u32) -> Timestamp {
    Timestamp::from_us(T0_US + u64::from(at_us)).expect("a clock in range")
}

impl From<Decision> for Reply {
    fn from(decision: Decision) -> Self {
        let [allowed, _, remaining, retry_after_ms, reset_after_ms] = decision
            .reply()
            .map(|number| u32::try_from(number).expect("a small policy, and no cost above it"));
        Self {
            admitted: allowed == 1,
            remaining,
            retry_after_us: retry_after_ms * MS,
            reset_after_us: reset_after_ms * MS,
        }
    }
}
