//! What the fuzz targets share: words from bytes, calls from bytes, and what a call has to keep.

#[path = "../../tests/core/all.rs"]
pub mod all;
pub mod call;
pub mod input;
#[path = "../../tests/core/key.rs"]
pub mod key;

use redis_rl::error::{Error, ErrorOf};
use redis_rl::policy::{
    Charge, Hold, MAX_ID, MAX_LEASES, MAX_LOG_LIMIT, MAX_SPAN_MS, MAX_UNITS, Policy, Units,
};
use redis_rl::request::{self, AnyCall, Call, LeaseCall};

/// Arguments, one a line.
pub fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    text.split(|byte| *byte == b'\n')
}

/// Prints a call: its algorithm and then what its own command takes, once it is sure that all is in
/// range.
#[must_use]
pub fn print(call: &AnyCall<'_>) -> Vec<Vec<u8>> {
    let Call { policy, charge } = match call {
        AnyCall::Units(call) => *call,
        AnyCall::Lease(call) => return print_lease(call),
    };
    let (algorithm, numbers, span, most) = match policy {
        Policy::Fixed(policy) => ("FIXED", vec![policy.limit], policy.window, MAX_UNITS),
        Policy::Token(policy) => {
            let numbers = vec![policy.capacity(), policy.refill()];
            ("TOKEN", numbers, policy.period(), MAX_UNITS)
        }
        Policy::Slide(policy) => ("SLIDE", vec![policy.limit], policy.window, MAX_UNITS),
        Policy::Exact(policy) => {
            let numbers = vec![policy.limit()];
            ("SLIDE", numbers, policy.window(), MAX_LOG_LIMIT)
        }
    };
    let exact = matches!(policy, Policy::Exact(_));
    let (word, units, force) = match charge {
        Charge::Cost(units) => ("COST", units, false),
        Charge::Force(units) => ("COST", units, true),
        Charge::UpTo(units) => ("UPTO", units, false),
        Charge::Refund(units) => ("REFUND", units, false),
    };
    assert!(numbers.iter().all(|n| (1..=most).contains(&n.get())));
    assert!((1..=MAX_SPAN_MS).contains(&span.as_ms()));
    assert!((1..=MAX_UNITS).contains(&units.get()));
    assert!(!(force && exact));
    let mut text = vec![algorithm.to_owned()];
    text.extend(numbers.iter().map(|n| n.get().to_string()));
    text.extend([
        span.as_ms().to_string(),
        word.to_owned(),
        units.get().to_string(),
    ]);
    text.extend(force.then(|| "FORCE".to_owned()));
    text.extend(exact.then(|| "EXACT".to_owned()));
    text.into_iter().map(String::into_bytes).collect()
}

fn print_lease(call: &LeaseCall<'_>) -> Vec<Vec<u8>> {
    let (limit, ttl_ms) = (call.policy.limit().get(), call.policy.ttl().as_ms());
    assert!((1..=MAX_LEASES).contains(&limit));
    assert!((1..=MAX_SPAN_MS).contains(&ttl_ms));
    assert!((1..=MAX_ID).contains(&call.id.len()));
    let mut text = ["LEASE".to_owned(), limit.to_string(), ttl_ms.to_string()]
        .map(String::into_bytes)
        .to_vec();
    text.push(call.id.to_vec());
    text.extend(match call.hold {
        Hold::Take => None,
        Hold::Renew => Some(b"RENEW".to_vec()),
        Hold::Release => Some(b"RELEASE".to_vec()),
    });
    text
}

/// How many of the words that are printed need not be said: a cost of 1.
#[must_use]
pub fn unsaid(call: &AnyCall<'_>) -> usize {
    match call {
        AnyCall::Units(call) => match call.charge {
            Charge::Cost(Units::ONE) | Charge::Force(Units::ONE) => 2,
            _ => 0,
        },
        AnyCall::Lease(_) => 0,
    }
}

/// Parses all that `RL.ALL` takes, as the shell does: the keys themselves are passed over.
///
/// # Errors
///
/// As those of [`request::key_count`] and [`request::policies`].
pub fn parse_all<'a>(
    mut words: impl Iterator<Item = &'a [u8]> + Clone,
    calls: &mut request::Calls<'a>,
) -> Result<(), ErrorOf> {
    let count = request::key_count(words.next())?;
    for _ in 0..count {
        words.next().ok_or(Error::Syntax)?;
    }
    request::policies(words, count, calls)
}
