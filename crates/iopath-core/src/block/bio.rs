//! The bio: one read, write, flush or discard as its submitter sees it, and how it ended.

use crate::error::IoError;
use crate::sector::Extent;
use std::fmt;

/// What an I/O does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// Every write completed before this was submitted goes to the medium.
    Flush,
    /// The contents of the extent are no longer needed; what it reads as afterwards is undefined.
    Discard,
    /// The extent reads as zeroes afterwards.
    WriteZeroes,
}

impl Op {
    /// Whether it changes what a later read of its extent returns.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }

    /// Whether it carries memory.
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

/// Who submits: bios of one stream belong together for fairness and in the log. Chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stream(pub u32);

/// How urgent an I/O is, as Linux's I/O priority classes have it. Elevators that order by priority go by it;
/// what differs in it is never merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// Before all others.
    RealTime,
    /// What most I/O is.
    #[default]
    BestEffort,
    /// When nothing else is to be done.
    Idle,
}

impl Priority {
    /// All of them, the most urgent first, in the order of [`Priority::index`].
    pub const ALL: [Self; 3] = [Self::RealTime, Self::BestEffort, Self::Idle];

    /// Its place in [`Priority::ALL`], for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One I/O as submitted, of any length the device's capacity allows. The queue splits and merges.
#[derive(Debug, Clone, Copy)]
pub struct Bio<M> {
    /// What to do.
    pub op: Op,
    /// Where; empty for a flush.
    pub extent: Extent,
    /// The caller's memory, as long as the extent: for reads and writes.
    pub memory: Option<M>,
    /// Write only: on the medium when complete (forced unit access).
    pub fua: bool,
    /// Whose it is.
    pub stream: Stream,
    /// How urgent it is.
    pub priority: Priority,
    /// Comes back with the completion; means nothing to the path.
    pub token: u64,
}

impl<M> Bio<M> {
    const fn new(op: Op, extent: Extent, memory: Option<M>, token: u64) -> Self {
        Self { op, extent, memory, fua: false, stream: Stream(0), priority: Priority::BestEffort, token }
    }

    /// Reads `extent` into `memory`.
    pub const fn read(extent: Extent, memory: M, token: u64) -> Self {
        Self::new(Op::Read, extent, Some(memory), token)
    }

    /// Writes `memory` to `extent`.
    pub const fn write(extent: Extent, memory: M, token: u64) -> Self {
        Self::new(Op::Write, extent, Some(memory), token)
    }

    /// Sends every write completed by now to the medium.
    pub const fn flush(token: u64) -> Self {
        Self::new(Op::Flush, Extent::EMPTY, None, token)
    }

    /// Says that `extent` is no longer needed.
    pub const fn discard(extent: Extent, token: u64) -> Self {
        Self::new(Op::Discard, extent, None, token)
    }

    /// Makes `extent` read as zeroes.
    pub const fn write_zeroes(extent: Extent, token: u64) -> Self {
        Self::new(Op::WriteZeroes, extent, None, token)
    }

    /// How many bytes of memory belong with it.
    pub const fn memory_bytes(&self) -> u64 {
        if self.op.has_memory() { self.extent.bytes() } else { 0 }
    }

    /// The same with forced unit access.
    #[must_use]
    pub const fn with_fua(mut self) -> Self {
        self.fua = true;
        self
    }

    /// The same on behalf of `stream`.
    #[must_use]
    pub const fn on_stream(mut self, stream: Stream) -> Self {
        self.stream = stream;
        self
    }

    /// The same at `priority`.
    #[must_use]
    pub const fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}

/// A bio that has completed. Comes exactly once for each bio the queue took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BioDone {
    /// The token it was submitted with.
    pub token: u64,
    /// Whole success, or the first error of any part of it.
    pub result: Result<(), IoError>,
}
