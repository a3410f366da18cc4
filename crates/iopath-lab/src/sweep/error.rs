//! Errors of sweeps. The messages are complete: one line with the object, the value and the remedy.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use iopath_bench::device_settings::SettingsError;
use iopath_bench::error::BenchError;
use iopath_bench::refusal::Scope;
use iopath_bench::refusal::WorkloadError;
use iopath_bench::with_bench_error;

/// A sweep that cannot begin, continue, or keep its results.
#[derive(Debug, Error)]
pub enum SweepError {
    /// A list of values is empty or malformed.
    #[error("--{axis} {text}: {problem}")]
    List {
        /// The axis.
        axis: String,
        /// The list as given.
        text: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// Two lists for one axis.
    #[error("--set {0} is given twice; write all values in one list: --set {0}=A,B")]
    Twice(String),
    /// The matrix has too many cells.
    #[error("the sweep has {cells} cells; the maximum is {max}: use shorter lists")]
    TooLarge {
        /// The number of cells.
        cells: u128,
        /// The maximum.
        max: usize,
    },
    /// The target of a setting of a modelled host is not a model, or the setting does not exist there.
    #[error("`{name}` is not a setting of modelled targets: {reason}")]
    Model {
        /// The setting.
        name: String,
        /// The reason and the remedy.
        reason: String,
    },
    /// The results cannot be written or read.
    #[error("cannot {action} {}: {source}; name another file", path.display())]
    File {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file to resume is no sweep of this version.
    #[error("{} cannot be resumed: {problem}", path.display())]
    NotResumable {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A file is no part of the same sweep.
    #[error("{} is no part of the sweep: {problem}", path.display())]
    NotAPart {
        /// The file.
        path: PathBuf,
        /// The problem and the remedy.
        problem: String,
    },
    /// The parts lack cells.
    #[error("the parts lack {missing} of {all} cells{shares}; name the part of each share")]
    Missing {
        /// The number of cells without a result.
        missing: usize,
        /// The number of all cells.
        all: usize,
        /// The shares without a part, in words; empty if they are not known.
        shares: String,
    },
    /// The results file has an interrupted sweep.
    #[error("{} has an unfinished sweep; continue it with --resume {}, or name another file with --output", path.display(), path.display())]
    Unfinished {
        /// The file.
        path: PathBuf,
    },
    /// The results file is a file of another program.
    #[error("{} exists and is not a sweep; name another file with --output", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A setting of the device cannot be changed or restored.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A target cannot be prepared, or a measurement failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

with_bench_error!(SweepError: WorkloadError);

impl SweepError {
    /// Whether the arguments are wrong on every machine.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::List { .. } | Self::Twice(_) | Self::TooLarge { .. } | Self::Model { .. } => true,
            Self::Settings(error) => error.is_usage(),
            Self::Bench(error) => error.is_usage(),
            Self::File { .. }
            | Self::NotAPart { .. }
            | Self::Missing { .. }
            | Self::NotResumable { .. }
            | Self::Unfinished { .. }
            | Self::Foreign { .. } => false,
        }
    }

    /// The part of the sweep that the failure ends: one cell, or all.
    pub(super) fn scope(&self) -> Scope {
        match self {
            Self::Settings(error) if error.is_refusal() => Scope::Workload,
            Self::Bench(error) => error.scope(),
            _ => Scope::Campaign,
        }
    }
}
