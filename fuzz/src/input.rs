//! Bytes to policies, keys, costs and clocks. The edges of each range come up often.

use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Result, Unstructured};
use redis_rl::clock::Timestamp;
use redis_rl::limiter::fixed::Counter;
use redis_rl::limiter::slide::Windows;
use redis_rl::limiter::text::{MAX_COUNT, State};
use redis_rl::limiter::token::Level;
use redis_rl::policy::{
    Charge, ExactPolicy, FixedPolicy, Hold, LeasePolicy, MAX_LEASES, MAX_LOG_LIMIT, MAX_SPAN_MS,
    MAX_UNITS, Policy, SlidePolicy, Span, TokenPolicy, Units,
};
use redis_rl::request::{AnyCall, Call, LeaseCall};

use crate::key::{Key, Value};

/// Which algorithm.
#[derive(Clone, Copy)]
pub enum Kind {
    Fixed,
    Token,
    Slide,
    Exact,
    Lease,
}

impl<'a> Arbitrary<'a> for Kind {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        u.choose(&[
            Self::Fixed,
            Self::Token,
            Self::Slide,
            Self::Exact,
            Self::Lease,
        ])
        .copied()
    }
}

fn in_range<T>(value: Option<T>) -> Result<T> {
    value.ok_or(arbitrary::Error::IncorrectFormat)
}

/// 1 … `max`: small, close to `max`, or any.
fn number(u: &mut Unstructured<'_>, max: u64) -> Result<u64> {
    Ok(match u.int_in_range(0..=2)? {
        0 => 1 + u64::from(u.arbitrary::<u16>()?) % max,
        1 => max - u64::from(u.arbitrary::<u16>()?) % max,
        _ => u.int_in_range(1..=max)?,
    })
}

fn units(u: &mut Unstructured<'_>) -> Result<Units> {
    in_range(Units::new(number(u, MAX_UNITS)?))
}

/// A policy of a kind.
#[derive(Clone, Copy)]
pub enum AnyPolicy {
    Units(Policy),
    Lease(LeasePolicy),
}

pub fn any_policy(u: &mut Unstructured<'_>, kind: Kind) -> Result<AnyPolicy> {
    Ok(match kind {
        Kind::Lease => {
            let limit = in_range(Units::new(number(u, MAX_LEASES)?))?;
            AnyPolicy::Lease(in_range(LeasePolicy::new(limit, span(u)?))?)
        }
        _ => AnyPolicy::Units(policy(u, kind)?),
    })
}

/// Who asks for leases.
const IDS: [&[u8]; 4] = [b"a", b"b", b"c", &[0; 128]];

