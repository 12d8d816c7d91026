//! Nothing drifts: after a million calls the state is what the sums of the costs say.

use std::collections::HashMap;

use support::random::Random;

use crate::call::{T0, exact, slide, token};
use crate::store::Key;

/// 3 tokens in 7 ms are no whole number of tokens at any microsecond but a few.
#[test]
fn a_bucket_does_not_drift_in_a_million_steps() {
    const PERIOD_MS: u64 = 7;
    let (capacity, refill) = (1_000_000, 3);
    let policy = token(capacity, refill, PERIOD_MS);
    let mut random = Random::from(0x2545_F491_4F6C_DD1D);
    let mut key = Key::default();
    let mut now_us = T0;
    let mut taken = 0;
    let mut last_us = T0;
    let mut refused = 0;
    // A first call takes all there is, so that no step ever overflows the bucket.
    for step in 0..1_000_000 {
        let cost = if step == 0 {
            capacity
        } else {
            1 + random.below(4)
        };
        let reply = key.call(policy, now_us, cost).unwrap();
        if reply[0] == 1 {
            taken += cost;
            last_us = now_us;
        } else {
            refused += 1;
        }
        now_us += random.below(5_000);
    }
    assert!(refused > 100_000, "{refused}");
    let period_us = PERIOD_MS * 1_000;
    let level = capacity * period_us + (last_us - T0) * refill - taken * period_us;
    assert_eq!(key.get(), format!("T1:{level}:{period_us}:{last_us}"));
}

/// The two counts are those of a table of all windows.
#[test]
fn a_counter_does_not_drift_in_a_hundred_thousand_steps() {
    const WINDOW_MS: u64 = 700;
    let policy = slide(1_000, WINDOW_MS);
    let mut random = Random::from(0x9E37_79B9_7F4A_7C15);
    let mut key = Key::default();
    let mut totals = HashMap::<u64, u64>::new();
    let mut now_us = T0;
    let mut refused = 0;
    for _ in 0..100_000 {
        let cost = 1 + random.below(10);
        let index = now_us / 1_000 / WINDOW_MS;
        if key.call(policy, now_us, cost).unwrap()[0] == 1 {
            *totals.entry(index).or_default() += cost;
            let [previous, current] =
                [index - 1, index].map(|index| totals.get(&index).unwrap_or(&0));
            let start_ms = index * WINDOW_MS;
            assert_eq!(
                key.get(),
                format!("S1:{WINDOW_MS}:{start_ms}:{previous}:{current}")
            );
        } else {
            refused += 1;
        }
        // Now and then a pause of up to two windows.
        let pauses = random.below(1_000) == 0;
        now_us += random.below(if pauses { 1_400_000 } else { 5_000 });
    }
    assert!((10_000..90_000).contains(&refused), "{refused}");
}

/// The log is the tail of a list of all admissions.
#[test]
fn a_log_does_not_drift_in_a_hundred_thousand_steps() {
    const WINDOW_MS: u64 = 70;
    let policy = exact(30, WINDOW_MS);
    let mut random = Random::from(0xD1B5_4A32_D192_ED03);
    let mut key = Key::default();
    let mut admissions = Vec::new();
    let mut now_us = T0;
    let mut refused = 0;
    for step in 0..100_000 {
        let cost = 1 + random.below(3);
        if key.call(policy, now_us, cost).unwrap()[0] == 1 {
            admissions.extend((0..cost).map(|_| now_us));
            if step % 100 == 0 {
                let left = admissions.partition_point(|at_us| at_us + WINDOW_MS * 1_000 <= now_us);
                assert_eq!(key.entries_us(), admissions[left..]);
            }
        } else {
            refused += 1;
        }
        let pauses = random.below(1_000) == 0;
        now_us += random.below(if pauses { 140_000 } else { 5_000 });
    }
    assert!((10_000..90_000).contains(&refused), "{refused}");
}
