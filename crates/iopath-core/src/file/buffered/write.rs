//! Writes of any bytes. Takes pages for them, a few at a time; the caller fills and releases the pages.
//!
//! ```text
//!   take_pages ─┬─▶ Fill: the caller fills the pieces ──▶ release_pages ──▶ take_pages
//!               ├─▶ Wait: outcome ──▶ handle_outcome ─────────────────────▶ take_pages
//!               └─▶ Done
//! ```
//!
//! A writer releases its pages before it waits, so two writers cannot wait for each other.

use super::{BufferedPath, Frames, Geometry};
use crate::error::IoError;
use crate::file::cache::{Frame, Outcome, Part, WriteStep};
use crate::file::page::{Page, PageRange};
use crate::time::{Duration, Instant};
use arrayvec::ArrayVec;
use std::ops::Range;

/// The maximum number of pages that a writer holds at a time.
const PIECES_MAX: usize = 32;

/// Shorter pauses accumulate, since to fall asleep and wake up costs more than such a pause.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// A write in progress.
#[derive(Debug)]
pub struct BufferedWrite {
    offset: u64,
    bytes: usize,
    /// The number of bytes that have pages: they are written, or the writer holds their pages.
    taken: usize,
    /// The end of the volume after the write, if the write moves it.
    new_end: Option<u64>,
    /// The number of failed device flushes when the bytes of an append may first have reached the device.
    failures: u64,
    is_streamed: bool,
    /// The writer waits for the next page.
    is_waiting: bool,
    /// The outcome of the wait, until the next [`BufferedPath::take_pages`].
    outcome: Option<Outcome>,
    pieces: ArrayVec<WritePiece, PIECES_MAX>,
}

/// A part of the bytes, and the page for them.
#[derive(Debug, Clone, Copy)]
pub struct WritePiece {
    /// The frame. No other thread accesses it until [`BufferedPath::release_pages`].
    pub frame: Frame,
    /// If set: first copy the whole page from this frame, and unpin this frame.
    pub copy_from: Option<Frame>,
    /// The position of the bytes in the page.
    pub to: usize,
    /// The position of the bytes in the write.
    pub start: usize,
    /// The end of the bytes in the write.
    pub end: usize,
    /// Zero the rest of the page after the bytes: it lies past the end of the volume.
    pub is_rest_zero: bool,
}

/// The next action of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeStep {
    /// Fill the pieces, then call [`BufferedPath::release_pages`]. If the writer waits meanwhile
    /// ([`BufferedWrite::is_waiting`]), its I/O overlaps with the copy.
    Fill,
    /// Wait until [`BufferedPath::poll_ready`] names the waiter. Pass the outcome to
    /// [`BufferedWrite::handle_outcome`].
    Wait,
    /// All bytes are in the cache.
    Done {
        /// The pause of the writer, which slows writers down to the speed of the device.
        pause: Option<Duration>,
    },
}

impl BufferedWrite {
    /// A write of `bytes` bytes from byte `offset` on.
    ///
    /// # Errors
    /// [`IoError::EndOfDevice`] if the write ends past the highest offset.
    pub fn new(offset: u64, bytes: usize) -> Result<Self, IoError> {
        offset.checked_add(bytes as u64).ok_or(IoError::EndOfDevice)?;
        Ok(Self {
            offset,
            bytes,
            taken: 0,
            new_end: None,
            failures: 0,
            is_streamed: false,
            is_waiting: false,
            outcome: None,
            pieces: ArrayVec::new(),
        })
    }

    /// A write that moves the end of the volume to its own end, and whose bytes the caller brings to the device itself:
    /// see [`BufferedPath::begin_append`]. The offset is the end of the volume, which nothing else moves meanwhile.
    ///
    /// # Errors
    /// Returns the errors of [`BufferedWrite::new`].
    pub fn appending(offset: u64, bytes: usize) -> Result<Self, IoError> {
        let write = Self::new(offset, bytes)?;
        Ok(Self { new_end: Some(offset + bytes as u64), ..write })
    }

    /// The pages that the writer holds.
    pub fn pieces(&self) -> &[WritePiece] {
        &self.pieces
    }

