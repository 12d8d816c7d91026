//! One call on one key, as the shell makes it, and what the contract says of it.

use redis_rl::clock::Timestamp;
use redis_rl::decision::{Decision, RetryAfter};
use redis_rl::error::InvalidState;
use redis_rl::exact::{self, Change, Log};
use redis_rl::outcome::Outcome;
use redis_rl::policy::{ExactPolicy, FixedPolicy, SlidePolicy, TokenPolicy, Units};
use redis_rl::state::{Bucket, Counter, State, Stored, Windows};
use redis_rl::{fixed, slide, token};

#[derive(Clone, Copy, Debug)]
pub enum Limiter {
    Fixed(FixedPolicy),
    Token(TokenPolicy),
    Slide(SlidePolicy),
    Exact(ExactPolicy),
}

#[derive(Clone, Debug)]
pub enum Value {
    Text(Vec<u8>),
    Log(Vec<Timestamp>),
}

#[derive(Clone, Debug)]
pub struct Key {
    pub value: Value,
    pub expire_at_ms: Option<u64>,
}

struct Entries<'a>(&'a [Timestamp]);

impl Log for Entries<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn get(&mut self, index: u64) -> Result<Timestamp, InvalidState> {
        let entry = usize::try_from(index)
            .ok()
            .and_then(|index| self.0.get(index));
        entry.copied().ok_or(InvalidState)
    }
}

/// The decision on a call, and the key as it is afterwards, if the call writes.
fn judge(
    limiter: Limiter,
    key: Option<&Key>,
    now: Timestamp,
    cost: Units,
) -> Result<(Decision, Option<Key>), InvalidState> {
    let text = key.and_then(Key::text);
    match limiter {
        Limiter::Fixed(policy) => Ok(applied(fixed::decide(&policy, text, now, cost)?, key)),
        Limiter::Token(policy) => Ok(applied(token::decide(&policy, text, now, cost)?, key)),
        Limiter::Slide(policy) => Ok(applied(slide::decide(&policy, text, now, cost)?, key)),
        Limiter::Exact(policy) => judge_log(policy, key, now, cost),
    }
}

fn applied<S: State>(outcome: Outcome<S>, key: Option<&Key>) -> (Decision, Option<Key>) {
    let after = outcome.write.map(|write| {
        let text = write.state.encode();
        if let Some(added) = write.added {
            let before = key.and_then(Key::text).expect("a count to add to");
            let count = Counter::decode(before.text).expect("a count").0 + added.get();
            assert_eq!(text, Counter(count).encode(), "as INCRBY would");
        }
        Key {
            value: Value::Text(text.to_vec()),
            expire_at_ms: write.expire_at_ms.or(key.and_then(|key| key.expire_at_ms)),
        }
    });
    (outcome.decision, after)
}

/// What a call would be told, with nothing taken.
fn peek(
    limiter: Limiter,
    key: Option<&Key>,
    now: Timestamp,
    cost: Units,
) -> Result<Decision, InvalidState> {
    let text = key.and_then(Key::text);
    match limiter {
        Limiter::Fixed(policy) => fixed::peek(&policy, text, now, cost),
        Limiter::Token(policy) => token::peek(&policy, text, now, cost),
        Limiter::Slide(policy) => slide::peek(&policy, text, now, cost),
        Limiter::Exact(policy) => {
            let mut entries = Entries(log(key));
            let stored = key.map(|key| (&mut entries, key.expire_at_ms));
            exact::peek(policy, stored, now, cost)
        }
    }
}

/// The entries of a log, or none.
fn log(key: Option<&Key>) -> &[Timestamp] {
    match key {
        Some(Key {
            value: Value::Log(log),
            ..
        }) => log,
        _ => &[],
    }
}

