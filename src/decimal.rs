//! Canonical decimal integers, as Redis writes them and as `INCR` takes them: digits alone, no
//! sign, no space, no leading zero.

/// Reads a canonical integer of 0 … `u64::MAX`.
#[must_use]
#[inline]
pub fn parse(text: &[u8]) -> Option<u64> {
    match text {
        [] => None,
        [b'0', rest @ ..] => rest.is_empty().then_some(0),
        _ => digits(text),
    }
}

/// Reads a canonical integer of up to 38 digits.
#[must_use]
pub fn parse_wide(text: &[u8]) -> Option<u128> {
    /// Always fits 64 bits.
    const LOW_DIGITS: usize = 19;
    let Some((high, low)) = text
        .len()
        .checked_sub(LOW_DIGITS)
        .and_then(|at| text.split_at_checked(at))
    else {
        return parse(text).map(u128::from);
    };
    if high.is_empty() {
        return parse(low).map(u128::from);
    }
    let high = u128::from(parse(high).filter(|high| *high > 0)?);
    high.checked_mul(10_u128.pow(19))?
        .checked_add(u128::from(digits(low)?))
}

/// Reads sixteen digits, leading zeros included.
#[inline]
pub(crate) fn sixteen_digits(text: &[u8]) -> Option<u64> {
    let (high, low) = text.split_first_chunk()?;
    let [high, low] = eight_digits([*high, low.try_into().ok()?])?;
    Some(high.wrapping_mul(100_000_000).wrapping_add(low))
}

/// Takes a canonical integer of 0 … `u64::MAX` and the `:` behind it off the front of a text, in one
/// pass.
#[expect(
    clippy::inline_always,
    reason = "some 25 instructions of a sliding window's calls"
)]
#[inline(always)]
pub(crate) fn take(text: &mut &[u8]) -> Option<u64> {
    let (digits, number) = take_digits(text)?;
    match digits {
        [b'0', more @ ..] => more.is_empty().then_some(0),
        [_, ..] if digits.len() <= SAFE_DIGITS => Some(number),
        _ => parse(digits),
    }
}

/// The same for up to 38 digits.
#[inline]
pub(crate) fn take_wide(text: &mut &[u8]) -> Option<u128> {
    let (digits, number) = take_digits(text)?;
    match digits {
        [b'0', more @ ..] => more.is_empty().then_some(0),
        [_, ..] if digits.len() <= SAFE_DIGITS => Some(u128::from(number)),
        _ => parse_wide(digits),
    }
}

/// The same for up to 38 digits and a minus sign; no minus sign before 0.
#[inline]
pub(crate) fn take_signed(text: &mut &[u8]) -> Option<i128> {
    let Some(mut digits) = text.strip_prefix(b"-") else {
        return i128::try_from(take_wide(text)?).ok();
    };
    let number = i128::try_from(take_wide(&mut digits)?).ok()?;
    *text = digits;
    (number > 0).then_some(number.saturating_neg())
}

/// No number of so many digits overflows.
const SAFE_DIGITS: usize = 19;

/// Takes digits and the `:` behind them off the front of a text, and what they say if they are at
/// most [`SAFE_DIGITS`].
#[expect(clippy::inline_always, reason = "some 30 instructions of every call")]
#[inline(always)]
fn take_digits<'a>(text: &mut &'a [u8]) -> Option<(&'a [u8], u64)> {
    let mut number = 0_u64;
    let mut len = 0_usize;
    let mut rest = *text;
    // Eight bytes are there almost always, so none of them needs to be asked for.
    while let Some((eight, after)) = rest.split_first_chunk::<8>() {
        for byte in eight {
            let Some(digit) = digit(*byte) else {
                return end_field(text, len, number);
            };
            number = number.wrapping_mul(10).wrapping_add(digit);
            len = len.wrapping_add(1);
        }
        rest = after;
    }
    for byte in rest {
        let Some(digit) = digit(*byte) else { break };
        number = number.wrapping_mul(10).wrapping_add(digit);
        len = len.wrapping_add(1);
    }
    end_field(text, len, number)
}

/// Takes so many digits, which say `number`, and the `:` behind them.
#[inline]
fn end_field<'a>(text: &mut &'a [u8], len: usize, number: u64) -> Option<(&'a [u8], u64)> {
    let (digits, rest) = text.split_at_checked(len)?;
    *text = rest.strip_prefix(b":")?;
    Some((digits, number))
}

/// Reads digits alone, leading zeros included.
#[inline]
fn digits(text: &[u8]) -> Option<u64> {
    if text.len() >= 8 {
        return many_digits(text);
    }
    let mut number = 0_u64;
    for byte in text {
        number = number.wrapping_mul(10).wrapping_add(digit(*byte)?);
    }
    Some(number)
}

/// The same of eight digits and more.
fn many_digits(text: &[u8]) -> Option<u64> {
    let (eight, rest) = text.split_first_chunk()?;
    let [high] = eight_digits([*eight])?;
    rest.iter().try_fold(high, |number, byte| {
        number.checked_mul(10)?.checked_add(digit(*byte)?)
    })
}

#[inline]
fn digit(byte: u8) -> Option<u64> {
    let digit = u64::from(byte).wrapping_sub(u64::from(b'0'));
    (digit <= 9).then_some(digit)
}

