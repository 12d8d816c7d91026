//! Policies that change on a live key.

use crate::call::{MAX_SPAN_MS, MAX_UNITS, MS, SECOND, T0, exact, fixed, slide, token};
use crate::oracle::{Exact, Fixed, Slide, Token};
use crate::run::table;
use crate::store::Key;

#[test]
fn a_fixed_window_keeps_its_count_and_its_end() {
    table::<Fixed>(&[
        (fixed(10, 1_000), T0, 6, [1, 10, 4, 1_000, 1_000]),
        // Lowered below what is used.
        (fixed(5, 1_000), T0 + 100_000, 1, [0, 5, 0, 900, 900]),
        // Raised: the rest is there at once.
        (fixed(20, 1_000), T0 + 200_000, 10, [1, 20, 4, 800, 800]),
        // No call moves the end of an open window.
        (fixed(20, 60_000), T0 + 300_000, 1, [1, 20, 3, 0, 700]),
        (fixed(20, 1), T0 + 400_000, 1, [1, 20, 2, 0, 600]),
        (fixed(20, 60_000), T0 + SECOND, 1, [1, 20, 19, 0, 60_000]),
    ]);
}

#[test]
fn a_bucket_is_cut_to_its_capacity_and_a_raise_only_makes_room() {
    table::<Token>(&[
        (token(10, 1, 1_000), T0, 2, [1, 10, 8, 0, 2_000]),
        (token(5, 1, 1_000), T0, 1, [1, 5, 4, 0, 1_000]),
        (token(20, 1, 1_000), T0, 4, [1, 20, 0, 4_000, 20_000]),
        (token(1, 1, 1_000), T0 + SECOND, 1, [1, 1, 0, 1_000, 1_000]),
    ]);
}

#[test]
fn a_refused_call_does_not_cut_a_bucket() {
    table::<Token>(&[
        (token(10, 1, 1_000), T0, 2, [1, 10, 8, 0, 2_000]),
        (token(5, 1, 1_000), T0, 6, [0, 5, 5, -1, 0]),
        (token(10, 1, 1_000), T0, 8, [1, 10, 0, 8_000, 10_000]),
    ]);
}

#[test]
fn a_bucket_that_is_cut_is_full_even_while_the_clock_jitters() {
    table::<Token>(&[
        (token(10, 1, 1_000), T0, 2, [1, 10, 8, 0, 2_000]),
        (token(5, 1, 1_000), T0 - 500, 6, [0, 5, 5, -1, 0]),
    ]);
}

#[test]
fn time_is_credited_at_the_rate_of_the_call_at_hand() {
    table::<Token>(&[
        (token(10, 1, 1_000), T0, 10, [1, 10, 0, 10_000, 10_000]),
        (
            token(10, 3, 1_000),
            T0 + 2 * SECOND,
            6,
            [1, 10, 0, 2_000, 3_334],
        ),
        (
            token(10, 1, 1_000),
            T0 + 4 * SECOND,
            3,
            [0, 10, 2, 1_000, 8_000],
        ),
        (
            token(10, 2, 1_000),
            T0 + 4 * SECOND,
            4,
            [1, 10, 0, 2_000, 5_000],
        ),
    ]);
}

#[test]
fn a_level_is_converted_to_the_new_period_and_rounded_down() {
    let minutes = token(100, 10, 60_000);
    let seconds = token(100, 3, 1_000);
    let run = table::<Token>(&[
        (minutes, T0, 95, [1, 100, 5, 540_000, 570_000]),
        (minutes, T0 + SECOND, 5, [1, 100, 0, 29_000, 599_000]),
    ]);
    // A sixth of a token.
    assert_eq!(
        run.key.get(),
        format!("T1:10000000:60000000:{}", T0 + SECOND)
    );
    let run = table::<Token>(&[
        (minutes, T0, 95, [1, 100, 5, 540_000, 570_000]),
        (minutes, T0 + SECOND, 5, [1, 100, 0, 29_000, 599_000]),
        // 166,666 2/3, rounded down, and 900,000 of a million parts.
        (seconds, T0 + 1_300_000, 1, [1, 100, 0, 312, 33_312]),
        // 66,666 × 60, and nothing comes back of what was rounded.
        (minutes, T0 + 1_300_000, 1, [0, 100, 0, 5_601, 599_601]),
    ]);
    assert_eq!(
        run.key.get(),
        format!("T1:66666:1000000:{}", T0 + 1_300_000)
    );
}

