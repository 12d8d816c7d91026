//! The server as one command sees it: its clock, its memory, its replies.
//!
//! The wrappers are safe: a [`Server`] exists only inside a command callback, on the server's main
//! thread, and everything it hands out is borrowed from it. Keys are `keys`' to open.

use core::ffi::{CStr, c_int, c_long};
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw::{self, RedisModuleCallReply, RedisModuleCtx, RedisModuleString};

use super::api::{self, Api};
use crate::clock::Timestamp;
use crate::decimal;
use crate::decision::{Decision, Verdict};
use crate::error::{Error, ErrorOf};
use crate::request;

/// The context of one command call.
#[derive(Clone, Copy)]
pub(super) struct Server<'call> {
    ctx: *mut RedisModuleCtx,
    loaded: &'call Loaded,
}

/// What is made when the module is loaded, used by every call, and released when it is unloaded.
pub(super) struct Loaded {
    pub(super) api: Api,
    /// Strings of the server's that go into many commands on the replication stream.
    keep_ttl: NonNull<RedisModuleString>,
    pxat: NonNull<RedisModuleString>,
}

/// Null until the module is loaded, and again once it is unloaded: the library may stay in memory,
/// and be loaded once more.
static LOADED: AtomicPtr<Loaded> = AtomicPtr::new(ptr::null_mut());

impl Loaded {
    /// What the commands of the loaded module use.
    ///
    /// # Safety
    ///
    /// `'call` ends before the module is unloaded.
    pub(super) unsafe fn get<'call>() -> Option<&'call Self> {
        // SAFETY: only `install` writes the pointer, from a box, and `remove` frees that only once
        // no command runs any more.
        unsafe { LOADED.load(Ordering::Relaxed).as_ref() }
    }

    /// Lets commands use it.
    pub(super) fn install(self: Box<Self>) {
        LOADED.store(Box::into_raw(self), Ordering::Relaxed);
    }

    /// Releases what loading made.
    ///
    /// # Safety
    ///
    /// None of the module's commands runs, nor will.
    pub(super) unsafe fn remove() {
        let loaded = LOADED.swap(ptr::null_mut(), Ordering::Relaxed);
        if !loaded.is_null() {
            // SAFETY: it comes from a box, was taken out of its place just now, and no command
            // uses it.
            drop(unsafe { Box::from_raw(loaded) });
        }
    }

    /// # Safety
    ///
    /// The module is being loaded.
    pub(super) unsafe fn new(api: &Api) -> Option<Self> {
        let word = |text: &[u8]| {
            // SAFETY: without a context the string is ours; the server copies the bytes.
            NonNull::new(unsafe {
                (api.create_string)(ptr::null_mut(), text.as_ptr().cast(), text.len())
            })
        };
        Some(Self {
            keep_ttl: word(b"KEEPTTL")?,
            pxat: word(b"PXAT")?,
            api: *api,
        })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        for word in [self.keep_ttl, self.pxat] {
            // SAFETY: the string is ours, and this is its only release.
            unsafe { (self.api.free_string)(ptr::null_mut(), word.as_ptr()) }
        }
    }
}

/// A string that the server owns for the whole of a call: an argument, or one of our own.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Str<'call>(NonNull<RedisModuleString>, PhantomData<&'call ()>);

impl Str<'_> {
    pub(super) fn as_ptr(self) -> *mut RedisModuleString {
        self.0.as_ptr()
    }
}

/// The arguments of one command call, its name first.
#[derive(Clone, Copy)]
pub(super) struct Args<'call> {
    server: Server<'call>,
    argv: &'call [NonNull<RedisModuleString>],
}

impl<'call> Args<'call> {
    /// # Safety
    ///
    /// `argv` and `argc` are those that the server passed to a running command callback.
    pub(super) unsafe fn new(
        server: Server<'call>,
        argv: *mut *mut RedisModuleString,
        argc: c_int,
    ) -> Self {
        let len = usize::try_from(argc).unwrap_or(0);
        // SAFETY: the server passes `argc` pointers to strings, none of them null (so each is a
        // valid `NonNull`), which stay until the callback returns.
        let argv = unsafe { slice::from_raw_parts(argv.cast(), len) };
        Self { server, argv }
    }

    /// The argument that names the key.
    pub(super) fn key(self) -> Result<Str<'call>, Error> {
        let key = self.argv.get(1).ok_or(Error::Arity)?;
        Ok(Str(*key, PhantomData))
    }

    /// The arguments that name keys, as many as the first argument says, and what follows them.
    pub(super) fn counted_keys(
        self,
    ) -> Result<
        (
            &'call [Str<'call>],
            impl Iterator<Item = &'call [u8]> + Clone,
        ),
        Error,
    > {
        let count = request::key_count(self.after(1).next())?;
        let keys = self.argv.get(2..).and_then(|argv| argv.get(..count));
        let keys = keys.ok_or(Error::Syntax)?;
        // SAFETY: a `Str` is such a pointer, and these strings live for the call.
        let keys = unsafe { slice::from_raw_parts(keys.as_ptr().cast(), keys.len()) };
        Ok((keys, self.after(count.saturating_add(2))))
    }

    /// What follows the key.
    pub(super) fn after_key(self) -> impl ExactSizeIterator<Item = &'call [u8]> + Clone {
        self.after(2)
    }

    fn after(self, count: usize) -> impl ExactSizeIterator<Item = &'call [u8]> + Clone {
        let after = self.argv.get(count..).unwrap_or_default();
        after
            .iter()
            .map(move |arg| self.server.bytes(Str(*arg, PhantomData)))
    }
}

