//! Page I/Os between the cache and the queue. Splits each into bios, one for each run of adjacent frames, and counts
//! them until the last has completed. `cache/io.rs` decides which pages are read or written.

use super::{BufferedPath, Frames, Geometry};
use crate::block::bio::Op;
use crate::block::queue::SubmitError;
use crate::error::IoError;
use crate::file::cache::{Frame, IoTag, PageIo};
use crate::memory::Memory;
use crate::sector::Extent;
use crate::time::Instant;

/// The next action of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<M> {
    /// Submit a bio to the queue. If the queue refuses it, call [`BufferedPath::handle_refused`]. When it has
    /// completed, call [`BufferedPath::handle_completion`]. Unplug the queue when there are no more steps.
    Submit(PageBio<M>),
    /// Zero `frame` from byte `from` to its end, before the next step.
    Zero {
        /// A frame of a read. The device fills the bytes before `from`.
        frame: Frame,
        /// The first byte past the end of the device.
        from: usize,
    },
    /// Before the next step, write the bytes after the last whole block of the volume, since direct I/O cannot write
    /// them. Pass the outcome to [`BufferedPath::handle_completion`].
    WriteTail {
        /// For the completion.
        tag: IoTag,
        /// The frame of the bytes.
        frame: Frame,
        /// The position of the first byte in the frame.
        from: usize,
        /// The number of bytes.
        bytes: usize,
        /// Their offset in the volume.
        offset: u64,
    },
}

/// One bio of a page I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageBio<M> {
    /// Identifies the page I/O, also in completions. All bios of an I/O have the same tag.
    pub tag: IoTag,
    /// [`Op::Read`], [`Op::Write`] or [`Op::Flush`].
    pub op: Op,
    /// The sectors; none for a flush.
    pub extent: Extent,
    /// The memory; `None` for a flush.
    pub memory: Option<M>,
}

/// A page I/O that has not completed.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlight {
    op: Op,
    bytes: u64,
    /// Bios and tail writes that have not completed.
    pub(super) pieces_left: u32,
    /// The first error.
    error: Option<IoError>,
    /// [`BufferedPath::resizes`] when it started.
    resizes: u64,
}

impl InFlight {
    const NONE: Self = Self { op: Op::Flush, bytes: 0, pieces_left: 0, error: None, resizes: 0 };
}

/// Work that the driver has not polled yet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Queued<M> {
    Step(Step<M>),
    /// The completion of an I/O without a piece: all of its pages lie past the end of the device.
    Complete(IoTag),
}

impl<F: Frames> BufferedPath<F> {
    /// The next step, in the order of execution.
    pub fn poll_step(&mut self, now: Instant) -> Option<Step<F::Memory>> {
        if self.is_queue_full {
            return None;
        }
        loop {
            match self.queued.pop_front() {
                Some(Queued::Step(step)) => return Some(step),
                Some(Queued::Complete(tag)) => self.finish(tag, now),
                None => {
                    let Some(io) = self.cache.poll_io(now) else {
                        self.report_evicted();
                        return None;
                    };
                    self.start(io, now);
                }
            }
        }
    }

    /// The queue has refused a bio of [`Step::Submit`]. If the queue is full, a later step submits the bio again after
    /// a completion or [`BufferedPath::handle_room`]. Any other refusal is an error of the page I/O: the device is
    /// shorter than the extent, or does not support the operation.
    pub fn handle_refused(&mut self, bio: PageBio<F::Memory>, why: &SubmitError<F::Memory>, now: Instant) {
        if matches!(why, SubmitError::QueueFull(_)) {
            self.queued.push_front(Queued::Step(Step::Submit(bio)));
            self.is_queue_full = true;
            return;
        }
        let error = if bio.op == Op::Flush { IoError::Unsupported } else { IoError::EndOfDevice };
        self.handle_completion(bio.tag, Err(error), now);
    }

    /// A bio of [`Step::Submit`], a [`Step::WriteTail`] or an [`InlineIo`](super::InlineIo) has completed.
    ///
    /// # Panics
    /// If the page I/O has no piece in flight: a bug of the caller.
    pub fn handle_completion(&mut self, tag: IoTag, result: Result<(), IoError>, now: Instant) {
        self.is_queue_full = false;
        let io = self.slot(tag);
        assert!(io.pieces_left > 0, "{tag:?} has completed before: {io:?}");
        io.error = io.error.or(result.err());
        io.pieces_left -= 1;
        if io.pieces_left == 0 {
            self.finish(tag, now);
        }
    }

    /// A bio that is not of the cache has left the queue. If the queue was full, it has room for a bio of the cache.
    pub const fn handle_room(&mut self) {
        self.is_queue_full = false;
    }

    /// Whether a write of the cache is in flight.
    pub const fn is_writing(&self) -> bool {
        self.writes_in_flight > 0
    }

