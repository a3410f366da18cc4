//! Direct I/O beside the cache, and a volume that changes its size. What waits for what is
//! `iopath_core::cache::direct`; the direct I/O itself is the caller's, the flush after a forced write is not.

use iopath_core::cache::{DirectStep, DirectTag, Forced, Outcome};
use iopath_core::{IoError, Op, Page, PageRange};

use super::state::State;
use super::wait::Locked;
use super::{Buffered, BufferedError, Shared};
use crate::clock;
use crate::sync::atomic::Ordering::Release;

/// A direct I/O that may go: the device holds what was written through the cache. Until this is dropped, which is to be
/// when the I/O has completed and before anyone is told, writers to the pages of what it writes wait.
#[derive(Debug)]
pub struct Beside<'a> {
    shared: &'a Shared,
    /// `None` for a read with nothing to wait for.
    tag: Option<DirectTag>,
}

impl Buffered {
    /// A direct I/O on `bytes` bytes from byte `offset` on is to begin. Fails if what is dirty there cannot be written
    /// back; of what is to be discarded, whole pages are not: they are given up, errors included. What lies behind the
    /// end of the volume is no concern of the cache.
    pub fn begin_direct(&self, op: Op, offset: u64, bytes: u64) -> Result<Beside<'_>, BufferedError> {
        self.begin_direct_in_units(op, offset, bytes, 1)
    }

    /// The same for a device on which a write keeps others out of whole units of `unit_bytes` bytes, as a file in blocks
    /// does: dirty pages beside the range, in the same unit, are written back before, and writers to them wait.
    pub fn begin_direct_in_units(
        &self,
        op: Op,
        offset: u64,
        bytes: u64,
        unit_bytes: u64,
    ) -> Result<Beside<'_>, BufferedError> {
        let shared = &*self.shared;
        if op == Op::Flush || (op == Op::Read && shared.hot.is_clean()) {
            return Ok(Beside { shared, tag: None });
        }
        let start = offset / unit_bytes * unit_bytes;
        let end = offset.saturating_add(bytes);
        let end = end.checked_next_multiple_of(unit_bytes).unwrap_or(u64::MAX);
        let pages = PageRange::touched_by(start, end - start, shared.page_bytes as u32);
        let mut state = shared.lock();
        if op == Op::Discard {
            state.cache.discard(PageRange::inside(offset, bytes, shared.page_bytes as u32));
        }
        let waiter = state.enlist();
        let step = state.cache.begin_direct(op, pages, waiter as u64);
        shared.begin(state, waiter, step)
    }

    /// The volume ends at `size_bytes` from now on: `resize` makes it so. Pages past the end are given up; if `resize`
    /// fails, dirty ones among them are lost, and every flush fails until [`Buffered::accept_loss`].
    ///
    /// One thread at a time; reads and writes may go on. A read that overlaps the part that is cut off is short.
    pub fn resize<E>(
        &self,
        size_bytes: u64,
        resize: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<(), E>, BufferedError> {
        let shared = &*self.shared;
        let page_bytes = shared.page_bytes as u64;
        let old_bytes = shared.size();
        // The page that is cut inside, or was when the volume grows, goes to the device whole and comes back from
        // there, with zeroes at its end.
        let kept_bytes = size_bytes.min(old_bytes);
        let _cut = match kept_bytes % page_bytes {
            0 => None,
            _ => Some(self.begin_direct(Op::WriteZeroes, kept_bytes, 1)?),
        };
        let mut state = shared.lock();
        let waiter = state.enlist();
        let step = state.cache.begin_truncate(Page(size_bytes.div_ceil(page_bytes)), waiter as u64);
        let mut past_end = shared.begin(state, waiter, step)?;
        // Reads never go beyond the end of the device: they learn of a nearer end before it moves, of a farther one after.
        if size_bytes < old_bytes {
            shared.set_size(size_bytes);
        }
        let resized = resize();
        if resized.is_ok() {
            shared.set_size(size_bytes);
        } else if size_bytes < old_bytes {
            past_end.fail_truncate(size_bytes, old_bytes);
        }
        Ok(resized)
    }
}

impl Buffered {
    /// The volume ends at `size_bytes` from now on, if it ended before: the file is as long already, and the bytes that are
    /// added read as zeroes. Unlike [`Buffered::resize`] it waits for nothing: for writes that append.
    pub fn extend(&self, size_bytes: u64) {
        let mut state = self.shared.lock();
        if size_bytes > state.place.size_bytes {
            self.shared.set_size_in(&mut state, size_bytes);
        }
    }
}

