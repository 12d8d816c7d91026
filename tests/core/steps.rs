//! Clocks that jitter, step back and step forward.

use crate::call::{
    FIRST, HOUR, LAST, MS, Policy, Reply, SECOND, T0, all, exact, fixed, slide, token,
};
use crate::oracle::{Exact, Fixed, Model, Slide, Token};
use crate::run::Run;
use crate::store::Key;

/// A millisecond behind the stored time is jitter, one microsecond more is a step.
const JITTER_US: [u64; 4] = [1, 500, 999, 1_000];
const STEPS_US: [u64; 4] = [1_001, 2_000, 60 * SECOND, HOUR];

/// Charges the calls, all of which are admitted.
fn charged<M: Model>(policy: Policy, calls: &[(u64, u64)]) -> Run<M> {
    let mut run = Run::new();
    for (at_us, cost) in calls {
        assert_eq!(run.step(policy, *at_us, *cost)[0], 1);
    }
    run
}

#[test]
fn an_open_fixed_window_keeps_its_end() {
    let policy = fixed(3, 10_000);
    let run = charged::<Fixed>(policy, &[(T0, 3)]);
    for (back_us, wait_ms) in [
        (1, 10_001),
        (1_000, 10_001),
        (1_001, 10_002),
        (2_000, 10_002),
        (HOUR, 3_610_000),
    ] {
        let mut back = run.clone();
        let reply = back.step(policy, T0 - back_us, 1);
        assert_eq!(reply, [0, 3, 0, wait_ms, wait_ms]);
        assert_eq!(back.key, run.key);
    }
}

#[test]
fn a_bucket_stands_still_while_the_clock_jitters() {
    let policy = token(10, 1, 1_000);
    let run = charged::<Token>(policy, &[(T0, 10)]);
    for back_us in JITTER_US {
        let mut back = run.clone();
        // Waits are counted from the real now.
        assert_eq!(
            back.step(policy, T0 - back_us, 1),
            [0, 10, 0, 1_001, 10_001]
        );
        assert_eq!(back.key, run.key);
    }
    let run = charged::<Token>(policy, &[(T0, 9)]);
    let mut back = run.clone();
    assert_eq!(back.step(policy, T0 - 1_000, 1), [1, 10, 0, 1_001, 10_001]);
    assert_eq!(back.key.get(), format!("T1:0:1000000:{T0}"));
}

#[test]
fn a_bucket_keeps_its_tokens_when_the_clock_is_set_back() {
    let policy = token(10, 1, 1_000);
    let run = charged::<Token>(policy, &[(T0, 9), (T0 + 500_000, 1)]);
    assert_eq!(run.key.get(), format!("T1:500000:1000000:{}", T0 + 500_000));
    for back_us in STEPS_US {
        let now_us = T0 + 500_000 - back_us;
        let mut back = run.clone();
        assert_eq!(back.step(policy, now_us, 1), [0, 10, 0, 500, 9_500]);
        // The moved time is stored, and nothing else.
        let text = format!("T1:500000:1000000:{now_us}");
        assert_eq!(back.key, Key::text(&text, run.key.expire_at_ms().unwrap()));
        // From there on it fills again.
        assert_eq!(back.step(policy, now_us + 500_000, 1)[0], 1);
    }
    let run = charged::<Token>(policy, &[(T0, 8)]);
    let mut back = run.clone();
    assert_eq!(back.step(policy, T0 - HOUR, 1), [1, 10, 1, 0, 9_000]);
    assert_eq!(back.key.get(), format!("T1:1000000:1000000:{}", T0 - HOUR));
}

#[test]
fn a_refused_step_back_keeps_a_bucket_s_level_in_its_own_units() {
    let run = charged::<Token>(token(10, 1, 1_000), &[(T0, 10)]);
    let mut back = run.clone();
    // Seven tokens a week, on a bucket that was kept by the second.
    assert_eq!(back.step(token(10, 7, 604_800_000), T0 - HOUR, 1)[0], 0);
    assert_eq!(back.key.get(), format!("T1:0:1000000:{}", T0 - HOUR));
}

