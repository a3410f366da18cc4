//! Operations on ranges without data of the caller, on every kind of source: with any range on buffered and bounced
//! volumes, with whole blocks on direct ones.

#![allow(clippy::single_range_in_vec_init, reason = "one range is what is expected")]

use crate::support::{filled, options, scratch};
use iopath::mapped::{FileLayout, FileMap};
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{BatchOptions, ErrorKind, Options, Request, Unaligned, Volume};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const SIZE: usize = 256 << 10;

/// A buffered and a bounced volume on each source that this machine supports.
fn each(mut check: impl FnMut(&str, &Volume)) {
    let modes = [
        ("buffered", options().write(true).direct(false).cache_bytes(24 * 4096)),
        ("bounced", options().write(true).unaligned(Unaligned::Bounce)),
    ];
    for (mode, options) in modes {
        if let Some((_directory, path)) = scratch(SIZE as u64) {
            check(&format!("{mode}, a file"), &Volume::open(&path, &options).unwrap());
        }
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(SIZE as u64)).unwrap();
        check(&format!("{mode}, memory"), &Volume::memory(&disk, &options).unwrap());
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(2 * SIZE as u64)).unwrap();
        let layout =
            FileLayout { block_bytes: 4096, size_bytes: SIZE as u64, capacity_bytes: 2 * SIZE as u64 };
        let file = FileMap::fresh("extent", &layout).unwrap();
        check(&format!("{mode}, mapped"), &Volume::memory_mapped(&disk, &file, &options).unwrap());
    }
}

fn contents(volume: &Volume) -> Vec<u8> {
    let mut found = vec![0xee; SIZE];
    volume.read_exact_at(&mut found, 0).unwrap();
    found
}

/// Ranges inside a block, across two blocks, with and without whole blocks between, and at both ends of the volume.
const RANGES: [(usize, usize); 8] = [
    (100, 50),
    (4000, 200),
    (4096, 8192),
    (5000, 20_000),
    (0, 3),
    (SIZE - 7, 7),
    (SIZE - 10_000, 10_000),
    (12_288, 0),
];

#[test]
fn any_range_reads_as_zeroes_after_it_was_zeroed() {
    each(|name, volume| {
        let mut model = filled(SIZE, 1).to_vec();
        volume.write_at(&model, 0).unwrap();
        for (offset, bytes) in RANGES {
            volume.write_zeroes(offset as u64, bytes as u64).unwrap();
            model[offset..offset + bytes].fill(0);
            assert!(contents(volume) == model, "{name}: {bytes} bytes at {offset}");
        }
        volume.flush().unwrap();
    });
}

#[test]
fn a_discard_of_any_range_changes_no_other_bytes() {
    each(|name, volume| {
        let data = filled(SIZE, 2).to_vec();
        for (offset, bytes) in RANGES {
            volume.write_at(&data, 0).unwrap();
            volume.discard(offset as u64, bytes as u64).unwrap();
            let (found, end) = (contents(volume), offset + bytes);
            assert!(found[..offset] == data[..offset], "{name}: before {bytes} bytes at {offset}");
            assert!(found[end..] == data[end..], "{name}: after {bytes} bytes at {offset}");
            let blocks = offset.next_multiple_of(4096).min(end)..(end / 4096 * 4096).max(offset);
            let is_zero = |range: &[u8]| range.iter().all(|byte| *byte == 0);
            assert!(is_zero(&found[offset..blocks.start]), "{name}: the first part of {bytes} at {offset}");
            assert!(is_zero(&found[blocks.end.max(blocks.start)..end]), "{name}: the last part");
        }
    });
}

#[test]
fn a_direct_volume_refuses_parts_of_blocks() {
    let Some((_directory, path)) = scratch(SIZE as u64) else { return };
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    for error in [volume.discard(1, 4096).unwrap_err(), volume.write_zeroes(0, 100).unwrap_err()] {
        assert!(matches!(error.kind(), ErrorKind::Unaligned { .. }), "{error}");
        assert_eq!(error.errno(), 22, "EINVAL");
    }
}

