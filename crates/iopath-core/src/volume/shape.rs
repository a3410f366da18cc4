//! The path of an I/O on a volume, its blocks, and the reasons to refuse it. Pure functions of the properties of the
//! volume and its size at that moment; a resize may move the end afterwards.

use crate::block::bio::Op;
use crate::sector::{Extent, SECTOR_BYTES};
use std::ops::Range;

/// The I/O that uses the page cache of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheUse {
    /// There is no page cache.
    None,
    /// Only I/O that direct I/O cannot do: unaligned offset, length or memory.
    Unaligned,
    /// All reads and writes, unless the caller requests direct I/O.
    All,
}

/// The path of a read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The device transfers the caller's memory. Unaligned I/O is refused: [`VolumeShape::whole_blocks`] and
    /// [`VolumeShape::check_memory`].
    Direct,
    /// Through the page cache.
    Cached,
    /// Through an aligned buffer.
    Bounced,
}

/// The reason to refuse an I/O before it begins. The caller adds the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// The volume is open for reading only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The range reaches past the end of the volume.
    #[error("the range reaches past the end of the volume at byte {size_bytes}")]
    PastEnd {
        /// The size of the volume.
        size_bytes: u64,
    },
    /// The offset or the length is not a multiple of a block.
    #[error("offset and length must be multiples of {align_bytes} bytes")]
    Unaligned {
        /// The bytes of a block.
        align_bytes: u32,
    },
    /// The memory does not start at a multiple of the alignment.
    #[error("memory must start at a multiple of {align_bytes} bytes")]
    UnalignedMemory {
        /// The alignment of memory.
        align_bytes: u32,
    },
}

/// The properties of a volume that decide the path and the checks of its I/O. They do not change while it is open.
#[allow(clippy::struct_excessive_bools, reason = "independent properties")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeShape {
    /// Offsets and lengths of direct I/O are multiples of this many bytes, which are whole sectors.
    pub block_bytes: u32,
    /// Memory of direct I/O starts at a multiple of this many bytes.
    pub memory_align_bytes: u32,
    /// The bytes of a page of the system, which writes the bytes after the last whole block of a file.
    pub page_bytes: u32,
    /// The use of the page cache.
    pub cache: CacheUse,
    /// Unaligned I/O goes through an aligned buffer, if there is no page cache. Writes then lock their ranges.
    pub bounces: bool,
    /// Writes are permitted.
    pub is_writable: bool,
    /// A read may end at the end of the volume. Otherwise it transfers its whole range or fails.
    pub cuts_off_at_end: bool,
    /// The last block is written whole, even if the volume ends inside it. In a plain file, that would move the end.
    pub writes_last_block: bool,
    /// The storage can change its size.
    pub is_resizable: bool,
    /// Writes past the end extend the volume, if they can.
    pub extends: bool,
}

impl VolumeShape {
    /// The path of a read or write of memory at this address.
    #[inline]
    pub const fn route(&self, offset: u64, bytes: u64, address: usize) -> Route {
        if matches!(self.cache, CacheUse::All) {
            return Route::Cached;
        }
        self.route_if(self.fits(offset | bytes) && self.fits_memory(address))
    }

    /// The path of a read or write of several buffers, each with its address and length.
    pub fn route_parts(&self, offset: u64, mut parts: impl Iterator<Item = (usize, usize)>) -> Route {
        let fits = |(address, bytes): (usize, usize)| self.fits(bytes as u64) && self.fits_memory(address);
        self.route_if(self.fits(offset) && parts.all(fits))
    }

    #[inline]
    const fn route_if(&self, fits: bool) -> Route {
        match self.cache {
            CacheUse::All => Route::Cached,
            CacheUse::Unaligned if !fits => Route::Cached,
            CacheUse::None if self.bounces && !fits => Route::Bounced,
            CacheUse::None | CacheUse::Unaligned => Route::Direct,
        }
    }

    /// Whether this is a multiple of a block.
    #[inline]
    const fn fits(&self, bytes: u64) -> bool {
        bytes.is_multiple_of(self.block_bytes as u64)
    }

    #[inline]
    const fn fits_memory(&self, address: usize) -> bool {
        address.is_multiple_of(self.memory_align_bytes as usize)
    }

