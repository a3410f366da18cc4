//! A file on a device as a device: its sectors are the file's, wherever they lie. What requests become is in
//! `mapped/carry.rs` and the plans of the core (`iopath_core::mapper`); here the device below is driven and waited for.
//! The mapping itself, which other engines share, is `mapped/file.rs`.

mod aside;
mod bios;
mod carry;
mod file;
mod task;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use iopath_core::mapper::{Boundary, PlanError};
use iopath_core::{
    BlockDevice, Busy, Completion, Duration, Extent, Instant, Io, IoError, Limits, Op, QueueConfig,
    QueueStats, QueuedDevice, SECTOR_BYTES, Tag,
};

use super::{Bell, RealDevice, WaitError, Watch};
use crate::clock;
use crate::errno::io_error_of;
use crate::memory::Segment;
use crate::sync::thread;
use carry::Carrier;
use task::Goal;

pub use file::{FileMap, FileMapError};

/// The longest request. Each has one plan, which cuts it for the device below: so long that nobody's I/O is cut before
/// that, and that the steps of one are not without end.
const REQUEST_BYTES_MAX: u64 = 1 << 30;

/// The most requests at once.
const DEPTH_MAX: u32 = 1024;

/// Bios for each request that the device takes at once: a request on the file becomes several, of which some merge.
const BIOS_PER_PLACE: u32 = 4;

/// The fewest bios: a request in many pieces is not to wait for its own, however few the device takes at once.
const BIOS_MIN: u32 = 64;

/// Requests for each that the device takes at once: as many are put in order and merged while those are in flight.
const REQUESTS_PER_PLACE: u32 = 2;

/// A device whose sectors are a file's, on a device where they lie elsewhere.
///
/// A read, write, flush, discard (which punches a hole) or write-zeroes of the file becomes what its mapping says: as
/// few bios as the device's limits allow for each mapping; zeroes without I/O where there is nothing; space where a
/// write comes for the first time, with zeroes around the data. A queue of its own splits and merges them. Writes that
/// fill holes, punches and changes of size keep other changes away from their blocks until they have completed, on whichever
/// engine: what waits for another is waited for like the device.
#[derive(Debug)]
pub struct Mapped<D: RealDevice> {
    carrier: Carrier<D>,
    limits: Limits,
    is_fixed: bool,
    /// `READY`, `BELOW` or `OTHERS`, for who waits.
    watched: Arc<AtomicU8>,
    /// System calls made by waits for the bell.
    waits: u64,
}

/// A file cannot be read and written there.
#[derive(Debug, thiserror::Error)]
pub enum MappedError {
    /// Its blocks do not fit the device's.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device ends before the space does that the file may take.
    #[error(
        "the mapping takes space up to sector {reach_sectors} of a device of {capacity}; make it for this device"
    )]
    TooSmall {
        /// Sectors of the device that the mapping was made for.
        reach_sectors: u64,
        /// Sectors of this one.
        capacity: u64,
    },
    /// Others that change the same file cannot be waited for.
    #[error("changes by others cannot be waited for ({0}); raise the limit of open files (ulimit -n)")]
    Bell(#[source] io::Error),
}

impl<D: RealDevice> Mapped<D> {
    /// The file on `device`; its boundaries taken as `boundary` says.
    ///
    /// # Panics
    /// If the device has requests already: they would be taken for this one's.
    pub fn new(device: D, file: &FileMap, boundary: Boundary) -> Result<Self, MappedError> {
        assert!(device.in_flight() == 0, "{device:?} already has requests in flight");
        let below = device.limits().clone();
        let limits = file.limits_on(&below)?;
        let depth = below.depth_max.clamp(1, DEPTH_MAX);
        let bios_max = (depth * BIOS_PER_PLACE).max(BIOS_MIN);
        let requests_max = depth * REQUESTS_PER_PLACE;
        let config = QueueConfig { bios_max, requests_max, depth, ..QueueConfig::default() };
        let pump = QueuedDevice::new(device, &config);
        let bell = Bell::new().map_err(MappedError::Bell)?;
        let watched = Arc::new(AtomicU8::new(READY));
        let carrier = Carrier::new(file, pump, bios_max, boundary, bell);
        let is_fixed = file.is_fixed();
        Ok(Self { carrier, limits, is_fixed, watched, waits: 0 })
    }

