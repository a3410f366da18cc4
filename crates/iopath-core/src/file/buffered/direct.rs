//! Direct I/O on a volume with a page cache, and flushes. `cache/direct.rs`, `cache/forced.rs` and `cache/flush.rs`
//! decide which of them waits for which page. The caller executes the direct I/O.

use super::{BufferedPath, Frames};
use crate::block::bio::Op;
use crate::error::IoError;
use crate::file::cache::{DirectStep, DirectTag, Forced};
use crate::file::page::PageRange;

impl<F: Frames> BufferedPath<F> {
    /// Prepares a direct I/O on `bytes` bytes from byte `offset` on: see [`PageCache::begin_direct`]. A discard drops
    /// whole dirty pages instead of writing them back.
    ///
    /// `unit_bytes` is the unit in which writes exclude each other, such as a block of the filesystem. Dirty pages of
    /// the same unit are written back first, and writers to them wait. 1 if the device has no such unit.
    ///
    /// [`PageCache::begin_direct`]: crate::cache::PageCache::begin_direct
    pub fn begin_direct(
        &mut self,
        op: Op,
        offset: u64,
        bytes: u64,
        unit_bytes: u64,
        waiter: u64,
    ) -> DirectStep {
        let start = offset / unit_bytes * unit_bytes;
        let end = offset.saturating_add(bytes);
        let end = end.checked_next_multiple_of(unit_bytes).unwrap_or(u64::MAX);
        if op == Op::Discard {
            self.cache.discard(PageRange::inside(offset, bytes, self.geometry.page_bytes));
        }
        self.cache.begin_direct(op, self.geometry.pages(start, end - start), waiter)
    }

    /// Prepares a change of the length of the file, which ends in the page of byte `offset`: see
    /// [`PageCache::begin_hold`](crate::cache::PageCache::begin_hold).
    pub fn begin_hold(&mut self, offset: u64, waiter: u64) -> DirectStep {
        self.cache.begin_hold(self.geometry.pages(offset, 1), waiter)
    }

    /// A direct I/O has completed, successfully or not: see
    /// [`PageCache::end_direct`](crate::cache::PageCache::end_direct).
    pub fn end_direct(&mut self, tag: DirectTag) {
        self.cache.end_direct(tag);
    }

    /// A forced direct write has succeeded as a plain write, and requests a flush of the device: see
    /// [`PageCache::end_forced`](crate::cache::PageCache::end_forced).
    pub fn end_forced(&mut self, tag: DirectTag) -> Forced {
        self.cache.end_forced(tag)
    }

    /// When the forced write is on the medium or has failed, [`BufferedPath::poll_ready`] names `waiter`.
    pub fn await_forced(&mut self, forced: Forced, waiter: u64) {
        self.cache.await_forced(forced, waiter);
    }

    /// Whether a forced write is on the medium; `None` while that is unknown.
    pub fn forced(&self, forced: Forced) -> Option<Result<(), IoError>> {
        self.cache.forced(forced)
    }

    /// Writes every dirty page back, then flushes the device.
    pub fn flush(&mut self, waiter: u64) {
        self.cache.flush(waiter);
    }

    /// Does the same as [`BufferedPath::flush`], for the `bytes` bytes from `offset` on.
    pub fn flush_range(&mut self, offset: u64, bytes: u64, waiter: u64) {
        self.cache.flush_range(self.geometry.pages(offset, bytes), waiter);
    }

    /// Writes the dirty pages of `range` back, without a flush of the device.
    pub fn write_back(&mut self, range: PageRange, waiter: u64) {
        self.cache.write_back(range, waiter);
    }
}
