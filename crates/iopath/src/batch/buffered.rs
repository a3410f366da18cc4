//! A batch through the page cache: checks requests and translates completions and errors. The requests in flight:
//! `iopath_os::CacheQueue`.

use super::io::BatchIo;
use super::{BatchOptions, Completion, Refused, Request};
use crate::error::{Cause, Error, ErrorKind, OpenError, Result};
use crate::volume::Volume;
use iopath_core::{IoError, LogSink, Op, QueueStats};
use iopath_os::{
    BorrowedBytes, Buffered, BufferedError, CacheQueue, CacheRequest, Completed, IoBuf, Notifier,
    usable_bytes,
};
use std::io;
use std::time::Duration;

/// The requests of a batch through the page cache.
pub(super) struct BufferedBatch<B: IoBuf> {
    // Dropped before the volume, and with it the cache.
    requests: CacheQueue<B>,
    volume: Volume,
    gather: u32,
}

impl<B: IoBuf> BatchIo<B> for BufferedBatch<B> {
    fn queue(&mut self, mut request: Request<B>) -> Result<(), Refused<B>> {
        if let Err(error) = self.check(&mut request) {
            return Err(Refused { error, buffer: request.buffer });
        }
        let Request { op, buffer, offset, bytes, token, is_durable, .. } = request;
        let unit_bytes = self.volume.unit_bytes();
        let request = CacheRequest { op, offset, bytes, buffer, is_durable, unit_bytes, token };
        self.requests.queue(request).map_err(|CacheRequest { buffer, .. }| {
            let depth = self.requests.in_flight();
            Refused { error: self.volume.error(ErrorKind::BatchFull { depth }), buffer }
        })
    }

    fn borrow(&self, offset: u64, bytes: usize) -> Option<BorrowedBytes> {
        self.requests.borrow(offset, bytes)
    }

    fn cancel(&mut self, token: u64) -> bool {
        self.requests.cancel(token)
    }

    fn submit(&mut self) {
        self.requests.submit();
    }

    fn wait(&mut self) -> Result<Option<Completion<B>>> {
        if let Some(done) = self.next_completed() {
            return Ok(Some(done));
        }
        let waited = self.requests.wait(self.gather);
        waited.map_err(|source| self.volume.error(ErrorKind::Wait).because(Cause::Wait(source)))?;
        Ok(self.next_completed())
    }

    fn poll(&mut self) -> Option<Completion<B>> {
        self.next_completed().or_else(|| {
            self.requests.poll();
            self.next_completed()
        })
    }

    fn next_completed(&mut self) -> Option<Completion<B>> {
        let Completed { token, op, offset, bytes, buffer, result } = self.requests.next_completed()?;
        let result = result.map_err(|error| match error {
            BufferedError::Io(IoError::Unsupported) => {
                self.volume.error(ErrorKind::Unsupported).of_range(op, offset, bytes)
            }
            error => self.volume.uncached(op, offset, bytes, error),
        });
        Some(Completion { token, buffer, result })
    }

    fn start_log(&mut self, sink: Box<dyn LogSink>) {
        if let Some(cache) = self.volume.cache_if_any() {
            cache.start_log(sink);
        }
    }

    fn in_flight(&self) -> u32 {
        self.requests.in_flight()
    }

    fn engine(&self) -> &'static str {
        self.volume.facts().engine
    }

    fn stats(&self) -> QueueStats {
        self.volume.cache_if_any().map(Buffered::queue_stats).unwrap_or_default()
    }

    fn syscalls(&self) -> u64 {
        self.volume.cache_if_any().map_or(0, Buffered::syscalls)
    }

    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()> {
        self.requests.set_notifier(notifier)
    }

    fn next_timeout(&self) -> Option<Duration> {
        self.requests.next_timeout()
    }

    fn is_buffered(&self) -> bool {
        true
    }
}

impl<B: IoBuf> BufferedBatch<B> {
    pub(super) fn new(volume: Volume, options: &BatchOptions) -> Result<Self, OpenError> {
        let Some(cache) = volume.cache_or_open()? else {
            return Err(OpenError::NotBuffered(volume.facts().path.clone()));
        };
        let requests = cache.request_queue(options.io_depth, options.plug);
        Ok(Self { requests, volume, gather: options.gather })
    }

    fn check(&self, request: &mut Request<B>) -> Result<(), Error> {
        let Request { op, offset, bytes, ref mut buffer, .. } = *request;
        let buffer_bytes = buffer.as_mut().map_or(0, |buffer| usable_bytes(buffer, op)) as u64;
        if op.has_memory() && bytes > buffer_bytes {
            let error = self.volume.error(ErrorKind::BufferTooSmall { buffer_bytes });
            return Err(error.of_range(op, offset, bytes));
        }
        match op {
            Op::Read => Ok(()),
            Op::Flush => self.volume.check_writable(op, 0, 0),
            Op::Write | Op::Discard | Op::WriteZeroes => {
                self.volume.check_writable(op, offset, bytes)?;
                self.volume.check_within(op, offset, bytes)
            }
        }
    }
}
