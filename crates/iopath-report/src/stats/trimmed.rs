//! The location of a sample without its tails: the trimmed mean, with the standard error that belongs to it. Does not
//! compare samples: see `contrast.rs`.
//!
//! A stall of the storage makes one repetition several times as long as the others. It moves the mean and multiplies
//! the standard deviation. The trimmed mean ignores a tenth of the values at each end, so a few stalls have no
//! influence. Its standard error follows from the winsorised variance, in which the nearest remaining value replaces
//! each ignored one (Tukey and `McLaughlin`, 1963; Yuen, 1974; Wilcox, *Introduction to Robust Estimation and
//! Hypothesis Testing*). A fifth, as Wilcox recommends, would resist more stalls, and needs twice as many repetitions
//! where the storage has two levels of speed.

use super::Summary;

/// The share of the values that is ignored at each end, rounded down; at least one value of [`TRIMMED_FROM`] or more.
const TAIL: f64 = 0.1;

/// Fewer values are all used.
const TRIMMED_FROM: usize = 5;

/// A value whose logarithm differs by this much from the median is a stall. The plan of a measurement ignores stalls,
/// since the trimmed mean does.
const STALL: f64 = std::f64::consts::LN_2;

/// The share of the degrees of freedom of a trimmed mean that is used. In simulations of normal values, the interval
/// with all degrees misses the mean in 6.3% of the samples of five values instead of 5%, and with this share in 5.2%.
const CAUTION: f64 = 0.9;

/// An estimate of the location of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Location {
    /// The number of values.
    pub count: f64,
    /// The number of values between the tails.
    pub kept: f64,
    /// The mean of these.
    pub mean: f64,
    /// The squared standard error of the mean; none for a single value.
    pub error_squared: Option<f64>,
    /// The degrees of freedom of the standard error.
    pub degrees: f64,
    /// The largest variance that one value of a large sample probably contributes to its trimmed mean; none for a
    /// single value.
    pub planned: Option<f64>,
    /// The degrees of freedom of `planned`.
    pub planned_degrees: f64,
}

impl Location {
    /// The mean of all values. None for an empty sample.
    pub fn mean(values: &[f64]) -> Option<Self> {
        Self::of(&sorted(values), 0)
    }

    /// The mean without the tails. If the other values are equal, as with a coarse clock, their variance of 0 is no
    /// evidence, and all values count. None for an empty sample.
    pub fn trimmed(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let share = (TAIL * sorted.len() as f64 + 1e-9) as usize;
        let tail = if sorted.len() < TRIMMED_FROM { 0 } else { share.max(1) };
        let trimmed = Self::of(&sorted, tail)?;
        if trimmed.error_squared.is_some_and(|error| error > 0.0) {
            Some(trimmed)
        } else {
            Self::of(&sorted, 0)
        }
    }

    /// The mean of a sorted sample without some values at each end.
    fn of(sorted: &[f64], tail: usize) -> Option<Self> {
        let count = sorted.len();
        let middle = sorted.get(tail..count.checked_sub(tail)?).filter(|middle| !middle.is_empty())?;
        let (low, high) = (middle[0], middle[middle.len() - 1]);
        let (all, kept) = (count as f64, middle.len() as f64);
        let sum: f64 = middle.iter().sum();
        let winsorised = (sum + tail as f64 * (low + high)) / all;
        let square = |value: &f64| (value - winsorised).powi(2);
        let squares = middle.iter().map(square).sum::<f64>() + tail as f64 * (square(&low) + square(&high));
        let error_squared = (middle.len() > 1).then(|| squares / (kept * (kept - 1.0)));
        let degrees = (kept - 1.0) * if tail > 0 { CAUTION } else { 1.0 };
        let (planned, planned_degrees) = planned(sorted, error_squared.map(|error| error * all));
        Some(Self { count: all, kept, mean: sum / kept, error_squared, degrees, planned, planned_degrees })
    }
}

/// The variance for the plan of a measurement, with its degrees of freedom. The tails of a few values may contain one
/// of two levels of speed, so all values except stalls count. The winsorised variance is at most their variance, which
/// bounds the variance of a trimmed mean.
fn planned(sorted: &[f64], of_mean: Option<f64>) -> (Option<f64>, f64) {
    let median = sorted[sorted.len() / 2];
    let quiet: Vec<f64> = sorted.iter().copied().filter(|value| (value - median).abs() < STALL).collect();
    let quiet = if quiet.len() < 3 { sorted } else { &quiet };
    let deviation = Summary::of(quiet).and_then(|summary| summary.stddev);
    let bound = deviation.map(|deviation| (deviation / (1.0 - 2.0 * TAIL)).powi(2));
    (bound.zip(of_mean).map(|(bound, of_mean)| bound.max(of_mean)), (quiet.len() - 1) as f64)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs().max(1.0)
    }

    #[test]
    fn a_stall_of_any_length_has_no_influence() {
        let with = |stall: f64| Location::trimmed(&[3.0, 1.0, 4.0, 2.0, stall]).unwrap();
        let (one, other) = (with(5.0), with(5000.0));
        assert_eq!((one.mean.to_bits(), one.error_squared), (other.mean.to_bits(), other.error_squared));
        // Without the ends 2, 3, 4; winsorised 2, 2, 3, 4, 4 with the squares 4; 4 / (3 * 2).
        assert!(near(with(5.0).mean, 3.0) && near(with(5.0).error_squared.unwrap(), 4.0 / 6.0));
        assert_eq!((with(5.0).count, with(5.0).kept), (5.0, 3.0));
    }

    #[test]
    fn a_few_values_have_no_tails() {
        let values = [1.0, 2.0, 4.0, 9.0];
        assert_eq!(Location::trimmed(&values), Location::mean(&values));
        // Variance 12.667 of 4 values.
        assert!(near(Location::mean(&values).unwrap().error_squared.unwrap(), 38.0 / 12.0));
        assert_eq!(Location::trimmed(&[7.0]).unwrap().error_squared, None);
        assert_eq!(Location::trimmed(&[]), None);
        for count in 1..60 {
            let values: Vec<f64> = (0..count).map(f64::from).collect();
            let location = Location::trimmed(&values).unwrap();
            assert!(location.kept >= 0.6 * location.count && near(location.mean, f64::from(count - 1) / 2.0));
        }
    }

    #[test]
    fn equal_values_between_the_tails_are_no_proof_of_a_small_variance() {
        let coarse = [10.0, 11.0, 10.0, 9.0, 10.0];
        assert_eq!(Location::trimmed(&coarse), Location::mean(&coarse));
        assert_eq!(Location::trimmed(&[2.0; 5]).unwrap().error_squared, Some(0.0));
    }
}
