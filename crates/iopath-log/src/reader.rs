//! Reads a log block by block, up to its end or to where it is damaged. What the records mean: `summary.rs`.

use crate::block::{Block, RECORDS_MAX};
use crate::error::{Damage, LogError};
use crate::format::{
    BLOCK_BYTES, BlockHead, FRAME_HEAD_BYTES, HEADER_BYTES_MAX, Kind, LogInfo, NAME, TRAILER_BYTES, Totals,
    VERSION, parse_header,
};
use iopath_core::Record;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;
use std::sync::mpsc::{channel, sync_channel};
use zstd::bulk::Decompressor;

/// Blocks unpacked ahead of whoever looks at them.
const BLOCKS_AHEAD: usize = 4;

/// How a log ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct End {
    /// What was counted: by the writer if the log is whole, else as far as could be read.
    pub totals: Totals,
    /// Where reading stopped, if that is not the log's end.
    pub damage: Option<Damage>,
}

/// A log being read, in memory of constant size.
pub struct LogReader<R> {
    input: R,
    /// Bytes read so far.
    offset: u64,
    info: LogInfo,
    records: u64,
    /// Records missed by each queue, as its last block has it.
    missed: BTreeMap<u16, u64>,
    end: Option<End>,
    decompressor: Decompressor<'static>,
    packed: Vec<u8>,
}

/// What stops the reading of a block.
enum Stop {
    End(Totals),
    Damage(&'static str),
    Io(std::io::Error),
}

impl LogReader<BufReader<File>> {
    /// Opens a log file and reads what it says of itself.
    ///
    /// # Errors
    /// If the file cannot be opened or is not a log of a version known here.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let open = |source| LogError::Open { path: path.to_owned(), source };
        Self::new(BufReader::with_capacity(1 << 18, File::open(path).map_err(open)?))
    }
}

impl<R: Read> LogReader<R> {
    /// Reads what a log says of itself.
    ///
    /// # Errors
    /// If it is not a log of a version known here.
    pub fn new(input: R) -> Result<Self, LogError> {
        let decompressor = Decompressor::new().map_err(|source| LogError::Read { offset: 0, source })?;
        let mut reader = Self {
            input,
            offset: 0,
            info: LogInfo::default(),
            records: 0,
            missed: BTreeMap::new(),
            end: None,
            decompressor,
            packed: Vec::new(),
        };
        let (version, info) = reader.read_header()?;
        if version > VERSION {
            return Err(LogError::Version { version });
        }
        reader.info = info;
        Ok(reader)
    }

    /// What the log says of itself.
    pub const fn info(&self) -> &LogInfo {
        &self.info
    }

    /// How the log ended, once [`LogReader::read_block`] has found its end.
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Reads the next block into `block`; `false` when there is none, because the log is at its end or damaged
    /// ([`LogReader::end`] tells).
    ///
    /// # Errors
    /// If the system reports an error in reading.
    pub fn read_block(&mut self, block: &mut Block) -> Result<bool, LogError> {
        if self.end.is_some() {
            return Ok(false);
        }
        let offset = self.offset;
        let (totals, damage) = match self.try_read_block(block) {
            Ok(()) => {
                self.records += block.len() as u64;
                self.missed.insert(block.queue(), block.missed());
                return Ok(true);
            }
            Err(Stop::Io(source)) => return Err(LogError::Read { offset: self.offset, source }),
            Err(Stop::End(totals)) if totals.records == self.records => (totals, None),
            Err(Stop::End(_)) => (self.read_so_far(), Some("its trailer counts another number of records")),
            Err(Stop::Damage(what)) => (self.read_so_far(), Some(what)),
        };
        block.bytes.clear();
        let damage = damage.map(|what| Damage { offset, record: self.records, what });
        self.end = Some(End { totals, damage });
        Ok(false)
    }

