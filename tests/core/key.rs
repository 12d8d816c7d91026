//! A key in memory, on which the core decides, and to which its changes are applied just as the
//! shell does. The fuzzer has it too.

use redis_rl::clock::Timestamp;
use redis_rl::decision::Decision;
use redis_rl::error::InvalidState;
use redis_rl::limiter::Limiter;
use redis_rl::limiter::fixed::{Counter, FixedWindow};
use redis_rl::limiter::log::{self, Entries, Seen, SlidingLog};
use redis_rl::limiter::slide::SlidingWindow;
use redis_rl::limiter::text::{self, State, Stored, TextLimiter};
use redis_rl::limiter::token::TokenBucket;
use redis_rl::policy::{Charge, ExactPolicy, Policy};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    pub value: Value,
    pub expire_at_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Value {
    #[default]
    Nothing,
    Text(Vec<u8>),
    Log(Vec<Timestamp>),
}

/// What a call is told, and what it stores.
pub type Judgement<C> = (Decision, Option<C>);

/// One call on a text.
pub fn judge<L: TextLimiter>(
    policy: L::Policy,
    stored: Option<Stored<'_>>,
    now: Timestamp,
    charge: Charge,
) -> Result<Judgement<text::Change<L::State>>, InvalidState> {
    let mut limiter = L::at(policy, stored, now)?;
    let decision = limiter.decide(charge)?;
    let change = limiter.stores(&decision).then(|| limiter.change());
    Ok((decision, change))
}

/// One call on a log.
pub fn judge_log(
    policy: ExactPolicy,
    stored: Option<(&mut impl Entries, Option<u64>)>,
    now: Timestamp,
    charge: Charge,
) -> Result<Judgement<log::Change>, InvalidState> {
    let mut seen = Seen::new();
    let mut limiter = SlidingLog::at(policy, stored, now, &mut seen)?;
    let decision = limiter.decide(charge)?;
    let change = limiter.stores(&decision).then(|| limiter.change());
    Ok((decision, change))
}

impl Key {
    /// Whether a call at an instant finds the key. One whose TTL has passed counts as absent.
    pub fn is_live_at(&self, now_ms: u64) -> bool {
        self.value != Value::Nothing && self.expire_at_ms.is_none_or(|at| at >= now_ms)
    }

    /// Decides one call and applies it. Tells whether anything was stored.
    pub fn decide(
        &mut self,
        policy: Policy,
        now: Timestamp,
        charge: Charge,
    ) -> Result<(Decision, bool), InvalidState> {
        if !self.is_live_at(now.as_ms()) {
            // The server deletes it.
            *self = Self::default();
        }
        match policy {
            Policy::Fixed(policy) => self.apply::<FixedWindow>(policy, now, charge),
            Policy::Token(policy) => self.apply::<TokenBucket>(policy, now, charge),
            Policy::Slide(policy) => self.apply::<SlidingWindow>(policy, now, charge),
            Policy::Exact(policy) => self.apply_log(policy, now, charge),
        }
    }

    /// What a call would be told, with nothing taken.
    pub fn look(
        &self,
        policy: Policy,
        now: Timestamp,
        charge: Charge,
    ) -> Result<Decision, InvalidState> {
        let absent = Self::default();
        let key = if self.is_live_at(now.as_ms()) {
            self
        } else {
            &absent
        };
        match policy {
            Policy::Fixed(policy) => FixedWindow::at(policy, key.stored(), now)?.peek(charge),
            Policy::Token(policy) => TokenBucket::at(policy, key.stored(), now)?.peek(charge),
            Policy::Slide(policy) => SlidingWindow::at(policy, key.stored(), now)?.peek(charge),
            Policy::Exact(policy) => {
                let mut log = key.value.clone();
                let (stored, mut seen) = (log.entries(key.expire_at_ms), Seen::new());
                SlidingLog::at(policy, stored, now, &mut seen)?.peek(charge)
            }
        }
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
        charge: Charge,
    ) -> Result<(Decision, bool), InvalidState> {
        let (decision, change) = judge::<L>(policy, self.stored(), now, charge)?;
        if let Some(change) = &change {
            self.store_text(change, charge);
        }
        Ok((decision, change.is_some()))
    }

    fn store_text<S: State>(&mut self, change: &text::Change<S>, charge: Charge) {
        let text::Change::Set {
            state,
            expire_at_ms,
            increment,
        } = change
        else {
            assert_ne!(self.value, Value::Nothing, "there is no key to delete");
            *self = Self::default();
            return;
        };
        let text = state.encode();
        if *increment != 0 {
            // A replica is told `INCRBY` or `DECRBY`, which must come to the same.
            let Value::Text(before) = &self.value else {
                panic!("nothing to increment")
            };
            let count = Counter::decode(before).unwrap().0;
            let count = count.checked_add_signed(*increment).unwrap();
            assert_eq!(Counter::decode(&text), Ok(Counter(count)));
            assert_eq!(*expire_at_ms, None, "INCRBY keeps the expiry");
        }
        let value = Value::Text(text.to_vec());
        // A count or a debt that is as large as can be stays as it is when more is forced.
        assert!(
            value != self.value || expire_at_ms.is_some() || matches!(charge, Charge::Force(_)),
            "what is stored already"
        );
        self.value = value;
        self.set_expiry(*expire_at_ms);
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
        charge: Charge,
    ) -> Result<(Decision, bool), InvalidState> {
        let log = self.value.entries(self.expire_at_ms);
        let (decision, change) = judge_log(policy, log, now, charge)?;
        if let Some(change) = &change {
            self.store_log(change);
        }
        Ok((decision, change.is_some()))
    }

    fn store_log(&mut self, change: &log::Change) {
        if self.value == Value::Nothing {
            self.value = Value::Log(Vec::new());
        }
        let Value::Log(entries) = &mut self.value else {
            panic!("WRONGTYPE")
        };
        let len = entries.len();
        let [oldest, newest, appended] =
            [change.oldest, change.newest, change.appended].map(|n| usize::try_from(n).unwrap());
        assert!(oldest + newest <= len, "{change:?} of {len} entries");
        assert!(oldest + newest + appended > 0, "there is nothing to change");
        entries.drain(..oldest);
        entries.truncate(len - oldest - newest);
        entries.extend(core::iter::repeat_n(change.time, appended));
        assert_eq!(
            entries.len() > len,
            change.lengthens(),
            "memory is asked for"
        );
        if entries.is_empty() {
            // The server deletes a list with its last entry.
            assert_eq!(change.expire_at_ms, None, "no key to keep");
            *self = Self::default();
            return;
        }
        self.set_expiry(change.expire_at_ms);
    }
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
