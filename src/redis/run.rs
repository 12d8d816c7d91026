//! The order of work of a call: read the clock, open the key, check its state, judge, ask for
//! memory, write, replicate, close, tell.
//!
//! A call that stores nothing ends before the write, and so does every error: once something is
//! written, nothing can fail. A forced call that did not fit stores its charge, and is told as refused.
//! The key is opened once, so that it can be written to if the call is admitted; the server
//! takes it as modified only when told so, with the write.
//!
//! This is the order for one key. A call on several keys does each of these steps for all of them
//! before the next: see `all`.

use super::apply::{ask_for_memory, store_leases, store_log, store_text};
use super::found::{Found, LeaseKey};
use super::keys::{Keys, List};
use super::server::Str;
use super::stats;
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::limiter::fixed::FixedWindow;
use crate::limiter::log::{Entries, Seen, SlidingLog};
use crate::limiter::slide::SlidingWindow;
use crate::limiter::text::TextLimiter;
use crate::limiter::token::TokenBucket;
use crate::policy::{Charge, ExactPolicy, Policy, SlidePolicy, Units};
use crate::request::{AnyCall, Call, LeaseCall};

/// Decides a call on a key, and charges it or gives back as it says.
#[expect(clippy::inline_always, reason = "each command knows its policy")]
#[inline(always)]
pub(super) fn decide(keys: &mut Keys<'_>, name: Str<'_>, call: Call) -> Result<Decision, Error> {
    let Call { policy, charge } = call;
    let Charge::Cost(cost) = charge else {
        return settle(keys, name, policy, charge);
    };
    // Of a known kind, so that nothing asks again which it is.
    let plain = Charge::Cost(cost);
    match policy {
        Policy::Fixed(policy) => decide_text::<FixedWindow>(keys, name, policy, plain),
        Policy::Token(policy) => decide_text::<TokenBucket>(keys, name, policy, plain),
        Policy::Slide(policy) => take_slide(keys, name, policy, cost),
        Policy::Exact(policy) => decide_log(keys, name, policy, plain),
    }
}

/// Not inlined: together with the parsing of both forms it costs 130 instructions more per call.
#[inline(never)]
fn take_slide(
    keys: &mut Keys<'_>,
    name: Str<'_>,
    policy: SlidePolicy,
    cost: Units,
) -> Result<Decision, Error> {
    decide_text::<SlidingWindow>(keys, name, policy, Charge::Cost(cost))
}

/// All but plain costs. Not inlined: those are most calls, and have the registers for themselves.
#[cold]
#[inline(never)]
fn settle(
    keys: &mut Keys<'_>,
    name: Str<'_>,
    policy: Policy,
    charge: Charge,
) -> Result<Decision, Error> {
    let decision = match policy {
        Policy::Fixed(policy) => decide_text::<FixedWindow>(keys, name, policy, charge),
        Policy::Token(policy) => decide_text::<TokenBucket>(keys, name, policy, charge),
        Policy::Slide(policy) => decide_text::<SlidingWindow>(keys, name, policy, charge),
        Policy::Exact(policy) => decide_log(keys, name, policy, charge),
    }?;
    stats::of(&policy).count_settled(charge, &decision);
    Ok(decision)
}

/// Decides a call on leases, and takes, renews or releases one as it says.
pub(super) fn decide_lease(
    keys: &mut Keys<'_>,
    name: Str<'_>,
    call: LeaseCall<'_>,
) -> Result<Decision, Error> {
    let now = keys.server().now()?;
    let id = keys.server().string(call.id).ok_or(Error::Internal)?;
    let mut key = keys.open(name);
    let mut leases = LeaseKey::look_up(&key, id.get(), now)?;
    let (found, count) = (leases.found, leases.count());
    let mut limiter = leases.at(&call, now)?;
    let decision = limiter.decide()?;
    let (change, lengthens) = (limiter.change(), limiter.lengthens());
    if let Some(change) = change {
        ask_for_memory(&key, lengthens)?;
        store_leases(&mut key, found, count, id.get(), &change, now)?;
    }
    drop(key);
    let is_refused = call.hold.can_be_refused() && !decision.is_admitted();
    notify(keys, name, !is_refused, false);
    Ok(decision)
}

/// Tells what [`decide`] or [`decide_lease`] would, with nothing taken.
pub(super) fn peek(
    keys: &mut Keys<'_>,
    name: Str<'_>,
    call: AnyCall<'_>,
) -> Result<Decision, Error> {
    match call {
        AnyCall::Units(call) => peek_units(keys, name, call),
        AnyCall::Lease(call) => peek_lease(keys, name, call),
    }
}

