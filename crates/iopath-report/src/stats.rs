//! Statistics of a few repetitions: mean, deviation, confidence interval. Not for millions of latencies: these are
//! histograms. Comparisons of two samples are in `stats/contrast.rs`.

pub mod contrast;
pub mod fairness;
pub mod frequency;
pub mod holm;
pub mod noise;
pub mod ratio;
pub mod student;
pub mod trend;
pub mod trimmed;

/// Statistics of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Number of values.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Middle value, or the mean of the middle two.
    pub median: f64,
    /// Standard deviation of the sample (divisor `count - 1`); none for a single value.
    pub stddev: Option<f64>,
    /// The 95% confidence interval of the mean (Student's t, for normally distributed values); none for a single
    /// value.
    pub ci95: Option<[f64; 2]>,
}

impl Summary {
    /// Summarises a sample; none if it is empty.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let stddev = (count > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            (squares / (count - 1) as f64).sqrt()
        });
        let ci95 = stddev.map(|stddev| {
            let half = student::quantile(0.975, (count - 1) as f64) * stddev / (count as f64).sqrt();
            [mean - half, mean + half]
        });
        Some(Self { count, mean, median: median(values), stddev, ci95 })
    }

    /// Coefficient of variation: standard deviation over mean, as a fraction. None for a single value or mean zero.
    pub fn cv(&self) -> Option<f64> {
        self.stddev.filter(|_| self.mean != 0.0).map(|stddev| stddev / self.mean)
    }
}

/// The middle of a sample that is not empty.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 5e-4 * b.abs().max(1.0)
    }

    #[test]
    fn known_sample() {
        // Mean 5, squared deviations sum to 32, divisor 7; t for 7 degrees of freedom is 2.365.
        let summary = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert!(near(summary.mean, 5.0) && near(summary.median, 4.5), "{summary:?}");
        assert!(near(summary.stddev.unwrap(), 2.138_09), "{summary:?}");
        let [low, high] = summary.ci95.unwrap();
        assert!(near(low, 3.212_2) && near(high, 6.787_8), "{summary:?}");
        assert!(near(summary.cv().unwrap(), 0.427_6), "{summary:?}");
    }

    #[test]
    fn one_value_has_no_deviation_and_an_empty_sample_no_summary() {
        let summary = Summary::of(&[3.0]).unwrap();
        assert_eq!((summary.mean, summary.median, summary.stddev, summary.ci95), (3.0, 3.0, None, None));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn median_does_not_depend_on_the_order() {
        assert!(near(median(&[9.0, 1.0, 5.0]), 5.0));
        assert!(near(median(&[9.0, 1.0, 5.0, 7.0]), 6.0));
    }
}
