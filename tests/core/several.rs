//! What `RL.ALL` promises: all limits admit and all are charged, or none is. Each is judged beside the
//! model of its own kind, and what they come to together is asked of those models.

use proptest::prelude::*;
use proptest::sample::select;
use redis_rl::error::{Error, ErrorOf};
use redis_rl::policy::Hold;
use redis_rl::request::AnyCall;

use crate::all::{Answer, check_all};
use crate::call::{HOUR, LAST, MAX_LOG, MAX_SPAN_MS, MS, Policy, Reply, SECOND, T0};
use crate::call::{exact, fixed, slide, token};
use crate::holders::Holders;
use crate::key::Value;
use crate::limit::{Lease, Limit, release, renew, take};
use crate::oracle::{Exact, Fixed, Model, Slide, Token, least_ms};
use crate::random::{
    Cost, Gap, Kind, Step, Walk, config, exact_policies, fixed_policies, instants_us,
    settling_steps, slide_policies, spans_ms, token_policies,
};
use crate::store::{Key, timestamp};
use crate::word::Word;

/// The model of one limit, of whatever kind.
trait Alone {
    /// The reply of its own command, which does what it says.
    fn own(&mut self, limit: &Limit, now_us: u64) -> Reply;

    /// What a look tells.
    fn looked(&self, limit: &Limit, now_us: u64) -> Reply;

    /// Whether the call would be admitted later. Who holds a lease now is taken to keep it.
    fn admits_later(&self, limit: &Limit, now_us: u64, later_us: u64) -> bool;

    /// The stored time of a clock that was set back moves to now.
    fn set_back(&mut self, now_us: u64);
}

fn units_of(limit: &Limit) -> (Policy, Word) {
    match limit {
        Limit::Units(policy, word) => (*policy, *word),
        Limit::Lease(lease) => panic!("{lease:?} counts no units"),
    }
}

impl<M: Model> Alone for M {
    fn own(&mut self, limit: &Limit, now_us: u64) -> Reply {
        let (policy, word) = units_of(limit);
        self.judge(policy, now_us, word)
    }

    fn looked(&self, limit: &Limit, now_us: u64) -> Reply {
        let (policy, word) = units_of(limit);
        self.look(policy, now_us, word)
    }

    fn admits_later(&self, limit: &Limit, _now_us: u64, later_us: u64) -> bool {
        let (policy, word) = units_of(limit);
        match word {
            Word::Cost(cost) => self.admits(policy, later_us, cost),
            _ => panic!("{word:?} does not stand in the way"),
        }
    }

    fn set_back(&mut self, now_us: u64) {
        if self.is_ahead_of(now_us) {
            self.step_back(now_us);
        }
    }
}

fn lease_of(limit: &Limit) -> Lease {
    match limit {
        Limit::Lease(lease) => *lease,
        Limit::Units(policy, _) => panic!("{policy:?} knows no leases"),
    }
}

impl Alone for Holders {
    fn own(&mut self, limit: &Limit, now_us: u64) -> Reply {
        self.judge(lease_of(limit), now_us)
    }

    fn looked(&self, limit: &Limit, now_us: u64) -> Reply {
        self.look(lease_of(limit), now_us)
    }

    fn admits_later(&self, limit: &Limit, now_us: u64, later_us: u64) -> bool {
        let lease = lease_of(limit);
        self.holds(lease.id, now_us / MS) || self.admits(lease, later_us / MS)
    }

    fn set_back(&mut self, _now_us: u64) {}
}

fn fresh(limit: &Limit) -> Box<dyn Alone> {
    match limit {
        Limit::Units(Policy::Fixed { .. }, _) => Box::<Fixed>::default(),
        Limit::Units(Policy::Token { .. }, _) => Box::<Token>::default(),
        Limit::Units(Policy::Slide { .. }, _) => Box::<Slide>::default(),
        Limit::Units(Policy::Exact { .. }, _) => Box::<Exact>::default(),
        Limit::Lease(_) => Box::<Holders>::default(),
    }
}

/// Keys beside their models, of which each is called alone or all are at once.
#[derive(Default)]
struct Run {
    keys: Vec<Key>,
    models: Vec<Box<dyn Alone>>,
}

/// `allowed`, `retry_after_ms`, and the reply of each limit.
type Told = (bool, i64, Vec<Reply>);

