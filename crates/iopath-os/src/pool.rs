//! Buffers for direct I/O, allocated once: aligned, of one size, and registered with `io_uring`. Registration saves the
//! look-up and pinning of pages at each I/O. The pool is not a page cache.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::aligned::{AlignedBuf, NoMemory, page_bytes};
use crate::memory::Segment;

/// The maximum bytes of a registered buffer (`io_uring_register(2)`).
const REGION_BYTES_MAX: usize = 1 << 30;

/// A fixed number of aligned buffers of one size. Clones share them.
#[derive(Debug, Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Each region is one registered buffer, numbered from 0.
    regions: Box<[AlignedBuf]>,
    buffer_bytes: usize,
    buffers_per_region: usize,
    /// The numbers of the free buffers.
    free: Mutex<Vec<u32>>,
}

impl BufferPool {
    /// `count` zeroed buffers of `bytes` bytes each, rounded up so that each starts on a page.
    ///
    /// # Errors
    /// [`NoMemory`] if the system lacks the memory, or a buffer is larger than 1 GiB, the limit of registration.
    pub fn new(count: u32, bytes: usize) -> Result<Self, NoMemory> {
        if bytes > REGION_BYTES_MAX {
            let reason = "a buffer has at most 1 GiB, the limit of registration";
            let source = io::Error::new(io::ErrorKind::InvalidInput, reason);
            return Err(NoMemory { bytes, source });
        }
        let buffer_bytes = bytes.max(1).next_multiple_of(page_bytes());
        let buffers_per_region = (REGION_BYTES_MAX / buffer_bytes).max(1);
        if count as usize > buffers_per_region {
            // First requests all memory at once, since the system refuses more than it has. Region by region, the
            // system would overcommit, and kill a process when the memory is used.
            drop(AlignedBuf::new(buffer_bytes.saturating_mul(count as usize))?);
        }
        let mut left = count as usize;
        let mut regions = Vec::new();
        while left > 0 {
            let buffers = left.min(buffers_per_region);
            regions.push(AlignedBuf::for_transfers(buffers * buffer_bytes)?);
            left -= buffers;
        }
        let free = Mutex::new((0..count).rev().collect());
        let shared = Shared { regions: regions.into(), buffer_bytes, buffers_per_region, free };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A buffer, if one is free, with its last content.
    pub fn take(&self) -> Option<PoolBuf> {
        let number = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(PoolBuf { pool: self.clone(), number })
    }

    /// The size of a buffer in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.shared.buffer_bytes
    }

    /// The number of buffers in each region; the last may have fewer.
    pub(crate) fn buffers_per_region(&self) -> usize {
        self.shared.buffers_per_region
    }

    /// Start and length of each region to register, in the order of their numbers. Valid as long as the pool or a
    /// clone of it lives.
    pub(crate) fn regions(&self) -> impl Iterator<Item = (NonNull<u8>, usize)> {
        self.shared.regions.iter().map(|region| (region.start(), region.len()))
    }
}

/// A buffer of a [`BufferPool`]. Drop returns it to the pool.
#[derive(Debug)]
pub struct PoolBuf {
    pool: BufferPool,
    number: u32,
}

impl PoolBuf {
    /// The region, and the number of the buffer in it.
    #[inline]
    fn place(&self) -> (usize, usize) {
        let (number, per_region) = (self.number as usize, self.pool.shared.buffers_per_region);
        // A pool of one region, as most are, needs no division on the path of an I/O.
        if number < per_region { (0, number) } else { (number / per_region, number % per_region) }
    }

    /// The first byte, without a reference to the bytes; valid as long as the pool lives.
    pub(crate) fn start(&self) -> NonNull<u8> {
        let shared = &*self.pool.shared;
        let (region, in_region) = self.place();
        // SAFETY: each region holds `buffers_per_region` buffers, the last region possibly fewer; the pool numbers only
        // buffers that exist.
        unsafe { shared.regions[region].start().add(in_region * shared.buffer_bytes) }
    }

    /// The whole buffer as memory for a device; use `slice` for a part.
    ///
    /// # Safety
    /// As [`Segment::new`]: until the I/O has completed, the buffer is neither dropped nor written, and not read if the
    /// I/O reads into it.
    pub unsafe fn segment(&self) -> Segment {
        // SAFETY: the caller's promise; the memory itself lives as long as this buffer.
        let segment = unsafe { Segment::new(self.start(), self.pool.shared.buffer_bytes) };
        segment.in_registered_buffer(self.place().0 as u16)
    }
}

impl Deref for PoolBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: initialised when the region was made, and this buffer's alone as long as it has the number.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.pool.shared.buffer_bytes) }
    }
}

impl DerefMut for PoolBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.pool.shared.buffer_bytes) }
    }
}

impl Drop for PoolBuf {
    fn drop(&mut self) {
        self.pool.shared.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::Memory;

    #[test]
    fn each_buffer_is_taken_once_and_returns_to_the_pool() {
        let pool = BufferPool::new(3, 1000).unwrap();
        let mut taken: Vec<PoolBuf> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken.len(), 3);
        for (number, buffer) in taken.iter_mut().enumerate() {
            buffer.fill(number as u8);
        }
        for (number, buffer) in taken.iter().enumerate() {
            assert_eq!(buffer.as_ptr() as usize % page_bytes(), 0);
            assert!(buffer.iter().all(|&byte| byte == number as u8), "buffer {number} overlaps another");
        }
        taken.pop();
        assert!(pool.take().is_some());
    }

    #[test]
    fn a_buffer_outlives_the_pools_handle() {
        let mut buffer = BufferPool::new(1, 4096).unwrap().take().unwrap();
        buffer[4095] = 1;
        assert_eq!(buffer.iter().map(|&byte| u32::from(byte)).sum::<u32>(), 1);
    }

    #[test]
    fn neighbours_join_in_their_registered_buffer() {
        let pool = BufferPool::new(2, 4096).unwrap();
        let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
        // SAFETY: no device gets them.
        let (a, b) = unsafe { (a.segment(), b.segment()) };
        assert_eq!(a.join(b).map(|both| (both.bytes(), both.registered())), Some((8192, Some(0))));
    }
}
