//! Several targets at the same time: the results of each, and how evenly they ended. Does not measure: `engine.rs` does
//! on this machine, `simulated.rs` in virtual time.

use crate::conditions::Repeated;
use crate::engine::Measured;
use crate::job::tally::latencies;
use crate::rates::{device, latency, spread};
use crate::result::{TargetResult, TargetsEnd};

/// The results of each target; empty unless there are several. `names` are those of the targets.
pub(crate) fn targets(names: &[String], measured: &[Repeated]) -> Vec<TargetResult> {
    let of_target = |(index, name): (usize, &String)| {
        let of_repeats: Vec<&Measured> =
            measured.iter().filter_map(|repeat| repeat.measured.targets.get(index)).collect();
        let mut latency_ns = latencies();
        for one in &of_repeats {
            latency_ns.add(&one.latency_ns).expect("all histograms have the same bounds");
        }
        (!of_repeats.is_empty()).then(|| TargetResult {
            target: name.clone(),
            bytes: of_repeats.iter().map(|one| one.bytes()).sum(),
            ios: of_repeats.iter().map(|one| one.ios).sum(),
            seconds: of_repeats.iter().map(|one| one.seconds).sum(),
            bytes_per_second: spread(of_repeats.iter().map(|one| one.bytes() as f64 / one.seconds)),
            iops: spread(of_repeats.iter().map(|one| one.ios as f64 / one.seconds)),
            latency_ns: latency(&latency_ns),
            connections: of_repeats.iter().map(|one| one.connections).sum(),
            device: of_repeats.iter().map(|one| one.device).sum::<Option<_>>().map(device),
        })
    };
    names.iter().enumerate().filter_map(of_target).collect()
}

/// The ends of several targets; none for one.
pub(crate) fn ends(measured: &[Repeated]) -> Option<TargetsEnd> {
    let of_repeats: Vec<TargetsEnd> =
        measured.iter().filter_map(|repeat| of_one(&repeat.measured.targets)).collect();
    let count = of_repeats.len() as f64;
    let mean = |of: fn(&TargetsEnd) -> f64| of_repeats.iter().map(of).sum::<f64>() / count;
    (!of_repeats.is_empty()).then(|| TargetsEnd {
        first_done_seconds: mean(|end| end.first_done_seconds),
        last_done_seconds: mean(|end| end.last_done_seconds),
        skew_seconds: mean(|end| end.skew_seconds),
        jain: mean(|end| end.jain),
    })
}

fn of_one(targets: &[Measured]) -> Option<TargetsEnd> {
    let seconds = || targets.iter().map(|target| target.seconds);
    let (first, last) = (seconds().min_by(f64::total_cmp)?, seconds().max_by(f64::total_cmp)?);
    let rates: Vec<f64> = targets.iter().map(|target| target.bytes() as f64 / target.seconds).collect();
    Some(TargetsEnd {
        first_done_seconds: first,
        last_done_seconds: last,
        skew_seconds: last - first,
        jain: jain(&rates),
    })
}

/// The index of fairness of Jain, Chiu and Hawe (1984): the square of the sum over n times the sum of the squares.
pub(crate) fn jain(rates: &[f64]) -> f64 {
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
