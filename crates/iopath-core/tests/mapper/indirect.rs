//! The indirect map compared with the format of ext2: the content of its blocks, the metadata that it requests, and its
//! behaviour without space.

use super::{Ahead, KIB, Medium, layout};
use iopath_core::mapper::{FileLayout, FileRange, IndirectMap, Location, MapError, Mapper, Metadata};
use iopath_core::{Extent, Sector};

fn blocks(first: u64, count: u64) -> FileRange {
    FileRange::new(first * KIB, count * KIB)
}

fn block(number: u64) -> Extent {
    Extent::new(Sector(number * 2), 2).unwrap()
}

/// An indirect block with these pointers, followed by holes.
fn indirect(pointers: &[u32]) -> Vec<u8> {
    let mut bytes: Vec<u8> = pointers.iter().flat_map(|pointer| pointer.to_le_bytes()).collect();
    bytes.resize(1024, 0);
    bytes
}

#[test]
fn a_file_of_ext2_is_mapped_through_all_its_indirect_blocks() {
    let mut inode = [0; 15];
    inode[..2].copy_from_slice(&[100, 101]);
    (inode[12], inode[13], inode[14]) = (50, 60, 70);
    let mut map = IndirectMap::open(&layout(1024, 1 << 34), inode).unwrap();
    let all = |first| blocks(first, 1 << 20);
    assert_eq!(map.map(all(0)).unwrap().location, Location::Written(Extent::new(Sector(200), 4).unwrap()));
    assert_eq!(map.map(all(2)).unwrap().file, blocks(2, 10), "a hole to the end of the direct blocks");

    assert_eq!(map.map(all(12)), Err(Metadata(block(50))));
    map.handle_metadata(block(50), &indirect(&[300, 301, 302, 0, 400])).unwrap();
    assert_eq!(map.map(all(12)).unwrap().file, blocks(12, 3));
    assert_eq!(map.map(all(15)).unwrap().location, Location::Hole);
    assert_eq!(map.map(all(16)).unwrap().location, Location::Written(block(400)));

    assert_eq!(map.map(all(268)), Err(Metadata(block(60))));
    map.handle_metadata(block(60), &indirect(&[0, 61])).unwrap();
    assert_eq!(map.map(all(268)).unwrap().file, blocks(268, 256), "no indirect block, 256 holes");
    assert_eq!(map.map(all(268 + 256)), Err(Metadata(block(61))));

    let triple = 268 + 256 * 256;
    for (asked, told) in [(70, 71), (71, 72), (72, 500)] {
        assert_eq!(map.map(all(triple)), Err(Metadata(block(asked))));
        map.handle_metadata(block(asked), &indirect(&[told])).unwrap();
    }
    assert_eq!(map.map(all(triple)).unwrap().location, Location::Written(block(500)));
    assert_eq!(map.resident(), 5);
}

#[test]
fn the_flag_is_on_the_mapping_that_ends_before_an_indirect_block() {
    let mut map = IndirectMap::new(&layout(1024, 0)).unwrap();
    let mut space = Ahead::new(2, 1 << 20);
    map.allocate(blocks(0, 600), &mut space).unwrap();
    map.commit(blocks(0, 600)).unwrap();
    for (asked, end, boundary) in [
        (blocks(0, 600), 12, true),
        (blocks(0, 11), 11, false),
        (blocks(12, 600), 268, true),
        (blocks(12, 255), 267, false),
        (blocks(100, 168), 268, true),
        (blocks(268, 600), 524, true),
        (blocks(524, 60), 584, false),
    ] {
        let mapping = map.map(asked).unwrap();
        assert_eq!((mapping.file.end() / KIB, mapping.boundary), (end, boundary), "{asked}");
    }
}

#[test]
fn an_indirect_block_lies_before_the_blocks_it_points_to() {
    let mut map = IndirectMap::new(&layout(1024, 0)).unwrap();
    let mut space = Ahead::new(2, 1 << 20);
    map.allocate(blocks(0, 300), &mut space).unwrap();
    map.commit(blocks(0, 300)).unwrap();
    let extent = |first| map.map(blocks(first, 1)).unwrap().location;
    assert_eq!(map.inode()[..12], std::array::from_fn::<u32, 12, _>(|block| block as u32 + 1));
    assert_eq!((map.inode()[12], extent(12)), (13, Location::Written(block(14))));
    assert_eq!((map.inode()[13], extent(268)), (270, Location::Written(block(272))));
}

#[test]
fn a_failed_allocation_leaves_no_indirect_block() {
    for left in [0, 1, 2] {
        let mut map = IndirectMap::new(&layout(1024, 0)).unwrap();
        let mut space = Ahead::new(2, left * 2);
        assert_eq!(map.allocate(blocks(268, 1), &mut space), Err(MapError::NoSpace));
        assert_eq!(space.released, left * 2, "the indirect blocks of the path");
        assert_eq!((map.inode(), map.resident()), (&[0; 15], 0));
    }
}

#[test]
fn few_indirect_blocks_in_memory_are_enough() {
    let whole = layout(1024, 0);
    let mut map = IndirectMap::new(&whole).unwrap();
    let (mut space, mut medium) = (Ahead::new(2, 1 << 30), Medium::new());
    let far = blocks(268 + 256 * 256 + 1000, 2000);
    map.allocate(far, &mut space).unwrap();
    map.commit(far).unwrap();
    medium.extend(std::iter::from_fn(|| map.poll_dirty()).map(|dirty| (dirty.extent, dirty.bytes)));
    let mut small = IndirectMap::open(&whole, *map.inode()).unwrap().with_resident_max(1);
    let mut reads = 0;
    for block in 0..2000 {
        let range = FileRange::new(far.start() + block * KIB, KIB);
        while let Err(Metadata(extent)) = small.map(range) {
            reads += 1;
            assert!(reads < 100, "the walk ends");
            small.handle_metadata(extent, &medium[&extent]).unwrap();
        }
        assert_eq!(small.map(range), map.map(range));
    }
    assert!(small.resident() <= 4, "{}", small.resident());
}

#[test]
fn pointers_beyond_the_device_and_blocks_beyond_the_map_are_refused() {
    let small = FileLayout { capacity_bytes: 1000 << 10, ..layout(1024, 0) };
    let mut inode = [0; 15];
    inode[12] = 999;
    let mut map = IndirectMap::open(&small, inode).unwrap();
    let error = map.handle_metadata(block(999), &indirect(&[5, 1000])).unwrap_err();
    assert_eq!(error, MapError::Corrupt { extent: block(999), pointer: 1000, blocks: 1000 });
    assert_eq!(map.resident(), 0, "no pointer of the block is used");
    inode[3] = 1000;
    assert!(matches!(IndirectMap::open(&small, inode), Err(MapError::Corrupt { pointer: 1000, .. })));

    let max = (12 + 256 + 256 * 256 + 256 * 256 * 256) * KIB;
    assert_eq!(map.set_size(max), Ok(()));
    assert_eq!(map.set_size(max + 1), Err(MapError::TooFar { offset: max + 1, max }));
    let behind = FileRange::new(max, KIB);
    let error = map.allocate(behind, &mut Ahead::new(2, 100)).unwrap_err();
    assert!(matches!(error, MapError::TooFar { .. }), "{error}");
    assert_eq!(map.map(behind).unwrap().location, Location::Hole);
}
