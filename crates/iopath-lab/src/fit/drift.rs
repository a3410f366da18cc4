//! The drift of a device from round to round, and the uncertainty of the figures. Every round has all workloads, so a
//! round in which most of them are slow was measured under another load. Measures nothing.

use super::evidence::median;

/// The fewest rounds whose drift can be separated from the noise of single runs.
const ROUNDS_MIN: usize = 3;

/// The fewest rounds for two halves with a median each.
const HALVES_MIN: usize = 4;

/// The speed of each round, relative to the median round: the median over all workloads of a run's rate divided by the
/// median rate of its workload. `rates` has the rates of each workload by round. 1 for every round if there are too
/// few.
pub(crate) fn speeds(rates: &[Vec<f64>]) -> Vec<f64> {
    let rounds = rates.iter().map(Vec::len).min().unwrap_or(0);
    if rounds < ROUNDS_MIN {
        return vec![1.0; rates.iter().map(Vec::len).max().unwrap_or(0)];
    }
    let medians: Vec<f64> = rates.iter().map(|rates| median(rates)).collect();
    let speed = |round: usize| {
        let of_each = rates.iter().zip(&medians).map(|(rates, median)| rates[round] / median);
        median(&of_each.filter(|speed| speed.is_finite() && *speed > 0.0).collect::<Vec<_>>())
    };
    let speed = |round| Some(speed(round)).filter(|speed| *speed > 0.0).unwrap_or(1.0);
    (0..rounds).map(speed).collect()
}

/// The uncertainty of a figure, as a fraction (median over all workloads): half the difference of its medians over the
/// even and over the odd rounds. The error of a perfect model is as large. None with fewer than four rounds.
pub(crate) fn uncertainty(rates: &[Vec<f64>]) -> Option<f64> {
    let half = |rates: &[f64], first: usize| {
        median(&rates.iter().skip(first).step_by(2).copied().collect::<Vec<_>>())
    };
    let of = |rates: &Vec<f64>| {
        let [even, odd] = [half(rates, 0), half(rates, 1)];
        Some((even / odd).ln().abs() / 2.0).filter(|share| share.is_finite())
    };
    let enough = !rates.is_empty() && rates.iter().all(|rates| rates.len() >= HALVES_MIN);
    enough.then(|| median(&rates.iter().filter_map(of).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workloads at rates 1, 2, 3, …, each with a small deviation of its own, under the load of each round.
    fn rates(load: &[f64], workloads: u32) -> Vec<Vec<f64>> {
        let own = |workload: u32, round: usize| {
            1.0 + (f64::from((workload * 7 + round as u32 * 5) % 11) - 5.0) / 500.0
        };
        let of = |workload: u32| {
            load.iter()
                .enumerate()
                .map(move |(round, load)| f64::from(workload + 1) * load * own(workload + 5, round))
        };
        (0..workloads).map(|workload| of(workload).collect()).collect()
    }

    #[test]
    fn the_speed_of_a_round_is_that_of_most_workloads() {
        let load = [1.0, 0.5, 1.0, 0.9, 1.0];
        let mut rates = rates(&load, 20);
        // One workload that is slow in a round of its own is no drift.
        rates[3][0] /= 10.0;
        for (speed, load) in speeds(&rates).iter().zip(load) {
            assert!((speed / load - 1.0).abs() < 0.02, "{speed} for {load}");
        }
    }

    #[test]
    fn few_rounds_and_runs_without_transfers_have_no_drift() {
        assert_eq!(speeds(&rates(&[1.0, 0.5], 9)), [1.0, 1.0]);
        assert_eq!(speeds(&[vec![0.0; 4], vec![f64::NAN; 4]]), [1.0; 4]);
        assert_eq!(speeds(&[]), Vec::<f64>::new());
        assert_eq!(uncertainty(&rates(&[1.0, 1.0, 1.0], 9)), None);
        assert_eq!(uncertainty(&[]), None);
    }

    #[test]
    fn the_uncertainty_is_half_the_difference_of_two_halves() {
        let rates = vec![vec![1.0, 1.2, 1.0, 1.2, 1.0, 1.2]; 5];
        let expected = 1.2_f64.ln() / 2.0;
        assert!((uncertainty(&rates).unwrap() - expected).abs() < 1e-9);
        assert!(uncertainty(&vec![vec![3.0; 6]; 5]).unwrap() < 1e-9);
    }
}
