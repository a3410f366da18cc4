//! The settings of a workload, as a part of its result: those that the other keys of a run do not state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings of a workload. A run with these settings, and with those beside them, measures the same again.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct WorkloadFacts {
    /// The seed of offsets, mixes and contents. Of a job of a job file, that of its first clone.
    pub seed: u64,
    /// The first byte of the range.
    pub start_bytes: u64,
    /// The end of the range, in bytes from the start of the target.
    pub size_bytes: u64,
    /// The time limit of a repetition, in seconds; none without one.
    pub runtime_seconds: Option<f64>,
    /// The bytes of a repetition, of all jobs together, if they are not one pass over the range.
    pub io_bytes: Option<u64>,
    /// The number of repetitions that were to be measured.
    pub repetitions: u32,
    /// The percentage of reads of a mixed pattern; none for other patterns.
    pub read_percent: Option<u32>,
    /// The distribution of random offsets; none for sequential patterns.
    pub distribution: Option<String>,
    /// The I/O scheduler (elevator) of iopath with its settings; none on paths without a queue of iopath.
    pub elevator: Option<String>,
    /// The I/O engine that transferred the bytes; none on paths without a queue of iopath, and in virtual time.
    pub engine: Option<String>,
    /// The maximum number of requests in flight at the device; none for the device's own.
    pub device_depth: Option<u32>,
}
