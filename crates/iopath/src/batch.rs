//! Many I/Os in flight from one thread. A request owns its buffer until its completion returns the buffer. The requests
//! go through the page cache (`batch/buffered.rs`) or past it (`batch/direct.rs`).

mod bounced;
mod buffered;
mod direct;
mod io;
mod notify;
mod opened;
mod options;
mod request;
mod threading;

use crate::error::{Error, ErrorKind, OpenError, Result};
use crate::volume::Volume;
use io::BatchIo;
use iopath_core::{LogSink, QueueStats};
use iopath_os::{BorrowedBytes, BufferPool, IoBuf, Notifier, PoolBuf};
use opened::Opened;
use std::collections::VecDeque;
use std::fmt;

pub use crate::storage::threading::{AnyThread, OneThread};
pub use options::BatchOptions;
pub use request::Request;
use threading::Objects;
pub use threading::Threading;

/// Keeps many I/Os in flight without a thread for each. On a buffered volume they go through the page cache; on any
/// other volume they are direct I/O. On a volume with a page cache, [`BatchOptions::buffered`] selects one of the two.
///
/// A batch collects requests until [`Batch::submit`] or [`Batch::wait`], merges neighbours, and submits them with one
/// system call. If requests of one batch overlap and at least one is a write, they complete in the order in which they
/// were queued. All other requests may complete in any order. Dropping a batch waits for the requests in flight, except
/// for buffered reads, which it abandons.
///
/// No batch extends its volume: a write past the end is refused with [`ErrorKind::PastEnd`],
/// also with [`Options::extend`](crate::Options::extend). Extend the volume with [`Volume::resize`] first, or append
/// with [`Volume::write_at`].
///
/// A batch may move between threads ([`AnyThread`]). [`Volume::local_batch`] creates a batch that stays on its thread,
/// with a lower CPU cost. An event loop can wait for completions with a file descriptor: [`Batch::completion_fd`].
///
/// # Buffered
/// Accepts any offset and length, as [`Volume::read_at`] and [`Volume::write_at`] do. [`Batch::queue`] never waits for
/// the device:
///
/// | request | completes |
/// |---|---|
/// | read, pages cached | at once, without a lock or system call: the next poll or wait returns it |
/// | read, pages missing | when they are read and a poll or wait has copied them; readahead as for `read_at` |
/// | write | when its bytes are in the cache: usually at once. Part of a page that is not cached is read first |
/// | durable write, flush | when write-back and the flush of the device have completed |
/// | discard, zeroes | when the device has executed it; the parts of blocks at both ends are zeroed |
///
/// While too many pages are dirty, further writes of the batch wait in it, and [`Batch::queue`] still returns at once.
/// Requests continue in calls of the batch: a program that neither polls nor waits delays them. Such a delay does not
/// block other callers: until the request continues, the page that it waits for can be evicted.
///
/// A flush does not truncate a file that appends have extended in advance ([`Volume::flush`] does). Stream and priority
/// have no effect: the cache's own queue executes page I/O for all callers. Before a [`Volume::resize`], reap discards
/// and zeroes.
///
/// # Direct, on a volume with a page cache
/// A direct batch is coherent with the cache, as [`Direct`](crate::Direct) describes. A queued write holds claims on
/// its pages, and on the blocks of a mapped file, until a poll or wait reaps it; buffered writes to them wait. A thread
/// must reap its own batch write before it writes there in another way, or it deadlocks.
///
/// A forced write is a plain write, followed by a flush of the device by the cache. The flush begins when a poll or
/// wait reaps the write. [`Volume::flush`] does not wait for batches, so a thread may call it with forced writes in
/// flight. That flush does not necessarily cover those writes.
///
/// # Direct, with unaligned I/O
/// On a volume with [`Unaligned::Bounce`](crate::Unaligned::Bounce), a request whose offset, length or memory is
/// unaligned is copied through an aligned buffer. A write of a part of a block waits, in [`Batch::queue`], for the
/// requests of the batch in flight, and then reads, changes and writes the block. A queued write locks its blocks until
/// it is reaped: reap it before the thread writes there in another way, or it deadlocks. A write to blocks that another
/// batch or thread has locked waits, in [`Batch::queue`], first for the requests of the batch and then for the lock.
///
/// # On a mapped file without a page cache
/// Each thread and each batch has a queue. A flush that saves metadata waits until all earlier flushes and forced
/// writes have completed, also those of batches. A thread must reap its own forced writes before it flushes the volume.
///
/// ```no_run
/// use iopath::{BatchOptions, Options, Request, Volume};
///
/// let volume = Volume::open("data.bin", &Options::new())?;
/// let mut batch = volume.batch(&BatchOptions::new(32, 4096))?;
/// for block in 0..32 {
///     let buffer = batch.buffer().expect("there is a buffer for each request in flight");
///     batch.queue(Request::read(buffer, block * 4096).token(block))?;
/// }
/// while let Some(done) = batch.wait()? {
///     println!("block {}: {} bytes", done.token, done.result?);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Batch<T: Threading = AnyThread, B: IoBuf = PoolBuf> {
    io: Box<<T as Objects>::Io<B>>,
    volume: Volume,
    /// The pool of its own or of the options.
    pool: Option<BufferPool>,
    /// Notifies an event loop of completions.
    notifier: Option<Notifier>,
    /// The completions of cancelled requests.
    cancelled: VecDeque<Completion<B>>,
}

