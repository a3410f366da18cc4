//! Rings that closed devices have left, for later devices of the same size: to set up a ring takes several system calls
//! and mappings. A ring in the pool has no file, no buffers, and nothing in flight. A process that forks off keeps none
//! of them: their memory is not mapped there, and the kernel's ring is that of the parent.

use std::fmt;
use std::mem;
use std::os::fd::AsRawFd;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use io_uring::IoUring;
use iopath_core::{Duration, Instant};

use crate::clock;

/// The maximum number of rings in a pool. Further ones are closed. If more devices than this have rings, an unused
/// device leaves its ring ([`RingPool::is_crowded`]).
const RINGS_MAX: usize = 16;

/// No file, in the table of a ring's files.
const NO_FILE: i32 = -1;

/// Rings without an owner. A clone is a handle of the same pool. Only rings that may move between threads come from a
/// pool, so all have the same flags.
#[derive(Clone, Default)]
pub struct RingPool {
    left: Arc<Mutex<Vec<Left>>>,
    /// The number of rings that devices use.
    used: Arc<AtomicUsize>,
    on_ring: Option<OnRing>,
}

/// Is called when a ring has come.
type OnRing = Arc<dyn Fn() + Send + Sync>;

/// A device with a ring that goes to the pool.
pub(super) struct User {
    pub(super) pool: RingPool,
}

impl User {
    pub(super) fn new(pool: RingPool) -> Self {
        pool.used.fetch_add(1, Relaxed);
        Self { pool }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.pool.used.fetch_sub(1, Relaxed);
    }
}

/// A ring in the pool.
struct Left {
    /// Taken once.
    ring: Option<IoUring>,
    /// The process that made it.
    process: u32,
    /// The entries that were requested for it.
    entries: u32,
    since: Instant,
}

impl fmt::Debug for RingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingPool").field("rings", &self.len()).finish()
    }
}

impl Left {
    fn new(ring: IoUring, entries: u32) -> Self {
        Self { ring: Some(ring), process: process::id(), entries, since: clock::now() }
    }

    fn is_ours(&self) -> bool {
        self.process == process::id()
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        if !self.is_ours() {
            // To unmap its memory would unmap what lies at these addresses now.
            mem::forget(self.ring.take());
        }
    }
}

impl RingPool {
    /// An empty pool, which calls `on_ring` when a ring has come.
    pub fn new(on_ring: impl Fn() + Send + Sync + 'static) -> Self {
        Self { on_ring: Some(Arc::new(on_ring)), ..Self::default() }
    }

    /// The number of rings.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether so many devices have rings that one without I/O should leave its ring to others.
    pub fn is_crowded(&self) -> bool {
        self.used.load(Relaxed) > RINGS_MAX
    }

    /// Whether there is no ring.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the rings that have been in the pool for `age`. Returns the time at which the next one has.
    pub fn close_older(&self, age: Duration, now: Instant) -> Option<Instant> {
        let mut left = self.lock();
        // In the order in which they came.
        let old = left.iter().take_while(|ring| ring.since + age <= now).count();
        let closed: Vec<Left> = left.drain(..old).collect();
        let next = left.first().map(|ring| ring.since + age);
        // To close a ring takes long.
        drop(left);
        drop(closed);
        next
    }

    /// The ring of this size that came last, with `file` as its file 0.
    pub(super) fn take(&self, entries: u32, file: &impl AsRawFd) -> Option<IoUring> {
        let mut left = self.lock();
        let place = left.iter().rposition(|ring| ring.entries == entries)?;
        let mut ring = left.remove(place).ring.take()?;
        drop(left);
        assert!(is_empty(&mut ring), "a ring of the pool is in use");
        ring.submitter().register_files_update(0, &[file.as_raw_fd()]).is_ok().then_some(ring)
    }

    /// Adds a ring with `entries` entries, which has nothing in flight. Closes its file.
    pub(super) fn put(&self, mut ring: IoUring, entries: u32) {
        // The completion of an earlier owner would be that of a later one.
        assert!(is_empty(&mut ring), "the ring is in use");
        if ring.submitter().register_files_update(0, &[NO_FILE]).is_err() {
            return;
        }
        let mut left = self.lock();
        if left.len() < RINGS_MAX {
            left.push(Left::new(ring, entries));
        }
        drop(left);
        if let Some(on_ring) = &self.on_ring {
            on_ring();
        }
    }

