//! Reads a log block by block, up to its end or to the first damage. `summary.rs` interprets the records.

use crate::block::{Block, RECORDS_MAX};
use crate::columns::{self, Unpacker};
use crate::encoding::other_encoding;
use crate::error::{Damage, LogError};
use crate::format::{
    BLOCK_BYTES, BlockHead, COLUMNS_FROM, FRAME_HEAD_BYTES, HEADER_BYTES_MAX, Kind, LogInfo, MARK_BYTES,
    MARKS_MAX, Mark, NAME, TRAILER_BYTES, Totals, VERSION, parse_header,
};
use crate::labels::{LABELS_BYTES_MAX, Labels};
use iopath_core::Record;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};
use zstd::bulk::Decompressor;

/// What is wrong with a file whose first bytes have no known meaning.
const NO_LOG: &str = "its first bytes are not those of a log";

/// Blocks decompressed ahead of the callback.
const BLOCKS_AHEAD: usize = 4;

/// The end of a log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct End {
    /// The totals: of the writer if the log is complete, otherwise of the readable part.
    pub totals: Totals,
    /// The position at which reading stopped, if the log is damaged or truncated.
    pub damage: Option<Damage>,
    /// The labels of the log.
    pub labels: Labels,
    /// Facts known at the end that limit the conclusions, in words: for example, lines of a trace that were skipped.
    pub notes: Vec<String>,
}

/// Makes blocks of records from another source than a log file, such as a trace of another program.
pub trait BlockSource: Send {
    /// Replaces the content of `block` with the next records. Returns `false` at the end.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn read_block(&mut self, block: &mut Block) -> Result<bool, LogError>;

    /// All labels, if there are more than at the last call.
    fn take_labels(&mut self) -> Option<Labels>;

    /// What is known at the end. The totals count the records of all blocks.
    fn end(&self) -> End;
}

/// Where the blocks of a log come from.
enum Input<R> {
    File(R),
    Made(Box<dyn BlockSource>),
}

/// An open log. Reading takes constant memory.
pub struct LogReader<R> {
    input: Input<R>,
    /// Bytes read so far.
    offset: u64,
    info: LogInfo,
    records: u64,
    /// Records lost by each queue, according to its last block.
    missed: BTreeMap<u16, u64>,
    marks: Arc<Vec<Mark>>,
    labels: Arc<Labels>,
    end: Option<End>,
    decompressor: Decompressor<'static>,
    packed: Vec<u8>,
    /// The columns of a block, and their reader. Without a reader, blocks have words: the log is of an earlier version.
    joined: Vec<u8>,
    unpacker: Option<Unpacker>,
}

/// The reason why no block was read.
enum Stop {
    End(Totals),
    Damage(&'static str),
    /// The bytes where a frame would begin.
    NoFrame([u8; FRAME_HEAD_BYTES]),
    Io(std::io::Error),
}

impl LogReader<BufReader<File>> {
    /// Opens a log file and reads its header.
    ///
    /// # Errors
    /// If the file cannot be opened, or is not a log of a known version.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let open = |source| LogError::Open { path: path.to_owned(), source };
        Self::new(BufReader::with_capacity(1 << 18, File::open(path).map_err(open)?))
    }
}

impl<R: Read> LogReader<R> {
    /// Reads the header of a log.
    ///
    /// # Errors
    /// If `input` is not a log of a known version.
    pub fn new(input: R) -> Result<Self, LogError> {
        let decompressor = Decompressor::new().map_err(|source| LogError::Read { offset: 0, source })?;
        let mut reader = Self::with(Input::File(input), LogInfo::default(), decompressor);
        let (version, info) = reader.read_header()?;
        if version > VERSION {
            return Err(LogError::Version { version });
        }
        reader.info = info;
        reader.unpacker = (version >= COLUMNS_FROM).then(Unpacker::default);
        Ok(reader)
    }

    /// A log whose blocks `source` makes. No file is read.
    ///
    /// # Errors
    /// If there is no memory for the decompressor.
    pub fn of_blocks(info: LogInfo, source: Box<dyn BlockSource>) -> Result<Self, LogError> {
        let decompressor = Decompressor::new().map_err(|source| LogError::Read { offset: 0, source })?;
        Ok(Self::with(Input::Made(source), info, decompressor))
    }

    fn with(input: Input<R>, info: LogInfo, decompressor: Decompressor<'static>) -> Self {
        Self {
            input,
            offset: 0,
            info,
            records: 0,
            missed: BTreeMap::new(),
            marks: Arc::default(),
            labels: Arc::default(),
            end: None,
            decompressor,
            packed: Vec::new(),
            joined: Vec::new(),
            unpacker: None,
        }
    }

