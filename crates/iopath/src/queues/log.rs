//! A request log that moves from queue to queue with the requests of a batch. Does not write the log.

use iopath_core::log::NoRoom;
use iopath_core::{LogSink, RecordBatch};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A sink, and its clone in the queue that records. At most one queue has a clone: a queue calls a sink once for each
/// batch of records, so the lock is not contended.
#[derive(Debug, Clone)]
pub(super) struct MovableSink(Arc<Mutex<Box<dyn LogSink>>>);

impl MovableSink {
    pub(super) fn new(sink: Box<dyn LogSink>) -> Self {
        Self(Arc::new(Mutex::new(sink)))
    }

    /// Whether a queue has a clone. A queue drops it when another sink replaces it.
    pub(super) fn is_attached(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn sink(&self) -> MutexGuard<'_, Box<dyn LogSink>> {
        // Ignores poisoning: the sink of a queue without a lock has the same state after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogSink for MovableSink {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        self.sink().take(batch)
    }

    fn publish(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        self.sink().publish(batch)
    }

    fn reclaim(&mut self, batch: &mut RecordBatch) {
        self.sink().reclaim(batch);
    }
}
