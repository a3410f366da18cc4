//! Block I/O that bypasses the page cache of the kernel, for programs that manage their own memory: databases, queues,
//! recorders, storage servers, virtual machines.
//!
//! # A volume
//! A [`Volume`] is an open file or block device ([`Volume::open`]). It can also be several of them as one stripe
//! ([`Volume::open_stripe`]), an export of a server ([`Volume::remote`]), a file with a block mapping of the program
//! ([`Volume::open_mapped`]), or a disk in memory for tests ([`Volume::memory`]). Threads can share a volume; every
//! method takes `&self`. Storage of the program is a [`Source`](source::Source).
//!
//! The root of the crate has the names that most programs need; the modules have the others, by subject. The modules
//! [`elevator`], [`mapped`], [`remote`], [`stripe`] and [`testing`] are features of the crate, all on by default.
//!
//! ```no_run
//! use iopath::{AlignedBuf, Options, Volume};
//!
//! let volume = Volume::open("data.bin", &Options::new())?;
//! let mut buffer = AlignedBuf::new(1 << 20)?;
//! let bytes = volume.read_at(&mut buffer, 0)?;
//! println!("{bytes} bytes, {}", volume.facts().engine);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The volume discovers the alignment of the target, splits long I/O so that several parts are in flight, continues
//! short transfers, and refuses a device that is in use. The engine is `io_uring`, or threads where the system has
//! none.
//!
//! # Direct or buffered
//! [`IoMode`] selects the path of reads and writes:
//!
//! | mode | reads and writes | for |
//! |---|---|---|
//! | [`IoMode::Direct`] | aligned blocks, between the device and memory of the caller | programs with their own cache |
//! | [`IoMode::Raw`] | the same, with the whole range or an error | devices |
//! | [`IoMode::Buffered`] | any bytes, through a page cache with readahead and write-back | everything else |
//!
//! With a page cache, [`Volume::borrow`] reads without a copy, and [`Volume::direct`] does direct I/O that is coherent
//! with the cache. [`Unaligned`] lets a direct volume accept unaligned I/O.
//!
//! # Many I/Os in flight
//! [`Volume::read_at`] and [`Volume::write_at`] return when the I/O is complete. A [`Batch`] keeps many I/Os in flight
//! from one thread, with registered buffers. The program queues a [`Request`] and receives a [`Completion`]; an event
//! loop can wait with a file descriptor ([`Batch::completion_fd`]).
//!
//! ```no_run
//! use iopath::{BatchOptions, Options, Request, Volume};
//!
//! let volume = Volume::open("data.bin", &Options::new())?;
//! let mut batch = volume.batch(&BatchOptions::new(32, 4096))?;
//! for block in 0..32 {
//!     let buffer = batch.buffer().expect("there is a buffer for each request in flight");
//!     batch.queue(Request::read(buffer, block * 4096).token(block))?;
//! }
//! while let Some(done) = batch.wait()? {
//!     println!("block {}: {} bytes", done.token, done.result?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Futures
//! An [`AsyncVolume`] is a volume for the tasks of any async runtime: its methods return futures, which own their
//! buffers.
//!
//! # Durability
//! A write that has returned is in the device or in the page cache. [`Volume::flush`] makes all such writes durable;
//! [`Volume::write_durably_at`] is a durable write. When the device fails a flush, data may be lost. The volume then
//! fails every flush until the program acknowledges the loss ([`Volume::accept_loss`]).
//!
//! # Order of requests
//! An I/O scheduler (elevator) orders requests before they reach the device: [`Options::elevator`], one of
//! [`ELEVATORS`](elevator::ELEVATORS). [`Stream`] and [`Priority`] divide the device among users.
//! [`LogSink`](log::LogSink) receives a record of each step of each request.
//!
//! # Errors
//! [`Error`] has a kind, the operation, the byte range, the path and an error number, and converts to
//! [`std::io::Error`]. [`OpenError`] has the reason why a target cannot be opened, and the remedy.
//!
//! # Tests of programs
//! A [`MemoryDisk`](testing::MemoryDisk) loses unflushed writes when its power fails. [`Faults`](testing::Faults)
//! inject errors, short transfers, latency spikes, stuck requests, torn, lost and misdirected writes, and bit rot into
//! any volume.
//!
//! # Systems
//! Linux. On other systems this crate and `iopath-os` are empty, so that a program for several systems can depend on
//! them without a condition in its manifest: guard its use by `#[cfg(target_os = "linux")]`. The stages without system
//! calls, `iopath-core`, are on every system.

#![cfg(target_os = "linux")]
#![warn(clippy::missing_errors_doc)]

