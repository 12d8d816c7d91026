//! What the fuzz targets share: words from bytes, calls from bytes, and what a call has to keep.

pub mod call;
pub mod input;
#[path = "../../tests/core/key.rs"]
pub mod key;

use redis_rl::policy::{Charge, MAX_LOG_LIMIT, MAX_SPAN_MS, MAX_UNITS, Span, Units};

/// Arguments, one a line.
pub fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    text.split(|byte| *byte == b'\n')
}

/// Prints what was parsed from `input`, once it is sure that it is in range and is all that was
/// said.
#[must_use]
pub fn print(input: &[u8], numbers: &[u64], span: Span, charge: Charge, exact: bool) -> Vec<u8> {
    let most = if exact { MAX_LOG_LIMIT } else { MAX_UNITS };
    assert!(numbers.iter().all(|n| (1..=most).contains(n)));
    assert!((1..=MAX_SPAN_MS).contains(&span.as_ms()));
    let (word, units, force) = match charge {
        Charge::Cost(units) => ("COST", units, false),
        Charge::Force(units) => ("COST", units, true),
        Charge::UpTo(units) => ("UPTO", units, false),
        Charge::Refund(units) => ("REFUND", units, false),
    };
    assert!((1..=MAX_UNITS).contains(&units.get()));
    assert!(!(force && exact));
    let mut text: Vec<String> = numbers.iter().map(u64::to_string).collect();
    text.extend([
        span.as_ms().to_string(),
        word.into(),
        units.get().to_string(),
    ]);
    text.extend(force.then(|| "FORCE".into()));
    text.extend(exact.then(|| "EXACT".into()));
    // Only a cost of 1 can be left unsaid.
    let unsaid = text.len().checked_sub(words(input).count());
    let may_be_unsaid = word == "COST" && units == Units::ONE;
    assert!(unsaid == Some(0) || unsaid == Some(2) && may_be_unsaid);
    text.join("\n").into_bytes()
}
