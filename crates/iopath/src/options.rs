//! The options of a volume. Plain data: `storage.rs` and the sources apply them.

use crate::context::Context;
use crate::error::OpenError;
use iopath_core::elevator::ElevatorSpec;
#[cfg(feature = "mapped")]
use iopath_core::mapper::Boundary;
#[cfg(feature = "testing")]
use iopath_os::Timing;
use iopath_os::{Engine, Faults, WriteBackError};
use std::fmt;
use std::sync::Arc;

/// A multiple of every block and page of a buffered volume: the unit of [`Options::extend_step`].
const EXTEND_UNIT_BYTES: u64 = 64 << 10;

/// The largest step, so that no file length overflows.
const EXTEND_STEP_MAX_BYTES: u64 = 1 << 40;

/// The path of reads and writes to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum IoMode {
    /// Direct I/O (`O_DIRECT`), with the semantics of a file: a read ends at the end of the file, and a write past the
    /// end fails or extends it ([`Options::extend`]).
    #[default]
    Direct,
    /// Direct I/O, with the semantics of a device: whole blocks, the whole range or an error.
    Raw,
    /// Through a page cache of the volume, with readahead and write-back, instead of the kernel's: any offset, length
    /// and memory.
    Buffered,
}

/// The treatment of direct I/O with unaligned offset, length or memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Unaligned {
    /// Refuse it, with an error that has the offset, the length and the alignment.
    #[default]
    Refuse,
    /// Copy through an aligned buffer. A write of a part of a block reads the block first. Writes that share a block
    /// wait for each other. For rare odd bytes: each such write costs a read and a write of its block at once, where
    /// [`Unaligned::Buffered`] collects writes until a flush. A database that writes pages or records smaller than a
    /// block with it is tens of times slower.
    Bounce,
    /// Use a page cache. It opens at the first I/O of the volume, or with the volume if that is the first one on a
    /// filesystem, or no regular file.
    Buffered,
}

/// The readahead of the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Readahead {
    /// The cache measures the throughput of the device, and extends the window while that improves the throughput.
    #[default]
    Auto,
    /// No readahead.
    Off,
    /// At most this many bytes.
    Bytes(u64),
    /// The windows of the Linux kernel's readahead, of at most this many bytes (`read_ahead_kb`), for comparison. The
    /// volume has one state for all readers.
    Linux(u64),
}

/// The options of a [`Volume`](crate::Volume). Unless set: read-only, direct, the best engine of the system.
///
/// ```
/// let options = iopath::Options::new().write(true).depth(64).elevator("ascend");
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each set by its name")]
pub struct Options {
    pub(crate) mode: IoMode,
    pub(crate) write: bool,
    pub(crate) extend: bool,
    pub(crate) extend_step_bytes: u64,
    pub(crate) overwrite: bool,
    pub(crate) claim: bool,
    pub(crate) lock: bool,
    pub(crate) second_cache: bool,
    pub(crate) create_bytes: Option<u64>,
    pub(crate) create_new: bool,
    pub(crate) file_mode: u32,
    pub(crate) engine: Engine,
    #[cfg(feature = "elevator")]
    pub(crate) elevator: iopath_core::debug::Text<String>,
    pub(crate) depth: u32,
    pub(crate) device_depth: Option<u32>,
    pub(crate) request_bytes_max: Option<u64>,
    pub(crate) unaligned: Unaligned,
    pub(crate) cache_bytes: u64,
    pub(crate) page_bytes: Option<u32>,
    pub(crate) context: Option<Context>,
    pub(crate) readahead: Readahead,
    #[cfg(feature = "mapped")]
    pub(crate) boundary: Boundary,
    pub(crate) faults: Option<Faults>,
    #[cfg(feature = "testing")]
    pub(crate) timing: Option<Timing>,
    pub(crate) on_write_error: Option<OnWriteError>,
}

/// The receiver of errors of write-back.
#[derive(Clone)]
pub(crate) struct OnWriteError(pub(crate) Arc<dyn Fn(&WriteBackError) + Send + Sync>);

