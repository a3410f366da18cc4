//! A file of Turso: a volume.

use iopath::{Error, Volume};
use std::io::IoSlice;
use std::sync::Arc;
use turso_core::io::FileSyncType;
use turso_core::{Buffer, Completion, File, Result, io_error};

/// A file that is open as a volume.
pub(crate) struct VolumeFile {
    volume: Volume,
}

impl VolumeFile {
    pub(crate) fn new(volume: Volume) -> Self {
        Self { volume }
    }
}

/// Completes an I/O, or returns its error.
fn finish(completion: Completion, call: &'static str, result: Result<usize, Error>) -> Result<Completion> {
    let bytes = result.map_err(|error| io_error(error.into(), call))?;
    completion.complete(i32::try_from(bytes).expect("Turso's buffers have less than 2 GiB"));
    Ok(completion)
}

impl File for VolumeFile {
    /// The lock is that of the volume, from its opening to its end.
    fn lock_file(&self, _exclusive: bool) -> Result<()> {
        Ok(())
    }

    fn unlock_file(&self) -> Result<()> {
        Ok(())
    }

    fn pread(&self, pos: u64, c: Completion) -> Result<Completion> {
        let read = self.volume.read_at(c.as_read().buf().as_mut_slice(), pos);
        finish(c, "pread", read)
    }

    fn pwrite(&self, pos: u64, buffer: Arc<Buffer>, c: Completion) -> Result<Completion> {
        let written = self.volume.write_at(buffer.as_slice(), pos);
        finish(c, "pwrite", written.map(|()| buffer.len()))
    }

    fn pwritev(&self, pos: u64, buffers: Vec<Arc<Buffer>>, c: Completion) -> Result<Completion> {
        let slices: Vec<IoSlice<'_>> = buffers.iter().map(|buffer| IoSlice::new(buffer.as_slice())).collect();
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        let written = self.volume.write_vectored_at(&slices, pos);
        finish(c, "pwritev", written.map(|()| bytes))
    }

    fn sync(&self, c: Completion, _sync_type: FileSyncType) -> Result<Completion> {
        let flushed = self.volume.flush();
        finish(c, "sync", flushed.map(|()| 0))
    }

    fn size(&self) -> Result<u64> {
        Ok(self.volume.size_bytes())
    }

    fn truncate(&self, len: u64, c: Completion) -> Result<Completion> {
        let resized = self.volume.resize(len);
        finish(c, "truncate", resized.map(|()| 0))
    }
}
