//! The ends of every range: limits, spans, costs, rates and clocks.

use crate::call::{
    FIRST, LAST, MAX_LOG, MAX_SPAN_MS, MAX_UNITS, MS, Policy, SECOND, T0, YEAR_MS, all, exact,
    fixed, slide, token,
};
use crate::oracle::{Exact, Fixed, Model, Slide, Token};
use crate::run::{Run, table};
use crate::store::Key;

const MAX: i64 = 9_007_199_254_740_991;
const CENTURY_MS: i64 = 3_153_600_000_000;

/// Every combination of extreme arguments, at instants from the clock's first to its last, each
/// step against the oracle and every promise.
fn walk_extremes<M: Model>(policies: impl IntoIterator<Item = Policy>) {
    for policy in policies {
        let limit = policy.limit();
        for start_us in [FIRST, FIRST + 1, T0 + 999, LAST - SECOND, LAST] {
            for first in [1, limit] {
                let mut run = Run::<M>::new();
                let span_us = policy.span_ms() * 1_000;
                for (after_us, cost) in [
                    (0, first),
                    (0, 1),
                    (1, limit),
                    (999, 1),
                    (1_000, limit.div_ceil(2)),
                    (span_us - 1, 1),
                    (span_us, limit),
                    (span_us + 1, 1),
                    (span_us + 1_000, MAX_UNITS),
                    (40 * YEAR_MS * 1_000, limit),
                    (2 * span_us, 1),
                    (80 * YEAR_MS * 1_000, 1),
                    (LAST, 1),
                    (0, 1),
                ] {
                    let now_us = (start_us + after_us).min(LAST);
                    run.step(policy, now_us, cost);
                }
            }
        }
    }
}

#[test]
fn every_extreme_policy_keeps_every_promise() {
    let limits = [1, 2, MAX_UNITS - 1, MAX_UNITS];
    let spans_ms = [1, 2, 1_000, YEAR_MS, MAX_SPAN_MS - 1, MAX_SPAN_MS];
    let pairs = || {
        limits
            .into_iter()
            .flat_map(move |limit| spans_ms.map(|ms| (limit, ms)))
    };
    walk_extremes::<Fixed>(pairs().map(|(limit, ms)| fixed(limit, ms)));
    walk_extremes::<Slide>(pairs().map(|(limit, ms)| slide(limit, ms)));
    walk_extremes::<Exact>(pairs().map(|(limit, ms)| exact(limit.min(MAX_LOG), ms)));
    // Those that fill within a hundred years.
    walk_extremes::<Token>(pairs().flat_map(|(capacity, ms)| {
        limits
            .into_iter()
            .filter(move |refill| {
                u128::from(capacity) * u128::from(ms)
                    <= u128::from(*refill) * u128::from(MAX_SPAN_MS)
            })
            .map(move |refill| token(capacity, refill, ms))
    }));
}

#[test]
fn the_largest_limit_is_spent_to_the_last_unit() {
    for policy in [
        fixed(MAX_UNITS, MAX_SPAN_MS),
        token(MAX_UNITS, MAX_UNITS, MAX_SPAN_MS),
        slide(MAX_UNITS, MAX_SPAN_MS),
    ] {
        let mut key = Key::default();
        let mut call = |cost: u64| key.call(policy, T0, cost).unwrap();
        assert_eq!(call(MAX_UNITS - 1)[..3], [1, MAX, 1], "{policy:?}");
        assert_eq!(call(2)[..3], [0, MAX, 1], "{policy:?}");
        assert_eq!(call(1)[..3], [1, MAX, 0], "{policy:?}");
        assert_eq!(call(1)[..3], [0, MAX, 0], "{policy:?}");
    }
}

#[test]
fn an_exact_window_holds_ten_thousand_units() {
    let policy = exact(MAX_LOG, 60_000);
    let run = table::<Exact>(&[
        (policy, T0, MAX_LOG - 1, [1, 10_000, 1, 60_000, 60_000]),
        (policy, T0 + SECOND, 1, [1, 10_000, 0, 59_000, 60_000]),
        (policy, T0 + 2 * SECOND, 1, [0, 10_000, 0, 58_000, 59_000]),
        (
            policy,
            T0 + 60 * SECOND,
            MAX_LOG,
            [0, 10_000, 9_999, 1_000, 1_000],
        ),
        (
            policy,
            T0 + 60 * SECOND,
            9_999,
            [1, 10_000, 0, 60_000, 60_000],
        ),
    ]);
    assert_eq!(run.key.entries_us().len(), 10_000);
}

