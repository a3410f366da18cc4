//! Sources of a program: that of the example, and sources that refuse or limit what a volume asks for.

#[path = "../examples/own_device.rs"]
pub(crate) mod example;

use crate::support::{filled, keeps_order, scratch};
use example::{BLOCK, CheckedDisk};
use iopath::buffers::SharedBuf;
use iopath::mapped::{FileLayout, FileMap};
use iopath::source::{
    self, DeviceSetup, IoError, Limits, OpenedDevice, RealDevice, Source, SourceError, Tail,
};
use iopath::stripe::Member;
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{AlignedBuf, BatchOptions, ErrorKind, IoMode, OpenError, Options, Request, Unaligned, Volume};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A disk with some answers of its own.
#[derive(Debug)]
struct Odd {
    disk: CheckedDisk,
    limits: Limits,
    opens_devices: bool,
    depths: Arc<AtomicU32>,
}

impl Odd {
    fn new() -> Self {
        let disk = CheckedDisk::new(1 << 20);
        Self { limits: disk.limits(), disk, opens_devices: true, depths: Arc::default() }
    }
}

impl Source for Odd {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn open(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError> {
        self.depths.fetch_max(setup.depth, Ordering::Relaxed);
        if self.opens_devices { self.disk.open(setup) } else { Err(OpenError::of_source("out of order")) }
    }

    fn name(&self) -> PathBuf {
        PathBuf::from("odd")
    }

    fn allocate(&self, _offset: u64, _bytes: u64) -> Result<(), SourceError> {
        Err(IoError::NoSpace.into())
    }
}

#[test]
fn the_example_runs() {
    example::run().unwrap();
}

#[test]
fn a_batch_keeps_the_order_of_overlapping_requests() {
    let modes = [IoMode::Direct, IoMode::Raw, IoMode::Buffered].map(|mode| (mode, Unaligned::Refuse));
    for (mode, unaligned) in modes.into_iter().chain([(IoMode::Direct, Unaligned::Bounce)]) {
        for elevator in ["none", "deadline"] {
            let options = Options::new().write(true).mode(mode).unaligned(unaligned).elevator(elevator);
            let volume = Volume::of_source(CheckedDisk::new(1 << 20), &options.cache_bytes(1 << 20)).unwrap();
            assert_eq!(volume.facts().engine, "program");
            keeps_order(&volume, 5, |_, _| {});
        }
    }
}

#[test]
fn a_size_that_is_no_multiple_of_a_block_needs_no_tail() {
    let size = BLOCK as u64 + 100;
    for options in [Options::new().mode(IoMode::Buffered), Options::new().unaligned(Unaligned::Bounce)] {
        let disk = CheckedDisk::new(size);
        let volume = Volume::of_source(disk.clone(), &options.clone().extend(true)).unwrap();
        assert_eq!(volume.size_bytes(), size);
        volume.write_at(b"end", size - 3).unwrap();
        assert_eq!(volume.read_at(&mut [0; 8], size - 4).unwrap(), 4);
        volume.write_at(b"more", size + 1000).unwrap();
        volume.resize(size - 1).unwrap();
        volume.resize(2 * size).unwrap();
        volume.close().unwrap();
        let volume = Volume::of_source(disk, &options).unwrap();
        let mut bytes = vec![1; 2 * size as usize];
        volume.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[size as usize - 3..], [b"en".as_slice(), &vec![0; size as usize + 1]].concat());
    }
}

#[test]
fn a_volume_has_the_name_limits_and_errors_of_its_source() {
    let odd = Odd::new();
    let depths = Arc::clone(&odd.depths);
    let options = Options::new().write(true).depth(7).request_bytes_max(10_000);
    let volume = Volume::of_source(odd, &options).unwrap();
    let facts = volume.facts();
    assert_eq!((facts.path.as_path(), facts.block_bytes), (Path::new("odd"), BLOCK as u32));
    assert_eq!((facts.request_bytes_max, depths.load(Ordering::Relaxed)), (8192, 7));
    assert_eq!(volume.allocate(0, 1).unwrap_err().kind(), ErrorKind::Io(IoError::NoSpace));
    assert_eq!(volume.resize(0).unwrap_err().kind(), ErrorKind::Resize { size_bytes: 0 });
    let found = volume.data_ranges(100, 1 << 30).unwrap();
    assert_eq!((found.len(), found[0].clone()), (1, 100..1 << 20));
    let support = volume.range_support();
    assert!(support.discard && support.zero && !support.discard_zeroes);
    let read_only = Volume::of_source(Odd::new(), &Options::new()).unwrap().range_support();
    assert!(!read_only.discard && !read_only.zero, "it cannot be written");
    // Only the kernel may access memory of other processes.
    let shared = BatchOptions::new(1, 0);
    let refused = volume.batch_of::<SharedBuf>(&shared).unwrap_err();
    assert!(matches!(refused, OpenError::SharedMemory(_)), "{refused}");
}

