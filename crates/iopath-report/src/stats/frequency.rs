//! How often a rare event occurs in two samples, such as a stall of the storage. Does not detect events.

use statrs::distribution::{DiscreteCDF, Hypergeometric};

/// The p-value of equal frequencies of an event: Fisher's exact test, two-sided by doubling the smaller tail. `events`
/// of `counts` values in each of two samples. None if a sample is empty or has more events than values.
pub fn p_value(events: [usize; 2], counts: [usize; 2]) -> Option<f64> {
    let [events_a, events_b] = events.map(|number| number as u64);
    let [count_a, count_b] = counts.map(|number| number as u64);
    if count_a == 0 || count_b == 0 || events_a > count_a || events_b > count_b {
        return None;
    }
    let of_b = Hypergeometric::new(count_a + count_b, events_a + events_b, count_b).ok()?;
    let at_most = of_b.cdf(events_b);
    let at_least = if events_b == 0 { 1.0 } else { of_b.sf(events_b - 1) };
    Some((2.0 * at_most.min(at_least)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_are_those_of_the_exact_test() {
        // 4 of 4 against 0 of 4: one of 70 tables.
        assert!((p_value([0, 4], [4, 4]).unwrap() - 2.0 / 70.0).abs() < 1e-9);
        assert!((p_value([4, 0], [4, 4]).unwrap() - 2.0 / 70.0).abs() < 1e-9);
        assert!(
            (p_value([0, 8], [40, 40]).unwrap() - 0.005_3).abs() < 2e-4,
            "{:?}",
            p_value([0, 8], [40, 40])
        );
        for none in [[0, 0], [1, 1], [20, 20]] {
            assert!((p_value(none, [20, 20]).unwrap() - 1.0).abs() < 1e-9, "{none:?}");
        }
        assert_eq!(p_value([0, 0], [0, 3]), None);
        assert_eq!(p_value([4, 0], [3, 3]), None);
    }
}
