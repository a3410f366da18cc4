//! A block: records of one queue that are compressed together. Its frame and checksum are in `format.rs`.

pub use crate::format::Mark;

use crate::format::BlockHead;
use crate::labels::{Labels, QueueLabel};
use iopath_core::log::{Event, Step, Subject};
use iopath_core::{Instant, Record};
use std::sync::Arc;

/// Maximum number of records in a block: 384 KiB before compression.
pub(crate) const RECORDS_MAX: usize = 16_384;

/// Records of one queue, in order.
#[derive(Debug, Default)]
pub struct Block {
    pub(crate) head: BlockHead,
    /// The words of the records, little-endian: word 0 of all records, then word 1 of all, then word 2.
    pub(crate) bytes: Vec<u8>,
    /// The marks of the log before this block, in order.
    pub(crate) marks: Arc<Vec<Mark>>,
    /// The labels of the log before this block.
    pub(crate) labels: Arc<Labels>,
}

/// A step with its position in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The index of its record in the file, from 0.
    pub number: u64,
    /// The queue.
    pub queue: u16,
    /// The full time.
    pub time: Instant,
    /// The repeat it belongs to; 0 before the first mark.
    pub repeat: u32,
    /// The step, as a record of its own: see [`Record::parts`].
    pub record: Record,
}

impl Block {
    /// The queue, numbered from 0 in the order in which queues were added.
    pub const fn queue(&self) -> u16 {
        self.head.queue
    }

    /// The device of the queue, if the log names it.
    pub fn device(&self) -> Option<&QueueLabel> {
        self.labels.queue(self.queue())
    }

    /// Records of that queue that were lost before the block was written.
    pub const fn missed(&self) -> u64 {
        self.head.missed
    }

    /// The time of the first record, by the header of the block.
    pub(crate) const fn time_ns(&self) -> u64 {
        self.head.time_ns
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.bytes.len() / Record::BYTES
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The marks read so far, in order.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Its records in order, each with its full time.
    #[inline]
    pub(crate) fn records(&self) -> impl Iterator<Item = (Instant, Record)> {
        let mut clock = Clock::at(self.head.time_ns);
        let (words, _) = self.bytes.as_chunks::<8>();
        let (times, rest) = words.split_at(self.len());
        let (sectors, subjects) = rest.split_at(self.len());
        times.iter().zip(sectors).zip(subjects).map(move |((time, sector), subject)| {
            let record = Record::from_words([*time, *sector, *subject].map(u64::from_le_bytes));
            (clock.time(record), record)
        })
    }

    /// The steps of its records, in order. A record with several steps yields several entries of the same number.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        let queue = self.head.queue;
        let marks = self.marks();
        self.records().zip(self.head.first_record..).flat_map(move |((time, record), number)| {
            let passed = marks.partition_point(|mark| mark.at_ns <= time.as_nanos());
            let repeat = passed.checked_sub(1).map_or(0, |last| marks[last].repeat);
            record.parts().map(move |record| Entry { number, queue, time, repeat, record })
        })
    }
}

/// Collects records of one queue into blocks that need no file: see [`BlockSource`](crate::BlockSource).
#[derive(Debug, Default)]
pub struct BlockBuilder {
    queue: u16,
    time_ns: u64,
    clock: Clock,
    records: Vec<Record>,
}

impl BlockBuilder {
    /// The maximum number of records of a block.
    pub const RECORDS_MAX: usize = RECORDS_MAX;

    /// Collects the records of the queue with this number.
    pub fn new(queue: u16) -> Self {
        Self { queue, ..Self::default() }
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether it has no room for one more record and the upper bits of its time.
    pub fn is_full(&self) -> bool {
        self.records.len() + 2 > RECORDS_MAX
    }

    /// Adds the next record of a log of the queue, with its records of the upper bits of the time. It must not be full.
    #[inline]
    pub fn push(&mut self, record: Record) {
        debug_assert!(!self.is_full(), "a block has {RECORDS_MAX} records");
        let time = self.clock.time(record);
        if self.records.is_empty() {
            self.time_ns = time.as_nanos();
        }
        self.records.push(record);
    }

    /// Adds a record of the time `now`, and a record of the upper bits of the time if they change.
    #[inline]
    pub fn push_at(&mut self, record: Record, now: Instant) {
        let high = now.as_nanos() >> Record::TIME_BITS;
        if high != self.clock.high || self.records.is_empty() {
            let step = Step::new(Event::Clock, Subject::Queue).with_other(high as u32);
            self.push(Record::new(&step, now));
        }
        self.records.push(record);
    }

    /// Takes the records out, to become a block. Further records of the queue can be added.
    #[must_use]
    pub fn take(&mut self) -> Self {
        Self { records: std::mem::take(&mut self.records), ..*self }
    }

    /// Moves the records to `block`. `first_record` is the number of records in all blocks before.
    pub fn move_to(&mut self, block: &mut Block, first_record: u64) {
        let (queue, time_ns) = (self.queue, self.time_ns);
        let records = self.records.len() as u32;
        block.head = BlockHead { queue, records, first_record, time_ns, ..BlockHead::default() };
        block.bytes.clear();
        block.bytes.reserve(self.records.len() * Record::BYTES);
        for word in 0..3 {
            block.bytes.extend(self.records.iter().flat_map(|record| record.to_words()[word].to_le_bytes()));
        }
        self.records.clear();
    }
}

/// Extends the times of one queue's records to 64 bits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    high: u64,
}

impl Clock {
    /// The clock of a block whose first record has this time.
    pub(crate) const fn at(time_ns: u64) -> Self {
        Self { high: time_ns >> Record::TIME_BITS }
    }

    /// The time of the next record.
    #[inline]
    pub(crate) fn time(&mut self, record: Record) -> Instant {
        const CLOCK: u8 = Event::Clock.code();
        const MISSED: u8 = Event::Missed.code();
        if matches!(record.event_code(), CLOCK | MISSED) {
            self.high = u64::from(record.other());
        }
        Instant::from_nanos(self.high << Record::TIME_BITS | record.time_low())
    }
}