fn peek_units(keys: &mut Keys<'_>, name: Str<'_>, call: Call) -> Result<Decision, Error> {
    let Call { policy, charge } = call;
    stats::of(&policy).peeks.add_one();
    match policy {
        Policy::Fixed(policy) => peek_text::<FixedWindow>(keys, name, policy, charge),
        Policy::Token(policy) => peek_text::<TokenBucket>(keys, name, policy, charge),
        Policy::Slide(policy) => peek_text::<SlidingWindow>(keys, name, policy, charge),
        Policy::Exact(policy) => peek_log(keys, name, policy, charge),
    }
}

#[expect(clippy::inline_always, reason = "some 80 instructions of every call")]
#[inline(always)]
fn decide_text<L: TextLimiter>(
    keys: &mut Keys<'_>,
    name: Str<'_>,
    policy: L::Policy,
    charge: Charge,
) -> Result<Decision, Error> {
    let now = keys.server().now()?;
    let mut key = keys.open(name);
    let (found, stored) = Found::look_up_text(&key, now)?;
    let mut limiter = L::at(policy, stored, now)?;
    let decision = limiter.decide(charge)?;
    let stores = limiter.stores(&decision);
    if stores {
        let change = limiter.change();
        ask_for_memory(&key, !found.is_live())?;
        store_text(&mut key, found, &change);
    }
    drop(key);
    notify(
        keys,
        name,
        decision.is_admitted(),
        stores && limiter.stepped_back(),
    );
    Ok(decision)
}

fn peek_text<L: TextLimiter>(
    keys: &mut Keys<'_>,
    name: Str<'_>,
    policy: L::Policy,
    charge: Charge,
) -> Result<Decision, Error> {
    let now = keys.server().now()?;
    let key = keys.open_to_read(name);
    let stored = match &key {
        Some(key) => Found::look_up_text(key, now)?.1,
        None => None,
    };
    Ok(L::at(policy, stored, now)?.peek(charge)?)
}

fn decide_log(
    keys: &mut Keys<'_>,
    name: Str<'_>,
    policy: ExactPolicy,
    charge: Charge,
) -> Result<Decision, Error> {
    let now = keys.server().now()?;
    let mut key = keys.open(name);
    let mut seen = Seen::new();
    let (found, mut list) = Found::look_up_list(&key, now)?;
    let len = list.as_ref().map_or(0, List::count);
    let stored = list.as_mut().map(|list| (list, found.expire_at_ms));
    let mut limiter = SlidingLog::at(policy, stored, now, &mut seen)?;
    let decision = limiter.decide(charge)?;
    let change = limiter.stores(&decision).then(|| limiter.change());
    let stepped_back = change.is_some() && limiter.stepped_back();
    // Closes the list's second handle before the key is changed.
    drop(list);
    if let Some(change) = change {
        ask_for_memory(&key, !found.is_live() || change.lengthens())?;
        store_log(&mut key, found, len, &change)?;
    }
    drop(key);
    notify(keys, name, decision.is_admitted(), stepped_back);
    Ok(decision)
}

fn peek_log(
    keys: &mut Keys<'_>,
    name: Str<'_>,
    policy: ExactPolicy,
    charge: Charge,
) -> Result<Decision, Error> {
    let now = keys.server().now()?;
    let key = keys.open_to_read(name);
    let mut seen = Seen::new();
    let (found, mut list) = match &key {
        Some(key) => Found::look_up_list(key, now)?,
        None => (Found::NOTHING, None),
    };
    let stored = list.as_mut().map(|list| (list, found.expire_at_ms));
    Ok(SlidingLog::at(policy, stored, now, &mut seen)?.peek(charge)?)
}

fn peek_lease(keys: &mut Keys<'_>, name: Str<'_>, call: LeaseCall<'_>) -> Result<Decision, Error> {
    stats::LEASE.peeks.add_one();
    let now = keys.server().now()?;
    let id = keys.server().string(call.id).ok_or(Error::Internal)?;
    let key = keys.open_to_read(name);
    let mut leases = match &key {
        Some(key) => LeaseKey::look_up(key, id.get(), now)?,
        None => LeaseKey::NOTHING,
    };
    leases.at(&call, now)?.peek()
}

/// Counts and tells what is known once a call is decided and its key is closed.
#[inline]
pub(super) fn notify(keys: &mut Keys<'_>, name: Str<'_>, allowed: bool, stepped_back: bool) {
    if stepped_back {
        stats::CLOCK_STEPS.add_one();
    }
    if !allowed {
        keys.notify_refused(name);
    }
}