fn judge_log(
    policy: ExactPolicy,
    key: Option<&Key>,
    now: Timestamp,
    cost: Units,
) -> Result<(Decision, Option<Key>), InvalidState> {
    let log = log(key);
    let mut entries = Entries(log);
    let stored = key.map(|key| (&mut entries, key.expire_at_ms));
    let exact::Outcome { decision, change } = exact::decide(policy, stored, now, cost)?;
    let after = change.map(|change| Key {
        value: Value::Log(changed(log, &change)),
        expire_at_ms: change.expire_at_ms.or(key.and_then(|key| key.expire_at_ms)),
    });
    Ok((decision, after))
}

fn changed(log: &[Timestamp], change: &Change) -> Vec<Timestamp> {
    let count = |n: u64| usize::try_from(n).expect("at most the log or the cost");
    let kept = count(change.trimmed)..log.len() - count(change.retimed).min(log.len());
    let mut after = log.get(kept).unwrap_or_default().to_vec();
    let added = count(change.retimed + change.appended);
    after.extend(std::iter::repeat_n(change.time, added));
    after
}

impl Limiter {
    fn limit(self) -> Units {
        match self {
            Self::Fixed(policy) => policy.limit,
            Self::Token(policy) => policy.capacity(),
            Self::Slide(policy) => policy.limit,
            Self::Exact(policy) => policy.limit(),
        }
    }

    /// The longest TTL that an admitted call may leave, where it does not keep an open window's.
    fn longest_ms(self) -> u64 {
        match self {
            Self::Fixed(policy) => policy.window.as_ms(),
            Self::Token(policy) => {
                let (capacity, period) = (policy.capacity().get(), policy.period().as_ms());
                let fill = u128::from(capacity) * u128::from(period) * 2;
                let fill_ms = fill / u128::from(policy.refill().get());
                u64::try_from(fill_ms).expect("at most 200 years") + 1_000
            }
            Self::Slide(policy) => policy.window.as_ms() * 2 + 1_000,
            Self::Exact(policy) => policy.window().as_ms() * 2 + 1_000,
        }
    }
}

impl Key {
    fn text(&self) -> Option<Stored<'_>> {
        match &self.value {
            Value::Text(text) => Some(Stored {
                text,
                expire_at_ms: self.expire_at_ms,
            }),
            Value::Log(_) => None,
        }
    }

    fn is_past(&self, now: Timestamp) -> bool {
        self.expire_at_ms.is_some_and(|at| at < now.as_ms())
    }

    /// The stored time, in µs, of a valid state.
    fn stored_us(&self, limiter: Limiter) -> Option<u64> {
        match (limiter, &self.value) {
            (Limiter::Token(_), Value::Text(text)) => Some(Bucket::decode(text).ok()?.time.as_us()),
            (Limiter::Slide(_), Value::Text(text)) => {
                Some(Windows::decode(text).ok()?.start_ms * 1_000)
            }
            (_, Value::Log(log)) => log.last().map(|newest| newest.as_us()),
            _ => None,
        }
    }

    /// Whether the entries of a log are in order, between those that a call reads too.
    fn is_in_order(&self) -> bool {
        match &self.value {
            Value::Log(log) => log.is_sorted(),
            Value::Text(_) => true,
        }
    }
}

