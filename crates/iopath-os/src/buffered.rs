//! The buffered path for threads: reads and writes of any bytes, through a page cache with readahead and write-back.
//! All decisions are those of the state machine `iopath_core::buffered`. This module supplies memory, threads, time and
//! the device.
//!
//! ```text
//!   read:   hot.visit(page), hot.try_pin(page) ──▶ copy or borrow the frame's bytes  no lock, no system call
//!             │ absent
//!             ▼
//!           lock ─▶ path.read ─▶ poll_step ─▶ queue ─▶ device                        one system call
//!             ▼
//!           wait (wait.rs) ─▶ reap ─▶ handle_completion ─▶ poll_ready                one system call
//! ```
//!
//! # Why this is sound
//!
//! Threads and the kernel share memory by the rules of the page cache, which is safe code with a model test. The bytes
//! of a frame change only while a writer holds the frame (`take_pages` to `release_pages`) or the device reads into it.
//! At those times no thread can pin the frame. A pinned frame does not change. So a pin permits a shared reference, and
//! a held frame permits a write. Frames live in an arena that outlives the device.

mod append;
mod arena;
mod borrow;
mod budget;
mod control;
mod counter;
mod demand;
mod direct;
mod flusher;
mod inline;
mod kept;
mod notify;
mod poller;
mod read;
mod report;
mod requests;
mod shared_flusher;
mod state;
mod wait;
mod waiter;
mod write;

use std::fmt;
use std::fs::File;
use std::sync::{Arc, OnceLock, PoisonError};

use iopath_core::buffered::{BufferedPath, Geometry, VolumeEnd};
use iopath_core::cache::{CacheConfig, CacheStats, Hot};
use iopath_core::elevator::ElevatorSpec;
use iopath_core::readahead::{ReadaheadConfig, ReadaheadStats};
use iopath_core::{IoError, LogSink, QueueStats};

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
use kept::MadeFor;
use report::Reporter;
use shared_flusher::Background;
use state::{DeviceFrames, State};
use wait::Locked;

pub use borrow::PageGuard;
pub use budget::{CacheBudget, CacheUsage};
pub use demand::Demand;
pub use direct::DirectGuard;
pub use iopath_core::buffered::Advice;
pub use kept::KeptPages;
pub use report::WriteBackError;
pub use requests::{BorrowedBytes, CacheQueue, CacheRequest, Completed};
pub use shared_flusher::SharedFlusher;

/// The configuration of a buffered volume.
pub struct BufferedConfig {
    /// The page cache.
    pub cache: CacheConfig,
    /// Readahead; `None` for none.
    pub readahead: Option<ReadaheadConfig>,
    /// The size of the volume.
    pub size_bytes: u64,
    /// Offsets and lengths of direct I/O are multiples of this many bytes. Divides a page.
    pub block_bytes: u32,
    /// The target of writes of the bytes after the last whole block. Required for writes if there are such bytes.
    pub tail: Option<Box<dyn Tail>>,
    /// The device writes the last block whole, including the bytes past the end of the volume. Then no tail is needed.
    pub writes_last_block: bool,
    /// The file or block device, open for direct I/O, if threads may use it past the queue while the queue would have
    /// no effect. A thread that misses a page without readahead then reads the page by a system call of its own, and
    /// one that flushes alone flushes the file. That is faster than queueing the I/O and being woken. Appends go to
    /// `tail` then ([`Buffered::append`]).
    pub plain_file: Option<Arc<File>>,
    /// The budget of frames changes while the cache is in use ([`CacheBudget`]). This is told when the cache evicts
    /// pages for lack of frames. No ring registers the memory of the cache then, because parts of it are released.
    pub demand: Option<Arc<dyn Demand>>,
}

impl fmt::Debug for BufferedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferedConfig")
            .field("cache", &self.cache)
            .field("readahead", &self.readahead)
            .field("size_bytes", &self.size_bytes)
            .field("block_bytes", &self.block_bytes)
            .finish_non_exhaustive()
    }
}

impl BufferedConfig {
    /// A volume of `size_bytes` bytes in blocks of 512 bytes, with the default page cache, without readahead, and
    /// without the other parts.
    pub fn of_bytes(size_bytes: u64) -> Self {
        Self {
            cache: CacheConfig::default(),
            readahead: None,
            size_bytes,
            block_bytes: 512,
            tail: None,
            writes_last_block: false,
            plain_file: None,
            demand: None,
        }
    }

