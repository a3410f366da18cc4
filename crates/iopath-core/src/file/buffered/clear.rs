//! The parts of a range that is discarded or zeroed. The device clears whole blocks; zeroes are written to the rest.

use crate::sector::Extent;
use std::ops::Range;

/// The parts of a range that is discarded or zeroed, in the order in which they are cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearParts {
    /// The bytes before the first boundary of blocks, or all bytes if there is none. Zeroes are written to them.
    pub head: Range<u64>,
    /// The whole blocks. The device discards or zeroes them.
    pub blocks: Extent,
    /// The bytes after the last boundary of blocks. Zeroes are written to them.
    pub tail: Range<u64>,
}

impl ClearParts {
    /// The parts of `bytes` bytes at `offset`, with blocks of `block_bytes` bytes, which are whole sectors.
    ///
    /// # Panics
    /// If the range ends past the highest offset: a bug of the caller.
    pub fn new(offset: u64, bytes: u64, block_bytes: u64) -> Self {
        let end = offset + bytes;
        let first = offset.checked_next_multiple_of(block_bytes).map_or(end, |first| first.min(end));
        let last = (end / block_bytes * block_bytes).max(first);
        let blocks = Extent::from_bytes(first, last - first).unwrap_or_default();
        Self { head: offset..first, blocks, tail: last..end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_range_and_only_whole_blocks_are_cleared() {
        const BLOCK: u64 = 1024;
        let points = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK - 1, 3 * BLOCK];
        for first in [0, u64::MAX - (8 * BLOCK - 1)] {
            for (start, end) in points.iter().flat_map(|start| points.map(|end| (first + start, first + end)))
            {
                if start > end {
                    continue;
                }
                let ClearParts { head, blocks, tail } = ClearParts::new(start, end - start, BLOCK);
                assert_eq!((head.start, tail.end), (start, end));
                assert_eq!(head.end + blocks.bytes(), tail.start, "{start}..{end}: {head:?} {blocks:?}");
                if !blocks.is_empty() {
                    assert_eq!(
                        (blocks.offset(), blocks.offset() % BLOCK, blocks.bytes() % BLOCK),
                        (head.end, 0, 0)
                    );
                }
                let is_in_block =
                    |part: &Range<u64>| part.is_empty() || part.start / BLOCK == (part.end - 1) / BLOCK;
                assert!(is_in_block(&head) && is_in_block(&tail));
                let has_whole = start.next_multiple_of(BLOCK) + BLOCK <= end;
                assert_eq!(has_whole, !blocks.is_empty(), "{start}..{end}");
            }
        }
        // The next boundary has no offset.
        let last = ClearParts::new(u64::MAX - 5, 5, BLOCK);
        assert!(last.head == (u64::MAX - 5..u64::MAX) && last.blocks.is_empty() && last.tail.is_empty());
    }
}
