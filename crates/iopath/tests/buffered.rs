//! Buffered I/O on a real file, compared with a plain copy of its bytes. The engine is that of `IOPATH_TEST_ENGINE`.

use crate::support::scratch_with;
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{Advice, ErrorKind, IoMode, OpenError, Options, Readahead, Volume};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicBool, Ordering};

fn options() -> Options {
    crate::support::options().direct(false).cache_bytes(1 << 20)
}

fn random(bytes: usize, seed: u64) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    ChaCha8Rng::seed_from_u64(seed).fill(&mut buffer[..]);
    buffer
}

#[test]
fn any_bytes_are_read_and_written_as_in_a_plain_copy() {
    for (seed, size) in [(1_u64, 4 << 20), (2, (3 << 20) + 777), (3, 100), (4, 4096 * 5 + 512)] {
        let mut model = random(size, seed);
        let Some((_directory, path)) = scratch_with(&model) else { return };
        let volume = Volume::open(&path, &options().write(true)).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut buffer = vec![0; 1 << 20];
        for step in 0..4000 {
            let offset = rng.random_range(0..=size);
            let longest = if rng.random_bool(0.1) { 300_000 } else { 10_000 };
            let bytes = rng.random_range(0..longest).min(size - offset);
            let range = offset..offset + bytes;
            let context = format!("seed {seed}, step {step}: {bytes} bytes at {offset} of {size}");
            match rng.random_range(0..20) {
                0 => volume.flush().unwrap(),
                1..8 => {
                    rng.fill(&mut model[range.clone()]);
                    volume.write_at(&model[range], offset as u64).unwrap();
                }
                8..12 => {
                    let borrowed = volume.borrow(offset as u64, bytes).unwrap();
                    assert_eq!(borrowed.len(), bytes);
                    borrowed.copy_to(&mut buffer[..bytes]);
                    assert!(buffer[..bytes] == model[range], "{context}");
                }
                _ => {
                    assert_eq!(volume.read_at(&mut buffer[..bytes], offset as u64).unwrap(), bytes);
                    assert!(buffer[..bytes] == model[range], "{context}");
                }
            }
        }
        volume.close().unwrap();
        assert!(std::fs::read(&path).unwrap() == model, "seed {seed}: the file is not what was written");
    }
}

#[test]
fn a_flush_of_a_device_without_a_cache_completes() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    let volume = Volume::memory(&disk, &options().write(true)).unwrap();
    volume.write_at(&[1; 5000], 100).unwrap();
    volume.flush().unwrap();
    disk.crash(|_| 0);
    let mut found = [0; 5000];
    Volume::memory(&disk, &options()).unwrap().read_at(&mut found, 100).unwrap();
    assert_eq!(found, [1; 5000]);
}

#[test]
fn a_disk_in_memory_can_end_and_be_cut_at_any_byte() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(10_000)).unwrap();
    let volume = Volume::memory(&disk, &options().write(true)).unwrap();
    volume.write_at(&[1; 9_000], 1_000).unwrap();
    volume.resize(7_777).unwrap();
    volume.resize(10_000).unwrap();
    volume.close().unwrap();
    let mut found = vec![7; 10_000];
    Volume::memory(&disk, &options()).unwrap().read_at(&mut found, 0).unwrap();
    assert!(found.iter().enumerate().all(|(at, byte)| *byte == u8::from((1_000..7_777).contains(&at))));
}

#[test]
fn a_volume_dropped_without_a_flush_writes_back() {
    let Some((_directory, path)) = scratch_with(&vec![0; 300_000]) else { return };
    let written = random(300_000, 5);
    Volume::open(&path, &options().write(true)).unwrap().write_at(&written, 0).unwrap();
    assert!(std::fs::read(&path).unwrap() == written);
}

