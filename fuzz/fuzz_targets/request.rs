//! Argument bytes, one argument a line: what parses is in range, says the same when it is printed
//! and parsed again, and means the same to the commands that share its grammar.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_rl::error::{Error, ErrorOf};
use redis_rl::policy::{Charge, FixedPolicy, Hold, MAX_LIMITS, Policy};
use redis_rl::request::{self, AnyCall, Call, Calls};
use redis_rl_fuzz::{parse_all, print, unsaid, words};

fuzz_target!(|input: &[u8]| {
    let fixed = request::fixed(words(input));
    let slide = request::slide(words(input));
    for call in [fixed, request::token(words(input)), slide]
        .into_iter()
        .flatten()
    {
        check_call(input, &call.into());
    }
    if let Ok(call) = request::lease(words(input)) {
        check_call(input, &AnyCall::Lease(call));
    }
    check_peek(input);
    check_all(input);
    for algorithm in [b"fixed".as_slice(), b"TOKEN", b"Slide", b"lease"] {
        check_one_of_all(input, algorithm);
    }
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

/// What a command of its own takes.
fn own<'a>(
    algorithm: &[u8],
    args: impl Iterator<Item = &'a [u8]> + Clone,
) -> Result<AnyCall<'a>, Error> {
    match algorithm.to_ascii_uppercase().as_slice() {
        b"FIXED" => request::fixed(args).map(AnyCall::Units),
        b"TOKEN" => request::token(args).map(AnyCall::Units),
        b"SLIDE" => request::slide(args).map(AnyCall::Units),
        _ => request::lease(args).map(AnyCall::Lease),
    }
}

/// What was parsed means the same when it is printed and parsed again, and is all that was said.
fn check_call(input: &[u8], call: &AnyCall<'_>) {
    let printed = print(call);
    let args = || printed[1..].iter().map(Vec::as_slice);
    assert_eq!(own(&printed[0], args()), Ok(*call));
    let more = args().len().checked_sub(words(input).count());
    assert!(more == Some(0) || more == Some(unsaid(call)));
}

/// A peek takes just what the command of its algorithm takes, but for what changes something: that
/// is an error in both.
fn check_peek(input: &[u8]) {
    let args: Vec<&[u8]> = words(input).collect();
    let is_change =
        |word: &&[u8]| word.eq_ignore_ascii_case(b"FORCE") || word.eq_ignore_ascii_case(b"REFUND");
    let changes = args.iter().any(is_change);
    for (algorithm, least) in [(b"fixed", 2), (b"SLIDE", 2), (b"Token", 3), (b"leasE", 3)] {
        if args.len() < least {
            continue;
        }
        let all = std::iter::once(algorithm.as_slice()).chain(args.iter().copied());
        let all: Vec<&[u8]> = all.collect();
        let peeked = request::peek(all.into_iter());
        match own(algorithm, args.iter().copied()) {
            Ok(AnyCall::Lease(call)) if call.hold != Hold::Take => {
                assert_eq!(peeked, Err(Error::Syntax));
            }
            Ok(AnyCall::Units(_)) if changes => assert_eq!(peeked, Err(Error::Syntax)),
            // Which error is told may differ.
            Err(_) if changes => assert!(peeked.is_err()),
            call => assert_eq!(peeked, call),
        }
    }
    let _ = request::peek(args.into_iter());
}

/// What was parsed as several calls means the same when it is printed and parsed again; an error
/// names one of them, or none.
fn check_all(input: &[u8]) {
    let mut calls = Calls::new();
    if let Err(error) = parse_all(words(input), &mut calls) {
        return check_error(input, error);
    }
    let keys = words(input).skip(1).take(calls.len());
    let mut text = vec![calls.len().to_string().into_bytes()];
    text.extend(keys.map(<[u8]>::to_vec));
    text.extend(calls.iter().flat_map(print));
    let mut again = Calls::new();
    let parsed = parse_all(text.iter().map(Vec::as_slice), &mut again);
    assert_eq!((parsed, &again), (Ok(()), &calls));
    let most: usize = calls.iter().map(unsaid).sum();
    let more = text.len().checked_sub(words(input).count());
    assert!(more.is_some_and(|more| more <= most && more % 2 == 0));
}

fn check_error(input: &[u8], error: ErrorOf) {
    let Some(text) = error.numbered_text() else {
        return;
    };
    let text = std::str::from_utf8(&text).expect("ASCII");
    let text = text.strip_suffix('\0').expect("a C string");
    assert!(text.is_ascii() && !text.contains('\0'));
    let digits: String = text
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    let count = words(input).next().and_then(|word| {
        let count: usize = std::str::from_utf8(word).ok()?.parse().ok()?;
        (2..=MAX_LIMITS).contains(&count).then_some(count)
    });
    let count = count.expect("an error of one of several");
    assert!((1..=count).contains(&digits.parse().expect("a number")));
    let own = error.error.text().to_str().expect("ASCII");
    let unnumbered = text.replacen(&format!(" {digits}"), "", 1);
    assert_eq!(unnumbered, own, "but for the number, its own text");
}

/// One of several takes just what its own command takes, but for `UPTO`.
fn check_one_of_all(input: &[u8], algorithm: &[u8]) {
    let args = [b"1".as_slice(), b"key", algorithm];
    let mut calls = Calls::new();
    let parsed = parse_all(args.into_iter().chain(words(input)), &mut calls);
    match own(algorithm, words(input)) {
        Ok(AnyCall::Units(call)) if matches!(call.charge, Charge::UpTo(_)) => {
            assert!(parsed.is_err());
        }
        Ok(call) => assert_eq!((parsed, calls.as_slice()), (Ok(()), [call].as_slice())),
        Err(_) if words(input).any(|word| word.eq_ignore_ascii_case(b"UPTO")) => {
            assert!(parsed.is_err());
        }
        Err(Error::Arity) => assert_eq!(parsed, Err(Error::Syntax.into())),
        Err(error) => assert_eq!(parsed, Err(error.into()), "the text of its own command"),
    }
}