impl<'call> Server<'call> {
    /// # Safety
    ///
    /// `ctx` is the context that the server passed to a running command callback.
    pub(super) unsafe fn new(ctx: *mut RedisModuleCtx, loaded: &'call Loaded) -> Self {
        Self { ctx, loaded }
    }

    pub(super) fn ctx(self) -> *mut RedisModuleCtx {
        self.ctx
    }

    pub(super) fn api(self) -> &'call Api {
        &self.loaded.api
    }

    /// The word `KEEPTTL`.
    pub(super) fn keep_ttl(self) -> *mut RedisModuleString {
        self.loaded.keep_ttl.as_ptr()
    }

    /// The word `PXAT`.
    pub(super) fn pxat(self) -> *mut RedisModuleString {
        self.loaded.pxat.as_ptr()
    }

    /// The instant of this command: the server's own, or on Redis 7.0, which does not tell it,
    /// the wall clock that it reads too.
    #[expect(clippy::unused_self, reason = "only a command has an instant")]
    pub(super) fn now(self) -> Result<Timestamp, Error> {
        // SAFETY: a plain read of a pointer that only loading a module writes.
        let us = if let Some(cached_us) = unsafe { raw::RedisModule_CachedMicroseconds } {
            // SAFETY: the function takes nothing and returns a number.
            u64::try_from(unsafe { cached_us() }).ok()
        } else {
            wall_clock_us()
        };
        us.and_then(Timestamp::from_us).ok_or(Error::Clock)
    }

    /// Whether the server would refuse a command that needs memory.
    ///
    /// Memory may be over its limit for a moment while an eviction policy makes room, and then
    /// such commands go on. So where it is, the server is asked what it would say to `SET`; the
    /// `W` in the format keeps it from doing more than that. The ratio is the cheaper question, and
    /// near 1 it may be rounded.
    pub(super) fn out_of_memory(self, key: Str<'_>) -> bool {
        // SAFETY: the function takes nothing and returns a number.
        if unsafe { (self.loaded.api.get_used_memory_ratio)() } < 1.0 {
            return false;
        }
        // SAFETY: the context is that of the running command.
        let flags = unsafe { (self.loaded.api.get_context_flags)(self.ctx) };
        if flags & api::OUT_OF_MEMORY == 0 {
            return false;
        }
        // SAFETY: the format names two strings, and two live ones follow.
        let reply = unsafe {
            let key = key.0.as_ptr();
            (self.loaded.api.call)(self.ctx, c"SET".as_ptr(), c"MWEss".as_ptr(), key, key)
        };
        // SAFETY: the reply is ours.
        let reply = unsafe { Reply::new(self, reply) };
        reply.is_none_or(|reply| reply.begins(b"-OOM"))
    }

    /// The bytes of a string.
    pub(super) fn bytes(self, string: Str<'call>) -> &'call [u8] {
        let mut len = 0;
        // SAFETY: the string is live for the call, so that its bytes are what comes back, and nobody
        // writes to them meanwhile.
        unsafe {
            let text = (self.loaded.api.string_ptr_len)(string.0.as_ptr(), &raw mut len);
            slice::from_raw_parts(text.cast(), len)
        }
    }

    /// Makes a string of the server's.
    pub(super) fn string(self, text: &[u8]) -> Option<OwnStr<'call>> {
        // SAFETY: the server copies `len` bytes from the buffer.
        let string =
            unsafe { (self.loaded.api.create_string)(self.ctx, text.as_ptr().cast(), text.len()) };
        NonNull::new(string).map(|string| OwnStr {
            server: self,
            string,
        })
    }

    /// Whether the server runs the command only to be told where its keys are.
    pub(super) fn asks_for_keys(self) -> bool {
        // SAFETY: the context is that of the running command.
        unsafe { (self.loaded.api.is_keys_position_request)(self.ctx) != 0 }
    }

    /// Tells where so many keys are that follow the first argument.
    pub(super) fn tell_keys(self, count: usize) {
        for place in (2..).take(count) {
            // SAFETY: the server asks for this, and has an argument there.
            unsafe { (self.loaded.api.key_at_pos_with_flags)(self.ctx, place, api::READ_WRITE) };
        }
    }

    /// Replies with a decision.
    pub(super) fn reply(self, decision: Decision) -> c_int {
        self.reply_array(5);
        for integer in decision.reply() {
            self.reply_integer(integer);
        }
        api::OK
    }

    /// Replies with what several limits come to, and the decision of each.
    pub(super) fn reply_all(
        self,
        verdict: &Verdict,
        decisions: impl ExactSizeIterator<Item = Decision>,
    ) {
        self.reply_array(3);
        self.reply_integer(i64::from(verdict.is_admitted));
        self.reply_integer(verdict.retry_after.reply());
        self.reply_array(decisions.len());
        for decision in decisions {
            self.reply(decision);
        }
    }

    #[inline]
    fn reply_array(self, len: usize) {
        let len = c_long::try_from(len).unwrap_or(0);
        // SAFETY: the context is that of the running command.
        unsafe { (self.loaded.api.reply_with_array)(self.ctx, len) };
    }

    #[inline]
    fn reply_integer(self, integer: i64) {
        // SAFETY: the context is that of the running command.
        unsafe { (self.loaded.api.reply_with_long_long)(self.ctx, integer) };
    }

    /// Replies with an error.
    #[cold]
    pub(super) fn reply_error(self, error: ErrorOf) -> c_int {
        let numbered = error.numbered_text();
        let text = numbered
            .as_deref()
            .and_then(|text| CStr::from_bytes_with_nul(text).ok())
            .unwrap_or(error.error.text());
        // SAFETY: the context is that of the running command; the server copies the C string.
        unsafe {
            match error.error {
                Error::Arity => (self.loaded.api.wrong_arity)(self.ctx),
                _ => (self.loaded.api.reply_with_error)(self.ctx, text.as_ptr()),
            }
        }
    }
}

