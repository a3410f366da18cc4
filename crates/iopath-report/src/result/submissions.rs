//! The parts of latencies, of a run whose path submits transfers by calls of their own.

use serde::{Deserialize, Serialize};

use super::distribution::LatencyDistribution;
use super::figures::Latency;

/// The time of submissions, and the rest of the latencies, over all repetitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Submissions {
    /// From the begin of a submission to its end: `slat` of fio.
    pub submission_ns: Latency,
    /// More of these times.
    pub submission_distribution: LatencyDistribution,
    /// From the end of a submission to the completion: `clat` of fio.
    pub completion_ns: Latency,
    /// More of these times.
    pub completion_distribution: LatencyDistribution,
}
