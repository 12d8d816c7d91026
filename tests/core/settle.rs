//! What `UPTO`, `REFUND` and `FORCE` promise, beside that every reply is the oracle's.

use proptest::prelude::*;

use crate::call::{FIRST, LAST, MAX_SPAN_MS, MAX_UNITS, MS, Policy, SECOND, T0};
use crate::call::{all, exact, fixed, slide, token};
use crate::oracle::{Exact, Fixed, Model, Slide, Token};
use crate::random::{
    Step, Walk, config, exact_policies, fixed_policies, instants_us, settling_steps,
    slide_policies, token_policies,
};
use crate::run::{Run, table};
use crate::store::Key;
use crate::word::Word;

const MAX_COUNT: u64 = i64::MAX.unsigned_abs();

fn any_policy() -> impl Strategy<Value = Policy> + Clone {
    prop_oneof![
        fixed_policies(),
        token_policies(),
        slide_policies(),
        exact_policies(),
    ]
}

/// A key as some calls under one policy leave it, and the instant of the last of them.
fn reach(policy: Policy, start_us: u64, steps: &[Step]) -> (Key, u64) {
    let mut key = Key::default();
    let mut walk = Walk::from(start_us);
    let mut last_us = start_us;
    for step in steps {
        let (now_us, word) = walk.next_word(policy, *step);
        walk.answered(key.call(policy, now_us, word).unwrap());
        last_us = now_us;
    }
    (key, last_us)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap()
}

/// What a key answers, now and later: to looks, and to a refund on a copy.
fn answers(key: &Key, policy: Policy, now_us: u64) -> Vec<[i64; 5]> {
    let span_us = policy.span_ms() * MS;
    let limit = policy.limit();
    let mut answers = Vec::new();
    for later_us in [
        0,
        1,
        500,
        999,
        1_000,
        1_001,
        span_us / 3,
        span_us,
        2 * span_us,
    ] {
        let at_us = now_us + later_us;
        if at_us > LAST {
            continue;
        }
        for word in [Word::Cost(1), Word::Cost(limit), Word::UpTo(MAX_UNITS)] {
            answers.push(key.peek(policy, at_us, word).unwrap());
        }
        for n in [1, limit.div_ceil(2)] {
            let mut copy = key.clone();
            answers.push(copy.call(policy, at_us, Word::Refund(n)).unwrap());
            answers.push(copy.peek(policy, at_us, Word::Cost(limit)).unwrap());
        }
    }
    answers
}

