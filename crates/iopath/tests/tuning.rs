//! Changes of elevators and settings while I/O runs, and the effect of priorities and streams of single I/Os, on a real
//! file with the engine of `IOPATH_TEST_ENGINE`.

use crate::support::{KIB, filled, keeps_order, options, scratch};
use iopath::elevator::{ELEVATORS, ElevatorSpec};
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{
    AlignedBuf, Batch, BatchOptions, IoMode, Options, Priority, Readahead, Request, Stream, Volume,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicBool, Ordering};

fn spec(text: &str) -> ElevatorSpec {
    text.parse().unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// A random elevator with random settings.
fn random_spec(rng: &mut ChaCha8Rng) -> ElevatorSpec {
    let spec = ElevatorSpec::new(ELEVATORS[rng.random_range(0..ELEVATORS.len())]);
    let set = spec.clone();
    set.tunables().fold(spec, |spec, (tunable, _)| {
        spec.with(tunable.name, rng.random_range(tunable.range.clone())).unwrap()
    })
}

/// Queues a read of a 4 KiB block. The number of the block is the token.
fn read(batch: &mut Batch, block: u64, set: impl FnOnce(Request) -> Request) {
    let buffer = batch.buffer().expect("room for it");
    batch.queue(set(Request::read(buffer, block * 4096).bytes(4 * KIB).token(block))).unwrap();
}

/// The tokens in the order of completion.
fn order(batch: &mut Batch) -> Vec<u64> {
    let mut tokens = Vec::new();
    while let Some(done) = batch.wait().unwrap() {
        assert_eq!(done.result.unwrap(), 4 * KIB);
        tokens.push(done.token);
    }
    tokens
}

#[test]
fn a_batch_full_of_io_loses_and_reorders_nothing_while_its_elevator_changes() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    for seed in 0..4 {
        // Fewer at the device than in the batch: the elevator has requests to order.
        let volume = Volume::open(&path, &options().write(true).depth(2).device_depth(2)).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut changes = 0;
        keeps_order(&volume, seed, |batch, _| {
            changes += 1;
            match rng.random_range(0..8) {
                0 => volume.set_elevator(&spec("none")),
                1 => volume.set_elevator(&random_spec(&mut rng)),
                2 => {
                    for (tunable, _) in volume.elevator().tunables() {
                        volume.set_tunable(tunable.name, rng.random_range(tunable.range.clone())).unwrap();
                    }
                }
                3 => batch.submit(),
                _ => changes -= 1,
            }
        });
        assert!(changes > 500, "seed {seed}: {changes}");
    }
}

#[test]
fn threads_continue_to_read_while_the_elevator_of_the_volume_changes() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    let written = filled(1 << 20, 3);
    volume.write_at(&written, 0).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (volume, stop, written) = (&volume, &stop, &written);
            scope.spawn(move || {
                let mut rng = ChaCha8Rng::seed_from_u64(thread);
                let mut buffer = AlignedBuf::new(16 * KIB).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let start = rng.random_range(0..64) * 16 * KIB;
                    assert_eq!(volume.read_at(&mut buffer, start as u64).unwrap(), 16 * KIB);
                    assert!(buffer[..] == written[start..start + 16 * KIB], "thread {thread} at {start}");
                }
            });
        }
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        for _ in 0..500 {
            let spec = random_spec(&mut rng);
            volume.set_elevator(&spec);
            assert_eq!(volume.elevator().to_string(), spec.to_string());
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_new_elevator_orders_requests_that_are_already_queued() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let volume = Volume::open(&path, &options().depth(1)).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(8, 4 * KIB)).unwrap();
    for block in [100, 60, 20, 80, 40] {
        read(&mut batch, block, |request| request);
    }
    batch.submit();
    std::thread::scope(|scope| {
        scope.spawn(|| volume.set_elevator(&spec("ascend")));
    });
    // The first request was already at the device; the new elevator sorts the others.
    assert_eq!(order(&mut batch), [100, 20, 40, 60, 80]);
    assert_eq!(volume.elevator().name(), "ascend");
}

