//! A mapped file shared by engines on several threads: the lock around it, the notifiers of the engines that wait, and
//! memory for the core. The file itself and the work of an engine are in the core.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use iopath_core::Memory;
use iopath_core::mapped::{EngineId, MappedFile, MappedFileError, MappedHost};
use iopath_core::mapper::{FileLayout, MapError, Mapper, Space};

use super::super::Notifier;
use crate::aligned::{AlignedBuf, NoMemory};
use crate::memory::Segment;
use crate::sync::Mutex;

/// The maximum length of a write of zeroes.
const ZEROES_BYTES: usize = 64 << 10;

/// The mapping of a file to a device, and the space that the file may use. A clone is the same file.
///
/// The mapping is in memory, and is lost with the last clone or at the end of the program. To keep a file, store the
/// state of its mapper, and make an equal mapper later ([`FileMap::of`]). A flush writes indirect blocks to the device,
/// but not the inode that points to them. Extents are never written to the device.
///
/// ```
/// use iopath_core::mapper::FileLayout;
/// use iopath_os::FileMap;
///
/// // A new file of 16 MiB on a device of 64 MiB: a hole that gets space when it is written.
/// let layout = FileLayout { block_bytes: 4096, size_bytes: 16 << 20, capacity_bytes: 64 << 20 };
/// let file = FileMap::fresh("extent", &layout)?;
/// assert_eq!(file.size_bytes(), 16 << 20);
/// # Ok::<(), iopath_os::FileMapError>(())
/// ```
#[derive(Clone)]
pub struct FileMap {
    shared: Arc<Shared>,
}

impl fmt::Debug for FileMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileMap").finish_non_exhaustive()
    }
}

