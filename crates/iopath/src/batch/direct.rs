//! A batch of direct I/O: a queue and engine of its own, or the queue that all share. On a volume with a page cache,
//! `direct/coherent.rs` keeps both coherent.

mod coherent;

use super::io::BatchIo;
use super::threading::Threading;
use super::{BatchOptions, Completion, Refused, Request};
use crate::error::{Cause, Error, ErrorKind, OpenError, Result};
use crate::queues::{Queue, SharedDevice};
use crate::storage::threading::sealed;
use crate::volume::{End, Volume};
use coherent::CoherentIos;
use iopath_core::{Extent, IoError, LogSink, Op, Priority, QueueStats, Stream, SubmitError};
use iopath_os::{BufferPool, CompletedJob, IoBuf, Job, Notifier, ThreadQueue, WaitError, now, zeroed};
use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

/// The interval at which a forced write on a volume with a page cache is polled: the cache does not announce the end of
/// its flush.
const FORCED_POLL: Duration = Duration::from_millis(1);

/// The requests of a batch of direct I/O.
pub(super) struct DirectBatch<T: Threading, B: IoBuf> {
    volume: Volume,
    runner: Queue<<T as sealed::Open>::Device, B>,
    engine: &'static str,
    gather: u32,
    stream: Stream,
    priority: Priority,
    /// On a volume with a page cache: the requests from queue to completion.
    coherent: Option<Box<CoherentIos<B>>>,
    /// Notified of completions, if an event loop waits for them.
    notifier: Option<Notifier>,
    /// The requests of no bytes, which need no device.
    empty: VecDeque<Completion<B>>,
    depth: u32,
}

impl<T: Threading, B: IoBuf> BatchIo<B> for DirectBatch<T, B> {
    fn queue(&mut self, mut request: Request<B>) -> Result<(), Refused<B>> {
        loop {
            let end = self.volume.end();
            let extent = match self.extent(&mut request) {
                Ok(extent) => extent,
                Err(error) => return Err(Refused { error, buffer: request.buffer }),
            };
            if request.bytes == 0 && request.op != Op::Flush {
                return self.complete_empty(request);
            }
            match self.queue_extent(extent, &mut request) {
                Err(refused) if self.is_cut_off(&request, end, &refused) => {
                    request.buffer = refused.buffer;
                }
                queued => return queued,
            }
        }
    }

    fn cancel(&mut self, token: u64) -> bool {
        match &mut self.coherent {
            Some(coherent) => coherent.cancel(token),
            None => self.runner.as_is_mut().cancel(token),
        }
    }

    fn submit(&mut self) {
        self.runner().submit();
    }

    fn wait(&mut self) -> Result<Option<Completion<B>>> {
        if let Some(done) = self.next_completed() {
            return Ok(Some(done));
        }
        if self.coherent.is_some() {
            return self.wait_coherent();
        }
        let waited = self.runner.for_io(self.volume.storage()).wait(self.gather);
        waited.map_err(|source| self.wait_error(source))?;
        Ok(self.next_completed())
    }

    fn poll(&mut self) -> Option<Completion<B>> {
        self.next_completed().or_else(|| {
            self.clear_notifier();
            self.runner().reap();
            self.reap_coherent();
            self.next_completed()
        })
    }

    fn next_completed(&mut self) -> Option<Completion<B>> {
        if let Some(done) = self.empty.pop_front() {
            return Some(done);
        }
        if let Some(direct) = &mut self.coherent {
            return direct.next_completed();
        }
        let completed = self.runner.as_is_mut().poll_completion()?;
        Some(completion(&self.volume, completed))
    }

    fn start_log(&mut self, sink: Box<dyn LogSink>) {
        self.runner.start_log(self.volume.storage(), sink);
    }

    fn in_flight(&self) -> u32 {
        let coherent = self.coherent.as_ref().map(|coherent| coherent.in_flight());
        coherent.unwrap_or_else(|| self.runner.as_is().in_flight()) + self.empty.len() as u32
    }

