//! The threads, and the state they share with the device: queued jobs, the cost of an I/O. Completed jobs are in
//! `completed.rs`.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use super::cost::Cost;
use super::job::{Caller, Job};
use crate::device::completed::Completed;
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
    pub(super) completed: Arc<Completed<Job>>,
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
            completed: Arc::new(Completed::new(depth)),
            syscalls: AtomicU64::new(0),
        }
    }

    /// Queues `staged` for up to `helpers` threads, each of which takes `share` jobs at a time. If fewer threads work,
    /// wakes one; each woken thread wakes the next. Returns the number of shares that no idle thread can take.
    pub(super) fn submit(&self, staged: &mut VecDeque<Job>, helpers: usize, share: usize) -> usize {
        let mut queue = lock(&self.queue);
        (queue.helpers, queue.share) = (helpers, share);
        queue.jobs.append(staged);
        let needs_thread = queue.needs_thread();
        let idle = queue.idle;
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

    /// Takes up to `count` jobs that no thread has started. Returns whether there were any.
    pub(super) fn take_back(&self, into: &mut VecDeque<Job>, count: usize) -> bool {
        let mut queue = lock(&self.queue);
        let count = count.min(queue.jobs.len());
        into.extend(queue.jobs.drain(..count));
        count > 0
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
        shared.completed.add(&mut jobs);
    }
}

/// Ignores poisoning: no panic leaves the state half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::ptr::NonNull;
    use std::time::Duration;

    use iopath_core::{BlockDevice, Extent, Io, Limits, Op, SECTOR_BYTES, Tag};

    use super::*;
    use crate::clock::now;
    use crate::device::{RealDevice, Threads, ThreadsConfig};
    use crate::memory::Segment;

    /// A device on a file of one sector, whose bytes are sevens.
    fn device() -> Threads {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; SECTOR_BYTES as usize]).unwrap();
        let config = ThreadsConfig { depth: 2, threads_max: 1 };
        Threads::new(Arc::new(file), &Limits::with_capacity(1), &config).unwrap()
    }

    /// Reads the sector once for each of `tags`; `wait` commits the read.
    fn read(device: &mut Threads, tags: &[u32], wait: impl Fn(&mut Threads)) {
        let mut sector = [0_u8; SECTOR_BYTES as usize];
        // SAFETY: the sector outlives the I/Os, which complete below, and is not accessed before.
        let memory = [unsafe { Segment::new(NonNull::from(&mut sector).cast(), sector.len()) }];
        let extent = Extent::from_bytes(0, SECTOR_BYTES).unwrap();
        for &tag in tags {
            device.submit(&Io::new(Tag::from_bits(tag), Op::Read, extent, &memory), now()).unwrap();
            wait(device);
            let done = device.poll_completion(now());
            assert_eq!(done.expect("not left to a thread").result, Ok(()));
        }
        assert_eq!(sector, [7; SECTOR_BYTES as usize]);
        assert_eq!(device.caller.syscalls(), tags.len() as u64);
    }

    #[test]
    fn a_caller_that_waits_for_its_only_io_executes_it() {
        read(&mut device(), &[0, 1], |device| device.commit_and_wait(1, None).unwrap());
    }

    #[test]
    fn a_caller_with_one_quick_io_executes_it_beside_a_thread_that_has_just_completed_the_last_one() {
        let mut device = device();
        (0..100).for_each(|_| device.shared.cost.add(Duration::ZERO));
        // A thread that works, and has no jobs.
        lock(&device.shared.queue).working += 1;
        read(&mut device, &[0, 1], |device| device.commit(now()));
        lock(&device.shared.queue).working -= 1;
    }
}
