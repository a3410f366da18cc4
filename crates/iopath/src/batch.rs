//! Many I/Os in flight from one thread. A buffer goes in with a request and comes back with its completion. On a volume with
//! a page cache, `batch/direct.rs` keeps both coherent.

mod direct;
mod notify;
mod options;
mod request;

use crate::error::{Cause, Error, ErrorKind, OpenError, Result};
use crate::queues::{Queue, SharedDevice};
use crate::source::threading::{AnyThread, OneThread, Threading, sealed};
use crate::volume::Volume;
use direct::DirectIos;
use iopath_core::{Extent, IoError, LogSink, Op, Priority, QueueStats, Stream, SubmitError};
use iopath_os::{Bell, BufferPool, Finished, Job, PoolBuf, ThreadQueue, WaitError};

pub use options::BatchOptions;
pub use request::Request;

/// A queue with buffers that the engine has registered. Keeps many I/Os in flight without a thread for each.
///
/// A batch collects requests until [`Batch::submit`] or [`Batch::wait`], merges neighbours, and submits them with one system
/// call. Overlapping requests of one batch, at least one a write, are carried out in the order in which they were queued; all
/// others in any order. Dropping a batch waits for what is in flight.
///
/// Threads may use a batch in turn ([`AnyThread`]). [`Volume::local_batch`] makes one that stays on its thread, at less CPU
/// cost. An event loop can wait for completions by a file descriptor: [`Batch::completion_fd`].
///
/// # On a volume with a page cache
/// A batch is direct I/O. It is coherent with the cache, as [`Direct`](crate::Direct) describes. A queued write holds claims on
/// its pages, and on the blocks of a mapped file, until a poll or wait reaps it; buffered writes to them wait. A thread must
/// reap its own batch write before it writes there in another way, or it deadlocks.
///
/// A forced write is a plain write, and then a flush of the device by the cache, which begins when a poll or wait reaps the
/// write. [`Volume::flush`] waits neither for a batch nor for a thread that polls none, so it may be called with forced
/// writes in flight; it does not necessarily cover them.
///
/// # On a mapped file without a page cache
/// Each thread and each batch has a queue. A flush that saves metadata waits until every flush and forced write that began
/// before has completed, those of batches included: a thread must reap its own before it flushes the volume.
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
#[derive(Debug)]
pub struct Batch<T: Threading = AnyThread> {
    volume: Volume,
    runner: Queue<<T as sealed::Open>::Device>,
    pool: BufferPool,
    engine: &'static str,
    gather: u32,
    stream: Stream,
    priority: Priority,
    /// On a volume with a page cache: the requests from queue to completion.
    direct: Option<Box<DirectIos>>,
    /// Rung at completions, if an event loop waits for them.
    bell: Option<Bell>,
}

/// A [`Batch`] that stays on the thread that made it.
pub type LocalBatch = Batch<OneThread>;

/// A completed request of a batch.
#[derive(Debug)]
pub struct Completion {
    /// The token of the request.
    pub token: u64,
    /// The buffer of the request. After a read it begins with the bytes read.
    pub buffer: Option<PoolBuf>,
    /// The number of bytes: all, or fewer for a read where the volume ends (not on a raw volume).
    pub result: Result<usize>,
}

/// A request that was not queued. The buffer comes back.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// The reason.
    #[source]
    pub error: Error,
    /// The buffer of the request.
    pub buffer: Option<PoolBuf>,
}

impl Volume {
    /// A batch that threads may use in turn.
    ///
    /// # Errors
    /// [`OpenError`] if no engine can be started, or the system has no memory for the buffers.
    pub fn batch(&self, options: &BatchOptions) -> Result<Batch, OpenError> {
        Batch::new(self.clone(), options)
    }

    /// A batch that stays on the calling thread. Where the engine is `io_uring`, its completions do not interrupt the thread:
    /// the lowest CPU cost per I/O.
    ///
    /// # Errors
    /// As [`Volume::batch`].
    pub fn local_batch(&self, options: &BatchOptions) -> Result<LocalBatch, OpenError> {
        Batch::new(self.clone(), options)
    }
}

impl<T: Threading> Batch<T> {
    fn new(volume: Volume, options: &BatchOptions) -> Result<Self, OpenError> {
        let pool = BufferPool::new(options.io_depth, options.buffer_bytes)?;
        let opened = volume.source().batch_queue::<T>(options.io_depth, options.plug, pool.clone())?;
        let direct = volume.cache_if_any().map(|_| Box::new(DirectIos::new(options.io_depth)));
        Ok(Self {
            volume,
            runner: opened.queue,
            pool,
            engine: opened.engine,
            gather: options.gather,
            stream: options.stream,
            priority: options.priority,
            direct,
            bell: None,
        })
    }

