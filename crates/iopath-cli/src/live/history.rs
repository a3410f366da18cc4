//! The course of a run for the live view: rates and latencies of the last minutes, from samples of the counters. Does
//! not draw.

use std::collections::VecDeque;
use std::time::Duration;

use iopath_bench::progress::Sample;

/// The time that one point covers at least.
const POINT: Duration = Duration::from_millis(500);

/// Points kept; older ones are dropped.
const POINTS_MAX: usize = 600;

/// The values of one point.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Point {
    /// Bytes per second of all jobs.
    pub(crate) bytes: f64,
    /// Transfers per second of all jobs.
    pub(crate) ios: f64,
    /// Latencies of some transfers, in nanoseconds.
    pub(crate) latencies: Vec<u64>,
    /// CPUs that this process kept busy.
    pub(crate) cpus: f64,
}

/// A target with its rates in the last point.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Row {
    pub(crate) target: String,
    pub(crate) bytes: f64,
    pub(crate) ios: f64,
    /// The last latency of one of its jobs.
    pub(crate) latency_ns: u64,
}

/// The course so far.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The stage in words.
    pub(crate) stage: String,
    /// The completed share of the stage.
    pub(crate) done: f64,
    pub(crate) points: VecDeque<Point>,
    pub(crate) rows: Vec<Row>,
    /// The counters at the begin of the current point.
    base: Option<(Sample, Duration)>,
    latencies: Vec<u64>,
}

impl History {
    /// A stage begins: its counters begin at 0.
    pub(crate) fn begin(&mut self, stage: String) {
        self.stage = stage;
        self.done = 0.0;
        self.base = None;
        self.latencies.clear();
    }

    /// Adds a sample. `cpu` is the CPU time of the process so far.
    pub(crate) fn add(&mut self, sample: &Sample, cpu: Duration) {
        self.done = sample.done;
        self.latencies.extend(sample.jobs.iter().map(|job| job.latency_ns).filter(|ns| *ns > 0));
        let Some((base, base_cpu)) = &self.base else {
            self.base = Some((sample.clone(), cpu));
            return;
        };
        let passed = sample.elapsed.saturating_sub(base.elapsed);
        // A new repetition counts from 0.
        if sample.elapsed < base.elapsed || sample.jobs.len() != base.jobs.len() {
            self.base = Some((sample.clone(), cpu));
            return;
        }
        if passed < POINT {
            return;
        }
        let seconds = passed.as_secs_f64();
        let mut rows: Vec<Row> = Vec::new();
        for (job, before) in sample.jobs.iter().zip(&base.jobs) {
            let bytes = job.bytes.saturating_sub(before.bytes) as f64 / seconds;
            let ios = job.ios.saturating_sub(before.ios) as f64 / seconds;
            let latency_ns = job.latency_ns;
            match rows.iter_mut().find(|row| row.target == job.target) {
                Some(row) => {
                    row.bytes += bytes;
                    row.ios += ios;
                }
                None => rows.push(Row { target: job.target.clone(), bytes, ios, latency_ns }),
            }
        }
        let point = Point {
            bytes: rows.iter().map(|row| row.bytes).sum(),
            ios: rows.iter().map(|row| row.ios).sum(),
            latencies: std::mem::take(&mut self.latencies),
            cpus: cpu.saturating_sub(*base_cpu).as_secs_f64() / seconds,
        };
        self.rows = rows;
        self.points.push_back(point);
        if self.points.len() > POINTS_MAX {
            self.points.pop_front();
        }
        self.base = Some((sample.clone(), cpu));
    }

    /// The last point; one of zeros before the first.
    pub(crate) fn last(&self) -> Point {
        self.points.back().cloned().unwrap_or_default()
    }

    /// The median of the latencies of the last points; none without any.
    pub(crate) fn median_ns(&self) -> Option<u64> {
        let last = self.points.iter().rev().take(10);
        let mut all: Vec<u64> = last.flat_map(|point| point.latencies.iter().copied()).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use iopath_bench::progress::JobSample;

    /// A sample at this time, with the counters of jobs: target, bytes, latency. Blocks have 4 KiB.
    pub(crate) fn sample(ms: u64, jobs: &[(&str, u64, u64)]) -> Sample {
        let jobs = jobs.iter().map(|(target, bytes, latency_ns)| JobSample {
            target: (*target).to_owned(),
            bytes: *bytes,
            ios: bytes / 4096,
            latency_ns: *latency_ns,
        });
        Sample { elapsed: Duration::from_millis(ms), done: 0.5, jobs: jobs.collect() }
    }

    #[test]
    fn rates_are_those_between_two_samples() {
        let mut history = History::default();
        history.add(&sample(100, &[("a", 4_096_000, 10), ("a", 0, 20), ("b", 0, 0)]), Duration::ZERO);
        history.add(&sample(300, &[("a", 5_000_000, 30), ("a", 0, 20), ("b", 0, 0)]), Duration::ZERO);
        assert!(history.points.is_empty(), "a point covers half a second");
        let after = sample(1100, &[("a", 8_192_000, 10), ("a", 4_096_000, 20), ("b", 2_048_000, 5)]);
        history.add(&after, Duration::from_millis(1500));
        let Point { bytes, ios, latencies, cpus } = history.last();
        assert_eq!((bytes as u64, ios as u64), (10_240_000, 2500));
        assert_eq!(latencies, [10, 20, 30, 20, 10, 20, 5]);
        assert!((cpus - 1.5).abs() < 1e-9, "{cpus}");
        let rows: Vec<(&str, u64)> =
            history.rows.iter().map(|row| (&*row.target, row.bytes as u64)).collect();
        assert_eq!(rows, [("a", 8_192_000), ("b", 2_048_000)]);
    }

    #[test]
    fn a_new_repetition_begins_at_zero_and_a_stall_is_zero() {
        let mut history = History::default();
        history.add(&sample(100, &[("a", 4_096_000, 1)]), Duration::ZERO);
        history.add(&sample(700, &[("a", 8_192_000, 1)]), Duration::ZERO);
        history.add(&sample(100, &[("a", 4096, 1)]), Duration::ZERO);
        history.add(&sample(700, &[("a", 4096, 1)]), Duration::ZERO);
        let rates: Vec<u64> = history.points.iter().map(|point| point.bytes as u64).collect();
        assert_eq!(rates, [6_826_666, 0]);
    }

    #[test]
    fn a_long_run_keeps_a_limited_number_of_points() {
        let mut history = History::default();
        for step in 0..2000 {
            history.add(&sample(step * 500, &[("a", step * 4096, 7)]), Duration::ZERO);
        }
        assert_eq!(history.points.len(), POINTS_MAX);
        assert_eq!(history.median_ns(), Some(7));
    }
}
