//! The boundary flag: the effect of each setting on a stream of large writes to a stripe of 64 disks with chunks of 128
//! KiB, and on the order of metadata reads. It counts requests, and measures no time.

use super::{Ahead, Medium, layout, write};
use iopath_core::mapper::{Boundary, ExtentMap, FileRange, IndirectMap, Mapper, ReadPlan, Step, WritePlan};
use iopath_core::{Limits, Op};
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
const FILE_MIB: u64 = 128;
const MEMBERS: u64 = 64;
const CHUNK_SECTORS: u64 = 256;

/// The stripe as one device: no request crosses a chunk.
fn stripe() -> Limits {
    Limits { chunk_sectors: CHUNK_SECTORS, ..Limits::with_capacity(1 << 32) }
}

/// Extends an empty file by `write_mib` at a time. Returns the number of requests to the disks per MiB; each bio is
/// one.
fn requests_a_mib(mapper: &mut dyn Mapper, write_mib: u64, boundary: Boundary) -> f64 {
    let limits = stripe();
    let (mut space, mut medium) = (Ahead::new(CHUNK_SECTORS, 1 << 32), Medium::new());
    let mut by_disk = BTreeMap::<u64, u64>::new();
    for start in (0..FILE_MIB).step_by(write_mib as usize) {
        let file = FileRange::new(start * MIB, write_mib * MIB);
        let plan = WritePlan::new(file, mapper, &limits, boundary).unwrap();
        for step in write(mapper, &mut space, &mut medium, &limits, plan) {
            match step {
                Step::Transfer { extent, .. } => {
                    assert!(limits.fits(Op::Write, extent), "{extent} is one request");
                    *by_disk.entry(extent.start().0 / CHUNK_SECTORS % MEMBERS).or_default() += 1;
                }
                Step::Submit => {}
                other => panic!("an extending write of whole blocks needs no {other:?}"),
            }
        }
    }
    assert_eq!(by_disk.len() as u64, MEMBERS, "every disk has its part");
    by_disk.values().sum::<u64>() as f64 / FILE_MIB as f64
}

/// Published (2006, extending direct writes of 512 MiB to 64 disks): 36,000 I/O/s at 660 MiB/s with a boundary for
/// every block, 16,000 at 715 with one per mapping, 18,000 at 2,314 on extents. That is 55, 22 and 8 requests per MiB.
/// The numbers here are for pages of one block, and for a stripe that cuts no pages. They are further apart, but in the
/// same order. The lab's experiment `boundary` has the pages and the stripe of the published machine.
///
/// Writes of up to 4 MiB hardly show the effect. Only a mapping that ends with the 4 MiB of an indirect block has the
/// flag, and in such a write this mapping has only 12 blocks, the number of direct pointers of the inode.
#[test]
fn a_boundary_for_every_block_multiplies_the_requests() {
    for (write_mib, ratio) in [(1, 1.2), (4, 1.2), (32, 2.4), (128, 2.4)] {
        let indirect = |boundary| {
            let mut map = IndirectMap::new(&layout(4096, 0)).unwrap();
            requests_a_mib(&mut map, write_mib, boundary)
        };
        let [every, once, ignore] = Boundary::ALL.map(indirect);
        let extent = |boundary| {
            let mut map = ExtentMap::new(&layout(4096, 0)).unwrap();
            requests_a_mib(&mut map, write_mib, boundary)
        };
        let extents = Boundary::ALL.map(extent);
        eprintln!(
            "writes of {write_mib} MiB, requests a MiB: every-block {every:.2}, once {once:.2}, ignore {ignore:.2}; \
             extents {:.2}",
            extents[1]
        );
        assert!(every > ratio * once, "{every} and {once}; published: 2.4 times");
        assert!(once < 1.2 * extents[1], "only one split at each indirect block: {once}");
        assert!(ignore <= once, "a bio that is not submitted early is not split further");
        assert!(
            extents.iter().all(|requests| (8.0..8.1).contains(requests)),
            "chunks, no boundary: {extents:?}"
        );
    }
}