    /// Adds an I/O to the table, and queues its pieces.
    pub(super) fn start(&mut self, io: PageIo, now: Instant) {
        let slot = io.tag.0 as usize;
        if self.in_flight.len() <= slot {
            self.in_flight.resize(slot + 1, InFlight::NONE);
        }
        let bytes = io.pages.pages() * u64::from(self.geometry.page_bytes);
        self.in_flight[slot] = InFlight { op: io.op, bytes, resizes: self.resizes, ..InFlight::NONE };
        match io.op {
            Op::Read => self.readahead.on_issued(bytes, now),
            Op::Write => self.writes_in_flight += 1,
            _ => {}
        }
        if io.op == Op::Flush {
            let flush = PageBio { tag: io.tag, op: io.op, extent: Extent::EMPTY, memory: None };
            self.queued.push_back(Queued::Step(Step::Submit(flush)));
            self.in_flight[slot].pieces_left = 1;
        } else {
            self.queue_transfer(io);
        }
        if self.in_flight[slot].pieces_left == 0 {
            self.queued.push_back(Queued::Complete(io.tag));
        }
    }

    /// Queues a bio for each run of adjacent frames, up to the end of the device.
    fn queue_transfer(&mut self, io: PageIo) {
        let Self { cache, frames, geometry, queued, .. } = self;
        let before = queued.len();
        let page_bytes = u64::from(geometry.page_bytes);
        let end = geometry.end_of(io.op);
        let bio_of = |(offset, memory): (u64, F::Memory)| {
            let extent = Extent::from_bytes(offset, memory.bytes()).expect("pages are whole sectors");
            Step::Submit(PageBio { tag: io.tag, op: io.op, extent, memory: Some(memory) })
        };
        let mut run: Option<(u64, F::Memory)> = None;
        for (frame, page) in cache.frames_of(io.tag).zip(io.pages.iter()) {
            let offset = page.0 * page_bytes;
            let bytes = end.saturating_sub(offset).min(page_bytes);
            if bytes < page_bytes {
                // Before the bio of the same page. A tail is written through the kernel's page cache, which reports a
                // concurrent direct write of its page as corruption.
                let past_end = geometry.past_end(io, frame, offset, bytes);
                queued.extend(past_end.map(Queued::Step));
            }
            if bytes == 0 {
                continue;
            }
            let memory = frames.memory(frame, bytes);
            match run.map(|(start, head)| (start, head, head.join(memory))) {
                None => run = Some((offset, memory)),
                Some((start, _, Some(joined))) => run = Some((start, joined)),
                Some((start, head, None)) => {
                    queued.push_back(Queued::Step(bio_of((start, head))));
                    run = Some((offset, memory));
                }
            }
        }
        queued.extend(run.map(bio_of).map(Queued::Step));
        let completes = |queued: &&Queued<F::Memory>| !matches!(queued, Queued::Step(Step::Zero { .. }));
        self.in_flight[io.tag.0 as usize].pieces_left =
            self.queued.range(before..).filter(completes).count() as u32;
    }

    /// All pieces of an I/O have completed.
    fn finish(&mut self, tag: IoTag, now: Instant) {
        self.completed_ios += 1;
        let InFlight { op, bytes, error, resizes, .. } = *self.slot(tag);
        self.writes_in_flight -= u32::from(op == Op::Write);
        if op == Op::Read {
            let moved = if error.is_none() { bytes } else { 0 };
            self.readahead.on_completed(bytes, moved, now);
        }
        // A read that was in flight while the end of the volume moved may fail at the new end.
        if op == Op::Read && error == Some(IoError::EndOfDevice) && resizes != self.resizes {
            self.cache.handle_cut_off(tag);
        } else {
            self.cache.handle_completion(tag, error.map_or(Ok(()), Err), now);
        }
    }

    /// Pages that were read ahead and evicted unused shrink the window of their stream.
    fn report_evicted(&mut self) {
        while let Some(page) = self.cache.poll_evicted_unused() {
            self.readahead.on_evicted_unused(page);
        }
    }
}

impl Geometry {
    /// The step for a page of which only the first `bytes` bytes are on the device.
    fn past_end<M>(&self, io: PageIo, frame: Frame, offset: u64, bytes: u64) -> Option<Step<M>> {
        let from = bytes as usize;
        if io.op == Op::Read {
            return Some(Step::Zero { frame, from });
        }
        let offset = offset + bytes;
        let tail_bytes = self.size_bytes.saturating_sub(offset).min(u64::from(self.page_bytes) - bytes);
        let tail = Step::WriteTail { tag: io.tag, frame, from, bytes: tail_bytes as usize, offset };
        (tail_bytes > 0).then_some(tail)
    }
}