    /// The pages that the writer holds, to fill them.
    pub fn pieces_mut(&mut self) -> &mut [WritePiece] {
        &mut self.pieces
    }

    /// The bytes that are written, or whose pages the writer holds.
    pub const fn taken(&self) -> usize {
        self.taken
    }

    /// Whether the write continues a stream of new pages: the device will read the bytes before the processor does.
    pub const fn is_streamed(&self) -> bool {
        self.is_streamed
    }

    /// Whether the writer waits for the next page. [`BufferedPath::poll_ready`] may name the waiter while the writer
    /// still fills earlier pages.
    pub const fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// The outcome of the wait is known.
    ///
    /// # Panics
    /// If the writer does not wait: a bug of the caller.
    pub fn handle_outcome(&mut self, outcome: Outcome) {
        let earlier = self.outcome.replace(outcome);
        assert!(self.is_waiting && earlier.is_none(), "a writer gets {outcome:?} after {earlier:?}");
    }

    /// The range of its bytes that the writer holds pages for.
    fn held_bytes(&self) -> Option<Range<usize>> {
        Some(self.pieces.first()?.start..self.pieces.last()?.end)
    }

    const fn is_all_taken(&self) -> bool {
        self.taken == self.bytes
    }

    /// The next bytes that need a page; the frame is filled in later.
    fn next_piece(&self, geometry: &Geometry) -> Result<(Page, Part, WritePiece), IoError> {
        let at = self.offset + self.taken as u64;
        let (page, to) = geometry.locate(at);
        let page_bytes = geometry.page_bytes as usize;
        let bytes = (self.bytes - self.taken).min(page_bytes - to);
        let end = at + bytes as u64;
        let size_bytes = geometry.size_bytes.max(self.new_end.unwrap_or(0));
        if end > size_bytes {
            return Err(IoError::EndOfDevice);
        }
        let is_whole = to == 0 && (bytes == page_bytes || end == size_bytes);
        let piece = WritePiece {
            frame: Frame(0),
            copy_from: None,
            to,
            start: self.taken,
            end: self.taken + bytes,
            is_rest_zero: is_whole,
        };
        Ok((page, if is_whole { Part::Whole } else { Part::Some }, piece))
    }

    fn hold(&mut self, piece: WritePiece) {
        self.taken = piece.end;
        self.pieces.push(piece);
    }
}

impl<F: Frames> BufferedPath<F> {
    /// The next action of the writer. Takes pages until all bytes have pages, the writer holds the maximum number of
    /// pages, or the writer must wait for a page.
    ///
    /// # Errors
    /// [`IoError::EndOfDevice`] if the next byte is past the end of the volume. The page could not be read, or dirty
    /// pages that cannot be written back leave no room for it. A first part of the bytes may have been written.
    ///
    /// # Panics
    /// If the writer still holds pages, or gets the outcome of another kind of call: a bug of the caller.
    pub fn take_pages(&mut self, write: &mut BufferedWrite, waiter: u64) -> Result<TakeStep, IoError> {
        assert!(write.pieces.is_empty(), "a writer takes pages before it releases {:?}", write.pieces);
        if write.is_waiting {
            let Some(outcome) = write.outcome.take() else { return Ok(TakeStep::Wait) };
            write.is_waiting = false;
            self.take_outcome(write, outcome)?;
        }
        if write.is_all_taken() && write.pieces.is_empty() {
            return Ok(TakeStep::Done { pause: self.take_pause() });
        }
        let (first, _) = self.geometry.locate(write.offset + write.taken as u64);
        write.is_streamed = self.cache.is_streamed(first);
        while !write.is_all_taken() && !write.pieces.is_full() {
            let (page, part, piece) = match write.next_piece(&self.geometry) {
                Ok(next) => next,
                // The volume has shrunk. The writer fills the pages that it holds; the rest is refused.
                Err(_) if !write.pieces.is_empty() => return Ok(TakeStep::Fill),
                Err(error) => return Err(error),
            };
            match self.cache.begin_write(page, part, waiter) {
                WriteStep::Into(frame) => write.hold(WritePiece { frame, ..piece }),
                WriteStep::Copy { from, to } => {
                    write.hold(WritePiece { frame: to, copy_from: Some(from), ..piece });
                }
                WriteStep::Wait => {
                    if part == Part::Some {
                        self.cache.take_mark(page);
                    }
                    write.is_waiting = true;
                    return Ok(if write.pieces.is_empty() { TakeStep::Wait } else { TakeStep::Fill });
                }
            }
        }
        if write.is_streamed {
            // The next write of the stream will probably need this page. The copy of the current write overlaps the
            // prefetch.
            let (next, _) = self.geometry.locate(write.offset + write.taken as u64);
            let pages = PageRange::new(next, write.pieces.len() as u64);
            pages.iter().for_each(|page| self.cache.prefetch(page));
        }
        Ok(TakeStep::Fill)
    }