/// With pages of 16 KiB, as on the machine of the published figures, the bug makes a bio of each page.
#[test]
fn a_boundary_for_every_block_makes_a_bio_of_each_page() {
    let limits = Limits::with_capacity(1 << 32);
    for (page_bytes, bios) in [(0, 1012), (4096, 1012), (16384, 253)] {
        let mut map = IndirectMap::new(&layout(4096, 0)).unwrap();
        let (mut space, mut medium) = (Ahead::new(8, 1 << 32), Medium::new());
        // From the first block behind an indirect block to the next indirect block and further.
        let file = FileRange::new(12 * 4096, 8 * MIB);
        let plan = WritePlan::new(file, &map, &limits, Boundary::EveryBlock).unwrap().by_pages(page_bytes);
        let steps = write(&mut map, &mut space, &mut medium, &limits, plan);
        let sizes = steps.iter().filter_map(|step| match step {
            Step::Transfer { file, .. } => Some(file.bytes()),
            _ => None,
        });
        let alone = sizes.clone().filter(|bytes| *bytes == u64::from(page_bytes.max(4096))).count();
        assert!(alone >= bios, "{page_bytes}: {alone} of {}", sizes.count());
    }
}

/// The steps of a read of 16 MiB of a file whose indirect blocks are not in memory.
fn cold_read(boundary: Boundary) -> Vec<Step> {
    let limits = stripe();
    let (mut space, mut medium) = (Ahead::new(8, 1 << 32), Medium::new());
    let mut map = IndirectMap::new(&layout(4096, 0)).unwrap();
    let file = FileRange::new(0, 16 * MIB);
    let plan = WritePlan::new(file, &map, &limits, Boundary::Once).unwrap();
    write(&mut map, &mut space, &mut medium, &limits, plan);
    map.forget_metadata();
    let mut plan = ReadPlan::new(file, &map, &limits, boundary).unwrap();
    let mut steps = Vec::new();
    while let Some(step) = plan.poll_step(&map, &limits) {
        if let Step::Metadata { extent } = step {
            map.handle_metadata(extent, &medium[&extent]).unwrap();
        }
        steps.push(step);
    }
    steps
}

/// The number of requests at a lower sector than the request before.
fn backward_seeks(steps: &[Step]) -> usize {
    let places = steps.iter().filter_map(|step| match step {
        Step::Transfer { extent, .. } | Step::Metadata { extent } => Some(*extent),
        _ => None,
    });
    let places: Vec<_> = places.collect();
    places.windows(2).filter(|pair| pair[1].start() < pair[0].end()).count()
}

#[test]
fn pending_bios_are_submitted_before_a_metadata_read() {
    let steps = cold_read(Boundary::Once);
    let metadata: Vec<usize> =
        (0..steps.len()).filter(|at| matches!(steps[*at], Step::Metadata { .. })).collect();
    assert_eq!(metadata.len(), 1 + 1 + 3, "one indirect, one double and three below it");
    for at in metadata {
        let follows_metadata = matches!(steps[at - 1], Step::Metadata { .. });
        assert!(steps[at - 1] == Step::Submit || follows_metadata, "{:?}", &steps[at - 2..=at]);
    }
    assert_eq!(backward_seeks(&steps), 0, "data and metadata in sector order");
}

#[test]
fn without_the_flag_a_metadata_read_precedes_the_pending_data() {
    let steps = cold_read(Boundary::Ignore);
    assert!(!steps.contains(&Step::Submit));
    assert_eq!(backward_seeks(&steps), 4, "the head moves to the metadata of each share, and back");
    let transferred = |steps: &[Step]| -> u64 {
        let sectors = steps.iter().map(|step| match step {
            Step::Transfer { extent, .. } => extent.sectors(),
            _ => 0,
        });
        sectors.sum()
    };
    for boundary in Boundary::ALL {
        assert_eq!(transferred(&cold_read(boundary)), 16 * MIB / 512, "all data is read");
    }
}
