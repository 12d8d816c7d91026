//! Header fields that tell callers where they stand.
//!
//! `RateLimit-Policy` and `RateLimit` are those of draft-ietf-httpapi-ratelimit-headers-10 (September
//! 2025; revision 11 is of May 2026). They are lists of structured fields (RFC 9651), with one item
//! for each policy:
//!
//! | parameter | meaning |
//! |---|---|
//! | `q` | the quota |
//! | `qu` | its unit, of a limit of requests at once. Such a limit has no window |
//! | `w` | the window in seconds |
//! | `r` | what remains |
//! | `t` | seconds until there is more |
//!
//! If the same request would have to wait now, `t` is the wait of `Retry-After`. Otherwise it is an
//! upper bound: nothing is used any more by then.
//!
//! `X-RateLimit-*` are the older fields: the limit, what remains, and the seconds until nothing is used
//! any more.

use std::fmt::Display;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::decision::Standing;
use crate::limit::Charge;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The largest integer of a structured field, which has 15 digits; a limit may have 16.
const LARGEST: u64 = 999_999_999_999_999;

/// Tells the caller the policies, and where it stands if that is known.
pub fn describe(headers: &mut HeaderMap, charges: &[Charge], standings: Option<&[Standing]>) {
    put(headers, POLICY, list(charges.iter().map(policy)));
    let Some(standings) = standings else {
        return;
    };
    let limits = charges.iter().zip(standings);
    put(headers, LIMIT, list(limits.map(limit)));
    // These have room for one limit, and mean a rate: of those that refuse, or else of all, the one
    // with the least left.
    let rates = charges.iter().zip(standings);
    let rates = rates.filter(|(charge, _)| !charge.limit().policy().is_lease());
    let least = rates.min_by_key(|(_, standing)| (standing.allowed > 0, standing.remaining));
    if let Some((_, least)) = least {
        put(headers, X_LIMIT, least.limit);
        put(headers, X_REMAINING, least.remaining);
        put(headers, X_RESET, seconds(least.reset_after_ms));
    }
}

fn policy(charge: &Charge) -> String {
    let (name, policy) = (charge.limit().name(), charge.limit().policy());
    let quota = policy.limit().min(LARGEST);
    if policy.is_lease() {
        return format!("\"{name}\";q={quota};qu=\"concurrent-requests\"");
    }
    let window = seconds(policy.window_ms());
    format!("\"{name}\";q={quota};w={window}")
}

fn limit((charge, standing): (&Charge, &Standing)) -> String {
    // Where the same request would have to wait, that is when there is more: a client must not be told
    // to wait for longer than Retry-After. Otherwise the reply doesn't tell when the next unit comes, and
    // by the time that nothing is used there is more for certain.
    let name = charge.limit().name();
    let remaining = standing.remaining.min(LARGEST);
    let more = match standing.retry_after_ms {
        Some(retry_after_ms) if retry_after_ms > 0 => seconds(retry_after_ms),
        // Places come back as requests end.
        _ if charge.limit().policy().is_lease() => return format!("\"{name}\";r={remaining}"),
        _ => seconds(standing.reset_after_ms),
    };
    format!("\"{name}\";r={remaining};t={more}")
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// Rounded up: a caller who waits as long as told must not be refused for waiting too little.
pub(crate) fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1000)
}

pub(crate) fn put(headers: &mut HeaderMap, name: HeaderName, value: impl Display) {
    // Numbers and names of limits: always a valid value.
    if let Ok(value) = HeaderValue::try_from(value.to_string()) {
        headers.insert(name, value);
    }
}
