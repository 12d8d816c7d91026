//! Canonical decimal integers, as Redis writes them and as `INCR` takes them: digits alone, no
//! sign, no space, no leading zero.

/// Reads a canonical integer of 0 … `u64::MAX`.
#[must_use]
pub fn parse(text: &[u8]) -> Option<u64> {
    match text {
        b"0" => Some(0),
        [b'1'..=b'9', ..] => digits(text),
        _ => None,
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

/// Reads digits alone, leading zeros included.
fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
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
}