#[test]
fn an_elevator_and_its_settings_belong_to_the_volume() {
    let Some((_directory, path)) = scratch(64 << 10) else { return };
    let volume = Volume::open(&path, &options().elevator("deadline:fifo_batch=4")).unwrap();
    let mut batches = [(); 2].map(|()| volume.batch(&BatchOptions::new(8, 4 * KIB)).unwrap());
    volume.set_tunable("fifo_batch", 9).unwrap();
    volume.set_tunable("read_expire_ms", 77).unwrap();
    assert_eq!((volume.tunable("fifo_batch").unwrap(), volume.tunable("read_expire_ms").unwrap()), (9, 77));
    assert_eq!(volume.elevator().to_string(), "deadline:read_expire_ms=77,fifo_batch=9");
    for batch in &mut batches {
        read(batch, 1, |request| request);
        assert_eq!(order(batch), [1]);
    }
    assert_eq!(batches[0].stats(), batches[1].stats(), "both have the same queue");
    assert_eq!(batches[0].stats().bios, 2);
}

#[test]
fn an_invalid_setting_is_refused_with_name_value_and_range() {
    let Some((_directory, path)) = scratch(64 << 10) else { return };
    let volume = Volume::open(&path, &options().elevator("deadline")).unwrap();
    let refused = "deadline: fifo_batch=0 is out of range; set 1 to 65535 requests";
    assert_eq!(volume.set_tunable("fifo_batch", 0).unwrap_err().to_string(), refused);
    for unknown in [volume.set_tunable("no_such", 1), volume.tunable("no_such").map(drop)] {
        let unknown = unknown.unwrap_err().to_string();
        assert!(unknown.contains("\"no_such\"; it has: read_expire_ms"), "{unknown}");
    }
    assert_eq!(volume.elevator().to_string(), "deadline", "nothing was changed");
}

/// The maximum number of other reads that complete between the queueing of an urgent read and its completion, in a full
/// batch. No two blocks are adjacent, so each request is one read.
fn completed_before_urgent(mut batch: Batch) -> u32 {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (mut worst, mut waited) = (0, 0);
    let mut urgent = None;
    for step in 0..600 {
        while batch.in_flight() < 63 {
            read(&mut batch, rng.random_range(0..400) * 2, |request| request);
        }
        if urgent.is_none() && step % 5 == 0 {
            let block = 802 + rng.random_range(0..100) * 2;
            read(&mut batch, block, |request| request.priority(Priority::RealTime));
            (urgent, waited) = (Some(block), 0);
        }
        let done = batch.wait().unwrap().expect("some are in flight");
        if Some(done.token) == urgent {
            (urgent, worst) = (None, worst.max(waited));
        } else {
            waited += 1;
        }
    }
    worst
}

#[test]
fn an_urgent_read_is_dispatched_before_waiting_reads() {
    let Some((_directory, path)) = scratch(4 << 20) else { return };
    // Depth 1: only the request that is already at the device may complete first.
    let open =
        |elevator| Volume::open(&path, &options().depth(1).device_depth(1).elevator(elevator)).unwrap();
    let batch = |volume: &Volume| volume.batch(&BatchOptions::new(64, 4 * KIB)).unwrap();
    let deadline = completed_before_urgent(batch(&open("deadline")));
    let none = completed_before_urgent(batch(&open("none")));
    assert!(deadline <= 1, "{deadline} went before an urgent read");
    assert!(none > 30, "{none}: without priorities, the urgent read waits for earlier reads");
}

/// A batch with a descriptor has its own queue. The elevator has requests to order only if few are at the device.
#[test]
fn a_batch_with_a_descriptor_has_the_device_depth_with_an_elevator() {
    let Some((_directory, path)) = scratch(4 << 20) else { return };
    let volume = Volume::open(&path, &options().depth(32).device_depth(1).elevator("deadline")).unwrap();
    let batch = || {
        let mut batch = volume.batch(&BatchOptions::new(64, 4 * KIB)).unwrap();
        batch.completion_fd().unwrap();
        batch
    };
    let earlier = completed_before_urgent(batch());
    assert!(earlier <= 1, "{earlier} went before an urgent read");
    // Also if the elevator comes later.
    volume.set_elevator(&spec("none"));
    let late = batch();
    volume.set_elevator(&spec("deadline"));
    let earlier = completed_before_urgent(late);
    assert!(earlier <= 1, "{earlier} went before an urgent read");
}