/// Ten thousand single units, whose window's start is sought anew by every call.
#[test]
fn an_exact_window_finds_its_start_in_a_long_log() {
    let policy = exact(MAX_LOG, 10_000);
    let mut key = Key::default();
    for nth in 0..MAX_LOG {
        assert_eq!(key.call(policy, T0 + nth * MS, 1).unwrap()[0], 1);
    }
    for left in [0, 1, 2, 3, 4, 5, 100, 4_999, 5_000, 5_001, 9_998, 9_999] {
        let (now_us, cost) = (T0 + (10_000 + left) * MS, left + 1);
        let costs = i64::try_from(cost).unwrap();
        let reply = key.call(policy, now_us - 1, cost).unwrap();
        assert_eq!(reply[..4], [0, 10_000, costs - 1, 1]);
        let mut key = key.clone();
        let reply = key.call(policy, now_us, cost).unwrap();
        // One more of the old ones leaves each millisecond, and the new ones in ten seconds.
        let retry_ms = if cost <= 10_000 - cost { costs } else { 10_000 };
        assert_eq!(reply, [1, 10_000, 0, retry_ms, 10_000]);
        assert_eq!(key.entries_us().len(), 10_000);
    }
}

#[test]
fn the_shortest_span_is_one_millisecond() {
    table::<Fixed>(&[
        (fixed(1, 1), T0 + 999, 1, [1, 1, 0, 1, 1]),
        (fixed(1, 1), T0 + 999, 1, [0, 1, 0, 1, 1]),
        (fixed(1, 1), T0 + 1_000, 1, [1, 1, 0, 1, 1]),
    ]);
    table::<Token>(&[
        (token(1, 1, 1), T0 + 999, 1, [1, 1, 0, 1, 1]),
        (token(1, 1, 1), T0 + 1_998, 1, [0, 1, 0, 1, 1]),
        (token(1, 1, 1), T0 + 1_999, 1, [1, 1, 0, 1, 1]),
    ]);
    table::<Slide>(&[
        (slide(1, 1), T0 + 999, 1, [1, 1, 0, 2, 2]),
        (slide(1, 1), T0 + 1_999, 1, [0, 1, 0, 1, 1]),
        (slide(1, 1), T0 + 2_000, 1, [1, 1, 0, 2, 2]),
    ]);
    table::<Exact>(&[
        (exact(1, 1), T0 + 999, 1, [1, 1, 0, 1, 1]),
        (exact(1, 1), T0 + 1_998, 1, [0, 1, 0, 1, 1]),
        (exact(1, 1), T0 + 1_999, 1, [1, 1, 0, 1, 1]),
    ]);
}

#[test]
fn the_longest_span_is_a_hundred_years() {
    let last = CENTURY_MS;
    let century_us = MAX_SPAN_MS * 1_000;
    table::<Fixed>(&[
        (fixed(1, MAX_SPAN_MS), T0, 1, [1, 1, 0, last, last]),
        (
            fixed(1, MAX_SPAN_MS),
            T0 + century_us - 1,
            1,
            [0, 1, 0, 1, 1],
        ),
        (
            fixed(1, MAX_SPAN_MS),
            T0 + century_us,
            1,
            [1, 1, 0, last, last],
        ),
    ]);
    table::<Token>(&[
        (token(1, 1, MAX_SPAN_MS), T0, 1, [1, 1, 0, last, last]),
        (
            token(1, 1, MAX_SPAN_MS),
            T0 + century_us - 1,
            1,
            [0, 1, 0, 1, 1],
        ),
        (
            token(1, 1, MAX_SPAN_MS),
            T0 + century_us,
            1,
            [1, 1, 0, last, last],
        ),
    ]);
    table::<Exact>(&[
        (exact(1, MAX_SPAN_MS), T0, 1, [1, 1, 0, last, last]),
        (
            exact(1, MAX_SPAN_MS),
            T0 + century_us - 1,
            1,
            [0, 1, 0, 1, 1],
        ),
        (
            exact(1, MAX_SPAN_MS),
            T0 + century_us,
            1,
            [1, 1, 0, last, last],
        ),
    ]);
    // The counter's windows begin in 1970, and 100 × 365 days later.
    let wait = 2 * last - i64::try_from(T0 / MS).unwrap();
    table::<Slide>(&[
        (slide(1, MAX_SPAN_MS), T0, 1, [1, 1, 0, wait, wait]),
        (
            slide(1, MAX_SPAN_MS),
            2 * century_us - 1,
            1,
            [0, 1, 0, 1, 1],
        ),
        (
            slide(1, MAX_SPAN_MS),
            2 * century_us,
            1,
            [1, 1, 0, 2 * last, 2 * last],
        ),
    ]);
}