    /// The blocks of an I/O without a page cache, and the number of its bytes that lie in the volume.
    ///
    /// # Errors
    /// The volume refuses the I/O.
    #[inline]
    pub fn extent(
        &self,
        op: Op,
        offset: u64,
        bytes: u64,
        size_bytes: u64,
    ) -> Result<(Extent, u64), CheckError> {
        match op {
            Op::Read if self.cuts_off_at_end => self.readable_to_end(offset, bytes, size_bytes),
            Op::Read => {
                let extent = self.whole_blocks(offset, bytes, size_bytes)?;
                check_within(offset, bytes, size_bytes)?;
                Ok((extent, bytes))
            }
            Op::Flush => self.check_writable().map(|()| (Extent::EMPTY, 0)),
            Op::Write | Op::Discard | Op::WriteZeroes => {
                self.check_writable()?;
                let extent = self.whole_blocks(offset, bytes, size_bytes)?;
                check_within(offset, bytes, size_bytes)?;
                Ok((extent, bytes))
            }
        }
    }

    /// The blocks of a read that ends with the last block of the volume, in every mode, and the number of its bytes
    /// that lie in the volume.
    ///
    /// # Errors
    /// The range is unaligned, or has no offsets.
    #[inline]
    pub fn readable_to_end(
        &self,
        offset: u64,
        bytes: u64,
        size_bytes: u64,
    ) -> Result<(Extent, u64), CheckError> {
        let extent = self.whole_blocks(offset, bytes, size_bytes)?;
        if extent.offset() + extent.bytes() <= size_bytes {
            return Ok((extent, bytes));
        }
        let available = size_bytes.saturating_sub(offset);
        let extent = Extent::from_bytes(offset, available.next_multiple_of(u64::from(self.block_bytes)));
        Ok((extent.ok_or(CheckError::PastEnd { size_bytes })?, available))
    }

    /// The bytes of an unaligned read that lie in the volume.
    ///
    /// # Errors
    /// The read reaches past the end of a volume that reads whole ranges.
    pub fn available(&self, offset: u64, bytes: usize, size_bytes: u64) -> Result<usize, CheckError> {
        if !self.cuts_off_at_end {
            check_within(offset, bytes as u64, size_bytes)?;
        }
        Ok(size_bytes.saturating_sub(offset).min(bytes as u64) as usize)
    }

    /// The blocks of a range of whole blocks.
    ///
    /// # Errors
    /// The range is unaligned, or reaches past the highest offset.
    #[inline]
    pub fn whole_blocks(&self, offset: u64, bytes: u64, size_bytes: u64) -> Result<Extent, CheckError> {
        if !self.fits(offset) || !self.fits(bytes) {
            return Err(CheckError::Unaligned { align_bytes: self.block_bytes });
        }
        let in_range = offset.checked_add(bytes).is_some();
        Extent::from_bytes(offset, bytes).filter(|_| in_range).ok_or(CheckError::PastEnd { size_bytes })
    }

    /// Checks the address of memory of direct I/O.
    ///
    /// # Errors
    /// It is unaligned.
    #[inline]
    pub const fn check_memory(&self, address: usize) -> Result<(), CheckError> {
        if self.fits_memory(address) {
            return Ok(());
        }
        Err(CheckError::UnalignedMemory { align_bytes: self.memory_align_bytes })
    }

    /// Checks that writes are permitted.
    ///
    /// # Errors
    /// They are not.
    #[inline]
    pub const fn check_writable(&self) -> Result<(), CheckError> {
        if self.is_writable { Ok(()) } else { Err(CheckError::ReadOnly) }
    }

    /// Whether writes past the end extend the volume. A volume that transfers whole ranges or fails, like a device, has
    /// a fixed end.
    #[inline]
    pub const fn can_extend(&self) -> bool {
        self.extends && self.is_resizable && self.cuts_off_at_end
    }

    /// Whether a write of `bytes` bytes at `offset` extends the volume.
    #[inline]
    pub const fn is_extending(&self, offset: u64, bytes: u64, size_bytes: u64) -> bool {
        // The usual case first: this is a part of each write.
        self.can_extend() && bytes > 0 && matches!(offset.checked_add(bytes), Some(end) if end > size_bytes)
    }

    /// Checks a write before it extends the volume: afterwards it must not be refused.
    ///
    /// # Errors
    /// The volume would refuse the write.
    pub fn check_extending(
        &self,
        offset: u64,
        bytes: u64,
        address: usize,
        size_bytes: u64,
    ) -> Result<(), CheckError> {
        self.check_writable()?;
        if self.accepts_any_range() {
            return Ok(());
        }
        self.whole_blocks(offset, bytes, size_bytes)?;
        self.check_memory(address)
    }

    /// Whether the volume accepts unaligned I/O. It zeroes the parts of blocks at the ends of a range that it clears.
    #[inline]
    pub const fn accepts_any_range(&self) -> bool {
        self.has_cache() || self.bounces
    }

    /// Whether there is a page cache.
    #[inline]
    pub const fn has_cache(&self) -> bool {
        !matches!(self.cache, CacheUse::None)
    }

