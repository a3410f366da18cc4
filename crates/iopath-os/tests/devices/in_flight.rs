//! Many requests at once: each completes once, none changes another, and none outlives the device.

use std::fs::File;
use std::sync::Arc;

use iopath_core::{
    Bio, BlockDevice, Extent, Instant, Io, Limits, Op, QueueConfig, RequestQueue, Sector, Tag,
};
use iopath_os::{
    AlignedBuf, AnyThread, PoolBuf, RealDevice, Threads, ThreadsConfig, Uring, UringConfig, now,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::on_each_device;
use super::rig::{BLOCK, DEPTH, limits, pattern, scratch, segment};

const BLOCKS: usize = 256;
const SEEDS: u64 = 4;

/// A request of the random test, from submission to completion.
struct InFlight {
    op: Op,
    blocks: std::ops::Range<usize>,
    buffer: PoolBuf,
}

/// Whole blocks that no request in flight overlaps.
fn free_blocks(rng: &mut StdRng, flying: &[Option<InFlight>]) -> Option<std::ops::Range<usize>> {
    let start = rng.random_range(0..BLOCKS);
    let range = start..(start + rng.random_range(1..=16)).min(BLOCKS);
    let overlaps = |other: &InFlight| other.blocks.start < range.end && range.start < other.blocks.end;
    (!flying.iter().flatten().any(overlaps)).then_some(range)
}

#[test]
fn any_order_of_completion_leaves_the_bytes_of_the_model() {
    on_each_device((BLOCKS as u64) * BLOCK / 512, |rig| {
        for seed in 0..SEEDS {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut model = rig.read(0, BLOCKS * BLOCK as usize).unwrap();
            let mut flying: Vec<Option<InFlight>> = (0..DEPTH).map(|_| None).collect();
            let mut left = 600;
            while left > 0 || flying.iter().any(Option::is_some) {
                while left > 0 && rng.random_range(0..8) > 0 {
                    let Some(tag) = flying.iter().position(Option::is_none) else { break };
                    let Some(blocks) = free_blocks(&mut rng, &flying) else { continue };
                    let mut buffer = rig.pool.take().unwrap();
                    let op = if rng.random() { Op::Write } else { Op::Read };
                    let (offset, bytes) = (blocks.start as u64 * BLOCK, blocks.len() as u64 * BLOCK);
                    if op == Op::Write {
                        let data = pattern(bytes as usize, rng.random());
                        buffer[..data.len()].copy_from_slice(&data);
                        model[offset as usize..][..data.len()].copy_from_slice(&data);
                    }
                    // SAFETY: the buffer is in `flying` until the request has completed.
                    let memory = unsafe { buffer.segment() };
                    let memory = [iopath_core::Memory::slice(memory, 0, bytes)];
                    let extent = Extent::from_bytes(offset, bytes).unwrap();
                    let io = Io::new(Tag::from_bits(tag as u32), op, extent, &memory);
                    rig.device.submit(&io, now()).expect("a free tag is a free slot");
                    flying[tag] = Some(InFlight { op, blocks, buffer });
                    left -= 1;
                }
                rig.device.commit_and_wait(rng.random_range(0..4), None).unwrap();
                while let Some(done) = rig.device.poll_completion(now()) {
                    let over = flying[done.tag.index()].take().expect("each completes once");
                    assert_eq!(done.result, Ok(()), "{}: seed {seed}", rig.name);
                    if over.op == Op::Read {
                        let range = over.blocks.start * BLOCK as usize..over.blocks.end * BLOCK as usize;
                        let same = over.buffer[..range.len()] == model[range];
                        assert!(same, "{}: seed {seed}: {:?} differ", rig.name, over.blocks);
                    }
                }
            }
            assert!(rig.read(0, model.len()).as_ref() == Ok(&model), "{}: seed {seed}", rig.name);
        }
    });
}

#[test]
fn accepts_no_more_requests_than_its_depth() {
    on_each_device(1 << 14, |rig| {
        let depth = rig.device.limits().depth_max;
        let mut memory = AlignedBuf::new(4096).unwrap();
        let memory = [segment(&mut memory)];
        let extent = |tag| Extent::from_bytes(u64::from(tag) << 12, 4096).unwrap();
        let io = |tag| Io::new(Tag::from_bits(tag), Op::Write, extent(tag), &memory);
        for tag in 0..depth {
            assert!(rig.device.submit(&io(tag), now()).is_ok(), "{}: {tag} of {depth}", rig.name);
        }
        let busy = rig.device.submit(&io(depth), now()).expect_err("one more than its depth");
        let text = format!("{:?}", rig.device);
        assert!(
            text.len() <= 1024,
            "{} prints {} bytes when it is full: {text:.1024}…",
            rig.name,
            text.len()
        );
        assert_eq!((busy.tag.to_bits(), rig.device.in_flight()), (depth, depth), "{}", rig.name);
        let mut tags: Vec<u32> = (0..depth).map(|_| rig.wait_for_one().tag.to_bits()).collect();
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..depth), "{}: each once", rig.name);
        assert_eq!(rig.device.in_flight(), 0, "{}", rig.name);
    });
}

