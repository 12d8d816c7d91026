//! Worked examples: replies, stored texts and TTLs, computed by hand.

use crate::call::{MS, Policy, Reply, SECOND, T0, all, exact, fixed, slide, token};
use crate::oracle::{Exact, Fixed, Model, Slide, Token};
use crate::run::Run;
use crate::store::Key;

/// Steps through µs after [`T0`], cost and reply, under one policy.
fn table<M: Model>(policy: Policy, rows: &[(u64, u64, Reply)]) -> Run<M> {
    let rows: Vec<_> = rows
        .iter()
        .map(|(after_us, cost, reply)| (policy, T0 + after_us, *cost, *reply))
        .collect();
    crate::run::table(&rows)
}

#[test]
fn a_fixed_window_starts_at_its_first_call_and_ends_to_the_millisecond() {
    let run = table::<Fixed>(
        fixed(3, 1_000),
        &[
            (999, 1, [1, 3, 2, 0, 1_000]),
            (500_000, 2, [1, 3, 0, 500, 500]),
            (500_999, 1, [0, 3, 0, 500, 500]),
            (999_999, 1, [0, 3, 0, 1, 1]),
            (1_000_000, 2, [1, 3, 1, 1_000, 1_000]),
            (1_000_001, 4, [0, 3, 1, -1, 1_000]),
            (1_500_000, 2, [0, 3, 1, 500, 500]),
            (1_500_000, 1, [1, 3, 0, 500, 500]),
        ],
    );
    assert_eq!(run.key, Key::text("3", T0 / MS + 2_000));
}

#[test]
fn a_bucket_fills_evenly() {
    let run = table::<Token>(
        token(10, 4, 1_000),
        &[
            (0, 7, [1, 10, 3, 1_000, 1_750]),
            (250_000, 4, [1, 10, 0, 1_000, 2_500]),
            (499_999, 1, [0, 10, 0, 1, 2_251]),
            (500_000, 1, [1, 10, 0, 250, 2_500]),
            (500_000, 11, [0, 10, 0, -1, 2_500]),
            (624_999, 1, [0, 10, 0, 126, 2_376]),
            (2_999_999, 10, [0, 10, 9, 1, 1]),
            (3_000_000, 10, [1, 10, 0, 2_500, 2_500]),
        ],
    );
    let text = format!("T1:0:1000000:{}", T0 + 3 * SECOND);
    assert_eq!(run.key.get(), text);
}

#[test]
fn a_bucket_keeps_the_fraction_of_a_token() {
    let run = table::<Token>(
        token(2, 3, 1_000),
        &[
            (0, 2, [1, 2, 0, 667, 667]),
            (333_333, 1, [0, 2, 0, 1, 334]),
            (333_334, 1, [1, 2, 0, 334, 667]),
        ],
    );
    // 3 × 333,334 of a million parts flowed in, and two are left.
    assert_eq!(run.key.get(), format!("T1:2:1000000:{}", T0 + 333_334));
}

#[test]
fn a_counter_fades_evenly() {
    let run = table::<Slide>(
        slide(100, 60_000),
        &[
            (0, 80, [1, 100, 20, 105_000, 120_000]),
            (60_000_000, 20, [1, 100, 0, 15_000, 120_000]),
            // 80 × 50/60 = 66 2/3, and 20.
            (70_000_000, 14, [0, 100, 13, 500, 110_000]),
            (70_000_000, 10, [1, 100, 3, 5_000, 110_000]),
            // 80 × 0.75 + 30 = 90.
            (74_999_999, 10, [0, 100, 9, 1, 105_001]),
            (75_000_000, 101, [0, 100, 10, -1, 105_000]),
            (75_000_000, 10, [1, 100, 0, 7_500, 105_000]),
            (82_499_999, 10, [0, 100, 9, 1, 97_501]),
            (82_500_000, 10, [1, 100, 0, 7_500, 97_500]),
        ],
    );
    let start_ms = (T0 + 60 * SECOND) / MS;
    assert_eq!(
        run.key,
        Key::text(&format!("S1:60000:{start_ms}:80:50"), start_ms + 120_000)
    );
}

#[test]
fn a_counter_is_empty_two_windows_on() {
    let run = table::<Slide>(
        slide(4, 1_000),
        &[
            (999_999, 4, [1, 4, 0, 1_001, 1_001]),
            (1_000_000, 1, [0, 4, 0, 250, 1_000]),
            (1_249_999, 1, [0, 4, 0, 1, 751]),
            (1_250_000, 1, [1, 4, 0, 250, 1_750]),
            (1_999_999, 4, [0, 4, 2, 1_001, 1_001]),
            // The same instant's edge: of the 1 of the last window nothing has faded.
            (2_000_000, 4, [0, 4, 3, 1_000, 1_000]),
            (3_000_000, 4, [1, 4, 0, 2_000, 2_000]),
            (9_500_000, 4, [1, 4, 0, 1_500, 1_500]),
        ],
    );
    let start_ms = T0 / MS + 9_000;
    assert_eq!(
        run.key,
        Key::text(&format!("S1:1000:{start_ms}:0:4"), start_ms + 2_000)
    );
}

