//! Block I/O past the kernel's page cache, done right, once.
//!
//! A [`Volume`] is a file or block device ([`Volume::open`]), a stripe of them ([`Volume::open_stripe`]), a file that
//! the program maps itself ([`Volume::open_mapped`]) or a disk in memory ([`Volume::memory`]), opened for direct, raw
//! or buffered I/O ([`IoMode`]): alignment found out, not assumed; short transfers continued or an error, never success;
//! long I/O split so that several pieces are in flight; a device that someone uses refused. It reads and writes from
//! any thread ([`Volume::read_at`]), and keeps many I/Os in flight from one thread without a thread for each
//! ([`Volume::batch`]). With a page cache it lends cached bytes without copying them ([`Volume::borrow`]), and does
//! direct I/O beside it that both see ([`Volume::direct`]).
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

#![warn(clippy::missing_errors_doc)]

mod batch;
mod bounce;
mod error;
mod facts;
mod options;
mod shards;
mod source;
mod tuning;
mod volume;

pub use batch::{Batch, BatchOptions, Completion, LocalBatch, Refused, Request};
pub use error::{Error, ErrorKind, OpenError, Result};
pub use facts::Facts;
pub use iopath_core::elevator::{ELEVATORS, ElevatorError, ElevatorKind, ElevatorSpec, Tunable};
pub use iopath_core::mapper::{
    Boundary, ExtentMap, FileLayout, FileRange, FreeSpace, IndirectMap, MAPPERS, MapError, Mapper,
    MapperKind, Space,
};
pub use iopath_core::{Extent, IoError, LogSink, Op, Priority, QueueStats, Stream};
pub use iopath_os::{
    Advice, AlignedBuf, BufferedStats, Engine, Fallback, Fault, Faults, FileMap, FileMapError, MemoryConfig,
    MemoryDisk, NoMemory, PoolBuf,
};
pub use options::{IoMode, Options, Readahead, Unaligned};
pub use source::threading::{AnyThread, OneThread, Threading};
pub use volume::{Cursor, Direct, PageGuard, Volume};
