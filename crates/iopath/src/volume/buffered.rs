//! Buffered I/O of a volume: calls the page cache, and converts its errors to errors of the volume. The cache is
//! `iopath_os::Buffered`.

use super::Volume;
use crate::error::{Cause, Error, ErrorKind, Result};
use crate::observe;
use crate::queues::shared_queue;
use crate::storage::new_file::NewFile;
use iopath_core::{IoError, LogSink, Op};
use iopath_os::{Advice, Buffered, BufferedError, BufferedStats};
use std::ops::Range;

/// Bytes of the page cache, borrowed: [`Volume::borrow`]. Borrowed pages do not change and are never evicted.
pub type PageGuard<'a> = iopath_os::PageGuard<'a>;

impl Volume {
    /// Borrows `bytes` bytes at `offset` in the page cache, or fewer at the end of the volume, without a copy. The
    /// bytes do not change until the guard is dropped: a write to the range uses another copy of the page.
    ///
    /// # Errors
    /// [`ErrorKind::NotBuffered`] on a volume without a page cache, [`ErrorKind::AllBorrowed`] if guards hold every
    /// page, and as [`Volume::read_at`].
    ///
    /// A guard has neither `Deref` nor `AsRef<[u8]>`: pages that follow one another in the volume may lie apart in
    /// memory. [`PageGuard::as_slice`] returns bytes that are contiguous, as those of one page always are, and
    /// [`PageGuard::slices`] returns all pieces.
    ///
    /// ```
    /// use iopath::testing::{MemoryConfig, MemoryDisk};
    /// use iopath::{IoMode, Options, Volume};
    ///
    /// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
    /// let volume = Volume::memory(&disk, &Options::new().write(true).mode(IoMode::Buffered))?;
    /// volume.write_at(b"header", 8192)?;
    ///
    /// let header = volume.borrow(8192, 6)?;
    /// assert_eq!(header.as_slice(), Some(b"header".as_slice()));
    /// volume.write_at(b"HEADER", 8192)?;
    /// assert_eq!(header.as_slice(), Some(b"header".as_slice()), "borrowed bytes do not change");
    ///
    /// let pages = volume.borrow(4096, 16384)?;
    /// let bytes: Vec<u8> = pages.slices().flatten().copied().collect();
    /// assert_eq!((bytes.len(), &bytes[4096..4102]), (16384, b"HEADER".as_slice()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn borrow(&self, offset: u64, bytes: usize) -> Result<PageGuard<'_>> {
        self.cache()?.borrow_or(offset, bytes, |error| self.uncached(Op::Read, offset, bytes as u64, error))
    }

    /// Announces the future use of `bytes` bytes at `offset`.
    ///
    /// # Errors
    /// [`ErrorKind::NotBuffered`] on a volume without a page cache.
    pub fn advise(&self, offset: u64, bytes: u64, advice: Advice) -> Result<()> {
        self.cache()?.advise(offset, bytes, advice);
        Ok(())
    }

    /// The byte ranges in the page cache, in ascending order: whole pages, up to the end of the volume. A program can
    /// save them, and read them again after a restart ([`Volume::advise`] with [`Advice::WillNeed`]), so that its cache
    /// is warm. Takes a time that grows with the cache. Empty on a volume without a page cache.
    ///
    /// ```
    /// use iopath::{Advice, IoMode, Options, Volume};
    /// use iopath::testing::{MemoryConfig, MemoryDisk};
    ///
    /// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
    /// let options = Options::new().mode(IoMode::Buffered);
    /// let volume = Volume::memory(&disk, &options)?;
    /// volume.read_exact_at(&mut [0; 100], 500_000)?;
    /// let ranges = volume.cached_ranges();
    /// drop(volume);
    ///
    /// let volume = Volume::memory(&disk, &options)?;
    /// for range in ranges {
    ///     volume.advise(range.start, range.end - range.start, Advice::WillNeed)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cached_ranges(&self) -> Vec<Range<u64>> {
        self.cache_if_any().map(Buffered::cached_ranges).unwrap_or_default()
    }

    /// The byte ranges that the page cache could not write back at its last attempt, in ascending order: whole pages,
    /// up to the end of the volume. The bytes are still in the cache, and every flush tries again. Takes a time that
    /// grows with the cache. Empty on a volume without a page cache.
    ///
    /// An error of [`Volume::flush`] has the first of these ranges. After [`IoError::NoSpace`], a program can free
    /// space and flush again, or give the ranges up ([`Volume::discard`]).
    ///
    /// ```
    /// use iopath::{IoError, IoMode, Op, Options, Volume};
    /// use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
    ///
    /// let faults = Faults::new(1);
    /// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
    /// let options = Options::new().write(true).mode(IoMode::Buffered).faults(&faults);
    /// let volume = Volume::memory(&disk, &options)?;
    /// faults.add(Fault::error(IoError::NoSpace).on(Op::Write));
    /// volume.write_at(b"some bytes", 5000)?;
    /// let full = volume.flush().unwrap_err();
    /// assert_eq!((full.offset(), full.bytes()), (4096, 4096));
    /// assert_eq!(volume.unwritable_ranges(), [4096..8192]);
    /// # faults.stop();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unwritable_ranges(&self) -> Vec<Range<u64>> {
        self.cache_if_any().map(Buffered::unwritable_ranges).unwrap_or_default()
    }

    /// The counters of the page cache; `None` on a volume without one. Zeroes until the cache opens: at the first I/O,
    /// of a new file at the first call that needs the cache.
    pub fn stats(&self) -> Option<BufferedStats> {
        self.has_cache().then(|| self.cache_if_any().map(Buffered::stats).unwrap_or_default())
    }

    /// Records each step of the volume's queue in `sink` from now on. On a volume with a page cache, this is the queue
    /// between page cache and device; on any other, the queue that all threads and batches share. With elevator `none`
    /// and without a page cache there is no such queue, since each thread and batch has its own: log a batch instead
    /// ([`Batch::start_log`](crate::Batch::start_log)).
    ///
    /// A direct batch on a volume with a page cache has a queue outside the cache, and a batch with a completion
    /// descriptor always has its own. Neither is in this log.
    ///
    /// # Errors
    /// [`ErrorKind::NoSingleQueue`] with elevator `none` on a volume without a page cache; [`ErrorKind::Thread`] if the
    /// shared queue needs an engine and none can be started.
    pub fn start_log(&self, sink: Box<dyn LogSink>) -> Result<()> {
        if let Some(cache) = self.cache_for_io()? {
            cache.start_log(sink);
            return Ok(());
        }
        let queue = shared_queue(self.storage()).map_err(|error| self.thread_error(error))?;
        queue.ok_or_else(|| self.error(ErrorKind::NoSingleQueue))?.start_log(sink);
        Ok(())
    }

    /// Acknowledges lost writes, so that flushes can succeed again. Returns whether there were any. The program must
    /// first handle the loss, for example by repeating every write since the last successful flush.
    ///
    /// When the device fails a flush, writes since the last successful flush may be lost. The cache repeats the writes
    /// of pages that it still contains. Writes of evicted pages, direct writes, and those of a new file that does
    /// without a cache ([`Volume::open`]), may be lost. In that case every
    /// [`Volume::flush`] fails until this call, so that the program cannot miss the loss. If the next flush after this
    /// call fails in the device again, that is a new loss.
    ///
    /// # Errors
    /// [`ErrorKind::NotBuffered`] on a volume without a page cache.
    pub fn accept_loss(&self) -> Result<bool> {
        let of_new_file = self.of_new_file(NewFile::accept_loss);
        let was_lost = match (of_new_file, self.cache_if_any()) {
            (Some(loss), _) => loss.is_some(),
            // A cache that is not open has lost nothing.
            (None, None) if self.has_cache() => false,
            (None, _) => self.cache()?.accept_loss().is_some(),
        };
        if was_lost {
            observe::loss_accepted(self.facts());
        }
        Ok(was_lost)
    }

    #[inline]
    fn cache(&self) -> Result<&Buffered> {
        self.cache_for_io()?.ok_or_else(|| self.error(ErrorKind::NotBuffered))
    }

    pub(super) fn read_cached(&self, cache: &Buffered, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let bytes = buffer.len() as u64;
        cache.read_at(buffer, offset).map_err(|error| self.uncached(Op::Read, offset, bytes, error))
    }

    pub(super) fn write_cached(&self, cache: &Buffered, buffer: &[u8], offset: u64, fua: bool) -> Result<()> {
        let bytes = buffer.len() as u64;
        self.check_writable(Op::Write, offset, bytes)?;
        self.check_within(Op::Write, offset, bytes)?;
        let failed = |error| self.uncached(Op::Write, offset, bytes, error);
        cache.write_at(buffer, offset).map_err(failed)?;
        if fua { self.flush_range(offset, bytes) } else { Ok(()) }
    }

    pub(crate) fn flush_cached(&self, cache: &Buffered) -> Result<()> {
        let failed = |error| self.uncached(Op::Flush, 0, 0, error);
        if self.needs_trim() {
            // Before the file is truncated: its last page is then written back with all others.
            cache.write_back().map_err(failed)?;
        }
        self.trim_file()?;
        cache.flush().map_err(failed)
    }

    /// The error of the volume for an error of the cache.
    #[cold]
    pub(crate) fn uncached(&self, op: Op, offset: u64, bytes: u64, error: BufferedError) -> Error {
        let (kind, cause) = match error {
            // A resize has moved the end after the check of the range.
            BufferedError::Io(IoError::EndOfDevice) if op.is_write() => {
                (ErrorKind::PastEnd { size_bytes: self.size_bytes() }, None)
            }
            BufferedError::Io(source) => (ErrorKind::Io(source), None),
            BufferedError::Wait(source) => (ErrorKind::Wait, Some(Cause::Wait(source))),
            BufferedError::AllBorrowed { pages } => (ErrorKind::AllBorrowed { pages }, None),
            BufferedError::Unwritable { pages, source } => (ErrorKind::Unwritable { pages, source }, None),
        };
        let mut range = (offset, bytes);
        if op == Op::Flush && matches!(kind, ErrorKind::Io(_)) {
            range = self.first_unwritable(offset, bytes).unwrap_or(range);
        }
        let error = self.error(kind).of_range(op, range.0, range.1);
        match cause {
            Some(cause) => error.because(cause),
            None => error,
        }
    }

    /// The first range that made the flush of this range fail: of the whole volume for 0 bytes. `None` if the device
    /// failed to flush, or the pages have been written since.
    fn first_unwritable(&self, offset: u64, bytes: u64) -> Option<(u64, u64)> {
        let end = if bytes == 0 { u64::MAX } else { offset.saturating_add(bytes) };
        let ranges = self.unwritable_ranges().into_iter();
        let mut inside = ranges.map(|range| range.start.max(offset)..range.end.min(end));
        inside.find(|range| !range.is_empty()).map(|range| (range.start, range.end - range.start))
    }
}
