//! Errors of writing and reading a log, and damage, which ends a log without an error.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error of writing or reading a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The file cannot be created or opened.
    #[error("cannot open log {}: {source}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file cannot be written. The logged I/O continues; the file holds all records before the error.
    #[error("cannot write log {}: {source}; it ends after {records} records", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Records written before.
        records: u64,
        /// The cause.
        source: io::Error,
    },
    /// The operating system reports an error while reading. A damaged log is no error: it is read up to the damage.
    #[error("cannot read log at byte {offset}: {source}")]
    Read {
        /// The position in the file.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
    /// The size limit is too small even for a log without records.
    #[error("a log limit of {limit_bytes} bytes is too small; the minimum is {least_bytes}")]
    Limit {
        /// The requested limit.
        limit_bytes: u64,
        /// The smallest possible.
        least_bytes: u64,
    },
    /// The compression level does not exist.
    #[error("cannot compress a log at level {level}: {source}; levels are 1 to 19, and -1 to -20")]
    Level {
        /// The requested level.
        level: i32,
        /// The cause.
        source: io::Error,
    },
    /// The thread that writes the log cannot be started.
    #[error("cannot start the thread that writes the log: {0}")]
    Thread(io::Error),
    /// The dump cannot be written to its output.
    #[error("cannot write the dump: {0}")]
    Output(#[source] io::Error),
    /// The file is not a log.
    #[error("not an iopath log: {what}; `iopath run --log FILE` writes one")]
    NotALog {
        /// The defect at its beginning.
        what: &'static str,
    },
    /// The file begins like a log, and ends within its header.
    #[error("the log is truncated in its header, or has just been created; it contains no records")]
    NoHeader,
    /// A trace of another program has a part that cannot be read.
    #[error("{} {at}: {problem}", .path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// The position in the file, after decompression.
        at: Position,
        /// The problem and the remedy.
        problem: String,
    },
    /// The log has a format newer than this program.
    #[error(
        "the log has format {version}, this program reads {}; read it with a newer iopath",
        crate::format::VERSION
    )]
    Version {
        /// The file's version.
        version: u16,
    },
}

/// A position in a trace of another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// A line, from 1.
    Line(u64),
    /// A byte, from 0.
    Byte(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// The position at which a log becomes unreadable, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("the log is damaged at byte {offset}, after record {record}: {what}")]
pub struct Damage {
    /// The first byte of the first block that could not be read.
    pub offset: u64,
    /// Records before it.
    pub record: u64,
    /// The defect.
    pub what: &'static str,
}
