//! The model: what the definitions say, counted out event by event.
//!
//! Written from the contract, apart from the code under test and with none of its formulas. Each
//! algorithm answers two questions of an instant, "would this cost be admitted?" and "is nothing
//! used?". All else follows from the meaning of the reply: `remaining` is the greatest cost that
//! would be admitted, a wait the least number of milliseconds after which the answer is yes, and
//! both are found by halving.

use crate::call::{MAX_SPAN_MS, Policy, Reply};
use crate::word::Word;

/// A clock that is behind by no more than this stands still, in µs.
const JITTER_US: u64 = 1_000;

/// What a call does.
#[derive(Clone, Debug)]
pub struct Act<M> {
    after: M,
    allowed: u64,
    /// The cost that the same call has to have room for, if any.
    needed: Option<u64>,
    /// What writes nothing leaves the stored time too.
    writes: bool,
}

/// What one algorithm remembers of one key.
pub trait Model: Clone + Default {
    /// Whether `cost` would be admitted at an instant.
    fn admits(&self, policy: Policy, at_us: u64, cost: u64) -> bool;

    /// Whether nothing is used at an instant.
    fn unused(&self, policy: Policy, at_us: u64) -> bool;

    /// Charges `cost`, whether or not it fits.
    fn take(&mut self, policy: Policy, at_us: u64, cost: u64);

    /// Gives units back, where something is used.
    fn give_back(&mut self, policy: Policy, at_us: u64, units: u64);

    /// The stored time, which a clock may be behind.
    fn stored_us(&self) -> Option<u64>;

    /// The clock was set back to `now_us`, which becomes the stored time.
    fn step_back(&mut self, now_us: u64);

    fn is_ahead_of(&self, now_us: u64) -> bool {
        self.stored_us()
            .is_some_and(|stored_us| stored_us > now_us + JITTER_US)
    }

    /// The instant at which a call is judged.
    fn judged_us(&self, now_us: u64) -> u64 {
        self.stored_us().map_or(now_us, |us| us.max(now_us))
    }

    /// What a call does: what is remembered after it, and what the reply rests on.
    fn act(&self, policy: Policy, now_us: u64, word: Word) -> Act<Self> {
        let mut after = self.clone();
        if after.is_ahead_of(now_us) {
            after.step_back(now_us);
        }
        let idle = after.unused(policy, now_us);
        let allowed = match word {
            Word::Cost(cost) => {
                let fits = after.admits(policy, now_us, cost);
                if fits {
                    after.take(policy, now_us, cost);
                }
                u64::from(fits)
            }
            Word::Force(cost) => {
                let fits = after.admits(policy, now_us, cost);
                after.take(policy, now_us, cost);
                u64::from(fits)
            }
            Word::UpTo(most) => {
                let taken = most.min(after.most(policy, now_us));
                if taken > 0 {
                    after.take(policy, now_us, taken);
                }
                taken
            }
            Word::Refund(units) => {
                if !idle {
                    after.give_back(policy, now_us, units);
                }
                1
            }
        };
        Act {
            after,
            allowed,
            needed: match word {
                Word::Cost(cost) | Word::Force(cost) => Some(cost),
                Word::UpTo(_) => Some(1),
                Word::Refund(_) => None,
            },
            writes: match word {
                Word::Cost(cost) => cost <= policy.limit(),
                Word::Force(_) | Word::UpTo(_) => true,
                Word::Refund(_) => !idle,
            },
        }
    }

    /// What is told of the state as it is, of a call that is told `allowed`.
    fn told(&self, policy: Policy, now_us: u64, allowed: u64, needed: Option<u64>) -> Reply {
        let limit = policy.limit();
        let retry_after_ms = match needed {
            None => 0,
            Some(cost) if cost > limit => -1,
            Some(cost) => signed(least_ms(|ms| {
                self.admits(policy, now_us + ms * 1_000, cost)
            })),
        };
        [
            signed(allowed),
            signed(limit),
            signed(self.most(policy, now_us)),
            retry_after_ms,
            signed(least_ms(|ms| self.unused(policy, now_us + ms * 1_000))),
        ]
    }

    /// The reply to a call, which takes or gives back as its word says.
    fn judge(&mut self, policy: Policy, now_us: u64, word: Word) -> Reply {
        let act = self.act(policy, now_us, word);
        let reply = act.after.told(policy, now_us, act.allowed, act.needed);
        if act.writes {
            *self = act.after;
        }
        reply
    }

