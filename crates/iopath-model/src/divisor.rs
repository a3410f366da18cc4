//! Division by a number that rarely changes, by a multiplication. Used for addresses: each request needs several.

/// A number above zero, and its reciprocal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Divisor {
    value: u64,
    /// 2^64 / `value`, rounded down; less one if `value` divides 2^64.
    inverse: u64,
}

impl Divisor {
    /// # Panics
    /// If `value` is zero: a bug of the caller.
    pub(crate) const fn new(value: u64) -> Self {
        Self { value, inverse: u64::MAX / value }
    }

    /// The number.
    #[inline]
    pub(crate) const fn get(self) -> u64 {
        self.value
    }

    /// The quotient and the remainder.
    #[inline]
    pub(crate) const fn div_rem(self, number: u64) -> (u64, u64) {
        // The rounding makes this quotient too small by at most one.
        let quotient = ((number as u128 * self.inverse as u128) >> 64) as u64;
        let rest = number - quotient * self.value;
        if rest >= self.value { (quotient + 1, rest - self.value) } else { (quotient, rest) }
    }

    /// The quotient.
    #[inline]
    pub(crate) const fn div(self, number: u64) -> u64 {
        self.div_rem(number).0
    }

    /// The remainder.
    #[inline]
    pub(crate) const fn rem(self, number: u64) -> u64 {
        self.div_rem(number).1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(number: u64, value: u64) {
        assert_eq!(
            Divisor::new(value).div_rem(number),
            (number / value, number % value),
            "{number} / {value}"
        );
    }

    #[test]
    fn the_results_are_exact_at_the_limits() {
        let limits = |middle: u64| [middle.wrapping_sub(1), middle, middle.wrapping_add(1)];
        let numbers = [0, 3, 1 << 31, 1 << 32, 1 << 63, u64::MAX / 3, u64::MAX].map(limits);
        for number in numbers.as_flattened() {
            for value in numbers.as_flattened().iter().filter(|value| **value > 0) {
                check(*number, *value);
                check(number.wrapping_mul(*value), *value);
                check(number.wrapping_mul(*value).wrapping_sub(1), *value);
            }
        }
    }

    proptest! {
        #[test]
        fn the_results_are_exact(number: u64, value in 1_u64.., bits in 0_u32..64) {
            check(number, value);
            check(number >> bits, (value >> bits).max(1));
            check(number, (value >> bits).max(1));
        }
    }
}
