//! Reads: cached bytes are copied at once without the lock. One submission starts the page I/Os of all other reads.

use std::sync::Arc;

use iopath_core::buffered::ReadStep;

use super::request::{CacheRequest, Progress};
use super::{CacheQueue, CacheShared};
use crate::buffered::Buffered;
use crate::clock;
use crate::io_buf::{IoBuf, fill_space, space_bytes};
use crate::thread_number;

impl Progress {
    fn of_read(shared: &CacheShared, offset: u64, bytes: usize) -> Self {
        let failed_resizes = shared.failed_resizes();
        Self { has_begun: true, done: 0, available: shared.before_end(offset, bytes), failed_resizes }
    }
}

impl Buffered {
    /// Reads `bytes` bytes at `offset` into the space of `buffer` if all of their pages are cached; fewer at the end of
    /// the volume. Never waits, and takes no lock. `None` if a page is missing, or the space is too short.
    pub fn try_read<B: IoBuf>(&self, buffer: &mut B, offset: u64, bytes: usize) -> Option<usize> {
        if bytes > space_bytes(buffer) {
            return None;
        }
        let mut progress = Progress::of_read(&self.shared, offset, bytes);
        let is_complete = self.shared.copy_cached(Some(&mut *buffer), offset, bytes, &mut progress);
        is_complete.then(|| {
            // SAFETY: these bytes were copied, from the first on.
            unsafe { buffer.set_init(progress.done) };
            progress.done
        })
    }
}

impl CacheShared {
    /// Copies bytes from byte `offset` on into `buffer`, as long as their pages are cached. Returns whether the read is
    /// complete.
    fn copy_cached<B: IoBuf>(
        &self,
        mut buffer: Option<&mut B>,
        offset: u64,
        buffer_bytes: usize,
        progress: &mut Progress,
    ) -> bool {
        let thread = thread_number();
        loop {
            while progress.done < progress.available {
                let Progress { done, available, .. } = *progress;
                let (page, from) = self.locate(offset + done as u64);
                let bytes = (available - done).min(self.page_bytes - from);
                let ahead = |frame| self.arena.fetch(frame, from);
                let visited = self.hot.visit(thread, page, ahead, |pinned| {
                    if pinned.is_marked {
                        self.handle_marker(self.range(offset + done as u64, available - done));
                    }
                    if let Some(buffer) = buffer.as_deref_mut() {
                        // SAFETY: the frame is visited until after the copy.
                        fill_space(buffer, done, unsafe { self.arena.bytes(pinned.frame, from, bytes) });
                    }
                });
                if visited.is_none() {
                    return false;
                }
                progress.done += bytes;
            }
            if self.failed_resizes() == progress.failed_resizes {
                // Bytes past an end that has moved meanwhile are zeroes of the last page.
                progress.done = self.before_end(offset, progress.done);
                return true;
            }
            *progress = Progress::of_read(self, offset, buffer_bytes);
        }
    }
}

impl<B: IoBuf> CacheQueue<B> {
    /// Completes a read whose pages are cached; holds any other back.
    pub(super) fn begin_read(&mut self, mut request: CacheRequest<B>) {
        let bytes = request.bytes as usize;
        let mut progress = Progress::of_read(&self.shared, request.offset, bytes);
        let (offset, buffer) = (request.offset, request.buffer.as_mut());
        if self.shared.copy_cached(buffer, offset, bytes, &mut progress) {
            self.completed.push_back(request.completed(Ok(progress.done)));
        } else {
            let key = self.insert(request, progress);
            self.plugged.push_back(key);
        }
    }

    /// Copies the cached bytes of a read; completes it, or notes that it needs a page.
    pub(super) fn continue_read(&mut self, key: u32) {
        let request = &mut self.requests[key as usize];
        let (offset, bytes) = (request.offset, request.bytes as usize);
        if !request.progress.has_begun {
            // It has waited for an earlier request.
            request.progress = Progress::of_read(&self.shared, offset, bytes);
        }
        if self.shared.copy_cached(request.buffer.as_mut(), offset, bytes, &mut request.progress) {
            self.end_stage(key);
        } else {
            self.missed.push(key);
        }
    }

    /// Starts page I/Os for the reads that need a page, with one submission to the device.
    pub(super) fn start_missed(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let now = clock::now();
        for at in 0..self.missed.len() {
            let key = self.missed[at];
            let request = &self.requests[key as usize];
            let (offset, progress) = (request.offset, request.progress);
            let range = shared.range(offset + progress.done as u64, progress.available - progress.done);
            let waiter = state.add_request(self.id(key));
            match state.path.read(range, waiter as u64, now) {
                ReadStep::Wait { .. } => self.waits(key, waiter, &state),
                ReadStep::Pinned(frame) => {
                    state.remove_request(waiter);
                    self.pinned.push((key, frame));
                }
                ReadStep::End => {
                    state.remove_request(waiter);
                    self.requests[key as usize].progress.available = progress.done;
                    self.runnable.push_back(key);
                }
            }
        }
        self.missed.clear();
        state.poll(now);
        self.collect(&mut state);
    }

    /// Copies the next bytes of each read whose page is pinned, and unpins the page.
    pub(super) fn copy_pinned(&mut self) {
        let shared = Arc::clone(&self.shared);
        for at in 0..self.pinned.len() {
            let (key, frame) = self.pinned[at];
            let request = &mut self.requests[key as usize];
            let Progress { done, available, .. } = request.progress;
            let (_, from) = shared.locate(request.offset + done as u64);
            let bytes = (available - done).min(shared.page_bytes - from);
            if let Some(buffer) = &mut request.buffer {
                // SAFETY: the frame is pinned until after the copy.
                fill_space(buffer, done, unsafe { shared.arena.bytes(frame, from, bytes) });
            }
            request.progress.done += bytes;
            shared.unpin(frame);
            self.runnable.push_back(key);
        }
        self.pinned.clear();
    }
}