    /// An unused buffer. There are as many buffers as requests that fit in flight.
    pub fn buffer(&self) -> Option<PoolBuf> {
        self.pool.take()
    }

    /// Queues a request. It is submitted by [`Batch::submit`] or [`Batch::wait`], or when more requests are queued than the
    /// plug holds.
    ///
    /// # Errors
    /// [`Refused`], with the buffer: if the batch is full, the volume is read-only, the buffer is too small, or the range is
    /// unaligned or outside the volume.
    pub fn queue(&mut self, mut request: Request) -> Result<(), Refused> {
        loop {
            let extent = match self.extent(&request) {
                Ok(extent) => extent,
                Err(error) => return Err(Refused { error, buffer: request.buffer }),
            };
            match self.queue_extent(extent, &mut request) {
                Err(refused) if self.is_cut_off(&request, extent, &refused) => {
                    request.buffer = refused.buffer;
                }
                queued => return queued,
            }
        }
    }

    /// Submits what is queued. Does not wait.
    pub fn submit(&mut self) {
        self.runner().submit();
    }

    /// The next completion. Submits what is queued, and waits if nothing has completed; `None` if nothing is in flight.
    ///
    /// # Errors
    /// [`ErrorKind::Wait`] if the system refuses to submit or wait. Errors of a request are in its [`Completion`].
    pub fn wait(&mut self) -> Result<Option<Completion>> {
        if let Some(done) = self.next_completed() {
            return Ok(Some(done));
        }
        if self.direct.is_some() {
            return self.wait_direct();
        }
        let waited = self.runner.for_io(self.volume.source()).wait(self.gather);
        waited.map_err(|source| self.wait_error(source))?;
        Ok(self.next_completed())
    }

    /// The next completion, if there is one. Does not wait. Requests that were submitted go on; requests queued since stay
    /// queued until [`Batch::submit`] or [`Batch::wait`].
    pub fn poll(&mut self) -> Option<Completion> {
        self.next_completed().or_else(|| {
            self.clear_bell();
            self.runner().reap();
            self.reap_direct();
            self.next_completed()
        })
    }

    /// The next completion that the last wait or poll reaped. Costs no system call.
    pub fn next_completed(&mut self) -> Option<Completion> {
        if let Some(direct) = &mut self.direct {
            return direct.next_completed();
        }
        let finished = self.runner.as_is_mut().poll_completion()?;
        Some(completion(&self.volume, finished))
    }

    /// Records each step of each request of the batch's queue in `sink` from now on. With an elevator, threads and batches of
    /// the volume share the queue: the sink then receives the steps of all, and replaces an earlier one. Crate `iopath-log` has a sink that writes a file.
    pub fn start_log(&mut self, sink: Box<dyn LogSink>) {
        self.runner().start_log(sink);
    }

    /// Requests that are queued or submitted and whose completion was not returned yet.
    pub fn in_flight(&self) -> u32 {
        self.direct.as_ref().map_or_else(|| self.runner.as_is().in_flight(), |direct| direct.in_flight())
    }

