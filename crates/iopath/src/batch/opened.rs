//! The path of the requests of a batch: direct, bounced or buffered. The rest of a batch does not depend on it.

use super::BatchOptions;
use super::bounced::BouncedBatch;
use super::buffered::BufferedBatch;
use super::direct::DirectBatch;
use super::io::BatchIo;
use super::threading::Threading;
use crate::error::OpenError;
use crate::storage::threading::{AnyThread, OneThread};
use crate::volume::Volume;
use iopath_os::{BufferPool, Engine, IoBuf};

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
        } else if volume.shape().batch_bounces() {
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
