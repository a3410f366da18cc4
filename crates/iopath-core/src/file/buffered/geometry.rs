//! Sizes of pages and blocks, and the end of a volume that need not be a multiple of either.

use crate::block::bio::Op;
use crate::file::page::{Page, PageRange};
use crate::sector::SECTOR_BYTES;

/// The sizes of pages and blocks, and the size of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a page, a power of two.
    pub page_bytes: u32,
    /// Direct I/O has offsets and lengths in multiples of this many bytes. Divides a page.
    pub block_bytes: u32,
    /// The size of the volume in bytes.
    pub size_bytes: u64,
    /// The device writes the last block whole, including the bytes past the end of the volume. Otherwise
    /// [`Step::WriteTail`](super::Step::WriteTail) writes the bytes after the last whole block.
    pub writes_last_block: bool,
}

impl Geometry {
    /// # Panics
    /// If pages are not whole blocks: a bug of the caller.
    pub(super) fn check(&self) {
        let Self { page_bytes, block_bytes, .. } = *self;
        let is_whole = block_bytes > 0 && page_bytes.is_multiple_of(block_bytes);
        assert!(
            is_whole && page_bytes.is_power_of_two(),
            "pages of {page_bytes} bytes, blocks of {block_bytes}"
        );
    }

    /// The pages that `bytes` bytes at byte `offset` touch.
    pub fn pages(&self, offset: u64, bytes: u64) -> PageRange {
        PageRange::touched_by(offset, bytes, self.page_bytes)
    }

    /// The page of byte `offset`, and the position of the byte in it.
    pub const fn locate(&self, offset: u64) -> (Page, usize) {
        Self::locate_in(self.page_bytes, offset)
    }

    /// The same for pages of `page_bytes` bytes.
    #[inline]
    pub(super) const fn locate_in(page_bytes: u32, offset: u64) -> (Page, usize) {
        let in_page = page_bytes as u64 - 1;
        (Page(offset >> page_bytes.trailing_zeros()), (offset & in_page) as usize)
    }

    /// The page after the last.
    pub const fn end(&self) -> Page {
        Page(self.size_bytes.div_ceil(self.page_bytes as u64))
    }

    /// The capacity that the queue and the device must have, in sectors.
    pub const fn sectors(&self) -> u64 {
        self.whole_blocks_end() / SECTOR_BYTES
    }

    /// The end of direct I/O. Reads include the last block. Writes to most devices must not pass the end of the volume.
    pub(super) const fn end_of(&self, op: Op) -> u64 {
        if self.writes_last_block || matches!(op, Op::Read) {
            self.whole_blocks_end()
        } else {
            self.size_bytes / self.block_bytes as u64 * self.block_bytes as u64
        }
    }

    /// The end of the block in which the volume ends, or of the last block that has offsets.
    const fn whole_blocks_end(&self) -> u64 {
        match self.size_bytes.checked_next_multiple_of(self.block_bytes as u64) {
            Some(end) => end,
            None => u64::MAX / self.block_bytes as u64 * self.block_bytes as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_include_the_last_block_and_writes_end_before_it() {
        let geometry =
            Geometry { page_bytes: 4096, block_bytes: 512, size_bytes: 5000, writes_last_block: false };
        assert_eq!((geometry.end_of(Op::Read), geometry.end_of(Op::Write)), (5120, 4608));
        assert_eq!((geometry.end(), geometry.sectors()), (Page(2), 10));
        let whole = Geometry { writes_last_block: true, ..geometry };
        assert_eq!(whole.end_of(Op::Write), 5120);
    }

    #[test]
    fn a_volume_that_ends_with_the_last_offset_has_an_end() {
        let geometry =
            Geometry { page_bytes: 4096, block_bytes: 512, size_bytes: u64::MAX, writes_last_block: false };
        assert_eq!(geometry.end_of(Op::Read), u64::MAX / 512 * 512);
    }
}
