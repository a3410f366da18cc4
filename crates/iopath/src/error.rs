//! The errors of this crate: [`OpenError`] from opening, [`Error`] from I/O. Each message names the object, the value
//! and the remedy. Does not translate error numbers of the kernel: see `errno.rs` of `iopath-os`.

use iopath_core::{IoError, Op, debug};
use iopath_os::target::{DioError, Refusal, TargetError};
use iopath_os::{EngineError, NoMemory, WaitError};
use rustix::io::Errno;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a volume could not be opened.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The target could not be inspected; it may be missing.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The target does not support direct I/O.
    #[error(transparent)]
    Direct(#[from] DioError),
    /// The target is in use, or writing would destroy existing data.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The limits of a source of the program cannot be used.
    #[error("{} has limits that cannot be used: {rule}", .path.display())]
    Limits {
        /// The source.
        path: PathBuf,
        /// What must hold.
        rule: &'static str,
    },
    /// A source of the program cannot open a device.
    #[error(transparent)]
    Source(Box<dyn StdError + Send + Sync>),
    /// The size exceeds that of any file: ends of ranges, rounded up to blocks, would overflow.
    #[error("{} states a size of {size_bytes} bytes; the maximum is 2^63-1", .path.display())]
    TooLarge {
        /// The target.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
    },
    /// The path names a directory.
    #[error("{} is a directory; name a file in it or a block device", .0.display())]
    Directory(PathBuf),
    /// The system refused to open or extend the target.
    #[error("{} cannot be {what}: {source}", .path.display())]
    System {
        /// The target.
        path: PathBuf,
        /// The attempted action, for example "opened for reading".
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// No engine could be started.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The elevator is unknown, or a setting is out of range.
    #[error(transparent)]
    #[cfg(feature = "elevator")]
    Elevator(#[from] iopath_core::elevator::ElevatorError),
    /// The members do not form a stripe.
    #[error(transparent)]
    #[cfg(feature = "stripe")]
    Stripe(#[from] iopath_os::StripedError),
    /// The mapping does not fit the device.
    #[error(transparent)]
    #[cfg(feature = "mapped")]
    Mapped(#[from] iopath_os::MappedError),
    /// The chunk of the stripe is not a multiple of a sector.
    #[error(
        "a chunk of {chunk_bytes} bytes is not a multiple of a sector; choose a multiple of the members' block, such as 4096"
    )]
    #[cfg(feature = "stripe")]
    Chunk {
        /// The requested chunk.
        chunk_bytes: u64,
    },
    /// A server exports it without permission to write.
    #[error(
        "{server} is read-only: the server permits no writes; open it without write, or start the server with writes"
    )]
    #[cfg(feature = "remote")]
    ReadOnlyExport {
        /// The export, as a URI.
        server: String,
    },
    /// The stripe names one file or device twice.
    #[error("{} is a member of the stripe twice; name each file or device once", .0.display())]
    #[cfg(feature = "stripe")]
    SameMember(PathBuf),
    /// Another volume of this process writes the file through a page cache.
    #[error(
        "{} is written through the page cache of another volume of this process, and two caches undo each other's \
         writes; clone that volume, or drop it with its batches and futures first (Options::second_cache permits both)",
        .0.display()
    )]
    SecondCache(PathBuf),
    /// The system has no memory for the buffers.
    #[error(transparent)]
    Memory(#[from] NoMemory),
    /// The page size is out of range.
    #[error(
        "a page size of {page_bytes} bytes is not valid; use a power of two from {min_bytes} to {max_bytes} bytes \
         (Options::page_bytes, --page)"
    )]
    PageSize {
        /// The requested size.
        page_bytes: u32,
        /// The smallest size here: at least a block of the target.
        min_bytes: u32,
        /// The largest size.
        max_bytes: u32,
    },
    /// A buffered batch on a volume without a page cache.
    #[error("{} has no page cache for a buffered batch; open it with Options::mode(IoMode::Buffered)", .0.display())]
    NotBuffered(PathBuf),
    /// A batch of shared memory on a volume whose bytes this process copies.
    #[error(
        "{} cannot transfer memory that other processes share: only direct I/O on files and block devices can; copy the \
         bytes to buffers of this process",
        .0.display()
    )]
    SharedMemory(PathBuf),
    /// The cache size is out of range.
    #[error("a cache of {cache_bytes} bytes is not valid; use {min_bytes} (16 pages) to {max_bytes} bytes")]
    CacheSize {
        /// The requested size.
        cache_bytes: u64,
        /// The smallest cache for pages of this size.
        min_bytes: u64,
        /// The largest cache for pages of this size.
        max_bytes: u64,
    },
}

impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug::error("OpenError", self, f)
    }
}

impl OpenError {
    /// The error of a [`Source`](crate::source::Source) of the program.
    pub fn of_source(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Source(error.into())
    }

    /// The number of the system's error (`errno.h`), if the system refused a call.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.system().and_then(io::Error::raw_os_error)
    }

    /// The error number of Linux (`errno.h`): the number that the kernel reported, or else the number that the kernel
    /// uses for the same mistake.
    pub fn errno(&self) -> i32 {
        let of_variant = || match self {
            Self::Refused(_) | Self::SecondCache(_) => Errno::BUSY,
            Self::Directory(_) => Errno::ISDIR,
            Self::TooLarge { .. } => Errno::FBIG,
            #[cfg(feature = "remote")]
            Self::ReadOnlyExport { .. } => Errno::ROFS,
            Self::Direct(_) | Self::Engine(_) => Errno::OPNOTSUPP,
            Self::Memory(_) => Errno::NOMEM,
            _ => Errno::INVAL,
        };
        self.raw_os_error().unwrap_or_else(|| of_variant().raw_os_error())
    }

    /// The error of the system behind this error.
    fn system(&self) -> Option<&io::Error> {
        std::iter::successors(self.source(), |&error| error.source()).find_map(|error| error.downcast_ref())
    }
}

/// The kind is that of the system's error if there is one. The result contains the [`OpenError`].
impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        let kind = error.system().map_or_else(|| Self::from_raw_os_error(error.errno()).kind(), Self::kind);
        Self::new(kind, error)
    }
}

/// The result of an I/O on a volume.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of an I/O on a volume: kind, operation, byte range and path.
///
/// ```
/// use iopath::{ErrorKind, Options, Volume};
/// use iopath::testing::{MemoryConfig, MemoryDisk};
///
/// let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20))?;
/// let volume = Volume::memory(&disk, &Options::new())?;
/// let error = volume.write_at(&[0; 4096], 8192).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::ReadOnly);
/// assert_eq!((error.offset(), error.bytes(), error.errno()), (8192, 4096, 30));
/// let error = std::io::Error::from(error);
/// assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Error(Box<Repr>);

/// Boxed, so that a result of the hot path stays small.
#[derive(Debug)]
struct Repr {
    kind: ErrorKind,
    op: Option<Op>,
    offset: u64,
    bytes: u64,
    path: PathBuf,
    cause: Option<Cause>,
}

/// The underlying error, if [`ErrorKind`] does not contain it.
#[derive(Debug)]
pub(crate) enum Cause {
    System(io::Error),
    Wait(WaitError),
    Open(Box<OpenError>),
    Memory(NoMemory),
    Server(Box<dyn StdError + Send + Sync>),
}

