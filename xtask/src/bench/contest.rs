//! Runs the two sides of a contest alternately, observes their CPU time from outside, and computes medians. The
//! contests are in `figures.rs`.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cpu::{self, Usage};
use super::figures::{Contest, Metric};
use super::report::Figure;
use super::side::{Side, SideReport, TargetFile};

/// A warning is printed if the CPU time that a program reports and the observed CPU time differ by more than this
/// share.
const REPORT_DIFFERENCE_MAX: f64 = 0.2;

/// A warning is printed if more cores than this are busy on the idle machine.
const IDLE_CORES_MAX: f64 = 0.2;

/// Parameters of all contests.
#[derive(Debug)]
pub(super) struct Bench {
    runs: u32,
    seconds: u32,
    /// Cores that are busy without a contest.
    idle_cores: f64,
}

/// One run of one side: the report of the program, and the observation from outside.
#[derive(Debug, Clone, Copy)]
struct Run {
    report: SideReport,
    usage: Option<Usage>,
}

impl Bench {
    /// Observes the idle machine for a second.
    pub(super) fn new(runs: u32, seconds: u32) -> Result<Self> {
        let idle_cores = cpu::idle_cores(Duration::from_secs(1))?;
        if idle_cores > IDLE_CORES_MAX {
            eprintln!(
                "warning: other programs keep {idle_cores:.1} cores busy; figures are not reliable, in particular of CPU \
                 time"
            );
        }
        Ok(Self { runs, seconds, idle_cores })
    }

    /// Runs both sides alternately, in changing order, and returns a figure for each goal.
    pub(super) fn run_contest(&self, contest: &Contest, target: Option<&TargetFile>) -> Result<Vec<Figure>> {
        let (mut ours, mut peer) = (Vec::new(), Vec::new());
        for run in 0..self.runs {
            eprintln!("{}: run {} of {}", contest.name, run + 1, self.runs);
            let mut sides = [(&contest.ours, &mut ours), (&contest.peer, &mut peer)];
            if run % 2 == 1 {
                sides.reverse();
            }
            for (side, runs) in sides {
                runs.push(self.run(side, target)?);
            }
        }
        for (side, runs) in [(&contest.ours, &ours), (&contest.peer, &peer)] {
            if let Some(warning) = cpu_warning(side, runs) {
                eprintln!("warning: {}: {warning}", contest.name);
            }
        }
        let figure = |metric, goal| Figure {
            name: format!("{}: {}", contest.name, Metric::name(metric)),
            unit: metric.unit(),
            peer: contest.peer.label(),
            value: self.median(&ours, metric),
            peer_value: self.median(&peer, metric),
            goal,
        };
        Ok(contest.goals.iter().map(|&(metric, goal)| figure(metric, goal)).collect())
    }

    fn run(&self, side: &Side, target: Option<&TargetFile>) -> Result<Run> {
        if let Side::Published { iops, .. } = *side {
            let report = SideReport { iops, bytes_per_second: f64::NAN, process_us_per_io: f64::NAN };
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

    fn median(&self, runs: &[Run], metric: Metric) -> f64 {
        median(runs.iter().map(|run| run.value(metric, self.idle_cores)).collect())
    }
}

impl Run {
    /// The figure in the unit of the metric; NaN if it was not measured.
    fn value(&self, metric: Metric, idle_cores: f64) -> f64 {
        let us_per_io = |cores: f64| cores * 1e6 / self.report.iops;
        match metric {
            Metric::Bandwidth => self.report.bytes_per_second / f64::from(1 << 20),
            Metric::Iops => self.report.iops,
            Metric::ProcessCpu => self.usage.map_or(f64::NAN, |usage| us_per_io(usage.process_cores)),
            Metric::MachineCpu => {
                self.usage.map_or(f64::NAN, |usage| us_per_io((usage.machine_cores - idle_cores).max(0.0)))
            }
        }
    }
}

/// A warning if the CPU time that a program reports differs from the observed CPU time.
fn cpu_warning(side: &Side, runs: &[Run]) -> Option<String> {
    let reported = median(runs.iter().map(|run| run.report.process_us_per_io).collect());
    let observed = median(runs.iter().map(|run| run.value(Metric::ProcessCpu, 0.0)).collect());
    let difference = (reported / observed - 1.0).abs();
    let text = format!(
        "{} reports {reported:.2} µs of CPU per I/O, but {observed:.2} µs were observed",
        side.label()
    );
    (difference > REPORT_DIFFERENCE_MAX).then_some(text)
}

/// The median.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty(), "a median needs a value");
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: SideReport =
        SideReport { iops: 100_000.0, bytes_per_second: 409_600_000.0, process_us_per_io: 3.0 };

    fn run(process_cores: f64, machine_cores: f64) -> Run {
        Run { report: REPORT, usage: Some(Usage { process_cores, machine_cores }) }
    }

    #[test]
    fn the_median_does_not_depend_on_the_order() {
        assert!((median(vec![9.0, 1.0, 5.0]) - 5.0).abs() < f64::EPSILON);
        assert!((median(vec![4.0, 1.0, 2.0, 9.0]) - 3.0).abs() < f64::EPSILON);
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