proptest! {
    #![proptest_config(config(300))]

    /// At the same instant, under the policy that charged. All later answers are the same. What may
    /// differ is what is stored: the key of a bucket that had filled up in the meantime is gone, as
    /// is a window or a log whose units had all left; a stored time has moved to now, and a TTL may
    /// have been set. So the clock does not step back here, before the charge or later.
    #[test]
    fn what_is_charged_and_given_back_at_once_was_never_charged(
        policy in any_policy(), start_us in instants_us(), steps in settling_steps(12),
        after_us in prop_oneof![Just(0_u64), 1..3_000_u64, 0..10 * SECOND],
        n in prop_oneof![1..5_u64, 1..=MAX_UNITS], kind in 0..3_u8,
    ) {
        let (before, last_us) = reach(policy, start_us, &steps);
        let now_us = (last_us + after_us).min(LAST);
        let mut key = before.clone();
        let word = match kind {
            0 => Word::Cost(n),
            1 => Word::UpTo(n),
            _ if matches!(policy, Policy::Exact { .. }) => Word::Cost(n),
            _ => Word::Force(n),
        };
        let [allowed, _, _, _, reset_after_ms] = key.call(policy, now_us, word).unwrap();
        // What is beyond the bound of a debt is cut off, and does not come back.
        prop_assume!(unsigned(reset_after_ms) < MAX_SPAN_MS);
        let charged = match word {
            Word::Cost(n) if allowed == 1 => n,
            Word::Force(n) => n,
            Word::UpTo(_) => unsigned(allowed),
            _ => 0,
        };
        if charged > 0 {
            let [given, ..] = key.call(policy, now_us, Word::Refund(charged)).unwrap();
            prop_assert_eq!(given, 1);
        }
        prop_assert_eq!(answers(&key, policy, now_us), answers(&before, policy, now_us));
    }

    #[test]
    fn no_refund_gives_more_than_all(
        policy in any_policy(), start_us in instants_us(), steps in settling_steps(12),
        n in prop_oneof![1..5_u64, 1..=MAX_UNITS],
    ) {
        let (mut key, now_us) = reach(policy, start_us, &steps);
        let limit = policy.limit();
        let mut remaining = unsigned(key.peek(policy, now_us, 1).unwrap()[2]);
        // No step forces more than 2^53 at once, and a debt is bounded in other ways.
        for n in [[n; 4], [MAX_UNITS; 4]].concat().into_iter().chain([MAX_UNITS; 40]) {
            let was_used = key.peek(policy, now_us, 1).unwrap()[4] > 0;
            let before = key.clone();
            let reply = key.call(policy, now_us, Word::Refund(n)).unwrap();
            prop_assert_eq!([reply[0], reply[3]], [1, 0]);
            let left = unsigned(reply[2]);
            prop_assert!(left >= remaining && left <= limit, "{:?}", reply);
            // A debt may swallow it, and what is gone of the previous window counts in part.
            prop_assert!(left <= remaining.saturating_add(n), "{:?}", reply);
            if !was_used {
                prop_assert!(key == before || !before.is_live(now_us), "nothing to give back");
            }
            remaining = left;
        }
        let [_, _, remaining, _, reset_after_ms] = key.peek(policy, now_us, 1).unwrap();
        prop_assert_eq!((unsigned(remaining), reset_after_ms), (limit, 0));
    }

    #[test]
    fn up_to_takes_what_there_is_and_no_more(
        policy in any_policy(), start_us in instants_us(), steps in settling_steps(12),
        part in 1..=64_u64,
    ) {
        let (mut key, now_us) = reach(policy, start_us, &steps);
        let there = unsigned(key.peek(policy, now_us, 1).unwrap()[2]);
        let n = u64::try_from(u128::from(policy.limit()) * u128::from(part) / 48).unwrap();
        let n = n.clamp(1, MAX_UNITS);
        let first = key.call(policy, now_us, Word::UpTo(n)).unwrap();
        prop_assert_eq!(unsigned(first[0]), n.min(there));
        prop_assert_eq!(unsigned(first[2]), there - n.min(there));
        let second = key.call(policy, now_us, Word::UpTo(MAX_UNITS)).unwrap();
        prop_assert_eq!(unsigned(second[0]), there - n.min(there));
        // Nothing is left, so the next one waits for one unit.
        let third = key.call(policy, now_us, Word::UpTo(MAX_UNITS)).unwrap();
        prop_assert_eq!([third[0], third[2]], [0, 0]);
        prop_assert_eq!(third[3], key.peek(policy, now_us, 1).unwrap()[3]);
        prop_assert!(third[3] > 0);
        let at_us = now_us + unsigned(third[3]) * MS;
        if at_us <= LAST {
            prop_assert!(key.call(policy, at_us, Word::UpTo(MAX_UNITS)).unwrap()[0] > 0);
        }
    }

    #[test]
    fn a_bucket_that_owes_admits_nothing_until_the_stated_wait(
        policy in token_policies(), start_us in instants_us(), steps in settling_steps(8),
        debts in proptest::collection::vec(prop_oneof![1..100_u64, 1..=MAX_UNITS], 1..4),
        cost in prop_oneof![Just(1_u64), 1..=MAX_UNITS],
    ) {
        let (mut key, now_us) = reach(policy, start_us, &steps);
        for n in debts {
            key.call(policy, now_us, Word::Force(n)).unwrap();
        }
        let cost = cost.min(policy.limit());
        let [allowed, _, remaining, wait_ms, reset_after_ms] =
            key.call(policy, now_us, Word::Force(policy.limit())).unwrap();
        prop_assert!(allowed == 0 || remaining == 0);
        prop_assert!(unsigned(wait_ms) <= unsigned(reset_after_ms));
        // While the clock jitters, the time until it has caught up comes on top.
        prop_assert!(unsigned(reset_after_ms) <= MAX_SPAN_MS + 1);
        let lives_ms = key.expire_at_ms().unwrap() - now_us / MS;
        prop_assert!(lives_ms >= unsigned(reset_after_ms));
        let wait_ms = unsigned(key.peek(policy, now_us, cost).unwrap()[3]);
        let admits = |after_ms: u64| {
            let at_us = now_us + after_ms * MS;
            (at_us <= LAST).then(|| key.clone().call(policy, at_us, cost).unwrap()[0] == 1)
        };
        for sooner_ms in [0, wait_ms / 64, wait_ms / 3, wait_ms / 2, wait_ms.saturating_sub(1)] {
            if sooner_ms < wait_ms {
                prop_assert_ne!(admits(sooner_ms), Some(true), "{} of {}", sooner_ms, wait_ms);
            }
        }
        prop_assert_ne!(admits(wait_ms), Some(false));
    }

    /// However much is forced, and under whatever policy it was.
    #[test]
    fn a_bucket_is_full_again_within_a_hundred_years(
        policies in [token_policies(), token_policies()],
        forced in proptest::collection::vec(prop_oneof![1..=MAX_UNITS, Just(MAX_UNITS)], 1..6),
    ) {
        let mut key = Key::default();
        for n in forced {
            for policy in policies {
                let reset_after_ms = key.peek(policy, FIRST, 1).unwrap()[4];
                prop_assert!(unsigned(reset_after_ms) <= MAX_SPAN_MS, "once converted");
                let reply = key.call(policy, FIRST, Word::Force(n)).unwrap();
                let reset_after_ms = unsigned(reply[4]);
                prop_assert!(reset_after_ms <= MAX_SPAN_MS);
                let whole = Word::Cost(policy.limit());
                let at_us = FIRST + reset_after_ms * MS;
                prop_assert_eq!(key.peek(policy, at_us, whole).unwrap()[0], 1);
                if reset_after_ms > 0 {
                    prop_assert_eq!(key.peek(policy, at_us - MS, whole).unwrap()[0], 0);
                }
            }
        }
    }
}

