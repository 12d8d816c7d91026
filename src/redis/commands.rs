//! The commands: the table, and what each of them runs.

use core::ffi::c_int;
use std::panic::{self, AssertUnwindSafe};

use redis_module::raw::{RedisModuleCtx, RedisModuleString};

use super::all;
use super::api;
use super::describe::{Access, Arg, Command, KeyPlaces};
use super::keys::Keys;
use super::run;
use super::server::{Args, Loaded, Server};
use super::stats::{self, Calls};
use crate::decision::{Decision, Verdict};
use crate::error::{Error, ErrorOf};
use crate::policy::Hold;
use crate::request;

/// A callback of its own for each command, so that none has to find out which it is.
macro_rules! callback {
    ($run:path, $calls:path $(, $first:path)?) => {{
        unsafe extern "C" fn callback(
            ctx: *mut RedisModuleCtx,
            argv: *mut *mut RedisModuleString,
            argc: c_int,
        ) -> c_int {
            // SAFETY: these come from the server, for this call.
            unsafe {
                $(if $first(ctx, argv, argc) {
                    return api::OK;
                })?
                call(ctx, argv, argc, &$calls, $run)
            }
        }
        callback
    }};
}

/// Every command of the module.
pub(super) const COMMANDS: [Command; 6] = [
    Command {
        name: c"rl.fixed",
        summary: c"Takes units from a fixed window, or gives units back to it. Replies with allowed, limit, remaining, retry_after_ms and reset_after_ms.",
        complexity: c"O(1)",
        since: c"0.1.0",
        args: &[Arg::KEY, LIMIT, WINDOW, Arg::CHARGE],
        min_args: 4,
        key_places: KeyPlaces::First,
        access: Access::Write,
        flags: c"write fast",
        categories: c"write fast",
        callback: callback!(rl_fixed, stats::FIXED),
    },
    Command {
        name: c"rl.token",
        summary: c"Takes tokens from a bucket that refills evenly, or gives tokens back to it. Replies with allowed, limit, remaining, retry_after_ms and reset_after_ms.",
        complexity: c"O(1)",
        since: c"0.1.0",
        args: &[Arg::KEY, CAPACITY, REFILL, PERIOD, Arg::CHARGE],
        min_args: 5,
        key_places: KeyPlaces::First,
        access: Access::Write,
        flags: c"write fast",
        categories: c"write fast",
        callback: callback!(rl_token, stats::TOKEN),
    },
    // Not `fast`: with `EXACT`, the time grows with the cost and with the units that leave.
    Command {
        name: c"rl.slide",
        summary: c"Takes units from a sliding window, or gives units back to it. Replies with allowed, limit, remaining, retry_after_ms and reset_after_ms.",
        complexity: c"O(1). With EXACT: O(log(L)+N+M) where L is the number of units in the log, N the number of units taken or given back and M the number of units that left the window since the last admitted call.",
        since: c"0.1.0",
        args: &[Arg::KEY, LIMIT, WINDOW, Arg::CHARGE, Arg::EXACT],
        min_args: 4,
        key_places: KeyPlaces::First,
        access: Access::Write,
        flags: c"write",
        categories: c"write slow",
        callback: callback!(rl_slide, stats::SLIDE),
    },
    // Not `fast`: the time grows with the leases that are over.
    Command {
        name: c"rl.lease",
        summary: c"Takes, renews or releases one of so many leases, by its id. Replies with allowed, limit, remaining, retry_after_ms and reset_after_ms.",
        complexity: c"O(log(N)+M) where N is the number of leases and M the number of them that ended since the last admitted call.",
        since: c"0.2.0",
        args: &[Arg::KEY, LIMIT, TTL, ID, Arg::HOLD],
        min_args: 5,
        key_places: KeyPlaces::First,
        access: Access::Write,
        flags: c"write",
        categories: c"write slow",
        callback: callback!(rl_lease, stats::LEASE),
    },
    // It admits or refuses all of its limits together.
    Command {
        name: c"rl.all",
        summary: c"Takes from several limits in one step, all or none. Replies with allowed, retry_after_ms, and the five integers of each limit.",
        complexity: c"O(N) where N is the number of keys, and of each what its own command says.",
        since: c"0.2.0",
        args: &[
            Arg::integer(c"numkeys"),
            Arg::several(Arg::KEY),
            Arg::several(Arg::one_of(
                c"policy",
                &[
                    Arg::block(
                        c"fixed",
                        &[Arg::word(c"fixed", c"FIXED"), LIMIT, WINDOW, Arg::SETTLE],
                    ),
                    Arg::block(
                        c"token",
                        &[
                            Arg::word(c"token", c"TOKEN"),
                            CAPACITY,
                            REFILL,
                            PERIOD,
                            Arg::SETTLE,
                        ],
                    ),
                    Arg::block(
                        c"slide",
                        &[
                            Arg::word(c"slide", c"SLIDE"),
                            LIMIT,
                            WINDOW,
                            Arg::SETTLE,
                            Arg::EXACT,
                        ],
                    ),
                    Arg::block(
                        c"lease",
                        &[Arg::word(c"lease", c"LEASE"), LIMIT, TTL, ID, Arg::HOLD],
                    ),
                ],
            )),
        ],
        min_args: 4,
        key_places: KeyPlaces::Counted,
        access: Access::Write,
        flags: c"write getkeys-api",
        categories: c"write slow",
        callback: callback!(rl_all, stats::ALL, tell_keys),
    },
    Command {
        name: c"rl.peek",
        summary: c"Tells what a call would be answered, and takes nothing. Replies with allowed, limit, remaining, retry_after_ms and reset_after_ms.",
        complexity: c"O(1). With EXACT: O(log(L)) where L is the number of units in the log. LEASE: O(log(N)) where N is the number of leases.",
        since: c"0.1.0",
        args: &[
            Arg::KEY,
            Arg::one_of(
                c"algorithm",
                &[
                    Arg::block(c"fixed", &[Arg::word(c"fixed", c"FIXED"), LIMIT, WINDOW]),
                    Arg::block(
                        c"token",
                        &[Arg::word(c"token", c"TOKEN"), CAPACITY, REFILL, PERIOD],
                    ),
                    Arg::block(
                        c"slide",
                        &[Arg::word(c"slide", c"SLIDE"), LIMIT, WINDOW, Arg::EXACT],
                    ),
                    Arg::block(
                        c"lease",
                        &[Arg::word(c"lease", c"LEASE"), LIMIT, TTL, ID],
                    ),
                ],
            ),
            Arg::LOOK,
        ],
        min_args: 5,
        key_places: KeyPlaces::First,
        access: Access::Read,
        flags: c"readonly",
        categories: c"read slow",
        callback: callback!(rl_peek, stats::PEEK),
    },
];

