//! The buffered path for threads: reads and writes of any bytes, through a page cache with readahead and write-back of
//! our own. Decides nothing: what is cached, read ahead, evicted and written back is `iopath_core::cache` and
//! `readahead`, state machines without memory, threads or time. This gives them all three.
//!
//! ```text
//!   read:   hot.visit(page), hot.try_pin(page) ──▶ copy or lend the frame's bytes  no lock, no system call
//!             │ not there
//!             ▼
//!           lock ─▶ cache.read, readahead.on_miss ─▶ poll_io ─▶ queue ─▶ device    one system call
//!             ▼
//!           wait (wait.rs) ─▶ collect ─▶ handle_completion ─▶ poll_ready           one system call
//! ```
//!
//! # Why this is sound
//!
//! Memory is shared between threads and the kernel by the rules of the page cache, which is safe code with a model
//! test: bytes of a frame change only while a writer holds it (`begin_write` to `end_write`) or the device reads into
//! it, and at those times nobody can pin it; a pinned frame stays what it is. So a pin is what a shared reference
//! needs, and holding a frame what a write needs. Frames live in an arena that outlives the device.

mod arena;
mod borrow;
mod control;
mod counter;
mod direct;
mod flusher;
mod inline_read;
mod read;
mod state;
mod wait;
mod write;

use std::fs::File;
use std::sync::{Arc, PoisonError};

use iopath_core::buffered::{BufferedPath, Geometry};
use iopath_core::cache::{CacheConfig, CacheStats, Hot};
use iopath_core::elevator::ElevatorSpec;
use iopath_core::readahead::{ReadaheadConfig, ReadaheadStats};
use iopath_core::{IoError, LogSink};

use crate::aligned::NoMemory;
use crate::device::{RealDevice, WaitError, Watch};
use crate::pool::BufferPool;
use crate::runner::Runner;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread::JoinHandle;
use crate::tail::Tail;
use arena::Arena;
use counter::Counter;
use state::{DeviceFrames, State};
use wait::Locked;

pub use borrow::Borrowed;
pub use direct::DirectGuard;
pub use iopath_core::buffered::Advice;

/// How to buffer.
#[derive(Debug)]
pub struct BufferedConfig {
    /// The page cache.
    pub cache: CacheConfig,
    /// Readahead; `None` for none.
    pub readahead: Option<ReadaheadConfig>,
    /// Where the volume ends.
    pub size_bytes: u64,
    /// Direct I/O goes in multiples of this many bytes, which divides a page.
    pub block_bytes: u32,
    /// For the bytes after the last whole block. Needed to write where there are such.
    pub tail: Option<Tail>,
    /// The device writes the block whole that the volume ends in, whatever comes to lie behind the end: no tail is
    /// needed.
    pub writes_last_block: bool,
    /// The file, open for direct I/O, if threads may read for themselves: one that misses a page that nothing else is
    /// read with then reads it by a call of its own, which is quicker than to hand it over and be woken.
    pub inline_reads: Option<Arc<File>>,
}

/// Why a buffered read, write or flush failed.
#[derive(Debug, thiserror::Error)]
pub enum BufferedError {
    /// The device could not do it.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The system does not let the device go on.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// There is no frame to be had.
    #[error("all {pages} pages of the cache are borrowed; drop borrowed pages, or make the cache larger")]
    AllBorrowed {
        /// How many there are.
        pages: u32,
    },
    /// There is no frame to be had, since write-back fails.
    #[error(
        "the cache is full and {pages} of its pages cannot be written: {source}; they stay until they can"
    )]
    Unwritable {
        /// How many of them failed.
        pages: u32,
        /// How the last of them failed.
        source: IoError,
    },
}

/// What the buffered path has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferedStats {
    /// Pages that reads found without the lock.
    pub hits: u64,
    /// What the page cache has done.
    pub cache: CacheStats,
    /// What readahead has done.
    pub readahead: ReadaheadStats,
    /// How far ahead it reads, in bytes, as found so far.
    pub readahead_bytes: u64,
}

/// A device with a page cache in front, for any number of threads.
///
/// Dropping it writes dirty pages back; what goes wrong then, nobody hears: [`Buffered::flush`] before.
#[derive(Debug)]
pub struct Buffered {
    shared: Arc<Shared>,
    flusher: Mutex<Option<JoinHandle<()>>>,
}

