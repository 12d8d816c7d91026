//! What `RL.LEASE` promises, beside that every reply is the model's.

use proptest::prelude::*;
use redis_rl::policy::{Hold, MAX_LEASES};

use crate::call::{FIRST, LAST, MAX_SPAN_MS, MS, Reply, SECOND, T0};
use crate::holders::Holders;
use crate::limit::{Lease, release, renew, take};
use crate::random::{LeaseStep, Walk, config, instants_us, lease_steps};
use crate::store::Key;

/// A key of leases beside its model: every step is judged by both, and checked against every promise
/// that holds for any call.
#[derive(Clone, Debug, Default)]
struct Run {
    key: Key,
    holders: Holders,
    /// The longest TTL since the key was made.
    longest_ms: u64,
    latest_us: u64,
    /// Whether the clock has ever stepped back.
    stepped_back: bool,
}

impl Run {
    /// One call. Panics with what broke.
    fn step(&mut self, lease: Lease, now_us: u64) -> Reply {
        let now_ms = now_us / MS;
        self.stepped_back |= now_us < self.latest_us;
        self.latest_us = now_us;
        if !self.key.is_live(now_us) {
            assert!(self.holders.unused(now_ms), "the key went: {self:?}");
            self.holders = Holders::default();
            self.longest_ms = 0;
        }
        let before = self.key.clone();
        let context = || format!("{lease:?} at {now_us} on {before:?}");
        let was_held = self.holders.holds(lease.id, now_ms);
        let peeked = self.key.peek_hold(lease, now_us).unwrap();
        assert_eq!(peeked, self.holders.look(lease, now_us), "{}", context());
        self.assert_waits(lease, now_us, peeked);

        let reply = self.key.hold(lease, now_us).unwrap();
        assert_eq!(reply, self.holders.judge(lease, now_us), "{}", context());
        let allowed = reply[0] == 1;
        assert_eq!(peeked[..2], reply[..2], "a look tells: {}", context());
        if !allowed {
            assert_eq!(peeked, reply, "a look tells: {}", context());
            let kept = before == self.key || !before.is_live(now_us);
            assert!(kept, "a refused call wrote: {}", context());
        }
        assert_eq!(self.key.members(), self.holders.members(), "{}", context());
        self.key.assert_valid_leases();
        if allowed {
            self.longest_ms = self.longest_ms.max(lease.ttl_ms);
            self.assert_admitted(lease, now_ms, was_held, &before, reply);
        }
        self.assert_waits(lease, now_us, reply);
        reply
    }

    fn assert_admitted(
        &self,
        lease: Lease,
        now_ms: u64,
        was_held: bool,
        before: &Key,
        reply: Reply,
    ) {
        let ends_ms = self.key.members().into_iter().map(|member| member.1);
        let live = ends_ms.filter(|end_ms| *end_ms > now_ms).count();
        let live = u64::try_from(live).unwrap();
        let is_new = lease.hold == Hold::Take && !was_held;
        assert!(
            !is_new || live <= lease.limit,
            "{live} live: {:?}",
            self.key
        );
        if lease.hold == Hold::Release {
            let (was, is) = (before.expire_at_ms(), self.key.expire_at_ms());
            assert!(was == is || live == 0, "a release set a TTL");
            return;
        }
        let ttl_ms = self.key.expire_at_ms().unwrap() - now_ms;
        let reset_after_ms = u64::try_from(reply[4]).unwrap();
        assert!(ttl_ms >= reset_after_ms, "TTL {ttl_ms} < {reset_after_ms}");
        let longest_ms = 2 * self.longest_ms + 1_000;
        assert!(self.stepped_back || ttl_ms <= longest_ms, "TTL {ttl_ms}");
    }

