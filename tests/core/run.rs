//! A key beside its model: every step is judged by both, and checked against every promise that
//! holds for any call.

use crate::call::{LAST, Policy, Reply};
use crate::oracle::Model;
use crate::store::Key;

#[derive(Clone, Debug)]
pub struct Run<M> {
    pub key: Key,
    model: M,
    /// The policy of the last call that was admitted.
    writer: Option<Policy>,
}

impl<M: Model> Run<M> {
    pub fn new() -> Self {
        Self {
            key: Key::default(),
            model: M::default(),
            writer: None,
        }
    }

    /// One call. Panics with what broke.
    pub fn step(&mut self, policy: Policy, now_us: u64, cost: u64) -> Reply {
        if !self.key.is_live(now_us) {
            self.forget(now_us);
        }
        let stepped_back = self.model.is_ahead_of(now_us);
        let before = self.key.clone();
        let peeked = self.key.peek(policy, now_us, cost).unwrap();
        if !stepped_back {
            self.assert_waits(policy, now_us, cost, peeked);
        }
        let reply = self.key.call(policy, now_us, cost).unwrap();
        let expected = self.model.judge(policy, now_us, cost);
        let context = || format!("{policy:?} of {cost} at {now_us} on {before:?}");
        assert_eq!(reply, expected, "not as the oracle: {}", context());

        let [allowed, limit, remaining, ..] = reply;
        if allowed == 1 {
            let taken = i64::try_from(cost).unwrap();
            assert_eq!(
                peeked[..4],
                [1, limit, remaining + taken, 0],
                "{}",
                context()
            );
        } else {
            assert_eq!(peeked, reply, "{}", context());
        }
        assert!((0..=limit).contains(&remaining), "{}", context());
        if allowed == 1 {
            self.writer = Some(policy);
            self.assert_lifetime(policy, now_us, reply);
        } else if !stepped_back || cost > policy.limit() {
            let kept = before == self.key || !before.is_live(now_us);
            assert!(kept, "a refusal wrote: {}", context());
        } else {
            let (was, is) = (before.expire_at_ms(), self.key.expire_at_ms());
            assert_eq!(was, is, "a refusal set a TTL: {}", context());
        }
        self.key.assert_valid(policy);
        if !(stepped_back && cost > policy.limit()) {
            self.assert_waits(policy, now_us, cost, reply);
        }
        reply
    }

    /// The key is gone, which may be only once it told nothing.
    fn forget(&mut self, now_us: u64) {
        if let Some(writer) = self.writer {
            assert!(
                self.model.unused(writer, now_us),
                "{:?} went before its time, at {now_us}",
                self.key
            );
        }
        self.model = M::default();
        self.writer = None;
    }

    fn assert_lifetime(&self, policy: Policy, now_us: u64, reply: Reply) {
        let now_ms = now_us / 1_000;
        let reset_after_ms = u64::try_from(reply[4]).unwrap();
        let ttl_ms = self.key.expire_at_ms().unwrap() - now_ms;
        assert!(ttl_ms >= reset_after_ms, "TTL {ttl_ms} < {reset_after_ms}");
        let longest_ms = match policy {
            // The window's end, and the end of the window after the current one.
            Policy::Fixed { .. } | Policy::Slide { .. } => reset_after_ms,
            Policy::Token {
                capacity,
                refill,
                period_ms,
            } => {
                let double = 2 * u128::from(capacity) * u128::from(period_ms);
                u64::try_from(double / u128::from(refill)).unwrap() + 1_000
            }
            Policy::Exact { window_ms, .. } => 2 * window_ms + 1_000,
        };
        assert!(ttl_ms <= longest_ms, "TTL {ttl_ms} > {longest_ms}");
    }

    /// Waits the stated times, on copies of the key.
    fn assert_waits(&self, policy: Policy, now_us: u64, cost: u64, reply: Reply) {
        let admitted_after = |wait_ms: u64, cost: u64| {
            let at_us = now_us + wait_ms * 1_000;
            (at_us <= LAST).then(|| self.key.clone().call(policy, at_us, cost).unwrap()[0] == 1)
        };
        // A policy that fills more slowly than the one that set the TTL may see the key go first.
        let still_there = |wait_ms: u64| self.key.is_live(now_us + wait_ms * 1_000);
        let [_, _, _, retry_after_ms, reset_after_ms] = reply;
        match u64::try_from(retry_after_ms) {
            Ok(wait_ms) => {
                assert_ne!(
                    admitted_after(wait_ms, cost),
                    Some(false),
                    "after {wait_ms}"
                );
                if wait_ms > 0 && still_there(wait_ms - 1) {
                    let sooner = admitted_after(wait_ms - 1, cost);
                    assert_ne!(sooner, Some(true), "sooner than {wait_ms}");
                }
            }
            Err(_) => assert!(retry_after_ms == -1 && cost > policy.limit()),
        }
        // Nothing is used just when the whole limit can be taken.
        let wait_ms = u64::try_from(reset_after_ms).unwrap();
        let whole = policy.limit();
        assert_ne!(
            admitted_after(wait_ms, whole),
            Some(false),
            "reset {wait_ms}"
        );
        if wait_ms > 0 && still_there(wait_ms - 1) {
            let sooner = admitted_after(wait_ms - 1, whole);
            assert_ne!(sooner, Some(true), "reset sooner than {wait_ms}");
        }
    }
}

/// Steps through a table of policy, instant in µs, cost and expected reply.
pub fn table<M: Model>(rows: &[(Policy, u64, u64, Reply)]) -> Run<M> {
    let mut run = Run::new();
    for (policy, now_us, cost, expected) in rows {
        let reply = run.step(*policy, *now_us, *cost);
        assert_eq!(reply, *expected, "{policy:?} of {cost} at {now_us}");
    }
    run
}
