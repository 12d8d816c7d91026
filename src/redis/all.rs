//! The order of work of a call on several keys: each step is done for all of them before the next.
//!
//! Until every limit is judged and memory is asked for, nothing is written; after that, nothing can
//! fail. So all are charged, or none is.

use arrayvec::ArrayVec;

use super::apply::{ask_for_memory, store_leases, store_log, store_text};
use super::found::Found;
use super::keys::{Key, Keys, List};
use super::run::{LeaseKey, notify};
use super::server::{OwnStr, Server, Str};
use super::stats;
use crate::clock::Timestamp;
use crate::decision::{Decision, RetryAfter, Verdict};
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
    let now = server.now()?;
    // Filled in their place: together these are some kilobytes, too much to be moved about.
    let mut limits = Limits::new();
    let verdict = {
        let mut open = ArrayVec::new();
        keys.open_all(names, &mut open)?;
        let verdict = judge(server, &open, calls, now, &mut limits)?;
        if verdict.is_admitted {
            for (key, limit) in open.iter().zip(&limits) {
                ask_for_memory(key, limit.needs_memory)?;
            }
        }
        if verdict.stores() {
            for (key, limit) in open.iter_mut().zip(&limits) {
                if !limit.calls_server() {
                    limit.store(key, now);
                }
            }
        }
        verdict
    };
    // These take a command of the server's, to which somebody may listen: no other key is open.
    if verdict.stores() {
        for (name, limit) in names.iter().zip(&limits) {
            if limit.calls_server() {
                limit.store(&mut keys.open_again(*name), now);
            }
        }
    }
    for ((call, limit), name) in calls.iter().zip(&limits).zip(names) {
        let is_told = if verdict.is_admitted {
            stats::ALL.count_kind(call, &limit.decision);
            call.is_forced()
        } else {
            call.can_be_refused()
        };
        let is_refused = is_told && !limit.decision.is_admitted();
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
    let mut at = Instant {
        server,
        now,
        charges: true,
    };
    let mut retry_after = RetryAfter::Ms(0);
    let mut before = 0;
    for (index, (call, key)) in calls.iter().zip(open).enumerate() {
        let told = at.judge(key, call, limits);
        let told = told.map_err(|error| error.of(index, calls.len()))?;
        if call.can_be_refused() {
            if at.charges && !told.is_admitted {
                // What those before have to wait for is that of a call that was admitted.
                retry_after = RetryAfter::Ms(0);
                before = index;
                at.charges = false;
            }
            retry_after = retry_after.max(told.retry_after);
        }
    }
    if before > 0 {
        at.look_again(open, calls, before, limits)?;
    }
    Ok(Verdict {
        is_admitted: at.charges,
        retry_after,
    })
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

/// When limits are judged, and whether they are charged if they admit, or only looked at.
struct Instant<'call> {
    server: Server<'call>,
    now: Timestamp,
    charges: bool,
}

impl<'call> Instant<'call> {
    /// Judges one limit and adds it to the others, where it is made: it is too large to be moved about.
    #[expect(clippy::inline_always, reason = "some 60 instructions of every call")]
    #[inline(always)]
    fn judge(
        &self,
        key: &Key<'_>,
        call: &AnyCall<'_>,
        limits: &mut Limits<'call>,
    ) -> Result<Verdict, Error> {
        match call {
            AnyCall::Units(Call { policy, charge }) => match *policy {
                Policy::Fixed(policy) => {
                    self.judge_text::<FixedWindow>(key, policy, *charge, Change::Counter, limits)
                }
                Policy::Token(policy) => {
                    self.judge_text::<TokenBucket>(key, policy, *charge, Change::Level, limits)
                }
                Policy::Slide(policy) => {
                    self.judge_text::<SlidingWindow>(key, policy, *charge, Change::Windows, limits)
                }
                Policy::Exact(policy) => self.judge_log(key, policy, *charge, limits),
            },
            AnyCall::Lease(call) => self.judge_leases(key, call, limits),
        }
    }

    #[expect(clippy::inline_always, reason = "some 60 instructions of every call")]
    #[inline(always)]
    fn judge_text<L: TextLimiter>(
        &self,
        key: &Key<'_>,
        policy: L::Policy,
        charge: Charge,
        change: impl Fn(L::Change) -> Change<'call>,
        limits: &mut Limits<'call>,
    ) -> Result<Verdict, Error> {
        let (found, stored) = Found::look_up_text(key, self.now)?;
        let mut limiter = L::at(policy, stored, self.now)?;
        let (decision, stores) = self.judge_units(&mut limiter, charge)?;
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
    fn judge_log(
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
        let (decision, stores) = self.judge_units(&mut limiter, charge)?;
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
    fn judge_leases(
        &self,
        key: &Key<'_>,
        call: &LeaseCall<'_>,
        limits: &mut Limits<'call>,
    ) -> Result<Verdict, Error> {
        let id = self.server.string(call.id).ok_or(Error::Internal)?;
        let mut leases = LeaseKey::look_up(key, id.get(), self.now)?;
        let (found, count) = (leases.found, leases.count());
        let mut limiter = leases.at(call, self.now)?;
        let decision = if self.charges {
            limiter.decide()?
        } else {
            limiter.peek()?
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
    fn judge_units<L: Limiter>(
        &self,
        limiter: &mut L,
        charge: Charge,
    ) -> Result<(Decision, bool), Error> {
        if self.charges {
            let decision = limiter.decide(charge)?;
            Ok((decision, limiter.stores(&decision)))
        } else {
            Ok((limiter.peek(charge)?, limiter.stepped_back()))
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
            let told = self.judge(key, call, &mut looked_at);
            told.map_err(|error| error.of(index, calls.len()))?;
        }
        for (limit, looked_at) in limits.iter_mut().zip(looked_at) {
            *limit = looked_at;
        }
        Ok(())
    }
}

impl Limit<'_> {
    /// Whether it takes a command of the server's to store it.
    #[inline]
    fn calls_server(&self) -> bool {
        match &self.change {
            Some(Change::Log(change, _)) => Key::trims_by_command(change.leaving()),
            Some(Change::Leases(change, ..)) => change.over() > 0,
            _ => false,
        }
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
