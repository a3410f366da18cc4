//! How a measurement tells what it is doing while it does it. Draws nothing: the program does.

use std::fmt;
use std::path::PathBuf;

use crate::size::format_size;

/// What is going on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// A scratch file is being written.
    Scratch {
        /// Where.
        directory: PathBuf,
        /// How large it becomes, in bytes.
        bytes: u64,
    },
    /// The machine's load without us is being measured.
    Idle,
    /// The target's pages are being dropped from the page cache.
    DropCache,
    /// The workload runs, unmeasured.
    WarmUp,
    /// The workload runs, measured.
    Repeat {
        /// Which time, from 1.
        number: u32,
        /// Of how many.
        count: u32,
    },
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scratch { directory, bytes } => {
                write!(f, "writing a scratch file of {} in {}", format_size(*bytes), directory.display())
            }
            Self::Idle => f.write_str("measuring the idle machine"),
            Self::DropCache => f.write_str("dropping the page cache"),
            Self::WarmUp => f.write_str("warming up"),
            Self::Repeat { number, count } => write!(f, "measuring, {number} of {count}"),
        }
    }
}

/// Hears of the progress of a measurement, on the thread that called for it.
pub trait Progress {
    /// A stage begins.
    fn stage(&mut self, stage: &Stage);

    /// So much of the present stage is done, from 0 to 1.
    fn advance(&mut self, done: f64);
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&mut self, _stage: &Stage) {}

    fn advance(&mut self, _done: f64) {}
}
