//! The shell: what makes a server module of the core. It knows no algorithm.
//!
//! | file | owns |
//! |---|---|
//! | this one | loading, and the table of commands |
//! | `command` | the order of work of a call |
//! | `server` | safe wrappers around the server's functions |
//! | `describe` | what the server is told about a command |
//! | `figures` | what is counted, and `INFO` |
//! | `api` | looking those functions up |

#![allow(unsafe_code, reason = "the server's API is C")]
#![allow(
    clippy::as_conversions,
    reason = "constants of C headers come as types of their own"
)]

mod api;
mod command;
mod describe;
mod figures;
mod server;

use core::ffi::{CStr, c_int};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::CString;
use std::panic::{self, AssertUnwindSafe};

use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};

use self::api::Api;
use self::describe::{Arg, describe};
use self::figures::Calls;
use self::server::{Args, Loaded, Server};
use crate::decision::Decision;
use crate::error::Error;

/// One command: everything the server is told about it.
struct Command {
    name: &'static CStr,
    summary: &'static CStr,
    complexity: &'static CStr,
    args: &'static [Arg],
    /// The least number of arguments, the command's name included.
    min_args: usize,
    access: Access,
    /// Its flags. Not `deny-oom`: a limiter that goes dark when memory is full protects nobody.
    flags: &'static CStr,
    /// The ACL categories it belongs to beside [`CATEGORY`], on servers that let a module say so
    /// (7.2 and later).
    categories: &'static CStr,
}

/// What a command does to its key.
#[derive(Clone, Copy)]
enum Access {
    Read,
    Write,
}

/// A command as a type, so that each has a callback of its own.
trait Entry {
    const COMMAND: Command;

    /// Where its calls are counted.
    fn calls() -> &'static Calls;

    fn run(server: Server<'_>, args: Args<'_>) -> Result<Decision, Error>;
}

struct Fixed;
impl Entry for Fixed {
    const COMMAND: Command = Command {
        name: c"rl.fixed",
        summary: c"Takes units from a fixed window, if it has them left.",
        complexity: c"O(1)",
        args: &[Arg::KEY, LIMIT, WINDOW, Arg::COST],
        min_args: 4,
        access: Access::Write,
        flags: c"write fast",
        categories: c"write fast",
    };

    fn calls() -> &'static Calls {
        &figures::FIXED
    }

    fn run(server: Server<'_>, args: Args<'_>) -> Result<Decision, Error> {
        command::rl_fixed(server, args)
    }
}

struct Token;
impl Entry for Token {
    const COMMAND: Command = Command {
        name: c"rl.token",
        summary: c"Takes tokens from a bucket that refills evenly, if it holds them.",
        complexity: c"O(1)",
        args: &[Arg::KEY, CAPACITY, REFILL, PERIOD, Arg::COST],
        min_args: 5,
        access: Access::Write,
        flags: c"write fast",
        categories: c"write fast",
    };

    fn calls() -> &'static Calls {
        &figures::TOKEN
    }

    fn run(server: Server<'_>, args: Args<'_>) -> Result<Decision, Error> {
        command::rl_token(server, args)
    }
}

/// Not `fast`: with `EXACT`, the time grows with the cost and with the units that leave.
struct Slide;
impl Entry for Slide {
    const COMMAND: Command = Command {
        name: c"rl.slide",
        summary: c"Takes units from a sliding window, if it has them left.",
        complexity: c"O(1). With EXACT: O(log(L)+N+M) where L is the number of units in the log, N the cost and M the number of units that left the window since the last admitted call.",
        args: &[Arg::KEY, LIMIT, WINDOW, Arg::COST, Arg::EXACT],
        min_args: 4,
        access: Access::Write,
        flags: c"write",
        categories: c"write slow",
    };

    fn calls() -> &'static Calls {
        &figures::SLIDE
    }

    fn run(server: Server<'_>, args: Args<'_>) -> Result<Decision, Error> {
        command::rl_slide(server, args)
    }
}

struct Peek;
impl Entry for Peek {
    const COMMAND: Command = Command {
        name: c"rl.peek",
        summary: c"Tells what a call would be answered, and takes nothing.",
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
            Arg::COST,
        ],
        min_args: 5,
        access: Access::Read,
        flags: c"readonly",
        categories: c"read slow",
    };

    fn calls() -> &'static Calls {
        &figures::PEEK
    }

    fn run(server: Server<'_>, args: Args<'_>) -> Result<Decision, Error> {
        command::rl_peek(server, args)
    }
}

