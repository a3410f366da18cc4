//! Replays a recorded trace on files, devices, stripes, exports and modelled disks, in real time, and compares recorded
//! and measured latencies. `whatif` predicts instead, in virtual time.
//!
//! ```text
//!   scan.rs: first pass ─▶ open.rs: targets ─▶ placement.rs
//!                                                  │
//!   iopath_trace::Ios ─▶ feed.rs ─▶ schedule.rs ─▶ drive.rs ─▶ tally.rs ─▶ iopath_report::replay
//!                        a thread   when           a thread for each target
//! ```
//!
//! The trace is read twice: first to check it as a whole, before anything is written; then a bounded part ahead of the
//! submission.

mod contents;
mod drive;
mod error;
mod feed;
mod open;
mod placement;
mod run;
mod scan;
mod schedule;
mod tally;

use std::path::PathBuf;
use std::time::Duration;

use iopath_bench::path::PathRow;
use iopath_bench::workload::{Depth, LogSettings};
use iopath_core::elevator::ElevatorSpec;
use iopath_report::replay::{ReplayFit, ReplayTiming, ReplayedEvents};

pub use error::ReplayError;
pub use run::replay;

/// The largest number of I/Os in flight on a target, at the recorded times.
pub const DEFAULT_DEPTH: u32 = 256;

/// The number of I/Os in flight on a target, as fast as possible.
pub const DEFAULT_DEPTH_ASAP: u32 = 32;

/// The largest possible number of I/Os in flight on a target.
pub const DEPTH_MAX: u32 = Depth::MAX;

/// What to replay, where and when.
#[derive(Debug, Clone)]
pub struct ReplayRequest {
    /// The request log or trace.
    pub trace: PathBuf,
    /// Files, devices, directories, stripes, exports and models: one for each of the devices.
    pub targets: Vec<PathBuf>,
    /// The recorded devices, by name or number, in the order of the targets; empty for all.
    pub devices: Vec<String>,
    /// The recorded level.
    pub events: ReplayedEvents,
    /// When I/Os are submitted.
    pub timing: ReplayTiming,
    /// Above 0; 2 halves the recorded intervals.
    pub speed: f64,
    /// What happens to I/Os beyond the end of the target.
    pub fit: ReplayFit,
    /// The path.
    pub path: &'static PathRow,
    /// The elevator; unset is `none`.
    pub elevator: Option<ElevatorSpec>,
    /// The largest number of I/Os in flight on each target; unset is [`DEFAULT_DEPTH`] or [`DEFAULT_DEPTH_ASAP`].
    pub depth: Option<u32>,
    /// The bytes of the target to use, from its start; unset is all, and of a scratch file as many as the trace needs.
    pub size_bytes: Option<u64>,
    /// Only I/Os that were submitted in this range of time since the start of the log.
    pub time: std::ops::Range<Duration>,
    /// Whether only reads are replayed.
    pub reads_only: bool,
    /// Whether a user's file or device may be written to.
    pub overwrite: bool,
    /// Seeds the contents of writes.
    pub seed: u64,
    /// The request log of the replay.
    pub log: Option<LogSettings>,
}

impl ReplayRequest {
    /// The largest number of I/Os in flight on each target.
    pub(crate) fn depth(&self) -> u32 {
        self.depth.unwrap_or(if self.timing == ReplayTiming::Asap {
            DEFAULT_DEPTH_ASAP
        } else {
            DEFAULT_DEPTH
        })
    }
}
