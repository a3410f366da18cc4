//! The buffers and range locks of bounced I/O. `volume/bounced.rs` reads and writes.

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
    locked: Mutex<LockedRanges>,
    is_free: Condvar,
    /// Writes the bytes after the last whole block.
    tail: Option<Tail>,
}

/// The ranges that threads write to, in bytes.
#[derive(Debug, Default)]
struct LockedRanges {
    /// By writes in progress.
    ranges: Vec<Range<u64>>,
    /// By writes of batches, until a program reaps them.
    kept: Vec<Range<u64>>,
    /// By writes of whole blocks, until they complete. They exclude all others, and not each other.
    whole: Vec<Range<u64>>,
    /// For which threads wait, in the order of their calls, each with its number.
    waiting: Vec<(u64, Range<u64>)>,
    /// The number of the next thread that waits.
    next: u64,
}

impl LockedRanges {
    /// Whether a thread must not lock `range` now. If it waits, `number` is its number.
    ///
    /// It also waits for overlapping ranges of threads that have waited longer, which would otherwise starve. But not
    /// while these wait for the write of a batch: the program may reap that only after this thread has its range.
    fn is_blocked(&self, range: &Range<u64>, number: u64) -> bool {
        let is_kept =
            |range: &Range<u64>| self.kept.iter().chain(&self.whole).any(|other| overlaps(other, range));
        let mut earlier = self.waiting.iter().take_while(|(other, _)| *other < number);
        is_kept(range)
            || self.ranges.iter().any(|other| overlaps(other, range))
            || earlier.any(|(_, other)| overlaps(other, range) && !is_kept(other))
    }

    /// Whether a write of whole blocks must not lock `range` now. It does not overtake a thread that waits, either.
    fn excludes_whole(&self, range: &Range<u64>) -> bool {
        let mut waiting = self.waiting.iter().map(|(_, other)| other);
        self.ranges.iter().chain(&self.kept).any(|other| overlaps(other, range))
            || waiting.any(|other| overlaps(other, range))
    }
}

fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
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
        let mut locked = lock(&self.locked);
        let number = locked.next;
        if locked.is_blocked(&range, number) {
            locked.next += 1;
            locked.waiting.push((number, range.clone()));
            let waited = self.is_free.wait_while(locked, |locked| locked.is_blocked(&range, number));
            locked = waited.unwrap_or_else(PoisonError::into_inner);
            locked.waiting.retain(|(other, _)| *other != number);
        }
        locked.ranges.push(range.clone());
        Locked { bounce: self, range }
    }

    /// Locks `range` as [`Bounce::lock_range`] does, if that does not wait.
    pub(crate) fn try_lock_range(&self, range: Range<u64>) -> Option<Locked<'_>> {
        let mut locked = lock(&self.locked);
        if locked.is_blocked(&range, locked.next) {
            return None;
        }
        locked.ranges.push(range.clone());
        drop(locked);
        Some(Locked { bounce: self, range })
    }

    /// Locks `range` until [`Bounce::unlock_kept`] if no other thread writes to a byte of it, or waits for that.
    pub(crate) fn try_lock_kept(&self, range: Range<u64>) -> Option<Range<u64>> {
        let mut locked = lock(&self.locked);
        if locked.is_blocked(&range, locked.next) {
            return None;
        }
        locked.kept.push(range.clone());
        drop(locked);
        Some(range)
    }

    /// Waits as [`Bounce::lock_range`] does, and locks the range until [`Bounce::unlock_kept`].
    pub(crate) fn lock_kept(&self, range: Range<u64>) -> Range<u64> {
        let Locked { range, .. } = &*ManuallyDrop::new(self.lock_range(range));
        let mut locked = lock(&self.locked);
        remove(&mut locked.ranges, range);
        locked.kept.push(range.clone());
        // A thread behind one that waits for this range need not wait any more.
        self.wake(&locked);
        range.clone()
    }

    pub(crate) fn unlock_kept(&self, range: &Range<u64>) {
        let mut locked = lock(&self.locked);
        remove(&mut locked.kept, range);
        self.wake(&locked);
    }

    /// Locks `range` for a write of whole blocks until [`Bounce::unlock_whole`]. `None` if a writer that excludes
    /// others has locked a byte of it, or waits for that.
    pub(crate) fn try_lock_whole(&self, range: Range<u64>) -> Option<Range<u64>> {
        let mut locked = lock(&self.locked);
        if locked.excludes_whole(&range) {
            return None;
        }
        locked.whole.push(range.clone());
        Some(range)
    }

    pub(crate) fn unlock_whole(&self, range: &Range<u64>) {
        let mut locked = lock(&self.locked);
        remove(&mut locked.whole, range);
        self.wake(&locked);
    }

    fn wake(&self, locked: &LockedRanges) {
        if !locked.waiting.is_empty() {
            self.is_free.notify_all();
        }
    }
}

