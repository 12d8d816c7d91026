//! The only owner of open keys: reading and changing them, and telling replicas and the AOF.
//!
//! The server hands out handles that do not know of each other: a value that one handle frees,
//! another may still point to. So there is one [`Keys`] per call, it is borrowed for as long as a
//! key is open, and whatever could change a key by another way (a listener, a command) needs it,
//! or the key itself, in full. What is read of a key is borrowed from it, and gone before it is
//! changed.
//!
//! Changing a key can't fail: everything that could be refused is asked first. Only [`Key::trim`] and
//! [`Key::remove_scores`] can, with nothing changed, and they come before every other change.
//!
//! Several keys are open together only for a call on all of them. Then nothing runs that a listener
//! hears of: see [`Keys::open_all`], and `all`.

use core::cell::Cell;
use core::ffi::{CStr, c_int};
use core::iter;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::slice;

use arrayvec::ArrayVec;
use redis_module::raw::RedisModuleKey;

use super::api;
use super::server::{OwnStr, Reply, Server, Str};
use super::stats;
use crate::clock::Timestamp;
use crate::error::{Error, InvalidState};
use crate::limiter::lease::Leases;
use crate::limiter::log::{self, Entries};
use crate::policy::{MAX_LIMITS, MAX_LOG_LIMIT};

/// The keys of one call.
pub(super) struct Keys<'call> {
    server: Server<'call>,
}

impl<'call> Keys<'call> {
    /// # Safety
    ///
    /// The running call has no other.
    pub(super) unsafe fn new(server: Server<'call>) -> Self {
        Self { server }
    }

    pub(super) fn server(&self) -> Server<'call> {
        self.server
    }

    /// Opens a key, existing or not, so that it can be written to. That alone is no change; see
    /// [`Key::modified`].
    pub(super) fn open<'key>(&'key mut self, name: Str<'key>) -> Key<'key> {
        Key::open(self.server, name, 0)
    }

    /// Opens several keys, existing or not, so that they can be written to.
    ///
    /// The server deletes a key whose time has come when it is opened, and tells of it. Another module
    /// that listens may delete those that are open already. So where one turns out not to be there,
    /// all are opened once more: time stands still within a call, and no other goes by then.
    ///
    /// # Errors
    ///
    /// [`Error::SameKeys`], with none open: a key that is open twice could be freed by the one handle
    /// and read by the other.
    pub(super) fn open_all<'key>(
        &'key mut self,
        names: &[Str<'key>],
        keys: &mut ArrayVec<Key<'key>, MAX_LIMITS>,
    ) -> Result<(), Error> {
        let server = self.server;
        let mut texts = ArrayVec::<&[u8], MAX_LIMITS>::new();
        for name in names {
            let text = server.bytes(*name);
            if texts.contains(&text) {
                return Err(Error::SameKeys);
            }
            texts.push(text);
        }
        // Asked of each as it is opened: the value of one that was opened before may be gone already.
        let mut are_there = ArrayVec::<bool, MAX_LIMITS>::new();
        for name in names {
            let key = Key::open(server, *name, 0);
            are_there.push(key.kind() != Kind::Nothing);
            keys.push(key);
        }
        if are_there.iter().skip(1).all(|is_there| *is_there) {
            return Ok(());
        }
        for (key, was_there) in keys.iter_mut().zip(are_there) {
            if was_there {
                key.forget_if_gone();
            }
        }
        keys.clear();
        for name in names {
            keys.push(Key::open(server, *name, api::QUIET));
        }
        Ok(())
    }

    /// Opens a key that the call has had open before.
    pub(super) fn open_again<'key>(&'key mut self, name: Str<'key>) -> Key<'key> {
        Key::open(self.server, name, api::QUIET)
    }

    /// Opens a key, if it exists, to be read alone.
    pub(super) fn open_to_read<'key>(&'key mut self, name: Str<'key>) -> Option<View<'key>> {
        let handle = open(self.server, name, api::READ);
        (!handle.is_null()).then(|| View::new(self.server, name, handle, 0))
    }

    /// Tells that a call was refused, where the server is set to tell events of modules. The server
    /// would look at that setting itself, but a refusal is to cost next to nothing.
    ///
    /// Another module that listens may change the key, so none is open.
    pub(super) fn notify_refused(&mut self, name: Str<'_>) {
        let api = self.server.api();
        // SAFETY: the function takes nothing and returns a number.
        let told = unsafe { (api.get_notify_keyspace_events)() };
        if told & api::NOTIFY_MODULE == 0 {
            return;
        }
        // SAFETY: the context is that of the running command, and the name is live.
        unsafe {
            (api.notify_keyspace_event)(
                self.server.ctx(),
                api::NOTIFY_MODULE,
                c"rl.refused".as_ptr(),
                name.as_ptr(),
            );
        }
    }
}

