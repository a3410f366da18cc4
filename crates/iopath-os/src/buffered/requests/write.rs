//! Writes into the cache, and of zeroes at the ends of a discard. Pages are taken, filled and released within one call;
//! a write that cannot get a page continues later.

use std::sync::Arc;

use iopath_core::Instant;
use iopath_core::buffered::{BufferedWrite, TakeStep};

use super::CacheQueue;
use super::request::Stage;
use crate::buffered::waiter::Role;
use crate::buffered::{BufferedError, CacheShared};
use crate::clock;
use crate::io_buf::{IoBuf, init_of};

/// Written to the parts of blocks at the ends of a discard or write of zeroes.
static ZEROES: [u8; 4096] = [0; 4096];

impl<B: IoBuf> CacheQueue<B> {
    /// Copies the bytes of a write into pages, until all are there or it has to wait.
    pub(super) fn continue_write(&mut self, key: u32) {
        if self.is_paused(clock::now()) {
            if let Some(frame) = self.requests[key as usize].pinned.take() {
                self.shared.unpin(frame);
            }
            self.paused.push_back(key);
            return;
        }
        match self.write_pages(key) {
            Ok(true) => {
                self.requests[key as usize].done = 0;
                self.end_stage(key);
            }
            Ok(false) => {}
            Err(error) => self.complete(key, Err(error)),
        }
    }

    /// Whether writes wait because the device is slower than the writers.
    fn is_paused(&self, now: Instant) -> bool {
        self.pause_end.is_some_and(|end| now < end)
    }

    /// Whether all bytes are in the cache; otherwise the request waits.
    fn write_pages(&mut self, key: u32) -> Result<bool, BufferedError> {
        let shared = Arc::clone(&self.shared);
        let written = self.fill_pages(key, &shared);
        shared.start_flusher();
        written
    }

    fn fill_pages(&mut self, key: u32, shared: &CacheShared) -> Result<bool, BufferedError> {
        let request = &self.requests[key as usize];
        let range = request.written(self.block_bytes);
        let bytes = (range.end - range.start) as usize;
        let is_write = request.stage == Stage::Write;
        while self.requests[key as usize].done < bytes {
            let request = &self.requests[key as usize];
            // The static `ZEROES` limits the length of a part.
            let part = if is_write { bytes } else { bytes.min(request.done + ZEROES.len()) };
            let first = request.done;
            let mut write = BufferedWrite::new(range.start + first as u64, part - first)?;
            let mut state = shared.lock();
            if let Some(frame) = self.requests[key as usize].pinned.take() {
                // The lock is held, so the page cannot be evicted before `take_pages`.
                state.path.cache().hot().unpin(frame);
            }
            loop {
                let waiter = state.add(Role::Request(self.id(key)));
                let step = state.path.take_pages(&mut write, waiter as u64);
                if write.is_waiting() {
                    self.waits(key, waiter, &mut state);
                    state.advance(clock::now());
                } else {
                    state.waiters.remove(waiter);
                }
                match step? {
                    TakeStep::Fill => {}
                    TakeStep::Wait => return Ok(false),
                    TakeStep::Done { pause } => {
                        let end = pause.map(|pause| clock::now() + pause);
                        self.pause_end = self.pause_end.max(end);
                        break;
                    }
                }
                drop(state);
                let source = match &self.requests[key as usize].buffer {
                    Some(buffer) if is_write => &init_of(buffer)[first..part],
                    _ => &ZEROES[..part - first],
                };
                let taken = write.pieces().last().map_or(0, |piece| piece.end);
                shared.fill(&mut write, source);
                state = shared.lock();
                state.release_pages(&mut write);
                self.requests[key as usize].done = first + taken;
                if write.is_waiting() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
