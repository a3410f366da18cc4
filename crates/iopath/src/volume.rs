//! The volume: reads and writes of byte ranges, blocking, from any thread. What keeps many in flight from one
//! thread is `batch.rs`.

use crate::batch::{Batch, BatchOptions};
use crate::bounce::Bounce;
use crate::cached::{self, OpenedCache};
use crate::error::{Cause, Error, ErrorKind, OpenError};
use crate::open::{Backing, Facts, Opened, Source};
use crate::options::{IoMode, Options, Unaligned};
use crate::shards::Shards;
use crate::tuning::Tuning;
use iopath_core::{Extent, IoError, Op, SECTOR_BYTES, SubmitError};
use iopath_os::sync::{Mutex, MutexGuard};
use iopath_os::target::Target;
use iopath_os::{Beside, Buffered, MemoryDisk, RealDevice, RunError, Runner};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// How a read or write is carried out.
enum Way<'a> {
    Direct,
    Cached(&'a Buffered),
    Bounced(&'a Bounce),
}

/// A file, block device, stripe, mapped file or disk in memory, open for direct, raw or buffered I/O.
///
/// Every method takes `&self` and can be called from any thread; for direct and raw I/O each thread has its own queue
/// and engine, so threads do not wait for each other. I/O of one thread that overlaps keeps its order by itself, since
/// each call returns when it is done; between threads there is the order that the program makes.
///
/// Alignment, of direct and raw I/O unless [`Options::unaligned`] says otherwise: offsets and lengths are multiples of
/// [`Facts::block_bytes`], buffers start at multiples of [`Facts::memory_align_bytes`] (those of
/// [`AlignedBuf`](crate::AlignedBuf) do). Anything else is refused with an error that names the numbers.
///
/// A clone is the same volume: cheap, and good to hand to a thread.
#[derive(Debug, Clone)]
pub struct Volume {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    source: Source,
    facts: Facts,
    shards: Shards,
    cache: Option<Buffered>,
    bounce: Option<Bounce>,
    /// Where it ends; `facts` has where it ended when it was opened.
    size_bytes: AtomicU64,
    /// How often the end has moved.
    resizes: AtomicU64,
    /// Held by the thread that moves the end.
    resizing: Mutex<()>,
}

impl Volume {
    /// Opens a file or block device.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self, OpenError> {
        let (source, target) = Source::open(path.as_ref(), options)?;
        Self::of(source, target)
    }

    /// Opens a disk in memory: for tests of programs that use a volume, with faults ([`Options::faults`]) and power
    /// failures if they like. Any number of volumes can be open on one disk.
    ///
    /// ```
    /// use iopath::{MemoryConfig, MemoryDisk, Options, Volume};
    ///
    /// let disk = MemoryDisk::new(&MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(1 << 24) })?;
    /// let volume = Volume::memory(&disk, &Options::new().write(true))?;
    /// volume.write_at(&[1; 4096], 0)?;
    /// volume.flush()?;
    /// volume.write_at(&[2; 4096], 0)?;
    ///
    /// // The power fails; of each sector the last version written and not flushed is lost.
    /// disk.crash(|versions| versions - 1);
    /// assert!(volume.flush().is_err(), "what was open is gone");
    /// let volume = Volume::memory(&disk, &Options::new())?;
    /// let mut bytes = [0; 4096];
    /// volume.read_at(&mut bytes, 0)?;
    /// assert_eq!(bytes, [1; 4096]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn memory(disk: &MemoryDisk, options: &Options) -> Result<Self, OpenError> {
        let (source, target) = Source::memory(disk, options)?;
        Self::of(source, target)
    }

    pub(crate) fn of(source: Source, target: Target) -> Result<Self, OpenError> {
        let (first, cache, engine, fallback) = if source.options.is_cached() {
            let OpenedCache { cache, engine, fallback } = cached::open(&source, &target)?;
            (None, Some(cache), engine, fallback)
        } else {
            let Opened { runner, engine, fallback } = source.shared_runner()?;
            (Some(runner), None, engine, fallback)
        };
        let facts = Facts {
            path: target.path.clone(),
            size_bytes: target.size_bytes,
            block_bytes: source.limits.logical_block_bytes,
            memory_align_bytes: source.limits.memory_align_bytes,
            request_bytes_max: source.limits.request_bytes_max,
            engine,
            fallback,
            target,
        };
        let bounce = match source.options.unaligned {
            Unaligned::Bounce => Some(Bounce::new(cached::tail(&source, &facts.target)?)),
            Unaligned::Refuse | Unaligned::Buffered => None,
        };
        let (shards, size_bytes) = (Shards::new(first), AtomicU64::new(facts.size_bytes));
        let (resizes, resizing) = (AtomicU64::new(0), Mutex::new(()));
        let shared = Shared { source, facts, shards, cache, bounce, size_bytes, resizes, resizing };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// What was found out when it was opened.
    pub fn facts(&self) -> &Facts {
        &self.shared.facts
    }

    /// The size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.shared.size_bytes.load(Ordering::Acquire)
    }

    /// Does something while no blocking I/O on the device is in flight.
    pub(crate) fn alone<R>(&self, act: impl FnOnce() -> R) -> R {
        self.shared.shards.alone(act)
    }

    pub(crate) fn bounce(&self) -> Option<&Bounce> {
        self.shared.bounce.as_ref()
    }

    pub(crate) fn set_size(&self, size_bytes: u64) {
        self.shared.size_bytes.store(size_bytes, Ordering::Release);
        self.shared.resizes.fetch_add(1, Ordering::Release);
    }

    /// To be held while the end is moved: one thread at a time moves it.
    pub(crate) fn lock_end(&self) -> MutexGuard<'_, ()> {
        // It protects no data that a panic could leave half changed.
        self.shared.resizing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the engines take the volume to end: whole blocks.
    pub(crate) fn sectors(&self) -> u64 {
        self.size_bytes().next_multiple_of(u64::from(self.facts().block_bytes)) / SECTOR_BYTES
    }

    /// Reads into `buffer` from byte `offset` on, and returns how many bytes that were: all of `buffer`, or on
    /// all paths but raw as many as there are up to the end of the volume.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        match self.way(offset, buffer) {
            Way::Direct => self.read_direct(buffer, offset),
            Way::Cached(cache) => self.read_cached(cache, buffer, offset),
            Way::Bounced(bounce) => self.read_bounced(bounce, buffer, offset),
        }
    }

    /// Beside a [`Volume::resize`] this reads up to the old end or the new one.
    pub(crate) fn read_direct(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        loop {
            let resizes = self.shared.resizes.load(Ordering::Acquire);
            let read = self.read_to_end(buffer, offset);
            let is_past_end = read.as_ref().is_err_and(|error| {
                matches!(error.kind(), ErrorKind::PastEnd { .. } | ErrorKind::Io(IoError::EndOfDevice))
            });
            if !is_past_end || self.shared.resizes.load(Ordering::Acquire) == resizes {
                return read;
            }
        }
    }

    fn read_to_end(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        let (extent, bytes) = self.readable(offset, buffer.len() as u64)?;
        if extent.is_empty() {
            return Ok(0);
        }
        self.check_memory(Op::Read, buffer.as_ptr().addr(), offset, buffer.len() as u64)?;
        let memory = &mut buffer[..extent.bytes() as usize];
        self.run(Op::Read, extent, |runner| runner.read(extent, memory))?;
        if !self.cuts_off_at_end() {
            return Ok(bytes as usize);
        }
        // Bytes past an end that has moved meanwhile are zeroes.
        Ok(bytes.min(self.size_bytes().saturating_sub(offset)) as usize)
    }

    /// Writes all of `buffer` from byte `offset` on. When this returns it is in the device, on the buffered path in the
    /// page cache, to be written back later; on the medium it is after the next [`Volume::flush`] either way.
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> Result<(), Error> {
        self.write(buffer, offset, false)
    }

    /// As [`Volume::write_at`]; the bytes are on the medium when this returns. On the direct path by forced unit access, with
    /// a page cache or an aligned buffer by a flush.
    pub fn write_durably_at(&self, buffer: &[u8], offset: u64) -> Result<(), Error> {
        self.write(buffer, offset, true)
    }

    /// Sends every write that has returned to the medium.
    pub fn flush(&self) -> Result<(), Error> {
        self.check_writable(Op::Flush, 0, 0)?;
        if let Some(cache) = &self.shared.cache {
            return self.flush_cached(cache);
        }
        self.run(Op::Flush, Extent::EMPTY, |runner| runner.command(Op::Flush, Extent::EMPTY))
    }

    /// Says that `bytes` bytes from `offset` on are no longer needed: whole blocks ([`Facts::block_bytes`]) on every
    /// path. What they read as afterwards is undefined, even if this fails, but of a mapped file zeroes if it does not;
    /// the space may be given free. Whole pages of the page cache that could not be written back are given up: flushes
    /// fail for them no more.
    pub fn discard(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        self.command(Op::Discard, offset, bytes)
    }

    /// Makes `bytes` bytes from `offset` on read as zeroes, without moving zeroes where the device can do that: whole
    /// blocks ([`Facts::block_bytes`]) on every path.
    pub fn write_zeroes(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        self.command(Op::WriteZeroes, offset, bytes)
    }

    /// Many I/Os in flight from the calling thread.
    pub fn batch(&self, options: &BatchOptions) -> Result<Batch, OpenError> {
        Batch::new(self.clone(), &self.shared.source, options)
    }

    fn write(&self, buffer: &[u8], offset: u64, fua: bool) -> Result<(), Error> {
        match (self.way(offset, buffer), &self.shared.bounce) {
            (Way::Direct, None) => self.write_direct(buffer, offset, fua),
            (Way::Direct, Some(bounce)) => self.write_beside_bounced(bounce, buffer, offset, fua),
            (Way::Cached(cache), _) => self.write_cached(cache, buffer, offset, fua),
            (Way::Bounced(bounce), _) => self.write_bounced(bounce, buffer, offset, fua),
        }
    }

    pub(crate) fn write_direct(&self, buffer: &[u8], offset: u64, fua: bool) -> Result<(), Error> {
        let extent = self.writable(Op::Write, offset, buffer.len() as u64)?;
        if extent.is_empty() {
            return Ok(());
        }
        self.check_memory(Op::Write, buffer.as_ptr().addr(), offset, buffer.len() as u64)?;
        // Beside a page cache the cache flushes the device, and nothing else may.
        let is_cached = self.shared.cache.is_some();
        let beside =
            self.run_beside(Op::Write, extent, |runner| runner.write(extent, buffer, fua && !is_cached))?;
        match beside.filter(|_| fua) {
            Some(beside) => beside
                .end_forced()
                .map_err(|error| self.uncached(Op::Write, extent.offset(), extent.bytes(), error)),
            None => Ok(()),
        }
    }

    /// Writes blocks that begin in the volume, and of which the last may end behind it.
    pub(crate) fn write_blocks(&self, blocks: &[u8], offset: u64) -> Result<(), Error> {
        let extent = self.whole_blocks(Op::Write, offset, blocks.len() as u64)?;
        if extent.is_empty() {
            return Ok(());
        }
        self.run(Op::Write, extent, |runner| runner.write(extent, blocks, false))
    }

    fn command(&self, op: Op, offset: u64, bytes: u64) -> Result<(), Error> {
        let extent = self.writable(op, offset, bytes)?;
        if extent.is_empty() {
            return Ok(());
        }
        self.run(op, extent, |runner| runner.command(op, extent))
    }

    fn run(
        &self,
        op: Op,
        extent: Extent,
        act: impl FnOnce(&mut Runner<dyn RealDevice + Send>) -> Result<(), RunError>,
    ) -> Result<(), Error> {
        self.run_beside(op, extent, act).map(drop)
    }

    /// Carries an I/O out on the calling thread's queue. It has completed for the page cache, if there is one, when the
    /// result is dropped.
    fn run_beside(
        &self,
        op: Op,
        extent: Extent,
        act: impl FnOnce(&mut Runner<dyn RealDevice + Send>) -> Result<(), RunError>,
    ) -> Result<Option<Beside<'_>>, Error> {
        let make = || Ok(self.shared.source.shared_runner()?.runner);
        let beside = self.beside_cache(op, extent)?;
        let ran = self
            .shared
            .shards
            .with(make, |shard| {
                // The end may have moved since the range was checked, and stays where it is while a shard is in use: a
                // write of the last block must not make the file longer again.
                if op.is_write() && !self.source().writes_last_block() {
                    self.check_within(op, extent.offset(), extent.bytes())?;
                }
                Ok::<_, Error>(act(shard.runner(self.tuning()).set_capacity(self.sectors())))
            })
            .map_err(|error| {
                let error = Cause::Open(Box::new(error));
                self.error(ErrorKind::Thread).of_range(op, extent.offset(), extent.bytes()).because(error)
            })??;
        match ran {
            Ok(()) => Ok(beside),
            Err(RunError::Io(source)) => Err(self.failed(op, extent, source)),
            Err(RunError::Refused(error)) => Err(self.refused(&error)),
        }
    }

    /// Which way a read or write of `memory` at `offset` takes.
    fn way(&self, offset: u64, memory: &[u8]) -> Way<'_> {
        let Shared { source, facts, cache, bounce, .. } = &*self.shared;
        let fits = |number: u64, align_bytes: u32| number.is_multiple_of(u64::from(align_bytes));
        let fits_all = fits(offset | memory.len() as u64, facts.block_bytes)
            && fits(memory.as_ptr().addr() as u64, facts.memory_align_bytes);
        match (cache, bounce) {
            (Some(cache), _) if source.options.mode == IoMode::Buffered || !fits_all => Way::Cached(cache),
            (_, Some(bounce)) if !fits_all => Way::Bounced(bounce),
            _ => Way::Direct,
        }
    }

    pub(crate) fn backing(&self) -> &Backing {
        &self.shared.source.backing
    }

    pub(crate) fn source(&self) -> &Source {
        &self.shared.source
    }

    /// Whether a read may end with the volume rather than with its range.
    pub(crate) fn cuts_off_at_end(&self) -> bool {
        self.shared.source.cuts_off_at_end()
    }

    pub(crate) fn cache_if_any(&self) -> Option<&Buffered> {
        self.shared.cache.as_ref()
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.shared.source.options.write
    }

    pub(crate) fn tuning(&self) -> &Tuning {
        &self.shared.source.tuning
    }

    /// An error of this volume; the caller adds the range.
    #[cold]
    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, &self.facts().path)
    }

    /// The error of an I/O that the device failed.
    pub(crate) fn failed(&self, op: Op, extent: Extent, source: IoError) -> Error {
        self.io_error(op, extent.offset(), extent.bytes(), source)
    }

    pub(crate) fn io_error(&self, op: Op, offset: u64, bytes: u64, source: IoError) -> Error {
        self.error(ErrorKind::Io(source)).of_range(op, offset, bytes)
    }

    /// The error of an I/O that the queue did not take although it passed the checks here.
    pub(crate) fn refused<M>(&self, error: &SubmitError<M>) -> Error {
        let (kind, bio) = match error {
            SubmitError::Unsupported(bio) => (ErrorKind::Unsupported, bio),
            SubmitError::OutOfRange { bio, .. } => {
                (ErrorKind::PastEnd { size_bytes: self.size_bytes() }, bio)
            }
            SubmitError::QueueFull(bio) => {
                (ErrorKind::BatchFull { depth: self.shared.source.options.depth }, bio)
            }
            SubmitError::Unaligned { bio, .. } => {
                (ErrorKind::Unaligned { align_bytes: self.facts().block_bytes }, bio)
            }
            SubmitError::MemoryMismatch { bio, memory_bytes } => {
                (ErrorKind::BufferTooSmall { buffer_bytes: *memory_bytes }, bio)
            }
        };
        self.error(kind).of_range(bio.op, bio.extent.offset(), bio.extent.bytes())
    }

    /// The extent of a read and how many bytes of it there are.
    pub(crate) fn readable(&self, offset: u64, bytes: u64) -> Result<(Extent, u64), Error> {
        let size = self.size_bytes();
        let extent = self.whole_blocks(Op::Read, offset, bytes)?;
        let end = extent.offset() + extent.bytes();
        if end <= size {
            return Ok((extent, bytes));
        }
        if !self.cuts_off_at_end() {
            return Err(self.past_end(Op::Read, offset, bytes));
        }
        let block = u64::from(self.facts().block_bytes);
        let there = size.saturating_sub(offset);
        let extent = Extent::from_bytes(offset, there.next_multiple_of(block));
        Ok((extent.ok_or_else(|| self.past_end(Op::Read, offset, bytes))?, there))
    }

    /// The extent of a write, discard or write-zeroes.
    pub(crate) fn writable(&self, op: Op, offset: u64, bytes: u64) -> Result<Extent, Error> {
        self.check_writable(op, offset, bytes)?;
        let extent = self.whole_blocks(op, offset, bytes)?;
        self.check_within(op, offset, bytes)?;
        Ok(extent)
    }

    pub(crate) fn check_within(&self, op: Op, offset: u64, bytes: u64) -> Result<(), Error> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.size_bytes() => Ok(()),
            _ => Err(self.past_end(op, offset, bytes)),
        }
    }

    pub(crate) fn check_writable(&self, op: Op, offset: u64, bytes: u64) -> Result<(), Error> {
        if self.shared.source.options.write {
            return Ok(());
        }
        Err(self.error(ErrorKind::ReadOnly).of_range(op, offset, bytes))
    }

    fn whole_blocks(&self, op: Op, offset: u64, bytes: u64) -> Result<Extent, Error> {
        let block = u64::from(self.facts().block_bytes);
        if !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(self.unaligned(op, offset, bytes));
        }
        let in_range = offset.checked_add(bytes).is_some();
        let extent = Extent::from_bytes(offset, bytes).filter(|_| in_range);
        extent.ok_or_else(|| self.past_end(op, offset, bytes))
    }

    fn check_memory(&self, op: Op, address: usize, offset: u64, bytes: u64) -> Result<(), Error> {
        let align_bytes = self.facts().memory_align_bytes;
        if address.is_multiple_of(align_bytes as usize) {
            return Ok(());
        }
        Err(self.error(ErrorKind::UnalignedMemory { align_bytes }).of_range(op, offset, bytes))
    }

    fn unaligned(&self, op: Op, offset: u64, bytes: u64) -> Error {
        let align_bytes = self.facts().block_bytes;
        self.error(ErrorKind::Unaligned { align_bytes }).of_range(op, offset, bytes)
    }

    fn past_end(&self, op: Op, offset: u64, bytes: u64) -> Error {
        let size_bytes = self.size_bytes();
        self.error(ErrorKind::PastEnd { size_bytes }).of_range(op, offset, bytes)
    }
}
