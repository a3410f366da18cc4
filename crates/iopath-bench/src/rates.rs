//! Rates, spreads and latencies of results, from sums and histograms. `run.rs` uses them for the whole result.

use iopath_report::result::{
    Device, DirectionResult, Directions, Latencies, Latency, LatencyDistribution, RepeatDirection, Spread,
    Submissions,
};
use iopath_report::stats::Summary;

use crate::counters::DiskCounters;
use crate::engine::Measured;
use crate::job::tally::{OneDirection, Parts};

/// The results of reads, of writes and of trims; none unless each repetition has at least two of them.
pub(crate) fn directions<'a>(measured: impl Iterator<Item = &'a Measured>) -> Option<Directions> {
    let repeats: Vec<(f64, &[OneDirection; 3])> =
        measured.map(|one| Some((one.seconds, one.directions.as_ref()?))).collect::<Option<_>>()?;
    let of = |index: usize| {
        let mut sum = OneDirection::default();
        for (_, directions) in &repeats {
            sum.add(&directions[index]);
        }
        let rate = |of: fn(&OneDirection) -> u64| {
            spread(repeats.iter().map(|(seconds, directions)| per_second(of(&directions[index]), *seconds)))
        };
        DirectionResult {
            bytes: sum.bytes,
            ios: sum.ios,
            bytes_per_second: rate(|one| one.bytes),
            iops: rate(|one| one.ios),
            latency_ns: latency(&sum.latency_ns),
            latency_distribution: Some(LatencyDistribution::of(&sum.latency_ns)),
            submissions: submissions(&sum.parts),
        }
    };
    let has_trims = repeats.iter().any(|(_, [.., trims])| trims.ios > 0);
    (!repeats.is_empty()).then(|| Directions { read: of(0), write: of(1), trim: has_trims.then(|| of(2)) })
}

/// The parts of latencies; none if they were not measured.
pub(crate) fn submissions(parts: &Parts) -> Option<Box<Submissions>> {
    let Parts { submission_ns, completion_ns } = parts;
    (!submission_ns.is_empty()).then(|| {
        Box::new(Submissions {
            submission_ns: latency(submission_ns),
            submission_distribution: LatencyDistribution::of(submission_ns),
            completion_ns: latency(completion_ns),
            completion_distribution: LatencyDistribution::of(completion_ns),
        })
    })
}

pub(crate) fn repeat_direction(one: &OneDirection, seconds: f64) -> RepeatDirection {
    let OneDirection { bytes, ios, latency_ns, .. } = one;
    RepeatDirection {
        bytes: *bytes,
        ios: *ios,
        bytes_per_second: per_second(*bytes, seconds),
        iops: per_second(*ios, seconds),
        latency_ns: latency(latency_ns),
    }
}

/// The mean of values, with its standard deviation and confidence interval.
pub fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let values: Vec<f64> = values.collect();
    let summary = Summary::of(&values).expect("a workload has at least one repetition");
    Spread { mean: summary.mean, stddev: summary.stddev, ci95: summary.ci95 }
}

/// The percentiles of latencies.
pub fn latency(latencies: &Latencies) -> Latency {
    Latency {
        min: latencies.min_ns(),
        mean: latencies.mean_ns(),
        p50: latencies.quantile_ns(0.5),
        p90: latencies.quantile_ns(0.9),
        p99: latencies.quantile_ns(0.99),
        p999: latencies.quantile_ns(0.999),
        max: latencies.max_ns(),
    }
}

/// 0 without any time: the repetition ended before its measurement began.
pub fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// The transfers of a disk.
pub(crate) fn device(counters: DiskCounters) -> Device {
    let DiskCounters { reads, read_bytes, writes, written_bytes, queue } = counters;
    Device { reads, read_bytes, writes, written_bytes, queue }
}
