//! A histogram of latencies or distances, of constant size. Sum and extremes are exact, quantiles are exact to a number
//! of binary digits. Not a general histogram. A log has five values for each I/O, and `hdrhistogram` checks bounds at
//! each value.

/// Counts by value: exact below `2^bits`, otherwise to `bits` binary digits.
#[derive(Debug, Clone)]
pub(super) struct Histogram {
    /// Modulo 2^32: half the size, so that more of them stay in the CPU caches.
    counts: Box<[u32]>,
    /// The buckets whose counts have wrapped, once for each time.
    wrapped: Vec<usize>,
    bits: u32,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Histogram {
    /// Three digits: 220 KiB.
    pub(super) const FINE_BITS: u32 = 11;
    /// Two digits: 29 KiB.
    pub(super) const COARSE_BITS: u32 = 8;

    pub(super) fn new(bits: u32) -> Self {
        let buckets = bucket(u64::MAX, bits) + 1;
        let counts = vec![0; buckets].into_boxed_slice();
        Self { counts, wrapped: Vec::new(), bits, count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    #[inline]
    pub(super) fn add(&mut self, value: u64) {
        let bucket = bucket(value, self.bits);
        let count = &mut self.counts[bucket];
        *count = count.wrapping_add(1);
        if *count == 0 {
            self.wrap(bucket);
        }
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    #[cold]
    fn wrap(&mut self, bucket: usize) {
        self.wrapped.push(bucket);
    }

    /// The number of values in a bucket.
    fn count_in(&self, bucket: usize) -> u64 {
        let wrapped = self.wrapped.iter().filter(|wrapped| **wrapped == bucket).count() as u64;
        u64::from(self.counts[bucket]) + (wrapped << u32::BITS)
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Values other than 0.
    pub(super) fn nonzero(&self) -> u64 {
        self.count - self.count_in(0)
    }

    pub(super) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The smallest value, 0 without values.
    pub(super) const fn min(&self) -> u64 {
        if self.min > self.max { 0 } else { self.min }
    }

    pub(super) const fn max(&self) -> u64 {
        self.max
    }

    /// The quantile: `share` of all values are at most this value. Rounded up to the end of a bucket, and at most the
    /// largest value.
    pub(super) fn quantile(&self, share: f64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let wanted = ((share * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for bucket in 0..self.counts.len() {
            seen += self.count_in(bucket);
            if seen >= wanted {
                return largest_in(bucket, self.bits).min(self.max);
            }
        }
        self.max
    }
}

/// The bucket of a value. Each power of two from `2^bits` on has half as many buckets as there are below it.
#[inline]
const fn bucket(value: u64, bits: u32) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(bits);
    ((shift as usize) << (bits - 1)) + (value >> shift) as usize
}

/// The largest value of a bucket.
const fn largest_in(bucket: usize, bits: u32) -> u64 {
    let half = 1_usize << (bits - 1);
    if bucket < 2 * half {
        return bucket as u64;
    }
    let shift = (bucket / half - 1) as u32;
    let from = ((bucket - shift as usize * half) as u64) << shift;
    from + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_holds_values_that_share_their_leading_digits(value: u64, shift in 0_u32..64, bits in 2_u32..12) {
            let value = value >> shift;
            let largest = largest_in(bucket(value, bits), bits);
            prop_assert!(largest >= value, "{largest} for {value}");
            prop_assert!(largest - value <= value >> (bits - 1), "{largest} for {value}");
            prop_assert_eq!(bucket(largest, bits), bucket(value, bits));
            if largest < u64::MAX {
                prop_assert_eq!(bucket(largest + 1, bits), bucket(value, bits) + 1, "no bucket is left out");
            }
        }

        #[test]
        fn quantiles_match_the_sorted_values(
            mut values in proptest::collection::vec(0_u64..1 << 40, 1..200), share in 0.0..=1.0_f64,
        ) {
            let mut histogram = Histogram::new(Histogram::FINE_BITS);
            for value in &values {
                histogram.add(*value);
            }
            values.sort_unstable();
            let wanted = ((share * values.len() as f64).ceil() as usize).max(1);
            let exact = values[wanted - 1];
            let quantile = histogram.quantile(share);
            prop_assert!(quantile >= exact && quantile - exact <= exact / 1000, "{quantile} for {exact}");
            prop_assert_eq!((histogram.min(), histogram.max()), (values[0], values[values.len() - 1]));
            prop_assert_eq!(histogram.count(), values.len() as u64);
        }
    }

    #[test]
    fn a_count_beyond_32_bits_is_exact() {
        let mut histogram = Histogram::new(Histogram::COARSE_BITS);
        histogram.add(0);
        histogram.add(9);
        // Sets the state before the last of the additions after which the count wraps.
        histogram.counts[7] = u32::MAX;
        histogram.count += u64::from(u32::MAX);
        (0..3).for_each(|_| histogram.add(7));
        assert_eq!((histogram.count_in(7), histogram.count_in(9)), ((1 << 32) + 2, 1));
        assert_eq!((histogram.quantile(0.999), histogram.nonzero()), (7, (1 << 32) + 3));
    }

    #[test]
    fn an_empty_histogram_is_all_zeroes() {
        let histogram = Histogram::new(Histogram::COARSE_BITS);
        assert_eq!(
            (histogram.count(), histogram.min(), histogram.max(), histogram.quantile(0.5)),
            (0, 0, 0, 0)
        );
        assert!(histogram.mean().abs() < f64::EPSILON);
    }
}
