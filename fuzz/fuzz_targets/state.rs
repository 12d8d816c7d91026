//! Stored bytes: what decodes is what the same bytes are written for, and integers are read as
//! the standard library reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_rl::decimal;
use redis_rl::state::{self, Bucket, Counter, State, Windows};

fuzz_target!(|text: &[u8]| {
    let decoded = [
        Counter::decode(text).map(Counter::encode),
        Bucket::decode(text).map(Bucket::encode),
        Windows::decode(text).map(Windows::encode),
        state::decode_entry(text).map(state::encode_entry),
    ];
    for written in decoded.into_iter().flatten() {
        assert_eq!(written.as_slice(), text);
    }

    let text = std::str::from_utf8(text).unwrap_or_default();
    let number = text.parse::<u128>().ok();
    let canonical = number.filter(|number| number.to_string() == text);
    let short = canonical.and_then(|number| u64::try_from(number).ok());
    assert_eq!(decimal::parse(text.as_bytes()), short);
    // Wide integers are read up to 38 digits; longer ones may be.
    let wide = decimal::parse_wide(text.as_bytes());
    assert!(wide == canonical || wide.is_none() && text.len() > 38);
});
