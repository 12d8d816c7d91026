//! A key in memory, on which the core decides, and to which its changes are applied just as the
//! shell does. The fuzzer has it too.

use std::collections::BTreeMap;

use redis_rl::clock::Timestamp;
use redis_rl::decision::Decision;
use redis_rl::error::{Error, InvalidState};
use redis_rl::limiter::Limiter;
use redis_rl::limiter::fixed::{Counter, FixedWindow};
use redis_rl::limiter::lease::{self, LeaseSet};
use redis_rl::limiter::log::{self, Entries, Seen, SlidingLog};
use redis_rl::limiter::slide::{SlidingWindow, Windows};
use redis_rl::limiter::text::{self, State, Stored, TextLimiter};
use redis_rl::limiter::token::{Level, TokenBucket};
use redis_rl::policy::{Charge, ExactPolicy, Policy};
use redis_rl::request::{AnyCall, Call, LeaseCall};

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
    /// Each id, and when its lease ends.
    Leases(BTreeMap<Vec<u8>, u64>),
}

/// What a call is told, and what it stores.
pub type Judgement<C> = (Decision, Option<C>);

/// What is to be stored of a call of any kind.
#[derive(Clone, Debug)]
pub enum Change {
    Counter(text::Change<Counter>),
    Level(text::Change<Level>),
    Windows(text::Change<Windows>),
    Log(log::Change),
    /// And whether memory is asked for.
    Leases(lease::Change, bool),
}

/// What one of several limits comes to, before it is known what the others say.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What a look tells: the answer if the call is refused.
    pub alone: Decision,
    /// The answer of its own command: the answer if the call is admitted.
    pub together: Decision,
    /// What is stored if the call is admitted.
    pub change: Option<Change>,
    /// What is stored if the call is refused, but not for ever.
    pub step: Option<Change>,
}

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

/// A judgement whose change is one of any kind.
fn any<C>((decision, change): Judgement<C>, into: impl Fn(C) -> Change) -> Judgement<Change> {
    (decision, change.map(into))
}

impl Key {
    /// Whether a call at an instant finds the key. One whose TTL has passed counts as absent.
    pub fn is_live_at(&self, now_ms: u64) -> bool {
        self.value != Value::Nothing && self.expire_at_ms.is_none_or(|at| at >= now_ms)
    }

    /// The server deletes a key whose TTL has passed.
    pub fn expire(&mut self, now: Timestamp) {
        if !self.is_live_at(now.as_ms()) {
            *self = Self::default();
        }
    }

    /// Decides one call and applies it. Tells whether anything was stored.
    pub fn decide(
        &mut self,
        call: &AnyCall<'_>,
        now: Timestamp,
    ) -> Result<(Decision, bool), InvalidState> {
        self.expire(now);
        let (decision, change) = self.judge(call, now)?;
        if let Some(change) = &change {
            self.store(change, call, now);
        }
        Ok((decision, change.is_some()))
    }

    fn judge(
        &mut self,
        call: &AnyCall<'_>,
        now: Timestamp,
    ) -> Result<Judgement<Change>, InvalidState> {
        let Call { policy, charge } = match call {
            AnyCall::Units(call) => *call,
            AnyCall::Lease(call) => {
                return self.with_leases(call, now, |mut set| {
                    let decision = set.decide()?;
                    let lengthens = set.lengthens();
                    let change = set.change();
                    Ok((
                        decision,
                        change.map(|change| Change::Leases(change, lengthens)),
                    ))
                });
            }
        };
        Ok(match policy {
            Policy::Fixed(policy) => any(
                judge::<FixedWindow>(policy, self.stored(), now, charge)?,
                Change::Counter,
            ),
            Policy::Token(policy) => any(
                judge::<TokenBucket>(policy, self.stored(), now, charge)?,
                Change::Level,
            ),
            Policy::Slide(policy) => any(
                judge::<SlidingWindow>(policy, self.stored(), now, charge)?,
                Change::Windows,
            ),
            Policy::Exact(policy) => any(
                judge_log(policy, self.value.entries(self.expire_at_ms), now, charge)?,
                Change::Log,
            ),
        })
    }

