//! The options of a volume. Plain data: `source.rs` applies them.

use iopath_core::mapper::Boundary;
use iopath_os::{Engine, Faults};

/// The way of reads and writes to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoMode {
    /// Direct I/O (`O_DIRECT`), with the semantics of a file: a read ends at the end of the file, and a write past the end
    /// fails or extends it ([`Options::extend`]).
    #[default]
    Direct,
    /// Direct I/O, with the semantics of a device: whole blocks, all of the range or an error.
    Raw,
    /// Through a page cache of the volume, with readahead and write-back, instead of the kernel's: any offset, length and
    /// memory.
    Buffered,
}

/// The treatment of direct I/O with unaligned offset, length or memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unaligned {
    /// Refuse it with an error that names the numbers.
    #[default]
    Refuse,
    /// Copy it through an aligned buffer. A block that is written in part is read first. Writes that share a block wait for
    /// each other.
    Bounce,
    /// Do it through a page cache, which the volume then has.
    Buffered,
}

/// How far ahead the page cache reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Readahead {
    /// As far as it improves the throughput of the device, which the cache measures.
    #[default]
    Auto,
    /// No readahead.
    Off,
    /// At most this many bytes.
    Bytes(u64),
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
    pub(crate) overwrite: bool,
    pub(crate) claim: bool,
    pub(crate) create_bytes: Option<u64>,
    pub(crate) engine: Engine,
    pub(crate) elevator: String,
    pub(crate) depth: u32,
    pub(crate) device_depth: Option<u32>,
    pub(crate) request_bytes_max: Option<u64>,
    pub(crate) unaligned: Unaligned,
    pub(crate) cache_bytes: u64,
    pub(crate) page_bytes: u32,
    pub(crate) readahead: Readahead,
    pub(crate) boundary: Boundary,
    pub(crate) faults: Option<Faults>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: IoMode::Direct,
            write: false,
            extend: false,
            overwrite: false,
            claim: true,
            create_bytes: None,
            engine: Engine::Auto,
            elevator: "none".to_owned(),
            depth: 32,
            device_depth: None,
            request_bytes_max: None,
            unaligned: Unaligned::Refuse,
            cache_bytes: 256 << 20,
            page_bytes: 4096,
            readahead: Readahead::Auto,
            boundary: Boundary::Once,
            faults: None,
        }
    }
}

impl Options {
    /// Read-only, direct, engine `auto`, elevator `none`, 32 requests in flight at the device.
    pub fn new() -> Self {
        Self::default()
    }

    /// The way of reads and writes: [`IoMode::Direct`] unless set.
    #[must_use]
    pub const fn mode(mut self, mode: IoMode) -> Self {
        self.mode = mode;
        self
    }

    /// Allows writes, flushes and discards. Opening fails for a block device that is mounted, used for swap, held by another
    /// device, or carries a recognised signature.
    #[must_use]
    pub const fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Lets writes extend a file, a mapped file or a disk in memory, as those of [`std::fs::File`] do. A write past the end
    /// fails otherwise. Implies [`Options::write`].
    ///
    /// It holds for [`Volume::write_at`](crate::Volume::write_at) and all that builds on it, on direct and buffered volumes;
    /// not on raw volumes, nor for batches: [`Volume::resize`](crate::Volume::resize) first. A gap between the old end and the
    /// write reads as zeroes. A concurrent read may see zeroes in the new bytes until the write returns. A write that
    /// fails at the device may extend the volume nevertheless: added bytes that were not written read as zeroes.
    ///
    /// On a buffered volume the file is extended in steps of 1 MiB, so that appends are as cheap as those to a file of the
    /// kernel. [`Volume::flush`](crate::Volume::flush), closing and dropping the volume cut it to its size. After a crash of
    /// the program or a power failure the file may therefore be longer than what was written: the rest is zeroes. Appends
    /// that were flushed are whole, in a file that was as long as the volume at that time.
    ///
    /// Such a flush, and a write that extends, may resize the file. Reap every [`Batch`](crate::Batch) write to its last page
    /// before, as for [`Volume::resize`](crate::Volume::resize).
    #[must_use]
    pub const fn extend(mut self, extend: bool) -> Self {
        self.extend = extend;
        self.write |= extend;
        self
    }

    /// Allows writes to a block device with a recognised signature, such as that of a filesystem, which they destroy. A device
    /// in use is still refused.
    #[must_use]
    pub const fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Whether to claim a block device that is opened for writing, so that it cannot be mounted meanwhile: yes unless set. A
    /// program that has already claimed and checked the device sets `false`, and is responsible for both.
    #[must_use]
    pub const fn claim(mut self, claim: bool) -> Self {
        self.claim = claim;
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

    /// The engine: `io_uring`, threads, or the best of the system.
    #[must_use]
    pub const fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// The I/O scheduler (elevator), which orders requests for the device: a name from [`ELEVATORS`](crate::ELEVATORS),
    /// optionally with settings, as in `deadline:read_expire_ms=100`.
    #[must_use]
    pub fn elevator(mut self, spec: impl Into<String>) -> Self {
        self.elevator = spec.into();
        self
    }

    /// With elevator `none`: the most requests in flight at the device, for each thread or batch. With any other, see
    /// [`Options::device_depth`].
    #[must_use]
    pub const fn depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// With an elevator other than `none`: the most requests at the device at once, for all threads and batches
    /// together. The elevator orders the requests beyond, so it has nothing to order while the callers have fewer in
    /// flight. Unless set, as many as the disk says that it takes (`queue_depth` or `nr_requests` in sysfs), or 32.
    #[must_use]
    pub const fn device_depth(mut self, requests: u32) -> Self {
        self.device_depth = Some(requests);
        self
    }

    /// The most bytes of one request; longer I/O is split. The default follows the device.
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

    /// The memory of the page cache, if there is one: 256 MiB unless set.
    #[must_use]
    pub const fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// The page size of the cache: a power of two from 4 KiB to 64 KiB, 4 KiB unless set. Large pages have a lower CPU cost
    /// per byte of large reads and writes, and read more than requested for small ones.
    #[must_use]
    pub const fn page_bytes(mut self, bytes: u32) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// How far ahead the page cache reads.
    #[must_use]
    pub const fn readahead(mut self, readahead: Readahead) -> Self {
        self.readahead = readahead;
        self
    }

    /// How mapped files ([`Volume::open_mapped`](crate::Volume::open_mapped)) treat the boundary flag of a mapping: once per
    /// mapping unless set.
    #[must_use]
    pub const fn boundary(mut self, boundary: Boundary) -> Self {
        self.boundary = boundary;
        self
    }

    /// Whether there is a page cache.
    pub(crate) fn is_cached(&self) -> bool {
        self.mode == IoMode::Buffered || self.unaligned == Unaligned::Buffered
    }

    /// Faults to inject at the device: for tests of programs.
    ///
    /// ```
    /// use iopath::{Fault, Faults, IoError, MemoryConfig, MemoryDisk, Op, Options, Volume};
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
    pub fn faults(mut self, faults: &Faults) -> Self {
        self.faults = Some(faults.clone());
        self
    }
}