const LIMIT: Arg = Arg::integer(c"limit");
const WINDOW: Arg = Arg::integer(c"window_ms");
const CAPACITY: Arg = Arg::integer(c"capacity");
const REFILL: Arg = Arg::integer(c"refill");
const PERIOD: Arg = Arg::integer(c"period_ms");

/// The ACL category of all commands, on servers that let a module make one (Redis 7.4, Valkey 8).
const CATEGORY: &CStr = c"ratelimit";

/// The name under which the server lists the module.
const MODULE: &CStr = c"rl";
/// Major × 10000 + minor × 100 + patch, as modules do.
const VERSION: c_int = 100;

const TOO_OLD: &CStr = c"it needs Redis 7.0 or Valkey 8.0 or later, this server lacks";

/// What the server may take for granted. Keys are opened so that they can be written to, and a
/// refusal leaves them as they are. And as there is no data type of our own to load, and nothing is
/// kept between calls, loading may fail or go on in the background: a replica then answers reads
/// while it loads.
///
/// Nor is there anything to do when a slot moves to another node as a whole, as Valkey 9 can.
fn options() -> c_int {
    /// From Valkey's header. No other server known to us lists it among its options.
    const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;
    // SAFETY: a plain read; the function takes nothing and returns a number.
    let known = unsafe { raw::RedisModule_GetModuleOptionsAll.map_or(0, |known| known()) };
    api::NO_IMPLICIT_SIGNAL_MODIFIED
        | api::HANDLE_IO_ERRORS
        | api::HANDLE_REPL_ASYNC_LOAD
        | (known & HANDLE_ATOMIC_SLOT_MIGRATION)
}

/// Every command that goes to replicas and the AOF. The server drops one that `rename-command` has
/// taken away, without a word, and replicas would then differ.
const REPLICATED: [&CStr; 8] = [
    c"SET",
    c"INCR",
    c"INCRBY",
    c"RPUSH",
    c"LPOP",
    c"RPOP",
    c"DEL",
    c"PEXPIREAT",
];

/// Null until the module is loaded, and again once it is unloaded: the library may stay in memory,
/// and be loaded once more.
static LOADED: AtomicPtr<Loaded> = AtomicPtr::new(ptr::null_mut());

/// Called by the server when it loads the module.
///
/// # Safety
///
/// Only a server calls this, with the context it made for the purpose.
#[unsafe(no_mangle)]
#[expect(unreachable_pub, reason = "the server finds it by name")]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut RedisModuleCtx,
    _argv: *mut *mut RedisModuleString,
    _argc: c_int,
) -> c_int {
    let loaded = guard(|| {
        // SAFETY: the context is the one the server loads this module with.
        unsafe {
            let init =
                raw::Export_RedisModule_Init(ctx, MODULE.as_ptr(), VERSION, api::API_VERSION);
            if init != api::OK {
                return Err(refuse(ctx, c"there already is a module named", MODULE));
            }
            let api = match Api::resolve() {
                Ok(api) => api,
                Err(missing) => return Err(refuse(ctx, TOO_OLD, missing)),
            };
            let loaded = Box::new(Loaded::new(api).ok_or(Error::Internal)?);
            let api = &loaded.api;
            for command in REPLICATED {
                if !exists(ctx, api, command) {
                    return Err(refuse(
                        ctx,
                        c"replicas and the AOF need this command's name:",
                        command,
                    ));
                }
            }
            (api.set_module_options)(ctx, options());
            let has_category = raw::RedisModule_AddACLCategory.is_some_and(|add| {
                // One that is there already stays there when a module goes.
                add(ctx, CATEGORY.as_ptr()) == api::OK || last_error() == Some(libc::EBUSY)
            });
            register::<Fixed>(ctx, api, has_category)?;
            register::<Token>(ctx, api, has_category)?;
            register::<Slide>(ctx, api, has_category)?;
            register::<Peek>(ctx, api, has_category)?;
            figures::reset();
            if let Some(register_info) = raw::RedisModule_RegisterInfoFunc {
                register_info(ctx, Some(figures::info));
            }
            LOADED.store(Box::into_raw(loaded), Ordering::Relaxed);
            Ok(())
        }
    });
    match loaded {
        Ok(()) => api::OK,
        Err(_) => api::ERR,
    }
}

