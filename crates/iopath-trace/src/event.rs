//! One event of a trace, of any format. Readers make events; `join.rs` makes records of the request log of them.

use iopath_core::{Instant, Op, SECTOR_BYTES};
use iopath_log::kernel::{KernelEvent, What};

/// An event of a trace.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TraceEvent {
    /// A step of a bio or request in the kernel.
    Kernel(KernelEvent),
    /// A whole I/O, from its submission on.
    Whole(WholeIo),
}

/// An I/O of which the trace has one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WholeIo {
    /// The time of the submission in nanoseconds, on the clock of the trace.
    pub(crate) at_ns: u64,
    pub(crate) op: Op,
    /// The number of the device in the trace, or one that the reader assigns.
    pub(crate) device: u32,
    /// The process or other origin.
    pub(crate) process: u32,
    /// The first sector; 0 for a flush.
    pub(crate) sector: u64,
    /// The number of sectors; 0 for a flush.
    pub(crate) sectors: u64,
    /// The time from the submission to the dispatch to the device.
    pub(crate) queued_ns: u64,
    /// The time from the dispatch to the completion; none if the trace has submissions only.
    pub(crate) latency_ns: Option<u64>,
}

impl TraceEvent {
    /// The event of a thread of the kernel.
    pub(crate) fn kernel(at_ns: u64, pid: u32, command: &[u8], what: What) -> Self {
        let mut name = [0; 16];
        let length = command.len().min(name.len() - 1);
        name[..length].copy_from_slice(&command[..length]);
        Self::Kernel(KernelEvent { at: Instant::from_nanos(at_ns), pid, tid: pid, command: name, what })
    }

    #[inline]
    pub(crate) const fn at_ns(&self) -> u64 {
        match self {
            Self::Kernel(event) => event.at.as_nanos(),
            Self::Whole(io) => io.at_ns,
        }
    }

    /// Moves the event to a later time.
    pub(crate) const fn set_at_ns(&mut self, at_ns: u64) {
        match self {
            Self::Kernel(event) => event.at = Instant::from_nanos(at_ns),
            Self::Whole(io) => io.at_ns = at_ns,
        }
    }
}

impl WholeIo {
    /// A submission without latency, of sector 0 and length 0.
    pub(crate) const fn new(at_ns: u64, op: Op) -> Self {
        Self { at_ns, op, device: 0, process: 0, sector: 0, sectors: 0, queued_ns: 0, latency_ns: None }
    }
}

/// A range of bytes as sectors: the first sector, the number of sectors, and whether both ends are at borders of
/// sectors. Otherwise the range is rounded outwards.
#[inline]
pub(crate) const fn sectors_of(offset: u64, bytes: u64) -> (u64, u64, bool) {
    let start = offset / SECTOR_BYTES;
    let end = offset.saturating_add(bytes).div_ceil(SECTOR_BYTES);
    let is_exact = offset.is_multiple_of(SECTOR_BYTES) && bytes.is_multiple_of(SECTOR_BYTES);
    (start, if bytes == 0 { 0 } else { end - start }, is_exact)
}
