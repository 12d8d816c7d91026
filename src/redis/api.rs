//! The functions of the server that this module calls, looked up once at load.
//!
//! The server hands out its functions by name; one that it lacks stays null. [`Api::resolve`]
//! checks every one that a command needs, so that no call has to, and no call can meet a null.

use core::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_void};

use redis_module::raw::{
    self, RedisModuleCallReply, RedisModuleCmdFunc, RedisModuleCtx, RedisModuleKey,
    RedisModuleString,
};

/// The header's numbers in the types that its functions take.
#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "small constants, whose types the bindings can't tell"
)]
mod numbers {
    use super::{c_int, raw};

    pub(in super::super) const OK: c_int = raw::REDISMODULE_OK as c_int;
    pub(in super::super) const ERR: c_int = raw::REDISMODULE_ERR as c_int;
    pub(in super::super) const API_VERSION: c_int = raw::REDISMODULE_APIVER_1 as c_int;
    pub(in super::super) const READ: c_int = raw::REDISMODULE_READ as c_int;
    pub(in super::super) const WRITE: c_int = raw::REDISMODULE_WRITE as c_int;
    /// Opens a key that the call has opened before: no access is counted, no event told. A server
    /// that does not know one of these takes no notice of it.
    pub(in super::super) const QUIET: c_int = (raw::REDISMODULE_OPEN_KEY_NOTOUCH
        | raw::REDISMODULE_OPEN_KEY_NONOTIFY
        | raw::REDISMODULE_OPEN_KEY_NOSTATS) as c_int;
    pub(in super::super) const HEAD: c_int = raw::REDISMODULE_LIST_HEAD as c_int;
    pub(in super::super) const TAIL: c_int = raw::REDISMODULE_LIST_TAIL as c_int;
    pub(in super::super) const EMPTY: c_int = raw::REDISMODULE_KEYTYPE_EMPTY as c_int;
    pub(in super::super) const STRING: c_int = raw::REDISMODULE_KEYTYPE_STRING as c_int;
    pub(in super::super) const LIST: c_int = raw::REDISMODULE_KEYTYPE_LIST as c_int;
    pub(in super::super) const SORTED_SET: c_int = raw::REDISMODULE_KEYTYPE_ZSET as c_int;
    pub(in super::super) const NO_IMPLICIT_SIGNAL_MODIFIED: c_int =
        raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED as c_int;
    pub(in super::super) const HANDLE_IO_ERRORS: c_int =
        raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS as c_int;
    pub(in super::super) const HANDLE_REPL_ASYNC_LOAD: c_int =
        raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD as c_int;
    pub(in super::super) const OPTIONAL: c_int = raw::REDISMODULE_CMD_ARG_OPTIONAL as c_int;
    pub(in super::super) const MULTIPLE: c_int = raw::REDISMODULE_CMD_ARG_MULTIPLE as c_int;
    /// What a command does to a key that it writes.
    pub(in super::super) const READ_WRITE: c_int = (raw::REDISMODULE_CMD_KEY_RW
        | raw::REDISMODULE_CMD_KEY_ACCESS
        | raw::REDISMODULE_CMD_KEY_UPDATE)
        as c_int;
    pub(in super::super) const NOTIFY_MODULE: c_int = raw::REDISMODULE_NOTIFY_MODULE as c_int;
    pub(in super::super) const OUT_OF_MEMORY: c_int = raw::REDISMODULE_CTX_FLAGS_OOM as c_int;
}
pub(super) use numbers::*;

/// A text that ends with a NUL, put together by a macro, as a C string.
pub(super) const fn c_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

