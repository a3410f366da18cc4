//! The storage of a volume: files, block devices, memory, exports of servers, and storage of a program.
//!
//! A program implements [`Source`] to put a [`Volume`](crate::Volume) on storage of its own
//! ([`Volume::of_source`](crate::Volume::of_source)). The volume adds direct, raw and buffered I/O, the page cache,
//! batches, futures, I/O schedulers and faults. A source needs its [`Limits`] and a device; every other method has a
//! default.
//!
//! The storage of this crate is a source, too: [`open`] of a file or block device, [`memory`], [`remote`], [`stripe`]
//! and [`mapped`]. So a stripe or a mapped file can be on any source, and a source of the program can use another one.
//!
//! | the device | for |
//! |---|---|
//! | [`InlineDevice`] over an [`Execute`] | storage that executes a request at once, in the calling thread |
//! | a [`RealDevice`] (an `unsafe` trait) | storage that executes requests later, or uses other devices |
//!
//! ```
//! use iopath::source::{DeviceRequest, DeviceSetup, Execute, InlineDevice, Limits, OpenedDevice, RealDevice, Source};
//! use iopath::{IoError, Op, OpenError, Options, Volume};
//! use std::sync::{Arc, Mutex};
//!
//! #[derive(Debug, Clone)]
//! struct Ram(Arc<Mutex<Vec<u8>>>);
//!
//! impl Execute for Ram {
//!     fn execute(&mut self, request: &mut DeviceRequest<'_>) -> Result<(), IoError> {
//!         let mut ram = self.0.lock().map_err(|_| IoError::Gone)?;
//!         let part = ram.get_mut(request.range()).ok_or(IoError::EndOfDevice)?;
//!         match request.op() {
//!             Op::Read => request.fill(0, part),
//!             Op::Write => request.copy_to(0, part),
//!             Op::Discard | Op::WriteZeroes => part.fill(0),
//!             Op::Flush => {}
//!         }
//!         Ok(())
//!     }
//! }
//!
//! impl Source for Ram {
//!     fn limits(&self) -> Limits {
//!         Limits { write_zeroes_bytes_max: 1 << 20, ..Limits::with_capacity(2048) }
//!     }
//!
//!     fn open(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError> {
//!         Ok(OpenedDevice::new(Box::new(InlineDevice::new(self.clone(), setup.limits.clone()))))
//!     }
//! }
//!
//! let ram = Ram(Arc::new(Mutex::new(vec![0; 1 << 20])));
//! let volume = Volume::of_source(ram, &Options::new().write(true))?;
//! volume.write_at(&[7; 512], 4096)?;
//! let mut bytes = [0; 1024];
//! volume.read_exact_at(&mut bytes, 4096)?;
//! assert_eq!((bytes[511], bytes[512]), (7, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod file_tail;
mod forward;
mod limits;
#[cfg(feature = "mapped")]
mod mapped;
#[cfg(feature = "testing")]
mod memory;
mod public;
#[cfg(any(feature = "mapped", feature = "stripe"))]
mod ranges;
#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "stripe")]
mod stripe;

use crate::error::OpenError;
use iopath_core::QueueConfig;
use iopath_os::target::Target;
use iopath_os::{BufferPool, EngineConfig, Fallback, Faults, Faulty, RingPool, io_error_of};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use file::FileSource;
pub(crate) use limits::{SIZE_BYTES_MAX, limits_of};
#[cfg(feature = "mapped")]
pub(crate) use mapped::MappedSource;
#[cfg(feature = "testing")]
pub(crate) use memory::MemorySource;
#[cfg(feature = "remote")]
pub(crate) use remote::RemoteSource;
#[cfg(feature = "stripe")]
pub(crate) use stripe::StripeSource;

#[cfg(feature = "mapped")]
pub use public::mapped;
#[cfg(feature = "testing")]
pub use public::memory;
pub use public::open;
#[cfg(feature = "remote")]
pub use public::remote;
#[cfg(feature = "stripe")]
pub use public::stripe;
#[cfg(feature = "stripe")]
pub use stripe::Member;

pub use iopath_core::{
    BlockDevice, Busy, Completion, Extent, Instant, Io, IoError, Limits, Op, Sector, Segments, Tag,
};
pub use iopath_os::{
    DeviceRequest, Execute, InlineDevice, Notifier, RealDevice, Segment, Tail, WaitError, Watch, WriteStopped,
};

/// The maximum number of threads of one thread engine.
const THREADS_MAX: u32 = 32;

