//! The request log of a queue: a record of 24 bytes for each step of a bio or request, and the sink for records. The
//! ring and the file are in `iopath-log`, the format in docs/log-format.md, the calls in `queue/log.rs`.

mod access;
mod batch;
mod collect;
mod record;
mod steps;

pub use access::AccessLog;
pub use batch::RecordBatch;
pub(crate) use collect::Log;
pub use record::{Access, Event, Record, Step, Subject, UnknownCode};
pub use steps::StepLog;

use std::fmt;

/// Receives the records of one queue.
///
/// The queue calls the sink on the path of an I/O, once for many records. So the sink must not block. It must not call
/// the queue that it records, or the volume of that queue: a shared queue is held during the call, and the thread would
/// wait for itself.
pub trait LogSink: fmt::Debug + Send {
    /// Takes a batch of records, in order, and replaces it with an empty one: another batch, or the same one after the
    /// records were copied.
    ///
    /// # Errors
    /// If the sink has no room now; the batch must be unchanged. The queue then drops its records and begins the next
    /// batch with an [`Event::Missed`] that has their number.
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom>;

    /// Makes a partly filled batch readable while the queue is idle, and replaces it with an empty one. If no reader
    /// has read the records, [`LogSink::reclaim`] returns the batch. So a queue that is often idle fills its batches,
    /// too. A sink whose records are never read while the queue is idle needs neither method.
    ///
    /// # Errors
    /// If the sink refuses; the batch must be unchanged, and the queue keeps it.
    fn publish(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        let _ = batch;
        Err(NoRoom)
    }

    /// The queue is no longer idle. Replaces this empty batch with the published one, unless its records were read.
    fn reclaim(&mut self, batch: &mut RecordBatch) {
        let _ = batch;
    }
}

/// A sink has no room for more records now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the log has no room for more records at the moment")]
pub struct NoRoom;
