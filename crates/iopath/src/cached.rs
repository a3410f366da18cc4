//! The page cache of a volume: how it is made from the options, and what of the volume's methods it serves. How it
//! works: `iopath_os::Buffered`.

use crate::error::{Cause, Error, ErrorKind, OpenError};
use crate::open::{Backing, Source, system};
use crate::options::{Options, Readahead};
use crate::volume::Volume;
use iopath_core::cache::CacheConfig;
use iopath_core::readahead::ReadaheadConfig;
use iopath_core::{LogSink, Op};
use iopath_os::target::{Kind, Target};
use iopath_os::{Advice, Borrowed, Buffered, BufferedConfig, BufferedError, BufferedStats, Fallback, Tail};
use std::fs::OpenOptions;

/// The largest page.
const PAGE_BYTES_MAX: u32 = 64 << 10;

/// The fewest pages: some at the device, some on their way to readers and writers.
const PAGES_MIN: u64 = 16;

/// Room for runs of pages on their way between cache and device. A run is one for each piece of memory that it lies in.
const BIOS_MAX: u32 = 1024;

/// The most bytes read ahead and not yet used.
const READAHEAD_BYTES_MAX: u64 = 64 << 20;

/// A cache that was opened, and on what.
pub(crate) struct OpenedCache {
    pub(crate) cache: Buffered,
    pub(crate) engine: &'static str,
    pub(crate) fallback: Option<Fallback>,
}

