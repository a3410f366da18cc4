//! Random requests of one owner against an array of bytes, on a cache of four pages, while other threads read, write
//! and resize, and the device fails now and then.
//!
//! The owner has the bytes before `OWN_BYTES`, which ends inside a page; the others have the rest. Requests that
//! overlap are executed in order, so a read is compared with the bytes that the requests queued before it leave.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use iopath_core::cache::CacheConfig;
use iopath_core::readahead::ReadaheadConfig;
use iopath_core::{IoError, Op};
use iopath_os::{
    BufferPool, Buffered, BufferedConfig, CacheQueue, Completed, Fault, Faults, Faulty, MemoryConfig,
    MemoryDisk,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::requests::request;
use super::rig;

const PAGE: u64 = 4096;
const BYTES: u64 = 64 * PAGE;
const OWN_BYTES: u64 = 24 * PAGE + 1000;
const DEPTH: u32 = 12;
const REQUEST_BYTES: u64 = 6 * PAGE;

/// A byte of the model: its value, and the request that wrote it.
type Byte = (u8, u64);

struct Owner {
    rng: ChaCha8Rng,
    seed: u64,
    has_faults: bool,
    bytes: Vec<Byte>,
    /// The bytes that a read is to find, by its token.
    expected: BTreeMap<u64, Vec<Byte>>,
    /// Requests that failed: the bytes that they wrote are unknown.
    failed: Vec<u64>,
    next: u64,
    compared: u64,
}

impl Owner {
    fn new(seed: u64, has_faults: bool) -> Self {
        let bytes = vec![(0, 0); OWN_BYTES as usize];
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let (expected, failed) = (BTreeMap::new(), Vec::new());
        Self { rng, seed, has_faults, bytes, expected, failed, next: 1, compared: 0 }
    }

    fn queue(&mut self, pool: &BufferPool, queue: &mut CacheQueue) {
        let offset = self.rng.random_range(0..OWN_BYTES);
        let longest = (OWN_BYTES - offset).min(if self.rng.random_bool(0.5) { 200 } else { REQUEST_BYTES });
        let bytes = self.rng.random_range(0..=longest);
        let range = offset as usize..(offset + bytes) as usize;
        let token = self.next;
        self.next += 1;
        let value = self.rng.random();
        let op = match self.rng.random_range(0..20) {
            0 => Op::Flush,
            1 => Op::WriteZeroes,
            2..9 => Op::Write,
            _ => Op::Read,
        };
        let buffer = op.has_memory().then(|| pool.take().expect("one for each request"));
        let mut request = request(op, offset, bytes, buffer, token);
        match op {
            Op::Read => {
                self.expected.insert(token, self.bytes[range].to_vec());
            }
            Op::Write => {
                request.is_durable = self.rng.random_bool(0.1);
                request.buffer.as_mut().unwrap()[..bytes as usize].fill(value);
                self.bytes[range].fill((value, token));
            }
            Op::WriteZeroes => self.bytes[range].fill((0, token)),
            _ => {}
        }
        queue.queue(request).unwrap();
    }

    fn completed(&mut self, done: &Completed) {
        let expected = self.expected.remove(&done.token);
        if let Err(error) = &done.result {
            assert!(self.has_faults, "seed {}: {done:?}: {error}", self.seed);
            self.failed.push(done.token);
        } else if let Some(expected) = expected {
            let found = &done.buffer.as_ref().unwrap()[..expected.len()];
            assert_eq!(*done.result.as_ref().unwrap(), expected.len(), "seed {}", self.seed);
            for (at, (found, (value, writer))) in found.iter().zip(&expected).enumerate() {
                let is_known = !self.failed.contains(writer);
                assert!(
                    !is_known || found == value,
                    "seed {}: byte {at} of {done:?} is {found}, not {value} of request {writer}",
                    self.seed
                );
                self.compared += u64::from(is_known);
            }
        }
    }

    /// Queues, submits, polls and waits at random until `end`.
    fn run(&mut self, buffered: &Buffered, end: Instant) {
        let pool = BufferPool::new(DEPTH, REQUEST_BYTES as usize).unwrap();
        let mut queue = buffered.request_queue(DEPTH, 4);
        while Instant::now() < end {
            while queue.in_flight() < DEPTH && self.rng.random_range(0..8) > 0 {
                self.queue(&pool, &mut queue);
            }
            match self.rng.random_range(0..4) {
                0 => queue.submit(),
                1 => queue.poll(),
                2 => queue.wait(self.rng.random_range(0..4)).unwrap(),
                _ if self.rng.random_range(0..20) == 0 => {
                    queue.wait(u32::MAX).unwrap();
                    while let Some(done) = queue.next_completed() {
                        self.completed(&done);
                    }
                    // Its reads are abandoned, its other requests were completed.
                    queue = buffered.request_queue(DEPTH, 4);
                }
                _ => {}
            }
            while let Some(done) = queue.next_completed() {
                self.completed(&done);
            }
        }
        queue.wait(u32::MAX).unwrap();
        while let Some(done) = queue.next_completed() {
            self.completed(&done);
        }
        assert!(self.expected.is_empty() && queue.in_flight() == 0);
    }
}

/// Other threads on the rest of the volume.
fn meddle(buffered: &Buffered, seed: u64, is_over: &AtomicBool) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut bytes = vec![1; 3 * PAGE as usize];
    while !is_over.load(SeqCst) {
        let offset = rng.random_range(OWN_BYTES..BYTES);
        let length = rng.random_range(0..bytes.len());
        // Past the end, and errors of the device.
        match rng.random_range(0..10) {
            0..4 => drop(buffered.read_at(&mut bytes[..length], offset)),
            4..7 => drop(buffered.write_at(&bytes[..length], offset)),
            7 => drop(buffered.flush()),
            8 => drop(buffered.borrow(offset, length.min(2 * PAGE as usize))),
            _ => {
                let guard = buffered.begin_direct(Op::Write, offset, 512);
                std::thread::yield_now();
                drop(guard);
            }
        }
    }
}