    /// Shows each block to `look`, while the next are unpacked on another thread.
    ///
    /// # Errors
    /// If the system reports an error in reading.
    pub fn for_each_block(mut self, mut look: impl FnMut(&Block)) -> Result<End, LogError>
    where
        R: Send,
    {
        let (unpacked, blocks) = sync_channel::<Block>(BLOCKS_AHEAD);
        let (release, used) = channel::<Block>();
        std::thread::scope(|scope| {
            let reading = scope.spawn(move || {
                loop {
                    let mut block = used.try_recv().unwrap_or_default();
                    if !self.read_block(&mut block)? {
                        return Ok(self.end.unwrap_or(End { totals: self.read_so_far(), damage: None }));
                    }
                    if unpacked.send(block).is_err() {
                        return Ok(End { totals: self.read_so_far(), damage: None });
                    }
                }
            });
            for block in blocks {
                look(&block);
                // The reading thread may be done: then nobody needs the memory.
                let _ = release.send(block);
            }
            reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn read_so_far(&self) -> Totals {
        let missed = self.missed.values().fold(0, |sum: u64, missed| sum.saturating_add(*missed));
        Totals { records: self.records, missed, over_limit: 0 }
    }

    fn read_header(&mut self) -> Result<(u16, LogInfo), LogError> {
        let not_a_log = |what| LogError::NotALog { what };
        let (kind, bytes) = self.read_frame_head().map_err(|stop| match stop {
            Stop::Io(source) => LogError::Read { offset: self.offset, source },
            Stop::Damage(_) | Stop::End(_) => not_a_log("it does not begin as one"),
        })?;
        if kind != Kind::Header || bytes > HEADER_BYTES_MAX {
            return Err(not_a_log("it does not begin with a header"));
        }
        let mut payload = Vec::with_capacity(bytes);
        let read = self.input.by_ref().take(bytes as u64).read_to_end(&mut payload);
        self.offset += payload.len() as u64;
        read.map_err(|source| LogError::Read { offset: self.offset, source })?;
        if payload.len() < bytes && payload.starts_with(NAME) {
            return Err(LogError::NoHeader);
        }
        parse_header(&payload).map_err(not_a_log)
    }

    fn try_read_block(&mut self, block: &mut Block) -> Result<(), Stop> {
        let (kind, bytes) = self.read_frame_head()?;
        match kind {
            Kind::Block if bytes == BLOCK_BYTES => {}
            Kind::Trailer if bytes == TRAILER_BYTES => return Err(self.read_trailer()),
            _ => return Err(Stop::Damage("no block begins here")),
        }
        let mut payload = [0; BLOCK_BYTES];
        self.read_exact(&mut payload)?;
        let head = BlockHead::parse(&payload).ok_or(Stop::Damage("a block's header is damaged"))?;
        let records = head.records as usize;
        if records == 0 || records > RECORDS_MAX || head.frame_bytes as usize > PACKED_BYTES_MAX {
            return Err(Stop::Damage("a block's header claims an impossible size"));
        }
        if head.first_record != self.records {
            return Err(Stop::Damage("blocks are missing before this one"));
        }
        let mut packed = std::mem::take(&mut self.packed);
        packed.resize(head.frame_bytes as usize, 0);
        let read = self.read_exact(&mut packed);
        self.packed = packed;
        read?;
        block.head = head;
        self.unpack(records * Record::BYTES, &mut block.bytes)
    }

    fn unpack(&mut self, bytes: usize, into: &mut Vec<u8>) -> Result<(), Stop> {
        into.clear();
        into.reserve(bytes);
        let unpacked = self.decompressor.decompress_to_buffer(&self.packed, into);
        if unpacked.is_ok_and(|unpacked| unpacked == bytes) {
            Ok(())
        } else {
            Err(Stop::Damage("a block's records are damaged"))
        }
    }

    fn read_trailer(&mut self) -> Stop {
        let mut payload = [0; TRAILER_BYTES];
        match self.read_exact(&mut payload) {
            Ok(()) => Totals::parse(&payload).map_or(Stop::Damage("its trailer is damaged"), Stop::End),
            Err(stop) => stop,
        }
    }

    fn read_frame_head(&mut self) -> Result<(Kind, usize), Stop> {
        let mut head = [0; FRAME_HEAD_BYTES];
        self.read_exact(&mut head)?;
        let [magic, bytes] = [[head[0], head[1], head[2], head[3]], [head[4], head[5], head[6], head[7]]];
        let kind = Kind::from_magic(u32::from_le_bytes(magic)).ok_or(Stop::Damage("no block begins here"))?;
        Ok((kind, u32::from_le_bytes(bytes) as usize))
    }

    /// Fills `into`, or finds that the log was cut off.
    fn read_exact(&mut self, into: &mut [u8]) -> Result<(), Stop> {
        match self.input.read_exact(into) {
            Ok(()) => {
                self.offset += into.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(Stop::Damage("it was cut off here, or is still being written"))
            }
            Err(error) => Err(Stop::Io(error)),
        }
    }
}

/// zstd makes no more of a full block: what it cannot compress grows by less than an eighth.
const PACKED_BYTES_MAX: usize = RECORDS_MAX * Record::BYTES / 8 * 9;

impl<R> fmt::Debug for LogReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, info, records, end, .. } = self;
        f.debug_struct("LogReader")
            .field("offset", offset)
            .field("info", info)
            .field("records", records)
            .field("end", end)
            .finish_non_exhaustive()
    }
}
