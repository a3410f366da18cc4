//! The contract of `commit`, `Watch` and `Notifier`: after a `commit`, a wait ends if a completion can be polled, or as
//! soon as one can. Tested on each kind of device alone, and on each pair of kinds in a stripe.
//!
//! A wait that ends by its timeout is a lost wake-up: the timeout is much longer than any I/O of these tests.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iopath_core::mapper::{Boundary, FileLayout};
use iopath_core::{Extent, Io, Limits, Op, StripeConfig, Tag};
use iopath_os::{
    AlignedBuf, AnyThread, Fault, Faults, Faulty, FileMap, Mapped, MemoryConfig, MemoryDisk, Notifier, Null,
    OneThread, RealDevice, Striped, Threads, ThreadsConfig, Uring, UringConfig, now,
};

use super::on_each_device;
use super::rig::{BLOCK, DEPTH, in_memory, limits, scratch, segment};

const PATIENCE: Duration = Duration::from_secs(60);
const SECTORS: u64 = 1 << 13;

type Wait<'a> = &'a dyn Fn(&mut dyn RealDevice, Duration);

/// Executes a wait, which must end before its timeout.
fn in_time(about: &str, device: &mut dyn RealDevice, wait: Wait<'_>) {
    // A due poll timeout of the device is not a lost wake-up.
    let due = device.poll_timeout().map_or(PATIENCE, |due| due.saturating_since(now()));
    let begun = Instant::now();
    wait(device, due.min(PATIENCE));
    assert!(begun.elapsed() < PATIENCE, "{about}: nothing ended the wait; {device:?}");
}

fn by_watch(device: &mut dyn RealDevice, limit: Duration) {
    device.watch().wait(Some(limit)).unwrap();
}

fn by_wait(device: &mut dyn RealDevice, limit: Duration) {
    device.commit_and_wait(u32::MAX, Some(limit)).unwrap();
}

/// The most requests at once, and the most blocks of one.
const REQUESTS: usize = 8;
const BLOCKS: u64 = 16;

/// Submits `count` requests of `blocks` blocks. No two are adjacent.
fn submit(device: &mut dyn RealDevice, op: Op, count: u32, blocks: u64, memory: &mut AlignedBuf) {
    let bytes = blocks * BLOCK;
    for (tag, part) in (0..count).zip(memory.chunks_mut((BLOCKS * BLOCK) as usize)) {
        let extent = Extent::from_bytes(u64::from(tag) * 7 * bytes, bytes).unwrap();
        let memory = [segment(&mut part[..bytes as usize])];
        device.submit(&Io::new(Tag::from_bits(tag), op, extent, &memory), now()).unwrap();
    }
}

/// Zeroed memory for all requests.
fn memory() -> AlignedBuf {
    AlignedBuf::new(REQUESTS * (BLOCKS * BLOCK) as usize).unwrap()
}

fn poll_all(device: &mut dyn RealDevice, about: &str) -> u32 {
    let mut over = 0;
    while let Some(done) = device.poll_completion(now()) {
        assert_eq!(done.result, Ok(()), "{about}");
        over += 1;
    }
    over
}

