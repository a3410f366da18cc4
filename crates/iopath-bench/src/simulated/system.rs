//! The interface of a top half in virtual time. A top half is the part above the queue: direct I/O (`direct.rs`) or the
//! page cache (`buffered.rs`). It runs the jobs of a repetition on one volume. `volumes.rs` combines the volumes of a
//! machine.

use std::ops::ControlFlow;

use iopath_core::{Instant, LogSink};
use iopath_model::VirtualClock;
use iopath_model::event_loop::{self, End, LoopError, Process};
use iopath_report::result::CacheUse;

use super::jobs::{JobSetup, SimError};
use crate::counters::DiskCounters;
use crate::job::tally::JobResult;
use crate::steady_detector::Count;

/// May stop a run: receives the bytes moved so far and the time.
pub(super) type Watch<'a> = &'a mut dyn FnMut(&dyn Fn() -> u64, Instant) -> ControlFlow<()>;

/// A top half with its queues and device.
pub(super) trait System: Process {
    /// Starts jobs. All earlier jobs must have ended.
    fn start(&mut self, jobs: Vec<JobSetup>);

    /// Runs the jobs to their ends: [`run_jobs`] for this type, so that no event needs a dynamic call.
    fn run(&mut self, clock: &mut VirtualClock, watch: Watch<'_>) -> Result<End, LoopError>;

    /// The measurements of jobs that have all ended.
    fn finish(&mut self) -> Result<Vec<JobResult>, SimError>;

    /// Whether a transfer or flush has failed. A failure ends the process.
    fn has_failed(&self) -> bool;

    /// Bytes that the jobs have moved so far.
    fn moved_bytes(&self) -> u64;

    /// Starts the log of each queue.
    fn start_logs(&mut self, sink: &mut dyn FnMut() -> Box<dyn LogSink>);

    /// Requests of the device so far.
    fn counters(&self) -> DiskCounters;

    /// The reads and writes of a job so far.
    fn counts(&self, job: u32) -> [Count; 2];

    /// Whether a job has ended.
    fn has_ended(&self, job: u32) -> bool;

    /// Ends a job: no further transfers. It ends at its next completion, or at the time for which it waits.
    fn stop(&mut self, job: u32);

    /// Counters of the page cache since [`System::start`]; none without a page cache.
    fn cache_use(&self) -> Option<CacheUse> {
        None
    }
}

/// Runs the jobs of a system of a known type to their ends.
pub(super) fn run_jobs<S: System>(
    system: &mut S,
    clock: &mut VirtualClock,
    watch: Watch<'_>,
) -> Result<End, LoopError> {
    event_loop::run(system, clock, &mut |system, now| watch(&|| system.moved_bytes(), now))
}
