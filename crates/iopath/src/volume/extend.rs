//! Writes that extend the volume: executes the steps of `iopath_core::volume`, which decides whether a write passes the
//! page cache or the file grows in steps of [`Options::extend_step`](crate::Options::extend_step), and what a flush or
//! close truncates.

use super::{Volume, VolumeShared};
use crate::error::Result;
use iopath_core::volume::{Appends, Ends, ExtendStep, Extension, Trim};
use iopath_core::{Extent, Op};
use iopath_os::file_size_limit;
use std::sync::atomic::Ordering;

impl Volume {
    /// Whether a write of `bytes` bytes at `offset` extends the volume.
    #[inline]
    pub(super) fn is_extending(&self, offset: u64, bytes: usize) -> bool {
        self.shape().is_extending(offset, bytes as u64, self.size_bytes())
    }

    /// A write that reaches past the end. Extending writes run one after another.
    #[cold]
    pub(super) fn write_extending(&self, buffer: &[u8], offset: u64, fua: bool) -> Result<()> {
        let bytes = buffer.len() as u64;
        let address = buffer.as_ptr().addr();
        self.checked(Op::Write, offset, bytes, |shape, size| {
            shape.check_extending(offset, bytes, address, size)
        })?;
        {
            let _alone = self.lock_end();
            let appended = self.append_locked(buffer, offset)?;
            let (rest, at) = (&buffer[appended..], offset + appended as u64);
            if !rest.is_empty() {
                self.extend_locked(offset + bytes)?;
                // If the write fails, the volume stays extended: other threads may already have written to the added
                // bytes.
                self.write_within(rest, at, false)?;
            }
        }
        if fua { self.flush_range(offset, bytes) } else { Ok(()) }
    }

    /// Appends a first part of `buffer` past the page cache, if that is the better way. Returns its length.
    fn append_locked(&self, buffer: &[u8], offset: u64) -> Result<usize> {
        let bytes = buffer.len() as u64;
        let storage = self.storage();
        let appends = Appends { bytes: self.shared.appended.fetch_add(bytes, Ordering::Relaxed) };
        let step_bytes = storage.options.extend_step_bytes;
        let passes_cache = storage.extends_in_steps
            && self.is_buffered()
            // The system would end the process by SIGXFSZ.
            && offset + bytes <= file_size_limit()
            && appends.passes_cache(self.ends(), offset, bytes, step_bytes);
        let Some(cache) = self.cache_for_io()?.filter(|_| passes_cache) else { return Ok(0) };
        let appended = cache.append(buffer, offset, |start, written| {
            self.cut_refused(cache.size_bytes(), start, written);
        });
        // The end may have moved despite an error.
        let size_bytes = cache.size_bytes();
        if size_bytes > offset {
            self.set_size(size_bytes);
        }
        appended.map_err(|error| self.uncached(Op::Write, offset, bytes, error))
    }

    /// Removes the part of a refused write, `written` bytes from `offset` on, that the file may have past the end of
    /// the volume.
    pub(super) fn cut_refused(&self, size_bytes: u64, offset: u64, written: u64) {
        if Appends::has_refused_part(size_bytes, offset, written, self.shared.length()) {
            // A failure has the same effect as one of the write, which its caller reports.
            let _ = self.source().resize(size_bytes);
        }
    }

    /// Extends the volume to `size_bytes`, if it is shorter.
    fn extend_locked(&self, size_bytes: u64) -> Result<()> {
        let cache_in_steps = self.cache_for_io()?.filter(|_| self.storage().extends_in_steps);
        let step_bytes = cache_in_steps.map(|_| self.storage().options.extend_step_bytes);
        let mut extension = Extension::new(self.ends(), size_bytes, step_bytes);
        loop {
            match extension.poll() {
                ExtendStep::Length => {
                    extension.handle_length(self.shared.length(), file_size_limit());
                }
                ExtendStep::SetLength { bytes, last } => {
                    extension.handle_set_length(self.set_file_length(bytes, last)?);
                }
                ExtendStep::MoveEnd => {
                    match cache_in_steps {
                        Some(cache) => {
                            cache.extend(size_bytes);
                            self.set_size(size_bytes);
                        }
                        None => self.move_end(size_bytes),
                    }
                    extension.handle_done();
                }
                ExtendStep::Resize => {
                    self.resize_locked(size_bytes)?;
                    extension.handle_done();
                }
                ExtendStep::Done => return Ok(()),
            }
        }
    }