#[test]
fn a_read_is_cut_off_at_the_end_and_a_write_past_it_is_refused() {
    let Some((_directory, path)) = scratch_with(&[7; 5000]) else { return };
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    let mut buffer = [0; 100];
    assert_eq!(volume.read_at(&mut buffer, 4990).unwrap(), 10);
    assert_eq!(volume.read_at(&mut buffer, 5000).unwrap(), 0);
    assert_eq!(volume.read_at(&mut buffer, u64::MAX).unwrap(), 0);
    assert_eq!(volume.borrow(4990, 100).unwrap().as_slice(), Some(&[7; 10][..]));
    let error = volume.write_at(&buffer, 4950).unwrap_err();
    assert!(error.kind() == ErrorKind::PastEnd { size_bytes: 5000 }, "{error}");
    let error = Volume::open(&path, &options()).unwrap().write_at(&buffer, 0).unwrap_err();
    assert!(error.kind() == ErrorKind::ReadOnly, "{error}");
}

#[test]
fn borrowed_bytes_do_not_change_during_writes() {
    let before = random(64 << 10, 6);
    let Some((_directory, path)) = scratch_with(&before) else { return };
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    let borrowed = volume.borrow(100, 40_000).unwrap();
    volume.write_at(&vec![1; 50_000], 0).unwrap();
    assert!(borrowed.slices().flatten().eq(&before[100..40_100]));
    let mut now = vec![0; 50_000];
    volume.read_at(&mut now, 0).unwrap();
    assert!(now.iter().all(|byte| *byte == 1));
}

#[test]
fn a_fully_borrowed_cache_is_an_error_and_not_a_hang() {
    let Some((_directory, path)) = scratch_with(&vec![3; 1 << 20]) else { return };
    let volume = Volume::open(&path, &options().cache_bytes(64 << 10)).unwrap();
    let borrowed = volume.borrow(0, 64 << 10).unwrap();
    let error = volume.read_at(&mut [0; 1], 1 << 19).unwrap_err();
    assert!(error.kind() == ErrorKind::AllBorrowed { pages: 16 }, "{error}");
    drop(borrowed);
    assert_eq!(volume.read_at(&mut [0; 1], 1 << 19).unwrap(), 1);
}

#[test]
fn hits_make_no_system_call_and_are_counted() {
    let Some((_directory, path)) = scratch_with(&vec![3; 512 << 10]) else { return };
    let volume = Volume::open(&path, &options()).unwrap();
    let mut buffer = vec![0; 512 << 10];
    volume.read_at(&mut buffer, 0).unwrap();
    let before = volume.stats().unwrap();
    for _ in 0..10 {
        volume.read_at(&mut buffer, 0).unwrap();
    }
    let after = volume.stats().unwrap();
    assert_eq!(after.hits - before.hits, 10 * 128);
    assert_eq!(after.cache.pages_read, 128);
}

