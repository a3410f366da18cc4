//! The buffers and range locks of bounced I/O. `volume/bounced.rs` reads and writes.

use iopath_os::sync::{Condvar, Mutex, MutexGuard};
use iopath_os::{AlignedBuf, NoMemory, Tail};
use std::ops::Range;
use std::sync::PoisonError;

/// The size of a buffer. Longer I/O is done in pieces.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// The state of bounced I/O on a volume.
#[derive(Debug)]
pub(crate) struct Bounce {
    /// Unused buffers.
    spare: Mutex<Vec<AlignedBuf>>,
    locked: Mutex<LockedRanges>,
    is_free: Condvar,
    /// Writes the bytes after the last whole block.
    tail: Option<Tail>,
}

/// The ranges that threads write to.
#[derive(Debug, Default)]
struct LockedRanges {
    /// Ranges of bytes.
    ranges: Vec<Range<u64>>,
    /// Threads that wait for a range. Usually 0: then no wake-up is needed.
    waiting: u32,
}

/// A lock on a range: until it is dropped, no other thread writes to the range.
pub(crate) struct Locked<'a> {
    bounce: &'a Bounce,
    range: Range<u64>,
}

impl Bounce {
    pub(crate) fn new(tail: Option<Tail>) -> Self {
        Self { spare: Mutex::default(), locked: Mutex::default(), is_free: Condvar::new(), tail }
    }

    /// Calls `act` with a buffer.
    pub(crate) fn with_buffer<R>(&self, act: impl FnOnce(&mut AlignedBuf) -> R) -> Result<R, NoMemory> {
        let spare = lock(&self.spare).pop();
        let mut buffer = spare.map_or_else(|| AlignedBuf::new(BUFFER_BYTES), Ok)?;
        let result = act(&mut buffer);
        lock(&self.spare).push(buffer);
        Ok(result)
    }

    pub(crate) const fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// Waits until no other thread writes to a byte of `range`, and locks it.
    pub(crate) fn lock_range(&self, range: Range<u64>) -> Locked<'_> {
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        let mut locked = lock(&self.locked);
        locked.waiting += 1;
        let waited = self.is_free.wait_while(locked, |locked| locked.ranges.iter().any(overlaps));
        let mut locked = waited.unwrap_or_else(PoisonError::into_inner);
        locked.waiting -= 1;
        locked.ranges.push(range.clone());
        Locked { bounce: self, range }
    }

    /// Locks `range` if no other thread writes to a byte of it.
    pub(crate) fn try_lock_range(&self, range: Range<u64>) -> Option<Locked<'_>> {
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        let mut locked = lock(&self.locked);
        if locked.ranges.iter().any(overlaps) {
            return None;
        }
        locked.ranges.push(range.clone());
        Some(Locked { bounce: self, range })
    }

    /// Unlocks a range of [`Locked::keep`].
    pub(crate) fn unlock(&self, range: &Range<u64>) {
        let mut locked = lock(&self.locked);
        let index = locked.ranges.iter().position(|other| other == range);
        locked.ranges.swap_remove(index.expect("a locked range is listed"));
        if locked.waiting > 0 {
            self.is_free.notify_all();
        }
    }
}

impl Locked<'_> {
    /// Keeps the range locked until [`Bounce::unlock`].
    pub(crate) fn keep(self) -> Range<u64> {
        let range = self.range.clone();
        std::mem::forget(self);
        range
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.bounce.unlock(&self.range);
    }
}

/// Ignores poisoning: no panic can leave the state half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