/// The engine of devices of a program.
pub(crate) const PROGRAM: &str = "program";

/// The storage of a volume: see [the module](self).
///
/// A volume calls [`Source::limits`], [`Source::size_bytes`] and the other methods without arguments when it is opened,
/// and no method for an I/O: an I/O goes to a device of the source. Any thread may call a method, and each thread and
/// each batch of a volume has a device of its own. So a write through one device is visible through all others when it
/// has completed.
pub trait Source: fmt::Debug + Send + Sync {
    /// The limits of a request, and the capacity: whole blocks, the last of which may end past
    /// [`Source::size_bytes`].
    fn limits(&self) -> Limits;

    /// Opens a device that may move between threads. It reports `setup.limits` and accepts `setup.depth` requests.
    ///
    /// # Errors
    /// The reason why no device can be opened: [`OpenError::of_source`].
    fn open(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError>;

    /// Opens a device that stays on the calling thread, for [`LocalBatch`](crate::LocalBatch). Default: as
    /// [`Source::open`].
    ///
    /// # Errors
    /// Returns the errors of [`Source::open`].
    fn open_local(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice>, OpenError> {
        let OpenedDevice { device, engine, fallback } = self.open(setup)?;
        Ok(OpenedDevice { device, engine, fallback })
    }

    /// The name in errors and in [`Facts::path`](crate::Facts::path). Default: `source`.
    fn name(&self) -> PathBuf {
        PathBuf::from("source")
    }

    /// The size in bytes when the volume is opened. Default: the capacity.
    fn size_bytes(&self) -> u64 {
        self.limits().capacity.saturating_mul(iopath_core::SECTOR_BYTES)
    }

    /// Whether [`Source::resize`] can change the size. Default: no.
    fn can_resize(&self) -> bool {
        false
    }

    /// Changes the size. Bytes that are added now or later read as zeroes, also in the last block. Open devices follow:
    /// requests past a new end fail with [`IoError::EndOfDevice`].
    ///
    /// # Errors
    /// The size is unchanged. Default: not supported.
    fn resize(&self, _size_bytes: u64) -> Result<(), SourceError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    /// The present length, for a source whose length other handles or programs can change. A volume then extends it in
    /// steps ([`Options::extend_step`](crate::Options::extend_step)), and can follow its growth
    /// ([`Volume::follow_growth`](crate::Volume::follow_growth)). Default: `None`, only this volume changes it.
    fn length_now(&self) -> Option<u64> {
        None
    }

    /// Whether the device reads and writes the last block whole, if the size is no multiple of a block. Its bytes past
    /// the end read as zeroes. Default: yes. Otherwise the source needs a [`Source::tail`].
    fn writes_last_block(&self) -> bool {
        true
    }

    /// Writes the bytes after the last whole block, if no device can. Called for volumes that are open for writing, and
    /// copy bytes. Default: `None`.
    ///
    /// # Errors
    /// The reason why it cannot be opened.
    fn tail(&self) -> Result<Option<Box<dyn Tail>>, OpenError> {
        Ok(None)
    }

    /// The unit in which concurrent writes of the page cache and of direct I/O exclude each other, in bytes, if a
    /// device delays one of two writes that share a unit. Default: 1, for a device that does not.
    fn write_unit_bytes(&self) -> u64 {
        1
    }

    /// Whether whole blocks read as zeroes after [`Op::Discard`], without a write of zeroes. Default: not certain.
    fn discard_zeroes(&self) -> bool {
        false
    }

    /// Reserves space for `bytes` bytes at `offset`. Default: not supported.
    ///
    /// # Errors
    /// [`IoError::NoSpace`] and others.
    fn allocate(&self, _offset: u64, _bytes: u64) -> Result<(), SourceError> {
        Err(IoError::Unsupported.into())
    }

    /// The first `ranges_max` ranges with data within `range`, in ascending order: the rest read as zeroes. Default:
    /// all of it.
    ///
    /// # Errors
    /// The system refuses.
    fn data_ranges(&self, range: Range<u64>, _ranges_max: usize) -> Result<Vec<Range<u64>>, SourceError> {
        Ok(vec![range])
    }

    /// The file with the bytes of the source at the same offsets, open for direct I/O:
    /// [`Volume::descriptor`](crate::Volume::descriptor). The page cache may read it by system calls, without a device.
    /// Default: `None`.
    fn file(&self) -> Option<&Arc<File>> {
        None
    }

    /// All files with bytes of the source, for [`Options::lock`](crate::Options::lock). Default: [`Source::file`].
    fn files(&self) -> Vec<Arc<File>> {
        self.file().into_iter().cloned().collect()
    }

    /// Whether no other source uses other parts of the same [`Source::files`]. Then a second volume of the process that
    /// writes one of these files through a page cache is refused
    /// ([`OpenError::SecondCache`]). Default: not certain.
    fn has_whole_files(&self) -> bool {
        false
    }

    /// The target of the volume ([`Facts::target`](crate::Facts::target)). Default: storage of a program, of this name
    /// and size.
    fn target(&self) -> Arc<Target> {
        Arc::new(Target::of_program(self.name(), self.size_bytes()))
    }

    /// The requests at the device of a queue that all threads share. Further ones wait in the elevator. Default: 32.
    fn device_depth(&self) -> u32 {
        QueueConfig::DEVICE_DEPTH
    }

    /// Whether all sources with the same kind and device in [`Source::target`] have devices of one engine. When one of
    /// their volumes has opened its page cache, the others open theirs at the first I/O. Default: not certain.
    fn shares_engine(&self) -> bool {
        false
    }

    /// The reason of the last failure, for the text of errors with [`IoError::Disconnected`]. Default: `None`.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// The device that a volume needs: [`Source::open`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeviceSetup {
    /// The limits that the device reports: those of the source, with the request size of
    /// [`Options::request_bytes_max`](crate::Options::request_bytes_max).
    pub limits: Limits,
    /// The maximum number of requests in flight. At most `limits.depth_max`.
    pub depth: u32,
    /// The buffers of most requests, for a device that registers them.
    pub pool: Option<BufferPool>,
    /// Rings that closed volumes have left.
    pub(crate) rings: Option<RingPool>,
}

impl DeviceSetup {
    /// The configuration of an engine for files.
    pub(crate) fn engine(&self) -> EngineConfig {
        let Self { depth, pool, rings, .. } = self.clone();
        EngineConfig { depth, threads_max: THREADS_MAX.min(depth), pool, rings }
    }
}

/// An open device, and the name of its engine.
#[derive(Debug)]
pub struct OpenedDevice<D: ?Sized> {
    pub(crate) device: Box<D>,
    pub(crate) engine: &'static str,
    pub(crate) fallback: Option<Fallback>,
}

impl<D: ?Sized> OpenedDevice<D> {
    /// A device of the program. Its engine ([`Facts::engine`](crate::Facts::engine)) is `program`.
    pub const fn new(device: Box<D>) -> Self {
        Self { device, engine: PROGRAM, fallback: None }
    }

    /// The device, for a device of the program that uses it.
    pub fn into_device(self) -> Box<D> {
        self.device
    }

    /// A device of an engine for files.
    pub(crate) fn of_engine(opened: iopath_os::Opened<Box<D>>) -> Self {
        Self { device: opened.device, engine: opened.engine.name(), fallback: opened.fallback }
    }

    /// A device of this crate.
    #[cfg(any(feature = "remote", feature = "testing"))]
    pub(crate) const fn of(device: Box<D>, engine: &'static str) -> Self {
        Self { device, engine, fallback: None }
    }
}

/// The reason why a source cannot execute a call.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The system refuses it.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The storage fails.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl fmt::Debug for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        iopath_core::debug::error("SourceError", self, f)
    }
}

impl SourceError {
    /// The error of an I/O, for an operation that the call is a part of.
    pub(crate) fn of_io(&self, op: Op) -> IoError {
        match self {
            Self::System(error) => io_error_of(op, error),
            Self::Io(error) => *error,
        }
    }
}

/// Opens a device with faults, if there are any.
pub(crate) fn open_device(
    source: &dyn Source,
    faults: Option<&Faults>,
    setup: &DeviceSetup,
) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError> {
    let mut opened = source.open(setup)?;
    if let Some(faults) = faults {
        opened.device = Box::new(Faulty::new(opened.device, faults));
    }
    Ok(opened)
}

/// Does the same as [`open_device`], for a device that stays on the calling thread.
pub(crate) fn open_local_device(
    source: &dyn Source,
    faults: Option<&Faults>,
    setup: &DeviceSetup,
) -> Result<OpenedDevice<dyn RealDevice>, OpenError> {
    let mut opened = source.open_local(setup)?;
    if let Some(faults) = faults {
        opened.device = Box::new(Faulty::new(opened.device, faults));
    }
    Ok(opened)
}

/// For `map_err`: the error of a system call on `path`, with the attempted action.
fn system(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::System { path, what, source }
}