    const fn geometry(&self) -> Geometry {
        let Self { size_bytes, block_bytes, writes_last_block, cache, .. } = self;
        Geometry {
            page_bytes: cache.page_bytes,
            block_bytes: *block_bytes,
            size_bytes: *size_bytes,
            writes_last_block: *writes_last_block,
        }
    }
}

/// An error of a buffered read, write or flush.
#[derive(Debug, thiserror::Error)]
pub enum BufferedError {
    /// The device has failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The system refuses further I/O of the device.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// No frame is free.
    #[error("all {pages} pages of the cache are borrowed; drop borrowed pages, or make the cache larger")]
    AllBorrowed {
        /// The number of frames.
        pages: u32,
    },
    /// No frame is free, or no further page may become dirty, since write-back fails.
    #[error(
        "the cache is full and {pages} of its pages cannot be written: {source}; they stay in the cache until a write succeeds"
    )]
    Unwritable {
        /// The number of pages whose write-back failed.
        pages: u32,
        /// The last error.
        source: IoError,
    },
}

/// Statistics of the buffered path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BufferedStats {
    /// Pages that reads found without the lock.
    pub hits: u64,
    /// The page cache.
    pub cache: CacheStats,
    /// Readahead.
    pub readahead: ReadaheadStats,
    /// The distance of readahead in bytes, as measured so far.
    pub readahead_bytes: u64,
}

/// A device with a page cache in front, for any number of threads.
///
/// Dropping it writes dirty pages back and ignores errors: call [`Buffered::flush`] before, or [`Buffered::abandon`].
pub struct Buffered {
    shared: Arc<CacheShared>,
}

impl fmt::Debug for Buffered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffered")
            .field("size_bytes", &self.size_bytes())
            .field("page_bytes", &self.page_bytes())
            .field("frames", &self.shared.arena.frames())
            .finish_non_exhaustive()
    }
}

/// The state that threads share.
#[derive(Debug)]
struct CacheShared {
    hot: Arc<Hot>,
    arena: Arc<Arena>,
    plain_file: Option<Arc<File>>,
    watch: Arc<dyn Watch>,
    page_bytes: usize,
    size_bytes: AtomicU64,
    /// As [`VolumeEnd::failed_resizes`](iopath_core::buffered::VolumeEnd::failed_resizes).
    failed_resizes: AtomicU64,
    borrowed_hits: Counter,
    made_for: MadeFor,
    /// Whether a flusher runs or will visit the cache.
    has_flusher: Arc<AtomicBool>,
    flusher: Mutex<Option<JoinHandle<()>>>,
    /// The flusher that it shares with other caches. Then it has none of its own.
    background: Option<Background>,
    reporter: OnceLock<Reporter>,
    state: Mutex<State>,
}

impl Buffered {
    /// A cache in front of the device that `open` returns. `open` receives the cache's memory, so that `io_uring` can
    /// register it.
    ///
    /// # Errors
    /// There is no memory for the cache, or `open` fails.
    ///
    /// # Panics
    /// If a page is not a multiple of a block, or the runner has jobs in flight, whose completions the cache would
    /// process as its own. Both are bugs of the caller.
    pub fn new<E: From<NoMemory>>(
        config: BufferedConfig,
        open: impl FnOnce(&BufferPool) -> Result<Runner<dyn RealDevice + Send>, E>,
    ) -> Result<Self, E> {
        Self::with_pages(config, None, open)
    }

