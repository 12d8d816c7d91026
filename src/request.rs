//! The grammar of the commands: argument bytes in, a validated call out.
//!
//! Arguments are checked from left to right, then the rules that join several of them.

use arrayvec::ArrayVec;

use crate::decimal;
use crate::error::{Error, ErrorOf};
use crate::policy::{
    Charge, ExactPolicy, FixedPolicy, Hold, LeasePolicy, MAX_ID, MAX_LEASES, MAX_LIMITS, Policy,
    SlidePolicy, Span, TokenPolicy, Units,
};

/// A policy and what the call takes under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The policy that the call names.
    pub policy: Policy,
    /// What the call takes or gives back.
    pub charge: Charge,
}

/// A number of leases, and what the call does with the one of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseCall<'a> {
    /// The policy that the call names.
    pub policy: LeasePolicy,
    /// Who holds the lease: 1 … [`MAX_ID`] bytes.
    pub id: &'a [u8],
    /// Whether the lease is taken, renewed or released.
    pub hold: Hold,
}

/// A call of any command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyCall<'a> {
    /// One that takes units or gives them back.
    Units(Call),
    /// One that takes, renews or releases a lease.
    Lease(LeaseCall<'a>),
}

impl AnyCall<'_> {
    /// Whether a call of this kind can be refused. What is charged in any case, given back or
    /// released can't.
    #[must_use]
    pub const fn can_be_refused(&self) -> bool {
        match self {
            Self::Units(call) => call.charge.can_be_refused(),
            Self::Lease(call) => call.hold.can_be_refused(),
        }
    }

    /// Whether units are charged in any case.
    #[must_use]
    pub const fn is_forced(&self) -> bool {
        matches!(
            self,
            Self::Units(Call {
                charge: Charge::Force(_),
                ..
            })
        )
    }
}

impl From<Call> for AnyCall<'_> {
    fn from(call: Call) -> Self {
        Self::Units(call)
    }
}

/// The calls of one command line with several limits, in order.
pub type Calls<'a> = ArrayVec<AnyCall<'a>, MAX_LIMITS>;

/// The words of a command line. A copy reads ahead.
pub trait Words<'a>: Iterator<Item = &'a [u8]> + Clone {}

impl<'a, W: Iterator<Item = &'a [u8]> + Clone> Words<'a> for W {}

/// Parses `limit window_ms [COST n [FORCE] | UPTO n | REFUND n]`, what follows the key of `RL.FIXED`.
///
/// # Errors
///
/// [`Error::Arity`], [`Error::Limit`], [`Error::Window`], [`Error::Cost`], [`Error::UpTo`],
/// [`Error::Refund`] or [`Error::Syntax`].
#[expect(clippy::inline_always, reason = "some 30 instructions of every call")]
#[inline(always)]
pub fn fixed<'a>(mut words: impl Words<'a>) -> Result<Call, Error> {
    read_fixed(&mut words, Asks::Charge)
}

#[expect(clippy::inline_always, reason = "some 30 instructions of every call")]
#[inline(always)]
fn read_fixed<'a>(words: &mut impl Words<'a>, asks: Asks) -> Result<Call, Error> {
    let limit = units(words.next(), Error::Limit)?;
    let window = span(words.next(), Error::Window)?;
    let charge = keywords(words, asks, Exact::Unknown)?.charge;
    end(words, asks)?;
    Ok(Call {
        policy: Policy::Fixed(FixedPolicy { limit, window }),
        charge,
    })
}

/// Parses `capacity refill period_ms [COST n [FORCE] | UPTO n | REFUND n]`, what follows the key of
/// `RL.TOKEN`.
///
/// # Errors
///
/// [`Error::Arity`], [`Error::Capacity`], [`Error::Refill`], [`Error::Period`], [`Error::Cost`],
/// [`Error::UpTo`], [`Error::Refund`], [`Error::Syntax`], or [`Error::FillTime`] once all of them are in range.
#[expect(clippy::inline_always, reason = "some 30 instructions of every call")]
#[inline(always)]
pub fn token<'a>(mut words: impl Words<'a>) -> Result<Call, Error> {
    read_token(&mut words, Asks::Charge)
}

#[expect(clippy::inline_always, reason = "some 30 instructions of every call")]
#[inline(always)]
fn read_token<'a>(words: &mut impl Words<'a>, asks: Asks) -> Result<Call, Error> {
    let capacity = units(words.next(), Error::Capacity)?;
    let refill = units(words.next(), Error::Refill)?;
    let period = span(words.next(), Error::Period)?;
    let charge = keywords(words, asks, Exact::Unknown)?.charge;
    end(words, asks)?;
    let policy = TokenPolicy::new(capacity, refill, period).ok_or(Error::FillTime)?;
    Ok(Call {
        policy: Policy::Token(policy),
        charge,
    })
}

