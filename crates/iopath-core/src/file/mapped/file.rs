//! The mapping of one file, shared by all engines that do I/O on it. Records claims to blocks, and metadata that is not
//! yet on the medium. It does no I/O and takes no lock: see [`MappedHost`](super::MappedHost).

use std::collections::VecDeque;
use std::fmt;

use crate::block::limits::Limits;
use crate::error::IoError;
use crate::file::mapper::{
    DirtyMetadata, FileLayout, FileRange, FreeSpace, Location, MAPPERS, MapError, Mapper, PlanError,
    Quarantine, Space, Ticket,
};
use crate::sector::{Extent, SECTOR_BYTES, Sector};

/// The maximum length of a request. It bounds the number of steps of one plan, and exceeds any caller's I/O.
const REQUEST_BYTES_MAX: u64 = 1 << 30;

/// The maximum number of requests in flight on one engine.
pub(super) const DEPTH_MAX: u32 = 1024;

/// The mapping of a file, the space that the file may use, and the state that engines share.
///
/// The mapping is in memory only. To keep a file, store the state of its mapper, and make an equal mapper later
/// ([`MappedFile::new`]). A flush writes indirect blocks to the device, but not the inode that points to them. Extents
/// are never written to the device.
pub struct MappedFile {
    pub(super) mapper: Box<dyn Mapper>,
    space: Quarantine<Box<dyn Space + Send>>,
    /// The end of the part of the device that the file may use, in sectors; 0 if unknown.
    reach_sectors: u64,
    engines: u64,
    /// In order of arrival.
    claims: VecDeque<Claim>,
    claims_made: u64,
    /// Metadata polled from the mapper that may not be on the medium, oldest first. A newer version of a block comes
    /// after the older version.
    unsaved: Vec<DirtyMetadata>,
    is_saving: bool,
    /// The number of failed device flushes on all engines: so far, and when the current save began.
    failed_flushes: u64,
    failed_before_saving: u64,
    /// The number of device flushes begun on all engines, and the flushes whose outcome is unknown.
    flushes_begun: u64,
    open_flushes: Vec<FlushId>,
    /// The number of metadata blocks polled from the mapper. A block read before the number changed may be outdated.
    metadata_taken: u64,
    /// The number of events that an engine may wait for.
    epoch: u64,
    has_news: bool,
    /// Engines to notify of the next event.
    waiting: Vec<EngineId>,
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedFile")
            .field("mapper", &self.mapper)
            .field("claims", &self.claims.len())
            .field("unsaved", &self.unsaved.len())
            .field("open_flushes", &self.open_flushes.len())
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

/// Blocks that a task writes, punches or grows over. An exclusive claim conflicts with every overlapping claim, a
/// shared claim only with overlapping exclusive claims.
#[derive(Debug, Clone, Copy)]
struct Claim {
    id: ClaimId,
    blocks: FileRange,
    is_exclusive: bool,
}

/// Identifies a claim until it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClaimId(u64);

/// Identifies a device flush, or a forced write, until its outcome is known. Later ones have greater numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlushId(u64);

/// Identifies an engine on the file: one [`MappedDevice`](super::MappedDevice).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineId(u64);

/// The reason why no mapping can be made.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappedFileError {
    /// The name is not in [`MAPPERS`].
    #[error("there is no mapping `{0}`; known are {known}", known = names())]
    Unknown(String),
    /// The mapper refuses the layout.
    #[error(transparent)]
    Map(#[from] MapError),
}

impl fmt::Debug for MappedFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::debug::error("MappedFileError", self, f)
    }
}

fn names() -> String {
    MAPPERS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

/// The reason why a file cannot lie on a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappedError {
    /// The file's blocks do not fit the device's.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device is smaller than the one that the mapping was made for.
    #[error(
        "the mapping uses space up to sector {reach_sectors}, but the device has {capacity} sectors; make the mapping for this device"
    )]
    TooSmall {
        /// Sectors of the device that the mapping was made for.
        reach_sectors: u64,
        /// Sectors of this device.
        capacity: u64,
    },
}

impl MappedFile {
    /// A new file that is one hole, with the mapper of that name in [`MAPPERS`]. It may use all space of the device
    /// except the first block. An `identity` file consists of the first bytes of the device, with their contents.
    pub fn fresh(mapper: &str, layout: &FileLayout) -> Result<Self, MappedFileError> {
        let kind = MAPPERS.iter().find(|kind| kind.name == mapper);
        let kind = kind.ok_or_else(|| MappedFileError::Unknown(mapper.to_owned()))?;
        let made = (kind.make)(layout)?;
        // Block 0 means a hole in an indirect map.
        let first = u64::from(layout.block_bytes) / SECTOR_BYTES;
        let sectors = layout.capacity_sectors();
        let all = Extent::new(Sector(first), sectors.saturating_sub(first)).unwrap_or_default();
        Ok(Self { reach_sectors: sectors, ..Self::new(made, Box::new(FreeSpace::new(all))) })
    }