    /// Does the same as [`Buffered::new`], with the pages that an earlier cache in front of the same device left. The
    /// device must not have changed since. Counts of [`Buffered::stats`] continue.
    ///
    /// # Errors
    /// Returns the errors of [`Buffered::new`]. The pages are dropped.
    ///
    /// # Panics
    /// Panics like [`Buffered::new`], and if the pages do not fit ([`KeptPages::fits`]).
    pub fn with_pages<E: From<NoMemory>>(
        config: BufferedConfig,
        kept: Option<KeptPages>,
        open: impl FnOnce(&BufferPool) -> Result<Runner<dyn RealDevice + Send>, E>,
    ) -> Result<Self, E> {
        let made_for = MadeFor::of(&config);
        let geometry = config.geometry();
        let (path, arena) = if let Some(kept) = kept {
            assert!(kept.fits(&config), "the pages were kept for another cache");
            kept.into_parts()
        } else {
            let CacheConfig { frames, page_bytes, .. } = config.cache;
            let arena = Arc::new(Arena::new(frames, page_bytes, config.demand.is_some())?);
            let frames = DeviceFrames::new(Arc::clone(&arena));
            (BufferedPath::new(config.cache, config.readahead, geometry, frames), arena)
        };
        let runner = open(arena.pool())?;
        let jobs = runner.in_flight();
        assert!(jobs == 0, "the runner already has {jobs} jobs in flight");
        let hot = Arc::clone(path.cache().hot());
        let failed_resizes = path.failed_resizes();
        let background = config.demand.as_ref().map(|demand| Background::new(demand.flusher()));
        let mut state = State::new(runner, path, Arc::clone(&arena), config.tail, config.demand);
        // A file may have grown since its limits were found.
        state.set_device_end();
        let shared = CacheShared {
            hot,
            arena,
            plain_file: config.plain_file,
            watch: state.watch(),
            page_bytes: geometry.page_bytes as usize,
            size_bytes: AtomicU64::new(geometry.size_bytes),
            failed_resizes: AtomicU64::new(failed_resizes),
            borrowed_hits: Counter::default(),
            made_for,
            has_flusher: Arc::clone(&state.has_flusher),
            flusher: Mutex::new(None),
            background,
            reporter: OnceLock::new(),
            state: Mutex::new(state),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Drops the cache without writing dirty pages back. Write-back that has begun ends.
    pub fn abandon(self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).is_abandoned = true;
    }

    /// The size of the volume in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.shared.size()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.shared.page_bytes as u32
    }

    /// The statistics so far. O(frames).
    pub fn stats(&self) -> BufferedStats {
        let state = self.shared.lock();
        BufferedStats {
            hits: self.shared.hot.visits() + self.shared.borrowed_hits.sum(),
            cache: state.path.cache().stats(),
            readahead: *state.path.readahead().stats(),
            readahead_bytes: state.path.readahead().distance_bytes(),
        }
    }

    /// Whether every write that has ended is on the medium, and none is in progress.
    pub fn is_flushed(&self) -> bool {
        self.shared.lock().path.cache().is_flushed()
    }

    /// The counters of the queue between cache and device.
    pub fn queue_stats(&self) -> QueueStats {
        self.shared.lock().queue_stats()
    }

    /// System calls that the device has made for I/O so far.
    pub fn syscalls(&self) -> u64 {
        self.shared.lock().syscalls()
    }

    /// Sets the elevator of the queue between cache and device: see [`Runner::follow`].
    pub fn follow(&self, spec: &ElevatorSpec) {
        self.shared.lock().follow(spec);
    }

    /// From now on, records every step of every I/O between cache and device in `sink`.
    pub fn start_log(&self, sink: Box<dyn LogSink>) {
        self.shared.lock().start_log(sink);
    }
}

impl CacheShared {
    /// # Panics
    /// If a thread has panicked while it held the lock: the state of the frames is unknown.
    fn lock(&self) -> Locked<'_> {
        Locked(self.state.lock().unwrap_or_else(|poisoned| {
            poisoned.into_inner().wake_all();
            panic!("a thread panicked in the page cache, whose state is unknown now")
        }))
    }

    /// `None` if a thread has panicked while it held the lock.
    fn lock_if_sound(&self) -> Option<Locked<'_>> {
        self.state.lock().ok().map(Locked)
    }

    fn size(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }
}

impl Drop for Buffered {
    fn drop(&mut self) {
        // If a thread has panicked with the lock, the flusher panics as well and ends.
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_closing = true;
        let is_abandoned = state.is_abandoned;
        drop(state);
        self.shared.stop_poller();
        self.shared.background.iter().for_each(Background::stop);
        let flusher = self.shared.flusher.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(flusher) = flusher {
            flusher.thread().unpark();
            // Fails only if the thread has panicked; the panic was reported at that time.
            let _ = flusher.join();
        }
        if !self.shared.state.is_poisoned() && !is_abandoned {
            let _ = self.write_back();
            self.shared.report_failures();
        }
    }
}
