//! Random policies, clocks and costs that seek the edges.
//!
//! The seed is fixed, so that a run can be repeated. `PROPTEST_RNG_SEED` sets another, and
//! `PROPTEST_CASES` (256 is as here, 2560 ten times as many) goes further.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed};
use redis_rl::policy::Hold;

use crate::call::{
    FIRST, HOUR, LAST, MAX_LOG, MAX_SPAN_MS, MAX_UNITS, Policy, Reply, SECOND, T0, exact, fixed,
    slide, token,
};
use crate::limit::Lease;
use crate::word::Word;

pub fn config(cases: u32) -> Config {
    let default = Config::default();
    Config {
        cases: (cases * default.cases / 256).max(1),
        rng_seed: match default.rng_seed {
            RngSeed::Random => RngSeed::Fixed(0x5EED),
            fixed @ RngSeed::Fixed(_) => fixed,
        },
        // Next to the test: a failure that was found once is tried first.
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..default
    }
}

pub fn limits() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        4 => select(vec![1, 2, 3, 5, 10, 100]),
        2 => 1..=50_u64,
        1 => select(vec![1_000_000, MAX_UNITS / 2, MAX_UNITS - 1, MAX_UNITS]),
        1 => 1..=MAX_UNITS,
    ]
}

pub fn spans_ms() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        4 => select(vec![1, 2, 7, 1_000, 1_500, 60_000, 3_600_000, 86_400_000]),
        2 => 1..=2_000_u64,
        1 => select(vec![MAX_SPAN_MS / 2, MAX_SPAN_MS - 1, MAX_SPAN_MS]),
        1 => 1..=MAX_SPAN_MS,
    ]
}

pub fn fixed_policies() -> impl Strategy<Value = Policy> + Clone {
    (limits(), spans_ms()).prop_map(|(limit, window_ms)| fixed(limit, window_ms))
}

/// Capacities are cut to what fills within 100 years.
pub fn token_policies() -> impl Strategy<Value = Policy> + Clone {
    (limits(), limits(), spans_ms()).prop_map(|(capacity, refill, period_ms)| {
        let most = u128::from(refill) * u128::from(MAX_SPAN_MS) / u128::from(period_ms);
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        token(capacity.min(most), refill, period_ms)
    })
}

pub fn slide_policies() -> impl Strategy<Value = Policy> + Clone {
    (limits(), spans_ms()).prop_map(|(limit, window_ms)| slide(limit, window_ms))
}

pub fn exact_policies() -> impl Strategy<Value = Policy> + Clone {
    (limits(), spans_ms()).prop_map(|(limit, window_ms)| exact(limit.min(MAX_LOG), window_ms))
}

pub fn instants_us() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        4 => select(vec![T0 - 1, T0, T0 + 999, T0 + 123_456_789]),
        1 => select(vec![FIRST, FIRST + 1, LAST - 5 * SECOND, LAST]),
        1 => FIRST..=LAST,
    ]
}

/// A call, told relative to what came before.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub gap: Gap,
    pub cost: Cost,
    pub kind: Kind,
    /// Which of the policies at hand it names.
    pub policy: usize,
}

/// From the last call to this one.
#[derive(Clone, Copy, Debug)]
pub enum Gap {
    /// So many µs.
    Us(i64),
    /// So many 64ths of the span, and so many µs.
    Part(i64, i64),
    /// What the last reply said to wait, and so many µs.
    Retry(i64),
    Reset(i64),
    /// To the next multiple of the span since the epoch, and so many µs.
    Edge(i64),
}

/// What the call does with its cost. An exact window knows no force: there it is a plain cost.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Cost,
    Force,
    UpTo,
    Refund,
}

#[derive(Clone, Copy, Debug)]
pub enum Cost {
    One,
    /// So many 64ths of the limit, rounded up.
    Part(u64),
    /// What the last reply said remains, and so many more.
    Remaining(u64),
    /// Above the limit, if a cost can be.
    Never,
}

