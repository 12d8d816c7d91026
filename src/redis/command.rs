//! What every command does, in this order: parse all, read the clock, look up the key, check its
//! state, decide, write, replicate, reply.
//!
//! A refusal ends before the write. The key is opened once, so that it can be written to if the call
//! is admitted; the server takes it as modified only when told so, with the write.

use super::figures;
use super::server::{Args, End, Key, Kind, Name, Server};
use crate::clock::Timestamp;
use crate::decision::Decision;
use crate::error::{Error, InvalidState};
use crate::exact::{self, Change};
use crate::outcome::Outcome;
use crate::policy::{ExactPolicy, Units};
use crate::request::{self, PeekForm, Request, SlideForm};
use crate::state::{self, State, Stored, Write};
use crate::{fixed, slide, token};
use core::slice;

/// `RL.FIXED key limit window_ms [COST n]`
pub(super) fn rl_fixed(server: Server<'_>, args: Args<'_>) -> Result<Decision, Error> {
    let request = request::fixed(args.after_key(server))?;
    judge_text(server, args, &request, fixed::decide)
}

/// `RL.TOKEN key capacity refill period_ms [COST n]`
pub(super) fn rl_token(server: Server<'_>, args: Args<'_>) -> Result<Decision, Error> {
    let request = request::token(args.after_key(server))?;
    judge_text(server, args, &request, token::decide)
}

/// `RL.SLIDE key limit window_ms [COST n] [EXACT]`
pub(super) fn rl_slide(server: Server<'_>, args: Args<'_>) -> Result<Decision, Error> {
    let Request { policy, cost } = request::slide(args.after_key(server))?;
    match policy {
        SlideForm::Counter(policy) => {
            judge_text(server, args, &Request { policy, cost }, slide::decide)
        }
        SlideForm::Exact(policy) => judge_log(server, args, policy, cost),
    }
}

/// `RL.PEEK key FIXED limit window_ms [COST n]`, and so on for the other algorithms
pub(super) fn rl_peek(server: Server<'_>, args: Args<'_>) -> Result<Decision, Error> {
    let Request { policy, cost } = request::peek(args.after_key(server))?;
    match policy {
        PeekForm::Fixed(policy) => {
            figures::FIXED.peeks.add_one();
            peek_text(server, args, &Request { policy, cost }, fixed::peek)
        }
        PeekForm::Token(policy) => {
            figures::TOKEN.peeks.add_one();
            peek_text(server, args, &Request { policy, cost }, token::peek)
        }
        PeekForm::Slide(form) => {
            figures::SLIDE.peeks.add_one();
            match form {
                SlideForm::Counter(policy) => {
                    peek_text(server, args, &Request { policy, cost }, slide::peek)
                }
                SlideForm::Exact(policy) => peek_log(server, args, policy, cost),
            }
        }
    }
}