impl Run {
    /// The server deletes a key whose TTL has passed.
    fn meet(&mut self, limits: &[Limit], now_us: u64) {
        self.keys.resize(limits.len(), Key::default());
        for (index, limit) in limits.iter().enumerate() {
            if self.models.len() == index {
                self.models.push(fresh(limit));
            } else if !self.keys[index].is_live(now_us) {
                self.keys[index] = Key::default();
                self.models[index] = fresh(limit);
            }
        }
    }

    /// One call of one limit, by its own command.
    fn alone(&mut self, limits: &[Limit], index: usize, now_us: u64) -> Reply {
        self.meet(limits, now_us);
        let reply = self.keys[index].ask(&limits[index], now_us).unwrap();
        let expected = self.models[index].own(&limits[index], now_us);
        assert_eq!(reply, expected, "{:?} at {now_us}", limits[index]);
        reply
    }

    /// One call of all limits. Panics with what broke.
    fn all(&mut self, limits: &[Limit], now_us: u64) -> Told {
        self.meet(limits, now_us);
        let before = self.keys.clone();
        let told = told(&call(&mut self.keys, limits, now_us).unwrap());
        let expected = self.expected(limits, now_us);
        assert_eq!(told, expected, "{limits:?} at {now_us} on {before:?}");
        told
    }

    /// What the models tell, which do what is told.
    fn expected(&mut self, limits: &[Limit], now_us: u64) -> Told {
        let each = limits.iter().zip(&self.models);
        let looks: Vec<_> = each
            .map(|(limit, model)| model.looked(limit, now_us))
            .collect();
        let stands_in_the_way = |limit: &Limit, reply: &Reply| limit.can_refuse() && reply[0] == 0;
        let mut asked = limits.iter().zip(&looks);
        let allowed = !asked.any(|(limit, look)| stands_in_the_way(limit, look));
        let replies = if allowed {
            let each = limits.iter().zip(&mut self.models);
            each.map(|(limit, model)| model.own(limit, now_us))
                .collect()
        } else {
            looks
        };
        let mut asked = limits.iter().zip(&replies);
        if asked.any(|(limit, reply)| limit.can_refuse() && reply[3] == -1) {
            return (allowed, -1, replies);
        }
        if !allowed {
            for model in &mut self.models {
                model.set_back(now_us);
            }
        }
        let wait_ms = least_ms(|ms| {
            let mut each = limits.iter().zip(&self.models);
            let later_us = now_us + ms * MS;
            each.all(|(limit, model)| {
                !limit.can_refuse() || model.admits_later(limit, now_us, later_us)
            })
        });
        (allowed, i64::try_from(wait_ms).unwrap(), replies)
    }
}

fn call(keys: &mut [Key], limits: &[Limit], now_us: u64) -> Result<Answer, ErrorOf> {
    let calls: Vec<AnyCall<'_>> = limits.iter().map(Limit::call).collect();
    check_all(keys, &calls, timestamp(now_us))
}

fn told(answer: &Answer) -> Told {
    let verdict = answer.verdict;
    let replies = answer.decisions.iter().map(|told| told.reply()).collect();
    (verdict.is_admitted, verdict.retry_after.reply(), replies)
}

/// What a key limits.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Units(Policy),
    /// At most so many at once, for so many ms.
    Leases(u64, u64),
}

impl Slot {
    fn span_ms(self) -> u64 {
        match self {
            Self::Units(policy) => policy.span_ms(),
            Self::Leases(_, ttl_ms) => ttl_ms,
        }
    }
}

/// Limits that are alike enough to stand in each other's way, or any.
fn slots() -> impl Strategy<Value = Vec<Slot>> {
    let alike = |span_ms: u64| {
        let kind = (0..5_u8, 1..6_u64, select(vec![1, 2, 7]));
        let slot = kind.prop_map(move |(kind, limit, times)| {
            let span_ms = (span_ms * times).min(MAX_SPAN_MS / 8);
            match kind {
                0 => Slot::Units(fixed(limit, span_ms)),
                1 => Slot::Units(token(limit, 1, span_ms)),
                2 => Slot::Units(slide(limit, span_ms)),
                3 => Slot::Units(exact(limit, span_ms)),
                _ => Slot::Leases(limit.min(2), span_ms),
            }
        });
        proptest::collection::vec(slot, 1..=4)
    };
    let any = prop_oneof![
        fixed_policies().prop_map(Slot::Units),
        token_policies().prop_map(Slot::Units),
        slide_policies().prop_map(Slot::Units),
        exact_policies().prop_map(Slot::Units),
        (1..=MAX_LOG, spans_ms()).prop_map(|(limit, ttl_ms)| Slot::Leases(limit, ttl_ms)),
    ];
    prop_oneof![
        3 => spans_ms().prop_flat_map(alike),
        1 => proptest::collection::vec(any, 1..=4),
    ]
}