#[test]
fn the_priority_of_a_batch_is_the_default_of_its_requests() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let volume = Volume::open(&path, &options().device_depth(1).elevator("deadline")).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(8, 4 * KIB).priority(Priority::Idle)).unwrap();
    for block in [10, 20, 30] {
        read(&mut batch, block, |request| request);
    }
    read(&mut batch, 40, |request| request.priority(Priority::BestEffort));
    assert_eq!(order(&mut batch), [40, 10, 20, 30]);
}

#[test]
fn streams_of_one_batch_share_the_device_by_weight() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let volume = Volume::open(&path, &options().device_depth(1).elevator("fair")).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(32, 4 * KIB)).unwrap();
    volume.set_weight(Stream(1), 300);
    assert_stream_1_gets_three_times_the_share(&mut batch);
}

#[test]
fn a_batch_with_a_descriptor_has_a_queue_of_its_own_with_the_weights_of_the_volume() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let volume = Volume::open(&path, &options().depth(1).elevator("fair")).unwrap();
    volume.set_weight(Stream(1), 300);
    let mut batch = volume.batch(&BatchOptions::new(32, 4 * KIB)).unwrap();
    batch.completion_fd().unwrap();
    assert_stream_1_gets_three_times_the_share(&mut batch);
}

/// Keeps 32 reads of two streams in flight, the second of which has the weight 300.
fn assert_stream_1_gets_three_times_the_share(batch: &mut Batch) {
    let mut completed = [0_u32; 2];
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let mut add = |batch: &mut Batch, stream: u64| {
        let block = rng.random_range(0..60) * 4 + stream;
        read(batch, block, |request| request.stream(Stream(stream as u32)));
    };
    for each in 0..32 {
        add(batch, each % 2);
    }
    for _ in 0..800 {
        let done = batch.wait().unwrap().expect("some are in flight");
        let stream = done.token % 4;
        completed[stream as usize] += 1;
        drop(done);
        add(batch, stream);
    }
    let share = f64::from(completed[1]) / f64::from(completed[0]);
    assert!((2.7..3.3).contains(&share), "{completed:?}");
}

#[test]
fn the_counters_of_every_queue_have_each_bio_once() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    let read = |volume: &Volume, count: u64| {
        let mut block = AlignedBuf::new(4 * KIB).unwrap();
        (0..count).for_each(|number| volume.read_exact_at(&mut block, number * 4096).unwrap());
    };
    let volume = Volume::memory(&disk, &Options::new()).unwrap();
    std::thread::scope(|scope| {
        for count in 1..4 {
            let volume = &volume;
            scope.spawn(move || read(volume, count));
        }
    });
    let stats = volume.queue_stats();
    assert_eq!((stats.cache, stats.shared), (None, None));
    assert!((1..=4).contains(&stats.thread_queues), "{stats:?}");
    assert_eq!((stats.threads.bios, stats.threads.dispatched), (6, 6));
    // The same threads and batches in one queue, after a change of the elevator.
    volume.set_elevator(&spec("deadline"));
    read(&volume, 5);
    let stats = volume.queue_stats();
    assert_eq!(stats.shared.map(|queue| queue.bios), Some(5), "{stats:?}");
    assert_eq!(stats.total().bios, stats.threads.bios + 5);

    let buffered = Options::new().mode(IoMode::Buffered).cache_bytes(1 << 20).readahead(Readahead::Off);
    let volume = Volume::memory(&disk, &buffered).unwrap();
    read(&volume, 2);
    let stats = volume.queue_stats();
    assert_eq!((stats.cache.map(|queue| queue.bios), stats.threads.bios), (Some(2), 0), "{stats:?}");
}