    fn engine(&self) -> &'static str {
        self.engine
    }

    fn stats(&self) -> QueueStats {
        self.runner.as_is().stats()
    }

    fn syscalls(&self) -> u64 {
        self.runner.as_is().syscalls()
    }

    /// See [`Batch::completion_fd`](super::Batch::completion_fd).
    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()> {
        self.runner.pin(self.volume.storage()).map_err(io::Error::other)?;
        self.runner().set_notifier(notifier)?;
        self.notifier = Some(notifier.clone());
        Ok(())
    }

    /// See [`Batch::next_timeout`](super::Batch::next_timeout).
    fn next_timeout(&self) -> Option<Duration> {
        let due = self.runner.as_is().poll_timeout().map(|due| due.saturating_since(now()));
        let is_flushing = self.coherent.as_ref().is_some_and(|coherent| coherent.is_flushing());
        let completed = (!self.empty.is_empty()).then_some(Duration::ZERO);
        [due, is_flushing.then_some(FORCED_POLL), completed].into_iter().flatten().min()
    }
}

impl<T: Threading, B: IoBuf> DirectBatch<T, B> {
    pub(super) fn new(
        volume: Volume,
        options: &BatchOptions,
        pool: Option<&BufferPool>,
    ) -> Result<Self, OpenError> {
        let opened = volume.storage().batch_queue::<T, B>(options.io_depth, options.plug, pool.cloned())?;
        let coherent = volume.cache_or_open()?.map(|_| Box::new(CoherentIos::new(options.io_depth)));
        Ok(Self {
            volume,
            runner: opened.queue,
            engine: opened.engine,
            gather: options.gather,
            stream: options.stream,
            priority: options.priority,
            coherent,
            notifier: None,
            empty: VecDeque::new(),
            depth: options.io_depth,
        })
    }

    fn complete_empty(&mut self, request: Request<B>) -> Result<(), Refused<B>> {
        let Request { token, buffer, .. } = request;
        if self.in_flight() >= self.depth {
            return Err(Refused { error: self.full(), buffer });
        }
        self.empty.push_back(Completion { token, buffer, result: Ok(0) });
        Ok(())
    }

    fn clear_notifier(&self) {
        if let Some(notifier) = &self.notifier {
            // An error leaves the descriptor readable: the caller polls again.
            let _ = notifier.clear();
        }
    }

    /// Checks a request. Returns the blocks that it reads or changes.
    fn extent(&self, request: &mut Request<B>) -> Result<Extent> {
        let Request { op, offset, bytes, ref mut buffer, .. } = *request;
        let (extent, _) =
            self.volume.checked(op, offset, bytes, |shape, size| shape.extent(op, offset, bytes, size))?;
        match buffer {
            // The memory of a pool is aligned.
            Some(buffer) if bytes > 0 && buffer.registered().is_none() => {
                self.volume.check_memory(op, address_of(buffer, op), offset, bytes)?;
            }
            _ => {}
        }
        Ok(extent)
    }

    /// Waits until every request has completed; [`DirectBatch::next_completed`] returns them.
    pub(super) fn drain(&mut self) -> Result<()> {
        self.runner.as_is_mut().drain().map_err(|source| self.wait_error(source))
    }

    fn queue_extent(&mut self, extent: Extent, request: &mut Request<B>) -> Result<(), Refused<B>> {
        let Request { op, stream, priority, is_durable, token, .. } = *request;
        let buffer = request.buffer.take();
        let is_forced = is_durable && op == Op::Write;
        let token = match self.begin(op, extent, token, is_forced) {
            Ok(Some(token)) => token,
            Ok(None) => return Ok(()),
            Err(error) => return Err(Refused { error, buffer }),
        };
        let job = Job {
            op,
            extent,
            buffer,
            fua: is_forced && self.coherent.is_none(),
            stream: stream.unwrap_or(self.stream),
            priority: priority.unwrap_or(self.priority),
            token,
        };
        self.runner().queue(job).map_err(|iopath_os::Refused { error, buffer }| {
            self.abandon(token);
            let error = match &error {
                SubmitError::QueueFull(_) => self.full(),
                other => self.volume.refused(other),
            };
            Refused { error, buffer }
        })
    }

    /// Whether the end of the volume moved between the check of a read and its refusal: then the read is checked again.
    /// The count of resizes detects an end that has moved back. If the end has not moved, a second check has the same
    /// result.
    fn is_cut_off(&self, request: &Request<B>, end: End, refused: &Refused<B>) -> bool {
        request.op == Op::Read
            && self.volume.cuts_off_at_end()
            && matches!(refused.error.kind(), ErrorKind::PastEnd { .. })
            && self.volume.end() != end
    }