    /// The header.
    pub const fn info(&self) -> &LogInfo {
        &self.info
    }

    /// The labels read so far.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The end of the log, after [`LogReader::read_block`] has returned `false`.
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Reads the next block into `block`. Returns `false` at the end of the log or at damage; then [`LogReader::end`]
    /// states the reason.
    ///
    /// # Errors
    /// If the operating system reports an error while reading.
    pub fn read_block(&mut self, block: &mut Block) -> Result<bool, LogError> {
        if self.end.is_some() {
            return Ok(false);
        }
        if let Input::Made(source) = &mut self.input {
            let has_block = source.read_block(block)?;
            if let Some(labels) = source.take_labels() {
                self.labels = Arc::new(labels);
            }
            if has_block {
                self.records += block.len() as u64;
                block.labels = Arc::clone(&self.labels);
                block.marks = Arc::clone(&self.marks);
            } else {
                self.end = Some(source.end());
            }
            return Ok(has_block);
        }
        let offset = self.offset;
        let (totals, damage) = match self.try_read_block(block) {
            Ok(()) => {
                self.records += block.len() as u64;
                self.missed.insert(block.queue(), block.missed());
                block.marks = Arc::clone(&self.marks);
                block.labels = Arc::clone(&self.labels);
                return Ok(true);
            }
            Err(Stop::Io(source)) => return Err(LogError::Read { offset: self.offset, source }),
            Err(Stop::End(totals)) if totals.records == self.records => (totals, None),
            Err(Stop::End(_)) => {
                (self.read_so_far(), Some("the trailer counts a different number of records"))
            }
            Err(Stop::NoFrame(_)) => (self.read_so_far(), Some("no block begins here")),
            Err(Stop::Damage(what)) => (self.read_so_far(), Some(what)),
        };
        block.bytes.clear();
        let damage = damage.map(|what| Damage { offset, record: self.records, what });
        self.end = Some(End { totals, damage, labels: (*self.labels).clone(), notes: self.labels.notes() });
        Ok(false)
    }

