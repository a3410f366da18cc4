//! Direct I/O on a volume with a page cache, and changes of the volume's size. `iopath_core::cache` decides which
//! thread waits for which page. The caller executes the direct I/O; the cache executes the flush after a forced write.

use iopath_core::buffered::{BufferedPath, Resize, ResizeStep, VolumeEnd};
use iopath_core::cache::{DirectStep, DirectTag, Forced, Outcome};
use iopath_core::{IoError, Op};
use std::fmt;

use super::state::{DeviceFrames, State};
use super::{Buffered, BufferedError, CacheShared};
use crate::clock;
use crate::sync::atomic::Ordering::Release;

/// A guard for one direct I/O. When it is created, the device has all bytes that were written to the range through the
/// cache. Drop it when the I/O has completed, before the completion is reported. Until then, writers to the pages of a
/// direct write wait.
pub struct DirectGuard<'a> {
    shared: &'a CacheShared,
    /// `None` for a read without dirty pages.
    tag: Option<DirectTag>,
}

impl fmt::Debug for DirectGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectGuard").field("tag", &self.tag).finish_non_exhaustive()
    }
}

impl Buffered {
    /// Prepares a direct I/O on `bytes` bytes from byte `offset` on. A discard drops whole dirty pages and their errors
    /// instead of writing them back. The range may extend past the end of the volume.
    ///
    /// # Errors
    /// Dirty pages of the range could not be written back.
    pub fn begin_direct(&self, op: Op, offset: u64, bytes: u64) -> Result<DirectGuard<'_>, BufferedError> {
        self.begin_direct_in_units(op, offset, bytes, 1)
    }

    /// Does the same as [`Buffered::begin_direct`], for a device on which writes exclude each other in whole units of
    /// `unit_bytes` bytes, such as a file with blocks. Dirty pages of the same unit are written back first, and writers
    /// to them wait.
    ///
    /// # Errors
    /// Returns the errors of [`Buffered::begin_direct`].
    pub fn begin_direct_in_units(
        &self,
        op: Op,
        offset: u64,
        bytes: u64,
        unit_bytes: u64,
    ) -> Result<DirectGuard<'_>, BufferedError> {
        let shared = &*self.shared;
        if op == Op::Flush || (op == Op::Read && shared.hot.is_clean()) {
            return Ok(DirectGuard { shared, tag: None });
        }
        shared.begin(|path, waiter| path.begin_direct(op, offset, bytes, unit_bytes, waiter))
    }

    /// Prepares a change of the length of the file, from or to byte `offset`, that leaves the volume as it is. The page
    /// of that byte has been written back, and no write to it begins while the guard lives. It stays in the cache.
    ///
    /// # Errors
    /// The page could not be written back.
    pub fn hold(&self, offset: u64) -> Result<DirectGuard<'_>, BufferedError> {
        self.shared.begin(|path, waiter| path.begin_hold(offset, waiter))
    }

    /// Changes the size of the volume to `size_bytes`. `resize` resizes the file. Pages past the end are dropped. If
    /// `resize` fails, the dropped dirty pages are lost, and every flush fails until [`Buffered::accept_loss`].
    ///
    /// One thread at a time. Reads and writes may continue. A read that overlaps the truncated part is short.
    ///
    /// # Errors
    /// The outer error: the page that contains the lower of the two ends could not be written back, and `resize` was
    /// not called. The inner error is that of `resize`.
    pub fn resize<E>(
        &self,
        size_bytes: u64,
        resize: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<(), E>, BufferedError> {
        let shared = &*self.shared;
        let plan = shared.begin_resize(size_bytes)?;
        // If `resize` panics, the drop unlocks the range for writers.
        let ends = EndsResize { shared, plan: Some(plan) };
        let resized = resize();
        ends.end(resized.is_ok());
        Ok(resized)
    }

    /// Moves the end of the volume to `size_bytes`, unless the end is there already or past it. The file must have that
    /// length already, and the added bytes must read as zeroes. For writes that append: unlike [`Buffered::resize`],
    /// this never waits.
    pub fn extend(&self, size_bytes: u64) {
        let mut state = self.shared.lock();
        state.path.extend(size_bytes);
        self.shared.publish_size(&mut state);
    }
}

/// Ends a resize. If the caller's closure panics, the resize ends as failed.
struct EndsResize<'a> {
    shared: &'a CacheShared,
    plan: Option<Resize>,
}

impl EndsResize<'_> {
    fn end(mut self, is_resized: bool) {
        if let Some(plan) = self.plan.take() {
            self.shared.end_resize(plan, is_resized);
        }
    }
}

impl Drop for EndsResize<'_> {
    fn drop(&mut self) {
        if let Some(plan) = self.plan.take() {
            self.shared.end_resize(plan, false);
        }
    }
}