    /// What a look tells.
    fn look(&self, policy: Policy, now_us: u64, word: Word) -> Reply {
        let act = self.act(policy, now_us, word);
        let mut as_it_is = self.clone();
        if as_it_is.is_ahead_of(now_us) {
            as_it_is.step_back(now_us);
        }
        as_it_is.told(policy, now_us, act.allowed, act.needed)
    }

    /// Whether a reply is the one to a call, which takes or gives back as its word says. As
    /// [`Self::judge`], but quicker: what is told is tried, and so is one less or more.
    fn confirms(&mut self, policy: Policy, now_us: u64, word: Word, reply: Reply) -> bool {
        let limit = policy.limit();
        let act = self.act(policy, now_us, word);
        let after = &act.after;
        let first = |ms: i64, holds: &dyn Fn(u64) -> bool| {
            u64::try_from(ms).is_ok_and(|ms| {
                let holds = |ms: u64| holds(now_us + ms * 1_000);
                holds(ms) && (ms == 0 || !holds(ms - 1))
            })
        };
        let [
            allowed,
            told_limit,
            remaining,
            retry_after_ms,
            reset_after_ms,
        ] = reply;
        let retries = match act.needed {
            None => retry_after_ms == 0,
            Some(cost) if cost > limit => retry_after_ms == -1,
            Some(cost) => first(retry_after_ms, &|at_us| after.admits(policy, at_us, cost)),
        };
        let remains = u64::try_from(remaining).is_ok_and(|n| {
            (n == 0 || after.admits(policy, now_us, n)) && !after.admits(policy, now_us, n + 1)
        });
        let confirmed = [allowed, told_limit] == [act.allowed, limit].map(signed)
            && retries
            && remains
            && first(reset_after_ms, &|at_us| after.unused(policy, at_us));
        if act.writes {
            *self = act.after;
        }
        confirmed
    }

    /// The same for two that can't be told apart by any later call under one policy. Instants are in
    /// µs.
    fn digest(&self, policy: Policy) -> Vec<i128>;

    /// Forgets what can't count again, so that a long walk stays quick.
    fn tidy(&mut self, _policy: Policy, _now_us: u64) {}

    /// The most that would be admitted at an instant.
    fn most(&self, policy: Policy, at_us: u64) -> u64 {
        let limit = policy.limit();
        limit
            - least(limit, |n| {
                n == limit || self.admits(policy, at_us, limit - n)
            })
    }
}

pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap()
}

/// The least number of milliseconds after which `holds`, which then goes on holding.
pub fn least_ms(holds: impl Fn(u64) -> bool) -> u64 {
    let mut bound = 1;
    while !holds(bound) {
        bound *= 2;
        assert!(bound < 1 << 50, "this never holds");
    }
    least(bound, holds)
}

/// The least number of 0 … `bound` for which `holds`, which goes on holding and does at `bound`.
fn least(bound: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, bound);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// An admitted call.
#[derive(Clone, Copy, Debug)]
struct Event {
    at_us: u64,
    cost: u64,
}

fn total<'a>(events: impl IntoIterator<Item = &'a Event>) -> u128 {
    events.into_iter().map(|event| u128::from(event.cost)).sum()
}

/// Neighbours of one group added up: the group and the sum of each.
fn totals(events: &[Event], group: impl Fn(&Event) -> u64) -> Vec<i128> {
    events
        .chunk_by(|a, b| group(a) == group(b))
        .flat_map(|alike| {
            let sum = i128::try_from(total(alike)).unwrap();
            [i128::from(group(&alike[0])), sum]
        })
        .collect()
}

/// Takes units off the newest of the events that `counts` picks, and gives what is left to take.
fn take_off(events: &mut Vec<Event>, mut units: u64, counts: impl Fn(&Event) -> bool) -> u64 {
    for event in events.iter_mut().rev().filter(|event| counts(event)) {
        let part = units.min(event.cost);
        event.cost -= part;
        units -= part;
    }
    events.retain(|event| event.cost > 0);
    units
}

/// The calls of the window that was opened last, and the millisecond at which it ends.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    events: Vec<Event>,
    end_ms: u64,
}

impl Fixed {
    fn used(&self, at_us: u64) -> u128 {
        if at_us / 1_000 < self.end_ms {
            total(&self.events)
        } else {
            0
        }
    }
}