#[test]
fn a_batch_zeroes_blocks() {
    let Some((_directory, path)) = scratch(SIZE as u64) else { return };
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    volume.write_at(&filled(SIZE, 3), 0).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(2, 4096)).unwrap();
    batch.queue(Request::write_zeroes(8192, 16_384).token(5)).unwrap();
    let done = batch.wait().unwrap().unwrap();
    match done.result {
        Err(error) if error.kind() == ErrorKind::Unsupported => eprintln!("skipped: {error}"),
        result => {
            assert_eq!((done.token, result.unwrap()), (5, 16_384));
            let mut found = filled(16_384, 4);
            volume.read_exact_at(&mut found, 8192).unwrap();
            assert!(found.iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn data_ranges_include_written_bytes_that_are_only_cached() {
    each(|name, volume| {
        if name.ends_with("memory") {
            assert_eq!(
                volume.data_ranges(4096, 8192).unwrap(),
                [4096..12_288],
                "{name}: no holes are recorded"
            );
            return;
        }
        assert_eq!(volume.data_ranges(0, SIZE as u64).unwrap(), [], "{name}: all is a hole");
        volume.write_at(&[1; 100], 65_536).unwrap();
        let found = volume.data_ranges(0, SIZE as u64).unwrap();
        if found == [0..SIZE as u64] {
            eprintln!("skipped: the filesystem does not record holes");
            return;
        }
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert!(found[0].contains(&65_536) && found[0].start >= 32_768, "{name}: {found:?}");
        assert_eq!(volume.first_data_ranges(0, SIZE as u64, 0).unwrap(), [], "{name}");
        assert_eq!(volume.first_data_ranges(0, SIZE as u64, 1).unwrap(), found, "{name}");
        volume.write_at(&[1; 100], 0).unwrap();
        let first = volume.first_data_ranges(0, SIZE as u64, 1).unwrap();
        assert_eq!(first, volume.data_ranges(0, SIZE as u64).unwrap()[..1], "{name}: the second one exists");
        assert_eq!(volume.data_ranges(65_536, 10).unwrap(), [65_536..65_546], "{name}");
        assert_eq!(volume.data_ranges(SIZE as u64, 10).unwrap(), [], "{name}: past the end");
    });
}

#[test]
fn allocated_space_changes_neither_size_nor_content() {
    let Some((_directory, path)) = scratch(SIZE as u64) else { return };
    let volume = Volume::open(&path, &options().write(true).direct(false).cache_bytes(1 << 20)).unwrap();
    match volume.allocate(10, SIZE as u64 * 2) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            eprintln!("skipped: {error}");
            return;
        }
        allocated => allocated.unwrap(),
    }
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), SIZE as u64);
    assert!(metadata.blocks() * 512 >= SIZE as u64 * 2, "{} blocks", metadata.blocks());
    assert!(contents(&volume).iter().all(|byte| *byte == 0));
}

#[test]
fn allocation_is_refused_by_sources_that_reserve_no_space() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(SIZE as u64)).unwrap();
    let layout = FileLayout { block_bytes: 4096, size_bytes: 1 << 16, capacity_bytes: SIZE as u64 };
    let file = FileMap::fresh("extent", &layout).unwrap();
    let volume = Volume::memory_mapped(&disk, &file, &Options::new().write(true)).unwrap();
    let error = volume.allocate(0, 4096).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Unsupported, 95));
}

/// The disk loses unflushed writes.
#[test]
fn a_flush_of_a_range_saves_the_range() {
    let config = MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(SIZE as u64) };
    let disk = MemoryDisk::new(&config).unwrap();
    let volume =
        Volume::memory(&disk, &Options::new().write(true).direct(false).cache_bytes(64 * 4096)).unwrap();
    volume.write_at(&[1; 8192], 8192).unwrap();
    volume.flush_range(9000, 10).unwrap();
    disk.crash(|versions| versions - 1);
    let volume = Volume::memory(&disk, &Options::new()).unwrap();
    let mut found = filled(4096, 1);
    volume.read_exact_at(&mut found, 8192).unwrap();
    assert!(found.iter().all(|byte| *byte == 1));
}

#[test]
fn an_exact_read_across_the_end_fails_and_names_it() {
    each(|name, volume| {
        let error = volume.read_exact_at(&mut [0; 10], SIZE as u64 - 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEnd { size_bytes: SIZE as u64 }, "{name}");
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::UnexpectedEof, "{name}");
    });
}

