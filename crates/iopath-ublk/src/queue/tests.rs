//! A queue with a driver of these tests, on a volume in memory.

use std::collections::VecDeque;
use std::time::Instant;

use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{IoMode, Options, Unaligned};

use super::*;

const DEPTH: u16 = 8;
const BUFFER_BYTES: u32 = 64 << 10;
const DISK_BYTES: u64 = 1 << 20;

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
const DISCARD: u32 = 3;
const WRITE_ZEROES: u32 = 5;
const FUA: u32 = 1 << 13;

/// The driver: events to come, buffers of the tags that it has, results.
#[derive(Debug, Default)]
struct TestDriver {
    events: VecDeque<UblkEvent>,
    buffers: Vec<Option<AlignedBuf>>,
    results: VecDeque<(u16, i32)>,
}

impl Driver for TestDriver {
    fn next_event(&mut self) -> Option<UblkEvent> {
        self.events.pop_front()
    }

    fn commit(&mut self, tag: u16, result: i32, buffer: AlignedBuf) {
        let place = &mut self.buffers[usize::from(tag)];
        assert!(place.is_none(), "tag {tag} is committed once");
        assert_eq!(buffer.len(), BUFFER_BYTES as usize, "the buffer of the tag");
        *place = Some(buffer);
        self.results.push_back((tag, result));
    }
}

struct Rig {
    queue: Queue,
    driver: TestDriver,
    completed: OwnedFd,
    state: Arc<SharedState>,
    _disk: MemoryDisk,
}

impl Rig {
    fn new(options: Options) -> Self {
        Self::with_disk(&options.write(true), DISK_BYTES, true)
    }

    fn with_disk(options: &Options, announced_bytes: u64, is_writable: bool) -> Self {
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(DISK_BYTES)).unwrap();
        let volume = Volume::memory(&disk, options).unwrap();
        let state = Arc::new(SharedState::default());
        let facts = Disk {
            bytes: announced_bytes,
            buffer_bytes: BUFFER_BYTES,
            is_writable,
            discard_zeroes: volume.range_support().discard_zeroes,
        };
        let (queue, completed) = Queue::new(0, DEPTH, &volume, facts, Arc::clone(&state)).unwrap();
        let buffer = || Some(AlignedBuf::new(BUFFER_BYTES as usize).unwrap());
        let buffers = (0..DEPTH).map(|_| buffer()).collect();
        let driver = TestDriver { buffers, ..TestDriver::default() };
        Self { queue, driver, completed, state, _disk: disk }
    }

    /// The kernel issues a request; a write has this data.
    fn issue(&mut self, tag: u16, descriptor: UblkDescriptor, data: &[u8]) {
        let mut buffer = self.driver.buffers[usize::from(tag)].take().expect("the driver has the tag");
        buffer[..data.len()].copy_from_slice(data);
        self.driver.events.push_back(UblkEvent::Request { tag, descriptor, buffer });
    }

    /// The next result, after the worker's waits.
    fn result(&mut self) -> (u16, i32) {
        let started = Instant::now();
        loop {
            while self.queue.step(&mut self.driver) {}
            if let Some(result) = self.driver.results.pop_front() {
                return result;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "no result");
            let mut waits = [rustix::event::PollFd::new(&self.completed, rustix::event::PollFlags::IN)];
            let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            rustix::event::poll(&mut waits, Some(&limit)).unwrap();
            self.queue.handle_timeout();
        }
    }

    fn run(&mut self, op_flags: u32, start_sector: u64, sectors: u32, data: &[u8]) -> i32 {
        self.issue(3, UblkDescriptor::new(op_flags, start_sector, sectors), data);
        let (tag, result) = self.result();
        assert_eq!(tag, 3);
        result
    }

    /// The bytes of the last read.
    fn data(&self, bytes: usize) -> &[u8] {
        &self.driver.buffers[3].as_ref().expect("the driver has the tag")[..bytes]
    }
}

fn modes() -> [Options; 2] {
    let direct = Options::new().unaligned(Unaligned::Bounce);
    [direct.clone(), direct.mode(IoMode::Buffered).cache_bytes(1 << 20)]
}