    /// Continues after [`TakeStep::Wait`], with the outcome of the wait.
    fn take_outcome(&self, write: &mut BufferedWrite, outcome: Outcome) -> Result<(), IoError> {
        match outcome {
            Outcome::Writable(frame) => {
                // The end may have moved. That does not concern a page that the writer already holds.
                let (_, _, piece) = write.next_piece(&Geometry { size_bytes: u64::MAX, ..self.geometry })?;
                write.hold(WritePiece { frame, ..piece });
                Ok(())
            }
            Outcome::Retry => Ok(()),
            Outcome::Failed(error) | Outcome::Unwritable { source: error, .. } => Err(error),
            other => unreachable!("the outcome of a write is {other:?}"),
        }
    }

    /// Releases the filled pages of the writer; they become dirty.
    pub fn release_pages(&mut self, write: &mut BufferedWrite, now: Instant) {
        for piece in write.pieces.drain(..) {
            self.pause_owed += self.cache.end_write(piece.frame, now);
        }
    }

    /// Whether the caller may now write the bytes of an append to the device, past the queue, and which: those of the
    /// pages that the writer holds. Afterwards, call [`BufferedPath::end_append`], or [`BufferedPath::cancel_append`]
    /// if the device has refused them.
    ///
    /// Not while a write of the cache is in flight: an earlier version of one of these pages may be among them.
    pub fn begin_append(&self, write: &mut BufferedWrite) -> Option<Range<usize>> {
        if self.is_writing() {
            return None;
        }
        write.failures = self.cache.failures().1;
        write.held_bytes()
    }

    /// The device has the bytes of the pages that the writer holds, and the pages are filled. Moves the end of the
    /// volume behind these bytes, and releases the pages. They are clean, unless they were dirty before. Set the
    /// capacity of the queue afterwards.
    pub fn end_append(&mut self, write: &mut BufferedWrite, now: Instant) {
        let Some(Range { end, .. }) = write.held_bytes() else { return };
        self.extend(write.offset + end as u64);
        // A device flush that has failed meanwhile may have lost the bytes.
        let is_saved = self.cache.failures().1 == write.failures;
        for piece in write.pieces.drain(..) {
            if is_saved {
                self.cache.end_saved_write(piece.frame, now);
            } else {
                self.pause_owed += self.cache.end_write(piece.frame, now);
            }
        }
    }

    /// Releases the pages of an append that the caller has not filled, except for [`WritePiece::copy_from`]. They are
    /// as before the append, which has ended.
    pub fn cancel_append(&mut self, write: &mut BufferedWrite, now: Instant) {
        for piece in write.pieces.drain(..) {
            self.cache.cancel_write(piece.frame, now);
        }
        write.taken = write.bytes;
    }

    /// The writer of [`Outcome::Writable`] does not continue now. Its page is pinned until the writer unpins it and
    /// takes pages again. Other writers may write to the page meanwhile.
    pub fn abandon_write(&mut self, frame: Frame, now: Instant) {
        self.cache.abandon_write(frame, now);
    }

    fn take_pause(&mut self) -> Option<Duration> {
        (self.pause_owed >= PAUSE_MIN).then(|| std::mem::take(&mut self.pause_owed))
    }
}
