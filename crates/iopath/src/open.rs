//! Opens what a volume stands on, finds out what it is, and makes the queues and engines for it. Neither reads nor
//! writes what is in it: see `volume.rs`.

use crate::batch::BatchOptions;
use crate::error::OpenError;
use crate::mapped::MappedOn;
use crate::options::{IoMode, Options};
use crate::stripe::Members;
use crate::tuning::{Tuned, Tuning};
use iopath_core::{Limits, QueueConfig};
use iopath_os::target::guard::Contents;
use iopath_os::target::{DioAlignment, Kind, Target, open_exclusive};
use iopath_os::{
    BufferPool, EngineConfig, Fallback, Faulty, Geometry, Mapped, MemoryDisk, REQUEST_BYTES, RealDevice,
    limits_of,
};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Threads of one engine, where threads are used.
const THREADS_MAX: u32 = 32;

/// The engine of a memory disk.
const MEMORY: &str = "memory";

/// What was found out about a volume when it was opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Facts {
    /// Its path, symbolic links followed.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Offsets and lengths are multiples of this many bytes.
    pub block_bytes: u32,
    /// Buffers start at a multiple of this many bytes.
    pub memory_align_bytes: u32,
    /// The most bytes of one request; longer I/O is split.
    pub request_bytes_max: u64,
    /// What carries out the I/O: `uring`, `threads` or `memory`.
    pub engine: &'static str,
    /// Why it is not the engine asked for or the best there is: one line for whoever runs the program.
    pub fallback: Option<Fallback>,
    /// What the target is: filesystem, disk, scheduler.
    pub target: Target,
}

/// What bytes lie on, and what carries I/O on them out.
#[derive(Debug)]
pub(crate) enum Backing {
    File(Arc<File>),
    Memory(MemoryDisk),
    Stripe(Members),
    Mapped(MappedOn),
}

/// A device that was opened, and what carries it out.
struct On<D: ?Sized> {
    device: Box<D>,
    engine: &'static str,
    fallback: Option<Fallback>,
}

impl<D: ?Sized + RealDevice> On<D> {
    fn of(opened: iopath_os::Opened<Box<D>>) -> Self {
        Self { device: opened.device, engine: opened.engine.name(), fallback: opened.fallback }
    }

    const fn memory(device: Box<D>) -> Self {
        Self { device, engine: MEMORY, fallback: None }
    }
}

/// A queue on an engine that was opened.
#[derive(Debug)]
pub(crate) struct Opened<R> {
    pub(crate) runner: R,
    pub(crate) engine: &'static str,
    pub(crate) fallback: Option<Fallback>,
}

/// An open file, device or memory disk, from which engines are made.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) backing: Backing,
    pub(crate) limits: Limits,
    pub(crate) options: Options,
    pub(crate) tuning: Tuning,
}

pub(crate) type SharedRunner = Tuned<dyn RealDevice + Send>;
pub(crate) type OwnRunner = Tuned<dyn RealDevice>;

impl Source {
    pub(crate) fn open(path: &Path, options: &Options) -> Result<(Self, Target), OpenError> {
        let tuning = Tuning::new(options.elevator.parse()?);
        if let Some(bytes) = options.create_bytes {
            create(path, bytes)?;
        }
        let target = Target::inspect(path)?;
        if target.kind == Kind::Directory {
            return Err(OpenError::Directory(target.path));
        }
        let alignment = DioAlignment::discover(&target.path)?;
        let file = open(&target, options)?;
        let geometry = Geometry {
            memory_align_bytes: alignment.memory_bytes,
            logical_block_bytes: alignment.offset_bytes,
            request_bytes_max: options.request_bytes_max.unwrap_or_else(|| request_bytes_max(&target)),
        };
        let limits = limits_of(&file, &geometry).map_err(system(&target.path, "measured"))?;
        let backing = Backing::File(Arc::new(file));
        Ok((Self { backing, limits, options: options.clone(), tuning }, target))
    }

    /// A memory disk has no alignment to be found out, and nobody's data to be destroyed.
    pub(crate) fn memory(disk: &MemoryDisk, options: &Options) -> Result<(Self, Target), OpenError> {
        let tuning = Tuning::new(options.elevator.parse()?);
        let mut limits = disk.limits();
        let block = u64::from(limits.logical_block_bytes);
        let request_bytes_max = options.request_bytes_max.unwrap_or(REQUEST_BYTES);
        limits.request_bytes_max = (request_bytes_max / block * block).max(block);
        let target = Target::of_memory(disk.size_bytes());
        let backing = Backing::Memory(disk.clone());
        Ok((Self { backing, limits, options: options.clone(), tuning }, target))
    }

    /// A queue and engine for threads that take turns.
    pub(crate) fn shared_runner(&self) -> Result<Opened<SharedRunner>, OpenError> {
        let depth = self.depth();
        self.shared(&Self::queue(1, depth, depth), None)
    }

    /// A queue and engine for the page cache, which is to know the memory in `pool`.
    pub(crate) fn cache_runner(
        &self,
        bios_max: u32,
        pool: &BufferPool,
    ) -> Result<Opened<SharedRunner>, OpenError> {
        self.shared(&Self::queue(bios_max, self.depth(), BatchOptions::PLUG), Some(pool.clone()))
    }

    fn shared(
        &self,
        queue: &QueueConfig,
        pool: Option<BufferPool>,
    ) -> Result<Opened<SharedRunner>, OpenError> {
        let On { device, engine, fallback } = self.shared_device(&self.backing, pool)?;
        Ok(Opened { runner: self.tuning.runner(device, queue), engine, fallback })
    }

