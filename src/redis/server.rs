//! The server as one command sees it: its clock, its memory, its keys, its replies.
//!
//! The wrappers are safe: a [`Server`] exists only inside a command callback, on the server's main
//! thread, and everything it hands out is borrowed from it. Handles on the same key do not know of
//! each other, so a command changes a key by one handle alone, and runs nothing else between reading
//! and writing it; a second one, which a log is read by, is closed before that.

use core::cell::Cell;
use core::ffi::{CStr, c_int};
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use core::slice;

use redis_module::raw::{self, RedisModuleCtx, RedisModuleKey, RedisModuleString};

use super::api::{self, Api};
use crate::clock::Timestamp;
use crate::decision::Decision;
use crate::error::Error;

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

impl Loaded {
    /// # Safety
    ///
    /// The module is being loaded.
    pub(super) unsafe fn new(api: Api) -> Option<Self> {
        let word = |text: &[u8]| {
            // SAFETY: without a context the string is ours; the server copies the bytes.
            NonNull::new(unsafe {
                (api.create_string)(ptr::null_mut(), text.as_ptr().cast(), text.len())
            })
        };
        Some(Self {
            keep_ttl: word(b"KEEPTTL")?,
            pxat: word(b"PXAT")?,
            api,
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
pub(super) struct Name<'call>(NonNull<RedisModuleString>, PhantomData<&'call ()>);

/// The arguments of one command call, its name first.
#[derive(Clone, Copy)]
pub(super) struct Args<'call> {
    argv: &'call [NonNull<RedisModuleString>],
}

impl<'call> Args<'call> {
    /// # Safety
    ///
    /// `argv` and `argc` are those that the server passed to a running command callback.
    pub(super) unsafe fn new(argv: *mut *mut RedisModuleString, argc: c_int) -> Self {
        let len = usize::try_from(argc).unwrap_or(0);
        // SAFETY: the server passes `argc` pointers to strings, none of them null (so each is a
        // valid `NonNull`), which stay until the callback returns.
        let argv = unsafe { slice::from_raw_parts(argv.cast(), len) };
        Self { argv }
    }

    pub(super) fn len(self) -> usize {
        self.argv.len()
    }

    /// The argument that names the key.
    pub(super) fn key(self) -> Option<Name<'call>> {
        self.argv.get(1).map(|arg| Name(*arg, PhantomData))
    }

    /// What follows the key.
    pub(super) fn after_key(
        self,
        server: Server<'call>,
    ) -> impl ExactSizeIterator<Item = &'call [u8]> {
        let after_key = self.argv.get(2..).unwrap_or_default();
        after_key
            .iter()
            .map(move |arg| server.bytes(Name(*arg, PhantomData)))
    }
}