fn remove(ranges: &mut Vec<Range<u64>>, range: &Range<u64>) {
    let index = ranges.iter().position(|other| other == range);
    ranges.swap_remove(index.expect("a locked range is listed"));
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let mut locked = lock(&self.bounce.locked);
        remove(&mut locked.ranges, &self.range);
        self.bounce.wake(&locked);
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
        while lock(&bounce.locked).waiting.len() < count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn later_writes_do_not_overtake_a_waiting_one() {
        let bounce = &Bounce::new(None);
        std::thread::scope(|scope| {
            let first = bounce.lock_range(0..1);
            let wide = scope.spawn(|| drop(bounce.lock_range(0..3)));
            until_waiting(bounce, 1);
            assert!(bounce.try_lock_kept(2..3).is_none(), "a batch overtakes the waiting write");
            let narrow = scope.spawn(|| drop(bounce.lock_range(1..2)));
            until_waiting(bounce, 2);
            assert!(bounce.try_lock_kept(3..4).is_some(), "no write to this range waits");
            drop(first);
            wide.join().unwrap();
            narrow.join().unwrap();
        });
        assert!(bounce.try_lock_kept(0..3).is_some());
    }

    #[test]
    fn a_write_that_waits_for_a_batch_holds_up_no_other_write() {
        let bounce = &Bounce::new(None);
        std::thread::scope(|scope| {
            let kept = bounce.lock_kept(0..1);
            let wide = scope.spawn(|| drop(bounce.lock_range(0..3)));
            until_waiting(bounce, 1);
            // The thread of the batch may write elsewhere before it reaps.
            drop(bounce.lock_range(2..3));
            let other = bounce.try_lock_kept(1..2).unwrap();
            bounce.unlock_kept(&other);
            bounce.unlock_kept(&kept);
            wide.join().unwrap();
        });
    }

    #[test]
    fn writes_of_whole_blocks_exclude_all_others_and_not_each_other() {
        let bounce = &Bounce::new(None);
        let first = bounce.try_lock_whole(0..8).unwrap();
        let second = bounce.try_lock_whole(4..12).expect("neither changes a part of a block");
        assert!(bounce.try_lock_kept(7..8).is_none(), "a batch that changes a part of a block");
        bounce.unlock_whole(&first);
        assert!(bounce.try_lock_whole(0..4).is_some());
        std::thread::scope(|scope| {
            let part = scope.spawn(|| drop(bounce.lock_range(8..9)));
            until_waiting(bounce, 1);
            assert!(bounce.try_lock_whole(8..16).is_none(), "overtakes the thread that waits");
            bounce.unlock_whole(&second);
            part.join().unwrap();
        });
        let part = bounce.lock_range(8..9);
        assert!(bounce.try_lock_whole(8..16).is_none(), "the part is being changed");
        drop(part);
        assert!(bounce.try_lock_whole(8..16).is_some());
    }
}
