//! The storage of a volume: a source with the limits, options and settings of queues with which it was opened. Creates
//! queues and engines. `volume.rs` reads and writes.

pub(crate) mod cache;
pub(crate) mod threading;

use crate::caches::CachedWriter;
use crate::context::{EngineKey, KnownEngine, Writer};
use crate::error::OpenError;
use crate::options::Options;
use crate::queues::{Devices, OpenDevice, Opened, Queue, Shape, SharedDevice, Tuning};
use crate::source::file::{FileSource, device_depth};
#[cfg(feature = "mapped")]
use crate::source::mapped::MappedSource;
#[cfg(feature = "testing")]
use crate::source::memory::MemorySource;
#[cfg(feature = "remote")]
use crate::source::remote::RemoteSource;
#[cfg(feature = "stripe")]
use crate::source::stripe::{Member, StripeSource};
use crate::source::{self, DeviceSetup, OpenedDevice, Source};
use iopath_core::{Limits, QueueConfig, SECTOR_BYTES};
#[cfg(feature = "mapped")]
use iopath_os::FileMap;
#[cfg(feature = "testing")]
use iopath_os::MemoryDisk;
#[cfg(feature = "remote")]
use iopath_os::Remote;
use iopath_os::target::{self, FileId, FileLock, Kind, Target};
use iopath_os::{BufferPool, Fallback, Faults, RealDevice, Runner};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The maximum number of buffers of a vectored read or write that are in flight together.
const VECTORED_MAX: u32 = 32;

/// An open source, with its limits and options.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties, each set by its name")]
pub(crate) struct Storage {
    pub(crate) source: Box<dyn Source>,
    /// Injected into the devices of the source. Those of a mapped file are below the mapping.
    faults: Option<Faults>,
    pub(crate) limits: Limits,
    pub(crate) options: Options,
    pub(crate) tuning: Tuning,
    /// Whether the last block is written whole. (In a plain file, that would extend the file. The device of a remote
    /// export sends only the bytes inside of the export.)
    pub(crate) writes_last_block: bool,
    /// The unit in which writes exclude each other.
    pub(crate) write_unit_bytes: u64,
    /// Whether appends extend it in steps.
    pub(crate) extends_in_steps: bool,
    /// Whether the engine of this source is that of others on the same device.
    shares_engine: bool,
    /// Whether no other source uses other parts of the same files.
    has_whole_files: bool,
}

impl Storage {
    /// A source with the limits of the volume.
    fn of(
        source: Box<dyn Source>,
        limits: Limits,
        device_depth: u32,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let tuning = Tuning::new(options.elevator_spec()?, options.device_depth.unwrap_or(device_depth));
        Ok(Self {
            faults: options.faults.clone(),
            limits,
            options: options.clone(),
            tuning,
            writes_last_block: source.writes_last_block(),
            write_unit_bytes: source.write_unit_bytes().max(1),
            extends_in_steps: source.length_now().is_some(),
            shares_engine: false,
            has_whole_files: false,
            source,
        })
    }

    pub(crate) fn open(path: &Path, options: &Options) -> Result<(Self, Target), OpenError> {
        // Before a file is created.
        options.elevator_spec()?;
        let (file, target) = FileSource::open(path, options)?;
        Self::of_file(file, target, options)
    }

    /// A file that the program has opened.
    pub(crate) fn from_file(file: File, options: &Options) -> Result<(Self, Target), OpenError> {
        let (file, target) = FileSource::from_file(file, options)?;
        Self::of_file(file, target, options)
    }

    fn of_file(file: FileSource, target: Target, options: &Options) -> Result<(Self, Target), OpenError> {
        let (limits, device_depth) = (file.limits(), device_depth(&target));
        let shares_engine = target.kind == Kind::RegularFile;
        let storage = Self::of(Box::new(file), limits, device_depth, options)?;
        Ok((Self { shares_engine, has_whole_files: true, ..storage }, target))
    }

