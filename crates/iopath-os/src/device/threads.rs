//! A file or block device through `preadv2` and `pwritev2` on threads, for where there is no `io_uring`.
//!
//! A batch is handed over with one lock and one wake-up; a thread that takes a job and leaves others wakes the next.
//! Where an I/O takes less time than handing it over would (`INLINE_BELOW`), the caller carries the batch out itself:
//! that is so for devices in memory and for data in the page cache. The calls themselves: `threads/job.rs`.

mod job;
mod worker;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, Limits};

use super::{RealDevice, WaitError};
use crate::memory::Segment;
use job::{Caller, Job};
use worker::Shared;

/// The most segments of one request (`UIO_MAXIOV`).
const SEGMENTS_MAX: u16 = 1024;

/// An I/O that takes less than this is carried out by the caller: about what waking a thread, switching to it and
/// being woken by it cost.
const INLINE_BELOW: Duration = Duration::from_micros(8);

/// How many requests and threads there may be.
#[derive(Debug, Clone)]
pub struct ThreadsConfig {
    /// Requests in flight at once, 1 at least.
    pub depth: u32,
    /// Threads, 1 at least. They are started when needed.
    pub threads_max: u32,
}

/// A file or block device through system calls that block, on threads.
///
/// Dropping it finishes what was handed over and joins the threads.
#[derive(Debug)]
pub struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    workers_max: usize,
    limits: Limits,
    /// Submitted, not yet handed over.
    staged: VecDeque<Job>,
    /// Over, not yet asked for.
    over: VecDeque<Job>,
    /// Jobs to use again.
    spare: Vec<Job>,
    caller: Caller,
}

impl Threads {
    /// A device with one thread, which shows that threads can be had.
    pub fn new(file: Arc<File>, limits: &Limits, config: &ThreadsConfig) -> io::Result<Self> {
        let depth = config.depth.max(1);
        let limits = Limits {
            depth_max: depth,
            segments_max: limits.segments_max.clamp(1, SEGMENTS_MAX),
            ..limits.clone()
        };
        let segments_max = usize::from(limits.segments_max);
        let shared = Arc::new(Shared::new(file, limits.logical_block_bytes, depth as usize));
        let mut device = Self {
            workers: Vec::new(),
            workers_max: config.threads_max.clamp(1, depth) as usize,
            limits,
            staged: VecDeque::with_capacity(depth as usize),
            over: VecDeque::with_capacity(depth as usize),
            spare: (0..depth).map(|_| Job::with_segments_max(segments_max)).collect(),
            caller: Caller::new(&shared.file, shared.block, segments_max),
            shared,
        };
        device.start_thread()?;
        Ok(device)
    }

    fn start_thread(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let segments_max = usize::from(self.limits.segments_max);
        let name = format!("iopath-io-{}", self.workers.len());
        let worker =
            std::thread::Builder::new().name(name).spawn(move || worker::run(&shared, segments_max))?;
        self.workers.push(worker);
        Ok(())
    }

    /// Hands the staged jobs over, or carries them out here if that is faster.
    fn hand_over(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        if self.shared.price.get() < INLINE_BELOW && self.staged.iter().all(Job::transfers) {
            let jobs = self.staged.len() as u32;
            let started = std::time::Instant::now();
            while let Some(mut job) = self.staged.pop_front() {
                self.caller.carry_out(&mut job);
                self.over.push_back(job);
            }
            self.shared.price.add(started.elapsed() / jobs);
            return;
        }
        let wanted = self.shared.hand_over(&mut self.staged);
        let more = wanted.min(self.workers_max.saturating_sub(self.workers.len()));
        for _ in 0..more {
            // Those there are carry on without the one that the system refuses.
            if self.start_thread().is_err() {
                break;
            }
        }
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
        job.set(io);
        self.staged.extend(self.spare.pop());
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {
        self.hand_over();
    }

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        if self.over.is_empty() && self.in_flight() > 0 {
            self.shared.collect(&mut self.over);
        }
        let job = self.over.pop_front()?;
        let completion = job.completion();
        self.spare.push(job);
        Some(completion)
    }
}

impl RealDevice for Threads {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.hand_over();
        let wanted = completions.min(self.in_flight()) as usize;
        self.shared.wait(wanted.saturating_sub(self.over.len()), timeout);
        Ok(())
    }

    fn in_flight(&self) -> u32 {
        self.limits.depth_max - self.spare.len() as u32
    }

    fn syscalls(&self) -> u64 {
        self.caller.syscalls() + self.shared.syscalls()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.close();
        for worker in self.workers.drain(..) {
            // A worker that panicked has nothing in its hands any more; its panic has been reported already.
            let _ = worker.join();
        }
    }
}