impl Model for Fixed {
    fn admits(&self, policy: Policy, at_us: u64, cost: u64) -> bool {
        self.used(at_us) + u128::from(cost) <= u128::from(policy.limit())
    }

    fn unused(&self, _policy: Policy, at_us: u64) -> bool {
        self.used(at_us) == 0
    }

    fn take(&mut self, policy: Policy, at_us: u64, cost: u64) {
        if self.unused(policy, at_us) {
            self.events.clear();
            self.end_ms = at_us / 1_000 + policy.span_ms();
        }
        self.events.push(Event { at_us, cost });
    }

    /// The count falls, the end stays; at 0 there is no window.
    fn give_back(&mut self, _policy: Policy, _at_us: u64, units: u64) {
        take_off(&mut self.events, units, |_| true);
        if self.events.is_empty() {
            *self = Self::default();
        }
    }

    fn stored_us(&self) -> Option<u64> {
        None
    }

    fn step_back(&mut self, _now_us: u64) {}

    fn digest(&self, _policy: Policy) -> Vec<i128> {
        totals(&self.events, |_| self.end_ms * 1_000)
    }
}

/// A bucket, walked from one change to the next.
#[derive(Clone, Debug, Default)]
pub struct Token {
    last: Option<Mark>,
}

/// `parts` / `per_token` tokens at an instant; below 0 for a bucket that owes.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at_us: u64,
    parts: i128,
    per_token: u128,
}

impl Token {
    /// Parts of a token at an instant. A microsecond adds `refill` of them.
    fn parts(&self, policy: Policy, at_us: u64) -> i128 {
        let full = Self::full(policy);
        let Some(mark) = self.last else {
            return full;
        };
        let kept = multiplied_then_divided(
            mark.parts.unsigned_abs(),
            Self::per_token(policy),
            mark.per_token,
            mark.parts < 0,
        );
        let kept = if mark.parts < 0 {
            (-kept).max(Self::deepest(policy))
        } else {
            kept
        };
        full.min(kept + Self::flowing_in(policy, at_us - mark.at_us))
    }

    fn per_token(policy: Policy) -> u128 {
        u128::from(policy.span_ms()) * 1_000
    }

    fn parts_of(policy: Policy, tokens: u64) -> i128 {
        i128::try_from(u128::from(tokens) * Self::per_token(policy)).unwrap()
    }

    fn full(policy: Policy) -> i128 {
        Self::parts_of(policy, policy.limit())
    }

    fn flowing_in(policy: Policy, us: u64) -> i128 {
        let Policy::Token { refill, .. } = policy else {
            panic!("not a bucket")
        };
        i128::from(us) * i128::from(refill)
    }

    /// From here a bucket is full again in 100 years.
    fn deepest(policy: Policy) -> i128 {
        Self::full(policy) - Self::flowing_in(policy, MAX_SPAN_MS * 1_000)
    }

    fn mark(&mut self, policy: Policy, at_us: u64, parts: i128) {
        self.last = Some(Mark {
            at_us,
            parts: parts.max(Self::deepest(policy)),
            per_token: Self::per_token(policy),
        });
    }
}

impl Model for Token {
    fn admits(&self, policy: Policy, at_us: u64, cost: u64) -> bool {
        self.parts(policy, self.judged_us(at_us)) >= Self::parts_of(policy, cost)
    }

    fn unused(&self, policy: Policy, at_us: u64) -> bool {
        self.admits(policy, at_us, policy.limit())
    }

    fn take(&mut self, policy: Policy, at_us: u64, cost: u64) {
        let at_us = self.judged_us(at_us);
        let parts = self.parts(policy, at_us) - Self::parts_of(policy, cost);
        self.mark(policy, at_us, parts);
    }

    fn give_back(&mut self, policy: Policy, at_us: u64, units: u64) {
        let at_us = self.judged_us(at_us);
        let parts = self.parts(policy, at_us) + Self::parts_of(policy, units);
        if parts < Self::full(policy) {
            self.mark(policy, at_us, parts);
        } else {
            self.last = None;
        }
    }

    fn stored_us(&self) -> Option<u64> {
        self.last.map(|mark| mark.at_us)
    }

    fn step_back(&mut self, now_us: u64) {
        if let Some(mark) = &mut self.last {
            mark.at_us = now_us;
        }
    }

