//! One call on one key, as the shell makes it, and what the contract says of it.

use redis_rl::clock::Timestamp;
use redis_rl::decision::{Decision, RetryAfter};
use redis_rl::limiter::slide::Windows;
use redis_rl::limiter::text::{MAX_COUNT, State};
use redis_rl::limiter::token::Level;
use redis_rl::policy::{Charge, Policy, Units};

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

/// Whether a fixed window is open and has counted all that can be counted.
fn is_at_its_end(key: &Key, now: Timestamp) -> bool {
    let end = MAX_COUNT.to_string().into_bytes();
    key.value == Value::Text(end) && key.expire_at_ms.is_some_and(|at| at > now.as_ms())
}

/// Makes a call, checks it against the contract, and gives the key as it is afterwards.
#[must_use]
pub fn check(policy: Policy, mut key: Key, now: Timestamp, charge: Charge) -> Key {
    if !key.is_live_at(now.as_ms()) {
        key = Key::default();
    }
    let peeked = key.look(policy, now, charge);
    let mut after = key.clone();
    let Ok((decision, stored)) = after.decide(policy, now, charge) else {
        return key;
    };
    let peeked = peeked.expect("what is judged can be looked at");
    check_reply(limit(policy), charge, &peeked, &decision);

    let stepped_back = stored_us(&key, policy).is_some_and(|at_us| at_us > now.as_us() + 1_000);
    let charged = match charge {
        Charge::Cost(_) | Charge::UpTo(_) => decision.is_admitted(),
        // A count that is at its end already stays as it is.
        Charge::Force(_) => !(matches!(policy, Policy::Fixed(_)) && is_at_its_end(&key, now)),
        Charge::Refund(_) => peeked.reset_after_ms > 0,
    };
    let never = decision.retry_after == RetryAfter::Never;
    let writes = charged || stepped_back && !never && !decision.is_admitted();
    assert_eq!(
        stored, writes,
        "what changes nothing writes after a step back only"
    );
    if !stored {
        assert_eq!(after, key, "nothing was stored");
    } else if after.value == Value::Nothing {
        assert_eq!(after, Key::default());
        assert!(charged && decision.reset_after_ms == 0, "a key in use went");
    } else {
        check_expiry(policy, &key, &after, &decision, now, charged);
    }

    // What is said of later rests on what was read, and on what was stored: not on entries of a
    // log that nobody has read yet, nor on a step back that may not be stored.
    let stands = (writes || !stepped_back) && is_in_order(&key);
    let lives = after.value == Value::Nothing || {
        let needed_ms = now.as_ms().saturating_add(decision.reset_after_ms);
        after.expire_at_ms.is_some_and(|at| at >= needed_ms)
    };
    if stands && lives {
        check_waits(policy, &after, &decision, now, charge);
    }
    after
}

/// What was told, beside what a look at the same instant tells.
fn check_reply(limit: Units, charge: Charge, peeked: &Decision, decision: &Decision) {
    let Decision {
        allowed,
        remaining,
        retry_after,
        ..
    } = *decision;
    assert_eq!((decision.limit, peeked.limit), (limit, limit));
    assert!(remaining <= limit.get());
    // What the same call has to have room for.
    let needed = match charge {
        Charge::Cost(cost) => {
            assert_eq!(allowed, u64::from(cost.get() <= peeked.remaining));
            assert_eq!(peeked.remaining, remaining + allowed * cost.get());
            cost
        }
        Charge::Force(cost) => {
            assert_eq!(allowed, u64::from(cost.get() <= peeked.remaining));
            assert_eq!(remaining, peeked.remaining.saturating_sub(cost.get()));
            cost
        }
        Charge::UpTo(most) => {
            assert_eq!(allowed, most.get().min(peeked.remaining));
            assert_eq!(peeked.remaining, remaining + allowed);
            Units::ONE
        }
        Charge::Refund(units) => {
            let most = peeked.remaining.saturating_add(units.get());
            assert!((peeked.remaining..=most).contains(&remaining));
            assert_eq!((allowed, peeked.allowed), (1, 1));
            assert_eq!(retry_after, RetryAfter::Ms(0));
            return;
        }
    };
    assert_eq!(peeked.allowed, allowed);
    if allowed == 0 && !matches!(charge, Charge::Force(_)) {
        assert_eq!(peeked, decision, "a refusal is what a look tells");
    }
    assert_eq!(retry_after == RetryAfter::Never, needed > limit);
    assert_eq!(retry_after == RetryAfter::Ms(0), needed.get() <= remaining);
}

fn check_expiry(
    policy: Policy,
    before: &Key,
    written: &Key,
    decision: &Decision,
    now: Timestamp,
    charged: bool,
) {
    let at_ms = written.expire_at_ms.expect("no key without a TTL");
    let before_ms = before.expire_at_ms;
    let is_open = matches!(policy, Policy::Fixed(_)) && before_ms > Some(now.as_ms());
    if !charged || is_open {
        assert_eq!(
            Some(at_ms),
            before_ms,
            "a refusal, or an open window: the TTL stays"
        );
        return;
    }
    let ttl_ms = at_ms - now.as_ms();
    // Longer only for a bucket that owes, and then just as long as it does.
    let longest_ms = match policy {
        Policy::Token(_) => longest_ms(policy).max(decision.reset_after_ms),
        _ => longest_ms(policy),
    };
    assert!(
        (decision.reset_after_ms..=longest_ms).contains(&ttl_ms),
        "TTL {ttl_ms}"
    );
    if let Policy::Fixed(policy) = policy {
        assert_eq!(ttl_ms, policy.window.as_ms());
    }
}

/// If nobody else calls, what the reply says of now and of later is so, to the millisecond.
fn check_waits(policy: Policy, key: &Key, decision: &Decision, now: Timestamp, charge: Charge) {
    let admits_after = |ms: u64, charge: Charge, expected: bool| {
        let later_us = ms
            .checked_mul(1_000)
            .and_then(|us| now.as_us().checked_add(us));
        let Some(later) = later_us.and_then(Timestamp::from_us) else {
            return;
        };
        let then = key.clone().decide(policy, later, charge);
        let (then, _) = then.expect("its own state is valid");
        assert_eq!(
            then.is_admitted(),
            expected,
            "{policy:?} {key:?} {now:?}: {decision:?}; {charge:?} after {ms} ms: {then:?}"
        );
    };
    let admitted_from = |ms: u64, charge: Charge| {
        admits_after(ms, charge, true);
        if let Some(sooner_ms) = ms.checked_sub(1) {
            admits_after(sooner_ms, charge, false);
        }
    };
    if let Some(all) = Units::new(decision.remaining) {
        admits_after(0, Charge::Cost(all), true);
    }
    if let Some(more) = Units::new(decision.remaining + 1) {
        admits_after(0, Charge::Cost(more), false);
    }
    if let RetryAfter::Ms(ms) = decision.retry_after {
        admitted_from(ms, charge);
    }
    admitted_from(decision.reset_after_ms, Charge::Cost(limit(policy)));
}
