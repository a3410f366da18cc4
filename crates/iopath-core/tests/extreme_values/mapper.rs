//! Mappers, plans and space: files of any length, ranges at any position.

use super::{EDGES, pairs};
use iopath_core::mapper::{
    Boundary, ExtentMap, FileLayout, FileRange, FreeSpace, IndirectShape, MAPPERS, MapError, Mapper,
    PlanError, PunchPlan, Quarantine, ReadPlan, Space, Step, WritePlan, ZeroPlan,
};
use iopath_core::{Extent, Limits, Sector};

/// The maximum number of steps of a plan; a plan with more steps never ends.
const STEPS_MAX: usize = 10_000;

fn limits(block_bytes: u32) -> Limits {
    Limits {
        logical_block_bytes: block_bytes,
        // The highest size limit, so that long ranges need no more steps than short ones.
        request_bytes_max: u64::MAX,
        write_zeroes_bytes_max: u64::MAX,
        ..Limits::with_capacity(Sector::MAX.0)
    }
}

/// Polls a plan to its end, or to the first step that needs a result. Steps are not executed.
fn poll(mut step: impl FnMut() -> Option<Step>, of: &str) {
    for _ in 0..STEPS_MAX {
        match step() {
            None | Some(Step::Metadata { .. } | Step::Allocate { .. }) => return,
            Some(_) => {}
        }
    }
    panic!("{of} does not end");
}

/// A mapper of each kind with a file of each valid length, on devices of each size.
fn mappers() -> impl Iterator<Item = Box<dyn Mapper>> {
    mappers_on(&[0, 1 << 20, Sector::MAX.0, u64::MAX])
}

fn mappers_on(capacities: &[u64]) -> impl Iterator<Item = Box<dyn Mapper>> {
    let layouts = EDGES.into_iter().flat_map(move |size_bytes| {
        let of_block = move |block_bytes| {
            capacities.iter().map(move |capacity| FileLayout {
                block_bytes,
                size_bytes,
                capacity_bytes: capacity.saturating_mul(512),
            })
        };
        [512, 4096, 1 << 31].into_iter().flat_map(of_block)
    });
    layouts.flat_map(|layout| MAPPERS.iter().filter_map(move |kind| (kind.make)(&layout).ok()))
}

#[test]
fn a_file_of_any_length_is_created_or_refused_and_resized_or_kept() {
    let mut made = 0;
    for mut mapper in mappers() {
        made += 1;
        for bytes in EDGES {
            let before = mapper.size_bytes();
            match mapper.set_size(bytes) {
                Ok(()) => assert_eq!(mapper.size_bytes(), bytes),
                Err(MapError::TooFar { offset, max }) => assert!(offset == bytes && max < bytes),
                Err(MapError::Fixed(_)) => assert!(mapper.is_fixed()),
                Err(other) => panic!("{other}"),
            }
            let unchanged = mapper.size_bytes() == before || mapper.size_bytes() == bytes;
            assert!(unchanged && mapper.blocks_past_end().is_whole(mapper.block_bytes().into()));
        }
    }
    assert!(made > 100, "{made} files");
}

#[test]
fn plans_for_any_range_end_or_are_refused() {
    let mut planned = 0;
    for mapper in mappers() {
        let limits = limits(512);
        for (start, bytes) in pairs() {
            let file = FileRange::new(start, bytes);
            let what = |plan: &str| format!("{plan} of {file} of {mapper:?}");
            let direct = ReadPlan::new(file, &*mapper, &limits, Boundary::Once);
            match direct {
                Ok(mut plan) => {
                    planned += 1;
                    assert!(plan.bytes() <= file.bytes());
                    poll(|| plan.poll_step(&*mapper, &limits), &what("a read"));
                    match WritePlan::new(file, &*mapper, &limits, Boundary::Once) {
                        Ok(mut plan) => {
                            assert!(plan.footprint().bytes() >= file.bytes());
                            poll(|| plan.poll_step(&*mapper, &limits), &what("a write"));
                            assert!(plan.finish().bytes <= file.bytes());
                        }
                        Err(PlanError::TooFar { max, .. }) => assert!(max < file.end()),
                        Err(other) => panic!("{other}"),
                    }
                }
                Err(error) => assert!(matches!(error, PlanError::Unaligned { .. }), "{error}"),
            }
            let mut plan = ZeroPlan::new(file, &*mapper, &limits).unwrap();
            poll(|| plan.poll_step(&*mapper, &limits), &what("zeroes"));
            let mut plan = PunchPlan::new(file, &*mapper, &limits).unwrap();
            assert!(plan.blocks().bytes() <= plan.footprint().bytes().max(file.bytes()));
            poll(|| plan.poll_step(&*mapper, &limits), &what("a hole"));
        }
        for bytes in EDGES {
            let mut plan = ZeroPlan::before_growth(bytes, &*mapper, &limits).unwrap();
            poll(|| plan.poll_step(&*mapper, &limits), &format!("growth to {bytes} of {mapper:?}"));
        }
    }
    assert!(planned > 1000, "{planned} plans");
}

#[test]
fn space_is_allocated_and_released_at_any_position() {
    for mut mapper in mappers_on(&[Sector::MAX.0, u64::MAX]).filter(|mapper| !mapper.is_fixed()) {
        let block = u64::from(mapper.block_bytes());
        // The range of pointers of 32 bits.
        let all = Extent::new(Sector(block / 512), 64 * block / 512).unwrap();
        for offset in EDGES {
            let blocks = FileRange::new(offset, 3 * block).inward(block);
            if blocks.is_empty() {
                continue;
            }
            let mut space = FreeSpace::new(all);
            match mapper.allocate(blocks, &mut space) {
                Ok(()) => {
                    mapper.commit(blocks).unwrap();
                    let mapping = mapper.map(blocks).unwrap();
                    assert!(mapping.file.start() == blocks.start() && !mapping.file.is_empty());
                }
                Err(MapError::TooFar { .. } | MapError::NoSpace) => {}
                Err(other) => panic!("{other}"),
            }
            mapper.unmap(blocks, &mut space).unwrap();
        }
    }
}

#[test]
fn extents_and_free_space_accept_any_numbers() {
    for (start, sectors) in pairs() {
        let Some(extent) = Extent::new(Sector(start), sectors) else { continue };
        let layout = FileLayout { block_bytes: 512, size_bytes: 0, capacity_bytes: 0 };
        for at in EDGES {
            let mut map = ExtentMap::new(&layout).unwrap().with_boundaries(IndirectShape::new(u32::MAX));
            if map.add(at, extent, true) {
                assert!(!map.add(at, extent, false) && map.extents() == 1);
                map.map(FileRange::new(at, 512)).unwrap();
            }
        }
        for (take, unit) in pairs() {
            for near in [0, start, u64::MAX] {
                let mut space = Quarantine::new(FreeSpace::new(extent));
                let ticket = space.begin();
                if let Some(taken) = space.take(take, unit, Sector(near)) {
                    assert!(
                        taken.sectors() <= take
                            && taken.start() >= extent.start()
                            && taken.end() <= extent.end()
                    );
                    space.release(taken);
                    assert_eq!(space.held_sectors(), taken.sectors());
                }
                space.end(ticket);
                assert_eq!(space.held_sectors(), 0);
            }
        }
    }
}
