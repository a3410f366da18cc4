//! Splits full nodes and merges underfull ones, from the leaf up along the path of a descent.

use super::node::{INNER_MAX, INNER_MIN, Inner, LEAF_MAX, LEAF_MIN, Leaf};
use super::{Entry, Finger, HEIGHT_MAX, SortedSet};

/// The inner nodes of a descent, root first, and the slot of the child in each.
type Path = [(u32, usize); HEIGHT_MAX];

impl SortedSet {
    /// Splits the full leaf where `entry` is to be inserted, and every full node above it.
    #[cold]
    pub(super) fn split(&mut self, entry: Entry) {
        let (path, leaf) = self.path(entry);
        let target = split_at(self.leaves[leaf].lower(entry), LEAF_MAX, LEAF_MIN);
        let mut child = self.split_leaf(leaf, target);
        let mut low = self.leaves[child].first().expect("a split leaves entries on both sides");

        for &(parent, slot) in path[..self.height].iter().rev() {
            let slot = slot + 1;
            if !self.inners[parent].is_full() {
                self.inners[parent].insert(slot, low, child);
                return;
            }
            let target = split_at(slot, INNER_MAX, INNER_MIN);
            let right = self.inners.take(Inner::EMPTY);
            let [left_node, right_node] = self.inners.pair_mut(parent, right);
            Inner::level(left_node, right_node, target);
            if slot <= target {
                left_node.insert(slot, low, child);
            } else {
                right_node.insert(slot - target, low, child);
            }
            (low, child) = (right_node.low(0), right);
        }
        self.grow(low, child);
    }

    /// Adds a root above the present one and its new right neighbour.
    fn grow(&mut self, low: Entry, right: u32) {
        let mut root = Inner::EMPTY;
        root.insert(0, (0, 0), self.root);
        root.insert(1, low, right);
        self.root = self.inners.take(root);
        self.height += 1;
    }

    /// Moves the entries from slot `target` to a new leaf at the right, and returns it.
    fn split_leaf(&mut self, left: u32, target: usize) -> u32 {
        let next = self.leaves[left].next;
        let right = self.leaves.take(Leaf::between(left, next));
        self.link_back(next, right);
        let [left_node, right_node] = self.leaves.pair_mut(left, right);
        Leaf::level(left_node, right_node, target);
        left_node.next = right;
        self.forget(left);
        right
    }

    /// Merges the underfull leaf that had `removed` with a neighbour, or balances the two. Does the same for every
    /// underfull node above.
    #[cold]
    pub(super) fn refill(&mut self, removed: Entry) {
        let (path, _) = self.path(removed);
        let (parent, slot) = path[self.height - 1];
        let mut merged = self.join_leaves(parent, self.left_of_pair(parent, slot));
        for level in (1..self.height).rev() {
            let (parent, slot) = path[level - 1];
            if !merged || self.inners[path[level].0].len() >= INNER_MIN {
                return;
            }
            merged = self.join_inners(parent, self.left_of_pair(parent, slot));
        }
        if self.inners[self.root].len() == 1 {
            let only = self.inners[self.root].child(0);
            self.inners.release(self.root);
            self.root = only;
            self.height -= 1;
        }
    }

    /// Merges children `slot` and `slot + 1` of `parent` and returns true, if one leaf can hold both. Otherwise
    /// balances them.
    fn join_leaves(&mut self, parent: u32, slot: usize) -> bool {
        let node = &mut self.inners[parent];
        let (left, right) = (node.child(slot), node.child(slot + 1));
        let [left_node, right_node] = self.leaves.pair_mut(left, right);
        let total = left_node.len() + right_node.len();
        let merge = total <= LEAF_MAX;
        Leaf::level(left_node, right_node, if merge { total } else { total / 2 });
        if merge {
            let next = right_node.next;
            left_node.next = next;
            node.remove(slot + 1);
            self.link_back(next, left);
            self.leaves.release(right);
        } else {
            node.set_low(slot + 1, right_node.first().expect("a balanced leaf has entries"));
        }
        if let Some(next) = self.leaves.get(self.leaves[left].next) {
            next.prefetch();
        }
        self.forget(left);
        self.forget(right);
        merge
    }

    /// Does the same as [`join_leaves`](Self::join_leaves), for inner nodes.
    fn join_inners(&mut self, parent: u32, slot: usize) -> bool {
        let (left, right) = (self.inners[parent].child(slot), self.inners[parent].child(slot + 1));
        let [left_node, right_node] = self.inners.pair_mut(left, right);
        let total = left_node.len() + right_node.len();
        let merge = total <= INNER_MAX;
        Inner::level(left_node, right_node, if merge { total } else { total / 2 });
        let low = right_node.low(0);
        if merge {
            self.inners[parent].remove(slot + 1);
            self.inners.release(right);
        } else {
            self.inners[parent].set_low(slot + 1, low);
        }
        merge
    }

    /// The slot of the left child of a pair of adjacent children that includes `slot`. `slot` is the left child if
    /// possible.
    fn left_of_pair(&self, parent: u32, slot: usize) -> usize {
        slot.min(self.inners[parent].len() - 2)
    }

    /// Makes `prev` the predecessor of `next`, or the last leaf if there is no next.
    fn link_back(&mut self, next: u32, prev: u32) {
        if self.leaves.get(next).is_some() {
            self.leaves[next].prev = prev;
        } else {
            self.last_leaf = prev;
        }
    }

    /// Drops the fingers at a leaf whose bounds change.
    fn forget(&mut self, leaf: u32) {
        for finger in self.near.iter_mut().chain([&mut self.head]) {
            if finger.leaf == leaf {
                *finger = Finger::NOWHERE;
            }
        }
        self.inserts_ahead.forget(leaf);
        self.removals_ahead.forget(leaf);
    }

    /// The descent to `entry`: the inner nodes, and the leaf.
    fn path(&self, entry: Entry) -> (Path, u32) {
        let mut path = [(0, 0); HEIGHT_MAX];
        let mut node = self.root;
        for step in &mut path[..self.height] {
            let slot = self.inners[node].find(entry);
            *step = (node, slot);
            node = self.inners[node].child(slot);
        }
        (path, node)
    }
}

/// The number of items, of `max`, in the left node after the split of a full node for an insert before `slot`.
///
/// Half, unless the insert is at an edge. An insert at an edge is probably part of a stream; then most items stay on
/// the side that the stream has passed.
fn split_at(slot: usize, max: usize, min: usize) -> usize {
    match slot {
        0 => min,
        slot if slot == max => max - min,
        _ => max / 2,
    }
}
