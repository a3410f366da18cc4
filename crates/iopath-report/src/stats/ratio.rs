//! The ratio of two paired samples, and its outcome for a survey. Does not select measurements.

use super::contrast::Contrast;

/// An interval that contains 1 and exceeds this factor on either side is inconclusive: it does not exclude a difference
/// of this size.
const CONCLUSIVE: f64 = 1.25;

/// The ratio of two quantities: geometric mean over the pairs, with its 95% confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The geometric mean of the ratios of the pairs.
    pub mean: f64,
    /// The 95% confidence interval of the mean; a single pair has none.
    pub ci95: Option<[f64; 2]>,
}

/// The outcome of a comparison at 95% confidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The ratio is above 1.
    Higher,
    /// The ratio is below 1.
    Lower,
    /// The interval contains 1 and is narrow.
    NotDifferent,
    /// The interval contains 1 and is wide.
    Inconclusive,
    /// A single pair has no interval.
    Single,
}

impl Ratio {
    /// The ratio of two samples, pair by pair. Ignores values without a partner. None without a pair, or if a ratio has
    /// no logarithm.
    pub fn of(over: &[f64], under: &[f64]) -> Option<Self> {
        Contrast::paired_means(under, over).map(|contrast| Self {
            mean: contrast.log_ratio.exp(),
            ci95: contrast.interval(0.05).map(|ends| ends.map(f64::exp)),
        })
    }

    /// Whether the interval lies above `bound`.
    pub fn is_above(&self, bound: f64) -> bool {
        self.ci95.is_some_and(|[low, _]| low > bound)
    }

    /// Whether the interval lies below `bound`.
    pub fn is_below(&self, bound: f64) -> bool {
        self.ci95.is_some_and(|[_, high]| high < bound)
    }

    /// The outcome that follows from the interval.
    pub fn outcome(&self) -> Outcome {
        match self.ci95 {
            None => Outcome::Single,
            Some([low, _]) if low > 1.0 => Outcome::Higher,
            Some([_, high]) if high < 1.0 => Outcome::Lower,
            Some([low, high]) if low >= 1.0 / CONCLUSIVE && high <= CONCLUSIVE => Outcome::NotDifferent,
            Some(_) => Outcome::Inconclusive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_on_both_of_a_pair_cancels_out() {
        let ratio = Ratio::of(&[200.0, 20.0, 400.0], &[100.0, 10.0, 200.0]).unwrap();
        assert!((ratio.mean - 2.0).abs() < 1e-9 && ratio.is_above(1.99) && !ratio.is_below(2.0));
        let noise = Ratio::of(&[100.0, 120.0, 90.0], &[110.0, 100.0, 100.0]).unwrap();
        assert!(!noise.is_above(1.0) && !noise.is_below(1.0), "{noise:?}");
    }

    #[test]
    fn a_wide_interval_around_one_is_inconclusive() {
        let outcome = |low, high| Ratio { mean: 1.0, ci95: Some([low, high]) }.outcome();
        assert_eq!(outcome(0.675, 166.0), Outcome::Inconclusive);
        assert_eq!(outcome(0.5, 1.01), Outcome::Inconclusive);
        assert_eq!(outcome(0.9, 1.1), Outcome::NotDifferent);
        assert_eq!((outcome(1.01, 166.0), outcome(0.2, 0.99)), (Outcome::Higher, Outcome::Lower));
        assert_eq!(Ratio { mean: 1.0, ci95: None }.outcome(), Outcome::Single);
    }

    #[test]
    fn one_pair_proves_nothing_and_zero_has_no_ratio() {
        let ratio = Ratio::of(&[200.0], &[100.0]).unwrap();
        assert!(!ratio.is_above(1.0));
        assert_eq!(Ratio::of(&[1.0], &[0.0]), None);
        assert_eq!(Ratio::of(&[], &[]), None);
    }
}
