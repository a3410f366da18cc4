//! The fairness of several rates.

/// The index of fairness of Jain, Chiu and Hawe (1984): the square of the sum over n times the sum of the squares.
pub fn jain(rates: &[f64]) -> f64 {
    let (sum, squares): (f64, f64) =
        rates.iter().fold((0.0, 0.0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
    if squares > 0.0 { sum * sum / (rates.len() as f64 * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_for_equal_rates_and_a_share_for_one_that_has_all() {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(jain(&[5.0, 5.0, 5.0]), 1.0) && near(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25));
        assert!(near(jain(&[1.0, 2.0, 3.0]), 36.0 / 42.0) && near(jain(&[0.0, 0.0]), 1.0));
    }
}