impl fmt::Debug for OnWriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnWriteError").finish_non_exhaustive()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: IoMode::Direct,
            write: false,
            extend: false,
            extend_step_bytes: 1 << 20,
            overwrite: false,
            claim: true,
            lock: false,
            second_cache: false,
            create_bytes: None,
            create_new: false,
            file_mode: 0o666,
            engine: Engine::Auto,
            #[cfg(feature = "elevator")]
            elevator: iopath_core::debug::Text("none".to_owned()),
            depth: 32,
            device_depth: None,
            request_bytes_max: None,
            unaligned: Unaligned::Refuse,
            cache_bytes: 256 << 20,
            page_bytes: None,
            context: None,
            readahead: Readahead::Auto,
            #[cfg(feature = "mapped")]
            boundary: Boundary::Once,
            faults: None,
            #[cfg(feature = "testing")]
            timing: None,
            on_write_error: None,
        }
    }
}

impl Options {
    /// Read-only, direct, engine `auto`, elevator `none`, 32 requests in flight at the device.
    pub fn new() -> Self {
        Self::default()
    }

    /// The path of reads and writes: [`IoMode::Direct`] unless set.
    #[must_use]
    pub const fn mode(mut self, mode: IoMode) -> Self {
        self.mode = mode;
        self
    }

    /// Allows writes, flushes and discards. Opening fails for a block device that is mounted, used for swap, held by
    /// another device, or carries a recognised signature.
    #[must_use]
    pub const fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Lets writes extend a file, a mapped file or a disk in memory, like writes to a [`std::fs::File`]. Without it, a
    /// write past the end fails. Implies [`Options::write`].
    ///
    /// Applies to [`Volume::write_at`](crate::Volume::write_at) and the methods that use it, on direct and buffered
    /// volumes. Does not apply to raw volumes and to batches: call [`Volume::resize`](crate::Volume::resize) first. A
    /// gap between the old end and the write reads as zeroes. A concurrent read may see zeroes in the new bytes until
    /// the write returns. A write that fails at the device may still extend the volume: added bytes that were not
    /// written read as zeroes.
    ///
    /// A buffered volume writes small appends (64 KiB at most) to its file at once, through the kernel's page cache,
    /// until those since the last flush exceed a step ([`Options::extend_step`]). So a flush after such appends costs
    /// as much as with a [`std::fs::File`], and the file ends with the volume. Further appends go to the page cache of
    /// the volume, and the file grows in steps. [`Volume::flush`](crate::Volume::flush), closing and dropping the
    /// volume then truncate the file to the size of the volume. After a crash of the program or a power failure, the
    /// file may therefore end with extra zeroes. Flushed appends are complete.
    ///
    /// If another handle or process has made the file longer meanwhile, the volume leaves the length of the file as it
    /// is. Two handles must not extend one file at the same time. While one handle has unflushed appends, writes of the
    /// other inside the same step do not change the length of the file. A flush of the first handle then truncates
    /// these writes.
    ///
    /// A flush or a write that extends may resize the file. Before either, reap every [`Batch`](crate::Batch) write to
    /// the last page, as for [`Volume::resize`](crate::Volume::resize).
    #[must_use]
    pub const fn extend(mut self, extend: bool) -> Self {
        self.extend = extend;
        self.write |= extend;
        self
    }

    /// The step in which a buffered volume extends its file ([`Options::extend`]), in bytes: 1 MiB unless set; rounded
    /// up to a multiple of 64 KiB. The file grows in steps after small appends of one step without a flush, or at the
    /// first large append. A larger step saves resizes of the file, a smaller one zeroes at its end after a crash.
    #[must_use]
    pub const fn extend_step(mut self, bytes: u64) -> Self {
        let units = bytes.div_ceil(EXTEND_UNIT_BYTES);
        let max = EXTEND_STEP_MAX_BYTES / EXTEND_UNIT_BYTES;
        let units = if units == 0 { 1 } else { units };
        self.extend_step_bytes = if units > max { max } else { units } * EXTEND_UNIT_BYTES;
        self
    }

    /// Allows writes to a block device with a recognised signature, such as that of a filesystem. The writes destroy
    /// its content. A device in use is still refused.
    #[must_use]
    pub const fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Whether to claim a block device that is opened for writing, so that it cannot be mounted meanwhile: `true`
    /// unless set. A program that sets `false` must claim and check the device itself.
    #[must_use]
    pub const fn claim(mut self, claim: bool) -> Self {
        self.claim = claim;
        self
    }

    /// Locks the file or device against other programs while the volume is open: exclusively with [`Options::write`],
    /// else shared with other readers. Opening fails if another program, or another volume of this one, has a
    /// conflicting lock. The lock is advisory (`F_OFD_SETLK` of fcntl(2)): programs that do not lock are not stopped.
    /// QEMU locks its images. A filesystem without locks, and an export of a server, are not locked. `false` unless
    /// set. An open volume is locked with [`Volume::try_lock`](crate::Volume::try_lock).
    #[must_use]
    pub const fn lock(mut self, lock: bool) -> Self {
        self.lock = lock;
        self
    }

