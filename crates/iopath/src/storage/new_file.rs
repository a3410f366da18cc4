//! A new file while its page cache is not open. Executes what `iopath_core::volume` decides, by plain system calls.

use super::Storage;
use crate::error::OpenError;
use crate::options::{IoMode, Options};
use iopath_core::IoError;
use iopath_core::volume::{self, Appends};
use iopath_os::{Tail, WriteStopped, flush_now};
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
    /// flush; the system lets the process extend the file to `length_max` bytes.
    pub(crate) fn write(
        &mut self,
        buffer: &[u8],
        offset: u64,
        size_bytes: u64,
        (written, length_max): (Appends, u64),
        storage: &Storage,
    ) -> Option<Result<(), WriteStopped>> {
        let bytes = buffer.len() as u64;
        let step_bytes = storage.options.extend_step_bytes;
        let is_accepted = volume::NewFile::accepts(size_bytes, offset, bytes, written, step_bytes)
            && !storage.tuning.has_elevator()
            // The system would end the process by SIGXFSZ.
            && offset + bytes <= length_max;
        if !is_accepted {
            return None;
        }
        self.writes.handle_write(offset..offset + bytes);
        Some(self.tail.write_all_at(buffer, offset))
    }

    pub(crate) fn flush(&mut self) -> Result<(), IoError> {
        self.writes.handle_flush(flush_now(&self.file))
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
