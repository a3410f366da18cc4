//! Reads: cached bytes are copied at once without the lock. One submission starts the page I/Os of all other reads.

use std::sync::Arc;

use iopath_core::buffered::{BufferedRead, ReadNext, ReadStep};
use iopath_core::cache::Frame;

use super::request::CacheRequest;
use super::{CacheQueue, CacheShared};
use crate::buffered::Buffered;
use crate::buffered::waiter::Role;
use crate::clock;
use crate::io_buf::{IoBuf, fill_space, space_bytes};
use crate::thread_number;

impl Buffered {
    /// Reads `bytes` bytes at `offset` into the space of `buffer` if all of their pages are cached; fewer at the end of
    /// the volume. Never waits, and takes no lock. `None` if a page is missing, or the space is too short.
    pub fn try_read<B: IoBuf>(&self, buffer: &mut B, offset: u64, bytes: usize) -> Option<usize> {
        if bytes > space_bytes(buffer) {
            return None;
        }
        let mut read = BufferedRead::new(offset, bytes, &*self.shared);
        let done = self.shared.copy_cached(Some(&mut *buffer), &mut read, None)?;
        // SAFETY: these bytes were copied, from the first on.
        unsafe { buffer.set_init(done) };
        Some(done)
    }
}

impl CacheShared {
    /// Copies bytes into `buffer`, as long as their pages are cached, and returns their number; `None` if a page is
    /// missing. The page of the next piece may be pinned, and is unpinned.
    fn copy_cached<B: IoBuf>(
        &self,
        mut buffer: Option<&mut B>,
        read: &mut BufferedRead,
        mut pinned: Option<Frame>,
    ) -> Option<usize> {
        let thread = thread_number();
        loop {
            let piece = match read.poll(self) {
                ReadNext::Copy(piece) => piece,
                ReadNext::Again => continue,
                ReadNext::Done(bytes) => return Some(bytes),
            };
            let mut copy = |frame| {
                if let Some(buffer) = buffer.as_deref_mut() {
                    // SAFETY: the frame is visited or pinned until after the copy.
                    let bytes = unsafe { self.arena.bytes(frame, piece.from, piece.bytes()) };
                    fill_space(buffer, piece.start, bytes);
                }
            };
            if let Some(frame) = pinned.take() {
                copy(frame);
                self.unpin(frame);
            } else if !self.visit(thread, read, &piece, copy) {
                return None;
            }
            read.handle_copied(&piece);
        }
    }
}

impl<B: IoBuf> CacheQueue<B> {
    /// Completes a read whose pages are cached; holds any other back.
    pub(super) fn begin_read(&mut self, mut request: CacheRequest<B>) {
        let mut read = BufferedRead::new(request.offset, request.bytes as usize, &*self.shared);
        if let Some(done) = self.shared.copy_cached(request.buffer.as_mut(), &mut read, None) {
            self.completed.push_back(request.completed(Ok(done)));
        } else {
            let key = self.insert(request, Some(read));
            self.plugged.push_back(key);
        }
    }

    /// Copies the cached bytes of a read; completes it, or notes that it needs a page.
    pub(super) fn continue_read(&mut self, key: u32) {
        let request = &mut self.requests[key as usize];
        let (offset, bytes) = (request.offset, request.bytes as usize);
        // A read that has waited for an earlier request begins now.
        let read = request.read.get_or_insert_with(|| BufferedRead::new(offset, bytes, &*self.shared));
        let pinned = request.pinned.take();
        match self.shared.copy_cached(request.buffer.as_mut(), read, pinned) {
            Some(done) => {
                request.done = done;
                self.end_stage(key);
            }
            None => self.missed.push(key),
        }
    }

    /// Starts page I/Os for the reads that need a page, with one submission to the device.
    pub(super) fn start_missed(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let now = clock::now();
        for at in 0..self.missed.len() {
            let key = self.missed[at];
            let waiter = state.add(Role::Request(self.id(key)));
            let request = &mut self.requests[key as usize];
            let read = request.read.as_mut().expect("a read that has missed has begun");
            match state.path.read(read, waiter as u64, now) {
                ReadStep::Wait { .. } => {
                    self.waits(key, waiter, &mut state);
                    continue;
                }
                ReadStep::Pinned(frame) => request.pinned = Some(frame),
                ReadStep::End => {}
            }
            state.waiters.remove(waiter);
            self.runnable.push_back(key);
        }
        self.missed.clear();
        state.poll(now);
        self.collect(&mut state);
    }
}
