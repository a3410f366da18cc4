//! The result of a search for the largest depth that keeps a latency. `job/control/latency_target.rs` of `iopath-bench`
//! searches.

use serde::{Deserialize, Serialize};

/// The latency to keep, and the depths that keep it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatencyTargetResult {
    /// The latency from the submission to the completion, in nanoseconds.
    pub limit_ns: u64,
    /// The transfers in 100 that keep it.
    pub percent: f64,
    /// The time at each depth, in seconds.
    pub window_seconds: f64,
    /// The search of each clone of the job, of one repetition after another.
    pub searches: Vec<DepthSearchResult>,
}

/// The end of one search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DepthSearchResult {
    /// The largest depth that keeps the latency; none if no depth does.
    pub depth: Option<u32>,
    /// The transfers a second at this depth.
    pub iops: Option<f64>,
    /// Whether the search is complete. If not, a larger depth may keep the latency, too.
    pub complete: bool,
}