#[test]
fn a_refund_of_nothing_stores_nothing() {
    let end_ms = T0 / MS + 10_000;
    for policy in all(10, 10_000) {
        let mut key = Key::default();
        let full = Ok([1, 10, 10, 0, 0]);
        assert_eq!(key.call(policy, T0, Word::Refund(3)), full, "{policy:?}");
        assert_eq!(key, Key::default());
    }
    for (policy, mut key) in [
        // The window is over in this very millisecond.
        (fixed(10, 10_000), Key::text("4", end_ms)),
        // Full again, cut to its capacity, and full in the future of a clock that was set back.
        (
            token(10, 10, 10_000),
            Key::text(&format!("T1:0:10000000:{T0}"), end_ms + 10_000),
        ),
        (
            token(2, 2, 10_000),
            Key::text(
                &format!("T1:30000000:10000000:{}", T0 + 20 * SECOND),
                end_ms,
            ),
        ),
        (
            slide(10, 5_000),
            Key::text(&format!("S1:5000:{}:0:4", T0 / MS), end_ms),
        ),
        (exact(10, 10_000), Key::log(&[T0 - 1, T0], end_ms + 1_000)),
    ] {
        let before = key.clone();
        let limit = i64::try_from(policy.limit()).unwrap();
        let reply = key.call(policy, T0 + 10 * SECOND, Word::Refund(MAX_UNITS));
        assert_eq!(reply, Ok([1, limit, limit, 0, 0]), "{policy:?}");
        assert_eq!(key, before);
    }
}