    /// Calls `handle` with each block, while another thread decompresses the next ones.
    ///
    /// # Errors
    /// If the operating system reports an error while reading.
    pub fn for_each_block(mut self, mut handle: impl FnMut(&Block)) -> Result<End, LogError>
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
                        return Ok(self.end.take().unwrap_or_else(|| self.end_so_far()));
                    }
                    if unpacked.send(block).is_err() {
                        return Ok(self.end_so_far());
                    }
                }
            });
            for block in blocks {
                handle(&block);
                // Fails if the reading thread has ended and needs no more memory.
                let _ = release.send(block);
            }
            reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn end_so_far(&self) -> End {
        End { totals: self.read_so_far(), labels: (*self.labels).clone(), ..End::default() }
    }

    fn read_so_far(&self) -> Totals {
        let missed = self.missed.values().fold(0, |sum: u64, missed| sum.saturating_add(*missed));
        Totals { records: self.records, missed, over_limit: 0 }
    }

    fn read_header(&mut self) -> Result<(u16, LogInfo), LogError> {
        let not_a_log = |what| LogError::NotALog { what };
        let (kind, bytes) = self.read_frame_head().map_err(|stop| match stop {
            Stop::Io(source) => LogError::Read { offset: self.offset, source },
            Stop::NoFrame(head) => not_a_log(other_encoding(&head).unwrap_or(NO_LOG)),
            Stop::Damage(_) | Stop::End(_) => not_a_log(NO_LOG),
        })?;
        if kind != Kind::Header || bytes > HEADER_BYTES_MAX {
            return Err(not_a_log("it does not begin with a header"));
        }
        let mut payload = Vec::with_capacity(bytes);
        let Input::File(input) = &mut self.input else { return Err(not_a_log(NO_LOG)) };
        let read = input.by_ref().take(bytes as u64).read_to_end(&mut payload);
        self.offset += payload.len() as u64;
        read.map_err(|source| LogError::Read { offset: self.offset, source })?;
        if payload.len() < bytes && payload.starts_with(NAME) {
            return Err(LogError::NoHeader);
        }
        parse_header(&payload).map_err(not_a_log)
    }

    fn try_read_block(&mut self, block: &mut Block) -> Result<(), Stop> {
        loop {
            match self.read_frame_head()? {
                (Kind::Block, BLOCK_BYTES) => break,
                (Kind::Mark, MARK_BYTES) => self.read_mark()?,
                (Kind::Labels, bytes) if bytes <= LABELS_BYTES_MAX => self.read_labels(bytes)?,
                (Kind::Trailer, TRAILER_BYTES) => return Err(self.read_trailer()),
                _ => return Err(Stop::Damage("no block begins here")),
            }
        }
        let mut payload = [0; BLOCK_BYTES];
        self.read_exact(&mut payload)?;
        let head = BlockHead::parse(&payload).ok_or(Stop::Damage("a block header is damaged"))?;
        let records = head.records as usize;
        if records == 0 || records > RECORDS_MAX || head.frame_bytes as usize > PACKED_BYTES_MAX {
            return Err(Stop::Damage("a block header contains an impossible size"));
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
        self.unpack(records, &mut block.bytes).ok_or(Stop::Damage("the records of a block are damaged"))
    }

    /// Replaces `words` with the words of the records of the compressed block.
    fn unpack(&mut self, records: usize, words: &mut Vec<u8>) -> Option<()> {
        let Self { decompressor, packed, joined, unpacker, .. } = self;
        let bytes = records * Record::BYTES;
        let Some(unpacker) = unpacker else {
            words.clear();
            words.reserve(bytes);
            let unpacked = decompressor.decompress_to_buffer(packed, words).ok()?;
            return (unpacked == bytes).then_some(());
        };
        joined.clear();
        joined.reserve(columns::bytes_max(records));
        decompressor.decompress_to_buffer(packed, joined).ok()?;
        unpacker.unpack(joined, records, words)
    }

    fn read_trailer(&mut self) -> Stop {
        let mut payload = [0; TRAILER_BYTES];
        match self.read_exact(&mut payload) {
            Ok(()) => Totals::parse(&payload).map_or(Stop::Damage("the trailer is damaged"), Stop::End),
            Err(stop) => stop,
        }
    }

    fn read_mark(&mut self) -> Result<(), Stop> {
        let mut payload = [0; MARK_BYTES];
        self.read_exact(&mut payload)?;
        let mark = Mark::parse(&payload).ok_or(Stop::Damage("a mark is damaged"))?;
        if self.marks.last().is_some_and(|last| mark.at_ns < last.at_ns) {
            return Err(Stop::Damage("a mark is earlier than the one before"));
        }
        if self.marks.len() < MARKS_MAX {
            Arc::make_mut(&mut self.marks).push(mark);
        }
        Ok(())
    }

    fn read_labels(&mut self, bytes: usize) -> Result<(), Stop> {
        let mut payload = vec![0; bytes];
        self.read_exact(&mut payload)?;
        let labels = Labels::parse(&payload).ok_or(Stop::Damage("labels are damaged"))?;
        Arc::make_mut(&mut self.labels).merge(labels);
        Ok(())
    }

    fn read_frame_head(&mut self) -> Result<(Kind, usize), Stop> {
        let mut head = [0; FRAME_HEAD_BYTES];
        self.read_exact(&mut head)?;
        let [magic, bytes] = [[head[0], head[1], head[2], head[3]], [head[4], head[5], head[6], head[7]]];
        let kind = Kind::from_magic(u32::from_le_bytes(magic)).ok_or(Stop::NoFrame(head))?;
        Ok((kind, u32::from_le_bytes(bytes) as usize))
    }

    /// Fills `into`, unless the log is truncated.
    fn read_exact(&mut self, into: &mut [u8]) -> Result<(), Stop> {
        let Input::File(input) = &mut self.input else { return Err(Stop::Damage(NO_LOG)) };
        match input.read_exact(into) {
            Ok(()) => {
                self.offset += into.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(Stop::Damage("it was truncated here, or is still being written"))
            }
            Err(error) => Err(Stop::Io(error)),
        }
    }
}

/// The largest size of a compressed block: zstd expands incompressible data by less than an eighth.
const PACKED_BYTES_MAX: usize = RECORDS_MAX * Record::BYTES / 8 * 9;

/// Whether the file at `path` begins like a log.
///
/// # Errors
/// If it cannot be read.
pub fn is_log(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take((FRAME_HEAD_BYTES + NAME.len()) as u64).read_to_end(&mut start)?;
    Ok(starts_log(&start))
}

/// Whether a file with these first bytes, at least 18 unless it is shorter, begins like a log.
pub fn starts_log(start: &[u8]) -> bool {
    let is_header = start.starts_with(&(Kind::Header as u32).to_le_bytes());
    is_header && start.get(FRAME_HEAD_BYTES..).is_some_and(|rest| rest.starts_with(NAME))
}

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
