//! The source of a volume: a file, block device, remote export, stripe, mapped file or memory disk. Opens and inspects
//! the source, and creates queues and engines for it. `volume.rs` reads and writes.

pub(crate) mod cache;
pub(crate) mod stripe;
pub(crate) mod threading;

use crate::context::{EngineKey, KnownEngine, Writer};
use crate::error::OpenError;
use crate::options::Options;
use crate::queues::{Devices, OpenDevice, Opened, Queue, Shape, SharedDevice, Tuning};
use iopath_core::elevator::ElevatorSpec;
use iopath_core::{Limits, QueueConfig, SECTOR_BYTES, StripeConfig};
use iopath_os::target::guard::Contents;
use iopath_os::target::{self, DioAlignment, FileId, FileLock, Kind, Target, open_exclusive};
use iopath_os::{
    BufferPool, EngineConfig, Fallback, Faulty, FileMap, Geometry, Mapped, MemoryDisk, REQUEST_BYTES,
    RealDevice, Remote, Runner, StripedError, Timed, limits_of,
};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use stripe::{Member, Members, Part};

/// The maximum number of threads of one thread engine.
const THREADS_MAX: u32 = 32;

/// The engine of a memory disk.
const MEMORY: &str = "memory";

/// The engine of a remote export.
const REMOTE: &str = "remote";

/// The maximum number of buffers of a vectored read or write that are in flight together.
const VECTORED_MAX: u32 = 32;

/// The storage of a source.
#[derive(Debug)]
pub(crate) enum Backing {
    File(Arc<File>),
    Memory(MemoryDisk),
    Remote(Remote),
    Stripe(Members),
    Mapped(MappedOn),
}

/// A mapped file, and the backing of its blocks.
#[derive(Debug)]
pub(crate) struct MappedOn {
    pub(crate) below: Box<Backing>,
    pub(crate) file: FileMap,
}

impl Backing {
    /// The regular files with its bytes.
    fn regular_files(&self) -> Vec<FileId> {
        let id = |file: &File| {
            file.metadata().ok().filter(std::fs::Metadata::is_file).map(|about| FileId::from(&about))
        };
        match self {
            Self::File(file) => id(file).into_iter().collect(),
            Self::Stripe(members) => members.files().filter_map(|file| id(file)).collect(),
            Self::Mapped(mapped) => mapped.below.regular_files(),
            Self::Memory(_) | Self::Remote(_) => Vec::new(),
        }
    }

    /// The files with the data.
    fn files(&self) -> Vec<&Arc<File>> {
        match self {
            Self::File(file) => vec![file],
            Self::Stripe(members) => members.files().collect(),
            Self::Mapped(mapped) => mapped.below.files(),
            Self::Memory(_) | Self::Remote(_) => Vec::new(),
        }
    }
}

/// A device and the name of its engine.
pub(crate) struct On<D: ?Sized> {
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

    const fn remote(device: Box<D>) -> Self {
        Self { device, engine: REMOTE, fallback: None }
    }
}

impl<D: ?Sized> From<On<D>> for Opened<Box<D>> {
    fn from(On { device, engine, fallback }: On<D>) -> Self {
        Self { queue: device, engine, fallback }
    }
}

/// An open file, device, remote export or memory disk, with its limits and options.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) backing: Backing,
    pub(crate) limits: Limits,
    pub(crate) options: Options,
    pub(crate) tuning: Tuning,
}

impl Source {
    pub(crate) fn open(path: &Path, options: &Options) -> Result<(Self, Target), OpenError> {
        // Before a file is created.
        let _: ElevatorSpec = options.elevator.parse()?;
        if let Some(bytes) = options.create_bytes {
            create(path, bytes, options)?;
        }
        let target = match &options.context {
            Some(context) => context.inspect(path)?,
            None => Target::inspect(path)?,
        };
        if target.kind == Kind::Directory {
            return Err(OpenError::Directory(target.path));
        }
        let file = open(&target, options)?;
        Self::of_file(file, target, options)
    }

    /// A file that the program has opened. Its flags become those of direct I/O.
    pub(crate) fn from_file(file: File, options: &Options) -> Result<(Self, Target), OpenError> {
        let target = Target::inspect_open(&file)?;
        if target.kind == Kind::Directory {
            return Err(OpenError::Directory(target.path));
        }
        let path = target.path.clone();
        let refused = |what| move |errno: Errno| system(&path, what)(errno.into());
        let flags = rustix::fs::fcntl_getfl(&file).map_err(refused.clone()("inspected"))?;
        if options.write && flags & OFlags::RWMODE != OFlags::RDWR {
            return Err(refused("written: it was not opened for reading and writing")(Errno::BADF));
        }
        if options.write && flags.contains(OFlags::APPEND) {
            // Such a write ignores its offset (pwrite(2), bugs).
            return Err(refused("written: it was opened for appending")(Errno::INVAL));
        }
        rustix::fs::fcntl_setfl(&file, flags | OFlags::DIRECT).map_err(refused("used for direct I/O"))?;
        Self::of_file(file, target, options)
    }