    /// The volume.
    pub const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The engine: `uring`, `threads` or `memory`.
    pub const fn engine(&self) -> &'static str {
        self.engine
    }

    /// The counters of the queue; with an elevator, those of the queue that the volume's threads and batches share.
    pub fn stats(&self) -> QueueStats {
        self.runner.as_is().stats()
    }

    /// System calls made for I/O so far; with an elevator, by all threads and batches of the volume.
    pub fn syscalls(&self) -> u64 {
        self.runner.as_is().syscalls()
    }

    /// Checks a request; the blocks that it reads or changes.
    fn extent(&self, request: &Request) -> Result<Extent> {
        let Request { op, offset, bytes, .. } = *request;
        match op {
            Op::Read => self.volume.readable(offset, bytes).map(|(extent, _)| extent),
            Op::Flush => self.volume.check_writable(Op::Flush, 0, 0).map(|()| Extent::EMPTY),
            Op::Write | Op::Discard | Op::WriteZeroes => self.volume.writable(op, offset, bytes),
        }
    }

    fn queue_extent(&mut self, extent: Extent, request: &mut Request) -> Result<(), Refused> {
        let Request { op, stream, priority, is_durable, token, .. } = *request;
        let buffer = request.buffer.take();
        let is_forced = is_durable && op == Op::Write;
        let token = match self.begin_direct(op, extent, token, is_forced) {
            Ok(Some(token)) => token,
            Ok(None) => return Ok(()),
            Err(error) => return Err(Refused { error, buffer }),
        };
        let job = Job {
            op,
            extent,
            buffer,
            fua: is_forced && self.direct.is_none(),
            stream: stream.unwrap_or(self.stream),
            priority: priority.unwrap_or(self.priority),
            token,
        };
        self.runner().queue(job).map_err(|iopath_os::Refused { error, buffer }| {
            self.abandon_direct(token);
            let error = match &error {
                SubmitError::QueueFull(_) => self.full(),
                other => self.volume.refused(other),
            };
            Refused { error, buffer }
        })
    }

    /// Whether the end of the volume moved between the check of a read and its refusal. A check returns an extent inside the
    /// volume, or an empty one for a read past the end, so a refused extent that is not empty was inside. Comparing the
    /// results of two checks does not show it: the end may move away and back.
    fn is_cut_off(&self, request: &Request, extent: Extent, refused: &Refused) -> bool {
        request.op == Op::Read
            && self.volume.cuts_off_at_end()
            && matches!(refused.error.kind(), ErrorKind::PastEnd { .. })
            && !extent.is_empty()
    }

    fn full(&self) -> Error {
        self.volume.error(ErrorKind::BatchFull { depth: self.in_flight() })
    }

    fn wait_error(&self, source: WaitError) -> Error {
        self.volume.error(ErrorKind::Wait).because(Cause::Wait(source))
    }

    /// The queue, with the elevator and the end that the volume has now.
    fn runner(&mut self) -> &mut ThreadQueue<<T as sealed::Open>::Device, SharedDevice> {
        let queue = self.runner.for_io(self.volume.source());
        queue.set_capacity(self.volume.sectors());
        queue
    }
}

impl<T: Threading> Drop for Batch<T> {
    /// Waits for what is in flight: a request that is never reaped would keep its claims on the cache.
    fn drop(&mut self) {
        self.drain_direct();
    }
}

/// The completion of a job.
fn completion(volume: &Volume, finished: Finished) -> Completion {
    let Finished { token, op, extent, mut buffer, result } = finished;
    let result = match (op, result, &mut buffer) {
        // The part before the end of the volume.
        (_, Ok(()), _) => {
            Ok(extent.bytes().min(volume.size_bytes().saturating_sub(extent.offset())) as usize)
        }
        // The volume may have become shorter: read again up to the new end. Not on a mapped file, where this could wait for
        // writes of the batch that only its owner reaps.
        (Op::Read, Err(IoError::EndOfDevice), Some(buffer)) if !volume.source().writes_last_block() => {
            volume.read_direct(&mut buffer[..extent.bytes() as usize], extent.offset())
        }
        (_, Err(error), _) => Err(volume.failed(op, extent, error)),
    };
    Completion { token, buffer, result }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryConfig, MemoryDisk, Options};

    #[test]
    fn a_read_is_checked_again_however_often_the_end_moves_before_it_is_queued() {
        const BLOCK: u64 = 4096;
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(3 * BLOCK)).unwrap();
        let volume = Volume::memory(&disk, &Options::new().write(true)).unwrap();
        let mut batch = volume.batch(&BatchOptions::new(1, 2 * BLOCK as usize)).unwrap();
        let mut request = Request::read(batch.buffer().unwrap(), BLOCK);
        for _ in 0..2 {
            volume.resize(3 * BLOCK).unwrap();
            let extent = batch.extent(&request).unwrap();
            assert_eq!(extent.bytes(), 2 * BLOCK);
            volume.resize(2 * BLOCK).unwrap();
            let refused = batch.queue_extent(extent, &mut request).unwrap_err();
            assert!(batch.is_cut_off(&request, extent, &refused), "{refused}");
            request.buffer = refused.buffer;
        }
        batch.queue(request).unwrap();
        let done = batch.wait().unwrap().unwrap();
        assert_eq!(done.result.unwrap() as u64, BLOCK);
        let past_end = batch.queue(Request::read(done.buffer.unwrap(), 2 * BLOCK)).unwrap_err();
        assert!(matches!(past_end.error.kind(), ErrorKind::PastEnd { .. }), "{past_end}");
    }
}
