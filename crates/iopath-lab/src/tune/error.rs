//! Reasons why settings cannot be tried.

use thiserror::Error;

use crate::sweep::SweepError;
use iopath_bench::device_settings::SettingsError;
use iopath_bench::error::BenchError;
use iopath_fio::JobFileError;

/// A trial of settings that cannot begin, or that failed before it had a result.
#[derive(Debug, Error)]
pub enum TuneError {
    /// A setting is wrong, cannot be set, or is not restored.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A list of values is wrong.
    #[error(transparent)]
    List(Box<SweepError>),
    /// The jobs cannot run, or a measurement failed.
    #[error(transparent)]
    Job(Box<JobFileError>),
}

impl From<SweepError> for TuneError {
    fn from(error: SweepError) -> Self {
        Self::List(Box::new(error))
    }
}

impl From<JobFileError> for TuneError {
    fn from(error: JobFileError) -> Self {
        Self::Job(Box::new(error))
    }
}

impl From<BenchError> for TuneError {
    fn from(error: BenchError) -> Self {
        Self::Job(Box::new(error.into()))
    }
}

impl TuneError {
    /// The failed measurement, where that is the cause.
    pub fn bench(&self) -> Option<&BenchError> {
        match self {
            Self::Settings(_) => None,
            Self::List(error) => error.bench(),
            Self::Job(error) => error.bench(),
        }
    }

    /// Whether the arguments are invalid on every machine and target.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Settings(error) => error.is_usage(),
            Self::List(error) => error.is_usage(),
            Self::Job(error) => error.is_usage(),
        }
    }
}