#[test]
fn a_read_returns_what_was_written_on_each_path() {
    for mode in modes() {
        let mut rig = Rig::new(mode);
        assert_eq!(rig.run(WRITE, 16, 8, &[7; 4096]), 4096);
        assert_eq!(rig.run(WRITE | FUA, 24, 8, &[9; 4096]), 4096);
        assert_eq!(rig.run(FLUSH, 0, 0, &[]), 0);
        for _ in 0..2 {
            assert_eq!(rig.run(READ, 16, 16, &[]), 8192);
            assert_eq!(rig.data(8192), [[7; 4096], [9; 4096]].concat());
        }
        assert_eq!(rig.run(WRITE_ZEROES, 16, 8, &[]), 0);
        assert_eq!(rig.run(DISCARD, 24, 8, &[]), 0);
        assert_eq!(rig.run(READ, 16, 8, &[]), 4096);
        assert_eq!(rig.data(4096), [0; 4096]);
        assert!(rig.state.take_messages().is_empty());
        assert_eq!(rig.state.requests.load(Ordering::Relaxed), 8);
    }
}

#[test]
fn requests_of_all_tags_are_in_flight_together() {
    for mode in modes() {
        let mut rig = Rig::new(mode);
        for tag in 0..DEPTH {
            rig.issue(tag, UblkDescriptor::new(WRITE, u64::from(tag) * 8, 8), &[tag as u8; 4096]);
        }
        let mut tags: Vec<_> = (0..DEPTH).map(|_| rig.result()).collect();
        tags.sort_unstable();
        assert_eq!(tags, (0..DEPTH).map(|tag| (tag, 4096)).collect::<Vec<_>>());
        assert_eq!(rig.run(READ, 40, 8, &[]), 4096);
        assert_eq!(rig.data(4096), [5; 4096]);
    }
}

#[test]
fn an_error_is_an_error_number_and_a_message() {
    // The volume is shorter than the disk that was announced.
    let options = Options::new().write(true).unaligned(Unaligned::Bounce);
    let mut rig = Rig::with_disk(&options, 2 * DISK_BYTES, true);
    for op in [WRITE, DISCARD] {
        let result = rig.run(op, 2 * DISK_BYTES / 512 - 8, 8, &[]);
        assert!(result < 0, "operation {op}: {result}");
    }
    assert_eq!(rig.state.take_messages().len(), 2);
    // Nothing is left to read there.
    assert!(rig.run(READ, DISK_BYTES / 512, 8, &[]) < 0);
    assert!(rig.run(READ, 0, 8, &[]) > 0, "the queue goes on");
    let mut rig = Rig::with_disk(&Options::new(), DISK_BYTES, false);
    assert_eq!(rig.run(WRITE, 0, 8, &[]), -Errno::ROFS.raw_os_error());
    assert_eq!(rig.run(FLUSH, 0, 0, &[]), 0);
}

#[test]
fn each_descriptor_has_one_result() {
    // xorshift64, with a seed that any value but zero can replace.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for mode in modes() {
        let mut rig = Rig::new(mode);
        for _ in 0..2000 {
            let op_flags = (random() % 8) as u32 | (random() as u32 & !0xff);
            let start = if random() % 4 == 0 { random() } else { random() % 2100 };
            let sectors = if random() % 8 == 0 { random() as u32 } else { (random() % 160) as u32 };
            rig.run(op_flags, start, sectors, &[]);
        }
    }
}

#[test]
fn a_queue_ends_after_all_tags_and_all_requests() {
    let mut rig = Rig::new(Options::new());
    rig.issue(0, UblkDescriptor::new(WRITE, 0, 8), &[1; 4096]);
    for tag in 1..DEPTH {
        rig.driver.events.push_back(UblkEvent::Ended { tag, errno: Errno::NODEV.raw_os_error() });
    }
    assert_eq!(rig.result(), (0, 4096));
    assert!(!rig.queue.has_ended(), "the driver still has tag 0");
    rig.driver.events.push_back(UblkEvent::Ended { tag: 0, errno: Errno::NODEV.raw_os_error() });
    while rig.queue.step(&mut rig.driver) {}
    assert!(rig.queue.has_ended());
    assert!(rig.state.take_messages().is_empty());
    // A refused command is a message.
    rig.driver.events.push_back(UblkEvent::Ended { tag: 0, errno: Errno::INVAL.raw_os_error() });
    rig.queue.step(&mut rig.driver);
    assert_eq!(rig.state.take_messages().len(), 1);
}