/// A call of all, or of one alone, relative to what came before.
#[derive(Clone, Debug)]
struct Together {
    gap: Gap,
    /// Whose span and last reply the gap is told in.
    leader: usize,
    /// It alone is called.
    is_alone: bool,
    /// What each is asked.
    asks: Vec<(Step, u16, Hold)>,
}

/// Of up to four limits.
fn together(count: usize) -> impl Strategy<Value = Vec<Together>> {
    let hold = select(vec![Hold::Take, Hold::Take, Hold::Renew, Hold::Release]);
    let step = settling_steps(1).prop_map(|steps| steps[0]);
    let asks = proptest::collection::vec((step, 0..4_u16, hold), 4);
    let one = (asks, 0..4_usize, prop::bool::weighted(0.3));
    let one = one.prop_map(|(asks, leader, is_alone)| Together {
        gap: asks[leader].0.gap,
        leader,
        is_alone,
        asks,
    });
    proptest::collection::vec(one, 1..=count)
}

/// What a call asks of each limit. One of several knows no `UPTO`.
fn asked(slots: &[Slot], walks: &[Walk], step: &Together) -> Vec<Limit> {
    let each = slots.iter().zip(walks).zip(&step.asks);
    let limit = |((slot, walk), (units, id, hold)): ((&Slot, &Walk), &(Step, u16, Hold))| {
        let mut units = *units;
        if !step.is_alone && matches!(units.kind, Kind::UpTo) {
            units.kind = Kind::Cost;
        }
        // A cost above its limit would refuse all that is asked.
        if !step.is_alone && *id != 0 && matches!(units.cost, Cost::Never) {
            units.cost = Cost::One;
        }
        match *slot {
            Slot::Units(policy) => Limit::Units(policy, walk.word(policy, units)),
            Slot::Leases(limit, ttl_ms) => Limit::Lease(Lease::new(limit, ttl_ms, *id, *hold)),
        }
    };
    each.map(limit).collect()
}

fn walk(slots: &[Slot], start_us: u64, steps: &[Together]) -> (Run, Vec<Limit>, u64) {
    let mut run = Run::default();
    let mut walks = vec![Walk::from(start_us); slots.len()];
    let (mut limits, mut now_us) = (Vec::new(), start_us);
    for step in steps {
        let leader = step.leader % slots.len();
        now_us = walks[leader].at(slots[leader].span_ms(), step.gap);
        for walk in &mut walks {
            walk.moved_to(now_us);
        }
        limits = asked(slots, &walks, step);
        if step.is_alone {
            let reply = run.alone(&limits, leader, now_us);
            walks[leader].answered(reply);
        } else {
            let (_, _, replies) = run.all(&limits, now_us);
            for (walk, reply) in walks.iter_mut().zip(replies) {
                walk.answered(reply);
            }
        }
    }
    (run, limits, now_us)
}

/// A state that no command wrote.
fn damage(key: &mut Key, limit: &Limit, how: u8) {
    let damaged = match limit {
        Limit::Units(Policy::Exact { .. }, _) => Value::Log(Vec::new()),
        Limit::Units(..) => Value::Text(b"x".to_vec()),
        Limit::Lease(_) => Value::Leases([(b"x".to_vec(), 0)].into()),
    };
    if how == 0 && key.value != Value::Nothing {
        key.expire_at_ms = None;
    } else {
        key.value = damaged;
        key.expire_at_ms = Some(LAST / MS + 1);
    }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn several_limits_are_decided_as_each_of_them_alone(
        slots in slots(), start_us in instants_us(), steps in together(20),
    ) {
        walk(&slots, start_us, &steps);
    }

    #[test]
    fn none_is_charged_where_one_of_them_is_invalid(
        slots in slots(), start_us in instants_us(), steps in together(8), how in 0..2_u8,
    ) {
        let (run, limits, now_us) = walk(&slots, start_us, &steps);
        for first in 0..limits.len() {
            for second in first..limits.len() {
                let mut keys = run.keys.clone();
                for key in &mut keys {
                    key.expire(timestamp(now_us));
                }
                damage(&mut keys[second], &limits[second], 1);
                damage(&mut keys[first], &limits[first], how);
                let before = keys.clone();
                let limits: Vec<_> = limits.iter().map(|limit| match limit {
                    Limit::Units(policy, Word::UpTo(n)) => Limit::Units(*policy, Word::Cost(*n)),
                    limit => *limit,
                }).collect();
                let error = Error::InvalidState.of(first, limits.len());
                prop_assert_eq!(call(&mut keys, &limits, now_us), Err(error));
                prop_assert_eq!(keys, before);
            }
        }
    }
}

