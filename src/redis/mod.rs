//! The shell: what makes a server module of the core. It knows no algorithm.
//!
//! | file | owns |
//! |---|---|
//! | this one | loading and unloading |
//! | `commands` | the table of commands, and what each runs |
//! | `run`, `all` | the order of work of a call, on one key and on several |
//! | `found`, `apply` | what a key holds, and changing it as the core decided |
//! | `keys` | open keys: reading and changing them |
//! | `server` | the server as a call sees it: clock, memory, replies, replication |
//! | `describe` | what the server is told about a command |
//! | `stats` | what is counted, and `INFO` |
//! | `api` | looking the server's functions up |

#![allow(unsafe_code, reason = "the server's API is C")]
#![allow(
    clippy::as_conversions,
    reason = "constants of C headers come as types of their own"
)]

mod all;
mod api;
mod apply;
mod commands;
mod describe;
mod found;
mod keys;
mod run;
mod server;
mod stats;

use core::ffi::{CStr, c_int};
use core::ptr;
use std::ffi::CString;

use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};

use self::api::Api;
use self::commands::{COMMANDS, guard};
use self::describe::{Command, KeyPlaces, describe};
use self::server::Loaded;
use crate::error::Error;

/// The ACL category of all commands, on servers that let a module make one (Redis 7.4, Valkey 8).
const CATEGORY: &CStr = c"ratelimit";

/// The name under which the server lists the module.
const MODULE: &CStr = c"rl";
/// Major × 10000 + minor × 100 + patch, as modules do.
const VERSION: c_int = {
    let parts = [
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_VERSION_PATCH"),
    ];
    let [major, minor, patch] = [part(parts[0]), part(parts[1]), part(parts[2])];
    major * 10_000 + minor * 100 + patch
};

const TOO_OLD: &CStr = c"it needs Redis 7.0 or Valkey 8.0 or later, this server lacks";

const fn part(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(part) => part,
        Err(_) => 0,
    }
}

/// What the server may take for granted. Keys are opened so that they can be written to, and a
/// refusal leaves them as they are. And as there is no data type of our own to load, and nothing is
/// kept between calls, loading may fail or go on in the background: a replica then answers reads
/// while it loads.
///
/// Nor is there anything to do when a slot moves to another node as a whole, as Valkey 9 can.
///
/// # Safety
///
/// The module is being loaded.
unsafe fn options() -> c_int {
    /// From Valkey's header. Elsewhere the same bit may come to mean something else.
    const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;
    let options =
        api::NO_IMPLICIT_SIGNAL_MODIFIED | api::HANDLE_IO_ERRORS | api::HANDLE_REPL_ASYNC_LOAD;
    // SAFETY: promised by the caller; the function takes nothing and returns a number.
    let known = unsafe { raw::RedisModule_GetModuleOptionsAll.map_or(0, |known| known()) };
    // SAFETY: promised by the caller.
    if unsafe { is_valkey() } {
        options | (known & HANDLE_ATOMIC_SLOT_MIGRATION)
    } else {
        options
    }
}

/// Whether the server is Valkey: it alone has its functions under its own name, too.
///
/// # Safety
///
/// The module is being loaded.
unsafe fn is_valkey() -> bool {
    let mut function: *const () = ptr::null();
    let name = c"ValkeyModule_SetModuleOptions";
    // SAFETY: a plain read; the function writes a pointer, for which there is room.
    unsafe {
        raw::RedisModule_GetApi
            .is_some_and(|get| get(name.as_ptr(), (&raw mut function).cast()) == api::OK)
    }
}

/// Every command that goes to replicas and the AOF, or that the server puts around them there. It
/// drops one that `rename-command` has taken away, without a word, or sends it under a name that
/// nobody who reads the stream knows. The last two only answer: they are called by their names.
const NEEDED: [&CStr; 18] = [
    c"SET",
    c"INCR",
    c"INCRBY",
    c"DECRBY",
    c"RPUSH",
    c"LPOP",
    c"RPOP",
    c"LTRIM",
    c"ZADD",
    c"ZREM",
    c"ZREMRANGEBYSCORE",
    c"DEL",
    c"PEXPIREAT",
    c"SELECT",
    c"MULTI",
    c"EXEC",
    c"ZCOUNT",
    c"ZRANGE",
];

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
    argc: c_int,
) -> c_int {
    let loaded = guard(|| {
        // SAFETY: the context is the one the server loads this module with.
        unsafe {
            let init =
                raw::Export_RedisModule_Init(ctx, MODULE.as_ptr(), VERSION, api::API_VERSION);
            if init != api::OK {
                return Err(refuse(ctx, c"there already is a module named", MODULE));
            }
            if argc > 0 {
                return Err(refuse(
                    ctx,
                    c"it takes no arguments: end the loadmodule line after",
                    c"libredis_rl.so",
                ));
            }
            let api = match Api::resolve() {
                Ok(api) => api,
                Err(missing) => return Err(refuse(ctx, TOO_OLD, missing)),
            };
            let loaded = Box::new(Loaded::new(&api).ok_or(Error::Internal)?);
            let api = &loaded.api;
            for command in NEEDED {
                if !exists(ctx, api, command) {
                    return Err(refuse(
                        ctx,
                        c"it needs this command under its own name:",
                        command,
                    ));
                }
            }
            (api.set_module_options)(ctx, options());
            let has_category = raw::RedisModule_AddACLCategory.is_some_and(|add| {
                // One that is there already stays there when a module goes.
                add(ctx, CATEGORY.as_ptr()) == api::OK || last_error() == Some(libc::EBUSY)
            });
            for command in &COMMANDS {
                register(ctx, api, command, has_category)?;
            }
            stats::reset();
            if let Some(register_info) = raw::RedisModule_RegisterInfoFunc {
                register_info(ctx, Some(stats::info));
            }
            loaded.install();
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
    // SAFETY: promised by the caller.
    unsafe { Loaded::remove() };
    api::OK
}

/// # Safety
///
/// `ctx` is the context of a module that is being loaded.
unsafe fn register(
    ctx: *mut RedisModuleCtx,
    api: &Api,
    command: &Command,
    has_category: bool,
) -> Result<(), Error> {
    let Command {
        name,
        categories,
        flags,
        callback,
        key_places,
        ..
    } = *command;
    // Where keys are counted, the server asks for their places.
    let first = match key_places {
        KeyPlaces::First => 1,
        KeyPlaces::Counted => 0,
    };
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
            Some(callback),
            flags.as_ptr(),
            first,
            first,
            first,
        ) == api::OK
            && describe(api, (api.get_command)(ctx, name.as_ptr()), command).is_ok()
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

/// Whether the server has a command of this name. It is asked where the keys of a call without
/// arguments are, which runs and counts nothing.
///
/// # Safety
///
/// `ctx` is the context of a module that is being loaded.
unsafe fn exists(ctx: *mut RedisModuleCtx, api: &Api, command: &CStr) -> bool {
    // SAFETY: the server copies the name; the string is ours, and freed once.
    unsafe {
        let name = command.to_bytes();
        let name = (api.create_string)(ctx, name.as_ptr().cast(), name.len());
        let (mut argv, mut found) = ([name], 0);
        let keys = (api.get_command_keys)(ctx, argv.as_mut_ptr(), 1, &raw mut found);
        let unknown = keys.is_null() && last_error() == Some(libc::ENOENT);
        (api.free_string)(ctx, name);
        (api.free)(keys.cast());
        !unknown
    }
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
