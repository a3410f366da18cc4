//! Mean, deviation and confidence interval of a few repetitions. Not for millions of latencies: these are histograms.

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
            let half = t95(count - 1) * stddev / (count as f64).sqrt();
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

/// The 97.5% quantile of Student's t distribution: half the width, in standard errors, of a two-sided 95% interval.
/// Up to 30 degrees of freedom from the table, above by the Cornish-Fisher expansion around the normal quantile
/// (Abramowitz and Stegun 26.7.5), which is exact to four digits there.
fn t95(degrees: usize) -> f64 {
    const Z: f64 = 1.959_964;
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    if let Some(t) = degrees.checked_sub(1).and_then(|row| TABLE.get(row)) {
        return *t;
    }
    let n = degrees as f64;
    let first = (Z.powi(3) + Z) / 4.0;
    let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
    Z + first / n + second / n.powi(2)
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

    #[test]
    fn quantiles_match_the_published_table_beyond_ours() {
        for (degrees, t) in [(1, 12.706), (2, 4.303), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980)] {
            assert!(near(t95(degrees), t), "{degrees}: {}", t95(degrees));
        }
    }
}