#[test]
fn a_source_that_opens_no_device_is_an_error_with_its_reason() {
    let odd = Odd { opens_devices: false, ..Odd::new() };
    let error = Volume::of_source(odd, &Options::new()).unwrap_err();
    assert_eq!(error.to_string(), "out of order");
}

#[test]
fn limits_that_no_queue_can_use_are_refused() {
    let good = Odd::new().limits;
    let bad = [
        Limits { logical_block_bytes: 1000, ..good.clone() },
        Limits { logical_block_bytes: 0, ..good.clone() },
        Limits { logical_block_bytes: 128 << 10, ..good.clone() },
        Limits { memory_align_bytes: 0, ..good.clone() },
        Limits { depth_max: 0, ..good.clone() },
        Limits { segments_max: 0, ..good.clone() },
        Limits { request_bytes_max: 0, ..good.clone() },
        Limits { request_bytes_max: 5000, ..good.clone() },
        Limits { chunk_sectors: 9, ..good.clone() },
        Limits { capacity: 9, ..good.clone() },
    ];
    for limits in bad {
        let odd = Odd { limits: limits.clone(), ..Odd::new() };
        let opened = Volume::of_source(odd, &Options::new());
        assert!(matches!(opened, Err(OpenError::Limits { .. })), "{limits:?}: {opened:?}");
        let member: Arc<dyn Source> = Arc::new(Odd { limits, ..Odd::new() });
        let opened = Volume::open_stripe_of(&[Member::Source(&member)], 1 << 16, &Options::new());
        assert!(matches!(opened, Err(OpenError::Limits { .. })), "{opened:?}");
    }
    let odd = Odd { limits: Limits { capacity: u64::MAX, ..good }, ..Odd::new() };
    let opened = Volume::of_source(odd, &Options::new());
    assert!(matches!(opened, Err(OpenError::TooLarge { .. })), "{opened:?}");
}

#[test]
fn a_stripe_has_members_of_any_kind() {
    const BYTES: u64 = 1 << 20;
    let Some((_directory, path)) = scratch(BYTES) else { return };
    let config = MemoryConfig { block_bytes: BLOCK as u32, ..MemoryConfig::of_bytes(BYTES) };
    let disks = [(); 3].map(|()| MemoryDisk::new(&config).unwrap());
    let own: Arc<dyn Source> = Arc::new(CheckedDisk::new(BYTES + 100));
    let layout = FileLayout { block_bytes: BLOCK as u32, size_bytes: BYTES, capacity_bytes: 2 * BYTES };
    let map = FileMap::fresh("extent", &layout).unwrap();
    let below: Arc<dyn Source> = Arc::new(CheckedDisk::new(2 * BYTES));
    let base = Options::new().write(true).cache_bytes(1 << 20);
    let inner = [Member::Memory(&disks[1]), Member::Memory(&disks[2])];
    let nested = source::stripe(&inner, 1 << 14, &base).unwrap();
    let mapped = source::mapped(below, &map, &base).unwrap();
    let members = [
        Member::Path(&path),
        Member::Memory(&disks[0]),
        Member::Source(&own),
        Member::Source(&nested),
        Member::Source(&mapped),
    ];
    let mut written = Vec::new();
    for (mode, elevator) in [(IoMode::Direct, "none"), (IoMode::Buffered, "none"), (IoMode::Raw, "deadline")]
    {
        let options = base.clone().mode(mode).elevator(elevator);
        let volume = Volume::open_stripe_of(&members, 1 << 14, &options).unwrap();
        assert_eq!(volume.size_bytes(), 5 * BYTES);
        if !written.is_empty() {
            let mut found = AlignedBuf::new(5 << 20).unwrap();
            volume.read_exact_at(&mut found, 0).unwrap();
            assert!(found[..] == written[..], "{mode:?} reads what was written before");
        }
        keeps_order(&volume, 3, |_, _| {});
        let bytes = filled(5 << 20, 7);
        volume.write_at(&bytes, 0).unwrap();
        volume.close().unwrap();
        written = bytes.to_vec();
    }
    let twice = |member| Volume::open_stripe_of(&[member, Member::Path(&path), member], 1 << 14, &base);
    for member in [Member::Path(&path), Member::Memory(&disks[0]), Member::Source(&own)] {
        let refused = twice(member).unwrap_err();
        assert!(matches!(refused, OpenError::SameMember(_)), "{refused}");
    }
    let alike: Arc<dyn Source> = Arc::new(CheckedDisk::new(BYTES));
    let members = [Member::Source(&own), Member::Source(&alike)];
    Volume::open_stripe_of(&members, 1 << 14, &base).expect("two disks of one name");
}

#[test]
fn a_member_has_no_more_requests_than_it_accepts() {
    let limits = Limits { depth_max: 3, ..Odd::new().limits };
    let odd = Odd { limits, ..Odd::new() };
    let depths = Arc::clone(&odd.depths);
    let members: [Arc<dyn Source>; 2] = [Arc::new(odd), Arc::new(CheckedDisk::new(1 << 20))];
    let members = members.each_ref().map(Member::Source);
    let volume = Volume::open_stripe_of(&members, 1 << 14, &Options::new().write(true).depth(64)).unwrap();
    keeps_order(&volume, 4, |_, _| {});
    assert_eq!(depths.load(Ordering::Relaxed), 3);
}

