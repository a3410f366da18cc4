//! Results of a workload on several hosts: each rank, each host, and how evenly they started and ended.

use serde::{Deserialize, Serialize};

use super::figures::{Latency, Spread};
use super::host::{Host, TargetFacts};

/// A host of a run, and its ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostFacts {
    /// Its name.
    pub name: String,
    /// The ranks on it.
    pub ranks: Vec<u32>,
    /// The machine, as its first rank sees it.
    pub machine: Host,
    /// The targets of its ranks, each once; empty if a rank ended before it could state them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetFacts>,
}

/// A workload that several ranks ran at the same time. The other values of the run cover all ranks together, from the
/// start of the first to the end of the last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostsResult {
    /// The end of a repetition: `all` if each rank had its own, `first` if the first rank that ended stopped the
    /// others.
    pub stop: String,
    /// How the ranks shared one target: `segmented`, `strided` or `random`; none if each had its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    /// Whether each rank accessed the share of a rank of another host.
    pub reordered: bool,
    /// The host with the highest 99th percentile.
    pub worst_host: String,
    /// The starts, the ends and the fairness.
    pub ends: RanksEnd,
    /// Each host.
    pub hosts: Vec<HostResult>,
    /// Each rank.
    pub ranks: Vec<RankResult>,
}

/// How evenly the ranks started and ended: means over the repetitions. Times are in seconds from the first start, on
/// the clock of rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RanksEnd {
    /// The start of the last rank.
    pub last_start_seconds: f64,
    /// The end of the first rank that was done.
    pub first_done_seconds: f64,
    /// The end of the last one.
    pub last_done_seconds: f64,
    /// The time between these two ends.
    pub skew_seconds: f64,
    /// An interval that contains the skew with a probability of at least 95%, by the errors of the clock offsets.
    pub skew_ci95: [f64; 2],
    /// Jain's index of the throughputs of the hosts: 1 if all are equal, 1/n if one of n has all.
    pub jain_hosts: f64,
    /// The same of the ranks.
    pub jain_ranks: f64,
}

/// One host of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostResult {
    /// Its name.
    pub host: String,
    /// Ranks on it.
    pub ranks: u32,
    /// Bytes transferred, over all repetitions.
    pub bytes: u64,
    /// Transfers, over all repetitions.
    pub ios: u64,
    /// From the start of its first rank to the end of its last one, over all repetitions, in seconds.
    pub seconds: f64,
    /// Throughput in this time.
    pub bytes_per_second: Spread,
    /// Transfers per second in this time.
    pub iops: Spread,
    /// From submission to completion, over all repetitions.
    pub latency_ns: Latency,
    /// Its clock less that of rank 0, in seconds: the mean over its ranks.
    pub clock_offset_seconds: f64,
    /// The largest error of these offsets, in seconds: half of the shortest round trip.
    pub clock_error_seconds: f64,
    /// The throughput of a rank of this host, divided by that of the ranks of the other hosts; none for a single host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_to_others: Option<f64>,
    /// Whether it is slower than the other hosts: at 95%, in pairs by repetition, corrected for the number of hosts.
    pub is_slower: bool,
}

/// One rank of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankResult {
    /// Its number.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its number among the ranks of its host.
    pub local_rank: u32,
    /// Bytes transferred, over all repetitions.
    pub bytes: u64,
    /// Transfers, over all repetitions.
    pub ios: u64,
    /// Measured time, over all repetitions, in seconds.
    pub seconds: f64,
    /// Throughput.
    pub bytes_per_second: Spread,
    /// From submission to completion, over all repetitions.
    pub latency_ns: Latency,
    /// Its clock less that of rank 0, in seconds.
    pub clock_offset_seconds: f64,
    /// The error of this offset, in seconds.
    pub clock_error_seconds: f64,
}
