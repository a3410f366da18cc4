//! What another elevator, depth or request size would have done: replays recorded requests on a model under
//! alternatives, in virtual time, and compares the figures.
//!
//! ```text
//!   log.rs ─┐                              plan.rs: inputs × alternatives
//!   csv.rs ─┴─▶ trace.rs ─▶ replay.rs ─▶ tally.rs ─▶ resample.rs ─▶ verdict.rs ─▶ iopath_report::whatif
//!                              │
//!                 source.rs, queue, meter.rs, model          study.rs: threads   parts.rs: shares of a study
//! ```
//!
//! The queue, the elevators and the merges are those of the library, the models those of `iopath-model`.

mod alternative;
mod csv;
mod error;
mod log;
mod meter;
mod parts;
mod plan;
mod replay;
mod request;
mod resample;
mod source;
mod study;
mod tally;
mod trace;
mod verdict;

use std::path::PathBuf;

use iopath_report::shard::Shard;
use iopath_report::whatif::{Metric, WhatIfReport};

pub use alternative::{Axes, Priorities, parse_elevators, parse_max_sectors};
pub use error::WhatIfError;
pub use parts::merge;

use iopath_bench::progress::Progress;

/// The default number of seeds of the model.
pub const DEFAULT_SEEDS: u32 = 3;

/// A study: recorded inputs, alternatives, and how to replay them.
#[derive(Debug, Clone)]
pub struct WhatIf {
    /// Request logs of iopath, and CSV files.
    pub inputs: Vec<PathBuf>,
    /// The alternatives.
    pub axes: Axes,
    /// Above 0; 0.1 stretches the recorded times by ten.
    pub speed: f64,
    /// Whether requests follow the completions of their stream. Otherwise they are due at their recorded times.
    pub closed: bool,
    /// The number of seeds of the model.
    pub seeds: u32,
    /// The figure that decides; by default the mean latency, and with `closed` the throughput.
    pub by: Option<&'static Metric>,
    /// Whether sectors beyond the model wrap around to its start. Otherwise they are an error.
    pub wrap: bool,
    /// The share of the cells to run; none for all.
    pub shard: Option<Shard>,
    /// The number of threads; by default that of the CPUs. It does not change the results.
    pub threads: Option<usize>,
}

impl WhatIf {
    /// Runs the study, or its share.
    ///
    /// # Errors
    /// [`WhatIfError`]: an input or a model cannot be used, or a replay failed.
    pub fn run(&self, progress: &mut dyn Progress) -> Result<WhatIfReport, WhatIfError> {
        study::run(self, progress)
    }
}
