//! Indirect blocks in memory: their pointers, and the set of changed blocks. `indirect.rs` relates them to the file.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The minimum number of blocks in memory with which a walk through three indirect blocks ends.
const LEAST: usize = 4;

#[derive(Debug, Clone)]
pub(super) struct Nodes {
    /// By block number.
    by_block: BTreeMap<u32, Node>,
    /// Changed blocks: height above the file's blocks, and block number.
    dirty: BTreeSet<(usize, u32)>,
    /// In order of arrival; may contain dropped blocks.
    order: VecDeque<u32>,
    /// The maximum number of clean blocks.
    max: usize,
}

#[derive(Debug, Clone)]
struct Node {
    pointers: Box<[u32]>,
    is_dirty: bool,
}

/// The pointers in a block's bytes.
pub(super) fn decode(bytes: &[u8]) -> Box<[u32]> {
    bytes.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
}

impl Nodes {
    pub(super) const fn new(max: usize) -> Self {
        Self { by_block: BTreeMap::new(), dirty: BTreeSet::new(), order: VecDeque::new(), max }
    }

    pub(super) fn len(&self) -> usize {
        self.by_block.len()
    }

    pub(super) fn get(&self, block: u32) -> Option<&[u32]> {
        self.by_block.get(&block).map(|node| &*node.pointers)
    }

    /// Sets a pointer in a block in memory, `height` indirect blocks above the file's blocks.
    pub(super) fn set(&mut self, block: u32, slot: usize, pointer: u32, height: usize) {
        let node = self.by_block.get_mut(&block).expect("a block that was just walked through is in memory");
        node.pointers[slot] = pointer;
        node.is_dirty = true;
        self.dirty.insert((height, block));
    }

    /// Inserts a block read from the device, unless a newer version is in memory.
    pub(super) fn insert(&mut self, block: u32, pointers: Box<[u32]>) {
        if self.by_block.contains_key(&block) {
            return;
        }
        self.by_block.insert(block, Node { pointers, is_dirty: false });
        self.order.push_back(block);
        self.shrink(self.max);
    }

    /// Inserts a new block without pointers.
    pub(super) fn create(&mut self, block: u32, pointers: u64, height: usize) {
        let empty = vec![0; pointers as usize].into_boxed_slice();
        self.by_block.insert(block, Node { pointers: empty, is_dirty: true });
        self.dirty.insert((height, block));
        self.order.push_back(block);
    }

    pub(super) fn remove(&mut self, block: u32) {
        self.by_block.remove(&block);
        self.dirty.retain(|(_, known)| *known != block);
        self.order.retain(|known| *known != block);
    }

    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max.max(LEAST);
        self.shrink(self.max);
    }

    /// Drops all clean blocks.
    pub(super) fn forget(&mut self) {
        self.shrink(0);
    }

    /// Drops the oldest clean blocks while there are more than `max`.
    fn shrink(&mut self, max: usize) {
        let mut candidates = self.order.len();
        while self.by_block.len() > max && candidates > 0 {
            candidates -= 1;
            let Some(oldest) = self.order.pop_front() else { return };
            if self.by_block.get(&oldest).is_some_and(|node| node.is_dirty) {
                self.order.push_back(oldest);
            } else {
                self.by_block.remove(&oldest);
            }
        }
    }

    pub(super) fn bytes(&self, block: u32) -> Option<Box<[u8]>> {
        self.get(block).map(|pointers| pointers.iter().flat_map(|pointer| pointer.to_le_bytes()).collect())
    }

    /// The next block to write; blocks nearest to the file's blocks come first.
    pub(super) fn poll_dirty(&mut self) -> Option<(u32, Box<[u8]>)> {
        let (_, block) = self.dirty.pop_first()?;
        self.by_block.get_mut(&block)?.is_dirty = false;
        let bytes = self.bytes(block)?;
        self.shrink(self.max);
        Some((block, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_clean_blocks_are_dropped() {
        let mut nodes = Nodes::new(LEAST);
        nodes.create(1, 8, 0);
        for block in 2..9 {
            nodes.insert(block, vec![block; 8].into());
        }
        assert_eq!(nodes.len(), LEAST);
        assert!(nodes.get(1).is_some() && nodes.get(8).is_some() && nodes.get(2).is_none());
        assert_eq!(nodes.poll_dirty().map(|(block, _)| block), Some(1));
        assert_eq!(nodes.poll_dirty(), None);
        nodes.forget();
        assert_eq!(nodes.len(), 0);
    }

    #[test]
    fn children_are_written_before_their_parents() {
        let mut nodes = Nodes::new(LEAST);
        nodes.create(5, 8, 2);
        nodes.create(9, 8, 0);
        nodes.create(7, 8, 1);
        let order: Vec<u32> = std::iter::from_fn(|| nodes.poll_dirty()).map(|(block, _)| block).collect();
        assert_eq!(order, [9, 7, 5]);
    }

    #[test]
    fn bytes_are_pointers_and_back() {
        let mut nodes = Nodes::new(LEAST);
        nodes.insert(3, vec![1, 0x0102_0304, 0].into());
        let bytes = nodes.bytes(3).unwrap();
        assert_eq!(bytes[4..8], [4, 3, 2, 1]);
        assert_eq!(*decode(&bytes), [1, 0x0102_0304, 0]);
    }
}
