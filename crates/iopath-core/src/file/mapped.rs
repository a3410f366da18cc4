//! A mapped file as a device: its sectors are those of the file, and the mapping determines their location on another
//! device. The plans in [`mapper`](crate::mapper) turn requests into steps, and `mapped/executor.rs` executes the
//! steps. This module neither waits nor locks: a [`MappedHost`] gives access to the mapping that engines share.

mod bios;
mod executor;
mod file;
mod host;
mod length_only;
mod metadata_io;
mod task;

use crate::block::bio::Op;
use crate::block::device::{BlockDevice, Busy, Completion, Io};
use crate::block::limits::Limits;
use crate::block::queue::{QueueConfig, QueueStats};
use crate::block::queued::QueuedDevice;
use crate::block::request::Tag;
use crate::error::IoError;
use crate::file::mapper::Boundary;
use crate::sector::Extent;
use crate::time::Instant;
use executor::Executor;
use file::DEPTH_MAX;
use std::fmt;
use task::Goal;

pub use file::{EngineId, MappedError, MappedFile, MappedFileError};
pub use host::MappedHost;
pub use length_only::{KeptMetadata, LengthOnlyHost};

/// The number of bios for each request slot of the device. A request on the file becomes several bios, some of which
/// merge.
const BIOS_PER_REQUEST: u32 = 4;

/// The minimum number of bios. Even on a device with few slots, a request in many pieces must not wait for its own
/// pieces.
const BIOS_MIN: u32 = 64;

/// The number of requests for each request slot of the device. The queue merges and orders as many requests as are in
/// flight.
const REQUESTS_PER_SLOT: u32 = 2;

/// A device whose sectors are those of a mapped file.
///
/// The mapping determines the I/O on the device below. A mapped range becomes as few bios as the device's limits allow.
/// A read of a hole returns zeroes without I/O. The first write allocates space, and writes zeroes around the data. A
/// discard punches a hole. A queue splits and merges the bios. Writes that fill holes, punches and changes of size
/// exclude each other on the blocks that they touch, on all engines of the file.
///
/// Drop drops the device first; a real device waits for its requests. Then the tasks release their claims.
pub struct MappedDevice<D: BlockDevice, H: MappedHost<Memory = D::Memory>> {
    executor: Executor<D, H>,
    limits: Limits,
    is_fixed: bool,
    /// The time of the last call.
    now: Instant,
}

impl<D, H> fmt::Debug for MappedDevice<D, H>
where
    D: BlockDevice + fmt::Debug,
    H: MappedHost<Memory = D::Memory>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedDevice")
            .field("pump", &self.executor.pump)
            .field("ready", &self.executor.ready.len())
            .field("blocked", &self.executor.blocked.len())
            .field("completed", &self.executor.completed.len())
            .finish_non_exhaustive()
    }
}

impl<D: BlockDevice, H: MappedHost<Memory = D::Memory>> MappedDevice<D, H> {
    /// An engine on the file of `host`. [`MappedFile::add_engine`] returns `id`. `device` must have no request in
    /// flight.
    pub fn new(device: D, host: H, id: EngineId, boundary: Boundary) -> Result<Self, MappedError> {
        let below = device.limits().clone();
        let (limits, is_fixed) = host
            .with_file(id, |file| Ok::<_, MappedError>((file.limits_on(&below)?, file.mapper.is_fixed())))?;
        let depth = below.depth_max.clamp(1, DEPTH_MAX);
        let bios_max = (depth * BIOS_PER_REQUEST).max(BIOS_MIN);
        let requests_max = depth * REQUESTS_PER_SLOT;
        let config = QueueConfig { bios_max, requests_max, depth, ..QueueConfig::default() };
        let executor = Executor::new(host, id, QueuedDevice::new(device, &config), bios_max, boundary);
        Ok(Self { executor, limits, is_fixed, now: Instant::ZERO })
    }

    /// Makes [`Boundary::EveryBlock`] submit each page separately instead of each block: see
    /// [`WritePlan::by_pages`](crate::mapper::WritePlan::by_pages).
    #[must_use]
    pub fn by_pages(mut self, page_bytes: u32) -> Self {
        self.executor.page_bytes = page_bytes;
        self
    }

    /// The device below, with its queue.
    pub const fn below(&self) -> &QueuedDevice<D> {
        &self.executor.pump
    }