    fn digest(&self, _policy: Policy) -> Vec<i128> {
        self.last
            .map(|mark| [i128::from(mark.at_us), mark.parts])
            .into_iter()
            .flatten()
            .collect()
    }
}

/// `a` × `b` / `by`, rounded up or down, one binary digit of `a` at a time, as the product may need
/// 157 of them. What is above all that a bucket owes stops there.
fn multiplied_then_divided(a: u128, b: u128, by: u128, up: bool) -> i128 {
    let (mut quotient, mut rest) = (0_u128, 0);
    for digit in (0..u128::BITS).rev() {
        quotient = quotient.saturating_mul(2);
        rest = rest * 2 + if (a >> digit) & 1 == 1 { b } else { 0 };
        quotient = quotient.saturating_add(rest / by);
        rest %= by;
    }
    quotient = quotient.saturating_add(u128::from(up && rest > 0));
    i128::try_from(quotient).unwrap_or(i128::MAX)
}

/// Every call, and the window in which the last change was made.
#[derive(Clone, Debug, Default)]
pub struct Slide {
    events: Vec<Event>,
    stored: Option<Grid>,
}

/// A window on a grid: number `index` of those of one length.
#[derive(Clone, Copy, Debug)]
struct Grid {
    index: u64,
    window_us: u64,
}

impl Grid {
    fn around(at_us: u64, window_us: u64) -> Self {
        Self {
            index: at_us / window_us,
            window_us,
        }
    }

    fn holds(self, event: &Event) -> bool {
        event.at_us / self.window_us == self.index
    }

    fn events(self, events: &[Event]) -> impl Iterator<Item = &Event> {
        events.iter().filter(move |event| self.holds(event))
    }

    /// The window before, unless this is the first since the epoch.
    fn before(self) -> Option<Self> {
        let index = self.index.checked_sub(1)?;
        Some(Self { index, ..self })
    }
}

impl Slide {
    /// Under another window length, what is used, rounded up, was all taken now.
    fn move_to(&mut self, policy: Policy, at_us: u64) {
        let window_us = policy.span_ms() * 1_000;
        if self.stored.is_some_and(|grid| grid.window_us != window_us) {
            let (used, window) = self.used(at_us);
            let cost = u64::try_from(used.div_ceil(window)).unwrap();
            self.events.clear();
            self.events
                .extend((cost > 0).then_some(Event { at_us, cost }));
            self.stored = Some(Grid::around(at_us, window_us));
        }
    }

    /// Units used, in parts of `1/window_us`, and that length.
    fn used(&self, at_us: u64) -> (u128, u128) {
        let Some(Grid { window_us, .. }) = self.stored else {
            return (0, 1);
        };
        let now = Grid::around(at_us, window_us);
        let previous = now
            .before()
            .map_or(0, |before| total(before.events(&self.events)));
        let current = total(now.events(&self.events));
        let (elapsed, window) = (u128::from(at_us % window_us), u128::from(window_us));
        (previous * (window - elapsed) + current * window, window)
    }
}

impl Model for Slide {
    fn admits(&self, policy: Policy, at_us: u64, cost: u64) -> bool {
        let (used, window) = self.used(self.judged_us(at_us));
        used + u128::from(cost) * window <= u128::from(policy.limit()) * window
    }

    fn unused(&self, _policy: Policy, at_us: u64) -> bool {
        self.used(self.judged_us(at_us)).0 == 0
    }

    fn take(&mut self, policy: Policy, at_us: u64, cost: u64) {
        let at_us = self.judged_us(at_us);
        self.move_to(policy, at_us);
        self.events.push(Event { at_us, cost });
        self.stored = Some(Grid::around(at_us, policy.span_ms() * 1_000));
    }

    /// The current window's units first, then those of the one before, which is then the one that
    /// is stored.
    fn give_back(&mut self, policy: Policy, at_us: u64, units: u64) {
        let at_us = self.judged_us(at_us);
        self.move_to(policy, at_us);
        let now = Grid::around(at_us, policy.span_ms() * 1_000);
        let before = now.before();
        let is_before = |event: &Event| before.is_some_and(|before| before.holds(event));
        self.events
            .retain(|event| now.holds(event) || is_before(event));
        let units = take_off(&mut self.events, units, |event| now.holds(event));
        take_off(&mut self.events, units, is_before);
        self.stored = if total(now.events(&self.events)) > 0 {
            Some(now)
        } else {
            before.filter(|before| total(before.events(&self.events)) > 0)
        };
    }

