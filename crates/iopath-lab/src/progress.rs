//! How a measurement tells what it is doing while it does it. Draws nothing: the program does.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

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
    /// One of many different workloads that take turns runs, measured.
    Turn {
        /// What is measured, in words.
        what: String,
        /// Which round of turns, from 1.
        round: u32,
        /// Of how many at most.
        rounds: u32,
        /// How long all of them will still take.
        left: Duration,
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
            Self::Turn { what, round, rounds, left } => {
                write!(f, "round {round} of {rounds}, {} s left: {what}", left.as_secs())
            }
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
