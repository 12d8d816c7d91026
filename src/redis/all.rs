//! The order of work of a call on several keys: each step is done for all of them before the next.
//!
//! Until every limit is judged and memory is asked for, nothing is written. After that, nothing can
//! fail but by a defect: a server that refuses its own command. So all are charged, or none is.
//!
//! Other modules may listen to what the server does, and change keys that are open. So a change of which
//! it tells is made while no other key is open.

use arrayvec::ArrayVec;

use super::apply::{ask_for_memory, store_leases, store_log, store_text};
use super::found::{Found, LeaseKey};
use super::keys::{Key, Keys, List};
use super::run::notify;
use super::server::{OwnStr, Server, Str};
use super::stats;
use crate::clock::Timestamp;
use crate::decision::{Decision, Verdict};
use crate::error::{Error, ErrorOf};
use crate::limiter::fixed::{Counter, FixedWindow};
use crate::limiter::log::{self, Entries, Seen, SlidingLog};
use crate::limiter::slide::{SlidingWindow, Windows};
use crate::limiter::text::{self, TextLimiter};
use crate::limiter::token::{Level, TokenBucket};
use crate::limiter::{Limiter, lease};
use crate::policy::{Charge, ExactPolicy, MAX_LIMITS, Policy};
use crate::request::{AnyCall, Call, Calls, LeaseCall};

/// Decides calls on as many keys, charges all of them or none, and replies.
pub(super) fn decide(
    keys: &mut Keys<'_>,
    names: &[Str<'_>],
    calls: &Calls<'_>,
) -> Result<Verdict, ErrorOf> {
    let server = keys.server();
    // Filled in their place: together these are some kilobytes, too much to be moved about.
    let mut limits = Limits::new();
    let (verdict, now) = {
        let mut open = ArrayVec::new();
        keys.open_all(names, &mut open)?;
        let now = server.now()?;
        let verdict = judge(server, &open, calls, now, &mut limits)?;
        if verdict.is_admitted {
            for (key, limit) in open.iter().zip(&limits) {
                ask_for_memory(key, limit.needs_memory)?;
            }
        }
        if verdict.stores() {
            for (key, limit) in open.iter_mut().zip(&limits) {
                if !limit.is_told() {
                    limit.store(key, now);
                }
            }
        }
        (verdict, now)
    };
    if verdict.stores() {
        for (name, limit) in names.iter().zip(&limits) {
            if limit.is_told() {
                limit.store(&mut keys.open_again(*name), now);
            }
        }
    }
    for ((call, limit), name) in calls.iter().zip(&limits).zip(names) {
        let stands_in_the_way = if verdict.is_admitted {
            stats::ALL.count_kind(call, &limit.decision);
            call.is_forced()
        } else {
            call.can_be_refused()
        };
        let is_refused = stands_in_the_way && !limit.decision.is_admitted();
        let stepped_back = limit.stepped_back && limit.change.is_some() && verdict.stores();
        notify(keys, *name, !is_refused, stepped_back);
    }
    server.reply_all(&verdict, limits.iter().map(|limit| limit.decision));
    Ok(verdict)
}

/// Judges every limit as if it were the only one, until one stands in the way. From then on they are
/// only looked at, and so are those before it, once more.
#[expect(clippy::inline_always, reason = "some 50 instructions of every call")]
#[inline(always)]
fn judge<'call>(
    server: Server<'call>,
    open: &[Key<'_>],
    calls: &Calls<'_>,
    now: Timestamp,
    limits: &mut Limits<'call>,
) -> Result<Verdict, ErrorOf> {
    let mut judge = Judge {
        server,
        now,
        mode: Mode::Charge,
    };
    let mut verdict = Verdict::NOTHING;
    let mut before = 0;
    for (index, (call, key)) in calls.iter().zip(open).enumerate() {
        let told = judge.limit(key, call, limits);
        let told = told.map_err(|error| error.of(index, calls.len()))?;
        if call.can_be_refused() {
            if verdict.is_admitted && !told.is_admitted {
                // The waits so far were those after a charge. These limits admit, so their wait is 0.
                verdict = Verdict::NOTHING;
                before = index;
                judge.mode = Mode::Look;
            }
            verdict = verdict.and(told);
        }
    }
    if before > 0 {
        judge.look_again(open, calls, before, limits)?;
    }
    Ok(verdict)
}

type Limits<'call> = ArrayVec<Limit<'call>, MAX_LIMITS>;

/// One limit of several, judged.
struct Limit<'call> {
    /// What its own command would have answered, or, if the whole call is refused, what a look tells.
    decision: Decision,
    found: Found,
    /// What is to be stored of it.
    change: Option<Change<'call>>,
    /// Whether that needs memory.
    needs_memory: bool,
    /// Whether the clock was set back.
    stepped_back: bool,
}

