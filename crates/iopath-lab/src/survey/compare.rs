//! Compares measurements: ranks them, and tests whether a difference is significant. Does not interpret them: see
//! `findings.rs`.
//!
//! The cells of a survey take turns, so the n-th repetitions of two cells run at about the same time. The comparison
//! pairs these repetitions: an effect on both (another user of the storage, a hot CPU) cancels out.

use iopath_report::result::{Cpu, Repeat, RunResult};
use iopath_report::stats::Summary;

pub(crate) use iopath_report::stats::ratio::{Outcome, Ratio};

const GIB: f64 = (1u64 << 30) as f64;

/// A measurement with at least this share of the highest throughput is as good as the fastest.
const SAME: f64 = 0.95;

/// A measurement with at least this share is as good if the difference is not significant. Below this share it is not,
/// even with a large variation.
const SAME_BY_CHANCE: f64 = 0.75;

/// CPU costs within this factor, or within this difference in seconds per GiB, are the same.
const CPU_SAME: f64 = 1.15;
const CPU_SAME_SECONDS: f64 = 0.010;

/// Throughput of each repeat, in bytes per second.
pub(crate) fn rates(run: &RunResult) -> Vec<f64> {
    run.repeats.iter().map(|repeat| repeat.bytes_per_second).collect()
}

/// The median, which a single stalled repetition does not change much; 0 for an empty sample.
fn median(values: &[f64]) -> f64 {
    Summary::of(values).map_or(0.0, |summary| summary.median)
}

/// Median throughput, in bytes per second.
pub(crate) fn rate(run: &RunResult) -> f64 {
    median(&rates(run))
}

/// Median transfers a second.
pub(crate) fn iops(run: &RunResult) -> f64 {
    median(&run.repeats.iter().map(|repeat| repeat.iops).collect::<Vec<_>>())
}

/// Coefficient of variation of the throughput; none for a single repeat.
pub(crate) fn cv(run: &RunResult) -> Option<f64> {
    Summary::of(&rates(run))?.cv()
}

/// The CPU time that counts as cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CpuOf {
    /// CPU time of the machine, less its idle load. Includes interrupts, kernel threads and other programs.
    Machine,
    /// CPU time of this process only, for a machine that other programs use.
    Process,
    /// Not known: a model without a modelled host. Each cost is 0.
    Unknown,
}

impl CpuOf {
    /// Whether costs are known.
    pub(crate) fn is_known(self) -> bool {
        self != Self::Unknown
    }

    fn seconds(self, repeat: &Repeat) -> f64 {
        let process = |cpu: &Cpu| cpu.user_seconds + cpu.system_seconds;
        match self {
            Self::Unknown => 0.0,
            Self::Machine => cpu_of(repeat).machine_seconds.max(process(cpu_of(repeat))),
            Self::Process => process(cpu_of(repeat)),
        }
    }

    /// CPU seconds per GiB of each repeat.
    pub(crate) fn per_gib(self, run: &RunResult) -> Vec<f64> {
        run.repeats.iter().map(|repeat| self.seconds(repeat) / (repeat.bytes as f64 / GIB)).collect()
    }

    /// CPU seconds per GiB over all repeats. The machine's CPU time has a resolution of 10 ms, too coarse for one
    /// repeat.
    pub(crate) fn cost(self, run: &RunResult) -> f64 {
        self.sum(run) / (run.bytes as f64 / GIB)
    }

    /// CPU microseconds per I/O over all repeats.
    pub(crate) fn per_io_us(self, run: &RunResult) -> f64 {
        self.sum(run) * 1e6 / run.ios as f64
    }

    fn sum(self, run: &RunResult) -> f64 {
        let sum = |of: Self| run.repeats.iter().map(|repeat| of.seconds(repeat)).sum::<f64>();
        match self {
            Self::Process | Self::Unknown => sum(self),
            Self::Machine => {
                let machine: f64 = run.repeats.iter().map(|repeat| cpu_of(repeat).machine_seconds).sum();
                machine.max(sum(Self::Process))
            }
        }
    }
}

/// A survey of storage measures on this machine, so each repeat has a CPU cost.
fn cpu_of(repeat: &Repeat) -> &Cpu {
    repeat.cpu.as_ref().expect("a survey of storage measures in real time")
}