const COST: Word = Word::Cost(1);

/// The integers at one place of all replies.
fn column(replies: &[Reply], place: usize) -> Vec<i64> {
    replies.iter().map(|reply| reply[place]).collect()
}

#[test]
fn all_are_charged_or_none_is() {
    let second = Limit::Units(fixed(2, 1_000), COST);
    let day = Limit::Units(fixed(3, 86_400_000), COST);
    let mut run = Run::default();
    for (after_us, told) in [
        (
            0,
            (true, 0, vec![[1, 2, 1, 0, 1_000], [1, 3, 2, 0, 86_400_000]]),
        ),
        (
            0,
            (
                true,
                1_000,
                vec![[1, 2, 0, 1_000, 1_000], [1, 3, 1, 0, 86_400_000]],
            ),
        ),
        // The second refuses, and the day keeps its last one.
        (
            0,
            (
                false,
                1_000,
                vec![[0, 2, 0, 1_000, 1_000], [1, 3, 1, 0, 86_400_000]],
            ),
        ),
        (
            SECOND,
            (
                true,
                86_399_000,
                vec![[1, 2, 1, 0, 1_000], [1, 3, 0, 86_399_000, 86_399_000]],
            ),
        ),
        (
            SECOND,
            (
                false,
                86_399_000,
                vec![[1, 2, 1, 0, 1_000], [0, 3, 0, 86_399_000, 86_399_000]],
            ),
        ),
    ] {
        assert_eq!(run.all(&[second, day], T0 + after_us), told);
    }
}

#[test]
fn what_can_t_be_refused_stands_in_nobody_s_way_and_waits_for_the_others() {
    let bucket = |word| Limit::Units(token(10, 1, 1_000), word);
    let window = |cost| Limit::Units(fixed(2, 60_000), Word::Cost(cost));
    let quiet = Limit::Lease(release(1, 1_000, 7));
    let mut run = Run::default();
    let limits = [bucket(Word::Force(25)), window(2), quiet];
    // Neither fits, and neither is asked.
    let replies = vec![
        [0, 10, 0, -1, 25_000],
        [1, 2, 0, 60_000, 60_000],
        [0, 1, 1, -1, 0],
    ];
    assert_eq!(run.all(&limits, T0), (true, 60_000, replies));
    for (word, looked) in [
        (Word::Force(1), [0, 10, 0, 16_000, 25_000]),
        (Word::Refund(9), [1, 10, 0, 0, 25_000]),
    ] {
        let before = run.keys.clone();
        let replies = vec![looked, [0, 2, 0, 60_000, 60_000], [0, 1, 1, -1, 0]];
        let told = run.all(&[bucket(word), window(1), quiet], T0);
        assert_eq!(told, (false, 60_000, replies), "{word:?}");
        assert_eq!(run.keys, before);
    }
}

#[test]
fn nothing_that_can_be_refused_is_never_refused() {
    let mut run = Run::default();
    let limits = [
        Limit::Units(slide(1, 1_000), Word::Force(9)),
        Limit::Units(exact(1, 1_000), Word::Refund(9)),
        Limit::Lease(release(1, 1_000, 7)),
    ];
    let (allowed, wait_ms, replies) = run.all(&limits, T0);
    assert_eq!((allowed, wait_ms), (true, 0));
    assert_eq!(column(&replies, 0), [0, 1, 0]);
}

