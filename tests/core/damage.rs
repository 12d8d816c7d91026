//! State that is not what a command wrote: an error or a decision within its ranges, never a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use redis_rl::clock::Timestamp;
use redis_rl::decimal;
use redis_rl::error::{Error, InvalidState};
use redis_rl::limiter::fixed::{Counter, FixedWindow};
use redis_rl::limiter::lease::{self, LeaseSet, Leases};
use redis_rl::limiter::log::{self, Entries};
use redis_rl::limiter::slide::{SlidingWindow, Windows};
use redis_rl::limiter::text::{Change, MAX_COUNT, State, Stored, Text};
use redis_rl::limiter::token::{Level, TokenBucket};
use redis_rl::policy::{self, Hold, MAX_UNITS};
use redis_rl::request::LeaseCall;

use crate::call::{FIRST, LAST, MAX_LOG, MAX_SPAN_MS, MS, Policy, Reply, T0};
use crate::key::{Judgement, judge, judge_log};
use crate::limit::Lease;
use crate::random::{config, fixed_policies, instants_us, slide_policies, token_policies};
use crate::store::{Key, timestamp, valid};
use crate::word::Word;

/// Numbers at every edge that a field of a state could have.
fn numbers() -> impl Strategy<Value = u128> + Clone {
    let edges = vec![
        0,
        1,
        2,
        999,
        1_000,
        60_000,
        u128::from(MAX_UNITS),
        u128::from(MAX_SPAN_MS),
        u128::from(MAX_SPAN_MS) * 1_000,
        u128::from(FIRST / MS),
        u128::from(FIRST),
        u128::from(T0 / MS),
        u128::from(T0),
        u128::from(LAST / MS),
        u128::from(LAST),
        1 << 63,
        u128::from(u64::MAX),
        u128::from(MAX_UNITS) * u128::from(MAX_SPAN_MS) * 1_000,
        u128::MAX,
    ];
    prop_oneof![
        4 => (select(edges), -1..=1_i8).prop_map(|(edge, by)| match by {
            -1 => edge.saturating_sub(1),
            0 => edge,
            _ => edge.saturating_add(1),
        }),
        1 => any::<u64>().prop_map(u128::from),
        1 => any::<u128>(),
        1 => 0..10_000_u128,
    ]
}

/// Texts of the right form whose numbers are anything, and texts of any form.
fn texts() -> impl Strategy<Value = Vec<u8>> + Clone {
    let tag = select(vec!["T1", "S1", "T2", "t1", ""]);
    let formed = (tag, vec(numbers(), 0..=5)).prop_map(|(tag, numbers)| {
        let numbers: Vec<String> = numbers.iter().map(u128::to_string).collect();
        format!("{tag}:{}", numbers.join(":")).into_bytes()
    });
    let damaged = (formed.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(
        |(mut text, at, byte)| {
            let at = at.index(text.len());
            text[at] = byte;
            text
        },
    );
    prop_oneof![
        3 => formed,
        1 => damaged,
        1 => numbers().prop_map(|number| number.to_string().into_bytes()),
        1 => any::<Vec<u8>>(),
    ]
}

/// The lowest level that any bucket has: what the largest refill gives back in 100 years.
const LEAST_LEVEL: i128 = -3_153_600_000_000_000 * ((1 << 53) - 1);

/// States that are valid and yet far from what was ever written.
fn valid_buckets() -> impl Strategy<Value = String> + Clone {
    let spans_ms = select(vec![1, 7, 1_000, 60_000, MAX_SPAN_MS - 1, MAX_SPAN_MS]);
    (spans_ms, any::<u64>(), any::<u64>(), instants_us()).prop_map(|(ms, whole, part, at_us)| {
        let period_us = ms * 1_000;
        // Small and large levels alike.
        let whole = (whole >> (part % 64)) % MAX_UNITS;
        let level = u128::from(whole) * u128::from(period_us) + u128::from(part % period_us);
        let level = i128::try_from(level).unwrap();
        // One in four owes, at most what can be owed.
        let level = if at_us % 4 == 0 {
            (-level).max(LEAST_LEVEL)
        } else {
            level
        };
        format!("T1:{level}:{period_us}:{at_us}")
    })
}

fn valid_windows() -> impl Strategy<Value = String> + Clone {
    let spans_ms = select(vec![1, 7, 1_000, 60_000, MAX_SPAN_MS - 1, MAX_SPAN_MS]);
    let counts = prop_oneof![0..20_u64, 0..=MAX_COUNT, Just(MAX_COUNT)];
    (spans_ms, instants_us(), counts.clone(), counts).prop_map(|(ms, at_us, previous, current)| {
        let start_ms = at_us / MS / ms * ms;
        // A window before the clock's range holds nothing.
        let previous = if start_ms > FIRST / MS { previous } else { 0 };
        format!("S1:{ms}:{start_ms}:{previous}:{}", current.max(1))
    })
}

fn expiries() -> impl Strategy<Value = Option<u64>> + Clone {
    prop_oneof![
        1 => Just(None),
        4 => (FIRST / MS..=2 * LAST / MS).prop_map(Some),
        1 => any::<u64>().prop_map(Some),
        1 => select(vec![0, i64::MAX.unsigned_abs(), u64::MAX]).prop_map(Some),
    ]
}

fn costs() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![1..=10_u64, 1..=MAX_UNITS, Just(MAX_UNITS)]
}

