//! A common trend of two samples over their repetitions. A difference between samples that were measured one after the
//! other may be the trend. Does not correct the samples.

use super::student;

/// A trend is significant below this p-value. It only refuses an answer, so it may rarely do so without a reason.
const SIGNIFICANT: f64 = 0.01;

/// The change of the logarithm from one repetition to the next, if it is significant: the common slope of both samples.
pub fn significant_slope(before: &[f64], after: &[f64]) -> Option<f64> {
    let samples = [before, after].map(centred);
    let sum = |of: fn(&(f64, f64)) -> f64| samples.iter().flatten().map(of).sum::<f64>();
    let (times, products) = (sum(|(time, _)| time * time), sum(|(time, log)| time * log));
    let squares = sum(|(_, log)| log * log);
    // Two means and one slope are estimated.
    let degrees = (before.len() + after.len()).checked_sub(3).filter(|degrees| *degrees > 0)? as f64;
    let slope = products / times;
    let residual = (squares - slope * products).max(0.0);
    let error = (residual / degrees / times).sqrt();
    // Without a residual the samples lie on a line. Two pairs of values always nearly do.
    let p = if error > 0.0 { student::two_sided_p(slope / error, degrees) } else { 0.0 };
    (slope.is_finite() && slope != 0.0 && p < SIGNIFICANT).then_some(slope)
}

/// The repetitions of a sample and the logarithms of its values, each less its mean.
fn centred(values: &[f64]) -> Vec<(f64, f64)> {
    let count = values.len() as f64;
    let mean = values.iter().map(|value| value.ln()).sum::<f64>() / count;
    let middle = (count - 1.0) / 2.0;
    values.iter().enumerate().map(|(index, value)| (index as f64 - middle, value.ln() - mean)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::noise::Noise;
    use super::*;

    #[test]
    fn a_steep_trend_is_found_and_noise_has_none() {
        let line = |from: f64| -> Vec<f64> {
            (0..5).map(|index| from * (0.02 * f64::from(index)).exp() + f64::from(index % 2) * 1e-3).collect()
        };
        let slope = significant_slope(&line(100.0), &line(110.0)).unwrap();
        assert!((slope - 0.02).abs() < 1e-4, "{slope}");
        assert_eq!(significant_slope(&[5.0; 4], &[5.0; 4]), None);
        assert_eq!(significant_slope(&[5.0], &[6.0]), None);
        let found = (0..2000).filter(|trial| {
            let samples = Noise::Gaussian.samples(*trial, [5, 5], 1.0);
            significant_slope(&samples[0], &samples[1]).is_some()
        });
        let share = found.count() as f64 / 2000.0;
        assert!(share < 0.02, "{share}");
    }
}
