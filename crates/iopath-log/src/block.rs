//! A block: records of one queue, as many as are compressed together. Checksums and frames: `format.rs`.

use crate::format::BlockHead;
use iopath_core::log::Event;
use iopath_core::{Instant, Record};

/// The most records of a block: 384 KiB before compression.
pub(crate) const RECORDS_MAX: usize = 16_384;

/// Records of one queue, in order.
#[derive(Debug, Default)]
pub struct Block {
    pub(crate) head: BlockHead,
    /// The records' words, little-endian: first word 0 of all records, then word 1 of all, then word 2. Like
    /// beside like packs to half of what whole records do, in less time.
    pub(crate) bytes: Vec<u8>,
}

/// A step with what a block knows besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The place of its record in the file, from 0.
    pub number: u64,
    /// Which queue.
    pub queue: u16,
    /// When, in full.
    pub time: Instant,
    /// The step, as a record of its own: see [`Record::parts`].
    pub record: Record,
}

impl Block {
    /// Which queue it is of, from 0 in the order they were added.
    pub const fn queue(&self) -> u16 {
        self.head.queue
    }

    /// How many records of that queue had been missed when the block was written.
    pub const fn missed(&self) -> u64 {
        self.head.missed
    }

    /// How many records it holds.
    pub fn len(&self) -> usize {
        self.bytes.len() / Record::BYTES
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Its records, in order, each with its time in full.
    #[inline]
    pub(crate) fn records(&self) -> impl Iterator<Item = (Instant, Record)> {
        let mut clock = Clock { high: self.head.time_ns >> Record::TIME_BITS };
        let (words, _) = self.bytes.as_chunks::<8>();
        let (times, rest) = words.split_at(self.len());
        let (places, subjects) = rest.split_at(self.len());
        times.iter().zip(places).zip(subjects).map(move |((time, place), subject)| {
            let record = Record::from_words([*time, *place, *subject].map(u64::from_le_bytes));
            (clock.time(record), record)
        })
    }

    /// The steps that its records stand for, in order: one each, or several of the same number.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        let queue = self.head.queue;
        self.records().zip(self.head.first_record..).flat_map(move |((time, record), number)| {
            record.parts().map(move |record| Entry { number, queue, time, record })
        })
    }
}

/// Completes the times of one queue's records.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    high: u64,
}

impl Clock {
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
