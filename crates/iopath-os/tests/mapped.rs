//! A mapped file as a device: the number of requests to the device below, and the order in which requests wait for each
//! other. Other tests check the data: `tests/devices` and the tests of volumes.

use std::ptr::NonNull;

use iopath_core::mapper::{Boundary, ExtentMap, FileLayout, FreeSpace, IndirectMap, Mapper};
use iopath_core::{BlockDevice, Extent, Io, Limits, Op, Sector, Tag};
use iopath_os::{
    AlignedBuf, FileMap, Mapped, MemoryConfig, MemoryDevice, MemoryDisk, RealDevice, Segment, now,
};

const MIB: u64 = 1 << 20;

/// A disk of 32 MiB with requests of at most `request_bytes_max` bytes.
fn disk(request_bytes_max: u64, chunk_sectors: u64) -> (MemoryDisk, Limits) {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(32 * MIB)).unwrap();
    let limits = Limits { request_bytes_max, chunk_sectors, ..disk.limits() };
    (disk, limits)
}

fn layout(size_bytes: u64) -> FileLayout {
    FileLayout { block_bytes: 4096, size_bytes, capacity_bytes: 32 * MIB }
}

fn file_of(mapper: impl Mapper + 'static) -> FileMap {
    // After the extents that the tests place themselves.
    let free = Extent::new(Sector(24 * MIB / 512), 8 * MIB / 512).unwrap();
    FileMap::of(Box::new(mapper), Box::new(FreeSpace::new(free))).unwrap()
}

fn segment(memory: &mut AlignedBuf) -> Segment {
    // SAFETY: the tests keep the memory, and do not access it, until the request has completed or the device is
    // dropped.
    unsafe { Segment::new(NonNull::from(&mut **memory).cast(), memory.len()) }
}

/// Submits a request without waiting for it.
fn submit(device: &mut impl RealDevice, tag: u32, op: Op, offset: u64, memory: &mut AlignedBuf) {
    let extent = Extent::from_bytes(offset, memory.len() as u64).unwrap();
    device.submit(&Io::new(Tag::from_bits(tag), op, extent, &[segment(memory)]), now()).unwrap();
}

/// Waits until all requests have completed.
fn finish(device: &mut impl RealDevice) {
    while device.in_flight() > 0 {
        device.commit_and_wait(u32::MAX, None).unwrap();
        while let Some(done) = device.poll_completion(now()) {
            assert_eq!(done.result, Ok(()), "{done:?}");
        }
    }
}

/// The number of requests to the device below for one request to the file.
fn requests(device: &mut Mapped<MemoryDevice>, op: Op, offset: u64, bytes: u64) -> u64 {
    let mut memory = AlignedBuf::new(bytes as usize).unwrap();
    let before = device.queue_stats().dispatched;
    submit(device, 0, op, offset, &mut memory);
    finish(device);
    device.queue_stats().dispatched - before
}

#[test]
fn one_extent_is_read_in_as_few_requests_as_the_limits_allow() {
    for (request_bytes_max, chunk_sectors, expected) in
        [(MIB, 0, 1), (128 << 10, 0, 8), (8 * MIB, 0, 1), (MIB, 256, 9), (100 << 10, 0, 11)]
    {
        let mut map = ExtentMap::new(&layout(2 * MIB)).unwrap();
        assert!(map.add(0, Extent::from_bytes(MIB + 4096, 2 * MIB).unwrap(), true));
        let (disk, limits) = disk(request_bytes_max, chunk_sectors);
        let device = disk.open_with(limits);
        let mut device = Mapped::new(device, &file_of(map), Boundary::Once).unwrap();
        let read = requests(&mut device, Op::Read, 0, MIB);
        assert_eq!(read, expected, "{request_bytes_max} bytes at once, chunks of {chunk_sectors} sectors");
    }
}

#[test]
fn extents_adjacent_on_the_device_are_read_in_one_request() {
    let mut map = ExtentMap::new(&layout(2 * MIB)).unwrap();
    // Two extents that are adjacent on the device but not in the file.
    assert!(map.add(MIB, Extent::from_bytes(MIB, MIB / 2).unwrap(), true));
    assert!(map.add(0, Extent::from_bytes(MIB + MIB / 2, MIB / 2).unwrap(), true));
    let (disk, limits) = disk(MIB, 0);
    let mut device = Mapped::new(disk.open_with(limits), &file_of(map), Boundary::Once).unwrap();
    let mut memory = [0, 1].map(|_| AlignedBuf::new((MIB / 2) as usize).unwrap());
    let [first, second] = &mut memory;
    submit(&mut device, 0, Op::Read, MIB, first);
    submit(&mut device, 1, Op::Read, 0, second);
    finish(&mut device);
    assert_eq!(device.queue_stats().dispatched, 1);
}

#[test]
fn holes_and_unwritten_space_are_read_without_the_device() {
    let mut map = ExtentMap::new(&layout(2 * MIB)).unwrap();
    assert!(map.add(0, Extent::from_bytes(MIB, MIB / 2).unwrap(), false));
    let (disk, limits) = disk(MIB, 0);
    let mut device = Mapped::new(disk.open_with(limits), &file_of(map), Boundary::Once).unwrap();
    assert_eq!(requests(&mut device, Op::Read, 0, 2 * MIB), 0);
}