    /// The file that `mapper` maps. It allocates from `space`.
    pub fn new(mapper: Box<dyn Mapper>, space: Box<dyn Space + Send>) -> Self {
        Self {
            mapper,
            space: Quarantine::new(space),
            reach_sectors: 0,
            engines: 0,
            claims: VecDeque::new(),
            claims_made: 0,
            unsaved: Vec::new(),
            is_saving: false,
            failed_flushes: 0,
            failed_before_saving: 0,
            flushes_begun: 0,
            open_flushes: Vec::new(),
            metadata_taken: 0,
            epoch: 0,
            has_news: false,
            waiting: Vec::new(),
        }
    }

    /// The mapper.
    pub fn mapper(&self) -> &dyn Mapper {
        &*self.mapper
    }

    /// The mapper, also while I/O is in flight: for look-ups, or to drop clean metadata.
    pub fn mapper_mut(&mut self) -> &mut dyn Mapper {
        &mut *self.mapper
    }

    /// The file's limits on a device with the limits `below`.
    pub fn limits_on(&self, below: &Limits) -> Result<Limits, MappedError> {
        let block_bytes = below.logical_block_bytes;
        let file_block_bytes = self.mapper.block_bytes();
        if !file_block_bytes.is_multiple_of(block_bytes.max(1)) {
            return Err(PlanError::BlockSize { file_block_bytes, block_bytes }.into());
        }
        let (reach_sectors, capacity) = (self.reach_sectors, below.capacity);
        if reach_sectors > capacity {
            return Err(MappedError::TooSmall { reach_sectors, capacity });
        }
        let is_fixed = self.mapper.is_fixed();
        let block = u64::from(block_bytes);
        Ok(Limits {
            capacity: self.mapper.size_bytes().div_ceil(block).saturating_mul(block) / SECTOR_BYTES,
            request_bytes_max: REQUEST_BYTES_MAX,
            chunk_sectors: 0,
            depth_max: below.depth_max.clamp(1, DEPTH_MAX),
            // A punch changes the map, and zeroes can be written, so neither needs support of the device.
            discard_bytes_max: if is_fixed { below.discard_bytes_max } else { REQUEST_BYTES_MAX },
            write_zeroes_bytes_max: REQUEST_BYTES_MAX,
            // The queue must send flushes even if the device has no cache, since they save metadata.
            volatile_cache: below.volatile_cache || !is_fixed,
            ..below.clone()
        })
    }

    /// A number that changes with each event that a waiting engine should poll for.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The engines to notify of an event since the last call. The host calls this after each use of the file, and makes
    /// these engines poll.
    pub fn take_notified(&mut self) -> Vec<EngineId> {
        if std::mem::take(&mut self.has_news) { std::mem::take(&mut self.waiting) } else { Vec::new() }
    }

    /// A new engine's identifier.
    pub const fn add_engine(&mut self) -> EngineId {
        self.engines += 1;
        EngineId(self.engines)
    }

    /// Notifies `engine` of the next event.
    pub(super) fn wait(&mut self, engine: EngineId) {
        if !self.waiting.contains(&engine) {
            self.waiting.push(engine);
        }
    }

    const fn notify(&mut self) {
        self.epoch += 1;
        self.has_news = true;
    }

    /// Adds a claim after all others.
    pub(super) fn claim(&mut self, blocks: FileRange, is_exclusive: bool) -> ClaimId {
        self.claims_made += 1;
        let id = ClaimId(self.claims_made);
        self.claims.push_back(Claim { id, blocks, is_exclusive });
        id
    }

    /// Whether no earlier claim conflicts with this one. A claim never waits for a later one, so the oldest is always
    /// granted.
    pub(super) fn is_granted(&self, id: ClaimId) -> bool {
        let index = self.claims.iter().position(|claim| claim.id == id).expect("the claim exists");
        let own = self.claims[index];
        let conflicts = |other: &Claim| {
            (own.is_exclusive || other.is_exclusive) && !other.blocks.and(own.blocks).is_empty()
        };
        !self.claims.iter().take(index).any(conflicts)
    }

    pub(super) fn release_claim(&mut self, id: ClaimId) {
        let index = self.claims.iter().position(|claim| claim.id == id).expect("a claim is released once");
        self.claims.remove(index);
        self.notify();
    }

    /// Begins an I/O. Space released from now on stays in quarantine until the I/O ends.
    pub(super) fn begin_io(&mut self) -> Ticket {
        self.space.begin()
    }

    pub(super) fn end_io(&mut self, ticket: Ticket) {
        let held = self.space.held_sectors();
        self.space.end(ticket);
        if self.space.held_sectors() < held {
            self.notify();
        }
    }

    /// Sectors in quarantine. They become free when the I/O in flight has completed.
    pub(super) fn held_sectors(&self) -> u64 {
        self.space.held_sectors()
    }

    /// Whether all of `file` is known to have data on the device.
    pub(super) fn is_written(&self, file: FileRange) -> bool {
        let mut rest = file;
        while !rest.is_empty() {
            match self.mapper.map(rest) {
                Ok(mapping) if matches!(mapping.location, Location::Written(_)) => {
                    rest = rest.from_offset(mapping.file.end());
                }
                _ => return false,
            }
        }
        true
    }

