//! Writes log files from parts. The checksums are valid, and the content can be anything. It also parses log files into
//! the same parts. The code follows docs/log-format.md and does not use the crate, whose writer cannot write invalid
//! content.

use iopath_core::{
    Bio, Extent, Instant, LengthOnly, Limits, QueueConfig, Record, RequestQueue, Sector, Stream,
};
use iopath_log::{LogInfo, LogOptions, LogWriter};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::OnceLock;

const HEADER: u32 = 0x184D_2A50;
const BLOCK: u32 = 0x184D_2A51;
const TRAILER: u32 = 0x184D_2A52;
const MARK: u32 = 0x184D_2A53;

/// A log to be written.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) info: Value,
    /// Repeats and their times, written before the blocks.
    pub(crate) marks: Vec<(u32, u64)>,
    pub(crate) blocks: Vec<MadeBlock>,
    /// Records, missed, over the limit; none for a truncated log.
    pub(crate) totals: Option<[u64; 3]>,
}

/// A block, and the fields of its header that do not match the content.
#[derive(Debug, Clone, Default)]
pub(crate) struct MadeBlock {
    pub(crate) queue: u16,
    pub(crate) time_ns: u64,
    pub(crate) missed: u64,
    pub(crate) records: Vec<[u64; 3]>,
    pub(crate) claims_records: Option<u32>,
    pub(crate) claims_first: Option<u64>,
    pub(crate) claims_frame_bytes: Option<u32>,
}

impl MadeBlock {
    pub(crate) fn of(records: Vec<Record>) -> Self {
        Self { records: records.into_iter().map(Record::to_words).collect(), ..Self::default() }
    }

    /// The frames of the block after `first` records.
    fn to_bytes(&self, first: u64) -> Vec<u8> {
        let column = |word: usize| self.records.iter().flat_map(move |record| record[word].to_le_bytes());
        let bytes: Vec<u8> = (0..3).flat_map(column).collect();
        let packed = zstd::bulk::compress(&bytes, 1).unwrap();
        let mut head = Vec::new();
        head.extend(self.queue.to_le_bytes());
        head.extend([0; 2]);
        head.extend(self.claims_records.unwrap_or(self.records.len() as u32).to_le_bytes());
        head.extend(self.claims_first.unwrap_or(first).to_le_bytes());
        head.extend(self.time_ns.to_le_bytes());
        head.extend(self.missed.to_le_bytes());
        head.extend(self.claims_frame_bytes.unwrap_or(packed.len() as u32).to_le_bytes());
        [frame(BLOCK, &head), packed].concat()
    }
}

impl Made {
    /// A complete log of these blocks.
    pub(crate) fn of(blocks: Vec<MadeBlock>) -> Self {
        let records = blocks.iter().map(|block| block.records.len() as u64).sum();
        Self { info: json!({ "target": "made" }), marks: Vec::new(), blocks, totals: Some([records, 0, 0]) }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = header(&serde_json::to_vec(&self.info).unwrap());
        for (repeat, at_ns) in &self.marks {
            bytes.extend(frame(MARK, &[&at_ns.to_le_bytes()[..], &repeat.to_le_bytes()].concat()));
        }
        let mut first = 0;
        for block in &self.blocks {
            bytes.extend(block.to_bytes(first));
            first += block.records.len() as u64;
        }
        if let Some(totals) = self.totals {
            let counts = totals.iter().flat_map(|count| count.to_le_bytes());
            bytes.extend(frame(TRAILER, &counts.chain([0; 8]).collect::<Vec<u8>>()));
        }
        bytes
    }

    /// Changes the words of a record, numbered over all blocks.
    pub(crate) fn with_record(&mut self, number: usize, act: impl FnOnce(&mut [u64; 3])) {
        if let Some(words) = self.blocks.iter_mut().flat_map(|block| &mut block.records).nth(number) {
            act(words);
        }
    }

    /// The parts of a log file.
    fn parse(bytes: &[u8]) -> Self {
        let (mut made, mut rest, mut has_columns) = (Self::of(Vec::new()), bytes, false);
        while let Some((magic, payload, after)) = next_frame(rest) {
            rest = after;
            let number = |from: usize, len: usize| {
                let mut bytes = [0; 8];
                bytes[..len].copy_from_slice(&payload[from..from + len]);
                u64::from_le_bytes(bytes)
            };
            match magic {
                HEADER => {
                    has_columns = number(10, 2) >= 5;
                    made.info = serde_json::from_slice(&payload[12..payload.len() - 4]).unwrap();
                }
                BLOCK => {
                    let (packed, after) = rest.split_at(number(32, 4) as usize);
                    rest = after;
                    let records = number(4, 4) as usize;
                    let bytes = zstd::bulk::decompress(packed, 1 << 20).unwrap();
                    made.blocks.push(MadeBlock {
                        queue: number(0, 2) as u16,
                        time_ns: number(16, 8),
                        missed: number(24, 8),
                        records: if has_columns {
                            records_of_columns(&bytes, records)
                        } else {
                            records_of_words(&bytes, records)
                        },
                        ..MadeBlock::default()
                    });
                }
                MARK => made.marks.push((number(8, 4) as u32, number(0, 8))),
                _ => made.totals = Some([0, 8, 16].map(|from| number(from, 8))),
            }
        }
        made
    }
}