fn open(server: Server<'_>, name: Str<'_>, mode: c_int) -> *mut RedisModuleKey {
    // SAFETY: the context is that of the running command, and the name is live.
    unsafe { (server.api().open_key)(server.ctx(), name.as_ptr(), mode) }
}

/// For writing, the server gives a handle for every key, existing or not: never null.
const TO_WRITE: c_int = api::READ | api::WRITE;

/// # Safety
///
/// The handle is open, and not used afterwards.
unsafe fn close(server: Server<'_>, handle: *mut RedisModuleKey) {
    // SAFETY: promised by the caller.
    unsafe { (server.api().close_key)(handle) }
}

/// What kind of value a key holds, as far as the commands can tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Nothing,
    String,
    List,
    SortedSet,
    Other,
}

/// The most entries that are appended at once: all that a list of ours can hold.
const MOST_PUSHED: usize = 10_000;
const _: () = assert!(MOST_PUSHED as u64 == MAX_LOG_LIMIT);

/// Which end of a list.
#[derive(Clone, Copy)]
enum End {
    Oldest,
    Newest,
}

/// An open key as it can be looked into; it is closed when it is dropped.
pub(super) struct View<'key> {
    server: Server<'key>,
    name: Str<'key>,
    /// Null only inside [`Key::reopen_after`].
    handle: *mut RedisModuleKey,
    /// [`api::WRITE`] if it was opened for that too.
    write: c_int,
    /// Where the value's text is, once it has been read, until the key is changed.
    text: Cell<Option<(NonNull<u8>, usize)>>,
}

impl<'key> View<'key> {
    fn new(
        server: Server<'key>,
        name: Str<'key>,
        handle: *mut RedisModuleKey,
        write: c_int,
    ) -> Self {
        Self {
            server,
            name,
            handle,
            write,
            text: Cell::new(None),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        // SAFETY: the key is open.
        match unsafe { (self.server.api().key_type)(self.handle) } {
            api::EMPTY => Kind::Nothing,
            api::STRING => Kind::String,
            api::LIST => Kind::List,
            api::SORTED_SET => Kind::SortedSet,
            _ => Kind::Other,
        }
    }

    /// When the key expires, in ms since the epoch; `None` without a TTL.
    pub(super) fn expire_at_ms(&self) -> Option<u64> {
        // SAFETY: the key is open.
        let at = unsafe { (self.server.api().get_abs_expire)(self.handle) };
        u64::try_from(at).ok()
    }

    /// The bytes of a string value, none for an absent key; `None` for a value of another type.
    pub(super) fn text(&self) -> Option<&[u8]> {
        let text = self.text_for(self.write);
        self.text.set(text);
        let (text, len) = text?;
        // SAFETY: that many bytes are there, and they stay as they are while the key is borrowed.
        Some(unsafe { slice::from_raw_parts(text.as_ptr(), len) })
    }

    /// Where the bytes of a string value are, and how many. With [`api::WRITE`] they may be
    /// overwritten: the value is this key's alone then.
    fn text_for(&self, mode: c_int) -> Option<(NonNull<u8>, usize)> {
        let mut len = 0;
        // SAFETY: the key is open, for writing too where `mode` says so.
        let text = unsafe { (self.server.api().string_dma)(self.handle, &raw mut len, mode) };
        NonNull::new(text.cast()).map(|text| (text, len))
    }

    /// How many elements the value has.
    fn len(&self) -> u64 {
        // SAFETY: the key is open.
        let len = unsafe { (self.server.api().value_length)(self.handle) };
        u64::try_from(len).unwrap_or(u64::MAX)
    }

    /// The list that the key holds.
    pub(super) fn list(&self) -> List<'_> {
        List {
            view: self,
            len: self.len(),
            far: ptr::null_mut(),
            last: None,
        }
    }

