//! The steady state of a run, as a part of its result. `steady.rs` detects it.

use serde::{Deserialize, Serialize};

/// The criterion that was to end each repetition, and when it was met.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SteadyStateResult {
    /// `iops` (transfers a second), `bw` (bytes a second) or `lat` (the mean latency in nanoseconds).
    pub metric: String,
    /// The time that the criterion covers, in seconds.
    pub window_seconds: f64,
    /// The time between samples, in seconds.
    pub interval_seconds: f64,
    /// The largest permitted difference between a sample and the mean, with `%` of the mean; none without a limit.
    pub deviation_limit: Option<String>,
    /// The largest permitted change of the straight line over the window, with `%` of the mean; none without a limit.
    pub slope_limit: Option<String>,
    /// Whether every repetition was steady.
    pub reached: bool,
    /// Each repetition.
    pub repeats: Vec<SteadyRepeat>,
}

/// The steady state of one repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SteadyRepeat {
    /// From the start of the measurement to the end of the first steady window, in seconds; none without one.
    pub reached_seconds: Option<f64>,
    /// The last complete window of reads: the steady one, if there is one.
    pub read: Option<SteadyWindow>,
    /// The last complete window of writes.
    pub write: Option<SteadyWindow>,
}

/// The samples of a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SteadyWindow {
    /// Their mean, in the unit of the metric.
    pub mean: f64,
    /// The largest difference between a sample and the mean, in percent of the mean.
    pub deviation_percent: f64,
    /// The change of the straight line through the samples over the window, in percent of the mean.
    pub slope_percent: f64,
}
