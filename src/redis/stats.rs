//! What the module counts, and how `INFO` shows it.
//!
//! Commands run on the server's main thread alone, so counting needs no lock and loses nothing.
//! Counts are those since the module was loaded: the server does not tell a module of `CONFIG
//! RESETSTAT`.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU64, Ordering};

use redis_module::raw::{self, RedisModuleInfoCtx};

use super::api::{self, c_text};
use crate::decision::{Decision, RetryAfter};
use crate::error::Error;
use crate::policy::{Charge, Hold, Policy};
use crate::request::{AnyCall, Call};

/// One count. It is written by commands alone, which never run at the same time.
pub(super) struct Count(AtomicU64);

impl Count {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(super) fn add_one(&self) {
        self.0.store(self.get().wrapping_add(1), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The calls of one command, by what they came to.
pub(super) struct Calls {
    admitted: Count,
    refused: Count,
    /// Those of the refused that wait in vain: their cost is above the limit, or the lease that they
    /// renew, as one limit of several, is not live.
    above_limit: Count,
    invalid_arguments: Count,
    /// State that is none of the command's, or of another type.
    invalid_state: Count,
    out_of_memory: Count,
    /// Calls that gave units back, or would have if any had been used.
    refunds: Count,
    /// Calls that were charged in any case; those that did not fit are among the refused.
    forced: Count,
    /// Calls that asked for as many units as there are, and got some, but not all that they asked for.
    partial: Count,
    /// Leases that were released.
    releases: Count,
    /// Leases to renew or to release that were not live.
    not_live: Count,
    /// How often `RL.PEEK` was asked for the same algorithm.
    pub(super) peeks: Count,
}

impl Calls {
    const fn new() -> Self {
        Self {
            admitted: Count::new(),
            refused: Count::new(),
            above_limit: Count::new(),
            invalid_arguments: Count::new(),
            invalid_state: Count::new(),
            out_of_memory: Count::new(),
            refunds: Count::new(),
            forced: Count::new(),
            partial: Count::new(),
            releases: Count::new(),
            not_live: Count::new(),
            peeks: Count::new(),
        }
    }

    /// Counts a call that was admitted or refused.
    #[expect(clippy::inline_always, reason = "some 10 instructions of every call")]
    #[inline(always)]
    pub(super) fn count(&self, is_admitted: bool, retry_after: RetryAfter) {
        if is_admitted {
            self.admitted.add_one();
        } else {
            self.refused.add_one();
            if retry_after == RetryAfter::Never {
                self.above_limit.add_one();
            }
        }
    }

    /// Counts what else there is to say of a call that was no plain cost.
    pub(super) fn count_settled(&self, charge: Charge, decision: &Decision) {
        match charge {
            Charge::Force(_) => self.forced.add_one(),
            Charge::Refund(_) => self.refunds.add_one(),
            Charge::UpTo(most) if (1..most.get()).contains(&decision.allowed) => {
                self.partial.add_one();
            }
            Charge::UpTo(_) | Charge::Cost(_) => {}
        }
    }

    /// The same of a call on leases.
    pub(super) fn count_hold(&self, hold: Hold, decision: &Decision) {
        match (hold, decision.is_admitted()) {
            (Hold::Release, true) => self.releases.add_one(),
            (Hold::Release | Hold::Renew, false) => self.not_live.add_one(),
            (Hold::Take | Hold::Renew, _) => {}
        }
    }

    /// The same of one limit of an admitted call with several.
    pub(super) fn count_kind(&self, call: &AnyCall<'_>, decision: &Decision) {
        match call {
            AnyCall::Units(Call { charge, .. }) => self.count_settled(*charge, decision),
            AnyCall::Lease(call) => self.count_hold(call.hold, decision),
        }
    }

    #[cold]
    pub(super) fn count_error(&self, error: Error) {
        let count = match error {
            Error::InvalidState | Error::WrongType => &self.invalid_state,
            Error::OutOfMemory => &self.out_of_memory,
            Error::Clock => &CLOCK_OUT_OF_RANGE,
            Error::Internal => &INTERNAL_ERRORS,
            Error::Arity
            | Error::Limit
            | Error::EntryLimit
            | Error::Window
            | Error::Capacity
            | Error::Refill
            | Error::Period
            | Error::Cost
            | Error::UpTo
            | Error::Refund
            | Error::Ttl
            | Error::Id
            | Error::KeyCount
            | Error::SameKeys
            | Error::FillTime
            | Error::Syntax => &self.invalid_arguments,
        };
        count.add_one();
    }
}

pub(super) static FIXED: Calls = Calls::new();
pub(super) static TOKEN: Calls = Calls::new();
pub(super) static SLIDE: Calls = Calls::new();
pub(super) static LEASE: Calls = Calls::new();
pub(super) static ALL: Calls = Calls::new();
/// Here *admitted* and *refused* are what a call would have been.
pub(super) static PEEK: Calls = Calls::new();
/// Calls that found their key's stored time more than the jitter ahead, and moved it back.
pub(super) static CLOCK_STEPS: Count = Count::new();
static CLOCK_OUT_OF_RANGE: Count = Count::new();
pub(super) static INTERNAL_ERRORS: Count = Count::new();

/// The counts of the command that this policy belongs to.
pub(super) fn of(policy: &Policy) -> &'static Calls {
    match policy {
        Policy::Fixed(_) => &FIXED,
        Policy::Token(_) => &TOKEN,
        Policy::Slide(_) | Policy::Exact(_) => &SLIDE,
    }
}

type Field = (&'static CStr, &'static Count);

/// A section of `INFO` and its fields. The server puts the module's name before each of the names.
struct Section {
    name: &'static CStr,
    fields: &'static [Field],
}

macro_rules! calls {
    ($name:literal, $calls:ident $(, [$above_limit:ident])? $(, $more:ident)*) => {
        Section {
            name: c_text(concat!($name, "\0")),
            fields: &[
                calls!(@ $name, $calls, "admitted", admitted),
                calls!(@ $name, $calls, "refused", refused),
                $(calls!(@ $name, $calls, "refused_above_limit", $above_limit),)?
                calls!(@ $name, $calls, "invalid_arguments", invalid_arguments),
                calls!(@ $name, $calls, "invalid_state", invalid_state),
                $(calls!(@ $name, $calls, stringify!($more), $more),)*
            ],
        }
    };
    (@ $name:literal, $calls:ident, $text:expr, $field:ident) => {
        (c_text(concat!($name, "_", $text, "\0")), &$calls.$field)
    };
}

static SECTIONS: [Section; 7] = [
    calls!(
        "fixed",
        FIXED,
        [above_limit],
        out_of_memory,
        refunds,
        forced,
        partial,
        peeks
    ),
    calls!(
        "token",
        TOKEN,
        [above_limit],
        out_of_memory,
        refunds,
        forced,
        partial,
        peeks
    ),
    calls!(
        "slide",
        SLIDE,
        [above_limit],
        out_of_memory,
        refunds,
        forced,
        partial,
        peeks
    ),
    calls!("lease", LEASE, out_of_memory, releases, not_live, peeks),
    calls!(
        "all",
        ALL,
        [above_limit],
        out_of_memory,
        refunds,
        forced,
        releases,
        not_live
    ),
    calls!("peek", PEEK, [above_limit]),
    Section {
        name: c"health",
        fields: &[
            (c"clock_steps", &CLOCK_STEPS),
            (c"clock_out_of_range", &CLOCK_OUT_OF_RANGE),
            (c"internal_errors", &INTERNAL_ERRORS),
        ],
    },
];

/// Sets every count to zero: the library may have stayed in memory since it was loaded before.
pub(super) fn reset() {
    for Section { fields, .. } in &SECTIONS {
        for (_, count) in *fields {
            count.reset();
        }
    }
}

/// What the server calls for `INFO`, and for a crash report.
pub(super) unsafe extern "C" fn info(ctx: *mut RedisModuleInfoCtx, _for_crash_report: c_int) {
    // SAFETY: plain reads of pointers that only loading a module writes.
    let (section, field) = unsafe {
        (
            raw::RedisModule_InfoAddSection,
            raw::RedisModule_InfoAddFieldULongLong,
        )
    };
    let (Some(add_section), Some(add_field)) = (section, field) else {
        return;
    };
    for Section { name, fields } in &SECTIONS {
        // SAFETY: the context is that of the running `INFO`; the server copies the names. It
        // refuses a section that was not asked for.
        if unsafe { add_section(ctx, name.as_ptr()) } != api::OK {
            continue;
        }
        for (name, count) in *fields {
            // SAFETY: as above.
            unsafe { add_field(ctx, name.as_ptr(), count.get()) };
        }
    }
}
