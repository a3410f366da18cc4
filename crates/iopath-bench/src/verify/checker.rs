//! Fills the writes of one job, and checks its reads against the record. Makes no transfers.

use super::dump::{BLOCKS_MAX, Dump};
use super::record::{Expected, Record};
use super::stamp::{SECTOR_BYTES, Sector, Stamp};
use super::{Fault, FaultKind, Verified};
use crate::path::Transfer;

/// The check of one job.
#[derive(Debug)]
pub(crate) struct Checker<'a> {
    record: &'a Record,
    pub(super) verified: Verified,
    /// Reads with blocks of an older write: a second read decides whether the write is lost or the read was stale.
    suspects: Vec<Transfer>,
    /// Whether the contents of blocks with faults are kept.
    dumps: bool,
}

/// The content of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Good,
    /// All of this older write; 0 is before the run.
    Older(u64),
    Bad {
        kind: FaultKind,
        found: Option<u64>,
        belongs_to: Option<u64>,
        /// The number of the first bad sector.
        sector: u64,
    },
}

impl<'a> Checker<'a> {
    pub(crate) fn new(record: &'a Record) -> Self {
        Self { record, verified: Verified::default(), suspects: Vec::new(), dumps: false }
    }

    /// The same check, which keeps the contents of the first blocks with faults if `dumps`.
    pub(crate) fn with_dumps(self, dumps: bool) -> Self {
        Self { dumps, ..self }
    }

    /// The results. All suspects have been read again.
    pub(crate) fn into_verified(self) -> Verified {
        self.verified
    }

    /// Fills the buffer of a write.
    pub(super) fn fill(&self, transfer: Transfer, bytes: &mut [u8]) {
        let blocks = bytes[..transfer.bytes as usize].chunks_mut(self.record.block_bytes() as usize);
        for (offset, block) in self.record.offsets(transfer).zip(blocks) {
            self.fill_block(offset, self.record.next_generation(offset), block);
        }
    }

    /// A write has completed.
    pub(super) fn handle_written(&self, transfer: Transfer) {
        self.record.handle_written(transfer);
    }

    /// Checks the content of a read.
    pub(super) fn check(&mut self, transfer: Transfer, bytes: &[u8]) {
        let block_bytes = self.record.block_bytes();
        let blocks = bytes[..transfer.bytes as usize].chunks(block_bytes as usize);
        for (offset, block) in self.record.offsets(transfer).zip(blocks) {
            let expected = self.record.expected(offset);
            if expected.generation == 0 && self.record.has_writer() {
                continue;
            }
            self.count(block_bytes);
            let faults = self.verified.faults();
            match self.content(offset, expected, block) {
                Content::Good => self.record.handle_seen(offset),
                Content::Older(found) if expected.seen_last => {
                    self.fault(FaultKind::Stale, offset, expected, found);
                }
                Content::Older(_) => self.suspects.push(Transfer { offset, bytes: block_bytes, ..transfer }),
                bad @ Content::Bad { .. } => self.bad(offset, expected, bad),
            }
            if self.verified.faults() > faults {
                self.dump(offset, expected, block);
            }
        }
    }

    /// Keeps the content of a block with a fault.
    fn dump(&mut self, offset: u64, expected: Expected, block: &[u8]) {
        if !self.dumps || self.verified.dumps.len() >= BLOCKS_MAX {
            return;
        }
        let content = || {
            let mut content = vec![0; block.len()];
            self.fill_block(offset, expected.generation.into(), &mut content);
            content
        };
        let expected = (expected.generation > 0).then(content);
        self.verified.dumps.push(Dump { offset, received: block.to_vec(), expected });
    }

    fn fill_block(&self, offset: u64, generation: u64, block: &mut [u8]) {
        if let Some(pattern) = self.record.pattern() {
            return pattern.fill(offset, block);
        }
        let run = self.record.run;
        let sectors = (offset..).step_by(SECTOR_BYTES as usize);
        for (offset, sector) in sectors.zip(block.chunks_mut(SECTOR_BYTES as usize)) {
            Stamp { offset, generation, run }.put(sector);
        }
    }

    /// Reads that have to be repeated, one block each, while nothing is in flight.
    pub(super) fn take_suspects(&mut self) -> Vec<Transfer> {
        std::mem::take(&mut self.suspects)
    }