#[test]
fn a_key_goes_with_the_last_unit_and_stays_before() {
    for policy in all(10, 10_000) {
        let mut key = Key::default();
        key.call(policy, T0, 3).unwrap();
        let reply = key.call(policy, T0, Word::Refund(2)).unwrap();
        assert_eq!(reply[..4], [1, 10, 9, 0], "{policy:?}");
        assert!(key.is_live(T0));
        let reply = key.call(policy, T0, Word::Refund(1)).unwrap();
        assert_eq!(reply, [1, 10, 10, 0, 0], "{policy:?}");
        assert_eq!(key, Key::default());
    }
}

/// By hand, and by the oracle.
#[test]
fn a_bucket_pays_what_it_owes() {
    use Word::{Cost, Force, Refund, UpTo};
    let policy = token(10, 1, 1_000);
    let run = table::<Token>(&[
        (policy, T0, Force(25), [0, 10, 0, -1, 25_000]),
        (policy, T0 + SECOND, Cost(1), [0, 10, 0, 15_000, 24_000]),
        (policy, T0 + SECOND, UpTo(9), [0, 10, 0, 15_000, 24_000]),
        (policy, T0 + SECOND, Force(1), [0, 10, 0, 16_000, 25_000]),
        (policy, T0 + 2 * SECOND, Refund(10), [1, 10, 0, 0, 14_000]),
        (policy, T0 + 6_999_999, UpTo(9), [0, 10, 0, 1, 9_001]),
        (policy, T0 + 7 * SECOND, UpTo(9), [1, 10, 0, 1_000, 10_000]),
    ]);
    assert_eq!(run.key.get(), format!("T1:0:1000000:{}", T0 + 7 * SECOND));
}

#[test]
fn a_debt_is_cut_off_where_it_takes_a_hundred_years() {
    for (policy, level) in [
        // 100 years take all of these to fill, so they can't owe.
        (token(1, 1, MAX_SPAN_MS), 0),
        (token(MAX_UNITS, MAX_UNITS, MAX_SPAN_MS), 0),
        // Ten are missing anyway.
        (token(10, 1, 1_000), 10_000_000 - 3_153_600_000_000_000),
        // The lowest level that there is, but for the one token that it holds when it is full.
        (
            token(1, MAX_UNITS, 1),
            1_000 - 3_153_600_000_000_000 * i128::from(MAX_UNITS),
        ),
    ] {
        let mut key = Key::default();
        let mut call = || key.call(policy, FIRST, Word::Force(MAX_UNITS)).unwrap();
        // 2^53 are 2^9 times as much as the third can owe; the last takes 3,153,600,000,000.
        let century_ms = i64::try_from(MAX_SPAN_MS).unwrap();
        if policy == token(1, MAX_UNITS, 1) {
            assert_eq!(call()[4], 1);
            let owing = format!("T1:{}:1000:{FIRST}", level + 1_000);
            key = Key::text(&owing, FIRST / MS + 2 * MAX_SPAN_MS);
        } else {
            assert_eq!(call()[4], century_ms, "{policy:?}");
        }
        for _ in 0..2 {
            let reply = key.call(policy, FIRST, Word::Force(MAX_UNITS)).unwrap();
            assert_eq!(reply[4], century_ms, "{policy:?}");
            let period_us = policy.span_ms() * MS;
            assert_eq!(key.get(), format!("T1:{level}:{period_us}:{FIRST}"));
            let expire_at_ms = key.expire_at_ms().unwrap();
            assert!(expire_at_ms >= FIRST / MS + MAX_SPAN_MS);
        }
    }
}