#[test]
fn an_exact_unit_counts_until_its_window_has_passed() {
    let run = table::<Exact>(
        exact(3, 1_000),
        &[
            (100_000, 1, [1, 3, 2, 0, 1_000]),
            (500_000, 1, [1, 3, 1, 0, 1_000]),
            (900_000, 1, [1, 3, 0, 200, 1_000]),
            (1_099_999, 1, [0, 3, 0, 1, 801]),
            (1_100_000, 1, [1, 3, 0, 400, 1_000]),
            (1_100_000, 2, [0, 3, 0, 800, 1_000]),
            (1_100_000, 3, [0, 3, 0, 1_000, 1_000]),
            (1_100_000, 4, [0, 3, 0, -1, 1_000]),
            (1_900_000, 2, [1, 3, 0, 1_000, 1_000]),
        ],
    );
    let [old, new] = [T0 + 1_100_000, T0 + 1_900_000];
    assert_eq!(run.key.entries_us(), [old, new, new]);
}

#[test]
fn a_refusal_removes_no_entry() {
    let run = table::<Exact>(
        exact(3, 1_000),
        &[
            (0, 1, [1, 3, 2, 0, 1_000]),
            (900_000, 2, [1, 3, 0, 1_000, 1_000]),
            (1_500_000, 2, [0, 3, 1, 400, 400]),
        ],
    );
    assert_eq!(run.key.entries_us(), [T0, T0 + 900_000, T0 + 900_000]);
}

#[test]
fn refused_call_changes_nothing() {
    for policy in all(10, 1_000) {
        let mut key = Key::default();
        assert_eq!(key.call(policy, T0, 11).unwrap()[0], 0);
        assert_eq!(key, Key::default(), "{policy:?}");
        assert_eq!(key.call(policy, T0, 8).unwrap()[0], 1);
        let before = key.clone();
        for after_us in [0, 1, 999, 1_000, 50_000] {
            for cost in [3, 10, 11, 1 << 53 >> 1] {
                assert_eq!(key.call(policy, T0 + after_us, cost).unwrap()[0], 0);
                assert_eq!(key, before, "{policy:?}");
            }
        }
    }
}

/// The same rule whether the call was admitted or refused.
#[test]
fn an_admitted_call_that_took_the_last_unit_tells_how_long_the_next_one_waits() {
    for policy in all(10, 1_000) {
        let mut key = Key::default();
        let admitted = key.call(policy, T0, 10).unwrap();
        let refused = key.call(policy, T0, 10).unwrap();
        assert_eq!([admitted[0], refused[0]], [1, 0]);
        assert_eq!(admitted[1..], refused[1..], "{policy:?}");
    }
}

#[test]
fn a_key_outlives_its_use_by_as_much_as_is_promised() {
    let now_ms = T0 / MS + 400;
    for (policy, ttl_ms) in [
        // The window's end.
        (fixed(10, 1_000), 1_000),
        // Twice the time to fill from empty, and a second.
        (token(10, 4, 1_000), 6_000),
        (token(10, 3, 1_000), 7_666),
        // The end of the window after the current one.
        (slide(10, 1_000), 1_600),
        // Two windows and a second.
        (exact(10, 1_000), 3_000),
    ] {
        let mut key = Key::default();
        key.call(policy, T0 + 400_999, 1).unwrap();
        assert_eq!(key.expire_at_ms(), Some(now_ms + ttl_ms), "{policy:?}");
    }
}

/// Setting an expiry costs a server more than any other step of a call.
#[test]
fn an_expiry_within_its_bounds_is_left_alone() {
    for (policy, after_us, renewed) in [
        (token(10, 10, 1_000), 2_900_999, false),
        (token(10, 10, 1_000), 2_901_000, true),
        (exact(10, 1_000), 2_000_999, false),
        (exact(10, 1_000), 2_001_000, true),
        (slide(10, 1_000), 999_999, false),
        (slide(10, 1_000), 1_000_000, true),
        (fixed(10, 1_000), 999_999, false),
        (fixed(10, 1_000), 1_000_000, true),
    ] {
        let mut key = Key::default();
        key.call(policy, T0, 5).unwrap();
        let before = key.expire_at_ms();
        assert_eq!(key.call(policy, T0 + after_us, 1).unwrap()[0], 1);
        let after = key.expire_at_ms();
        assert_eq!(after != before, renewed, "{policy:?} {after_us}");
    }
}

/// A key whose TTL has passed counts as absent; at the very millisecond it is there.
#[test]
fn state_counts_to_the_last_millisecond_of_its_key() {
    let mut key = Key::text(&format!("T1:0:1000000:{T0}"), T0 / MS + 5);
    let policy = token(10, 1, 1_000);
    let early = key.clone().call(policy, T0 + 5_999, 1).unwrap();
    assert_eq!(early, [0, 10, 0, 995, 9_995]);
    let late = key.call(policy, T0 + 6_000, 1).unwrap();
    assert_eq!(late, [1, 10, 9, 0, 1_000]);
}