fn resize(disk: &MemoryDisk, buffered: &Buffered, is_over: &AtomicBool) {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    while !is_over.load(SeqCst) {
        let size = rng.random_range(OWN_BYTES.next_multiple_of(PAGE)..BYTES) / 512 * 512;
        let _ = buffered.resize(size, || disk.resize(size));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn run(seed: u64, has_faults: bool, time: Duration) {
    let disk = MemoryDisk::new(&MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(BYTES) });
    let disk = disk.unwrap();
    let faults = Faults::new(seed);
    faults.shuffle(seed.is_multiple_of(2));
    if has_faults {
        for op in [Op::Read, Op::Write, Op::Flush, Op::WriteZeroes] {
            faults.add(Fault::error(IoError::Media).on(op).one_in(20));
        }
    }
    let config = rig::config(BYTES);
    let cache = CacheConfig { frames: 4, expire: Duration::from_millis(5), ..config.cache };
    let readahead = seed.is_multiple_of(3).then(ReadaheadConfig::default);
    let config = BufferedConfig { cache, readahead, ..config };
    let buffered = rig::open(config, Faulty::new(Box::new(disk.open()), &faults), |_| ());
    let is_over = AtomicBool::new(false);
    let mut owner = Owner::new(seed, has_faults);
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        scope.spawn(|| meddle(&buffered, seed, &is_over));
        scope.spawn(|| resize(&disk, &buffered, &is_over));
        owner.run(&buffered, Instant::now() + time);
        drop(over);
    });
    assert!(owner.compared > 1000, "seed {seed}: only {} bytes were compared", owner.compared);
}

/// Set even if the owner panics: the other threads end by it.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn random_requests_agree_with_an_array_of_bytes() {
    (1..=3).for_each(|seed| run(seed, false, Duration::from_millis(700)));
}

#[test]
fn random_requests_on_a_failing_device_agree_with_an_array_of_bytes() {
    (4..=6).for_each(|seed| run(seed, true, Duration::from_millis(700)));
}