#[test]
fn one_a_year_is_exact() {
    let policy = token(1, 1, YEAR_MS);
    let year_us = YEAR_MS * 1_000;
    table::<Token>(&[
        (policy, T0, 1, [1, 1, 0, 31_536_000_000, 31_536_000_000]),
        (policy, T0 + 1, 1, [0, 1, 0, 31_536_000_000, 31_536_000_000]),
        (policy, T0 + year_us - 1, 1, [0, 1, 0, 1, 1]),
        (
            policy,
            T0 + year_us,
            1,
            [1, 1, 0, 31_536_000_000, 31_536_000_000],
        ),
    ]);
}

/// Ten in each microsecond: a millisecond's wait is ten thousand.
#[test]
fn ten_million_a_second_are_exact() {
    let policy = token(10_000_000, 10_000_000, 1_000);
    table::<Token>(&[
        (policy, T0, 10_000_000, [1, 10_000_000, 0, 1_000, 1_000]),
        (policy, T0 + 1, 11, [0, 10_000_000, 10, 1, 1_000]),
        (policy, T0 + 1, 10, [1, 10_000_000, 0, 1, 1_000]),
        (policy, T0 + 2, 10_011, [0, 10_000_000, 10, 2, 1_000]),
        (policy, T0 + 2, 10_010, [0, 10_000_000, 10, 1, 1_000]),
        (
            policy,
            T0 + 1_000_001,
            10_000_000,
            [1, 10_000_000, 0, 1_000, 1_000],
        ),
    ]);
    // Far more of them than microseconds, and all of them at once.
    let policy = token(MAX_UNITS, MAX_UNITS, 1);
    table::<Token>(&[
        (policy, T0, MAX_UNITS, [1, MAX, 0, 1, 1]),
        (policy, T0 + 1, 9_007_199_254_740, [1, MAX, 0, 1, 1]),
        (policy, T0 + 1, 1, [0, MAX, 0, 1, 1]),
        (policy, T0 + 1_001, MAX_UNITS, [1, MAX, 0, 1, 1]),
    ]);
}

/// The key is long gone; and if it were not, it would tell the same.
#[test]
fn forty_idle_years_leave_a_full_limit() {
    let later_us = T0 + 40 * YEAR_MS * 1_000;
    for policy in all(10, 60_000) {
        let mut key = Key::default();
        key.call(policy, T0, 10).unwrap();
        assert!(!key.is_live(later_us));
        assert_eq!(key.call(policy, later_us, 10).unwrap()[..3], [1, 10, 0]);
    }
    let expire_at_ms = LAST / MS;
    for (policy, mut key) in [
        (
            token(10, 1, 1),
            Key::text(&format!("T1:0:1000:{T0}"), expire_at_ms),
        ),
        (
            token(MAX_UNITS, MAX_UNITS, 1),
            Key::text(&format!("T1:0:1000:{T0}"), expire_at_ms),
        ),
        (
            slide(10, 1),
            Key::text(&format!("S1:1:{}:10:10", T0 / MS), expire_at_ms),
        ),
        (exact(10, 1), Key::log(&[T0; 10], expire_at_ms)),
    ] {
        let reply = key.call(policy, later_us, policy.limit()).unwrap();
        assert_eq!(reply[0], 1, "{policy:?}");
    }
}

/// No reply, state or TTL at an end of the clock is out of its range.
#[test]
fn both_ends_of_the_clock_are_instants_like_any_other() {
    for now_us in [FIRST, LAST] {
        let at_ms = i64::try_from(now_us / MS).unwrap();
        let century = MAX_SPAN_MS;
        let wait = 2 * CENTURY_MS - at_ms % CENTURY_MS;
        for (policy, retry_ms) in [
            (fixed(1, century), CENTURY_MS),
            (token(1, 1, century), CENTURY_MS),
            (slide(1, century), wait),
            (exact(1, century), CENTURY_MS),
        ] {
            let mut key = Key::default();
            let reply = key.call(policy, now_us, 1).unwrap();
            assert_eq!(reply, [1, 1, 0, retry_ms, retry_ms], "{policy:?}");
            key.assert_valid(policy);
            let reply = key.call(policy, now_us, 1).unwrap();
            assert_eq!(reply, [0, 1, 0, retry_ms, retry_ms], "{policy:?}");
        }
    }
}
