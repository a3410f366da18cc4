//! The request log's record: one step of one bio or request in 24 bytes, and who takes them. Neither ring nor
//! file: those are `iopath-log`'s. The bits are in docs/log-format.md; which step is told when, in
//! `queue/log.rs`.

mod batch;
mod collect;
mod record;

pub use batch::RecordBatch;
pub(crate) use collect::Log;
pub use record::{Event, Record, Step, Subject, UnknownCode};

use std::fmt;

/// Takes the records of one queue.
///
/// Called on the path of an I/O, once for many records: it neither waits nor fails.
pub trait LogSink: fmt::Debug + Send {
    /// Takes a batch of records, in order, and leaves an empty one in its place: another, or the same if it has
    /// copied the records out.
    ///
    /// # Errors
    /// If it can keep no more now. The batch is left as it was: the queue then forgets it, and says how many
    /// records are missing with one of [`Event::Missed`] at the beginning of the next.
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom>;

    /// Has a batch that is not full for as long as the queue is idle, and leaves an empty one in its place. What it
    /// has done nothing with when the queue goes on, [`LogSink::resume`] gives back: so a queue that is idle often
    /// hands over no more batches than a busy one. A sink that nobody looks into meanwhile needs neither.
    ///
    /// # Errors
    /// If it does not want the batch. It is left as it was, and the queue keeps it.
    fn rest(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        let _ = batch;
        Err(NoRoom)
    }

    /// The queue goes on: puts the batch that rests in the place of this empty one, unless its records are taken.
    fn resume(&mut self, batch: &mut RecordBatch) {
        let _ = batch;
    }
}

/// A sink can keep no more records at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the log has no room for more records at the moment")]
pub struct NoRoom;