    fn of_file(file: File, target: Target, options: &Options) -> Result<(Self, Target), OpenError> {
        let elevator = options.elevator.parse()?;
        let alignment = DioAlignment::discover(&target.path)?;
        if options.lock {
            target::lock(&target, &file, options.write)?;
        }
        let geometry = Geometry {
            memory_align_bytes: alignment.memory_bytes,
            logical_block_bytes: alignment.offset_bytes,
            request_bytes_max: options.request_bytes_max.unwrap_or_else(|| request_bytes_max(&target)),
        };
        let limits = limits_of(&file, &geometry).map_err(system(&target.path, "measured"))?;
        let backing = Backing::File(Arc::new(file));
        let tuning = Tuning::new(elevator, options.device_depth.unwrap_or_else(|| device_depth(&target)));
        Ok((Self { backing, limits, options: options.clone(), tuning }, target))
    }

    /// A memory disk: its alignment is configured, and it needs no check for data of other programs.
    pub(crate) fn memory(disk: &MemoryDisk, options: &Options) -> Result<(Self, Target), OpenError> {
        let tuning =
            Tuning::new(options.elevator.parse()?, options.device_depth.unwrap_or(QueueConfig::DEVICE_DEPTH));
        let mut limits = disk.limits();
        if let Some(timing) = &options.timing {
            limits = timing.limits_on(&limits);
        }
        let block = u64::from(limits.logical_block_bytes);
        let request_bytes_max = options.request_bytes_max.unwrap_or(REQUEST_BYTES);
        let request_bytes_max = match &options.timing {
            Some(_) => request_bytes_max.min(limits.request_bytes_max),
            None => request_bytes_max,
        };
        limits.request_bytes_max = (request_bytes_max / block * block).max(block);
        let target = Target::of_memory(disk.size_bytes());
        let backing = Backing::Memory(disk.clone());
        Ok((Self { backing, limits, options: options.clone(), tuning }, target))
    }

    /// An export of a server. The server checks for other users of the data, if it can.
    pub(crate) fn remote(remote: &Remote, options: &Options) -> Result<(Self, Target), OpenError> {
        let facts = remote.facts();
        if facts.is_read_only && options.write {
            return Err(OpenError::ReadOnlyExport { server: remote.name().to_owned() });
        }
        let tuning =
            Tuning::new(options.elevator.parse()?, options.device_depth.unwrap_or(QueueConfig::DEVICE_DEPTH));
        let mut limits = facts.limits.clone();
        let block = u64::from(limits.logical_block_bytes);
        let request_bytes_max = options.request_bytes_max.unwrap_or(REQUEST_BYTES);
        limits.request_bytes_max =
            (request_bytes_max.min(limits.request_bytes_max) / block * block).max(block);
        if !options.write {
            (limits.discard_bytes_max, limits.write_zeroes_bytes_max) = (0, 0);
        }
        let target = Target::of_remote(remote.name(), facts.size_bytes);
        let backing = Backing::Remote(remote.clone());
        Ok((Self { backing, limits, options: options.clone(), tuning }, target))
    }

