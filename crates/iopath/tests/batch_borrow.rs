//! Pages that a batch borrows: they need no request, keep their bytes, and leave room in the cache for others.

use iopath::buffers::BorrowedBytes;
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{BatchOptions, IoMode, LocalBatch, Options, Request, Volume};

const PAGE: usize = 4096;
const FRAMES: usize = 256;

fn open(mode: IoMode) -> (Volume, LocalBatch) {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(4 << 20)).unwrap();
    let options = Options::new().mode(mode).write(true).cache_bytes((FRAMES * PAGE) as u64);
    let volume = Volume::memory(&disk, &options).unwrap();
    let batch = volume.local_batch(&BatchOptions::new(8, 16 * PAGE)).unwrap();
    (volume, batch)
}

fn bytes_of(borrowed: &BorrowedBytes) -> Vec<u8> {
    borrowed.slices().flatten().copied().collect()
}

#[test]
fn only_cached_bytes_within_the_volume_are_borrowed() {
    let (volume, batch) = open(IoMode::Buffered);
    assert!(batch.borrow(0, PAGE).is_none(), "the page is not cached");
    volume.write_at(&[7; 3 * PAGE], 0).unwrap();
    let borrowed = batch.borrow(100, 2 * PAGE).expect("three pages are cached");
    assert_eq!(borrowed.len(), 2 * PAGE);
    assert_eq!(bytes_of(&borrowed), [7; 2 * PAGE]);
    assert!(batch.borrow(2 * PAGE as u64 + 1, 2 * PAGE).is_none(), "the fourth page is not cached");
    let size = volume.size_bytes();
    volume.write_at(&[8; PAGE], size - PAGE as u64).unwrap();
    assert!(batch.borrow(size - PAGE as u64, PAGE).is_some());
    assert!(batch.borrow(size - PAGE as u64, PAGE + 1).is_none(), "the range exceeds the volume");
    assert_eq!(batch.in_flight(), 0);
}

#[test]
fn borrowed_bytes_do_not_change_and_outlive_batch_and_volume() {
    let (volume, batch) = open(IoMode::Buffered);
    volume.write_at(&[1; 2 * PAGE], 0).unwrap();
    let before = batch.borrow(0, 2 * PAGE).unwrap();
    volume.write_at(&[2; 2 * PAGE], 0).unwrap();
    let after = batch.borrow(0, 2 * PAGE).unwrap();
    drop((batch, volume));
    assert_eq!(bytes_of(&before), [1; 2 * PAGE]);
    assert_eq!(bytes_of(&after), [2; 2 * PAGE]);
}

#[test]
fn a_batch_borrows_at_most_a_sixteenth_of_the_cache() {
    let (volume, batch) = open(IoMode::Buffered);
    volume.write_at(&[1; PAGE], 0).unwrap();
    let mut borrowed: Vec<_> = (0..FRAMES / 16).map(|_| batch.borrow(0, PAGE).unwrap()).collect();
    assert!(batch.borrow(0, PAGE).is_none(), "the share is used up");
    borrowed.pop();
    assert!(batch.borrow(0, PAGE + 1).is_none(), "two pages exceed the share, and one is absent");
    assert!(batch.borrow(0, PAGE).is_some(), "a dropped page, and a refused borrow, hold nothing");
}

#[test]
fn a_range_with_a_write_of_the_batch_in_flight_is_not_borrowed() {
    let (volume, mut batch) = open(IoMode::Buffered);
    volume.write_at(&[1; PAGE], 0).unwrap();
    let mut buffer = batch.buffer().unwrap();
    buffer[..PAGE].fill(3);
    // A forced write is in flight until the device has it.
    batch.queue(Request::write(buffer, 0).bytes(PAGE).durable(true)).unwrap();
    if let Some(borrowed) = batch.borrow(0, PAGE) {
        assert_eq!(bytes_of(&borrowed), [3; PAGE], "the write has completed");
    }
    batch.wait().unwrap().unwrap().result.unwrap();
    assert_eq!(bytes_of(&batch.borrow(0, PAGE).unwrap()), [3; PAGE]);
}

#[test]
fn a_direct_batch_has_no_pages_to_borrow() {
    let (_volume, batch) = open(IoMode::Direct);
    assert!(batch.borrow(0, PAGE).is_none());
}