/// A few µs around the edges of a millisecond.
fn nudges_us() -> impl Strategy<Value = i64> + Clone {
    select(vec![
        0, 0, 0, 0, 1, -1, 500, -500, 999, -999, 1_000, -1_000, 1_001, -1_001,
    ])
}

fn forward() -> impl Strategy<Value = Gap> + Clone {
    prop_oneof![
        2 => Just(Gap::Us(0)),
        2 => select(vec![1, 999, 1_000, 1_001]).prop_map(Gap::Us),
        1 => (0..5_000_000_i64).prop_map(Gap::Us),
        4 => (1..64_i64, nudges_us()).prop_map(|(part, us)| Gap::Part(part, us)),
        1 => (64..200_i64, nudges_us()).prop_map(|(part, us)| Gap::Part(part, us)),
        4 => nudges_us().prop_map(Gap::Retry),
        2 => nudges_us().prop_map(Gap::Reset),
        2 => nudges_us().prop_map(Gap::Edge),
    ]
}

fn backward() -> impl Strategy<Value = Gap> + Clone {
    let hour = i64::try_from(HOUR).unwrap();
    prop_oneof![
        4 => select(vec![-1, -500, -999, -1_000, -1_001, -2_000, -hour]).prop_map(Gap::Us),
        1 => (-5_000_000..0_i64).prop_map(Gap::Us),
        3 => (1..130_i64, nudges_us()).prop_map(|(part, us)| Gap::Part(-part, us)),
    ]
}

fn costs() -> impl Strategy<Value = Cost> + Clone {
    prop_oneof![
        6 => Just(Cost::One),
        4 => (1..=64_u64).prop_map(Cost::Part),
        3 => Just(Cost::Remaining(0)),
        2 => Just(Cost::Remaining(1)),
        1 => Just(Cost::Never),
    ]
}

/// Steps of a clock that goes forward, but for jitter of the nudges.
pub fn steps_forward(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (forward(), costs()).prop_map(|(gap, cost)| Step {
        gap,
        cost,
        kind: Kind::Cost,
        policy: 0,
    });
    proptest::collection::vec(step, 1..=count)
}

/// Steps of any clock, under one policy.
pub fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![4 => forward(), 1 => backward()];
    let step = (gap, costs()).prop_map(|(gap, cost)| Step {
        gap,
        cost,
        kind: Kind::Cost,
        policy: 0,
    });
    proptest::collection::vec(step, 1..=count)
}

fn kinds() -> impl Strategy<Value = Kind> + Clone {
    prop_oneof![
        4 => Just(Kind::Cost),
        2 => Just(Kind::Force),
        2 => Just(Kind::UpTo),
        3 => Just(Kind::Refund),
    ]
}

/// Steps of any clock, under one policy, with all four words.
pub fn settling_steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![4 => forward(), 1 => backward()];
    let step = (gap, costs(), kinds()).prop_map(|(gap, cost, kind)| Step {
        gap,
        cost,
        kind,
        policy: 0,
    });
    proptest::collection::vec(step, 1..=count)
}

/// The same, each with one of three policies.
pub fn changing_steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![6 => forward(), 1 => backward()];
    let step = (gap, costs(), kinds(), 0..3_usize).prop_map(|(gap, cost, kind, policy)| Step {
        gap,
        cost,
        kind,
        policy,
    });
    proptest::collection::vec(step, 1..=count)
}

/// A call on leases, told relative to what came before.
#[derive(Clone, Copy, Debug)]
pub struct LeaseStep {
    pub gap: Gap,
    pub lease: Lease,
}

fn leases() -> impl Strategy<Value = Lease> + Clone {
    let limits = prop_oneof![8 => 1..=4_u64, 1 => Just(MAX_LOG), 1 => 1..=MAX_LOG];
    let hold = prop_oneof![
        4 => Just(Hold::Take),
        2 => Just(Hold::Renew),
        2 => Just(Hold::Release),
    ];
    (limits, spans_ms(), 0..6_u16, hold)
        .prop_map(|(limit, ttl_ms, id, hold)| Lease::new(limit, ttl_ms, id, hold))
}

