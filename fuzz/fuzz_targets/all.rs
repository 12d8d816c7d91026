//! Calls on several keys, whatever they hold, under any policies, words and clocks, from the bytes of
//! their arguments: no panic, all are charged or none is, and the contract holds for every call.
#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use redis_rl::policy::Charge;
use redis_rl::request::{AnyCall, Call, Calls};
use redis_rl_fuzz::input::{self, AnyPolicy, Kind};
use redis_rl_fuzz::{all, parse_all, print};

fuzz_target!(|bytes: &[u8]| {
    // Bytes that run out end the calls.
    let _ = several(&mut Unstructured::new(bytes));
});

fn several(u: &mut Unstructured<'_>) -> Result<()> {
    let mut now = input::instant(u)?;
    let (mut limits, mut keys) = (Vec::new(), Vec::new());
    for _ in 0..u.int_in_range(1..=5)? {
        let kind = u.arbitrary()?;
        limits.push((kind, input::any_policy(u, kind)?));
        keys.push(input::key(u, kind, now)?);
    }
    for _ in 0..8 {
        let calls = calls(u, &limits)?;
        let text = said(&calls);
        let mut parsed = Calls::new();
        let outcome = parse_all(text.iter().map(Vec::as_slice), &mut parsed);
        assert_eq!((outcome, parsed.as_slice()), (Ok(()), calls.as_slice()));
        let _ = all::check_all(&mut keys, &parsed, now);
        if u.is_empty() {
            break;
        }
        now = input::near(u, now)?;
    }
    Ok(())
}

/// What is asked of each limit. One of several knows no `UPTO`.
fn calls(u: &mut Unstructured<'_>, limits: &[(Kind, AnyPolicy)]) -> Result<Vec<AnyCall<'static>>> {
    let asks = |(kind, policy): &(Kind, AnyPolicy)| {
        Ok(match input::call(u, *kind, *policy)? {
            AnyCall::Units(Call {
                policy,
                charge: Charge::UpTo(n),
            }) => {
                let charge = Charge::Cost(n);
                AnyCall::Units(Call { policy, charge })
            }
            call => call,
        })
    };
    limits.iter().map(asks).collect()
}

/// What a client sends: the number of keys, the keys and the policies.
fn said(calls: &[AnyCall<'_>]) -> Vec<Vec<u8>> {
    let mut text = vec![calls.len().to_string().into_bytes()];
    text.extend((0..calls.len()).map(|key| format!("key:{key}").into_bytes()));
    text.extend(calls.iter().flat_map(print));
    text
}
