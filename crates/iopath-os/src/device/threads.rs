//! A file or block device through `preadv2` and `pwritev2` on threads, for systems without `io_uring`.
//!
//! A batch is queued with one lock and one wake-up. A thread that takes a job and leaves others wakes the next thread.
//! If an I/O takes less time than a wake-up (`Cost::is_quick`: devices in memory, data in the page cache), the calling
//! thread also executes jobs. It and the threads take jobs from one queue, several at a time. So a running thread finds
//! further jobs without a wake-up. A caller that waits for its only I/O executes it, quick or not. The system calls are
//! in `threads/job.rs`.

mod cost;
mod job;
mod worker;

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, Limits};

use super::{Notifier, RealDevice, WaitError, Watch};
use crate::memory::Segment;
use crate::sync::thread::{self, JoinHandle};
pub use job::flush_now;
use job::{Caller, Job};
pub(crate) use job::{OWN_SEGMENTS_MAX, transfer_now};
use worker::Shared;

/// The maximum number of segments of a request (`UIO_MAXIOV`).
const SEGMENTS_MAX: u16 = 1024;

/// The maximum number of requests in flight, the same as that of a ring. Each has memory of its own.
const DEPTH_MAX: u32 = 32_768;

/// The minimum number of quick jobs for which a thread is woken.
const QUICK_BATCH: usize = 16;

/// Quick jobs that a thread takes at a time: few, so that all threads end together; several, for few locks.
const QUICK_SHARE: usize = 8;

/// The limits of requests and threads.
#[derive(Debug, Clone)]
pub struct ThreadsConfig {
    /// Requests in flight, at least 1.
    pub depth: u32,
    /// Threads, at least 1. Started on demand.
    pub threads_max: u32,
}

impl ThreadsConfig {
    /// The limits of a device of this depth, on a target with `limits`.
    pub(crate) fn limits(depth: u32, limits: &Limits) -> Limits {
        Limits {
            depth_max: depth.clamp(1, DEPTH_MAX),
            segments_max: limits.segments_max.clamp(1, SEGMENTS_MAX),
            ..limits.clone()
        }
    }
}

/// A file or block device through blocking system calls on threads.
///
/// Drop executes all committed jobs and joins the threads.
pub struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    workers_max: usize,
    processors: usize,
    limits: Limits,
    /// Submitted, and not yet committed.
    staged: VecDeque<Job>,
    /// Jobs for the calling thread; empty between calls.
    own: VecDeque<Job>,
    /// Completed, and not yet polled. No watch or notifier announces these: `commit` moves them to the completed jobs
    /// of the threads.
    completed: VecDeque<Job>,
    /// Unused jobs.
    spare: Vec<Job>,
    caller: Caller,
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads")
            .field("workers", &self.workers.len())
            .field("workers_max", &self.workers_max)
            .field("staged", &self.staged.len())
            .field("completed", &self.completed.len())
            .finish_non_exhaustive()
    }
}

impl Threads {
    /// A device with one thread, which proves that the system grants threads.
    pub fn new(file: Arc<File>, limits: &Limits, config: &ThreadsConfig) -> io::Result<Self> {
        let limits = ThreadsConfig::limits(config.depth, limits);
        let depth = limits.depth_max;
        let segments_max = usize::from(limits.segments_max);
        let shared = Arc::new(Shared::new(file, limits.logical_block_bytes, depth as usize));
        let mut device = Self {
            workers: Vec::new(),
            processors: thread::available_parallelism().map_or(1, usize::from),
            workers_max: config.threads_max.clamp(1, depth) as usize,
            limits,
            staged: VecDeque::with_capacity(depth as usize),
            own: VecDeque::with_capacity(depth as usize),
            completed: VecDeque::with_capacity(depth as usize),
            spare: (0..depth).map(|_| Job::with_segments_max(segments_max)).collect(),
            caller: Caller::new(&shared.file, shared.block, segments_max),
            shared,
        };
        device.start_thread()?;
        Ok(device)
    }

    fn start_thread(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let depth = self.limits.depth_max as usize;
        let segments_max = usize::from(self.limits.segments_max);
        let name = format!("iopath-io-{}", self.workers.len());
        let builder = thread::Builder::new().name(name);
        self.workers.push(builder.spawn(move || worker::run(&shared, depth, segments_max))?);
        Ok(())
    }

