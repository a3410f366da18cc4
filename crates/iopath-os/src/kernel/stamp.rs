//! Makes the blocks of writes unique. The caller fills them with random bytes.

/// The distance between stamps in bytes.
const EVERY_BYTES: usize = 4096;

/// Stamps blocks with their offset and a running number. Otherwise a device that deduplicates would store equal blocks
/// once, and its measurement would be too good.
#[derive(Debug, Default)]
pub struct Stamp {
    /// The number of stamped blocks.
    count: u64,
    is_off: bool,
}

impl Stamp {
    /// Leaves the content of blocks as it is: for a caller that fills them.
    pub fn off() -> Self {
        Self { count: 0, is_off: true }
    }

    /// Stamps the block for a write at `offset` bytes: one store for each 4 KiB, at least one.
    pub fn put(&mut self, block: &mut [u8], offset: u64) {
        if self.is_off {
            return;
        }
        self.count += 1;
        let stamp = (offset ^ self.count.rotate_left(32)).to_le_bytes();
        for piece in block.chunks_mut(EVERY_BYTES) {
            let bytes = piece.len().min(stamp.len());
            piece[..bytes].copy_from_slice(&stamp[..bytes]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamped_blocks_differ_in_each_page() {
        let mut stamp = Stamp::default();
        let mut seen = std::collections::HashSet::new();
        for offset in [0, 0, 8192, 16384] {
            let mut block = vec![7; 8192];
            stamp.put(&mut block, offset);
            assert_eq!(block[4096..4104], block[..8], "each 4 KiB is stamped");
            assert_eq!(block[8..4096], [7; 4088]);
            assert!(seen.insert(block), "offset {offset}");
        }
        stamp.put(&mut [0; 3], 0);
        let mut block = [7; 4096];
        Stamp::off().put(&mut block, 0);
        assert_eq!(block, [7; 4096]);
    }
}
