//! Writes that extend the volume.
//!
//! A resize of a file under a page cache is slow. It writes back the last page, and waits for direct I/O, because the
//! kernel zeroes the rest of the last block in its own page cache. Therefore an append to a buffered file does not
//! resize the file each time. The file is extended in steps that end at a multiple of `Options::extend_step`, which is
//! the end of a block. Between steps, only the size in the page cache changes. A flush or close truncates the file to
//! the size of the volume.
//!
//! ```text
//!   file    ├──────────────────────────────────────────┤ a multiple of the step, until a flush
//!   volume  ├───────────────────────────┤ its size, as reads see it
//! ```

use super::{Volume, VolumeShared};
use crate::error::Result;
use crate::options::IoMode;
use crate::source::Backing;
use iopath_core::{Extent, Op, SECTOR_BYTES};
use iopath_os::file_size_limit;
use std::sync::atomic::Ordering;

impl Volume {
    /// Whether a write of `bytes` bytes at `offset` would extend the volume.
    #[inline]
    pub(super) fn is_past_end(&self, offset: u64, bytes: usize) -> bool {
        offset.checked_add(bytes as u64).is_some_and(|end| bytes > 0 && end > self.size_bytes())
    }

    /// Whether writes past the end extend the volume.
    pub(super) fn can_extend(&self) -> bool {
        let options = &self.source().options;
        options.extend && options.mode != IoMode::Raw && !self.has_fixed_size()
    }

    /// A write that reaches past the end. Extending writes run one after another.
    #[cold]
    pub(super) fn write_extending(&self, buffer: &[u8], offset: u64, fua: bool) -> Result<()> {
        if !self.can_extend() {
            return self.write_within(buffer, offset, fua);
        }
        let bytes = buffer.len() as u64;
        self.check_alignment(buffer, offset)?;
        {
            let _alone = self.lock_end();
            self.extend_locked(offset + bytes)?;
            // If the write fails, the volume stays extended: other threads may already have written to the added bytes.
            self.write_within(buffer, offset, false)?;
        }
        if fua { self.flush_range(offset, bytes) } else { Ok(()) }
    }

    /// Extends the volume to `size_bytes`, if it is shorter.
    fn extend_locked(&self, size_bytes: u64) -> Result<()> {
        if size_bytes <= self.size_bytes() {
            return Ok(());
        }
        let (Some(cache), true) = (self.cache_for_io()?, self.is_regular_file()) else {
            if self.has_grown(size_bytes) {
                self.move_end(size_bytes);
                return Ok(());
            }
            return self.resize_locked(size_bytes);
        };
        if size_bytes > self.shared.file_bytes()
            && !self.has_grown(size_bytes)
            && !self.extend_file(size_bytes)?
        {
            return self.resize_locked(size_bytes);
        }
        cache.extend(size_bytes);
        self.set_size(size_bytes);
        Ok(())
    }

    /// Whether another handle or process has extended the file to `size_bytes` or more: its length is not changed then.
    /// False past the limit of the process: the system refuses each write there, even if the file has that length.
    fn has_grown(&self, size_bytes: u64) -> bool {
        size_bytes <= file_size_limit() && self.shared.length().is_some_and(|length| length >= size_bytes)
    }

    /// Moves the end of the volume to `size_bytes`, in a file without a page cache that has that length already.
    fn move_end(&self, size_bytes: u64) {
        let _locked = self.bounce().map(|bounce| self.lock_blocks(bounce, self.size_bytes(), u64::MAX));
        self.alone(|| self.set_size(size_bytes));
    }

    /// Extends the file beyond `size_bytes` to the next step. Returns `false` if the filesystem or the limit of the
    /// process refuses that length.
    fn extend_file(&self, size_bytes: u64) -> Result<bool> {
        let step_bytes = self.source().options.extend_step_bytes;
        let (Backing::File(file), Some(file_bytes)) =
            (self.backing(), size_bytes.checked_next_multiple_of(step_bytes))
        else {
            return Ok(false);
        };
        if file_bytes > file_size_limit() {
            return Ok(false);
        }
        let old_bytes = self.shared.file_bytes().max(self.size_bytes());
        let is_extended = if old_bytes.is_multiple_of(step_bytes) {
            file.set_len(file_bytes).is_ok()
        } else {
            // The kernel zeroes the rest of the last page of the file. No I/O on that page may be in flight.
            let last = Extent::from_bytes(old_bytes / SECTOR_BYTES * SECTOR_BYTES, SECTOR_BYTES);
            let _guard = self.begin_direct(Op::WriteZeroes, last.unwrap_or_default())?;
            self.alone(|| file.set_len(file_bytes)).is_ok()
        };
        if is_extended {
            self.set_file_bytes(file_bytes);
        }
        Ok(is_extended)
    }

    /// Truncates the file to the size of the volume, if appends have extended it further.
    pub(super) fn trim_file(&self) -> Result<()> {
        if self.shared.file_bytes() <= self.size_bytes() {
            return Ok(());
        }
        let _alone = self.lock_end();
        if self.shared.file_bytes() <= self.size_bytes() {
            return Ok(());
        }
        if !self.shared.is_file_ours() {
            self.set_file_bytes(self.size_bytes());
            return Ok(());
        }
        self.resize_locked(self.size_bytes())
    }

    pub(super) fn set_file_bytes(&self, bytes: u64) {
        self.shared.file_bytes.store(bytes, Ordering::Release);
    }
}

impl VolumeShared {
    fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Acquire)
    }

    /// The length of the file, if it is one and its length is known.
    fn length(&self) -> Option<u64> {
        let Backing::File(file) = &self.source.backing else { return None };
        file.metadata().ok().map(|metadata| metadata.len())
    }

    /// The length of a regular file, if another handle or process has made it longer than this volume has. `None` past
    /// the limit of the process, where the system refuses each write.
    pub(super) fn grown_length(&self) -> Option<u64> {
        let known_bytes = self.size_bytes.load(Ordering::Acquire).max(self.file_bytes());
        self.length().filter(|&length| length > known_bytes && length <= file_size_limit())
    }

    /// Whether the file is as long as this volume has made it. Otherwise another handle or process has changed its
    /// length, and this volume must not truncate it.
    fn is_file_ours(&self) -> bool {
        self.length() == Some(self.file_bytes())
    }
}

impl Drop for VolumeShared {
    /// Writes back dirty pages, then truncates the file as [`Volume::flush`] does.
    fn drop(&mut self) {
        let size_bytes = *self.size_bytes.get_mut();
        if self.file_bytes() <= size_bytes {
            return;
        }
        drop(self.cache.take());
        if !self.is_file_ours() {
            return;
        }
        if let Backing::File(file) = &self.source.backing {
            // A failure is harmless: the rest of the file is zeroes.
            let _ = file.set_len(size_bytes);
        }
    }
}