    /// The start of the stored window.
    fn stored_us(&self) -> Option<u64> {
        self.stored.map(|grid| grid.index * grid.window_us)
    }

    fn step_back(&mut self, now_us: u64) {
        let Some(stored) = self.stored else { return };
        // The clock's range begins decades after the epoch, so a window from which it can step
        // back to another has one before.
        let counted = |event: &Event| {
            let index = event.at_us / stored.window_us;
            index == stored.index || index + 1 == stored.index
        };
        self.events.retain(counted);
        for event in &mut self.events {
            event.at_us = now_us;
        }
        self.stored = Some(Grid::around(now_us, stored.window_us));
    }

    fn tidy(&mut self, _policy: Policy, _now_us: u64) {
        if let Some(stored) = self.stored {
            self.events.retain(|event| {
                stored.holds(event) || stored.before().is_some_and(|before| before.holds(event))
            });
        }
    }

    /// The units of a window leave together.
    fn digest(&self, policy: Policy) -> Vec<i128> {
        let window_us = policy.span_ms() * 1_000;
        let mut digest = totals(&self.events, |event| event.at_us - event.at_us % window_us);
        digest.extend(self.stored_us().map(i128::from));
        digest
    }
}

/// Every call that no admitted one has found outside its window.
#[derive(Clone, Debug, Default)]
pub struct Exact {
    events: Vec<Event>,
}

impl Exact {
    fn used(&self, policy: Policy, at_us: u64) -> u128 {
        let window_us = policy.span_ms() * 1_000;
        total(
            self.events
                .iter()
                .filter(|event| event.at_us <= at_us && at_us < event.at_us + window_us),
        )
    }
}

impl Model for Exact {
    fn admits(&self, policy: Policy, at_us: u64, cost: u64) -> bool {
        let used = self.used(policy, self.judged_us(at_us));
        used + u128::from(cost) <= u128::from(policy.limit())
    }

    fn unused(&self, policy: Policy, at_us: u64) -> bool {
        self.used(policy, self.judged_us(at_us)) == 0
    }

    fn take(&mut self, policy: Policy, at_us: u64, cost: u64) {
        let at_us = self.judged_us(at_us);
        let window_us = policy.span_ms() * 1_000;
        self.events.retain(|event| at_us < event.at_us + window_us);
        self.events.push(Event { at_us, cost });
    }

    /// The newest units leave, and what is outside the window with them.
    fn give_back(&mut self, policy: Policy, at_us: u64, units: u64) {
        let at_us = self.judged_us(at_us);
        let window_us = policy.span_ms() * 1_000;
        self.events.retain(|event| at_us < event.at_us + window_us);
        take_off(&mut self.events, units, |_| true);
    }

    /// The newest entry.
    fn stored_us(&self) -> Option<u64> {
        self.events.last().map(|event| event.at_us)
    }

    fn step_back(&mut self, now_us: u64) {
        for event in &mut self.events {
            event.at_us = event.at_us.min(now_us);
        }
    }

    fn digest(&self, _policy: Policy) -> Vec<i128> {
        totals(&self.events, |event| event.at_us)
    }
}

#[test]
fn the_oracle_counts_the_worked_example() {
    let minute = crate::call::slide(100, 60_000);
    let at = |s: u64| crate::call::T0 + s * 1_000_000;
    let mut model = Slide::default();
    model.take(minute, at(0), 80);
    model.take(minute, at(60), 20);
    model.take(minute, at(65), 10);
    // 80 × 0.75 + 30 = 90.
    let (used, window) = model.used(at(75));
    assert_eq!(used, 90 * window);
}

#[test]
fn the_oracle_divides_products_of_any_size() {
    assert_eq!(multiplied_then_divided(7, 3, 2, false), 10);
    assert_eq!(multiplied_then_divided(7, 3, 2, true), 11);
    let (a, b) = ((1 << 105) - 1, (1 << 52) - 1);
    let signed = |n: u128| i128::try_from(n).unwrap();
    assert_eq!(multiplied_then_divided(a, b, b, true), signed(a));
    assert_eq!(
        multiplied_then_divided(a, 1 << 20, 1 << 21, false),
        signed(a / 2)
    );
}
