//! The figures of a replay, the table of their names and units, and the difference between two of them.

use serde::{Deserialize, Serialize};

/// The figures of a replay or of the recorded run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figures {
    /// Bytes of completed reads and writes a second, from the first submission to the last completion.
    pub bytes_per_s: f64,
    /// Completed reads and writes a second.
    pub iops: f64,
    /// The mean latency of reads and writes, in nanoseconds: from the time at which the request is due to its
    /// completion.
    pub mean_ns: f64,
    /// The median latency, in nanoseconds.
    pub p50_ns: f64,
    /// The 99th percentile of the latency, in nanoseconds.
    pub p99_ns: f64,
    /// The 99.9th percentile of the latency, in nanoseconds.
    pub p999_ns: f64,
    /// Reads and writes at the device, after splits and merges.
    pub device_ios: f64,
    /// Their mean size in bytes.
    pub request_bytes: f64,
    /// The mean distance from the end of a request at the device to the start of the next, in bytes; 0 for adjacent
    /// requests.
    pub seek_bytes: f64,
    /// The share of the time with a request at the device, from 0 to 1.
    pub utilisation: f64,
    /// Jain's index of the streams, from 1/n to 1. The share of a stream is the inverse of its mean latency.
    pub fairness: f64,
}

/// Which direction of a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// The larger value is better.
    More,
    /// The smaller value is better.
    Less,
    /// Neither: the figure explains others.
    None,
}

/// A row of [`METRICS`].
#[derive(Debug)]
pub struct Metric {
    /// The name on command lines and in records.
    pub name: &'static str,
    /// The name in tables.
    pub title: &'static str,
    column: &'static str,
    /// The better direction.
    pub better: Better,
    /// Its value, in the unit of the column.
    pub of: fn(&Figures) -> f64,
}

const fn metric(
    name: &'static str,
    title: &'static str,
    column: &'static str,
    better: Better,
    of: fn(&Figures) -> f64,
) -> Metric {
    Metric { name, title, column, better, of }
}

/// The figures, in the order of tables.
pub static METRICS: &[Metric] = &[
    metric("throughput", "MB/s", "bytes_per_s", Better::More, |figures| figures.bytes_per_s),
    metric("iops", "IOPS", "iops", Better::More, |figures| figures.iops),
    metric("mean", "mean", "mean_ns", Better::Less, |figures| figures.mean_ns),
    metric("p50", "p50", "p50_ns", Better::Less, |figures| figures.p50_ns),
    metric("p99", "p99", "p99_ns", Better::Less, |figures| figures.p99_ns),
    metric("p99.9", "p99.9", "p999_ns", Better::Less, |figures| figures.p999_ns),
    metric("device-ios", "device I/Os", "device_ios", Better::None, |figures| figures.device_ios),
    metric("request-size", "request", "request_bytes", Better::None, |figures| figures.request_bytes),
    metric("seek", "seek", "seek_bytes", Better::Less, |figures| figures.seek_bytes),
    metric("utilisation", "busy", "utilisation", Better::None, |figures| figures.utilisation),
    metric("fairness", "fairness", "fairness", Better::More, |figures| figures.fairness),
];

impl Metric {
    /// The name of its column in records, with the unit.
    pub fn column(&self) -> &'static str {
        self.column
    }

    /// Its value, in the unit of the column.
    pub fn value(&self, figures: &Figures) -> f64 {
        (self.of)(figures)
    }

    /// The metric with this name, if a verdict can use it.
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::for_verdicts().find(|metric| metric.name == name)
    }

    /// The metrics for which one direction is better.
    pub fn for_verdicts() -> impl Iterator<Item = &'static Self> {
        METRICS.iter().filter(|metric| metric.better != Better::None)
    }
}

/// A relative difference, and the interval that contains 95% of its resampled values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// The difference as a fraction of the other figure: 0.1 is 10% more.
    pub fraction: f64,
    /// The 95% interval; null with too few requests for windows.
    pub interval: Option<[f64; 2]>,
}

impl Change {
    /// Whether the interval excludes no difference.
    pub fn is_significant(&self) -> bool {
        self.interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
    }
}

/// The difference of each figure. A figure is null if the other one is 0.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Changes {
    /// Of the throughput.
    pub throughput: Option<Change>,
    /// Of the reads and writes a second.
    pub iops: Option<Change>,
    /// Of the mean latency.
    pub mean: Option<Change>,
    /// Of the median latency.
    pub p50: Option<Change>,
    /// Of the 99th percentile.
    pub p99: Option<Change>,
    /// Of the 99.9th percentile.
    pub p999: Option<Change>,
    /// Of the requests at the device.
    pub device_ios: Option<Change>,
    /// Of their mean size.
    pub request_size: Option<Change>,
    /// Of the mean seek distance.
    pub seek: Option<Change>,
    /// Of the utilisation.
    pub utilisation: Option<Change>,
    /// Of the fairness.
    pub fairness: Option<Change>,
}

impl Changes {
    /// From the changes in the order of [`METRICS`].
    pub fn of(all: &[Option<Change>; 11]) -> Self {
        let [throughput, iops, mean, p50, p99, p999, device_ios, request_size, seek, utilisation, fairness] =
            *all;
        Self { throughput, iops, mean, p50, p99, p999, device_ios, request_size, seek, utilisation, fairness }
    }

    /// The changes in the order of [`METRICS`].
    pub fn all(&self) -> [Option<Change>; 11] {
        let Self {
            throughput,
            iops,
            mean,
            p50,
            p99,
            p999,
            device_ios,
            request_size,
            seek,
            utilisation,
            fairness,
        } = *self;
        [throughput, iops, mean, p50, p99, p999, device_ios, request_size, seek, utilisation, fairness]
    }
}