/// The reason why no mapping can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileMapError {
    /// The mapper's name or the layout.
    #[error(transparent)]
    File(#[from] MappedFileError),
    /// There is no memory for the zeroes that are written around data.
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

impl From<MapError> for FileMapError {
    fn from(error: MapError) -> Self {
        Self::File(error.into())
    }
}

#[derive(Debug)]
struct Shared {
    locked: Mutex<Locked>,
    /// The file's epoch, to be read without the lock.
    epoch: AtomicU64,
    zeroes: AlignedBuf,
}

#[derive(Debug)]
struct Locked {
    file: MappedFile,
    /// The notifier of each engine.
    notifiers: Vec<(EngineId, Notifier)>,
}

impl FileMap {
    /// A new file that is one hole, with the mapper of that name in [`MAPPERS`](iopath_core::mapper::MAPPERS). It may
    /// use all space of the device except the first block. An `identity` file consists of the first bytes of the
    /// device, with their contents.
    ///
    /// # Errors
    /// An unknown mapper, a layout that the mapper refuses, or no memory.
    pub fn fresh(mapper: &str, layout: &FileLayout) -> Result<Self, FileMapError> {
        Self::new(MappedFile::fresh(mapper, layout)?)
    }

    /// The file that `mapper` maps. It allocates from `space`.
    ///
    /// # Errors
    /// No memory.
    pub fn of(mapper: Box<dyn Mapper>, space: Box<dyn Space + Send>) -> Result<Self, FileMapError> {
        Self::new(MappedFile::new(mapper, space))
    }

    fn new(file: MappedFile) -> Result<Self, FileMapError> {
        let locked = Mutex::new(Locked { file, notifiers: Vec::new() });
        let shared = Shared { locked, epoch: AtomicU64::new(0), zeroes: AlignedBuf::new(ZEROES_BYTES)? };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The file's length in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.with(|file| file.mapper().size_bytes())
    }

    /// The filesystem's block in bytes: the unit in which space is allocated.
    pub fn block_bytes(&self) -> u32 {
        self.with(|file| file.mapper().block_bytes())
    }

    /// The mapper: a name of [`MAPPERS`](iopath_core::mapper::MAPPERS).
    pub fn mapper(&self) -> &'static str {
        self.with(|file| file.mapper().name())
    }

    /// Whether the mapping is fixed. If so, the file has no holes and cannot change its size.
    pub fn is_fixed(&self) -> bool {
        self.with(|file| file.mapper().is_fixed())
    }

    /// Calls `act` with the mapper, for look-ups, for example. I/O may be in flight.
    pub fn with_mapper<R>(&self, act: impl FnOnce(&mut dyn Mapper) -> R) -> R {
        self.with(|file| act(file.mapper_mut()))
    }

    /// The file's limits on a device with the limits `below`.
    ///
    /// # Errors
    /// The device is too small for the mapping, or the block of the file is no multiple of the device's.
    pub fn limits_on(&self, below: &iopath_core::Limits) -> Result<iopath_core::Limits, super::MappedError> {
        Ok(self.with(|file| file.limits_on(below))?)
    }

    /// Adds an engine, whose thread waits for `notifier`.
    pub(super) fn add_engine(&self, notifier: &Notifier) -> Host {
        let id = self.with_locked(|locked| {
            let id = locked.file.add_engine();
            locked.notifiers.push((id, notifier.clone()));
            id
        });
        Host { file: self.clone(), id }
    }

    fn with<R>(&self, act: impl FnOnce(&mut MappedFile) -> R) -> R {
        self.with_locked(|locked| act(&mut locked.file))
    }

    fn with_locked<R>(&self, act: impl FnOnce(&mut Locked) -> R) -> R {
        // A panic leaves no file half changed: mappers assert before they change anything.
        act(&mut self.shared.locked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One engine's part in a shared file.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) file: FileMap,
    pub(super) id: EngineId,
}

impl Host {
    /// Sets the notifier that the engine's thread waits for.
    pub(super) fn set_notifier(&self, notifier: &Notifier) {
        self.file.with_locked(|locked| {
            for (_, own) in locked.notifiers.iter_mut().filter(|(engine, _)| *engine == self.id) {
                *own = notifier.clone();
            }
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.file.with_locked(|locked| locked.notifiers.retain(|(engine, _)| *engine != self.id));
    }
}

impl MappedHost for Host {
    type Memory = Segment;
    type Buffer = AlignedBuf;

    fn with_file<R>(&self, engine: EngineId, act: impl FnOnce(&mut MappedFile) -> R) -> R {
        let shared = &*self.file.shared;
        let mut locked = shared.locked.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut locked.file);
        let notified = locked.file.take_notified();
        shared.epoch.store(locked.file.epoch(), Ordering::Release);
        if !notified.is_empty() {
            let is_notified = |(id, _): &&(EngineId, Notifier)| *id != engine && notified.contains(id);
            let notifiers: Vec<Notifier> =
                locked.notifiers.iter().filter(is_notified).map(|(_, notifier)| notifier.clone()).collect();
            drop(locked);
            notifiers.iter().for_each(Notifier::notify);
        }
        result
    }

    fn epoch(&self) -> u64 {
        self.file.shared.epoch.load(Ordering::Acquire)
    }

    fn buffer(&self, bytes: usize) -> Option<AlignedBuf> {
        AlignedBuf::new(bytes).ok()
    }

    fn memory_of(&self, buffer: &mut AlignedBuf) -> Segment {
        // SAFETY: the core's mapped device, which alone has this host, keeps the buffer and does not access it until
        // the I/O has completed. If the mapped device is dropped earlier, it first drops the device below, which waits
        // for the I/O.
        unsafe { Segment::new(buffer.start(), buffer.len()) }
    }

    fn with_bytes<R>(&self, buffer: &mut AlignedBuf, act: impl FnOnce(&mut [u8]) -> R) -> R {
        act(buffer)
    }

    fn zero(&self, memory: Segment, from: u64) {
        // SAFETY: the core's mapped device calls this for memory of a read that has not completed, where no I/O is in
        // flight.
        unsafe { memory.zero_from(from as usize) };
    }

    fn zeroes(&self) -> Segment {
        let zeroes = &self.file.shared.zeroes;
        // SAFETY: no code writes to the file's zeroes. They live as long as the file, of which this host has a clone,
        // and the host is dropped after the device.
        let segment = unsafe { Segment::new(zeroes.start(), zeroes.len()) };
        segment.slice(0, segment.bytes())
    }
}
