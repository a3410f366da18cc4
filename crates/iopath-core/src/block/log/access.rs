//! The log of accesses: the reads, writes and flushes that a program asked for, above a page cache. Bios and requests
//! below it are in the log of the queue (`collect.rs`).

use super::LogSink;
use super::collect::Log;
use super::record::{Access, Record};
use crate::time::Instant;

/// Records the accesses of one caller, such as a thread. An access begins and ends with a step; its slot joins both.
///
/// It has a sink of its own, so its records do not mix with those of a queue.
#[derive(Debug)]
pub struct AccessLog {
    log: Log,
}

impl AccessLog {
    /// A log of accesses into a sink.
    pub fn new(sink: Box<dyn LogSink>) -> Self {
        Self { log: Log::new(sink) }
    }

    /// An access begins. Its slot is below [`Record::NO_TAG`], and free until then. Times never decrease.
    #[inline]
    pub fn begin(&mut self, slot: u32, access: &Access, now: Instant) {
        self.log.push_record(Record::access(slot, access, now), now);
    }

    /// The access in a slot has ended, with this errno or 0.
    #[inline]
    pub fn end(&mut self, slot: u32, access: &Access, errno: u32, now: Instant) {
        self.log.push_record(Record::access_end(slot, access, errno, now), now);
    }
    /// Passes the pending records to the sink.
    pub fn flush(&mut self) {
        self.log.flush_pending();
    }
}