/// Called by the server when it unloads the module.
///
/// # Safety
///
/// Only a server calls this, when none of the module's commands runs any more.
#[unsafe(no_mangle)]
#[expect(unreachable_pub, reason = "the server finds it by name")]
pub unsafe extern "C" fn RedisModule_OnUnload(_ctx: *mut RedisModuleCtx) -> c_int {
    let loaded = LOADED.swap(ptr::null_mut(), Ordering::Relaxed);
    if !loaded.is_null() {
        // SAFETY: it comes from a box, was taken out of its place just now, and no command uses it.
        drop(unsafe { Box::from_raw(loaded) });
    }
    api::OK
}

/// What the server calls when a client sends the command.
unsafe extern "C" fn callback<E: Entry>(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: it is there from before the first command until after the last, all on the server's
    // main thread.
    let Some(loaded) = (unsafe { LOADED.load(Ordering::Relaxed).as_ref() }) else {
        return api::ERR;
    };
    // SAFETY: the context comes from the server, for this call.
    let server = unsafe { Server::new(ctx, loaded) };
    // SAFETY: as above.
    let args = unsafe { Args::new(argv, argc) };
    let result = guard(|| {
        if args.len() < E::COMMAND.min_args {
            return Err(Error::Arity);
        }
        E::run(server, args)
    });
    E::calls().count(&result);
    server.reply(result)
}

/// Runs what the server asked for. A panic that crossed into the server would end it, so one that
/// ever got in becomes an error here.
fn guard<T>(run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(Error::Internal))
}

/// # Safety
///
/// `ctx` is the context of a module that is being loaded.
unsafe fn register<E: Entry>(
    ctx: *mut RedisModuleCtx,
    api: &Api,
    has_category: bool,
) -> Result<(), Error> {
    let Command {
        name,
        categories,
        flags,
        ..
    } = E::COMMAND;
    let categories = if has_category {
        [categories, CATEGORY].map(CStr::to_bytes).join(&b' ')
    } else {
        categories.to_bytes().to_vec()
    };
    let categories = CString::new(categories).map_err(|_| Error::Internal)?;
    // SAFETY: the server copies the strings; the read is a plain one.
    let registered = unsafe {
        (api.create_command)(
            ctx,
            name.as_ptr(),
            Some(callback::<E>),
            flags.as_ptr(),
            1,
            1,
            1,
        ) == api::OK
            && describe(api, (api.get_command)(ctx, name.as_ptr()), &E::COMMAND).is_ok()
            && raw::RedisModule_SetCommandACLCategories.is_none_or(|set_categories| {
                set_categories((api.get_command)(ctx, name.as_ptr()), categories.as_ptr())
                    == api::OK
            })
    };
    if registered {
        return Ok(());
    }
    // SAFETY: as above.
    Err(unsafe { refuse(ctx, c"this command can't be registered:", name) })
}

/// Why the server's last function failed.
fn last_error() -> Option<c_int> {
    std::io::Error::last_os_error().raw_os_error()
}

/// Whether the server has a command of this name. It is asked to run it without arguments, which it
/// refuses for one reason or the other.
///
/// # Safety
///
/// `ctx` is the context of a module that is being loaded.
unsafe fn exists(ctx: *mut RedisModuleCtx, api: &Api, command: &CStr) -> bool {
    // SAFETY: the format is empty, and nothing follows; a reply would be ours to free.
    let reply = unsafe { (api.call)(ctx, command.as_ptr(), c"".as_ptr()) };
    let unknown = last_error() == Some(libc::ENOENT);
    if reply.is_null() {
        return !unknown;
    }
    // SAFETY: as above.
    unsafe { (api.free_call_reply)(reply) };
    true
}

/// Says in the server's log why the module is not loaded: `why`, and `what` of it.
///
/// # Safety
///
/// `ctx` is the context of a module that is being loaded.
unsafe fn refuse(ctx: *mut RedisModuleCtx, why: &CStr, what: &CStr) -> Error {
    // SAFETY: a plain read; the format takes two C strings, and two follow.
    unsafe {
        if let Some(log) = raw::RedisModule_Log {
            let format = c"redis-rl is not loaded: %s %s";
            log(
                ctx,
                c"warning".as_ptr(),
                format.as_ptr(),
                why.as_ptr(),
                what.as_ptr(),
            );
        }
    }
    Error::Internal
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