macro_rules! api {
    ($($(#[$doc:meta])* $field:ident = $function:ident: fn($($arg:ty),* $(; $dots:tt)?) $(-> $ret:ty)?;)*) => {
        /// Every function that the commands need. Each is safe to call as the server documents it.
        #[derive(Clone, Copy)]
        pub(super) struct Api {
            $($(#[$doc])* pub(super) $field: unsafe extern "C" fn($($arg),* $(, $dots)?) $(-> $ret)?,)*
        }

        impl Api {
            /// Takes the functions that the server has handed out, or names the first it lacks.
            pub(super) fn resolve() -> Result<Self, &'static CStr> {
                Ok(Self {
                    $($field: {
                        const NAME: &CStr = c_text(concat!(stringify!($function), "\0"));
                        // SAFETY: a plain read of a pointer that only loading a module writes,
                        // which the server does on this thread.
                        unsafe { raw::$function }.ok_or(NAME)?
                    },)*
                })
            }
        }
    };
}

api! {
    create_command = RedisModule_CreateCommand: fn(*mut RedisModuleCtx, *const c_char, RedisModuleCmdFunc, *const c_char, c_int, c_int, c_int) -> c_int;
    get_command = RedisModule_GetCommand: fn(*mut RedisModuleCtx, *const c_char) -> *mut raw::RedisModuleCommand;
    get_command_keys = RedisModule_GetCommandKeys: fn(*mut RedisModuleCtx, *mut *mut RedisModuleString, c_int, *mut c_int) -> *mut c_int;
    free = RedisModule_Free: fn(*mut c_void);
    set_command_info = RedisModule_SetCommandInfo: fn(*mut raw::RedisModuleCommand, *const raw::RedisModuleCommandInfo) -> c_int;
    wrong_arity = RedisModule_WrongArity: fn(*mut RedisModuleCtx) -> c_int;
    reply_with_array = RedisModule_ReplyWithArray: fn(*mut RedisModuleCtx, c_long) -> c_int;
    reply_with_long_long = RedisModule_ReplyWithLongLong: fn(*mut RedisModuleCtx, c_longlong) -> c_int;
    reply_with_error = RedisModule_ReplyWithError: fn(*mut RedisModuleCtx, *const c_char) -> c_int;
    string_ptr_len = RedisModule_StringPtrLen: fn(*const RedisModuleString, *mut usize) -> *const c_char;
    create_string = RedisModule_CreateString: fn(*mut RedisModuleCtx, *const c_char, usize) -> *mut RedisModuleString;
    free_string = RedisModule_FreeString: fn(*mut RedisModuleCtx, *mut RedisModuleString);
    open_key = RedisModule_OpenKey: fn(*mut RedisModuleCtx, *mut RedisModuleString, c_int) -> *mut RedisModuleKey;
    close_key = RedisModule_CloseKey: fn(*mut RedisModuleKey);
    key_exists = RedisModule_KeyExists: fn(*mut RedisModuleCtx, *mut RedisModuleString) -> c_int;
    delete_key = RedisModule_DeleteKey: fn(*mut RedisModuleKey) -> c_int;
    key_type = RedisModule_KeyType: fn(*mut RedisModuleKey) -> c_int;
    value_length = RedisModule_ValueLength: fn(*mut RedisModuleKey) -> usize;
    get_abs_expire = RedisModule_GetAbsExpire: fn(*mut RedisModuleKey) -> c_longlong;
    set_abs_expire = RedisModule_SetAbsExpire: fn(*mut RedisModuleKey, c_longlong) -> c_int;
    string_dma = RedisModule_StringDMA: fn(*mut RedisModuleKey, *mut usize, c_int) -> *mut c_char;
    string_truncate = RedisModule_StringTruncate: fn(*mut RedisModuleKey, usize) -> c_int;
    list_get = RedisModule_ListGet: fn(*mut RedisModuleKey, c_long) -> *mut RedisModuleString;
    list_push = RedisModule_ListPush: fn(*mut RedisModuleKey, c_int, *mut RedisModuleString) -> c_int;
    list_pop = RedisModule_ListPop: fn(*mut RedisModuleKey, c_int) -> *mut RedisModuleString;
    zset_add = RedisModule_ZsetAdd: fn(*mut RedisModuleKey, f64, *mut RedisModuleString, *mut c_int) -> c_int;
    zset_rem = RedisModule_ZsetRem: fn(*mut RedisModuleKey, *mut RedisModuleString, *mut c_int) -> c_int;
    zset_score = RedisModule_ZsetScore: fn(*mut RedisModuleKey, *mut RedisModuleString, *mut f64) -> c_int;
    zset_first = RedisModule_ZsetFirstInScoreRange: fn(*mut RedisModuleKey, f64, f64, c_int, c_int) -> c_int;
    zset_last = RedisModule_ZsetLastInScoreRange: fn(*mut RedisModuleKey, f64, f64, c_int, c_int) -> c_int;
    zset_current = RedisModule_ZsetRangeCurrentElement: fn(*mut RedisModuleKey, *mut f64) -> *mut RedisModuleString;
    zset_next = RedisModule_ZsetRangeNext: fn(*mut RedisModuleKey) -> c_int;
    zset_prev = RedisModule_ZsetRangePrev: fn(*mut RedisModuleKey) -> c_int;
    zset_end_reached = RedisModule_ZsetRangeEndReached: fn(*mut RedisModuleKey) -> c_int;
    is_keys_position_request = RedisModule_IsKeysPositionRequest: fn(*mut RedisModuleCtx) -> c_int;
    key_at_pos_with_flags = RedisModule_KeyAtPosWithFlags: fn(*mut RedisModuleCtx, c_int, c_int);
    signal_modified_key = RedisModule_SignalModifiedKey: fn(*mut RedisModuleCtx, *mut RedisModuleString) -> c_int;
    set_module_options = RedisModule_SetModuleOptions: fn(*mut RedisModuleCtx, c_int);
    get_notify_keyspace_events = RedisModule_GetNotifyKeyspaceEvents: fn() -> c_int;
    notify_keyspace_event = RedisModule_NotifyKeyspaceEvent: fn(*mut RedisModuleCtx, c_int, *const c_char, *mut RedisModuleString) -> c_int;
    get_used_memory_ratio = RedisModule_GetUsedMemoryRatio: fn() -> f32;
    get_context_flags = RedisModule_GetContextFlags: fn(*mut RedisModuleCtx) -> c_int;
    replicate = RedisModule_Replicate: fn(*mut RedisModuleCtx, *const c_char, *const c_char; ...) -> c_int;
    call = RedisModule_Call: fn(*mut RedisModuleCtx, *const c_char, *const c_char; ...) -> *mut RedisModuleCallReply;
    call_reply_proto = RedisModule_CallReplyProto: fn(*mut RedisModuleCallReply, *mut usize) -> *const c_char;
    free_call_reply = RedisModule_FreeCallReply: fn(*mut RedisModuleCallReply);
}