#[test]
fn one_that_is_never_admitted_makes_all_of_them_wait_for_ever() {
    for never in [
        Limit::Units(fixed(2, 60_000), Word::Cost(3)),
        Limit::Lease(renew(2, 60_000, 7)),
    ] {
        let mut run = Run::default();
        let window = Limit::Units(fixed(1, 1_000), COST);
        assert!(run.alone(&[window], 0, T0)[0] == 1);
        let (allowed, wait_ms, replies) = run.all(&[window, never], T0);
        assert_eq!((allowed, wait_ms), (false, -1));
        assert_eq!(column(&replies, 3), [1_000, -1]);
    }
}

/// As a refused call of one limit does; not for one that is never admitted.
#[test]
fn a_refused_call_stores_every_step_back_and_nothing_else() {
    let bucket = Limit::Units(token(10, 1, 1_000), COST);
    let log = Limit::Units(exact(10, 1_000), Word::Refund(1));
    let window = |cost| Limit::Units(slide(4, 1_000), Word::Cost(cost));
    let mut run = Run::default();
    let charge = Limit::Units(exact(10, 1_000), COST);
    assert!(run.all(&[bucket, charge, window(4)], T0).0);
    let before = run.keys.clone();
    let back_us = T0 - HOUR;
    assert_eq!(run.all(&[bucket, log, window(5)], back_us).1, -1);
    assert_eq!(run.keys, before);
    assert!(!run.all(&[bucket, log, window(1)], back_us).0);
    let ttl_ms = |key: &Key| key.expire_at_ms().unwrap();
    let texts = [
        format!("T1:9000000:1000000:{back_us}"),
        format!("S1:1000:{}:0:4", back_us / MS),
    ];
    assert_eq!(run.keys[0], Key::text(&texts[0], ttl_ms(&before[0])));
    assert_eq!(run.keys[1], Key::log(&[back_us], ttl_ms(&before[1])));
    assert_eq!(run.keys[2], Key::text(&texts[1], ttl_ms(&before[2])));
}

/// The one case in which the wait is a lower bound.
#[test]
fn a_lease_that_ends_before_the_wait_is_over_may_have_to_be_taken_again() {
    let window = Limit::Units(fixed(1, 60_000), COST);
    let own = Limit::Lease(take(1, 10_000, 1));
    let mut run = Run::default();
    assert!(run.all(&[window, own], T0).0);
    assert_eq!(run.all(&[window, own], T0).1, 60_000);
    // Somebody else takes the place once it is free.
    let other = Limit::Lease(take(1, 100_000, 2));
    assert_eq!(run.alone(&[window, other], 1, T0 + 10 * SECOND)[0], 1);
    let (allowed, wait_ms, _) = run.all(&[window, own], T0 + 60 * SECOND);
    assert_eq!((allowed, wait_ms), (false, 50_000));
}

/// A second try of the same request is told from the first by the limit of its id.
#[test]
fn a_request_s_id_is_a_limit_of_its_own() {
    let id = Limit::Units(fixed(1, 60_000), COST);
    let work = Limit::Units(token(5, 1, 1_000), COST);
    let mut run = Run::default();
    let allowed = |told: Told| (told.0, column(&told.2, 0));
    assert_eq!(allowed(run.all(&[id, work], T0)), (true, vec![1, 1]));
    assert_eq!(allowed(run.all(&[id, work], T0)), (false, vec![0, 1]));
    assert_eq!(run.keys[1].get(), format!("T1:4000000:1000000:{T0}"));
}

/// The answer of the last call is what its own command tells after it.
#[test]
fn one_key_alone_is_decided_as_by_its_own_command() {
    for limit in [
        Limit::Units(fixed(2, 1_000), COST),
        Limit::Units(token(2, 1, 1_000), COST),
        Limit::Units(slide(2, 1_000), COST),
        Limit::Units(exact(2, 1_000), COST),
        Limit::Lease(take(2, 1_000, 1)),
    ] {
        let (mut run, mut own) = (Run::default(), Key::default());
        for after_us in [0, 1, 999, 500_000, 1_000_000, 2_000_000] {
            let (allowed, wait_ms, replies) = run.all(&[limit], T0 + after_us);
            let reply = own.ask(&limit, T0 + after_us).unwrap();
            assert_eq!((i64::from(allowed), wait_ms), (reply[0], reply[3]));
            assert_eq!(replies, [reply]);
        }
        assert_eq!(run.keys, [own]);
    }
}
