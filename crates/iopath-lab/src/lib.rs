//! The lab: measures any block I/O path, and reports its cost and the validity of the figures.
//!
//! [`run`] measures one [`Workload`]. To measure several, create one [`Lab`] and a [`Target`], and call [`Lab::run`]
//! for each. Paths are rows of [`paths::PATHS`]; results have the schema of [`iopath_report::result`]. The lab does not
//! print; [`iopath_report::format`] formats results.

pub mod cache;
mod check;
mod combinations;
pub mod compare;
mod compare_error;
mod conditions;
mod control_result;
pub mod controls;
mod counters;
pub mod device_settings;
mod distribution;
#[cfg(test)]
mod docs_table;
mod engine;
pub mod error;
pub mod experiment;
mod export;
pub mod field;
pub mod fit;
mod fit_error;
mod host;
mod job;
pub mod jobfile;
pub mod map;
mod model;
mod model_host;
pub mod options;
pub mod own_file;
mod parallel;
pub mod path;
pub mod paths;
pub mod place;
mod plan;
pub mod preset;
pub mod progress;
mod rates;
mod refusal;
mod request_log;
mod run;
mod runner;
mod scratch;
pub mod serve;
mod served;
mod settings_error;
pub mod shape;
mod signals;
mod simulated;
pub mod steady;
mod steady_detector;
mod storage;
mod stripe_name;
pub mod survey;
pub mod sweep;
mod sweep_error;
mod target;
pub mod thread_settings;
pub mod tune;
mod values;
pub mod verify;
mod warnings;
pub mod whatif;
mod whatif_error;
pub mod workload;

pub use cache::CacheSettings;
pub use combinations::report_all;
pub use compare_error::CompareError;
pub use error::LabError;
pub use field::Field;
pub use fit_error::FitError;
pub use iopath::{ELEVATORS, Engine, Readahead};
use iopath_report::result::{Report, RunResult};
pub use model::{ModelTarget, model_file};
pub use model_host::ModelHost;
pub use progress::Progress;
pub use refusal::WorkloadError;
pub use run::{IDLE_SAMPLE, Lab};
pub use scratch::Scratch;
pub use settings_error::SettingsError;
pub use shape::{Shape, Sizes};
pub use signals::{Interruption, before_end, survive_file_size_limit};
pub use steady::SteadyState;
pub use sweep_error::SweepError;
pub use target::{Target, TargetInfo};
pub use whatif_error::WhatIfError;
pub use workload::{
    BlockSize, Depth, DeviceDepth, Distribution, End, Jobs, LatencySampling, LogSettings, Rate, RateProcess,
    ReadShare, Repetitions, Verify, Workload,
};

/// Measures one workload on this machine: prepares its target, measures all repetitions, and removes the scratch file.
///
/// # Errors
/// [`LabError`]: the workload is refused, or a transfer failed.
pub fn run(workload: &Workload, progress: &mut dyn Progress) -> Result<RunResult, LabError> {
    report(workload, progress).map(|mut report| report.runs.remove(0))
}

/// Measures one workload as [`run`] does. Returns a report, with the facts of machine and target.
///
/// # Errors
/// As [`run`].
pub fn report(workload: &Workload, progress: &mut dyn Progress) -> Result<Report, LabError> {
    let target = Target::prepare(workload, progress)?;
    let lab = Lab::for_target(&target, progress);
    let (result, failure) = lab.run_until_failure(workload, &target, progress)?;
    let more_targets = target.further_facts();
    let failure = failure.map(|error| error.to_string());
    Ok(Report { more_targets, failure, ..Report::new(lab.host().cloned(), target.facts(), vec![result]) })
}
