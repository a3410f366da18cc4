//! The expected content of a range: the number of the last write of each block, and whether a read has returned it.
//!
//! A block has one writer at a time: the jobs of a group that verify have ranges of their own, and a job does not start
//! a transfer that overlaps one in flight, unless both are reads. So each block always has one expected content.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::contents::VerifyPattern;
use crate::host::memory_available_bytes;
use crate::path::{Direction, Transfer};
use crate::refusal::WorkloadError;
use crate::workload::{Contents, Workload};

/// A read has returned the last write of the block.
const SEEN_LAST: u32 = 1;
/// A read has returned a write of the block.
const SEEN_ANY: u32 = 2;
const SEEN_BITS: u32 = 2;

/// The blocks of a range.
#[derive(Debug)]
pub struct Record {
    /// A random number, to recognize the writes of this run.
    pub(super) run: u64,
    start_bytes: u64,
    /// The size of a block: a divisor of the sizes of all transfers.
    block_bytes: u32,
    /// The number of the last write, and two bits about reads.
    blocks: Vec<AtomicU32>,
    /// Whether a job of this run writes to the range. If not, every block must have a stamp of an earlier run.
    has_writer: bool,
    has_written: AtomicBool,
    /// The content of each block; none if blocks have stamps.
    pattern: Option<VerifyPattern>,
}

/// The expected content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    /// The number of the last write; 0 is none in this run.
    pub(super) generation: u32,
    /// Whether a read has returned the last write.
    pub(super) seen_last: bool,
    /// Whether a read has returned any write.
    pub(super) seen_any: bool,
}

impl Record {
    /// A record of the bytes from `start_bytes` to `end_bytes`.
    pub(crate) fn new(
        run: u64,
        start_bytes: u64,
        end_bytes: u64,
        block_bytes: u32,
        has_writer: bool,
    ) -> Self {
        let count = (end_bytes - start_bytes) / u64::from(block_bytes);
        let blocks = (0..count).map(|_| AtomicU32::new(0)).collect();
        let has_written = AtomicBool::new(false);
        Self { run, start_bytes, block_bytes, blocks, has_writer, has_written, pattern: None }
    }

    /// The same record of blocks with the content of a workload, if that is a pattern.
    #[must_use]
    pub fn with_contents(self, contents: &Contents) -> Self {
        match contents {
            Contents::Verified(pattern) => Self { pattern: Some(pattern.clone()), ..self },
            _ => self,
        }
    }

    /// The content of each block; none if blocks have stamps.
    pub(super) fn pattern(&self) -> Option<&VerifyPattern> {
        self.pattern.as_ref()
    }

    /// The record of one workload that ends at `end_bytes`, for a run of its own.
    ///
    /// # Errors
    /// [`WorkloadError::Buffers`]: it does not fit in memory.
    pub(crate) fn of(workload: &Workload, end_bytes: u64) -> Result<Self, WorkloadError> {
        let (start_bytes, block_bytes) = (workload.start_bytes, workload.unit_bytes() as u32);
        let record = Self::fitting(start_bytes, end_bytes, block_bytes, workload.rw.writes())?;
        Ok(record.with_contents(&workload.contents))
    }

    /// A record that fits in memory, with a random number of the run.
    pub fn fitting(
        start_bytes: u64,
        end_bytes: u64,
        block_bytes: u32,
        has_writer: bool,
    ) -> Result<Self, WorkloadError> {
        let end_bytes =
            start_bytes + (end_bytes - start_bytes) / u64::from(block_bytes) * u64::from(block_bytes);
        let needed = (end_bytes - start_bytes) / u64::from(block_bytes) * size_of::<AtomicU32>() as u64;
        match memory_available_bytes() {
            Some(available) if needed > available => Err(WorkloadError::Buffers { needed, available }),
            _ => {
                let run = RandomState::new().build_hasher().finish();
                Ok(Self::new(run, start_bytes, end_bytes, block_bytes, has_writer))
            }
        }
    }

    pub(super) fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    pub(super) fn has_writer(&self) -> bool {
        self.has_writer
    }

    /// Whether any write has completed.
    pub(crate) fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Relaxed)
    }

    pub(super) fn expected(&self, offset: u64) -> Expected {
        let value = self.block(offset).load(Ordering::Relaxed);
        let (seen_last, seen_any) = (value & SEEN_LAST != 0, value & SEEN_ANY != 0);
        Expected { generation: value >> SEEN_BITS, seen_last, seen_any }
    }

    /// The number of the next write of a block.
    pub(super) fn next_generation(&self, offset: u64) -> u64 {
        u64::from(self.expected(offset).generation) + 1
    }

    /// A write has completed.
    pub(super) fn handle_written(&self, transfer: Transfer) {
        for offset in self.offsets(transfer) {
            let value = self.block(offset);
            let before = value.load(Ordering::Relaxed);
            let generation = (before >> SEEN_BITS).wrapping_add(1);
            value.store((generation << SEEN_BITS) | (before & SEEN_ANY), Ordering::Relaxed);
        }
        self.has_written.store(true, Ordering::Relaxed);
    }

    /// A read has returned the last write of a block.
    pub(super) fn handle_seen(&self, offset: u64) {
        self.block(offset).fetch_or(SEEN_LAST | SEEN_ANY, Ordering::Relaxed);
    }

    /// The blocks of a transfer.
    pub(super) fn offsets(&self, transfer: Transfer) -> impl Iterator<Item = u64> + use<> {
        let block_bytes = self.block_bytes as usize;
        (transfer.offset..transfer.offset + u64::from(transfer.bytes)).step_by(block_bytes)
    }

    /// Reads of all blocks that this run has written, each of at most `bytes_max` bytes.
    pub(crate) fn reads(&self, bytes_max: u32) -> impl Iterator<Item = Transfer> + '_ {
        let (from, to) =
            (self.start_bytes, self.start_bytes + self.blocks.len() as u64 * u64::from(self.block_bytes));
        let pieces = bytes_max / self.block_bytes;
        let piece_bytes = u64::from(pieces.max(1) * self.block_bytes);
        let transfers = (from..to).step_by(piece_bytes as usize).map(move |offset| Transfer {
            direction: Direction::Read,
            offset,
            bytes: piece_bytes.min(to - offset) as u32,
        });
        transfers
            .filter(|transfer| self.offsets(*transfer).any(|offset| self.expected(offset).generation > 0))
    }

    fn block(&self, offset: u64) -> &AtomicU32 {
        &self.blocks[((offset - self.start_bytes) / u64::from(self.block_bytes)) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_counts_and_forgets_the_reads_of_the_write_before() {
        let record = Record::new(1, 4096, 5 * 4096, 4096, true);
        let write = Transfer { direction: Direction::Write, offset: 8192, bytes: 8192 };
        record.handle_written(write);
        record.handle_seen(8192);
        record.handle_written(Transfer { bytes: 4096, ..write });
        let expected = |generation, seen_last, seen_any| Expected { generation, seen_last, seen_any };
        assert_eq!(record.expected(4096), expected(0, false, false));
        assert_eq!(record.expected(8192), expected(2, false, true));
        assert_eq!(record.expected(12288), expected(1, false, false));
        let reads: Vec<_> = record.reads(8192).map(|read| (read.offset, read.bytes)).collect();
        assert_eq!(reads, [(4096, 8192), (12288, 8192)], "each read has a written block");
    }
}
