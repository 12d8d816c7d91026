//! The commands: the table, and what each of them runs.

use core::ffi::c_int;
use std::panic::{self, AssertUnwindSafe};

use redis_module::raw::{RedisModuleCtx, RedisModuleString};

use super::api;
use super::describe::{Access, Arg, Command};
use super::keys::Keys;
use super::run;
use super::server::{Args, Loaded, Server};
use super::stats::{self, Calls};
use crate::decision::Decision;
use crate::error::Error;
use crate::request;

/// A callback of its own for each command, so that none has to find out which it is.
macro_rules! callback {
    ($run:path, $calls:path) => {{
        unsafe extern "C" fn callback(
            ctx: *mut RedisModuleCtx,
            argv: *mut *mut RedisModuleString,
            argc: c_int,
        ) -> c_int {
            // SAFETY: these come from the server, for this call.
            unsafe { call(ctx, argv, argc, &$calls, $run) }
        }
        callback
    }};
}

/// Every command of the module.
pub(super) const COMMANDS: [Command; 4] = [
    Command {
        name: c"rl.fixed",
        summary: c"Takes units from a fixed window, or gives units back to it. Replies with allowed, limit, remaining, retry_after_ms and reset_after_ms.",
        complexity: c"O(1)",
        args: &[Arg::KEY, LIMIT, WINDOW, Arg::CHARGE],
        min_args: 4,
        access: Access::Write,
        flags: c"write fast",
        categories: c"write fast",
        callback: callback!(rl_fixed, stats::FIXED),
    },
    Command {
        name: c"rl.token",
        summary: c"Takes tokens from a bucket that refills evenly, or gives tokens back to it. Replies with allowed, limit, remaining, retry_after_ms and reset_after_ms.",
        complexity: c"O(1)",
        args: &[Arg::KEY, CAPACITY, REFILL, PERIOD, Arg::CHARGE],
        min_args: 5,
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
        args: &[Arg::KEY, LIMIT, WINDOW, Arg::CHARGE, Arg::EXACT],
        min_args: 4,
        access: Access::Write,
        flags: c"write",
        categories: c"write slow",
        callback: callback!(rl_slide, stats::SLIDE),
    },
    Command {
        name: c"rl.peek",
        summary: c"Tells what a call would be answered, and takes nothing. Replies with allowed, limit, remaining, retry_after_ms and reset_after_ms.",
        complexity: c"O(1). With EXACT: O(log(L)) where L is the number of units in the log.",
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
                ],
            ),
            Arg::LOOK,
        ],
        min_args: 5,
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

/// `RL.PEEK key FIXED limit window_ms [COST n | UPTO n]`, and so on for the other algorithms
fn rl_peek(keys: &mut Keys<'_>, args: Args<'_>) -> Result<Decision, Error> {
    let call = request::peek(args.after_key())?;
    run::peek(keys, args.key()?, call)
}

/// # Safety
///
/// The arguments are those that the server passed to the callback that runs.
#[inline]
unsafe fn call(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
    calls: &'static Calls,
    run: impl FnOnce(&mut Keys<'_>, Args<'_>) -> Result<Decision, Error>,
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
    let result = guard(|| run(&mut keys, args));
    calls.count(&result);
    server.reply(result)
}

/// Runs what the server asked for. Unwinding into C aborts the server, so a panic becomes an error
/// here.
pub(super) fn guard<T>(run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(Error::Internal))
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
        assert_eq!(guard(|| Ok(7)), Ok(7));
    }
}