/// Batches of requests, each until all have completed: poll, commit, wait.
fn batches(device: &mut dyn RealDevice, about: &str, wait: Wait<'_>) {
    let mut memory = memory();
    let depth = device.limits().depth_max;
    // The first batches are small and many, so that the device can measure the speed of its I/O.
    let sizes = [(1, 1), (4, 1), (1, 4), (2, 16), (4, 4), (8, 16)];
    for (count, blocks) in std::iter::repeat_n((8, 1), 8).chain(sizes) {
        let count = depth.min(count);
        for op in [Op::Read, Op::Write] {
            submit(device, op, count, blocks, &mut memory);
            let mut over = 0;
            loop {
                device.commit(now());
                in_time(about, device, wait);
                over += poll_all(device, about);
                if over == count {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_watch_ends_on_a_completion_and_on_an_earlier_one() {
    on_each_device(SECTORS, |rig| batches(&mut *rig.device, rig.name, &by_watch));
}

/// Calls `end_watch` before a wait, during one, several times, and before other requests. The end of a watch is not a
/// completion.
#[test]
fn end_watch_ends_a_watch_and_the_device_continues() {
    on_each_device(SECTORS, |rig| {
        let watch = rig.device.watch();
        for _ in 0..3 {
            rig.device.end_watch();
            rig.device.end_watch();
            in_time(rig.name, &mut *rig.device, &by_watch);
            assert_eq!(poll_all(&mut *rig.device, rig.name), 0, "{}", rig.name);
            let waiting = {
                let watch = Arc::clone(&watch);
                std::thread::spawn(move || {
                    let begun = Instant::now();
                    // A ring that belongs to one thread refuses all other threads.
                    watch.wait(Some(PATIENCE)).map_or(Duration::ZERO, |()| begun.elapsed())
                })
            };
            std::thread::sleep(Duration::from_millis(20));
            rig.device.end_watch();
            assert!(waiting.join().unwrap() < PATIENCE, "{}: the wait does not end", rig.name);
            assert_eq!(
                (poll_all(&mut *rig.device, rig.name), rig.device.in_flight()),
                (0, 0),
                "{}",
                rig.name
            );
            batches(&mut *rig.device, rig.name, &by_watch);
        }
        // Dropped while the end of a watch is in flight.
        rig.device.end_watch();
    });
}

#[test]
fn a_completion_and_an_earlier_one_notify() {
    on_each_device(SECTORS, |rig| {
        let notifier = Notifier::new().unwrap();
        if rig.device.set_notifier(&notifier).is_ok() {
            let by_notifier = |_: &mut dyn RealDevice, limit| {
                notifier.wait(Some(limit)).unwrap();
            };
            batches(&mut *rig.device, rig.name, &by_notifier);
            polled_in_part(&mut *rig.device, rig.name, &by_notifier);
        }
    });
}

#[test]
fn a_completion_that_was_not_polled_ends_the_next_watch() {
    on_each_device(SECTORS, |rig| polled_in_part(&mut *rig.device, rig.name, &by_watch));
}

/// Waits while some earlier completions are not yet polled.
fn polled_in_part(device: &mut dyn RealDevice, about: &str, wait: Wait<'_>) {
    let mut memory = memory();
    for round in 0..40 {
        submit(device, Op::Read, 4, 1, &mut memory);
        // All have completed; in every other round one is polled before the first wait.
        device.commit_and_wait(4, None).unwrap();
        let mut over = u32::from(round % 2 == 0 && device.poll_completion(now()).is_some());
        while over < 4 {
            device.commit(now());
            in_time(about, device, wait);
            over += u32::from(device.poll_completion(now()).is_some());
        }
    }
}

#[test]
fn a_watch_in_progress_ends_with_requests_submitted_meanwhile() {
    type Open = fn(&Arc<File>) -> Option<Box<dyn RealDevice + Send>>;
    let devices: [(&str, Arc<File>, Open); 3] = [
        ("uring, any thread", scratch(SECTORS * 512), |file| {
            let config = UringConfig { depth: DEPTH, pool: None };
            Some(Box::new(Uring::<AnyThread>::new(Arc::clone(file), &limits(file), &config).ok()?))
        }),
        ("threads", scratch(SECTORS * 512), |file| Some(threads(file))),
        ("threads, file in memory", in_memory(SECTORS * 512), |file| Some(threads(file))),
    ];
    for (about, file, open) in devices {
        let Some(mut device) = open(&file) else { continue };
        let mut memory = memory();
        for round in 0..200 {
            let (watch, (tell, told)) = (device.watch(), std::sync::mpsc::channel());
            let waiting = std::thread::spawn(move || {
                tell.send(()).unwrap();
                let begun = Instant::now();
                watch.wait(Some(PATIENCE)).unwrap();
                begun.elapsed()
            });
            told.recv().unwrap();
            if round % 2 == 0 {
                // In most rounds, the other thread waits by now.
                std::thread::sleep(Duration::from_micros(200));
            }
            submit(&mut *device, Op::Read, 1, 1, &mut memory);
            device.commit(now());
            let waited = waiting.join().unwrap();
            assert!(waited < PATIENCE, "{about}: nothing ended the wait in round {round}");
            assert_eq!(poll_all(&mut *device, about), 1, "{about}: round {round}");
        }
    }
}

fn threads(file: &Arc<File>) -> Box<dyn RealDevice + Send> {
    let config = ThreadsConfig { depth: DEPTH, threads_max: 2 };
    Box::new(Threads::new(Arc::clone(file), &limits(file), &config).unwrap())
}

/// Creates a member of a stripe that accepts `depth` requests at once. `None` if the system refuses the kind.
type Member = fn(depth: u32) -> Option<Box<dyn RealDevice>>;

const MEMBERS: &[(&str, Member)] = &[
    ("uring", |depth| {
        let (file, config) = (scratch(SECTORS * 512), UringConfig { depth, pool: None });
        Some(Box::new(Uring::<OneThread>::new(Arc::clone(&file), &limits(&file), &config).ok()?))
    }),
    ("uring, any thread", |depth| {
        let (file, config) = (scratch(SECTORS * 512), UringConfig { depth, pool: None });
        Some(Box::new(Uring::<AnyThread>::new(Arc::clone(&file), &limits(&file), &config).ok()?))
    }),
    ("threads", |depth| Some(threads_member(&scratch(SECTORS * 512), depth))),
    ("threads, file in memory", |depth| Some(quick_member(depth))),
    ("memory", |depth| Some(memory_member(depth))),
    ("null", |depth| {
        Some(Box::new(Null::new(Limits { depth_max: depth, ..memory_member(1).limits().clone() })))
    }),
    ("remote", |depth| {
        let file = in_memory(SECTORS * 512);
        Some(super::remote::open(Arc::clone(&file), &limits(&file), depth))
    }),
    ("mapped, memory", |depth| Some(mapped_member(memory_member(depth)))),
    ("mapped, threads, file in memory", |depth| Some(mapped_member(quick_member(depth)))),
    ("stripe, memory", |depth| Some(stripe(vec![memory_member(depth), memory_member(depth)], 8))),
    ("stripe, threads, files in memory", |depth| {
        Some(stripe(vec![quick_member(depth), quick_member(depth)], 8))
    }),
    ("faulty, memory", |depth| Some(faulty_member(memory_member(depth)))),
    ("faulty, threads, file in memory", |depth| Some(faulty_member(quick_member(depth)))),
];

fn threads_member(file: &Arc<File>, depth: u32) -> Box<dyn RealDevice> {
    let config = ThreadsConfig { depth, threads_max: 2 };
    Box::new(Threads::new(Arc::clone(file), &limits(file), &config).unwrap())
}

fn quick_member(depth: u32) -> Box<dyn RealDevice> {
    threads_member(&in_memory(SECTORS * 512), depth)
}

fn memory_member(depth: u32) -> Box<dyn RealDevice> {
    let config = MemoryConfig { block_bytes: BLOCK as u32, ..MemoryConfig::of_bytes(SECTORS * 512) };
    let disk = MemoryDisk::new(&config).unwrap();
    Box::new(disk.open_with(Limits { depth_max: depth, request_bytes_max: 64 << 10, ..disk.limits() }))
}

/// A mapped file whose first half is a hole.
fn mapped_member(device: Box<dyn RealDevice>) -> Box<dyn RealDevice> {
    let layout = FileLayout {
        block_bytes: BLOCK as u32,
        size_bytes: SECTORS * 512 / 2,
        capacity_bytes: device.limits().capacity * 512,
    };
    let file = FileMap::fresh("indirect", &layout).unwrap();
    Box::new(Mapped::new(device, &file, Boundary::Once).unwrap())
}

/// A device with short transfers that executes requests in random order, each after a delay.
fn faulty_member(device: Box<dyn RealDevice>) -> Box<dyn RealDevice> {
    let faults = Faults::new(1);
    faults.add(Fault::short().one_in(3));
    faults.shuffle(true);
    Box::new(Faulty::new(device, &faults))
}

fn stripe(members: Vec<Box<dyn RealDevice>>, chunk_sectors: u64) -> Box<dyn RealDevice> {
    let config = StripeConfig { chunk_sectors, ..StripeConfig::default() };
    Box::new(Striped::new(members, &config).unwrap())
}

#[test]
fn every_wait_for_a_stripe_of_two_kinds_ends() {
    for (number, (one, open_one)) in MEMBERS.iter().enumerate() {
        for (other, open_other) in &MEMBERS[number..] {
            // If a member accepts fewer requests than an I/O has parts, some parts are submitted while others are
            // polled.
            for depth in [1, 2, DEPTH] {
                for (kind, wait) in [("a wait", &by_wait as Wait<'_>), ("a watch", &by_watch)] {
                    let (Some(first), Some(second)) = (open_one(depth), open_other(depth)) else { continue };
                    let about = format!("{one} and {other}, depth {depth}, {kind}");
                    batches(&mut *stripe(vec![first, second], 8), &about, wait);
                }
            }
        }
    }
}
