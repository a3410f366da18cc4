//! Borrowed pages for the owner of a request queue: an event loop sends cached bytes from the pages, without a copy.
//! Guards of blocking callers, which have a lifetime, are in `borrow.rs` of the parent.

use std::fmt;
use std::sync::Arc;

use iopath_core::Op;
use iopath_core::buffered::{BufferedRead, ReadNext};

use super::super::borrow::Frames;
use super::{CacheQueue, CacheShared};
use crate::io_buf::IoBuf;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Share of the frames of the cache that one queue may borrow. With the at most eight queues of a server, at least half
/// of the cache remains for misses.
const SHARE: u32 = 16;

/// The frames that the pages of one queue hold. Each queue has its own, so that owners on different threads do not
/// share a reference count.
#[derive(Debug)]
pub(super) struct Pins {
    shared: Arc<CacheShared>,
    held: AtomicU32,
    limit: u32,
}

impl Pins {
    pub(super) fn new(shared: &Arc<CacheShared>, frames: u32) -> Arc<Self> {
        Arc::new(Self { shared: Arc::clone(shared), held: AtomicU32::new(0), limit: frames / SHARE })
    }
}

/// Bytes of the page cache, borrowed with [`CacheQueue::borrow`]. They do not change until this is dropped, and their
/// pages are not evicted.
pub struct BorrowedBytes {
    pins: Arc<Pins>,
    frames: Frames,
    /// The position of the first byte in the first frame.
    from: usize,
    bytes: usize,
}

impl fmt::Debug for BorrowedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BorrowedBytes").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<B: IoBuf> CacheQueue<B> {
    /// Borrows `bytes` bytes at `offset` if all of their pages are cached. Never waits.
    ///
    /// `None` also if the range is not wholly in the volume, if it overlaps a write of this queue in flight, or if this
    /// queue has borrowed a sixteenth of the cache: read the bytes with a request then.
    pub fn borrow(&self, offset: u64, bytes: usize) -> Option<BorrowedBytes> {
        let shared = &*self.shared;
        if self.conflict(Op::Read, offset, bytes as u64, self.queued).is_some() {
            return None;
        }
        let mut read = BufferedRead::new(offset, bytes, shared);
        if read.available() < bytes {
            return None;
        }
        let pages = read.pages().pages();
        // Only the owner adds, so the check and the addition need not be one step.
        if u64::from(self.pins.held.load(Ordering::Relaxed)) + pages > u64::from(self.pins.limit) {
            return None;
        }
        let pins = Arc::clone(&self.pins);
        // Dropped if a page is absent, which unpins the pages so far.
        let mut borrowed = BorrowedBytes { pins, frames: Frames::NONE, from: 0, bytes };
        loop {
            match read.poll(shared) {
                ReadNext::Copy(piece) => {
                    let pinned = shared.try_pin(piece.page)?;
                    self.pins.held.fetch_add(1, Ordering::Relaxed);
                    borrowed.frames.push(pinned.frame);
                    if piece.start == 0 {
                        borrowed.from = piece.from;
                    }
                    if pinned.is_marked {
                        shared.handle_marker(read.pages());
                    }
                    read.handle_copied(&piece);
                }
                ReadNext::Done(there) if there == bytes => {
                    shared.borrowed_hits.add(pages);
                    return Some(borrowed);
                }
                ReadNext::Again | ReadNext::Done(_) => return None,
            }
        }
    }
}

impl BorrowedBytes {
    /// The number of bytes.
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are no bytes.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The pieces in order. Pages that are adjacent in memory form one piece.
    #[inline]
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let CacheShared { arena, page_bytes, .. } = &*self.pins.shared;
        // SAFETY: all frames are pinned until this is dropped.
        unsafe { self.frames.slices(arena, *page_bytes, self.from, self.bytes) }
    }
}

impl Drop for BorrowedBytes {
    #[inline]
    fn drop(&mut self) {
        (0..self.frames.count()).for_each(|number| self.pins.shared.unpin(self.frames.get(number)));
        self.pins.held.fetch_sub(self.frames.count() as u32, Ordering::Relaxed);
    }
}