    /// A stripe of several files, block devices and exports.
    pub(crate) fn stripe(
        members: &[Member<'_>],
        chunk_bytes: u64,
        options: &Options,
    ) -> Result<(Self, Target), OpenError> {
        if !chunk_bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(OpenError::Chunk { chunk_bytes });
        }
        let config = StripeConfig { chunk_sectors: chunk_bytes / SECTOR_BYTES, ..StripeConfig::default() };
        let create_bytes = stripe::member_bytes(options.create_bytes, members.len(), chunk_bytes);
        let of_member = Options { create_bytes, ..options.clone() };
        let open = |member: &Member<'_>| match *member {
            Member::Path(path) => Self::open(path, &of_member),
            Member::Remote(remote) => Self::remote(remote, &of_member),
        };
        let opened: Vec<_> = members.iter().map(open).collect::<Result<_, _>>()?;
        let mut parts = Vec::with_capacity(opened.len());
        let mut targets = Vec::with_capacity(opened.len());
        for (source, target) in opened {
            let part = match source.backing {
                Backing::File(file) => Part::File(file),
                Backing::Remote(remote) => Part::Remote(remote),
                Backing::Memory(_) | Backing::Stripe(_) | Backing::Mapped(_) => continue,
            };
            // The last block of a file may be partial. A stripe has whole blocks only.
            let capacity = source.limits.capacity.min(target.size_bytes / SECTOR_BYTES);
            parts.push((part, Limits { capacity, ..source.limits }));
            targets.push(target);
        }
        stripe::refuse_the_same(&parts, &targets)?;
        let of_members: Vec<&Limits> = parts.iter().map(|(_, limits)| limits).collect();
        let limits = config.limits(&of_members).map_err(StripedError::Layout)?;
        let path = stripe::names(targets.iter().map(|target| target.path.as_path()));
        let first = targets.into_iter().next().expect("a stripe of no members is refused");
        // A stripe is a device even if its members are files: its size is a multiple of a block.
        let size_bytes = limits.capacity * SECTOR_BYTES;
        let target = Target { path, size_bytes, kind: Kind::BlockDevice, ..first };
        let device_depth = QueueConfig::DEVICE_DEPTH.saturating_mul(parts.len() as u32);
        let tuning = Tuning::new(options.elevator.parse()?, options.device_depth.unwrap_or(device_depth));
        let options = options.clone();
        let backing = Backing::Stripe(Members { parts, config });
        Ok((Self { backing, limits, options, tuning }, target))
    }

    /// The locks of its files, for the drop of the volume to release.
    pub(crate) fn locks(&self) -> Vec<FileLock> {
        let files = if self.options.lock { self.backing.files() } else { Vec::new() };
        files.into_iter().cloned().map(FileLock::of).collect()
    }

    /// The same source under a mapped file.
    pub(crate) fn mapped(self, target: Target, file: &FileMap) -> Result<(Self, Target), OpenError> {
        // Refuse a map that does not fit before an engine is opened.
        file.limits_on(&self.limits)?;
        let mapped = MappedOn { below: Box::new(self.backing), file: file.clone() };
        let target = Target { size_bytes: file.size_bytes(), ..target };
        Ok((Self { backing: Backing::Mapped(mapped), ..self }, target))
    }

    /// The engine of the page cache, if a volume of the context on the same device uses one already. Then the cache is
    /// opened at its first use.
    pub(crate) fn known_engine(&self, target: &Target) -> Option<KnownEngine> {
        let context = self.options.context.as_ref().filter(|_| self.options.is_cached())?;
        context.known_engine(&self.engine_key(target)?)
    }

    /// Records the engine of an open page cache for further volumes of the context.
    pub(crate) fn record_engine(&self, target: &Target, engine: &'static str, fallback: Option<&Fallback>) {
        if let (Some(context), Some(key)) = (&self.options.context, self.engine_key(target)) {
            context.record_engine(key, KnownEngine { engine, fallback: fallback.cloned() });
        }
    }

    /// `None`: the engine of this source says nothing about others.
    fn engine_key(&self, target: &Target) -> Option<EngineKey> {
        let is_file = matches!(self.backing, Backing::File(_)) && target.kind == Kind::RegularFile;
        (is_file || matches!(self.backing, Backing::Memory(_))).then_some((
            target.id.device,
            self.options.engine,
            self.depth(),
        ))
    }

    /// The place of a writable volume among those of its context. `None`: it writes to no regular file, or has no
    /// context.
    pub(crate) fn writer(&self) -> Option<Writer> {
        let context = self.options.context.as_ref().filter(|_| self.options.write)?;
        let files = self.backing.regular_files();
        (!files.is_empty()).then(|| Writer::new(context, files))
    }

    /// The queue of a thread for blocking I/O.
    pub(crate) fn thread_queue(&self) -> Result<Opened<Queue<SharedDevice>>, OpenError> {
        let open: OpenDevice<SharedDevice> = |devices, pool| devices.open_shared(devices.depth(), pool);
        Queue::open(self, Shape { jobs_max: VECTORED_MAX, plug: self.depth(), pool: None, open })
    }

    /// A queue and engine for the page cache. The engine registers the memory in `pool`.
    pub(crate) fn cache_runner(
        &self,
        bios_max: u32,
        pool: &BufferPool,
    ) -> Result<Opened<Runner<SharedDevice>>, OpenError> {
        let depth = self.options.device_depth.unwrap_or(self.options.depth).clamp(1, self.limits.depth_max);
        let rings = self.options.context.as_ref().map(|context| context.rings().clone());
        let engine = EngineConfig { rings, ..engine_config(depth, Some(pool.clone())) };
        let On { device, engine, fallback } = self.shared_device(&self.backing, &engine)?;
        let config = QueueConfig::of_cache(bios_max, depth, self.tuning.wanted().0.elevator);
        Ok(Opened { queue: Runner::new(device, &config), engine, fallback })
    }

    /// A device that may move between threads. Faults are injected below the mapping, if there is one.
    pub(crate) fn shared_device(
        &self,
        backing: &Backing,
        engine: &EngineConfig,
    ) -> Result<On<dyn RealDevice + Send>, OpenError> {
        let mut on: On<dyn RealDevice + Send> = match backing {
            Backing::File(file) => On::of(self.options.engine.open_shared(file, &self.limits, engine)?),
            Backing::Stripe(members) => members.open_shared(self.options.engine, engine)?,
            Backing::Memory(disk) => match &self.options.timing {
                None => On::memory(Box::new(disk.open_with(self.limits.clone()))),
                Some(timing) => On::memory(Box::new(Timed::new(disk.open_with(self.limits.clone()), timing))),
            },
            Backing::Remote(remote) => On::remote(Box::new(remote.device(&self.limits, engine.depth))),
            Backing::Mapped(mapped) => {
                let on = self.shared_device(&mapped.below, engine)?;
                let device = Mapped::new(on.device, &mapped.file, self.options.boundary)?;
                return Ok(On { device: Box::new(device), ..on });
            }
        };
        if let Some(faults) = &self.options.faults {
            on.device = Box::new(Faulty::new(on.device, faults));
        }
        Ok(on)
    }

    /// An engine on a mapped file, for resizing the file.
    pub(crate) fn mapped_engine(
        &self,
        mapped: &MappedOn,
    ) -> Result<Mapped<Box<dyn RealDevice + Send>>, OpenError> {
        let on = self.shared_device(&mapped.below, &engine_config(self.depth(), None))?;
        Ok(Mapped::new(on.device, &mapped.file, self.options.boundary)?)
    }

    /// Whether the last block is written whole. (In a plain file, that would extend the file. The device of a remote
    /// export sends only the bytes inside of the export.)
    pub(crate) const fn writes_last_block(&self) -> bool {
        matches!(self.backing, Backing::Mapped(_) | Backing::Remote(_))
    }

    /// The reason of the last failure of a server.
    pub(crate) fn server_failure(&self) -> Option<String> {
        let mut remotes: Box<dyn Iterator<Item = &Remote>> = match &self.backing {
            Backing::Remote(remote) => Box::new(std::iter::once(remote)),
            Backing::Stripe(members) => Box::new(members.remotes()),
            Backing::File(_) | Backing::Memory(_) | Backing::Mapped(_) => return None,
        };
        remotes.find_map(|remote| Some(format!("{}: {}", remote.name(), remote.failure()?)))
    }

    /// The file, if plain system calls can read it and no faults are injected.
    pub(crate) fn plain_file(&self) -> Option<Arc<File>> {
        match &self.backing {
            Backing::File(file) if self.options.faults.is_none() => Some(Arc::clone(file)),
            _ => None,
        }
    }
}

