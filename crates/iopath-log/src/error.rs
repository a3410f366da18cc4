//! What can go wrong with a log file: while writing, while reading, and damage, which is no error but an end.

use std::io;
use std::path::PathBuf;

/// Why a log cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The file cannot be created or opened.
    #[error("cannot open log {}: {source}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file cannot be written on. The I/O that was logged went on; the file holds what came before.
    #[error("cannot write log {}: {source}; it ends after {records} records", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Records written before.
        records: u64,
        /// Why not.
        source: io::Error,
    },
    /// The system reports an error in reading the file (which is not damage: that is read up to).
    #[error("cannot read log at byte {offset}: {source}")]
    Read {
        /// Where in the file.
        offset: u64,
        /// Why not.
        source: io::Error,
    },
    /// The limit is too small for a log without any record.
    #[error("a log limit of {limit_bytes} bytes is too small; give {least_bytes} at least")]
    Limit {
        /// The limit asked for.
        limit_bytes: u64,
        /// The smallest possible.
        least_bytes: u64,
    },
    /// The level of compression does not exist.
    #[error("cannot compress a log at level {level}: {source}; levels are 1 to 19")]
    Level {
        /// The level asked for.
        level: i32,
        /// Why not.
        source: io::Error,
    },
    /// The thread that writes the log cannot be started.
    #[error("cannot start the thread that writes the log: {0}")]
    Thread(io::Error),
    /// The dump cannot be written to where it goes.
    #[error("cannot write the dump: {0}")]
    Output(#[source] io::Error),
    /// The file is not a log.
    #[error("not an iopath log: {what}; `iopath run --log FILE` makes one")]
    NotALog {
        /// What is wrong with its beginning.
        what: &'static str,
    },
    /// The file begins as a log does, and ends before it says what it is of.
    #[error("the log was cut off in its header, or has only just begun: there is nothing in it to read")]
    NoHeader,
    /// The file is a log of a format made later than this program.
    #[error(
        "the log has format {version}, this program reads {}; read it with a newer iopath",
        crate::format::VERSION
    )]
    Version {
        /// The file's version.
        version: u16,
    },
}

/// Where a log stops being readable, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, serde::Serialize)]
#[error("the log is damaged at byte {offset}, after record {record}: {what}")]
pub struct Damage {
    /// The first byte of the first block that could not be read.
    pub offset: u64,
    /// Records before it.
    pub record: u64,
    /// What is wrong there.
    pub what: &'static str,
}
