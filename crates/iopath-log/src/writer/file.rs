//! The file of a log being written: compresses blocks, enforces the size limit, counts records. The thread and the
//! rings are in `writer.rs`.

use super::options::LogOptions;
use crate::block::{Clock, RECORDS_MAX};
use crate::columns::Columns;
use crate::error::LogError;
use crate::format::{BlockHead, FRAME_HEAD_BYTES, LogInfo, MARKS_MAX, Mark, TRAILER_BYTES, Totals, header};
use crate::labels::Labels;
use iopath_core::Record;
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

/// Records of one queue that are not written yet.
#[derive(Debug)]
pub(super) struct Pending {
    queue: u16,
    time_ns: u64,
    clock: Clock,
    columns: Columns,
}

impl Pending {
    pub(super) fn new(queue: u16) -> Self {
        Self { queue, time_ns: 0, clock: Clock::default(), columns: Columns::new() }
    }

    /// The next records are those of a queue from this time on. No records may be pending.
    pub(super) fn begin(&mut self, queue: u16, time_ns: u64) {
        debug_assert!(self.is_empty(), "records of queue {} are pending", self.queue);
        (self.queue, self.clock) = (queue, Clock::at(time_ns));
    }

    fn len(&self) -> usize {
        self.columns.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of records that still fit.
    pub(super) fn room(&self) -> usize {
        RECORDS_MAX - self.len()
    }

    pub(super) fn clear(&mut self) {
        self.columns.clear();
    }

    /// Adds records, which must fit.
    pub(super) fn extend(&mut self, records: &[Record]) {
        let is_first = self.is_empty();
        if let Some(first) = records.first().filter(|_| is_first) {
            self.time_ns = self.clock.time(*first).as_nanos();
        }
        for record in records {
            self.clock.time(*record);
        }
        self.columns.extend(records);
    }
}

/// A log open for writing: a file, or memory.
pub(super) struct LogFile {
    out: Box<dyn Write + Send>,
    /// The name for messages.
    path: PathBuf,
    compressor: Compressor<'static>,
    /// Marks to be written before the next block.
    marks: Receiver<Mark>,
    marks_written: usize,
    /// Blocks so far, including those that did not fit.
    blocks: u64,
    /// The columns of one block, and the compressed columns. Both are reused: an allocation of this size is a system
    /// call.
    joined: Vec<u8>,
    packed: Vec<u8>,
    /// The frames of one block.
    frames: Vec<u8>,
    written_bytes: u64,
    limit_bytes: u64,
    totals: Totals,
    state: State,
}

#[derive(Debug)]
enum State {
    Growing,
    /// The file has reached its size limit. It still has room for the trailer.
    Full,
    Failed(io::Error),
}

impl LogFile {
    /// Creates the file, or truncates it.
    pub(super) fn create(
        path: &Path,
        info: &LogInfo,
        options: &LogOptions,
        marks: Receiver<Mark>,
    ) -> Result<Self, LogError> {
        let is_new = fs::symlink_metadata(path).is_err();
        let file = Self::new(|| Ok(Box::new(open_empty(path)?)), path, info, options, marks);
        // A full disk refuses the first bytes of an empty file.
        if is_new && matches!(file, Err(LogError::Open { .. })) {
            let _ = fs::remove_file(path);
        }
        file
    }

    /// Calls `open` if the options are valid, and writes the header. `path` is for messages.
    pub(super) fn new(
        open: impl FnOnce() -> io::Result<Box<dyn Write + Send>>,
        path: &Path,
        info: &LogInfo,
        options: &LogOptions,
        marks: Receiver<Mark>,
    ) -> Result<Self, LogError> {
        let level = options.level;
        let mut compressor = Compressor::new(level).map_err(|source| LogError::Level { level, source })?;
        let is_level = (LogOptions::LEVEL_MIN..=LogOptions::LEVEL_MAX).contains(&level) && level != 0;
        if !is_level {
            let source = io::ErrorKind::InvalidInput.into();
            return Err(LogError::Level { level, source });
        }
        compressor.include_checksum(true).map_err(|source| LogError::Level { level, source })?;
        let header = header(info);
        let least_bytes = header.len() as u64 + TRAILER_FRAME_BYTES;
        if options.limit_bytes < least_bytes {
            return Err(LogError::Limit { limit_bytes: options.limit_bytes, least_bytes });
        }
        let failed = |source| LogError::Open { path: path.to_owned(), source };
        let mut out = open().map_err(failed)?;
        out.write_all(&header).map_err(failed)?;
        Ok(Self {
            out,
            path: path.to_owned(),
            compressor,
            marks,
            marks_written: 0,
            blocks: 0,
            joined: Vec::new(),
            packed: Vec::new(),
            frames: Vec::new(),
            written_bytes: header.len() as u64,
            limit_bytes: options.limit_bytes,
            totals: Totals::default(),
            state: State::Growing,
        })
    }

