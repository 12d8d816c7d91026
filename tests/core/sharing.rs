//! What it costs to spread one limit over several buckets or several callers, as the page for
//! operators says.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_arithmetic,
    reason = "chance is measured in fractions"
)]

use support::random::Random;

use crate::call::{SECOND, T0, token};
use crate::store::Key;

/// At least 0 and below 1.
fn fraction(random: &mut Random) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// The share of single calls, at random times, that a bucket refuses which fills by a token a
/// second.
fn refused(capacity: u64, load: f64) -> f64 {
    const CALLS: u32 = 200_000;
    // From seed to seed the share varies, by a third for 100 tokens at full load: that bucket fills
    // and empties slowly. The exact share is about 1/(2 × capacity) there.
    let mut random = Random::from(0x5EED);
    let mut key = Key::default();
    let mut now_us = T0 as f64;
    let mut refused = 0;
    for _ in 0..CALLS {
        // Intervals of a Poisson process.
        now_us -= (1.0 - fraction(&mut random)).ln() / load * SECOND as f64;
        let reply = key.call(token(capacity, 1, 1_000), now_us as u64, 1);
        refused += u32::from(reply.unwrap()[0] == 0);
    }
    f64::from(refused) / f64::from(CALLS)
}

fn percent(cell: &str) -> f64 {
    cell.trim().trim_end_matches('%').trim().parse().unwrap()
}

#[test]
fn a_split_bucket_refuses_as_many_as_the_page_for_operators_says() {
    let page = include_str!("../../docs/operating.md");
    let mut rows = 0;
    for line in page.lines().filter(|line| line.contains(" % |")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let load = percent(cells[0]) / 100.0;
        for (capacity, cell) in [10, 20, 100].into_iter().zip(&cells[1..]) {
            let (stated, found) = (percent(cell), 100.0 * refused(capacity, load));
            assert!(
                (stated - found).abs() < 0.05 + stated * 0.2,
                "{capacity} tokens at {load}: {found} %, not {stated} %"
            );
        }
        rows += 1;
    }
    assert_eq!(rows, 4, "the page has such a table");
}

#[test]
fn parts_of_a_bucket_admit_no_more_than_the_whole() {
    const PARTS: u64 = 8;
    let (mut whole, mut parts) = (Key::default(), vec![Key::default(); PARTS as usize]);
    let mut random = Random::from(7);
    let mut admitted = [0, 0];
    for call in 0..100_000_u64 {
        let now_us = T0 + call * 500;
        let part = (fraction(&mut random) * PARTS as f64) as usize;
        // 800 tokens at most and 1,600 a second, of which 2,000 are asked for.
        admitted[0] += whole.call(token(800, 1_600, 1_000), now_us, 1).unwrap()[0];
        admitted[1] += parts[part].call(token(100, 200, 1_000), now_us, 1).unwrap()[0];
    }
    assert!(admitted[1] <= admitted[0], "{admitted:?}");
    assert!(admitted[1] > admitted[0] * 99 / 100, "{admitted:?}");
}

#[test]
fn batches_bring_a_burst_of_what_lies_ready() {
    const GATEWAYS: i64 = 10;
    const BATCH: i64 = 10;
    let policy = token(1_000, 1_000, 1_000);
    let mut key = Key::default();
    // Each gateway takes a batch and spends one of it.
    let mut ready = 0;
    for _ in 0..GATEWAYS {
        assert_eq!(key.call(policy, T0, BATCH as u64).unwrap()[0], 1);
        ready += BATCH - 1;
    }
    // The bucket fills, and then all comes at once.
    let now_us = T0 + 10 * SECOND;
    let mut spent = ready;
    while key.call(policy, now_us, BATCH as u64).unwrap()[0] == 1 {
        spent += BATCH;
    }
    assert_eq!(spent, 1_000 + GATEWAYS * (BATCH - 1));
}