    /// What the queue in front of the device has done so far.
    pub const fn queue_stats(&self) -> &QueueStats {
        self.carrier.pump.queue().stats()
    }

    const fn device(&self) -> &D {
        self.carrier.pump.device()
    }

    /// Makes the file longer or shorter. What it gains reads as zeroes; what it loses is given back. Changes of what
    /// lies behind the new end, or the old, are waited for, other I/O is not.
    ///
    /// # Errors
    /// [`IoError::Unsupported`] for a file that lies where it lies; EFBIG for more than its map has pointers or offsets
    /// for; and those of the device.
    ///
    /// # Panics
    /// If requests are in flight on this engine.
    pub fn resize(&mut self, size_bytes: u64) -> Result<(), IoError> {
        assert!(self.in_flight() == 0, "requests are in flight");
        if self.is_fixed && size_bytes != self.carrier.tasks.file.size_bytes() {
            return Err(IoError::Unsupported);
        }
        let tag = Tag::from_bits(0);
        let io = Io::new(tag, Op::Flush, Extent::EMPTY, &[]);
        self.carrier.take(&io, Goal::Resize(size_bytes), clock::now());
        loop {
            self.commit_and_wait(1, None).map_err(|error| io_error_of(Op::Flush, &error.source))?;
            if let Some(done) = self.poll_completion(clock::now()) {
                return done.result;
            }
        }
    }

    /// Sees what has completed below, and goes on with what waited for that; as long as there is anything.
    fn turn(&mut self, now: Instant) {
        loop {
            self.carrier.pump.collect(now);
            if !self.go_on(now) {
                break;
            }
        }
        self.publish();
    }

    /// Goes on with what can, and hands the device what is queued, but for the call that sends it off. Asks the device
    /// for nothing: another thread may be waiting for it, and would wait for ever. Whether anything went on.
    fn go_on(&mut self, now: Instant) -> bool {
        let mut has_moved = false;
        loop {
            self.carrier.pump.unplug(now);
            self.carrier.pump.dispatch(now);
            if !self.carrier.turn(now) {
                return has_moved;
            }
            has_moved = true;
        }
    }

    /// Tells who waits what there is to wait for.
    fn publish(&self) {
        let state = if !self.carrier.over.is_empty() {
            READY
        } else if self.device().in_flight() > 0 {
            BELOW
        } else if self.carrier.is_blocked() {
            OTHERS
        } else {
            READY
        };
        let before = self.watched.swap(state, Ordering::AcqRel);
        if before == OTHERS && state != OTHERS && Arc::strong_count(&self.watched) > 1 {
            // Who waits for others only has to wait for the device from now on.
            self.carrier.bell.ring();
        }
    }

    /// Waits until something can go on.
    fn wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        let in_flight = self.device().in_flight();
        if in_flight > 0 {
            return self.carrier.pump.device_mut().commit_and_wait(completions.min(in_flight), timeout);
        }
        if self.carrier.is_blocked() {
            self.waits += self.carrier.bell.wait(timeout)?;
        } else {
            // The device was busy with nothing of this queue's.
            thread::sleep(timeout.expect("what is neither below nor blocked is due some time"));
        }
        Ok(())
    }
}