    #[cfg(feature = "testing")]
    pub(crate) fn memory(disk: &MemoryDisk, options: &Options) -> Result<(Self, Target), OpenError> {
        let (memory, target) = MemorySource::open(disk, options);
        let limits = memory.limits();
        let storage = Self::of(Box::new(memory), limits, QueueConfig::DEVICE_DEPTH, options)?;
        Ok((Self { shares_engine: true, ..storage }, target))
    }

    #[cfg(feature = "remote")]
    pub(crate) fn remote(remote: &Remote, options: &Options) -> Result<(Self, Target), OpenError> {
        let (remote, target) = RemoteSource::open(remote, options)?;
        let limits = remote.limits();
        Ok((Self::of(Box::new(remote), limits, QueueConfig::DEVICE_DEPTH, options)?, target))
    }

    #[cfg(feature = "stripe")]
    pub(crate) fn stripe(
        members: &[Member<'_>],
        chunk_bytes: u64,
        options: &Options,
    ) -> Result<(Self, Target), OpenError> {
        // Before a file is created.
        options.elevator_spec()?;
        let (stripe, target) = StripeSource::open(members, chunk_bytes, options)?;
        let (limits, device_depth) = (stripe.limits(), stripe.device_depth());
        let storage = Self::of(Box::new(stripe), limits, device_depth, options)?;
        Ok((Self { has_whole_files: true, ..storage }, target))
    }

    /// A source of the program.
    pub(crate) fn own(source: Box<dyn Source>, options: &Options) -> Result<(Self, Target), OpenError> {
        let target = Target::of_program(source.name(), source.size_bytes());
        let mut limits = source.limits();
        check(&limits, &target)?;
        let block = u64::from(limits.logical_block_bytes);
        if let Some(bytes) = options.request_bytes_max {
            limits.request_bytes_max = (bytes.min(limits.request_bytes_max) / block * block).max(block);
        }
        if !options.write {
            (limits.discard_bytes_max, limits.write_zeroes_bytes_max) = (0, 0);
        }
        if options.lock {
            for file in source.files() {
                target::lock(&target, &file, options.write)?;
            }
        }
        Ok((Self::of(source, limits, QueueConfig::DEVICE_DEPTH, options)?, target))
    }

    /// The same source under a mapped file.
    #[cfg(feature = "mapped")]
    pub(crate) fn mapped(self, mut target: Target, file: &FileMap) -> Result<(Self, Target), OpenError> {
        // Refuse a map that does not fit before an engine is opened.
        file.limits_on(&self.limits)?;
        let setup = self.setup(self.depth(), None);
        let Self { source: below, faults, limits, options, tuning, .. } = self;
        let (file, boundary) = (file.clone(), options.boundary);
        let source = MappedSource { below, faults, file, boundary, setup };
        target.size_bytes = source.size_bytes();
        let storage = Self {
            writes_last_block: source.writes_last_block(),
            write_unit_bytes: source.write_unit_bytes(),
            extends_in_steps: false,
            shares_engine: false,
            has_whole_files: false,
            source: Box::new(source),
            faults: None,
            limits,
            options,
            tuning,
        };
        Ok((storage, target))
    }

    /// The locks of its files, for the drop of the volume to release.
    pub(crate) fn locks(&self) -> Vec<FileLock> {
        let files = if self.options.lock { self.source.files() } else { Vec::new() };
        files.into_iter().map(FileLock::of).collect()
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
        self.shares_engine.then_some((target.id.device, self.options.engine, self.depth()))
    }

    /// The place of a writable volume among those of its context. `None`: it writes to no regular file, or has no
    /// context.
    pub(crate) fn writer(&self) -> Option<Writer> {
        let context = self.options.context.as_ref().filter(|_| self.options.write)?;
        let id = |file: &Arc<File>| {
            file.metadata().ok().filter(std::fs::Metadata::is_file).map(|about| FileId::from(&about))
        };
        let files: Vec<FileId> = self.source.files().iter().filter_map(id).collect();
        (!files.is_empty()).then(|| Writer::new(context, files))
    }

    /// The place of a volume that writes through a page cache among those of the process. `None`: it does not, or
    /// several volumes may have caches of parts of a file.
    pub(crate) fn cached_writer(&self, target: &Target) -> Result<Option<CachedWriter>, OpenError> {
        if !self.options.write || !self.options.is_cached() || !self.has_whole_files {
            return Ok(None);
        }
        CachedWriter::new(&self.source.files(), self.options.second_cache, &target.path).map(Some)
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
        let setup = DeviceSetup { rings, ..self.setup(depth, Some(pool.clone())) };
        let OpenedDevice { device, engine, fallback } =
            source::open(&*self.source, self.faults.as_ref(), &setup)?;
        let config = QueueConfig::of_cache(bios_max, depth, self.tuning.wanted().0.elevator);
        Ok(Opened { queue: Runner::new(device, &config), engine, fallback })
    }

    /// The file, if plain system calls can read it and no faults are injected.
    pub(crate) fn plain_file(&self) -> Option<Arc<File>> {
        self.source.file().filter(|_| self.faults.is_none()).cloned()
    }

    fn setup(&self, depth: u32, pool: Option<BufferPool>) -> DeviceSetup {
        DeviceSetup { limits: self.limits.clone(), depth, pool, rings: None }
    }
}

impl Devices for Storage {
    fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// The requested depth, within the limits of the device.
    fn depth(&self) -> u32 {
        self.options.depth.clamp(1, self.limits.depth_max)
    }