    /// Moves the end of the volume to `size_bytes`, in a file without a page cache that has that length already.
    fn move_end(&self, size_bytes: u64) {
        let _locked = self.lock_moved_bytes(size_bytes);
        self.alone(|| self.set_size(size_bytes));
    }

    /// Extends the file beyond the end of the volume. Returns `false` if the filesystem refuses that length.
    fn set_file_length(&self, bytes: u64, last: Option<Extent>) -> Result<bool> {
        let set = || self.source().resize(bytes).is_ok();
        let is_set = match last {
            None => set(),
            Some(last) => self.with_held_page(last.offset(), || self.alone(set))?,
        };
        if is_set {
            self.set_file_bytes(bytes);
        }
        Ok(is_set)
    }

    /// Changes the length of the file from or to byte `offset`, while the page cache writes nothing to its page.
    fn with_held_page<R>(&self, offset: u64, change: impl FnOnce() -> R) -> Result<R> {
        let failed = |error| self.uncached(Op::Write, offset, 0, error);
        let _held = self.cache_for_io()?.map(|cache| cache.hold(offset)).transpose().map_err(failed)?;
        Ok(change())
    }

    /// Begins a flush: truncates the file to the size of the volume, if appends have extended it further.
    pub(super) fn trim_file(&self) -> Result<()> {
        self.shared.appended.store(0, Ordering::Relaxed);
        if !self.needs_trim() {
            return Ok(());
        }
        let _alone = self.lock_end();
        let ends = self.ends();
        match ends.trim(self.shared.length()) {
            Trim::Nothing => Ok(()),
            Trim::Forget => {
                self.set_file_bytes(ends.size_bytes);
                Ok(())
            }
            Trim::Truncate => {
                let _locked = self.lock_moved_bytes(ends.size_bytes);
                let cut = || self.alone(|| self.set_length(ends.size_bytes));
                self.with_held_page(ends.size_bytes, cut)?
            }
        }
    }

    /// Whether a flush looks at the length of the file.
    pub(super) fn needs_trim(&self) -> bool {
        self.ends().needs_trim()
    }

    fn ends(&self) -> Ends {
        self.shared.ends()
    }

    pub(super) fn set_file_bytes(&self, bytes: u64) {
        self.shared.file_bytes.store(bytes, Ordering::Release);
    }
}

impl VolumeShared {
    fn ends(&self) -> Ends {
        Ends {
            size_bytes: self.size_bytes.load(Ordering::Acquire),
            file_bytes: self.file_bytes.load(Ordering::Acquire),
        }
    }

    /// The length of the file, if it is one and its length is known.
    fn length(&self) -> Option<u64> {
        self.storage.source.length_now()
    }

    /// The length of a regular file, if another handle or process has made it longer than this volume has.
    pub(super) fn grown_length(&self) -> Option<u64> {
        self.ends().grown_length(self.length(), file_size_limit)
    }
}

impl Drop for VolumeShared {
    /// Writes back dirty pages, then truncates the file as [`Volume::flush`] does.
    fn drop(&mut self) {
        let ends = self.ends();
        if !ends.needs_trim() {
            return;
        }
        drop(self.cache.take());
        if ends.trim(self.length()) == Trim::Truncate {
            // A failure is harmless: the rest of the file is zeroes.
            let _ = self.storage.source.resize(ends.size_bytes);
        }
    }
}
