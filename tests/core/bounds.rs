//! How much a client can get, counted from the list of its admitted calls alone.

use proptest::prelude::*;

use crate::call::{FIRST, HOUR, LAST, MAX_UNITS, Policy, SECOND, T0, exact, fixed, slide, token};
use crate::random::{
    Step, Walk, config, exact_policies, fixed_policies, instants_us, slide_policies, steps,
    steps_forward, token_policies,
};
use crate::store::Key;

/// A call that was admitted.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    at_us: u64,
    cost: u64,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    at_us: u64,
    cost: u64,
    /// So many calls had been admitted before.
    after: usize,
}

/// Calls a key step by step with a clock that does not step back.
fn calls(policy: Policy, start_us: u64, steps: &[Step]) -> (Vec<Admitted>, Vec<Refused>) {
    let (mut admitted, mut refused) = (Vec::<Admitted>::new(), Vec::new());
    let mut key = Key::default();
    let mut walk = Walk::from(start_us);
    let mut latest_us = 0;
    for step in steps {
        let (now_us, cost) = walk.next(policy, *step);
        if now_us < latest_us {
            continue;
        }
        latest_us = now_us;
        let reply = key.call(policy, now_us, cost).unwrap();
        walk.answered(reply);
        if reply[0] == 1 {
            admitted.push(Admitted {
                at_us: now_us,
                cost,
            });
        } else if cost <= policy.limit() {
            refused.push(Refused {
                at_us: now_us,
                cost,
                after: admitted.len(),
            });
        }
    }
    (admitted, refused)
}

fn total<'a>(calls: impl IntoIterator<Item = &'a Admitted>) -> u128 {
    calls.into_iter().map(|call| u128::from(call.cost)).sum()
}

/// Whether `cost` tokens at `at_us`, after the calls of some span up to then, keep to capacity +
/// span × refill / period.
fn keeps_to_the_rate(policy: Policy, calls: &[Admitted], at_us: u64, cost: u64) -> bool {
    let Policy::Token {
        capacity,
        refill,
        period_ms,
    } = policy
    else {
        panic!("not a bucket")
    };
    let period_us = u128::from(period_ms) * 1_000;
    (0..=calls.len()).all(|first| {
        let calls = &calls[first..];
        let span_us = calls.first().map_or(0, |call| at_us - call.at_us);
        let taken = total(calls) + u128::from(cost);
        taken * period_us
            <= u128::from(capacity) * period_us + u128::from(span_us) * u128::from(refill)
    })
}

/// The calls admitted in (`at_us` − window, `at_us`].
fn in_window(policy: Policy, calls: &[Admitted], at_us: u64) -> u128 {
    let window_us = policy.span_ms() * 1_000;
    total(
        calls
            .iter()
            .filter(|call| call.at_us <= at_us && at_us < call.at_us + window_us),
    )
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn a_bucket_never_gives_more_than_its_capacity_and_its_refill_over_any_span(
        policy in token_policies(), start_us in instants_us(), steps in steps_forward(40),
    ) {
        let (admitted, refused) = calls(policy, start_us, &steps);
        for (index, call) in admitted.iter().enumerate() {
            prop_assert!(keeps_to_the_rate(policy, &admitted[..index], call.at_us, call.cost));
        }
        // And never less: what was refused would have been more.
        for call in refused {
            let before = &admitted[..call.after];
            prop_assert!(!keeps_to_the_rate(policy, before, call.at_us, call.cost));
        }
    }

    #[test]
    fn an_exact_window_never_holds_more_than_its_limit(
        policy in exact_policies(), start_us in instants_us(), steps in steps_forward(40),
    ) {
        let limit = u128::from(policy.limit());
        let (admitted, refused) = calls(policy, start_us, &steps);
        for call in &admitted {
            prop_assert!(in_window(policy, &admitted, call.at_us) <= limit);
        }
        for call in refused {
            let used = in_window(policy, &admitted[..call.after], call.at_us);
            prop_assert!(used + u128::from(call.cost) > limit);
        }
    }

    #[test]
    fn a_fixed_window_never_holds_more_than_its_limit(
        policy in fixed_policies(), start_us in instants_us(), steps in steps_forward(40),
    ) {
        let (admitted, _) = calls(policy, start_us, &steps);
        let mut rest = admitted.as_slice();
        while let Some(first) = rest.first() {
            let end_ms = first.at_us / 1_000 + policy.span_ms();
            let len = rest.iter().take_while(|call| call.at_us / 1_000 < end_ms).count();
            prop_assert!(total(&rest[..len]) <= u128::from(policy.limit()));
            rest = &rest[len..];
        }
    }

    #[test]
    fn a_counter_gives_less_than_twice_its_limit_within_a_window_s_length(
        policy in slide_policies(), start_us in instants_us(), steps in steps_forward(40),
    ) {
        let (admitted, _) = calls(policy, start_us, &steps);
        for call in &admitted {
            let used = in_window(policy, &admitted, call.at_us);
            prop_assert!(used < 2 * u128::from(policy.limit()));
        }
    }

    #[test]
    fn a_clock_that_is_set_back_grants_nothing(
        policy in prop_oneof![
            fixed_policies(), token_policies(), slide_policies(), exact_policies()
        ],
        start_us in instants_us(),
        steps in steps(30),
        back_us in prop_oneof![Just(1), 1..=1_001_u64, 1..=HOUR, 1..=LAST],
    ) {
        // A call that costs too much looks without taking.
        prop_assume!(policy.limit() < MAX_UNITS);
        let remaining = |key: &Key, at_us: u64| {
            key.clone().call(policy, at_us, policy.limit() + 1).unwrap()[2]
        };
        let mut key = Key::default();
        let mut walk = Walk::from(start_us);
        for step in steps {
            let (now_us, cost) = walk.next(policy, step);
            if key.is_live(now_us) {
                let earlier_us = now_us.saturating_sub(back_us).max(FIRST);
                prop_assert!(remaining(&key, earlier_us) <= remaining(&key, now_us));
            }
            walk.answered(key.call(policy, now_us, cost).unwrap());
        }
    }
}

