//! Reasons why a file has no map.

use std::path::PathBuf;

use iopath_os::target::ExtentError;
use thiserror::Error;

use iopath_bench::error::BenchError;
use iopath_bench::with_bench_error;

/// A file whose extents cannot be shown.
#[derive(Debug, Error)]
pub enum MapError {
    /// The file does not exist.
    #[error("{} does not exist; name a regular file", target.display())]
    Missing {
        /// The file as given.
        target: PathBuf,
    },
    /// The target is of a kind that has no extents.
    #[error("{} is a {kind}, which has no extents; name a regular file", target.display())]
    NotAFile {
        /// The target.
        target: PathBuf,
        /// Its kind.
        kind: &'static str,
    },
    /// The extents of the file cannot be read.
    #[error("{}: {source}", target.display())]
    Extents {
        /// The file.
        target: PathBuf,
        /// The reason.
        source: ExtentError,
    },
    /// The file cannot be examined, or a block size does not suit it.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

with_bench_error!(MapError);

impl MapError {
    /// Whether the arguments are invalid on every machine and target.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Bench(error) if error.is_usage())
    }
}