fn words() -> impl Strategy<Value = Word> + Clone {
    let word = select(vec![Word::Cost, Word::Force, Word::UpTo, Word::Refund]);
    (word, costs()).prop_map(|(word, n)| word(n))
}

/// The words of an exact window: no `FORCE`.
fn log_words() -> impl Strategy<Value = Word> + Clone {
    let word = select(vec![Word::Cost, Word::UpTo, Word::Refund]);
    (word, 1..20_u64).prop_map(|(word, n)| word(n))
}

fn assert_in_range(reply: Reply, policy: Policy, word: Word) {
    let [allowed, limit, remaining, retry_after_ms, reset_after_ms] = reply;
    let most = if let Word::UpTo(n) = word {
        i64::try_from(n).unwrap()
    } else {
        1
    };
    assert!((0..=most).contains(&allowed));
    assert_eq!(u64::try_from(limit), Ok(policy.limit()));
    assert!((0..=limit).contains(&remaining));
    assert!(reset_after_ms >= 0);
    assert_eq!(retry_after_ms == -1, word.is_never(policy.limit()));
    assert!(retry_after_ms >= -1);
}

/// What a call is told, and what it stores, if anything: a text and an expiry, or no key any more.
type Told = (Reply, Option<Option<(Text, Option<u64>)>>);

fn told<S: State>((decision, change): Judgement<Change<S>>) -> Told {
    (
        decision.reply(),
        change.map(|change| match change {
            Change::Set {
                state,
                expire_at_ms,
                ..
            } => Some((state.encode(), expire_at_ms)),
            Change::Delete => None,
        }),
    )
}

/// Decides on any text.
fn decide(
    policy: Policy,
    stored: Stored<'_>,
    now: Timestamp,
    word: Word,
) -> Result<Told, InvalidState> {
    let (stored, charge) = (Some(stored), word.charge());
    match valid(policy) {
        policy::Policy::Fixed(policy) => {
            judge::<FixedWindow>(policy, stored, now, charge).map(told)
        }
        policy::Policy::Token(policy) => {
            judge::<TokenBucket>(policy, stored, now, charge).map(told)
        }
        policy::Policy::Slide(policy) => {
            judge::<SlidingWindow>(policy, stored, now, charge).map(told)
        }
        policy::Policy::Exact(_) => panic!("a log is no text"),
    }
}

/// A log that notes what is read of it.
struct Watched {
    entries: Vec<Timestamp>,
    read: Vec<(u64, Timestamp)>,
}

impl Entries for Watched {
    fn count(&self) -> u64 {
        self.entries.count()
    }

    fn get(&mut self, index: u64) -> Result<Timestamp, InvalidState> {
        let entry = Entries::get(&mut self.entries, index)?;
        self.read.push((index, entry));
        Ok(entry)
    }
}