impl<'call> Server<'call> {
    /// # Safety
    ///
    /// `ctx` is the context that the server passed to a running command callback.
    pub(super) unsafe fn new(ctx: *mut RedisModuleCtx, loaded: &'call Loaded) -> Self {
        Self { ctx, loaded }
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
    pub(super) fn out_of_memory(self, key: Name<'_>) -> bool {
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
        let Some(reply) = NonNull::new(reply) else {
            return true;
        };
        let mut len = 0;
        // SAFETY: the reply is live until it is freed below, and its text with it.
        unsafe {
            let text = (self.loaded.api.call_reply_proto)(reply.as_ptr(), &raw mut len);
            let refused = bytes_at(text.cast(), len).starts_with(b"-OOM");
            (self.loaded.api.free_call_reply)(reply.as_ptr());
            refused
        }
    }

    /// The bytes of a string.
    fn bytes(self, string: Name<'call>) -> &'call [u8] {
        let mut len = 0;
        // SAFETY: the string is live for the call, so that its bytes are what comes back, and nobody
        // writes to them meanwhile.
        unsafe {
            let text = (self.loaded.api.string_ptr_len)(string.0.as_ptr(), &raw mut len);
            slice::from_raw_parts(text.cast(), len)
        }
    }

    /// Opens a key, existing or not, so that it can be written to. That alone is no change; see
    /// [`Self::modified`].
    pub(super) fn open(self, name: Name<'call>) -> Result<Key<'call>, Error> {
        self.open_as(name, api::READ | api::WRITE)
            .ok_or(Error::Internal)
    }

    /// Opens a key, if it exists, to be read alone.
    pub(super) fn open_to_read(self, name: Name<'call>) -> Option<Key<'call>> {
        self.open_as(name, api::READ)
    }

    fn open_as(self, name: Name<'call>, mode: c_int) -> Option<Key<'call>> {
        // SAFETY: the context is that of the running command, and the name is live.
        let handle = unsafe { (self.loaded.api.open_key)(self.ctx, name.0.as_ptr(), mode) };
        NonNull::new(handle).map(|handle| Key {
            server: self,
            handle,
            mode,
            text: Cell::new(None),
        })
    }

    /// Tells that a call was refused, where the server is set to tell events of modules. The server
    /// would look at that setting itself, but a refusal is to cost next to nothing.
    ///
    /// No key may be open: another module that listens may change it.
    pub(super) fn notify_refused(self, name: Name<'_>) {
        // SAFETY: the function takes nothing and returns a number.
        let told = unsafe { (self.loaded.api.get_notify_keyspace_events)() };
        if told & api::NOTIFY_MODULE == 0 {
            return;
        }
        // SAFETY: the context is that of the running command, and the name is live.
        unsafe {
            (self.loaded.api.notify_keyspace_event)(
                self.ctx,
                api::NOTIFY_MODULE,
                c"rl.refused".as_ptr(),
                name.0.as_ptr(),
            );
        }
    }

    /// Tells the server that a key was changed: for those who watch or cache it.
    pub(super) fn modified(self, name: Name<'_>) {
        // SAFETY: the context is that of the running command, and the name is live.
        unsafe { (self.loaded.api.signal_modified_key)(self.ctx, name.0.as_ptr()) };
    }

    /// Tells replicas and the AOF that `key` has a new value and, if given, a new expiry.
    pub(super) fn replicate_set(self, key: Name<'_>, value: &[u8], expire_at_ms: Option<i64>) {
        let (key, text) = (key.0.as_ptr(), value.as_ptr());
        // SAFETY: each format is followed by what it names: a live string, a buffer and its
        // length, another live string, a number.
        unsafe {
            match expire_at_ms {
                Some(at) => (self.loaded.api.replicate)(
                    self.ctx,
                    c"SET".as_ptr(),
                    c"sbsl".as_ptr(),
                    key,
                    text,
                    value.len(),
                    self.loaded.pxat.as_ptr(),
                    at,
                ),
                None => (self.loaded.api.replicate)(
                    self.ctx,
                    c"SET".as_ptr(),
                    c"sbs".as_ptr(),
                    key,
                    text,
                    value.len(),
                    self.loaded.keep_ttl.as_ptr(),
                ),
            };
        }
    }

    /// Tells replicas and the AOF that the count in `key` grew.
    pub(super) fn replicate_increment(self, key: Name<'_>, by: i64) {
        let key = key.0.as_ptr();
        // SAFETY: each format is followed by what it names: a live string, a number.
        unsafe {
            match by {
                1 => (self.loaded.api.replicate)(self.ctx, c"INCR".as_ptr(), c"s".as_ptr(), key),
                _ => (self.loaded.api.replicate)(
                    self.ctx,
                    c"INCRBY".as_ptr(),
                    c"sl".as_ptr(),
                    key,
                    by,
                ),
            };
        }
    }

    /// Tells replicas and the AOF of a command on `key` with nothing more to say.
    pub(super) fn replicate_key(self, command: &CStr, key: Name<'_>) {
        // SAFETY: the format names one string, and a live one follows.
        unsafe {
            (self.loaded.api.replicate)(self.ctx, command.as_ptr(), c"s".as_ptr(), key.0.as_ptr());
        }
    }

    /// Tells replicas and the AOF of a command on `key` with a number.
    pub(super) fn replicate_number(self, command: &CStr, key: Name<'_>, number: i64) {
        let key = key.0.as_ptr();
        // SAFETY: the format names a string and a number, and a live one and one follow.
        unsafe {
            (self.loaded.api.replicate)(self.ctx, command.as_ptr(), c"sl".as_ptr(), key, number);
        }
    }

    /// Tells replicas and the AOF of a command on `key` with a vector of strings.
    pub(super) fn replicate_strings(self, command: &CStr, key: Name<'_>, strings: &[Name<'_>]) {
        let key = key.0.as_ptr();
        // SAFETY: the format names a string, and a vector of strings with its length; all are
        // live, and a `Name` is a pointer to one.
        unsafe {
            (self.loaded.api.replicate)(
                self.ctx,
                command.as_ptr(),
                c"sv".as_ptr(),
                key,
                strings.as_ptr(),
                strings.len(),
            );
        }
    }

    /// Makes a string of the server's.
    pub(super) fn string(self, text: &[u8]) -> Option<OwnString<'call>> {
        // SAFETY: the server copies `len` bytes from the buffer.
        let string =
            unsafe { (self.loaded.api.create_string)(self.ctx, text.as_ptr().cast(), text.len()) };
        NonNull::new(string).map(|string| OwnString {
            server: self,
            string,
        })
    }

    /// Replies with a decision or an error.
    pub(super) fn reply(self, result: Result<Decision, Error>) -> c_int {
        // SAFETY: the context is that of the running command, and error texts are C strings.
        unsafe {
            match result {
                Ok(decision) => {
                    let reply = decision.reply();
                    (self.loaded.api.reply_with_array)(self.ctx, 5);
                    for integer in reply {
                        (self.loaded.api.reply_with_long_long)(self.ctx, integer);
                    }
                    api::OK
                }
                Err(Error::Arity) => (self.loaded.api.wrong_arity)(self.ctx),
                Err(error) => (self.loaded.api.reply_with_error)(self.ctx, error.text().as_ptr()),
            }
        }
    }
}

/// A string that is freed when it is dropped.
pub(super) struct OwnString<'call> {
    server: Server<'call>,
    string: NonNull<RedisModuleString>,
}

impl OwnString<'_> {
    pub(super) fn name(&self) -> Name<'_> {
        Name(self.string, PhantomData)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.server.bytes(self.name())
    }
}