#[test]
fn a_counter_stands_still_while_the_clock_jitters_around_its_window_s_start() {
    let policy = slide(10, 10_000);
    let run = charged::<Slide>(policy, &[(T0 - 5 * SECOND, 4), (T0, 6)]);
    for back_us in JITTER_US {
        let mut back = run.clone();
        // 4 × 0.75 + 6 = 9 in 2.5 s.
        assert_eq!(
            back.step(policy, T0 - back_us, 1),
            [0, 10, 0, 2_501, 20_001]
        );
        assert_eq!(back.key, run.key);
    }
}

#[test]
fn a_counter_s_windows_become_one_when_the_clock_is_set_back() {
    let policy = slide(10, 10_000);
    let run = charged::<Slide>(policy, &[(T0 - 5 * SECOND, 4), (T0, 6)]);
    for (back_us, start_us, retry_ms, reset_ms) in [
        // 10 × 0.9 = 9, a second after the end of the window in which it is now.
        (1_001, T0 - 10 * SECOND, 1_002, 10_002),
        (2_000, T0 - 10 * SECOND, 1_002, 10_002),
        (9_999_999, T0 - 10 * SECOND, 11_000, 20_000),
        (HOUR, T0 - HOUR, 11_000, 20_000),
    ] {
        let mut back = run.clone();
        let reply = back.step(policy, T0 - back_us, 1);
        assert_eq!(reply, [0, 10, 0, retry_ms, reset_ms], "{back_us}");
        let text = format!("S1:10000:{}:0:10", start_us / MS);
        assert_eq!(back.key, Key::text(&text, run.key.expire_at_ms().unwrap()));
    }
}

#[test]
fn a_counter_within_its_window_follows_the_clock() {
    let policy = slide(10, 10_000);
    let run = charged::<Slide>(policy, &[(T0 - 5 * SECOND, 4), (T0 + 5 * SECOND, 6)]);
    let mut back = run.clone();
    // 4 × 0.75 + 6 and 4 × 0.5 + 6.
    assert_eq!(
        back.step(policy, T0 + 2_500_000, 2),
        [0, 10, 1, 2_500, 17_500]
    );
    assert_eq!(back.key, run.key);
    assert_eq!(back.step(policy, T0 + 5 * SECOND, 2)[0], 1);
}

/// 80 just before, 20 just after, 2 ms back: nothing more is granted.
#[test]
fn a_step_back_across_a_window_s_edge_grants_nothing() {
    for after_us in [0, 1, 500, 999, 1_000, 1_001, 1_500] {
        for policy in all(100, 60_000) {
            let before_us = T0 - 1;
            let mut key = Key::default();
            let mut granted = 0;
            for (at_us, cost) in [
                (before_us, 80),
                (T0 + after_us, 20),
                (T0 + after_us - 2_000, 1),
                (T0 + after_us, 1),
                (T0 + after_us - 2_000, 1),
            ] {
                granted += key.call(policy, at_us, cost).unwrap()[0] * i64::try_from(cost).unwrap();
            }
            assert_eq!(granted, 100, "{policy:?} {after_us}");
        }
    }
}

#[test]
fn a_log_stands_still_while_the_clock_jitters() {
    let policy = exact(3, 10_000);
    let run = charged::<Exact>(policy, &[(T0 - 5 * SECOND, 1), (T0, 2)]);
    for back_us in JITTER_US {
        let mut back = run.clone();
        assert_eq!(back.step(policy, T0 - back_us, 1), [0, 3, 0, 5_001, 10_001]);
        assert_eq!(back.key, run.key);
    }
    // Judged at the newest entry: by then the oldest has left.
    let run = charged::<Exact>(policy, &[(T0, 1), (T0 + 10 * SECOND, 2)]);
    let mut back = run.clone();
    assert_eq!(
        back.step(policy, T0 + 10 * SECOND - 1_000, 1),
        [1, 3, 0, 10_001, 10_001]
    );
    assert_eq!(back.key.entries_us(), [T0 + 10 * SECOND; 3]);
}