/// Entries around one instant, for the most part in order.
fn entries_us() -> impl Strategy<Value = Vec<u64>> + Clone {
    let near = vec(0..200_u64, 0..40).prop_map(|offsets| {
        let entry = |offset: u64| T0 + offset * 500;
        offsets.into_iter().map(entry).collect::<Vec<_>>()
    });
    let ordered = near.clone().prop_map(|mut entries: Vec<u64>| {
        entries.sort_unstable();
        entries
    });
    let swapped = (ordered.clone(), any::<prop::sample::Index>(), 0..200_u64).prop_map(
        |(mut entries, at, offset)| {
            if !entries.is_empty() {
                let at = at.index(entries.len());
                entries[at] = T0 + offset * 500;
            }
            entries
        },
    );
    prop_oneof![1 => near, 1 => ordered, 3 => swapped, 1 => vec(FIRST..=LAST, 0..10)]
}

/// What a call on a list comes to, and what was read of it.
type Found = (
    Result<Judgement<log::Change>, InvalidState>,
    Vec<(u64, Timestamp)>,
);

/// A call on a list.
#[derive(Clone, Debug)]
struct LogCall {
    policy: Policy,
    entries: Vec<u64>,
    now_us: u64,
    word: Word,
    expires: bool,
}

fn log_calls() -> impl Strategy<Value = LogCall> + Clone {
    (
        (1..60_u64, 1..120_u64),
        entries_us(),
        0..250_000_u64,
        log_words(),
        prop::bool::weighted(0.9),
    )
        .prop_map(
            |((limit, window_ms), entries, after_us, word, expires)| LogCall {
                policy: crate::call::exact(limit, window_ms),
                entries,
                now_us: T0 + after_us,
                word,
                expires,
            },
        )
}

impl LogCall {
    /// The decision and the change, and what was read of the list.
    fn decide(&self) -> Found {
        let mut log = Watched {
            entries: self.entries.iter().map(|us| timestamp(*us)).collect(),
            read: Vec::new(),
        };
        let policy::Policy::Exact(policy) = valid(self.policy) else {
            panic!("a text is no log");
        };
        let judgement = judge_log(
            policy,
            Some((&mut log, self.expires.then_some(LAST / MS))),
            timestamp(self.now_us),
            self.word.charge(),
        );
        (judgement, log.read)
    }
}

/// Leases that note what is read of them. One without an end is kept with a score that is no whole
/// number.
struct WatchedLeases {
    ends_ms: Vec<Option<u64>>,
    read: Vec<Option<u64>>,
}

impl Leases for WatchedLeases {
    fn count(&self) -> u64 {
        u64::try_from(self.ends_ms.len()).unwrap()
    }

    fn end_at(&mut self, rank: u64) -> Result<u64, Error> {
        let end_ms = self.ends_ms[usize::try_from(rank).unwrap()];
        self.read.push(end_ms);
        end_ms.ok_or(Error::InvalidState)
    }

    fn over(&mut self, now_ms: u64) -> Result<u64, Error> {
        let is_over = |end_ms: &Option<u64>| end_ms.is_some_and(|end_ms| end_ms <= now_ms);
        let over = self.ends_ms.iter().take_while(|end_ms| is_over(end_ms));
        Ok(u64::try_from(over.count()).unwrap())
    }
}

