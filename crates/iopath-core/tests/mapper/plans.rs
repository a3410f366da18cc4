//! The steps of reads, writes, punches and growth on a file of extents, one by one.

use super::{Ahead, Medium, layout, write};
use iopath_core::mapper::{
    Boundary, ExtentMap, FileRange, Identity, Mapper, PlanError, PunchPlan, ReadPlan, Step, WritePlan,
    ZeroPlan,
};
use iopath_core::{Extent, Limits};

const BLOCK: u64 = 4096;

fn limits() -> Limits {
    Limits::with_capacity(1 << 32)
}

fn file(start: u64, bytes: u64) -> FileRange {
    FileRange::new(start, bytes)
}

fn extent(offset: u64, bytes: u64) -> Extent {
    Extent::from_bytes(offset, bytes).unwrap()
}

fn transfer(start: u64, offset: u64, bytes: u64) -> Step {
    Step::Transfer { file: file(start, bytes), extent: extent(offset, bytes) }
}

/// A file of 6 blocks and a partial block. In order: written at blocks 100 and 101, again at 102, a hole, unwritten at
/// 200, written at 300 and 301.
fn map() -> ExtentMap {
    let mut map = ExtentMap::new(&layout(4096, 6 * BLOCK + 100)).unwrap();
    assert!(map.add(0, extent(100 * BLOCK, 2 * BLOCK), true));
    assert!(map.add(2 * BLOCK, extent(102 * BLOCK, BLOCK), true));
    assert!(map.add(4 * BLOCK, extent(200 * BLOCK, BLOCK), false));
    assert!(map.add(5 * BLOCK, extent(300 * BLOCK, 2 * BLOCK), true));
    map
}

fn read(map: &ExtentMap, range: FileRange, limits: &Limits) -> Vec<Step> {
    let mut plan = ReadPlan::new(range, map, limits, Boundary::Once).unwrap();
    std::iter::from_fn(|| plan.poll_step(map, limits)).collect()
}

#[test]
fn a_read_is_one_bio_for_each_extent_and_none_for_holes() {
    let steps = read(&map(), file(0, 1 << 20), &limits());
    let zeroes = |start, bytes| Step::Zeroes { file: file(start, bytes) };
    assert_eq!(
        steps,
        [
            transfer(0, 100 * BLOCK, 3 * BLOCK),
            zeroes(3 * BLOCK, BLOCK),
            zeroes(4 * BLOCK, BLOCK),
            transfer(5 * BLOCK, 300 * BLOCK, BLOCK + 512),
        ]
    );
    assert_eq!(read(&map(), file(1 << 20, 4096), &limits()), []);
}

#[test]
fn a_bio_is_at_most_one_request_of_the_device() {
    let small = Limits { request_bytes_max: 5000, ..limits() };
    let lengths: Vec<u64> = read(&map(), file(512, 2 * BLOCK), &small)
        .iter()
        .map(|step| if let Step::Transfer { extent, .. } = step { extent.bytes() } else { 0 })
        .collect();
    assert_eq!(lengths, [4608, 3584]);
    let chunks = Limits { chunk_sectors: 16, ..limits() };
    assert_eq!(
        read(&map(), file(0, 3 * BLOCK), &chunks),
        [transfer(0, 100 * BLOCK, 2 * BLOCK), transfer(2 * BLOCK, 102 * BLOCK, BLOCK)]
    );
}

#[test]
fn the_rest_of_a_new_block_is_zeroed() {
    let mut map = map();
    let (mut space, mut medium) = (Ahead::new(8000, 8000), Medium::new());
    let range = file(3 * BLOCK + 1024, BLOCK);
    let plan = WritePlan::new(range, &map, &limits(), Boundary::Once).unwrap();
    let steps = write(&mut map, &mut space, &mut medium, &limits(), plan);
    let zeroes =
        |start, offset, bytes| Step::ZeroBlocks { file: file(start, bytes), extent: extent(offset, bytes) };
    let new = 8000 * 512;
    assert_eq!(
        steps,
        [
            zeroes(3 * BLOCK, new, 1024),
            transfer(3 * BLOCK + 1024, new + 1024, 3072),
            transfer(4 * BLOCK, 200 * BLOCK, 1024),
            zeroes(4 * BLOCK + 1024, 200 * BLOCK + 1024, 3072),
        ]
    );
    assert!(
        read(&map, file(0, 6 * BLOCK), &limits()).iter().all(|step| matches!(step, Step::Transfer { .. }))
    );
}