impl Drop for OwnString<'_> {
    fn drop(&mut self) {
        // SAFETY: the string is ours, and this is its only release.
        unsafe { (self.server.loaded.api.free_string)(self.server.ctx, self.string.as_ptr()) }
    }
}

/// What kind of value a key holds, as far as the commands can tell them apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Nothing,
    String,
    List,
    Other,
}

/// Which end of a list.
#[derive(Clone, Copy)]
pub(super) enum End {
    Oldest,
    Newest,
}

impl End {
    fn place(self) -> c_int {
        match self {
            Self::Oldest => api::HEAD,
            Self::Newest => api::TAIL,
        }
    }
}

/// An open key; it is closed when it is dropped.
pub(super) struct Key<'call> {
    server: Server<'call>,
    handle: NonNull<RedisModuleKey>,
    /// What it was opened for.
    mode: c_int,
    /// Where the value's text is, once it has been read, until the key is changed.
    text: Cell<Option<(NonNull<u8>, usize)>>,
}

impl<'call> Key<'call> {
    /// Opens the same key once more, for the same purpose.
    pub(super) fn reopen(&self, name: Name<'call>) -> Option<Self> {
        self.server.open_as(name, self.mode)
    }

    pub(super) fn kind(&self) -> Kind {
        // SAFETY: the key is open.
        match unsafe { (self.server.loaded.api.key_type)(self.handle.as_ptr()) } {
            api::EMPTY => Kind::Nothing,
            api::STRING => Kind::String,
            api::LIST => Kind::List,
            _ => Kind::Other,
        }
    }

    /// When the key expires, in ms since the epoch; `None` without a TTL.
    pub(super) fn expire_at_ms(&self) -> Option<u64> {
        // SAFETY: the key is open.
        let at = unsafe { (self.server.loaded.api.get_abs_expire)(self.handle.as_ptr()) };
        u64::try_from(at).ok()
    }

    /// The handle, to change the value with: where its text is then, nobody knows.
    fn handle_to_change(&mut self) -> *mut RedisModuleKey {
        self.text.set(None);
        self.handle.as_ptr()
    }

    /// Sets the expiry of a key that exists.
    pub(super) fn set_expire_at_ms(&mut self, at: i64) -> Result<(), Error> {
        let handle = self.handle_to_change();
        // SAFETY: the key is open for writing.
        done(unsafe { (self.server.loaded.api.set_abs_expire)(handle, at) })
    }

