//! Records the accesses of a job in the log: its transfers and flushes, above the path.

use iopath_core::log::{Access, AccessLog};
use iopath_core::{Instant, LogSink, Op, Stream};

use crate::path::{Direction, Transfer};

/// The destination of the accesses of a job.
#[derive(Debug)]
pub(crate) struct AccessSink {
    pub(crate) sink: Box<dyn LogSink>,
    /// The stream of the job.
    pub(crate) stream: u32,
    /// The time of the log at time 0 of the job's clock.
    pub(crate) zero_ns: u64,
}

/// The log of a job.
#[derive(Debug)]
pub(super) struct AccessRecorder {
    log: AccessLog,
    stream: Stream,
    zero_ns: u64,
    /// The slot of flushes: no transfer has it.
    flush_slot: u32,
}

impl AccessRecorder {
    /// The log of a job of `depth` transfers in flight.
    pub(super) fn new(AccessSink { sink, stream, zero_ns }: AccessSink, depth: u32) -> Self {
        Self { log: AccessLog::new(sink), stream: Stream(stream), zero_ns, flush_slot: depth }
    }

    fn at(&self, now_ns: u64) -> Instant {
        Instant::from_nanos(self.zero_ns.saturating_add(now_ns))
    }

    fn access(&self, transfer: Transfer) -> Access {
        let op = match transfer.direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
            Direction::Trim => Op::Discard,
        };
        Access { op, offset: transfer.offset, bytes: transfer.bytes.into(), stream: self.stream }
    }

    /// A transfer has started.
    #[inline]
    pub(super) fn begin(&mut self, slot: u32, transfer: Transfer, now_ns: u64) {
        let (access, now) = (self.access(transfer), self.at(now_ns));
        self.log.begin(slot, &access, now);
    }

    /// A transfer has completed.
    #[inline]
    pub(super) fn end(&mut self, slot: u32, transfer: Transfer, now_ns: u64) {
        let (access, now) = (self.access(transfer), self.at(now_ns));
        self.log.end(slot, &access, 0, now);
    }

    /// A flush has completed after `latency_ns`. Nothing else was in flight.
    pub(super) fn flush(&mut self, latency_ns: u64, now_ns: u64) {
        let access = Access { op: Op::Flush, offset: 0, bytes: 0, stream: self.stream };
        self.log.begin(self.flush_slot, &access, self.at(now_ns.saturating_sub(latency_ns)));
        self.log.end(self.flush_slot, &access, 0, self.at(now_ns));
    }
}