/// An algorithm whose state is one text, asked what it would answer.
type Preview<P> = fn(&P, Option<Stored<'_>>, Timestamp, Units) -> Result<Decision, InvalidState>;

fn peek_text<P>(
    server: Server<'_>,
    args: Args<'_>,
    request: &Request<P>,
    peek: Preview<P>,
) -> Result<Decision, Error> {
    let now = server.now()?;
    let name = args.key().ok_or(Error::Arity)?;
    let key = server.open_to_read(name);
    let stored = match &key {
        Some(key) => Found::look_up_text(key, now)?.1,
        None => None,
    };
    Ok(peek(&request.policy, stored, now, request.cost)?)
}

fn peek_log(
    server: Server<'_>,
    args: Args<'_>,
    policy: ExactPolicy,
    cost: Units,
) -> Result<Decision, Error> {
    let now = server.now()?;
    let name = args.key().ok_or(Error::Arity)?;
    let key = server.open_to_read(name);
    let mut stored = match &key {
        Some(key) => Found::look_up_log(name, key, now)?.1,
        None => None,
    };
    let stored = stored.as_mut().map(|(log, at)| (log, *at));
    Ok(exact::peek(policy, stored, now, cost)?)
}

/// An algorithm whose state is one text.
type Decide<P, S> =
    fn(&P, Option<Stored<'_>>, Timestamp, Units) -> Result<Outcome<S>, InvalidState>;

fn judge_text<P, S: State>(
    server: Server<'_>,
    args: Args<'_>,
    request: &Request<P>,
    decide: Decide<P, S>,
) -> Result<Decision, Error> {
    let now = server.now()?;
    let name = args.key().ok_or(Error::Arity)?;
    let mut key = server.open(name)?;
    let (found, stored) = Found::look_up_text(&key, now)?;
    let Outcome {
        decision,
        write,
        stepped_back,
    } = decide(&request.policy, stored, now, request.cost)?;
    if let Some(write) = write {
        store_text(server, name, &mut key, found, write)?;
    }
    drop(key);
    tell(server, name, decision.allowed, stepped_back);
    Ok(decision)
}

/// Counts and tells what is known once a call is decided and its key is closed.
#[inline]
fn tell(server: Server<'_>, name: Name<'_>, allowed: bool, stepped_back: bool) {
    if stepped_back {
        figures::CLOCK_STEPS.add_one();
    }
    if !allowed {
        server.notify_refused(name);
    }
}

#[expect(clippy::inline_always, reason = "some 15 instructions of every call")]
#[inline(always)]
fn store_text<'call, S: State>(
    server: Server<'call>,
    name: Name<'call>,
    key: &mut Key<'call>,
    found: Found,
    write: Write<S>,
) -> Result<(), Error> {
    let expire_at_ms = write.expire_at_ms.map(signed).transpose()?;
    if !found.is_live() {
        make_room(server, name, key, found)?;
    }
    let text = write.state.encode();
    key.set_text(&text)?;
    if let Some(at) = expire_at_ms {
        key.set_expire_at_ms(at)?;
    }
    server.modified(name);
    match write.added {
        Some(added) => server.replicate_increment(name, signed(added.get())?),
        None => server.replicate_set(name, &text, expire_at_ms),
    }
    Ok(())
}

fn judge_log(
    server: Server<'_>,
    args: Args<'_>,
    policy: ExactPolicy,
    cost: Units,
) -> Result<Decision, Error> {
    let now = server.now()?;
    let name = args.key().ok_or(Error::Arity)?;
    let mut key = server.open(name)?;
    let (found, mut stored) = Found::look_up_log(name, &key, now)?;
    let len = stored.as_ref().map_or(0, |(log, _)| exact::Log::len(log));
    let log = stored.as_mut().map(|(log, at)| (log, *at));
    let exact::Outcome { decision, change } = exact::decide(policy, log, now, cost)?;
    drop(stored);
    if let Some(change) = &change {
        store_log(server, name, &mut key, found, len, change)?;
    }
    drop(key);
    let stepped_back = change.is_some_and(|change| change.stepped_back());
    tell(server, name, decision.allowed, stepped_back);
    Ok(decision)
}

fn store_log<'call>(
    server: Server<'call>,
    name: Name<'call>,
    key: &mut Key<'call>,
    found: Found,
    len: u64,
    change: &Change,
) -> Result<(), Error> {
    let entry = server
        .string(&state::encode_entry(change.time))
        .ok_or(Error::Internal)?;
    let entry = entry.name();
    let kept = found.expire_at_ms.filter(|_| found.is_live());
    let expire_at_ms = signed(change.expire_at_ms.or(kept).ok_or(Error::Internal)?)?;
    if !found.is_live() {
        if make_room(server, name, key, found)? {
            server.replicate_key(c"DEL", name);
        }
    } else if change.lengthens() && server.out_of_memory(name) {
        return Err(Error::OutOfMemory);
    }
    // A list that loses all its entries is gone, and its expiry with it.
    let emptied = change.trimmed.saturating_add(change.retimed) >= len;
    if emptied && len > 0 {
        // A handle that has read entries holds an iterator, and the server aborts when such a
        // handle is left without a list.
        *key = server.open(name)?;
        key.delete()?;
        server.replicate_key(c"DEL", name);
    } else {
        trim(server, name, key, End::Oldest, change.trimmed)?;
        trim(server, name, key, End::Newest, change.retimed)?;
    }
    push(
        server,
        name,
        key,
        entry,
        change.retimed.saturating_add(change.appended),
    )?;
    if emptied || change.expire_at_ms.is_some() {
        key.set_expire_at_ms(expire_at_ms)?;
        server.replicate_number(c"PEXPIREAT", name, expire_at_ms);
    }
    server.modified(name);
    Ok(())
}

fn trim(
    server: Server<'_>,
    name: Name<'_>,
    key: &mut Key<'_>,
    end: End,
    count: u64,
) -> Result<(), Error> {
    for _ in 0..count {
        key.pop(end)?;
    }
    let command = match end {
        End::Oldest => c"LPOP",
        End::Newest => c"RPOP",
    };
    match count {
        0 => {}
        1 => server.replicate_key(command, name),
        _ => server.replicate_number(command, name, signed(count)?),
    }
    Ok(())
}

fn push(
    server: Server<'_>,
    name: Name<'_>,
    key: &mut Key<'_>,
    entry: Name<'_>,
    count: u64,
) -> Result<(), Error> {
    /// So many entries go into one command on the replication stream.
    const BATCH: usize = 128;
    if count == 1 {
        key.push(entry)?;
        server.replicate_strings(c"RPUSH", name, slice::from_ref(&entry));
        return Ok(());
    }
    let batch = [entry; BATCH];
    let mut left = usize::try_from(count).map_err(|_| Error::Internal)?;
    while left > 0 {
        let (entries, _) = batch.split_at(left.min(BATCH));
        for entry in entries {
            key.push(*entry)?;
        }
        server.replicate_strings(c"RPUSH", name, entries);
        left = left.saturating_sub(entries.len());
    }
    Ok(())
}

