//! Configures and opens the page cache of a volume. The cache is `iopath_os::Buffered`.

use super::{Backing, Source, system};
use crate::error::OpenError;
use crate::options::{Options, Readahead};
use iopath_core::cache::CacheConfig;
use iopath_core::readahead::ReadaheadConfig;
use iopath_os::target::{Kind, Target};
use iopath_os::{Buffered, BufferedConfig, Fallback, Tail};
use std::fs::OpenOptions;

/// The largest page.
const PAGE_BYTES_MAX: u32 = 64 << 10;

/// The minimum number of pages: some are at the device, others in use by readers and writers.
const PAGES_MIN: u64 = 16;

/// The maximum number of runs of pages in flight between cache and device. A run that is not contiguous in memory
/// counts once per piece.
const BIOS_MAX: u32 = 1024;

/// An open cache and its engine.
pub(crate) struct OpenedCache {
    pub(crate) cache: Buffered,
    pub(crate) engine: &'static str,
    pub(crate) fallback: Option<Fallback>,
}

/// Opens the cache with the options of the source.
pub(crate) fn open(source: &Source, target: &Target) -> Result<OpenedCache, OpenError> {
    let config = config(source, target)?;
    let mut engine = "";
    let mut fallback = None;
    let cache = Buffered::new(config, |pool| {
        let opened = source.cache_runner(BIOS_MAX, pool)?;
        (engine, fallback) = (opened.engine, opened.fallback);
        Ok::<_, OpenError>(opened.queue)
    })?;
    Ok(OpenedCache { cache, engine, fallback })
}

fn config(source: &Source, target: &Target) -> Result<BufferedConfig, OpenError> {
    let (options, limits) = (&source.options, &source.limits);
    let page_bytes = page_bytes(options, limits.logical_block_bytes)?;
    let (min_bytes, max_bytes) =
        (PAGES_MIN * u64::from(page_bytes), u64::from(u32::MAX - 1) * u64::from(page_bytes));
    if options.cache_bytes < min_bytes || options.cache_bytes > max_bytes {
        return Err(OpenError::CacheSize { cache_bytes: options.cache_bytes, min_bytes, max_bytes });
    }
    let cache_bytes = options.cache_bytes;
    Ok(BufferedConfig {
        inline_reads: source.plain_file(),
        cache: CacheConfig::for_device(cache_bytes, page_bytes, limits),
        readahead: match options.readahead {
            Readahead::Auto => Some(ReadaheadConfig::for_device(cache_bytes, page_bytes, limits)),
            Readahead::Off => None,
            Readahead::Bytes(bytes) => ReadaheadConfig::limited(bytes, cache_bytes, page_bytes, limits),
            Readahead::Linux(bytes) => ReadaheadConfig::linux(bytes, cache_bytes, page_bytes, limits),
        },
        size_bytes: target.size_bytes,
        block_bytes: limits.logical_block_bytes,
        writes_last_block: source.writes_last_block(),
        tail: tail(source, target)?,
    })
}

fn page_bytes(options: &Options, block_bytes: u32) -> Result<u32, OpenError> {
    let min_bytes = block_bytes.max(iopath_os::page_bytes() as u32);
    let page_bytes = options.page_bytes.unwrap_or(min_bytes);
    if page_bytes.is_power_of_two() && (min_bytes..=PAGE_BYTES_MAX).contains(&page_bytes) {
        return Ok(page_bytes);
    }
    Err(OpenError::PageSize { page_bytes, min_bytes, max_bytes: PAGE_BYTES_MAX })
}

/// Access to the bytes after the last whole block, which direct I/O cannot write. For a file, this is a second
/// descriptor without `O_DIRECT`.
pub(crate) fn tail(source: &Source, target: &Target) -> Result<Option<Tail>, OpenError> {
    match (&source.backing, target.kind) {
        _ if !source.options.write => Ok(None),
        (Backing::Memory(disk), _) => Ok(Some(Tail::Memory(disk.tail()))),
        (Backing::File(_), Kind::RegularFile) => {
            let file = OpenOptions::new().write(true).open(&target.path);
            Ok(Some(Tail::File(file.map_err(system(&target.path, "opened for writing"))?)))
        }
        (Backing::File(_) | Backing::Remote(_) | Backing::Stripe(_) | Backing::Mapped(_), _) => Ok(None),
    }
}
