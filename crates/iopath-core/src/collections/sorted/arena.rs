//! A fixed number of nodes by index, taken and released in O(1) without the allocator.

use std::ops::{Index, IndexMut};

/// Nodes in one block of memory, which is reserved at construction and first used when a node is taken.
#[derive(Debug)]
pub(super) struct Arena<T> {
    nodes: Vec<T>,
    free: Vec<u32>,
    capacity: usize,
}

impl<T> Arena<T> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { nodes: Vec::with_capacity(capacity), free: Vec::with_capacity(capacity), capacity }
    }

    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.free.clear();
    }

    /// Stores `node` and returns its index: the one released last, or a new one.
    pub(super) fn take(&mut self, node: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self[index] = node;
            return index;
        }
        assert!(self.nodes.len() < self.capacity, "more nodes than the minimum fill allows");
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    pub(super) fn release(&mut self, index: u32) {
        self.free.push(index);
    }

    /// The node; `None` if `index` is that of no node.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.nodes.get(index as usize)
    }

    /// Two different nodes.
    pub(super) fn pair_mut(&mut self, left: u32, right: u32) -> [&mut T; 2] {
        self.nodes
            .get_disjoint_mut([left as usize, right as usize])
            .expect("two different nodes of this arena")
    }

    /// The number of nodes taken and not released.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Address and capacity of the memory, which must not change after construction.
    #[cfg(test)]
    pub(super) fn footprint(&self) -> [(usize, usize); 2] {
        [
            (self.nodes.as_ptr().addr(), self.nodes.capacity()),
            (self.free.as_ptr().addr(), self.free.capacity()),
        ]
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.nodes[index as usize]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.nodes[index as usize]
    }
}
