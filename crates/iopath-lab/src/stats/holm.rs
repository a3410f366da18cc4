//! Holm's correction for several tests. Does not compute p-values.

/// Whether each test is significant, so that the probability of one or more false alarms in the family is at most `alpha`
/// (Holm, 1979; valid for dependent tests). A test without a p-value is not significant and not part of the family.
pub(crate) fn significant(p_values: &[Option<f64>], alpha: f64) -> Vec<bool> {
    let mut order: Vec<(usize, f64)> =
        p_values.iter().enumerate().filter_map(|(index, p)| Some((index, (*p)?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut rejected = vec![false; p_values.len()];
    for (rank, (index, p)) in order.iter().enumerate() {
        if *p > alpha / (order.len() - rank) as f64 {
            break;
        }
        rejected[*index] = true;
    }
    rejected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_p_value_has_the_strictest_limit_and_the_first_failure_ends_the_search() {
        let p = [Some(0.04), Some(0.001), None, Some(0.02), Some(0.9)];
        assert_eq!(significant(&p, 0.05), [false, true, false, false, false], "0.02 > 0.05 / 3");
        assert_eq!(significant(&[Some(0.04), Some(0.01)], 0.05), [true, true]);
        assert_eq!(significant(&[Some(0.03), Some(0.04)], 0.05), [false, false], "0.03 > 0.05 / 2");
        assert_eq!(significant(&[None], 0.05), [false]);
    }
}
