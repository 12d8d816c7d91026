//! What the server is told about the commands, for `COMMAND DOCS`, `redis-cli` and the key's access
//! rights: plain tables, turned into the structs of the server's API when the module is loaded.

use core::ffi::{CStr, c_int};
use core::ptr;

use redis_module::raw::{self, RedisModuleCommandArg as RawArg, RedisModuleCtx, RedisModuleString};

use super::api::{self, Api};
use crate::error::Error;

/// One command: everything the server is told about it.
pub(super) struct Command {
    pub(super) name: &'static CStr,
    pub(super) summary: &'static CStr,
    pub(super) complexity: &'static CStr,
    /// The version of the module that first had it.
    pub(super) since: &'static CStr,
    pub(super) args: &'static [Arg],
    /// The least number of arguments, the command's name included. The server checks it.
    pub(super) min_args: c_int,
    pub(super) key_places: KeyPlaces,
    pub(super) access: Access,
    /// Its flags. Not `deny-oom`: a limiter that goes dark when memory is full protects nobody.
    pub(super) flags: &'static CStr,
    /// The ACL categories it belongs to beside the module's own, on servers that let a module say
    /// so (7.2 and later).
    pub(super) categories: &'static CStr,
    /// What the server calls when a client sends the command.
    pub(super) callback: Callback,
}

/// A command as the server calls it.
pub(super) type Callback =
    unsafe extern "C" fn(*mut RedisModuleCtx, *mut *mut RedisModuleString, c_int) -> c_int;

/// Which of a command's arguments are keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPlaces {
    /// The first one.
    First,
    /// The first one says how many of those that follow.
    Counted,
}

/// What a command does to its keys.
#[derive(Clone, Copy)]
pub(super) enum Access {
    Read,
    Write,
}

/// One argument, as `COMMAND DOCS` shows it.
pub(super) struct Arg {
    name: &'static CStr,
    /// The word that stands before it, or that it is.
    token: Option<&'static CStr>,
    optional: bool,
    multiple: bool,
    kind: Kind,
}

