//! The volume: blocking reads and writes of byte ranges, from any thread. Selects the path of an I/O; each path has a
//! file in `volume/`. `batch.rs` keeps many I/Os in flight from one thread.

mod bounced;
mod buffered;
mod check;
mod cursor;
mod direct;
mod directory;
mod elevator;
mod extend;
mod lazy_cache;
mod lock;
mod new_file;
#[cfg(any(feature = "mapped", feature = "stripe"))]
mod open;
mod range;
mod resize;
mod route;
mod stats;
mod vectored;

use crate::bounce::Bounce;
use crate::caches::CachedWriter;
use crate::context::{Context, Writer};
use crate::error::{Cause, Error, ErrorKind, OpenError, Result};
use crate::facts::Facts;
use crate::known_engines::KnownEngine;
use crate::observe::OpenEvent;
use crate::options::{Options, Unaligned};
use crate::queues::{Opened, Tuning};
use crate::shards::Shards;
#[cfg(feature = "testing")]
use crate::source::MemorySource;
#[cfg(feature = "remote")]
use crate::source::RemoteSource;
use crate::source::{FileSource, Source};
use crate::storage::Storage;
use crate::storage::cache::{self, LazyCache, OpenedCache};
use crate::storage::new_file::NewFile;
use iopath_core::debug;
use iopath_core::volume::{CacheUse, VolumeShape};
use iopath_core::{IoError, Op};
use iopath_os::Buffered;
#[cfg(feature = "testing")]
use iopath_os::MemoryDisk;
#[cfg(feature = "remote")]
use iopath_os::Remote;
use iopath_os::sync::{Mutex, MutexGuard};
use iopath_os::target::{self, FileLock};
use route::Routed;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, TryLockError};

pub use bounced::RangeLock;
pub use buffered::PageGuard;
pub use cursor::Cursor;
pub use direct::Direct;
pub use range::RangeSupport;
pub use stats::VolumeQueueStats;

/// The end of a volume, and how often it has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    resizes: u64,
    size_bytes: u64,
}

/// A file, block device, remote export, stripe, mapped file or disk in memory, open for direct, raw or buffered I/O.
///
/// Every method takes `&self`, and any thread may call it. For direct and raw I/O with elevator `none`, each thread has
/// its own queue and engine, so threads do not wait for each other. With another elevator, threads share both. A call
/// returns when its I/O is complete, so the I/Os of one thread are in order. The program must order I/Os of different
/// threads.
///
/// Direct and raw I/O must be aligned, unless [`Options::unaligned`] allows otherwise: offsets and lengths are
/// multiples of [`Facts::block_bytes`], and buffers start at multiples of [`Facts::memory_align_bytes`], like an
/// [`AlignedBuf`](crate::AlignedBuf). Otherwise the I/O is refused, with an error that has the numbers.
///
/// A clone is a cheap handle of the same volume, for other threads.
#[derive(Clone)]
pub struct Volume {
    shared: Arc<VolumeShared>,
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("path", &debug::Text(&self.shared.facts.path))
            .field("size_bytes", &self.size_bytes())
            .field("engine", &self.shared.facts.engine)
            .field("cache", &self.cache_if_any())
            .finish_non_exhaustive()
    }
}

/// A volume that could not be closed: [`Volume::try_close`].
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct NotClosed {
    /// The volume, still open.
    pub volume: Volume,
    /// The error of the flush.
    #[source]
    pub error: Error,
}

#[derive(Debug)]
struct VolumeShared {
    storage: Storage,
    facts: Facts,
    shape: VolumeShape,
    shards: Shards,
    /// `None` without a page cache.
    cache: Option<LazyCache>,
    bounce: Option<Bounce>,
    /// The current size; `facts` has the size at open.
    size_bytes: AtomicU64,
    /// Counts the moves of the end.
    resizes: AtomicU64,
    /// Locked by the thread that moves the end.
    resizing: Mutex<()>,
    /// The length of the file, if it was extended beyond the size for cheap appends (see `volume/extend.rs`). Otherwise
    /// at most the size. Changes only under the lock `resizing`.
    file_bytes: AtomicU64,
    /// Bytes that were written since the last flush by writes that have extended the volume, and by all of a new file.
    appended: AtomicU64,
    /// Dropped after the page cache, whose pages are kept if the volume alone could write.
    _writer: Option<Writer>,
    /// Dropped after the page cache, which writes to the file when it is dropped.
    _cached: Option<CachedWriter>,
    /// Dropped after these, for the same reason.
    locks: Mutex<Vec<FileLock>>,
    _open: OpenEvent,
}