/// When a lease ends: about [`T0`], at an edge of what can be written, or ever.
fn ends_ms() -> impl Strategy<Value = u64> + Clone {
    let (first, last) = (FIRST / MS, LAST / MS + MAX_SPAN_MS);
    prop_oneof![
        6 => (0..100_u64).prop_map(|ms| T0 / MS + ms),
        1 => select(vec![0, first - 1, first, last, last + 1, u64::MAX]),
        1 => any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn any_set_is_an_error_or_decided_within_the_ranges(
        members in vec((0..12_u16, ends_ms()), 0..8),
        expire_at_ms in expiries(),
        after_ms in 0..120_u64,
        (limit, ttl_ms, id, hold) in (1..6_u64, 1..50_u64, 0..14_u16,
            select(vec![Hold::Take, Hold::Renew, Hold::Release])),
    ) {
        let mut key = Key::leases_of(&members, 0);
        key.expire_at_ms = expire_at_ms;
        let (lease, now_us) = (Lease::new(limit, ttl_ms, id, hold), T0 + after_ms * MS);
        let (before, was_live) = (key.clone(), key.is_live(now_us));
        let looked = key.peek_hold(lease, now_us);
        let Ok([allowed, told_limit, remaining, retry_after_ms, reset_after_ms]) =
            key.hold(lease, now_us)
        else {
            prop_assert_eq!(&key, &before);
            prop_assert!(was_live, "no key is a valid one");
            let can_be = |member: &(u16, u64)| {
                (FIRST / MS..=LAST / MS + MAX_SPAN_MS).contains(&member.1)
            };
            let valid = expire_at_ms.is_some() && !members.is_empty();
            prop_assert!(!valid || !before.members().iter().all(can_be));
            return Ok(());
        };
        prop_assert!(!was_live || expire_at_ms.is_some() && !members.is_empty());
        prop_assert!((0..=1).contains(&allowed));
        prop_assert_eq!(looked.map(|looked| looked[0]), Ok(allowed));
        prop_assert_eq!(u64::try_from(told_limit), Ok(limit));
        prop_assert!((0..=told_limit).contains(&remaining));
        prop_assert!(retry_after_ms >= -1 && reset_after_ms >= 0);
        let never = allowed == 0 && hold != Hold::Take;
        prop_assert_eq!(retry_after_ms == -1, never);
        if was_live && allowed == 0 {
            prop_assert_eq!(key, before);
        }
    }

    /// The last one, the first one that is over, the id's own, and those that a reply rests on.
    #[test]
    fn what_is_read_of_leases_can_be_and_is_all_that_counts(
        mut ends_ms in vec(ends_ms(), 1..8), broken in any::<prop::sample::Index>(),
        after_ms in 0..120_u64, (limit, hold) in (1..4_u64, select(vec![Hold::Take, Hold::Renew])),
        own in any::<prop::sample::Index>(), is_own in any::<bool>(),
    ) {
        ends_ms.sort_unstable();
        let now = timestamp(T0 + after_ms * MS);
        let lease = Lease::new(limit, 10, 1, hold);
        let own_end_ms = is_own.then(|| *own.get(&ends_ms));
        let judge = |ends_ms: Vec<Option<u64>>| {
            let mut leases = WatchedLeases { ends_ms, read: Vec::new() };
            let expire_at_ms = Some(LAST / MS);
            let stored = lease::Stored { leases: &mut leases, own_end_ms, expire_at_ms };
            let LeaseCall { policy, hold, .. } = lease.call();
            let told = LeaseSet::at(policy, hold, Some(stored), now)
                .and_then(|mut set| set.decide());
            (told, leases.read)
        };
        let (told, read) = judge(ends_ms.iter().copied().map(Some).collect());
        let can_be = |end_ms: u64| (FIRST / MS..=LAST / MS + MAX_SPAN_MS).contains(&end_ms);
        let read_is_valid = read.iter().flatten().chain(&own_end_ms).all(|end| can_be(*end));
        prop_assert_eq!(told.is_ok(), read_is_valid);
        // A score that is no whole number is as good as any, where it is not read.
        let mut with_broken: Vec<_> = ends_ms.iter().copied().map(Some).collect();
        let broken = broken.index(with_broken.len());
        if ends_ms[broken] > now.as_ms() {
            with_broken[broken] = None;
            let (told_of_broken, read) = judge(with_broken);
            let expected = if read.contains(&None) { Err(Error::InvalidState) } else { told };
            prop_assert_eq!(told_of_broken, expected);
        }
    }

    #[test]
    fn decoders_take_any_bytes_and_read_only_what_is_written(text in texts()) {
        if let Ok(counter) = Counter::decode(&text) {
            assert_eq!(counter.encode().as_slice(), text.as_slice());
        }
        if let Ok(level) = Level::decode(&text) {
            assert_eq!(level.encode().as_slice(), text.as_slice());
        }
        if let Ok(windows) = Windows::decode(&text) {
            assert_eq!(windows.encode().as_slice(), text.as_slice());
        }
        if let Ok(entry) = log::decode_entry(&text) {
            assert_eq!(log::encode_entry(entry).as_slice(), text.as_slice());
        }
        if let Some(number) = decimal::parse(&text) {
            assert_eq!(number.to_string().as_bytes(), text.as_slice());
        }
        if let Some(number) = decimal::parse_wide(&text) {
            assert_eq!(number.to_string().as_bytes(), text.as_slice());
        }
    }

    #[test]
    fn numbers_are_read_back(number in numbers()) {
        let text = number.to_string();
        prop_assert_eq!(decimal::parse(text.as_bytes()), u64::try_from(number).ok());
        if number < 10_u128.pow(38) {
            prop_assert_eq!(decimal::parse_wide(text.as_bytes()), Some(number));
        }
    }

    #[test]
    fn any_text_is_an_error_or_decided_within_the_ranges(
        policy in prop_oneof![fixed_policies(), token_policies(), slide_policies()],
        text in prop_oneof![texts(), valid_buckets().prop_map(String::into_bytes),
            valid_windows().prop_map(String::into_bytes)],
        expire_at_ms in expiries(),
        now_us in instants_us(),
        word in words(),
    ) {
        let stored = Stored { text: &text, expire_at_ms };
        let now = timestamp(now_us);
        if let Ok((reply, write)) = decide(policy, stored, now, word) {
            assert_in_range(reply, policy, word);
            if let Some(Some((text, fresh_ms))) = write {
                let stored = Stored { text: &text, expire_at_ms: fresh_ms.or(expire_at_ms) };
                prop_assert!(decide(policy, stored, now, word).is_ok());
            }
        }
        if expire_at_ms.is_none() {
            prop_assert_eq!(decide(policy, stored, now, word), Err(InvalidState));
        }
    }

    /// Whatever wrote it, a valid state is judged so that the waits hold.
    #[test]
    fn waits_hold_on_any_valid_state(
        (policy, text) in prop_oneof![
            (token_policies(), valid_buckets()),
            (slide_policies(), valid_windows()),
            (fixed_policies(), (1..=MAX_COUNT).prop_map(|count| count.to_string())),
        ],
        now_us in instants_us(),
        word in words(),
    ) {
        let word = match word {
            Word::Cost(n) => Word::Cost(n.min(policy.limit())),
            Word::Force(n) => Word::Force(n.min(policy.limit())),
            word => word,
        };
        let mut key = Key::text(&text, LAST / MS + 1);
        let reply = key.call(policy, now_us, word).unwrap();
        let wait_ms = u64::try_from(reply[3]).unwrap();
        let allowed = |wait_ms: u64| {
            let at_us = now_us + wait_ms * MS;
            at_us > LAST || key.clone().call(policy, at_us, word).unwrap()[0] > 0
        };
        prop_assert!(allowed(wait_ms));
        let sooner_us = now_us + wait_ms.saturating_sub(1) * MS;
        if wait_ms > 0 && key.is_live(sooner_us) && sooner_us <= LAST {
            prop_assert!(!allowed(wait_ms - 1));
        }
    }

    #[test]
    fn any_list_is_an_error_or_decided_within_the_ranges(call in log_calls()) {
        let (outcome, _) = call.decide();
        let valid = call.entries.is_sorted() && !call.entries.is_empty() && call.expires;
        let Ok((decision, change)) = outcome else {
            prop_assert!(!valid, "an error on a valid log");
            return Ok(());
        };
        prop_assert!(!call.entries.is_empty() && call.expires);
        assert_in_range(decision.reply(), call.policy, call.word);
        if let Some(change) = change {
            let len = u64::try_from(call.entries.len()).unwrap();
            prop_assert!(change.leaving() <= len);
        }
    }

    #[test]
    fn what_is_read_of_a_log_is_in_order(call in log_calls()) {
        let (outcome, mut read) = call.decide();
        if outcome.is_ok() {
            read.sort_by_key(|(index, _)| *index);
            prop_assert!(read.is_sorted_by_key(|(_, entry)| *entry), "{read:?}");
            // The ends always are.
            let indexes = [read[0].0, read[read.len() - 1].0];
            prop_assert_eq!(indexes, [0, u64::try_from(call.entries.len()).unwrap() - 1]);
        }
    }
}

#[test]
fn an_entry_read_for_a_wait_is_in_order_with_those_read_before() {
    let entries = [0, 0, 10, 30, 20, 40].map(|ms| T0 + ms * MS);
    let mut key = Key::log(&entries, T0 / MS + 1_000);
    let reply = key.call(crate::call::exact(2, 100), T0 + 105 * MS, 1);
    assert_eq!(reply, Err(InvalidState));
}

/// As read by the standard library, once it is known to be digits alone.
fn number(text: &[u8]) -> Option<u128> {
    let canonical = text.iter().all(u8::is_ascii_digit) && (text.len() == 1 || text[0] != b'0');
    canonical.then(|| core::str::from_utf8(text).ok()?.parse().ok())?
}

#[test]
fn any_byte_at_any_place_of_a_number_is_read_or_refused_for_what_it_is() {
    let digits = b"98765432101234567898765432101234567899";
    for len in 1..=digits.len() {
        for at in 0..len {
            for byte in 0..=u8::MAX {
                let mut text = digits[..len].to_vec();
                text[at] = byte;
                let read = number(&text);
                let narrow = read.and_then(|number| u64::try_from(number).ok());
                assert_eq!(decimal::parse(&text), narrow, "{text:?}");
                assert_eq!(decimal::parse_wide(&text), read, "{text:?}");
            }
        }
    }
}

#[test]
fn a_state_is_valid_up_to_the_edges_of_what_can_be_written() {
    let read = |text: &str| match text.as_bytes() {
        [b'T', ..] => Level::decode(text.as_bytes()).is_ok(),
        [b'S', ..] => Windows::decode(text.as_bytes()).is_ok(),
        _ => Counter::decode(text.as_bytes()).is_ok(),
    };
    for (last, next) in [
        // A bucket from which a part was taken, with a period in whole ms, at a valid time.
        (
            "T1:9007199254740990999:1000:1779331200000000",
            "T1:9007199254740991000:1000:1779331200000000",
        ),
        ("T1:0:1000:1779331200000000", "T1:0:0:1779331200000000"),
        // Owing what the largest refill gives back in 100 years.
        (
            "T1:-28405103569751189217600000000000:1000:1779331200000000",
            "T1:-28405103569751189217600000000001:1000:1779331200000000",
        ),
        ("T1:-1:1000:1779331200000000", "T1:-0:1000:1779331200000000"),
        (
            "T1:-1:1000:1779331200000000",
            "T1:-01:1000:1779331200000000",
        ),
        (
            "T1:-1:1000:1779331200000000",
            "T1:--1:1000:1779331200000000",
        ),
        (
            "T1:0:3153600000000000:1779331200000000",
            "T1:0:3153600000001000:1779331200000000",
        ),
        ("T1:0:2000:1779331200000000", "T1:0:2001:1779331200000000"),
        ("T1:0:1000:1000000000000000", "T1:0:1000:999999999999999"),
        ("T1:0:1000:9999999999999999", "T1:0:1000:10000000000000000"),
        // A window on its grid, that holds an instant of the clock, and in which a unit was taken.
        ("S1:7:999999999999:0:1", "S1:7:999999999992:0:1"),
        ("S1:1000:1000000000000:0:1", "S1:1000:999999999000:0:1"),
        ("S1:1:9999999999999:0:1", "S1:1:10000000000000:0:1"),
        ("S1:1000:1779331200000:0:1", "S1:1000:1779331200001:0:1"),
        ("S1:1000:1779331200000:0:1", "S1:1000:1779331200000:0:0"),
        (
            "S1:1000:1779331200000:9223372036854775807:1",
            "S1:1000:1779331200000:9223372036854775808:1",
        ),
        (
            "S1:1000:1779331200000:0:9223372036854775807",
            "S1:1000:1779331200000:0:9223372036854775808",
        ),
        ("S1:3153600000000:0:0:1", "S1:3153600000001:0:0:1"),
        ("1", "0"),
        ("9223372036854775807", "9223372036854775808"),
    ] {
        assert!(read(last), "{last}");
        assert!(!read(next), "{next}");
    }
}

#[test]
fn a_log_has_one_to_ten_thousand_entries() {
    let policy = crate::call::exact(10_000, 60_000);
    let most = usize::try_from(MAX_LOG).unwrap();
    let call = |len: usize| Key::log(&vec![T0; len], LAST / MS).call(policy, T0, 1);
    assert_eq!(call(0), Err(InvalidState));
    assert!(call(1).is_ok());
    assert!(call(most).is_ok());
    assert_eq!(call(most + 1), Err(InvalidState));
}

#[test]
fn a_set_has_one_to_ten_thousand_leases() {
    let members =
        |count: u16| -> Vec<(u16, u64)> { (0..count).map(|id| (id, T0 / MS + 1_000)).collect() };
    let call = |count, hold| {
        let lease = Lease::new(10_000, 1_000, 0, hold);
        Key::leases_of(&members(count), LAST / MS).hold(lease, T0)
    };
    for hold in [Hold::Take, Hold::Renew, Hold::Release] {
        assert_eq!(call(0, hold), Err(InvalidState));
        assert!(call(1, hold).is_ok());
        assert!(call(10_000, hold).is_ok());
        assert_eq!(call(10_001, hold), Err(InvalidState));
    }
}

#[test]
fn a_lease_ends_within_the_clock_s_range_and_a_hundred_years() {
    let call = |end_ms: u64| {
        let mut key = Key::leases_of(&[(1, end_ms)], u64::MAX);
        key.hold(Lease::new(1, 1, 2, Hold::Take), T0)
    };
    assert!(call(1_000_000_000_000).is_ok());
    assert_eq!(call(999_999_999_999), Err(InvalidState));
    assert!(call(13_153_599_999_999).is_ok());
    assert_eq!(call(13_153_600_000_000), Err(InvalidState));
}

/// Where they are read: the last one and the id's own always are, the first where it is over.
#[test]
fn an_end_that_can_t_be_is_an_error_wherever_it_is_read() {
    let now_ms = T0 / MS;
    let call = |members: &[(u16, u64)], id: u16| {
        let mut key = Key::leases_of(members, LAST / MS);
        key.hold(Lease::new(2, 1_000, id, Hold::Take), T0)
    };
    let live = (1, now_ms + 1_000);
    assert!(call(&[live], 2).is_ok());
    for id in [1, 2, 3] {
        assert_eq!(call(&[live, (2, 0)], id), Err(InvalidState));
        assert_eq!(call(&[live, (2, u64::MAX)], id), Err(InvalidState));
    }
}

/// Even when both have left the window, so that the newest alone would tell.
#[test]
fn the_ends_of_a_log_are_always_in_order() {
    let policy = crate::call::exact(10, 1_000);
    let call = |entries_us: &[u64]| Key::log(entries_us, LAST / MS).call(policy, 2 * T0, 1);
    assert_eq!(call(&[T0, T0]), Ok([1, 10, 9, 0, 1_000]));
    assert_eq!(call(&[T0 + 1, T0]), Err(InvalidState));
}

#[test]
fn an_entry_is_sixteen_digits() {
    for text in [
        "",
        "0",
        "job:17",
        "177933120000000",
        "0779331200000000",
        "17793312000000000",
        "-779331200000000",
        "1779331200000000 ",
        "1779331200.00000",
        "1.77933120000e15",
    ] {
        assert_eq!(
            log::decode_entry(text.as_bytes()),
            Err(InvalidState),
            "{text:?}"
        );
    }
    for text in ["1000000000000000", "9999999999999999"] {
        assert!(log::decode_entry(text.as_bytes()).is_ok());
    }
}

#[test]
fn a_counter_of_another_kind_is_no_state() {
    let now = timestamp(T0);
    let texts = [
        "97".to_owned(),
        format!("T1:0:60000000:{T0}"),
        format!("S1:60000:{}:0:1", T0 / MS),
    ];
    for (own, policy) in [
        crate::call::fixed(100, 60_000),
        crate::call::token(100, 100, 60_000),
        crate::call::slide(100, 60_000),
    ]
    .into_iter()
    .enumerate()
    {
        for (index, text) in texts.iter().enumerate() {
            let stored = Stored {
                text: text.as_bytes(),
                expire_at_ms: Some(T0 / MS + 60_000),
            };
            let outcome = decide(policy, stored, now, Word::Cost(1));
            assert_eq!(outcome.is_ok(), own == index, "{policy:?} on {text}");
        }
    }
}
