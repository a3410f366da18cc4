//! Direct I/O beside the cache, and a volume that changes its size. What waits for what is
//! `iopath_core::cache::direct`; the direct I/O itself is the caller's.

use iopath_core::cache::{DirectStep, DirectTag, Outcome};
use iopath_core::{IoError, Op, Page, PageRange};

use super::wait::Locked;
use super::{Buffered, BufferedError, Shared};
use crate::clock;
use crate::sync::atomic::Ordering::{Acquire, Release};

/// A direct I/O that may go: the device holds what was written through the cache. Until this is dropped, which is to be
/// when the I/O is over and before anyone is told, writers to the pages of what it writes wait.
#[derive(Debug)]
pub struct Beside<'a> {
    shared: &'a Shared,
    /// `None` for a read with nothing to wait for.
    tag: Option<DirectTag>,
}

impl Buffered {
    /// A direct I/O on `bytes` bytes from byte `offset` on is to begin. Fails if what is dirty there cannot be written
    /// back; of what is to be discarded, whole pages are not: they are given up, errors included.
    pub fn begin_direct(&self, op: Op, offset: u64, bytes: u64) -> Result<Beside<'_>, BufferedError> {
        let shared = &*self.shared;
        if op == Op::Flush || (op == Op::Read && shared.hot.is_clean()) {
            return Ok(Beside { shared, tag: None });
        }
        let pages = PageRange::touched_by(offset, bytes, shared.page_bytes as u32);
        let mut state = shared.lock();
        if op == Op::Discard {
            let page_bytes = shared.page_bytes as u64;
            let (first, end) = (offset.div_ceil(page_bytes), (offset + bytes) / page_bytes);
            state.cache.discard(PageRange::new(Page(first), end.saturating_sub(first)));
        }
        let waiter = state.enlist();
        let step = state.cache.begin_direct(op, pages, waiter as u64);
        shared.begin(state, waiter, step)
    }

    /// The volume ends at `size_bytes` from now on: `resize` makes it so. Pages past the end are given up.
    ///
    /// One thread at a time; reads and writes may go on.
    pub fn resize<E>(
        &self,
        size_bytes: u64,
        resize: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<(), E>, BufferedError> {
        let shared = &*self.shared;
        let page_bytes = shared.page_bytes as u64;
        // The page that is cut inside, or was when the volume grows, goes to the device whole and comes back from
        // there, with zeroes at its end.
        let kept_bytes = size_bytes.min(shared.size_bytes.load(Acquire));
        let _cut = match kept_bytes % page_bytes {
            0 => None,
            _ => Some(self.begin_direct(Op::WriteZeroes, kept_bytes, 1)?),
        };
        let mut state = shared.lock();
        let waiter = state.enlist();
        let step = state.cache.begin_truncate(Page(size_bytes.div_ceil(page_bytes)), waiter as u64);
        let _past_end = shared.begin(state, waiter, step)?;
        let resized = resize();
        if resized.is_ok() {
            shared.set_size(size_bytes);
        }
        Ok(resized)
    }
}

impl Beside<'_> {
    /// Keeps the promise open beyond the borrow of the cache: to be given to [`Buffered::end_direct`].
    pub fn into_tag(mut self) -> Option<DirectTag> {
        self.tag.take()
    }
}

impl Buffered {
    /// The device could not be flushed for a direct I/O: what it took from the cache may be lost as well.
    pub fn handle_failed_flush(&self, error: IoError) {
        let mut state = self.shared.lock();
        state.now = clock::now();
        let now = state.now;
        state.cache.handle_failed_flush(error, now);
        state.wake_flusher();
        state.settle();
    }

    /// A direct I/O is over whose promise was kept open.
    pub fn end_direct(&self, tag: Option<DirectTag>) {
        drop(Beside { shared: &self.shared, tag });
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
        let mut state = self.lock();
        state.place.size_bytes = size_bytes;
        let (sectors, end) = (state.place.sectors(), state.place.end());
        state.runner.ending_at(sectors);
        state.readahead.set_end(end);
        self.size_bytes.store(size_bytes, Release);
    }
}
