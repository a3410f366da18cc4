//! Reads that the calling thread performs itself, by a system call of its own, past the queue. Takes such a read out of
//! the steps; whether a read may pass the queue is for the driver to decide.

use super::in_flight::Queued;
use super::{BufferedPath, Frames, Step};
use crate::block::bio::Op;
use crate::file::cache::IoTag;
use crate::file::page::Page;
use crate::sector::Extent;
use crate::time::Instant;
use arrayvec::ArrayVec;

/// A read of adjacent pages, and the memory of their frames. When the caller has carried it out, the outcome
/// of the whole goes to [`BufferedPath::handle_completion`].
#[derive(Debug)]
pub struct InlineRead<M, const SEGMENTS_MAX: usize> {
    /// Names the page I/O.
    pub tag: IoTag,
    /// The sectors.
    pub extent: Extent,
    /// The memory, in the order of the sectors.
    pub segments: ArrayVec<M, SEGMENTS_MAX>,
}

impl<F: Frames> BufferedPath<F> {
    /// Starts I/O up to the read of `page`, and takes that read out of the steps for the caller to carry out, unless it
    /// has more segments than that or is not to be started now. The other steps must be carried out before.
    ///
    /// While the queue is full it takes none: [`BufferedPath::poll_step`] returns no step then, and the frame of the last
    /// page would not be zeroed behind the end of the volume before the read completes.
    pub fn take_inline_read<const SEGMENTS_MAX: usize>(
        &mut self,
        page: Page,
        now: Instant,
    ) -> Option<InlineRead<F::Memory, SEGMENTS_MAX>> {
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

    /// Takes the bios of the I/O that was queued last out of the queue, which had `before` entries before.
    fn take_queued<const SEGMENTS_MAX: usize>(
        &mut self,
        tag: IoTag,
        before: usize,
    ) -> Option<InlineRead<F::Memory, SEGMENTS_MAX>> {
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
        // Its other steps zero frames. They come first: the queue may refuse a bio of an earlier I/O, and no step behind
        // that bio would be carried out before the read.
        for _ in before..self.queued.len() {
            let Some(queued) = self.queued.pop_back() else { break };
            if !matches!(queued, Queued::Step(Step::Submit(_))) {
                self.queued.push_front(queued);
            }
        }
        // One completion stands for all of them.
        self.slot(tag).pieces_left = 1;
        Some(InlineRead { tag, extent, segments })
    }
}
