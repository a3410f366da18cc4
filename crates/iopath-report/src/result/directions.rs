//! Reads, writes and trims of a result apart.

use serde::{Deserialize, Serialize};

use super::distribution::LatencyDistribution;
use super::figures::{Latency, Spread};
use super::submissions::Submissions;

/// Reads, writes and trims apart, of a run with at least two of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Directions {
    /// The reads.
    pub read: DirectionResult,
    /// The writes.
    pub write: DirectionResult,
    /// The trims; none of a run without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trim: Option<DirectionResult>,
}

impl Directions {
    /// The directions with transfers, each with its name.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, &DirectionResult)> {
        let named = [("read", Some(&self.read)), ("write", Some(&self.write)), ("trim", self.trim.as_ref())];
        named.into_iter().filter_map(|(name, one)| Some((name, one.filter(|one| one.ios > 0)?)))
    }
}

/// The transfers of one direction. The time of both directions is the same, so rates add up to those of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DirectionResult {
    /// Bytes transferred, over all repetitions.
    pub bytes: u64,
    /// Transfers, over all repetitions.
    pub ios: u64,
    /// Throughput.
    pub bytes_per_second: Spread,
    /// Transfers per second.
    pub iops: Spread,
    /// From submission to completion, over all repetitions.
    pub latency_ns: Latency,
    /// More of these latencies; none in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_distribution: Option<LatencyDistribution>,
    /// The parts of these latencies; none if they were not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submissions: Option<Box<Submissions>>,
}

/// Reads and writes of one repetition.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RepeatDirections {
    /// The reads.
    pub read: RepeatDirection,
    /// The writes.
    pub write: RepeatDirection,
    /// The trims; none of a run without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trim: Option<RepeatDirection>,
}

/// The transfers of one direction in one repetition.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RepeatDirection {
    /// Bytes transferred.
    pub bytes: u64,
    /// Transfers.
    pub ios: u64,
    /// Throughput, in bytes per second.
    pub bytes_per_second: f64,
    /// Transfers per second.
    pub iops: f64,
    /// From submission to completion.
    pub latency_ns: Latency,
}
