//! The interface of a top half that runs the jobs of a repetition in virtual time. The top halves: `direct.rs` and
//! `buffered.rs`.

use iopath_core::{IoError, LogSink};
use iopath_model::event_loop::Process;

use crate::counters::DiskCounters;
use crate::job::Job;
use crate::job::tally::JobResult;
use crate::path::Transfer;
use crate::result::CacheUse;

/// A top half with its queues and device.
pub(super) trait System: Process {
    /// Starts jobs. Earlier ones must have ended.
    fn start(&mut self, jobs: Vec<Job>);

    /// The measurements of jobs that have all ended.
    fn finish(&mut self) -> Result<Vec<JobResult>, SimError>;

    /// Bytes that the jobs have moved so far.
    fn moved_bytes(&self) -> u64;

    /// Starts the log of each queue.
    fn start_logs(&mut self, sink: &mut dyn FnMut() -> Box<dyn LogSink>);

    /// Requests of the device so far.
    fn counters(&self) -> DiskCounters;

    /// Counters of the page cache since [`System::start`]; none without a page cache.
    fn cache_use(&self) -> Option<CacheUse> {
        None
    }
}

/// The reason why jobs ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SimError {
    /// A transfer failed.
    Transfer(Transfer, IoError),
    /// A flush failed.
    Flush(IoError),
    /// The queue refused a bio: a bug of the lab.
    Refused(String),
    /// All frames of the page cache are permanently in use.
    NoFrame(String),
}