#[test]
fn after_an_error_only_the_blocks_before_it_are_committed() {
    for (failing, bytes) in [(0, 0), (1, 0), (2, 3072), (3, 3072)] {
        let mut map = map();
        let mut space = Ahead::new(8000, 8000);
        let range = file(3 * BLOCK + 1024, BLOCK);
        let mut plan = WritePlan::new(range, &map, &limits(), Boundary::Once).unwrap();
        let mut seen = 0;
        while let Some(step) = plan.poll_step(&map, &limits()) {
            match step {
                Step::Allocate { file } => map.allocate(file, &mut space).unwrap(),
                Step::Transfer { file, .. } | Step::ZeroBlocks { file, .. } => {
                    if seen == failing {
                        plan.handle_error(file);
                    }
                    seen += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        let wrote = plan.finish();
        assert_eq!((wrote.bytes, wrote.size_bytes), (bytes, None), "step {failing} fails");
        map.commit(wrote.commit).unwrap();
        let reads_data =
            |start| matches!(read(&map, file(start, BLOCK), &limits())[..], [Step::Transfer { .. }]);
        assert_eq!(
            (reads_data(3 * BLOCK), reads_data(4 * BLOCK)),
            (bytes > 0, false),
            "step {failing} fails"
        );
    }
}

#[test]
fn steps_that_were_not_polled_do_not_count_as_written() {
    let mut map = map();
    let range = file(0, 3 * BLOCK);
    let small = Limits { request_bytes_max: BLOCK, ..limits() };
    let mut plan = WritePlan::new(range, &map, &small, Boundary::Once).unwrap();
    assert!(plan.poll_step(&map, &small).is_some());
    assert_eq!(plan.finish().bytes, BLOCK);
    map.set_size(0).unwrap();
    let plan = WritePlan::new(range, &map, &small, Boundary::Once).unwrap();
    assert_eq!(plan.finish().size_bytes, None);
}

#[test]
fn bytes_between_the_files_end_and_a_later_write_are_zeroed_first() {
    let map = map();
    let mut plan = WritePlan::new(file(6 * BLOCK + 1024, 512), &map, &limits(), Boundary::Once).unwrap();
    assert_eq!(plan.footprint(), file(6 * BLOCK, BLOCK));
    let steps: Vec<Step> = std::iter::from_fn(|| plan.poll_step(&map, &limits())).collect();
    let end = 301 * BLOCK;
    assert_eq!(
        steps,
        [
            Step::ZeroPart { file: file(6 * BLOCK + 100, 412), extent: extent(end, 512), from: 100 },
            Step::ZeroBlocks { file: file(6 * BLOCK + 512, 512), extent: extent(end + 512, 512) },
            transfer(6 * BLOCK + 1024, end + 1024, 512),
        ]
    );
    assert_eq!(plan.finish().size_bytes, Some(6 * BLOCK + 1536));
}

#[test]
fn growth_zeroes_only_the_bytes_it_makes_visible() {
    let map = map();
    let grow = |size_bytes| {
        let mut plan = ZeroPlan::before_growth(size_bytes, &map, &limits()).unwrap();
        std::iter::from_fn(|| plan.poll_step(&map, &limits())).collect::<Vec<Step>>()
    };
    assert_eq!(grow(6 * BLOCK), []);
    let part = |bytes| Step::ZeroPart {
        file: file(6 * BLOCK + 100, bytes),
        extent: extent(301 * BLOCK, 512),
        from: 100,
    };
    assert_eq!(grow(6 * BLOCK + 200), [part(100)]);
    let rest =
        Step::ZeroBlocks { file: file(6 * BLOCK + 512, 3584), extent: extent(301 * BLOCK + 512, 3584) };
    assert_eq!(grow(1 << 30), [part(412), rest]);
}

#[test]
fn a_punch_zeroes_its_written_ends_and_releases_the_blocks_between() {
    let map = map();
    let mut plan = PunchPlan::new(file(BLOCK + 512, 3 * BLOCK), &map, &limits()).unwrap();
    assert_eq!((plan.blocks(), plan.footprint()), (file(2 * BLOCK, 2 * BLOCK), file(BLOCK, 4 * BLOCK)));
    let steps: Vec<Step> = std::iter::from_fn(|| plan.poll_step(&map, &limits())).collect();
    let head = Step::ZeroBlocks { file: file(BLOCK + 512, 3584), extent: extent(101 * BLOCK + 512, 3584) };
    assert_eq!(steps, [head], "the other end is unwritten");
    let inside = PunchPlan::new(file(100, 200), &map, &limits()).unwrap();
    assert!(inside.blocks().is_empty());
    let to_end = PunchPlan::new(file(5 * BLOCK, BLOCK + 100), &map, &limits()).unwrap();
    assert_eq!(to_end.blocks(), file(5 * BLOCK, 2 * BLOCK), "no bytes past the end are kept");
}

#[test]
fn ranges_and_blocks_that_do_not_fit_the_device_are_refused() {
    let identity = Identity::new(&layout(1024, 1 << 20)).unwrap();
    let coarse = Limits { logical_block_bytes: 4096, ..limits() };
    let refused =
        |limits: &Limits| ReadPlan::new(file(512, 4096), &identity, limits, Boundary::Once).unwrap_err();
    assert_eq!(refused(&coarse), PlanError::BlockSize { file_block_bytes: 1024, block_bytes: 4096 });
    let fine = Limits { logical_block_bytes: 1024, ..limits() };
    assert_eq!(refused(&fine), PlanError::Unaligned { file: file(512, 4096), block_bytes: 1024 });
    for boundary in Boundary::ALL {
        assert_eq!(boundary.name().parse(), Ok(boundary));
    }
    assert!("twice".parse::<Boundary>().unwrap_err().to_string().contains("every-block, once, ignore"));
}
