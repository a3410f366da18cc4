//! Results of several workloads or targets: the workloads that cannot run, each target, and the ends of the targets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Device, Latency, Spread};

/// A workload that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Skipped {
    /// Its path, and the values in which it differs from the others.
    pub workload: String,
    /// Why it cannot run.
    pub reason: String,
}

/// How evenly several targets ended: means over the repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetsEnd {
    /// The end of the first target that was done, in seconds from the common start.
    pub first_done_seconds: f64,
    /// The end of the last one.
    pub last_done_seconds: f64,
    /// The time between these two.
    pub skew_seconds: f64,
    /// Jain's index of the throughputs of the targets: 1 if all are equal, 1/n if one of n has all.
    pub jain: f64,
}

/// One target of a run on several.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct TargetResult {
    /// The target as given.
    pub target: String,
    /// Bytes transferred, over all repetitions.
    pub bytes: u64,
    /// Transfers, over all repetitions.
    pub ios: u64,
    /// The time to the end of its last job, over all repetitions, in seconds.
    pub seconds: f64,
    /// Throughput up to that end.
    pub bytes_per_second: Spread,
    /// Transfers per second up to that end.
    pub iops: Spread,
    /// From submission to completion, over all repetitions.
    pub latency_ns: Latency,
    /// Requests of the device, over all repetitions.
    pub device: Option<Device>,
}
