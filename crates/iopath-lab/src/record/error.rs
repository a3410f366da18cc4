//! The reasons why I/O cannot be recorded.

use std::io;
use std::path::PathBuf;

use iopath_bench::own_file::log_with_limit;
use iopath_log::LogError;
use iopath_os::trace::TraceError;
use thiserror::Error;

/// I/O cannot be recorded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The kernel refuses its events.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The log cannot be written.
    #[error(transparent)]
    Log(LogError),
    /// It is neither a block device nor on one.
    #[error("{} is not on a block device that the kernel names; record all devices, or name one of /sys/block", .device.display())]
    NoDevice {
        /// What was named.
        device: PathBuf,
    },
    /// It cannot be inspected.
    #[error("cannot find the device of {}: {source}; name a block device such as sda, or a file or directory on it", .device.display())]
    Device {
        /// What was named.
        device: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The command cannot be started.
    #[error("cannot start {command}: {source}")]
    Command {
        /// Its name.
        command: String,
        /// The cause.
        source: io::Error,
    },
}

impl From<LogError> for RecordError {
    fn from(error: LogError) -> Self {
        Self::Log(log_with_limit(error))
    }
}

impl RecordError {
    /// Whether the arguments are invalid on every machine and target.
    pub const fn is_usage(&self) -> bool {
        false
    }
}