/// Parses `limit window_ms [COST n [FORCE] | UPTO n | REFUND n] [EXACT]`, what follows the key of
/// `RL.SLIDE`. `FORCE` and `EXACT` exclude each other.
///
/// # Errors
///
/// Those of [`fixed`];
/// with `EXACT` a limit above [`MAX_LOG_LIMIT`](crate::policy::MAX_LOG_LIMIT) is
/// [`Error::EntryLimit`], found after all else.
#[expect(clippy::inline_always, reason = "some 30 instructions of every call")]
#[inline(always)]
pub fn slide<'a>(mut words: impl Words<'a>) -> Result<Call, Error> {
    read_slide(&mut words, Asks::Charge)
}

#[expect(clippy::inline_always, reason = "some 30 instructions of every call")]
#[inline(always)]
fn read_slide<'a>(words: &mut impl Words<'a>, asks: Asks) -> Result<Call, Error> {
    let limit = match units(words.next(), Error::Limit) {
        Err(Error::Limit) => return Err(slide_limit_error(words.clone(), asks)),
        parsed => parsed?,
    };
    let window = span(words.next(), Error::Window)?;
    let keywords = keywords(words, asks, Exact::Known)?;
    end(words, asks)?;
    let policy = SlidePolicy { limit, window };
    let policy = if keywords.exact {
        Policy::Exact(ExactPolicy::new(policy).ok_or(Error::EntryLimit)?)
    } else {
        Policy::Slide(policy)
    };
    Ok(Call {
        policy,
        charge: keywords.charge,
    })
}

/// The range that the error names is the range of the form that was asked for.
#[cold]
fn slide_limit_error<'a>(after_limit: impl Words<'a>, asks: Asks) -> Error {
    let mut words = after_limit.skip(1);
    match keywords(&mut words, asks, Exact::Known) {
        Ok(keywords) if keywords.exact && end(&mut words, asks).is_ok() => Error::EntryLimit,
        _ => Error::Limit,
    }
}

/// Parses `limit ttl_ms id [RENEW | RELEASE]`, what follows the key of `RL.LEASE`.
///
/// # Errors
///
/// [`Error::Arity`], [`Error::EntryLimit`], [`Error::Ttl`], [`Error::Id`] or [`Error::Syntax`].
pub fn lease<'a>(mut words: impl Words<'a>) -> Result<LeaseCall<'a>, Error> {
    read_lease(&mut words, Asks::Charge)
}

fn read_lease<'a>(words: &mut impl Words<'a>, asks: Asks) -> Result<LeaseCall<'a>, Error> {
    let limit = units(words.next(), Error::EntryLimit)?;
    // Before the words that follow, as errors are told from left to right.
    if limit.get() > MAX_LEASES {
        return Err(Error::EntryLimit);
    }
    let ttl = span(words.next(), Error::Ttl)?;
    let policy = LeasePolicy::new(limit, ttl).ok_or(Error::EntryLimit)?;
    let id = words.next().ok_or(Error::Arity)?;
    if !(1..=MAX_ID).contains(&id.len()) {
        return Err(Error::Id);
    }
    let hold = hold(words, asks);
    end(words, asks)?;
    Ok(LeaseCall { policy, id, hold })
}

/// Reads the keyword that follows an id, if there is one.
fn hold<'a>(words: &mut impl Words<'a>, asks: Asks) -> Hold {
    let mut ahead = words.clone();
    let hold = match ahead.next() {
        Some(word) if asks != Asks::Look && word.eq_ignore_ascii_case(RENEW) => Hold::Renew,
        Some(word) if asks != Asks::Look && word.eq_ignore_ascii_case(RELEASE) => Hold::Release,
        _ => return Hold::Take,
    };
    *words = ahead;
    hold
}

/// Parses `FIXED …`, `TOKEN …`, `SLIDE …` or `LEASE …`, what follows the key of `RL.PEEK`: an
/// algorithm, and what its own command takes.
///
/// # Errors
///
/// [`Error::Syntax`] for another algorithm, [`Error::Arity`] for too few arguments, then those of
/// the algorithm's own command; [`Error::Syntax`] for `FORCE`, `REFUND`, `RENEW` and `RELEASE`, as a
/// look changes nothing.
pub fn peek<'a>(mut words: impl Words<'a> + ExactSizeIterator) -> Result<AnyCall<'a>, Error> {
    let algorithm = words.next().ok_or(Error::Arity)?;
    let least = match packed_word(algorithm) {
        TOKEN | LEASE => 3,
        _ => 2,
    };
    if words.len() < least {
        return Err(Error::Arity);
    }
    read_any(algorithm, &mut words, Asks::Look)
}

