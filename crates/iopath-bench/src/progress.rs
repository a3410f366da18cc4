//! The progress of a measurement, reported to its caller. Does not draw it: the program does.

use iopath_report::result::{Connections, Latencies};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use iopath_report::size::format_size;

/// The names of jobs that a stage shows.
const NAMES_MAX: usize = 8;

/// The stage of a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// A scratch file is being written.
    Scratch {
        /// The directory.
        directory: PathBuf,
        /// Its size in bytes.
        bytes: u64,
    },
    /// The load of other programs is being measured.
    Idle,
    /// The target's pages are being dropped from the page cache.
    DropCache,
    /// The workload runs, unmeasured.
    WarmUp,
    /// Written blocks are read back and checked, unmeasured.
    Verify,
    /// The workload runs, measured.
    Repeat {
        /// The repetition, from 1.
        number: u32,
        /// The number of repetitions.
        count: u32,
    },
    /// One of several workloads side by side runs, measured.
    Combination {
        /// The workload, in words.
        name: String,
        /// The round, from 1. In virtual time, the number of the workload.
        number: u32,
        /// The number of rounds, or of workloads.
        count: u32,
    },
    /// Jobs of a job file run at the same time.
    Jobs {
        /// Their names.
        names: Vec<String>,
        /// The number of the group, from 1.
        number: u32,
        /// The number of groups.
        count: usize,
    },
    /// The commands of a comparison run one after the other.
    Pair {
        /// The pair or round, from 1.
        number: u32,
        /// The maximum number of pairs.
        max: u32,
        /// The number of commands.
        commands: usize,
    },
    /// A cell of a sweep is measured.
    Cell {
        /// The cell in words.
        name: String,
        /// The number of the cell in the order of measurement, from 1.
        number: u32,
        /// The number of cells.
        count: u32,
    },
    /// A candidate of `iopath tune --try` is measured.
    Trial {
        /// The number of the measurement, from 1.
        number: u32,
        /// The settings in words.
        candidate: String,
    },
    /// The parameters of a kind of model are being fitted.
    Fit {
        /// The kind.
        model: &'static str,
    },
    /// One of several workloads that take turns.
    Turn {
        /// The workload, in words.
        workload: String,
        /// The round of turns, from 1.
        round: u32,
        /// The maximum number of rounds.
        rounds: u32,
        /// The remaining time for all workloads.
        left: Duration,
    },
    /// A trace is being read, to be checked before its replay.
    ReadTrace {
        /// The trace.
        trace: PathBuf,
    },
    /// A trace is being replayed.
    Replay {
        /// The trace.
        trace: PathBuf,
        /// Its I/Os.
        ios: u64,
    },
    /// An experiment in virtual time has ended, or one on real storage begins.
    Experiment {
        /// Its id.
        id: &'static str,
        /// Its number in this order, from 1.
        number: u32,
        /// The number of experiments.
        count: usize,
    },
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scratch { directory, bytes } => {
                write!(f, "writing a scratch file of {} in {}", format_size(*bytes), directory.display())
            }
            Self::Idle => f.write_str("measuring the idle load of the machine"),
            Self::DropCache => f.write_str("dropping the page cache"),
            Self::Verify => f.write_str("reading written blocks back"),
            Self::WarmUp => f.write_str("warming up"),
            Self::Repeat { number, count } => write!(f, "measuring, {number} of {count}"),
            Self::Combination { name, number, count } => write!(f, "measuring, {number} of {count}: {name}"),
            Self::Jobs { names, number, count } => {
                let shown = names.len().min(NAMES_MAX);
                write!(f, "group {number} of {count}: {}", names[..shown].join(", "))?;
                match names.len() - shown {
                    0 => Ok(()),
                    others => write!(f, " and {others} others"),
                }
            }
            Self::Pair { number, max, commands } => {
                let unit = if *commands > 2 { "round" } else { "pair" };
                write!(f, "executing {unit} {number} of at most {max}")
            }
            Self::Cell { name, number, count } => write!(f, "cell {number} of {count}: {name}"),
            Self::Trial { number, candidate } => write!(f, "measurement {number}: {candidate}"),
            Self::Fit { model } => write!(f, "fitting a model: {model}"),
            Self::Turn { workload, round, rounds, left } => {
                write!(f, "round {round} of {rounds}, {} s left: {workload}", left.as_secs())
            }
            Self::ReadTrace { trace } => write!(f, "reading {}", trace.display()),
            Self::Replay { trace, ios } => write!(f, "replaying {} I/Os of {}", ios, trace.display()),
            Self::Experiment { id, number, count } => write!(f, "experiment {id}, {number} of {count}"),
        }
    }
}

/// Receives the progress of a measurement, on the thread that started it.
pub trait Progress {
    /// A stage begins.
    fn stage(&mut self, stage: &Stage);

    /// The completed share of the current stage, from 0 to 1.
    fn advance(&mut self, done: f64);

    /// The counters of running jobs, about ten times a second.
    fn sample(&mut self, _sample: &Sample) {}

    /// A repetition is complete.
    fn completed(&mut self, _completed: &Completed) {}
}

/// The figures of a complete repetition.
#[derive(Debug)]
pub struct Completed<'a> {
    /// Each target.
    pub targets: Vec<CompletedTarget>,
    /// The latencies of all targets.
    pub latency_ns: &'a Latencies,
    /// The connections to exports that were lost and established again; none without exports.
    pub connections: Option<Connections>,
}

/// The transfers of a target in a repetition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedTarget {
    /// As in [`JobSample::target`].
    pub target: String,
    /// Bytes transferred.
    pub bytes: u64,
    /// Transfers.
    pub ios: u64,
}

/// A reading of the counters of running jobs. The jobs do not wait for it, so counters of different jobs, and those of
/// one job, may be some transfers apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Since the start of the jobs.
    pub elapsed: Duration,
    /// The completed share of the stage, from 0 to 1.
    pub done: f64,
    /// Each job.
    pub jobs: Vec<JobSample>,
}

/// The counters of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSample {
    /// Its file or device; empty without a target.
    pub target: String,
    /// Bytes transferred so far.
    pub bytes: u64,
    /// Transfers so far, from the bytes and the block size.
    pub ios: u64,
    /// The latency of its last completed transfer, in nanoseconds; 0 before the first.
    pub latency_ns: u64,
}

/// Ignores the progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&mut self, _stage: &Stage) {}

    fn advance(&mut self, _done: f64) {}
}
