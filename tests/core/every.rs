//! Every sequence of a few calls over tiny policies, compared with the oracle.
//!
//! The policies: limits of 1 to 3, windows and periods of 1 and 2 ms, refills of 1 to 3. A call is
//! one of the four words with 1 to 4 units, and the clock moves by one of seven steps before it.
//! A call on leases is one of three ids, under limits of 1 and 2 and TTLs of 1 and 2 ms, which change
//! from call to call.
//!
//! Sequences are not tried one by one. Those that lead to the same key, the same model and the same
//! instant can't be told apart by any call that follows, so one of them goes on and stands for
//! all. The same holds if all times are 2 ms apart, or a multiple of that: no window or period
//! tells the difference. A sequence counts as tried if each of its calls was compared, by it or by the one that
//! stands for it. The counts are asserted: `(words x steps)^calls` of each policy. `RL_CALLS=4` goes
//! one call further than a test run has time for.

use std::collections::HashMap;
use std::marker::PhantomData;

use crate::call::{MS, Policy, T0, exact, fixed, slide, token};
use crate::holders::Holders;
use crate::limit::{Lease, release, renew, take};
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
    members: Vec<(u16, i128)>,
    expire_at_ms: Option<i128>,
    model: Vec<i128>,
}

impl State {
    fn of(now_us: u64, key: &Key, model: Vec<i128>) -> Self {
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
        let members = key.members().into_iter();
        Self {
            now_us: now_us % (2 * MS),
            text: numbers.map(relative).collect(),
            entries_us: entries_us.iter().map(|us| relative((*us).into())).collect(),
            members: members
                .map(|(id, end_ms)| (id, relative(end_ms.into())))
                .collect(),
            expire_at_ms: key.expire_at_ms().map(|ms| relative(ms.into())),
            model: model.into_iter().map(relative).collect(),
        }
    }
}

/// What is called, and the model beside it.
trait Subject {
    type Model: Clone + Default;
    type Call;

    /// Makes a call, and fails unless it is decided as the model decides.
    fn compare(&self, call: &Self::Call, now_us: u64, key: &mut Key, model: &mut Self::Model);

    /// As [`Model::digest`].
    fn digest(&self, model: &Self::Model) -> Vec<i128>;
}

/// Calls under one policy.
struct Under<M>(Policy, PhantomData<M>);

impl<M: Model> Subject for Under<M> {
    type Model = M;
    type Call = Word;

    fn compare(&self, word: &Word, now_us: u64, key: &mut Key, model: &mut M) {
        let Self(policy, _) = *self;
        let before = (key.clone(), model.clone());
        let reply = key.call(policy, now_us, *word).unwrap();
        assert!(
            model.confirms(policy, now_us, *word, reply),
            "{policy:?} of {word:?} at {now_us} on {:?}: {reply:?}, not {:?}",
            before.0,
            before.1.clone().judge(policy, now_us, *word),
        );
    }

    fn digest(&self, model: &M) -> Vec<i128> {
        model.digest(self.0)
    }
}

/// Calls on leases, under any policies.
struct OnLeases;

impl Subject for OnLeases {
    type Model = Holders;
    type Call = Lease;

    fn compare(&self, lease: &Lease, now_us: u64, key: &mut Key, model: &mut Holders) {
        let before = key.clone();
        let reply = key.hold(*lease, now_us).unwrap();
        let expected = model.judge(*lease, now_us);
        assert_eq!(reply, expected, "{lease:?} at {now_us} on {before:?}");
    }

    /// Who holds a lease until when is compared by itself.
    fn digest(&self, model: &Holders) -> Vec<i128> {
        let members = model.members().into_iter();
        members
            .flat_map(|(id, end_ms)| [id.into(), end_ms.into()])
            .collect()
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

/// Tries every sequence of so many calls, and tells how many there are and how many calls were
/// compared for them.
fn every_sequence<S: Subject>(subject: &S, choices: &[S::Call], calls: usize) -> (u64, u64) {
    let mut compared = 0;
    let mut reached = vec![Reached {
        key: Key::default(),
        model: S::Model::default(),
        now_us: T0,
        sequences: 1,
    }];
    for nth in 1..=calls {
        let mut next: HashMap<State, Reached<S::Model>> = HashMap::new();
        let mut sequences = 0;
        for from in &reached {
            for step_us in STEPS_US {
                let now_us = from.now_us.checked_add_signed(step_us).unwrap();
                for call in choices {
                    let (mut key, mut model) = (from.key.clone(), from.model.clone());
                    if !key.is_live(now_us) {
                        model = S::Model::default();
                    }
                    subject.compare(call, now_us, &mut key, &mut model);
                    compared += 1;
                    sequences += from.sequences;
                    if nth == calls {
                        continue;
                    }
                    let state = State::of(now_us, &key, subject.digest(&model));
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

/// Every sequence of three calls, or as many as `RL_CALLS` says.
fn try_all<S: Subject>(subjects: impl IntoIterator<Item = (S, Vec<S::Call>)>) {
    let calls = std::env::var("RL_CALLS").map_or(3, |calls| calls.parse().unwrap());
    let (mut tried, mut compared, mut expected) = (0, 0, 0);
    for (subject, choices) in subjects {
        let (sequences, calls_compared) = every_sequence(&subject, &choices, calls);
        tried += sequences;
        compared += calls_compared;
        let steps = choices.len() * STEPS_US.len();
        expected += u64::try_from(steps.pow(u32::try_from(calls).unwrap())).unwrap();
    }
    println!("{tried} sequences of {calls} calls, {compared} calls compared");
    assert_eq!(tried, expected);
}

fn try_policies<M: Model>(policies: impl IntoIterator<Item = Policy>) {
    let policies = policies.into_iter();
    try_all(policies.map(|policy| (Under::<M>(policy, PhantomData), words(policy))));
}

fn windows(policy: fn(u64, u64) -> Policy) -> impl Iterator<Item = Policy> {
    (1..=3).flat_map(move |limit| [1, 2].map(|window_ms| policy(limit, window_ms)))
}

#[test]
fn every_sequence_on_a_fixed_window_is_decided_as_defined() {
    try_policies::<Fixed>(windows(fixed));
}

#[test]
fn every_sequence_on_a_bucket_is_decided_as_defined() {
    let refills = |refill| windows_of_buckets(refill);
    try_policies::<Token>((1..=3).flat_map(refills));
}

fn windows_of_buckets(refill: u64) -> impl Iterator<Item = Policy> {
    (1..=3).flat_map(move |capacity| [1, 2].map(|period_ms| token(capacity, refill, period_ms)))
}

#[test]
fn every_sequence_on_a_sliding_window_is_decided_as_defined() {
    try_policies::<Slide>(windows(slide));
}

#[test]
fn every_sequence_on_an_exact_window_is_decided_as_defined() {
    try_policies::<Exact>(windows(exact));
}

#[test]
fn every_sequence_on_leases_is_decided_as_defined() {
    let mut choices = Vec::new();
    for (limit, ttl_ms) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        for id in 0..3 {
            choices.extend([take, renew, release].map(|call| call(limit, ttl_ms, id)));
        }
    }
    try_all([(OnLeases, choices)]);
}

#[test]
fn the_steps_are_on_both_sides_of_what_counts_as_jitter() {
    let jitter_us = i64::try_from(MS).unwrap();
    assert!(STEPS_US.contains(&-jitter_us) && STEPS_US.contains(&(-jitter_us - 1)));
}