/// Parses `numkeys`, with which `RL.ALL` begins. As many keys follow.
///
/// # Errors
///
/// [`Error::Arity`] or [`Error::KeyCount`].
pub fn key_count(word: Option<&[u8]>) -> Result<usize, Error> {
    decimal::parse(word.ok_or(Error::Arity)?)
        .and_then(|count| usize::try_from(count).ok())
        .filter(|count| (1..=MAX_LIMITS).contains(count))
        .ok_or(Error::KeyCount)
}

/// Parses `policy [policy …]`, what follows so many keys of `RL.ALL`, one for each, into `calls`.
///
/// # Errors
///
/// [`Error::Syntax`] where there are fewer policies than keys, or more, or one is cut short, or has
/// `UPTO`; and those of each policy's own command, with its number where there are several.
pub fn policies<'a>(
    mut words: impl Words<'a>,
    count: usize,
    calls: &mut Calls<'a>,
) -> Result<(), ErrorOf> {
    let asks = if count == 1 { Asks::One } else { Asks::Several };
    for index in 0..count {
        let algorithm = words.next().ok_or(Error::Syntax)?;
        let call = read_any(algorithm, &mut words, asks).map_err(|error| match error {
            Error::Arity => Error::Syntax.into(),
            error => error.of(index, count),
        })?;
        calls.push(call);
    }
    end(&mut words, Asks::Charge)?;
    Ok(())
}

/// Reads what follows the name of an algorithm.
#[expect(clippy::inline_always, reason = "some 30 instructions of every call")]
#[inline(always)]
fn read_any<'a>(
    algorithm: &[u8],
    words: &mut impl Words<'a>,
    asks: Asks,
) -> Result<AnyCall<'a>, Error> {
    match packed_word(algorithm) {
        FIXED => read_fixed(words, asks).map(AnyCall::Units),
        TOKEN => read_token(words, asks).map(AnyCall::Units),
        SLIDE => read_slide(words, asks).map(AnyCall::Units),
        LEASE => read_lease(words, asks).map(AnyCall::Lease),
        _ => Err(Error::Syntax),
    }
}

/// The letters of a word of five, as all algorithms' names are, in one number and in lower case; 0 for
/// any other word. The bit that makes a letter lower case makes a letter of nothing else.
const fn packed_word(word: &[u8]) -> u64 {
    match *word {
        [first, second, third, fourth, fifth] => {
            u64::from_le_bytes([first, second, third, fourth, fifth, 0, 0, 0]) | 0x20_2020_2020
        }
        _ => 0,
    }
}

const FIXED: u64 = packed_word(b"FIXED");
const TOKEN: u64 = packed_word(b"TOKEN");
const SLIDE: u64 = packed_word(b"SLIDE");
const LEASE: u64 = packed_word(b"LEASE");
const RENEW: &[u8] = b"RENEW";
const RELEASE: &[u8] = b"RELEASE";
const COST: &[u8] = b"COST";
const FORCE: &[u8] = b"FORCE";
const UPTO: &[u8] = b"UPTO";
const REFUND: &[u8] = b"REFUND";
const EXACT: &[u8] = b"EXACT";

/// What a command asks, and so which keywords it knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// All of them.
    Charge,
    /// Nothing is changed: no `FORCE`, `REFUND`, `RENEW` or `RELEASE`.
    Look,
    /// All or nothing: no `UPTO`. Another policy may follow.
    Several,
    /// The same of a single limit. Nothing may follow, as after its own command.
    One,
}

/// Whether a command's grammar has the keyword `EXACT`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exact {
    Known,
    Unknown,
}

struct Keywords {
    charge: Charge,
    exact: bool,
}

/// Reads the keywords that follow the positional arguments, each at most once, in any order and
/// case. Leaves the first word that is none of them.
#[expect(
    clippy::inline_always,
    reason = "most calls have none, and need not ask"
)]
#[inline(always)]
fn keywords<'a>(words: &mut impl Words<'a>, asks: Asks, grammar: Exact) -> Result<Keywords, Error> {
    if words.clone().next().is_none() {
        return Ok(Keywords {
            charge: Charge::Cost(Units::ONE),
            exact: false,
        });
    }
    some_keywords(words, asks, grammar)
}