const LIMIT: Arg = Arg::integer(c"limit");
const WINDOW: Arg = Arg::integer(c"window_ms");
const CAPACITY: Arg = Arg::integer(c"capacity");
const REFILL: Arg = Arg::integer(c"refill");
const PERIOD: Arg = Arg::integer(c"period_ms");
const TTL: Arg = Arg::integer(c"ttl_ms");
const ID: Arg = Arg::string(c"id");

/// `RL.FIXED key limit window_ms [COST n [FORCE] | UPTO n | REFUND n]`
fn rl_fixed(keys: &mut Keys<'_>, args: Args<'_>) -> Result<Decision, Error> {
    let call = request::fixed(args.after_key())?;
    run::decide(keys, args.key()?, call)
}

/// `RL.TOKEN key capacity refill period_ms [COST n [FORCE] | UPTO n | REFUND n]`
fn rl_token(keys: &mut Keys<'_>, args: Args<'_>) -> Result<Decision, Error> {
    let call = request::token(args.after_key())?;
    run::decide(keys, args.key()?, call)
}

/// `RL.SLIDE key limit window_ms [COST n [FORCE] | UPTO n | REFUND n] [EXACT]`
fn rl_slide(keys: &mut Keys<'_>, args: Args<'_>) -> Result<Decision, Error> {
    let call = request::slide(args.after_key())?;
    run::decide(keys, args.key()?, call)
}

/// `RL.LEASE key limit ttl_ms id [RENEW | RELEASE]`
fn rl_lease(keys: &mut Keys<'_>, args: Args<'_>) -> Result<Held, Error> {
    let call = request::lease(args.after_key())?;
    let decision = run::decide_lease(keys, args.key()?, call)?;
    let hold = call.hold;
    Ok(Held { hold, decision })
}