/// What is to be stored of one limit.
enum Change<'call> {
    Counter(text::Change<Counter>),
    Level(text::Change<Level>),
    Windows(text::Change<Windows>),
    /// Of a log of so many entries.
    Log(log::Change, u64),
    /// Of so many leases, those that are over included, and whose lease it is.
    Leases(lease::Change, u64, OwnStr<'call>),
}

/// Whether a limit that admits is charged.
#[derive(Clone, Copy)]
enum Mode {
    Charge,
    Look,
}

/// Judges one limit after the other, at one instant.
struct Judge<'call> {
    server: Server<'call>,
    now: Timestamp,
    mode: Mode,
}

impl<'call> Judge<'call> {
    /// Judges one limit and adds it to the others, where it is made: it is too large to be moved about.
    #[expect(clippy::inline_always, reason = "some 60 instructions of every call")]
    #[inline(always)]
    fn limit(
        &self,
        key: &Key<'_>,
        call: &AnyCall<'_>,
        limits: &mut Limits<'call>,
    ) -> Result<Verdict, Error> {
        match call {
            AnyCall::Units(Call { policy, charge }) => match *policy {
                Policy::Fixed(policy) => {
                    self.text::<FixedWindow>(key, policy, *charge, Change::Counter, limits)
                }
                Policy::Token(policy) => {
                    self.text::<TokenBucket>(key, policy, *charge, Change::Level, limits)
                }
                Policy::Slide(policy) => {
                    self.text::<SlidingWindow>(key, policy, *charge, Change::Windows, limits)
                }
                Policy::Exact(policy) => self.log(key, policy, *charge, limits),
            },
            AnyCall::Lease(call) => self.leases(key, call, limits),
        }
    }

    #[expect(clippy::inline_always, reason = "some 60 instructions of every call")]
    #[inline(always)]
    fn text<L: TextLimiter>(
        &self,
        key: &Key<'_>,
        policy: L::Policy,
        charge: Charge,
        change: impl Fn(L::Change) -> Change<'call>,
        limits: &mut Limits<'call>,
    ) -> Result<Verdict, Error> {
        let (found, stored) = Found::look_up_text(key, self.now)?;
        let mut limiter = L::at(policy, stored, self.now)?;
        let (decision, stores) = self.units(&mut limiter, charge)?;
        limits.push(Limit {
            decision,
            found,
            change: stores.then(|| change(limiter.change())),
            needs_memory: stores && !found.is_live(),
            stepped_back: limiter.stepped_back(),
        });
        Ok(decision.verdict())
    }

    #[inline(never)]
    fn log(
        &self,
        key: &Key<'_>,
        policy: ExactPolicy,
        charge: Charge,
        limits: &mut Limits<'call>,
    ) -> Result<Verdict, Error> {
        let mut seen = Seen::new();
        let (found, mut list) = Found::look_up_list(key, self.now)?;
        let len = list.as_ref().map_or(0, List::count);
        let stored = list.as_mut().map(|list| (list, found.expire_at_ms));
        let mut limiter = SlidingLog::at(policy, stored, self.now, &mut seen)?;
        let (decision, stores) = self.units(&mut limiter, charge)?;
        let change = stores.then(|| limiter.change());
        limits.push(Limit {
            decision,
            found,
            change: change.map(|change| Change::Log(change, len)),
            needs_memory: change.is_some_and(|change| !found.is_live() || change.lengthens()),
            stepped_back: limiter.stepped_back(),
        });
        Ok(decision.verdict())
    }

