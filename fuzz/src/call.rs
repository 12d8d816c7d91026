//! One call on one key, as the shell makes it, and what the contract says of it.

use redis_rl::clock::Timestamp;
use redis_rl::decision::{Decision, RetryAfter};
use redis_rl::limiter::text::MAX_COUNT;
use redis_rl::policy::{Charge, Hold, LeasePolicy, Policy, Span, Units};
use redis_rl::request::{AnyCall, Call, LeaseCall};

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

/// Whether the entries of a log are in order, between those that a call reads too.
fn is_in_order(key: &Key) -> bool {
    match &key.value {
        Value::Log(log) => log.is_sorted(),
        _ => true,
    }
}

/// Whether a fixed window is open and has counted all that can be counted.
fn is_at_its_end(key: &Key, now: Timestamp) -> bool {
    let end = MAX_COUNT.to_string().into_bytes();
    key.value == Value::Text(end) && key.expire_at_ms.is_some_and(|at| at > now.as_ms())
}

/// Makes a call, checks it against the contract, and gives the key as it is afterwards.
#[must_use]
pub fn check(call: &AnyCall<'_>, mut key: Key, now: Timestamp) -> Key {
    key.expire(now);
    match call {
        AnyCall::Units(units) => check_units(*units, key, now),
        AnyCall::Lease(lease) => check_lease(lease, key, now),
    }
}

fn check_units(call: Call, key: Key, now: Timestamp) -> Key {
    let Call { policy, charge } = call;
    let any = AnyCall::Units(call);
    let peeked = key.look(&any, now);
    let mut after = key.clone();
    let Ok((decision, stored)) = after.decide(&any, now) else {
        assert_eq!(after, key, "an error changes nothing");
        return key;
    };
    let peeked = peeked.expect("what is judged can be looked at");
    check_reply(limit(policy), charge, &peeked, &decision);

    let stepped_back = key.stored_us(&any) > Some(now.as_us() + 1_000);
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
        let then = key.clone().decide(&Call { policy, charge }.into(), later);
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

fn check_lease(call: &LeaseCall<'_>, key: Key, now: Timestamp) -> Key {
    let any = AnyCall::Lease(*call);
    let peeked = key.look(&any, now);
    let mut after = key.clone();
    let told = after.decide(&any, now);
    let own_end_ms = key.own_end_ms(call).filter(|end_ms| *end_ms > now.as_ms());
    let Ok((decision, stored)) = told else {
        assert_eq!(after, key, "an error changes nothing");
        return key;
    };
    let peeked = peeked.expect("what is judged can be looked at");
    let limit = call.policy.limit();
    assert_eq!((decision.limit, peeked.limit), (limit, limit));
    assert_eq!(decision.allowed, peeked.allowed);
    assert!(decision.remaining <= limit.get());
    assert_eq!(stored, decision.is_admitted(), "a refusal writes nothing");
    let admits = match call.hold {
        Hold::Take => own_end_ms.is_some() || peeked.remaining > 0,
        Hold::Renew | Hold::Release => own_end_ms.is_some(),
    };
    assert_eq!(decision.is_admitted(), admits);
    let waits_for_ever = !admits && call.hold != Hold::Take;
    assert_eq!(decision.retry_after == RetryAfter::Never, waits_for_ever);
    if !admits {
        assert_eq!((&peeked, &after), (&decision, &key));
    } else if call.hold == Hold::Release {
        assert_eq!(after.own_end_ms(call), None);
        assert!(after == Key::default() || after.expire_at_ms == key.expire_at_ms);
    } else {
        let end_ms = now.as_ms() + call.policy.ttl().as_ms();
        assert_eq!(after.own_end_ms(call), Some(end_ms));
        let ttl_ms = after.expire_at_ms.expect("a TTL") - now.as_ms();
        let longest_ms = 2 * decision.reset_after_ms + 1_000;
        assert!(
            (decision.reset_after_ms..=longest_ms).contains(&ttl_ms),
            "TTL {ttl_ms}"
        );
    }
    check_lease_waits(call, &after, &decision, now);
    after
}

/// Asks later, of a place for the first time: what ends at no instant that a lease can is found out
/// only then.
fn check_lease_waits(call: &LeaseCall<'_>, key: &Key, decision: &Decision, now: Timestamp) {
    let admits_after = |ms: u64, call: LeaseCall<'_>| {
        let later_us = ms.checked_mul(1_000)?.checked_add(now.as_us())?;
        let then = key
            .clone()
            .decide(&AnyCall::Lease(call), Timestamp::from_us(later_us)?);
        then.ok().map(|(then, _)| then.is_admitted())
    };
    let lives = |ms: u64| key.expire_at_ms.is_none_or(|at| at >= now.as_ms() + ms);
    let admitted_from = |ms: u64, call: LeaseCall<'_>| {
        assert_ne!(admits_after(ms, call), Some(false), "{key:?} after {ms}");
        if let Some(sooner_ms) = ms.checked_sub(1).filter(|ms| lives(*ms)) {
            assert_ne!(
                admits_after(sooner_ms, call),
                Some(true),
                "{key:?} before {ms}"
            );
        }
    };
    if let (RetryAfter::Ms(ms), Hold::Take | Hold::Renew) = (decision.retry_after, call.hold) {
        admitted_from(ms, *call);
    }
    // Nothing is used just when the only place there is can be taken.
    let only = LeasePolicy::new(Units::ONE, Span::from_ms(1).expect("a ms"));
    let stranger = LeaseCall {
        policy: only.expect("in range"),
        id: b"a stranger",
        hold: Hold::Take,
    };
    admitted_from(decision.reset_after_ms, stranger);
}