    /// The sorted set that the key holds.
    pub(super) fn set(&self) -> Set<'_> {
        Set {
            view: self,
            len: self.len(),
        }
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the key is open, and this is its only close.
            unsafe { close(self.server, self.handle) }
        }
    }
}

/// A list that is read entry by entry.
///
/// A handle walks from the entry that it read last, and a fresh one seeks from the nearer end. So
/// for an entry far away a second handle is opened, which reads alone and is closed with this.
pub(super) struct List<'view> {
    view: &'view View<'view>,
    len: u64,
    /// Null if there is none.
    far: *mut RedisModuleKey,
    /// The index that was read last.
    last: Option<u64>,
}

impl List<'_> {
    /// Up to this distance the handle walks; beyond it, a fresh handle seeks.
    const NEAR: u64 = 8;

    fn seek(&mut self) {
        self.close_far();
        let View {
            server,
            name,
            write,
            ..
        } = *self.view;
        // Without a trace: the call has been counted as an access.
        self.far = open(server, name, api::READ | write | api::QUIET);
    }

    fn close_far(&mut self) {
        let far = core::mem::replace(&mut self.far, ptr::null_mut());
        if !far.is_null() {
            // SAFETY: it was opened by `seek`, and has just been taken away.
            unsafe { close(self.view.server, far) }
        }
    }
}

impl Entries for List<'_> {
    fn count(&self) -> u64 {
        self.len
    }

    fn get(&mut self, index: u64) -> Result<Timestamp, InvalidState> {
        if self
            .last
            .is_some_and(|last| last.abs_diff(index) > Self::NEAR)
        {
            self.seek();
        }
        self.last = Some(index);
        let server = self.view.server;
        let handle = if self.far.is_null() {
            self.view.handle
        } else {
            self.far
        };
        let index = index.try_into().map_err(|_| InvalidState)?;
        // SAFETY: the key is open; the string that comes back is ours.
        let entry = unsafe { (server.api().list_get)(handle, index) };
        let entry = NonNull::new(entry).ok_or(InvalidState)?;
        // SAFETY: as above.
        let entry = unsafe { OwnStr::new(server, entry) };
        log::decode_entry(entry.bytes())
    }
}

impl Drop for List<'_> {
    fn drop(&mut self) {
        self.close_far();
    }
}

/// A sorted set of leases, whose scores are when they end, in ms since the epoch.
pub(super) struct Set<'view> {
    view: &'view View<'view>,
    len: u64,
}

