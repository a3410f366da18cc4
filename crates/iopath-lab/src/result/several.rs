//! Results of several workloads or targets: the workloads that cannot run, and the ends of the targets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
