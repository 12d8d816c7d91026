//! 128-bit products and their quotients. Most dividends fit 64 bits, where dividing is several times
//! cheaper; the result is the same.
//!
//! The quotients that the algorithms form fit 64 bits, and each says why. One that did not would
//! stop at `u64::MAX`.

use core::num::{NonZeroU64, NonZeroU128};

/// `a × b`, which always fits.
#[inline]
pub(crate) fn product(a: u64, b: u64) -> u128 {
    u128::from(a).wrapping_mul(u128::from(b))
}

/// `dividend / divisor`, rounded down.
#[inline]
pub(crate) fn div_floor(dividend: u128, divisor: NonZeroU64) -> u64 {
    match u64::try_from(dividend) {
        Ok(dividend) => dividend / divisor,
        Err(_) => u64::try_from(dividend / NonZeroU128::from(divisor)).unwrap_or(u64::MAX),
    }
}

/// `dividend / divisor`, rounded up.
#[inline]
pub(crate) fn div_ceil(dividend: u128, divisor: NonZeroU64) -> u64 {
    match dividend.checked_sub(1) {
        Some(below) => div_floor(below, divisor).saturating_add(1),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_the_same_on_both_sides_of_sixty_four_bits() {
        let divisors = [1, 2, 3, 1_000, u64::MAX];
        let edge = u128::from(u64::MAX);
        for dividend in [
            0,
            1,
            2,
            999,
            1_000,
            1_001,
            edge - 1,
            edge,
            edge + 1,
            edge * 3 + 1,
        ] {
            for divisor in divisors.map(|divisor| NonZeroU64::new(divisor).unwrap()) {
                let by = u128::from(divisor.get());
                let stops = |quotient: u128| u64::try_from(quotient).unwrap_or(u64::MAX);
                assert_eq!(div_floor(dividend, divisor), stops(dividend / by));
                assert_eq!(div_ceil(dividend, divisor), stops(dividend.div_ceil(by)));
            }
        }
        assert_eq!(product(u64::MAX, u64::MAX), edge * edge);
    }
}
