//! A new file while its page cache is not open. Executes what `iopath_core::volume` decides, by plain system calls.

use super::Storage;
use crate::error::OpenError;
use crate::options::{IoMode, Options};
use iopath_core::IoError;
use iopath_core::volume::{self, Appends};
use iopath_os::{Tail, WriteStopped, file_size_limit, flush_now};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// A new file with its descriptors.
#[derive(Debug)]
pub(crate) struct NewFile {
    writes: volume::NewFile,
    file: Arc<File>,
    tail: Box<dyn Tail>,
}

impl NewFile {
    /// The new file of a volume. `None`: the volume needs its page cache from the first write on.
    pub(crate) fn of(storage: &Storage) -> Result<Option<Self>, OpenError> {
        let Options { extend, mode, .. } = storage.options;
        let is_new = storage.target.size_bytes == 0 && extend && storage.extends_in_steps;
        let Some(file) = storage.plain_file().filter(|_| is_new && mode == IoMode::Buffered) else {
            return Ok(None);
        };
        Ok(storage.tail()?.map(|tail| Self { writes: volume::NewFile::default(), file, tail }))
    }

    /// Writes `buffer` at `offset`. `None`: the write needs the page cache. `written` counts the writes since the last
    /// flush.
    pub(crate) fn write(
        &mut self,
        buffer: &[u8],
        offset: u64,
        size_bytes: u64,
        written: Appends,
        storage: &Storage,
    ) -> Option<Result<(), WriteStopped>> {
        let bytes = buffer.len() as u64;
        let step_bytes = storage.options.extend_step_bytes;
        let is_accepted = self.writes.accepts(size_bytes, offset, bytes, written, step_bytes)
            && !storage.tuning.has_elevator()
            // The system would end the process by SIGXFSZ.
            && offset + bytes <= file_size_limit();
        if !is_accepted {
            return None;
        }
        self.writes.handle_write(offset..offset + bytes);
        Some(self.tail.write_all_at(buffer, offset))
    }

    /// Flushes the file. Returns the error of the system, if there was one, and the result for the caller.
    pub(crate) fn flush(&mut self) -> (Option<IoError>, Result<(), IoError>) {
        let flushed = flush_now(&self.file);
        if flushed.is_err() {
            self.tail.handle_failed_flush();
        }
        (flushed.err(), self.writes.handle_flush(flushed))
    }

    pub(crate) fn accept_loss(&mut self) -> Option<IoError> {
        self.writes.accept_loss()
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.writes.is_flushed()
    }

    /// What the page cache has to know when it opens: [`volume::NewFile::into_parts`].
    pub(super) fn into_parts(self) -> (Range<u64>, Option<IoError>) {
        self.writes.into_parts()
    }
}
