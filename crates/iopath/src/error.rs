//! What can go wrong with a volume. Each error names the thing, the value and the way out.

use iopath_core::{IoError, Op};
use iopath_os::target::{DioError, Refusal, TargetError};
use iopath_os::{EngineError, WaitError};
use std::path::PathBuf;

/// Why a volume could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// What the target is could not be found out; it may be missing.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The target takes no direct I/O.
    #[error(transparent)]
    Direct(#[from] DioError),
    /// Writing to it would destroy something of someone's, or someone uses it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A directory is no volume.
    #[error("{} is a directory; name a file in it or a block device", .0.display())]
    Directory(PathBuf),
    /// The system did not open or extend it.
    #[error("{} cannot be {what}: {source}", .path.display())]
    System {
        /// The target.
        path: PathBuf,
        /// What was tried: "opened for reading", say.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// No engine could be had.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// There is no such elevator, or it cannot be set so.
    #[error(transparent)]
    Elevator(#[from] iopath_core::elevator::ElevatorError),
    /// The members make no stripe.
    #[error(transparent)]
    Stripe(#[from] iopath_os::StripedError),
    /// The mapping does not fit the device.
    #[error(transparent)]
    Mapped(#[from] iopath_os::MappedError),
    /// A chunk of a stripe that is not whole sectors.
    #[error(
        "a chunk of {chunk_bytes} bytes is not whole sectors; choose a multiple of the members' block, 4096 say"
    )]
    Chunk {
        /// The chunk asked for.
        chunk_bytes: u64,
    },
    /// Chunks of a stripe would lie on each other.
    #[error("{} is a member of the stripe twice; name each file or device once", .0.display())]
    SameMember(PathBuf),
    /// There is not enough memory for the buffers.
    #[error(transparent)]
    Memory(#[from] iopath_os::NoMemory),
    /// A page cannot have that size.
    #[error("pages of {page_bytes} bytes: choose a power of two from {min_bytes} to {max_bytes}")]
    PageSize {
        /// The size asked for.
        page_bytes: u32,
        /// The smallest there is here: a block of the target at least.
        min_bytes: u32,
        /// The largest.
        max_bytes: u32,
    },
    /// A cache cannot have that size.
    #[error("a cache of {cache_bytes} bytes: choose from {min_bytes} (16 pages) to {max_bytes}")]
    CacheSize {
        /// The size asked for.
        cache_bytes: u64,
        /// The least for pages of this size.
        min_bytes: u64,
        /// The most for pages of this size.
        max_bytes: u64,
    },
}

/// Why an I/O on a volume failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An offset or length that is not whole blocks.
    #[error("{op} of {bytes} bytes at offset {offset} of {}: offset and length must be multiples of {align_bytes}", .path.display())]
    Unaligned {
        /// The volume.
        path: PathBuf,
        /// What was to be done.
        op: Op,
        /// From where, in bytes.
        offset: u64,
        /// How much.
        bytes: u64,
        /// What offset and length must be multiples of.
        align_bytes: u32,
    },
    /// A buffer that does not start where the device needs it to.
    #[error("{op} at offset {offset} of {}: the buffer starts at an address that is no multiple of {align_bytes}; take it from AlignedBuf", .path.display())]
    UnalignedMemory {
        /// The volume.
        path: PathBuf,
        /// What was to be done.
        op: Op,
        /// At which offset in bytes.
        offset: u64,
        /// What the address must be a multiple of.
        align_bytes: u32,
    },
    /// More bytes than the buffer that came with them holds.
    #[error("{op} of {bytes} bytes at offset {offset} of {}: the buffer has {buffer_bytes}; make the batch with larger ones", .path.display())]
    BufferTooSmall {
        /// The volume.
        path: PathBuf,
        /// What was to be done.
        op: Op,
        /// From where, in bytes.
        offset: u64,
        /// How much.
        bytes: u64,
        /// How much the buffer holds.
        buffer_bytes: u64,
    },
    /// A range that reaches past the end.
    #[error("{op} of {bytes} bytes at offset {offset} reaches past the end of {}, which has {size_bytes}", .path.display())]
    PastEnd {
        /// The volume.
        path: PathBuf,
        /// What was to be done.
        op: Op,
        /// From where, in bytes.
        offset: u64,
        /// How much.
        bytes: u64,
        /// The size of the volume.
        size_bytes: u64,
    },
    /// A write to a volume that was opened read-only.
    #[error("{op} at offset {offset} of {}: it is open read-only; open it with Options::write(true)", .path.display())]
    ReadOnly {
        /// The volume.
        path: PathBuf,
        /// What was to be done.
        op: Op,
        /// At which offset in bytes.
        offset: u64,
    },
    /// The device cannot do this.
    #[error("{} does not support {op}", .path.display())]
    Unsupported {
        /// The volume.
        path: PathBuf,
        /// What was to be done.
        op: Op,
    },
    /// As many I/Os as the batch has room for are in flight.
    #[error("the batch has room for {depth} I/Os, and all are in flight; take completions first")]
    BatchFull {
        /// How many there is room for.
        depth: u32,
    },
    /// The device failed.
    #[error("{op} of {bytes} bytes at offset {offset} of {} failed: {source}", .path.display())]
    Io {
        /// The volume.
        path: PathBuf,
        /// What was to be done.
        op: Op,
        /// From where, in bytes.
        offset: u64,
        /// How much.
        bytes: u64,
        /// Why.
        source: IoError,
    },
    /// The system does not let the engine go on.
    #[error("I/O on {} cannot go on: {source}", .path.display())]
    Wait {
        /// The volume.
        path: PathBuf,
        /// What the system said.
        source: WaitError,
    },
    /// Another thread of the program needs an engine of its own and none could be had.
    #[error("another thread cannot use {}: {source}", .path.display())]
    Thread {
        /// The volume.
        path: PathBuf,
        /// Why.
        source: Box<OpenError>,
    },
    /// There is no page cache to borrow from or to advise.
    #[error("{} has no page cache; open it with Options::path(Path::Buffered)", .path.display())]
    NotBuffered {
        /// The volume.
        path: PathBuf,
    },
    /// Every page of the cache is borrowed.
    #[error("all {pages} pages of the cache of {} are borrowed; drop some, or open it with more cache", .path.display())]
    AllBorrowed {
        /// The volume.
        path: PathBuf,
        /// How many pages there are.
        pages: u32,
    },
    /// The page cache is full of what cannot be written.
    #[error(
        "the cache of {} is full and {pages} of its pages cannot be written: {source}; \
         see to the device, or discard what they hold",
        .path.display()
    )]
    Unwritable {
        /// The volume.
        path: PathBuf,
        /// How many pages could not be written.
        pages: u32,
        /// What the device said of the last of them.
        source: IoError,
    },
    /// Only files can be made longer or shorter.
    #[error("{} cannot have {size_bytes} bytes: {source}", .path.display())]
    Resize {
        /// The volume.
        path: PathBuf,
        /// The size asked for.
        size_bytes: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is not enough memory for a bounce buffer.
    #[error(transparent)]
    Memory(#[from] iopath_os::NoMemory),
}