    /// The range to lock for a write of `bytes` bytes at `offset`.
    pub fn lock_range(&self, offset: u64, bytes: u64) -> Range<u64> {
        // The bytes after the last whole block of a file are written through the kernel's page cache. The kernel treats
        // a concurrent direct write to the same page as corruption.
        let block = u64::from(self.block_bytes.max(self.page_bytes));
        let end = offset.saturating_add(bytes);
        offset / block * block..end.checked_next_multiple_of(block).unwrap_or(end)
    }

    /// The range to lock for a move of the end: the bytes that it adds or removes, and all beyond.
    pub fn moved_range(&self, old_bytes: u64, new_bytes: u64) -> Range<u64> {
        self.lock_range(old_bytes.min(new_bytes), u64::MAX)
    }

    /// The end of the volume for queues and engines, in sectors: rounded up to whole blocks.
    #[inline]
    pub fn sectors(&self, size_bytes: u64) -> u64 {
        size_bytes.next_multiple_of(u64::from(self.block_bytes)) / SECTOR_BYTES
    }
}

/// Checks that a range lies in the volume.
///
/// # Errors
/// It reaches past the end.
#[inline]
pub const fn check_within(offset: u64, bytes: u64, size_bytes: u64) -> Result<(), CheckError> {
    match offset.checked_add(bytes) {
        Some(end) if end <= size_bytes => Ok(()),
        _ => Err(CheckError::PastEnd { size_bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1024;
    const SHAPE: VolumeShape = VolumeShape {
        block_bytes: BLOCK as u32,
        memory_align_bytes: 8,
        page_bytes: 4096,
        cache: CacheUse::None,
        bounces: false,
        is_writable: true,
        cuts_off_at_end: true,
        writes_last_block: false,
        is_resizable: true,
        extends: true,
    };

    /// Offsets and lengths around blocks and ends, and the highest ones.
    fn points() -> impl Iterator<Item = u64> + Clone {
        (0..14).map(|quarter| quarter * 256).chain([u64::MAX, u64::MAX - 1023, u64::MAX - 2047])
    }

    #[test]
    fn only_aligned_io_is_direct_and_the_rest_takes_the_path_of_the_policy() {
        let ranges = [(1024, 2048, true), (1024, 100, false), (1, 1024, false)];
        for (offset, bytes, is_aligned) in ranges {
            for (address, fits) in [(64, is_aligned), (65, false)] {
                let route = |cache, bounces| {
                    let shape = VolumeShape { cache, bounces, ..SHAPE };
                    let (route, length) = (shape.route(offset, bytes, address), bytes as usize);
                    assert_eq!(shape.route_parts(offset, [(address, length)].into_iter()), route);
                    route
                };
                let unaligned = |other| if fits { Route::Direct } else { other };
                assert_eq!(route(CacheUse::None, false), Route::Direct, "it is refused later");
                assert_eq!(route(CacheUse::None, true), unaligned(Route::Bounced));
                assert_eq!(route(CacheUse::Unaligned, false), unaligned(Route::Cached));
                assert_eq!(route(CacheUse::All, true), Route::Cached);
                assert_eq!(route(CacheUse::All, false), Route::Cached);
            }
        }
        let shape = VolumeShape { bounces: true, ..SHAPE };
        let second = |bytes, address| shape.route_parts(0, [(0, 1024), (address, bytes)].into_iter());
        assert_eq!(
            [second(1024, 8), second(1024, 4), second(1000, 8)],
            [Route::Direct, Route::Bounced, Route::Bounced]
        );
    }

    #[test]
    fn a_read_has_the_blocks_of_its_bytes_before_the_end() {
        for (size, offset, bytes) in points()
            .take(14)
            .flat_map(|size| points().flat_map(move |at| points().map(move |len| (size, at, len))))
        {
            let is_aligned = offset % BLOCK == 0 && bytes % BLOCK == 0;
            let end = u128::from(offset) + u128::from(bytes);
            let read = SHAPE.extent(Op::Read, offset, bytes, size);
            let whole = VolumeShape { cuts_off_at_end: false, ..SHAPE }.extent(Op::Read, offset, bytes, size);
            if !is_aligned {
                let refused = Err(CheckError::Unaligned { align_bytes: 1024 });
                assert_eq!((read, whole), (refused, refused));
                continue;
            }
            let past_end = Err(CheckError::PastEnd { size_bytes: size });
            if end > u128::from(u64::MAX) {
                assert_eq!((read, whole), (past_end, past_end));
                continue;
            }
            let (extent, available) = read.unwrap();
            let expected = size.saturating_sub(offset).min(bytes);
            assert_eq!(available, expected, "{bytes} bytes at {offset} of {size}");
            assert_eq!(extent.bytes(), expected.div_ceil(BLOCK) * BLOCK);
            assert!(extent.offset() == offset);
            if end <= u128::from(size) {
                assert_eq!(whole, Ok((extent, bytes)));
            } else {
                assert_eq!(whole, past_end, "no part of a range is read");
            }
        }
    }

    #[test]
    fn a_write_is_whole_blocks_within_the_volume() {
        for (size, offset, bytes) in points()
            .take(14)
            .flat_map(|size| points().flat_map(move |at| points().map(move |len| (size, at, len))))
        {
            let is_aligned = offset % BLOCK == 0 && bytes % BLOCK == 0;
            let is_within = u128::from(offset) + u128::from(bytes) <= u128::from(size);
            for op in [Op::Write, Op::Discard, Op::WriteZeroes] {
                match SHAPE.extent(op, offset, bytes, size) {
                    Ok((extent, all)) => {
                        assert!(is_aligned && is_within);
                        assert_eq!((extent.offset(), extent.bytes(), all), (offset, bytes, bytes));
                    }
                    Err(CheckError::Unaligned { .. }) => assert!(!is_aligned),
                    Err(error) => {
                        assert_eq!(error, CheckError::PastEnd { size_bytes: size });
                        assert!(is_aligned && !is_within);
                    }
                }
                let read_only = VolumeShape { is_writable: false, ..SHAPE };
                assert_eq!(read_only.extent(op, offset, bytes, size), Err(CheckError::ReadOnly));
            }
        }
        assert_eq!(SHAPE.extent(Op::Flush, 1, 1, 0), Ok((Extent::EMPTY, 0)));
    }

    #[test]
    fn an_unaligned_read_ends_with_the_volume_or_is_refused() {
        let raw = VolumeShape { cuts_off_at_end: false, ..SHAPE };
        for (offset, bytes, available) in [(10, 90, 90), (10, 91, 90), (99, 5, 1), (100, 1, 0), (500, 7, 0)] {
            assert_eq!(SHAPE.available(offset, bytes, 100), Ok(available));
            let past_end = Err(CheckError::PastEnd { size_bytes: 100 });
            let expected = if available == bytes { Ok(bytes) } else { past_end };
            assert_eq!(raw.available(offset, bytes, 100), expected);
        }
        assert!(raw.available(u64::MAX, 2, 100).is_err());
    }

    #[test]
    fn a_write_that_extends_is_refused_before_the_end_moves() {
        let check = |shape: VolumeShape, offset, bytes, address| {
            shape.check_extending(offset, bytes, address, 1024).map_err(|error| format!("{error:?}"))
        };
        assert!(check(SHAPE, 1024, 1024, 8).is_ok());
        assert!(check(SHAPE, 1024, 100, 8).unwrap_err().contains("Unaligned "));
        assert!(check(SHAPE, 1024, 1024, 4).unwrap_err().contains("UnalignedMemory"));
        assert!(check(VolumeShape { bounces: true, ..SHAPE }, 1024, 100, 4).is_ok());
        assert!(check(VolumeShape { cache: CacheUse::Unaligned, ..SHAPE }, 1024, 100, 4).is_ok());
        let read_only = VolumeShape { bounces: true, is_writable: false, ..SHAPE };
        assert_eq!(check(read_only, 1024, 1024, 8).unwrap_err(), "ReadOnly");
    }

    #[test]
    fn a_write_past_the_end_extends_a_volume_that_can_grow_and_may() {
        for (offset, bytes, extends) in [
            (1024, 1, true),
            (1023, 2, true),
            (5000, 1, true),
            (1023, 1, false),
            (1024, 0, false),
            (u64::MAX, 1, false),
        ] {
            assert_eq!(SHAPE.is_extending(offset, bytes, 1024), extends, "{bytes} bytes at {offset}");
            for fixed in [
                VolumeShape { is_resizable: false, ..SHAPE },
                VolumeShape { extends: false, ..SHAPE },
                VolumeShape { cuts_off_at_end: false, ..SHAPE },
            ] {
                assert!(!fixed.can_extend() && !fixed.is_extending(offset, bytes, 1024));
            }
        }
    }

    #[test]
    fn a_locked_range_has_whole_pages_and_blocks() {
        assert_eq!(SHAPE.lock_range(4095, 2), 0..8192);
        assert_eq!(SHAPE.lock_range(4096, 0), 4096..4096);
        let large = VolumeShape { block_bytes: 16 << 10, ..SHAPE };
        assert_eq!(large.lock_range(5000, 1), 0..16 << 10);
        assert_eq!(SHAPE.lock_range(5000, u64::MAX), 4096..u64::MAX, "to the end of all offsets");
    }
}
