//! Verification: writes carry checksums, offsets and generations, and reads check them. This file has the
//! results; `verify/stamp.rs` has the format of a block, `verify/record.rs` the expected content of a range,
//! `verify/checker.rs` the check of one job, `verify/drive.rs` the loop of a job. docs/verify.md describes the method.

pub(crate) mod checker;
pub(crate) mod drive;
mod dump;
pub mod record;
mod stamp;

use std::fmt;

use iopath_report::result::{VerifyFault, VerifyResult};

pub(crate) use dump::Dump;
pub use stamp::SECTOR_BYTES;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The block has the content from before its last write, and no read has returned that write.
    Lost,
    /// A read returned an old content of the block, although another read of it has returned a newer one.
    Stale,
    /// Parts of the block are of one write, and parts of another.
    Torn,
    /// The block has the content of another offset.
    Misdirected,
    /// The content fails its checksum, or is of no write.
    Corrupt,
    /// In a run that only reads: no part of the block has a stamp. It was never written with verification, or its
    /// write is lost.
    Unstamped,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Lost, Self::Stale, Self::Torn, Self::Misdirected, Self::Corrupt, Self::Unstamped];

    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Stale => "stale",
            Self::Torn => "torn",
            Self::Misdirected => "misdirected",
            Self::Corrupt => "corrupt",
            Self::Unstamped => "unstamped",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A block with an unexpected content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// The block, in bytes from the start of the target.
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    /// The number of the last write of the block in this run; unknown in a run that only reads.
    pub(crate) expected: Option<u32>,
    /// The write that the content is of; 0 is before the run.
    pub(crate) found: Option<u64>,
    /// The offset that the content belongs to, of a misdirected write.
    pub(crate) belongs_to: Option<u64>,
    /// The first sector that differs, in bytes from the start of the target.
    pub(crate) first_bad: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, offset, bytes, expected, found, belongs_to, first_bad } = self;
        write!(f, "verify: block of {bytes} bytes at offset {offset} is {kind}: ")?;
        let last = expected.map_or_else(String::new, |expected| format!(", not of write {expected}"));
        let found = match found {
            Some(0) => "from before the run".to_owned(),
            Some(found) => format!("of write {found}"),
            None => "of no write".to_owned(),
        };
        match kind {
            FaultKind::Lost | FaultKind::Stale => write!(f, "its content is {found}{last}"),
            FaultKind::Torn => write!(f, "from byte {first_bad} on, its content is {found}{last}"),
            FaultKind::Misdirected => {
                write!(
                    f,
                    "from byte {first_bad} on, it has the content of offset {}",
                    belongs_to.unwrap_or(0)
                )
            }
            FaultKind::Unstamped => {
                f.write_str("it has no stamp, so it was never written with verify, or its write is lost")
            }
            FaultKind::Corrupt => write!(f, "from byte {first_bad} on, its content is of no write{last}"),
        }
    }
}

/// The most faults that a result describes. All are counted.
const DESCRIBED_MAX: usize = 20;

/// The blocks that a job has checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verified {
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    /// Faults of each kind, in the order of [`FaultKind::ALL`].
    pub(crate) counts: [u64; FaultKind::ALL.len()],
    pub(crate) first: Vec<Fault>,
    /// The contents of the first blocks with faults, if they are kept.
    pub(crate) dumps: Vec<Dump>,
}

impl Verified {
    pub(crate) fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, count)| *sum += count);
        let room = DESCRIBED_MAX.saturating_sub(self.first.len());
        self.first.extend(other.first.iter().take(room).cloned());
        let room = dump::BLOCKS_MAX.saturating_sub(self.dumps.len());
        self.dumps.extend(other.dumps.iter().take(room).cloned());
    }

    pub(crate) fn push(&mut self, fault: Fault) {
        let kind = FaultKind::ALL.iter().position(|kind| *kind == fault.kind);
        self.counts[kind.expect("all kinds are in the list")] += 1;
        if self.first.len() < DESCRIBED_MAX {
            self.first.push(fault);
        }
    }

    /// The result, and a warning for each described fault.
    pub(crate) fn result(&self) -> (VerifyResult, Vec<String>) {
        let [lost, stale, torn, misdirected, corrupt, unstamped] = self.counts;
        let fault = |fault: &Fault| VerifyFault {
            kind: fault.kind.name().to_owned(),
            offset: fault.offset,
            bytes: fault.bytes,
            first_bad: fault.first_bad,
            expected: fault.expected,
            found: fault.found,
            belongs_to: fault.belongs_to,
        };
        let first = self.first.iter().map(fault).collect();
        let mut warnings: Vec<String> = self.first.iter().map(ToString::to_string).collect();
        let more = self.faults() - self.first.len() as u64;
        if more > 0 {
            warnings.push(format!("verify: {more} more faults"));
        }
        let (blocks, bytes) = (self.blocks, self.bytes);
        let verified =
            VerifyResult { blocks, bytes, lost, stale, torn, misdirected, corrupt, unstamped, first };
        (verified, warnings)
    }

    pub(crate) fn faults(&self) -> u64 {
        self.counts.iter().sum()
    }
}
