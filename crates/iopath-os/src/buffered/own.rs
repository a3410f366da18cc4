//! Reads that a thread carries out for itself. A miss that nothing is read ahead with is waited for by the thread that
//! missed and hardly ever by another: to hand it to the ring, and be woken by whoever waits for that, costs two switches
//! of threads that a plain read does not.
//!
//! Past the queue, so only where it has nothing to add: no elevator, no log, and no write at the device that the read
//! would have to wait for (rule 1 of the path).

use arrayvec::ArrayVec;
use iopath_core::cache::{IoTag, PageIo};
use iopath_core::{Extent, Memory, Op, Page};

use super::Shared;
use super::state::State;
use super::wait::Locked;
use crate::clock;
use crate::device::{OWN_SEGMENTS_MAX, read_now};
use crate::memory::Segment;

/// A read of pages, and the memory of their frames.
pub(super) struct OwnRead {
    tag: IoTag,
    extent: Extent,
    segments: ArrayVec<Segment, OWN_SEGMENTS_MAX>,
}

impl Shared {
    /// Hands over what the cache wants to be done, but for the read of `page`, which the calling thread does itself.
    pub(super) fn read_alone<'a>(&'a self, mut state: Locked<'a>, page: Page) -> Locked<'a> {
        let own = self.own_reads.as_ref().filter(|_| state.may_pass_the_queue());
        let Some((file, own)) = own.and_then(|file| Some((file, state.keep_read(page)?))) else {
            state.settle();
            return state;
        };
        state.settle();
        let (block, capacity) = (state.place.block_bytes, state.place.sectors());
        drop(state);
        let result = read_now(file, block, capacity, own.extent, &own.segments);
        let mut state = self.lock();
        state.now = clock::now();
        state.end_bio(own.tag, result);
        state.settle();
        state
    }
}

impl State {
    fn may_pass_the_queue(&self) -> bool {
        self.writes == 0 && self.runner.is_plain()
    }

    /// Hands over what the cache wants to be done up to the read of `page`, which it keeps back.
    fn keep_read(&mut self, page: Page) -> Option<OwnRead> {
        let (mut own, mut has_started) = (None, false);
        while own.is_none()
            && let Some(io) = self.cache.poll_io(self.now)
        {
            let memory = if io.op == Op::Read && io.pages.contains(page) { self.memory_of(io) } else { None };
            if let Some((extent, segments)) = memory {
                self.begin(io);
                own = Some(OwnRead { tag: io.tag, extent, segments });
            } else {
                self.start(io);
                has_started = true;
            }
        }
        if has_started {
            self.runner.submit();
        }
        own
    }

    /// The memory of a read, if it is in few pieces.
    fn memory_of(&mut self, io: PageIo) -> Option<(Extent, ArrayVec<Segment, OWN_SEGMENTS_MAX>)> {
        let runs = self.find_runs(io);
        let segments: ArrayVec<Segment, OWN_SEGMENTS_MAX> =
            runs.iter().map(|(_, memory)| *memory).take(OWN_SEGMENTS_MAX).collect();
        let is_all = (1..=OWN_SEGMENTS_MAX).contains(&runs.len());
        self.runs = runs;
        let bytes = segments.iter().map(Memory::bytes).sum();
        let offset = io.pages.start().0 * self.place.page_bytes;
        Some((Extent::from_bytes(offset, bytes).filter(|_| is_all)?, segments))
    }
}
