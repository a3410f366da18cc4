//! The geometry of an indirect map: the path to a block, and the range of a file below one indirect block. The pointers
//! are in `indirect.rs`.

/// Pointers of an inode: 12 to blocks, one each to an indirect, a double and a triple indirect block.
pub const POINTERS: usize = 15;

/// Direct pointers of an inode.
const DIRECT: u64 = 12;

/// Bytes of a pointer.
const POINTER_BYTES: u32 = 4;

/// The tree of blocks below an inode, for a block size.
///
/// ```text
/// inode   0 … 11   12          13                 14
///         │    │   indirect    double             triple
///         ▼    ▼   ┌─┴──┐      ┌─┴──┐             …
///         blocks   blocks n    indirect n
///                              ┌─┴──┐
///                              blocks n
/// ```
/// n is the number of pointers in a block. The file consists of shares: the first has 12 blocks, each other has n. Each
/// share except the first has an indirect block with its pointers. A boundary lies between two shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndirectShape {
    block_bytes: u32,
}

/// The path to a block: the index of the inode's pointer, then one index for each of `depth` indirect blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) slots: [usize; 4],
    pub(super) depth: usize,
}

impl IndirectShape {
    /// The geometry for blocks of this many bytes.
    ///
    /// # Panics
    /// If a block has no room for two pointers: a bug of the caller.
    pub const fn new(block_bytes: u32) -> Self {
        assert!(block_bytes >= 2 * POINTER_BYTES, "a block holds two pointers at least");
        Self { block_bytes }
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> u32 {
        self.block_bytes
    }

    /// Pointers in an indirect block.
    pub const fn pointers(self) -> u64 {
        (self.block_bytes / POINTER_BYTES) as u64
    }

    /// The largest number of blocks of a file.
    pub const fn blocks_max(self) -> u64 {
        self.first_below(4)
    }

    /// The first block below the inode's pointer `11 + depth`; for 4, the block after the last.
    const fn first_below(self, depth: u32) -> u64 {
        let mut first = 0_u64;
        let mut level = 0;
        while level < depth {
            let blocks = if level == 0 { DIRECT } else { self.share(level) };
            first = first.saturating_add(blocks);
            level += 1;
        }
        first
    }

    /// The number of blocks below a pointer with `level` levels of indirect blocks; saturates for very large blocks.
    const fn share(self, level: u32) -> u64 {
        self.pointers().saturating_pow(level)
    }

    /// The end of the share that contains `block`: the first block after a boundary.
    pub const fn share_end(self, block: u64) -> u64 {
        match block.checked_sub(DIRECT) {
            None => DIRECT,
            Some(indirect) => {
                (indirect / self.pointers() + 1).saturating_mul(self.pointers()).saturating_add(DIRECT)
            }
        }
    }

    /// The number of indirect blocks on the paths to `blocks` blocks from `first` on. If there are no holes, a reader
    /// without metadata in memory reads this many.
    pub const fn indirect_blocks(self, first: u64, blocks: u64) -> u64 {
        if blocks == 0 {
            return 0;
        }
        let end = first.saturating_add(blocks);
        let end = if end < self.blocks_max() { end } else { self.blocks_max() };
        let mut total = 0;
        let mut depth = 1;
        while depth <= 3 {
            let (from, to) = (self.first_below(depth), self.first_below(depth + 1));
            let (start, end) = (if first > from { first } else { from }, if end < to { end } else { to });
            // At each level below this pointer, the indirect blocks whose share overlaps the range.
            let mut level = 1;
            while start < end && level <= depth {
                let share = self.share(level);
                total += (end - 1 - from) / share - (start - from) / share + 1;
                level += 1;
            }
            depth += 1;
        }
        total
    }

    /// The number of indirect blocks on the paths to both blocks.
    pub fn indirect_blocks_shared(self, a: u64, b: u64) -> u64 {
        let (Some(a), Some(b)) = (self.path(a), self.path(b)) else { return 0 };
        if a.depth != b.depth {
            return 0;
        }
        a.slots[..a.depth].iter().zip(&b.slots[..b.depth]).take_while(|(a, b)| a == b).count() as u64
    }

    /// The path to `block`; `None` if the block is beyond the reach of the pointers.
    pub(super) fn path(self, block: u64) -> Option<Path> {
        let depth = (0..4).rev().find(|depth| block >= self.first_below(*depth))? as usize;
        if block >= self.blocks_max() {
            return None;
        }
        let mut rest = block - self.first_below(depth as u32);
        let mut slots = [0; 4];
        for slot in slots[1..=depth].iter_mut().rev() {
            *slot = (rest % self.pointers()) as usize;
            rest /= self.pointers();
        }
        slots[0] = if depth == 0 { rest as usize } else { DIRECT as usize + depth - 1 };
        Some(Path { slots, depth })
    }

    /// The end of the blocks below the pointer at `level` of the path to `block` (0: the inode's).
    pub(super) fn below_end(self, block: u64, path: &Path, level: usize) -> u64 {
        let first = self.first_below(path.depth as u32);
        let share = self.share((path.depth - level) as u32);
        if path.depth == 0 {
            return block + 1;
        }
        first.saturating_add(((block - first) / share + 1).saturating_mul(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: IndirectShape = IndirectShape::new(1024);

    #[test]
    fn the_path_to_a_block_is_that_of_ext2() {
        let path = |block| KIB.path(block).map(|path| path.slots[..=path.depth].to_vec());
        assert_eq!(path(0), Some(vec![0]));
        assert_eq!(path(11), Some(vec![11]));
        assert_eq!(path(12), Some(vec![12, 0]));
        assert_eq!(path(267), Some(vec![12, 255]));
        assert_eq!(path(268), Some(vec![13, 0, 0]));
        assert_eq!(path(268 + 256 * 256 - 1), Some(vec![13, 255, 255]));
        assert_eq!(path(268 + 256 * 256), Some(vec![14, 0, 0, 0]));
        assert_eq!(path(KIB.blocks_max() - 1), Some(vec![14, 255, 255, 255]));
        assert_eq!(path(KIB.blocks_max()), None);
        assert_eq!(path(u64::MAX), None);
    }

    #[test]
    fn a_share_ends_where_the_path_changes() {
        for block in (0..70_000).step_by(7).chain(KIB.blocks_max() - 600..KIB.blocks_max() - 1) {
            let end = KIB.share_end(block);
            let ways = |block| KIB.path(block).map(|path| path.slots[..path.depth].to_vec());
            assert_eq!(ways(block), ways(end - 1), "block {block}");
            assert_ne!(ways(block), ways(end), "block {block}");
            let path = KIB.path(block).unwrap();
            if path.depth > 0 {
                assert_eq!(KIB.below_end(block, &path, path.depth - 1), end);
            }
        }
    }

    /// The number of indirect blocks on the path to either block.
    fn ends_met(a: u64, b: u64) -> u64 {
        let ways = [a, b].map(|block| KIB.path(block).unwrap());
        let met = ways.iter().flat_map(|path| (0..path.depth).map(|level| path.slots[..=level].to_vec()));
        met.collect::<std::collections::BTreeSet<_>>().len() as u64
    }

    #[test]
    fn indirect_blocks_are_counted_as_a_walk_meets_them() {
        for (first, blocks) in
            [(0, 12), (0, 13), (5, 300), (268, 1), (260, 700), (65_800, 10), (65_804, 600), (3, 0)]
        {
            let mut met = std::collections::BTreeSet::new();
            for block in first..first + blocks {
                let path = KIB.path(block).unwrap();
                met.extend((0..path.depth).map(|level| path.slots[..=level].to_vec()));
            }
            assert_eq!(KIB.indirect_blocks(first, blocks), met.len() as u64, "{blocks} from {first}");
            let last = first + blocks - 1;
            let both = KIB.indirect_blocks(first, 1) + KIB.indirect_blocks(last, 1);
            let either = if first == last { both / 2 } else { ends_met(first, last) };
            assert_eq!(KIB.indirect_blocks_shared(first, last), both - either, "{first} and {last}");
        }
    }
}