#[test]
fn counts_stop_at_the_largest_one() {
    let end_ms = T0 / MS + 1_000;
    let [counter, window] = [fixed(10, 1_000), slide(10, 1_000)];
    let mut key = Key::text(&(MAX_COUNT - 1).to_string(), end_ms);
    for _ in 0..2 {
        let reply = key.call(counter, T0, Word::Force(2)).unwrap();
        assert_eq!(reply, [0, 10, 0, 1_000, 1_000]);
        assert_eq!(key.get(), MAX_COUNT.to_string());
    }
    key.call(counter, T0, Word::Refund(MAX_UNITS)).unwrap();
    assert_eq!(key.get(), (MAX_COUNT - MAX_UNITS).to_string());

    let start_ms = T0 / MS;
    let text = |current: u64| format!("S1:1000:{start_ms}:{MAX_COUNT}:{current}");
    let mut key = Key::text(&text(MAX_COUNT - 1), end_ms + 1_000);
    for _ in 0..2 {
        let reply = key.call(window, T0, Word::Force(2)).unwrap();
        assert_eq!([reply[0], reply[2], reply[4]], [0, 0, 2_000]);
        assert_eq!(key.get(), text(MAX_COUNT));
    }
    // Both of them under another window: a count that can be read again.
    let other = slide(10, 2_000);
    key.call(other, T0, Word::Refund(1)).unwrap();
    assert_eq!(key.get(), format!("S1:2000:{start_ms}:0:{}", MAX_COUNT - 1));
    assert_eq!(key.call(other, T0, 1).unwrap()[0], 0);
}

/// Plain numbers in a fixed order: the generator of Knuth's MMIX.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A quarter of a million calls, under policies that change now and then, beside the model.
fn mix<M: Model>(policies: &[Policy]) {
    const CALLS: u32 = 250_000;
    let mut numbers = Numbers(0x5EED);
    let (mut key, mut model, mut now_us) = (Key::default(), M::default(), T0);
    let mut policy = policies[0];
    for nth in 0..CALLS {
        if numbers.below(500) == 0 {
            policy = policies[usize::try_from(numbers.below(3)).unwrap()];
        }
        let span_us = policy.span_ms() * MS;
        now_us = match numbers.below(40) {
            0 => now_us - numbers.below(1_001),
            1 => now_us - numbers.below(2 * span_us),
            2..=9 => now_us,
            _ => now_us + numbers.below(span_us / 4),
        };
        let n = 1 + numbers.below(policy.limit() / 2);
        let word = match numbers.below(8) {
            0 if !matches!(policy, Policy::Exact { .. }) => Word::Force(2 * n),
            0..=3 => Word::Cost(n),
            4 | 5 => Word::UpTo(2 * n),
            _ => Word::Refund(n),
        };
        if !key.is_live(now_us) {
            model = M::default();
        }
        let before = key.clone();
        let reply = key.call(policy, now_us, word).unwrap();
        assert!(
            model.confirms(policy, now_us, word, reply),
            "call {nth}: {policy:?} of {word:?} at {now_us} on {before:?}: {reply:?}"
        );
        model.tidy(policy, now_us);
    }
}

#[test]
fn a_quarter_million_mixed_calls_on_a_fixed_window_are_as_defined() {
    mix::<Fixed>(&[fixed(10, 20), fixed(7, 33), fixed(12, 20)]);
}

#[test]
fn a_quarter_million_mixed_calls_on_a_bucket_are_as_defined() {
    mix::<Token>(&[token(10, 7, 20), token(7, 3, 33), token(12, 11, 20)]);
}

#[test]
fn a_quarter_million_mixed_calls_on_a_sliding_window_are_as_defined() {
    mix::<Slide>(&[slide(10, 20), slide(7, 33), slide(12, 20)]);
}

#[test]
fn a_quarter_million_mixed_calls_on_an_exact_window_are_as_defined() {
    mix::<Exact>(&[exact(10, 20), exact(7, 33), exact(12, 20)]);
}

fn walk_all_words<M: Model>(policy: Policy) {
    let mut run = Run::<M>::new();
    let mut numbers = Numbers(1);
    let mut now_us = T0;
    for _ in 0..2_000 {
        now_us += numbers.below(900);
        let n = 1 + numbers.below(4);
        let word = match numbers.below(4) {
            0 => Word::Cost(n),
            1 => Word::Force(n),
            2 => Word::UpTo(n),
            _ => Word::Refund(n),
        };
        run.step(policy, now_us, word);
    }
}

/// The steps of the walks above, with every check of a run.
#[test]
fn a_walk_of_all_words_keeps_what_every_call_keeps() {
    walk_all_words::<Fixed>(fixed(3, 2));
    walk_all_words::<Token>(token(3, 2, 2));
    walk_all_words::<Slide>(slide(3, 2));
}