/// What was found in a key.
#[derive(Clone, Copy)]
struct Found {
    expire_at_ms: Option<u64>,
    holds: Holds,
}

/// What a key holds, as far as a call is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    /// Something whose TTL has passed, and which the server has yet to delete.
    Past,
    /// State, of the type that the command keeps it in.
    State,
}

impl Found {
    /// Looks into a key and checks its type.
    ///
    /// One whose TTL has passed counts as absent, whatever it holds, even while the server still
    /// shows it, as it may for as long as a script runs.
    fn look_up(key: &Key<'_>, kind: Kind, now: Timestamp) -> Result<Self, Error> {
        let actual = key.kind();
        if actual == Kind::Nothing {
            return Ok(Self {
                expire_at_ms: None,
                holds: Holds::Nothing,
            });
        }
        let found = Self::existing(key, now);
        if actual != kind && found.is_live() {
            return Err(Error::WrongType);
        }
        Ok(found)
    }

    /// Looks into a key that is to hold a string, and gives what counts of it.
    fn look_up_text<'key>(
        key: &'key Key<'_>,
        now: Timestamp,
    ) -> Result<(Self, Option<Stored<'key>>), Error> {
        let (found, text) = match key.text() {
            // What has bytes of text is a string: one question less for most calls.
            Some(text @ [_, ..]) => (Self::existing(key, now), text),
            _ => (Self::look_up(key, Kind::String, now)?, &[][..]),
        };
        let stored = found.is_live().then_some(Stored {
            text,
            expire_at_ms: found.expire_at_ms,
        });
        Ok((found, stored))
    }

    /// Looks into a key that is to hold a list, and gives what counts of it, with its expiry.
    fn look_up_log<'call, 'key>(
        name: Name<'call>,
        key: &'key Key<'call>,
        now: Timestamp,
    ) -> Result<(Self, StoredLog<'call, 'key>), Error> {
        let found = Self::look_up(key, Kind::List, now)?;
        let log = found.is_live().then(|| Log::new(name, key));
        Ok((found, log.map(|log| (log, found.expire_at_ms))))
    }

    /// What is found in a key that exists and is of the right type.
    fn existing(key: &Key<'_>, now: Timestamp) -> Self {
        let expire_at_ms = key.expire_at_ms();
        let past = expire_at_ms.is_some_and(|at| at < now.as_ms());
        Self {
            expire_at_ms,
            holds: if past { Holds::Past } else { Holds::State },
        }
    }

    /// Whether it counts, and not as absent.
    fn is_live(self) -> bool {
        self.holds == Holds::State
    }
}

/// Makes room for a new value, if there is memory for it, and tells whether something that counted
/// as absent had to be deleted.
fn make_room(
    server: Server<'_>,
    name: Name<'_>,
    key: &mut Key<'_>,
    found: Found,
) -> Result<bool, Error> {
    if server.out_of_memory(name) {
        return Err(Error::OutOfMemory);
    }
    let past = found.holds == Holds::Past;
    if past {
        key.delete()?;
    }
    Ok(past)
}

/// A log and the expiry of its key.
type StoredLog<'call, 'key> = Option<(Log<'call, 'key>, Option<u64>)>;

/// The list in a key as a log.
struct Log<'call, 'key> {
    name: Name<'call>,
    key: &'key Key<'call>,
    len: u64,
    /// A second handle on the same key, and the index it last read.
    far: Option<Key<'call>>,
    last: Option<u64>,
}

impl<'call, 'key> Log<'call, 'key> {
    /// A handle walks from the entry that it read last; a fresh one seeks from the nearer end.
    const NEAR: u64 = 8;

    fn new(name: Name<'call>, key: &'key Key<'call>) -> Self {
        Self {
            name,
            key,
            len: key.len(),
            far: None,
            last: None,
        }
    }
}

impl exact::Log for Log<'_, '_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn get(&mut self, index: u64) -> Result<Timestamp, InvalidState> {
        if self
            .last
            .is_some_and(|last| last.abs_diff(index) > Self::NEAR)
        {
            self.far = self.key.reopen(self.name);
        }
        self.last = Some(index);
        let key = self.far.as_ref().unwrap_or(self.key);
        let entry = key.entry(index).ok_or(InvalidState)?;
        state::decode_entry(entry.bytes())
    }
}

fn signed(number: u64) -> Result<i64, Error> {
    i64::try_from(number).map_err(|_| Error::Internal)
}
