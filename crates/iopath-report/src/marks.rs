//! Marks the best and the worst of workloads that were measured side by side, with the significance of their
//! differences. Does not format tables.

use crate::result::RunResult;
use crate::stats::Summary;
use crate::stats::ratio::Ratio;

/// The place of a run among comparable runs, by throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The run has the highest median.
    Best,
    /// The run is not significantly slower than the best.
    LikeBest,
    /// The run has the lowest median, and is significantly slower than the best.
    Worst,
    /// The run is not significantly faster than the worst.
    LikeWorst,
    /// The run is significantly slower than the best, and faster than the worst.
    Between,
    /// There is no other run of this pattern, or all have the same median.
    Alone,
}

impl Mark {
    /// One column.
    pub fn sign(self) -> char {
        match self {
            Self::Best => '▲',
            Self::LikeBest => '△',
            Self::Worst => '▼',
            Self::LikeWorst => '▽',
            Self::Between | Self::Alone => ' ',
        }
    }
}

/// The mark of each run among the runs of the same pattern. The n-th repetitions of two runs are of the same round, so
/// they are compared in pairs. With a single round, no difference is significant.
pub fn marks(runs: &[RunResult]) -> Vec<Mark> {
    let rates = |run: &RunResult| run.repeats.iter().map(|repeat| repeat.bytes_per_second).collect();
    of_rates(&runs.iter().map(|run| (run.rw.as_str(), rates(run))).collect::<Vec<_>>())
}

/// The mark of each pattern with its throughputs.
fn of_rates(runs: &[(&str, Vec<f64>)]) -> Vec<Mark> {
    let rates = |number: usize| &runs[number].1[..];
    let median = |number: usize| Summary::of(rates(number)).map_or(0.0, |summary| summary.median);
    let of_run = |number: usize| {
        let same = || (0..runs.len()).filter(|other| runs[*other].0 == runs[number].0);
        let by_median = |a: &usize, b: &usize| median(*a).total_cmp(&median(*b));
        let (Some(worst), Some(best)) = (same().min_by(by_median), same().max_by(by_median)) else {
            return Mark::Alone;
        };
        let ratio = |other: usize| Ratio::of(rates(number), rates(other));
        match number {
            _ if median(best) <= median(worst) => Mark::Alone,
            number if number == best => Mark::Best,
            _ if ratio(best).is_none_or(|ratio| !ratio.is_below(1.0)) => Mark::LikeBest,
            number if number == worst => Mark::Worst,
            _ if ratio(worst).is_none_or(|ratio| !ratio.is_above(1.0)) => Mark::LikeWorst,
            _ => Mark::Between,
        }
    };
    (0..runs.len()).map(of_run).collect()
}

#[cfg(test)]
mod tests {
    use super::Mark::{Alone, Best, Between, LikeBest, LikeWorst, Worst};
    use super::*;

    fn run(rw: &'static str, rates: &[f64]) -> (&'static str, Vec<f64>) {
        (rw, rates.to_vec())
    }

    #[test]
    fn a_difference_is_marked_only_if_it_is_significant() {
        let runs = [
            run("read", &[100.0, 120.0, 110.0]),
            run("read", &[99.0, 121.0, 109.0]),
            run("read", &[50.0, 60.0, 55.0]),
            run("read", &[9.5, 12.5, 11.2]),
            run("read", &[10.0, 12.0, 11.0]),
            run("write", &[1.0, 1.0, 1.0]),
        ];
        assert_eq!(of_rates(&runs), [Best, LikeBest, Between, LikeWorst, Worst, Alone]);
    }

    #[test]
    fn an_effect_on_a_whole_round_does_not_hide_a_difference() {
        let runs = [
            run("read", &[100.0, 10.0, 50.0]),
            run("read", &[90.0, 9.0, 45.0]),
            run("read", &[1.0, 0.1, 0.5]),
        ];
        assert_eq!(of_rates(&runs)[1], Between, "10% slower in each round");
    }

    #[test]
    fn equal_runs_have_no_best_and_no_worst() {
        assert_eq!(of_rates(&[run("read", &[5.0, 6.0]), run("read", &[6.0, 5.0])]), [Alone, Alone]);
    }

    #[test]
    fn a_single_round_proves_no_difference() {
        let runs = [run("read", &[100.0]), run("read", &[50.0]), run("read", &[10.0])];
        assert_eq!(of_rates(&runs), [Best, LikeBest, LikeBest]);
    }
}
