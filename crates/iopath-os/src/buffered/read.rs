//! Reads: a hit for each page, or the wait for it.

use iopath_core::cache::{Frame, Lookup, Outcome};
use iopath_core::{IoError, Page, PageRange};

use super::{Buffered, BufferedError, Shared};
use crate::clock;

impl Buffered {
    /// Copies what is there from byte `offset` on into `buffer`, up to the end of the volume; how many bytes.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, BufferedError> {
        let shared = &*self.shared;
        let there = shared.size().saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..there];
        let (mut done, mut hits) = (0, 0);
        while done < there {
            let (frame, from, is_hit) = shared.pin(offset + done as u64, there - done)?;
            let bytes = (there - done).min(shared.page_bytes - from);
            // SAFETY: the frame is pinned until after the copy.
            buffer[done..done + bytes].copy_from_slice(unsafe { shared.arena.bytes(frame, from, bytes) });
            shared.unpin(frame);
            done += bytes;
            hits += u64::from(is_hit);
        }
        shared.hits.add(hits);
        Ok(there)
    }
}

impl Shared {
    /// Pins the page of byte `offset`, of which a read wants `bytes` bytes and those after. Its frame, where in it the
    /// byte is, and whether it was there.
    #[inline]
    pub(super) fn pin(&self, offset: u64, bytes: usize) -> Result<(Frame, usize, bool), BufferedError> {
        let page_bytes = self.page_bytes as u64;
        let from = (offset % page_bytes) as usize;
        if let Some(pinned) = self.hot.try_pin(Page(offset / page_bytes)) {
            if pinned.is_marked {
                self.reach_marker(PageRange::touched_by(offset, bytes as u64, page_bytes as u32));
            }
            return Ok((pinned.frame, from, true));
        }
        let range = PageRange::touched_by(offset, bytes as u64, page_bytes as u32);
        Ok((self.fault(range)?, from, false))
    }

    #[inline]
    pub(super) fn unpin(&self, frame: Frame) {
        if self.hot.unpin(frame) {
            self.feed_starved();
        }
    }

    #[cold]
    fn feed_starved(&self) {
        let mut state = self.lock();
        state.cache.handle_unpinned();
        state.settle();
    }

    /// Readahead goes on while the reader copies.
    #[cold]
    fn reach_marker(&self, range: PageRange) {
        let mut state = self.lock();
        state.now = clock::now();
        state.on_marker(range);
        if state.is_driven {
            state.settle();
        } else {
            state.collect();
        }
    }

    /// Waits for the first page of `range`, which is not there, and pins it.
    #[cold]
    fn fault(&self, range: PageRange) -> Result<Frame, BufferedError> {
        let page = range.start();
        let mut state = self.lock();
        if !state.is_driven {
            state.collect();
        }
        loop {
            let size = self.size();
            state.now = clock::now();
            let is_on_its_way = state.cache.is_cached(page);
            let waiter = state.enlist();
            if let Lookup::Hit(pinned) = state.cache.read(page, waiter as u64) {
                state.waiters.remove(waiter);
                if pinned.is_marked {
                    state.on_marker(range);
                    state.settle();
                }
                return Ok(pinned.frame);
            }
            if !is_on_its_way {
                state.on_miss(range);
            } else if state.cache.take_mark(page) {
                state.on_marker(range);
            }
            state.settle();
            let (locked, outcome) = self.wait(state, waiter)?;
            state = locked;
            match outcome {
                Outcome::Pinned(frame) => return Ok(frame),
                // The volume was cut off while the page was on its way: what is left of it is read again.
                Outcome::Failed(IoError::EndOfDevice) if self.size() != size => {}
                Outcome::Failed(error) => return Err(error.into()),
                Outcome::Retry => {}
                other => unreachable!("a reader is told {other:?}"),
            }
        }
    }
}