    /// The bytes of a string value, none for an absent key; `None` for a value of another type.
    pub(super) fn text(&self) -> Option<&[u8]> {
        let text = self.text_for(self.mode & api::WRITE);
        self.text.set(text);
        let (text, len) = text?;
        // SAFETY: that many bytes are there, and they stay as they are while the key is borrowed.
        Some(unsafe { slice::from_raw_parts(text.as_ptr(), len) })
    }

    /// Writes a string value in place; the expiry stays as it is.
    pub(super) fn set_text(&mut self, text: &[u8]) -> Result<(), Error> {
        // What is only read may belong to others as well.
        let writable = self.mode & api::WRITE != 0;
        let fits = |value: &(NonNull<u8>, usize)| writable && value.1 == text.len();
        let mut value = self.text.take().filter(fits);
        if value.is_none() {
            let handle = self.handle_to_change();
            // SAFETY: the server refuses a handle that is not open for writing.
            done(unsafe { (self.server.loaded.api.string_truncate)(handle, text.len()) })?;
            value = self.text_for(api::WRITE).filter(fits);
        }
        let (bytes, len) = value.ok_or(Error::Internal)?;
        // SAFETY: the value has as many bytes as the server said when it gave them out to be written,
        // and it was not changed since: not by this handle, and there is no other that writes.
        unsafe { bytes.copy_from_nonoverlapping(NonNull::from(text).cast(), len) };
        Ok(())
    }

    /// Where the bytes of a string value are, and how many. With [`api::WRITE`] they may be
    /// overwritten: the value is this key's alone then.
    fn text_for(&self, mode: c_int) -> Option<(NonNull<u8>, usize)> {
        let mut len = 0;
        // SAFETY: the key is open, for writing too where `mode` says so.
        let text = unsafe {
            (self.server.loaded.api.string_dma)(self.handle.as_ptr(), &raw mut len, mode)
        };
        NonNull::new(text.cast()).map(|text| (text, len))
    }

    /// The number of entries of a list.
    pub(super) fn len(&self) -> u64 {
        // SAFETY: the key is open.
        let len = unsafe { (self.server.loaded.api.value_length)(self.handle.as_ptr()) };
        u64::try_from(len).unwrap_or(u64::MAX)
    }

    /// The entry of a list at an index, 0 being its head.
    pub(super) fn entry(&self, index: u64) -> Option<OwnString<'_>> {
        let index = index.try_into().ok()?;
        // SAFETY: the key is open; the string that comes back is ours.
        let entry = unsafe { (self.server.loaded.api.list_get)(self.handle.as_ptr(), index) };
        NonNull::new(entry).map(|string| OwnString {
            server: self.server,
            string,
        })
    }

    /// Appends an entry to a list, which is created if there is none.
    pub(super) fn push(&mut self, entry: Name<'_>) -> Result<(), Error> {
        let handle = self.handle_to_change();
        // SAFETY: the key is open for writing, and the string is live; the server copies it.
        done(unsafe {
            (self.server.loaded.api.list_push)(handle, End::Newest.place(), entry.0.as_ptr())
        })
    }

    /// Removes an entry from a list. The server deletes a list that becomes empty.
    pub(super) fn pop(&mut self, end: End) -> Result<(), Error> {
        let handle = self.handle_to_change();
        // SAFETY: the key is open for writing; the string that comes back is ours.
        let entry = unsafe { (self.server.loaded.api.list_pop)(handle, end.place()) };
        let string = NonNull::new(entry).ok_or(Error::Internal)?;
        drop(OwnString {
            server: self.server,
            string,
        });
        Ok(())
    }

    /// Deletes whatever the key holds.
    pub(super) fn delete(&mut self) -> Result<(), Error> {
        let handle = self.handle_to_change();
        // SAFETY: the key is open for writing.
        done(unsafe { (self.server.loaded.api.delete_key)(handle) })
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: the key is open, and this is its only close.
        unsafe { (self.server.loaded.api.close_key)(self.handle.as_ptr()) }
    }
}

/// What a call of the server's that can only fail by a defect of ours came to.
fn done(status: c_int) -> Result<(), Error> {
    if status == api::OK {
        Ok(())
    } else {
        Err(Error::Internal)
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
