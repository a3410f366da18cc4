//! How one I/O of a batch differs from the others. Plain data: what elevators make of it is theirs.

use iopath_core::{Priority, Stream};

/// Whose an I/O of a [`Batch`](crate::Batch) is, how urgent it is, and whether it is on the medium when it completes.
/// What is not set is as the batch has it.
///
/// ```
/// use iopath::{IoOptions, Priority, Stream};
///
/// let log_write = IoOptions::new().priority(Priority::RealTime).stream(Stream(1)).durable(true);
/// # let _ = log_write;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct IoOptions {
    pub(crate) stream: Option<Stream>,
    pub(crate) priority: Option<Priority>,
    pub(crate) durable: bool,
}

impl IoOptions {
    /// Stream and priority of the batch; in the device, not necessarily on the medium.
    pub const fn new() -> Self {
        Self { stream: None, priority: None, durable: false }
    }

    /// Whose it is, for elevators that share the device out (`fair`).
    #[must_use]
    pub const fn stream(mut self, stream: Stream) -> Self {
        self.stream = Some(stream);
        self
    }

    /// How urgent it is, for elevators that go by it (`deadline`). It goes before others that wait in the batch for
    /// their turn at the device, not before those that are there. I/Os of different priority are never merged.
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// A write that is on the medium when it completes: by forced unit access, beside a page cache by a flush of the
    /// device. Reads do not heed it.
    #[must_use]
    pub const fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }
}
