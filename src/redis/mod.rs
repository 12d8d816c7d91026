//! The shell: what makes a server module of the core. It knows no algorithm.
//!
//! | file | owns |
//! |---|---|
//! | this one | loading, and the table of commands |
//! | `command` | the order of work of a call |
//! | `server` | safe wrappers around the server's functions |
//! | `api` | looking those functions up |

#![allow(unsafe_code, reason = "the server's API is C")]
#![allow(
    clippy::as_conversions,
    reason = "constants of C headers come as types of their own"
)]

mod api;
mod command;
mod server;

use core::ffi::{CStr, c_int};
use std::panic::{self, AssertUnwindSafe};
use std::sync::OnceLock;

use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};

use self::api::Api;
use self::server::{Args, Loaded, Server, Words};
use crate::decision::Decision;
use crate::error::Error;

/// One command: everything the server is told about it.
struct Command {
    name: &'static CStr,
    /// The ACL categories it belongs to, on servers that let a module say so (7.2 and later).
    categories: &'static CStr,
    /// Its flags. Not `deny-oom`: a limiter that goes dark when memory is full protects nobody.
    flags: &'static CStr,
    /// The least number of arguments, the command's name included.
    min_args: usize,
    run: fn(Server<'_>, Args<'_>) -> Result<Decision, Error>,
}

/// A command as a type, so that each has a callback of its own.
trait Entry {
    const COMMAND: Command;
}

struct Fixed;
impl Entry for Fixed {
    const COMMAND: Command = Command {
        name: c"rl.fixed",
        categories: c"write fast",
        flags: c"write fast",
        min_args: 4,
        run: command::rl_fixed,
    };
}

struct Token;
impl Entry for Token {
    const COMMAND: Command = Command {
        name: c"rl.token",
        categories: c"write fast",
        flags: c"write fast",
        min_args: 5,
        run: command::rl_token,
    };
}

/// Not `fast`: with `EXACT`, the time grows with the cost and with the units that leave.
struct Slide;
impl Entry for Slide {
    const COMMAND: Command = Command {
        name: c"rl.slide",
        categories: c"write slow",
        flags: c"write",
        min_args: 4,
        run: command::rl_slide,
    };
}

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

static LOADED: OnceLock<Loaded> = OnceLock::new();

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
            // The library may have stayed in memory since the module was loaded before.
            if LOADED.get().is_none() {
                let words = Words::new(&api).ok_or(Error::Internal)?;
                LOADED.get_or_init(|| Loaded { api, words });
            }
            let Some(Loaded { api, .. }) = LOADED.get() else {
                return Err(Error::Internal);
            };
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
            register::<Fixed>(ctx, api)?;
            register::<Token>(ctx, api)?;
            register::<Slide>(ctx, api)
        }
    });
    match loaded {
        Ok(()) => api::OK,
        Err(_) => api::ERR,
    }
}

/// What the server calls when a client sends the command.
unsafe extern "C" fn callback<E: Entry>(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    let Some(loaded) = LOADED.get() else {
        return api::ERR;
    };
    // SAFETY: the context comes from the server, for this call.
    let server = unsafe { Server::new(ctx, loaded) };
    // SAFETY: as above.
    let args = unsafe { Args::new(argv, argc) };
    server.reply(guard(|| {
        if args.len() < E::COMMAND.min_args {
            return Err(Error::Arity);
        }
        (E::COMMAND.run)(server, args)
    }))
}

/// Runs what the server asked for. A panic that crossed into the server would end it, so one that
/// ever got in becomes an error here.
fn guard<T>(run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(Error::Internal))
}

/// # Safety
///
/// `ctx` is the context of a module that is being loaded.
unsafe fn register<E: Entry>(ctx: *mut RedisModuleCtx, api: &Api) -> Result<(), Error> {
    let Command {
        name,
        categories,
        flags,
        min_args,
        ..
    } = E::COMMAND;
    let arity = c_int::try_from(min_args).map_err(|_| Error::Internal)?;
    let mut keys = [first_argument_is_key(), end_of_specs()];
    let info = raw::RedisModuleCommandInfo {
        version: &raw const INFO_VERSION,
        // "At least": keywords may follow.
        arity: arity.saturating_neg(),
        key_specs: keys.as_mut_ptr(),
        // SAFETY: null pointers, which the server takes as not given.
        ..unsafe { core::mem::zeroed() }
    };
    // SAFETY: the server copies the strings and the info, whose lists end with a zeroed element;
    // the read is a plain one.
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
            && (api.set_command_info)((api.get_command)(ctx, name.as_ptr()), &raw const info)
                == api::OK
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

static INFO_VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

fn first_argument_is_key() -> raw::RedisModuleCommandKeySpec {
    let mut spec = end_of_specs();
    spec.flags = u64::from(
        raw::REDISMODULE_CMD_KEY_RW
            | raw::REDISMODULE_CMD_KEY_ACCESS
            | raw::REDISMODULE_CMD_KEY_UPDATE,
    );
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index = raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 };
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    spec.fk.range = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
        lastkey: 0,
        keystep: 1,
        limit: 0,
    };
    spec
}

fn end_of_specs() -> raw::RedisModuleCommandKeySpec {
    // SAFETY: a C struct of numbers and pointers, for which all zeroes are valid.
    unsafe { core::mem::zeroed() }
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
    let unknown = std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT);
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
