//! The mapping of one file, shared by all engines that carry out I/O on it: which of them may change which blocks, and
//! which metadata is not on the medium yet. Under one lock, which is held for no I/O; who carries out what is mapped is
//! `mapped.rs`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use iopath_core::mapper::{
    DirtyMetadata, FileLayout, FileRange, FreeSpace, MAPPERS, MapError, Mapper, Place, Quarantine, Space,
    Ticket,
};
use iopath_core::{Extent, IoError, SECTOR_BYTES, Sector};

use super::super::Bell;
use crate::aligned::{AlignedBuf, NoMemory};
use crate::sync::Mutex;

/// The longest write of zeroes.
const ZEROES_BYTES: usize = 64 << 10;

/// A file's place on a device: which of its bytes lie where, and the space that it may take. A clone is the same file.
///
/// The mapping is in memory and goes with the last clone, and with the program: whoever wants the file back keeps what
/// the mapper knows, and makes the same mapper again ([`FileMap::of`]). Indirect blocks are on the device after a
/// flush, the inode that leads to them is not; extents are nowhere but here.
///
/// ```
/// use iopath_core::mapper::FileLayout;
/// use iopath_os::FileMap;
///
/// // A new file on a device of 64 MiB: a hole of 16 MiB, that takes space as it is written.
/// let layout = FileLayout { block_bytes: 4096, size_bytes: 16 << 20, capacity_bytes: 64 << 20 };
/// let file = FileMap::fresh("extent", &layout)?;
/// assert_eq!(file.size_bytes(), 16 << 20);
/// # Ok::<(), iopath_os::FileMapError>(())
/// ```
#[derive(Debug, Clone)]
pub struct FileMap {
    shared: Arc<Shared>,
}

/// Why there is no such mapping.
#[derive(Debug, thiserror::Error)]
pub enum FileMapError {
    /// No row of [`MAPPERS`].
    #[error("there is no mapping `{0}`; known are {known}", known = names())]
    Unknown(String),
    /// The mapping cannot be like that.
    #[error(transparent)]
    Map(#[from] MapError),
    /// There is no memory for zeroes to be written.
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

fn names() -> String {
    MAPPERS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Counts whatever somebody may wait for.
    epoch: AtomicU64,
    devices: AtomicU64,
    /// The sectors of the device that it may lie on, as far as that is known.
    reach_sectors: u64,
    zeroes: AlignedBuf,
}

/// What is under the lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) mapper: Box<dyn Mapper>,
    space: Quarantine<Box<dyn Space + Send>>,
    /// In the order in which they were made.
    claims: VecDeque<Claim>,
    claims_made: u64,
    /// Metadata taken from the mapper and not on the medium for sure; the oldest first, newer of the same place behind.
    unsaved: Vec<DirtyMetadata>,
    is_saving: bool,
    /// Flushes of the device that failed, on any engine; and before the metadata went that is being saved.
    failed_flushes: u64,
    failed_before_saving: u64,
    /// Flushes of the device that began, on any engine, and of those the ones whose outcome is not known yet.
    flushes_begun: u64,
    open_flushes: Vec<FlushId>,
    /// Counts metadata taken from the mapper: what was read before may be old.
    metadata_taken: u64,
    /// Something has happened that others may wait for.
    has_news: bool,
    waiting: Vec<(DeviceId, Bell)>,
}

/// Blocks that somebody writes to, punches or grows over. An exclusive claim keeps out all others, one that is not only
/// exclusive ones.
#[derive(Debug, Clone, Copy)]
struct Claim {
    id: ClaimId,
    blocks: FileRange,
    is_exclusive: bool,
}

/// Names a claim until it is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClaimId(u64);

/// Names a flush of the device, or a forced write, until its outcome is known. Later ones have greater numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlushId(u64);

/// Names an engine on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceId(u64);

impl FileMap {
    /// A new file that is a hole, mapped as the row of that name in [`MAPPERS`] does it, with all of the device but its
    /// first block to take space from. An `identity` file is the first bytes of the device as they are.
    pub fn fresh(mapper: &str, layout: &FileLayout) -> Result<Self, FileMapError> {
        let kind = MAPPERS.iter().find(|kind| kind.name == mapper);
        let kind = kind.ok_or_else(|| FileMapError::Unknown(mapper.to_owned()))?;
        let made = (kind.make)(layout)?;
        // Block 0 stands for a hole in an indirect map.
        let first = u64::from(layout.block_bytes) / SECTOR_BYTES;
        let all =
            Extent::new(Sector(first), layout.capacity_sectors().saturating_sub(first)).unwrap_or_default();
        Self::new(made, Box::new(FreeSpace::new(all)), layout.capacity_sectors())
    }

    /// The file that `mapper` maps, which takes space from `space`: one of which it is known where it lies.
    pub fn of(mapper: Box<dyn Mapper>, space: Box<dyn Space + Send>) -> Result<Self, FileMapError> {
        Self::new(mapper, space, 0)
    }