/// level × period needs 157 bits.
#[test]
fn the_largest_level_is_converted_exactly() {
    let century_us = u128::from(MAX_SPAN_MS) * 1_000;
    let most = u128::from(MAX_UNITS);
    let expire_at_ms = T0 / MS + MAX_SPAN_MS;
    // All but one part of a full bucket: 999 thousandths of its last token.
    let level = most * century_us - 1;
    let mut key = Key::text(&format!("T1:{level}:{century_us}:{T0}"), expire_at_ms);
    let reply = key.call(token(MAX_UNITS, MAX_UNITS, 1), T0, 1).unwrap();
    let rest = MAX_UNITS - 2;
    assert_eq!(
        reply,
        [1, 9_007_199_254_740_991, 9_007_199_254_740_989, 0, 1]
    );
    assert_eq!(key.get(), format!("T1:{rest}999:1000:{T0}"));

    let century = token(MAX_UNITS, MAX_UNITS, MAX_SPAN_MS);
    let mut key = Key::text(&format!("T1:{}999:1000:{T0}", MAX_UNITS - 1), expire_at_ms);
    let reply = key.call(century, T0, MAX_UNITS - 1).unwrap();
    // A 2^53rd of 100 years is 350.1 µs, and MAX_UNITS − 1 and a thousandth are missing.
    let level = century_us / 1_000 * 999;
    assert_eq!(reply[..3], [1, 9_007_199_254_740_991, 0]);
    assert_eq!(key.get(), format!("T1:{level}:{century_us}:{T0}"));
    let missing = most * century_us - level;
    let reset_us = missing.div_ceil(most);
    assert_eq!(u128::try_from(reply[4]).unwrap(), reset_us.div_ceil(1_000));

    // A prime number of ms, so that nothing cancels: floor((2^53 − 2) × 1,000 × p / p′).
    let [from_us, to_us] = [3_153_599_999_983_000_u128, 1_000_003_000];
    let key = Key::text(
        &format!("T1:{}:{from_us}:{T0}", most * from_us - 1),
        expire_at_ms,
    );
    let mut key = key.clone();
    key.call(token(MAX_UNITS, MAX_UNITS, 1_000_003), T0, MAX_UNITS - 1)
        .unwrap();
    assert_eq!(key.get(), format!("T1:{}:{to_us}:{T0}", to_us - 1));
}

#[test]
fn a_counter_keeps_what_is_used_when_its_limit_changes() {
    table::<Slide>(&[
        (slide(100, 60_000), T0, 80, [1, 100, 20, 105_000, 120_000]),
        // 80 × 0.6125 = 49.
        (
            slide(50, 60_000),
            T0 + 30 * SECOND,
            1,
            [0, 50, 0, 53_250, 90_000],
        ),
        // 180 × 5/9 = 100.
        (
            slide(200, 60_000),
            T0 + 30 * SECOND,
            100,
            [1, 200, 20, 56_667, 90_000],
        ),
    ]);
}