#[test]
fn a_log_s_future_becomes_now_when_the_clock_is_set_back() {
    let policy = exact(3, 10_000);
    let old_us = T0 - 5 * SECOND;
    let run = charged::<Exact>(policy, &[(old_us, 1), (T0, 2)]);
    for (back_us, retry_ms) in [(1_001, 5_002), (2_000, 5_002), (4_999_999, 10_000)] {
        let now_us = T0 - back_us;
        let mut back = run.clone();
        let reply = back.step(policy, now_us, 1);
        assert_eq!(reply, [0, 3, 0, retry_ms, 10_000], "{back_us}");
        assert_eq!(
            back.key,
            Key::log(&[old_us, now_us, now_us], run.key.expire_at_ms().unwrap())
        );
    }
    let now_us = T0 - HOUR;
    let mut back = run.clone();
    assert_eq!(back.step(policy, now_us, 1), [0, 3, 0, 10_000, 10_000]);
    assert_eq!(
        back.key,
        Key::log(&[now_us; 3], run.key.expire_at_ms().unwrap())
    );
    // Room for one more, which is admitted.
    let mut back = run.clone();
    assert_eq!(
        back.step(exact(4, 10_000), now_us, 1),
        [1, 4, 0, 10_000, 10_000]
    );
    assert_eq!(back.key.entries_us(), [now_us; 4]);
}

#[test]
fn a_cost_above_the_limit_stores_no_step_back() {
    for policy in all(10, 10_000) {
        let mut key = Key::default();
        assert_eq!(key.call(policy, T0, 9).unwrap()[0], 1);
        let before = key.clone();
        for back_us in [1, 1_000, 1_001, 2_000, HOUR] {
            let reply = key.call(policy, T0 - back_us, 11).unwrap();
            assert_eq!(reply[..4], [0, 10, 1, -1], "{policy:?}");
            assert_eq!(key, before);
        }
    }
}

#[test]
fn a_step_forward_is_time_that_has_passed() {
    for policy in all(10, 1_000) {
        for forward_us in [2 * SECOND, HOUR, LAST - T0] {
            let mut key = Key::default();
            assert_eq!(key.call(policy, T0, 10).unwrap()[0], 1);
            assert_eq!(key.call(policy, T0, 1).unwrap()[0], 0);
            let reply = key.call(policy, T0 + forward_us, 10).unwrap();
            assert_eq!(reply[0], 1, "{policy:?}");
        }
    }
}

/// Greedily, at every instant: the same span is credited twice, and that is at most one limit for
/// each time the clock comes back.
#[test]
fn back_and_forth_credits_at_most_one_limit() {
    for policy in all(10, 10_000) {
        for back_us in [1, 1_000, 1_001, 2_000, SECOND, 9_999_999, 10 * SECOND, HOUR] {
            let mut run = Key::default();
            let mut taken_at = |at_us: u64| {
                let mut taken = 0;
                while run.call(policy, at_us, 1).unwrap()[0] == 1 {
                    taken += 1;
                }
                taken
            };
            assert_eq!(taken_at(T0), 10);
            for _ in 0..5 {
                assert_eq!(taken_at(T0 - back_us), 0, "{policy:?} {back_us}");
                let again = taken_at(T0);
                assert!(again <= 10, "{policy:?} {back_us}: {again}");
                // Jitter credits nothing at all.
                assert!(back_us > 1_000 || again == 0);
            }
        }
    }
}

/// A bucket would otherwise stand still for as long as the step was.
#[test]
fn a_client_that_is_always_refused_is_served_soon_after_a_step_back() {
    let waits: [(Policy, u64); 3] = [
        (token(1, 1, 1_000), 1_000),
        (slide(1, 1_000), 2_000),
        (exact(1, 1_000), 1_000),
    ];
    for (policy, wait_ms) in waits {
        let mut key = Key::default();
        assert_eq!(key.call(policy, T0, 1).unwrap()[0], 1);
        let start_us = T0 - HOUR;
        let mut now_us = start_us;
        while key.call(policy, now_us, 1).unwrap()[0] == 0 {
            now_us += 100_000;
        }
        assert_eq!(now_us - start_us, wait_ms * 1_000, "{policy:?}");
    }
}

#[test]
fn a_clock_steps_between_its_ends() {
    let replies: [(Policy, Reply); 4] = [
        (
            fixed(10, 1_000),
            [0, 10, 0, 9_000_000_000_999, 9_000_000_000_999],
        ),
        (token(10, 10, 1_000), [0, 10, 0, 100, 1_000]),
        (slide(10, 1_000), [0, 10, 0, 1_100, 2_000]),
        (exact(10, 1_000), [0, 10, 0, 1_000, 1_000]),
    ];
    for (policy, reply) in replies {
        let mut key = Key::default();
        assert_eq!(key.call(policy, LAST, 10).unwrap()[0], 1);
        assert_eq!(key.call(policy, FIRST, 1), Ok(reply), "{policy:?}");
    }
}