fn engine_config(depth: u32, pool: Option<BufferPool>) -> EngineConfig {
    EngineConfig { depth, threads_max: THREADS_MAX.min(depth), pool, rings: None }
}

impl Devices for Source {
    fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// The requested depth, within the limits of the device.
    fn depth(&self) -> u32 {
        self.options.depth.clamp(1, self.limits.depth_max)
    }

    fn open_local(&self, pool: Option<BufferPool>) -> Result<Opened<Box<dyn RealDevice>>, OpenError> {
        Ok(self.local_device(&self.backing, &engine_config(self.depth(), pool))?.into())
    }

    fn open_shared(
        &self,
        depth: u32,
        pool: Option<BufferPool>,
    ) -> Result<Opened<Box<SharedDevice>>, OpenError> {
        let engine = engine_config(depth.clamp(1, self.limits.depth_max), pool);
        Ok(self.shared_device(&self.backing, &engine)?.into())
    }
}

/// The upper limit for the depth from sysfs.
const DEVICE_DEPTH_MAX: u32 = 1024;

/// The queue depth of the disk: further requests wait in the elevator, not in the kernel.
fn device_depth(target: &Target) -> u32 {
    let disk = target.backing.disk();
    let depth =
        disk.and_then(|disk| disk.queue_depth.or(disk.nr_requests)).unwrap_or(QueueConfig::DEVICE_DEPTH);
    depth.clamp(1, DEVICE_DEPTH_MAX)
}

/// The largest request that the kernel allows for the disk: the CPU cost of a request hardly depends on its length.
/// Bounded above so that long I/O consists of several requests, and below so that the cost per request does not
/// dominate.
fn request_bytes_max(target: &Target) -> u64 {
    let disk_bytes = target.backing.disk().and_then(|disk| disk.max_sectors_kb).map(|kib| kib << 10);
    disk_bytes.unwrap_or(REQUEST_BYTES).clamp(REQUEST_BYTES, 8 * REQUEST_BYTES)
}

/// Creates the file or extends it. Never shortens it.
fn create(path: &Path, bytes: u64, options: &Options) -> Result<(), OpenError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .create_new(options.create_new)
        .mode(options.file_mode)
        .truncate(false)
        .open(path);
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

/// For `map_err`: the error of a system call on `path`, with the attempted action.
pub(crate) fn system(path: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::System { path, what, source }
}