    /// Allocates space for the holes of `file`.
    pub(super) fn allocate(&mut self, file: FileRange) -> Result<(), MapError> {
        let Self { mapper, space, unsaved, .. } = self;
        mapper.allocate(file, &mut ForgetReleased { space, unsaved })
    }

    pub(super) fn unmap(&mut self, file: FileRange) -> Result<(), MapError> {
        self.notify();
        let Self { mapper, space, unsaved, .. } = self;
        mapper.unmap(file, &mut ForgetReleased { space, unsaved })
    }

    /// The number of metadata blocks polled from the mapper. A block read from the device before the number changed
    /// must not be used.
    pub(super) const fn metadata_taken(&self) -> u64 {
        self.metadata_taken
    }

    /// Passes a metadata block to the mapper from memory, if it is not yet on the medium. Returns whether there is one.
    pub(super) fn supply_unsaved(&mut self, extent: Extent) -> Result<bool, MapError> {
        let Self { mapper, unsaved, .. } = self;
        let Some(newest) = unsaved.iter().rev().find(|dirty| dirty.extent == extent) else {
            return Ok(false);
        };
        mapper.handle_metadata(extent, &newest.bytes).map(|()| true)
    }

    /// Polls changed metadata from the mapper. Returns whether any metadata is unsaved, including metadata being saved.
    pub(super) fn collect_dirty(&mut self) -> bool {
        while let Some(dirty) = self.mapper.poll_dirty() {
            self.metadata_taken += 1;
            self.unsaved.push(dirty);
        }
        !self.unsaved.is_empty()
    }

    /// Begins to save the unsaved metadata. Returns its number of blocks; `None` while another task saves.
    pub(super) const fn begin_saving(&mut self) -> Option<usize> {
        if std::mem::replace(&mut self.is_saving, true) {
            return None;
        }
        self.failed_before_saving = self.failed_flushes;
        Some(self.unsaved.len())
    }

    /// An unsaved block; index 0 is the oldest. Its extent is empty if its space was released meanwhile.
    pub(super) fn unsaved(&self, index: usize) -> &DirtyMetadata {
        &self.unsaved[index]
    }

    /// Begins a device flush, or a forced write.
    pub(super) fn begin_flush(&mut self) -> FlushId {
        self.flushes_begun += 1;
        let id = FlushId(self.flushes_begun);
        self.open_flushes.push(id);
        id
    }

    /// Ends a flush. A device that failed to flush may have lost writes of any engine.
    pub(super) fn end_flush(&mut self, id: FlushId, has_failed: bool) {
        self.open_flushes.retain(|open| *open != id);
        self.failed_flushes += u64::from(has_failed);
        self.notify();
    }

    /// The last flush that began, on any engine.
    pub(super) const fn last_flush(&self) -> FlushId {
        FlushId(self.flushes_begun)
    }

    /// Whether the outcome of any flush up to `last` is unknown, since its engine has not polled it yet.
    pub(super) fn is_flushing(&self, last: FlushId) -> bool {
        self.open_flushes.iter().any(|open| *open <= last)
    }

    /// Ends a save: the `saved` oldest blocks are on the medium, all others stay unsaved. If a failed flush of another
    /// engine may have lost the blocks, all stay unsaved, and it returns false. Call it when the outcome of every flush
    /// is known that began before the flush of the save ([`MappedFile::is_flushing`]).
    pub(super) fn end_saving(&mut self, saved: usize) -> bool {
        let is_lost = saved > 0 && self.failed_flushes != self.failed_before_saving;
        if !is_lost {
            self.unsaved.drain(..saved);
        }
        self.is_saving = false;
        self.notify();
        !is_lost
    }
}

/// A space that drops unsaved metadata in released extents. If such metadata were saved later, it would overwrite the
/// next user of the extent. A write already in flight completes before the extent is reused, since the task that saves
/// holds a ticket.
#[derive(Debug)]
struct ForgetReleased<'a> {
    space: &'a mut Quarantine<Box<dyn Space + Send>>,
    unsaved: &'a mut Vec<DirtyMetadata>,
}

impl Space for ForgetReleased<'_> {
    fn take(&mut self, sectors: u64, unit: u64, near: Sector) -> Option<Extent> {
        self.space.take(sectors, unit, near)
    }

    fn release(&mut self, extent: Extent) {
        for dirty in self.unsaved.iter_mut().filter(|dirty| dirty.extent.overlaps(extent)) {
            dirty.extent = Extent::EMPTY;
        }
        self.space.release(extent);
    }
}

/// The I/O error that reports a mapping error.
pub(super) const fn io_error_of_map(error: &MapError) -> IoError {
    /// Linux's EFBIG.
    const FILE_TOO_BIG: i32 = 27;
    match error {
        MapError::NoSpace => IoError::NoSpace,
        MapError::TooFar { .. } => IoError::Os(FILE_TOO_BIG),
        MapError::Fixed(_) => IoError::Unsupported,
        MapError::BlockSize { .. } => IoError::Alignment,
        _ => IoError::Media,
    }
}
