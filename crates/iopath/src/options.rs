//! How a volume is opened. Plain data: what is done with it is in `open.rs`.

use iopath_core::mapper::Boundary;
use iopath_os::{Engine, Faults};

/// Which way I/O goes to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoMode {
    /// Past the kernel's page cache (`O_DIRECT`), with the semantics of a file: a read is cut off at the end, a
    /// write past it is refused.
    #[default]
    Direct,
    /// Past the kernel's page cache, as a device: whole logical blocks, all of them or an error.
    Raw,
    /// Past the kernel's page cache, through one of the volume's own: any offset, length and memory, with readahead
    /// and write-back.
    Buffered,
}

/// What becomes of direct I/O whose offset, length or memory does not fit the alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unaligned {
    /// It is refused, with an error that names the numbers.
    #[default]
    Refuse,
    /// It goes through an aligned buffer: a block that is written in part is read before. Writes of one volume that
    /// share a block then wait for each other.
    Bounce,
    /// It goes through a page cache, which the volume then has.
    Buffered,
}

/// How far the buffered path reads ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Readahead {
    /// As far as makes the device faster, found by measuring.
    #[default]
    Auto,
    /// Not at all.
    Off,
    /// Up to so many bytes.
    Bytes(u64),
}

/// How to open a [`Volume`](crate::Volume): read-only, direct, with the engine that the system allows,
/// unless asked otherwise.
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
    /// Read-only, direct, engine and elevator `auto` and `none`, 32 requests at the device.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which way I/O goes to the target.
    #[must_use]
    pub const fn mode(mut self, mode: IoMode) -> Self {
        self.mode = mode;
        self
    }

    /// Allows writes, flushes and discards. A block device that is mounted, used for swap, held by another
    /// device or carries a recognised signature is refused.
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
    /// write reads as zeroes. A concurrent read may see zeroes in the new bytes until the write returns. A write that fails
    /// does not extend.
    ///
    /// On a buffered volume the file is extended in steps of 1 MiB, so that appends are as cheap as those to a file of the
    /// kernel. [`Volume::flush`](crate::Volume::flush), closing and dropping the volume cut it to its size. After a crash of
    /// the program or a power failure the file may therefore be longer than what was written: the rest is zeroes. Appends
    /// that were flushed are whole, in a file that was as long as the volume at that time.
    #[must_use]
    pub const fn extend(mut self, extend: bool) -> Self {
        self.extend = extend;
        self.write |= extend;
        self
    }

    /// Allows writing to a block device that carries a recognised signature (a filesystem, say), and so
    /// destroying it. One that is in use stays refused.
    #[must_use]
    pub const fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Whether to claim a block device that is opened for writing, so that nobody can mount it meanwhile (the
    /// default). A program that has claimed and checked it already says no, and answers for it.
    #[must_use]
    pub const fn claim(mut self, claim: bool) -> Self {
        self.claim = claim;
        self
    }

    /// Makes the file if there is none, and extends it with a hole to `bytes` bytes if it is shorter.
    /// Implies [`Options::write`].
    #[must_use]
    pub const fn create(mut self, bytes: u64) -> Self {
        self.create_bytes = Some(bytes);
        self.write = true;
        self
    }

    /// How I/O is carried out: `io_uring`, threads, or what the system allows.
    #[must_use]
    pub const fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// In which order requests go to the device: a name from [`ELEVATORS`](crate::ELEVATORS), with settings if
    /// need be, as in `deadline:read_expire_ms=100`.
    #[must_use]
    pub fn elevator(mut self, spec: impl Into<String>) -> Self {
        self.elevator = spec.into();
        self
    }

    /// The most requests at the device at once, for each thread or batch.
    #[must_use]
    pub const fn depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// The most bytes of one request; longer I/O is split. The default follows the device.
    #[must_use]
    pub const fn request_bytes_max(mut self, bytes: u64) -> Self {
        self.request_bytes_max = Some(bytes);
        self
    }

    /// `false` switches the program to buffered I/O without another change; `true` back to direct.
    #[must_use]
    pub const fn direct(mut self, direct: bool) -> Self {
        self.mode = if direct { IoMode::Direct } else { IoMode::Buffered };
        self
    }

    /// What becomes of direct I/O that does not fit the alignment: refused unless asked otherwise.
    #[must_use]
    pub const fn unaligned(mut self, unaligned: Unaligned) -> Self {
        self.unaligned = unaligned;
        self
    }

    /// How much memory the page cache takes, if there is one: 256 MiB unless set.
    #[must_use]
    pub const fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// The size of its pages: a power of two from 4 KiB, unless set, to 64 KiB. Large ones cost less for each byte of
    /// large reads and writes, and read more than was asked for where those are small.
    #[must_use]
    pub const fn page_bytes(mut self, bytes: u32) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// How far it reads ahead.
    #[must_use]
    pub const fn readahead(mut self, readahead: Readahead) -> Self {
        self.readahead = readahead;
        self
    }

    /// What becomes of the boundary flag of a mapping, for volumes that are mapped files
    /// ([`Volume::open_mapped`](crate::Volume::open_mapped)): heeded once a mapping unless set.
    #[must_use]
    pub const fn boundary(mut self, boundary: Boundary) -> Self {
        self.boundary = boundary;
        self
    }

    /// Whether there is a page cache.
    pub(crate) fn is_cached(&self) -> bool {
        self.mode == IoMode::Buffered || self.unaligned == Unaligned::Buffered
    }
    /// What is to go wrong at the device, file or memory: for tests of what a program does then.
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
