//! A batch on a volume with bounced I/O: aligned requests transfer the caller's memory, others an aligned copy
//! (`JobBuf`). A write of a part of a block is executed at once by `volume/bounced.rs`.

use super::direct::{DirectBatch, address_of};
use super::io::BatchIo;
use super::threading::Threading;
use super::{BatchOptions, Completion, Refused, Request};
use crate::error::{Cause, Error, ErrorKind, OpenError, Result};
use crate::volume::Volume;
use iopath_core::volume::BatchRoute;
use iopath_core::{LogSink, Op, QueueStats};
use iopath_os::{AlignedBuf, BufferPool, IoBuf, JobBuf, NoMemory, Notifier, init_of, usable_bytes};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// The requests of a batch of direct I/O, any of which may be unaligned.
pub(super) struct BouncedBatch<T: Threading, B: IoBuf> {
    volume: Volume,
    inner: DirectBatch<T, JobBuf<B>>,
    io_depth: u32,
    /// The requests of `inner`, by their tokens there.
    pending: Slab<Pending>,
    /// Copies that no request uses.
    spare: Vec<AlignedBuf>,
    completed: VecDeque<Completion<B>>,
    /// Counts the requests that were copied.
    bounced: u64,
}

#[derive(Debug)]
struct Pending {
    token: u64,
    op: Op,
    /// The blocks of a write, locked until its completion is reaped.
    locked: Option<Range<u64>>,
    is_cancelled: bool,
}

impl<T: Threading, B: IoBuf> BatchIo<B> for BouncedBatch<T, B> {
    fn queue(&mut self, mut request: Request<B>) -> Result<(), Refused<B>> {
        if let Err(error) = self.check(&mut request) {
            return Err(Refused { error, buffer: request.buffer });
        }
        let route = self.route(&mut request);
        if request.op == Op::Write && route == BatchRoute::Now {
            return self.write_now(request);
        }
        let Request { op, buffer, offset, bytes, token, stream, priority, is_durable } = request;
        if op != Op::Flush && bytes == 0 {
            self.completed.push_back(Completion { token, buffer, result: Ok(0) });
            return Ok(());
        }
        let (buffer, offset, bytes) = match buffer {
            Some(buffer) if route == BatchRoute::Now => return self.read_now(buffer, offset, bytes, token),
            Some(buffer) => match self.job_buffer(op, buffer, offset, bytes, route) {
                Ok(job) => (Some(job.0), job.1, job.2),
                Err((buffer, source)) => {
                    let error = self.volume.error(ErrorKind::NoMemory).of_range(op, offset, bytes);
                    return Err(Refused {
                        error: error.because(Cause::Memory(source)),
                        buffer: Some(buffer),
                    });
                }
            },
            None => (None, offset, bytes),
        };
        let locked = match op {
            Op::Write | Op::Discard | Op::WriteZeroes => match self.lock(offset, bytes) {
                Ok(locked) => locked,
                Err(error) => return Err(self.refused(Refused { error, buffer })),
            },
            Op::Read | Op::Flush => None,
        };
        let key = self.pending.insert(Pending { token, op, locked, is_cancelled: false }) as u64;
        let request = Request { op, buffer, offset, bytes, token: key, stream, priority, is_durable };
        self.inner.queue(request).map_err(|refused| {
            self.remove(key);
            self.refused(refused)
        })
    }

    fn cancel(&mut self, token: u64) -> bool {
        let mut pending = self.pending.iter_mut();
        let found = pending.find(|(_, pending)| pending.token == token && !pending.is_cancelled);
        found.map(|(_, pending)| pending.is_cancelled = true).is_some()
    }

    fn submit(&mut self) {
        self.inner.submit();
    }

    fn wait(&mut self) -> Result<Option<Completion<B>>> {
        if let Some(done) = self.next_completed() {
            return Ok(Some(done));
        }
        let done = self.inner.wait()?;
        Ok(done.and_then(|done| self.finish(done)))
    }

    fn poll(&mut self) -> Option<Completion<B>> {
        self.next_completed().or_else(|| {
            let done = self.inner.poll()?;
            self.finish(done).or_else(|| self.next_completed())
        })
    }

    fn next_completed(&mut self) -> Option<Completion<B>> {
        if let Some(done) = self.completed.pop_front() {
            return Some(done);
        }
        while let Some(done) = self.inner.next_completed() {
            if let Some(done) = self.finish(done) {
                return Some(done);
            }
        }
        None
    }

    fn bounced(&self) -> u64 {
        self.bounced
    }

    fn start_log(&mut self, sink: Box<dyn LogSink>) {
        self.inner.start_log(sink);
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight() + self.completed.len() as u32
    }

    fn engine(&self) -> &'static str {
        self.inner.engine()
    }

    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }

    fn syscalls(&self) -> u64 {
        self.inner.syscalls()
    }

    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()> {
        self.inner.set_notifier(notifier)
    }

    fn next_timeout(&self) -> Option<Duration> {
        // No notification announces the completion of a write that was executed at once.
        if self.completed.is_empty() { self.inner.next_timeout() } else { Some(Duration::ZERO) }
    }
}