    pub(super) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Checks the content of the second read of a suspect.
    pub(super) fn check_again(&mut self, transfer: Transfer, block: &[u8]) {
        let offset = transfer.offset;
        let expected = self.record.expected(offset);
        let block = &block[..transfer.bytes as usize];
        match self.content(offset, expected, block) {
            Content::Good => {
                self.record.handle_seen(offset);
                // The content of the first read is not kept.
                return self.fault(FaultKind::Stale, offset, expected, u64::from(expected.generation) - 1);
            }
            Content::Older(found) => self.fault(FaultKind::Lost, offset, expected, found),
            bad @ Content::Bad { .. } => self.bad(offset, expected, bad),
        }
        self.dump(offset, expected, block);
    }

    fn count(&mut self, bytes: u32) {
        self.verified.blocks += 1;
        self.verified.bytes += u64::from(bytes);
    }

    fn content(&self, offset: u64, expected: Expected, block: &[u8]) -> Content {
        if let Some(pattern) = self.record.pattern() {
            // All writes have the same content, so an old one is not recognized.
            return pattern.first_difference(offset, block).map_or(Content::Good, |byte| Content::Bad {
                kind: FaultKind::Corrupt,
                found: None,
                belongs_to: None,
                sector: byte as u64 / u64::from(SECTOR_BYTES),
            });
        }
        let sectors = || block.chunks(SECTOR_BYTES as usize).zip((offset..).step_by(SECTOR_BYTES as usize));
        let found = || sectors().map(|(sector, offset)| (Stamp::get(sector), offset));
        let bad = |kind, found, belongs_to, sector: usize| Content::Bad {
            kind,
            found,
            belongs_to,
            sector: sector as u64,
        };
        // An offset of another block explains more than a checksum, and a checksum more than an old content.
        for (number, (sector, offset)) in found().enumerate() {
            if let Sector::Stamped(stamp) = sector
                && stamp.offset != offset
            {
                let first = stamp.offset.saturating_sub(number as u64 * u64::from(SECTOR_BYTES));
                return bad(FaultKind::Misdirected, Some(stamp.generation), Some(first), number);
            }
        }
        if let Some(number) = found().position(|(sector, _)| sector == Sector::Damaged) {
            return bad(FaultKind::Corrupt, None, None, number);
        }
        if expected.generation == 0 && found().all(|(sector, _)| sector == Sector::Unstamped) {
            return bad(FaultKind::Unstamped, None, None, 0);
        }
        let write = |sector: Sector| match sector {
            Sector::Stamped(stamp) if expected.generation == 0 => Some((stamp.run, stamp.generation)),
            Sector::Stamped(stamp) if stamp.run == self.record.run => Some((stamp.run, stamp.generation)),
            // Of an earlier run, or never stamped: from before the run, unless a read has returned a write of this run.
            _ if expected.seen_any || expected.generation == 0 => None,
            _ => Some((self.record.run, 0)),
        };
        let wanted = (self.record.run, u64::from(expected.generation));
        let mut writes = found().map(|(sector, _)| write(sector));
        let Some(Some(first)) = writes.next() else {
            return bad(FaultKind::Corrupt, None, None, 0);
        };
        // A run that only reads accepts any write.
        let wanted = if expected.generation == 0 { first } else { wanted };
        let is_good = |write: &Option<(u64, u64)>| *write == Some(wanted);
        match found().map(|(sector, _)| write(sector)).enumerate().find(|(_, write)| *write != Some(first)) {
            Some((number, None)) => bad(FaultKind::Corrupt, None, None, number),
            Some((number, Some(other))) => {
                // The first sector that is not of the last write.
                let (number, write) = if is_good(&Some(first)) { (number, other) } else { (0, first) };
                bad(FaultKind::Torn, Some(write.1), None, number)
            }
            None if is_good(&Some(first)) => Content::Good,
            None if first.1 < wanted.1 => Content::Older(first.1),
            None => bad(FaultKind::Corrupt, None, None, 0),
        }
    }

    fn fault(&mut self, kind: FaultKind, offset: u64, expected: Expected, found: u64) {
        self.push(kind, offset, expected, Some(found), None, 0);
    }

    fn bad(&mut self, offset: u64, expected: Expected, content: Content) {
        if let Content::Bad { kind, found, belongs_to, sector } = content {
            self.push(kind, offset, expected, found, belongs_to, sector);
        }
    }

    fn push(
        &mut self,
        kind: FaultKind,
        offset: u64,
        expected: Expected,
        found: Option<u64>,
        belongs_to: Option<u64>,
        sector: u64,
    ) {
        self.verified.push(Fault {
            kind,
            offset,
            bytes: self.record.block_bytes(),
            expected: (expected.generation > 0).then_some(expected.generation),
            found,
            belongs_to,
            first_bad: offset + sector * u64::from(SECTOR_BYTES),
        });
    }
}
