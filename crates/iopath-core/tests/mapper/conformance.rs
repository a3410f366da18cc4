//! Conformance of every row of `MAPPERS`: the guarantees of all mappers.

use super::{Ahead, KIB, Medium, layout, write};
use iopath_core::mapper::{
    Boundary, FileLayout, FileRange, Location, MAPPERS, MapError, Mapper, MapperKind, ReadPlan, Step,
    WritePlan,
};
use iopath_core::{Extent, Limits};

const FILE: FileRange = FileRange::new(0, 600 * KIB);

fn limits() -> Limits {
    Limits::with_capacity(1 << 32)
}

/// A mapper of this kind for a file of 600 blocks of 1 KiB, all written; its space, and its metadata.
fn written(kind: &MapperKind) -> (Box<dyn Mapper>, Ahead, Medium) {
    let mut mapper = (kind.make)(&layout(1024, FILE.bytes())).unwrap();
    let (mut space, mut medium) = (Ahead::new(64, 1 << 20), Medium::new());
    let plan = WritePlan::new(FILE, &*mapper, &limits(), Boundary::Once).unwrap();
    write(&mut *mapper, &mut space, &mut medium, &limits(), plan);
    (mapper, space, medium)
}

/// All runs of `range`.
fn runs(mapper: &mut dyn Mapper, medium: &Medium, range: FileRange) -> Vec<(FileRange, Location)> {
    let (mut rest, mut runs) = (range, Vec::new());
    while !rest.is_empty() {
        match mapper.map(rest) {
            Ok(mapping) => {
                assert_eq!(
                    mapping.file.start(),
                    rest.start(),
                    "{} maps from the start of the range",
                    mapper.name()
                );
                assert!(!mapping.file.is_empty() && mapping.file.end() <= rest.end(), "and not past its end");
                runs.push((mapping.file, mapping.location));
                rest = rest.from_offset(mapping.file.end());
            }
            Err(metadata) => mapper.handle_metadata(metadata.0, &medium[&metadata.0]).unwrap(),
        }
    }
    runs
}

fn changing() -> impl Iterator<Item = &'static MapperKind> {
    MAPPERS.iter().filter(|kind| {
        let mut mapper = (kind.make)(&layout(1024, FILE.bytes())).unwrap();
        mapper.set_size(FILE.bytes() + 1).is_ok()
    })
}

#[test]
fn mapper_names_are_unique() {
    for (index, kind) in MAPPERS.iter().enumerate() {
        assert!(MAPPERS[..index].iter().all(|other| other.name != kind.name));
        assert_eq!((kind.make)(&layout(4096, 0)).unwrap().name(), kind.name);
        assert!(!kind.about.is_empty());
    }
    assert_eq!(changing().count(), MAPPERS.len() - 1, "all but identity");
}

#[test]
fn unsupported_block_sizes_are_refused() {
    for kind in MAPPERS {
        for block_bytes in [0, 100, 256, 3000] {
            let error = (kind.make)(&layout(block_bytes, 0)).unwrap_err();
            assert!(error.to_string().contains(&format!("mapper {} has no blocks of", kind.name)), "{error}");
        }
    }
}

#[test]
fn written_sectors_lie_in_distinct_sectors_of_the_device() {
    for kind in MAPPERS {
        let (mut mapper, _, medium) = written(kind);
        let mut places: Vec<Extent> = Vec::new();
        for (file, extent) in runs(&mut *mapper, &medium, FILE) {
            let Location::Written(extent) = extent else { panic!("{}: {file} is {extent:?}", kind.name) };
            assert_eq!(extent.bytes(), file.bytes());
            assert!(places.iter().all(|other| !other.overlaps(extent)), "{}: {extent}", kind.name);
            assert!(medium.keys().all(|metadata| !metadata.overlaps(extent)), "{}: {extent}", kind.name);
            places.push(extent);
        }
        for start in (0..FILE.bytes()).step_by(7 * 512) {
            let part = FileRange::new(start, 512);
            let Ok([(_, Location::Written(one))]) = <[_; 1]>::try_from(runs(&mut *mapper, &medium, part))
            else {
                panic!("{}: a sector in the middle of a block has a extent", kind.name)
            };
            assert!(
                places.iter().any(|extent| extent.overlaps(one)),
                "{}: {one} is part of a run",
                kind.name
            );
        }
    }
}

