//! Applying what the core decided: changing a key, and telling replicas and the AOF.

use super::found::{Found, Holds};
use super::keys::{Key, Kind, signed};
use super::server::Str;
use crate::clock::Timestamp;
use crate::error::Error;
use crate::limiter::text::{self, State};
use crate::limiter::{lease, log};

/// Refuses a change that needs memory where there is none.
#[expect(clippy::inline_always, reason = "some 15 instructions of every call")]
#[inline(always)]
pub(super) fn ask_for_memory(key: &Key<'_>, needed: bool) -> Result<(), Error> {
    if needed && key.out_of_memory() {
        return Err(Error::OutOfMemory);
    }
    Ok(())
}

/// Writes what an algorithm has to store as a text, and tells replicas and the AOF.
#[expect(clippy::inline_always, reason = "some 15 instructions of every call")]
#[inline(always)]
pub(super) fn store_text<S: State>(key: &mut Key<'_>, found: Found, change: &text::Change<S>) {
    let text::Change::Set {
        state,
        expire_at_ms,
        increment,
    } = *change
    else {
        return delete(key);
    };
    if found.holds == Holds::Past {
        key.delete();
    }
    let expire_at_ms = expire_at_ms.map(signed);
    let text = state.encode();
    key.set_text(&text);
    if let Some(at) = expire_at_ms {
        key.set_expire_at_ms(at);
    }
    key.modified();
    match increment {
        0 => key.replicate_set(&text, expire_at_ms),
        by => key.replicate_increment(by),
    }
}

/// Deletes a key, and tells replicas and the AOF.
#[cold]
fn delete(key: &mut Key<'_>) {
    key.delete();
    key.modified();
    key.replicate_delete();
}

/// Changes a log of `len` entries, and tells replicas and the AOF.
///
/// # Errors
///
/// As those of [`Key::trim`], which comes first.
pub(super) fn store_log(
    key: &mut Key<'_>,
    found: Found,
    len: u64,
    change: &log::Change,
) -> Result<(), Error> {
    // A list that loses all its entries is gone, and its expiry with it.
    let emptied = change.leaving() >= len;
    if emptied && change.appended == 0 {
        delete(key);
        return Ok(());
    }
    let entry = key.entry(&log::encode_entry(change.time))?;
    if !emptied {
        key.trim(change.oldest, change.newest)?;
    } else if found.holds != Holds::Nothing {
        key.delete();
        key.replicate_delete();
    }
    let expire_at_ms = expiry(key, found, change.expire_at_ms);
    key.push(entry.get(), change.appended);
    set_expiry(key, expire_at_ms);
    key.modified();
    Ok(())
}

/// When a key expires that is about to be added to. One that is not there any more (all of its entries
/// left, or somebody who listens deleted it) has lost its expiry, and gets it back.
fn expiry(key: &Key<'_>, found: Found, fresh_ms: Option<u64>) -> Option<u64> {
    match fresh_ms {
        None if key.kind() == Kind::Nothing => found.expire_at_ms,
        fresh_ms => fresh_ms,
    }
}

fn set_expiry(key: &mut Key<'_>, at_ms: Option<u64>) {
    if let Some(at) = at_ms.map(signed) {
        key.set_expire_at_ms(at);
        key.replicate_expiry(at);
    }
}

/// Changes a set of so many leases, and tells replicas and the AOF.
///
/// # Errors
///
/// As those of [`Key::remove_scores`], which comes first.
pub(super) fn store_leases(
    key: &mut Key<'_>,
    found: Found,
    count: u64,
    id: Str<'_>,
    change: &lease::Change,
    now: Timestamp,
) -> Result<(), Error> {
    match *change {
        lease::Change::Delete => {
            delete(key);
            return Ok(());
        }
        lease::Change::Release { over } => {
            if over > 0 {
                key.remove_scores(now.as_ms())?;
            }
            key.remove_member(id);
        }
        lease::Change::Hold {
            end_ms,
            over,
            expire_at_ms,
        } => {
            // A set that loses all its members is gone, and its expiry with it.
            let emptied = over >= count;
            if !emptied && over > 0 {
                key.remove_scores(now.as_ms())?;
            } else if emptied && found.holds != Holds::Nothing {
                key.delete();
                key.replicate_delete();
            }
            let expire_at_ms = expiry(key, found, expire_at_ms);
            key.set_score(id, end_ms);
            set_expiry(key, expire_at_ms);
        }
    }
    key.modified();
    Ok(())
}
