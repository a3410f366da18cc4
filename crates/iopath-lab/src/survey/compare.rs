//! Which of two measurements is better, and whether that is more than noise. Knows figures, not what they mean.
//!
//! Measurements of a survey take turns, so that the n-th repeats of any two were made at about the same time: they
//! are compared pair by pair, and what hits both of a pair (a neighbour on the storage, a hot CPU) cancels out.

use crate::result::{Repeat, RunResult};
use crate::stats::Summary;

const GIB: f64 = (1u64 << 30) as f64;

/// A measurement this close to the best is as good, whatever the statistics say.
const SAME: f64 = 0.95;

/// And one this close is where the difference may be chance. What is slower still is not as good, however uncertain.
const SAME_BY_CHANCE: f64 = 0.75;

/// CPU prices this close are the same: to a factor, or to a difference in seconds for each GiB.
const CPU_SAME: f64 = 1.15;
const CPU_SAME_SECONDS: f64 = 0.010;

/// How many times one quantity is another: geometric mean over the pairs, with its 95% interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) mean: f64,
    /// None with a single pair.
    pub(crate) ci95: Option<[f64; 2]>,
}

impl Ratio {
    /// Of two samples, pair by pair; what one has more is left out. None without a pair, or with one that has no
    /// logarithm.
    pub(crate) fn of(over: &[f64], under: &[f64]) -> Option<Self> {
        let pairs = over.iter().zip(under);
        let logs: Vec<f64> = pairs.map(|(over, under)| (over / under).ln()).collect();
        if logs.iter().any(|log| !log.is_finite()) {
            return None;
        }
        let summary = Summary::of(&logs)?;
        Some(Self { mean: summary.mean.exp(), ci95: summary.ci95.map(|ends| ends.map(f64::exp)) })
    }

    /// Whether it is above `bound` beyond doubt, at 97.5%.
    pub(crate) fn is_above(&self, bound: f64) -> bool {
        self.ci95.is_some_and(|[low, _]| low > bound)
    }

    /// Whether it is below `bound` beyond doubt, at 97.5%.
    pub(crate) fn is_below(&self, bound: f64) -> bool {
        self.ci95.is_some_and(|[_, high]| high < bound)
    }
}

/// Bytes a second of each repeat.
pub(crate) fn rates(run: &RunResult) -> Vec<f64> {
    run.repeats.iter().map(|repeat| repeat.bytes_per_second).collect()
}

/// The middle of what the repeats say: one that was stalled does not move it.
pub(crate) fn median(values: &[f64]) -> f64 {
    Summary::of(values).map_or(0.0, |summary| summary.median)
}

/// Median bytes a second.
pub(crate) fn rate(run: &RunResult) -> f64 {
    median(&rates(run))
}

/// How far the repeats lie apart: standard deviation over mean; none for a single one.
pub(crate) fn spread(run: &RunResult) -> Option<f64> {
    Summary::of(&rates(run))?.spread()
}

/// Whose CPU time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CpuOf {
    /// The machine's, less what it used when idle: interrupts and kernel threads are in it, and all that others did.
    Machine,
    /// This process's only: where others use the machine, too.
    Process,
}

impl CpuOf {
    fn seconds(self, repeat: &Repeat) -> f64 {
        let process = repeat.cpu.user_seconds + repeat.cpu.system_seconds;
        match self {
            Self::Machine => repeat.cpu.machine_seconds.max(process),
            Self::Process => process,
        }
    }

    /// CPU seconds for each GiB, of each repeat.
    pub(crate) fn per_gib(self, run: &RunResult) -> Vec<f64> {
        run.repeats.iter().map(|repeat| self.seconds(repeat) / (repeat.bytes as f64 / GIB)).collect()
    }

    /// CPU seconds for each GiB, of all repeats together: the machine's time is known to 10 ms only.
    pub(crate) fn price(self, run: &RunResult) -> f64 {
        self.sum(run) / (run.bytes as f64 / GIB)
    }

    /// CPU microseconds for each transfer, of all repeats together.
    pub(crate) fn per_io_us(self, run: &RunResult) -> f64 {
        self.sum(run) * 1e6 / run.ios as f64
    }

    fn sum(self, run: &RunResult) -> f64 {
        let sum = |of: Self| run.repeats.iter().map(|repeat| of.seconds(repeat)).sum::<f64>();
        match self {
            Self::Process => sum(self),
            Self::Machine => {
                let machine: f64 = run.repeats.iter().map(|repeat| repeat.cpu.machine_seconds).sum();
                machine.max(sum(Self::Process))
            }
        }
    }
}