impl Set<'_> {
    /// Up to this distance from an end of the set it is walked; beyond it, the server's own command
    /// is asked, which finds a rank or a score as quickly anywhere.
    const NEAR: u64 = 8;

    /// The score of a member; `None` if it is none.
    ///
    /// # Errors
    ///
    /// [`InvalidState`] if it is no whole number of ms.
    pub(super) fn score(&self, member: Str<'_>) -> Result<Option<u64>, InvalidState> {
        let View { server, handle, .. } = *self.view;
        let mut score = 0.0;
        // SAFETY: the key is open, and the string is live.
        let status = unsafe { (server.api().zset_score)(handle, member.as_ptr(), &raw mut score) };
        if status == api::OK {
            whole(score).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Goes to the last member of a score of at most `most`.
    fn go_to_last(&self, most: f64) {
        let View { server, handle, .. } = *self.view;
        // SAFETY: the key is open.
        unsafe { (server.api().zset_last)(handle, f64::NEG_INFINITY, most, 0, 0) };
    }

    /// Goes to the first member of all.
    fn go_to_first(&self) {
        let View { server, handle, .. } = *self.view;
        // SAFETY: the key is open.
        unsafe { (server.api().zset_first)(handle, f64::NEG_INFINITY, f64::INFINITY, 0, 0) };
    }

    /// Goes one member on; whether there was one.
    fn go_next(&self) -> bool {
        // SAFETY: the key is open.
        unsafe { (self.view.server.api().zset_next)(self.view.handle) != 0 }
    }

    /// Goes one member back; whether there was one.
    fn go_back(&self) -> bool {
        // SAFETY: the key is open.
        unsafe { (self.view.server.api().zset_prev)(self.view.handle) != 0 }
    }

    /// The score of the member at hand.
    fn current(&self) -> Result<u64, InvalidState> {
        let View { server, handle, .. } = *self.view;
        let mut score = 0.0;
        // SAFETY: the key is open; the string that comes back is ours.
        let member = unsafe { (server.api().zset_current)(handle, &raw mut score) };
        let member = NonNull::new(member).ok_or(InvalidState)?;
        // SAFETY: as above.
        drop(unsafe { OwnStr::new(server, member) });
        whole(score)
    }
}

impl Leases for Set<'_> {
    fn count(&self) -> u64 {
        self.len
    }

    fn end_at(&mut self, rank: u64) -> Result<u64, Error> {
        let from_last = self.len.saturating_sub(1).saturating_sub(rank);
        if from_last <= Self::NEAR {
            self.go_to_last(f64::INFINITY);
            for _ in 0..from_last {
                self.go_back();
            }
            return Ok(self.current()?);
        }
        if rank <= Self::NEAR {
            self.go_to_first();
            for _ in 0..rank {
                self.go_next();
            }
            return Ok(self.current()?);
        }
        let View { server, name, .. } = *self.view;
        let (rank, word) = (signed(rank), c"WITHSCORES");
        let reply = command(server, c"sllc", c"ZRANGE", name, [rank, rank], word)?;
        Ok(reply.beginning(b"*")?.number().ok_or(InvalidState)?)
    }

    fn over(&mut self, now_ms: u64) -> Result<u64, Error> {
        let View {
            server,
            name,
            handle,
            ..
        } = *self.view;
        self.go_to_last(score(now_ms));
        // SAFETY: the key is open.
        if unsafe { (server.api().zset_end_reached)(handle) != 0 } {
            return Ok(0);
        }
        let mut over = 1_u64;
        while self.go_back() {
            over = over.saturating_add(1);
            if over > Self::NEAR {
                let upto = [0, signed(now_ms)];
                let reply = command(server, c"sll", c"ZCOUNT", name, upto, c"")?;
                return reply.beginning(b":")?.number().ok_or(Error::Internal);
            }
        }
        Ok(over)
    }
}

/// An instant in ms as a score. All that are stored are below 2^53, where it is exact.
#[expect(clippy::cast_precision_loss, reason = "exact, as said above")]
fn score(ms: u64) -> f64 {
    ms as f64
}

/// A score as an instant in ms.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "what is lost is what is asked"
)]
fn whole(read: f64) -> Result<u64, InvalidState> {
    let ms = read as u64;
    if score(ms) == read {
        Ok(ms)
    } else {
        Err(InvalidState)
    }
}

/// An open key that can be written to.
pub(super) struct Key<'key>(View<'key>);

impl<'key> Deref for Key<'key> {
    type Target = View<'key>;

    fn deref(&self) -> &View<'key> {
        &self.0
    }
}

impl<'key> Key<'key> {
    /// Up to so many entries of a list are removed one by one. More are left to the server's own
    /// command, which takes as long for ten thousand as for about ten.
    const POPPED: u64 = 8;

    /// Opens a key to be written to, in such a mode beside that.
    #[inline]
    fn open(server: Server<'key>, name: Str<'key>, mode: c_int) -> Self {
        let handle = open(server, name, TO_WRITE | mode);
        Self(View::new(server, name, handle, api::WRITE))
    }

    /// Whether the server would refuse a command that needs memory.
    pub(super) fn out_of_memory(&self) -> bool {
        self.server.out_of_memory(self.name)
    }

