//! Sources of a program: that of the example, and sources that refuse or limit what a volume asks for.

#[path = "../examples/own_device.rs"]
pub(crate) mod example;

use crate::support::keeps_order;
use example::{BLOCK, CheckedDisk};
use iopath::buffers::SharedBuf;
use iopath::source::{DeviceSetup, IoError, Limits, OpenedDevice, RealDevice, Source, SourceError};
use iopath::{BatchOptions, ErrorKind, IoMode, OpenError, Options, Request, Unaligned, Volume};
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
        Limits { capacity: u64::MAX, ..good },
    ];
    for limits in bad {
        let odd = Odd { limits: limits.clone(), ..Odd::new() };
        let opened = Volume::of_source(odd, &Options::new());
        assert!(matches!(opened, Err(OpenError::Limits { .. })), "{limits:?}: {opened:?}");
    }
}

#[test]
fn a_local_batch_uses_a_device_of_the_source() {
    let volume = Volume::of_source(CheckedDisk::new(1 << 20), &Options::new().write(true)).unwrap();
    let mut batch = volume.local_batch(&BatchOptions::new(2, BLOCK)).unwrap();
    let buffer = batch.buffer().unwrap();
    batch.queue(Request::write(buffer, 0).bytes(BLOCK)).unwrap();
    assert_eq!(batch.wait().unwrap().unwrap().result.unwrap(), BLOCK);
}
