//! The path of the requests of a batch: direct, bounced or buffered. The rest of a batch does not depend on it.

use super::bounced::BouncedBatch;
use super::buffered::BufferedBatch;
use super::direct::DirectBatch;
use super::{BatchOptions, Completion, Refused, Request};
use crate::error::{OpenError, Result};
use crate::source::threading::{AnyThread, OneThread, Threading};
use crate::volume::Volume;
use iopath_core::{LogSink, QueueStats};
use iopath_os::{BorrowedBytes, BufferPool, Engine, IoBuf, Notifier};
use std::io;
use std::time::Duration;

/// The methods of [`Batch`](super::Batch) that depend on the path. Objects, so that only this crate compiles the code of
/// batches of its own buffers; a generic type would be compiled again in each crate that has batches.
pub trait BatchIo<B: IoBuf> {
    fn queue(&mut self, request: Request<B>) -> Result<(), Refused<B>>;
    fn submit(&mut self);
    fn wait(&mut self) -> Result<Option<Completion<B>>>;
    fn poll(&mut self) -> Option<Completion<B>>;
    fn next_completed(&mut self) -> Option<Completion<B>>;
    fn cancel(&mut self, token: u64) -> bool;
    fn borrow(&self, _offset: u64, _bytes: usize) -> Option<BorrowedBytes> {
        None
    }
    fn start_log(&mut self, sink: Box<dyn LogSink>);
    fn in_flight(&self) -> u32;
    fn engine(&self) -> &'static str;
    fn stats(&self) -> QueueStats;
    fn syscalls(&self) -> u64;
    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()>;
    fn next_timeout(&self) -> Option<Duration>;
    fn is_buffered(&self) -> bool {
        false
    }
    fn bounced(&self) -> u64 {
        0
    }
}

/// The path of a batch with these options.
pub(super) enum Opened<T: Threading, B: IoBuf> {
    Direct(DirectBatch<T, B>),
    Bounced(BouncedBatch<T, B>),
    Buffered(BufferedBatch<B>),
}

/// Boxes a path; a macro, because `Send` is a part of the type of an object.
macro_rules! boxed {
    ($opened:expr) => {
        match $opened {
            Opened::Direct(io) => Box::new(io),
            Opened::Bounced(io) => Box::new(io),
            Opened::Buffered(io) => Box::new(io),
        }
    };
}

impl<T: Threading, B: IoBuf> Opened<T, B> {
    pub(super) fn new(
        volume: &Volume,
        options: &BatchOptions,
        pool: Option<&BufferPool>,
    ) -> Result<Self, OpenError> {
        if B::IS_SHARED {
            return Self::of_shared_memory(volume, options, pool);
        }
        Ok(if options.buffered.unwrap_or_else(|| volume.is_buffered()) {
            Self::Buffered(BufferedBatch::new(volume.clone(), options)?)
        } else if volume.bounces() {
            Self::Bounced(BouncedBatch::new(volume.clone(), options, pool)?)
        } else {
            Self::Direct(DirectBatch::new(volume.clone(), options, pool)?)
        })
    }

    /// A batch of memory that other processes may change: only the kernel may access it, so no page cache and no bounce
    /// buffer is in between.
    fn of_shared_memory(
        volume: &Volume,
        options: &BatchOptions,
        pool: Option<&BufferPool>,
    ) -> Result<Self, OpenError> {
        let refused = || OpenError::SharedMemory(volume.facts().path.clone());
        if options.buffered.unwrap_or(false) || volume.has_cache() {
            return Err(refused());
        }
        let io = DirectBatch::new(volume.clone(), options, pool)?;
        if ![Engine::Uring, Engine::Threads].map(Engine::name).contains(&io.engine()) {
            return Err(refused());
        }
        Ok(Self::Direct(io))
    }
}

impl<B: IoBuf> Opened<OneThread, B> {
    pub(super) fn for_one_thread(self) -> Box<dyn BatchIo<B>> {
        boxed!(self)
    }
}

impl<B: IoBuf + Send> Opened<AnyThread, B> {
    pub(super) fn for_any_thread(self) -> Box<dyn BatchIo<B> + Send> {
        boxed!(self)
    }
}