    /// Permits a second page cache on a file that another volume of this process writes through a page cache. Without
    /// it, such an open fails with [`OpenError::SecondCache`](crate::OpenError::SecondCache): neither cache sees the
    /// writes of the other, and the write-back of a page also writes its old bytes, so that flushed bytes disappear.
    /// With it, the program must keep both away from each other's pages. `false` unless set.
    ///
    /// Hard links and other paths of the file are recognised, and the members of stripes; disks in memory, exports and
    /// mapped files are not. A clone of a volume, and a batch of it, use its cache. A volume is open until its last
    /// clone, batch and future is dropped.
    #[must_use]
    pub const fn second_cache(mut self, second_cache: bool) -> Self {
        self.second_cache = second_cache;
        self
    }

    /// Creates the file if it does not exist, and extends it with a hole to `bytes` bytes if it is shorter. Implies
    /// [`Options::write`].
    #[must_use]
    pub const fn create(mut self, bytes: u64) -> Self {
        self.create_bytes = Some(bytes);
        self.write = true;
        self
    }

    /// Creates the file with `bytes` bytes, as [`Options::create`] does, and fails if it exists already.
    #[must_use]
    pub const fn create_new(mut self, bytes: u64) -> Self {
        self = self.create(bytes);
        self.create_new = true;
        self
    }

    /// The permissions of a file that is created, from which the system removes those of the process's umask: `0o666`
    /// unless set, as for [`std::fs::File`].
    #[must_use]
    pub const fn file_mode(mut self, mode: u32) -> Self {
        self.file_mode = mode;
        self
    }

    /// The engine: `io_uring`, threads, or the best of the system.
    #[must_use]
    pub const fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// The I/O scheduler (elevator), which orders requests for the device: a name from
    /// [`ELEVATORS`](crate::elevator::ELEVATORS), optionally with settings, as in `deadline:read_expire_ms=100`.
    #[must_use]
    #[cfg(feature = "elevator")]
    pub fn elevator(mut self, spec: impl Into<String>) -> Self {
        self.elevator = iopath_core::debug::Text(spec.into());
        self
    }

    /// With elevator `none`: the maximum number of requests in flight at the device, for each thread or batch. With any
    /// other elevator, see [`Options::device_depth`].
    #[must_use]
    pub const fn depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// The maximum number of requests in flight at the device of a queue that threads share. This is the queue of the
    /// page cache, and, with an elevator other than `none`, the queue of all threads and batches. Further requests wait
    /// in the elevator, which orders them. Default for the page cache: [`Options::depth`]; otherwise `queue_depth` or
    /// `nr_requests` of the disk in sysfs, or 32. With `none` and without a page cache, no queue is shared, and only
    /// [`Options::depth`] applies.
    #[must_use]
    pub const fn device_depth(mut self, requests: u32) -> Self {
        self.device_depth = Some(requests);
        self
    }

    /// The maximum length of a request in bytes; longer I/O is split. The default depends on the device.
    #[must_use]
    pub const fn request_bytes_max(mut self, bytes: u64) -> Self {
        self.request_bytes_max = Some(bytes);
        self
    }

    /// `false` selects [`IoMode::Buffered`], `true` [`IoMode::Direct`]: one switch for a program that offers both.
    #[must_use]
    pub const fn direct(mut self, direct: bool) -> Self {
        self.mode = if direct { IoMode::Direct } else { IoMode::Buffered };
        self
    }

    /// The treatment of unaligned direct I/O: refused unless set.
    #[must_use]
    pub const fn unaligned(mut self, unaligned: Unaligned) -> Self {
        self.unaligned = unaligned;
        self
    }

    /// The memory of the page cache, if there is one: 256 MiB unless set. In a context ([`Options::context`]), the
    /// maximum.
    #[must_use]
    pub const fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// The page cache shares the memory of the context with the caches of other volumes.
    ///
    /// Each cache may use all of it, up to [`Options::cache_bytes`]. No ring registers the memory of such a cache,
    /// because parts of it are released while the volume is open.
    #[must_use]
    pub fn context(mut self, context: &Context) -> Self {
        self.context = Some(context.clone());
        self
    }