    /// A device that threads use in turn. What goes wrong goes wrong below the mapping, if there is one.
    fn shared_device(
        &self,
        backing: &Backing,
        pool: Option<BufferPool>,
    ) -> Result<On<dyn RealDevice + Send>, OpenError> {
        let mut on: On<dyn RealDevice + Send> = match backing {
            Backing::File(file) => {
                On::of(self.options.engine.open_shared(file, &self.limits, &self.engine(pool))?)
            }
            Backing::Stripe(members) => On::of(members.open_shared(self.options.engine, &self.engine(pool))?),
            Backing::Memory(disk) => On::memory(Box::new(disk.open_with(self.limits.clone()))),
            Backing::Mapped(mapped) => {
                let on = self.shared_device(&mapped.below, pool)?;
                let device = Mapped::new(on.device, &mapped.file, self.options.boundary)?;
                return Ok(On { device: Box::new(device), ..on });
            }
        };
        if let Some(faults) = &self.options.faults {
            on.device = Box::new(Faulty::new(on.device, faults));
        }
        Ok(on)
    }

    /// A queue and engine for the calling thread, with `bios_max` I/Os in flight.
    pub(crate) fn own_runner(
        &self,
        bios_max: u32,
        plug: u32,
        pool: BufferPool,
    ) -> Result<Opened<OwnRunner>, OpenError> {
        let On { device, engine, fallback } = self.own_device(&self.backing, pool)?;
        let runner = self.tuning.runner(device, &Self::queue(bios_max, self.depth(), plug));
        Ok(Opened { runner, engine, fallback })
    }

    /// A device that one thread uses.
    fn own_device(&self, backing: &Backing, pool: BufferPool) -> Result<On<dyn RealDevice>, OpenError> {
        let mut on: On<dyn RealDevice> = match backing {
            Backing::File(file) => {
                On::of(self.options.engine.open(file, &self.limits, &self.engine(Some(pool)))?)
            }
            Backing::Stripe(members) => On::of(members.open(self.options.engine, &self.engine(Some(pool)))?),
            Backing::Memory(disk) => On::memory(Box::new(disk.open_with(self.limits.clone()))),
            Backing::Mapped(mapped) => {
                let on = self.own_device(&mapped.below, pool)?;
                let device = Mapped::new(on.device, &mapped.file, self.options.boundary)?;
                return Ok(On { device: Box::new(device), ..on });
            }
        };
        if let Some(faults) = &self.options.faults {
            on.device = Box::new(Faulty::new(on.device, faults));
        }
        Ok(on)
    }

    /// An engine on a mapped file, for what is no request: one that moves the file's end.
    pub(crate) fn mapped_engine(
        &self,
        mapped: &MappedOn,
    ) -> Result<Mapped<Box<dyn RealDevice + Send>>, OpenError> {
        let on = self.shared_device(&mapped.below, None)?;
        Ok(Mapped::new(on.device, &mapped.file, self.options.boundary)?)
    }

    /// Whether the block is written whole that the volume ends in. A file of the system's would grow.
    pub(crate) const fn writes_last_block(&self) -> bool {
        matches!(self.backing, Backing::Mapped(_))
    }

    /// The file, if what it is read by is nothing but the system's calls.
    pub(crate) fn plain_file(&self) -> Option<Arc<File>> {
        match &self.backing {
            Backing::File(file) if self.options.faults.is_none() => Some(Arc::clone(file)),
            _ => None,
        }
    }

    fn engine(&self, pool: Option<BufferPool>) -> EngineConfig {
        let depth = self.depth();
        EngineConfig { depth, threads_max: THREADS_MAX.min(depth), pool }
    }

    /// The depth asked for, as far as there can be such a device.
    fn depth(&self) -> u32 {
        self.options.depth.clamp(1, self.limits.depth_max)
    }

    fn queue(bios_max: u32, depth: u32, plug_requests_max: u32) -> QueueConfig {
        QueueConfig {
            bios_max,
            requests_max: bios_max.max(depth),
            depth,
            plug_requests_max,
            ..QueueConfig::default()
        }
    }
}

/// What the disk takes at once, as far as the kernel lets it: each request costs CPU, however long it is. Not
/// so long that what is split is no longer in several requests, and not so short that the price of one counts.
fn request_bytes_max(target: &Target) -> u64 {
    let disk_bytes = target.backing.disk().and_then(|disk| disk.max_sectors_kb).map(|kib| kib << 10);
    disk_bytes.unwrap_or(REQUEST_BYTES).clamp(REQUEST_BYTES, 8 * REQUEST_BYTES)
}

/// Makes the file or extends it, never shortens it.
fn create(path: &Path, bytes: u64) -> Result<(), OpenError> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.map_err(system(path, "created"))?;
    let metadata = file.metadata().map_err(system(path, "measured"))?;
    if metadata.is_file() && metadata.len() < bytes {
        file.set_len(bytes).map_err(system(path, "extended"))?;
    }
    Ok(())
}

fn open(target: &Target, options: &Options) -> Result<File, OpenError> {
    if options.write && options.claim && target.kind == Kind::BlockDevice {
        let contents = if options.overwrite { Contents::Expendable } else { Contents::Kept };
        return Ok(open_exclusive(target, true, contents)?);
    }
    let what = if options.write { "opened for writing" } else { "opened for reading" };
    let flags = OFlags::DIRECT | OFlags::CLOEXEC;
    let file = OpenOptions::new()
        .read(true)
        .write(options.write)
        .custom_flags(flags.bits().cast_signed())
        .open(&target.path);
    file.map_err(system(&target.path, what))
}

pub(crate) fn system(path: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::System { path, what, source }
}

impl Source {
    /// Whether a read may end with the file rather than with its range.
    pub(crate) fn cuts_off_at_end(&self) -> bool {
        self.options.mode != IoMode::Raw
    }
}