#[test]
fn a_cursor_reads_writes_and_seeks_as_a_file_does() {
    each(|name, volume| {
        let mut cursor = volume.cursor();
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(SIZE as u64).unwrap();
        let data = filled(SIZE, 5).to_vec();
        for (step, length) in [(0, 1000), (5000, 4096), (-3000, 100), (1 << 14, 70_000)] {
            let at = cursor.seek(SeekFrom::Current(step)).unwrap();
            assert_eq!(at, file.seek(SeekFrom::Current(step)).unwrap(), "{name}");
            cursor.write_all(&data[..length]).unwrap();
            file.write_all(&data[..length]).unwrap();
        }
        assert_eq!(cursor.seek(SeekFrom::End(-100)).unwrap(), SIZE as u64 - 100, "{name}");
        assert_eq!(cursor.write(&data[..200]).unwrap(), 100, "{name}: up to the end");
        assert!(cursor.write(&data[..1]).is_err(), "{name}: at the end");
        file.seek(SeekFrom::End(-100)).unwrap();
        file.write_all(&data[..100]).unwrap();
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        cursor.rewind().unwrap();
        file.rewind().unwrap();
        cursor.read_to_end(&mut found).unwrap();
        file.read_to_end(&mut expected).unwrap();
        assert!(found == expected, "{name}");
        assert_eq!(cursor.read(&mut [0; 10]).unwrap(), 0, "{name}: no bytes past the end");
        assert!(cursor.seek(SeekFrom::End(-(1 << 40))).is_err(), "{name}: before the start");
        cursor.flush().unwrap();
    });
}

/// A bounced write reads the block, changes a part, and writes the block. A concurrent zeroing must not be undone.
#[test]
fn a_bounced_write_does_not_restore_bytes_that_are_zeroed_meanwhile() {
    const PART: usize = 100;
    let disk =
        MemoryDisk::new(&MemoryConfig { block_bytes: 4096, ..MemoryConfig::of_bytes(1 << 16) }).unwrap();
    let options = Options::new().write(true).unaligned(Unaligned::Bounce);
    let volume = &Volume::memory(&disk, &options).unwrap();
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !is_over.load(Relaxed) {
                volume.write_at(&[1; PART], 0).unwrap();
            }
        });
        let (old, mut found) = (filled(4096, 9), filled(4096, 9));
        let restored = (0..5000).find_map(|_| {
            volume.write_at(&old, 0).unwrap();
            volume.write_zeroes(0, 4096).unwrap();
            volume.read_exact_at(&mut found, 0).unwrap();
            found[PART..].iter().position(|byte| *byte != 0)
        });
        is_over.store(true, Relaxed);
        assert_eq!(restored, None, "a zeroed byte is restored");
    });
}

/// A batch may move to another thread with requests in flight.
#[test]
fn a_batch_moves_to_another_thread() {
    let Some((_directory, path)) = scratch(SIZE as u64) else { return };
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    let data = filled(SIZE, 6);
    volume.write_at(&data, 0).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(8, 4096)).unwrap();
    for block in 0..8 {
        let buffer = batch.buffer().unwrap();
        batch.queue(Request::read(buffer, block * 4096).token(block)).unwrap();
    }
    batch.submit();
    let reaped = std::thread::spawn(move || {
        let mut blocks = 0;
        while let Some(done) = batch.wait().unwrap() {
            let at = done.token as usize * 4096;
            assert_eq!(done.result.unwrap(), 4096);
            assert!(done.buffer.unwrap()[..] == data[at..at + 4096]);
            blocks += 1;
        }
        blocks
    });
    assert_eq!(reaped.join().unwrap(), 8);
}

#[test]
fn the_data_of_a_stripe_is_that_of_its_members() {
    let (Some((_one, first)), Some((_two, second))) = (scratch(SIZE as u64), scratch(SIZE as u64)) else {
        return;
    };
    let chunk = 64 << 10;
    let volume = Volume::open_stripe(&[&first, &second], chunk, &options().write(true)).unwrap();
    let end = volume.size_bytes();
    assert_eq!(volume.data_ranges(0, end).unwrap(), []);
    // Whole chunks of the second member, then chunks of both.
    for (offset, chunks) in [(chunk, 1), (3 * chunk, 1), (6 * chunk, 2)] {
        volume.write_at(&filled((chunks * chunk) as usize, 1), offset).unwrap();
    }
    let found = volume.data_ranges(0, end).unwrap();
    if found == [0..end] {
        eprintln!("skipped: the filesystem does not record holes");
        return;
    }
    assert_eq!(found, [chunk..2 * chunk, 3 * chunk..4 * chunk, 6 * chunk..8 * chunk]);
    assert_eq!(
        volume.data_ranges(chunk + 512, 2 * chunk).unwrap(),
        [chunk + 512..2 * chunk, 3 * chunk..3 * chunk + 512]
    );
    assert_eq!(volume.data_ranges(4 * chunk, chunk).unwrap(), []);
}