    /// The number of blocks of the log so far, including those that did not fit.
    pub(super) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Writes the pending records as a block if they fit into the file, and counts them.
    pub(super) fn write(&mut self, pending: &mut Pending, missed: u64) {
        let records = pending.len() as u64;
        if records == 0 {
            return;
        }
        self.blocks += 1;
        self.write_marks();
        if matches!(self.state, State::Growing) {
            self.state = self.try_write(pending, missed).unwrap_or_else(State::Failed);
        }
        match self.state {
            State::Growing => self.totals.records += records,
            State::Full | State::Failed(_) => self.totals.over_limit += records,
        }
        pending.clear();
    }

    fn try_write(&mut self, pending: &Pending, missed: u64) -> io::Result<State> {
        self.joined.clear();
        pending.columns.write_to(&mut self.joined);
        self.packed.clear();
        self.packed.reserve(compress_bound(self.joined.len()));
        self.compressor.compress_to_buffer(&self.joined, &mut self.packed)?;
        let head = BlockHead {
            queue: pending.queue,
            records: pending.len() as u32,
            first_record: self.totals.records,
            time_ns: pending.time_ns,
            missed,
            frame_bytes: self.packed.len() as u32,
        };
        self.frames.clear();
        self.frames.extend(head.to_frame());
        self.frames.extend_from_slice(&self.packed);
        let bytes = self.frames.len() as u64;
        if self.written_bytes + bytes + TRAILER_FRAME_BYTES > self.limit_bytes {
            return Ok(State::Full);
        }
        self.out.write_all(&self.frames)?;
        self.written_bytes += bytes;
        Ok(State::Growing)
    }

    /// Writes the marks that the caller has set. The caller sets a mark before any I/O of its repeat. So this thread
    /// receives the mark before it writes a block with such I/O.
    fn write_marks(&mut self) {
        while let Ok(mark) = self.marks.try_recv() {
            let frame = mark.to_frame();
            let bytes = self.written_bytes + frame.len() as u64;
            let is_growing = matches!(self.state, State::Growing);
            if is_growing && self.marks_written < MARKS_MAX && bytes + TRAILER_FRAME_BYTES <= self.limit_bytes
            {
                match self.out.write_all(&frame) {
                    Ok(()) => (self.written_bytes, self.marks_written) = (bytes, self.marks_written + 1),
                    Err(error) => self.state = State::Failed(error),
                }
            }
        }
    }

    /// Writes labels, if they fit into the file.
    pub(super) fn write_labels(&mut self, labels: &Labels) {
        for frame in labels.to_frames() {
            let bytes = self.written_bytes + frame.len() as u64;
            if !matches!(self.state, State::Growing) || bytes + TRAILER_FRAME_BYTES > self.limit_bytes {
                return;
            }
            match self.out.write_all(&frame) {
                Ok(()) => self.written_bytes = bytes,
                Err(error) => self.state = State::Failed(error),
            }
        }
    }

    /// Writes the trailer. Returns the totals of file and rings.
    pub(super) fn finish(mut self, missed: u64) -> Result<Totals, LogError> {
        self.write_marks();
        self.totals.missed = missed;
        let result = match self.state {
            State::Failed(error) => Err(error),
            State::Growing | State::Full => self.out.write_all(&self.totals.to_frame()),
        };
        let records = self.totals.records;
        result.map_err(|source| LogError::Write { path: self.path, records, source })?;
        Ok(self.totals)
    }
}

/// Opens the file of a new log. Truncates a regular file. Refuses a block device without opening it. Opens a character
/// device (`/dev/null`) or FIFO without truncation.
fn open_empty(path: &Path) -> io::Result<File> {
    if let Ok(metadata) = fs::metadata(path) {
        refuse_block_device(&metadata)?;
    }
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    // The path may have been replaced in between.
    let metadata = file.metadata()?;
    refuse_block_device(&metadata)?;
    if metadata.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

fn refuse_block_device(metadata: &Metadata) -> io::Result<()> {
    if metadata.file_type().is_block_device() {
        let what = "it is a block device, and the log would destroy its data; name a file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(())
}

impl fmt::Debug for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, written_bytes, limit_bytes, totals, state, .. } = self;
        f.debug_struct("LogFile")
            .field("path", path)
            .field("written_bytes", written_bytes)
            .field("limit_bytes", limit_bytes)
            .field("totals", totals)
            .field("state", state)
            .finish_non_exhaustive()
    }
}

const TRAILER_FRAME_BYTES: u64 = (FRAME_HEAD_BYTES + TRAILER_BYTES) as u64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads metadata only; opens no device.
    #[test]
    fn only_block_devices_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for accepted in [file.path(), Path::new("/dev/null")] {
            refuse_block_device(&fs::metadata(accepted).unwrap()).unwrap();
        }
        let devices = fs::read_dir("/dev").unwrap().filter_map(|entry| fs::metadata(entry.ok()?.path()).ok());
        let Some(device) = devices.into_iter().find(|metadata| metadata.file_type().is_block_device()) else {
            eprintln!("skipped: there is no block device");
            return;
        };
        assert!(refuse_block_device(&device).unwrap_err().to_string().contains("block device"));
    }

    #[test]
    fn an_existing_file_is_truncated() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), vec![1; 1 << 16]).unwrap();
        assert_eq!(open_empty(file.path()).unwrap().metadata().unwrap().len(), 0);
    }
}