#[test]
fn dropped_metadata_is_read_again_and_the_mapping_is_the_same() {
    for kind in MAPPERS {
        let (mut mapper, _, medium) = written(kind);
        let before = runs(&mut *mapper, &medium, FILE);
        mapper.forget_metadata();
        assert_eq!(runs(&mut *mapper, &medium, FILE), before, "{}", kind.name);
        assert_eq!(mapper.poll_dirty(), None, "{}: reading changes nothing", kind.name);
    }
}

#[test]
fn space_is_unwritten_until_commit_and_a_hole_after_unmap() {
    for kind in changing() {
        let mut mapper = (kind.make)(&layout(1024, FILE.bytes())).unwrap();
        let (mut space, medium) = (Ahead::new(64, 1 << 20), Medium::new());
        let [part, rest] = [FileRange::new(10 * KIB, 300 * KIB), FileRange::new(100 * KIB, 210 * KIB)];
        let expect_all = |mapper: &mut dyn Mapper, range, is_expected: fn(Location) -> bool| {
            assert!(
                runs(mapper, &medium, range).iter().all(|(_, extent)| is_expected(*extent)),
                "{}",
                kind.name
            );
        };
        expect_all(&mut *mapper, FILE, |extent| extent == Location::Hole);
        mapper.allocate(part, &mut space).unwrap();
        let taken = (1 << 20) - space.left;
        expect_all(&mut *mapper, part, |extent| matches!(extent, Location::Unwritten(_)));
        mapper.allocate(part, &mut space).unwrap();
        assert_eq!((1 << 20) - space.left, taken, "{}: blocks with space get no more", kind.name);
        mapper.commit(rest).unwrap();
        expect_all(&mut *mapper, part.up_to(rest.start()), |extent| matches!(extent, Location::Unwritten(_)));
        expect_all(&mut *mapper, rest, |extent| matches!(extent, Location::Written(_)));
        mapper.unmap(part, &mut space).unwrap();
        expect_all(&mut *mapper, FILE, |extent| extent == Location::Hole);
        assert_eq!(space.released, taken, "{}: no space is lost", kind.name);
    }
}

#[test]
fn a_read_covers_its_range_once_and_ends_with_the_file() {
    for kind in MAPPERS {
        let (mut mapper, _, medium) = written(kind);
        for boundary in Boundary::ALL {
            let asked = FileRange::new(100 * KIB, 1 << 20);
            let mut plan = ReadPlan::new(asked, &*mapper, &limits(), boundary).unwrap();
            assert_eq!(plan.bytes(), 500 * KIB);
            let mut at = asked.start();
            while let Some(step) = plan.poll_step(&*mapper, &limits()) {
                match step {
                    Step::Transfer { file, extent } => {
                        assert_eq!((file.start(), file.bytes()), (at, extent.bytes()), "{}", kind.name);
                        at = file.end();
                    }
                    Step::Metadata { extent } => mapper.handle_metadata(extent, &medium[&extent]).unwrap(),
                    Step::Submit => {}
                    other => panic!("{}: {other:?}", kind.name),
                }
            }
            assert_eq!(at, FILE.end(), "{}", kind.name);
        }
    }
}

#[test]
fn a_fixed_mapping_refuses_changes() {
    let layout = FileLayout { block_bytes: 4096, size_bytes: 1 << 20, capacity_bytes: 1 << 20 };
    let mut identity = (MAPPERS[0].make)(&layout).unwrap();
    let mut space = Ahead::new(8, 8);
    for refused in [
        identity.set_size(5),
        identity.allocate(FileRange::new(0, 4096), &mut space),
        identity.unmap(FileRange::new(0, 4096), &mut space),
    ] {
        assert_eq!(refused, Err(MapError::Fixed("identity")));
    }
    assert_eq!(
        identity.map(FileRange::new(1 << 20, 4096)).unwrap().location,
        Location::Hole,
        "no block lies past the end"
    );
}
