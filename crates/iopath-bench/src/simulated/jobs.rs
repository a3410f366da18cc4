//! The jobs of one repetition on one volume: their progress, their ends and the first failure. Submits no I/O. The top
//! halves (`direct.rs`, `buffered.rs`) submit it, and keep a state of their own for each job.

use std::ops::{Index, IndexMut, Range};

use iopath_core::{Instant, IoError};

use crate::job::Job;
use crate::job::tally::JobResult;
use crate::path::Transfer;
use crate::steady_detector::Count;

/// A job to start, and the settings of its workload that a top half needs.
#[derive(Debug)]
pub(super) struct JobSetup {
    pub(super) job: Job,
    /// The maximum number of transfers in flight.
    pub(super) depth: u32,
    /// The size of each transfer.
    pub(super) block_bytes: u32,
    /// Whether a final flush counts as part of the job.
    pub(super) flushes: bool,
}

/// Jobs with the state `S` of a top half.
#[derive(Debug)]
pub(super) struct Jobs<S> {
    runners: Vec<Runner<S>>,
    unfinished: usize,
    failure: Option<SimError>,
}

/// A job and its progress.
#[derive(Debug)]
pub(super) struct Runner<S> {
    pub(super) job: Job,
    pub(super) flushes: bool,
    pub(super) state: S,
    ended: Option<Instant>,
}

impl<S> Jobs<S> {
    /// No jobs.
    pub(super) fn none() -> Self {
        Self { runners: Vec::new(), unfinished: 0, failure: None }
    }

    /// Replaces the jobs, which must have ended. Returns the numbers of the new jobs.
    pub(super) fn start(
        &mut self,
        setups: Vec<JobSetup>,
        mut state: impl FnMut(&JobSetup) -> S,
    ) -> Range<u32> {
        self.unfinished = setups.len();
        let runner = |setup: JobSetup| {
            let state = state(&setup);
            Runner { job: setup.job, flushes: setup.flushes, state, ended: None }
        };
        self.runners = setups.into_iter().map(runner).collect();
        0..self.runners.len() as u32
    }

    /// Records the end of a job.
    pub(super) fn end(&mut self, number: u32, now: Instant) {
        self[number].ended = Some(now);
        self[number].job.leave_flow();
        self.unfinished -= 1;
    }

    /// Records a failure. The first failure ends the run.
    #[cold]
    pub(super) fn fail(&mut self, failure: SimError) {
        self.failure.get_or_insert(failure);
    }

    pub(super) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether all jobs have ended, or one has failed.
    pub(super) const fn is_done(&self) -> bool {
        self.unfinished == 0 || self.failure.is_some()
    }

    /// The reads and writes of a job so far.
    pub(super) fn counts(&self, number: u32) -> [Count; 2] {
        self[number].job.tally().counts()
    }

    /// Whether a job has ended.
    pub(super) fn has_ended(&self, number: u32) -> bool {
        self[number].ended.is_some()
    }

    /// Ends a job: no further transfers. It ends at its next completion, or at the time for which it waits.
    pub(super) fn stop(&mut self, number: u32) {
        self[number].job.stop();
    }

    /// The measurements of jobs that have all ended, in the order of the jobs.
    pub(super) fn finish(&mut self) -> Result<Vec<JobResult>, SimError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let ended = |Runner { job, ended, .. }| Some(job.finish(ended?.as_nanos()));
        Ok(self.runners.drain(..).filter_map(ended).collect())
    }

    /// Bytes that the jobs have moved so far.
    pub(super) fn moved_bytes(&self) -> u64 {
        self.runners.iter().map(|runner| runner.job.moved_bytes()).sum()
    }
}

impl<S> Index<u32> for Jobs<S> {
    type Output = Runner<S>;

    #[inline]
    fn index(&self, number: u32) -> &Runner<S> {
        &self.runners[number as usize]
    }
}

impl<S> IndexMut<u32> for Jobs<S> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut Runner<S> {
        &mut self.runners[number as usize]
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
