//! Configures and opens the page cache of a volume. The cache is `iopath_os::Buffered`.

use super::new_file::NewFile;
use super::{Later, Storage};
use crate::context::{Life, Member};
use crate::error::OpenError;
use crate::facts::Facts;
use crate::known_engines::KnownEngine;
use crate::observe;
use crate::options::{Options, Readahead};
use iopath_core::QueueConfig;
use iopath_core::cache::CacheConfig;
use iopath_core::readahead::ReadaheadConfig;
use iopath_os::{Buffered, BufferedConfig, Fallback};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// The largest page.
const PAGE_BYTES_MAX: u32 = 64 << 10;

/// The minimum number of pages: some are at the device, others in use by readers and writers.
const PAGES_MIN: u64 = 16;

/// The least memory of the cache of a volume that cannot write, if its options permit as much: a stream needs it.
const READ_ONLY_BYTES_MIN: u64 = 32 << 20;

/// [`QueueConfig::CACHE_BIOS_MAX`] for a cache in a context, of which there may be thousands.
const BIOS_MAX_IN_CONTEXT: u32 = 128;

/// An open cache and its engine.
pub(crate) struct OpenedCache {
    pub(crate) cache: VolumeCache,
    pub(crate) engine: &'static str,
    pub(crate) fallback: Option<Fallback>,
}

/// The page cache of a volume.
#[derive(Debug)]
pub(crate) struct VolumeCache {
    /// Its place in a context.
    member: Option<Member>,
    /// `None` only while it is closed.
    buffered: Option<Buffered>,
}

/// The place of a page cache, which is opened with the volume or at its first use.
#[derive(Debug, Default)]
pub(crate) struct LazyCache {
    opened: OnceLock<VolumeCache>,
    /// The facts of the volume with the engine of the cache, if it was opened later than the volume.
    facts: Arc<OnceLock<Facts>>,
    /// Held by the thread that opens the cache, or does without it.
    before: Mutex<Option<NewFile>>,
}

impl LazyCache {
    pub(crate) fn of(cache: VolumeCache) -> Self {
        Self { opened: OnceLock::from(cache), ..Self::default() }
    }

    /// A cache that is opened at its first use. With `file`, threads can do without it before.
    pub(crate) fn later(file: Option<NewFile>) -> Self {
        Self { before: Mutex::new(file), ..Self::default() }
    }

