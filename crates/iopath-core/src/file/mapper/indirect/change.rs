//! Changes of an indirect map: reserves space, sets pointers to it, removes pointers and the indirect blocks that
//! become empty.

use super::{Found, IndirectMap, NOTHING};
use crate::file::mapper::shape::Path;
use crate::file::mapper::{FileRange, MapError, Space};
use crate::sector::{Extent, Sector};

impl IndirectMap {
    /// Reserves space for every hole in `range`, and creates the indirect blocks on the paths to it.
    pub(super) fn reserve(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError> {
        let (mut block, end) = self.blocks_of(range);
        while block < end {
            if self.reserved.contains_key(&block) {
                block += 1;
                continue;
            }
            let path = self.path(block)?;
            if let Found::Block(_) = self.find(block, &path)? {
                block += 1;
                continue;
            }
            self.create_path(block, &path, space)?;
            let share_end = self.shape.share_end(block).min(end);
            let holes = (block + 1..share_end).take_while(|next| self.is_hole(*next)).count() as u64 + 1;
            let unit = self.block_sectors();
            let Some(extent) = space.take(holes * unit, unit, self.goal(block)) else {
                self.remove_path(block, &path, path.depth, space);
                return Err(MapError::NoSpace);
            };
            let (first, count) = self.pointers_of(extent);
            for index in 0..count {
                self.reserved.insert(block + index, first + index as u32);
            }
            block += count;
        }
        Ok(())
    }

    /// Sets pointers to the reserved blocks in `range`.
    pub(super) fn link(&mut self, range: FileRange) -> Result<(), MapError> {
        let (start, end) = self.blocks_of(range);
        while let Some((block, pointer)) = self.reserved.range(start..end).next().map(|(b, p)| (*b, *p)) {
            let path = self.path(block)?;
            self.find(block, &path)?;
            self.set(&path, path.depth, pointer);
            self.reserved.remove(&block);
        }
        Ok(())
    }

    /// Removes pointers and reserved blocks of `range`.
    pub(super) fn unlink(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError> {
        let (mut block, end) = self.blocks_of(range);
        let mut freed = Freed::default();
        let done = loop {
            if block >= end {
                break Ok(());
            }
            match self.unlink_block(block, &mut freed, space) {
                Ok(next) => block = next,
                Err(error) => break Err(error),
            }
        };
        freed.release(space);
        done
    }

    /// Removes one block or skips a hole. Returns the next block to visit.
    fn unlink_block(
        &mut self,
        block: u64,
        freed: &mut Freed,
        space: &mut dyn Space,
    ) -> Result<u64, MapError> {
        let Some(path) = self.shape.path(block) else { return Ok(u64::MAX) };
        let found = self.find(block, &path)?;
        if let Some(pointer) = self.reserved.remove(&block) {
            freed.add(self.extent(pointer, 1), space);
        } else if let Found::Nothing { end } = found {
            let reserved = self.reserved.range(block..end).next();
            return Ok(reserved.map_or(end, |(next, _)| *next));
        } else if let Found::Block(pointer) = found {
            self.set(&path, path.depth, NOTHING);
            freed.add(self.extent(pointer, 1), space);
        }
        self.remove_empty(block, &path, path.depth, freed, space);
        Ok(block + 1)
    }

    /// Removes the indirect blocks that [`IndirectMap::create_path`] created, down to `depth`, after the allocation of
    /// the block failed.
    fn remove_path(&mut self, block: u64, path: &Path, depth: usize, space: &mut dyn Space) {
        let mut freed = Freed::default();
        self.remove_empty(block, path, depth, &mut freed, space);
        freed.release(space);
    }

    /// Removes the indirect blocks on the path to `block`, down to `depth`, that have no pointers and no reserved
    /// blocks below.
    fn remove_empty(
        &mut self,
        block: u64,
        path: &Path,
        depth: usize,
        freed: &mut Freed,
        space: &mut dyn Space,
    ) {
        let share_end = self.shape.share_end(block);
        let share_start = share_end.saturating_sub(self.shape.pointers());
        if self.reserved.range(share_start..share_end).next().is_some() {
            return;
        }
        for level in (1..=depth).rev() {
            let node = self.node_at(path, level);
            let is_empty = |pointers: &[u32]| pointers.iter().all(|pointer| *pointer == NOTHING);
            if !self.nodes.get(node).is_some_and(is_empty) {
                return;
            }
            self.set(path, level - 1, NOTHING);
            self.nodes.remove(node);
            freed.add(self.extent(node, 1), space);
        }
    }

    /// Creates the missing indirect blocks on the path to `block`, from the top down. If one cannot be created, creates
    /// none.
    fn create_path(&mut self, block: u64, path: &Path, space: &mut dyn Space) -> Result<(), MapError> {
        for level in 1..=path.depth {
            if self.pointer(path, level - 1) != NOTHING {
                continue;
            }
            let unit = self.block_sectors();
            let Some(extent) = space.take(unit, unit, self.goal(block)) else {
                self.remove_path(block, path, level - 1, space);
                return Err(MapError::NoSpace);
            };
            let (node, _) = self.pointers_of(extent);
            self.nodes.create(node, self.shape.pointers(), path.depth - level);
            self.set(path, level - 1, node);
        }
        Ok(())
    }

    /// The pointer at `level` of a path that is in memory down to there.
    fn pointer(&self, path: &Path, level: usize) -> u32 {
        let mut pointer = self.inode[path.slots[0]];
        for slot in &path.slots[1..=level] {
            let node = self.nodes.get(pointer).expect("the path was walked, so its blocks are in memory");
            pointer = node[*slot];
        }
        pointer
    }

    /// The indirect block that holds the pointer at `level` of a path.
    fn node_at(&self, path: &Path, level: usize) -> u32 {
        self.pointer(path, level - 1)
    }

    fn set(&mut self, path: &Path, level: usize, pointer: u32) {
        if level == 0 {
            self.inode[path.slots[0]] = pointer;
        } else {
            let node = self.node_at(path, level);
            self.nodes.set(node, path.slots[level], pointer, path.depth - level);
        }
    }

    /// Whether `block` has neither a pointer nor reserved space; its indirect block is in memory.
    fn is_hole(&self, block: u64) -> bool {
        let Some(path) = self.shape.path(block) else { return false };
        !self.reserved.contains_key(&block) && matches!(self.find(block, &path), Ok(Found::Nothing { .. }))
    }

    /// The preferred block for new space: after the previous block of the file, or after its indirect block.
    fn goal(&self, block: u64) -> Sector {
        let after = |pointer: u32| Sector((u64::from(pointer) + 1) * self.block_sectors());
        let Some(path) = self.shape.path(block) else { return Sector(0) };
        let parent = if path.depth > 0 { self.leaf(&path) } else { NOTHING };
        let is_first = parent != NOTHING && path.slots[path.depth] == 0;
        match block.checked_sub(1).map(|before| self.known_pointer(before)) {
            Some(before) if before != NOTHING && !is_first => after(before),
            Some(before) if parent == NOTHING => after(before),
            _ => after(parent),
        }
    }

    /// The last indirect block on the path to a block; `NOTHING` if it is not in memory.
    fn leaf(&self, path: &Path) -> u32 {
        let mut pointer = self.inode[path.slots[0]];
        for slot in &path.slots[1..path.depth] {
            pointer = self.nodes.get(pointer).map_or(NOTHING, |node| node[*slot]);
        }
        pointer
    }

    /// The device's block of a block of the file; `NOTHING` if that is unknown without a read.
    fn known_pointer(&self, block: u64) -> u32 {
        if let Some(pointer) = self.reserved.get(&block) {
            return *pointer;
        }
        let found = self.shape.path(block).map(|path| self.find(block, &path));
        if let Some(Ok(Found::Block(pointer))) = found { pointer } else { NOTHING }
    }

    fn path(&self, block: u64) -> Result<Path, MapError> {
        let unit = u64::from(self.shape.block_bytes());
        let max = self.shape.blocks_max().saturating_mul(unit);
        self.shape.path(block).ok_or(MapError::TooFar { offset: block.saturating_mul(unit), max })
    }

    fn blocks_of(&self, range: FileRange) -> (u64, u64) {
        let unit = u64::from(self.shape.block_bytes());
        debug_assert!(range.is_whole(unit), "{range} is not whole blocks of {unit} bytes");
        (range.start() / unit, range.end() / unit)
    }

    /// The blocks of `extent`: the first, and their number.
    fn pointers_of(&self, extent: Extent) -> (u32, u64) {
        let unit = self.block_sectors();
        assert!(
            extent.start().0.is_multiple_of(unit) && extent.end().0 / unit <= self.blocks,
            "space at sectors {extent} is no whole blocks of the device"
        );
        let first = u32::try_from(extent.start().0 / unit).expect("a block has a number of 32 bits");
        assert!(first != NOTHING, "block 0 of a device holds no data: it stands for a hole");
        (first, extent.sectors() / unit)
    }
}

/// Released space, adjacent extents joined.
#[derive(Default)]
struct Freed(Option<Extent>);

impl Freed {
    fn add(&mut self, extent: Extent, space: &mut dyn Space) {
        self.0 = match self.0 {
            Some(before) if before.is_followed_by(extent) => before.join(extent),
            Some(before) => {
                space.release(before);
                Some(extent)
            }
            None => Some(extent),
        };
    }

    fn release(self, space: &mut dyn Space) {
        if let Some(extent) = self.0 {
            space.release(extent);
        }
    }
}
