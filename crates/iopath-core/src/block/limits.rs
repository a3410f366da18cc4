//! What a device can take in one request. The queue splits and merges within these limits.

use crate::block::bio::Op;
use crate::sector::{Extent, SECTOR_SHIFT};

/// What a device is able to take. A device states these once; they do not change while it is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Size in sectors.
    pub capacity: u64,
    /// Offsets and lengths are multiples of this many bytes.
    pub logical_block_bytes: u32,
    /// Memory addresses are multiples of this many bytes.
    pub memory_align_bytes: u32,
    /// The most bytes of one read or write request.
    pub request_bytes_max: u64,
    /// The most segments (contiguous pieces of memory) of one request.
    pub segments_max: u16,
    /// No request crosses a multiple of this many sectors (the chunk of a stripe); 0 for no boundary.
    pub chunk_sectors: u64,
    /// The most requests at once.
    pub depth_max: u32,
    /// The most bytes of one discard, 0 where the device cannot discard.
    pub discard_bytes_max: u64,
    /// The most bytes of one write-zeroes, 0 where the device cannot do that.
    pub write_zeroes_bytes_max: u64,
    /// Completed writes may be lost at power failure until a flush: a flush reaches the device.
    pub volatile_cache: bool,
    /// The device understands forced unit access; else the queue sends a flush after the write.
    pub fua: bool,
}

impl Limits {
    /// A device of `capacity` sectors with 512-byte blocks that takes requests of up to 1 MiB in up to
    /// 128 segments, 256 at once, without cache, discard or write-zeroes. Struct-update from here.
    pub const fn with_capacity(capacity: u64) -> Self {
        Self {
            capacity,
            logical_block_bytes: 512,
            memory_align_bytes: 1,
            request_bytes_max: 1 << 20,
            segments_max: 128,
            chunk_sectors: 0,
            depth_max: 256,
            discard_bytes_max: 0,
            write_zeroes_bytes_max: 0,
            volatile_cache: false,
            fua: false,
        }
    }

    /// The most sectors of one request of `op`; 0 where the device cannot do it.
    pub const fn sectors_max(&self, op: Op) -> u64 {
        let bytes = match op {
            Op::Read | Op::Write => self.request_bytes_max,
            Op::Flush => 0,
            Op::Discard => self.discard_bytes_max,
            Op::WriteZeroes => self.write_zeroes_bytes_max,
        };
        bytes >> SECTOR_SHIFT
    }

    /// How much of `extent` the next request may take: whole blocks from its start on, up to the size
    /// limit and the chunk's end.
    pub fn first_piece(&self, op: Op, extent: Extent) -> u64 {
        let block = self.block_sectors();
        let sectors = (self.sectors_max(op) / block * block).min(extent.sectors());
        if self.chunk_sectors == 0 {
            sectors
        } else {
            sectors.min(extent.sectors_to_boundary(self.chunk_sectors))
        }
    }

    /// Whether a request of `op` may cover `extent`, whole blocks, as a whole.
    pub fn takes_whole(&self, op: Op, extent: Extent) -> bool {
        extent.sectors() <= self.sectors_max(op) && !self.crosses_chunk(extent)
    }

    /// Whether a chunk ends inside `extent`.
    pub fn crosses_chunk(&self, extent: Extent) -> bool {
        self.chunk_sectors != 0 && extent.sectors_to_boundary(self.chunk_sectors) < extent.sectors()
    }

    /// Whether `extent` is whole logical blocks, which are a power of two.
    pub const fn is_whole_blocks(&self, extent: Extent) -> bool {
        (extent.start().0 | extent.sectors()) & (self.block_sectors() - 1) == 0
    }

    /// The logical block in sectors, one at least.
    pub const fn block_sectors(&self) -> u64 {
        let sectors = (self.logical_block_bytes >> SECTOR_SHIFT) as u64;
        if sectors == 0 { 1 } else { sectors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sector::Sector;

    fn extent(start: u64, sectors: u64) -> Extent {
        Extent::new(Sector(start), sectors).unwrap()
    }

    #[test]
    fn a_piece_ends_at_the_size_limit_or_the_chunk() {
        let limits =
            Limits { request_bytes_max: 8 << 9, chunk_sectors: 16, ..Limits::with_capacity(1 << 20) };
        assert_eq!(limits.first_piece(Op::Read, extent(0, 100)), 8);
        assert_eq!(limits.first_piece(Op::Read, extent(12, 100)), 4);
        assert_eq!(limits.first_piece(Op::Read, extent(12, 2)), 2);
        assert!(limits.takes_whole(Op::Write, extent(8, 8)));
        assert!(!limits.takes_whole(Op::Write, extent(9, 8)));
    }

    #[test]
    fn a_piece_is_whole_blocks() {
        let limits =
            Limits { request_bytes_max: 5000, logical_block_bytes: 4096, ..Limits::with_capacity(1 << 20) };
        assert_eq!(limits.first_piece(Op::Read, extent(0, 80)), 8);
    }

    #[test]
    fn what_a_device_cannot_do_has_no_piece() {
        assert_eq!(Limits::with_capacity(8).first_piece(Op::Discard, extent(0, 8)), 0);
    }
}
