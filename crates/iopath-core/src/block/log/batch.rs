//! Memory for many records: filled by a queue, then owned by whoever keeps them. What goes into it: `collect.rs`.

use super::record::Record;
use std::fmt;

/// Records handed over at once, 48 KiB of them.
///
/// Written in place and then given away whole, they are copied nowhere on the path of an I/O, and the exchange,
/// which has the two cores wait for each other's cache lines, is spread over some hundred I/Os.
pub struct RecordBatch {
    pub(super) records: Box<[Record; Self::CAPACITY]>,
    pub(super) len: usize,
    /// How many missing records its first one tells of; 0 if that is an ordinary one.
    pub(super) missed: u64,
}

impl RecordBatch {
    /// The most records in one.
    pub const CAPACITY: usize = 2048;

    /// An empty one. Its memory has been written to, so that the system has given all of it.
    pub fn new() -> Self {
        let records = vec![Record::UNUSED; Self::CAPACITY].into_boxed_slice();
        let records = records.try_into().expect("it has the length it was made with");
        Self { records, len: 0, missed: 0 }
    }

    /// The records, in order. A record may stand for several steps: see [`Record::parts`].
    pub fn records(&self) -> &[Record] {
        &self.records[..self.len]
    }

    /// Adds a record, for whoever has them from elsewhere than a queue.
    ///
    /// # Panics
    /// If it is full: a bug of the caller.
    pub fn push(&mut self, record: Record) {
        assert!(self.len < Self::CAPACITY, "a batch holds {} records", Self::CAPACITY);
        self.records[self.len] = record;
        self.len += 1;
    }

    /// How many records are lost if this batch is: not the one that tells of others.
    pub fn lost(&self) -> u64 {
        self.len as u64 - u64::from(self.missed > 0)
    }

    /// Forgets the records.
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