/// The kind of an [`Error`], with the values specific to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The offset or the length is not a multiple of a block.
    Unaligned {
        /// Offset and length must be multiples of this many bytes.
        align_bytes: u32,
    },
    /// The buffer starts at an address that the device does not accept.
    UnalignedMemory {
        /// The address must be a multiple of this many bytes.
        align_bytes: u32,
    },
    /// The request is longer than its buffer.
    BufferTooSmall {
        /// The length of the buffer.
        buffer_bytes: u64,
    },
    /// The range reaches past the end of the volume.
    PastEnd {
        /// The size of the volume.
        size_bytes: u64,
    },
    /// The volume ended before an exact read had filled its buffer.
    UnexpectedEnd {
        /// The size of the volume.
        size_bytes: u64,
    },
    /// The volume was opened read-only.
    ReadOnly,
    /// The device or the file does not support the operation.
    Unsupported,
    /// The batch has its maximum number of requests in flight.
    BatchFull {
        /// The maximum number of requests in flight.
        depth: u32,
    },
    /// The device failed.
    Io(IoError),
    /// The system refused to submit or to wait.
    Wait,
    /// A further thread needs an engine, and none could be started.
    Thread,
    /// The page cache cannot be opened at the first I/O.
    Cache,
    /// The volume has no page cache.
    NotBuffered,
    /// The volume has no common queue to log: with elevator `none` and without a page cache, each thread has its own.
    NoSingleQueue,
    /// Guards borrow every page of the cache.
    AllBorrowed {
        /// The pages of the cache.
        pages: u32,
    },
    /// The page cache is full of pages that cannot be written back.
    Unwritable {
        /// The number of pages that could not be written back.
        pages: u32,
        /// The last error of the device.
        source: IoError,
    },
    /// The size of the volume cannot be changed.
    Resize {
        /// The requested size.
        size_bytes: u64,
    },
    /// The directory entry of the file cannot be made durable.
    Directory,
    /// The system has no memory for a buffer.
    NoMemory,
    /// The request was cancelled, or the driver of its future has ended. The device may still execute it.
    Cancelled,
}

impl Error {
    #[cold]
    pub(crate) fn new(kind: ErrorKind, path: &Path) -> Self {
        let path = path.to_owned();
        Self(Box::new(Repr { kind, op: None, offset: 0, bytes: 0, path, cause: None }))
    }

    pub(crate) fn of_range(mut self, op: Op, offset: u64, bytes: u64) -> Self {
        (self.0.op, self.0.offset, self.0.bytes) = (Some(op), offset, bytes);
        self
    }

