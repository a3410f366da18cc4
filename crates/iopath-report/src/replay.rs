//! The schema of a replay for other programs, `iopath.replay/1`. An incompatible change needs a new version in
//! [`SCHEMA`].

mod view;

use serde::{Deserialize, Serialize};

use crate::result::{Host, Latency, TargetFacts};

/// The name and version of the JSON schema.
pub const SCHEMA: &str = "iopath.replay/1";

/// Submissions that are later than this share of the mean gap, at the 99th percentile, did not keep the times.
pub const LATENESS_MAX: f64 = 0.05;

/// The replay of a trace: the complete output of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The machine.
    pub host: Host,
    /// The trace, as given.
    pub trace: String,
    /// The recorded level.
    pub events: ReplayedEvents,
    /// When I/Os were submitted.
    pub timing: ReplayTiming,
    /// The speed: 2 halves the recorded intervals.
    pub speed: f64,
    /// What happened to I/Os beyond the end of the target.
    pub fit: ReplayFit,
    /// Whether only reads were replayed.
    pub reads_only: bool,
    /// The name of the path.
    pub path: String,
    /// The elevator with its settings.
    pub elevator: String,
    /// The largest number of I/Os in flight on each target.
    pub io_depth: u32,
    /// The seed of the contents of writes.
    pub seed: u64,
    /// Each recorded device with its target.
    pub devices: Vec<ReplayedDevice>,
    /// From the start to the last completion, in seconds.
    pub seconds: f64,
    /// Whether a signal or a failure ended the replay early: all figures are of the I/Os before.
    pub partial: bool,
    /// The failure that ended the replay; none without one.
    pub failure: Option<String>,
    /// Reasons to doubt the figures, in words.
    pub warnings: Vec<String>,
}

/// The recorded level of I/Os.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReplayedEvents {
    /// Bios as they were queued.
    Queue,
    /// Requests as they were dispatched to the device.
    Dispatch,
}

/// When a replay submits I/Os.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReplayTiming {
    /// At the recorded times.
    Recorded,
    /// After the completions of the stream that preceded them in the recording, with the recorded think times.
    Closed,
    /// As fast as possible.
    Asap,
}

/// What a replay does with I/Os beyond the end of a smaller target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReplayFit {
    /// It refuses them before it begins.
    Reject,
    /// It maps them to the start of the target, modulo its size.
    Wrap,
    /// It maps all regions of the recorded device to fewer regions of the target.
    Scale,
}

/// A recorded device and its target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayedDevice {
    /// The recorded device.
    pub device: String,
    /// The target.
    pub target: TargetFacts,
    /// The I/O engine.
    pub engine: String,
    /// I/Os of the trace that were to be replayed.
    pub planned: u64,
    /// I/Os that completed without an error.
    pub ios: u64,
    /// Bytes that they read, wrote, discarded and zeroed.
    pub bytes: u64,
    /// I/Os that failed.
    pub failed: u64,
    /// Completed I/Os in a second.
    pub iops: f64,
    /// Bytes that were read and written in a second.
    pub bytes_per_second: f64,
    /// From the start to the last completion, in seconds.
    pub seconds: f64,
    /// The time from the first to the last recorded submission of the same I/Os, in seconds, at the recorded speed.
    pub recorded_seconds: f64,
    /// The figures of each operation that occurs.
    pub operations: Vec<ReplayedOperation>,
    /// How late I/Os were submitted; none if they had no times.
    pub lateness_ns: Option<Lateness>,
    /// The failures by operation and error.
    pub errors: Vec<ReplayError>,
    /// I/Os whose range was widened to the alignment of the target.
    pub widened: u64,
    /// Times at which an I/O was due and waited, because the largest number was in flight.
    pub depth_waits: u64,
    /// Times at which the replay waited for the reader of the trace.
    pub trace_waits: u64,
}

/// The figures of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayedOperation {
    /// `read`, `write`, `flush`, `discard` or `write-zeroes`.
    pub op: String,
    /// I/Os that completed without an error.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// I/Os that failed.
    pub failed: u64,
    /// The recorded latency of the same I/Os; none if the trace has none.
    pub recorded_ns: Option<Latency>,
    /// From submission to completion; none if all failed.
    pub replayed_ns: Option<Latency>,
}

/// How late I/Os were submitted, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lateness {
    /// 50th percentile.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
    /// The mean gap between the times at which I/Os were due.
    pub mean_gap: f64,
    /// Whether the replay kept the times: the 99th percentile is at most 5% of the mean gap.
    pub kept_up: bool,
}

/// Failures of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayError {
    /// The operation.
    pub op: String,
    /// The error of the system.
    pub error: String,
    /// How many I/Os failed with it.
    pub count: u64,
    /// The message of the first of them.
    pub first: String,
}

impl ReplayedDevice {
    /// The recorded device and the target, in words.
    pub fn name(&self) -> String {
        let target = if self.target.scratch { "a scratch file" } else { &self.target.path };
        format!("{} on {target}", self.device)
    }
}

impl ReplayReport {
    /// The report as indented JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("JSON can represent all fields") + "\n"
    }

    /// I/Os that failed on all targets.
    pub fn failed(&self) -> u64 {
        self.devices.iter().map(|device| device.failed).sum()
    }
}
