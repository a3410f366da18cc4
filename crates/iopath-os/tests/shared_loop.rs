//! Threads that share a queue over a loop device, whose requests kernel threads execute. Needs root and losetup.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Alone, Loop};
use iopath_core::{Extent, Op, Priority, QueueConfig, Stream};
use iopath_os::{
    BufferPool, Engine, EngineConfig, Geometry, Job, REQUEST_BYTES, RealDevice, SharedQueue, limits_of,
};

const BYTES: usize = 128 << 10;
const MIB: u64 = 64;

/// Reads in flight of each thread: work for the device while the thread is not scheduled.
const DEPTH: u32 = 256;

/// Keeps reads of `stream` in flight until `stop`.
fn read_until(
    queue: &SharedQueue<dyn RealDevice + Send>,
    stream: u32,
    completed: &AtomicU64,
    stop: &AtomicBool,
) {
    let (mut client, pool) = (queue.client(DEPTH, 32), BufferPool::new(DEPTH, BYTES).unwrap());
    let blocks = (MIB << 20) / BYTES as u64;
    // Every second block, so that no two merge.
    let mut block = u64::from(stream);
    while !stop.load(Ordering::Relaxed) {
        while let Some(buffer) = pool.take() {
            block = (block + 2) % blocks;
            let job = Job {
                op: Op::Read,
                extent: Extent::from_bytes(block * BYTES as u64, BYTES as u64).unwrap(),
                buffer: Some(buffer),
                fua: false,
                stream: Stream(stream),
                priority: Priority::default(),
                token: 0,
            };
            client.queue(job).unwrap();
        }
        client.wait(1).unwrap();
        while let Some(finished) = client.poll_completion() {
            finished.result.unwrap();
            completed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The system may suspend a thread for longer than its reads in flight last: then its stream has nothing queued, and
/// the other one gets its share.
const ATTEMPTS: usize = 4;

#[test]
fn weights_of_one_and_three_divide_a_loop_device_one_to_three() {
    let alone = or_skip!(Alone::wait());
    let device = match Loop::new(&alone, MIB, &[]) {
        Ok(device) => device,
        Err(why) => skip!("no loop device: {why}"),
    };
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&device.device).unwrap();
    let geometry =
        Geometry { memory_align_bytes: 4096, logical_block_bytes: 512, request_bytes_max: REQUEST_BYTES };
    let limits = limits_of(&file, &geometry).unwrap();
    let depth = 2;
    let config = EngineConfig { depth, threads_max: 8, ..EngineConfig::default() };
    let opened = Engine::Auto.open_shared(&Arc::new(file), &limits, &config).unwrap();
    let elevator = "fair".parse().unwrap();
    let config =
        QueueConfig { bios_max: 1024, requests_max: 1024, depth, elevator, ..QueueConfig::default() };
    let queue = SharedQueue::new(opened.device, &config);
    queue.set_weight(Stream(1), 300);
    let shares: Vec<f64> = (0..ATTEMPTS).map(|_| share(&queue)).collect();
    assert!(shares.iter().any(|share| (2.85..3.15).contains(share)), "1 : {shares:.3?}");
}

/// The completed reads of stream 1 for each read of stream 0.
fn share(queue: &SharedQueue<dyn RealDevice + Send>) -> f64 {
    let (stop, completed) = (AtomicBool::new(false), [0, 0].map(AtomicU64::new));
    let counts = || completed.each_ref().map(|count| count.load(Ordering::Relaxed));
    let [first, third] = std::thread::scope(|scope| {
        for (stream, completed) in completed.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || read_until(queue, stream as u32, completed, stop));
        }
        std::thread::sleep(Duration::from_millis(200));
        let before = counts();
        std::thread::sleep(Duration::from_millis(500));
        let after = counts();
        stop.store(true, Ordering::Relaxed);
        [0, 1].map(|stream| (after[stream] - before[stream]) as f64)
    });
    third / first
}