#[test]
fn threads_see_whole_writes_of_a_page_and_all_of_them() {
    const PAGES: u64 = 600;
    let Some((_directory, path)) = scratch_with(&vec![0; PAGES as usize * 4096]) else { return };
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (volume, stop) = (volume.clone(), &stop);
            scope.spawn(move || {
                let mut rng = ChaCha8Rng::seed_from_u64(reader);
                let mut page = vec![0; 4096];
                while !stop.load(Ordering::Relaxed) {
                    let number = rng.random_range(0..PAGES);
                    volume.read_at(&mut page, number * 4096).unwrap();
                    assert!(page.iter().all(|byte| *byte == page[0]), "page {number} is torn");
                }
            });
        }
        let writers: Vec<_> = (0..2_u64)
            .map(|writer| {
                let volume = volume.clone();
                scope.spawn(move || {
                    for round in 0..20_u64 {
                        for number in (writer..PAGES).step_by(2) {
                            volume.write_at(&[(round + number) as u8; 4096], number * 4096).unwrap();
                        }
                        volume.flush().unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let file = std::fs::read(&path).unwrap();
    for (page, number) in file.chunks(4096).zip(0_u64..) {
        assert!(page.iter().all(|byte| *byte == (19 + number) as u8), "page {number}");
    }
}

#[test]
fn advice_reads_ahead_and_drops_pages() {
    let Some((_directory, path)) = scratch_with(&vec![3; 256 << 10]) else { return };
    let volume = Volume::open(&path, &options()).unwrap();
    volume.advise(0, 256 << 10, Advice::WillNeed).unwrap();
    let mut buffer = vec![0; 256 << 10];
    volume.read_at(&mut buffer, 0).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 3));
    assert_eq!(volume.stats().unwrap().cache.pages_read, 64);
    volume.advise(0, 256 << 10, Advice::DontNeed).unwrap();
    volume.read_at(&mut buffer, 0).unwrap();
    assert_eq!(volume.stats().unwrap().cache.pages_read, 128);
}

#[test]
fn the_default_page_is_at_least_a_block() {
    let disk = |block_bytes| {
        MemoryDisk::new(&MemoryConfig { block_bytes, ..MemoryConfig::of_bytes(1 << 20) }).unwrap()
    };
    let options = Options::new().mode(IoMode::Buffered).readahead(Readahead::Off);
    for (block_bytes, pages) in [(512, 16), (4096, 16), (16 << 10, 4)] {
        let volume = Volume::memory(&disk(block_bytes), &options).unwrap();
        volume.read_exact_at(&mut vec![0; 64 << 10], 0).unwrap();
        let cache = volume.stats().unwrap().cache;
        assert_eq!(cache.pages_read, pages, "blocks of {block_bytes} bytes");
    }
    let error = Volume::memory(&disk(16 << 10), &options.page_bytes(4096)).unwrap_err();
    assert!(error.to_string().contains("16384") && error.to_string().contains("--page"), "{error}");
}

#[test]
fn page_and_cache_sizes_out_of_range_are_refused() {
    let Some((_directory, path)) = scratch_with(&[0; 4096]) else { return };
    for page_bytes in [0, 512, 5000, 128 << 10] {
        let error = Volume::open(&path, &options().page_bytes(page_bytes)).unwrap_err();
        assert!(matches!(error, OpenError::PageSize { .. }), "{error}");
    }
    for cache_bytes in [0, 4096, u64::MAX] {
        let error = Volume::open(&path, &options().cache_bytes(cache_bytes)).unwrap_err();
        assert!(matches!(error, OpenError::CacheSize { .. }), "{error}");
    }
    let direct = Volume::open(&path, &options().mode(IoMode::Direct)).unwrap();
    assert!(direct.borrow(0, 1).is_err_and(|error| error.kind() == ErrorKind::NotBuffered));
    assert!(direct.stats().is_none());
}

#[test]
fn a_read_of_several_requests_without_readahead_reads_all_of_them() {
    let written = random(8 << 20, 9);
    let Some((_directory, path)) = scratch_with(&written) else { return };
    let options = options().cache_bytes(32 << 20).readahead(Readahead::Off).request_bytes_max(64 << 10);
    let volume = Volume::open(&path, &options).unwrap();
    let mut read = vec![0; 8 << 20];
    assert_eq!(volume.read_at(&mut read, 0).unwrap(), read.len());
    assert!(read == written);
}

#[test]
fn a_cache_is_warm_again_after_its_ranges_were_read_ahead() {
    let Some((_directory, path)) = scratch_with(&random(100_000, 1)) else { return };
    let options = options().readahead(Readahead::Off);
    let volume = Volume::open(&path, &options).unwrap();
    assert_eq!(volume.cached_ranges(), []);
    let mut bytes = [0; 10_000];
    volume.read_exact_at(&mut bytes, 0).unwrap();
    volume.read_exact_at(&mut bytes[..100], 50_000).unwrap();
    volume.read_exact_at(&mut bytes[..1], 99_999).unwrap();
    let ranges = volume.cached_ranges();
    assert_eq!(ranges, [0..12_288, 49_152..53_248, 98_304..100_000]);
    drop(volume);
    let volume = Volume::open(&path, &options).unwrap();
    for range in &ranges {
        volume.advise(range.start, range.end - range.start, Advice::WillNeed).unwrap();
    }
    for range in &ranges {
        volume.read_exact_at(&mut vec![0; (range.end - range.start) as usize], range.start).unwrap();
    }
    assert_eq!(volume.stats().unwrap().cache.pages_read, 5, "each page is read once");
}