    /// Queues the staged jobs for the threads. The calling thread keeps quick jobs if they are few and no thread has
    /// jobs.
    fn submit_staged(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        let missing = if self.shared.cost.is_quick() && self.staged.iter().all(Job::transfers) {
            let helpers = (self.processors - 1).min(self.workers_max);
            let is_few = self.staged.len() < QUICK_BATCH;
            if helpers == 0 || is_few && !self.are_threads_busy() {
                self.own.append(&mut self.staged);
                self.execute_own();
                return;
            }
            let helpers = (self.staged.len() / QUICK_BATCH).clamp(1, helpers);
            self.shared.submit(&mut self.staged, helpers, QUICK_SHARE);
            helpers.saturating_sub(self.workers.len())
        } else {
            self.shared.submit(&mut self.staged, usize::MAX, 1)
        };
        for _ in 0..missing.min(self.workers_max - self.workers.len()) {
            // If the system refuses a thread, the existing threads execute all jobs.
            if self.start_thread().is_err() {
                break;
            }
        }
    }

    /// Whether a thread will look for further jobs without a wake-up. A thread that has completed its last job still
    /// works until it waits. Its jobs do not count: a caller with one I/O in flight would submit each I/O to that
    /// thread, wait for it, and find it working again.
    fn are_threads_busy(&self) -> bool {
        let without_threads = self.staged.len() + self.completed.len() + self.shared.completed.len();
        self.in_flight() as usize > without_threads && self.shared.is_working()
    }

    fn execute_own(&mut self) {
        self.caller.execute_all(&mut self.own, &self.shared.cost);
        self.completed.append(&mut self.own);
    }
}

impl BlockDevice for Threads {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    /// # Panics
    /// If the request's memory is not as long as its extent: a bug of the caller.
    fn submit(&mut self, io: &Io<'_, Segment>, _now: Instant) -> Result<(), Busy> {
        let Some(job) = self.spare.last_mut() else { return Err(Busy { tag: io.tag }) };
        job.set(io, self.limits.capacity);
        self.staged.extend(self.spare.pop());
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {
        self.submit_staged();
        if !self.completed.is_empty() {
            // No watch or notifier announces the calling thread's own jobs.
            self.shared.completed.add(&mut self.completed);
        }
    }

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        if self.completed.is_empty() && self.in_flight() > 0 {
            self.shared.completed.collect(&mut self.completed);
        }
        let job = self.completed.pop_front()?;
        let completion = job.completion();
        self.spare.push(job);
        Some(completion)
    }
}

// SAFETY: a job is reported as completed after its last system call has returned, and drop joins the threads.
unsafe impl RealDevice for Threads {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        if self.staged.len() == 1 && self.in_flight() == 1 && completions > 0 && timeout.is_none() {
            // The wait ends with this I/O: a thread would add two wake-ups.
            self.own.append(&mut self.staged);
            self.execute_own();
            return Ok(());
        }
        self.submit_staged();
        let wanted = completions.min(self.in_flight()) as usize;
        // Executes quick jobs that no thread has started, instead of waiting for them. The threads execute the rest.
        while self.shared.cost.is_quick() && self.completed.len() + self.shared.completed.len() < wanted {
            if !self.shared.take_back(&mut self.own, QUICK_SHARE) {
                break;
            }
            self.execute_own();
        }
        if self.completed.len() < wanted {
            self.shared.completed.wait_for(wanted - self.completed.len(), timeout);
        }
        Ok(())
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.shared.completed) as Arc<dyn Watch>
    }

    fn end_watch(&mut self) {
        self.shared.completed.end_watch();
    }

    fn set_capacity(&mut self, sectors: u64) {
        self.limits.capacity = sectors;
    }

    fn in_flight(&self) -> u32 {
        self.limits.depth_max - self.spare.len() as u32
    }

    fn syscalls(&self) -> u64 {
        self.caller.syscalls() + self.shared.syscalls()
    }

    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()> {
        self.shared.completed.set_notifier(notifier);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.close();
        for worker in self.workers.drain(..) {
            // Fails only if the thread panicked, which the panic hook has reported.
            let _ = worker.join();
        }
    }
}