    /// The rings of this process.
    fn lock(&self) -> MutexGuard<'_, Vec<Left>> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(Left::is_ours);
        left
    }
}

/// Whether neither ring has an entry.
fn is_empty(ring: &mut IoUring) -> bool {
    ring.submission().is_empty() && ring.completion().is_empty()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicU32;

    use iopath_core::{BlockDevice, Extent, Io, Limits, Memory, Op, Tag};

    use super::super::{AnyThread, Uring, UringConfig, entries};
    use super::*;
    use crate::aligned::AlignedBuf;
    use crate::device::{Lazy, Notifier, RealDevice};
    use crate::memory::Segment;
    use crate::pool::BufferPool;
    use crate::runner::segment_mut;

    const BLOCK: u64 = 4096;

    /// A file of one block with this byte.
    fn scratch(byte: u8) -> Arc<File> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [byte; BLOCK as usize]).unwrap();
        Arc::new(file.reopen().unwrap())
    }

    fn open(file: Arc<File>, depth: u32, rings: &RingPool) -> Option<Uring<AnyThread>> {
        let limits = Limits { logical_block_bytes: BLOCK as u32, ..Limits::with_capacity(BLOCK / 512) };
        let config = UringConfig { depth, pool: None };
        let opened = Uring::<AnyThread>::try_new(file, &limits, &config, Some(rings));
        opened.map_err(|refused| eprintln!("skipped: io_uring is refused here ({})", refused.source)).ok()
    }

    fn submit(device: &mut impl BlockDevice<Memory = Segment>, memory: &mut AlignedBuf) {
        // SAFETY: the tests keep the memory until the device has completed the read or is dropped.
        let segment = unsafe { segment_mut(memory) };
        let extent = Extent::from_bytes(0, segment.bytes()).unwrap();
        device.submit(&Io::new(Tag::from_bits(1), Op::Read, extent, &[segment]), clock::now()).unwrap();
        device.commit(clock::now());
    }

    /// Reads the block, and checks its bytes.
    fn read(device: &mut impl RealDevice, byte: u8) {
        let mut memory = AlignedBuf::new(BLOCK as usize).unwrap();
        submit(device, &mut memory);
        device.commit_and_wait(1, None).unwrap();
        assert_eq!(device.poll_completion(clock::now()).unwrap().result, Ok(()));
        assert!(device.poll_completion(clock::now()).is_none());
        assert!(memory.iter().all(|found| *found == byte));
    }

    #[test]
    fn a_device_gets_the_ring_of_a_closed_one_with_its_own_file() {
        let rings = RingPool::default();
        let Some(mut first) = open(scratch(1), 8, &rings) else { return };
        let number = first.ring.as_raw_fd();
        read(&mut first, 1);
        drop(first);
        assert_eq!(rings.len(), 1);
        let mut other = open(scratch(2), 4, &rings).unwrap();
        read(&mut other, 2);
        assert_eq!(rings.len(), 1, "the ring has another size");
        for byte in 3..40 {
            let mut next = open(scratch(byte), 8, &rings).unwrap();
            assert_eq!((next.ring.as_raw_fd(), rings.len()), (number, 0));
            read(&mut next, byte);
        }
    }

    #[test]
    fn a_ring_that_is_in_use_or_changed_is_closed() {
        let rings = RingPool::default();
        let mut memory = AlignedBuf::new(BLOCK as usize).unwrap();
        let Some(mut device) = open(scratch(1), 8, &rings) else { return };
        submit(&mut device, &mut memory);
        drop(device);
        assert_eq!(rings.len(), 0, "a read was in flight");
        let mut device = open(scratch(1), 8, &rings).unwrap();
        device.end_watch();
        drop(device);
        assert_eq!(rings.len(), 0, "the end of a watch was in flight");
        let mut device = open(scratch(1), 8, &rings).unwrap();
        device.set_notifier(&Notifier::new().unwrap()).unwrap();
        drop(device);
        assert_eq!(rings.len(), 0, "a notifier");
        let limits = Limits { logical_block_bytes: BLOCK as u32, ..Limits::with_capacity(BLOCK / 512) };
        let pool = BufferPool::new(1, BLOCK as usize).unwrap();
        let config = UringConfig { depth: 8, pool: Some(pool) };
        let registered = Uring::<AnyThread>::try_new(scratch(1), &limits, &config, Some(&rings));
        drop(registered.map_err(|refused| refused.source));
        assert_eq!(rings.len(), 0, "registered buffers");
    }

    #[test]
    fn a_process_that_forks_off_gets_no_ring_of_its_parent() {
        let rings = RingPool::default();
        let Some(device) = open(scratch(1), 8, &rings) else { return };
        drop(device);
        let (first, second) = (scratch(2), scratch(3));
        // SAFETY: the child needs no other thread of this process: it takes no lock that one may hold, the C library
        // makes its allocator usable, and it ends by `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            // SAFETY: a panic may wait for the lock of stderr, which another thread held.
            unsafe { libc::alarm(60) };
            let of_child = || {
                assert!(rings.take(entries(8, false), &*first).is_none());
                assert!(rings.is_empty() && rings.close_older(Duration::ZERO, clock::now()).is_none());
                for (file, byte) in [(&first, 2), (&second, 3)] {
                    let mut device = open(Arc::clone(file), 8, &rings).unwrap();
                    read(&mut device, byte);
                    drop(device);
                    assert_eq!(rings.len(), 1, "its own ring");
                }
            };
            let ended = catch_unwind(AssertUnwindSafe(of_child));
            // SAFETY: no destructor of the parent may run here.
            unsafe { libc::_exit(i32::from(ended.is_err())) };
        }
        let mut status = -1;
        // SAFETY: the status is valid for the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child has ended with this status");
        assert_eq!(rings.len(), 1);
        let mut device = open(scratch(4), 8, &rings).unwrap();
        assert_eq!(rings.len(), 0);
        read(&mut device, 4);
    }

    #[test]
    fn devices_without_io_leave_their_rings_when_many_have_one() {
        let rings = RingPool::default();
        let Some(first) = open(scratch(1), 2, &rings) else { return };
        drop(first);
        let open_lazily = |byte: u8| {
            let (file, pool) = (scratch(byte), rings.clone());
            let limits = Limits { logical_block_bytes: BLOCK as u32, ..Limits::with_capacity(BLOCK / 512) };
            Lazy::new(limits, Some(rings.clone()), move |limits| {
                let config = UringConfig { depth: 2, pool: None };
                Ok(Box::new(Uring::<AnyThread>::try_new(Arc::clone(&file), limits, &config, Some(&pool))?))
            })
        };
        let mut devices: Vec<(u8, Lazy)> = (1..100).map(|byte| (byte, open_lazily(byte))).collect();
        assert_eq!(rings.used.load(Relaxed), 0, "none has a ring before its first request");
        for _ in 0..2 {
            for (byte, device) in &mut devices {
                read(device, *byte);
            }
            assert_eq!((rings.used.load(Relaxed), rings.len()), (RINGS_MAX, 1));
        }
    }

    #[test]
    fn the_owner_of_a_pool_is_notified_of_each_ring() {
        let notified = Arc::new(AtomicU32::new(0));
        let rings = RingPool::new({
            let notified = Arc::clone(&notified);
            move || _ = notified.fetch_add(1, Relaxed)
        });
        for count in 1..3 {
            let Some(device) = open(scratch(1), 2, &rings) else { return };
            assert_eq!(notified.load(Relaxed), count - 1);
            drop(device);
            assert_eq!(notified.load(Relaxed), count);
        }
    }

    #[test]
    fn rings_are_few_and_closed_after_some_time() {
        let rings = RingPool::default();
        let devices: Vec<_> = (0..RINGS_MAX + 2).map_while(|_| open(scratch(1), 2, &rings)).collect();
        if devices.len() < RINGS_MAX {
            return;
        }
        assert!(rings.is_crowded());
        drop(devices);
        assert!(!rings.is_crowded());
        assert_eq!(rings.len(), RINGS_MAX);
        let (age, now) = (Duration::from_secs(60), clock::now());
        assert!(rings.close_older(age, now).is_some_and(|next| next <= now + age));
        assert_eq!(rings.len(), RINGS_MAX);
        assert_eq!(rings.close_older(age, now + age), None);
        assert!(rings.is_empty());
    }
}