/// Makes a call, checks it against the contract, and gives the key as it is afterwards.
#[must_use]
pub fn check(limiter: Limiter, key: Option<Key>, now: Timestamp, cost: Units) -> Option<Key> {
    let key = key.filter(|key| !key.is_past(now));
    let peeked = peek(limiter, key.as_ref(), now, cost);
    let Ok((decision, written)) = judge(limiter, key.as_ref(), now, cost) else {
        return key;
    };
    if decision.allowed {
        let peeked = peeked.expect("what is judged can be looked at");
        assert!(peeked.allowed);
        assert_eq!(peeked.remaining, decision.remaining + cost.get());
        assert_eq!(peeked.retry_after, RetryAfter::Ms(0));
    } else {
        assert_eq!(peeked, Ok(decision), "a refusal is what a look tells");
    }
    let limit = limiter.limit();
    let Decision {
        allowed,
        remaining,
        retry_after,
        ..
    } = decision;
    assert_eq!(decision.limit, limit);
    assert!(remaining <= limit.get());
    assert_eq!(retry_after == RetryAfter::Never, cost > limit);
    assert_eq!(retry_after == RetryAfter::Ms(0), cost.get() <= remaining);
    assert!(!allowed || cost <= limit);

    let stepped_back = key
        .as_ref()
        .and_then(|key| key.stored_us(limiter))
        .is_some_and(|at_us| at_us > now.as_us() + 1_000);
    let writes = allowed || stepped_back && cost <= limit;
    assert_eq!(
        written.is_some(),
        writes,
        "a refusal writes after a step back only"
    );
    if let Some(written) = &written {
        check_expiry(limiter, key.as_ref(), written, &decision, now);
    }

    // What is said of later rests on what was read, and on what was stored: not on entries of a
    // log that nobody has read yet, nor on a step back that a cost above the limit may not store.
    let stands = (writes || !stepped_back) && key.as_ref().is_none_or(Key::is_in_order);
    let after = written.or(key);
    let lives = after.as_ref().is_none_or(|key| {
        let needed_ms = now.as_ms().saturating_add(decision.reset_after_ms);
        key.expire_at_ms.is_some_and(|at| at >= needed_ms)
    });
    if stands && lives {
        check_waits(limiter, after.as_ref(), &decision, now, cost);
    }
    after
}

fn check_expiry(
    limiter: Limiter,
    before: Option<&Key>,
    written: &Key,
    decision: &Decision,
    now: Timestamp,
) {
    let at_ms = written.expire_at_ms.expect("no key without a TTL");
    let before_ms = before.and_then(|key| key.expire_at_ms);
    let is_open = matches!(limiter, Limiter::Fixed(_)) && before_ms > Some(now.as_ms());
    if !decision.allowed || is_open {
        assert_eq!(
            Some(at_ms),
            before_ms,
            "a refusal, or an open window: the TTL stays"
        );
        return;
    }
    let ttl_ms = at_ms - now.as_ms();
    assert!(
        (decision.reset_after_ms..=limiter.longest_ms()).contains(&ttl_ms),
        "TTL {ttl_ms}"
    );
    if let Limiter::Fixed(policy) = limiter {
        assert_eq!(ttl_ms, policy.window.as_ms());
    }
}

/// If nobody else calls, what the reply says of now and of later is so, to the millisecond.
fn check_waits(
    limiter: Limiter,
    key: Option<&Key>,
    decision: &Decision,
    now: Timestamp,
    cost: Units,
) {
    let admits_after = |ms: u64, cost: Units, expected: bool| {
        let later_us = ms
            .checked_mul(1_000)
            .and_then(|us| now.as_us().checked_add(us));
        let Some(later) = later_us.and_then(Timestamp::from_us) else {
            return;
        };
        let key = key.filter(|key| !key.is_past(later));
        let (then, _) = judge(limiter, key, later, cost).expect("its own state is valid");
        assert_eq!(
            then.allowed, expected,
            "{limiter:?} {key:?} {now:?}: {decision:?}; {cost:?} after {ms} ms: {then:?}"
        );
    };
    let admitted_from = |ms: u64, cost: Units| {
        admits_after(ms, cost, true);
        if let Some(sooner_ms) = ms.checked_sub(1) {
            admits_after(sooner_ms, cost, false);
        }
    };
    if let Some(all) = Units::new(decision.remaining) {
        admits_after(0, all, true);
    }
    if let Some(more) = Units::new(decision.remaining + 1) {
        admits_after(0, more, false);
    }
    if let RetryAfter::Ms(ms) = decision.retry_after {
        admitted_from(ms, cost);
    }
    admitted_from(decision.reset_after_ms, limiter.limit());
}
