//! Reports failures of write-back to the program, without the lock: once for all failures since the last report.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use iopath_core::{IoError, Op};

use super::state::State;
use super::wait::Locked;
use super::{Buffered, CacheShared};

/// Bytes that the cache could not make durable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteBackError {
    /// The bytes. Of a write: whole pages that stay dirty, up to the end of the volume. Of a flush: the whole volume,
    /// of which the device may have lost any byte that was written since its last flush.
    pub range: Range<u64>,
    /// The failed operation: a write or a flush.
    pub op: Op,
    /// The error of the device.
    pub error: IoError,
}

impl WriteBackError {
    /// The device could not be flushed, so any byte of a volume of this size may be lost.
    pub const fn of_flush(size_bytes: u64, error: IoError) -> Self {
        Self { range: 0..size_bytes, op: Op::Flush, error }
    }

    /// Passes it to the program. A panic of `report` is ignored: its hook has reported the panic.
    pub fn report_to(&self, report: impl Fn(&Self)) {
        let _ = catch_unwind(AssertUnwindSafe(|| report(self)));
    }
}

/// The receiver of reports.
pub(super) struct Reporter(Box<dyn Fn(&WriteBackError) + Send + Sync>);

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").finish_non_exhaustive()
    }
}

impl Buffered {
    /// Calls `report` for each range that could not be written back, and for each failed flush of the device, from now
    /// on. Only the first call has an effect.
    ///
    /// It is called without any lock: by the thread that writes back in the background, by a thread whose flush has
    /// failed, and by a thread that drops the cache. So it may be called by several threads at once. A range that fails
    /// again is reported again; failures between two reports are one report. A panic of it is ignored. It must return
    /// soon, since background write-back waits for it, and must not use the cache.
    pub fn report_to(&self, report: impl Fn(&WriteBackError) + Send + Sync + 'static) {
        let _ = self.shared.reporter.set(Reporter(Box::new(report)));
    }
}

impl CacheShared {
    /// Reports failures since the last report. Returns with the lock.
    pub(super) fn report<'a>(&'a self, state: Locked<'a>) -> Locked<'a> {
        if self.reporter.get().is_none() || !state.has_unreported() {
            return state;
        }
        drop(state);
        self.report_failures();
        self.lock()
    }

    /// Does the same for a caller without the lock.
    pub(super) fn report_failures(&self) {
        let Some(Reporter(report)) = self.reporter.get() else { return };
        let mut state = self.lock();
        let found = if state.has_unreported() { state.take_unreported() } else { return };
        drop(state);
        for error in found {
            error.report_to(report);
        }
    }
}

impl State {
    fn has_unreported(&self) -> bool {
        self.path.cache().failures() != self.reported.failures
    }

    /// Wakes the thread that reports. Call it after a failure.
    pub(super) fn wake_reporter(&self) {
        if let Some(flusher) = &self.reported.flusher {
            flusher.unpark();
        }
    }

    fn take_unreported(&mut self) -> Vec<WriteBackError> {
        let cache = self.path.cache();
        let (writes, flushes) = cache.failures();
        let before = std::mem::replace(&mut self.reported.failures, (writes, flushes));
        let mut found = Vec::new();
        if flushes != before.1 {
            let error = cache.flush_failure().unwrap_or(IoError::Media);
            found.push(WriteBackError::of_flush(self.path.geometry().size_bytes, error));
        }
        if let Some((_, error)) = cache.unwritable().filter(|_| writes != before.0) {
            let ranges = self.ranges(&cache.unwritable_pages()).into_iter();
            found.extend(ranges.map(|range| WriteBackError { range, op: Op::Write, error }));
        }
        found
    }
}
