//! The lab: measures any block I/O path, and reports its cost and the reliability of the figures.
//!
//! [`run`] measures one [`Workload`]. A caller that measures many makes a [`Lab`] once and a [`Target`] for the bytes, and
//! calls [`Lab::run`]. Paths are rows of [`paths::PATHS`]; results have the form of [`result`]. The lab prints nothing;
//! [`table`] formats results for people.

pub mod cache;
mod check;
mod conditions;
mod counters;
mod engine;
pub mod error;
pub mod field;
mod host;
mod job;
pub mod map;
pub mod path;
pub mod paths;
mod pattern;
mod plan;
pub mod progress;
mod random;
mod refusal;
pub mod result;
mod run;
mod scratch;
mod served;
pub mod size;
pub mod stats;
mod storage;
pub mod survey;
pub mod table;
mod target;
mod values;
mod warnings;
pub mod workload;

pub use cache::CacheSettings;
pub use error::LabError;
pub use field::Field;
pub use iopath::{ELEVATORS, Engine, Readahead};
pub use progress::Progress;
pub use refusal::WorkloadError;
pub use result::{Report, RunResult, TargetFacts};
pub use run::{IDLE_SAMPLE, Lab};
pub use scratch::Scratch;
pub use target::{Target, TargetInfo};
pub use workload::{
    BlockSize, Depth, DeviceDepth, End, Jobs, LatencySampling, LogSettings, ReadShare, Repetitions, Rw,
    Workload,
};

/// Measures one workload on this machine: finds or makes its target, repeats, and removes a scratch file.
///
/// # Errors
/// [`LabError`]: the workload is refused, or a transfer failed.
pub fn run(workload: &Workload, progress: &mut dyn Progress) -> Result<RunResult, LabError> {
    report(workload, progress).map(|mut report| report.runs.remove(0))
}

/// The same as a report, with the facts of machine and target.
///
/// # Errors
/// As [`run`].
pub fn report(workload: &Workload, progress: &mut dyn Progress) -> Result<Report, LabError> {
    let target = Target::prepare(workload, progress)?;
    let lab = Lab::new(IDLE_SAMPLE, progress);
    let result = lab.run(workload, &target, progress)?;
    Ok(Report::new(lab.host().clone(), TargetFacts::of(&target), vec![result]))
}