    /// Waits the stated times, on copies of the key.
    fn assert_waits(&self, lease: Lease, now_us: u64, reply: Reply) {
        let admitted_after = |ms: u64, lease: Lease| {
            let at_us = now_us + ms * MS;
            (at_us <= LAST).then(|| self.key.clone().hold(lease, at_us).unwrap()[0] == 1)
        };
        let [_, _, _, retry_after_ms, reset_after_ms] = reply;
        match u64::try_from(retry_after_ms) {
            // Of a lease that was released, nothing is left to release again.
            Ok(0) if lease.hold == Hold::Release => {}
            Ok(ms) => {
                assert_ne!(admitted_after(ms, lease), Some(false), "after {ms}");
                let sooner = ms.checked_sub(1).and_then(|ms| admitted_after(ms, lease));
                assert_ne!(sooner, Some(true), "sooner than {ms}");
            }
            Err(_) => {
                assert!(retry_after_ms == -1 && lease.hold != Hold::Take);
                for ms in [0, 1, lease.ttl_ms, u64::try_from(reset_after_ms).unwrap()] {
                    assert_ne!(admitted_after(ms, lease), Some(true), "after {ms}");
                }
            }
        }
        // Nothing is used just when the only place there is can be taken.
        let ms = u64::try_from(reset_after_ms).unwrap();
        let only = take(1, 1, u16::MAX);
        assert_ne!(admitted_after(ms, only), Some(false), "reset {ms}");
        let sooner = ms.checked_sub(1).and_then(|ms| admitted_after(ms, only));
        assert_ne!(sooner, Some(true), "reset sooner than {ms}");
    }
}

fn walk(start_us: u64, steps: &[LeaseStep]) -> Run {
    let (mut run, mut walk) = (Run::default(), Walk::from(start_us));
    for step in steps {
        let now_us = walk.at(step.lease.ttl_ms, step.gap);
        walk.answered(run.step(step.lease, now_us));
    }
    run
}

/// Steps through a table of call, µs after [`T0`] and expected reply.
fn table(rows: &[(Lease, u64, Reply)]) -> Run {
    let mut run = Run::default();
    for (lease, after_us, expected) in rows {
        let reply = run.step(*lease, T0 + after_us);
        assert_eq!(reply, *expected, "{lease:?} after {after_us}");
    }
    run
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn leases_are_decided_as_defined(
        start_us in instants_us(), steps in lease_steps(40, 40),
    ) {
        walk(start_us, &steps);
    }

    #[test]
    fn leases_are_decided_as_defined_while_their_policy_changes(
        start_us in instants_us(), steps in lease_steps(40, 3),
    ) {
        walk(start_us, &steps);
    }

    /// Counted from the key alone.
    #[test]
    fn no_more_than_the_limit_are_ever_live_under_one_limit(
        start_us in instants_us(), steps in lease_steps(40, 40), limit in 1..4_u64,
    ) {
        let (mut key, mut walk) = (Key::default(), Walk::from(start_us));
        let mut latest_us = 0;
        for step in steps {
            let now_us = walk.at(step.lease.ttl_ms, step.gap);
            // Leases that were over are live again when the clock is set back.
            if now_us < latest_us {
                continue;
            }
            latest_us = now_us;
            walk.answered(key.hold(Lease { limit, ..step.lease }, now_us).unwrap());
            let live = key.members().into_iter().filter(|member| member.1 > now_us / MS);
            prop_assert!(live.count() <= usize::try_from(limit).unwrap());
        }
    }
}

#[test]
fn a_place_is_free_once_its_lease_has_ended_and_not_a_millisecond_sooner() {
    let run = table(&[
        (take(2, 30_000, 1), 999, [1, 2, 1, 0, 30_000]),
        (take(2, 30_000, 2), 10_000_000, [1, 2, 0, 0, 30_000]),
        (take(2, 30_000, 3), 20_000_000, [0, 2, 0, 10_000, 20_000]),
        (take(2, 30_000, 3), 29_999_999, [0, 2, 0, 1, 10_001]),
        (take(2, 30_000, 3), 30_000_000, [1, 2, 0, 0, 30_000]),
    ]);
    let ms = T0 / MS;
    let members = [(2, ms + 40_000), (3, ms + 60_000)];
    // That of the last call: until 60 s, and half of the slack, which is 31 s.
    assert_eq!(run.key, Key::leases_of(&members, ms + 75_500));
}

#[test]
fn a_second_call_with_the_same_id_takes_no_second_place() {
    let run = table(&[
        (take(2, 30_000, 1), 0, [1, 2, 1, 0, 30_000]),
        (take(2, 30_000, 1), 0, [1, 2, 1, 0, 30_000]),
        (take(2, 30_000, 1), 5_000_000, [1, 2, 1, 0, 30_000]),
        (take(2, 30_000, 2), 6_000_000, [1, 2, 0, 0, 30_000]),
        // Even where it is the one place too many; and it may end sooner than it did.
        (take(1, 1_000, 1), 6_000_000, [1, 1, 0, 0, 30_000]),
        (take(1, 1_000, 3), 6_000_000, [0, 1, 0, 30_000, 30_000]),
    ]);
    let ms = T0 / MS;
    assert_eq!(run.key.members(), [(1, ms + 7_000), (2, ms + 36_000)]);
}