fn some_keywords<'a>(
    words: &mut impl Words<'a>,
    asks: Asks,
    grammar: Exact,
) -> Result<Keywords, Error> {
    let mut amount = None;
    let (mut force, mut exact) = (false, false);
    let mut ahead = words.clone();
    while let Some(keyword) = ahead.next() {
        let is = |name: &[u8]| keyword.eq_ignore_ascii_case(name);
        let mut value = |error| units(Some(ahead.next().ok_or(Error::Syntax)?), error);
        if is(COST) && amount.is_none() {
            amount = Some(Charge::Cost(value(Error::Cost)?));
        } else if is(EXACT) && grammar == Exact::Known && !exact && !force {
            exact = true;
        } else if is(UPTO)
            && matches!(asks, Asks::Charge | Asks::Look)
            && amount.is_none()
            && !force
        {
            amount = Some(Charge::UpTo(value(Error::UpTo)?));
        } else if is(REFUND) && asks != Asks::Look && amount.is_none() && !force {
            amount = Some(Charge::Refund(value(Error::Refund)?));
        } else if is(FORCE)
            && asks != Asks::Look
            && !force
            && !exact
            && matches!(amount, None | Some(Charge::Cost(_)))
        {
            force = true;
        } else {
            break;
        }
        *words = ahead.clone();
    }
    let charge = match amount.unwrap_or(Charge::Cost(Units::ONE)) {
        Charge::Cost(cost) if force => Charge::Force(cost),
        charge => charge,
    };
    Ok(Keywords { charge, exact })
}

/// Nothing may follow, unless it is another policy.
fn end<'a>(words: &mut impl Words<'a>, asks: Asks) -> Result<(), Error> {
    if asks == Asks::Several {
        return Ok(());
    }
    match words.next() {
        None => Ok(()),
        Some(_) => Err(Error::Syntax),
    }
}

#[inline]
fn units(arg: Option<&[u8]>, error: Error) -> Result<Units, Error> {
    decimal::parse(arg.ok_or(Error::Arity)?)
        .and_then(Units::new)
        .ok_or(error)
}

