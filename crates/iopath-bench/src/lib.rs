//! Measures one workload on any block I/O path: the table of options, targets, paths, jobs, and the runner in real and
//! in virtual time.
//!
//! [`run()`] measures one [`Workload`]. To measure several, create one [`Lab`] and a [`Target`], and call [`Lab::run`]
//! for each. Paths are rows of [`paths::PATHS`]; results have the schema of [`iopath_report::result`]. The crate does
//! not print; [`iopath_report::format`] formats results.

#![expect(missing_debug_implementations, reason = "a measurement in progress holds devices and closures")]

use std::rc::Rc;

pub mod batches;
pub mod cache;
mod check;
mod conditions;
pub mod contents;
mod control_result;
pub mod controls;
pub mod counters;
pub mod device_settings;
mod distribution;
#[cfg(test)]
#[path = "../tests/support/docs_table.rs"]
mod docs_table;
pub mod engine;
pub mod error;
pub mod export;
pub mod field;
pub mod host;
pub mod job;
pub mod kept_file;
pub mod model;
mod model_host;
pub mod options;
pub mod own_file;
mod parallel;
pub mod path;
pub mod paths;
pub mod peers;
pub mod place;
mod plan;
pub mod progress;
mod rates;
pub mod refusal;
pub mod request_log;
pub mod run;
pub mod runner;
mod scratch;
mod served;
pub mod shape;
pub mod share;
pub mod signals;
pub mod simulated;
pub mod steady;
mod steady_detector;
mod storage;
pub mod stripe_name;
pub mod sync_writes;
pub mod target;
pub mod thread_settings;
mod values;
pub mod verify;
pub mod warnings;
pub mod workload;

pub use cache::CacheSettings;
pub use error::BenchError;
pub use field::Field;
pub use iopath::elevator::ELEVATORS;
pub use iopath::{Engine, Readahead};
use iopath_report::result::{Report, RunResult};
pub use model::{ModelTarget, model_file};
pub use model_host::ModelHost;
pub use peers::Peers;
pub use progress::Progress;
pub use refusal::{Scope, WorkloadError};
pub use run::{IDLE_SAMPLE, Lab};
pub use scratch::Scratch;
pub use shape::{Shape, Sizes};
pub use signals::{Interruption, before_end, survive_file_size_limit};
pub use steady::SteadyState;
pub use target::{Target, TargetInfo};
pub use workload::{
    BlockSize, Depth, DeviceDepth, Distribution, End, Jobs, LatencySampling, LogSettings, Rate, RateProcess,
    ReadShare, Repetitions, Verify, Workload,
};

/// Measures one workload on this machine: prepares its target, measures all repetitions, and removes the scratch file.
///
/// # Errors
/// [`BenchError`]: the workload is refused, or a transfer failed.
pub fn run(workload: &Workload, progress: &mut dyn Progress) -> Result<RunResult, BenchError> {
    report(workload, progress).map(|mut report| report.runs.remove(0))
}

/// Measures one workload as [`run()`] does. Returns a report, with the facts of machine and target.
///
/// # Errors
/// As [`run()`].
pub fn report(workload: &Workload, progress: &mut dyn Progress) -> Result<Report, BenchError> {
    report_with(workload, None, progress)
}

/// As [`report()`], at the same time as other processes.
///
/// # Errors
/// As [`run()`].
pub fn report_with(
    workload: &Workload,
    peers: Option<Rc<dyn Peers>>,
    progress: &mut dyn Progress,
) -> Result<Report, BenchError> {
    let target = Target::prepare(workload, progress)?;
    let lab = Lab::for_target(&target, progress).with_peers(peers);
    let (result, failure) = lab.run_until_failure(workload, &target, progress)?;
    let more_targets = target.further_facts();
    let failure = failure.map(|error| error.to_string());
    Ok(Report { more_targets, failure, ..Report::new(lab.host().cloned(), target.facts(), vec![result]) })
}