    /// Makes a string that can be pushed.
    pub(super) fn entry(&self, text: &[u8]) -> Result<OwnStr<'key>, Error> {
        self.server.string(text).ok_or(Error::Internal)
    }

    /// Makes a handle whose key somebody else has deleted fit to be closed: closing looks at the value. To
    /// delete what is not there only has the handle forget it.
    fn forget_if_gone(&mut self) {
        let handle = self.handle_to_change();
        let (api, name) = (self.server.api(), self.name.as_ptr());
        // SAFETY: the context is that of the running command, and the name is live; the key is open for
        // writing, and its value is not looked at.
        unsafe {
            if (api.key_exists)(self.server.ctx(), name) == 0 {
                check((api.delete_key)(handle));
            }
        }
    }

    /// The handle, to change the value with. Drops the cached pointer: the text may move.
    fn handle_to_change(&mut self) -> *mut RedisModuleKey {
        self.0.text.set(None);
        self.handle
    }

    /// Closes the handle, does something to the key by another way, and opens it again.
    fn reopen_after<T>(&mut self, change: impl FnOnce(Server<'_>, Str<'_>) -> T) -> T {
        self.0.text.set(None);
        let handle = core::mem::replace(&mut self.0.handle, ptr::null_mut());
        // SAFETY: it was open, and has just been taken away.
        unsafe { close(self.server, handle) };
        let result = change(self.server, self.name);
        self.0.handle = open(self.server, self.name, TO_WRITE | api::QUIET);
        result
    }

    /// Deletes whatever the key holds. A handle that has read entries of a list holds an iterator,
    /// and the server aborts when such a handle is left without its list; so a fresh one does it.
    pub(super) fn delete(&mut self) {
        self.reopen_after(|_, _| ());
        let handle = self.handle_to_change();
        // SAFETY: the key is open for writing.
        check(unsafe { (self.server.api().delete_key)(handle) });
    }

    /// Sets the expiry of a key that exists, in ms since the epoch.
    pub(super) fn set_expire_at_ms(&mut self, at: i64) {
        let handle = self.handle_to_change();
        // SAFETY: the key is open for writing.
        check(unsafe { (self.server.api().set_abs_expire)(handle, at) });
    }

    /// Writes a string value in place; the expiry stays as it is.
    #[expect(clippy::inline_always, reason = "some 20 instructions of every call")]
    #[inline(always)]
    pub(super) fn set_text(&mut self, text: &[u8]) {
        let fits = |value: &(NonNull<u8>, usize)| value.1 == text.len();
        let mut value = self.0.text.take().filter(fits);
        if value.is_none() {
            let handle = self.handle_to_change();
            // SAFETY: the key is open for writing.
            if !check(unsafe { (self.server.api().string_truncate)(handle, text.len()) }) {
                return;
            }
            value = self.text_for(api::WRITE).filter(fits);
        }
        let Some((bytes, len)) = value else {
            check(api::ERR);
            return;
        };
        // SAFETY: the value has as many bytes as the server said when it gave them out to be written,
        // and it was not changed since: not by this handle, and nothing else can while it is open.
        unsafe { bytes.copy_from_nonoverlapping(NonNull::from(text).cast(), len) };
    }

    /// Whether it takes a command of the server's to remove so many entries of a list.
    pub(super) fn trims_by_command(leaving: u64) -> bool {
        leaving > Self::POPPED
    }

    /// Removes so many entries from the ends of a list, of which some are left, and tells replicas
    /// and the AOF.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if the server refuses its own command, with nothing removed.
    pub(super) fn trim(&mut self, oldest: u64, newest: u64) -> Result<(), Error> {
        if Self::trims_by_command(oldest.saturating_add(newest)) {
            let last = signed(newest).saturating_add(1).saturating_neg();
            return self.reopen_after(|server, name| {
                let kept = [signed(oldest), last];
                let reply = command(server, c"!sll", c"LTRIM", name, kept, c"")?;
                reply.beginning(b"+OK").map(drop)
            });
        }
        self.pop(End::Oldest, oldest);
        self.pop(End::Newest, newest);
        Ok(())
    }

    fn pop(&mut self, end: End, count: u64) {
        let (place, command): (c_int, &CStr) = match end {
            End::Oldest => (api::HEAD, c"LPOP"),
            End::Newest => (api::TAIL, c"RPOP"),
        };
        for _ in 0..count {
            let handle = self.handle_to_change();
            // SAFETY: the key is open for writing.
            let entry = unsafe { (self.server.api().list_pop)(handle, place) };
            match NonNull::new(entry) {
                // SAFETY: the string that comes back is ours.
                Some(entry) => drop(unsafe { OwnStr::new(self.server, entry) }),
                None => {
                    check(api::ERR);
                }
            }
        }
        match count {
            0 => {}
            1 => self.replicate(command),
            _ => self.replicate_number(command, signed(count)),
        }
    }

    /// Appends an entry so many times to a list, which is created if there is none, and tells
    /// replicas and the AOF in one command, so that the key's name goes out once.
    pub(super) fn push(&mut self, entry: Str<'_>, count: u64) {
        match count {
            0 => {}
            1 => self.push_all(slice::from_ref(&entry)),
            count => self.push_many(entry, count),
        }
    }

    /// Not inlined, for its 80 kB of stack.
    #[inline(never)]
    fn push_many(&mut self, entry: Str<'_>, count: u64) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut entries = ArrayVec::<_, MOST_PUSHED>::new();
        entries.extend(iter::repeat_n(entry, count.min(MOST_PUSHED)));
        self.push_all(&entries);
    }

    fn push_all(&mut self, entries: &[Str<'_>]) {
        for entry in entries {
            let handle = self.handle_to_change();
            // SAFETY: the key is open for writing, and the string is live; the server copies it.
            check(unsafe { (self.server.api().list_push)(handle, api::TAIL, entry.as_ptr()) });
        }
        // SAFETY: the format names a string, and a vector of strings with its length; all are
        // live, and a `Str` is a pointer to one.
        unsafe {
            (self.server.api().replicate)(
                self.server.ctx(),
                c"RPUSH".as_ptr(),
                c"sv".as_ptr(),
                self.name.as_ptr(),
                entries.as_ptr(),
                entries.len(),
            );
        }
    }

    /// Gives a member of a sorted set a score, and tells replicas and the AOF. The set is created if
    /// there is none.
    pub(super) fn set_score(&mut self, member: Str<'_>, ms: u64) {
        let handle = self.handle_to_change();
        let (server, member) = (self.server, member.as_ptr());
        // SAFETY: the key is open for writing, and the string is live; the server copies it. The
        // format names a string, a number and another string, and all of them follow.
        unsafe {
            check((server.api().zset_add)(
                handle,
                score(ms),
                member,
                ptr::null_mut(),
            ));
            (server.api().replicate)(
                server.ctx(),
                c"ZADD".as_ptr(),
                c"sls".as_ptr(),
                self.name.as_ptr(),
                signed(ms),
                member,
            );
        }
    }

    /// Removes a member of a sorted set, and tells replicas and the AOF.
    pub(super) fn remove_member(&mut self, member: Str<'_>) {
        let handle = self.handle_to_change();
        let (server, member) = (self.server, member.as_ptr());
        // SAFETY: the key is open for writing, and the string is live. The format names two strings,
        // and two live ones follow.
        unsafe {
            check((server.api().zset_rem)(handle, member, ptr::null_mut()));
            (server.api().replicate)(
                server.ctx(),
                c"ZREM".as_ptr(),
                c"ss".as_ptr(),
                self.name.as_ptr(),
                member,
            );
        }
    }

    /// Removes the members of a sorted set whose score is at most `most_ms`, while others are left, and
    /// tells replicas and the AOF.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if the server refuses its own command, with nothing removed.
    pub(super) fn remove_scores(&mut self, most_ms: u64) -> Result<(), Error> {
        self.reopen_after(|server, name| {
            let upto = [0, signed(most_ms)];
            let reply = command(server, c"!sll", c"ZREMRANGEBYSCORE", name, upto, c"")?;
            reply.beginning(b":").map(drop)
        })
    }

    /// Tells the server that the key was changed: for those who watch or cache it.
    pub(super) fn modified(&self) {
        // SAFETY: the context is that of the running command, and the name is live.
        unsafe {
            (self.server.api().signal_modified_key)(self.server.ctx(), self.name.as_ptr());
        }
    }

    /// Tells replicas and the AOF that the key has a new value and, if given, a new expiry.
    pub(super) fn replicate_set(&self, value: &[u8], expire_at_ms: Option<i64>) {
        let (server, key, text) = (self.server, self.name.as_ptr(), value.as_ptr());
        // SAFETY: each format is followed by what it names: a live string, a buffer and its
        // length, another live string, a number.
        unsafe {
            match expire_at_ms {
                Some(at) => (server.api().replicate)(
                    server.ctx(),
                    c"SET".as_ptr(),
                    c"sbsl".as_ptr(),
                    key,
                    text,
                    value.len(),
                    server.pxat(),
                    at,
                ),
                None => (server.api().replicate)(
                    server.ctx(),
                    c"SET".as_ptr(),
                    c"sbs".as_ptr(),
                    key,
                    text,
                    value.len(),
                    server.keep_ttl(),
                ),
            };
        }
    }

    /// Tells replicas and the AOF that the count in the key grew, or fell.
    #[expect(clippy::inline_always, reason = "some 20 instructions of every call")]
    #[inline(always)]
    pub(super) fn replicate_increment(&self, by: i64) {
        match by {
            1 => self.replicate(c"INCR"),
            ..=-1 => self.replicate_number(c"DECRBY", by.saturating_neg()),
            _ => self.replicate_number(c"INCRBY", by),
        }
    }

    /// Tells replicas and the AOF that the key is gone.
    pub(super) fn replicate_delete(&self) {
        self.replicate(c"DEL");
    }

    /// Tells replicas and the AOF when the key expires.
    pub(super) fn replicate_expiry(&self, at: i64) {
        self.replicate_number(c"PEXPIREAT", at);
    }

    /// Tells replicas and the AOF of a command on the key with nothing more to say.
    #[expect(clippy::inline_always, reason = "some 20 instructions of every call")]
    #[inline(always)]
    fn replicate(&self, command: &CStr) {
        let (server, key) = (self.server, self.name.as_ptr());
        // SAFETY: the format names one string, and a live one follows.
        unsafe {
            (server.api().replicate)(server.ctx(), command.as_ptr(), c"s".as_ptr(), key);
        }
    }

    /// Tells replicas and the AOF of a command on the key with a number.
    #[expect(clippy::inline_always, reason = "some 20 instructions of every call")]
    #[inline(always)]
    fn replicate_number(&self, command: &CStr, number: i64) {
        let (server, key) = (self.server, self.name.as_ptr());
        // SAFETY: the format names a string and a number, and a live one and one follow.
        unsafe {
            (server.api().replicate)(server.ctx(), command.as_ptr(), c"sl".as_ptr(), key, number);
        }
    }
}

