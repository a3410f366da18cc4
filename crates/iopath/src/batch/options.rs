//! The options of a batch. Plain data.

use iopath_core::{Priority, QueueConfig, Stream};
use iopath_os::{BufferPool, NoMemory};

/// The options of a [`Batch`](crate::Batch).
#[derive(Debug, Clone)]
pub struct BatchOptions {
    pub(super) io_depth: u32,
    pub(super) buffer_bytes: usize,
    pub(super) gather: u32,
    pub(super) plug: u32,
    pub(super) stream: Stream,
    pub(super) priority: Priority,
    pub(super) buffered: Option<bool>,
    pub(super) pool: Option<BufferPool>,
}

impl BatchOptions {
    /// Options for up to `io_depth` requests in flight, each of up to `buffer_bytes` bytes.
    pub const fn new(io_depth: u32, buffer_bytes: usize) -> Self {
        let io_depth = if io_depth == 0 { 1 } else { io_depth };
        Self {
            io_depth,
            buffer_bytes,
            gather: 1,
            plug: QueueConfig::PLUG_REQUESTS,
            stream: Stream(0),
            priority: Priority::BestEffort,
            buffered: None,
            pool: None,
        }
    }

    /// The pool of [`Batch::buffer`](crate::Batch::buffer), instead of one of the batch's own: its buffers can move
    /// between batches, volumes and threads. The ring of the batch registers its memory, so that direct I/O on its
    /// buffers needs no look-up and pinning of pages. The buffer pool of a database can be such a pool.
    #[must_use]
    pub fn pool(mut self, pool: &BufferPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// The path that [`BatchOptions::buffered`] has selected.
    pub(crate) const fn selects_cache(&self) -> Option<bool> {
        self.buffered
    }

    /// The number of requests in flight.
    pub(crate) const fn depth(&self) -> u32 {
        self.io_depth
    }

    /// The pool of the options, or a new one.
    pub(super) fn own_pool(&self) -> Result<BufferPool, NoMemory> {
        match &self.pool {
            Some(pool) => Ok(pool.clone()),
            None => BufferPool::new(self.io_depth, self.buffer_bytes),
        }
    }

    /// Whether requests go through the page cache (`true`) or past it, coherently (`false`). Unless set, a batch
    /// follows the mode of the volume: it is buffered with [`IoMode::Buffered`](crate::IoMode::Buffered), and direct
    /// with any other mode.
    ///
    /// `true` needs a volume with a page cache: [`OpenError::NotBuffered`](crate::OpenError::NotBuffered).
    #[must_use]
    pub const fn buffered(mut self, is_buffered: bool) -> Self {
        self.buffered = Some(is_buffered);
        self
    }

    /// The number of completions that a wait gathers before it returns. The default, 1, has the lowest latency. A
    /// quarter of the depth has the lowest CPU cost.
    #[must_use]
    pub const fn gather(mut self, completions: u32) -> Self {
        self.gather = completions;
        self
    }

    /// The number of requests that the batch keeps plugged, so that later requests can merge with them: 32 unless set,
    /// as in Linux. The batch submits them when there are more, to keep the device busy, and earlier while the device
    /// has fewer requests than the plug. A larger plug saves system calls.
    #[must_use]
    pub const fn plug(mut self, requests: u32) -> Self {
        self.plug = requests;
        self
    }

    /// The stream of requests that set none, for elevators that divide the device among streams.
    #[must_use]
    pub const fn stream(mut self, stream: Stream) -> Self {
        self.stream = stream;
        self
    }

    /// The priority of requests that set none, for elevators that use it.
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}
