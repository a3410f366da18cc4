//! The file being written: compresses blocks, keeps to the limit, counts. Threads and rings: `writer.rs`.

use super::LogOptions;
use crate::block::{Clock, RECORDS_MAX};
use crate::error::LogError;
use crate::format::{BlockHead, FRAME_HEAD_BYTES, LogInfo, TRAILER_BYTES, Totals, header};
use iopath_core::Record;
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use zstd::bulk::Compressor;

/// Records of one queue that are not a block yet.
#[derive(Debug)]
pub(super) struct Pending {
    queue: u16,
    time_ns: u64,
    clock: Clock,
    /// The records' words, each kind for itself, as they lie in a block.
    words: [Vec<u8>; 3],
}

impl Pending {
    pub(super) fn new(queue: u16) -> Self {
        let words = std::array::from_fn(|_| Vec::with_capacity(RECORDS_MAX * size_of::<u64>()));
        Self { queue, time_ns: 0, clock: Clock::default(), words }
    }

    fn len(&self) -> usize {
        self.words[0].len() / size_of::<u64>()
    }

    /// How many more records it takes.
    pub(super) fn room(&self) -> usize {
        RECORDS_MAX - self.len()
    }

    /// Adds records, for which there must be room.
    pub(super) fn extend(&mut self, records: &[Record]) {
        let is_first = self.words[0].is_empty();
        if let Some(first) = records.first().filter(|_| is_first) {
            self.time_ns = self.clock.time(*first).as_nanos();
        }
        for record in records {
            self.clock.time(*record);
        }
        for (kind, words) in self.words.iter_mut().enumerate() {
            let start = words.len();
            words.resize(start + records.len() * size_of::<u64>(), 0);
            let (places, _) = words[start..].as_chunks_mut();
            for (place, record) in places.iter_mut().zip(records) {
                *place = record.to_words()[kind].to_le_bytes();
            }
        }
    }
}

/// A log file open for writing.
pub(super) struct LogFile {
    file: File,
    path: PathBuf,
    compressor: Compressor<'static>,
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
    /// At its limit. The trailer still fits.
    Full,
    Failed(io::Error),
}

impl LogFile {
    pub(super) fn create(path: &Path, info: &LogInfo, options: &LogOptions) -> Result<Self, LogError> {
        let level = options.level;
        let mut compressor = Compressor::new(level).map_err(|source| LogError::Level { level, source })?;
        let is_level = zstd::compression_level_range().contains(&level) && level > 0;
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
        let open = |source| LogError::Open { path: path.to_owned(), source };
        let mut file = open_empty(path).map_err(open)?;
        file.write_all(&header).map_err(open)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            compressor,
            frames: Vec::new(),
            written_bytes: header.len() as u64,
            limit_bytes: options.limit_bytes,
            totals: Totals::default(),
            state: State::Growing,
        })
    }

    /// Writes what is pending as a block, if there is anything, and room for it; else counts it.
    pub(super) fn write(&mut self, pending: &mut Pending, missed: u64) {
        let records = pending.len() as u64;
        if records == 0 {
            return;
        }
        if matches!(self.state, State::Growing) {
            self.state = self.try_write(pending, missed).unwrap_or_else(State::Failed);
        }
        match self.state {
            State::Growing => self.totals.records += records,
            State::Full | State::Failed(_) => self.totals.over_limit += records,
        }
        pending.words.iter_mut().for_each(Vec::clear);
    }

    fn try_write(&mut self, pending: &Pending, missed: u64) -> io::Result<State> {
        let packed = self.compressor.compress(&pending.words.concat())?;
        let head = BlockHead {
            queue: pending.queue,
            records: pending.len() as u32,
            first_record: self.totals.records,
            time_ns: pending.time_ns,
            missed,
            frame_bytes: packed.len() as u32,
        };
        self.frames.clear();
        self.frames.extend(head.to_frame());
        self.frames.extend(packed);
        let bytes = self.frames.len() as u64;
        if self.written_bytes + bytes + TRAILER_FRAME_BYTES > self.limit_bytes {
            return Ok(State::Full);
        }
        self.file.write_all(&self.frames)?;
        self.written_bytes += bytes;
        Ok(State::Growing)
    }

    /// Writes the trailer. What the file and the rings counted.
    pub(super) fn finish(mut self, missed: u64) -> Result<Totals, LogError> {
        self.totals.missed = missed;
        let result = match self.state {
            State::Failed(error) => Err(error),
            State::Growing | State::Full => self.file.write_all(&self.totals.to_frame()),
        };
        let records = self.totals.records;
        result.map_err(|source| LogError::Write { path: self.path, records, source })?;
        Ok(self.totals)
    }
}

/// A file to begin a log in. Only a regular one is emptied, and no block device is even opened; what keeps nothing
/// (`/dev/null`, a FIFO) takes the log as it comes.
fn open_empty(path: &Path) -> io::Result<File> {
    if let Ok(about) = fs::metadata(path) {
        keeps_no_other_bytes(&about)?;
    }
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    // The name may stand for something else by now.
    let about = file.metadata()?;
    keeps_no_other_bytes(&about)?;
    if about.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

fn keeps_no_other_bytes(about: &Metadata) -> io::Result<()> {
    if about.file_type().is_block_device() {
        let what = "it is a block device, whose bytes the log would destroy; name a file";
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

    /// Asks about the devices there are, and opens none.
    #[test]
    fn a_block_device_keeps_other_bytes_and_files_and_devices_of_characters_do_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for taken in [file.path(), Path::new("/dev/null")] {
            keeps_no_other_bytes(&fs::metadata(taken).unwrap()).unwrap();
        }
        let devices = fs::read_dir("/dev").unwrap().filter_map(|entry| fs::metadata(entry.ok()?.path()).ok());
        let Some(device) = devices.into_iter().find(|about| about.file_type().is_block_device()) else {
            eprintln!("skipped: there is no block device");
            return;
        };
        assert!(keeps_no_other_bytes(&device).unwrap_err().to_string().contains("block device"));
    }

    #[test]
    fn a_log_begins_in_an_empty_file_whatever_was_in_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), vec![1; 1 << 16]).unwrap();
        assert_eq!(open_empty(file.path()).unwrap().metadata().unwrap().len(), 0);
    }
}
