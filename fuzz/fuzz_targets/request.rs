//! Argument bytes, one argument a line: what parses is in range, says the same when it is printed
//! and parsed again, and means the same to the commands that share its grammar.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_rl::error::Error;
use redis_rl::policy::{FixedPolicy, Policy};
use redis_rl::request::{self, Call};
use redis_rl_fuzz::{print, words};

fuzz_target!(|input: &[u8]| {
    let fixed = request::fixed(words(input));
    let slide = request::slide(words(input));
    for call in [fixed, request::token(words(input)), slide]
        .into_iter()
        .flatten()
    {
        check_call(input, call);
    }
    check_peek(input);
    // Without EXACT the two grammars are one.
    let as_fixed = slide.ok().and_then(|Call { policy, charge }| match policy {
        Policy::Slide(slide) => {
            let (limit, window) = (slide.limit, slide.window);
            let policy = Policy::Fixed(FixedPolicy { limit, window });
            Some(Call { policy, charge })
        }
        _ => None,
    });
    assert_eq!(fixed.ok(), as_fixed);
});

/// What was parsed means the same when it is printed and parsed again.
fn check_call(input: &[u8], call: Call) {
    let Call { policy, charge } = call;
    let again = match policy {
        Policy::Fixed(policy) => {
            let text = print(input, &[policy.limit.get()], policy.window, charge, false);
            request::fixed(words(&text))
        }
        Policy::Token(policy) => {
            let numbers = [policy.capacity().get(), policy.refill().get()];
            let text = print(input, &numbers, policy.period(), charge, false);
            request::token(words(&text))
        }
        Policy::Slide(policy) => {
            let text = print(input, &[policy.limit.get()], policy.window, charge, false);
            request::slide(words(&text))
        }
        Policy::Exact(policy) => {
            let text = print(
                input,
                &[policy.limit().get()],
                policy.window(),
                charge,
                true,
            );
            request::slide(words(&text))
        }
    };
    assert_eq!(again, Ok(call));
}

/// A peek takes just what the command of its algorithm takes, but for `FORCE` and `REFUND`: those
/// change something, or are an error in both.
fn check_peek(input: &[u8]) {
    let args: Vec<&[u8]> = words(input).collect();
    let peeked = |algorithm: &'static [u8]| {
        let args: Vec<&[u8]> = std::iter::once(algorithm)
            .chain(args.iter().copied())
            .collect();
        request::peek(args.into_iter())
    };
    let is_change =
        |word: &&[u8]| word.eq_ignore_ascii_case(b"FORCE") || word.eq_ignore_ascii_case(b"REFUND");
    let changes = args.iter().any(is_change);
    let check = |peeked: Result<Call, Error>, call: Result<Call, Error>| match call {
        Ok(_) if changes => assert_eq!(peeked, Err(Error::Syntax)),
        // Which error is told may differ.
        Err(_) if changes => assert!(peeked.is_err()),
        call => assert_eq!(peeked, call),
    };
    let args = || args.iter().copied();
    let least = |least: usize| args().len() >= least;
    if least(2) {
        check(peeked(b"fixed"), request::fixed(args()));
        check(peeked(b"SLIDE"), request::slide(args()));
    }
    if least(3) {
        check(peeked(b"Token"), request::token(args()));
    }
    let _ = request::peek(args());
}
