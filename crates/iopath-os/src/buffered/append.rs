//! Appends that the calling thread writes to the file itself, past the queue, by a plain write that extends the file.
//! The bytes stay in the page cache. A flush after such appends has no page to write.
//!
//! Each write of the last page through the queue takes one I/O for its whole blocks and another for its last bytes, and
//! a resize of the file. For an append of a few bytes with a flush, the kernel's page cache is cheaper: it holds the
//! bytes until the flush, which waits once.
//!
//! Like an inline read, such a write is used only if the queue would have no effect: no elevator, no log. No write of
//! the cache is in flight when it begins, and the pages of the append are held, so none to these pages can begin.

use std::ops::ControlFlow;

use iopath_core::buffered::BufferedWrite;
use iopath_core::cache::Outcome;

use super::wait::Locked;
use super::write::Taken;
use super::{Buffered, BufferedError, CacheShared};
use crate::clock;
use crate::tail::Tail;

impl Buffered {
    /// Appends a first part of `bytes` to the file, and moves the end of the volume, which is at byte `offset`, behind
    /// it. Writes by another path may append the rest. No other call may move the end meanwhile. Returns the bytes of
    /// that part.
    ///
    /// If the file refuses the next bytes, it may have a first part of them: `cut(offset, written)` removes `written`
    /// bytes from byte `offset` on. Meanwhile, no write to the last page of the volume is in flight.
    ///
    /// # Errors
    /// The last page of the volume could not be read, or no frame is free. The end of the volume may have moved.
    pub fn append(&self, bytes: &[u8], offset: u64, cut: impl Fn(u64, u64)) -> Result<usize, BufferedError> {
        let shared = &self.shared;
        let mut write = BufferedWrite::appending(offset, bytes.len())?;
        let mut appended = 0;
        let state = shared.lock();
        let tail = state.tail.clone().filter(|_| shared.plain_file.is_some() && state.may_bypass_queue());
        let Some(tail) = tail else { return Ok(appended) };
        let Taken { mut state, waiter, result } = shared.take_pages(state, &mut write, |state, write| {
            let (state, end) = shared.append_held(state, write, bytes, offset, &*tail, &cut);
            appended = end.unwrap_or(appended);
            let is_complete = appended == write.taken();
            (state, if is_complete { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        if result.is_ok() && write.is_waiting() {
            // For the page after those that could not be appended.
            let (locked, outcome) = shared.wait(state, waiter)?;
            state = locked;
            if let Outcome::Writable(frame) = outcome {
                state.path.abandon_write(frame, clock::now());
                if state.path.cache().hot().unpin(frame) {
                    state.path.handle_unpinned();
                }
                state.advance(clock::now());
            }
        } else {
            state.waiters.remove(waiter);
        }
        // After a failed flush of the device.
        let is_dirty = state.path.cache().dirty_pages() > 0;
        drop(state);
        if is_dirty {
            shared.start_flusher();
        }
        result?;
        Ok(appended)
    }
}

impl CacheShared {
    /// Writes the bytes of the held pages to the file and into the pages, and releases the pages. Returns the end of
    /// these bytes in the append, unless the file has refused them.
    fn append_held<'a>(
        &'a self,
        state: Locked<'a>,
        write: &mut BufferedWrite,
        bytes: &[u8],
        offset: u64,
        tail: &dyn Tail,
        cut: &impl Fn(u64, u64),
    ) -> (Locked<'a>, Option<usize>) {
        let held = state.path.begin_append(write).filter(|_| state.may_bypass_queue());
        drop(state);
        self.copy_moved(write);
        let start = offset + held.as_ref().map_or(0, |held| held.start as u64);
        let written = held.as_ref().map(|held| tail.write_all_at(&bytes[held.clone()], start));
        match written {
            Some(Ok(())) => self.fill(write, bytes),
            // Before the last page is released: the kernel zeroes the rest of it.
            Some(Err(stopped)) => cut(start, stopped.written as u64),
            None => {}
        }
        let mut state = self.lock();
        let now = clock::now();
        let end = held.map(|held| held.end).filter(|_| matches!(written, Some(Ok(()))));
        if end.is_some() {
            state.path.end_append(write, now);
            self.publish_size(&mut state);
        } else {
            state.path.cancel_append(write, now);
        }
        state.advance(now);
        (state, end)
    }
}
