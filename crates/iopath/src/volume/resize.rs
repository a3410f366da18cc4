//! Moves the end of a volume.

use super::Volume;
use crate::bounce::Locked;
use crate::error::{Cause, ErrorKind, Result};
use crate::source::{SIZE_BYTES_MAX, SourceError};
use iopath_core::Op;
use iopath_os::{Buffered, file_size_limit};
use rustix::io::Errno;
use std::io;

impl Volume {
    /// Changes the size of a file or a disk in memory. Added bytes read as zeroes. Unflushed writes to removed bytes
    /// are dropped, even if the resize fails: in that case every flush fails until [`Volume::accept_loss`].
    ///
    /// Reads and writes may run concurrently. A read across the removed part is short (in a batch on a mapped file, it
    /// may fail), and a write to the removed part fails. Concurrent resizes run one after another. A resize waits for
    /// blocking I/O in flight.
    ///
    /// Reap every [`Batch`](crate::Batch) write to the page of the old or the new end, and to pages beyond, before a
    /// resize. The kernel zeroes the rest of that page in its own page cache; it treats a concurrent direct write to
    /// the page as corruption and fails the next flush.
    ///
    /// # Errors
    /// [`ErrorKind::Resize`] for block devices, remote exports, stripes and mapped files of a fixed size, and if the
    /// system refuses. [`ErrorKind::ReadOnly`] if the volume is read-only.
    pub fn resize(&self, size_bytes: u64) -> Result<()> {
        self.check_writable(Op::Write, size_bytes, 0)?;
        if !self.shape().is_resizable {
            // Check before the cache drops the pages of the removed part.
            return Err(self.cannot_resize(size_bytes, io::ErrorKind::Unsupported.into()));
        }
        let _alone = self.lock_end();
        self.resize_locked(size_bytes)
    }

    /// Moves the end of the volume to that of its file, if another program has extended the file. Never changes the
    /// length of the file. Returns the size of the volume.
    ///
    /// Reads and writes may run concurrently. A file that has become shorter changes nothing.
    ///
    /// Does not wait for other threads: during blocking I/O, a resize, or a write to the last block, the end stays
    /// where it is, and a later call moves it. With a page cache, it waits for blocking direct I/O, and until the cache
    /// has written back the page of the old end.
    ///
    /// # Errors
    /// The page cache cannot write back the page of the old end.
    pub fn follow_growth(&self) -> Result<u64> {
        if let Some(_alone) = self.try_lock_end()
            && let Some(file_bytes) = self.shared.grown_length()
        {
            self.try_move_end_locked(file_bytes)?;
        }
        Ok(self.size_bytes())
    }

    /// Moves the end, which is locked, to that of a file with this length, unless I/O is in flight there.
    fn try_move_end_locked(&self, file_bytes: u64) -> Result<()> {
        let range = self.shape().moved_range(self.size_bytes(), file_bytes);
        let locked = self.bounce().map(|bounce| bounce.try_lock_range(range));
        if matches!(locked, Some(None)) {
            return Ok(());
        }
        if let Some(cache) = self.cache_for_io()? {
            return self.move_end_cached(cache, file_bytes, || Ok(()));
        }
        self.shared.shards.try_alone(|| self.set_size(file_bytes));
        Ok(())
    }

    /// Resizes while the end is locked.
    pub(super) fn resize_locked(&self, size_bytes: u64) -> Result<()> {
        self.move_end_locked(size_bytes, || self.set_length(size_bytes))
    }

    /// Moves the end while it is locked. `set_length` gives the source that length, unless it has it.
    fn move_end_locked(&self, size_bytes: u64, set_length: impl FnOnce() -> Result<()>) -> Result<()> {
        let _locked = self.lock_moved_bytes(size_bytes);
        match self.cache_for_io()? {
            Some(cache) => self.move_end_cached(cache, size_bytes, set_length),
            None => self.alone(|| set_length().map(|()| self.set_size(size_bytes))),
        }
    }

    /// Locks the bytes that a move of the end adds or removes, on a volume with bounced I/O.
    pub(super) fn lock_moved_bytes(&self, size_bytes: u64) -> Option<Locked<'_>> {
        self.bounce().map(|bounce| bounce.lock_range(self.shape().moved_range(self.size_bytes(), size_bytes)))
    }

    /// The same in the page cache.
    fn move_end_cached(
        &self,
        cache: &Buffered,
        size_bytes: u64,
        set_length: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let is_shorter = size_bytes < self.size_bytes();
        let cut = || {
            self.alone(|| {
                set_length().map(|()| {
                    if is_shorter {
                        self.set_size(size_bytes);
                    }
                })
            })
        };
        let resized = cache.resize(size_bytes, cut);
        resized.map_err(|error| self.uncached(Op::Write, size_bytes, 0, error))??;
        // Callers can use added bytes only after the cache has the new size.
        self.set_size(size_bytes);
        Ok(())
    }

    /// Changes the length of the source.
    pub(super) fn set_length(&self, size_bytes: u64) -> Result<()> {
        let is_limited = self.storage().extends_in_steps && size_bytes > self.size_bytes();
        // The system would end the process by SIGXFSZ, or refuse later writes if the file has that length already.
        let is_past_limit = is_limited && size_bytes > file_size_limit();
        let resized = if is_past_limit || size_bytes > SIZE_BYTES_MAX {
            Err(io::Error::from(Errno::FBIG).into())
        } else {
            self.source().resize(size_bytes)
        };
        resized.map_err(|error| match error {
            SourceError::System(error) => self.cannot_resize(size_bytes, error),
            SourceError::Io(error) => self.io_error(Op::Write, size_bytes, 0, error),
        })?;
        if self.storage().extends_in_steps {
            self.set_file_bytes(size_bytes);
        }
        Ok(())
    }

    pub(super) fn cannot_resize(&self, size_bytes: u64, source: io::Error) -> crate::Error {
        self.error(ErrorKind::Resize { size_bytes }).because(Cause::System(source))
    }
}
