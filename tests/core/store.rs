//! A key in memory, on which the code under test decides, and to which its outcome is applied just
//! as the shell does.

use redis_rl::clock::Timestamp;
use redis_rl::decision::Decision;
use redis_rl::error::InvalidState;
use redis_rl::limiter::Limiter;
use redis_rl::limiter::fixed::{Counter, FixedWindow};
use redis_rl::limiter::log::{self, Entries, Seen, SlidingLog};
use redis_rl::limiter::slide::{SlidingWindow, Windows};
use redis_rl::limiter::text::{self, State, Stored, TextLimiter};
use redis_rl::limiter::token::{Level, TokenBucket};
use redis_rl::policy::{
    self, ExactPolicy, FixedPolicy, MAX_LOG_LIMIT, SlidePolicy, Span, TokenPolicy, Units,
};

use crate::call::{Policy, Reply};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    value: Value,
    expire_at_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Value {
    #[default]
    Nothing,
    Text(Vec<u8>),
    Log(Vec<Timestamp>),
}

impl Value {
    /// The log that it is, and the expiry of its key.
    fn entries(&mut self, expire_at_ms: Option<u64>) -> Option<(&mut Vec<Timestamp>, Option<u64>)> {
        match self {
            Self::Nothing => None,
            Self::Log(entries) => Some((entries, expire_at_ms)),
            Self::Text(_) => panic!("WRONGTYPE"),
        }
    }
}

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

/// What a call is told, and what it stores.
pub type Judgement<C> = (Decision, Option<C>);

/// One call on a text.
pub fn judge<L: TextLimiter>(
    policy: L::Policy,
    stored: Option<Stored<'_>>,
    now: Timestamp,
    cost: Units,
) -> Result<Judgement<text::Change<L::State>>, InvalidState> {
    let mut limiter = L::at(policy, stored, now)?;
    let decision = limiter.decide(cost)?;
    let change = limiter.stores(&decision).then(|| limiter.change());
    Ok((decision, change))
}

/// The same of a log.
pub fn judge_log(
    policy: ExactPolicy,
    stored: Option<(&mut impl Entries, Option<u64>)>,
    now: Timestamp,
    cost: Units,
) -> Result<Judgement<log::Change>, InvalidState> {
    let mut seen = Seen::new();
    let mut limiter = SlidingLog::at(policy, stored, now, &mut seen)?;
    let decision = limiter.decide(cost)?;
    let change = limiter.stores(&decision).then(|| limiter.change());
    Ok((decision, change))
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
        self.value != Value::Nothing && self.expire_at_ms.is_none_or(|at| at >= now_us / 1_000)
    }

    /// One call.
    pub fn call(&mut self, policy: Policy, now_us: u64, cost: u64) -> Result<Reply, InvalidState> {
        let (now, cost) = (timestamp(now_us), units(cost));
        if !self.is_live(now_us) {
            // The server deletes it.
            *self = Self::default();
        }
        match valid(policy) {
            policy::Policy::Fixed(policy) => self.apply::<FixedWindow>(policy, now, cost),
            policy::Policy::Token(policy) => self.apply::<TokenBucket>(policy, now, cost),
            policy::Policy::Slide(policy) => self.apply::<SlidingWindow>(policy, now, cost),
            policy::Policy::Exact(policy) => self.apply_log(policy, now, cost),
        }
    }

    /// What a call would be told, with nothing taken.
    pub fn peek(&self, policy: Policy, now_us: u64, cost: u64) -> Result<Reply, InvalidState> {
        let (now, cost) = (timestamp(now_us), units(cost));
        let absent = Self::default();
        let key = if self.is_live(now_us) { self } else { &absent };
        let decision = match valid(policy) {
            policy::Policy::Fixed(policy) => FixedWindow::at(policy, key.stored(), now)?.peek(cost),
            policy::Policy::Token(policy) => TokenBucket::at(policy, key.stored(), now)?.peek(cost),
            policy::Policy::Slide(policy) => {
                SlidingWindow::at(policy, key.stored(), now)?.peek(cost)
            }
            policy::Policy::Exact(policy) => {
                let mut log = key.value.clone();
                let (stored, mut seen) = (log.entries(key.expire_at_ms), Seen::new());
                SlidingLog::at(policy, stored, now, &mut seen)?.peek(cost)
            }
        };
        Ok(decision?.reply())
    }

    fn stored(&self) -> Option<Stored<'_>> {
        match &self.value {
            Value::Nothing => None,
            Value::Text(text) => Some(Stored {
                text,
                expire_at_ms: self.expire_at_ms,
            }),
            Value::Log(_) => panic!("WRONGTYPE"),
        }
    }

    fn apply<L: TextLimiter>(
        &mut self,
        policy: L::Policy,
        now: Timestamp,
        cost: Units,
    ) -> Result<Reply, InvalidState> {
        let (decision, change) = judge::<L>(policy, self.stored(), now, cost)?;
        if let Some(change) = change {
            self.store_text(&change);
        }
        Ok(decision.reply())
    }

    fn store_text<S: State>(&mut self, change: &text::Change<S>) {
        let text = change.state.encode();
        if change.increment > 0 {
            // A replica is told `INCRBY`, which must come to the same.
            let Value::Text(before) = &self.value else {
                panic!("nothing to increment")
            };
            let count = Counter::decode(before).unwrap().0 + change.increment;
            assert_eq!(Counter::decode(&text), Ok(Counter(count)));
            assert_eq!(change.expire_at_ms, None, "INCRBY keeps the expiry");
        }
        self.value = Value::Text(text.to_vec());
        self.set_expiry(change.expire_at_ms);
    }

    /// Setting one costs a server more than any other step of a call, so none is set in vain.
    fn set_expiry(&mut self, expire_at_ms: Option<u64>) {
        if expire_at_ms.is_some() {
            assert_ne!(expire_at_ms, self.expire_at_ms, "the expiry at hand");
            self.expire_at_ms = expire_at_ms;
        }
    }

    fn apply_log(
        &mut self,
        policy: ExactPolicy,
        now: Timestamp,
        cost: Units,
    ) -> Result<Reply, InvalidState> {
        let log = self.value.entries(self.expire_at_ms);
        let (decision, change) = judge_log(policy, log, now, cost)?;
        if let Some(change) = change {
            self.store_log(&change);
        }
        Ok(decision.reply())
    }

    fn store_log(&mut self, change: &log::Change) {
        if self.value == Value::Nothing {
            self.value = Value::Log(Vec::new());
        }
        let Value::Log(entries) = &mut self.value else {
            panic!("WRONGTYPE")
        };
        let len = entries.len();
        let [trimmed, retimed, appended] =
            [change.trimmed, change.retimed, change.appended].map(|n| usize::try_from(n).unwrap());
        assert!(trimmed + retimed <= len, "{change:?} of {len} entries");
        entries.drain(..trimmed);
        entries.truncate(len - trimmed - retimed);
        entries.extend(core::iter::repeat_n(change.time, retimed + appended));
        assert_eq!(
            entries.len() > len,
            change.lengthens(),
            "memory is asked for"
        );
        self.set_expiry(change.expire_at_ms);
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
                assert!((1..=MAX_LOG_LIMIT).contains(&Entries::len(entries)));
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
