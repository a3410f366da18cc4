//! A disk whose medium is memory, shared by all engines opened on it, with simulated power failure. The write cache is
//! in `memory/cache.rs`. It executes each request at once and without error: faults are in `fault.rs`.

mod cache;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iopath_core::{
    BlockDevice, Busy, Completion, Duration, Instant, Io, IoError, Limits, Op, SECTOR_BYTES, Sector,
};

use super::{Notifier, RealDevice, WaitError};
use crate::aligned::{AlignedBuf, NoMemory};
use crate::memory::Segment;
use cache::{Loss, WriteCache};

const SECTOR: usize = SECTOR_BYTES as usize;

/// The maximum number of requests in flight.
const DEPTH_MAX: u32 = 1024;

/// The properties of a [`MemoryDisk`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryConfig {
    /// The size in bytes. Any number is valid.
    pub size_bytes: u64,
    /// Offsets and lengths are multiples of this many bytes: 512 or a larger power of two.
    pub block_bytes: u32,
    /// Memory addresses are multiples of this many bytes.
    pub memory_align_bytes: u32,
    /// The size of the write cache in bytes. [`MemoryDisk::crash`] can lose its contents. With 0, a completed write is
    /// durable.
    pub cache_bytes: u64,
    /// Whether it supports forced unit access.
    pub fua: bool,
    /// Whether only written pages take memory. Such a disk may be larger than the memory of the machine; a write for
    /// which there is no memory ends the process. It has no write cache.
    pub is_sparse: bool,
}

impl MemoryConfig {
    /// A disk of zeroes with blocks of 512 bytes, no memory alignment and no write cache.
    pub const fn of_bytes(size_bytes: u64) -> Self {
        let (block_bytes, memory_align_bytes) = (512, 1);
        Self { size_bytes, block_bytes, memory_align_bytes, cache_bytes: 0, fua: true, is_sparse: false }
    }
}

/// A disk in memory. Clones are the same disk; its bytes live as long as the last clone or device.
///
/// ```
/// use iopath_os::{MemoryConfig, MemoryDisk};
///
/// let disk = MemoryDisk::new(&MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(1 << 24) })?;
/// let device = disk.open();
/// // … writes through `device`, then the power fails: the older half of the unflushed versions survives.
/// disk.crash(|versions| versions / 2);
/// let device_after = disk.open();
/// # let _ = (device, device_after);
/// # Ok::<(), iopath_os::NoMemory>(())
/// ```
#[derive(Clone)]
pub struct MemoryDisk {
    shared: Arc<Shared>,
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDisk").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Shared {
    config: MemoryConfig,
    /// The number of crashes. Devices opened before the last crash are closed.
    crashes: AtomicU64,
    medium: Mutex<Medium>,
}

#[derive(Debug)]
struct Medium {
    size_bytes: u64,
    /// The bytes that reads return: whole blocks, zeroes beyond the size.
    bytes: AlignedBuf,
    cache: Option<WriteCache>,
}

impl MemoryDisk {
    /// A disk of zeroes.
    ///
    /// # Errors
    /// [`NoMemory`] if the system refuses that much memory.
    pub fn new(config: &MemoryConfig) -> Result<Self, NoMemory> {
        let bytes = if config.is_sparse {
            AlignedBuf::sparse(whole_blocks(config.size_bytes, config.block_bytes)?)?
        } else {
            take(config.size_bytes, config.block_bytes)?
        };
        let cache = match config.cache_bytes / SECTOR_BYTES {
            0 => None,
            _ if config.is_sparse => None,
            sectors => Some(WriteCache::new(take(config.size_bytes, config.block_bytes)?, sectors)?),
        };
        let medium = Mutex::new(Medium { size_bytes: config.size_bytes, bytes, cache });
        let shared = Shared { config: config.clone(), crashes: AtomicU64::new(0), medium };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Opens a device. Any number may be open at once.
    pub fn open(&self) -> MemoryDevice {
        self.open_with(self.limits())
    }

    /// Opens a device with other limits than [`MemoryDisk::limits`]: smaller requests, for example.
    pub fn open_with(&self, limits: Limits) -> MemoryDevice {
        MemoryDevice {
            disk: self.clone(),
            limits,
            opened_after: self.shared.crashes.load(Ordering::Acquire),
            over: VecDeque::with_capacity(DEPTH_MAX as usize),
            notifier: None,
        }
    }

    /// Writes bytes that are not whole blocks, as buffered I/O does on a file: for the bytes after the last whole
    /// block.
    pub fn tail(&self) -> MemoryTail {
        MemoryTail { disk: self.clone(), opened_after: self.shared.crashes.load(Ordering::Acquire) }
    }

    /// The same number for all clones of the disk, and for no other disk that exists.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// The size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.medium().size_bytes
    }