/// Runs a command of the server's on a key and two numbers, and a word if the format has a place for it.
/// One that does more than read (`!` in its format goes to replicas and the AOF) needs the key closed.
///
/// # Errors
///
/// [`Error::Internal`] if the server refuses its own command.
fn command<'call>(
    server: Server<'call>,
    format: &CStr,
    command: &CStr,
    name: Str<'_>,
    numbers: [i64; 2],
    word: &CStr,
) -> Result<Reply<'call>, Error> {
    let [from, to] = numbers;
    // SAFETY: the context is that of the running command; each format names a string, two numbers and
    // at most a C string, and live ones follow. A key that is open is there for a command that reads,
    // too, as no time passes within a call: none is deleted.
    let reply = unsafe {
        let (format, command, word) = (format.as_ptr(), command.as_ptr(), word.as_ptr());
        (server.api().call)(server.ctx(), command, format, name.as_ptr(), from, to, word)
    };
    // SAFETY: the reply is ours.
    unsafe { Reply::new(server, reply) }.ok_or(Error::Internal)
}

/// What the server takes as a signed integer. All numbers of ours are far from where it stops.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Whether the server took a change. Only a defect of ours can make it refuse one: what was asked
/// before rules it out. That is counted, and the call goes on: what was written before can't be
/// taken back.
fn check(status: c_int) -> bool {
    debug_assert_eq!(status, api::OK, "the server takes every change");
    if status == api::OK {
        return true;
    }
    stats::INTERNAL_ERRORS.add_one();
    false
}