/// Reads eight digits at once, once or several times: neighbours are joined to pairs, pairs to
/// fours, fours to the whole.
#[inline]
fn eight_digits<const N: usize>(texts: [[u8; 8]; N]) -> Option<[u64; N]> {
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    /// Moves `:` … `?`, the only other bytes that share the digits' upper half, out of it.
    const SIXES: u64 = 0x0606_0606_0606_0606;
    let words = texts.map(u64::from_le_bytes);
    let others = words.iter().fold(0, |others, bytes| {
        others | (bytes & HIGH ^ ZEROS) | (bytes.wrapping_add(SIXES) & HIGH ^ ZEROS)
    });
    (others == 0).then(|| {
        words.map(|bytes| {
            // The first digit is in the lowest byte, so each step adds the higher neighbour.
            let ones = bytes.wrapping_sub(ZEROS);
            let pairs = ones.wrapping_mul(10).wrapping_add(ones >> 8) & 0x00ff_00ff_00ff_00ff;
            let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
            fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_digits_are_numbers() {
        for text in [
            "",
            "00",
            "01",
            "+1",
            "-1",
            "-0",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "0x1",
            "1\0",
            "18446744073709551616",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        for number in [0, 1, 9, 10, 9_223_372_036_854_775_807, u64::MAX] {
            assert_eq!(parse(number.to_string().as_bytes()), Some(number));
        }
    }

    #[test]
    fn wide_numbers_follow_the_same_rules() {
        for number in [
            0,
            7,
            10_u128.pow(18),
            10_u128.pow(19) - 1,
            10_u128.pow(19),
            u128::from(u64::MAX) + 1,
            10_u128.pow(38) - 1,
        ] {
            assert_eq!(parse_wide(number.to_string().as_bytes()), Some(number));
        }
        for text in [
            "",
            "-1",
            "00000000000000000001",
            "0123456789012345678901",
            "1234567890123456789x123",
            "x2345678901234567890",
            "999999999999999999999999999999999999999999",
        ] {
            assert_eq!(parse_wide(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn eight_digits_are_read_as_one_by_one() {
        for number in [0_u64, 1, 12_345_678, 87_654_321, 90_000_009, 99_999_999] {
            let text = format!("{number:08}");
            assert_eq!(digits(text.as_bytes()), Some(number));
            let twice = format!("{text}{number:08}");
            let sixteen = Some(number * 100_000_000 + number);
            assert_eq!(digits(twice.as_bytes()), sixteen);
            assert_eq!(sixteen_digits(twice.as_bytes()), sixteen);
            assert_eq!(sixteen_digits(format!("{twice}0").as_bytes()), None);
            assert_eq!(sixteen_digits(&twice.as_bytes()[1..]), None);
        }
        for at in 0..17 {
            for byte in (0..=u8::MAX).filter(|byte| !byte.is_ascii_digit()) {
                let mut text = *b"12345678123456781";
                text[at] = byte;
                for len in at + 1..=text.len() {
                    assert_eq!(digits(&text[..len]), None, "{byte} at {at} of {len}");
                    assert_eq!(sixteen_digits(&text[..len]), None);
                }
            }
        }
    }

    /// So that what is wrong in one half can't make up for what is wrong in the other.
    #[test]
    fn the_same_byte_in_both_halves_is_no_digit() {
        for at in 0..8 {
            for byte in (0..=u8::MAX).filter(|byte| !byte.is_ascii_digit()) {
                let mut text = *b"1234567812345678";
                (text[at], text[at + 8]) = (byte, byte);
                assert_eq!(sixteen_digits(&text), None, "{byte} at {at}");
            }
        }
    }

    #[test]
    fn what_is_taken_is_what_is_read() {
        let numbers = [
            "0",
            "7",
            "42",
            "99999999",
            "1779331200000000",
            "9999999999999999999",
        ];
        let wide = [
            "10000000000000000000",
            "18446744073709551615",
            "18446744073709551616",
        ];
        let wider = [
            "28363200000000000000000000000000",
            "99999999999999999999999999999999999999",
        ];
        let others = ["", "00", "01", "-1", "+1", "1x", " 1", "x"];
        // On both sides of where eight bytes are read at a time.
        let of_every_length: Vec<String> = (1..=40)
            .map(|len| "9876543210".repeat(4)[..len].into())
            .collect();
        let texts = numbers.iter().chain(&wide).chain(&wider).chain(&others);
        for text in texts
            .copied()
            .chain(of_every_length.iter().map(String::as_str))
        {
            for end in ["", "r", "rest", "1234567", "12345678", ":::::::::"] {
                let line = format!("{text}:{end}");
                let mut rest = line.as_bytes();
                assert_eq!(take(&mut rest), parse(text.as_bytes()), "{line}");
                let mut rest = line.as_bytes();
                let taken = take_wide(&mut rest);
                assert_eq!(taken, parse_wide(text.as_bytes()), "{line}");
                if taken.is_some() {
                    assert_eq!(rest, end.as_bytes());
                }
            }
            assert_eq!(
                take(&mut text.as_bytes()),
                None,
                "{text} without what ends it"
            );
        }
    }
}