#[test]
fn only_a_live_lease_is_renewed_or_released() {
    let run = table(&[
        (renew(2, 30_000, 1), 0, [0, 2, 2, -1, 0]),
        (release(2, 30_000, 1), 0, [0, 2, 2, -1, 0]),
        (take(2, 30_000, 1), 0, [1, 2, 1, 0, 30_000]),
        (renew(2, 30_000, 2), 0, [0, 2, 1, -1, 30_000]),
        (release(2, 30_000, 2), 0, [0, 2, 1, -1, 30_000]),
        (renew(2, 30_000, 1), 29_999_999, [1, 2, 1, 0, 30_000]),
        (take(2, 30_000, 2), 30_000_000, [1, 2, 0, 0, 30_000]),
        (release(2, 30_000, 1), 40_000_000, [1, 2, 1, 0, 20_000]),
        (release(2, 30_000, 1), 40_000_000, [0, 2, 1, -1, 20_000]),
        // It has just ended.
        (renew(2, 30_000, 2), 60_000_000, [0, 2, 2, -1, 0]),
        (release(2, 30_000, 2), 60_000_000, [0, 2, 2, -1, 0]),
    ]);
    assert_eq!(run.key.members(), [(2, T0 / MS + 60_000)]);
}

#[test]
fn a_key_goes_with_the_last_live_lease() {
    let run = table(&[
        (take(3, 1_000, 1), 0, [1, 3, 2, 0, 1_000]),
        (take(3, 5_000, 2), 0, [1, 3, 1, 0, 5_000]),
        // The first one is over, and leaves with it.
        (release(3, 1_000, 2), 2_000_000, [1, 3, 3, 0, 0]),
    ]);
    assert_eq!(run.key, Key::default());
}

#[test]
fn what_is_over_leaves_with_the_next_admitted_call() {
    let run = table(&[
        (take(2, 1_000, 1), 0, [1, 2, 1, 0, 1_000]),
        (take(2, 9_000, 2), 0, [1, 2, 0, 0, 9_000]),
        (renew(2, 9_000, 1), 1_000_000, [0, 2, 1, -1, 8_000]),
    ]);
    let ms = T0 / MS;
    assert_eq!(run.key.members(), [(1, ms + 1_000), (2, ms + 9_000)]);
    for (lease, members) in [
        (take(2, 5_000, 3), vec![(2, ms + 9_000), (3, ms + 6_000)]),
        (take(2, 5_000, 1), vec![(1, ms + 6_000), (2, ms + 9_000)]),
        (renew(2, 5_000, 2), vec![(2, ms + 6_000)]),
    ] {
        let mut run = run.clone();
        assert_eq!(run.step(lease, T0 + SECOND)[0], 1);
        assert_eq!(run.key.members(), members, "{lease:?}");
    }
}

#[test]
fn a_limit_that_is_lowered_waits_for_as_many_as_are_too_many() {
    table(&[
        (take(3, 1_000, 1), 0, [1, 3, 2, 0, 1_000]),
        (take(3, 2_000, 2), 0, [1, 3, 1, 0, 2_000]),
        (take(3, 3_000, 3), 0, [1, 3, 0, 0, 3_000]),
        (take(3, 1_000, 4), 0, [0, 3, 0, 1_000, 3_000]),
        (take(2, 1_000, 4), 0, [0, 2, 0, 2_000, 3_000]),
        (take(1, 1_000, 4), 0, [0, 1, 0, 3_000, 3_000]),
        (renew(1, 2_500, 1), 0, [1, 1, 0, 0, 3_000]),
        (take(4, 1_000, 4), 0, [1, 4, 0, 0, 3_000]),
    ]);
}

/// Nothing is stored of the clock.
#[test]
fn leases_last_longer_by_a_step_back_and_end_sooner_by_a_step_forward() {
    let mut run = table(&[(take(1, 30_000, 1), 0, [1, 1, 0, 0, 30_000])]);
    for back_us in [1, 999, 1_000, 1_001, SECOND] {
        let wait_ms = 30_000 + i64::try_from(back_us.div_ceil(MS)).unwrap();
        let mut back = run.clone();
        let reply = back.step(take(1, 30_000, 2), T0 - back_us);
        assert_eq!(reply, [0, 1, 0, wait_ms, wait_ms]);
    }
    assert_eq!(run.step(take(1, 30_000, 2), T0 + 30 * SECOND)[0], 1);
}

