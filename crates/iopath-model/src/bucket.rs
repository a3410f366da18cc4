//! A token bucket: a rate, a higher rate while credits last, and the time at which the next units may pass. It holds no
//! queue.

use crate::mechanism::{Nanos, SECOND};

/// Times have a resolution of 2^-20 ns, so that the error at rates above a gigabyte a second stays negligible.
const FRACTION_BITS: u32 = 20;

/// The resolution of a share.
const SHARE_BITS: u32 = 10;

/// The share 1: each unit counts in full.
const SHARE_ONE: u64 = 1 << SHARE_BITS;

/// Limits a flow of units, I/Os or bytes, to `burst_per_s` while credits last, and to `per_s` after that.
///
/// Both limits are generic cell rate algorithms: each holds the time at which its bucket would be full again.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// Times in 2^-20 ns.
    unit_sustained: u128,
    unit_burst: u128,
    credit_time: u128,
    sustained_full_at: u128,
    burst_full_at: u128,
}

impl Bucket {
    /// A bucket that holds `credits` units, all of them at the start. `per_s` is at least 1 and at most `burst_per_s`.
    pub(crate) fn new(per_s: f64, burst_per_s: f64, credits: f64) -> Self {
        let unit = |rate: f64| ((SECOND << FRACTION_BITS) as f64 / rate).round() as u128;
        let unit_sustained = unit(per_s);
        Self {
            unit_sustained,
            unit_burst: unit(burst_per_s),
            credit_time: unit_sustained * credits.round() as u128,
            sustained_full_at: 0,
            burst_full_at: 0,
        }
    }

    /// The earliest time, `now` or later, at which the next units may pass. At that time, call [`Bucket::take`]. It
    /// saturates at the end of time.
    pub(crate) fn ready(&self, now: Nanos) -> Nanos {
        let now = u128::from(now) << FRACTION_BITS;
        let sustained = self.sustained_full_at.saturating_sub(self.credit_time);
        let at = now.max(self.burst_full_at).max(sustained);
        Nanos::try_from(at.div_ceil(1 << FRACTION_BITS)).unwrap_or(Nanos::MAX)
    }

    /// `units` pass at `at`, which is not earlier than the result of [`Bucket::ready`].
    pub(crate) fn take(&mut self, units: u64, at: Nanos) {
        self.take_share(units, SHARE_ONE, at);
    }

    /// Does the same as [`Bucket::take`], but each unit counts as `share` / 2^10 units.
    pub(crate) fn take_share(&mut self, units: u64, share: u64, at: Nanos) {
        let at = u128::from(at) << FRACTION_BITS;
        let units = u128::from(units * share);
        // `at` is rounded to nanoseconds. The rounding must not reduce the rate of the caller.
        let from = |full_at: u128| if at < full_at + (1 << FRACTION_BITS) { full_at } else { at };
        self.sustained_full_at = from(self.sustained_full_at) + ((units * self.unit_sustained) >> SHARE_BITS);
        self.burst_full_at = from(self.burst_full_at) + ((units * self.unit_burst) >> SHARE_BITS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of units that the bucket lets pass within `nanos` from `start` on.
    fn flow(bucket: &mut Bucket, start: Nanos, nanos: Nanos) -> u64 {
        let mut units = 0;
        loop {
            let at = bucket.ready(start);
            if at >= start + nanos {
                return units;
            }
            bucket.take(1, at);
            units += 1;
        }
    }

    #[test]
    fn credits_last_for_the_time_that_the_difference_of_the_rates_allows() {
        // The flow uses 100 credits a second more than the bucket earns: 1000 credits last 10 s.
        let mut bucket = Bucket::new(100.0, 200.0, 1000.0);
        assert_eq!(flow(&mut bucket, 0, 10 * SECOND), 2000);
        let after = flow(&mut bucket, 10 * SECOND, 10 * SECOND);
        assert!((999..=1002).contains(&after), "{after}");
    }

    #[test]
    fn idle_time_saves_credits_up_to_the_bucket() {
        let mut bucket = Bucket::new(100.0, 10_000.0, 50.0);
        let first = flow(&mut bucket, 0, SECOND);
        assert!((149..=152).contains(&first), "{first}");
        let later = flow(&mut bucket, 100 * SECOND, SECOND);
        assert!((149..=152).contains(&later), "{later}");
    }

    #[test]
    fn units_past_the_end_of_time_wait_until_then() {
        let mut bucket = Bucket::new(1.0, 1.0, 0.0);
        let mut before = 0;
        for _ in 0..600 {
            let at = bucket.ready(0);
            assert!(at >= before, "{at} after {before}");
            bucket.take(64 << 20, at);
            before = at;
        }
        assert_eq!(before, Nanos::MAX);
    }

    #[test]
    fn a_rate_that_is_no_whole_number_of_nanoseconds_is_kept() {
        let mut bucket = Bucket::new(3e6, 3e6, 1.0);
        let units = flow(&mut bucket, 0, SECOND);
        assert!((3_000_000..=3_000_002).contains(&units), "{units}");
    }
}