pub fn call(u: &mut Unstructured<'_>, kind: Kind, policy: AnyPolicy) -> Result<AnyCall<'static>> {
    Ok(match policy {
        AnyPolicy::Units(policy) => {
            let charge = charge(u, kind)?;
            AnyCall::Units(Call { policy, charge })
        }
        AnyPolicy::Lease(policy) => AnyCall::Lease(LeaseCall {
            policy,
            id: u.choose(&IDS)?,
            hold: *u.choose(&[Hold::Take, Hold::Take, Hold::Renew, Hold::Release])?,
        }),
    })
}

/// One of the four words; an exact window has no `FORCE`.
fn charge(u: &mut Unstructured<'_>, kind: Kind) -> Result<Charge> {
    let n = units(u)?;
    Ok(match (u.int_in_range(0..=3)?, kind) {
        (0, _) | (1, Kind::Exact) => Charge::Cost(n),
        (1, _) => Charge::Force(n),
        (2, _) => Charge::UpTo(n),
        _ => Charge::Refund(n),
    })
}

fn span(u: &mut Unstructured<'_>) -> Result<Span> {
    in_range(Span::from_ms(number(u, MAX_SPAN_MS)?))
}

fn policy(u: &mut Unstructured<'_>, kind: Kind) -> Result<Policy> {
    let limit = units(u)?;
    let window = span(u)?;
    Ok(match kind {
        Kind::Fixed => Policy::Fixed(FixedPolicy { limit, window }),
        Kind::Token => Policy::Token(in_range(TokenPolicy::new(limit, units(u)?, window))?),
        Kind::Slide => Policy::Slide(SlidePolicy { limit, window }),
        Kind::Exact | Kind::Lease => {
            let limit = in_range(Units::new(1 + limit.get() % MAX_LOG_LIMIT))?;
            Policy::Exact(in_range(ExactPolicy::new(SlidePolicy { limit, window }))?)
        }
    })
}

/// The clock's first or last instant, one in between, or about one of them.
pub fn instant(u: &mut Unstructured<'_>) -> Result<Timestamp> {
    let middle = in_range(Timestamp::from_us(1_779_331_200_000_000))?;
    let about = *u.choose(&[middle, Timestamp::MIN, Timestamp::MAX])?;
    near(u, about)
}

/// An instant µs, ms, seconds or years before or after another.
pub fn near(u: &mut Unstructured<'_>, about: Timestamp) -> Result<Timestamp> {
    let unit_us = u.choose(&[1, 1_000, 1_000_000, 100_000_000_000])?;
    let offset_us = i64::from(u.arbitrary::<i16>()?) * unit_us;
    let us = about.as_us().saturating_add_signed(offset_us);
    in_range(Timestamp::from_us(
        us.clamp(Timestamp::MIN.as_us(), Timestamp::MAX.as_us()),
    ))
}

/// No key, one that somebody else made, or, mostly, one that these commands could have made.
pub fn key(u: &mut Unstructured<'_>, kind: Kind, now: Timestamp) -> Result<Key> {
    let value = match (u.int_in_range(0..=3)?, kind) {
        (0, _) => return Ok(Key::default()),
        (1, Kind::Exact) => Value::Log(log(u, now)?),
        (times, Kind::Lease) => Value::Leases(leases(u, now, times == 1)?),
        (1, _) => Value::Text(u.arbitrary::<&[u8]>()?.to_vec()),
        (_, Kind::Fixed) => Value::Text(Counter(number(u, MAX_COUNT)?).encode().to_vec()),
        (_, Kind::Token) => Value::Text(level(u, now)?.encode().to_vec()),
        (_, Kind::Slide) => Value::Text(windows(u, now)?.encode().to_vec()),
        (_, Kind::Exact) => {
            let mut log = log(u, now)?;
            log.sort_unstable();
            Value::Log(log)
        }
    };
    let expire_at_ms = match u.int_in_range(0..=7)? {
        0 => None,
        1 => Some(u.int_in_range(0..=MAX_COUNT)?),
        _ => Some(near(u, now)?.as_ms()),
    };
    Ok(Key {
        value,
        expire_at_ms,
    })
}

/// One in four owes, up to the most that is stored.
fn level(u: &mut Unstructured<'_>, now: Timestamp) -> Result<Level> {
    let period = span(u)?;
    let tokens = i128::from(units(u)?.get() - 1);
    let fraction = i128::from(number(u, period.as_us())? - 1);
    let level = tokens * i128::from(period.as_us()) + fraction;
    let most = i128::from(MAX_UNITS) * i128::from(MAX_SPAN_MS) * 1_000;
    Ok(Level {
        level: if u.ratio(1, 4)? {
            -level.min(most)
        } else {
            level
        },
        period,
        time: near(u, now)?,
    })
}

fn windows(u: &mut Unstructured<'_>, now: Timestamp) -> Result<Windows> {
    let window = span(u)?;
    let at_ms = near(u, now)?.as_ms();
    let start_ms = at_ms - at_ms % window.as_ms();
    let previous = number(u, MAX_COUNT)? - 1;
    Ok(Windows {
        window,
        start_ms,
        // A window before the clock's range holds nothing.
        previous: if start_ms > Timestamp::MIN.as_ms() {
            previous
        } else {
            0
        },
        current: number(u, MAX_COUNT)?,
    })
}

/// Up to 41 instants, each up to 255 times: up to 10,455 entries.
fn log(u: &mut Unstructured<'_>, now: Timestamp) -> Result<Vec<Timestamp>> {
    let mut log = Vec::new();
    for _ in 0..u.int_in_range(1..=41)? {
        let times = usize::from(u.arbitrary::<u8>()?);
        log.extend(std::iter::repeat_n(near(u, now)?, times));
    }
    Ok(log)
}

/// Leases of those who ask, and of up to 1,020 others, that end about now; or, one in two of them,
/// whenever.
fn leases(u: &mut Unstructured<'_>, now: Timestamp, any: bool) -> Result<BTreeMap<Vec<u8>, u64>> {
    let mut leases = BTreeMap::new();
    for id in IDS {
        let end_ms = match u.int_in_range(0..=3)? {
            0 => continue,
            1 if any => u.arbitrary()?,
            _ => near(u, now)?.as_ms(),
        };
        leases.insert(id.to_vec(), end_ms);
        for other in 0..u.arbitrary::<u8>()? {
            leases.insert([id, &[other]].concat(), end_ms);
        }
    }
    Ok(leases)
}