/// The number of requests for a write of 2 MiB, and for a read of 2 MiB without metadata in memory. The first half ends
/// at the last block of an indirect block, and so at a boundary. `docs/map.md` explains boundaries.
fn at_a_boundary(boundary: Boundary) -> (u64, u64) {
    const SHARE_END: u64 = (12 + 1024) * 4096;
    let (disk, limits) = disk(MIB, 0);
    let file = FileMap::fresh("indirect", &layout(16 * MIB)).unwrap();
    let mut device = Mapped::new(disk.open_with(limits), &file, boundary).unwrap();
    let written = requests(&mut device, Op::Write, SHARE_END - MIB, 2 * MIB);
    device.submit(&Io::new(Tag::from_bits(0), Op::Flush, Extent::EMPTY, &[]), now()).unwrap();
    finish(&mut device);
    file.with_mapper(|mapper| mapper.forget_metadata());
    (written, requests(&mut device, Op::Read, SHARE_END - MIB, 2 * MIB))
}

#[test]
fn a_boundary_splits_once_or_at_each_block_or_not_at_all() {
    const BLOCKS: u64 = MIB / 4096;
    // One indirect block maps the first half. A double indirect block and an indirect block below it map the second
    // half.
    const METADATA: u64 = 3;
    assert_eq!(at_a_boundary(Boundary::Once), (2, 2 + METADATA));
    assert_eq!(at_a_boundary(Boundary::Ignore), (2, 2 + METADATA), "indirect blocks lie between the data");
    assert_eq!(at_a_boundary(Boundary::EveryBlock), (BLOCKS + 1, BLOCKS + 1 + METADATA), "each block alone");
}

#[test]
fn metadata_in_memory_is_not_read_again() {
    let (disk, limits) = disk(MIB, 0);
    let map = IndirectMap::new(&layout(16 * MIB)).unwrap();
    let mut device = Mapped::new(disk.open_with(limits), &file_of(map), Boundary::Once).unwrap();
    requests(&mut device, Op::Write, 4096 * 12, MIB);
    assert_eq!(requests(&mut device, Op::Read, 4096 * 12, MIB), 1);
}

#[test]
fn a_write_waits_for_another_write_that_fills_the_same_block() {
    let (disk, limits) = disk(MIB, 0);
    let limits = Limits { volatile_cache: true, ..limits };
    let map = ExtentMap::new(&layout(MIB)).unwrap();
    let file = file_of(map);
    let mut devices =
        [0, 1].map(|_| Mapped::new(disk.open_with(limits.clone()), &file, Boundary::Once).unwrap());
    let [one, two] = &mut devices;
    let mut memory = [0, 1, 2].map(|_| AlignedBuf::new(512).unwrap());
    memory.iter_mut().zip(1..).for_each(|(memory, number)| memory.fill(number));
    let [first, second, third] = &mut memory;
    // The write is accepted but not submitted, and it has claimed the block.
    submit(one, 0, Op::Write, 0, first);
    submit(two, 0, Op::Write, 512, second);
    submit(two, 1, Op::Write, 8192, third);
    two.commit(now());
    let done = std::iter::from_fn(|| two.poll_completion(now())).map(|done| done.tag.to_bits());
    assert_eq!(done.collect::<Vec<_>>(), [1], "a write to another block does not wait");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| two.commit_and_wait(1, None));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waits.is_finished(), "the other write still fills the block");
        finish(one);
        waits.join().unwrap().unwrap();
    });
    assert!(two.poll_completion(now()).is_some());
    let mut read = AlignedBuf::new(4096).unwrap();
    submit(one, 0, Op::Read, 0, &mut read);
    finish(one);
    assert!(read[..512] == [1; 512] && read[512..1024] == [2; 512] && read[1024..] == [0; 3072]);
}

#[test]
fn a_dropped_engine_releases_its_blocks() {
    let (disk, limits) = disk(MIB, 0);
    let file = file_of(ExtentMap::new(&layout(MIB)).unwrap());
    let open = || Mapped::new(disk.open_with(limits.clone()), &file, Boundary::Once).unwrap();
    let (mut one, mut two) = (open(), open());
    let mut memory = AlignedBuf::new(512).unwrap();
    submit(&mut one, 0, Op::Write, 0, &mut memory);
    drop(one);
    submit(&mut two, 0, Op::Write, 512, &mut memory);
    finish(&mut two);
}

#[test]
fn a_write_waits_for_space_that_a_read_in_flight_holds() {
    // The disk has space for one block, which is released while a read of it is in flight.
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(8192)).unwrap();
    let file = FileMap::fresh("extent", &FileLayout { capacity_bytes: 8 << 10, ..layout(MIB) }).unwrap();
    let open = || Mapped::new(disk.open(), &file, Boundary::Once).unwrap();
    let (mut reader, mut writer) = (open(), open());
    let mut memory = [0, 1].map(|_| AlignedBuf::new(4096).unwrap());
    let [read, written] = &mut memory;
    written.fill(7);
    submit(&mut writer, 0, Op::Write, 0, written);
    finish(&mut writer);
    submit(&mut reader, 0, Op::Read, 0, read);
    let punched = Extent::from_bytes(0, 4096).unwrap();
    writer.submit(&Io::new(Tag::from_bits(0), Op::Discard, punched, &[]), now()).unwrap();
    finish(&mut writer);
    written.fill(8);
    submit(&mut writer, 0, Op::Write, 8192, written);
    writer.commit(now());
    assert!(writer.poll_completion(now()).is_none(), "the space is not free yet");
    finish(&mut reader);
    assert!(read.iter().all(|byte| *byte == 7), "the read returns the data from its start");
    finish(&mut writer);
}