impl DirectGuard<'_> {
    /// Turns the guard into a tag that does not borrow the cache. Pass the tag to [`Buffered::end_direct`].
    pub fn into_tag(mut self) -> Option<DirectTag> {
        self.tag.take()
    }

    /// Ends a forced write that has succeeded at the device as a plain write. Returns when it is on the medium.
    ///
    /// # Errors
    /// The device could not be flushed: the write may be lost.
    ///
    /// # Panics
    /// If it is a read: a bug of the caller.
    pub fn end_forced(mut self) -> Result<(), BufferedError> {
        let tag = self.tag.take().expect("a write is registered");
        let forced = self.shared.lock().path.end_forced(tag);
        self.shared.wait_forced(forced)
    }
}

/// Forced writes whose guards were turned into tags. At the device, each is a plain write without a flush of its own:
/// `iopath_core::cache::forced` gives the reason.
impl Buffered {
    /// Ends writes that have succeeded at the device. Requests one device flush for all of them, without waiting for
    /// it.
    pub fn end_forced<'a>(&self, done: impl Iterator<Item = (DirectTag, &'a mut Option<Forced>)>) {
        let mut state = self.shared.lock();
        for (tag, forced) in done {
            *forced = Some(state.path.end_forced(tag));
        }
        state.poll(clock::now());
    }

    /// Whether a forced write is on the medium; `None` while that is unknown. Polls the device without waiting.
    pub fn forced(&self, forced: Forced) -> Option<Result<(), IoError>> {
        let mut state = self.shared.lock();
        state.poll(clock::now());
        state.path.forced(forced)
    }

    /// Waits until a forced write is on the medium.
    ///
    /// # Errors
    /// The device could not be flushed: the write may be lost.
    pub fn wait_forced(&self, forced: Forced) -> Result<(), BufferedError> {
        self.shared.wait_forced(forced)
    }

    /// Ends a direct I/O whose guard was turned into a tag.
    pub fn end_direct(&self, tag: Option<DirectTag>) {
        drop(DirectGuard { shared: &self.shared, tag });
    }
}

impl Drop for DirectGuard<'_> {
    fn drop(&mut self) {
        let Some(tag) = self.tag else { return };
        let mut state = self.shared.lock();
        state.path.end_direct(tag);
        state.advance(clock::now());
    }
}

impl CacheShared {
    /// Begins a direct I/O or a hold.
    fn begin(
        &self,
        begin: impl FnOnce(&mut BufferedPath<DeviceFrames>, u64) -> DirectStep,
    ) -> Result<DirectGuard<'_>, BufferedError> {
        let mut state = self.lock();
        let waiter = state.add_waiter();
        let step = begin(&mut state.path, waiter as u64);
        state.advance(clock::now());
        let tag = match step {
            DirectStep::Go(tag) => {
                state.waiters.remove(waiter);
                tag
            }
            DirectStep::Wait => match self.wait(state, waiter)?.1 {
                Outcome::Direct(tag) => tag,
                Outcome::Failed(error) => return Err(error.into()),
                other => unreachable!("the outcome of a direct I/O is {other:?}"),
            },
        };
        Ok(DirectGuard { shared: self, tag: Some(tag) })
    }

    fn wait_forced(&self, forced: Forced) -> Result<(), BufferedError> {
        let mut state = self.lock();
        let waiter = state.add_waiter();
        state.path.await_forced(forced, waiter as u64);
        self.wait_done(state, waiter)
    }

    /// Waits until the file may be resized.
    fn begin_resize(&self, size_bytes: u64) -> Result<Resize, BufferedError> {
        let mut state = self.lock();
        let mut resize = state.path.begin_resize(size_bytes);
        loop {
            let waiter = state.add_waiter();
            let step = state.path.continue_resize(&mut resize, waiter as u64);
            if step != Ok(ResizeStep::Wait) {
                state.waiters.remove(waiter);
                self.publish_size(&mut state);
            }
            state.advance(clock::now());
            if step? == ResizeStep::Resize {
                return Ok(resize);
            }
            match self.wait(state, waiter) {
                Ok((locked, outcome)) => {
                    resize.handle_outcome(outcome);
                    state = locked;
                }
                Err(error) => {
                    self.lock().path.cancel_resize(resize);
                    return Err(error);
                }
            }
        }
    }

    fn end_resize(&self, resize: Resize, is_resized: bool) {
        let mut state = self.lock();
        state.path.end_resize(resize, is_resized);
        self.publish_size(&mut state);
        state.advance(clock::now());
    }

    /// Passes the end of the volume from the state machine to the device and to threads without the lock.
    pub(super) fn publish_size(&self, state: &mut State) {
        let size_bytes = state.path.geometry().size_bytes;
        // Before the size: see `VolumeEnd`.
        self.failed_resizes.store(state.path.failed_resizes(), Release);
        if self.size() != size_bytes {
            state.set_device_end();
            self.size_bytes.store(size_bytes, Release);
        }
    }
}