/// The answer to a command of the server's, which is freed when it is dropped.
pub(super) struct Reply<'call> {
    server: Server<'call>,
    reply: NonNull<RedisModuleCallReply>,
}

impl<'call> Reply<'call> {
    /// `None` without an answer.
    ///
    /// # Safety
    ///
    /// The reply is the caller's, who does not free it.
    pub(super) unsafe fn new(
        server: Server<'call>,
        reply: *mut RedisModuleCallReply,
    ) -> Option<Self> {
        NonNull::new(reply).map(|reply| Self { server, reply })
    }

    /// The answer as the protocol writes it.
    fn text(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the reply is live, and its text with it.
        unsafe {
            let answer = (self.server.api().call_reply_proto)(self.reply.as_ptr(), &raw mut len);
            bytes_at(answer.cast(), len)
        }
    }

    /// Whether the text of the answer begins so.
    pub(super) fn begins(&self, text: &[u8]) -> bool {
        self.text().starts_with(text)
    }

    /// The answer, if its text begins so.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if it does not.
    pub(super) fn beginning(self, text: &[u8]) -> Result<Self, Error> {
        if self.begins(text) {
            Ok(self)
        } else {
            Err(Error::Internal)
        }
    }

    /// The number that the answer is, or that is the last of its strings.
    pub(super) fn number(&self) -> Option<u64> {
        let text = self.text().strip_suffix(b"\r\n")?;
        let last = text.rsplit(|byte| *byte == b'\n').next()?;
        decimal::parse(last.strip_prefix(b":").unwrap_or(last))
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        // SAFETY: the reply is ours, and this is its only release.
        unsafe { (self.server.api().free_call_reply)(self.reply.as_ptr()) }
    }
}

/// A string that is freed when it is dropped.
pub(super) struct OwnStr<'call> {
    server: Server<'call>,
    string: NonNull<RedisModuleString>,
}

impl<'call> OwnStr<'call> {
    /// # Safety
    ///
    /// The string is the caller's, who does not free it.
    pub(super) unsafe fn new(server: Server<'call>, string: NonNull<RedisModuleString>) -> Self {
        Self { server, string }
    }
}

impl OwnStr<'_> {
    pub(super) fn get(&self) -> Str<'_> {
        Str(self.string, PhantomData)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.server.bytes(self.get())
    }
}

impl Drop for OwnStr<'_> {
    fn drop(&mut self) {
        // SAFETY: the string is ours, and this is its only release.
        unsafe { (self.server.loaded.api.free_string)(self.server.ctx, self.string.as_ptr()) }
    }
}

/// # Safety
///
/// `text` is null or points to `len` bytes that stay unchanged for `'a`.
unsafe fn bytes_at<'a>(text: *const u8, len: usize) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { slice::from_raw_parts(text, len) }
}

fn wall_clock_us() -> Option<u64> {
    let mut now = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    // SAFETY: the function fills the struct it is given; the time zone is of no use to it.
    unsafe { libc::gettimeofday(&raw mut now, ptr::null_mut()) };
    let seconds = u64::try_from(now.tv_sec).ok()?;
    seconds
        .checked_mul(1_000_000)?
        .checked_add(u64::try_from(now.tv_usec).ok()?)
}