/// The recommended measurement of several measurements of the same kind.
#[derive(Debug, Clone)]
pub(crate) struct Choice<'a> {
    /// The measurement with the highest median throughput.
    pub(crate) fastest: &'a RunResult,
    /// Of `good`, the measurement with the fewest bytes in flight whose CPU cost is near the lowest.
    pub(crate) chosen: &'a RunResult,
    /// All measurements that are as good as the fastest, including the fastest.
    pub(crate) good: Vec<&'a RunResult>,
    pub(crate) slowest: &'a RunResult,
}

impl<'a> Choice<'a> {
    /// None without measurements.
    pub(crate) fn of(runs: &[&'a RunResult], cpu: CpuOf) -> Option<Self> {
        let by_rate = |a: &&&RunResult, b: &&&RunResult| rate(a).total_cmp(&rate(b));
        let fastest = *runs.iter().max_by(by_rate)?;
        let slowest = *runs.iter().min_by(by_rate)?;
        let good: Vec<&RunResult> = runs.iter().copied().filter(|run| is_as_good(run, fastest)).collect();
        let cheapest = good.iter().map(|run| cpu.cost(run)).min_by(f64::total_cmp)?;
        let limit = (cheapest * CPU_SAME).max(cheapest + CPU_SAME_SECONDS);
        let chosen = good
            .iter()
            .copied()
            .filter(|run| cpu.cost(run) <= limit)
            .min_by_key(|run| u64::from(run.block_bytes) * u64::from(run.io_depth))?;
        Some(Self { fastest, chosen, good, slowest })
    }

    /// The recommended measurement at depth 1 if one is as good as the fastest, else the recommended one: a depth that
    /// does not gain throughput adds its queueing to the latency.
    pub(crate) fn shallowest(&self, cpu: CpuOf) -> &'a RunResult {
        let single: Vec<&RunResult> = self.good.iter().copied().filter(|run| run.io_depth == 1).collect();
        Self::of(&single, cpu).map_or(self.chosen, |choice| choice.chosen)
    }
}

/// Whether a measurement is as good as the fastest: nearly as fast, or not significantly slower.
pub(crate) fn is_as_good(run: &RunResult, fastest: &RunResult) -> bool {
    let (share, ratio) = (rate(run) / rate(fastest), Ratio::of(&rates(run), &rates(fastest)));
    let by_chance = ratio.is_none_or(|ratio| !ratio.is_below(1.0));
    share >= SAME || (share >= SAME_BY_CHANCE && by_chance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_report::Rw;
    use iopath_report::fixtures::run;

    #[test]
    fn the_lowest_cost_is_chosen_and_of_equal_costs_the_smallest_block() {
        let costly = run("kernel-buffered", Rw::Read, 1 << 20, 1, &[1000.0, 1010.0, 990.0], 0.30);
        let large = run("kernel-uring", Rw::Read, 4 << 20, 8, &[990.0, 1000.0, 985.0], 0.05);
        let small = run("kernel-uring", Rw::Read, 1 << 20, 8, &[980.0, 990.0, 975.0], 0.052);
        let slow = run("kernel-direct", Rw::Read, 4 << 10, 1, &[100.0, 101.0, 99.0], 0.01);
        let choice = Choice::of(&[&costly, &large, &small, &slow], CpuOf::Process).unwrap();
        assert_eq!(choice.fastest, &costly);
        assert_eq!(choice.chosen, &small);
        assert_eq!((choice.good.len(), choice.slowest), (3, &slow));
    }

    #[test]
    fn variation_alone_makes_no_measurement_as_good() {
        let fast = run("a", Rw::Read, 4096, 1, &[1000.0, 1000.0, 1000.0], 0.1);
        let variable = run("b", Rw::Read, 4096, 1, &[200.0, 1500.0, 600.0], 0.1);
        assert!(!is_as_good(&variable, &fast), "60% of the fastest");
        let near = run("c", Rw::Read, 4096, 1, &[830.0, 1110.0, 780.0], 0.1);
        assert!(is_as_good(&near, &fast));
        let surely_less = run("d", Rw::Read, 4096, 1, &[930.0, 931.0, 929.0], 0.1);
        assert!(!is_as_good(&surely_less, &fast));
    }
}
