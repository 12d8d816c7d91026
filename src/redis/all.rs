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
use crate::limiter::lease;
use crate::limiter::log::{self, Entries, Seen, SlidingLog};
use crate::limiter::slide::{SlidingWindow, Windows};
use crate::limiter::text::{self, TextLimiter};
use crate::limiter::token::{Level, TokenBucket};
use crate::limiter::{Limiter, Plan};
use crate::policy::{Charge, ExactPolicy, MAX_LIMITS, Policy};
use crate::request::{AnyCall, Call, Calls, LeaseCall};

/// What a call on several keys is answered.
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    /// Of each limit, in order.
    pub(super) decisions: ArrayVec<Decision, MAX_LIMITS>,
}

/// Decides calls on as many keys, and charges all of them or none.
pub(super) fn decide(
    keys: &mut Keys<'_>,
    names: &[Str<'_>],
    calls: &Calls<'_>,
) -> Result<Answer, ErrorOf> {
    let server = keys.server();
    let now = server.now()?;
    let mut open = keys.open_all(names)?;
    let mut limits = ArrayVec::<Limit<'_>, MAX_LIMITS>::new();
    for (index, (key, call)) in open.iter().zip(calls).enumerate() {
        let limit = Limit::judge(server, key, call, now);
        limits.push(limit.map_err(|error| error.of(index, calls.len()))?);
    }
    let answer = answer(calls, &limits);
    if answer.verdict.is_admitted {
        for (key, limit) in open.iter().zip(&limits) {
            ask_for_memory(key, limit.needs_memory)?;
        }
    }
    let mut last = ArrayVec::<_, MAX_LIMITS>::new();
    for (mut key, (name, limit)) in open.drain(..).zip(names.iter().zip(&limits)) {
        match limit.change(&answer.verdict) {
            Some(change) if change.calls_server() => last.push((*name, limit, change)),
            Some(change) => limit.store(&mut key, change, now),
            None => {}
        }
    }
    drop(open);
    // These run commands of the server's, to which somebody may listen: no other key is open.
    for (name, limit, change) in last {
        limit.store(&mut keys.open_again(name), change, now);
    }
    for (index, call) in calls.iter().enumerate() {
        let (Some(name), Some(limit)) = (names.get(index), limits.get(index)) else {
            break;
        };
        let stepped_back = limit.plan.step.is_some() && limit.change(&answer.verdict).is_some();
        let is_refused = limit.is_refused(call, &answer.verdict);
        notify(keys, *name, !is_refused, stepped_back);
        if answer.verdict.is_admitted {
            stats::ALL.count_kind(call, &limit.plan.together);
        }
    }
    Ok(answer)
}

/// The answer, once all are judged.
fn answer(calls: &Calls<'_>, limits: &[Limit<'_>]) -> Answer {
    let told = |tell: fn(&Plan<Change>) -> Decision| {
        let decisions: ArrayVec<_, MAX_LIMITS> =
            limits.iter().map(|limit| tell(&limit.plan)).collect();
        let asked = calls.iter().zip(&decisions);
        let asked = asked.filter(|(call, _)| call.can_be_refused());
        let verdict = asked.fold(Verdict::NOTHING, |verdict, (_, decision)| {
            verdict.and(decision)
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

/// One limit of several, judged.
struct Limit<'call> {
    found: Found,
    plan: Plan<Change>,
    /// Whether the change of an admitted call needs memory.
    needs_memory: bool,
    /// Whose lease it is, if it is one.
    id: Option<OwnStr<'call>>,
}

/// What is to be stored of one limit.
#[derive(Clone, Copy)]
enum Change {
    Counter(text::Change<Counter>),
    Level(text::Change<Level>),
    Windows(text::Change<Windows>),
    /// Of a log of so many entries.
    Log(log::Change, u64),
    /// Of so many leases.
    Leases(lease::Change, u64),
}

impl Change {
    /// Whether it takes a command of the server's to make it.
    fn calls_server(&self) -> bool {
        match self {
            Self::Counter(_) | Self::Level(_) | Self::Windows(_) => false,
            Self::Log(change, _) => Key::trims_by_command(change.leaving()),
            Self::Leases(change, _) => change.over() > 0,
        }
    }
}

impl<'call> Limit<'call> {
    fn judge(
        server: Server<'call>,
        key: &Key<'_>,
        call: &AnyCall<'_>,
        now: Timestamp,
    ) -> Result<Self, Error> {
        match call {
            AnyCall::Units(Call { policy, charge }) => match *policy {
                Policy::Fixed(policy) => {
                    Self::of_text::<FixedWindow>(key, policy, *charge, now, Change::Counter)
                }
                Policy::Token(policy) => {
                    Self::of_text::<TokenBucket>(key, policy, *charge, now, Change::Level)
                }
                Policy::Slide(policy) => {
                    Self::of_text::<SlidingWindow>(key, policy, *charge, now, Change::Windows)
                }
                Policy::Exact(policy) => Self::of_log(key, policy, *charge, now),
            },
            AnyCall::Lease(call) => Self::of_leases(server, key, call, now),
        }
    }

    fn of_text<L: TextLimiter>(
        key: &Key<'_>,
        policy: L::Policy,
        charge: Charge,
        now: Timestamp,
        into: impl Fn(L::Change) -> Change,
    ) -> Result<Self, Error> {
        let (found, stored) = Found::look_up_text(key, now)?;
        let plan = L::at(policy, stored, now)?.plan(charge)?.map(into);
        Ok(Self {
            found,
            needs_memory: plan.change.is_some() && !found.is_live(),
            plan,
            id: None,
        })
    }

    fn of_log(
        key: &Key<'_>,
        policy: ExactPolicy,
        charge: Charge,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let mut seen = Seen::new();
        let (found, mut list) = Found::look_up_list(key, now)?;
        let len = list.as_ref().map_or(0, List::count);
        let stored = list.as_mut().map(|list| (list, found.expire_at_ms));
        let plan = SlidingLog::at(policy, stored, now, &mut seen)?.plan(charge)?;
        let lengthens = |change: &log::Change| !found.is_live() || change.lengthens();
        Ok(Self {
            found,
            needs_memory: plan.change.as_ref().is_some_and(lengthens),
            plan: plan.map(|change| Change::Log(change, len)),
            id: None,
        })
    }

    fn of_leases(
        server: Server<'call>,
        key: &Key<'_>,
        call: &LeaseCall<'_>,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let id = server.string(call.id).ok_or(Error::Internal)?;
        let mut leases = LeaseKey::look_up(key, id.get(), now)?;
        let (found, count) = (leases.found, leases.count());
        let mut set = leases.at(call, now)?;
        let plan = set.plan()?.map(|change| Change::Leases(change, count));
        Ok(Self {
            found,
            needs_memory: set.lengthens(),
            plan,
            id: Some(id),
        })
    }

    /// What is stored of it once the verdict is known.
    fn change(&self, verdict: &Verdict) -> Option<&Change> {
        if verdict.is_admitted {
            self.plan.change.as_ref()
        } else if verdict.retry_after == RetryAfter::Never {
            None
        } else {
            self.plan.step.as_ref()
        }
    }

    /// Whether it stood in the way, or was charged although it did not fit.
    fn is_refused(&self, call: &AnyCall<'_>, verdict: &Verdict) -> bool {
        if verdict.is_admitted {
            call.is_forced() && !self.plan.together.is_admitted()
        } else {
            call.can_be_refused() && !self.plan.alone.is_admitted()
        }
    }

    /// Makes a change. It can't be refused: a server that refuses its own command has a defect, which
    /// is counted, and the call goes on, as others are charged already.
    fn store(&self, key: &mut Key<'_>, change: &Change, now: Timestamp) {
        let stored = match change {
            Change::Counter(change) => {
                store_text(key, self.found, change);
                Ok(())
            }
            Change::Level(change) => {
                store_text(key, self.found, change);
                Ok(())
            }
            Change::Windows(change) => {
                store_text(key, self.found, change);
                Ok(())
            }
            Change::Log(change, len) => store_log(key, self.found, *len, change),
            Change::Leases(change, count) => match &self.id {
                Some(id) => store_leases(key, self.found, *count, id.get(), change, now),
                None => Err(Error::Internal),
            },
        };
        if stored.is_err() {
            stats::INTERNAL_ERRORS.add_one();
        }
    }
}