    fn full(&self) -> Error {
        self.volume.error(ErrorKind::BatchFull { depth: self.in_flight() })
    }

    fn wait_error(&self, source: WaitError) -> Error {
        self.volume.error(ErrorKind::Wait).because(Cause::Wait(source))
    }

    /// The queue, with the elevator and the end that the volume has now.
    fn runner(&mut self) -> &mut ThreadQueue<<T as sealed::Open>::Device, SharedDevice, B> {
        let queue = self.runner.for_io(self.volume.storage());
        queue.set_capacity(self.volume.sectors());
        queue
    }
}

impl<T: Threading, B: IoBuf> Drop for DirectBatch<T, B> {
    /// Waits for the I/O in flight: a request that is never reaped would keep its claims on the cache.
    fn drop(&mut self) {
        self.drain_coherent();
    }
}

/// The address of the memory of an operation.
pub(super) fn address_of<B: IoBuf>(buffer: &mut B, op: Op) -> usize {
    let start = match op {
        Op::Read => buffer.space().map(NonNull::cast),
        _ => Some(buffer.start()),
    };
    start.map_or(0, |start: NonNull<u8>| start.as_ptr().addr())
}

/// The completion of a job.
fn completion<B: IoBuf>(volume: &Volume, completed: CompletedJob<B>) -> Completion<B> {
    let CompletedJob { token, op, extent, mut buffer, result } = completed;
    let result = match (op, result, &mut buffer) {
        // The part before the end of the volume.
        (_, Ok(()), _) => {
            Ok(extent.bytes().min(volume.size_bytes().saturating_sub(extent.offset())) as usize)
        }
        // The volume may have become shorter: read again up to the new end. Not on a mapped file, where this could wait
        // for writes of the batch that only its owner reaps.
        (Op::Read, Err(IoError::EndOfDevice), Some(buffer)) if volume.unit_bytes() == 1 => {
            match zeroed(buffer, extent.bytes() as usize) {
                Some(memory) => volume.read_direct(memory, extent.offset()),
                None => Err(volume.failed(op, extent, IoError::EndOfDevice)),
            }
        }
        (_, Err(error), _) => Err(volume.failed(op, extent, error)),
    };
    Completion { token, buffer, result }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::batch::AnyThread;
    use crate::testing::{MemoryConfig, MemoryDisk};
    use crate::{Options, PoolBuf};

    #[test]
    fn a_read_is_checked_again_each_time_the_end_moves_before_it_is_queued() {
        const BLOCK: u64 = 4096;
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(3 * BLOCK)).unwrap();
        let volume = Volume::memory(&disk, &Options::new().write(true)).unwrap();
        let pool = BufferPool::new(1, 2 * BLOCK as usize).unwrap();
        let options = BatchOptions::new(1, 2 * BLOCK as usize);
        let mut batch =
            DirectBatch::<AnyThread, PoolBuf>::new(volume.clone(), &options, Some(&pool)).unwrap();
        let mut request = Request::read(pool.take().unwrap(), BLOCK);
        for _ in 0..2 {
            volume.resize(3 * BLOCK).unwrap();
            let end = volume.end();
            let extent = batch.extent(&mut request).unwrap();
            assert_eq!(extent.bytes(), 2 * BLOCK);
            volume.resize(2 * BLOCK).unwrap();
            let refused = batch.queue_extent(extent, &mut request).unwrap_err();
            assert!(batch.is_cut_off(&request, end, &refused), "{refused}");
            assert!(!batch.is_cut_off(&request, volume.end(), &refused), "without a resize, no second check");
            request.buffer = refused.buffer;
        }
        batch.queue(request).unwrap();
        let done = batch.wait().unwrap().unwrap();
        assert_eq!(done.result.unwrap() as u64, BLOCK);
        let past_end = batch.queue(Request::read(done.buffer.unwrap(), 2 * BLOCK)).unwrap_err();
        assert!(matches!(past_end.error.kind(), ErrorKind::PastEnd { .. }), "{past_end}");
    }
}