/// The words of `count` records in a block of words.
fn records_of_words(bytes: &[u8], count: usize) -> Vec<[u64; 3]> {
    let (words, _) = bytes.as_chunks::<8>();
    let word = |column, record| u64::from_le_bytes(words[column * count + record]);
    (0..count).map(|record| [0, 1, 2].map(|column| word(column, record))).collect()
}

/// The words of `count` records in a block of columns.
fn records_of_columns(bytes: &[u8], count: usize) -> Vec<[u64; 3]> {
    let (flags, mut rest) = bytes.split_at(count);
    let mut column = |flag: u8| {
        let (has_value, width) = (|index: usize| flag == 0 || flags[index] & flag != 0, usize::from(rest[0]));
        let indices: Vec<_> = (0..count).filter(|index| has_value(*index)).collect();
        let (planes, after) = rest[1..].split_at(width * indices.len());
        rest = after;
        let mut values = vec![0_u64; count];
        for (place, index) in indices.iter().enumerate() {
            values[*index] =
                (0..width).map(|byte| u64::from(planes[byte * indices.len() + place]) << (8 * byte)).sum();
        }
        values
    };
    let [kinds, tags] = [column(0), column(0)];
    let [times, lengths, places, others] = [1, 2, 4, 8].map(column);
    assert!(rest.is_empty());
    let (mut time, mut last) = (0, HashMap::new());
    let record = |index| {
        time = (time + times[index]) % (1 << 40);
        let (length, place) = last.entry(tags[index] % 4096).or_insert((0, 0));
        *length ^= lengths[index];
        *place ^= places[index];
        [time | *length << 40, *place, tags[index] | others[index] << 24 | kinds[index] << 48]
    };
    (0..count).map(record).collect()
}

fn next_frame(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (magic, rest) = bytes.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let (payload, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
    Some((u32::from_le_bytes(*magic), payload, rest))
}

/// A header of the last version whose blocks have words.
pub(crate) fn header(json: &[u8]) -> Vec<u8> {
    header_of(4, json)
}

pub(crate) fn header_of(version: u16, json: &[u8]) -> Vec<u8> {
    frame(HEADER, &[b"iopath.log", version.to_le_bytes().as_slice(), json].concat())
}

fn frame(magic: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = magic.to_le_bytes().to_vec();
    bytes.extend((payload.len() as u32 + 4).to_le_bytes());
    bytes.extend(payload);
    bytes.extend(crc32fast::hash(payload).to_le_bytes());
    bytes
}

/// A log of the writer, of two queues that merge, split, requeue and fail.
pub(crate) fn of_a_queue() -> Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = LogWriter::create(&path, &LogInfo::default(), &LogOptions::default()).unwrap();
        for elevator in ["none", "ascend"] {
            live(&log, elevator);
        }
        log.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let made = Made::parse(&bytes);
        assert!(made.blocks.iter().map(|block| block.records.len()).sum::<usize>() > 400, "too few records");
        // Written again, it is the same log, but not necessarily the same bytes.
        assert_eq!(Made::parse(&made.to_bytes()).blocks.len(), made.blocks.len());
        made
    })
    .clone()
}

fn live(log: &LogWriter, elevator: &str) {
    let limits = Limits {
        request_bytes_max: 16 << 9,
        chunk_sectors: 64,
        volatile_cache: true,
        ..Limits::with_capacity(1 << 20)
    };
    let config = QueueConfig {
        requests_max: 16,
        depth: 4,
        elevator: elevator.parse().unwrap(),
        ..QueueConfig::default()
    };
    let mut queue = RequestQueue::new(limits, &config);
    queue.start_log(Box::new(log.add_queue()));
    for round in 0..40_u64 {
        let now = Instant::from_nanos(round * 1_000_000);
        queue.plug();
        for bio in 0..4 {
            let extent = Extent::new(Sector((round * 37 + bio * 8) % 1000), 8 + bio * 20).unwrap();
            let memory = LengthOnly::new(extent.bytes());
            let bio =
                if round % 3 == 0 { Bio::write(extent, memory, bio) } else { Bio::read(extent, memory, bio) };
            queue.submit_bio(bio.on_stream(Stream(round as u32 % 3)), now).unwrap();
        }
        if round % 8 == 0 {
            queue.submit_bio(Bio::flush(9), now).unwrap();
        }
        queue.unplug(now);
        let mut is_returned = round % 5 == 0;
        while let Some(tag) = queue.poll_dispatch(now).map(|io| io.tag) {
            if std::mem::take(&mut is_returned) {
                queue.requeue(tag, now);
                queue.handle_timeout(Instant::from_nanos(round * 1_000_000 + 2_000_000));
                continue;
            }
            let error = iopath_core::IoError::Media;
            queue.handle_completion(tag, if round % 7 == 0 { Err(error) } else { Ok(()) }, now);
        }
        while queue.poll_completion().is_some() {}
    }
    queue.end_log();
}
