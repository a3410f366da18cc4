//! Memory for many records: a queue fills it, then a sink owns it. The queue's side is in `collect.rs`.

use super::record::Record;
use std::fmt;

/// Records that a queue passes to a sink together: up to 48 KiB.
///
/// Records are written in place and never copied on the path of an I/O. When a batch is exchanged, two processors wait
/// for each other's cache lines. That cost is spread over several hundred I/Os.
pub struct RecordBatch {
    pub(super) records: Box<[Record; Self::CAPACITY]>,
    pub(super) len: usize,
    /// The number in the first record if that is an [`Event::Missed`](super::Event::Missed), otherwise 0.
    pub(super) missed: u64,
}

impl RecordBatch {
    /// The maximum number of records.
    pub const CAPACITY: usize = 2048;

    /// An empty batch. Writes to all of its memory, so that no page fault occurs later.
    pub fn new() -> Self {
        let records = vec![Record::UNUSED; Self::CAPACITY].into_boxed_slice();
        let records = records.try_into().expect("the length is that of the array");
        Self { records, len: 0, missed: 0 }
    }

    /// The records, in order. A record may combine several steps: see [`Record::parts`].
    pub fn records(&self) -> &[Record] {
        &self.records[..self.len]
    }

    /// Adds a record that does not come from a queue.
    ///
    /// # Panics
    /// If the batch is full: a bug of the caller.
    pub fn push(&mut self, record: Record) {
        assert!(self.len < Self::CAPACITY, "a batch holds {} records", Self::CAPACITY);
        self.records[self.len] = record;
        self.len += 1;
    }

    /// The number of records lost if the sink refuses this batch, without the record of earlier losses.
    pub fn lost(&self) -> u64 {
        self.len as u64 - u64::from(self.missed > 0)
    }

    /// Removes all records.
    pub const fn clear(&mut self) {
        self.len = 0;
        self.missed = 0;
    }
}

impl Default for RecordBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RecordBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len, missed, .. } = self;
        f.debug_struct("RecordBatch").field("len", len).field("missed", missed).finish_non_exhaustive()
    }
}