#[test]
fn a_counter_is_judged_by_its_stored_window_until_a_call_is_admitted() {
    let [long, short] = [slide(100, 60_000), slide(100, 10_000)];
    let run = table::<Slide>(&[
        (long, T0, 80, [1, 100, 20, 105_000, 120_000]),
        // 80 × 0.75 = 60 in a window of a minute; a refusal changes no window.
        (short, T0 + 75 * SECOND, 41, [0, 100, 40, 750, 45_000]),
        (short, T0 + 75 * SECOND, 5, [1, 100, 35, 0, 15_000]),
    ]);
    let start_ms = (T0 + 70 * SECOND) / MS;
    assert_eq!(
        run.key,
        Key::text(&format!("S1:10000:{start_ms}:0:65"), start_ms + 20_000)
    );
    // And from the shorter to the longer.
    let run = table::<Slide>(&[
        (long, T0, 80, [1, 100, 20, 105_000, 120_000]),
        (short, T0 + 75 * SECOND, 5, [1, 100, 35, 0, 15_000]),
        // 65 × 0.9 = 58.5, rounded up; 42 fit from 58 on, which is 1.0769… s into the window.
        (long, T0 + 81 * SECOND, 42, [0, 100, 41, 77, 9_000]),
        (long, T0 + 81 * SECOND, 41, [1, 100, 0, 63_600, 99_000]),
    ]);
    let start_ms = (T0 + 60 * SECOND) / MS;
    assert_eq!(
        run.key,
        Key::text(&format!("S1:60000:{start_ms}:0:100"), start_ms + 120_000)
    );
}

/// Both at once: the units of the stored windows, in the window that now lies in.
#[test]
fn a_counter_s_window_changes_with_a_step_back() {
    let run = table::<Slide>(&[
        (slide(10, 10_000), T0 - 5 * SECOND, 4, [1, 10, 6, 0, 15_000]),
        (slide(10, 10_000), T0, 5, [1, 10, 1, 10_000, 20_000]),
        (
            slide(10, 60_000),
            T0 - 30 * SECOND,
            1,
            [1, 10, 0, 36_000, 90_000],
        ),
    ]);
    let start_ms = (T0 - 60 * SECOND) / MS;
    assert_eq!(run.key.get(), format!("S1:60000:{start_ms}:0:10"));
    let run = table::<Slide>(&[
        (slide(10, 10_000), T0 - 5 * SECOND, 4, [1, 10, 6, 0, 15_000]),
        (slide(10, 10_000), T0, 5, [1, 10, 1, 10_000, 20_000]),
        // A refusal keeps the stored length: 9 in its window, until 2/9 of them have faded.
        (
            slide(10, 60_000),
            T0 - 30 * SECOND,
            3,
            [0, 10, 1, 12_223, 20_000],
        ),
    ]);
    let start_ms = (T0 - 30 * SECOND) / MS;
    assert_eq!(run.key.get(), format!("S1:10000:{start_ms}:0:9"));
}

/// The new window is that of the instant which is judged, as the old one was.
#[test]
fn a_counter_s_window_changes_while_the_clock_jitters() {
    let run = table::<Slide>(&[
        (slide(10, 10_000), T0, 4, [1, 10, 6, 0, 20_000]),
        (slide(10, 60_000), T0 - 500, 1, [1, 10, 5, 0, 120_001]),
    ]);
    assert_eq!(run.key.get(), format!("S1:60000:{}:0:5", T0 / MS));
}

/// A key belongs to one window: an admitted call under a shorter one forgets what the longer one knew.
#[test]
fn a_counter_with_a_shorter_window_in_between_forgets_what_the_longer_one_knew() {
    let [long, short] = [slide(10, 60_000), slide(10, 10_000)];
    // 16 pass within 20 s of a window that promises at most 10 in 60 s here.
    table::<Slide>(&[
        (long, T0, 5, [1, 10, 5, 0, 120_000]),
        (short, T0 + SECOND, 1, [1, 10, 4, 0, 19_000]),
        (long, T0 + 20 * SECOND, 10, [1, 10, 0, 100_000, 100_000]),
    ]);
}

/// Called evenly in turn, two windows on one key admit less than either alone.
#[test]
fn a_counter_with_two_windows_evenly_in_turn_admits_less_than_with_one() {
    let [long, short] = [slide(10, 60_000), slide(10, 10_000)];
    let admitted = |policies: [_; 2]| {
        let mut key = Key::default();
        (0..600_u64)
            .map(|second| {
                let policy = policies[usize::from(second % 2 == 1)];
                key.call(policy, T0 + second * SECOND, 1).unwrap()[0]
            })
            .sum::<i64>()
    };
    let in_turn = admitted([long, short]);
    assert!(in_turn <= admitted([long, long]), "{in_turn}");
    assert!(in_turn <= admitted([short, short]), "{in_turn}");
}

