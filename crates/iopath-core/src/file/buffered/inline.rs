//! I/O that bypasses the queue: the calling thread performs it by a system call of its own. Removes such an I/O from
//! the steps. The driver decides whether I/O may bypass the queue.

use super::in_flight::Queued;
use super::{BufferedPath, Frames, Step};
use crate::block::bio::Op;
use crate::file::cache::IoTag;
use crate::file::page::Page;
use crate::sector::Extent;
use crate::time::Instant;
use arrayvec::ArrayVec;

/// A read or write of adjacent pages, and the memory of their frames. The caller executes it, and passes the outcome of
/// the whole to [`BufferedPath::handle_completion`].
#[derive(Debug)]
pub struct InlineIo<M, const SEGMENTS_MAX: usize> {
    /// Identifies the page I/O.
    pub tag: IoTag,
    /// The sectors.
    pub extent: Extent,
    /// The memory, in the order of the sectors.
    pub segments: ArrayVec<M, SEGMENTS_MAX>,
}

impl<F: Frames> BufferedPath<F> {
    /// Starts I/O up to the read of `page`. Removes that read from the steps and returns it, unless it has more than
    /// `SEGMENTS_MAX` segments or cannot start now. Execute the other steps first.
    ///
    /// Returns none while the queue is full. [`BufferedPath::poll_step`] returns no step then, so the frame of the last
    /// page would not be zeroed past the end of the volume before the read completes.
    pub fn take_inline_read<const SEGMENTS_MAX: usize>(
        &mut self,
        page: Page,
        now: Instant,
    ) -> Option<InlineIo<F::Memory, SEGMENTS_MAX>> {
        if self.is_queue_full {
            return None;
        }
        loop {
            let io = self.cache.poll_io(now)?;
            let before = self.queued.len();
            self.start(io, now);
            if io.op == Op::Read && io.pages.contains(page) {
                return self.take_queued(io.tag, before);
            }
        }
    }

    /// If the only I/O to be started now is one write, starts it. Removes it from the steps and returns it, unless it
    /// has more than `SEGMENTS_MAX` segments, or bytes after the last whole block.
    pub fn take_lone_write<const SEGMENTS_MAX: usize>(
        &mut self,
        now: Instant,
    ) -> Option<InlineIo<F::Memory, SEGMENTS_MAX>> {
        if self.is_queue_full || !self.queued.is_empty() {
            return None;
        }
        let io = self.cache.poll_io(now)?;
        self.start(io, now);
        if io.op != Op::Write {
            return None;
        }
        if let Some(next) = self.cache.poll_io(now) {
            // Both are at the device at the same time if the queue has them.
            self.start(next, now);
            return None;
        }
        let is_bio = |queued: &Queued<F::Memory>| matches!(queued, Queued::Step(Step::Submit(_)));
        if self.queued.iter().all(is_bio) { self.take_queued(io.tag, 0) } else { None }
    }

    /// Removes the bios of the last queued I/O. `before` is the number of entries before that I/O.
    fn take_queued<const SEGMENTS_MAX: usize>(
        &mut self,
        tag: IoTag,
        before: usize,
    ) -> Option<InlineIo<F::Memory, SEGMENTS_MAX>> {
        let bios = || {
            self.queued.range(before..).filter_map(|queued| match queued {
                Queued::Step(Step::Submit(bio)) => Some(*bio),
                _ => None,
            })
        };
        let (first, last) = (bios().next()?.extent, bios().last()?.extent);
        if bios().count() > SEGMENTS_MAX {
            return None;
        }
        let segments = bios().filter_map(|bio| bio.memory).collect();
        let extent = Extent::new(first.start(), last.end().0 - first.start().0)?;
        // The other steps of the read zero frames. They move to the front: if the queue refused a bio of an earlier
        // I/O, no step after that bio would be executed before the read.
        for _ in before..self.queued.len() {
            let Some(queued) = self.queued.pop_back() else { break };
            if !matches!(queued, Queued::Step(Step::Submit(_))) {
                self.queued.push_front(queued);
            }
        }
        // The caller reports one completion for all of them.
        self.slot(tag).pieces_left = 1;
        Some(InlineIo { tag, extent, segments })
    }
}