/// Makes the cache that the options ask for.
pub(crate) fn open(source: &Source, target: &Target) -> Result<OpenedCache, OpenError> {
    let config = config(source, target)?;
    let (mut engine, mut fallback) = ("", None);
    let cache = Buffered::new(config, |pool| {
        let opened = source.cache_runner(BIOS_MAX, pool)?;
        (engine, fallback) = (opened.engine, opened.fallback);
        Ok::<_, OpenError>(opened.runner.untuned())
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
    let frames = (cache_bytes / u64::from(page_bytes)) as u32;
    // A fifth less than what is not used up at once may take.
    let budget_bytes = (cache_bytes / u64::from(CacheConfig::SCAN_PARTS) / 5 * 4).min(READAHEAD_BYTES_MAX);
    let readahead = |budget_bytes: u64| ReadaheadConfig {
        page_bytes,
        request_bytes: limits.request_bytes_max.min(budget_bytes / 2).max(u64::from(page_bytes)),
        budget_bytes,
        ..ReadaheadConfig::default()
    };
    Ok(BufferedConfig {
        own_reads: source.plain_file(),
        cache: CacheConfig {
            frames,
            page_bytes,
            io_pages_max: (limits.request_bytes_max / u64::from(page_bytes)).clamp(1, frames.into()) as u32,
            ..CacheConfig::default()
        },
        readahead: match options.readahead {
            Readahead::Auto => Some(readahead(budget_bytes)),
            Readahead::Off | Readahead::Bytes(0) => None,
            Readahead::Bytes(bytes) => Some(readahead(bytes.clamp(u64::from(page_bytes), cache_bytes / 2))),
        },
        size_bytes: target.size_bytes,
        block_bytes: limits.logical_block_bytes,
        writes_last_block: source.writes_last_block(),
        tail: tail(source, target)?,
    })
}

fn page_bytes(options: &Options, block_bytes: u32) -> Result<u32, OpenError> {
    let page_bytes = options.page_bytes;
    let min_bytes = block_bytes.max(iopath_os::page_bytes() as u32);
    if page_bytes.is_power_of_two() && (min_bytes..=PAGE_BYTES_MAX).contains(&page_bytes) {
        return Ok(page_bytes);
    }
    Err(OpenError::PageSize { page_bytes, min_bytes, max_bytes: PAGE_BYTES_MAX })
}

/// A way past direct I/O, of a file once more without `O_DIRECT`, if bytes after the last whole block may have to be
/// written.
pub(crate) fn tail(source: &Source, target: &Target) -> Result<Option<Tail>, OpenError> {
    match (&source.backing, target.kind) {
        _ if !source.options.write => Ok(None),
        (Backing::Memory(disk), _) => Ok(Some(Tail::Memory(disk.tail()))),
        (Backing::File(_), Kind::RegularFile) => {
            let file = OpenOptions::new().write(true).open(&target.path);
            Ok(Some(Tail::File(file.map_err(system(&target.path, "opened for writing"))?)))
        }
        (Backing::File(_) | Backing::Stripe(_) | Backing::Mapped(_), _) => Ok(None),
    }
}

/// Bytes of the volume's cache, lent: see [`Volume::borrow`].
pub type PageGuard<'a> = Borrowed<'a>;

impl Volume {
    /// Lends `bytes` bytes from byte `offset` on as they lie in the page cache, or as many as there are up to the end
    /// of the volume: nothing is copied. What is lent stays as it is, whoever writes to the range meanwhile.
    ///
    /// For volumes with a page cache; of others it is refused.
    #[inline]
    pub fn borrow(&self, offset: u64, bytes: usize) -> Result<PageGuard<'_>, Error> {
        self.cache()?.borrow_or(offset, bytes, |error| self.uncached(Op::Read, offset, bytes as u64, error))
    }

    /// Says how `bytes` bytes from `offset` on will be used.
    ///
    /// For volumes with a page cache; of others it is refused.
    pub fn advise(&self, offset: u64, bytes: u64, advice: Advice) -> Result<(), Error> {
        self.cache()?.advise(offset, bytes, advice);
        Ok(())
    }

    /// What the page cache has done; `None` if there is none.
    pub fn stats(&self) -> Option<BufferedStats> {
        self.cache_if_any().map(Buffered::stats)
    }

    /// Tells `sink` each step of the queue between page cache and device from now on; of other volumes, batches are
    /// logged ([`Batch::start_log`](crate::Batch::start_log)).
    pub fn start_log(&self, sink: Box<dyn LogSink>) {
        if let Some(cache) = self.cache_if_any() {
            cache.start_log(sink);
        }
    }

    /// Says that the program knows of a loss and has seen to it, by writing again what it had written since the last
    /// flush that succeeded, say. Whether there was one.
    ///
    /// When the device fails a flush, what it had taken since the last good one may be lost. What of that is in the
    /// page cache is written again. If some had left the cache already, or was written around it, its bytes may be
    /// nowhere: then every [`Volume::flush`] fails, for once lost is never reported once only, until this is called.
    ///
    /// For volumes with a page cache; of others it is refused.
    pub fn accept_loss(&self) -> Result<bool, Error> {
        Ok(self.cache()?.accept_loss().is_some())
    }

    /// Flushes and closes. Dropping does without the flush, and keeps to itself what goes wrong.
    ///
    /// Other clones of the volume stay open.
    pub fn close(self) -> Result<(), Error> {
        if self.is_writable() { self.flush() } else { Ok(()) }
    }

    #[inline]
    fn cache(&self) -> Result<&Buffered, Error> {
        self.cache_if_any().ok_or_else(|| self.error(ErrorKind::NotBuffered))
    }

    pub(crate) fn read_cached(
        &self,
        cache: &Buffered,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize, Error> {
        let bytes = buffer.len() as u64;
        cache.read_at(buffer, offset).map_err(|error| self.uncached(Op::Read, offset, bytes, error))
    }

    pub(crate) fn write_cached(
        &self,
        cache: &Buffered,
        buffer: &[u8],
        offset: u64,
        fua: bool,
    ) -> Result<(), Error> {
        let bytes = buffer.len() as u64;
        self.check_writable(Op::Write, offset, bytes)?;
        self.check_within(Op::Write, offset, bytes)?;
        let failed = |error| self.uncached(Op::Write, offset, bytes, error);
        cache.write_at(buffer, offset).map_err(failed)?;
        if fua { cache.flush_range(offset, bytes).map_err(failed) } else { Ok(()) }
    }

    pub(crate) fn flush_cached(&self, cache: &Buffered) -> Result<(), Error> {
        cache.flush().map_err(|error| self.uncached(Op::Flush, 0, 0, error))
    }

    /// An error of the cache as one of the volume.
    #[cold]
    pub(crate) fn uncached(&self, op: Op, offset: u64, bytes: u64, error: BufferedError) -> Error {
        let (kind, cause) = match error {
            BufferedError::Io(source) => (ErrorKind::Io(source), None),
            BufferedError::Wait(source) => (ErrorKind::Wait, Some(Cause::Wait(source))),
            BufferedError::AllBorrowed { pages } => (ErrorKind::AllBorrowed { pages }, None),
            BufferedError::Unwritable { pages, source } => (ErrorKind::Unwritable { pages, source }, None),
        };
        let error = self.error(kind).of_range(op, offset, bytes);
        match cause {
            Some(cause) => error.because(cause),
            None => error,
        }
    }
}
