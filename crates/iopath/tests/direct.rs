//! Direct, bounced and buffered I/O on one volume, and resizes, compared with a plain copy of the bytes. The engine is
//! that of `IOPATH_TEST_ENGINE`.

use crate::support::scratch_with;
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{AlignedBuf, BatchOptions, ErrorKind, Options, Request, Unaligned, Volume};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn options() -> Options {
    crate::support::options().cache_bytes(1 << 20)
}

/// A volume and its expected content.
struct Modelled {
    volume: Volume,
    model: Vec<u8>,
    rng: ChaCha8Rng,
    memory: AlignedBuf,
    /// The current operation, for messages.
    context: String,
}

impl Modelled {
    const LONGEST: usize = 200_000;

    fn range(&mut self, aligned: bool) -> std::ops::Range<usize> {
        let size = self.model.len();
        let block = if aligned { self.volume.facts().block_bytes as usize } else { 1 };
        let start = self.rng.random_range(0..=size) / block * block;
        let longest = if self.rng.random_bool(0.1) { Self::LONGEST } else { 9000 };
        let bytes = self.rng.random_range(0..longest).min(size - start) / block * block;
        self.context =
            format!("{}; {bytes} bytes at {start} of {size}", self.context.split(';').next().unwrap());
        start..start + bytes
    }

    fn read(&mut self, direct: bool) {
        let range = self.range(direct);
        let (offset, memory) = (range.start as u64, &mut self.memory[..range.len()]);
        let read = if direct {
            self.volume.direct().read_at(memory, offset)
        } else {
            self.volume.read_at(memory, offset)
        };
        assert_eq!(read.unwrap(), range.len(), "{}", self.context);
        assert!(*memory == self.model[range], "{}: direct {direct}", self.context);
    }

    fn write(&mut self, direct: bool) {
        let range = self.range(direct);
        let (offset, memory) = (range.start as u64, &mut self.memory[..range.len()]);
        self.rng.fill(&mut *memory);
        let written = if direct {
            self.volume.direct().write_at(memory, offset)
        } else {
            self.volume.write_at(memory, offset)
        };
        written.unwrap_or_else(|error| panic!("{}: {error}", self.context));
        self.model[range].copy_from_slice(memory);
    }

    fn batch(&mut self) {
        let mut batch = self.volume.batch(&BatchOptions::new(4, Self::LONGEST).buffered(false)).unwrap();
        for token in 0..4 {
            let range = self.range(true);
            let mut buffer = batch.buffer().unwrap();
            self.rng.fill(&mut buffer[..range.len()]);
            self.model[range.clone()].copy_from_slice(&buffer[..range.len()]);
            if !range.is_empty() {
                batch
                    .queue(Request::write(buffer, range.start as u64).bytes(range.len()).token(token))
                    .unwrap();
            }
        }
        while let Some(done) = batch.wait().unwrap() {
            done.result.unwrap();
        }
    }

    fn zero(&mut self) {
        let range = self.range(true);
        match self.volume.write_zeroes(range.start as u64, range.len() as u64) {
            Ok(()) => self.model[range].fill(0),
            Err(error) => assert!(error.kind() == ErrorKind::Unsupported, "{}: {error}", self.context),
        }
    }

    fn resize(&mut self) {
        let size = self.rng.random_range(0..3 << 20);
        self.volume.resize(size).unwrap();
        self.model.resize(size as usize, 0);
        assert_eq!(self.volume.size_bytes(), size);
    }
}

fn run_random_operations(options: &Options, seed: u64, size: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut model = vec![0; size];
    rng.fill(&mut model[..]);
    let Some((_directory, path)) = scratch_with(&model) else { return };
    let volume = Volume::open(&path, &options.clone().write(true)).unwrap();
    let memory = AlignedBuf::new(Modelled::LONGEST).unwrap();
    let mut modelled = Modelled { volume, model, rng, memory, context: String::new() };
    for step in 0..1500 {
        modelled.context = format!("seed {seed}, step {step}");
        match modelled.rng.random_range(0..40) {
            0 => modelled.resize(),
            1..3 => modelled.zero(),
            3..5 => modelled.batch(),
            5 => modelled.volume.flush().unwrap(),
            6..12 => modelled.write(true),
            12..20 => modelled.write(false),
            20..30 => modelled.read(true),
            _ => modelled.read(false),
        }
    }
    let Modelled { volume, model, .. } = modelled;
    volume.close().unwrap();
    assert!(std::fs::read(&path).unwrap() == model, "seed {seed}: the file is not what was written");
}

#[test]
fn direct_and_buffered_io_are_coherent() {
    run_random_operations(&options().direct(false), 1, 1 << 20);
    run_random_operations(&options().direct(false).page_bytes(16 << 10), 2, (1 << 20) + 12_345);
}

