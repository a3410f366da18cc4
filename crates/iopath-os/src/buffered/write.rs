//! Writes: pages are taken under the lock, a few at a time, filled without it, and given back under it.

use std::time::Duration;

use arrayvec::ArrayVec;
use iopath_core::cache::{Frame, Outcome, Part, WriteStep};
use iopath_core::{IoError, Page, PageRange};

use super::wait::Locked;
use super::{Buffered, BufferedError, Shared};
use crate::clock;

/// So many pages are taken at a time.
const HELD_MAX: usize = 32;

/// A pause shorter than this is put off: falling asleep and waking up cost more.
const PAUSE_MIN: Duration = Duration::from_millis(1);

impl Buffered {
    /// Copies all of `bytes` into the cache, from byte `offset` on. It reaches the device by write-back, and the
    /// medium with the next flush. Slowed when too much is dirty.
    ///
    /// # Errors
    /// [`IoError::EndOfDevice`] if it reaches past the end of the volume. On any error a first part may be written.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), BufferedError> {
        // From here on the place of each of the bytes is a number.
        offset.checked_add(bytes.len() as u64).ok_or(IoError::EndOfDevice)?;
        self.start_flusher();
        let shared = &*self.shared;
        let mut write = Write { shared, bytes, offset, begun: 0, is_streamed: false, held: ArrayVec::new() };
        let mut state = shared.lock();
        loop {
            let waiter = write.take_pages(&mut state)?;
            drop(state);
            write.fill();
            state = shared.lock();
            write.release(&mut state);
            if let Some(waiter) = waiter {
                let (locked, outcome) = shared.wait(state, waiter)?;
                state = locked;
                write.go_on(outcome)?;
            } else if write.begun == bytes.len() {
                break;
            }
        }
        let debt = std::mem::take(&mut state.debt);
        if debt < PAUSE_MIN {
            state.debt = debt;
        } else {
            drop(shared.pay(state, debt));
        }
        Ok(())
    }
}

/// A write that is in flight.
struct Write<'a> {
    shared: &'a Shared,
    bytes: &'a [u8],
    offset: u64,
    /// How many of the bytes have a place: they are written, or their pages held.
    begun: usize,
    /// What is held goes on a stream: the device will want it before the processor does.
    is_streamed: bool,
    /// Pages that the writer holds.
    held: ArrayVec<Piece, HELD_MAX>,
}

/// A part of the bytes, and the page that they go to.
#[derive(Debug, Clone, Copy)]
struct Piece {
    frame: Frame,
    /// The page must be copied from this frame first, which is pinned.
    copy_from: Option<Frame>,
    /// Where in the page, in bytes.
    to: usize,
    /// Which of the writer's bytes.
    start: usize,
    end: usize,
    /// What follows in the page is not of the volume, or was never read: zeroes.
    is_rest_zero: bool,
}

impl Write<'_> {
    /// Takes pages until all have a place, as many are held as may be, or one has to be waited for: then the waiter.
    fn take_pages(&mut self, state: &mut Locked<'_>) -> Result<Option<usize>, BufferedError> {
        let waiter = state.enlist();
        let (page, _) = self.shared.locate(self.offset + self.begun as u64);
        self.is_streamed = state.cache.is_streamed(page);
        while self.begun < self.bytes.len() && !self.held.is_full() {
            let Some((page, part, piece)) = self.next_piece(state.place.size_bytes) else {
                state.waiters.remove(waiter);
                // The volume has shrunk. What is held is written; the rest has no place.
                return if self.held.is_empty() { Err(IoError::EndOfDevice.into()) } else { Ok(None) };
            };
            match state.cache.begin_write(page, part, waiter as u64) {
                WriteStep::Into(frame) => self.hold(Piece { frame, ..piece }),
                WriteStep::Copy { from, to } => {
                    self.hold(Piece { frame: to, copy_from: Some(from), ..piece });
                }
                WriteStep::Wait => {
                    if part == Part::Some {
                        state.cache.take_mark(page);
                    }
                    state.now = clock::now();
                    state.settle();
                    return Ok(Some(waiter));
                }
            }
        }
        state.waiters.remove(waiter);
        if self.is_streamed {
            // What the next write will most likely ask for, if it is like this one; the copy comes first.
            let (next, _) = self.shared.locate(self.offset + self.begun as u64);
            PageRange::new(next, self.held.len() as u64).iter().for_each(|page| state.cache.prefetch(page));
        }
        Ok(None)
    }

    /// What comes next, without its frame; `None` past the end.
    fn next_piece(&self, size_bytes: u64) -> Option<(Page, Part, Piece)> {
        let page_bytes = self.shared.page_bytes;
        let at = self.offset + self.begun as u64;
        let (page, to) = self.shared.locate(at);
        let bytes = (self.bytes.len() - self.begun).min(page_bytes - to);
        let end = at + bytes as u64;
        if end > size_bytes {
            return None;
        }
        let is_whole = to == 0 && (bytes == page_bytes || end == size_bytes);
        let (start, end_of_piece) = (self.begun, self.begun + bytes);
        let piece =
            Piece { frame: Frame(0), copy_from: None, to, start, end: end_of_piece, is_rest_zero: is_whole };
        Some((page, if is_whole { Part::Whole } else { Part::Some }, piece))
    }

    fn hold(&mut self, piece: Piece) {
        self.begun = piece.end;
        self.held.push(piece);
    }

    /// Copies into the pages that are held. Without the lock.
    fn fill(&mut self) {
        let arena = &self.shared.arena;
        for piece in &mut self.held {
            if let Some(from) = piece.copy_from.take() {
                // SAFETY: `from` is pinned, and the frame is held by this writer, nobody else looks at it.
                unsafe { arena.copy_in(piece.frame, 0, arena.bytes(from, 0, arena.page_bytes())) };
                self.shared.unpin(from);
            }
            if piece.is_rest_zero {
                // SAFETY: held by this writer, so nobody else looks at it.
                unsafe { arena.zero(piece.frame, piece.to + piece.end - piece.start) };
            }
        }
        // Frames that lie side by side are filled in one go: long copies are done better than short ones.
        let is_next = |a: &Piece, b: &Piece| arena.is_followed_by(a.frame, b.frame);
        for run in self.held.chunk_by(is_next) {
            let (first, last) = (&run[0], &run[run.len() - 1]);
            let bytes = &self.bytes[first.start..last.end];
            // SAFETY: as above, for all of the run, each frame of which is followed by the next.
            unsafe {
                if self.is_streamed {
                    arena.stream_into_run(first.frame, first.to, bytes);
                } else {
                    arena.copy_into_run(first.frame, first.to, bytes);
                }
            }
        }
    }

    fn release(&mut self, state: &mut Locked<'_>) {
        if self.held.is_empty() {
            return;
        }
        state.now = clock::now();
        for piece in self.held.drain(..) {
            let now = state.now;
            let pause = state.cache.end_write(piece.frame, now);
            state.debt += pause;
        }
        state.wake_flusher();
        state.come_by();
    }

    /// What the writer has waited for is there, or not.
    fn go_on(&mut self, outcome: Outcome) -> Result<(), BufferedError> {
        match outcome {
            Outcome::Writable(frame) => {
                let next = self.next_piece(u64::MAX);
                let (_, _, piece) = next.expect("a writer waits for the page of its next bytes");
                self.hold(Piece { frame, ..piece });
                Ok(())
            }
            Outcome::Retry => Ok(()),
            Outcome::Failed(error) => Err(error.into()),
            other => unreachable!("a writer is told {other:?}"),
        }
    }
}
