//! The storage of a volume: a source with the limits, options and settings of queues with which it was opened. Creates
//! queues and engines. `volume.rs` reads and writes.

pub(crate) mod cache;
pub(crate) mod new_file;
pub(crate) mod threading;

use crate::caches::{CachedWriter, Identity};
use crate::context::Writer;
use crate::error::OpenError;
use crate::facts::Facts;
use crate::known_engines::{EngineKey, KnownEngine};
use crate::observe;
use crate::options::{OnWriteError, Options};
use crate::queues::{Devices, OpenDevice, Opened, Queue, Shape, SharedDevice, Tuning};
#[cfg(feature = "mapped")]
use crate::source::MappedSource;
use crate::source::{self, DeviceSetup, FileSource, OpenedDevice, Source};
#[cfg(feature = "stripe")]
use crate::source::{Member, StripeSource};
use iopath_core::{Limits, QueueConfig};
#[cfg(feature = "mapped")]
use iopath_os::FileMap;
use iopath_os::target::{FileId, FileLock, Kind, Target};
use iopath_os::{BufferPool, Engine, Fallback, Faults, Lazy, RealDevice, Runner, Tail, WriteBackError};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The maximum number of buffers of a vectored read or write that are in flight together.
const VECTORED_MAX: u32 = 32;

/// An open source, with its limits and options.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) source: Arc<dyn Source>,
    /// Injected into the devices of the source. Those of a mapped file are below the mapping.
    faults: Option<Faults>,
    pub(crate) limits: Limits,
    pub(crate) target: Arc<Target>,
    pub(crate) options: Options,
    pub(crate) tuning: Tuning,
    /// Whether the last block is written whole. (In a plain file, that would extend the file. The device of a remote
    /// export sends only the bytes inside of the export.)
    pub(crate) writes_last_block: bool,
    /// The unit in which writes exclude each other.
    pub(crate) write_unit_bytes: u64,
    /// Whether appends extend it in steps.
    pub(crate) extends_in_steps: bool,
}

/// How a page cache opens its engine at the first request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Later<'a> {
    /// The engine of earlier volumes on the device.
    pub(crate) known: &'a KnownEngine,
    /// The facts of the volume, with that engine.
    pub(crate) facts: &'a Facts,
    /// Gets the facts with the engine that was opened.
    pub(crate) found: &'a Arc<OnceLock<Facts>>,
}

impl Storage {
    /// A source with the options of a volume. Injects their faults.
    pub(crate) fn of(source: Arc<dyn Source>, options: &Options) -> Result<Self, OpenError> {
        let target = source.target();
        let limits = source::limits_of(&*source, &target, options)?;
        let device_depth = options.device_depth.unwrap_or_else(|| source.device_depth());
        let extends_in_steps = is_file(&*source, &target) || source.length_now().is_some();
        Ok(Self {
            faults: options.faults.clone(),
            limits,
            target,
            options: options.clone(),
            tuning: Tuning::new(options.elevator_spec()?, device_depth),
            writes_last_block: source.writes_last_block(),
            write_unit_bytes: source.write_unit_bytes().max(1),
            extends_in_steps,
            source,
        })
    }

    pub(crate) fn open(path: &Path, options: &Options) -> Result<Self, OpenError> {
        // Before a file is created.
        options.elevator_spec()?;
        Self::of(Arc::new(FileSource::open(path, options)?), options)
    }

