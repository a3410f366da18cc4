//! The request log's record: one step of one bio or request in 24 bytes, and who takes them. Neither ring nor
//! file: those are `iopath-log`'s. The bits are in docs/log-format.md; which step is told when, in
//! `queue/log.rs`.

mod batch;
mod record;

pub(crate) use batch::Log;
pub use record::{Event, Record, Step, Subject, UnknownCode};

use crate::time::Instant;
use std::fmt;

/// Takes the records of one queue.
///
/// Called on the path of an I/O, once for many records: it neither waits nor fails. What it cannot keep it
/// counts and says later with a record of [`Event::Missed`].
pub trait LogSink: fmt::Debug + Send {
    /// Takes records in order. `first` is the time of the first of them, in full: a record has only the lower
    /// [`Record::TIME_BITS`] of it.
    fn take(&mut self, records: &[Record], first: Instant);
}
