//! Stored bytes: what decodes is what the same bytes are written for, and integers are read as
//! the standard library reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_rl::decimal;
use redis_rl::limiter::fixed::Counter;
use redis_rl::limiter::log;
use redis_rl::limiter::slide::Windows;
use redis_rl::limiter::text::State;
use redis_rl::limiter::token::Level;

fuzz_target!(|text: &[u8]| {
    let decoded = [
        Counter::decode(text).map(Counter::encode),
        Level::decode(text).map(Level::encode),
        Windows::decode(text).map(Windows::encode),
        log::decode_entry(text).map(log::encode_entry),
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