impl<T: Threading, B: IoBuf> BouncedBatch<T, B> {
    pub(super) fn new(
        volume: Volume,
        options: &BatchOptions,
        pool: Option<&BufferPool>,
    ) -> Result<Self, OpenError> {
        let inner = DirectBatch::new(volume.clone(), options, pool)?;
        let io_depth = options.io_depth;
        let depth = io_depth.min(4096) as usize;
        Ok(Self {
            volume,
            inner,
            io_depth,
            pending: Slab::with_capacity(depth),
            spare: Vec::with_capacity(depth),
            completed: VecDeque::with_capacity(depth),
            bounced: 0,
        })
    }

    /// Checks what a copy would hide from the inner batch.
    fn check(&self, request: &mut Request<B>) -> Result<()> {
        let Request { op, offset, bytes, ref mut buffer, .. } = *request;
        if self.in_flight() >= self.io_depth {
            return Err(self.volume.error(ErrorKind::BatchFull { depth: self.in_flight() }));
        }
        let Some(buffer) = buffer.as_mut().filter(|_| op.has_memory()) else { return Ok(()) };
        let buffer_bytes = usable_bytes(buffer, op) as u64;
        if bytes > buffer_bytes {
            return Err(self
                .volume
                .error(ErrorKind::BufferTooSmall { buffer_bytes })
                .of_range(op, offset, bytes));
        }
        let is_write = op == Op::Write;
        self.volume
            .checked(op, offset, bytes, |shape, size| shape.check_bounced(is_write, offset, bytes, size))
    }

    /// The execution of a request. One without memory needs no copy.
    fn route(&self, request: &mut Request<B>) -> BatchRoute {
        let Request { op, offset, bytes, ref mut buffer, .. } = *request;
        let Some(buffer) = buffer.as_mut().filter(|_| op.has_memory()) else { return BatchRoute::Own };
        // The memory of a pool is aligned.
        let address = if buffer.registered().is_some() { 0 } else { address_of(buffer, op) };
        self.volume.shape().batch_route(op == Op::Write, offset, bytes, address, self.volume.size_bytes())
    }

    /// The buffer, offset and length of a request for the inner batch: the caller's own if they are aligned.
    fn job_buffer(
        &mut self,
        op: Op,
        buffer: B,
        offset: u64,
        bytes: u64,
        route: BatchRoute,
    ) -> Result<(JobBuf<B>, u64, u64), (B, NoMemory)> {
        let BatchRoute::Copy { start, skip, blocks_bytes } = route else {
            return Ok((JobBuf::Own(buffer), offset, bytes));
        };
        // A length that no memory could hold is refused by the allocation.
        let copy = match self.copy(usize::try_from(blocks_bytes).unwrap_or(usize::MAX)) {
            Ok(copy) => copy,
            Err(error) => return Err((buffer, error)),
        };
        self.bounced += 1;
        let job = match op {
            Op::Read => JobBuf::bounced_read(buffer, copy, skip, bytes as usize),
            _ => JobBuf::bounced_write(buffer, copy, bytes as usize),
        };
        Ok((job, start, blocks_bytes))
    }

    /// An aligned buffer of at least this length.
    fn copy(&mut self, bytes: usize) -> Result<AlignedBuf, NoMemory> {
        match self.spare.pop() {
            Some(copy) if copy.len() >= bytes => Ok(copy),
            _ => AlignedBuf::new(bytes),
        }
    }

    /// Executes a write of a part of a block, after all requests of the batch.
    fn write_now(&mut self, request: Request<B>) -> Result<(), Refused<B>> {
        let Request { buffer: Some(buffer), offset, bytes, token, is_durable, .. } = request else {
            return Ok(());
        };
        if let Err(error) = self.drain() {
            return Err(Refused { error, buffer: Some(buffer) });
        }
        self.bounced += 1;
        let source = &init_of(&buffer)[..bytes as usize];
        let written = if is_durable {
            self.volume.write_durably_at(source, offset)
        } else {
            self.volume.write_at(source, offset)
        };
        let result = written.map(|()| bytes as usize);
        self.completed.push_back(Completion { token, buffer: Some(buffer), result });
        Ok(())
    }

