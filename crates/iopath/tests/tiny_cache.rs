//! Threads on a cache that is much smaller than the volume, on a disk in memory. Each thread writes its own bytes of
//! shared pages and reads them by each path. Small enough for Miri and fast enough for the sanitizers; the test
//! `torture` covers more.

use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{AlignedBuf, Options, Volume};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::thread::scope;

const PAGE: usize = 4096;
const THREADS: usize = 3;
/// Bytes of one thread in one page. The volume has `PAGES` pages; the cache has 16.
const PART: usize = PAGE / THREADS;
const PAGES: usize = 40;
const OPS: u32 = if cfg!(miri) { 40 } else { 20_000 };

/// The writes of one thread, and their checks.
struct Writer<'a> {
    volume: &'a Volume,
    number: usize,
    random: Xoshiro256PlusPlus,
    /// The parts of this thread in all pages, concatenated.
    expected: Vec<u8>,
}

impl Writer<'_> {
    fn offset(&self, page: usize) -> u64 {
        (page * PAGE + self.number * PART) as u64
    }

    fn expected(&self, page: usize) -> &[u8] {
        &self.expected[page * PART..][..PART]
    }

    fn write(&mut self, page: usize) {
        let start = self.random.random_range(0..PART);
        let bytes = self.random.random_range(1..=PART - start);
        let data = vec![self.random.random(); bytes];
        self.volume.write_at(&data, self.offset(page) + start as u64).unwrap();
        self.expected[page * PART + start..][..bytes].copy_from_slice(&data);
    }

    fn read(&self, page: usize) {
        let mut bytes = [0; PART];
        assert_eq!(self.volume.read_at(&mut bytes, self.offset(page)).unwrap(), PART);
        assert!(bytes == self.expected(page), "thread {}, page {page}: read", self.number);
    }

    fn borrow(&self, page: usize) {
        let borrowed = self.volume.borrow(self.offset(page), PART).unwrap();
        let bytes: Vec<u8> = borrowed.slices().flatten().copied().collect();
        assert!(bytes == self.expected(page), "thread {}, page {page}: borrowed", self.number);
    }

    fn read_direct(&self, page: usize, buffer: &mut AlignedBuf) {
        assert_eq!(self.volume.direct().read_at(buffer, (page * PAGE) as u64).unwrap(), PAGE);
        let bytes = &buffer[self.number * PART..][..PART];
        assert!(bytes == self.expected(page), "thread {}, page {page}: direct read", self.number);
    }

    fn run(&mut self) {
        let mut buffer = AlignedBuf::new(PAGE).unwrap();
        for _ in 0..OPS {
            let page = self.random.random_range(0..PAGES);
            match self.random.random_range(0..10) {
                0..4 => self.write(page),
                4..6 => self.read(page),
                6..8 => self.borrow(page),
                8 => self.read_direct(page, &mut buffer),
                _ => self.volume.flush().unwrap(),
            }
        }
    }
}

#[test]
fn threads_on_a_tiny_cache_read_their_own_bytes_by_every_path() {
    let seed = std::env::var("IOPATH_TEST_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    println!("seed {seed}: IOPATH_TEST_SEED={seed} runs it again");
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes((PAGES * PAGE) as u64)).unwrap();
    let options = Options::new().direct(false).cache_bytes(16 * PAGE as u64).write(true).depth(4);
    let volume = Volume::memory(&disk, &options).unwrap();
    scope(|scope| {
        for number in 0..THREADS {
            let random = Xoshiro256PlusPlus::seed_from_u64(seed + number as u64);
            let mut writer = Writer { volume: &volume, number, random, expected: vec![0; PAGES * PART] };
            scope.spawn(move || {
                writer.run();
                (0..PAGES).for_each(|page| writer.read(page));
            });
        }
    });
    volume.flush().unwrap();
}