/// `RL.ALL numkeys key [key …] policy [policy …]`
fn rl_all(keys: &mut Keys<'_>, args: Args<'_>) -> Result<Verdict, ErrorOf> {
    let (names, words) = args.counted_keys()?;
    let mut calls = request::Calls::new();
    request::policies(words, names.len(), &mut calls)?;
    all::decide(keys, names, &calls)
}

/// `RL.PEEK key FIXED limit window_ms [COST n | UPTO n]`, and so on for the other algorithms
fn rl_peek(keys: &mut Keys<'_>, args: Args<'_>) -> Result<Decision, Error> {
    let call = request::peek(args.after_key())?;
    run::peek(keys, args.key()?, call)
}

/// # Safety
///
/// The arguments are those that the server passed to the callback that runs.
#[inline]
unsafe fn call<T: Answer, E: Into<ErrorOf> + From<Error>>(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
    calls: &'static Calls,
    run: impl FnOnce(&mut Keys<'_>, Args<'_>) -> Result<T, E>,
) -> c_int {
    // SAFETY: a module is not unloaded while one of its commands runs.
    let Some(loaded) = (unsafe { Loaded::get() }) else {
        return api::ERR;
    };
    // SAFETY: promised by the caller, and these are the call's only ones.
    let (server, args, mut keys) = unsafe {
        let server = Server::new(ctx, loaded);
        (server, Args::new(server, argv, argc), Keys::new(server))
    };
    match guard(|| run(&mut keys, args)) {
        Ok(answer) => {
            answer.count(calls);
            answer.reply(server)
        }
        Err(error) => {
            let error = error.into();
            calls.count_error(error.error);
            server.reply_error(error)
        }
    }
}

/// Tells the server which arguments of `RL.ALL` are keys, if that is all that it asks for.
///
/// # Safety
///
/// As that of [`call`].
unsafe fn tell_keys(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> bool {
    // SAFETY: a module is not unloaded while one of its commands runs.
    let Some(loaded) = (unsafe { Loaded::get() }) else {
        return false;
    };
    // SAFETY: promised by the caller.
    let (server, args) = unsafe {
        let server = Server::new(ctx, loaded);
        (server, Args::new(server, argv, argc))
    };
    server.asks_for_keys() && {
        // One that names no keys is an error, and opens none.
        let count = guard(|| args.counted_keys().map(|(names, _)| names.len()));
        server.tell_keys(count.unwrap_or(0));
        true
    }
}

/// What a call is answered that is no error.
trait Answer {
    fn count(&self, calls: &Calls);
    fn reply(self, server: Server<'_>) -> c_int;
}

impl Answer for Decision {
    #[inline]
    fn count(&self, calls: &Calls) {
        calls.count(self.is_admitted(), self.retry_after);
    }

    #[inline]
    fn reply(self, server: Server<'_>) -> c_int {
        server.reply(self)
    }
}

/// The answer to a call on leases.
struct Held {
    hold: Hold,
    decision: Decision,
}

impl Answer for Held {
    fn count(&self, calls: &Calls) {
        let is_admitted = self.decision.is_admitted();
        // A release that finds nothing is neither admitted nor refused.
        if is_admitted || self.hold.can_be_refused() {
            calls.count(is_admitted, self.decision.retry_after);
        }
        calls.count_hold(self.hold, &self.decision);
    }

    fn reply(self, server: Server<'_>) -> c_int {
        server.reply(self.decision)
    }
}

/// The answer to a call with several limits, which has replied with those of each.
impl Answer for Verdict {
    fn count(&self, calls: &Calls) {
        calls.count(self.is_admitted, self.retry_after);
    }

    fn reply(self, _server: Server<'_>) -> c_int {
        api::OK
    }
}

/// Runs what the server asked for. Unwinding into C aborts the server, so a panic becomes an error
/// here.
pub(super) fn guard<T, E: From<Error>>(run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(Error::Internal.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| {}));
        let result = guard(|| -> Result<(), Error> { panic!("a defect") });
        panic::set_hook(hook);
        assert_eq!(result, Err(Error::Internal));
        assert_eq!(guard(|| Ok::<_, Error>(7)), Ok(7));
    }
}