impl FileMap {
    /// What the file takes in one request on a device with the limits `below`.
    pub fn limits_on(&self, below: &Limits) -> Result<Limits, MappedError> {
        let (block_bytes, file_block_bytes) = (below.logical_block_bytes, self.block_bytes());
        if !file_block_bytes.is_multiple_of(block_bytes) {
            return Err(PlanError::BlockSize { file_block_bytes, block_bytes }.into());
        }
        let (reach_sectors, capacity) = (self.reach_sectors(), below.capacity);
        if reach_sectors > capacity {
            return Err(MappedError::TooSmall { reach_sectors, capacity });
        }
        let is_fixed = self.is_fixed();
        Ok(Limits {
            capacity: self.size_bytes().div_ceil(block_bytes.into()).saturating_mul(block_bytes.into())
                / SECTOR_BYTES,
            request_bytes_max: REQUEST_BYTES_MAX,
            chunk_sectors: 0,
            depth_max: below.depth_max.clamp(1, DEPTH_MAX),
            // A hole is punched by changing the map. Zeroes are written where the device has no better way.
            discard_bytes_max: if is_fixed { below.discard_bytes_max } else { REQUEST_BYTES_MAX },
            write_zeroes_bytes_max: REQUEST_BYTES_MAX,
            // A flush comes by even if the device has no cache: metadata goes with it.
            volatile_cache: below.volatile_cache || !is_fixed,
            ..below.clone()
        })
    }
}

impl<D: RealDevice> BlockDevice for Mapped<D> {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    /// # Panics
    /// If a segment is not whole blocks: a bug of the caller.
    fn submit(&mut self, io: &Io<'_, Segment>, now: Instant) -> Result<(), Busy> {
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
        self.carrier.take(io, goal, now);
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        self.go_on(now);
        self.publish();
        if !self.carrier.over.is_empty() {
            // Of these the device below knows nothing: holes that were read, say.
            self.carrier.bell.ring();
        }
        self.carrier.pump.commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        if self.carrier.over.is_empty() {
            self.turn(now);
        }
        self.carrier.over.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.carrier.pump.poll_timeout()
    }
}

// SAFETY: a request has completed when each of its bios is, of which each was at the device below, which keeps to this, too,
// or was never begun; the zeroes that it fills in itself are filled in before. Of a file that goes the device goes
// first, and waits for all it took; what waits in the queue was never begun.
unsafe impl<D: RealDevice> RealDevice for Mapped<D> {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        let mut now = clock::now();
        let end = timeout.map(|timeout| now + timeout);
        self.turn(now);
        loop {
            let missing = completions.min(self.in_flight()).saturating_sub(self.carrier.over.len() as u32);
            if missing == 0 || end.is_some_and(|end| end <= now) {
                break;
            }
            let due = [end, self.poll_timeout()].into_iter().flatten().min();
            self.wait(missing, due.map(|due| due.saturating_since(now)))?;
            now = clock::now();
            self.turn(now);
        }
        self.carrier.pump.commit(now);
        Ok(())
    }

    fn watch(&self) -> Arc<dyn Watch> {
        let (watched, bell) = (Arc::clone(&self.watched), self.carrier.bell.clone());
        Arc::new(MappedWatch { watched, bell, below: self.device().watch() })
    }

    /// The watch waits for either.
    fn end_watch(&mut self) {
        self.carrier.bell.ring();
        self.carrier.pump.device_mut().end_watch();
    }

    /// The file ends there from now on. How large the device below is has nothing to do with that.
    fn set_capacity(&mut self, sectors: u64) {
        self.limits.capacity = sectors;
    }

    fn in_flight(&self) -> u32 {
        self.carrier.in_flight() + self.carrier.over.len() as u32
    }

    fn syscalls(&self) -> u64 {
        self.waits + self.device().syscalls()
    }

    fn ring_when_over(&mut self, bell: &Bell) -> io::Result<()> {
        self.carrier.pump.device_mut().ring_when_over(bell)?;
        self.carrier.bell = bell.clone();
        Ok(())
    }
}

/// What there is to wait for: nothing, the device below, others that change the file.
const READY: u8 = 0;
const BELOW: u8 = 1;
const OTHERS: u8 = 2;

#[derive(Debug)]
struct MappedWatch {
    watched: Arc<AtomicU8>,
    bell: Bell,
    below: Arc<dyn Watch>,
}

impl Watch for MappedWatch {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        match self.watched.load(Ordering::Acquire) {
            READY => Ok(()),
            BELOW => self.below.wait(timeout),
            _ => Watch::wait(&self.bell, timeout),
        }
    }
}