/// Each answer differs from the default.
#[derive(Debug)]
struct Unusual(Arc<std::fs::File>);

impl Source for Unusual {
    fn limits(&self) -> Limits {
        Limits::with_capacity(8)
    }

    fn open(&self, _setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError> {
        Err(OpenError::of_source("open"))
    }

    fn name(&self) -> PathBuf {
        PathBuf::from("unusual")
    }

    fn size_bytes(&self) -> u64 {
        4000
    }

    fn can_resize(&self) -> bool {
        true
    }

    fn resize(&self, size_bytes: u64) -> Result<(), SourceError> {
        assert_eq!(size_bytes, 5000);
        Ok(())
    }

    fn length_now(&self) -> Option<u64> {
        Some(4001)
    }

    fn writes_last_block(&self) -> bool {
        false
    }

    fn tail(&self) -> Result<Option<Box<dyn Tail>>, OpenError> {
        Err(OpenError::of_source("tail"))
    }

    fn write_unit_bytes(&self) -> u64 {
        2
    }

    fn discard_zeroes(&self) -> bool {
        true
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), SourceError> {
        assert_eq!((offset, bytes), (1, 2));
        Ok(())
    }

    fn data_ranges(&self, _range: Range<u64>, ranges_max: usize) -> Result<Vec<Range<u64>>, SourceError> {
        Ok(std::iter::once(0..ranges_max as u64).collect())
    }

    fn file(&self) -> Option<&Arc<std::fs::File>> {
        Some(&self.0)
    }

    fn files(&self) -> Vec<Arc<std::fs::File>> {
        vec![Arc::clone(&self.0); 3]
    }

    fn has_whole_files(&self) -> bool {
        true
    }

    fn device_depth(&self) -> u32 {
        9
    }

    fn shares_engine(&self) -> bool {
        true
    }

    fn failure(&self) -> Option<String> {
        Some("failed".to_owned())
    }
}

#[test]
fn a_handle_of_a_source_gives_every_answer_of_the_source() {
    let file = || Unusual(Arc::new(tempfile::tempfile().unwrap()));
    let handles: [&dyn Source; 2] = [&Arc::new(file()), &Box::new(file())];
    for handle in handles {
        assert_eq!(
            (handle.limits().capacity, handle.name(), handle.size_bytes()),
            (8, "unusual".into(), 4000)
        );
        assert!(handle.can_resize() && handle.discard_zeroes() && !handle.writes_last_block());
        assert!(handle.has_whole_files() && handle.shares_engine() && handle.file().is_some());
        assert_eq!(
            (handle.length_now(), handle.write_unit_bytes(), handle.device_depth()),
            (Some(4001), 2, 9)
        );
        assert_eq!((handle.files().len(), handle.failure()), (3, Some("failed".to_owned())));
        assert!(handle.data_ranges(0..1, 6).unwrap().into_iter().eq(std::iter::once(0..6)));
        handle.resize(5000).unwrap();
        handle.allocate(1, 2).unwrap();
        assert_eq!(handle.tail().unwrap_err().to_string(), "tail");
        assert_eq!(handle.target().path, PathBuf::from("unusual"));
    }
}

#[test]
fn a_mapped_file_has_its_blocks_on_any_source() {
    let disk = CheckedDisk::new(1 << 20);
    let options = Options::new().write(true).mode(IoMode::Buffered).cache_bytes(1 << 20);
    let layout = FileLayout { block_bytes: BLOCK as u32, size_bytes: 8 << 20, capacity_bytes: 1 << 20 };
    let map = FileMap::fresh("extent", &layout).unwrap();
    let mapped = source::mapped(Arc::new(disk), &map, &options).unwrap();
    let volume = Volume::of_source(Arc::clone(&mapped), &options).unwrap();
    volume.write_at(b"bytes", 7_000_000).unwrap();
    volume.resize(9 << 20).unwrap();
    volume.close().unwrap();
    let volume = Volume::of_source(mapped, &options).unwrap();
    let mut found = [0; 6];
    volume.read_exact_at(&mut found, 7_000_000).unwrap();
    assert_eq!((&found, volume.size_bytes()), (b"bytes\0", 9 << 20));
}

#[test]
fn a_local_batch_uses_a_device_of_the_source() {
    let volume = Volume::of_source(CheckedDisk::new(1 << 20), &Options::new().write(true)).unwrap();
    let mut batch = volume.local_batch(&BatchOptions::new(2, BLOCK)).unwrap();
    let buffer = batch.buffer().unwrap();
    batch.queue(Request::write(buffer, 0).bytes(BLOCK)).unwrap();
    assert_eq!(batch.wait().unwrap().unwrap().result.unwrap(), BLOCK);
}