#[test]
fn a_log_applies_the_new_window_to_the_entries_that_it_has() {
    let [long, short] = [exact(5, 10_000), exact(5, 4_000)];
    let at = |seconds: u64| T0 + seconds * SECOND;
    let run = table::<Exact>(&[
        (long, at(0), 2, [1, 5, 3, 0, 10_000]),
        (long, at(5), 2, [1, 5, 1, 5_000, 10_000]),
        (short, at(6), 4, [0, 5, 3, 3_000, 3_000]),
        (long, at(6), 1, [1, 5, 0, 4_000, 10_000]),
        // An admitted call trims by its own window,
        (short, at(7), 1, [1, 5, 1, 0, 4_000]),
        // so the first two are gone for a longer one.
        (long, at(8), 1, [1, 5, 0, 7_000, 10_000]),
        // Lowered: four of five have to leave. Raised: the rest is there at once.
        (exact(2, 10_000), at(8), 1, [0, 2, 0, 9_000, 10_000]),
        (exact(8, 10_000), at(8), 3, [1, 8, 0, 8_000, 10_000]),
    ]);
    let entries = [5, 5, 6, 7, 8, 8, 8, 8].map(at);
    assert_eq!(run.key.entries_us(), entries);
}

/// Only an admitted call trims, and a step back is stored without one.
#[test]
fn a_refused_step_back_keeps_the_entries_that_have_left_a_shorter_window() {
    let [long, short] = [exact(3, 10_000), exact(2, 2_000)];
    let at = |seconds: u64| T0 + seconds * SECOND;
    let run = table::<Exact>(&[
        (long, at(0), 1, [1, 3, 2, 0, 10_000]),
        (long, at(9), 2, [1, 3, 0, 10_000, 10_000]),
        (short, at(7), 1, [0, 2, 0, 2_000, 2_000]),
    ]);
    assert_eq!(run.key.entries_us(), [0, 7, 7].map(at));
}

/// Whatever expiry it had: set by hand, or before the clock was set back.
#[test]
fn a_counter_s_key_lives_until_the_end_of_the_window_after_the_current_one() {
    let end_ms = T0 / MS + 2_000;
    for before_ms in [T0 / MS, end_ms - 1, end_ms, end_ms + 1, T0 / MS + 3_000] {
        let mut key = Key::text(&format!("S1:1000:{}:3:4", T0 / MS), before_ms);
        assert_eq!(key.call(slide(10, 1_000), T0 + 999, 1).unwrap()[0], 1);
        assert_eq!(key.expire_at_ms(), Some(end_ms), "{before_ms}");
    }
}

/// No key lives longer than the policy of the last admitted call allows, nor shorter than it needs.
#[test]
fn a_ttl_follows_the_policy() {
    let now_ms = T0 / MS;
    let mut key = Key::default();
    for (policy, ttl_ms) in [
        (token(10, 1, 1_000), 21_000),
        (token(10, 10, 1_000), 3_000),
        // 3 tokens are missing, and the key lives long enough for them;
        (token(10, 1, 1_000), 3_000),
        // but not for a fourth.
        (token(10, 1, 1_000), 21_000),
    ] {
        key.call(policy, T0, 1).unwrap();
        assert_eq!(key.expire_at_ms(), Some(now_ms + ttl_ms), "{policy:?}");
    }
    let mut key = Key::default();
    for (policy, ttl_ms) in [
        (exact(10, 10_000), 21_000),
        (exact(10, 1_000), 3_000),
        (exact(10, 3_000), 3_000),
        (exact(10, 3_001), 7_002),
    ] {
        key.call(policy, T0, 1).unwrap();
        assert_eq!(key.expire_at_ms(), Some(now_ms + ttl_ms), "{policy:?}");
    }
    let mut key = Key::default();
    for (policy, ttl_ms) in [
        (slide(10, 10_000), 20_000),
        (slide(10, 1_000), 2_000),
        (slide(10, 10_000), 20_000),
    ] {
        key.call(policy, T0, 1).unwrap();
        assert_eq!(key.expire_at_ms(), Some(now_ms + ttl_ms), "{policy:?}");
    }
}
