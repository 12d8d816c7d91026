//! Every sequence of a few calls over tiny policies, compared with the oracle.
//!
//! The policies: limits of 1 to 3, windows and periods of 1 and 2 ms, refills of 1 to 3. A call is
//! one of the four words with 1 to 4 units, and the clock moves by one of seven steps before it.
//!
//! Sequences are not tried one by one. Those that lead to the same key, the same model and the same
//! instant can't be told apart by any call that follows, so one of them goes on and stands for
//! all. The same holds if all times are 2 ms apart, or a multiple of that: no window or period
//! tells the difference. A sequence counts as tried if each of its calls was compared, by it or by the one that
//! stands for it. The counts are asserted: `(words x steps)^calls` of each policy. `RL_CALLS=4` goes
//! one call further than a test run has time for.

use std::collections::HashMap;

use crate::call::{MS, Policy, T0, exact, fixed, slide, token};
use crate::oracle::{Exact, Fixed, Model, Slide, Token};
use crate::store::Key;
use crate::word::Word;

const STEPS_US: [i64; 7] = [0, 499, 1_000, 1_001, -499, -1_000, -1_001];

/// All that a later call depends on, with instants relative to the last multiple of 2 ms.
#[derive(PartialEq, Eq, Hash)]
struct State {
    now_us: u64,
    text: Vec<i128>,
    entries_us: Vec<i128>,
    expire_at_ms: Option<i128>,
    model: Vec<i128>,
}

impl State {
    fn of<M: Model>(policy: Policy, now_us: u64, key: &Key, model: &M) -> Self {
        let base_us = i128::from(now_us - now_us % (2 * MS));
        let base_ms = base_us / i128::from(MS);
        // No count or level of these policies is as large as an instant.
        let relative = |number: i128| match number {
            1_000_000_000_000_000.. => number - base_us,
            1_000_000_000_000.. => number - base_ms,
            _ => number,
        };
        let numbers = key.get().split(':').filter_map(|field| field.parse().ok());
        let entries_us = key.entries_us();
        Self {
            now_us: now_us % (2 * MS),
            text: numbers.map(relative).collect(),
            entries_us: entries_us.iter().map(|us| relative((*us).into())).collect(),
            expire_at_ms: key.expire_at_ms().map(|ms| relative(ms.into())),
            model: model.digest(policy).into_iter().map(relative).collect(),
        }
    }
}

/// One of the sequences that lead to a state, and how many there are.
struct Reached<M> {
    key: Key,
    model: M,
    now_us: u64,
    sequences: u64,
}

fn words(policy: Policy) -> Vec<Word> {
    let mut words = vec![Word::Cost, Word::UpTo, Word::Refund];
    if !matches!(policy, Policy::Exact { .. }) {
        words.push(Word::Force);
    }
    let with_units = |word: fn(u64) -> Word| (1..=4).map(word);
    words.into_iter().flat_map(with_units).collect()
}

/// Tries every sequence of `calls` calls, and tells how many there are and how many calls were
/// compared for them.
fn every_sequence<M: Model>(policy: Policy, calls: usize) -> (u64, u64) {
    let words = words(policy);
    let mut compared = 0;
    let mut reached = vec![Reached {
        key: Key::default(),
        model: M::default(),
        now_us: T0,
        sequences: 1,
    }];
    for nth in 1..=calls {
        let mut next: HashMap<State, Reached<M>> = HashMap::new();
        let mut sequences = 0;
        for from in &reached {
            for step_us in STEPS_US {
                let now_us = from.now_us.checked_add_signed(step_us).unwrap();
                for word in &words {
                    let (mut key, mut model) = (from.key.clone(), from.model.clone());
                    if !key.is_live(now_us) {
                        model = M::default();
                    }
                    let reply = key.call(policy, now_us, *word).unwrap();
                    compared += 1;
                    sequences += from.sequences;
                    assert!(
                        model.confirms(policy, now_us, *word, reply),
                        "{policy:?} of {word:?} at {now_us} on {:?}: {reply:?}, not {:?}",
                        from.key,
                        from.model.clone().judge(policy, now_us, *word),
                    );
                    if nth == calls {
                        continue;
                    }
                    let state = State::of(policy, now_us, &key, &model);
                    next.entry(state)
                        .or_insert(Reached {
                            key,
                            model,
                            now_us,
                            sequences: 0,
                        })
                        .sequences += from.sequences;
                }
            }
        }
        if nth == calls {
            return (sequences, compared);
        }
        reached = next.into_values().collect();
    }
    (1, 0)
}

/// As many calls as `RL_CALLS` says, or `calls`.
fn try_all<M: Model>(policies: impl IntoIterator<Item = Policy>, calls: usize) {
    let calls = std::env::var("RL_CALLS").map_or(calls, |calls| calls.parse().unwrap());
    let (mut tried, mut compared, mut expected) = (0, 0, 0);
    for policy in policies {
        let (sequences, calls_compared) = every_sequence::<M>(policy, calls);
        tried += sequences;
        compared += calls_compared;
        let choices = words(policy).len() * STEPS_US.len();
        expected += u64::try_from(choices.pow(u32::try_from(calls).unwrap())).unwrap();
    }
    println!("{tried} sequences of {calls} calls, {compared} calls compared");
    assert_eq!(tried, expected);
}

fn windows(policy: fn(u64, u64) -> Policy) -> impl Iterator<Item = Policy> {
    (1..=3).flat_map(move |limit| [1, 2].map(|window_ms| policy(limit, window_ms)))
}

#[test]
fn every_sequence_on_a_fixed_window_is_decided_as_defined() {
    try_all::<Fixed>(windows(fixed), 3);
}

#[test]
fn every_sequence_on_a_bucket_is_decided_as_defined() {
    let refills = |refill| windows_of_buckets(refill);
    try_all::<Token>((1..=3).flat_map(refills), 3);
}

fn windows_of_buckets(refill: u64) -> impl Iterator<Item = Policy> {
    (1..=3).flat_map(move |capacity| [1, 2].map(|period_ms| token(capacity, refill, period_ms)))
}

#[test]
fn every_sequence_on_a_sliding_window_is_decided_as_defined() {
    try_all::<Slide>(windows(slide), 3);
}

#[test]
fn every_sequence_on_an_exact_window_is_decided_as_defined() {
    try_all::<Exact>(windows(exact), 3);
}

#[test]
fn the_steps_are_on_both_sides_of_what_counts_as_jitter() {
    let jitter_us = i64::try_from(MS).unwrap();
    assert!(STEPS_US.contains(&-jitter_us) && STEPS_US.contains(&(-jitter_us - 1)));
}
