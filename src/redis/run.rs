//! The order of work of a call: read the clock, open the key, check its state, judge, ask for
//! memory, write, replicate, close, tell.
//!
//! A call that stores nothing ends before the write, and so does every error: once something is
//! written, nothing can fail. A forced call that did not fit stores its charge, and is told as refused.
//! The key is opened once, so that it can be written to if the call is admitted; the server
//! takes it as modified only when told so, with the write.
//!
//! Judging, asking for memory and writing are apart, so that a command over several keys can do each
//! for all of them before the next.

use super::keys::{Key, Keys, Kind, List, View, signed};
use super::server::Str;
use super::stats;
use crate::clock::Timestamp;
use crate::decision::Decision;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::limiter::fixed::FixedWindow;
use crate::limiter::log::{self, Entries, Seen, SlidingLog};
use crate::limiter::slide::SlidingWindow;
use crate::limiter::text::{self, State, Stored, TextLimiter};
use crate::limiter::token::TokenBucket;
use crate::policy::{Charge, ExactPolicy, Policy, SlidePolicy, Units};
use crate::request::Call;

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

/// Tells what [`decide`] would, with nothing taken.
pub(super) fn peek(keys: &mut Keys<'_>, name: Str<'_>, call: Call) -> Result<Decision, Error> {
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

/// Refuses a change that needs memory where there is none.
#[expect(clippy::inline_always, reason = "some 15 instructions of every call")]
#[inline(always)]
fn ask_for_memory(key: &Key<'_>, needed: bool) -> Result<(), Error> {
    if needed && key.out_of_memory() {
        return Err(Error::OutOfMemory);
    }
    Ok(())
}

/// Writes what an algorithm has to store as a text, and tells replicas and the AOF.
#[expect(clippy::inline_always, reason = "some 15 instructions of every call")]
#[inline(always)]
fn store_text<S: State>(key: &mut Key<'_>, found: Found, change: &text::Change<S>) {
    let text::Change::Set {
        state,
        expire_at_ms,
        increment,
    } = *change
    else {
        return delete(key);
    };
    if found.holds == Holds::Past {
        key.delete();
    }
    let expire_at_ms = expire_at_ms.map(signed);
    let text = state.encode();
    key.set_text(&text);
    if let Some(at) = expire_at_ms {
        key.set_expire_at_ms(at);
    }
    key.modified();
    match increment {
        0 => key.replicate_set(&text, expire_at_ms),
        by => key.replicate_increment(by),
    }
}

/// Deletes a key, and tells replicas and the AOF.
#[cold]
fn delete(key: &mut Key<'_>) {
    key.delete();
    key.modified();
    key.replicate_delete();
}

/// Changes a log of `len` entries, and tells replicas and the AOF.
///
/// # Errors
///
/// As those of [`Key::trim`], which comes first.
fn store_log(key: &mut Key<'_>, found: Found, len: u64, change: &log::Change) -> Result<(), Error> {
    // A list that loses all its entries is gone, and its expiry with it.
    let emptied = change.leaving() >= len;
    if emptied && change.appended == 0 {
        delete(key);
        return Ok(());
    }
    let entry = key.entry(&log::encode_entry(change.time))?;
    let expire_at_ms = match change.expire_at_ms {
        None if emptied => found.expire_at_ms,
        fresh => fresh,
    };
    if !emptied {
        key.trim(change.oldest, change.newest)?;
    } else if found.holds != Holds::Nothing {
        key.delete();
        key.replicate_delete();
    }
    key.push(entry.get(), change.appended);
    if let Some(at) = expire_at_ms.map(signed) {
        key.set_expire_at_ms(at);
        key.replicate_expiry(at);
    }
    key.modified();
    Ok(())
}

/// Counts and tells what is known once a call is decided and its key is closed.
#[inline]
fn notify(keys: &mut Keys<'_>, name: Str<'_>, allowed: bool, stepped_back: bool) {
    if stepped_back {
        stats::CLOCK_STEPS.add_one();
    }
    if !allowed {
        keys.notify_refused(name);
    }
}

/// What was found in a key.
#[derive(Clone, Copy)]
struct Found {
    expire_at_ms: Option<u64>,
    holds: Holds,
}

/// What a key holds, as far as a call is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    /// Something whose TTL has passed, and which the server has yet to delete.
    Past,
    /// State, of the type that the command keeps it in.
    State,
}

impl Found {
    const NOTHING: Self = Self {
        expire_at_ms: None,
        holds: Holds::Nothing,
    };

    /// Looks into a key and checks its type.
    ///
    /// One whose TTL has passed counts as absent, whatever it holds, even while the server still
    /// shows it, as it may for as long as a script runs.
    fn look_up(key: &View<'_>, kind: Kind, now: Timestamp) -> Result<Self, Error> {
        let actual = key.kind();
        if actual == Kind::Nothing {
            return Ok(Self::NOTHING);
        }
        let found = Self::existing(key, now);
        if actual != kind && found.is_live() {
            return Err(Error::WrongType);
        }
        Ok(found)
    }

    /// Looks into a key that is to hold a string, and gives what counts of it.
    fn look_up_text<'key>(
        key: &'key View<'_>,
        now: Timestamp,
    ) -> Result<(Self, Option<Stored<'key>>), Error> {
        let (found, text) = match key.text() {
            // What has bytes of text is a string: one question less for most calls.
            Some(text @ [_, ..]) => (Self::existing(key, now), text),
            _ => (Self::look_up(key, Kind::String, now)?, &[][..]),
        };
        let stored = found.is_live().then_some(Stored {
            text,
            expire_at_ms: found.expire_at_ms,
        });
        Ok((found, stored))
    }

    /// Looks into a key that is to hold a list, and gives what counts of it.
    fn look_up_list<'key>(
        key: &'key View<'_>,
        now: Timestamp,
    ) -> Result<(Self, Option<List<'key>>), Error> {
        let found = Self::look_up(key, Kind::List, now)?;
        Ok((found, found.is_live().then(|| key.list())))
    }

    /// What is found in a key that exists and is of the right type.
    fn existing(key: &View<'_>, now: Timestamp) -> Self {
        let expire_at_ms = key.expire_at_ms();
        let past = expire_at_ms.is_some_and(|at| at < now.as_ms());
        Self {
            expire_at_ms,
            holds: if past { Holds::Past } else { Holds::State },
        }
    }

    /// Whether it counts, and not as absent.
    fn is_live(self) -> bool {
        self.holds == Holds::State
    }
}