#[inline]
fn span(arg: Option<&[u8]>, error: Error) -> Result<Span, Error> {
    decimal::parse(arg.ok_or(Error::Arity)?)
        .and_then(Span::from_ms)
        .ok_or(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> impl Words<'_> {
        line.split_whitespace().map(str::as_bytes)
    }

    /// A call that is none on leases.
    fn units_of(call: Result<AnyCall<'_>, Error>) -> Result<Call, Error> {
        call.map(|call| match call {
            AnyCall::Units(call) => call,
            AnyCall::Lease(call) => panic!("{call:?}"),
        })
    }

    #[test]
    fn a_lease_has_an_id_and_at_most_one_word() {
        let policy = LeasePolicy::new(Units::new(9).unwrap(), Span::from_ms(5).unwrap()).unwrap();
        for (line, hold) in [
            ("9 5 a", Hold::Take),
            ("9 5 a RENEW", Hold::Renew),
            ("9 5 a release", Hold::Release),
            ("9 5 a ReNeW", Hold::Renew),
        ] {
            let id = b"a".as_slice();
            assert_eq!(lease(words(line)), Ok(LeaseCall { policy, id, hold }));
        }
        // The id may be any word.
        assert_eq!(lease(words("9 5 RENEW")).unwrap().hold, Hold::Take);
        assert_eq!(lease(words("9 5 RENEW RENEW")).unwrap().hold, Hold::Renew);
        for (line, error) in [
            ("", Error::Arity),
            ("9 5", Error::Arity),
            ("0 0", Error::EntryLimit),
            ("10001 5 a", Error::EntryLimit),
            ("x 0 a", Error::EntryLimit),
            ("9 0 a", Error::Ttl),
            ("9 3153600000001 a b", Error::Ttl),
            ("9 5 a RENEW RENEW", Error::Syntax),
            ("9 5 a RENEW RELEASE", Error::Syntax),
            ("9 5 a RELEASED", Error::Syntax),
            ("9 5 a COST 1", Error::Syntax),
            ("9 5 a b", Error::Syntax),
        ] {
            assert_eq!(lease(words(line)), Err(error), "{line}");
        }
        let longest = [b'x'; MAX_ID + 1];
        for (id, expected) in [
            (&longest[..0], Err(Error::Id)),
            (&longest[..1], Ok(())),
            (&longest[..MAX_ID], Ok(())),
            (&longest[..], Err(Error::Id)),
            (b"\0 \n\xff", Ok(())),
        ] {
            for word in [None, Some(b"RENEW".as_slice()), Some(b"x")] {
                let args = [b"10000".as_slice(), b"3153600000000", id];
                let told = lease(args.into_iter().chain(word));
                let expected = match (expected, word) {
                    (Ok(()), Some(b"x")) => Err(Error::Syntax),
                    (expected, _) => expected,
                };
                assert_eq!(told.map(|call| assert_eq!(call.id, id)), expected);
            }
        }
    }

    fn several(line: &str) -> Result<Vec<AnyCall<'_>>, ErrorOf> {
        let mut words = words(line);
        let count = key_count(words.next())?;
        for _ in 0..count {
            words.next().ok_or(Error::Syntax)?;
        }
        let mut calls = Calls::new();
        policies(words, count, &mut calls)?;
        Ok(calls.to_vec())
    }

    #[test]
    fn several_policies_follow_each_other_with_their_keywords() {
        fn one(line: &str) -> AnyCall<'_> {
            let mut calls = Calls::new();
            policies(words(line), 1, &mut calls).unwrap();
            calls[0]
        }
        let policies = [
            "FIXED 9 5",
            "fixed 9 5 COST 2",
            "TOKEN 9 8 5 FORCE",
            "Token 9 8 5 cost 3 force",
            "SLIDE 9 5 EXACT COST 2",
            "SLIDE 9 5 REFUND 4",
            "LEASE 9 5 a",
            "LEASE 9 5 FIXED RENEW",
            "LEASE 9 5 a RELEASE",
        ];
        for first in policies {
            for second in policies {
                let line = format!("2 k l {first} {second}");
                let calls = several(&line).unwrap();
                assert_eq!(calls, [one(first), one(second)], "{line}");
            }
        }
        assert_eq!(
            one("TOKEN 9 8 5 FORCE"),
            token(words("9 8 5 FORCE")).unwrap().into()
        );
        let most = format!("32{}{}", " k".repeat(32), " FIXED 9 5".repeat(32));
        assert_eq!(several(&most).unwrap().len(), 32);
    }

    #[test]
    fn an_error_of_several_says_which_policy() {
        let text = |line: &str| {
            let error = several(line).unwrap_err();
            let numbered = error.numbered_text().map(|text| text.to_vec());
            let text = numbered.unwrap_or(error.error.text().to_bytes_with_nul().to_vec());
            String::from_utf8(text).unwrap()
        };
        for (line, error) in [
            ("", Error::Arity),
            ("0 k FIXED 9 5", Error::KeyCount),
            ("33 k FIXED 9 5", Error::KeyCount),
            ("x", Error::KeyCount),
            ("01 k FIXED 9 5", Error::KeyCount),
            ("-1 k FIXED 9 5", Error::KeyCount),
            ("2 k FIXED 9 5", Error::Syntax),
            ("32 k FIXED 9 5", Error::Syntax),
            ("2 k l FIXED 9 5", Error::Syntax),
            ("1 k FIXED 9 5 FIXED 9 5", Error::Syntax),
            ("1 k FIXED 9", Error::Syntax),
            ("1 k LEASE 9 5", Error::Syntax),
            ("1 k EXACT 9 5", Error::Syntax),
            ("1 k FIXED 9 5 UPTO 2", Error::Syntax),
            ("1 k FIXED 9 5 UPTO 0", Error::Syntax),
            ("1 k FIXED 9 5 COST 2 COST 2", Error::Syntax),
            ("1 k FIXED 9 5 EXACT", Error::Syntax),
            ("1 k FIXED 9 5 COST", Error::Syntax),
            ("1 k SLIDE 9 5 EXACT FORCE", Error::Syntax),
            ("1 k LEASE 9 5 a RENEW RELEASE", Error::Syntax),
            ("2 k l FIXED 9 5 COST 2 FORCE x", Error::Syntax),
            ("1 k FIXED 0 5", Error::Limit),
            ("1 k SLIDE 10001 5 EXACT", Error::EntryLimit),
            ("1 k SLIDE 10001 5 EXACT x", Error::Syntax),
            ("1 k SLIDE 0 5 EXACT x", Error::Limit),
            ("1 k TOKEN 2 1 3153600000000 x", Error::Syntax),
        ] {
            let expected = error.text().to_bytes_with_nul();
            assert_eq!(text(line).as_bytes(), expected, "{line}");
        }
        for (line, number, error) in [
            ("2 k l FIXED 0 5 FIXED 0 5", 1, Error::Limit),
            ("2 k l FIXED 9 5 FIXED 9 0", 2, Error::Window),
            ("2 k l FIXED 9 5 COST 0 TOKEN 9 9 5", 1, Error::Cost),
            ("2 k l FIXED 9 5 TOKEN 9 0 5", 2, Error::Refill),
            ("2 k l FIXED 9 5 REFUND 0 TOKEN 9 0 5", 1, Error::Refund),
            // Each is checked whole before the next word, but the only one as its own command.
            (
                "2 k l TOKEN 2 1 3153600000000 FIXED 0 5",
                1,
                Error::FillTime,
            ),
            ("2 k l SLIDE 10001 5 EXACT FIXED 0 5", 1, Error::EntryLimit),
            ("2 k l SLIDE 0 5 EXACT FIXED 0 5", 1, Error::EntryLimit),
            ("2 k l SLIDE 0 5 FIXED 9 5 EXACT", 1, Error::Limit),
            ("3 k l m LEASE 9 5 a LEASE 9 5 a LEASE 9 0 a", 3, Error::Ttl),
        ] {
            let own = error.text().to_str().unwrap();
            let expected = own.replacen("policy:", &format!("policy {number}:"), 1);
            assert_eq!(text(line), format!("{expected}\0"), "{line}");
        }
        let state = Error::InvalidState.of(11, 32).numbered_text().unwrap();
        let expected = "INVALIDSTATE invalid counter state of key 12, all keys left unchanged\0";
        assert_eq!(state.as_slice(), expected.as_bytes());
        for error in [Error::WrongType, Error::OutOfMemory, Error::Clock] {
            assert_eq!(error.of(1, 2).numbered_text(), None);
        }
    }

    #[test]
    fn positional_arguments_have_ranges() {
        for (line, error) in [
            ("", Error::Arity),
            ("1", Error::Arity),
            ("0 1", Error::Limit),
            ("0", Error::Limit),
            ("9007199254740992 1", Error::Limit),
            ("1 0", Error::Window),
            ("1 3153600000001", Error::Window),
            ("x y z", Error::Limit),
            ("1 y z", Error::Window),
        ] {
            assert_eq!(fixed(words(line)).unwrap_err(), error, "{line}");
        }
        let largest = fixed(words(
            "9007199254740991 3153600000000 COST 9007199254740991",
        ))
        .unwrap();
        let limit = Units::new(9_007_199_254_740_991).unwrap();
        let window = Span::from_ms(3_153_600_000_000).unwrap();
        let policy = Policy::Fixed(FixedPolicy { limit, window });
        let charge = Charge::Cost(limit);
        assert_eq!(largest, Call { policy, charge });
    }

    #[test]
    fn each_argument_of_a_bucket_has_its_own_error() {
        for (line, error) in [
            ("0 0 0 COST 0", Error::Capacity),
            ("1 0 0 COST 0", Error::Refill),
            ("1 1 0 COST 0", Error::Period),
            ("1 1 1 COST 0", Error::Cost),
            ("2 1 3153600000000 COST 0", Error::Cost),
            ("2 1 3153600000000 SHOUT", Error::Syntax),
            ("2 1 3153600000000", Error::FillTime),
            ("1 1", Error::Arity),
        ] {
            assert_eq!(token(words(line)).unwrap_err(), error, "{line}");
        }
    }

    #[test]
    fn integers_are_plain_decimal_digits() {
        for word in [
            "+1",
            "-1",
            "1.0",
            "1e3",
            "0x10",
            "01",
            "1_000",
            "\u{661}",
            "1\0",
            "18446744073709551616",
        ] {
            assert_eq!(
                fixed([word.as_bytes(), b"1"].into_iter()).unwrap_err(),
                Error::Limit
            );
        }
        assert_eq!(
            fixed([b"".as_slice(), b"1"].into_iter()).unwrap_err(),
            Error::Limit
        );
        assert_eq!(
            fixed([b" 1".as_slice(), b"1"].into_iter()).unwrap_err(),
            Error::Limit
        );
    }

    #[test]
    fn keywords_come_in_any_order_and_case_but_once() {
        let policy = SlidePolicy {
            limit: Units::new(9).unwrap(),
            window: Span::from_ms(5).unwrap(),
        };
        let exact = Policy::Exact(ExactPolicy::new(policy).unwrap());
        for (line, policy, cost) in [
            ("9 5", Policy::Slide(policy), 1),
            ("9 5 cost 2", Policy::Slide(policy), 2),
            ("9 5 Exact", exact, 1),
            ("9 5 CoSt 2 exact", exact, 2),
            ("9 5 EXACT COST 2", exact, 2),
        ] {
            let charge = Charge::Cost(Units::new(cost).unwrap());
            assert_eq!(slide(words(line)), Ok(Call { policy, charge }), "{line}");
        }
        for line in [
            "9 5 COST",
            "9 5 COST 1 COST 1",
            "9 5 EXACT EXACT",
            "9 5 EXACTLY",
            "9 5 2",
            "9 5 EXACT COST",
            "9 5 COST 1 2",
        ] {
            assert_eq!(slide(words(line)), Err(Error::Syntax), "{line}");
        }
        assert_eq!(fixed(words("9 5 EXACT")), Err(Error::Syntax));
        assert_eq!(token(words("9 9 5 EXACT")), Err(Error::Syntax));
        assert_eq!(fixed(words("9 5 COST x COST 1")), Err(Error::Cost));
    }

    #[test]
    fn an_exact_limit_is_checked_after_all_else() {
        for (line, error) in [
            ("10001 5 EXACT", Error::EntryLimit),
            ("10001 0 EXACT", Error::Window),
            ("10001 5 EXACT COST 0", Error::Cost),
            ("10001 5 EXACT WHAT", Error::Syntax),
            ("0 5 COST 1 exact", Error::EntryLimit),
            ("0 5", Error::Limit),
            ("0 exact", Error::Limit),
            ("0 5 COST exact", Error::Limit),
        ] {
            assert_eq!(slide(words(line)).unwrap_err(), error, "{line}");
        }
        assert!(slide(words("10000 5 EXACT COST 9007199254740991")).is_ok());
    }

    #[test]
    fn a_peek_names_an_algorithm_and_then_what_its_command_takes() {
        let peek = |line: &'static str| {
            let args: Vec<&[u8]> = words(line).collect();
            units_of(peek(args.into_iter()))
        };
        let cost = |n| Units::new(n).unwrap();
        assert_eq!(peek("Fixed 9 5 COST 2"), fixed(words("9 5 COST 2")));
        assert_eq!(peek("token 9 8 5"), token(words("9 8 5")));
        let exact = peek("SLIDE 9 5 EXACT COST 3").unwrap();
        assert_eq!(exact.charge, Charge::Cost(cost(3)));
        assert!(matches!(exact.policy, Policy::Exact(_)));
        for (line, error) in [
            ("", Error::Arity),
            ("FIXED", Error::Arity),
            ("FIXED x", Error::Arity),
            ("TOKEN x y", Error::Arity),
            ("SLIDE 1", Error::Arity),
            ("WINDOW", Error::Arity),
            ("WINDOW x y", Error::Syntax),
            ("EXACT 9 5", Error::Syntax),
            ("RL.FIXED 9 5", Error::Syntax),
            ("FIXED 0 5", Error::Limit),
            ("FIXED 9 5 EXACT", Error::Syntax),
            ("TOKEN 9 9 0", Error::Period),
            ("SLIDE 10001 5 EXACT", Error::EntryLimit),
        ] {
            assert_eq!(peek(line).unwrap_err(), error, "{line}");
        }
    }

    /// Every sequence of up to three keywords, repeated ones included, in three ways of writing.
    #[test]
    fn keywords_exclude_each_other_as_the_grammar_says() {
        let all = ["COST 2", "UPTO 3", "REFUND 4", "FORCE", "EXACT"];
        let mut sequences: Vec<Vec<&str>> = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..3 {
            let upto = sequences.len();
            for at in from..upto {
                for word in all {
                    let longer = [sequences[at].clone(), vec![word]].concat();
                    sequences.push(longer);
                }
            }
            from = upto;
        }
        assert_eq!(sequences.len(), 1 + 5 + 25 + 125);
        let n = |n| Units::new(n).unwrap();
        let mut valid = [0; 6];
        for sequence in sequences {
            let count = |word: &str| sequence.iter().filter(|other| **other == word).count();
            let [cost, upto, refund, force, exact] = all.map(count);
            let charge = match [cost, upto, refund, force] {
                [0, 0, 0, 0] => Some(Charge::Cost(n(1))),
                [1, 0, 0, 0] => Some(Charge::Cost(n(2))),
                [0, 0, 0, 1] => Some(Charge::Force(n(1))),
                [1, 0, 0, 1] => Some(Charge::Force(n(2))),
                [0, 1, 0, 0] => Some(Charge::UpTo(n(3))),
                [0, 0, 1, 0] => Some(Charge::Refund(n(4))),
                _ => None,
            };
            let plain = charge.filter(|_| exact == 0);
            let sliding = charge.filter(|_| exact == 0 || (exact == 1 && force == 0));
            let look = |charge: Option<Charge>| charge.filter(|_| force == 0 && refund == 0);
            let joined = sequence.join(" ");
            let mixed: String = joined
                .chars()
                .enumerate()
                .map(|(at, c)| {
                    if at % 2 == 0 {
                        c
                    } else {
                        c.to_ascii_lowercase()
                    }
                })
                .collect();
            for line in [joined.to_ascii_lowercase(), mixed, joined] {
                let parse = |form: usize| {
                    let start = [
                        "9 5",
                        "9 9 5",
                        "9 5",
                        "FIXED 9 5",
                        "token 9 9 5",
                        "Slide 9 5",
                    ];
                    let line = format!("{} {line}", start[form]);
                    let args: Vec<&[u8]> = words(&line).collect();
                    let args = args.into_iter();
                    match form {
                        0 => fixed(args),
                        1 => token(args),
                        2 => slide(args),
                        _ => units_of(peek(args)),
                    }
                };
                let expected = [
                    plain,
                    plain,
                    sliding,
                    look(plain),
                    look(plain),
                    look(sliding),
                ];
                for (form, charge) in expected.into_iter().enumerate() {
                    let told = parse(form);
                    let charges = told.map(|call| call.charge);
                    assert_eq!(charges, charge.ok_or(Error::Syntax), "{form}: {line}");
                    let is_log = told.is_ok_and(|call| matches!(call.policy, Policy::Exact(_)));
                    assert_eq!(is_log, charge.is_some() && exact == 1, "{form}: {line}");
                    valid[form] += usize::from(charge.is_some());
                }
            }
        }
        // None, COST, UPTO, REFUND, FORCE, COST FORCE, FORCE COST; and with EXACT, in any order,
        // the first four but for REFUND in a look.
        assert_eq!(valid, [7, 7, 7 + 1 + 6, 3, 3, 3 + 1 + 4].map(|n| 3 * n));
    }

    #[test]
    fn each_word_has_its_own_range_error_and_needs_a_value() {
        let largest = "9007199254740991";
        for (line, expected, looked) in [
            ("COST 0", Err(Error::Cost), Err(Error::Cost)),
            ("UPTO 0", Err(Error::UpTo), Err(Error::UpTo)),
            ("REFUND 0", Err(Error::Refund), Err(Error::Syntax)),
            ("COST 9007199254740992", Err(Error::Cost), Err(Error::Cost)),
            ("UPTO 9007199254740992", Err(Error::UpTo), Err(Error::UpTo)),
            (
                "REFUND 9007199254740992",
                Err(Error::Refund),
                Err(Error::Syntax),
            ),
            ("UPTO -1", Err(Error::UpTo), Err(Error::UpTo)),
            ("REFUND +1", Err(Error::Refund), Err(Error::Syntax)),
            ("REFUND 1.0", Err(Error::Refund), Err(Error::Syntax)),
            ("COST", Err(Error::Syntax), Err(Error::Syntax)),
            ("UPTO", Err(Error::Syntax), Err(Error::Syntax)),
            ("REFUND", Err(Error::Syntax), Err(Error::Syntax)),
            ("FORCE COST", Err(Error::Syntax), Err(Error::Syntax)),
            // The next word is the value, whatever it is.
            ("COST FORCE", Err(Error::Cost), Err(Error::Cost)),
            ("UPTO COST 1", Err(Error::UpTo), Err(Error::UpTo)),
            ("REFUND FORCE", Err(Error::Refund), Err(Error::Syntax)),
            ("FORCE COST 0", Err(Error::Cost), Err(Error::Syntax)),
            ("COST 0 FORCE", Err(Error::Cost), Err(Error::Cost)),
            // From left to right: a word that is excluded is not asked for its value.
            ("COST 1 UPTO 0", Err(Error::Syntax), Err(Error::Syntax)),
            ("UPTO 0 COST 1", Err(Error::UpTo), Err(Error::UpTo)),
            ("FORCE REFUND 0", Err(Error::Syntax), Err(Error::Syntax)),
            ("REFUND 0 FORCE", Err(Error::Refund), Err(Error::Syntax)),
            ("FORCE 1", Err(Error::Syntax), Err(Error::Syntax)),
            ("FORCED", Err(Error::Syntax), Err(Error::Syntax)),
            ("UP TO 1", Err(Error::Syntax), Err(Error::Syntax)),
        ] {
            let start = |start: &str| format!("{start} {line}");
            let charge = |call: Result<Call, Error>| call.map(|call| call.charge);
            assert_eq!(charge(fixed(words(&start("9 5")))), expected, "{line}");
            assert_eq!(charge(token(words(&start("9 9 5")))), expected, "{line}");
            assert_eq!(charge(slide(words(&start("9 5")))), expected, "{line}");
            for form in ["FIXED 9 5", "TOKEN 9 9 5", "SLIDE 9 5"] {
                let line = start(form);
                let args: Vec<&[u8]> = words(&line).collect();
                let call = units_of(peek(args.into_iter()));
                assert_eq!(charge(call), looked, "{line}");
            }
        }
        let most = Units::new(9_007_199_254_740_991).unwrap();
        for (word, charge) in [
            ("COST", Charge::Cost(most)),
            ("UPTO", Charge::UpTo(most)),
            ("REFUND", Charge::Refund(most)),
            ("FORCE COST", Charge::Force(most)),
        ] {
            let call = slide(words(&format!("9 5 {word} {largest}"))).unwrap();
            assert_eq!(call.charge, charge);
        }
    }

    #[test]
    fn an_exact_limit_has_its_range_with_every_word() {
        for (line, error) in [
            ("10001 5 EXACT UPTO 3", Error::EntryLimit),
            ("10001 5 REFUND 3 EXACT", Error::EntryLimit),
            ("0 5 REFUND 3 EXACT", Error::EntryLimit),
            ("0 5 FORCE EXACT", Error::Limit),
            ("10001 5 EXACT FORCE", Error::Syntax),
            ("10001 5 EXACT UPTO 0", Error::UpTo),
        ] {
            assert_eq!(slide(words(line)).unwrap_err(), error, "{line}");
        }
        assert!(slide(words("10000 5 EXACT UPTO 9007199254740991")).is_ok());
    }
}
