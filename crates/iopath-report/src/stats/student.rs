//! Student's t distribution, and its limit, the normal distribution. Does not estimate: see `contrast.rs`.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The quantile of Student's t distribution: `quantile(0.975, n)` is half the width, in standard errors, of a two-sided
/// 95% interval with `n` degrees of freedom. Infinite if `degrees` is not positive.
pub fn quantile(probability: f64, degrees: f64) -> f64 {
    distribution(degrees).map_or(f64::INFINITY, |t| t.inverse_cdf(probability))
}

/// The probability of a value at least as far from 0 as `t`, in both directions: the p-value of a two-sided test.
pub fn two_sided_p(t: f64, degrees: f64) -> f64 {
    distribution(degrees).map_or(1.0, |distribution| (2.0 * distribution.cdf(-t.abs())).min(1.0))
}

fn distribution(degrees: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, degrees).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 5e-4 * b.abs().max(1.0)
    }

    #[test]
    fn quantiles_match_the_published_table() {
        for (degrees, t) in [
            (1.0, 12.706),
            (2.0, 4.303),
            (7.0, 2.365),
            (30.0, 2.042),
            (40.0, 2.021),
            (60.0, 2.000),
            (120.0, 1.980),
        ] {
            assert!(near(quantile(0.975, degrees), t), "{degrees}: {}", quantile(0.975, degrees));
            assert!(near(quantile(0.025, degrees), -t), "{degrees}");
        }
        assert!(near(quantile(0.95, 4.0), 2.132) && near(quantile(0.995, 10.0), 3.169));
        assert!(near(quantile(0.975, 2.5), 3.5747), "degrees need not be whole: {}", quantile(0.975, 2.5));
        assert!(quantile(0.975, 0.0).is_infinite());
    }

    #[test]
    fn p_values_invert_the_quantiles() {
        for degrees in [1.0, 3.3, 20.0, 500.0] {
            for p in [0.5, 0.05, 0.001] {
                let t = quantile(1.0 - p / 2.0, degrees);
                assert!((two_sided_p(t, degrees) - p).abs() < 1e-6, "{degrees} {p}");
                assert!((two_sided_p(-t, degrees) - p).abs() < 1e-6, "{degrees} {p}");
            }
        }
        assert!(near(two_sided_p(0.0, 5.0), 1.0));
    }
}
