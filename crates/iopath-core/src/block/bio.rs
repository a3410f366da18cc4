//! The bio: one read, write, flush, discard or write-zeroes as its submitter sees it, and its result.

use crate::error::IoError;
use crate::sector::Extent;
use std::fmt;

/// The operation of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Moves data from the device to memory.
    Read,
    /// Moves data from memory to the device.
    Write,
    /// Makes durable every write that completed before the flush was submitted.
    Flush,
    /// Discards the contents of the extent; a later read returns undefined data.
    Discard,
    /// Makes the extent read as zeroes.
    WriteZeroes,
}

impl Op {
    /// Whether the operation changes the contents of its extent.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }

    /// Whether the operation has memory.
    pub const fn has_memory(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write-zeroes",
        })
    }
}

/// The stream of a bio, chosen by the caller. Elevators share the device among streams, and the log reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stream(pub u32);

/// The I/O priority class, as in Linux. Some elevators order by it. I/Os of different priorities are never merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// Dispatched before all others.
    RealTime,
    /// The class of most I/O.
    #[default]
    BestEffort,
    /// Dispatched only when no other I/O is queued.
    Idle,
}

impl Priority {
    /// All priorities, the highest first, in the order of [`Priority::index`].
    pub const ALL: [Self; 3] = [Self::RealTime, Self::BestEffort, Self::Idle];

    /// The index in [`Priority::ALL`], for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One I/O as submitted, of any length up to the capacity of the device. The queue splits and merges bios.
#[derive(Debug, Clone, Copy)]
pub struct Bio<M> {
    /// The operation.
    pub op: Op,
    /// The sectors; empty for a flush.
    pub extent: Extent,
    /// The caller's memory, as long as the extent. Only reads and writes have memory.
    pub memory: Option<M>,
    /// Forced unit access, for writes only: the data is durable on completion.
    pub fua: bool,
    /// The stream of the bio.
    pub stream: Stream,
    /// The I/O priority.
    pub priority: Priority,
    /// Returned with the completion; not used by the queue.
    pub token: u64,
}

impl<M> Bio<M> {
    const fn new(op: Op, extent: Extent, memory: Option<M>, token: u64) -> Self {
        Self { op, extent, memory, fua: false, stream: Stream(0), priority: Priority::BestEffort, token }
    }

    /// A read of `extent` into `memory`.
    pub const fn read(extent: Extent, memory: M, token: u64) -> Self {
        Self::new(Op::Read, extent, Some(memory), token)
    }

    /// A write of `memory` to `extent`.
    pub const fn write(extent: Extent, memory: M, token: u64) -> Self {
        Self::new(Op::Write, extent, Some(memory), token)
    }

    /// A flush.
    pub const fn flush(token: u64) -> Self {
        Self::new(Op::Flush, Extent::EMPTY, None, token)
    }

    /// A discard of `extent`.
    pub const fn discard(extent: Extent, token: u64) -> Self {
        Self::new(Op::Discard, extent, None, token)
    }

    /// A write of zeroes to `extent`.
    pub const fn write_zeroes(extent: Extent, token: u64) -> Self {
        Self::new(Op::WriteZeroes, extent, None, token)
    }

    /// The bytes of memory that the bio requires.
    pub const fn memory_bytes(&self) -> u64 {
        if self.op.has_memory() { self.extent.bytes() } else { 0 }
    }

    /// The bio with forced unit access.
    #[must_use]
    pub const fn with_fua(mut self) -> Self {
        self.fua = true;
        self
    }

    /// The bio as one of `stream`.
    #[must_use]
    pub const fn on_stream(mut self, stream: Stream) -> Self {
        self.stream = stream;
        self
    }

    /// The bio at `priority`.
    #[must_use]
    pub const fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}

/// The completion of a bio. The queue returns exactly one for each bio that it accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BioDone {
    /// The token of the bio.
    pub token: u64,
    /// Success of all parts, or the first error of any part.
    pub result: Result<(), IoError>,
}