impl<T: Threading, B: IoBuf> fmt::Debug for Batch<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("volume", &self.volume)
            .field("in_flight", &self.in_flight())
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// A [`Batch`] that stays on the thread that created it.
pub type LocalBatch<B = PoolBuf> = Batch<OneThread, B>;

/// A completed request of a batch.
#[non_exhaustive]
pub struct Completion<B = PoolBuf> {
    /// The token of the request.
    pub token: u64,
    /// The buffer of the request. After a read it begins with the bytes read.
    pub buffer: Option<B>,
    /// The number of bytes: all, or fewer for a read at the end of the volume (never on a raw volume).
    pub result: Result<usize>,
}

/// A request that was not queued, with its buffer.
#[derive(thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct Refused<B = PoolBuf> {
    /// The reason.
    #[source]
    pub error: Error,
    /// The buffer of the request.
    pub buffer: Option<B>,
}

impl<B: IoBuf> fmt::Debug for Completion<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("token", &self.token)
            .field("buffer_bytes", &self.buffer.as_ref().map(IoBuf::init_bytes))
            .field("result", &self.result)
            .finish()
    }
}

impl<B> fmt::Debug for Refused<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl Volume {
    /// A batch that may move between threads.
    ///
    /// # Errors
    /// [`OpenError`] if no engine can be started, the system has no memory for the buffers, or the options select the
    /// page cache of a volume without one.
    pub fn batch(&self, options: &BatchOptions) -> Result<Batch, OpenError> {
        Batch::new(self, options, Some(options.own_pool()?), Opened::for_any_thread)
    }

    /// A batch that stays on the calling thread. With engine `io_uring`, completions do not interrupt the thread: the
    /// lowest CPU cost per I/O.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::batch`].
    pub fn local_batch(&self, options: &BatchOptions) -> Result<LocalBatch, OpenError> {
        Batch::new(self, options, Some(options.own_pool()?), Opened::for_one_thread)
    }

