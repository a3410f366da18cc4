//! Holm's correction for several tests. Does not compute p-values.

/// A test among several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Test {
    /// Whether its p-value is small enough, with the correction.
    pub is_significant: bool,
    /// The error rate at which it was decided: an interval at this rate excludes the hypothesis exactly if it is
    /// significant.
    pub alpha: f64,
    /// The tests of the family.
    pub family: usize,
}

/// The outcome of each test, so that the probability of one or more false alarms in the family is at most `alpha`
/// (Holm, 1979; valid for dependent tests). A test without a p-value is not significant and not part of the family.
pub fn decide(p_values: &[Option<f64>], alpha: f64) -> Vec<Test> {
    let mut order: Vec<(usize, f64)> =
        p_values.iter().enumerate().filter_map(|(index, p)| Some((index, (*p)?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let family = order.len();
    let rate = |rank: usize| alpha / family.saturating_sub(rank).max(1) as f64;
    let fails = |(rank, (_, p)): (usize, &(usize, f64))| *p > rate(rank);
    let rejected = order.iter().enumerate().position(fails).unwrap_or(family);
    // The limit of the first failure holds for all tests after it.
    let mut tests = vec![Test { is_significant: false, alpha: rate(rejected), family }; p_values.len()];
    for (rank, (index, _)) in order[..rejected].iter().enumerate() {
        tests[*index] = Test { is_significant: true, alpha: rate(rank), family };
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_p_value_has_the_strictest_limit_and_the_first_failure_ends_the_search() {
        let significant = |p: &[Option<f64>], alpha| {
            decide(p, alpha).iter().map(|test| test.is_significant).collect::<Vec<_>>()
        };
        let p = [Some(0.04), Some(0.001), None, Some(0.02), Some(0.9)];
        assert_eq!(significant(&p, 0.05), [false, true, false, false, false], "0.02 > 0.05 / 3");
        assert_eq!(significant(&[Some(0.04), Some(0.01)], 0.05), [true, true]);
        assert_eq!(significant(&[Some(0.03), Some(0.04)], 0.05), [false, false], "0.03 > 0.05 / 2");
        assert_eq!(significant(&[None], 0.05), [false]);
    }
    #[test]
    fn each_test_has_the_rate_at_which_it_was_decided() {
        let tests = decide(&[Some(0.02), Some(0.001), None, Some(0.9)], 0.05);
        let rates: Vec<f64> = tests.iter().map(|test| test.alpha).collect();
        assert_eq!(rates, [0.05 / 2.0, 0.05 / 3.0, 0.05, 0.05]);
        let tests = decide(&[Some(0.03), Some(0.04)], 0.05);
        assert!(
            tests
                .iter()
                .all(|test| !test.is_significant && (test.alpha - 0.025).abs() < 1e-12 && test.family == 2)
        );
    }
}