/// Calls of six ids on leases, at the steps of any clock. One in so many changes the limit and the
/// TTL; the others keep those of the call before.
pub fn lease_steps(count: usize, of: u32) -> impl Strategy<Value = Vec<LeaseStep>> {
    let gap = prop_oneof![6 => forward(), 1 => backward()];
    let step = (gap, leases(), 0..of);
    proptest::collection::vec(step, 1..=count).prop_map(|steps| {
        let mut policy = (steps[0].1.limit, steps[0].1.ttl_ms);
        let mut of_one_policy = |(gap, lease, nth): (Gap, Lease, u32)| {
            if nth == 0 {
                policy = (lease.limit, lease.ttl_ms);
            }
            let (limit, ttl_ms) = policy;
            LeaseStep {
                gap,
                lease: Lease {
                    limit,
                    ttl_ms,
                    ..lease
                },
            }
        };
        steps.into_iter().map(&mut of_one_policy).collect()
    })
}

/// Turns steps into calls, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    now_us: u64,
    reply: Reply,
}

impl Walk {
    pub fn from(start_us: u64) -> Self {
        Self {
            now_us: start_us,
            reply: [0; 5],
        }
    }

    /// The instant and the cost of the next call. The clock stops at its ends.
    pub fn next(&mut self, policy: Policy, step: Step) -> (u64, u64) {
        let now_us = self.at(policy.span_ms(), step.gap);
        (now_us, self.cost(policy.limit(), step.cost))
    }

    /// The instant of the next call.
    pub fn at(&mut self, span_ms: u64, gap: Gap) -> u64 {
        let now = i128::from(self.now_us);
        let span = i128::from(span_ms) * 1_000;
        let wait = |ms: i64| i128::from(ms.max(0)) * 1_000;
        let to = match gap {
            Gap::Us(us) => now + i128::from(us),
            Gap::Part(part, us) => now + span * i128::from(part) / 64 + i128::from(us),
            Gap::Retry(us) => now + wait(self.reply[3]) + i128::from(us),
            Gap::Reset(us) => now + wait(self.reply[4]) + i128::from(us),
            Gap::Edge(us) => now - now % span + span + i128::from(us),
        };
        let to = to.clamp(i128::from(FIRST), i128::from(LAST));
        self.now_us = u64::try_from(to).unwrap();
        self.now_us
    }

    fn cost(&self, limit: u64, cost: Cost) -> u64 {
        let cost = match cost {
            Cost::One => 1,
            Cost::Part(part) => {
                let part = (u128::from(limit) * u128::from(part)).div_ceil(64);
                u64::try_from(part).unwrap()
            }
            Cost::Remaining(more) => u64::try_from(self.reply[2]).unwrap() + more,
            Cost::Never => limit + 1,
        };
        cost.clamp(1, MAX_UNITS)
    }

    /// The instant and the word of the next call.
    pub fn next_word(&mut self, policy: Policy, step: Step) -> (u64, Word) {
        let now_us = self.at(policy.span_ms(), step.gap);
        (now_us, self.word(policy, step))
    }

    /// The word of a call.
    pub fn word(&self, policy: Policy, step: Step) -> Word {
        let n = self.cost(policy.limit(), step.cost);
        match (step.kind, policy) {
            (Kind::Cost, _) | (Kind::Force, Policy::Exact { .. }) => Word::Cost(n),
            (Kind::Force, _) => Word::Force(n),
            (Kind::UpTo, _) => Word::UpTo(n),
            (Kind::Refund, _) => Word::Refund(n),
        }
    }

    /// Somebody else's call was made at this instant.
    pub fn moved_to(&mut self, now_us: u64) {
        self.now_us = now_us;
    }

    pub fn answered(&mut self, reply: Reply) {
        self.reply = reply;
    }
}