    /// The page size of the cache: a power of two from 4 KiB to 64 KiB, and at least a block of the target
    /// ([`Facts::block_bytes`](crate::Facts::block_bytes)). Unless set, the smallest of these. Large pages lower the
    /// CPU cost of large reads and writes; for small reads, they transfer more than requested.
    #[must_use]
    pub const fn page_bytes(mut self, bytes: u32) -> Self {
        self.page_bytes = Some(bytes);
        self
    }

    /// The readahead of the page cache.
    #[must_use]
    pub const fn readahead(mut self, readahead: Readahead) -> Self {
        self.readahead = readahead;
        self
    }

    /// The treatment of the boundary flag of a mapping, in mapped files
    /// ([`Volume::open_mapped`](crate::Volume::open_mapped)): once per mapping unless set.
    #[must_use]
    #[cfg(feature = "mapped")]
    pub const fn boundary(mut self, boundary: Boundary) -> Self {
        self.boundary = boundary;
        self
    }

    /// The elevator.
    #[cfg(feature = "elevator")]
    pub(crate) fn elevator_spec(&self) -> Result<ElevatorSpec, OpenError> {
        Ok(self.elevator.0.parse()?)
    }

    /// The elevator: `none`.
    #[cfg(not(feature = "elevator"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with elevators")]
    pub(crate) fn elevator_spec(&self) -> Result<ElevatorSpec, OpenError> {
        Ok(ElevatorSpec::default())
    }

    /// Whether there is a page cache.
    pub(crate) fn is_cached(&self) -> bool {
        self.mode == IoMode::Buffered || self.unaligned == Unaligned::Buffered
    }

    /// Faults to inject at the device: for tests of programs.
    ///
    /// ```
    /// use iopath::{IoError, Op, Options, Volume};
    /// use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
    ///
    /// let faults = Faults::new(1);
    /// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
    /// let volume = Volume::memory(&disk, &Options::new().write(true).faults(&faults))?;
    /// faults.add(Fault::error(IoError::NoSpace).on(Op::Write).times(1));
    /// assert!(volume.write_at(&[1; 4096], 0).is_err());
    /// assert!(volume.write_at(&[1; 4096], 0).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    #[cfg(feature = "testing")]
    pub fn faults(mut self, faults: &Faults) -> Self {
        self.faults = Some(faults.clone());
        self
    }

    /// Calls `report` when the page cache cannot write bytes back, or the device fails to flush: a program learns of it
    /// before its next [`Volume::flush`](crate::Volume::flush). For logs and alarms: the flush fails in any case, and
    /// the pages stay dirty. Without a page cache it is never called, because each write returns its error.
    ///
    /// | contract | |
    /// |---|---|
    /// | thread | one that writes back in the background, that flushes, or that drops the volume; also several |
    /// | locks | none is held |
    /// | repetition | a range that fails again is reported again; failures between two reports are one report |
    /// | not reported | errors of reads and of readahead, of direct I/O, and of a volume that was abandoned |
    /// | duties | it returns soon, since write-back waits for it; it uses no handle of the volume, and has none |
    /// | panic | ignored, after the panic hook of the program |
    ///
    /// ```
    /// use iopath::{IoError, IoMode, Op, Options, Volume};
    /// use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
    ///
    /// let faults = Faults::new(1);
    /// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
    /// let (sender, errors) = std::sync::mpsc::channel();
    /// let options = Options::new().write(true).mode(IoMode::Buffered).faults(&faults);
    /// let options = options.on_write_error(move |error| drop(sender.send(error.clone())));
    /// let volume = Volume::memory(&disk, &options)?;
    /// faults.add(Fault::error(IoError::NoSpace).on(Op::Write));
    /// volume.write_at(b"some bytes", 5000)?;
    /// volume.flush().unwrap_err();
    /// let error = errors.recv()?;
    /// assert_eq!((error.range, error.error), (4096..8192, IoError::NoSpace));
    /// # faults.stop();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn on_write_error(mut self, report: impl Fn(&WriteBackError) + Send + Sync + 'static) -> Self {
        self.on_write_error = Some(OnWriteError(Arc::new(report)));
        self
    }

    /// The times of a modelled device, for a disk in memory: each request completes when the model completes it. Other
    /// sources ignore it.
    #[must_use]
    #[cfg(feature = "testing")]
    pub fn timing(mut self, timing: &Timing) -> Self {
        self.timing = Some(timing.clone());
        self
    }
}