    fn new(
        mapper: Box<dyn Mapper>,
        space: Box<dyn Space + Send>,
        reach_sectors: u64,
    ) -> Result<Self, FileMapError> {
        let state = State {
            mapper,
            space: Quarantine::new(space),
            claims: VecDeque::new(),
            claims_made: 0,
            unsaved: Vec::new(),
            is_saving: false,
            failed_flushes: 0,
            failed_before_saving: 0,
            flushes_begun: 0,
            open_flushes: Vec::new(),
            metadata_taken: 0,
            has_news: false,
            waiting: Vec::new(),
        };
        let shared = Shared {
            state: Mutex::new(state),
            epoch: AtomicU64::new(0),
            devices: AtomicU64::new(0),
            reach_sectors,
            zeroes: AlignedBuf::new(ZEROES_BYTES)?,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The file's length in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.with(None, |state| state.mapper.size_bytes())
    }

    /// The filesystem's block in bytes: space is taken in these.
    pub fn block_bytes(&self) -> u32 {
        self.with(None, |state| state.mapper.block_bytes())
    }

    /// How it is mapped: a name of [`MAPPERS`].
    pub fn mapper(&self) -> &'static str {
        self.with(None, |state| state.mapper.name())
    }

    /// Whether the file lies where it lies: then it has no holes, and keeps its size.
    pub fn is_fixed(&self) -> bool {
        self.with(None, |state| state.mapper.is_fixed())
    }

    /// Does something with the mapper, between whatever I/O is in flight: looks at where the file lies, say.
    pub fn with_mapper<R>(&self, act: impl FnOnce(&mut dyn Mapper) -> R) -> R {
        self.with(None, |state| act(&mut *state.mapper))
    }

    /// How large a device has to be, in sectors, as far as that is known.
    pub(super) fn reach_sectors(&self) -> u64 {
        self.shared.reach_sectors
    }

    pub(super) fn zeroes(&self) -> &AlignedBuf {
        &self.shared.zeroes
    }

    pub(super) fn new_device(&self) -> DeviceId {
        DeviceId(self.shared.devices.fetch_add(1, Ordering::Relaxed))
    }

    /// A number that differs when somebody who waits should look again.
    pub(super) fn epoch(&self) -> u64 {
        self.shared.epoch.load(Ordering::Acquire)
    }

    /// Does something under the lock, and tells those who wait if that was what they wait for; `by` looks itself.
    pub(super) fn with<R>(&self, by: Option<DeviceId>, act: impl FnOnce(&mut State) -> R) -> R {
        // No state is left half changed by what may panic: mappers assert before they change anything.
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut state);
        if std::mem::take(&mut state.has_news) {
            self.shared.epoch.fetch_add(1, Ordering::Release);
            if !state.waiting.is_empty() {
                let waiting = std::mem::take(&mut state.waiting);
                drop(state);
                waiting.iter().filter(|(device, _)| Some(*device) != by).for_each(|(_, bell)| bell.ring());
            }
        }
        result
    }
}

impl State {
    /// The device is to be told of the next news.
    pub(super) fn wait(&mut self, device: DeviceId, bell: &Bell) {
        if self.waiting.iter().all(|(waiting, _)| *waiting != device) {
            self.waiting.push((device, bell.clone()));
        }
    }

    /// Puts a claim behind all there are.
    pub(super) fn claim(&mut self, blocks: FileRange, is_exclusive: bool) -> ClaimId {
        self.claims_made += 1;
        let id = ClaimId(self.claims_made);
        self.claims.push_back(Claim { id, blocks, is_exclusive });
        id
    }

    /// Whether no earlier claim is in the way of this one. None waits for a later one, so the oldest can always go.
    pub(super) fn may_go(&self, id: ClaimId) -> bool {
        let place = self.claims.iter().position(|claim| claim.id == id).expect("a claim that was made");
        let own = self.claims[place];
        let in_the_way = |other: &Claim| {
            (own.is_exclusive || other.is_exclusive) && !other.blocks.and(own.blocks).is_empty()
        };
        !self.claims.iter().take(place).any(in_the_way)
    }

    pub(super) fn give_up(&mut self, id: ClaimId) {
        let place = self.claims.iter().position(|claim| claim.id == id).expect("a claim is given up once");
        self.claims.remove(place);
        self.has_news = true;
    }

    /// An I/O begins that must not find its blocks somebody else's.
    pub(super) fn begin(&mut self) -> Ticket {
        self.space.begin()
    }

    pub(super) fn end(&mut self, ticket: Ticket) {
        let held = self.space.held_sectors();
        self.space.end(ticket);
        self.has_news |= self.space.held_sectors() < held;
    }

    /// Sectors that come back when I/O in flight has completed.
    pub(super) fn held_sectors(&self) -> u64 {
        self.space.held_sectors()
    }

    /// Whether all of `file` has data on the device. Not known is no.
    pub(super) fn is_written(&self, file: FileRange) -> bool {
        let mut rest = file;
        while !rest.is_empty() {
            match self.mapper.map(rest) {
                Ok(mapping) if matches!(mapping.place, Place::Written(_)) => {
                    rest = rest.from_offset(mapping.file.end());
                }
                _ => return false,
            }
        }
        true
    }

