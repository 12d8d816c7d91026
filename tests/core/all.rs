//! Several keys in memory, on which one call is decided, and to which its changes are applied just as
//! the shell does; and what the contract says of such a call, beside what each limit tells alone. The
//! fuzzer has it too.

use redis_rl::clock::Timestamp;
use redis_rl::decision::{Decision, RetryAfter, Verdict};
use redis_rl::error::{Error, ErrorOf};
use redis_rl::request::AnyCall;

use crate::key::{Key, Plan, Value};

/// What a call on several keys is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub verdict: Verdict,
    /// Of each limit, in order.
    pub decisions: Vec<Decision>,
}

/// Decides calls on as many keys, and charges all of them or none.
pub fn decide_all(
    keys: &mut [Key],
    calls: &[AnyCall<'_>],
    now: Timestamp,
) -> Result<Answer, ErrorOf> {
    assert_eq!(keys.len(), calls.len());
    let mut plans = Vec::new();
    for (index, (key, call)) in keys.iter_mut().zip(calls).enumerate() {
        key.expire(now);
        let plan = key.plan(call, now);
        plans.push(plan.map_err(|error| Error::from(error).of(index, calls.len()))?);
    }
    let answer = answer(calls, &plans);
    for (key, (call, plan)) in keys.iter_mut().zip(calls.iter().zip(&plans)) {
        let change = if answer.verdict.is_admitted {
            &plan.change
        } else if answer.verdict.stores() {
            &plan.step
        } else {
            &None
        };
        if let Some(change) = change {
            key.store(change, call, now);
        }
    }
    Ok(answer)
}

fn answer(calls: &[AnyCall<'_>], plans: &[Plan]) -> Answer {
    let told = |tell: fn(&Plan) -> Decision| {
        let decisions: Vec<_> = plans.iter().map(tell).collect();
        let asked = calls.iter().zip(&decisions);
        let asked = asked.filter(|(call, _)| call.can_be_refused());
        let verdict = asked.fold(Verdict::NOTHING, |verdict, (_, decision)| {
            verdict.and(decision.verdict())
        });
        Answer { verdict, decisions }
    };
    let alone = told(|plan| plan.alone);
    if alone.verdict.is_admitted {
        told(|plan| plan.together)
    } else {
        alone
    }
}

/// Makes a call, and checks it against the contract. Panics with what broke.
pub fn check_all(
    keys: &mut [Key],
    calls: &[AnyCall<'_>],
    now: Timestamp,
) -> Result<Answer, ErrorOf> {
    for key in &mut *keys {
        key.expire(now);
    }
    let before = keys.to_vec();
    let each = || before.iter().zip(calls);
    let looks: Vec<_> = each().map(|(key, call)| key.look(call, now)).collect();
    let mut own_keys = before.clone();
    let own = own_keys.iter_mut().zip(calls);
    let own: Vec<_> = own.map(|(key, call)| key.decide(call, now)).collect();

    let told = decide_all(keys, calls, now);
    let fails = |index: &usize| looks[*index].is_err() || own[*index].is_err();
    if let Some(first) = (0..calls.len()).find(fails) {
        let error = Error::InvalidState.of(first, calls.len());
        assert_eq!(told, Err(error), "the first in order");
        assert_eq!(keys, before, "an error changes nothing");
        return told;
    }
    let answer = told?;
    let Answer { verdict, decisions } = &answer;
    let looks: Vec<_> = looks.into_iter().flatten().collect();
    let may_refuse = |index: &usize| calls[*index].can_be_refused();
    let asked = || (0..calls.len()).filter(may_refuse);
    let fits = asked().all(|index| looks[index].allowed > 0);
    assert_eq!(verdict.is_admitted, fits, "as each of them alone");
    if fits {
        let own: Vec<_> = own.into_iter().flatten().map(|(own, _)| own).collect();
        assert_eq!(*decisions, own, "as its own command would have answered");
        assert_eq!(keys, own_keys, "as its own command would have stored");
    } else {
        assert_eq!(*decisions, looks, "as a look would tell");
        for ((before, call), after) in each().zip(&*keys) {
            assert_refused(before, after, call, now, verdict);
        }
    }
    let wait = asked().map(|index| decisions[index].retry_after).max();
    let wait = wait.unwrap_or(RetryAfter::Ms(0));
    assert_eq!(verdict.retry_after, wait, "the longest wait");
    if let RetryAfter::Ms(wait_ms) = wait {
        assert_wait(keys, calls, now, wait_ms);
    }
    Ok(answer)
}

/// What a refused call leaves of a key: all of it, but for a stored time that the clock was set back
/// from.
fn assert_refused(
    before: &Key,
    after: &Key,
    call: &AnyCall<'_>,
    now: Timestamp,
    verdict: &Verdict,
) {
    let stepped_back = |key: &Key| key.stored_us(call) > Some(now.as_us() + 1_000);
    if !stepped_back(before) || verdict.retry_after == RetryAfter::Never {
        assert_eq!(after, before, "a refused call changes nothing");
        return;
    }
    assert!(!stepped_back(after), "the stored time moves: {after:?}");
    assert_eq!(after.expire_at_ms, before.expire_at_ms, "the TTL stays");
    let look = |key: &Key| key.look(call, now);
    assert_eq!(look(after), look(before), "the stored time alone moves");
}

/// If nobody else calls, the same call is admitted after exactly so long, and not one sooner.
fn assert_wait(keys: &[Key], calls: &[AnyCall<'_>], now: Timestamp, wait_ms: u64) {
    let later = |ms: u64| {
        let us = ms.checked_mul(1_000)?.checked_add(now.as_us())?;
        Timestamp::from_us(us)
    };
    // A log whose entries nobody has read yet may not be valid.
    let admitted_at = |at: Timestamp| {
        let then = decide_all(&mut keys.to_vec(), calls, at);
        then.ok().map(|then| then.verdict.is_admitted)
    };
    let in_order = |key: &Key| !matches!(&key.value, Value::Log(log) if !log.is_sorted());
    if !keys.iter().all(in_order) {
        return;
    }
    let renews_none = later(wait_ms).filter(|at| {
        let ends = |(key, call): (&Key, &AnyCall<'_>)| match call {
            AnyCall::Lease(call) if call.hold.can_be_refused() => {
                let own_end_ms = key.own_end_ms(call);
                let is_live = own_end_ms.is_some_and(|end_ms| end_ms > now.as_ms());
                is_live && (own_end_ms <= Some(at.as_ms()) || !key.is_live_at(at.as_ms()))
            }
            _ => false,
        };
        !keys.iter().zip(calls).any(ends)
    });
    if let Some(at) = renews_none {
        assert_ne!(admitted_at(at), Some(false), "after {wait_ms} ms");
    }
    // A key may go before, under a policy that is slower than the one that wrote it.
    let lives_until = |ms: u64| {
        let is_there = |key: &&Key| key.value != Value::Nothing;
        let mut there = keys.iter().filter(is_there);
        there.all(|key| key.is_live_at(ms))
    };
    let sooner = wait_ms.checked_sub(1).and_then(later);
    if let Some(at) = sooner.filter(|at| lives_until(at.as_ms())) {
        assert_ne!(admitted_at(at), Some(true), "before {wait_ms} ms");
    }
}