    /// What a call comes to as one of several. The key is one that is live.
    pub fn plan(&mut self, call: &AnyCall<'_>, now: Timestamp) -> Result<Plan, InvalidState> {
        let alone = self.look(call, now)?;
        let step = self.step(call, now)?;
        let (together, change) = if call.can_be_refused() && !alone.is_admitted() {
            (alone, None)
        } else {
            self.judge(call, now)?
        };
        Ok(Plan {
            alone,
            together,
            change,
            step,
        })
    }

    /// What is stored of a look after a step back of the clock: the stored time, moved.
    fn step(&mut self, call: &AnyCall<'_>, now: Timestamp) -> Result<Option<Change>, InvalidState> {
        fn moved<L: Limiter>(limiter: &L) -> Option<L::Change> {
            limiter.stepped_back().then(|| limiter.change())
        }
        let AnyCall::Units(Call { policy, .. }) = call else {
            return Ok(None);
        };
        Ok(match *policy {
            Policy::Fixed(policy) => {
                moved(&FixedWindow::at(policy, self.stored(), now)?).map(Change::Counter)
            }
            Policy::Token(policy) => {
                moved(&TokenBucket::at(policy, self.stored(), now)?).map(Change::Level)
            }
            Policy::Slide(policy) => {
                moved(&SlidingWindow::at(policy, self.stored(), now)?).map(Change::Windows)
            }
            Policy::Exact(policy) => {
                let (stored, mut seen) = (self.value.entries(self.expire_at_ms), Seen::new());
                moved(&SlidingLog::at(policy, stored, now, &mut seen)?).map(Change::Log)
            }
        })
    }

    /// What a call would be told, with nothing taken.
    pub fn look(&self, call: &AnyCall<'_>, now: Timestamp) -> Result<Decision, InvalidState> {
        let mut key = self.clone();
        key.expire(now);
        let Call { policy, charge } = match call {
            AnyCall::Units(call) => *call,
            AnyCall::Lease(call) => return key.with_leases(call, now, |mut set| set.peek()),
        };
        match policy {
            Policy::Fixed(policy) => FixedWindow::at(policy, key.stored(), now)?.peek(charge),
            Policy::Token(policy) => TokenBucket::at(policy, key.stored(), now)?.peek(charge),
            Policy::Slide(policy) => SlidingWindow::at(policy, key.stored(), now)?.peek(charge),
            Policy::Exact(policy) => {
                let (stored, mut seen) = (key.value.entries(key.expire_at_ms), Seen::new());
                SlidingLog::at(policy, stored, now, &mut seen)?.peek(charge)
            }
        }
    }

    /// The stored time that a clock may be behind, in µs, as a call of this kind reads it.
    pub fn stored_us(&self, call: &AnyCall<'_>) -> Option<u64> {
        match (call, &self.value) {
            (AnyCall::Units(call), Value::Text(text)) => match call.policy {
                Policy::Token(_) => Some(Level::decode(text).ok()?.time.as_us()),
                Policy::Slide(_) => Some(Windows::decode(text).ok()?.start_ms * 1_000),
                Policy::Fixed(_) | Policy::Exact(_) => None,
            },
            (_, Value::Log(log)) => log.last().map(|newest| newest.as_us()),
            _ => None,
        }
    }

    /// When the lease of a call's id ends.
    pub fn own_end_ms(&self, call: &LeaseCall<'_>) -> Option<u64> {
        self.leases()
            .and_then(|leases| leases.get(call.id))
            .copied()
    }

