//! Errors of job files. Each message begins with the file and the line. Does not cover workloads that a path refuses:
//! those are in `iopath-bench/src/refusal.rs`.

use std::fmt;
use std::io;
use std::sync::Arc;

use thiserror::Error;

use iopath_bench::error::BenchError;
use iopath_bench::options::Decides;
use iopath_bench::with_bench_error;

/// A line of a job file or of a file that it includes, or an argument of a command line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct At {
    /// The file as named on the command line or in `include`; empty for an argument.
    pub file: Arc<str>,
    /// The line or the argument, from 1.
    pub line: u32,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.file {
            "" => write!(f, "argument {}", self.line),
            file => write!(f, "{file}:{}", self.line),
        }
    }
}

/// The reason why a key has no equivalent here.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unsupported {
    /// The key is not in the table of keys.
    #[error("key `{key}` is unknown; correct it, or ignore it with --lenient")]
    Unknown {
        /// The key.
        key: String,
    },
    /// iopath has no such function.
    #[error("key `{key}` is not supported: {reason}; remove it{}", or_ignore(*decides))]
    Key {
        /// The key.
        key: String,
        /// The reason.
        reason: &'static str,
        /// The quantity that it decides, if it cannot be ignored.
        decides: Option<Decides>,
    },
    /// iopath supports other values of the key.
    #[error("`{key}={value}` is not supported: {reason}; change it{}", or_ignore(*decides))]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// The reason.
        reason: &'static str,
        /// The quantity that the key decides, if it cannot be ignored.
        decides: Option<Decides>,
    },
}

/// The remedy for a key that can be ignored, or the reason why it cannot.
fn or_ignore(decides: Option<Decides>) -> String {
    match decides {
        None => ", or ignore it with --lenient".to_owned(),
        Some(what) => format!(" (--lenient does not ignore it, because it decides {})", what.name()),
    }
}

/// A job file that cannot be run.
#[derive(Debug, Error)]
pub enum JobFileError {
    /// A line is no section, no key and no comment.
    #[error("{at}: {problem}")]
    Syntax {
        /// The line.
        at: At,
        /// The problem and the remedy.
        problem: String,
    },
    /// A file cannot be read.
    #[error("{at}: cannot read {file}: {source}")]
    Include {
        /// The line of the `include`.
        at: At,
        /// The file as written there.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The job file itself cannot be read.
    #[error("cannot read job file {file}: {source}{}", if is_too_large(source) { no_target(file) } else { String::new() })]
    Read {
        /// The file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The file has binary data.
    #[error("{file} is no job file, because it has binary data{}", no_target(file))]
    Binary {
        /// The file.
        file: String,
    },
    /// The value of a key is not valid.
    #[error("{at}: `{key}={value}` is not valid; use {expected}")]
    Value {
        /// The line.
        at: At,
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// The values it accepts.
        expected: String,
    },
    /// A key or value without an equivalent here.
    #[error("{at}: {what}")]
    Unsupported {
        /// The line.
        at: At,
        /// The key and the reason.
        what: Unsupported,
    },
    /// Keys of a job that are not valid together.
    #[error("{at}: job `{job}`: {problem}")]
    Job {
        /// The line of the job's section.
        at: At,
        /// The job.
        job: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// The file has no job.
    #[error("{file} contains no job; add a section such as [job1]")]
    NoJob {
        /// The file.
        file: String,
    },
    /// No job has the name of `--section`.
    #[error("{file} has no job `{section}`; its jobs are: {}", known.join(", "))]
    NoSection {
        /// The file.
        file: String,
        /// The name.
        section: String,
        /// The jobs of the file.
        known: Vec<String>,
    },
    /// A measurement failed after some results.
    #[error("{0}")]
    Failed(String),
    /// A target cannot be prepared, or a measurement failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

/// The remedy for a file that was to be measured.
fn no_target(file: &str) -> String {
    format!("; to measure a file, use --target {file}")
}

fn is_too_large(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::FileTooLarge
}

with_bench_error!(JobFileError);

impl JobFileError {
    /// Whether the file is invalid on every machine and target.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Include { .. } | Self::Failed(_) => false,
            Self::Bench(error) => error.is_usage(),
            _ => true,
        }
    }
}
