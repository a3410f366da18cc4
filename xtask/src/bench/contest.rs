//! Runs the two sides of a contest, and observes their CPU time from outside. The contests are in `figures.rs`.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cpu::{self, Usage};
use super::figures::{Contest, Metric};
use super::report::Figure;
use super::samples::Samples;
use super::side::{Side, SideReport, TargetFile};
use super::turns::alternate;

/// A warning is printed if the CPU time that a program reports and the observed CPU time differ by more than this
/// share.
const REPORT_DIFFERENCE_MAX: f64 = 0.2;

/// Parameters of all contests.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) rounds: u32,
    pub(super) seconds: u32,
}

/// One run of one side: the report of the program, and the observation from outside.
#[derive(Debug, Clone, Copy)]
struct Run {
    report: SideReport,
    usage: Option<Usage>,
}

impl Bench {
    /// Runs both sides, and returns a figure for each goal.
    pub(super) fn run_contest(&self, contest: &Contest, target: Option<&TargetFile>) -> Result<Vec<Figure>> {
        let sides = [&contest.ours, &contest.peer];
        let turns = alternate(contest.name, self.rounds, sides.len(), |side| self.run(sides[side], target))?;
        for (side, runs) in sides.iter().zip(&turns.sides) {
            if let Some(warning) = cpu_warning(side, runs) {
                eprintln!("warning: {}: {warning}", contest.name);
            }
        }
        let figure = |metric, goal| Figure {
            name: format!("{}: {}", contest.name, Metric::name(metric)),
            unit: metric.unit(),
            peer: contest.peer.label(),
            value: turns.samples(0, |run| run.value(metric, turns.others)),
            peer_value: turns.samples(1, |run| run.value(metric, turns.others)),
            goal,
            others: Some(turns.others),
        };
        Ok(contest.goals.iter().map(|&(metric, goal)| figure(metric, goal)).collect())
    }

    fn run(&self, side: &Side, target: Option<&TargetFile>) -> Result<Run> {
        if let Side::Published { iops, .. } = *side {
            let report = SideReport { iops, ..SideReport::UNKNOWN };
            return Ok(Run { report, usage: None });
        }
        let mut command = side.command(target, self.seconds).context("nothing to run")?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.get_program().to_owned();
        let child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        let usage = cpu::watch(child.id(), Duration::from_secs(self.seconds.into()))?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("{command:?}: {}: {}", output.status, stderr.trim());
        }
        Ok(Run { report: side.parse(&output.stdout)?, usage: Some(usage) })
    }
}

impl Run {
    /// The figure in the unit of the metric; NaN if it was not measured.
    fn value(&self, metric: Metric, idle_cores: f64) -> f64 {
        let us_per_io = |cores: f64| cores * 1e6 / self.report.iops;
        match metric {
            Metric::Bandwidth => self.report.bytes_per_second / f64::from(1 << 20),
            Metric::Iops => self.report.iops,
            Metric::P50 => self.report.p50_us,
            Metric::ProcessCpu => self.usage.map_or(f64::NAN, |usage| us_per_io(usage.process_cores)),
            Metric::MachineCpu => {
                self.usage.map_or(f64::NAN, |usage| us_per_io((usage.machine_cores - idle_cores).max(0.0)))
            }
        }
    }
}

/// A warning if the CPU time that a program reports differs from the observed CPU time.
fn cpu_warning(side: &Side, runs: &[Run]) -> Option<String> {
    let of = |value: fn(&Run) -> f64| Samples::new(runs.iter().map(value).collect()).median();
    let reported = of(|run| run.report.process_us_per_io);
    let observed = of(|run| run.value(Metric::ProcessCpu, 0.0));
    let difference = (reported / observed - 1.0).abs();
    let text = format!(
        "{} reports {reported:.2} µs of CPU per I/O, but {observed:.2} µs were observed",
        side.label()
    );
    (difference > REPORT_DIFFERENCE_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: SideReport =
        SideReport { iops: 100_000.0, bytes_per_second: 409_600_000.0, p50_us: 90.0, process_us_per_io: 3.0 };

    fn run(process_cores: f64, machine_cores: f64) -> Run {
        Run { report: REPORT, usage: Some(Usage { process_cores, machine_cores }) }
    }

    #[test]
    fn busy_cores_are_converted_to_microseconds_per_io_without_the_idle_rate() {
        let run = run(0.3, 0.5);
        assert!((run.value(Metric::ProcessCpu, 0.1) - 3.0).abs() < 1e-9);
        assert!((run.value(Metric::MachineCpu, 0.1) - 4.0).abs() < 1e-9);
        assert!((run.value(Metric::MachineCpu, 0.9)).abs() < 1e-9, "never negative");
        assert!((run.value(Metric::Bandwidth, 0.0) - 390.625).abs() < 1e-9);
    }

    #[test]
    fn a_difference_of_reported_and_observed_cpu_time_is_a_warning() {
        let side = Side::iopath("kernel-uring", "randread", "4k", &[]);
        assert_eq!(cpu_warning(&side, &[run(0.31, 0.5)]), None);
        let warning = cpu_warning(&side, &[run(0.6, 0.7)]).expect("half of it is missing");
        assert!(warning.starts_with("kernel-uring reports 3.00 µs"), "{warning}");
        let published = Run { report: REPORT, usage: None };
        assert_eq!(cpu_warning(&side, &[published]), None);
    }
}