    fn stored(&self) -> Option<Stored<'_>> {
        match &self.value {
            Value::Nothing => None,
            Value::Text(text) => Some(Stored {
                text,
                expire_at_ms: self.expire_at_ms,
            }),
            Value::Log(_) | Value::Leases(_) => panic!("WRONGTYPE"),
        }
    }

    fn leases(&self) -> Option<&BTreeMap<Vec<u8>, u64>> {
        match &self.value {
            Value::Nothing => None,
            Value::Leases(leases) => Some(leases),
            Value::Text(_) | Value::Log(_) => panic!("WRONGTYPE"),
        }
    }

    /// Judges the leases as the call of one id sees them.
    fn with_leases<T>(
        &self,
        call: &LeaseCall<'_>,
        now: Timestamp,
        judge: impl FnOnce(LeaseSet<'_, Vec<u64>>) -> Result<T, Error>,
    ) -> Result<T, InvalidState> {
        let leases = self.leases();
        let mut ends_ms: Vec<u64> = leases
            .into_iter()
            .flat_map(BTreeMap::values)
            .copied()
            .collect();
        ends_ms.sort_unstable();
        let stored = leases.map(|_| lease::Stored {
            leases: &mut ends_ms,
            own_end_ms: self.own_end_ms(call),
            expire_at_ms: self.expire_at_ms,
        });
        let told = LeaseSet::at(call.policy, call.hold, stored, now).and_then(judge);
        told.map_err(|error| {
            assert_eq!(error, Error::InvalidState);
            InvalidState
        })
    }

    /// Makes a change that a call came to.
    pub fn store(&mut self, change: &Change, call: &AnyCall<'_>, now: Timestamp) {
        match (change, call) {
            (Change::Counter(change), _) => self.store_text(change, call),
            (Change::Level(change), _) => self.store_text(change, call),
            (Change::Windows(change), _) => self.store_text(change, call),
            (Change::Log(change), _) => self.store_log(change),
            (Change::Leases(change, lengthens), AnyCall::Lease(call)) => {
                self.store_leases(change, *lengthens, call.id, now);
            }
            (Change::Leases(..), AnyCall::Units(_)) => panic!("no call on leases"),
        }
    }

    fn store_text<S: State>(&mut self, change: &text::Change<S>, call: &AnyCall<'_>) {
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
            value != self.value || expire_at_ms.is_some() || call.is_forced(),
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

    fn store_leases(&mut self, change: &lease::Change, lengthens: bool, id: &[u8], now: Timestamp) {
        if self.value == Value::Nothing {
            self.value = Value::Leases(BTreeMap::new());
        }
        let Value::Leases(leases) = &mut self.value else {
            panic!("WRONGTYPE")
        };
        let before = leases.len();
        // The server removes all whose score is at most now; no call of it where none are told.
        leases.retain(|_, end_ms| *end_ms > now.as_ms());
        let over = u64::try_from(before - leases.len()).unwrap();
        match change {
            lease::Change::Delete => {
                assert!(leases.remove(id).is_some(), "its own lease is live");
                assert!(leases.is_empty(), "others are live: {leases:?}");
                assert!(!lengthens, "memory is asked for");
                *self = Self::default();
                return;
            }
            lease::Change::Release { .. } => {
                assert_eq!(change.over(), over, "leases that are over");
                assert!(leases.remove(id).is_some(), "its own lease is live");
                // The server deletes a set with its last member: that is told as such.
                assert!(!leases.is_empty(), "no lease is left");
            }
            lease::Change::Hold { end_ms, .. } => {
                assert_eq!(change.over(), over, "leases that are over");
                leases.insert(id.to_vec(), *end_ms);
            }
        }
        assert_eq!(leases.len() > before, lengthens, "memory is asked for");
        if let lease::Change::Hold { expire_at_ms, .. } = change {
            self.set_expiry(*expire_at_ms);
        }
        assert!(self.expire_at_ms.is_some(), "a key without a TTL");
    }
}

impl Value {
    /// The log that it is, and the expiry of its key.
    fn entries(&mut self, expire_at_ms: Option<u64>) -> Option<(&mut Vec<Timestamp>, Option<u64>)> {
        match self {
            Self::Nothing => None,
            Self::Log(entries) => Some((entries, expire_at_ms)),
            Self::Text(_) | Self::Leases(_) => panic!("WRONGTYPE"),
        }
    }
}