impl Volume {
    /// Opens a file or block device.
    ///
    /// If the process has opened a volume with the same [`Options::engine`] and depth on the device before, a volume
    /// with a page cache opens its cache at the first I/O, and its engine at the first I/O that needs one: a read of a
    /// few pages does not. An error is then that of the I/O ([`ErrorKind::Cache`]). [`Volume::warm`] opens the cache.
    /// With [`Engine::Uring`](crate::Engine::Uring) and without a context, both open with the volume. An empty file
    /// with [`Options::extend`] does without a cache while one thread only appends to it, overwrites and flushes.
    ///
    /// The facts of a filesystem and its disk ([`Facts::target`]) are up to five seconds old.
    ///
    /// # Errors
    /// [`OpenError`] if the target is missing, in use, or does not support the options.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self, OpenError> {
        Self::of(Storage::open(path.as_ref(), options)?)
    }

    /// A volume on a file or block device that the program has opened, for reading, or for reading and writing with
    /// [`Options::write`]. Its locks remain, and other descriptors of the same open file description do direct I/O from
    /// now on, too. The file may have no path any more, like a temporary file. The options of creation have no effect.
    /// A block device is neither claimed nor checked, as without [`Options::claim`].
    ///
    /// # Errors
    /// Returns the errors of [`Volume::open`]; [`OpenError::System`] if the file was not opened for the I/O of the
    /// options. Needs `/proc`.
    pub fn from_file(file: File, options: &Options) -> Result<Self, OpenError> {
        let source = FileSource::from_file(file, options)?;
        Self::of_locked(Storage::of(Arc::new(source), options)?, Vec::new())
    }

    /// Opens a disk in memory, for tests of programs that use a volume. Such tests can inject faults
    /// ([`Options::faults`]) and power failures. Any number of volumes can be open on one disk.
    ///
    /// # Errors
    /// [`OpenError`] if an option is out of range, or the system has no memory for the cache.
    ///
    /// ```
    /// use iopath::{Options, Volume};
    /// use iopath::testing::{MemoryConfig, MemoryDisk};
    ///
    /// let disk = MemoryDisk::new(&MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(1 << 24) })?;
    /// let volume = Volume::memory(&disk, &Options::new().write(true))?;
    /// volume.write_at(&[1; 4096], 0)?;
    /// volume.flush()?;
    /// volume.write_at(&[2; 4096], 0)?;
    ///
    /// // Power failure: each sector loses its last version that was not flushed.
    /// disk.crash(|versions| versions - 1);
    /// assert!(volume.flush().is_err(), "volumes opened before the failure are unusable");
    /// let volume = Volume::memory(&disk, &Options::new())?;
    /// let mut bytes = [0; 4096];
    /// volume.read_exact_at(&mut bytes, 0)?;
    /// assert_eq!(bytes, [1; 4096]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "testing")]
    pub fn memory(disk: &MemoryDisk, options: &Options) -> Result<Self, OpenError> {
        Self::of(Storage::of(Arc::new(MemorySource::new(disk, options)), options)?)
    }

    /// Opens an export of a server. [`Facts::path`] is its URI. All threads, batches and the page cache of the volume
    /// share its connections. The crate `iopath-nbd` opens exports by NBD URI.
    ///
    /// A read or write that a lost connection interrupts is sent again over a new one. When that fails, too, the error
    /// is [`IoError::Disconnected`], with the server and the reason.
    ///
    /// # Errors
    /// [`OpenError::ReadOnlyExport`], or an option is out of range.
    #[cfg(feature = "remote")]
    pub fn remote(remote: &Remote, options: &Options) -> Result<Self, OpenError> {
        Self::of(Storage::of(Arc::new(RemoteSource::new(remote, options)?), options)?)
    }

    /// A volume on storage of the program: see [the module](crate::source).
    ///
    /// # Errors
    /// [`OpenError::Limits`], an option is out of range, or an error of the source.
    pub fn of_source(source: impl Source + 'static, options: &Options) -> Result<Self, OpenError> {
        let storage = Storage::of(Arc::new(source), options)?;
        if options.lock {
            for file in storage.source.files() {
                target::lock(&storage.target, &file, options.write)?;
            }
        }
        Self::of(storage)
    }

    fn of(storage: Storage) -> Result<Self, OpenError> {
        let locks = storage.locks();
        Self::of_locked(storage, locks)
    }

    fn of_locked(storage: Storage, locks: Vec<FileLock>) -> Result<Self, OpenError> {
        let target = Arc::clone(&storage.target);
        if storage.options.is_cached() {
            cache::check(&storage)?;
        }
        // Before the cache looks at the file.
        let cached = storage.cached_writer()?;
        let writer = storage.writer();
        let (first, cache, engine, fallback) =
            if let Some(KnownEngine { engine, fallback }) = storage.known_engine() {
                let new_file = NewFile::of(&storage)?;
                (None, Some(LazyCache::later(new_file)), engine, fallback)
            } else if storage.options.is_cached() {
                let OpenedCache { cache, engine, fallback } = cache::open(&storage, target.size_bytes, None)?;
                storage.record_engine(engine, fallback.as_ref());
                (None, Some(LazyCache::of(cache)), engine, fallback)
            } else {
                let Opened { queue, engine, fallback } = storage.thread_queue()?;
                (Some(queue), None, engine, fallback)
            };
        let facts = Facts {
            path: target.path.clone(),
            size_bytes: target.size_bytes,
            block_bytes: storage.limits.logical_block_bytes,
            memory_align_bytes: storage.limits.memory_align_bytes,
            request_bytes_max: storage.limits.request_bytes_max,
            engine,
            fallback,
            target,
        };
        let bounce = match storage.options.unaligned {
            Unaligned::Bounce => Some(Bounce::new(storage.tail()?)),
            Unaligned::Refuse | Unaligned::Buffered => None,
        };
        let shape = route::shape_of(&storage, &facts);
        let open = OpenEvent::new(&facts);
        let shards = Shards::new(first);
        let size_bytes = AtomicU64::new(facts.size_bytes);
        let resizes = AtomicU64::new(0);
        let resizing = Mutex::new(());
        let file_bytes = AtomicU64::new(0);
        let shared = VolumeShared {
            storage,
            facts,
            shape,
            shards,
            cache,
            bounce,
            size_bytes,
            resizes,
            resizing,
            file_bytes,
            appended: AtomicU64::new(0),
            _writer: writer,
            _cached: cached,
            locks: Mutex::new(locks),
            _open: open,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The facts found when the volume was opened.
    pub fn facts(&self) -> &Facts {
        let later = self.shared.cache.as_ref().and_then(LazyCache::facts);
        later.unwrap_or(&self.shared.facts)
    }

    /// The size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.shared.size_bytes.load(Ordering::Acquire)
    }

    /// Reads into `buffer`, starting at byte `offset`. Returns the number of bytes read: the length of `buffer`, or
    /// fewer at the end of the volume. A raw volume reads the whole range or fails.
    ///
    /// # Errors
    /// [`Error`] if the range is unaligned on a volume that refuses unaligned I/O, if it reaches past the end of a raw
    /// volume, or if the device fails.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        // The end is known without the cache: SQLite looks past the end of each new journal.
        if self.unopened_cache().is_some() && self.is_buffered() && offset >= self.size_bytes() {
            return Ok(0);
        }
        let read = match self.route(offset, buffer)? {
            Routed::Direct => self.read_direct(buffer, offset),
            Routed::Cached(cache) => self.read_cached(cache, buffer, offset),
            Routed::Bounced(bounce) => self.read_bounced(bounce, buffer, offset),
        };
        debug_assert!(read.as_ref().is_ok_and(|bytes| *bytes <= buffer.len()) || read.is_err());
        read
    }

    /// Reads as [`Volume::read_at`] does, and fills the whole `buffer`.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::read_at`], and [`ErrorKind::UnexpectedEnd`] if the volume ends before the end of
    /// the range.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let bytes = buffer.len();
        if self.read_at(buffer, offset)? == bytes {
            return Ok(());
        }
        let end = ErrorKind::UnexpectedEnd { size_bytes: self.size_bytes() };
        Err(self.error(end).of_range(Op::Read, offset, bytes as u64))
    }

    /// Writes the whole `buffer`, starting at byte `offset`: unlike `write_at` of `FileExt`, never a part of it. On
    /// return the bytes are in the device; on a buffered volume they are in the page cache, which writes them back
    /// later. After the next [`Volume::flush`] they are durable.
    ///
    /// # Errors
    /// [`Error`] if the volume is read-only, if the range is unaligned on a volume that refuses unaligned I/O, if it
    /// reaches past the end (without [`Options::extend`]), or if the device fails. After an error of the device, a part
    /// of the range may be written.
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.write(buffer, offset, false)
    }

    /// Writes as [`Volume::write_at`] does; on return the bytes are durable. A direct volume uses forced unit access; a
    /// volume with a page cache or a bounce buffer writes and flushes.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::write_at`] and [`Volume::flush`].
    pub fn write_durably_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.write(buffer, offset, true)
    }

    /// Makes all writes durable that returned before this call.
    ///
    /// # Errors
    /// [`Error`] if the volume is read-only, or if a write or the flush fails at the device. The data of a failed write
    /// stays in the cache, and every flush fails until the data is written: see [`Volume::accept_loss`]. A new file
    /// that does without a cache ([`Volume::open`]) loses the data, so that every flush fails until that call.
    pub fn flush(&self) -> Result<()> {
        self.check_writable(Op::Flush, 0, 0)?;
        if let Some(flushed) = self.flush_new_file(0, 0) {
            return flushed;
        }
        match self.cache_for_io()? {
            Some(cache) => self.flush_cached(cache),
            None => self.flush_device(),
        }
    }

    /// Flushes, and drops this handle; other clones of the volume stay open. A volume with a page cache that has
    /// written nothing since its last flush is not flushed. Dropping a volume without this call writes back dirty
    /// pages, does not flush the device, and ignores errors.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::flush`].
    pub fn close(self) -> Result<()> {
        self.flush_to_close()
    }

    /// Does the same as [`Volume::close`], and returns the volume if the flush fails: the program can try again, handle
    /// the loss ([`Volume::accept_loss`]), or give up the data ([`Volume::abandon`]).
    ///
    /// # Errors
    /// [`NotClosed`], with the volume and the error of [`Volume::flush`].
    pub fn try_close(self) -> Result<(), NotClosed> {
        match self.flush_to_close() {
            Ok(()) => Ok(()),
            Err(error) => Err(NotClosed { volume: self, error }),
        }
    }

    fn flush_to_close(&self) -> Result<()> {
        // A cache that is not open has seen no write. A change of the length is no write.
        let of_cache = || self.has_cache() && self.cache_if_any().is_none_or(Buffered::is_flushed);
        let is_flushed = self.of_new_file(|file| file.is_flushed()).unwrap_or_else(of_cache);
        let has_its_length = !self.creates() && self.resizes() == 0;
        if self.is_writable() && !(is_flushed && has_its_length) { self.flush() } else { Ok(()) }
    }

    /// Whether opening the volume may have created or extended a file.
    fn creates(&self) -> bool {
        self.storage().options.create_bytes.is_some()
    }

    /// Drops the volume without writing dirty pages back: bytes that were not flushed may be lost, and those of a
    /// failed commit do not reappear later. Pages that the cache has already written back are not undone.
    ///
    /// # Errors
    /// The volume, if other handles are open: clones, batches, cursors, futures.
    pub fn abandon(self) -> Result<(), Self> {
        match Arc::try_unwrap(self.shared) {
            Ok(mut shared) => {
                if let Some(cache) = shared.cache.take() {
                    cache.abandon();
                }
                Ok(())
            }
            Err(shared) => Err(Self { shared }),
        }
    }

    /// Prepares the queue and engine of the calling thread, which its first direct I/O would open otherwise. On a
    /// volume in [`IoMode::Buffered`](crate::IoMode), whose threads share those of the page cache, opens the page cache
    /// if it is not open yet ([`Options::context`]).
    ///
    /// # Errors
    /// [`ErrorKind::Thread`] if no engine can be started.
    pub fn warm(&self) -> Result<()> {
        if self.is_buffered() {
            return self.cache_for_io().map(drop);
        }
        let make = || Ok(self.shared.storage.thread_queue()?.queue);
        let opened = self.shared.shards.with(make, |queue| {
            queue.for_io(self.storage());
        });
        opened.map_err(|error| self.thread_error(error))
    }

    /// The descriptor of the file or block device, open for direct I/O: for calls such as `fallocate`, `fstat` or a
    /// lock. `None` for other sources. Writes through it are not coherent with the page cache, and a change of the
    /// length must go through [`Volume::resize`].
    ///
    /// A volume is not [`AsFd`](std::os::fd::AsFd), whose function must return a descriptor: a stripe, a remote export
    /// or a disk in memory has none.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.source().file().map(AsFd::as_fd)
    }

    fn write(&self, buffer: &[u8], offset: u64, fua: bool) -> Result<()> {
        if let Some(unopened) = self.unopened_cache()
            && self.write_new_file(unopened, buffer, offset)
        {
            return if fua { self.flush_range(offset, buffer.len() as u64) } else { Ok(()) };
        }
        if self.is_extending(offset, buffer.len()) {
            return self.write_extending(buffer, offset, fua);
        }
        self.write_within(buffer, offset, fua)
    }

    /// Writes a range inside the volume.
    pub(crate) fn write_within(&self, buffer: &[u8], offset: u64, fua: bool) -> Result<()> {
        match (self.route(offset, buffer)?, &self.shared.bounce) {
            (Routed::Direct, None) => self.write_direct(buffer, offset, fua),
            (Routed::Direct, Some(bounce)) => self.write_aligned(bounce, buffer, offset, fua),
            (Routed::Cached(cache), _) => self.write_cached(cache, buffer, offset, fua),
            (Routed::Bounced(bounce), _) => self.write_bounced(bounce, buffer, offset, fua),
        }
    }

    /// Runs `act` while no blocking I/O on the device is in flight.
    fn alone<R>(&self, act: impl FnOnce() -> R) -> R {
        self.shared.shards.alone(act)
    }

    /// Whether it is a regular file or a disk in memory: its device executes no code of the program.
    pub(crate) fn is_file_or_memory(&self) -> bool {
        self.storage().source.shares_engine() && self.facts().engine != crate::source::PROGRAM
    }

    /// The context of its options.
    pub(crate) fn context(&self) -> Option<&Context> {
        self.shared.storage.options.context.as_ref()
    }

    fn bounce(&self) -> Option<&Bounce> {
        self.shared.bounce.as_ref()
    }

    /// The properties that decide paths and checks.
    #[inline]
    pub(crate) fn shape(&self) -> &VolumeShape {
        &self.shared.shape
    }

    fn set_size(&self, size_bytes: u64) {
        let sectors = self.shape().sectors(size_bytes);
        self.tuning().shared_queue().move_end(sectors, || {
            self.shared.size_bytes.store(size_bytes, Ordering::Release);
            self.shared.resizes.fetch_add(1, Ordering::Release);
        });
    }

    fn resizes(&self) -> u64 {
        self.shared.resizes.load(Ordering::Acquire)
    }

    /// The end at this moment. A resize stores the size first, so both are compared.
    pub(crate) fn end(&self) -> End {
        let resizes = self.resizes();
        End { resizes, size_bytes: self.size_bytes() }
    }

    /// The lock for moving the end: one thread moves it at a time.
    fn lock_end(&self) -> MutexGuard<'_, ()> {
        // Ignores poisoning: the lock contains no data.
        self.shared.resizing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same lock, if no thread moves the end.
    fn try_lock_end(&self) -> Option<MutexGuard<'_, ()>> {
        match self.shared.resizing.try_lock() {
            Ok(alone) => Some(alone),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The end of the volume for engines, in sectors: rounded up to whole blocks.
    pub(crate) fn sectors(&self) -> u64 {
        self.shape().sectors(self.size_bytes())
    }

    fn source(&self) -> &dyn Source {
        &*self.shared.storage.source
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.shared.storage
    }

    /// Whether a read may end at the end of the volume instead of the end of its range.
    pub(crate) fn cuts_off_at_end(&self) -> bool {
        self.shape().cuts_off_at_end
    }

    /// Whether reads and writes go through the page cache.
    pub fn is_buffered(&self) -> bool {
        self.shape().cache == CacheUse::All
    }

    fn is_writable(&self) -> bool {
        self.shape().is_writable
    }

    pub(crate) fn tuning(&self) -> &Tuning {
        &self.shared.storage.tuning
    }

    /// An error of this volume; the caller adds the range.
    #[cold]
    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        let error = Error::new(kind, &self.facts().path);
        let lost = IoError::Disconnected;
        let is_lost =
            matches!(kind, ErrorKind::Io(source) | ErrorKind::Unwritable { source, .. } if source == lost);
        match self.source().failure().filter(|_| is_lost) {
            Some(reason) => error.because(Cause::Server(reason.into())),
            None => error,
        }
    }

    fn thread_error(&self, error: OpenError) -> Error {
        self.error(ErrorKind::Thread).because(Cause::Open(Box::new(error)))
    }
}