    /// A batch of I/O on buffers of the caller, of any type that implements [`IoBuf`](crate::IoBuf): `Vec<u8>`,
    /// `Box<[u8]>`, [`AlignedBuf`](crate::AlignedBuf), [`PoolBuf`], and `bytes::Bytes` and `bytes::BytesMut` with the
    /// feature `bytes`. [`AnyBuf`](crate::buffers::AnyBuf) is a buffer of any of these types.
    ///
    /// A request takes its buffer, and the completion returns it. Direct I/O transfers the memory of the buffer itself,
    /// which must be aligned ([`Facts::memory_align_bytes`](crate::Facts::memory_align_bytes)). On a volume with
    /// [`Unaligned::Bounce`](crate::Unaligned::Bounce), unaligned requests are copied. A buffered batch accepts any
    /// memory. A [`SharedBuf`](crate::buffers::SharedBuf) is never copied: a batch of them refuses unaligned I/O on
    /// every volume, and locks no blocks: [`Volume::try_lock_range`].
    ///
    /// The batch allocates no buffers: [`BatchOptions::pool`] adds a pool.
    ///
    /// ```
    /// use iopath::{BatchOptions, IoMode, Options, Request, Volume};
    /// use iopath::testing::{MemoryConfig, MemoryDisk};
    ///
    /// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
    /// let volume = Volume::memory(&disk, &Options::new().write(true).mode(IoMode::Buffered).cache_bytes(1 << 20))?;
    /// let mut batch = volume.batch_of::<Vec<u8>>(&BatchOptions::new(2, 0))?;
    /// batch.queue(Request::write_from(b"hello".to_vec(), 100))?;
    /// batch.queue(Request::read_into(Vec::with_capacity(5), 100).bytes(5).token(1))?;
    /// while let Some(done) = batch.wait()? {
    ///     assert_eq!(done.result?, 5);
    ///     assert_eq!(done.buffer.as_deref(), Some(&b"hello"[..]));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Volume::batch`]. [`OpenError::SharedMemory`] for memory of other processes on a volume
    /// with a page cache, in memory or of a server.
    pub fn batch_of<B: IoBuf + Send>(
        &self,
        options: &BatchOptions,
    ) -> Result<Batch<AnyThread, B>, OpenError> {
        Batch::new(self, options, options.pool.clone(), Opened::for_any_thread)
    }

    /// Does the same as [`Volume::batch_of`], for a batch that stays on the calling thread.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::batch`].
    pub fn local_batch_of<B: IoBuf>(&self, options: &BatchOptions) -> Result<LocalBatch<B>, OpenError> {
        Batch::new(self, options, options.pool.clone(), Opened::for_one_thread)
    }
}

impl<T: Threading, B: IoBuf> Batch<T, B> {
    fn new(
        volume: &Volume,
        options: &BatchOptions,
        pool: Option<BufferPool>,
        boxed: impl FnOnce(Opened<T, B>) -> Box<<T as Objects>::Io<B>>,
    ) -> Result<Self, OpenError> {
        let io = boxed(Opened::new(volume, options, pool.as_ref())?);
        Ok(Self { io, volume: volume.clone(), pool, notifier: None, cancelled: VecDeque::new() })
    }

    /// An unused buffer of the pool; `None` if all are in use. A batch has one buffer for each request that may be in
    /// flight; a batch of other buffers ([`Volume::batch_of`]) has none, unless it has a pool
    /// ([`BatchOptions::pool`]).
    pub fn buffer(&self) -> Option<PoolBuf> {
        self.pool.as_ref()?.take()
    }

    /// Borrows `bytes` bytes at `offset` in the page cache, if all of their pages are cached: no copy, lock or system
    /// call, and no request in flight. The bytes do not change until they are dropped; a write to the range uses
    /// another copy of the page.
    ///
    /// `None`: read the bytes with a request. A page is missing, or the range is not wholly in the volume, or it
    /// overlaps a write of this batch in flight, or this batch has borrowed a sixteenth of the cache, or the batch is
    /// direct.
    pub fn borrow(&self, offset: u64, bytes: usize) -> Option<BorrowedBytes> {
        self.io.borrow(offset, bytes)
    }

    /// Queues a request. [`Batch::submit`] or [`Batch::wait`] submits it. This method submits all queued requests when
    /// they exceed the plug. A buffered write, flush or discard begins at once.
    ///
    /// # Errors
    /// [`Refused`], with the buffer: if the batch is full, the volume is read-only, the buffer is too small, or the
    /// range is outside the volume, or unaligned in a direct batch of a volume that refuses unaligned I/O.
    pub fn queue(&mut self, request: Request<B>) -> Result<(), Refused<B>> {
        self.io.queue(request)
    }