enum Kind {
    Key,
    Integer,
    String,
    /// A keyword alone.
    Token,
    /// One of several.
    OneOf(&'static [Arg]),
    /// Several, one after the other.
    Block(&'static [Arg]),
}

impl Arg {
    const fn of(name: &'static CStr, kind: Kind) -> Self {
        Self {
            name,
            token: None,
            optional: false,
            multiple: false,
            kind,
        }
    }

    pub(super) const fn integer(name: &'static CStr) -> Self {
        Self::of(name, Kind::Integer)
    }

    pub(super) const fn string(name: &'static CStr) -> Self {
        Self::of(name, Kind::String)
    }

    /// One or more of the same.
    pub(super) const fn several(arg: Self) -> Self {
        Self {
            multiple: true,
            ..arg
        }
    }

    pub(super) const fn one_of(name: &'static CStr, args: &'static [Self]) -> Self {
        Self::of(name, Kind::OneOf(args))
    }

    pub(super) const fn block(name: &'static CStr, args: &'static [Self]) -> Self {
        Self::of(name, Kind::Block(args))
    }

    pub(super) const fn word(name: &'static CStr, token: &'static CStr) -> Self {
        Self {
            token: Some(token),
            ..Self::of(name, Kind::Token)
        }
    }

    /// An integer behind a word.
    const fn keyword(name: &'static CStr, token: &'static CStr) -> Self {
        Self {
            token: Some(token),
            ..Self::integer(name)
        }
    }

    pub(super) const KEY: Self = Self::of(c"key", Kind::Key);
    const TAKE: Self = Self::block(
        c"take",
        &[
            Self::keyword(c"cost", c"COST"),
            Self {
                optional: true,
                ..Self::word(c"force", c"FORCE")
            },
        ],
    );
    const UPTO: Self = Self::keyword(c"upto", c"UPTO");
    const REFUND: Self = Self::keyword(c"refund", c"REFUND");
    /// What the call takes or gives back.
    pub(super) const CHARGE: Self = Self {
        optional: true,
        ..Self::one_of(c"charge", &[Self::TAKE, Self::UPTO, Self::REFUND])
    };
    /// What the call takes of one limit of several, or gives back to it.
    pub(super) const SETTLE: Self = Self {
        optional: true,
        ..Self::one_of(c"charge", &[Self::TAKE, Self::REFUND])
    };
    /// What becomes of a lease that is not taken.
    pub(super) const HOLD: Self = Self {
        optional: true,
        ..Self::one_of(
            c"hold",
            &[
                Self::word(c"renew", c"RENEW"),
                Self::word(c"release", c"RELEASE"),
            ],
        )
    };
    /// What a call would take.
    pub(super) const LOOK: Self = Self {
        optional: true,
        ..Self::one_of(
            c"charge",
            &[
                Self::keyword(c"cost", c"COST"),
                Self::keyword(c"upto", c"UPTO"),
            ],
        )
    };
    pub(super) const EXACT: Self = Self {
        optional: true,
        ..Self::word(c"exact", c"EXACT")
    };
}

/// Tells the server about a command that it has just created.
///
/// # Safety
///
/// `command` is a command of the module that is being loaded.
pub(super) unsafe fn describe(
    api: &Api,
    command: *mut raw::RedisModuleCommand,
    described: &Command,
) -> Result<(), Error> {
    let mut keys = [
        key_spec(described.key_places, described.access),
        end_of_specs(),
    ];
    let mut lists = Vec::new();
    let info = raw::RedisModuleCommandInfo {
        version: &raw const VERSION,
        summary: described.summary.as_ptr(),
        complexity: described.complexity.as_ptr(),
        since: described.since.as_ptr(),
        history: ptr::null_mut(),
        // Time passes.
        tips: c"nondeterministic_output".as_ptr(),
        // "At least": keywords may follow.
        arity: described.min_args.saturating_neg(),
        key_specs: keys.as_mut_ptr(),
        args: list(described.args, &mut lists),
    };
    // SAFETY: the server copies the info, its strings and its lists, which are here until it
    // returns and end with a zeroed element.
    if unsafe { (api.set_command_info)(command, &raw const info) } == api::OK {
        Ok(())
    } else {
        Err(Error::Internal)
    }
}

static VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<RawArg>(),
};

/// Makes the list that a pointer into it stands for, and keeps it.
fn list(args: &[Arg], lists: &mut Vec<Vec<RawArg>>) -> *mut RawArg {
    let mut raw_args: Vec<RawArg> = args.iter().map(|arg| raw_arg(arg, lists)).collect();
    raw_args.push(end_of_args());
    let first = raw_args.as_mut_ptr();
    lists.push(raw_args);
    first
}

fn raw_arg(arg: &Arg, lists: &mut Vec<Vec<RawArg>>) -> RawArg {
    let (kind, subargs) = match arg.kind {
        Kind::Key => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
            None,
        ),
        Kind::Integer => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            None,
        ),
        Kind::String => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            None,
        ),
        Kind::Token => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
            None,
        ),
        Kind::OneOf(args) => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
            Some(args),
        ),
        Kind::Block(args) => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
            Some(args),
        ),
    };
    RawArg {
        name: arg.name.as_ptr(),
        type_: kind,
        // The only key is that of the first key spec.
        key_spec_index: if matches!(arg.kind, Kind::Key) { 0 } else { -1 },
        token: arg.token.map_or(ptr::null(), CStr::as_ptr),
        flags: if arg.optional { api::OPTIONAL } else { 0 }
            | if arg.multiple { api::MULTIPLE } else { 0 },
        subargs: subargs.map_or(ptr::null_mut(), |args| list(args, lists)),
        ..end_of_args()
    }
}

fn end_of_args() -> RawArg {
    // SAFETY: a C struct of numbers and pointers, for which all zeroes are valid.
    unsafe { core::mem::zeroed() }
}

fn key_spec(key_places: KeyPlaces, access: Access) -> raw::RedisModuleCommandKeySpec {
    let mut spec = end_of_specs();
    spec.flags = u64::from(match access {
        Access::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        Access::Write => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_UPDATE
        }
    });
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index = raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 };
    match key_places {
        KeyPlaces::First => {
            spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
            spec.fk.range = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
                lastkey: 0,
                keystep: 1,
                limit: 0,
            };
        }
        KeyPlaces::Counted => {
            // So the server asks `tell_keys`. By the spec, most make room for as many keys as a client
            // says there are, before they look at how many words there are, and may not get it.
            spec.flags |= u64::from(raw::REDISMODULE_CMD_KEY_VARIABLE_FLAGS);
            spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
            spec.fk.keynum = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 {
                keynumidx: 0,
                firstkey: 1,
                keystep: 1,
            };
        }
    }
    spec
}

fn end_of_specs() -> raw::RedisModuleCommandKeySpec {
    // SAFETY: as above.
    unsafe { core::mem::zeroed() }
}