#[test]
fn a_dropped_device_accesses_no_memory_afterwards() {
    on_each_device(1 << 15, |rig| {
        let mut memory: Vec<AlignedBuf> = (0..16).map(|_| AlignedBuf::new(1 << 20).unwrap()).collect();
        let extent = |number| Extent::from_bytes(number << 20, 1 << 20).unwrap();
        for (number, buffer) in (0..16).zip(&mut memory) {
            let memory = [segment(buffer)];
            let io = Io::new(Tag::from_bits(number), Op::Read, extent(u64::from(number)), &memory);
            rig.device.submit(&io, now()).unwrap();
            if number == 11 {
                rig.device.commit(now()); // The last four are never submitted.
            }
        }
        let null = iopath_os::Null::new(Limits::with_capacity(0));
        drop(std::mem::replace(&mut rig.device, Box::new(null)));
        for buffer in &mut memory {
            buffer.fill(0x5a);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        let untouched = memory.iter().all(|buffer| buffer.iter().all(|&byte| byte == 0x5a));
        assert!(untouched, "{}: written after the device was dropped", rig.name);
    });
}

#[test]
fn a_loop_that_only_polls_gets_everything() {
    on_each_device(256, |rig| {
        let mut memory = AlignedBuf::new(4096).unwrap();
        let memory = [segment(&mut memory)];
        for tag in 0..8 {
            let extent = Extent::from_bytes(u64::from(tag) << 12, 4096).unwrap();
            rig.device.submit(&Io::new(Tag::from_bits(tag), Op::Write, extent, &memory), now()).unwrap();
        }
        rig.device.commit(now());
        let mut over = 0;
        let given_up = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while over < 8 {
            assert!(std::time::Instant::now() < given_up, "{}: {over} of 8", rig.name);
            over += u32::from(rig.device.poll_completion(now()).is_some());
        }
    });
}

#[test]
fn a_wait_without_io_in_flight_returns_and_a_timeout_ends_a_wait() {
    on_each_device(256, |rig| {
        rig.device.commit_and_wait(5, None).unwrap();
        let mut memory = AlignedBuf::new(4096).unwrap();
        let memory = [segment(&mut memory)];
        let io = Io::new(Tag::from_bits(0), Op::Read, Extent::from_bytes(0, 4096).unwrap(), &memory);
        rig.device.submit(&io, now()).unwrap();
        rig.device.commit_and_wait(1, Some(std::time::Duration::from_nanos(1))).unwrap();
        assert_eq!(rig.wait_for_one().result, Ok(()), "{}", rig.name);
    });
}

#[test]
fn a_batch_on_a_ring_is_one_system_call() {
    let file = scratch(1 << 20);
    let limits = limits(&file);
    let config = UringConfig { depth: DEPTH, pool: None };
    let Ok(mut device) = Uring::<iopath_os::OneThread>::new(file, &limits, &config) else {
        eprintln!("skipped: io_uring is refused here");
        return;
    };
    let mut memory: Vec<AlignedBuf> = (0..16).map(|_| AlignedBuf::new(4096).unwrap()).collect();
    let mut queue = RequestQueue::new(device.limits().clone(), &QueueConfig::default());
    queue.plug();
    for (block, buffer) in memory.iter_mut().enumerate() {
        // Every other block, so that no two merge.
        let extent = Extent::new(Sector(block as u64 * 16), 8).unwrap();
        queue.submit_bio(Bio::read(extent, segment(buffer), block as u64), Instant::ZERO).unwrap();
    }
    queue.unplug(Instant::ZERO);
    while let Some(io) = queue.poll_dispatch(Instant::ZERO) {
        device.submit(&io, Instant::ZERO).unwrap();
    }
    device.commit_and_wait(16, None).unwrap();
    let over = std::iter::from_fn(|| device.poll_completion(Instant::ZERO)).count();
    assert_eq!((over, device.syscalls()), (16, 1));
}

#[test]
fn devices_for_any_thread_cross_threads_with_requests_in_flight() {
    type Open = fn(Arc<File>, &Limits) -> Option<Box<dyn RealDevice + Send>>;
    let open: [Open; 2] = [
        |file, limits| {
            let config = UringConfig { depth: DEPTH, pool: None };
            Some(Box::new(Uring::<AnyThread>::new(file, limits, &config).ok()?))
        },
        |file, limits| {
            let config = ThreadsConfig { depth: DEPTH, threads_max: 2 };
            Some(Box::new(Threads::new(file, limits, &config).ok()?))
        },
    ];
    for open in open {
        let file = scratch(1 << 20);
        let limits = limits(&file);
        let Some(mut device) = open(file, &limits) else { continue };
        let mut memory = AlignedBuf::new(16 << 12).unwrap();
        let all = segment(&mut memory);
        let submitted = std::thread::spawn(move || {
            for block in 0..16 {
                let part = [iopath_core::Memory::slice(all, block << 12, 4096)];
                let extent = Extent::from_bytes(block << 13, 4096).unwrap();
                device
                    .submit(&Io::new(Tag::from_bits(block as u32), Op::Read, extent, &part), now())
                    .unwrap();
            }
            device.commit(now());
            device
        });
        let mut device = submitted.join().unwrap();
        let mut over = 0;
        while over < 16 {
            device.commit_and_wait(1, None).unwrap();
            while let Some(done) = device.poll_completion(now()) {
                assert_eq!(done.result, Ok(()));
                over += 1;
            }
        }
    }
}
