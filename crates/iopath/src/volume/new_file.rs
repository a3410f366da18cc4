//! Writes and flushes of a new file that do without the page cache. A read, a large write, a resize or a batch opens
//! the cache. So does a call that finds the file in use by a flush, or a flush that finds it in use by a write, after
//! that call has ended. Writers run one after another without the cache. After a failed flush, all go through it.

use super::Volume;
use crate::error::Result;
use crate::storage::cache::LazyCache;
use crate::storage::new_file::NewFile;
use iopath_core::Op;
use iopath_core::volume::Appends;
use iopath_os::WriteBackError;
use std::sync::atomic::Ordering;

impl Volume {
    /// Calls `act` with the new file, if it has no page cache yet.
    pub(super) fn of_new_file<R>(&self, act: impl FnOnce(&mut NewFile) -> R) -> Option<R> {
        self.unopened_cache()?.new_file(act)
    }

    /// Writes to a new file, if that needs no page cache. Returns whether the file has the bytes.
    #[cold]
    pub(super) fn write_new_file(&self, unopened: &LazyCache, buffer: &[u8], offset: u64) -> bool {
        let _alone = self.lock_end();
        let write = |file: &mut NewFile| {
            let bytes = buffer.len() as u64;
            let size_bytes = self.size_bytes();
            let written = Appends { bytes: self.shared.appended.load(Ordering::Relaxed) };
            match file.write(buffer, offset, size_bytes, written, self.storage())? {
                Ok(()) => {
                    self.shared.appended.fetch_add(bytes, Ordering::Relaxed);
                    if offset + bytes > size_bytes {
                        self.set_size(offset + bytes);
                    }
                    Some(())
                }
                Err(stopped) => {
                    self.cut_refused(size_bytes, offset, stopped.written as u64);
                    // The way through the page cache reports the error.
                    None
                }
            }
        };
        unopened.try_new_file(write).flatten().is_some()
    }

    /// Flushes a new file, for a caller that asks for this range: 0 bytes for all. `None`: the page cache has to do it.
    #[cold]
    pub(super) fn flush_new_file(&self, offset: u64, bytes: u64) -> Option<Result<()>> {
        let (failure, flushed) = self.unopened_cache()?.try_new_file(|file| {
            self.shared.appended.store(0, Ordering::Relaxed);
            file.flush()
        })?;
        if let Some(error) = failure
            && let Some(report) = self.storage().reporter()
        {
            WriteBackError::of_flush(self.size_bytes(), error).report_to(report);
        }
        Some(flushed.map_err(|error| self.io_error(Op::Flush, offset, bytes, error)))
    }
}