#[test]
fn an_expiry_is_set_only_where_the_one_at_hand_is_out_of_its_bounds() {
    for (ttl_ms, after_ms, renewed) in [
        // It is at 15.5 s, up to which a lease may last.
        (10_000, 5_500, false),
        (10_000, 5_501, true),
        // The last of them ends in 4.5 s, for which it may be at 15.5 s; in 4.499 s, at 15.499 s.
        (1, 0, false),
        (1, 5_500, false),
        (1, 5_501, true),
        (10_000, 1, false),
    ] {
        let mut run = table(&[(take(2, 10_000, 1), 0, [1, 2, 1, 0, 10_000])]);
        let before = run.key.expire_at_ms();
        assert_eq!(run.step(take(2, ttl_ms, 2), T0 + after_ms * MS)[0], 1);
        let is_renewed = run.key.expire_at_ms() != before;
        assert_eq!(is_renewed, renewed, "{ttl_ms} after {after_ms}");
    }
}

/// Every combination of the ends of every range, at instants from the clock's first to its last.
#[test]
fn every_extreme_lease_keeps_every_promise() {
    for ttl_ms in [1, 2, 1_000, MAX_SPAN_MS - 1, MAX_SPAN_MS] {
        for other_ms in [1, 1_000, MAX_SPAN_MS] {
            for start_us in [FIRST, FIRST + 1, T0 + 999, LAST - SECOND, LAST] {
                let mut run = Run::default();
                for (after_us, lease) in [
                    (0, take(1, ttl_ms, 1)),
                    (0, take(MAX_LEASES, other_ms, 2)),
                    (0, take(2, ttl_ms, 3)),
                    (999, renew(1, other_ms, 1)),
                    (ttl_ms * MS - 1, take(1, 1, 3)),
                    (ttl_ms * MS, take(1, ttl_ms, 3)),
                    (ttl_ms * MS, release(1, 1, 2)),
                    (0, take(2, other_ms, 2)),
                    (2 * MAX_SPAN_MS * MS, renew(1, ttl_ms, 3)),
                    (LAST, take(1, ttl_ms, 1)),
                    (0, release(1, 1, 1)),
                ] {
                    run.step(lease, (start_us + after_us).min(LAST));
                }
            }
        }
    }
}

#[test]
fn a_clock_steps_between_its_ends_and_leases_last_as_much_longer() {
    let century = MAX_SPAN_MS;
    let mut run = Run::default();
    let wait_ms = i64::try_from(century).unwrap();
    assert_eq!(run.step(take(1, century, 1), LAST), [1, 1, 0, 0, wait_ms]);
    let wait_ms = i64::try_from(LAST / MS - FIRST / MS + century).unwrap();
    let reply = run.step(take(1, century, 2), FIRST);
    assert_eq!(reply, [0, 1, 0, wait_ms, wait_ms]);
    assert_eq!(run.step(take(2, 1, 2), FIRST), [1, 2, 0, 0, wait_ms]);
    assert_eq!(run.step(release(2, 1, 1), FIRST), [1, 2, 1, 0, 1]);
}

#[test]
fn ten_thousand_leases_are_live_at_once() {
    let count = u16::try_from(MAX_LEASES).unwrap();
    let (mut key, ms) = (Key::default(), T0 / MS);
    for id in 0..count {
        // They end one after the other.
        let lease = take(MAX_LEASES, 1_000 + u64::from(id), id);
        assert_eq!(key.hold(lease, T0).unwrap()[0], 1);
    }
    assert_eq!(key.members().len(), usize::from(count));
    let more = |limit| take(limit, 1_000, count);
    let last = ms + 10_999;
    let most = 10_000;
    assert_eq!(
        key.peek_hold(more(MAX_LEASES), T0),
        Ok([0, most, 0, 1_000, 10_999])
    );
    assert_eq!(key.peek_hold(more(1), T0), Ok([0, 1, 0, 10_999, 10_999]));
    assert_eq!(
        key.peek_hold(more(5_000), T0),
        Ok([0, 5_000, 0, 6_000, 10_999])
    );
    // Half of them leave with one call.
    let reply = key.hold(more(MAX_LEASES), T0 + 6_000 * MS).unwrap();
    assert_eq!(reply, [1, most, 5_000, 0, 4_999]);
    assert_eq!(key.members().len(), 5_000);
    assert!(key.expire_at_ms() >= Some(last));
}
