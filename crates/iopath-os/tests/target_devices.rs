//! Properties of real loop devices: size, block size, backing, alignment, page cache. Needs root and losetup.

use std::fs::File;
use std::io::Read;

use crate::support::{Alone, Loop};
use iopath_os::target::{DioAlignment, ExtentError, Kind, Target, drop_cached, extents::extents, residency};

macro_rules! loop_or_skip {
    ($alone:expr, $mib:expr, $options:expr) => {
        match Loop::new($alone, $mib, $options) {
            Ok(device) => device,
            Err(why) => skip!("no loop device: {why}"),
        }
    };
}

#[test]
fn a_device_has_its_block_size_and_backing_file() {
    let alone = or_skip!(Alone::wait());
    let device = loop_or_skip!(&alone, 8, &["--sector-size", "4096", "--read-only"]);
    let target = Target::inspect(&device.device).expect("it is there");
    assert_eq!((target.kind, target.size_bytes), (Kind::BlockDevice, 8 << 20));
    assert_eq!((target.filesystem, target.allocated_bytes), (None, None));
    let disk = target.backing.disk().expect("sysfs knows loop devices");
    assert!(device.device.ends_with(&disk.name));
    assert_eq!((disk.device, disk.size_bytes), (target.device.expect("a device"), 8 << 20));
    assert_eq!((disk.logical_block_bytes, disk.read_only), (Some(4096), Some(true)));
    assert_eq!(disk.loop_backing.as_deref(), Some(device.image.as_path()));
    assert!(disk.scheduler.as_ref().is_some_and(|s| s.available.contains(&s.current)), "{disk:?}");
    let alignment = DioAlignment::discover(&device.device).expect("block devices take direct I/O");
    assert_eq!(alignment.offset_bytes, 4096);
}

#[test]
fn cached_pages_of_a_device_are_counted_and_dropped() {
    let alone = or_skip!(Alone::wait());
    let device = loop_or_skip!(&alone, 8, &[]);
    let mut file = File::open(&device.device).expect("root may");
    let mut megabyte = vec![0; 1 << 20];
    file.read_exact(&mut megabyte).expect("it is that long");
    let warm = residency(&file, 0..1 << 20).expect("root may");
    assert_eq!(warm.resident, warm.pages);
    let cold = drop_cached(&file, 0..u64::MAX).expect("root may");
    assert!(cold.is_cold(), "{cold:?}");
    assert_eq!(cold.pages * cold.page_bytes, 8 << 20);
}

#[test]
fn a_device_has_no_extents_of_its_own() {
    let alone = or_skip!(Alone::wait());
    let device = loop_or_skip!(&alone, 8, &[]);
    let error = extents(&File::open(&device.device).expect("root may")).expect_err("not a file");
    assert!(matches!(error, ExtentError::Unsupported { .. }), "{error}");
}
