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
    /// The unit of random offsets in bytes; none for the smallest size of a transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub align_bytes: Option<u64>,
    /// The bytes that a sequential pattern skips after each transfer, negative backwards; none without a gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_bytes: Option<i64>,
    /// The transfers of a random pattern at adjacent offsets, from each random offset on; none for 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_run: Option<u32>,
    /// The percentage of random offsets of a random pattern, the others follow the transfer before them; none for 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_percent: Option<u32>,
    /// The maximum number of transfers of a job; none without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ios_max: Option<u64>,
    /// The distances between the starts of transfers with a rate, `linear` or `poisson`; none without a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_process: Option<String>,
    /// The transfers of a job before each pause; none for 1, and without pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think_every: Option<u64>,
    /// The writes of a job after which it flushes; none without flushes between transfers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_every: Option<u64>,
    /// How the data is verified; none for a run that does not verify.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyFacts>,
    /// The I/O scheduler (elevator) of iopath with its settings; none on paths without a queue of iopath.
    pub elevator: Option<String>,
    /// The I/O engine that transferred the bytes; none on paths without a queue of iopath, and in virtual time.
    pub engine: Option<String>,
    /// The maximum number of requests in flight at the device; none for the device's own.
    pub device_depth: Option<u32>,
}

/// The verification of a workload. The checked blocks are in the result of the run.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct VerifyFacts {
    /// Whether the written blocks are read back after each repetition.
    pub after: bool,
    /// The writes of a job after which it reads them back, within the measurement; none without.
    pub backlog: Option<u64>,
    /// Whether the first fault ends the job.
    pub fatal: bool,
}
