//! The page cache at the end of a file that is not whole blocks, whose last bytes do not go through the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use iopath_core::cache::CacheConfig;
use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, Limits, QueueConfig};
use iopath_os::{
    Advice, Bell, Buffered, BufferedConfig, MemoryConfig, MemoryDevice, MemoryDisk, NoMemory, RealDevice,
    Runner, Segment, Tail, WaitError,
};

const PAGE: u64 = 4096;
const SIZE: u64 = 8 * PAGE + 100;

/// A disk in memory that completes nothing while the gate is closed.
#[derive(Debug)]
struct Gated {
    inner: MemoryDevice,
    is_open: Arc<AtomicBool>,
}

impl BlockDevice for Gated {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(&mut self, io: &Io<'_, Segment>, now: Instant) -> Result<(), Busy> {
        self.inner.submit(io, now)
    }

    fn commit(&mut self, now: Instant) {
        self.inner.commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        if self.is_open.load(SeqCst) {
            return self.inner.poll_completion(now);
        }
        std::thread::sleep(Duration::from_millis(1));
        None
    }
}

// SAFETY: the inner device keeps to the contract, and this one reports less.
unsafe impl RealDevice for Gated {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.inner.commit_and_wait(completions, timeout)
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight()
    }

    fn syscalls(&self) -> u64 {
        self.inner.syscalls()
    }

    fn ring_when_over(&mut self, bell: &Bell) -> std::io::Result<()> {
        self.inner.ring_when_over(bell)
    }
}

fn buffered(disk: &MemoryDisk, is_open: &Arc<AtomicBool>) -> Buffered {
    let config = BufferedConfig {
        cache: CacheConfig { frames: 64, expire: Duration::from_secs(1000), ..CacheConfig::default() },
        readahead: None,
        size_bytes: SIZE,
        block_bytes: 512,
        tail: Some(Tail::Memory(disk.tail())),
        writes_last_block: false,
        own_reads: None,
    };
    let opened: Result<_, NoMemory> = Buffered::new(config, |_| {
        let device = Gated { inner: disk.open(), is_open: Arc::clone(is_open) };
        let queue = QueueConfig { bios_max: 64, ..QueueConfig::default() };
        Ok(Runner::new(Box::new(device) as Box<dyn RealDevice + Send>, &queue))
    });
    opened.unwrap()
}

/// Three write-backs of page 7 are wanted at once; the second goes on into the last bytes of the volume.
#[test]
fn the_device_holds_the_last_write_of_a_page_beside_the_end() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(SIZE)).unwrap();
    let gate = Arc::new(AtomicBool::new(true));
    let buffered = &buffered(&disk, &gate);
    gate.store(false, SeqCst);
    std::thread::scope(|scope| {
        for (byte, bytes) in [(1, PAGE + 100), (2, PAGE + 100), (3, PAGE)] {
            buffered.write_at(&vec![byte; bytes as usize], 7 * PAGE).unwrap();
            scope.spawn(|| buffered.write_back().unwrap());
            // Long enough for that thread to submit its write-back, or to wait for an earlier one.
            std::thread::sleep(Duration::from_millis(50));
        }
        gate.store(true, SeqCst);
    });
    buffered.flush().unwrap();
    assert_eq!(buffered.stats().cache.dirty, 0);
    buffered.advise(0, SIZE, Advice::DontNeed);
    let mut bytes = vec![0; PAGE as usize + 100];
    buffered.read_at(&mut bytes, 7 * PAGE).unwrap();
    assert!(bytes[..PAGE as usize].iter().all(|byte| *byte == 3), "older bytes of page 7 on the device");
    assert!(bytes[PAGE as usize..].iter().all(|byte| *byte == 2), "older bytes at the end on the device");
}
