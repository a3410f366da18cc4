//! The limits of a device on a request. The queue splits and merges within them.

use crate::block::bio::Op;
use crate::sector::{Extent, SECTOR_SHIFT};

/// The limits of a device. They are constant while the device is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Size in sectors.
    pub capacity: u64,
    /// Offsets and lengths are multiples of this many bytes.
    pub logical_block_bytes: u32,
    /// Memory addresses are multiples of this many bytes.
    pub memory_align_bytes: u32,
    /// Maximum bytes of a read or write request.
    pub request_bytes_max: u64,
    /// Maximum segments (contiguous pieces of memory) of a request.
    pub segments_max: u16,
    /// No request crosses a multiple of this many sectors (the chunk of a stripe); 0 for no boundary.
    pub chunk_sectors: u64,
    /// Maximum requests in flight.
    pub depth_max: u32,
    /// Maximum bytes of a discard; 0 if the device does not support it.
    pub discard_bytes_max: u64,
    /// Maximum bytes of a write-zeroes; 0 if the device does not support it.
    pub write_zeroes_bytes_max: u64,
    /// A power failure can lose completed writes that no flush covers. The queue sends flushes to such a device.
    pub volatile_cache: bool,
    /// The device supports forced unit access. Otherwise the queue sends a flush after the write.
    pub fua: bool,
}

impl Limits {
    /// A device of `capacity` sectors with 512-byte blocks, requests of up to 1 MiB in up to 128 segments, 256 in
    /// flight, without cache, discard or write-zeroes. Change single limits with struct update syntax.
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

    /// Maximum sectors of a request of `op`; 0 if the device does not support it.
    pub const fn sectors_max(&self, op: Op) -> u64 {
        // A branch of its own for reads and writes. In the `match` below, the compiler would use a jump table, and each
        // I/O would read that table.
        if op.has_memory() {
            return self.request_bytes_max >> SECTOR_SHIFT;
        }
        let bytes = match op {
            Op::Discard => self.discard_bytes_max,
            Op::WriteZeroes => self.write_zeroes_bytes_max,
            Op::Read | Op::Write | Op::Flush => 0,
        };
        bytes >> SECTOR_SHIFT
    }

    /// The sectors of `extent` that the next request may cover: whole blocks from its start, up to the size limit and
    /// the end of the chunk.
    pub fn first_piece(&self, op: Op, extent: Extent) -> u64 {
        let block = self.block_sectors();
        let sectors = (self.sectors_max(op) / block * block).min(extent.sectors());
        if self.chunk_sectors == 0 {
            sectors
        } else {
            sectors.min(extent.sectors_to_boundary(self.chunk_sectors))
        }
    }

    /// Whether one request of `op` may cover all of `extent`. The extent must be whole blocks.
    pub fn fits(&self, op: Op, extent: Extent) -> bool {
        extent.sectors() <= self.sectors_max(op) && !self.crosses_chunk(extent)
    }

    /// Whether `extent` contains the end of a chunk.
    pub fn crosses_chunk(&self, extent: Extent) -> bool {
        self.chunk_sectors != 0 && extent.sectors_to_boundary(self.chunk_sectors) < extent.sectors()
    }

    /// Whether `extent` starts and ends at a logical block.
    pub const fn is_whole_blocks(&self, extent: Extent) -> bool {
        (extent.start().0 | extent.sectors()) & (self.block_sectors() - 1) == 0
    }

    /// The logical block in sectors, at least one.
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
    fn a_piece_ends_at_the_size_limit_or_the_end_of_the_chunk() {
        let limits =
            Limits { request_bytes_max: 8 << 9, chunk_sectors: 16, ..Limits::with_capacity(1 << 20) };
        assert_eq!(limits.first_piece(Op::Read, extent(0, 100)), 8);
        assert_eq!(limits.first_piece(Op::Read, extent(12, 100)), 4);
        assert_eq!(limits.first_piece(Op::Read, extent(12, 2)), 2);
        assert!(limits.fits(Op::Write, extent(8, 8)));
        assert!(!limits.fits(Op::Write, extent(9, 8)));
    }

    #[test]
    fn a_piece_is_whole_blocks() {
        let limits =
            Limits { request_bytes_max: 5000, logical_block_bytes: 4096, ..Limits::with_capacity(1 << 20) };
        assert_eq!(limits.first_piece(Op::Read, extent(0, 80)), 8);
    }

    #[test]
    fn an_unsupported_operation_has_no_piece() {
        assert_eq!(Limits::with_capacity(8).first_piece(Op::Discard, extent(0, 8)), 0);
    }
}
