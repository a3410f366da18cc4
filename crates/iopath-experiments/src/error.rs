//! Reasons why an experiment cannot run.

use std::path::PathBuf;

use iopath_log::LogError;
use iopath_model::ModelError;
use iopath_report::UnknownName;
use iopath_report::experiment::ParameterError;
use thiserror::Error;

use iopath_bench::device_settings::SettingsError;
use iopath_bench::error::BenchError;
use iopath_bench::refusal::WorkloadError;
use iopath_bench::with_bench_error;

/// An experiment that cannot run, or that failed.
#[derive(Debug, Error)]
pub enum ExperimentError {
    /// A parameter is unknown, or its value is not valid.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// The values of the parameters contradict each other, or are out of the range of a model.
    #[error("experiment {id} cannot run with {set}: {source}")]
    Setting {
        /// The id of the experiment.
        id: &'static str,
        /// The parameters that are set, as NAME=VALUE.
        set: String,
        /// The cause.
        source: Box<BenchError>,
    },
    /// The experiment has no form for real storage.
    #[error("experiment {id} runs on models only; on a target run: {}", known.join(", "))]
    NotOnTarget {
        /// The id of the experiment.
        id: &'static str,
        /// The ids of the experiments that run on a target.
        known: Vec<&'static str>,
    },
    /// An experiment on real storage that writes needs a directory.
    #[error("experiments write to scratch files only; {} is not a directory: name one, or run unplug or dip, which only read", target.display())]
    NotADirectory {
        /// The target as given.
        target: PathBuf,
    },
    /// A device refuses a setting, or does not get back its previous settings.
    #[error(transparent)]
    Settings(Box<SettingsError>),
    /// A model is wrong, the target cannot be prepared, or a measurement failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

impl From<SettingsError> for ExperimentError {
    fn from(error: SettingsError) -> Self {
        Self::Settings(Box::new(error))
    }
}

with_bench_error!(ExperimentError: UnknownName, WorkloadError, ModelError, LogError);

impl ExperimentError {
    /// Whether the arguments are invalid on every machine and target.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Parameter(_) | Self::Setting { .. } | Self::NotOnTarget { .. } => true,
            Self::NotADirectory { .. } => false,
            Self::Settings(error) => error.is_usage(),
            Self::Bench(error) => error.is_usage(),
        }
    }
}