/// Calls a key every `every_us` for `span_us`; the number of calls admitted.
fn admitted_of(policy: Policy, every_us: u64, span_us: u64) -> u64 {
    let mut key = Key::default();
    let mut admitted = 0;
    let mut now_us = T0;
    while now_us < T0 + span_us {
        let reply = key.call(policy, now_us, 1).unwrap();
        admitted += u64::try_from(reply[0]).unwrap();
        now_us += every_us;
    }
    admitted
}

/// The refill mark does not move with a refusal, and no fraction is lost by an admission: with
/// room for a second token no time is lost either. A bucket of one token is full, and overflows,
/// for as long as its client does not come.
#[test]
fn calling_ever_so_often_starves_nobody() {
    for every_ms in [1, 7, 600, 999] {
        let admitted = admitted_of(token(2, 1, 1_000), every_ms * 1_000, 60 * SECOND);
        assert!(
            (60..=61).contains(&admitted),
            "{admitted} each {every_ms} ms"
        );
    }
    for (every_ms, admitted) in [(1, 60), (500, 60), (600, 50), (999, 31), (1_000, 60)] {
        assert_eq!(
            admitted_of(token(1, 1, 1_000), every_ms * 1_000, 60 * SECOND),
            admitted
        );
    }
    // Three a second, called each 333 ms: a fraction of 1/1000 per call adds up.
    assert_eq!(
        admitted_of(token(2, 3, 1_000), 333_000, 600 * SECOND),
        1_801
    );
}

/// A client that calls without pause gets what one that waits its turn gets.
#[test]
fn refused_calls_do_not_count() {
    for policy in [fixed(5, 1_000), slide(5, 1_000), token(5, 5, 1_000)] {
        let patient = greedy(policy, 60);
        let impatient = admitted_of(policy, 1_000, 60 * SECOND);
        assert!(
            patient.abs_diff(impatient) <= 1,
            "{policy:?}: {patient}, {impatient}"
        );
    }
}

/// Takes a unit whenever there is one, for so many windows; the number of units.
fn greedy(policy: Policy, windows: u64) -> u64 {
    let mut key = Key::default();
    let mut admitted = 0;
    let mut now_us = T0;
    while now_us < T0 + windows * policy.span_ms() * 1_000 {
        let [allowed, _, _, retry_after_ms, _] = key.call(policy, now_us, 1).unwrap();
        assert_eq!(allowed, 1, "the wait was enough");
        admitted += 1;
        now_us += u64::try_from(retry_after_ms).unwrap() * 1_000;
    }
    admitted
}

/// Half its limit at limits of 1 and 2, two thirds at 3, 80 % at 5, 90 % at 10.
#[test]
fn a_greedy_client_of_a_counter_gets_less_than_its_limit_on_average() {
    const WINDOWS: u64 = 1_000;
    for (limit, numerator, denominator) in
        [(1, 1, 2), (2, 1, 2), (3, 2, 3), (5, 80, 100), (10, 90, 100)]
    {
        let average = WINDOWS * limit * numerator / denominator;
        let taken = greedy(slide(limit, 60_000), WINDOWS);
        // The first window is spent in full, as nothing was taken before it.
        assert!(
            (average..=average + 1).contains(&taken),
            "{taken} at {limit}"
        );
    }
    // The others give all of it.
    for limit in [1, 2, 3, 5, 10] {
        assert_eq!(greedy(fixed(limit, 60_000), WINDOWS), WINDOWS * limit);
        assert_eq!(greedy(exact(limit, 60_000), WINDOWS), WINDOWS * limit);
        let taken = greedy(token(limit, limit, 60_000), WINDOWS);
        assert_eq!(taken, (WINDOWS + 1) * limit - 1);
    }
}

/// 100 at the end of one window, and 99 at the end of the next.
#[test]
fn a_counter_lets_199_of_100_pass_within_a_window_s_length() {
    let policy = slide(100, 60_000);
    let mut key = Key::default();
    let mut admitted = 0;
    for at_us in [T0 + 60 * SECOND - 1, T0 + 120 * SECOND - 2] {
        while key.call(policy, at_us, 1).unwrap()[0] == 1 {
            admitted += 1;
        }
    }
    assert_eq!(admitted, 199);
}

/// One call opens a window, 99 end it, and the next begins with 100.
#[test]
fn a_fixed_window_lets_199_of_100_pass_around_its_end() {
    let policy = fixed(100, 60_000);
    let mut key = Key::default();
    let calls = [(0, 1), (59_999_999, 99), (59_999_999, 1), (60_000_000, 100)];
    let allowed = calls.map(|(us, cost)| key.call(policy, T0 + us, cost).unwrap()[0]);
    assert_eq!(allowed, [1, 1, 0, 1]);
}