impl Beside<'_> {
    /// Keeps the promise open beyond the borrow of the cache: to be given to [`Buffered::end_direct`].
    pub fn into_tag(mut self) -> Option<DirectTag> {
        self.tag.take()
    }

    /// A forced write has succeeded at the device, which took it as a plain write: returns when it is on the medium.
    ///
    /// # Panics
    /// If it is a read: a bug of the caller.
    pub fn end_forced(mut self) -> Result<(), BufferedError> {
        let tag = self.tag.take().expect("a write is registered");
        let forced = self.shared.lock().cache.end_forced(tag);
        self.shared.wait_forced(forced)
    }
}

/// Forced writes whose promises were kept open. Each was a plain write at the device; none may flush the device itself:
/// `iopath_core::cache::forced` says why.
impl Buffered {
    /// These have succeeded at the device. Requests one flush of the device for all of them, and does not wait for it.
    pub fn end_forced<'a>(&self, over: impl Iterator<Item = (DirectTag, &'a mut Option<Forced>)>) {
        let mut state = self.shared.lock();
        state.now = clock::now();
        for (tag, forced) in over {
            *forced = Some(state.cache.end_forced(tag));
        }
        state.come_by();
    }

    /// Whether a forced write is on the medium; `None` while that is not known. Looks at the device, and does not wait.
    pub fn forced(&self, forced: Forced) -> Option<Result<(), IoError>> {
        let mut state = self.shared.lock();
        state.now = clock::now();
        state.come_by();
        state.cache.forced(forced)
    }

    /// Waits until a forced write is on the medium.
    pub fn wait_forced(&self, forced: Forced) -> Result<(), BufferedError> {
        self.shared.wait_forced(forced)
    }

    /// A direct I/O has completed whose promise was kept open.
    pub fn end_direct(&self, tag: Option<DirectTag>) {
        drop(Beside { shared: &self.shared, tag });
    }
}

impl Beside<'_> {
    /// The volume could not be cut off at `short_bytes`, and ends at `old_bytes` as before.
    fn fail_truncate(&mut self, short_bytes: u64, old_bytes: u64) {
        let Some(tag) = self.tag.take() else { return };
        let mut state = self.shared.lock();
        state.now = clock::now();
        state.cache.fail_truncate(tag, IoError::Os(libc::EIO));
        // Pages read meanwhile hold zeroes past the nearer end. Reads that have seen them are repeated.
        let first = Page(short_bytes / state.place.page_bytes);
        state.cache.invalidate(PageRange::between(first, Page::MAX));
        self.shared.failed_resizes.fetch_add(1, Release);
        self.shared.set_size_in(&mut state, old_bytes);
        state.settle();
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        let Some(tag) = self.tag else { return };
        let mut state = self.shared.lock();
        state.now = clock::now();
        state.cache.end_direct(tag);
        state.settle();
    }
}

impl Shared {
    fn wait_forced(&self, forced: Forced) -> Result<(), BufferedError> {
        let mut state = self.lock();
        let waiter = state.enlist();
        state.cache.await_forced(forced, waiter as u64);
        self.finish(state, waiter)
    }

    fn begin<'a>(
        &'a self,
        mut state: Locked<'a>,
        waiter: usize,
        step: DirectStep,
    ) -> Result<Beside<'a>, BufferedError> {
        state.now = clock::now();
        if let DirectStep::Go(tag) = step {
            state.waiters.remove(waiter);
            state.settle();
            return Ok(Beside { shared: self, tag: Some(tag) });
        }
        state.settle();
        match self.wait(state, waiter)?.1 {
            Outcome::Direct(tag) => Ok(Beside { shared: self, tag: Some(tag) }),
            Outcome::Failed(error) => Err(error.into()),
            other => unreachable!("a direct I/O is told {other:?}"),
        }
    }

    fn set_size(&self, size_bytes: u64) {
        self.set_size_in(&mut self.lock(), size_bytes);
    }

    fn set_size_in(&self, state: &mut State, size_bytes: u64) {
        if state.place.size_bytes == size_bytes {
            return;
        }
        state.place.size_bytes = size_bytes;
        state.place.resizes += 1;
        let (sectors, end) = (state.place.sectors(), state.place.end());
        state.runner.set_capacity(sectors);
        state.readahead.set_end(end);
        self.size_bytes.store(size_bytes, Release);
    }
}
