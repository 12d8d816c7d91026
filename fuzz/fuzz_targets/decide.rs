//! Calls on one key, whatever it holds, under any policies, words and clocks: no panic, and the
//! contract holds for every one of them.
#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use redis_rl_fuzz::{call, input};

fuzz_target!(|bytes: &[u8]| {
    // Bytes that run out end the calls.
    let _ = calls(&mut Unstructured::new(bytes));
});

fn calls(u: &mut Unstructured<'_>) -> Result<()> {
    let kind = u.arbitrary()?;
    let mut now = input::instant(u)?;
    let mut key = input::key(u, kind, now)?;
    let mut policy = input::any_policy(u, kind)?;
    for _ in 0..16 {
        key = call::check(&input::call(u, kind, policy)?, key, now);
        if u.is_empty() {
            break;
        }
        now = input::near(u, now)?;
        if u.ratio(1, 4)? {
            policy = input::any_policy(u, kind)?;
        }
    }
    Ok(())
}