    fn open_local(&self, pool: Option<BufferPool>) -> Result<Opened<Box<dyn RealDevice>>, OpenError> {
        let setup = self.setup(self.depth(), pool);
        Ok(source::open_local(&*self.source, self.faults.as_ref(), &setup)?.into())
    }

    fn open_shared(
        &self,
        depth: u32,
        pool: Option<BufferPool>,
    ) -> Result<Opened<Box<SharedDevice>>, OpenError> {
        let setup = self.setup(depth.clamp(1, self.limits.depth_max), pool);
        Ok(source::open(&*self.source, self.faults.as_ref(), &setup)?.into())
    }
}

impl<D: ?Sized> From<OpenedDevice<D>> for Opened<Box<D>> {
    fn from(OpenedDevice { device, engine, fallback }: OpenedDevice<D>) -> Self {
        Self { queue: device, engine, fallback }
    }
}

/// The largest block.
const BLOCK_BYTES_MAX: u32 = 64 << 10;

/// Refuses limits of a program's source that no queue can use.
fn check(limits: &Limits, target: &Target) -> Result<(), OpenError> {
    let Limits { capacity, logical_block_bytes: block, memory_align_bytes: align, .. } = *limits;
    let blocks = SECTOR_BYTES as u32..=BLOCK_BYTES_MAX;
    let is_block = block.is_power_of_two() && blocks.contains(&block);
    let is_whole = |bytes: u64| is_block && bytes.is_multiple_of(u64::from(block));
    let checks = [
        (is_block, "logical_block_bytes must be a power of two from 512 to 65,536"),
        (align.is_power_of_two(), "memory_align_bytes must be a power of two"),
        (limits.depth_max > 0 && limits.segments_max > 0, "depth_max and segments_max must not be 0"),
        (limits.request_bytes_max > 0, "request_bytes_max must not be 0"),
        (is_whole(limits.request_bytes_max), "request_bytes_max must be a multiple of a block"),
        (
            is_whole(limits.chunk_sectors.saturating_mul(SECTOR_BYTES)),
            "a chunk must be a multiple of a block",
        ),
        (is_whole(capacity.saturating_mul(SECTOR_BYTES)), "the capacity must be a multiple of a block"),
        (target.size_bytes.div_ceil(SECTOR_BYTES) <= capacity, "the size must be within the capacity"),
    ];
    match checks.iter().find(|(holds, _)| !holds) {
        Some((_, rule)) => Err(OpenError::Limits { path: target.path.clone(), rule }),
        None => Ok(()),
    }
}