    /// The limits of a device opened now.
    pub fn limits(&self) -> Limits {
        let MemoryConfig { block_bytes, memory_align_bytes, fua, .. } = self.shared.config;
        let has_cache = self.medium().cache.is_some();
        let bytes = self.medium().bytes.len() as u64;
        Limits {
            depth_max: DEPTH_MAX,
            logical_block_bytes: block_bytes,
            memory_align_bytes,
            discard_bytes_max: bytes,
            write_zeroes_bytes_max: bytes,
            volatile_cache: has_cache,
            fua,
            ..Limits::with_capacity(bytes / SECTOR_BYTES)
        }
    }

    /// Changes the size, as `ftruncate(2)` does for a file: added bytes are zeroes. No crash undoes this. Open devices
    /// keep their limits, and get errors past the new end.
    ///
    /// # Errors
    /// [`NoMemory`] if the system refuses that much memory. The size is unchanged.
    pub fn resize(&self, size_bytes: u64) -> Result<(), NoMemory> {
        let mut medium = self.medium();
        let Medium { size_bytes: old, bytes, cache } = &mut *medium;
        let whole = whole_blocks(size_bytes, self.shared.config.block_bytes)?;
        let kept = size_bytes.min(*old);
        resize_zeroed(bytes, whole, kept as usize)?;
        if let Some(cache) = cache {
            let resized = cache.resize(whole, kept);
            if resized.is_err() {
                // Shrinking never fails: the state is unchanged.
                let before = whole_blocks(*old, self.shared.config.block_bytes)?;
                resize_zeroed(bytes, before, kept as usize)?;
            }
            resized?;
        }
        *old = size_bytes;
        Ok(())
    }

    /// Simulates a power failure. Data that no completed flush or forced write covers may be lost. Calls `choose` for
    /// each such sector, in ascending order, with the number `n` of its unsaved versions. The result is the number of
    /// versions that reached the medium: from 0 (the sector is as last saved) to `n` (as last written). Open devices
    /// are closed: their requests in flight and all later requests fail.
    pub fn crash(&self, choose: impl FnMut(u32) -> u32) {
        let mut medium = self.medium();
        self.shared.crashes.fetch_add(1, Ordering::AcqRel);
        medium.lose(Loss::Power, choose);
    }

    /// Loses data as [`MemoryDisk::crash`] does, but without a power failure, as after a failed flush of the cache.
    /// Devices stay open.
    pub fn lose_unsaved(&self, choose: impl FnMut(u32) -> u32) {
        self.medium().lose(Loss::Flush, choose);
    }

    /// Changes one bit of the byte at `offset`, both of the bytes that reads return and of the medium. A version in the
    /// write cache keeps its bytes. Ignores an offset past the end.
    pub fn flip_bit(&self, offset: u64, bit: u8) {
        let Medium { bytes, cache, .. } = &mut *self.medium();
        let Some(byte) = usize::try_from(offset).ok().filter(|offset| *offset < bytes.len()) else { return };
        bytes[byte] ^= 1 << (bit % 8);
        if let Some(cache) = cache {
            cache.flip_bit(byte, bit);
        }
    }

    /// Sectors with a version that is not on the medium.
    pub fn unsaved_sectors(&self) -> usize {
        self.medium().cache.as_ref().map_or(0, WriteCache::unsaved_sectors)
    }

    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.shared.medium.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Zeroed memory for that many bytes in whole blocks.
fn take(bytes: u64, block_bytes: u32) -> Result<AlignedBuf, NoMemory> {
    AlignedBuf::new(whole_blocks(bytes, block_bytes)?)
}

fn whole_blocks(bytes: u64, block_bytes: u32) -> Result<usize, NoMemory> {
    let whole = bytes.checked_next_multiple_of(u64::from(block_bytes)).and_then(|n| usize::try_from(n).ok());
    let too_much = || NoMemory { bytes: usize::MAX, source: std::io::ErrorKind::OutOfMemory.into() };
    whole.ok_or_else(too_much)
}

/// Makes memory `whole` bytes long, with zeroes from byte `kept` on. Reuses the memory, so that a disk that often
/// changes its size does not allocate each time.
fn resize_zeroed(bytes: &mut AlignedBuf, whole: usize, kept: usize) -> Result<(), NoMemory> {
    let old = bytes.len();
    bytes.resize(whole)?;
    bytes.clear(kept..old.min(whole));
    Ok(())
}

impl Medium {
    /// Executes a request. A forced write is a plain write if the disk has no FUA. Returns the number of a write whose
    /// completion must be recorded in the cache.
    fn execute(&mut self, io: &Io<'_, Segment>, supports_fua: bool) -> Result<Option<u64>, IoError> {
        if io.op == Op::Flush {
            if let Some(cache) = &mut self.cache {
                cache.flush();
            }
            return Ok(None);
        }
        let range = io.extent.offset() as usize..io.extent.offset() as usize + io.extent.bytes() as usize;
        if range.end > self.bytes.len() {
            return Err(IoError::EndOfDevice);
        }
        match io.op {
            Op::Read | Op::Write => transfer(io, &mut self.bytes[range.clone()]),
            Op::Discard | Op::WriteZeroes | Op::Flush => self.bytes.clear(range.clone()),
        }
        let bytes = &self.bytes[range];
        match &mut self.cache {
            Some(cache) if io.op.is_write() => {
                Ok(Some(cache.wrote(io.extent.start(), bytes, io.fua && supports_fua)))
            }
            _ => Ok(None),
        }
    }

