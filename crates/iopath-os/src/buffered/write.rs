//! Writes: pages are taken under the lock, a few at a time, filled without it, and released under it.

use std::ops::ControlFlow;

use iopath_core::buffered::{BufferedWrite, TakeStep, WritePiece};
use iopath_core::{Duration, IoError};

use super::arena::Arena;
use super::wait::Locked;
use super::{Buffered, BufferedError, CacheShared};
use crate::clock;

impl Buffered {
    /// Copies all of `bytes` into the cache, from byte `offset` on. Write-back brings them to the device, and the next
    /// flush to the medium. Pauses when too many pages are dirty.
    ///
    /// # Errors
    /// [`IoError::EndOfDevice`](iopath_core::IoError::EndOfDevice) if the write extends past the end of the volume.
    /// After any error, a first part of the bytes may have been written.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), BufferedError> {
        let written = self.write_pages(bytes, offset);
        self.shared.start_flusher();
        written
    }

    fn write_pages(&self, bytes: &[u8], offset: u64) -> Result<(), BufferedError> {
        let mut write = BufferedWrite::new(offset, bytes.len())?;
        let shared = &*self.shared;
        let Taken { mut state, waiter, result } =
            shared.take_pages(shared.lock(), &mut write, |state, write| {
                drop(state);
                shared.fill(write, bytes);
                let mut state = shared.lock();
                state.release_pages(write);
                (state, ControlFlow::Continue(()))
            })?;
        state.waiters.remove(waiter);
        if let Some(pause) = result? {
            drop(shared.pause_writer(state, pause));
        }
        Ok(())
    }
}

/// The end of [`CacheShared::take_pages`]. The waiter is the caller's to remove.
pub(super) struct Taken<'a> {
    pub(super) state: Locked<'a>,
    pub(super) waiter: usize,
    /// The pause of the writer before its next write; none after a break.
    pub(super) result: Result<Option<Duration>, IoError>,
}

impl Locked<'_> {
    pub(super) fn release_pages(&mut self, write: &mut BufferedWrite) {
        let now = clock::now();
        self.path.release_pages(write, now);
        self.wake_flusher();
        self.poll(now);
    }
}

impl CacheShared {
    /// Takes the pages of a write, a few at a time. `fill` fills and releases those that the writer holds, and decides
    /// whether the write goes on.
    ///
    /// # Errors
    /// That of a wait, which has removed the waiter.
    pub(super) fn take_pages<'a>(
        &'a self,
        mut state: Locked<'a>,
        write: &mut BufferedWrite,
        mut fill: impl FnMut(Locked<'a>, &mut BufferedWrite) -> (Locked<'a>, ControlFlow<()>),
    ) -> Result<Taken<'a>, BufferedError> {
        let mut waiter = state.add_waiter();
        let result = loop {
            let step = state.path.take_pages(write, waiter as u64);
            if write.is_waiting() {
                state.advance(clock::now());
            }
            match step {
                Ok(TakeStep::Fill) => {
                    let (locked, flow) = fill(state, write);
                    state = locked;
                    if flow.is_break() {
                        break Ok(None);
                    }
                }
                Ok(TakeStep::Wait) => {
                    let (locked, outcome) = self.wait(state, waiter)?;
                    write.handle_outcome(outcome);
                    state = locked;
                    waiter = state.add_waiter();
                }
                Ok(TakeStep::Done { pause }) => break Ok(pause),
                Err(error) => break Err(error),
            }
        };
        Ok(Taken { state, waiter, result })
    }

    /// Copies `bytes` into the pages that the writer holds. Without the lock.
    pub(super) fn fill(&self, write: &mut BufferedWrite, bytes: &[u8]) {
        self.copy_moved(write);
        let arena = &self.arena;
        let is_streamed = write.is_streamed();
        let pieces = write.pieces_mut();
        for piece in &mut *pieces {
            if piece.is_rest_zero {
                // SAFETY: this writer holds the frame, which no other thread reads.
                unsafe { arena.zero(piece.frame, piece.to + piece.end - piece.start) };
            }
        }
        // One copy fills adjacent frames: long copies are faster than short ones.
        let is_next = |a: &WritePiece, b: &WritePiece| Arena::is_followed_by(a.frame, b.frame);
        for run in pieces.chunk_by(is_next) {
            let (first, last) = (&run[0], &run[run.len() - 1]);
            let bytes = &bytes[first.start..last.end];
            // SAFETY: as above, for all of the run, each frame of which is followed by the next.
            unsafe {
                if is_streamed {
                    arena.stream_into_run(first.frame, first.to, bytes);
                } else {
                    arena.copy_into_run(first.frame, first.to, bytes);
                }
            }
        }
    }

    /// Copies the pages that have moved to other frames for the writer. Without the lock.
    pub(super) fn copy_moved(&self, write: &mut BufferedWrite) {
        let arena = &self.arena;
        for piece in write.pieces_mut() {
            if let Some(from) = piece.copy_from.take() {
                // SAFETY: `from` is pinned, and this writer holds the frame, which no other thread reads.
                unsafe { arena.copy_in(piece.frame, 0, arena.bytes(from, 0, arena.page_bytes())) };
                self.unpin(from);
            }
        }
    }
}
