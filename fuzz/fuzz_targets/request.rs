//! Argument bytes, one argument a line: what parses is in range, says the same when it is printed
//! and parsed again, and means the same to the commands that share its grammar.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_rl::policy::FixedPolicy;
use redis_rl::request::{self, PeekForm, SlideForm};
use redis_rl_fuzz::{print, words};

fuzz_target!(|input: &[u8]| {
    let fixed = request::fixed(words(input));
    if let Ok(call) = fixed {
        let FixedPolicy { limit, window } = call.policy;
        let text = print(input, &[limit.get()], window, call.cost, false);
        assert_eq!(request::fixed(words(&text)), Ok(call));
    }
    if let Ok(call) = request::token(words(input)) {
        let numbers = [call.policy.capacity().get(), call.policy.refill().get()];
        let text = print(input, &numbers, call.policy.period(), call.cost, false);
        assert_eq!(request::token(words(&text)), Ok(call));
    }
    let mut as_fixed = None;
    if let Ok(call) = request::slide(words(input)) {
        let (limit, window, exact) = match call.policy {
            SlideForm::Counter(policy) => (policy.limit, policy.window, false),
            SlideForm::Exact(policy) => (policy.limit(), policy.window(), true),
        };
        let text = print(input, &[limit.get()], window, call.cost, exact);
        assert_eq!(request::slide(words(&text)), Ok(call));
        as_fixed = (!exact).then_some((FixedPolicy { limit, window }, call.cost));
    }
    check_peek(input);
    // Without EXACT the two grammars are one.
    assert_eq!(fixed.ok().map(|call| (call.policy, call.cost)), as_fixed);
});

/// A peek takes just what the command of its algorithm takes.
fn check_peek(input: &[u8]) {
    let args: Vec<&[u8]> = words(input).collect();
    let peeked = |algorithm: &'static [u8]| {
        let args: Vec<&[u8]> = std::iter::once(algorithm)
            .chain(args.iter().copied())
            .collect();
        request::peek(args.into_iter()).map(|call| (call.policy, call.cost))
    };
    let args = || args.iter().copied();
    let least = |least: usize| args().len() >= least;
    if least(2) {
        let fixed = request::fixed(args()).map(|call| (PeekForm::Fixed(call.policy), call.cost));
        assert_eq!(peeked(b"fixed"), fixed);
        let slide = request::slide(args()).map(|call| (PeekForm::Slide(call.policy), call.cost));
        assert_eq!(peeked(b"SLIDE"), slide);
    }
    if least(3) {
        let token = request::token(args()).map(|call| (PeekForm::Token(call.policy), call.cost));
        assert_eq!(peeked(b"Token"), token);
    }
    let _ = request::peek(args());
}