    /// Executes a read of the last block, after all requests of the batch.
    fn read_now(&mut self, buffer: B, offset: u64, bytes: u64, token: u64) -> Result<(), Refused<B>> {
        let block = u64::from(self.volume.facts().block_bytes);
        let start = offset / block * block;
        let wanted = (offset - start + bytes) as usize;
        let copied = self.drain().and_then(|()| {
            let no_memory = |source| self.volume.error(ErrorKind::NoMemory).because(Cause::Memory(source));
            let mut copy = AlignedBuf::new(wanted.next_multiple_of(block as usize)).map_err(no_memory)?;
            // Fails if the volume has become shorter since the check of the request.
            let read = self.volume.read_at(&mut copy[..wanted], start)?;
            Ok((copy, read))
        });
        let (copy, read) = match copied {
            Ok(copied) => copied,
            Err(error) => {
                return Err(Refused { error: error.of_range(Op::Read, offset, bytes), buffer: Some(buffer) });
            }
        };
        self.bounced += 1;
        let job = JobBuf::bounced_read(buffer, copy, (offset - start) as usize, bytes as usize);
        let (buffer, bytes, copy) = job.finish(true, read);
        self.spare.extend(copy);
        self.completed.push_back(Completion { token, buffer: Some(buffer), result: Ok(bytes) });
        Ok(())
    }

    /// Locks the blocks of a write against other batches, and against writes of parts of blocks by other threads.
    fn lock(&mut self, offset: u64, bytes: u64) -> Result<Option<Range<u64>>> {
        let range = self.volume.lock_range_of(offset, bytes);
        if let Ok(locked) = self.volume.try_lock_kept(range.clone()) {
            return Ok(locked);
        }
        // The batch itself may hold the lock until it reaps the write. And a batch that waits for another one must hold
        // no lock, since the other one may wait for this one.
        self.drain()?;
        Ok(self.volume.lock_kept(range))
    }

    /// Waits for all requests of the batch, and keeps their completions.
    fn drain(&mut self) -> Result<()> {
        self.inner.drain()?;
        while let Some(done) = self.inner.next_completed() {
            let done = self.finish(done);
            self.completed.extend(done);
        }
        Ok(())
    }

    /// The completion of a request; `None` if it was cancelled.
    fn finish(&mut self, done: Completion<JobBuf<B>>) -> Option<Completion<B>> {
        let Completion { token: key, buffer, result } = done;
        let Pending { token, op, is_cancelled, .. } = self.remove(key);
        let transferred = result.as_ref().copied().unwrap_or(0);
        let (buffer, bytes) = match buffer {
            Some(buffer) => {
                let (buffer, bytes, copy) = buffer.finish(op == Op::Read, transferred);
                self.spare.extend(copy);
                (Some(buffer), bytes)
            }
            None => (None, transferred),
        };
        (!is_cancelled).then(|| Completion { token, buffer, result: result.map(|_| bytes) })
    }

    /// Removes a request of the inner batch, and unlocks its blocks.
    fn remove(&mut self, key: u64) -> Pending {
        let mut pending = self.pending.remove(key as usize);
        self.volume.unlock_kept(pending.locked.take());
        pending
    }

    fn refused(&mut self, Refused { error, buffer }: Refused<JobBuf<B>>) -> Refused<B> {
        let buffer = buffer.map(|buffer| {
            let (buffer, _, copy) = buffer.finish(false, 0);
            self.spare.extend(copy);
            buffer
        });
        Refused { error, buffer }
    }
}

impl<T: Threading, B: IoBuf> Drop for BouncedBatch<T, B> {
    /// Waits for the requests in flight, and unlocks their blocks.
    fn drop(&mut self) {
        let _: Result<(), Error> = self.drain();
        for pending in self.pending.drain() {
            self.volume.unlock_kept(pending.locked);
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::batch::AnyThread;
    use crate::testing::{MemoryConfig, MemoryDisk};
    use crate::{IoMode, Options, Unaligned};

    #[test]
    fn a_read_of_the_last_block_has_its_own_length_when_the_volume_changes_its_own() {
        let disk =
            MemoryDisk::new(&MemoryConfig { block_bytes: 4096, ..MemoryConfig::of_bytes(12_388) }).unwrap();
        let options = Options::new().write(true).mode(IoMode::Raw).unaligned(Unaligned::Bounce);
        let volume = Volume::memory(&disk, &options).unwrap();
        volume.write_at(&[7; 100], 12_288).unwrap();
        let options = BatchOptions::new(2, 0);
        let mut batch = BouncedBatch::<AnyThread, Vec<u8>>::new(volume.clone(), &options, None).unwrap();
        let buffer = || Vec::with_capacity(90);
        // The resizes happen after the checks of the request.
        volume.resize(1 << 20).unwrap();
        batch.read_now(buffer(), 12_298, 90, 1).unwrap();
        assert_eq!(batch.next_completed().unwrap().buffer.unwrap(), [7; 90]);
        assert_eq!(batch.spare[0].len(), 4096, "only its own blocks are read");
        for size_bytes in [12_300, 4096, 0] {
            volume.resize(size_bytes).unwrap();
            let refused = batch.read_now(buffer(), 12_298, 90, 2).unwrap_err();
            assert!(matches!(refused.error.kind(), ErrorKind::PastEnd { .. }), "{refused}");
            assert!(refused.buffer.is_some() && batch.in_flight() == 0);
        }
    }
}