mod bounce;
mod caches;
mod context;
mod driver_threads;
mod error;
mod facts;
mod known_engines;
mod latency_counts;
#[cfg(feature = "metrics")]
mod metric_values;
mod observe;
mod options;
mod queues;
mod request_log;
mod shards;
mod storage;
mod volume;

pub mod batch;
pub mod futures;
pub mod source;

/// Memory of I/O beside [`AlignedBuf`] and [`PoolBuf`].
pub mod buffers {
    pub use iopath_os::{AnyBuf, BorrowedBytes, IoBufMut, NoMemory, SharedBuf, SharedMemory};
}

/// The I/O schedulers (elevators), which order requests: [`Options::elevator`].
#[cfg(feature = "elevator")]
pub mod elevator {
    pub use iopath_core::elevator::{ELEVATORS, ElevatorError, ElevatorKind, ElevatorSpec, Tunable};
}

/// The engines, which execute the I/O on files and devices: [`Options::engine`].
pub mod engine {
    pub use iopath_os::{EngineError, Fallback, Reason, UnknownEngine};
}

/// The request log: a record of each step of each request.
pub mod log {
    pub use crate::request_log::RequestLog;
    pub use iopath_core::log::{
        Access, AccessLog, Event, LogSink, NoRoom, Record, RecordBatch, Step, StepLog, Subject, UnknownCode,
    };
    pub use iopath_core::{NoMerge, Side};
}

/// Files with a block mapping of the program: [`Volume::open_mapped`].
#[cfg(feature = "mapped")]
pub mod mapped {
    pub use iopath_core::mapper::{
        Boundary, DirtyMetadata, ExtentMap, FileLayout, FileRange, FreeSpace, Identity, IndirectMap,
        Location, MAPPERS, MapError, Mapper, MapperKind, Mapping, Metadata, Space,
    };
    pub use iopath_core::{Extent, Sector};
    pub use iopath_os::{FileMap, FileMapError, MappedError};
}

/// Remote exports ([`Volume::remote`]): a protocol is a [`remote::RemoteProtocol`], and [`remote::Remote`] opens an
/// export with it. Users of NBD need only the crate `iopath-nbd`.
#[cfg(feature = "remote")]
pub mod remote {
    pub use iopath_core::Instant;
    pub use iopath_os::{
        Incoming, Losses, Outgoing, Remote, RemoteAddress, RemoteDevice, RemoteEncryption, RemoteError,
        RemoteEvent, RemoteFacts, RemoteProtocol, RemoteRequest, RemoteSession, RemoteSocket, WeakRemote,
    };
}

/// Statistics of volumes, caches and queues.
pub mod stats {
    pub use crate::context::ContextStats;
    pub use crate::latency_counts::{LATENCY_CLASSES, LatencyCounts, LatencyTotals};
    pub use crate::volume::VolumeQueueStats;
    pub use iopath_core::QueueStats;
    pub use iopath_core::cache::CacheStats;
    pub use iopath_core::readahead::ReadaheadStats;
    pub use iopath_os::BufferedStats;
}

/// Stripes (RAID 0) of several targets: [`Volume::open_stripe`].
#[cfg(feature = "stripe")]
pub mod stripe {
    pub use crate::source::Member;
    pub use iopath_core::StripeError;
    pub use iopath_os::StripedError;
}

/// The file, device or export of a volume, its filesystem and disk: [`Facts::target`].
pub mod target {
    pub use iopath_os::target::{
        AlignmentSource, Backing, DeviceNumber, DioAlignment, DioError, Discard, Disk, FileId, Filesystem,
        Kind, Partition, Refusal, Scheduler, TableError, Target, TargetError, WriteCache,
    };
}

/// Disks in memory with power failures, faults and modelled times, for tests of programs.
#[cfg(feature = "testing")]
pub mod testing {
    pub use iopath_core::{Damage, Extent, Fault};
    pub use iopath_os::{Faults, MemoryConfig, MemoryDevice, MemoryDisk, MemoryTail, Timing};
}

pub use batch::{Batch, BatchOptions, Completion, LocalBatch, Request};
pub use context::Context;
pub use error::{Error, ErrorKind, OpenError, Result};
pub use facts::Facts;
pub use futures::AsyncVolume;
pub use iopath_core::buffered::Advice;
pub use iopath_core::{IoError, Op, Priority, Stream};
pub use iopath_os::{AlignedBuf, BufferPool, Engine, IoBuf, PoolBuf, WriteBackError};
pub use options::{IoMode, Options, Readahead, Unaligned};
pub use volume::{Cursor, Direct, NotClosed, PageGuard, RangeLock, RangeSupport, Volume};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
