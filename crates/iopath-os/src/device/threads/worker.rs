//! The threads, and the state they share with the device: queued jobs, completed jobs, the cost of an I/O.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::cost::Cost;
use super::job::{Caller, Job};
use crate::device::{Notifier, WaitError, Watch};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// The state that the threads and the device share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) file: Arc<File>,
    /// The logical block, in bytes.
    pub(super) block: u64,
    /// The recent cost of a read or write.
    pub(super) cost: Cost,
    queue: Mutex<Queue>,
    has_jobs: Condvar,
    completed: Mutex<Completed>,
    enough_completed: Condvar,
    syscalls: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    idle: usize,
    /// Threads that execute jobs or are about to take some.
    working: usize,
    /// The maximum number of threads to wake.
    helpers: usize,
    /// Jobs that a thread takes at a time.
    share: usize,
    is_closing: bool,
}

#[derive(Debug)]
struct Completed {
    jobs: VecDeque<Job>,
    /// Wake the waiting device at this many jobs; 0 while it does not wait.
    wanted: usize,
    /// End the wait with fewer.
    ends_watch: bool,
    /// Notified of each completed job.
    notifier: Option<Notifier>,
}

impl Queue {
    fn needs_thread(&self) -> bool {
        self.idle > 0 && self.working < self.helpers && !self.jobs.is_empty()
    }
}

impl Shared {
    pub(super) fn new(file: Arc<File>, logical_block_bytes: u32, depth: usize) -> Self {
        Self {
            file,
            block: u64::from(logical_block_bytes),
            cost: Cost::unknown(),
            queue: Mutex::new(Queue {
                jobs: VecDeque::with_capacity(depth),
                idle: 0,
                working: 0,
                helpers: usize::MAX,
                share: 1,
                is_closing: false,
            }),
            has_jobs: Condvar::new(),
            completed: Mutex::new(Completed {
                jobs: VecDeque::with_capacity(depth),
                wanted: 0,
                ends_watch: false,
                notifier: None,
            }),
            enough_completed: Condvar::new(),
            syscalls: AtomicU64::new(0),
        }
    }

    /// Queues `staged` for up to `helpers` threads, each of which takes `share` jobs at a time. If fewer threads work,
    /// wakes one; each woken thread wakes the next. Returns the number of shares that no idle thread can take.
    pub(super) fn submit(&self, staged: &mut VecDeque<Job>, helpers: usize, share: usize) -> usize {
        let mut queue = lock(&self.queue);
        (queue.helpers, queue.share) = (helpers, share);
        queue.jobs.append(staged);
        let (needs_thread, idle) = (queue.needs_thread(), queue.idle);
        let shares = queue.jobs.len().div_ceil(share);
        drop(queue);
        if needs_thread {
            self.has_jobs.notify_one();
        }
        shares.saturating_sub(idle)
    }

    /// Whether a thread will check for further jobs without a wake-up.
    pub(super) fn is_working(&self) -> bool {
        lock(&self.queue).working > 0
    }

    /// Completed jobs that were not collected.
    pub(super) fn completed_len(&self) -> usize {
        lock(&self.completed).jobs.len()
    }

    /// Takes up to `count` jobs that no thread has started. Returns whether there were any.
    pub(super) fn take_back(&self, into: &mut VecDeque<Job>, count: usize) -> bool {
        let mut queue = lock(&self.queue);
        let count = count.min(queue.jobs.len());
        into.extend(queue.jobs.drain(..count));
        count > 0
    }

    /// Takes the completed jobs; `into` is empty.
    pub(super) fn collect(&self, into: &mut VecDeque<Job>) {
        std::mem::swap(&mut lock(&self.completed).jobs, into);
    }

    /// Waits until `wanted` jobs have completed, `timeout` has passed or [`Shared::end_watch`] is called.
    pub(super) fn wait_for(&self, wanted: usize, timeout: Option<Duration>) {
        let mut completed = lock(&self.completed);
        completed.wanted = wanted;
        let too_few = |completed: &mut Completed| completed.jobs.len() < wanted && !completed.ends_watch;
        let mut completed = match timeout {
            Some(timeout) => {
                let result = self.enough_completed.wait_timeout_while(completed, timeout, too_few);
                result.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                self.enough_completed.wait_while(completed, too_few).unwrap_or_else(PoisonError::into_inner)
            }
        };
        completed.wanted = 0;
        completed.ends_watch = false;
    }

    /// Ends the wait in progress, or the next one.
    pub(super) fn end_watch(&self) {
        lock(&self.completed).ends_watch = true;
        self.enough_completed.notify_one();
    }

    /// Sets the notifier for completed jobs.
    pub(super) fn set_notifier(&self, notifier: &Notifier) {
        lock(&self.completed).notifier = Some(notifier.clone());
    }

    /// The number of system calls that the threads made for completed jobs.
    pub(super) fn syscalls(&self) -> u64 {
        self.syscalls.load(Relaxed)
    }

    /// Makes the threads end when the queue is empty.
    pub(super) fn close(&self) {
        lock(&self.queue).is_closing = true;
        self.has_jobs.notify_all();
    }

    /// Waits for a thread's next jobs; `false` when the device closes.
    fn take(&self, into: &mut VecDeque<Job>) -> bool {
        let mut queue = lock(&self.queue);
        loop {
            if !self.cost.is_quick() {
                // The device became slow after the jobs were queued: now each job needs a thread of its own.
                (queue.helpers, queue.share) = (usize::MAX, 1);
            }
            let count = queue.share.min(queue.jobs.len());
            if count > 0 {
                into.extend(queue.jobs.drain(..count));
                if queue.needs_thread() {
                    self.has_jobs.notify_one();
                }
                return true;
            }
            if queue.is_closing {
                return false;
            }
            (queue.idle, queue.working) = (queue.idle + 1, queue.working - 1);
            queue = self.has_jobs.wait(queue).unwrap_or_else(PoisonError::into_inner);
            (queue.idle, queue.working) = (queue.idle - 1, queue.working + 1);
        }
    }

    /// Adds completed jobs for the device to collect, and ends a wait for them.
    pub(super) fn complete(&self, jobs: &mut VecDeque<Job>) {
        let mut completed = lock(&self.completed);
        completed.jobs.append(jobs);
        if let Some(notifier) = &completed.notifier {
            // Notifies each time: an earlier notification may have ended a wait already, and a notification without a
            // waiter makes no system call.
            notifier.notify();
        }
        let enough = completed.wanted > 0 && completed.jobs.len() >= completed.wanted;
        drop(completed);
        if enough {
            self.enough_completed.notify_one();
        }
    }
}

impl Watch for Shared {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.wait_for(1, timeout);
        Ok(())
    }
}

/// The main function of a thread.
pub(super) fn run(shared: &Shared, depth: usize, segments_max: usize) {
    let mut caller = Caller::new(&shared.file, shared.block, segments_max);
    let mut jobs = VecDeque::with_capacity(depth);
    lock(&shared.queue).working += 1;
    while shared.take(&mut jobs) {
        let calls_before = caller.syscalls();
        caller.execute_all(&mut jobs, &shared.cost);
        shared.syscalls.fetch_add(caller.syscalls() - calls_before, Relaxed);
        shared.complete(&mut jobs);
    }
}

/// Ignores poisoning: no panic leaves the state half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