/// What threads share.
#[derive(Debug)]
struct Shared {
    hot: Arc<Hot>,
    arena: Arc<Arena>,
    inline_reads: Option<Arc<File>>,
    watch: Arc<dyn Watch>,
    page_bytes: usize,
    size_bytes: AtomicU64,
    /// How often the end has moved, and then moved back since the device kept its size.
    failed_resizes: AtomicU64,
    borrowed_hits: Counter,
    has_flusher: AtomicBool,
    state: Mutex<State>,
}

impl Buffered {
    /// A cache in front of the device that `open` makes. It is handed the cache's memory, for `io_uring` to register.
    ///
    /// # Panics
    /// If a page is not a multiple of a block, or the runner has jobs already, which would be taken for the cache's
    /// own: bugs of the caller.
    pub fn new<E: From<NoMemory>>(
        config: BufferedConfig,
        open: impl FnOnce(&BufferPool) -> Result<Runner<dyn RealDevice + Send>, E>,
    ) -> Result<Self, E> {
        let BufferedConfig {
            cache,
            readahead,
            size_bytes,
            block_bytes,
            tail,
            writes_last_block,
            inline_reads,
        } = config;
        let page_bytes = cache.page_bytes;
        let geometry = Geometry { page_bytes, block_bytes, size_bytes, writes_last_block };
        let arena = Arc::new(Arena::new(cache.frames, page_bytes)?);
        let frames = DeviceFrames::new(Arc::clone(&arena));
        let path = BufferedPath::new(cache, readahead, geometry, frames);
        let runner = open(arena.pool())?;
        let jobs = runner.in_flight();
        assert!(jobs == 0, "the runner already has {jobs} jobs in flight");
        let hot = Arc::clone(path.cache().hot());
        let state = State::new(runner, path, Arc::clone(&arena), tail);
        let shared = Shared {
            hot,
            arena,
            inline_reads,
            watch: state.watch(),
            page_bytes: page_bytes as usize,
            size_bytes: AtomicU64::new(size_bytes),
            failed_resizes: AtomicU64::new(0),
            borrowed_hits: Counter::default(),
            has_flusher: AtomicBool::new(false),
            state: Mutex::new(state),
        };
        Ok(Self { shared: Arc::new(shared), flusher: Mutex::new(None) })
    }

    /// Where the volume ends, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.shared.size()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.shared.page_bytes as u32
    }

    /// What it has done so far. Looks at every frame.
    pub fn stats(&self) -> BufferedStats {
        let state = self.shared.lock();
        BufferedStats {
            hits: self.shared.hot.visits() + self.shared.borrowed_hits.sum(),
            cache: state.path.cache().stats(),
            readahead: *state.path.readahead().stats(),
            readahead_bytes: state.path.readahead().distance_bytes(),
        }
    }

    /// Makes the elevator of the queue between cache and device what `spec` says: see [`Runner::follow`].
    pub fn follow(&self, spec: &ElevatorSpec) {
        self.shared.lock().follow(spec);
    }

    /// Tells `sink` of every step of every I/O between cache and device from now on.
    pub fn start_log(&self, sink: Box<dyn LogSink>) {
        self.shared.lock().start_log(sink);
    }
}

impl Shared {
    /// # Panics
    /// If a thread has panicked while it held the lock: what is in which frame is not known any more.
    fn lock(&self) -> Locked<'_> {
        Locked(self.state.lock().unwrap_or_else(|poisoned| {
            poisoned.into_inner().wake_all();
            panic!("a thread panicked in the page cache, whose state is unknown now")
        }))
    }

    fn size(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }
}

impl Drop for Buffered {
    fn drop(&mut self) {
        // Where a thread has panicked with the lock, the flusher finds out and ends.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).is_closing = true;
        let flusher = self.flusher.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(flusher) = flusher.take() {
            flusher.thread().unpark();
            // Fails only where the thread panicked, which has been reported on the spot.
            let _ = flusher.join();
        }
        if !self.shared.state.is_poisoned() {
            let _ = self.write_back();
        }
    }
}
