//! The lab: measures any block I/O path, and says what it cost and how far the figures can be trusted.
//!
//! [`run`] measures one [`Workload`]. Who measures many of them makes a [`Lab`] once and a [`Place`] for the bytes,
//! and calls [`Lab::run`]. Paths are rows of [`path::PATHS`]; results have the form of [`result`]. Nothing is printed
//! here, but [`table`] knows how results look to people.

pub mod cache;
mod counters;
mod doubt;
mod engine;
pub mod error;
mod host;
mod job;
pub mod map;
pub mod path;
mod paths;
mod place;
mod plan;
pub mod progress;
mod random;
pub mod result;
mod run;
mod scratch;
pub mod size;
pub mod stats;
pub mod survey;
pub mod table;
pub mod workload;

pub use cache::CacheSettings;
pub use error::LabError;
pub use iopath::{ELEVATORS, Engine, Readahead};
pub use place::Place;
pub use progress::Progress;
pub use result::{Report, RunResult, TargetFacts};
pub use run::{IDLE_SAMPLE, Lab};
pub use scratch::Scratch;
pub use workload::{Rw, Workload};

/// Measures one workload on this machine: makes or finds its target, repeats, and takes a scratch file away again.
pub fn run(workload: &Workload, progress: &mut dyn Progress) -> Result<RunResult, LabError> {
    report(workload, progress).map(|mut report| report.runs.remove(0))
}

/// The same, with what there is to say of machine and target: a report with that one run.
pub fn report(workload: &Workload, progress: &mut dyn Progress) -> Result<Report, LabError> {
    let place = Place::prepare(workload, workload.check()?, progress)?;
    let lab = Lab::new(IDLE_SAMPLE, progress);
    let result = lab.run(workload, &place, progress)?;
    Ok(Report::new(lab.host().clone(), TargetFacts::of(&place), vec![result]))
}
