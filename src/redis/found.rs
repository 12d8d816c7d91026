//! What a call finds in a key.

use super::keys::{Kind, List, Set, View};
use super::server::Str;
use crate::clock::Timestamp;
use crate::error::Error;
use crate::limiter::lease::{self, LeaseSet, Leases};
use crate::limiter::text::Stored;
use crate::request::LeaseCall;

/// What was found in a key.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) expire_at_ms: Option<u64>,
    pub(super) holds: Holds,
}

/// What a key holds, as far as a call is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Nothing,
    /// Something whose TTL has passed, and which the server has yet to delete.
    Past,
    /// State, of the type that the command keeps it in.
    State,
}

impl Found {
    pub(super) const NOTHING: Self = Self {
        expire_at_ms: None,
        holds: Holds::Nothing,
    };

    /// Looks into a key and checks its type.
    ///
    /// One whose TTL has passed counts as absent, whatever it holds, even while the server still
    /// shows it, as it may for as long as a script runs.
    fn look_up(key: &View<'_>, kind: Kind, now: Timestamp) -> Result<Self, Error> {
        let actual = key.kind();
        if actual == Kind::Nothing {
            return Ok(Self::NOTHING);
        }
        let found = Self::existing(key, now);
        if actual != kind && found.is_live() {
            return Err(Error::WrongType);
        }
        Ok(found)
    }

    /// Looks into a key that is to hold a string, and gives what counts of it.
    #[expect(clippy::inline_always, reason = "some 40 instructions of every call")]
    #[inline(always)]
    pub(super) fn look_up_text<'key>(
        key: &'key View<'_>,
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

    /// Looks into a key that is to hold a list, and gives what counts of it.
    pub(super) fn look_up_list<'key>(
        key: &'key View<'_>,
        now: Timestamp,
    ) -> Result<(Self, Option<List<'key>>), Error> {
        let found = Self::look_up(key, Kind::List, now)?;
        Ok((found, found.is_live().then(|| key.list())))
    }

    /// Looks into a key that is to hold a sorted set, and gives what counts of it.
    pub(super) fn look_up_set<'key>(
        key: &'key View<'_>,
        now: Timestamp,
    ) -> Result<(Self, Option<Set<'key>>), Error> {
        let found = Self::look_up(key, Kind::SortedSet, now)?;
        Ok((found, found.is_live().then(|| key.set())))
    }

    /// What is found in a key that exists and is of the right type.
    fn existing(key: &View<'_>, now: Timestamp) -> Self {
        let expire_at_ms = key.expire_at_ms();
        let past = expire_at_ms.is_some_and(|at| at < now.as_ms());
        Self {
            expire_at_ms,
            holds: if past { Holds::Past } else { Holds::State },
        }
    }

    /// Whether it counts, and not as absent.
    pub(super) fn is_live(self) -> bool {
        self.holds == Holds::State
    }
}

/// A key of leases, as the call of one id sees it.
pub(super) struct LeaseKey<'key> {
    pub(super) found: Found,
    set: Option<Set<'key>>,
    own_end_ms: Option<u64>,
}

impl<'key> LeaseKey<'key> {
    pub(super) const NOTHING: Self = Self {
        found: Found::NOTHING,
        set: None,
        own_end_ms: None,
    };

    pub(super) fn look_up(key: &'key View<'_>, id: Str<'_>, now: Timestamp) -> Result<Self, Error> {
        let (found, set) = Found::look_up_set(key, now)?;
        let own_end_ms = match &set {
            Some(set) => set.score(id)?,
            None => None,
        };
        Ok(Self {
            found,
            set,
            own_end_ms,
        })
    }

    /// How many leases it holds.
    pub(super) fn count(&self) -> u64 {
        self.set.as_ref().map_or(0, Leases::count)
    }

    pub(super) fn at(
        &mut self,
        call: &LeaseCall<'_>,
        now: Timestamp,
    ) -> Result<LeaseSet<'_, Set<'key>>, Error> {
        let stored = self.set.as_mut().map(|leases| lease::Stored {
            leases,
            own_end_ms: self.own_end_ms,
            expire_at_ms: self.found.expire_at_ms,
        });
        LeaseSet::at(call.policy, call.hold, stored, now)
    }
}
