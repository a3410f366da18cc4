//! Reasons why a model cannot be fitted. Failures of the measurement itself have the errors of every other measurement.

use std::path::PathBuf;

use iopath_log::LogError;
use iopath_model::ModelError;
use iopath_report::size::format_size;
use thiserror::Error;

use iopath_bench::error::BenchError;
use iopath_bench::with_bench_error;

/// The data do not determine a model.
#[derive(Debug, Error)]
pub enum FitError {
    /// The target is too small for different workloads.
    #[error(
        "{} holds {}, and a fit needs {} at least; name a larger file, or a directory to use a scratch file",
        target.display(), format_size(*has), format_size(*needed)
    )]
    TooSmall {
        /// The target.
        target: PathBuf,
        /// Its size in bytes.
        has: u64,
        /// The minimum size in bytes.
        needed: u64,
    },
    /// A part of the file has no data on the disk, so the kernel serves reads of it from memory.
    #[error(
        "{} has a hole or an unwritten extent at offset {offset}: reads of it do not access the disk; write the whole file \
         first, or name a directory to use a scratch file", target.display()
    )]
    Hole {
        /// The file.
        target: PathBuf,
        /// The first byte without data.
        offset: u64,
    },
    /// The repetitions of a workload differ too much.
    #[error(
        "{} is too noisy to fit: repetitions of the same workload differ by {:.0}% (median), and {:.0}% is the limit; \
         stop other programs, or use a longer --time", target.display(), noise * 100.0, limit * 100.0
    )]
    TooNoisy {
        /// The target.
        target: PathBuf,
        /// The median deviation of a repetition, as a fraction.
        noise: f64,
        /// The largest deviation that a fit accepts.
        limit: f64,
    },
    /// The storage completed too few transfers in the time.
    #[error(
        "{} completed {ios} transfers of `{workload}`, and a fit needs {needed} at least; use a longer --time",
        target.display()
    )]
    TooSlow {
        /// The target.
        target: PathBuf,
        /// The workload.
        workload: String,
        /// The number of completed transfers.
        ios: u64,
        /// The least number.
        needed: u64,
    },
    /// The log has too few requests.
    #[error("log {} has too few completed requests: {requests}; a fit needs {needed} at least; record a longer run", log.display())]
    ShortLog {
        /// The log.
        log: PathBuf,
        /// Its requests.
        requests: u64,
        /// The least number.
        needed: u64,
    },
    /// All requests of the log are alike.
    #[error(
        "the requests of log {} have about the same operation, size and depth, which determine no model; record a load with \
         several", log.display()
    )]
    OneKind {
        /// The log.
        log: PathBuf,
    },
    /// The log is that of a rotating disk.
    #[error(
        "log {} shows a device with mechanical latency; a log does not determine its seeks and zones; fit the device \
         itself: iopath fit TARGET", log.display()
    )]
    MechanicalLog {
        /// The log.
        log: PathBuf,
    },
    /// No kind of model describes the data.
    #[error(
        "no kind of model describes {}: the best deviates by {:.0}% (median) from the workloads that it was fitted to",
        source_name.display(), error * 100.0
    )]
    NoModel {
        /// The target or log.
        source_name: PathBuf,
        /// The median deviation, as a fraction.
        error: f64,
    },
    /// The target cannot be prepared, a model is wrong, or a measurement failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

with_bench_error!(FitError: ModelError, LogError);

impl FitError {
    /// Whether the arguments are invalid on every machine and target.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Bench(error) if error.is_usage())
    }
}
