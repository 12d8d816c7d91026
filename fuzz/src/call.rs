//! One call on one key, as the shell makes it, and what the contract says of it.

use redis_rl::clock::Timestamp;
use redis_rl::decision::{Decision, RetryAfter};
use redis_rl::limiter::slide::Windows;
use redis_rl::limiter::text::State;
use redis_rl::limiter::token::Level;
use redis_rl::policy::{Policy, Units};

use crate::key::{Key, Value};

fn limit(policy: Policy) -> Units {
    match policy {
        Policy::Fixed(policy) => policy.limit,
        Policy::Token(policy) => policy.capacity(),
        Policy::Slide(policy) => policy.limit,
        Policy::Exact(policy) => policy.limit(),
    }
}

/// The longest TTL that an admitted call may leave, where it does not keep an open window's.
fn longest_ms(policy: Policy) -> u64 {
    match policy {
        Policy::Fixed(policy) => policy.window.as_ms(),
        Policy::Token(policy) => {
            let (capacity, period) = (policy.capacity().get(), policy.period().as_ms());
            let fill = u128::from(capacity) * u128::from(period) * 2;
            let fill_ms = fill / u128::from(policy.refill().get());
            u64::try_from(fill_ms).expect("at most 200 years") + 1_000
        }
        Policy::Slide(policy) => policy.window.as_ms() * 2 + 1_000,
        Policy::Exact(policy) => policy.window().as_ms() * 2 + 1_000,
    }
}

/// The stored time, in µs, of a valid state.
fn stored_us(key: &Key, policy: Policy) -> Option<u64> {
    match (policy, &key.value) {
        (Policy::Token(_), Value::Text(text)) => Some(Level::decode(text).ok()?.time.as_us()),
        (Policy::Slide(_), Value::Text(text)) => Some(Windows::decode(text).ok()?.start_ms * 1_000),
        (_, Value::Log(log)) => log.last().map(|newest| newest.as_us()),
        _ => None,
    }
}

/// Whether the entries of a log are in order, between those that a call reads too.
fn is_in_order(key: &Key) -> bool {
    match &key.value {
        Value::Log(log) => log.is_sorted(),
        Value::Nothing | Value::Text(_) => true,
    }
}

/// Makes a call, checks it against the contract, and gives the key as it is afterwards.
#[must_use]
pub fn check(policy: Policy, mut key: Key, now: Timestamp, cost: Units) -> Key {
    if !key.is_live_at(now.as_ms()) {
        key = Key::default();
    }
    let peeked = key.look(policy, now, cost);
    let mut after = key.clone();
    let Ok((decision, stored)) = after.decide(policy, now, cost) else {
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
    let limit = limit(policy);
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

    let stepped_back = stored_us(&key, policy).is_some_and(|at_us| at_us > now.as_us() + 1_000);
    let writes = allowed || stepped_back && cost <= limit;
    assert_eq!(stored, writes, "a refusal writes after a step back only");
    if stored {
        check_expiry(policy, &key, &after, &decision, now);
    } else {
        assert_eq!(after, key, "nothing was stored");
    }

    // What is said of later rests on what was read, and on what was stored: not on entries of a
    // log that nobody has read yet, nor on a step back that a cost above the limit may not store.
    let stands = (writes || !stepped_back) && is_in_order(&key);
    let lives = after.value == Value::Nothing || {
        let needed_ms = now.as_ms().saturating_add(decision.reset_after_ms);
        after.expire_at_ms.is_some_and(|at| at >= needed_ms)
    };
    if stands && lives {
        check_waits(policy, &after, &decision, now, cost);
    }
    after
}

fn check_expiry(policy: Policy, before: &Key, written: &Key, decision: &Decision, now: Timestamp) {
    let at_ms = written.expire_at_ms.expect("no key without a TTL");
    let before_ms = before.expire_at_ms;
    let is_open = matches!(policy, Policy::Fixed(_)) && before_ms > Some(now.as_ms());
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
        (decision.reset_after_ms..=longest_ms(policy)).contains(&ttl_ms),
        "TTL {ttl_ms}"
    );
    if let Policy::Fixed(policy) = policy {
        assert_eq!(ttl_ms, policy.window.as_ms());
    }
}

/// If nobody else calls, what the reply says of now and of later is so, to the millisecond.
fn check_waits(policy: Policy, key: &Key, decision: &Decision, now: Timestamp, cost: Units) {
    let admits_after = |ms: u64, cost: Units, expected: bool| {
        let later_us = ms
            .checked_mul(1_000)
            .and_then(|us| now.as_us().checked_add(us));
        let Some(later) = later_us.and_then(Timestamp::from_us) else {
            return;
        };
        let then = key.clone().decide(policy, later, cost);
        let (then, _) = then.expect("its own state is valid");
        assert_eq!(
            then.allowed, expected,
            "{policy:?} {key:?} {now:?}: {decision:?}; {cost:?} after {ms} ms: {then:?}"
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
    admitted_from(decision.reset_after_ms, limit(policy));
}