    /// Calls `act` with a new file that needs no cache yet. `None`: it needs one, or another thread uses it at this
    /// moment.
    pub(crate) fn try_new_file<R>(&self, act: impl FnOnce(&mut NewFile) -> R) -> Option<R> {
        let mut before = match self.before.try_lock() {
            Ok(before) => before,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        before.as_mut().map(act)
    }

    /// Does the same, but waits for other threads.
    pub(crate) fn new_file<R>(&self, act: impl FnOnce(&mut NewFile) -> R) -> Option<R> {
        self.lock().as_mut().map(act)
    }

    fn lock(&self) -> MutexGuard<'_, Option<NewFile>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cache, if it is open.
    #[inline]
    pub(crate) fn get(&self) -> Option<&Buffered> {
        self.opened.get().and_then(|cache| cache.buffered.as_ref())
    }

    /// The cache; opens it if necessary, for a volume of this size. One thread opens it, and others wait.
    #[cold]
    pub(crate) fn get_or_open(
        &self,
        storage: &Storage,
        facts: &Facts,
        size_bytes: impl FnOnce() -> u64,
    ) -> Result<&Buffered, OpenError> {
        // A new file has one size while it is locked.
        let mut before = self.lock();
        if self.opened.get().is_none() {
            let known = KnownEngine { engine: facts.engine, fallback: facts.fallback.clone() };
            let later = Later { known: &known, facts, found: &self.facts };
            let OpenedCache { cache, engine, fallback } = open(storage, size_bytes(), Some(later))?;
            if let (Some(file), Some(buffered)) = (before.take(), &cache.buffered) {
                let (unflushed, lost) = file.into_parts();
                buffered.handle_earlier_writes(unflushed, lost);
            }
            if engine != known.engine || fallback != known.fallback {
                let facts = Facts { engine, fallback, ..facts.clone() };
                observe::engine_opened(&facts);
                // Cannot fail: the lock is held, and no device is to be opened later.
                let _ = self.facts.set(facts);
            }
            // Cannot fail: the lock is held.
            let _ = self.opened.set(cache);
        }
        Ok(self.get().expect("it was opened above"))
    }

    /// The facts of the volume, if the cache was opened later.
    pub(crate) fn facts(&self) -> Option<&Facts> {
        self.facts.get()
    }

    /// Drops the cache, if it is open, without writing dirty pages back.
    pub(crate) fn abandon(self) {
        if let Some(cache) = self.opened.into_inner() {
            cache.abandon();
        }
    }
}

impl VolumeCache {
    /// Drops the cache without writing dirty pages back.
    fn abandon(mut self) {
        if let Some(member) = &self.member {
            member.leave();
        }
        if let Some(buffered) = self.buffered.take() {
            buffered.abandon();
        }
    }
}

impl Drop for VolumeCache {
    fn drop(&mut self) {
        if let (Some(member), Some(buffered)) = (self.member.take(), self.buffered.take()) {
            member.close(buffered);
        }
    }
}

/// Opens the cache of a volume of this size with the options of the source. With `later`, its engine may be opened at
/// the first request.
pub(crate) fn open(
    storage: &Storage,
    size_bytes: u64,
    later: Option<Later<'_>>,
) -> Result<OpenedCache, OpenError> {
    let mut config = config(storage, size_bytes)?;
    let (member, kept) = match &storage.options.context {
        Some(context) => {
            config.demand = Some(context.demand());
            let life = if context.keeps_closed() { life(storage, size_bytes) } else { None };
            let bytes_max = u64::from(config.cache.frames) * u64::from(config.cache.page_bytes);
            let (member, kept) = context.join(&config, bytes_max, life);
            (Some(member), kept)
        }
        None => (None, None),
    };
    let mut engine = "";
    let mut fallback = None;
    let cache = Buffered::with_pages(config, kept, |pool| {
        let bios_max = if member.is_some() { BIOS_MAX_IN_CONTEXT } else { QueueConfig::CACHE_BIOS_MAX };
        let opened = storage.cache_runner(bios_max, pool, later)?;
        (engine, fallback) = (opened.engine, opened.fallback);
        Ok::<_, OpenError>(opened.queue)
    })?;
    if let Some(report) = storage.reporter() {
        cache.report_to(report);
    }
    if let Some(member) = &member {
        member.open(&cache);
    }
    Ok(OpenedCache { cache: VolumeCache { member, buffered: Some(cache) }, engine, fallback })
}

/// What is needed to keep the pages of a cache on a regular file. `None`: they cannot be kept, also with faults.
fn life(storage: &Storage, size_bytes: u64) -> Option<Life> {
    let Options { lock, write, .. } = storage.options;
    Life::begin(storage.plain_file()?, size_bytes, lock, write)
}

/// Checks the options of the cache, and returns the size of a page.
pub(crate) fn check(storage: &Storage) -> Result<u32, OpenError> {
    let (options, limits) = (&storage.options, &storage.limits);
    let page_bytes = page_bytes(options, limits.logical_block_bytes)?;
    let (min_bytes, max_bytes) =
        (PAGES_MIN * u64::from(page_bytes), u64::from(u32::MAX - 1) * u64::from(page_bytes));
    if options.cache_bytes < min_bytes || options.cache_bytes > max_bytes {
        return Err(OpenError::CacheSize { cache_bytes: options.cache_bytes, min_bytes, max_bytes });
    }
    Ok(page_bytes)
}

fn config(storage: &Storage, size_bytes: u64) -> Result<BufferedConfig, OpenError> {
    let page_bytes = check(storage)?;
    let (options, limits) = (&storage.options, &storage.limits);
    let cache_bytes = cache_bytes(&storage.options, size_bytes, page_bytes);
    Ok(BufferedConfig {
        plain_file: storage.plain_file(),
        cache: CacheConfig::for_device(cache_bytes, page_bytes, limits),
        readahead: match options.readahead {
            Readahead::Auto => Some(ReadaheadConfig::for_device(cache_bytes, page_bytes, limits)),
            Readahead::Off => None,
            Readahead::Bytes(bytes) => ReadaheadConfig::limited(bytes, cache_bytes, page_bytes, limits),
            Readahead::Linux(bytes) => ReadaheadConfig::linux(bytes, cache_bytes, page_bytes, limits),
        },
        size_bytes,
        block_bytes: limits.logical_block_bytes,
        writes_last_block: storage.writes_last_block,
        tail: storage.tail()?,
        demand: None,
    })
}

/// The memory of the cache. A volume that cannot write has no use for more than its bytes. If another program extends
/// the file, a reader that follows its growth still has [`READ_ONLY_BYTES_MIN`].
fn cache_bytes(options: &Options, size_bytes: u64, page_bytes: u32) -> u64 {
    let Options { write, cache_bytes, .. } = *options;
    let pages = size_bytes.div_ceil(page_bytes.into());
    let useful = pages.saturating_add(PAGES_MIN).saturating_mul(page_bytes.into());
    if write { cache_bytes } else { cache_bytes.min(useful.max(READ_ONLY_BYTES_MIN)) }
}

fn page_bytes(options: &Options, block_bytes: u32) -> Result<u32, OpenError> {
    let min_bytes = block_bytes.max(iopath_os::page_bytes() as u32);
    let page_bytes = options.page_bytes.unwrap_or(min_bytes);
    if page_bytes.is_power_of_two() && (min_bytes..=PAGE_BYTES_MAX).contains(&page_bytes) {
        return Ok(page_bytes);
    }
    Err(OpenError::PageSize { page_bytes, min_bytes, max_bytes: PAGE_BYTES_MAX })
}