    #[cfg(feature = "stripe")]
    pub(crate) fn stripe(
        members: &[Member<'_>],
        chunk_bytes: u64,
        options: &Options,
    ) -> Result<Self, OpenError> {
        // Before a file is created.
        options.elevator_spec()?;
        Self::of(Arc::new(StripeSource::open(members, chunk_bytes, options)?), options)
    }

    /// The same source under a mapped file. Its faults stay below the mapping.
    #[cfg(feature = "mapped")]
    pub(crate) fn mapped(self, file: &FileMap) -> Result<Self, OpenError> {
        let setup = self.setup(self.depth(), None);
        let Self { source: below, faults, options, .. } = self;
        let mapped = MappedSource::new(below, faults, file, options.boundary, setup)?;
        Ok(Self { faults: None, ..Self::of(Arc::new(mapped), &options)? })
    }

    /// The locks of its files, for the drop of the volume to release.
    pub(crate) fn locks(&self) -> Vec<FileLock> {
        let files = if self.options.lock { self.source.files() } else { Vec::new() };
        files.into_iter().map(FileLock::of).collect()
    }

    /// The engine of the page cache, if a volume on the same device uses one already. Then the cache is opened at its
    /// first use. A program that selects `io_uring` learns at the open whether the system has it, except in a context.
    pub(crate) fn known_engine(&self) -> Option<KnownEngine> {
        let is_demanded = self.options.engine == Engine::Uring && self.options.context.is_none();
        let may_wait = self.options.is_cached() && !is_demanded;
        KnownEngine::of(&self.engine_key().filter(|_| may_wait)?)
    }

    /// Records the engine of an open page cache for further volumes.
    pub(crate) fn record_engine(&self, engine: &'static str, fallback: Option<&Fallback>) {
        if let Some(key) = self.engine_key() {
            KnownEngine { engine, fallback: fallback.cloned() }.record(key);
        }
    }

    /// `None`: the engine of this source says nothing about others.
    fn engine_key(&self) -> Option<EngineKey> {
        let Target { kind, id, .. } = &*self.target;
        let key =
            EngineKey { kind: *kind, device: id.device, engine: self.options.engine, depth: self.depth() };
        self.source.shares_engine().then_some(key)
    }

    /// The place of a writable volume among those of its context. `None`: it writes to no regular file, or has no
    /// context.
    pub(crate) fn writer(&self) -> Option<Writer> {
        let context = self.options.context.as_ref().filter(|_| self.options.write)?;
        let regular = |identity| match identity {
            Identity::File(id) => Some(id),
            Identity::Device(_) => None,
        };
        let files: Vec<FileId> = self.identities().into_iter().filter_map(regular).collect();
        (!files.is_empty()).then(|| Writer::new(context, files))
    }

    /// The files with its bytes. One that the system does not describe cannot be recognised.
    fn identities(&self) -> Vec<Identity> {
        if is_file(&*self.source, &self.target) {
            return vec![Identity::File(self.target.id)];
        }
        self.source.files().iter().filter_map(|file| Identity::of(file).ok()).collect()
    }

    /// The place of a volume that writes through a page cache among those of the process. `None`: it does not, or
    /// several volumes may have caches of parts of a file.
    pub(crate) fn cached_writer(&self) -> Result<Option<CachedWriter>, OpenError> {
        if !self.options.write || !self.options.is_cached() || !self.source.has_whole_files() {
            return Ok(None);
        }
        CachedWriter::new(self.identities(), self.options.second_cache, &self.target.path).map(Some)
    }

    /// The queue of a thread for blocking I/O.
    pub(crate) fn thread_queue(&self) -> Result<Opened<Queue<SharedDevice>>, OpenError> {
        let open: OpenDevice<SharedDevice> = |devices, pool| devices.open_shared(devices.depth(), pool);
        Queue::open(self, Shape { jobs_max: VECTORED_MAX, plug: self.depth(), pool: None, open })
    }

    /// A queue and engine for the page cache. The engine registers the memory in `pool`. With `later`, the engine of a
    /// file is opened at its first request, and is `known` before.
    pub(crate) fn cache_runner(
        &self,
        bios_max: u32,
        pool: &BufferPool,
        later: Option<Later<'_>>,
    ) -> Result<Opened<Runner<SharedDevice>>, OpenError> {
        let depth = self.options.device_depth.unwrap_or(self.options.depth).clamp(1, self.limits.depth_max);
        let rings = self.options.context.as_ref().map(|context| context.rings().clone());
        let setup = DeviceSetup { rings, ..self.setup(depth, Some(pool.clone())) };
        let OpenedDevice { device, engine, fallback } = match later {
            Some(later) if self.plain_file().is_some() => {
                let KnownEngine { engine, fallback } = later.known.clone();
                let device: Box<SharedDevice> = Box::new(self.lazy_device(setup, later));
                OpenedDevice { device, engine, fallback }
            }
            _ => source::open_device(&*self.source, self.faults.as_ref(), &setup)?,
        };
        let config = QueueConfig::of_cache(bios_max, depth, self.tuning.wanted().0.elevator);
        Ok(Opened { queue: Runner::new(device, &config), engine, fallback })
    }

    /// A device that is opened at its first request. Sets the facts of the volume then.
    fn lazy_device(&self, setup: DeviceSetup, later: Later<'_>) -> Lazy {
        let Later { facts, found, .. } = later;
        let (facts, found) = (facts.clone(), Arc::clone(found));
        let source = Arc::clone(&self.source);
        let limits = Engine::limits(&setup.limits, &setup.engine());
        Lazy::new(limits, setup.rings.clone(), move |limits| {
            let setup = DeviceSetup { limits: limits.clone(), ..setup.clone() };
            let OpenedDevice { device, engine, fallback } = source.open(&setup)?;
            found.get_or_init(|| {
                let facts = Facts { engine, fallback, ..facts.clone() };
                observe::engine_opened(&facts);
                facts
            });
            Ok(device)
        })
    }

    /// The file, if plain system calls can read it and no faults are injected.
    pub(crate) fn plain_file(&self) -> Option<Arc<File>> {
        self.source.file().filter(|_| self.faults.is_none()).cloned()
    }

    /// Access to the bytes after the last whole block, for a device that cannot write them.
    pub(crate) fn tail(&self) -> Result<Option<Box<dyn Tail>>, OpenError> {
        if self.options.write && !self.writes_last_block { self.source.tail() } else { Ok(None) }
    }

    /// The receiver of failures of write-back, if there is one.
    pub(crate) fn reporter(&self) -> Option<impl Fn(&WriteBackError) + Send + Sync + 'static> {
        let of_program = self.options.on_write_error.clone();
        let path = self.target.path.clone();
        (observe::IS_ON || of_program.is_some()).then_some(move |failed: &WriteBackError| {
            observe::write_back_failed(&path, failed);
            if let Some(OnWriteError(report)) = &of_program {
                report(failed);
            }
        })
    }

    fn setup(&self, depth: u32, pool: Option<BufferPool>) -> DeviceSetup {
        DeviceSetup { limits: self.limits.clone(), depth, pool, rings: None }
    }
}

/// Whether a source is the regular file of its target.
fn is_file(source: &dyn Source, target: &Target) -> bool {
    source.file().is_some() && target.kind == Kind::RegularFile
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
        Ok(source::open_local_device(&*self.source, self.faults.as_ref(), &setup)?.into())
    }

    fn open_shared(
        &self,
        depth: u32,
        pool: Option<BufferPool>,
    ) -> Result<Opened<Box<SharedDevice>>, OpenError> {
        let setup = self.setup(depth.clamp(1, self.limits.depth_max), pool);
        Ok(source::open_device(&*self.source, self.faults.as_ref(), &setup)?.into())
    }
}

impl<D: ?Sized> From<OpenedDevice<D>> for Opened<Box<D>> {
    fn from(OpenedDevice { device, engine, fallback }: OpenedDevice<D>) -> Self {
        Self { queue: device, engine, fallback }
    }
}
