//! A device for explored runs. Another explored thread executes its requests in memory, in any order. The
//! implementation of [`RealDevice`] is as simple as possible, so that it is not the cause of a hang.

use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use iopath_core::{BlockDevice, Busy, Completion, Extent, Instant, Io, IoError, Limits, Op, Tag};
use iopath_os::sync::thread::{self, JoinHandle};
use iopath_os::sync::{Condvar, Mutex, pick};
use iopath_os::{MemoryConfig, MemoryDisk, Notifier, RealDevice, Segment, WaitError, Watch, now};

/// A disk in memory that completes requests later.
#[derive(Debug)]
pub(crate) struct Delayed {
    shared: Arc<Shared>,
    limits: Limits,
    staged: Vec<Request>,
    in_flight: u32,
    disks: Vec<JoinHandle<()>>,
}

/// The requests of a disk that fail.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failures(Arc<AtomicU64>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    is_there: Condvar,
    over: Mutex<Over>,
    is_over: Condvar,
    failures: Failures,
}

#[derive(Debug, Default)]
struct Queue {
    requests: Vec<Request>,
    is_closing: bool,
}

#[derive(Debug, Default)]
struct Over {
    completions: VecDeque<Completion>,
    is_watch_ended: bool,
    notifier: Option<Notifier>,
}

#[derive(Debug)]
struct Request {
    tag: Tag,
    op: Op,
    extent: Extent,
    segments: Vec<Segment>,
}

impl Failures {
    /// The next `count` writes fail.
    pub(crate) fn fail_writes(&self, count: u64) {
        self.0.store(count, SeqCst);
    }

    fn fails(&self, op: Op) -> bool {
        op == Op::Write && self.0.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

/// A disk of `bytes` bytes. All bytes of a page of 4 KiB are its number.
pub(crate) fn disk_of(bytes: u64) -> MemoryDisk {
    // The disk has a write cache, so that flushes reach it.
    let disk =
        MemoryDisk::new(&MemoryConfig { cache_bytes: bytes, ..MemoryConfig::of_bytes(bytes) }).unwrap();
    let mut device = disk.open();
    for page in 0..bytes / 4096 {
        let mut memory = vec![page as u8; 4096];
        let extent = Extent::from_bytes(page * 4096, 4096).unwrap();
        device
            .submit(&Io::new(Tag::from_bits(0), Op::Write, extent, &[segment(&mut memory)]), now())
            .unwrap();
        device.poll_completion(now()).unwrap().result.unwrap();
    }
    disk
}

/// Few and small requests at once, so that some wait for others.
pub(crate) fn limits_of(disk: &MemoryDisk) -> Limits {
    let request_bytes_max = [4096, 1 << 20][pick(2) as usize];
    Limits { depth_max: 1 << pick(4), request_bytes_max, ..disk.limits() }
}

/// Memory for a device.
pub(crate) fn segment(memory: &mut [u8]) -> Segment {
    // SAFETY: the callers do not access the memory until the request has completed.
    unsafe { Segment::new(NonNull::from(&mut *memory).cast(), memory.len()) }
}

impl Delayed {
    /// A device on `disk`, with a thread.
    pub(crate) fn new(disk: &MemoryDisk, failures: &Failures) -> Self {
        Self::with_threads(disk, failures, limits_of(disk), (1, Duration::ZERO))
    }

    /// A device that executes two requests at a time, and each takes that time.
    pub(crate) fn slow(disk: &MemoryDisk, takes: Duration) -> Self {
        Self::with_threads(disk, &Failures::default(), disk.limits(), (2, takes))
    }

    fn with_threads(
        disk: &MemoryDisk,
        failures: &Failures,
        limits: Limits,
        (threads, takes): (u32, Duration),
    ) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            is_there: Condvar::new(),
            over: Mutex::default(),
            is_over: Condvar::new(),
            failures: failures.clone(),
        });
        let start = |_| {
            let (shared, disk) = (Arc::clone(&shared), disk.clone());
            let thread = thread::Builder::new().name("disk".to_owned());
            thread.spawn(move || shared.execute_requests(&disk, takes)).unwrap()
        };
        let disks = (0..threads).map(start).collect();
        Self { shared, limits, staged: Vec::new(), in_flight: 0, disks }
    }
}

impl Shared {
    /// The loop of the disk's thread.
    fn execute_requests(&self, disk: &MemoryDisk, takes: Duration) {
        let mut device = disk.open();
        loop {
            let mut queue = self.queue.lock().unwrap();
            while queue.requests.is_empty() {
                if queue.is_closing {
                    return;
                }
                queue = self.is_there.wait(queue).unwrap();
            }
            let any = pick(queue.requests.len() as u64) as usize;
            let Request { tag, op, extent, segments } = queue.requests.swap_remove(any);
            drop(queue);
            if !takes.is_zero() {
                thread::sleep(takes);
            }
            let result = if self.failures.fails(op) {
                Err(IoError::Media)
            } else {
                device.submit(&Io::new(tag, op, extent, &segments), now()).unwrap();
                device.poll_completion(now()).unwrap().result
            };
            let mut over = self.over.lock().unwrap();
            over.completions.push_back(Completion { tag, result });
            if let Some(notifier) = &over.notifier {
                notifier.notify();
            }
            drop(over);
            self.is_over.notify_all();
        }
    }

    fn wait_for(&self, count: usize, timeout: Option<Duration>) {
        let over = self.over.lock().unwrap();
        let too_few = |over: &mut Over| over.completions.len() < count && !over.is_watch_ended;
        let mut over = match timeout {
            Some(timeout) => self.is_over.wait_timeout_while(over, timeout, too_few).unwrap().0,
            None => self.is_over.wait_while(over, too_few).unwrap(),
        };
        over.is_watch_ended = false;
    }
}

impl Watch for Shared {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.wait_for(1, timeout);
        Ok(())
    }
}

impl BlockDevice for Delayed {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, Segment>, _now: Instant) -> Result<(), Busy> {
        if self.in_flight == self.limits.depth_max {
            return Err(Busy { tag: io.tag });
        }
        let segments = io.segments().collect();
        self.staged.push(Request { tag: io.tag, op: io.op, extent: io.extent, segments });
        self.in_flight += 1;
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {
        if !self.staged.is_empty() {
            self.shared.queue.lock().unwrap().requests.append(&mut self.staged);
            self.shared.is_there.notify_all();
        }
    }

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        if self.in_flight == 0 {
            return None;
        }
        let completion = self.shared.over.lock().unwrap().completions.pop_front()?;
        self.in_flight -= 1;
        Some(completion)
    }
}

// SAFETY: a request is reported after the disk in memory has executed it. Dropping the device joins the threads, which
// first execute all submitted requests.
unsafe impl RealDevice for Delayed {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.commit(now());
        self.shared.wait_for(completions.min(self.in_flight) as usize, timeout);
        Ok(())
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.shared) as Arc<dyn Watch>
    }

    fn end_watch(&mut self) {
        self.shared.over.lock().unwrap().is_watch_ended = true;
        self.shared.is_over.notify_all();
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn syscalls(&self) -> u64 {
        0
    }

    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()> {
        self.shared.over.lock().unwrap().notifier = Some(notifier.clone());
        Ok(())
    }
}

impl Drop for Delayed {
    fn drop(&mut self) {
        self.shared.queue.lock().unwrap().is_closing = true;
        self.shared.is_there.notify_all();
        for disk in self.disks.drain(..) {
            let _ = disk.join();
        }
    }
}