/// What to use of several measurements of the same kind.
#[derive(Debug, Clone)]
pub(crate) struct Choice<'a> {
    /// The greatest median.
    pub(crate) fastest: &'a RunResult,
    /// Of those as good as the fastest: the cheapest in CPU, then with the least in flight.
    pub(crate) chosen: &'a RunResult,
    /// Those as good as the fastest, itself among them.
    pub(crate) good: Vec<&'a RunResult>,
    pub(crate) slowest: &'a RunResult,
}

impl<'a> Choice<'a> {
    /// None if there is nothing to choose from.
    pub(crate) fn of(runs: &[&'a RunResult], cpu: CpuOf) -> Option<Self> {
        let by_rate = |a: &&&RunResult, b: &&&RunResult| rate(a).total_cmp(&rate(b));
        let fastest = *runs.iter().max_by(by_rate)?;
        let slowest = *runs.iter().min_by(by_rate)?;
        let good: Vec<&RunResult> = runs.iter().copied().filter(|run| is_as_good(run, fastest)).collect();
        let cheapest = good.iter().map(|run| cpu.price(run)).min_by(f64::total_cmp)?;
        let limit = (cheapest * CPU_SAME).max(cheapest + CPU_SAME_SECONDS);
        let chosen = good
            .iter()
            .copied()
            .filter(|run| cpu.price(run) <= limit)
            .min_by_key(|run| u64::from(run.block_bytes) * u64::from(run.io_depth))?;
        Some(Self { fastest, chosen, good, slowest })
    }
}

/// Whether a measurement is as fast as the fastest, or nearly and by chance only not.
pub(crate) fn is_as_good(run: &RunResult, fastest: &RunResult) -> bool {
    let (share, ratio) = (rate(run) / rate(fastest), Ratio::of(&rates(run), &rates(fastest)));
    let by_chance = ratio.is_none_or(|ratio| !ratio.is_below(1.0));
    share >= SAME || (share >= SAME_BY_CHANCE && by_chance)
}

#[cfg(test)]
mod tests {
    use super::super::made_up::run;
    use super::*;
    use crate::workload::Rw;

    #[test]
    fn what_hits_both_of_a_pair_cancels_out() {
        let ratio = Ratio::of(&[200.0, 20.0, 400.0], &[100.0, 10.0, 200.0]).unwrap();
        assert!((ratio.mean - 2.0).abs() < 1e-9 && ratio.is_above(1.99) && !ratio.is_below(2.0));
        let noise = Ratio::of(&[100.0, 120.0, 90.0], &[110.0, 100.0, 100.0]).unwrap();
        assert!(!noise.is_above(1.0) && !noise.is_below(1.0), "{noise:?}");
    }

    #[test]
    fn one_pair_proves_nothing_and_zero_has_no_ratio() {
        let ratio = Ratio::of(&[200.0], &[100.0]).unwrap();
        assert!(!ratio.is_above(1.0));
        assert_eq!(Ratio::of(&[1.0], &[0.0]), None);
        assert_eq!(Ratio::of(&[], &[]), None);
    }

    #[test]
    fn of_equals_the_cheapest_is_chosen_and_of_equal_prices_the_smallest() {
        let dear = run("kernel-buffered", Rw::Read, 1 << 20, 1, &[1000.0, 1010.0, 990.0], 0.30);
        let large = run("kernel-uring", Rw::Read, 4 << 20, 8, &[990.0, 1000.0, 985.0], 0.05);
        let small = run("kernel-uring", Rw::Read, 1 << 20, 8, &[980.0, 990.0, 975.0], 0.052);
        let slow = run("kernel-direct", Rw::Read, 4 << 10, 1, &[100.0, 101.0, 99.0], 0.01);
        let choice = Choice::of(&[&dear, &large, &small, &slow], CpuOf::Process).unwrap();
        assert_eq!(choice.fastest, &dear);
        assert_eq!(choice.chosen, &small);
        assert_eq!((choice.good.len(), choice.slowest), (3, &slow));
    }

    #[test]
    fn a_wide_spread_alone_makes_nobody_good() {
        let fast = run("a", Rw::Read, 4096, 1, &[1000.0, 1000.0, 1000.0], 0.1);
        let wild = run("b", Rw::Read, 4096, 1, &[200.0, 1500.0, 600.0], 0.1);
        assert!(!is_as_good(&wild, &fast), "60% of the fastest is no match, however uncertain");
        let near = run("c", Rw::Read, 4096, 1, &[830.0, 1110.0, 780.0], 0.1);
        assert!(is_as_good(&near, &fast));
        let surely_less = run("d", Rw::Read, 4096, 1, &[930.0, 931.0, 929.0], 0.1);
        assert!(!is_as_good(&surely_less, &fast));
    }
}