#[test]
fn unaligned_io_goes_through_the_cache_if_requested() {
    run_random_operations(&options().unaligned(Unaligned::Buffered), 3, (2 << 20) + 1);
}

#[test]
fn unaligned_io_is_bounced_if_requested() {
    run_random_operations(&options().unaligned(Unaligned::Bounce), 4, (1 << 20) + 777);
    run_random_operations(&options().unaligned(Unaligned::Bounce), 5, 300);
}

#[test]
fn concurrent_bounced_writes_to_one_block_are_all_kept() {
    let Some((_directory, path)) = scratch_with(&[0; 8192]) else { return };
    let volume = Volume::open(&path, &options().unaligned(Unaligned::Bounce).write(true)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let volume = volume.clone();
            scope.spawn(move || {
                for place in (thread..8192).step_by(4 * 16) {
                    volume.write_at(&[thread as u8 + 1], place).unwrap();
                }
            });
        }
    });
    let bytes = std::fs::read(&path).unwrap();
    for (byte, place) in bytes.iter().zip(0_u64..) {
        let written = if place % 64 < 4 { (place % 64) as u8 + 1 } else { 0 };
        assert_eq!(*byte, written, "byte {place}");
    }
}

#[test]
fn readers_never_see_bytes_that_a_direct_write_has_replaced() {
    const PAGES: u64 = 64;
    let Some((_directory, path)) = scratch_with(&vec![0; PAGES as usize * 4096]) else { return };
    let volume = Volume::open(&path, &options().direct(false).write(true)).unwrap();
    // One thread counts each page up, by direct and buffered writes; `done` holds the last value whose write has
    // returned.
    let done: Vec<_> = (0..PAGES).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let mut memory = AlignedBuf::new(4096).unwrap();
            for round in 1..4000_u64 {
                let page = rng.random_range(0..PAGES);
                memory.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&round.to_le_bytes()));
                if rng.random_bool(0.5) {
                    volume.direct().write_at(&memory, page * 4096).unwrap();
                } else {
                    volume.write_at(&memory, page * 4096).unwrap();
                }
                done[page as usize].store(round, std::sync::atomic::Ordering::SeqCst);
            }
        });
        for reader in 0..2_u64 {
            let (volume, done, stop) = (&volume, &done, &stop);
            scope.spawn(move || {
                let mut rng = ChaCha8Rng::seed_from_u64(reader);
                let mut memory = AlignedBuf::new(4096).unwrap();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let page = rng.random_range(0..PAGES);
                    let oldest = done[page as usize].load(std::sync::atomic::Ordering::SeqCst);
                    let direct = rng.random_bool(0.3);
                    if direct {
                        volume.direct().read_at(&mut memory, page * 4096).unwrap();
                    } else {
                        volume.read_at(&mut memory, page * 4096).unwrap();
                    }
                    for part in memory.chunks_exact(8) {
                        let round = u64::from_le_bytes(part.try_into().unwrap());
                        assert!(round >= oldest, "page {page}: {round} after {oldest}, direct {direct}");
                    }
                }
            });
        }
        writer.join().unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_volume_in_memory_is_resized_as_a_file_is() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    for options in [options(), options().direct(false)] {
        let volume = Volume::memory(&disk, &options.write(true)).unwrap();
        volume.write_at(&[1; 8192], 0).unwrap();
        volume.resize(4096).unwrap();
        volume.resize(1 << 20).unwrap();
        let mut bytes = vec![7; 8192];
        volume.read_at(&mut bytes, 0).unwrap();
        assert!(bytes[..4096].iter().all(|byte| *byte == 1) && bytes[4096..].iter().all(|byte| *byte == 0));
        assert_eq!(volume.size_bytes(), 1 << 20);
    }
}

#[test]
fn a_refused_resize_loses_no_data() {
    let Some((directory, path)) = scratch_with(&vec![0; 1 << 20]) else { return };
    let other = directory.path().join("other");
    std::fs::copy(&path, &other).unwrap();
    for options in [options(), options().direct(false)] {
        let volume = Volume::open_stripe(&[&path, &other], 64 << 10, &options.write(true)).unwrap();
        let mut memory = AlignedBuf::new(4096).unwrap();
        memory.fill(1);
        volume.write_at(&memory, 8192).unwrap();
        let error = volume.resize(4096).unwrap_err();
        assert!(error.kind() == ErrorKind::Resize { size_bytes: 4096 }, "{error}");
        memory.fill(0);
        volume.read_at(&mut memory, 8192).unwrap();
        assert!(memory.iter().all(|byte| *byte == 1), "a refused resize dropped a page");
        volume.write_at(&AlignedBuf::new(4096).unwrap(), 8192).unwrap();
    }
}
