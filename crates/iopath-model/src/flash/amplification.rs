//! The write amplification of uniformly random writes. `gc.rs` computes its cost for a die.
//!
//! Let `a` be the physical space divided by the valid space. In the steady state, the share `p` of valid pages in the
//! block with the fewest satisfies `p = exp(-a (1 - p))`. Each page that the host writes costs `1 / (1 - p)` programs.
//! X. Xiang and B. Kurkoski (2012) and P. Desnoyers (2014) derive this for greedy collection of large blocks.

/// The number of programs for each page that the host writes at random. `spare` is the physical space divided by the
/// valid space, more than 1.
pub(crate) fn write_amplification(spare: f64) -> f64 {
    // p - exp(-a (1 - p)) is negative below the wanted root, and positive between it and the trivial root 1.
    let (mut low, mut high) = (0.0, 1.0 - 1e-9);
    let mut step = 0;
    while step < 100 {
        let middle = f64::midpoint(low, high);
        if middle - exp_negative(spare * (1.0 - middle)) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
        step += 1;
    }
    1.0 / (1.0 - low)
}

/// `exp(-x)` for `x` of 0 or more. Uses only operations that have the same result, bit for bit, on every machine.
fn exp_negative(x: f64) -> f64 {
    let mut halvings = 0;
    let mut part = x;
    while part > 0.5 {
        part *= 0.5;
        halvings += 1;
    }
    let (mut term, mut sum, mut n) = (1.0, 1.0, 1.0);
    while n < 24.0 {
        term *= -part / n;
        sum += term;
        n += 1.0;
    }
    for _ in 0..halvings {
        sum *= sum;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_right_to_the_last_digits() {
        for x in [0.0_f64, 0.1, 0.5, 1.0, 3.3, 20.0] {
            assert!((exp_negative(x) / (-x).exp() - 1.0).abs() < 1e-12, "{x}");
        }
    }

    #[test]
    fn amplification_grows_as_the_spare_space_shrinks() {
        // Solved by hand with the series of the exponential.
        for (spare, expected) in [(1.07, 7.82), (1.28, 2.48), (2.0, 1.255)] {
            let got = write_amplification(spare);
            assert!((got / expected - 1.0_f64).abs() < 0.005, "{spare}: {got}");
        }
        assert!(write_amplification(50.0) < 1.001);
    }
}