    /// Gives the holes of `file` space.
    pub(super) fn allocate(&mut self, file: FileRange) -> Result<(), MapError> {
        let Self { mapper, space, unsaved, .. } = self;
        mapper.allocate(file, &mut Freeing { space, unsaved })
    }

    pub(super) fn unmap(&mut self, file: FileRange) -> Result<(), MapError> {
        let Self { mapper, space, unsaved, has_news, .. } = self;
        *has_news = true;
        mapper.unmap(file, &mut Freeing { space, unsaved })
    }

    /// Counts up with all metadata that leaves the mapper: what was read from the device before is not to be used.
    pub(super) const fn metadata_taken(&self) -> u64 {
        self.metadata_taken
    }

    /// Gives the mapper a metadata block that is on its way to the device; whether it was.
    pub(super) fn remember_metadata(&mut self, place: Extent) -> Result<bool, MapError> {
        let Self { mapper, unsaved, .. } = self;
        let Some(newest) = unsaved.iter().rev().find(|dirty| dirty.place == place) else { return Ok(false) };
        mapper.handle_metadata(place, &newest.bytes).map(|()| true)
    }

    /// Takes from the mapper what has changed; whether there is anything to be saved, or being saved.
    pub(super) fn take_dirty(&mut self) -> bool {
        while let Some(dirty) = self.mapper.poll_dirty() {
            self.metadata_taken += 1;
            self.unsaved.push(dirty);
        }
        !self.unsaved.is_empty()
    }

    /// How many metadata blocks are to be saved by who asks, nobody else meanwhile; `None` while another does.
    pub(super) const fn begin_saving(&mut self) -> Option<usize> {
        if std::mem::replace(&mut self.is_saving, true) {
            return None;
        }
        self.failed_before_saving = self.failed_flushes;
        Some(self.unsaved.len())
    }

    /// One that is being saved, the oldest first. It lies nowhere if its place was given up meanwhile.
    pub(super) fn unsaved(&self, index: usize) -> &DirtyMetadata {
        &self.unsaved[index]
    }

    /// The device is to be flushed, by a flush or with a forced write.
    pub(super) fn begin_flush(&mut self) -> FlushId {
        self.flushes_begun += 1;
        let id = FlushId(self.flushes_begun);
        self.open_flushes.push(id);
        id
    }

    /// How that ended is known. If the device could not be flushed, it may have lost what it took from others, too.
    pub(super) fn end_flush(&mut self, id: FlushId, has_failed: bool) {
        self.open_flushes.retain(|open| *open != id);
        self.failed_flushes += u64::from(has_failed);
        self.has_news = true;
    }

    /// The last flush of the device that has begun, on any engine.
    pub(super) const fn last_flush(&self) -> FlushId {
        FlushId(self.flushes_begun)
    }

    /// Whether a flush up to `last` may have failed without this being known. The engine that carries it out has yet to
    /// ask.
    pub(super) fn is_flushing(&self, last: FlushId) -> bool {
        self.open_flushes.iter().any(|open| *open <= last)
    }

    /// The oldest `saved` are on the medium; all others are yet to be saved. Not so, and false, if the device may have
    /// lost them in a flush that failed on another engine: to be asked when every flush that began before the metadata
    /// was flushed has completed ([`State::is_flushing`]).
    pub(super) fn end_saving(&mut self, saved: usize) -> bool {
        let is_lost = saved > 0 && self.failed_flushes != self.failed_before_saving;
        if !is_lost {
            self.unsaved.drain(..saved);
        }
        self.is_saving = false;
        self.has_news = true;
        !is_lost
    }
}

/// Space that forgets metadata in what is given back: saved later, it would lie on what comes there next. What is at
/// the device already comes before that, since whoever saves it began before.
#[derive(Debug)]
struct Freeing<'a> {
    space: &'a mut Quarantine<Box<dyn Space + Send>>,
    unsaved: &'a mut Vec<DirtyMetadata>,
}

impl Space for Freeing<'_> {
    fn take(&mut self, sectors: u64, unit: u64, near: Sector) -> Option<Extent> {
        self.space.take(sectors, unit, near)
    }

    fn release(&mut self, extent: Extent) {
        for dirty in self.unsaved.iter_mut().filter(|dirty| dirty.place.overlaps(extent)) {
            dirty.place = Extent::EMPTY;
        }
        self.space.release(extent);
    }
}

/// What an I/O is told that cannot be mapped.
pub(super) const fn io_error_of_map(error: &MapError) -> IoError {
    match error {
        MapError::NoSpace => IoError::NoSpace,
        MapError::TooFar { .. } => IoError::Os(libc::EFBIG),
        MapError::Fixed(_) => IoError::Unsupported,
        MapError::BlockSize { .. } => IoError::Alignment,
        _ => IoError::Media,
    }
}