    fn lose(&mut self, loss: Loss, choose: impl FnMut(u32) -> u32) {
        if let Some(cache) = &mut self.cache {
            cache.lose(loss, choose);
            cache.show(&mut self.bytes);
        }
    }

    fn completed(&mut self, write: u64) {
        if let Some(cache) = &mut self.cache {
            cache.completed(write);
        }
    }
}

fn transfer(io: &Io<'_, Segment>, medium: &mut [u8]) {
    let mut rest = medium;
    for segment in io.segments() {
        let (part, after) = rest.split_at_mut(segment.len());
        // SAFETY: this request has not completed. The maker of the segment promised that until its completion the
        // memory is valid, no other code uses it, and it is readable or writable as the operation requires.
        unsafe {
            if io.op == Op::Read {
                segment.fill_from(part);
            } else {
                segment.copy_to(part);
            }
        }
        rest = after;
    }
    assert!(rest.is_empty(), "the memory of {} of {} is {} bytes too short", io.op, io.extent, rest.len());
}

/// An engine on a [`MemoryDisk`]. It executes a request at submission. A write counts as completed, so that a flush
/// covers it, when its completion was polled.
pub struct MemoryDevice {
    disk: MemoryDisk,
    limits: Limits,
    /// The disk's number of crashes when this was opened.
    opened_after: u64,
    over: VecDeque<Over>,
    notifier: Option<Notifier>,
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("disk", &self.disk)
            .field("over", &self.over.len())
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Over {
    completion: Completion,
    write: Option<u64>,
}

impl MemoryDevice {
    fn is_closed(&self) -> bool {
        self.disk.shared.crashes.load(Ordering::Acquire) != self.opened_after
    }
}

/// See [`MemoryDisk::tail`].
#[derive(Debug)]
pub struct MemoryTail {
    disk: MemoryDisk,
    opened_after: u64,
}

impl MemoryTail {
    /// Writes all of `bytes` from byte `offset` on.
    ///
    /// # Errors
    /// [`IoError::EndOfDevice`] if the range does not end in the disk: nothing is written. [`IoError::Gone`] after a
    /// crash of the disk.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), IoError> {
        let mut medium = self.disk.medium();
        if self.disk.shared.crashes.load(Ordering::Acquire) != self.opened_after {
            return Err(IoError::Gone);
        }
        let Medium { size_bytes, bytes: all, cache } = &mut *medium;
        let end = offset.checked_add(bytes.len() as u64).filter(|end| end <= size_bytes);
        let (start, end) = (offset as usize, end.ok_or(IoError::EndOfDevice)? as usize);
        all[start..end].copy_from_slice(bytes);
        if let Some(cache) = cache {
            let first = offset / SECTOR_BYTES;
            let sectors = first as usize * SECTOR..end.next_multiple_of(SECTOR);
            let write = cache.wrote(Sector(first), &all[sectors], false);
            cache.completed(write);
        }
        Ok(())
    }
}

impl BlockDevice for MemoryDevice {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    /// # Panics
    /// If the request's memory is not as long as its extent: a bug of the caller.
    fn submit(&mut self, io: &Io<'_, Segment>, _now: Instant) -> Result<(), Busy> {
        if self.over.len() >= self.limits.depth_max as usize {
            return Err(Busy { tag: io.tag });
        }
        let mut medium = self.disk.medium();
        let result = if self.is_closed() { Err(IoError::Gone) } else { medium.execute(io, self.limits.fua) };
        drop(medium);
        let completion = Completion { tag: io.tag, result: result.map(drop) };
        self.over.push_back(Over { completion, write: result.unwrap_or(None) });
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {
        if let Some(notifier) = self.notifier.as_ref().filter(|_| !self.over.is_empty()) {
            notifier.notify();
        }
    }

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        let Over { mut completion, write } = self.over.pop_front()?;
        if self.is_closed() {
            completion.result = Err(IoError::Gone);
        } else if let Some(write) = write {
            self.disk.medium().completed(write);
        }
        Some(completion)
    }
}

// SAFETY: copies before it reports a request as completed, and keeps no memory of a completed one.
unsafe impl RealDevice for MemoryDevice {
    fn commit_and_wait(&mut self, _completions: u32, _timeout: Option<Duration>) -> Result<(), WaitError> {
        Ok(())
    }

    fn set_capacity(&mut self, sectors: u64) {
        self.limits.capacity = sectors;
    }

    fn in_flight(&self) -> u32 {
        self.over.len() as u32
    }

    fn syscalls(&self) -> u64 {
        0
    }

    /// Notifies in `commit`: every request has completed by then.
    fn set_notifier(&mut self, notifier: &Notifier) -> std::io::Result<()> {
        self.notifier = Some(notifier.clone());
        Ok(())
    }
}

impl Drop for MemoryDevice {
    fn drop(&mut self) {
        while self.poll_completion(Instant::ZERO).is_some() {}
    }
}