    /// Submits the queued requests. Does not wait.
    pub fn submit(&mut self) {
        self.io.submit();
    }

    /// The next completion. Submits the queued requests, and waits for a completion if there is none; `None` if nothing
    /// is in flight.
    ///
    /// # Errors
    /// [`ErrorKind::Wait`] if the system refuses to wait. Errors of a request are in
    /// its [`Completion`].
    pub fn wait(&mut self) -> Result<Option<Completion<B>>> {
        loop {
            if let Some(done) = self.cancelled.pop_front() {
                return Ok(Some(done));
            }
            let done = self.io.wait()?;
            // The wait may have ended with a request that was cancelled.
            if done.is_some() || self.in_flight() == 0 {
                return Ok(done);
            }
        }
    }

    /// Cancels a request in flight with this token: the program need not wait for the device any longer. The next poll
    /// or wait returns its completion, with [`ErrorKind::Cancelled`] and without the
    /// buffer. Returns `false` if no such request is in flight, or it has completed.
    ///
    /// The device may still execute the request, now or later. The buffer stays with the batch until then, and is then
    /// dropped: one of a pool returns to it. So the request also keeps its place in the batch ([`Batch::in_flight`]),
    /// its order and its claims. Dropping the batch still waits for it.
    pub fn cancel(&mut self, token: u64) -> bool {
        let is_cancelled = self.io.cancel(token);
        if is_cancelled {
            let result = Err(self.volume.error(ErrorKind::Cancelled));
            self.cancelled.push_back(Completion { token, buffer: None, result });
            // An event loop that waits for the descriptor polls.
            if let Some(notifier) = &self.notifier {
                notifier.notify();
            }
        }
        is_cancelled
    }

    /// The next completion, if there is one. Does not wait, and does not submit queued requests.
    pub fn poll(&mut self) -> Option<Completion<B>> {
        self.cancelled.pop_front().or_else(|| self.io.poll())
    }

    /// The next completion that the last wait or poll reaped. Costs no system call.
    pub fn next_completed(&mut self) -> Option<Completion<B>> {
        self.cancelled.pop_front().or_else(|| self.io.next_completed())
    }

    /// Records each step of each request of the batch's queue in `sink` from now on, and replaces an earlier sink of
    /// that queue. Crate `iopath-log` has a sink that writes a file.
    ///
    /// A direct batch with elevator `none` has a queue of its own. With another elevator, all threads and batches of
    /// the volume share the queue. The log follows the batch to another queue: at the first [`Batch::completion_fd`],
    /// and when the elevator changes. A buffered batch logs the queue between page cache and device, as
    /// [`Volume::start_log`] does; hits are not in this log.
    pub fn start_log(&mut self, sink: Box<dyn LogSink>) {
        self.io.start_log(sink);
    }

    /// Requests that are queued or submitted, and whose completion was not returned yet; and cancelled requests that
    /// the device has not completed.
    pub fn in_flight(&self) -> u32 {
        self.io.in_flight() + self.cancelled.len() as u32
    }

    /// The volume.
    pub const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Whether requests go through the page cache.
    pub fn is_buffered(&self) -> bool {
        self.io.is_buffered()
    }

    /// The engine: `uring`, `threads` or `memory`.
    pub fn engine(&self) -> &'static str {
        self.io.engine()
    }

    /// The counters of the queue that [`Batch::start_log`] names.
    pub fn stats(&self) -> QueueStats {
        self.io.stats()
    }

    /// The number of requests whose bytes were copied because they were unaligned: on volumes with
    /// [`Unaligned::Bounce`](crate::Unaligned::Bounce). All other direct I/O transfers the memory of the buffers. A
    /// buffered batch copies between page cache and buffers, and does not count that.
    pub fn bounced(&self) -> u64 {
        self.io.bounced()
    }

    /// System calls made for I/O so far, by all users of that queue.
    pub fn syscalls(&self) -> u64 {
        self.io.syscalls()
    }
}
