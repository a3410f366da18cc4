//! The buffers of bounced I/O, and the threads that wait for its range locks. `iopath_core::volume` decides which range
//! is locked; `volume/bounced.rs` reads and writes.

use iopath_core::volume::{LockKind, RangeLocks, Wake};
use iopath_os::sync::{Condvar, Mutex, MutexGuard};
use iopath_os::{AlignedBuf, NoMemory, Tail};
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::PoisonError;

/// The size of a buffer. Longer I/O is done in pieces.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// The state of bounced I/O on a volume.
#[derive(Debug)]
pub(crate) struct Bounce {
    /// Unused buffers.
    spare: Mutex<Vec<AlignedBuf>>,
    locks: Mutex<RangeLocks>,
    is_free: Condvar,
    /// Writes the bytes after the last whole block.
    tail: Option<Box<dyn Tail>>,
}

/// A lock on a range: until it is dropped, no other thread writes to the range.
pub(crate) struct Locked<'a> {
    bounce: &'a Bounce,
    kind: LockKind,
    range: Range<u64>,
}

impl Bounce {
    pub(crate) fn new(tail: Option<Box<dyn Tail>>) -> Self {
        Self { spare: Mutex::default(), locks: Mutex::default(), is_free: Condvar::new(), tail }
    }

    /// Calls `act` with a buffer.
    pub(crate) fn with_buffer<R>(&self, act: impl FnOnce(&mut AlignedBuf) -> R) -> Result<R, NoMemory> {
        let spare = lock(&self.spare).pop();
        let mut buffer = spare.map_or_else(|| AlignedBuf::new(BUFFER_BYTES), Ok)?;
        let result = act(&mut buffer);
        lock(&self.spare).push(buffer);
        Ok(result)
    }

    pub(crate) fn tail(&self) -> Option<&dyn Tail> {
        self.tail.as_deref()
    }

    /// Waits until no other thread writes to a byte of `range`, and locks it.
    pub(crate) fn lock_range(&self, range: Range<u64>) -> Locked<'_> {
        self.lock(LockKind::Write, range)
    }

    /// Locks `range` as [`Bounce::lock_range`] does, if that does not wait.
    pub(crate) fn try_lock_range(&self, range: Range<u64>) -> Option<Locked<'_>> {
        self.try_lock(LockKind::Write, range)
    }

    /// Waits as [`Bounce::lock_range`] does, and locks the range until [`Bounce::unlock_kept`].
    pub(crate) fn lock_kept(&self, range: Range<u64>) -> Range<u64> {
        self.lock(LockKind::Kept, range).keep()
    }

    /// Locks `range` until [`Bounce::unlock_kept`] if no other thread writes to a byte of it, or waits for that.
    pub(crate) fn try_lock_kept(&self, range: Range<u64>) -> Option<Range<u64>> {
        self.try_lock(LockKind::Kept, range).map(Locked::keep)
    }

    pub(crate) fn unlock_kept(&self, range: &Range<u64>) {
        self.unlock(LockKind::Kept, range);
    }

    /// Locks `range` for a write of whole blocks until [`Bounce::unlock_whole`]. `None` if a writer that excludes
    /// others has locked a byte of it, or waits for that.
    pub(crate) fn try_lock_whole(&self, range: Range<u64>) -> Option<Range<u64>> {
        self.try_lock(LockKind::Whole, range).map(Locked::keep)
    }

    pub(crate) fn unlock_whole(&self, range: &Range<u64>) {
        self.unlock(LockKind::Whole, range);
    }

    fn lock(&self, kind: LockKind, range: Range<u64>) -> Locked<'_> {
        let mut locks = lock(&self.locks);
        if !locks.try_lock(kind, &range) {
            let ticket = locks.wait(kind, range.clone());
            let wake = loop {
                match locks.try_waiting(ticket) {
                    Some(wake) => break wake,
                    None => locks = self.is_free.wait(locks).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(locks);
            self.wake(wake);
        }
        Locked { bounce: self, kind, range }
    }

    fn try_lock(&self, kind: LockKind, range: Range<u64>) -> Option<Locked<'_>> {
        let is_locked = lock(&self.locks).try_lock(kind, &range);
        is_locked.then(|| Locked { bounce: self, kind, range })
    }

    fn unlock(&self, kind: LockKind, range: &Range<u64>) {
        let wake = lock(&self.locks).unlock(kind, range);
        self.wake(wake);
    }

    fn wake(&self, wake: Wake) {
        if wake == Wake::All {
            self.is_free.notify_all();
        }
    }
}

impl Locked<'_> {
    /// Keeps the lock until it is unlocked by its range.
    fn keep(self) -> Range<u64> {
        ManuallyDrop::new(self).range.clone()
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.bounce.unlock(self.kind, &self.range);
    }
}

/// Ignores poisoning: no panic can leave the state half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(iopath_explore)))]
mod tests {
    use super::*;

    /// Waits until that many threads wait for a range.
    fn until_waiting(bounce: &Bounce, count: usize) {
        while lock(&bounce.locks).waiting() < count {
            std::thread::yield_now();
        }
    }

    /// `iopath_core::volume` has the tests of the order; this one is of the threads.
    #[test]
    fn a_thread_waits_until_its_range_is_unlocked() {
        let bounce = &Bounce::new(None);
        std::thread::scope(|scope| {
            let first = bounce.lock_range(0..1);
            let kept = bounce.lock_kept(1..2);
            let threads = [0..1, 0..2, 1..2].map(|range| scope.spawn(|| drop(bounce.lock_range(range))));
            until_waiting(bounce, 3);
            let batch = scope.spawn(|| bounce.lock_kept(0..2));
            until_waiting(bounce, 4);
            assert!(bounce.try_lock_range(0..1).is_none() && bounce.try_lock_whole(1..2).is_none());
            bounce.unlock_kept(&kept);
            drop(first);
            let batch = batch.join().unwrap();
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(bounce.try_lock_kept(1..2).is_none());
            bounce.unlock_kept(&batch);
        });
        let whole = bounce.try_lock_whole(0..3).unwrap();
        bounce.unlock_whole(&whole);
        assert!(bounce.try_lock_range(0..3).is_some());
    }
}