    pub(crate) fn because(mut self, cause: Cause) -> Self {
        self.0.cause = Some(cause);
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation; `None` if the error does not belong to one operation.
    pub fn op(&self) -> Option<Op> {
        self.0.op
    }

    /// The start of the range, in bytes. Of a flush: the first range that a page cache could not write back (see
    /// [`Volume::unwritable_ranges`](crate::Volume::unwritable_ranges)), if that is the reason.
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// The length of the range, in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The path of the volume.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The same as [`Error::errno`], with the name of [`std::io::Error`] and [`OpenError`]. There is always a number.
    pub fn raw_os_error(&self) -> Option<i32> {
        Some(self.errno())
    }

    /// The error number of Linux (`errno.h`): the number that the kernel reported, or else the number that the kernel
    /// uses for the same mistake.
    pub fn errno(&self) -> i32 {
        let number = |errno: Errno| errno.raw_os_error();
        match (self.0.kind, &self.0.cause) {
            (_, Some(Cause::System(error))) => error.raw_os_error().unwrap_or(number(Errno::OPNOTSUPP)),
            (ErrorKind::Cache, Some(Cause::Open(error))) => error.errno(),
            (_, Some(Cause::Wait(error))) => error.source.raw_os_error().unwrap_or(number(Errno::IO)),
            (ErrorKind::Io(error) | ErrorKind::Unwritable { source: error, .. }, _) => error.errno(),
            (ErrorKind::PastEnd { .. } | ErrorKind::UnexpectedEnd { .. }, _) => match self.0.op {
                Some(Op::Read) => IoError::EndOfDevice.errno(),
                _ => number(Errno::FBIG),
            },
            (ErrorKind::ReadOnly, _) => number(Errno::ROFS),
            (
                ErrorKind::Unsupported
                | ErrorKind::NotBuffered
                | ErrorKind::NoSingleQueue
                | ErrorKind::Directory
                | ErrorKind::Resize { .. },
                _,
            ) => number(Errno::OPNOTSUPP),
            (ErrorKind::BatchFull { .. } | ErrorKind::Thread, _) => number(Errno::AGAIN),
            (ErrorKind::AllBorrowed { .. } | ErrorKind::NoMemory, _) => number(Errno::NOMEM),
            (ErrorKind::Wait | ErrorKind::Cache, _) => number(Errno::IO),
            (ErrorKind::Cancelled, _) => number(Errno::CANCELED),
            (
                ErrorKind::Unaligned { .. }
                | ErrorKind::UnalignedMemory { .. }
                | ErrorKind::BufferTooSmall { .. },
                _,
            ) => number(Errno::INVAL),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { kind, op, offset, bytes, path, cause } = &*self.0;
        let mut output = f.debug_struct("Error");
        output.field("kind", kind).field("op", op).field("offset", offset).field("bytes", bytes);
        output.field("path", &debug::Text(path));
        output.field("cause", &cause.as_ref().map(|cause| debug::Message(cause.as_error()))).finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { kind, op, offset, bytes, path, cause } = &*self.0;
        let path = path.display();
        let op = op.map_or_else(|| "I/O".to_owned(), |op| op.to_string());
        match kind {
            ErrorKind::Unaligned { align_bytes } => write!(
                f,
                "{op} of {bytes} bytes at offset {offset} of {path}: offset and length must be multiples of {align_bytes}"
            ),
            ErrorKind::UnalignedMemory { align_bytes } => write!(
                f,
                "{op} at offset {offset} of {path}: the address of the buffer is not a multiple of {align_bytes}; \
                 use AlignedBuf"
            ),
            ErrorKind::BufferTooSmall { buffer_bytes } => write!(
                f,
                "{op} of {bytes} bytes at offset {offset} of {path}: the buffer has {buffer_bytes} bytes; \
                 create the batch with larger buffers (BatchOptions)"
            ),
            ErrorKind::PastEnd { size_bytes } => write!(
                f,
                "{op} of {bytes} bytes at offset {offset} reaches past the end of {path}, which has {size_bytes} bytes; \
                 use a smaller range, or extend the volume first (Volume::resize, or Volume::write_at with Options::extend)"
            ),
            ErrorKind::UnexpectedEnd { size_bytes } => write!(
                f,
                "{op} of {bytes} bytes at offset {offset}: {path} has only {size_bytes} bytes; \
                 use read_at to accept fewer bytes"
            ),
            ErrorKind::ReadOnly => write!(
                f,
                "{op} at offset {offset} of {path}: the volume is read-only; open it with Options::write(true)"
            ),
            ErrorKind::Unsupported => write!(f, "{path} does not support {op}"),
            ErrorKind::BatchFull { depth } => write!(
                f,
                "the batch has its maximum of {depth} requests in flight; reap completions first, or create the batch \
                 with a larger depth"
            ),
            ErrorKind::Io(error) => {
                let because = Because(cause.as_ref());
                write!(f, "{op} of {bytes} bytes at offset {offset} of {path} failed: {error}{because}")
            }
            ErrorKind::NotBuffered => {
                write!(f, "{path} has no page cache; open it with Options::mode(IoMode::Buffered)")
            }
            ErrorKind::NoSingleQueue => write!(
                f,
                "each thread has its own queue for {path}, so there is no common queue to log; log a batch \
                 (Batch::start_log), select an elevator other than none (Options::elevator), or open the volume with \
                 Options::mode(IoMode::Buffered)"
            ),
            ErrorKind::AllBorrowed { pages } => write!(
                f,
                "all {pages} pages of the cache of {path} are borrowed; drop some guards, or open the volume with a larger \
                 cache"
            ),
            ErrorKind::Unwritable { pages, source } => write!(
                f,
                "{op} of {bytes} bytes at offset {offset}: the cache of {path} is full and {pages} of its pages cannot be \
                 written: {source}{}; free space or repair the device, or discard these pages (Volume::unwritable_ranges)",
                Because(cause.as_ref())
            ),
            ErrorKind::Cancelled => {
                write!(
                    f,
                    "a request for {path} was cancelled; the device may have executed it, or will do so"
                )
            }
            ErrorKind::Wait => write!(f, "I/O on {path} cannot continue{}", Because(cause.as_ref())),
            ErrorKind::Thread => write!(f, "another thread cannot use {path}{}", Because(cause.as_ref())),
            ErrorKind::Cache => {
                write!(f, "the page cache of {path} cannot be opened{}", Because(cause.as_ref()))
            }
            ErrorKind::Resize { size_bytes } => {
                write!(f, "{path} cannot have {size_bytes} bytes{}", Because(cause.as_ref()))
            }
            ErrorKind::Directory => {
                write!(f, "the directory entry of {path} cannot be made durable{}", Because(cause.as_ref()))
            }
            ErrorKind::NoMemory => {
                write!(f, "{op} of {bytes} bytes at offset {offset} of {path}{}", Because(cause.as_ref()))
            }
        }
    }
}

/// The cause behind a colon, if there is one.
struct Because<'a>(Option<&'a Cause>);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |cause| write!(f, ": {}", cause.as_error()))
    }
}