    #[inline(never)]
    fn leases(
        &self,
        key: &Key<'_>,
        call: &LeaseCall<'_>,
        limits: &mut Limits<'call>,
    ) -> Result<Verdict, Error> {
        let id = self.server.string(call.id).ok_or(Error::Internal)?;
        let mut leases = LeaseKey::look_up(key, id.get(), self.now)?;
        let (found, count) = (leases.found, leases.count());
        let mut limiter = leases.at(call, self.now)?;
        let decision = match self.mode {
            Mode::Charge => limiter.decide()?,
            Mode::Look => limiter.peek()?,
        };
        let change = limiter.change();
        let needs_memory = limiter.lengthens();
        limits.push(Limit {
            decision,
            found,
            change: change.map(|change| Change::Leases(change, count, id)),
            needs_memory,
            stepped_back: false,
        });
        Ok(decision.verdict())
    }

    /// What a limiter of units tells, and whether there is something to store.
    #[expect(
        clippy::inline_always,
        reason = "a limiter is too large to be moved about"
    )]
    #[inline(always)]
    fn units<L: Limiter>(
        &self,
        limiter: &mut L,
        charge: Charge,
    ) -> Result<(Decision, bool), Error> {
        match self.mode {
            Mode::Charge => {
                let decision = limiter.decide(charge)?;
                Ok((decision, limiter.stores(&decision)))
            }
            Mode::Look => Ok((limiter.peek(charge)?, limiter.stepped_back())),
        }
    }

    /// Looks again at so many that were charged before one refused.
    #[cold]
    fn look_again(
        &self,
        open: &[Key<'_>],
        calls: &Calls<'_>,
        count: usize,
        limits: &mut Limits<'call>,
    ) -> Result<(), ErrorOf> {
        let mut looked_at = Limits::new();
        for (index, (call, key)) in calls.iter().zip(open).take(count).enumerate() {
            let told = self.limit(key, call, &mut looked_at);
            told.map_err(|error| error.of(index, calls.len()))?;
        }
        for (limit, looked_at) in limits.iter_mut().zip(looked_at) {
            *limit = looked_at;
        }
        Ok(())
    }
}

impl Limit<'_> {
    /// Whether storing it makes the server tell of something: a key that is new or goes, or a command of
    /// its own.
    #[inline]
    fn is_told(&self) -> bool {
        let Some(change) = &self.change else {
            return false;
        };
        let told = match change {
            Change::Counter(change) => *change == text::Change::Delete,
            Change::Level(change) => *change == text::Change::Delete,
            Change::Windows(change) => *change == text::Change::Delete,
            Change::Log(change, len) => {
                change.leaving() >= *len || Key::trims_by_command(change.leaving())
            }
            Change::Leases(change, ..) => *change == lease::Change::Delete || change.over() > 0,
        };
        told || !self.found.is_live()
    }

    /// Stores it. A server that refuses its own command has a defect, which is counted, and the call
    /// goes on, as others are charged by then.
    #[inline]
    fn store(&self, key: &mut Key<'_>, now: Timestamp) {
        let stored = match &self.change {
            None => return,
            Some(Change::Counter(change)) => return store_text(key, self.found, change),
            Some(Change::Level(change)) => return store_text(key, self.found, change),
            Some(Change::Windows(change)) => return store_text(key, self.found, change),
            Some(Change::Log(change, len)) => store_log(key, self.found, *len, change),
            Some(Change::Leases(change, count, id)) => {
                store_leases(key, self.found, *count, id.get(), change, now)
            }
        };
        if stored.is_err() {
            stats::INTERNAL_ERRORS.add_one();
        }
    }
}
