//! The guarantees of mappers and plans, one per test: the steps, their order, and the number of bios.
//! `tests/mapper_model` checks every byte.

mod boundary;
mod conformance;
mod indirect;
mod plans;

use iopath_core::mapper::{FileLayout, Mapper, Space, Step, WritePlan};
use iopath_core::{Extent, Limits, Sector};
use std::collections::HashMap;

const KIB: u64 = 1024;

fn layout(block_bytes: u32, size_bytes: u64) -> FileLayout {
    FileLayout { block_bytes, size_bytes, capacity_bytes: 512 << 32 }
}

/// Space that is allocated in ascending order from one sector on.
#[derive(Debug)]
struct Ahead {
    next: u64,
    left: u64,
    released: u64,
}

impl Ahead {
    /// From the device's sector `next` on, `left` sectors.
    fn new(next: u64, left: u64) -> Self {
        Self { next, left, released: 0 }
    }
}

impl Space for Ahead {
    fn take(&mut self, sectors: u64, unit: u64, _near: Sector) -> Option<Extent> {
        let sectors = sectors.min(self.left / unit * unit);
        self.left -= sectors;
        self.next += sectors;
        Extent::new(Sector(self.next - sectors), sectors).filter(|extent| !extent.is_empty())
    }

    fn release(&mut self, extent: Extent) {
        self.released += extent.sectors();
    }
}

/// The metadata on the medium.
type Medium = HashMap<Extent, Box<[u8]>>;

/// Executes a write and commits it. Returns all its steps except those that allocate.
fn write(
    mapper: &mut dyn Mapper,
    space: &mut dyn Space,
    medium: &mut Medium,
    limits: &Limits,
    mut plan: WritePlan,
) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some(step) = plan.poll_step(mapper, limits) {
        match step {
            Step::Allocate { file } => mapper.allocate(file, space).unwrap(),
            Step::Metadata { extent } => {
                mapper.handle_metadata(extent, &medium[&extent]).unwrap();
                steps.push(step);
            }
            step => steps.push(step),
        }
    }
    let wrote = plan.finish();
    mapper.commit(wrote.commit).unwrap();
    mapper.set_size(wrote.size_bytes.unwrap_or(mapper.size_bytes())).unwrap();
    medium.extend(std::iter::from_fn(|| mapper.poll_dirty()).map(|dirty| (dirty.extent, dirty.bytes)));
    steps
}
