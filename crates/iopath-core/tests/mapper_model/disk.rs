//! A device whose content is one stamp for each cell of 64 bytes, and an allocator that scatters. Independent of files.

use iopath_core::mapper::Space;
use iopath_core::{Extent, SECTOR_BYTES, Sector};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::ops::Range;

/// The size of a cell: less than a sector, so that parts of a sector can differ.
pub(crate) const CELL: u64 = 64;

/// The content of a cell: 0 for zeroes; each write has another number.
pub(crate) type Stamp = u32;

/// The content of the device before the first write, and of metadata that is read as data.
pub(crate) const STALE: Stamp = u32::MAX;

#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) cells: Vec<Stamp>,
    metadata: HashMap<Extent, Box<[u8]>>,
}

pub(crate) fn cells_of(extent: Extent) -> Range<usize> {
    (extent.offset() / CELL) as usize..((extent.offset() + extent.bytes()) / CELL) as usize
}

impl Disk {
    pub(crate) fn new(sectors: u64) -> Self {
        Self { cells: vec![STALE; (sectors * SECTOR_BYTES / CELL) as usize], metadata: HashMap::new() }
    }

    pub(crate) fn write_metadata(&mut self, extent: Extent, bytes: Box<[u8]>) {
        self.cells[cells_of(extent)].fill(STALE);
        self.metadata.insert(extent, bytes);
    }

    pub(crate) fn metadata(&self, extent: Extent) -> &[u8] {
        self.metadata.get(&extent).expect("metadata is read where it was written")
    }
}

/// Free blocks of the device, allocated near the goal or at a random position.
#[derive(Debug)]
pub(crate) struct Blocks {
    is_free: Vec<bool>,
    unit: u64,
    scatter: f64,
    rng: ChaCha8Rng,
}

impl Blocks {
    /// All blocks except the first, which represents holes.
    pub(crate) fn new(count: usize, unit: u64, scatter: f64, rng: ChaCha8Rng) -> Self {
        let mut is_free = vec![true; count];
        is_free[0] = false;
        Self { is_free, unit, scatter, rng }
    }

    pub(crate) fn free(&self) -> usize {
        self.is_free.iter().filter(|free| **free).count()
    }
}

impl Space for Blocks {
    fn take(&mut self, sectors: u64, unit: u64, near: Sector) -> Option<Extent> {
        assert_eq!(unit, self.unit);
        let count = self.is_free.len();
        let is_scattered = self.rng.random_bool(self.scatter);
        let goal = if is_scattered { self.rng.random_range(0..count) } else { (near.0 / unit) as usize };
        let first = (0..count).map(|step| (goal + step) % count).find(|block| self.is_free[*block])?;
        let most = if is_scattered { self.rng.random_range(1..4) } else { (sectors / unit) as usize };
        let most = most.min((sectors / unit) as usize);
        let run = self.is_free[first..].iter().take(most).take_while(|free| **free).count();
        self.is_free[first..first + run].fill(false);
        Extent::new(Sector(first as u64 * unit), run as u64 * unit)
    }

    fn release(&mut self, extent: Extent) {
        let first = (extent.start().0 / self.unit) as usize;
        for block in &mut self.is_free[first..first + (extent.sectors() / self.unit) as usize] {
            assert!(!*block, "space is released once: {extent}");
            *block = true;
        }
    }
}
