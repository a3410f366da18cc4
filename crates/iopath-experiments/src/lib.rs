//! Re-enacts published effects of the I/O path: `iopath experiment`. Each effect has one row in [`EXPERIMENTS`] and one
//! file.
//!
//! An experiment contains the published figures, the parameters of the model with their sources, and a function that
//! runs the model in virtual time. The queue, elevators, page cache and log of the library produce the effect; no code
//! of the path depends on an experiment. `iopath-report` computes the verdict and formats the text.

mod bigbio;
mod bomb;
mod boundary;
mod closest;
mod copy;
mod cpu;
mod dip;
mod elevator_limits;
mod error;
mod extending;
mod extent;
mod fc_2002;
mod freelist;
mod link;
mod log;
mod loop_reads;
mod merge;
mod on_target;
mod published;
mod registry;
mod remote;
mod row;
mod skew;
mod suite;
mod unplug;

pub use error::ExperimentError;
pub use on_target::TargetRun;
pub use registry::EXPERIMENTS;
pub use row::Experiment;
pub use suite::{Selection, experiments};