impl Cause {
    fn as_error(&self) -> &(dyn StdError + 'static) {
        match self {
            Self::System(error) => error,
            Self::Wait(error) => error,
            Self::Open(error) => error.as_ref(),
            Self::Memory(error) => error,
            Self::Server(error) => error.as_ref(),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match (&self.0.kind, &self.0.cause) {
            (_, Some(cause)) => Some(cause.as_error()),
            (ErrorKind::Io(error) | ErrorKind::Unwritable { source: error, .. }, _) => Some(error),
            _ => None,
        }
    }
}

/// The kind follows from [`Error::errno`]. The result contains the [`Error`], with its message and its parts.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::UnexpectedEnd { .. } | ErrorKind::Io(IoError::EndOfDevice) => {
                io::ErrorKind::UnexpectedEof
            }
            ErrorKind::Cancelled => io::ErrorKind::Other,
            _ => Self::from_raw_os_error(error.errno()).kind(),
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: ErrorKind) -> Error {
        Error::new(kind, Path::new("data.bin")).of_range(Op::Read, 4096, 512)
    }

    #[test]
    fn a_result_of_the_hot_path_is_small() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn parts_survive_the_conversion_to_an_error_of_std() {
        let converted = io::Error::from(error(ErrorKind::Io(IoError::NoSpace)));
        assert_eq!(converted.kind(), io::ErrorKind::StorageFull);
        let inner = converted.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).unwrap();
        assert_eq!((inner.op(), inner.offset(), inner.bytes()), (Some(Op::Read), 4096, 512));
        assert_eq!(inner.path(), Path::new("data.bin"));
    }

    #[test]
    fn an_exact_read_past_the_end_is_an_unexpected_eof() {
        let converted = io::Error::from(error(ErrorKind::UnexpectedEnd { size_bytes: 4100 }));
        assert_eq!(converted.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_number_of_the_system_is_kept() {
        let no_room = Cause::System(io::Error::from_raw_os_error(28));
        let error = error(ErrorKind::Resize { size_bytes: 1 }).because(no_room);
        assert_eq!(error.errno(), 28);
        assert!(error.source().is_some());
        assert!(error.to_string().starts_with("data.bin cannot have 1 bytes: "), "{error}");
    }

    #[cfg(all(feature = "elevator", feature = "testing"))]
    #[test]
    fn an_error_of_opening_converts_with_the_kind_and_number_of_the_system() {
        let options = crate::Options::new();
        let missing = crate::Volume::open("/nonexistent/data.bin", &options).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(Errno::NOENT.raw_os_error()));
        let converted = io::Error::from(missing);
        assert_eq!(converted.kind(), io::ErrorKind::NotFound);
        assert!(converted.get_ref().unwrap().is::<OpenError>());
        let disk = iopath_os::MemoryDisk::new(&iopath_os::MemoryConfig::of_bytes(1 << 20)).unwrap();
        let refused = crate::Volume::memory(&disk, &options.elevator("fastest")).unwrap_err();
        assert_eq!(refused.raw_os_error(), None);
        assert_eq!(io::Error::from(refused).kind(), io::ErrorKind::InvalidInput);
    }
}
