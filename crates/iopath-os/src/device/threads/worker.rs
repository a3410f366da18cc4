//! The threads and what they share with the device: jobs to do, jobs that have completed, the price of an I/O.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::job::{Caller, Job};
use crate::device::{Bell, WaitError, Watch};
use crate::sync::{Condvar, FIRST_PRICE_NANOS, Mutex, MutexGuard};

/// What the threads and the device share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) file: Arc<File>,
    /// The logical block, in bytes.
    pub(super) block: u64,
    /// What a read or write takes of late.
    pub(super) price: Price,
    queue: Mutex<Queue>,
    jobs_there: Condvar,
    over: Mutex<Over>,
    enough_over: Condvar,
    syscalls: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    idle: usize,
    /// How many jobs a thread takes at a time.
    share: usize,
    closing: bool,
}

#[derive(Debug)]
struct Over {
    jobs: VecDeque<Job>,
    /// The device is to be woken when there are as many; 0 while it does not wait.
    wanted: usize,
    /// The wait is to end with fewer.
    ends_watch: bool,
    /// Rung with each job that has completed.
    bell: Option<Bell>,
}

impl Shared {
    pub(super) fn new(file: Arc<File>, logical_block_bytes: u32, depth: usize) -> Self {
        Self {
            file,
            block: u64::from(logical_block_bytes),
            price: Price::unknown(),
            queue: Mutex::new(Queue {
                jobs: VecDeque::with_capacity(depth),
                idle: 0,
                share: 1,
                closing: false,
            }),
            jobs_there: Condvar::new(),
            over: Mutex::new(Over {
                jobs: VecDeque::with_capacity(depth),
                wanted: 0,
                ends_watch: false,
                bell: None,
            }),
            enough_over: Condvar::new(),
            syscalls: AtomicU64::new(0),
        }
    }

    /// Hands `staged` over to `helpers` threads, of which it wakes one; that wakes the next. Returns how many more
    /// threads the queue is worth than are idle.
    pub(super) fn hand_over(&self, staged: &mut VecDeque<Job>, helpers: usize) -> usize {
        let mut waiting = lock(&self.queue);
        waiting.share = staged.len().div_ceil(helpers.max(1)).max(1);
        waiting.jobs.append(staged);
        let (idle, shares) = (waiting.idle, waiting.jobs.len().div_ceil(waiting.share));
        drop(waiting);
        if idle > 0 {
            self.jobs_there.notify_one();
        }
        shares.saturating_sub(idle)
    }

    /// Takes up to `count` jobs that no thread has begun; says whether there were any.
    pub(super) fn take_back(&self, into: &mut VecDeque<Job>, count: usize) -> bool {
        let mut queue = lock(&self.queue);
        let count = count.min(queue.jobs.len());
        into.extend(queue.jobs.drain(..count));
        count > 0
    }

    /// Takes what has completed; `into` is empty.
    pub(super) fn collect(&self, into: &mut VecDeque<Job>) {
        std::mem::swap(&mut lock(&self.over).jobs, into);
    }

    /// Waits until `wanted` jobs have completed, but no longer than `timeout` or [`Shared::end_watch`].
    pub(super) fn wait_for(&self, wanted: usize, timeout: Option<Duration>) {
        let mut over = lock(&self.over);
        over.wanted = wanted;
        let too_few = |over: &mut Over| over.jobs.len() < wanted && !over.ends_watch;
        let mut over = match timeout {
            Some(timeout) => {
                let result = self.enough_over.wait_timeout_while(over, timeout, too_few);
                result.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.enough_over.wait_while(over, too_few).unwrap_or_else(PoisonError::into_inner),
        };
        over.wanted = 0;
        over.ends_watch = false;
    }

    /// Ends the wait that is on, or the next.
    pub(super) fn end_watch(&self) {
        lock(&self.over).ends_watch = true;
        self.enough_over.notify_one();
    }

    /// Rings `bell` from now on when jobs have completed.
    pub(super) fn ring_when_over(&self, bell: &Bell) {
        lock(&self.over).bell = Some(bell.clone());
    }

    /// System calls that the threads have made for jobs that have completed.
    pub(super) fn syscalls(&self) -> u64 {
        self.syscalls.load(Relaxed)
    }

    /// Lets the threads finish what is queued, and end.
    pub(super) fn close(&self) {
        lock(&self.queue).closing = true;
        self.jobs_there.notify_all();
    }

    /// A thread's next jobs, waiting for them; `false` at the end.
    fn take(&self, into: &mut VecDeque<Job>) -> bool {
        let mut queue = lock(&self.queue);
        loop {
            let count = queue.share.min(queue.jobs.len());
            if count > 0 {
                into.extend(queue.jobs.drain(..count));
                if !queue.jobs.is_empty() && queue.idle > 0 {
                    self.jobs_there.notify_one();
                }
                return true;
            }
            if queue.closing {
                return false;
            }
            queue.idle += 1;
            queue = self.jobs_there.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }

    /// Puts jobs that have completed where the device collects them, and ends a wait for them.
    pub(super) fn release(&self, jobs: &mut VecDeque<Job>) {
        let mut over = lock(&self.over);
        over.jobs.append(jobs);
        if let Some(bell) = &over.bell {
            // Each time: whether a ring for earlier jobs has been heard is not known here, and a ring while nobody waits
            // is no system call.
            bell.ring();
        }
        let enough = over.wanted > 0 && over.jobs.len() >= over.wanted;
        drop(over);
        if enough {
            self.enough_over.notify_one();
        }
    }
}

impl Watch for Shared {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.wait_for(1, timeout);
        Ok(())
    }
}

/// A thread's life.
pub(super) fn run(shared: &Shared, depth: usize, segments_max: usize) {
    let mut caller = Caller::new(&shared.file, shared.block, segments_max);
    let mut jobs = VecDeque::with_capacity(depth);
    while shared.take(&mut jobs) {
        let calls_before = caller.syscalls();
        caller.carry_out_all(&mut jobs, &shared.price);
        shared.syscalls.fetch_add(caller.syscalls() - calls_before, Relaxed);
        shared.release(&mut jobs);
    }
}

/// No state is ever left half changed, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a read or write takes: a mean in which each new one weighs an eighth.
#[derive(Debug)]
pub(super) struct Price {
    nanos: AtomicU64,
}

impl Price {
    /// Long, until something is known.
    const fn unknown() -> Self {
        Self { nanos: AtomicU64::new(FIRST_PRICE_NANOS) }
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Relaxed))
    }

    /// Two threads may overwrite one another's: it is an estimate.
    pub(super) fn add(&self, taken: Duration) {
        let before = self.nanos.load(Relaxed);
        let taken = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.store(before - before / 8 + taken / 8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_follows_what_is_measured() {
        let price = Price::unknown();
        (0..60).for_each(|_| price.add(Duration::from_micros(2)));
        assert!(price.get() < Duration::from_micros(4), "{:?}", price.get());
        price.add(Duration::from_millis(1));
        assert!(price.get() > Duration::from_micros(100), "one slow I/O: {:?}", price.get());
    }
}
