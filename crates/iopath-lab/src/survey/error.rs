//! Reasons why a target cannot be surveyed. Failures of the measurement itself have the errors of every other
//! measurement.

use std::path::PathBuf;

use iopath_report::UnknownName;
use iopath_report::size::format_size;
use thiserror::Error;

use iopath_bench::error::BenchError;
use iopath_bench::with_bench_error;

/// A survey that cannot begin, or that failed before it had a result.
#[derive(Debug, Error)]
pub enum SurveyError {
    /// The target is a stripe.
    #[error("{} is a stripe, and a survey measures one file, device, directory, model or NBD export; survey a member, or use iopath run --target {}", target.display(), target.display())]
    Stripe {
        /// The target.
        target: PathBuf,
    },
    /// The target is too small.
    #[error("{} holds {}, and a survey needs {} at least; name a larger file, or a directory to use a scratch file",
        target.display(), format_size(*has), format_size(*needed))]
    TooSmall {
        /// The target.
        target: PathBuf,
        /// Its size in bytes.
        has: u64,
        /// The least size in bytes.
        needed: u64,
    },
    /// The target cannot be prepared, or a measurement failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

with_bench_error!(SurveyError: UnknownName);

impl SurveyError {
    /// Whether the arguments are invalid on every machine and target.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Stripe { .. } => true,
            Self::TooSmall { .. } => false,
            Self::Bench(error) => error.is_usage(),
        }
    }
}
