//! A key beside its model: every step is judged by both, and checked against every promise that
//! holds for any call.

use crate::call::{LAST, Policy, Reply};
use crate::oracle::Model;
use crate::store::Key;
use crate::word::Word;

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
    pub fn step(&mut self, policy: Policy, now_us: u64, word: impl Into<Word>) -> Reply {
        let word = word.into();
        if !self.key.is_live(now_us) {
            self.forget(now_us);
        }
        let stepped_back = self.model.is_ahead_of(now_us);
        let before = self.key.clone();
        let peeked = self.key.peek(policy, now_us, word).unwrap();
        if !stepped_back {
            self.assert_waits(policy, now_us, word, peeked);
        }
        let reply = self.key.call(policy, now_us, word).unwrap();
        let expected = self.model.judge(policy, now_us, word);
        let context = || format!("{policy:?} of {word:?} at {now_us} on {before:?}");
        assert_eq!(reply, expected, "not as the oracle: {}", context());

        let [allowed, limit, remaining, ..] = reply;
        assert!((0..=limit).contains(&remaining), "{}", context());
        assert_peeked(word, peeked, reply, &context());
        // What is used is told by the time until nothing is.
        let charged = match word {
            Word::Cost(_) | Word::UpTo(_) => allowed > 0,
            Word::Force(_) => true,
            Word::Refund(_) => peeked[4] > 0,
        };
        let stores = charged
            || stepped_back && !matches!(word, Word::Refund(_)) && !word.is_never(policy.limit());
        if charged {
            self.writer = Some(policy);
            if self.key.is_live(now_us) {
                self.assert_lifetime(policy, now_us, reply);
            } else {
                assert_eq!(self.key, Key::default(), "{}", context());
                assert_eq!(reply[4], 0, "a key in use was deleted: {}", context());
            }
        } else if stores {
            let (was, is) = (before.expire_at_ms(), self.key.expire_at_ms());
            assert_eq!(was, is, "a refusal set a TTL: {}", context());
        } else {
            let kept = before == self.key || !before.is_live(now_us);
            assert!(kept, "a call that changes nothing wrote: {}", context());
        }
        self.key.assert_valid(policy);
        if stores || !stepped_back {
            self.assert_waits(policy, now_us, word, reply);
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
                // Longer only for a bucket that owes, and then just as long as it does.
                let double_ms = u64::try_from(double / u128::from(refill)).unwrap();
                reset_after_ms.max(double_ms + 1_000)
            }
            Policy::Exact { window_ms, .. } => 2 * window_ms + 1_000,
        };
        assert!(ttl_ms <= longest_ms, "TTL {ttl_ms} > {longest_ms}");
    }

    /// Waits the stated times, on copies of the key.
    fn assert_waits(&self, policy: Policy, now_us: u64, word: Word, reply: Reply) {
        let admitted_after = |wait_ms: u64, word: Word| {
            let at_us = now_us + wait_ms * 1_000;
            (at_us <= LAST).then(|| self.key.clone().call(policy, at_us, word).unwrap()[0] > 0)
        };
        // A policy that fills more slowly than the one that set the TTL may see the key go first.
        let still_there = |wait_ms: u64| self.key.is_live(now_us + wait_ms * 1_000);
        let [_, _, _, retry_after_ms, reset_after_ms] = reply;
        match u64::try_from(retry_after_ms) {
            Ok(wait_ms) => {
                assert_ne!(
                    admitted_after(wait_ms, word),
                    Some(false),
                    "after {wait_ms}"
                );
                if wait_ms > 0 && still_there(wait_ms - 1) {
                    let sooner = admitted_after(wait_ms - 1, word);
                    assert_ne!(sooner, Some(true), "sooner than {wait_ms}");
                }
            }
            Err(_) => assert!(retry_after_ms == -1 && word.is_never(policy.limit())),
        }
        // Nothing is used just when the whole limit can be taken.
        let wait_ms = u64::try_from(reset_after_ms).unwrap();
        let whole = Word::Cost(policy.limit());
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

/// What a look told, beside what the call then did.
fn assert_peeked(word: Word, peeked: Reply, reply: Reply, context: &str) {
    let [allowed, limit, remaining, ..] = reply;
    match word {
        Word::Refund(_) => {
            assert_eq!(
                [peeked[0], peeked[1], peeked[3]],
                [1, limit, 0],
                "{context}"
            );
            assert_eq!([allowed, reply[3]], [1, 0], "{context}");
            assert!(peeked[2] <= remaining, "{context}");
        }
        Word::Force(_) => {
            assert_eq!(peeked[..2], [allowed, limit], "{context}");
            assert!(peeked[2] >= remaining, "{context}");
        }
        Word::Cost(_) | Word::UpTo(_) if allowed == 0 => {
            assert_eq!(peeked, reply, "{context}");
        }
        Word::Cost(n) => {
            let before = remaining + i64::try_from(n).unwrap();
            assert_eq!(peeked[..4], [1, limit, before, 0], "{context}");
        }
        Word::UpTo(_) => {
            let before = remaining + allowed;
            assert_eq!(peeked[..4], [allowed, limit, before, 0], "{context}");
        }
    }
}

/// Steps through a table of policy, instant in µs, word (a number is a cost) and expected reply.
pub fn table<M: Model>(rows: &[(Policy, u64, impl Into<Word> + Copy, Reply)]) -> Run<M> {
    let mut run = Run::new();
    for (policy, now_us, word, expected) in rows {
        let word = (*word).into();
        let reply = run.step(*policy, *now_us, word);
        assert_eq!(reply, *expected, "{policy:?} of {word:?} at {now_us}");
    }
    run
}