    /// The device below, to wait in it. Its completions belong to this device.
    pub const fn device_mut(&mut self) -> &mut D {
        self.executor.pump.device_mut()
    }

    /// The host.
    pub const fn host(&self) -> &H {
        &self.executor.tasks.host
    }

    /// The host, to change how it is notified.
    pub const fn host_mut(&mut self) -> &mut H {
        &mut self.executor.tasks.host
    }

    /// The statistics of the queue in front of the device.
    pub const fn queue_stats(&self) -> &QueueStats {
        self.executor.pump.queue().stats()
    }

    /// Requests submitted and not yet returned by [`BlockDevice::poll_completion`].
    pub fn in_flight(&self) -> u32 {
        self.executor.in_flight() + self.ready()
    }

    /// Requests ready for [`BlockDevice::poll_completion`].
    pub fn ready(&self) -> u32 {
        self.executor.completed.len() as u32
    }

    /// Whether requests wait for other tasks, on this engine or another.
    pub fn is_blocked(&self) -> bool {
        self.executor.is_blocked()
    }

    /// Starts a resize of the file. It completes as a request with the tag `tag`. Added bytes read as zeroes; space
    /// past a new end is released. The resize waits for changes past the old or the new end, and for no other I/O. It
    /// fails with [`IoError::Unsupported`] on a file of fixed size, with EFBIG if the map cannot address the size, and
    /// with the device's errors.
    pub fn resize(&mut self, tag: Tag, size_bytes: u64, now: Instant) {
        self.now = now;
        let size_now =
            self.executor.tasks.host.with_file(self.executor.tasks.id, |file| file.mapper.size_bytes());
        if self.is_fixed && size_bytes != size_now {
            self.executor.completed.push_back(Completion { tag, result: Err(IoError::Unsupported) });
            return;
        }
        let io = Io::new(tag, Op::Flush, Extent::EMPTY, &[]);
        self.executor.start(&io, Goal::Resize(size_bytes), now);
    }

    /// Sets the capacity of this device after a resize of the file. The device below does not change.
    pub const fn set_capacity(&mut self, sectors: u64) {
        self.limits.capacity = sectors;
    }

    /// Collects completions of the device below, and advances all tasks that wait for them. Call
    /// [`BlockDevice::commit`] afterwards.
    pub fn advance(&mut self, now: Instant) {
        loop {
            self.executor.pump.collect(now);
            if !self.dispatch(now) {
                return;
            }
        }
    }

    /// Advances tasks and dispatches their bios. Does not poll the device below, since another thread may wait in it
    /// for completions. Returns whether any task advanced. Call [`BlockDevice::commit`] afterwards.
    pub fn dispatch(&mut self, now: Instant) -> bool {
        self.now = now;
        let mut has_advanced = false;
        loop {
            self.executor.pump.unplug(now);
            self.executor.pump.dispatch(now);
            if !self.executor.advance_ready(now) {
                return has_advanced;
            }
            has_advanced = true;
        }
    }
}

impl<D: BlockDevice, H: MappedHost<Memory = D::Memory>> BlockDevice for MappedDevice<D, H> {
    type Memory = D::Memory;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    /// # Panics
    /// If a segment is not whole blocks: a bug of the caller.
    fn submit(&mut self, io: &Io<'_, D::Memory>, now: Instant) -> Result<(), Busy> {
        self.now = now;
        if self.in_flight() >= self.limits.depth_max {
            return Err(Busy { tag: io.tag });
        }
        let goal = match io.op {
            Op::Read => Goal::Read,
            Op::Write => Goal::Write,
            Op::Flush => Goal::Flush,
            Op::Discard if self.is_fixed => Goal::Pass,
            Op::Discard => Goal::Punch,
            Op::WriteZeroes => Goal::Zero,
        };
        self.executor.start(io, goal, now);
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        self.dispatch(now);
        self.executor.pump.commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        if self.executor.completed.is_empty() {
            self.advance(now);
        }
        self.executor.completed.pop_front()
    }

    /// The time of the queue and the device below. Now, if completions are ready, or if an event has occurred that a
    /// blocked task waits for.
    fn poll_timeout(&self) -> Option<Instant> {
        let at_once = self.ready() > 0 || self.executor.is_notified();
        [at_once.then_some(self.now), self.executor.pump.poll_timeout()].into_iter().flatten().min()
    }
}
