//! A stripe of real files: the position of the bytes, the number of requests, and errors of one member. `devices/`
//! tests the contract of all devices, and `iopath-core` tests how requests are split and merged.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;

use iopath_core::{BlockDevice, Extent, Io, IoError, Limits, Op, StripeConfig, StripeError, Tag};
use iopath_os::{
    AlignedBuf, Engine, EngineConfig, Geometry, MemoryConfig, MemoryDisk, RealDevice, Segment, Striped,
    StripedError, limits_of, now,
};

const CHUNK: u64 = 64 << 10;
const MEMBER: u64 = 4 << 20;

type Device = Striped<Box<dyn RealDevice>>;

fn files(count: usize) -> Vec<Arc<File>> {
    let file = || {
        let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        file.set_len(MEMBER).unwrap();
        Arc::new(file)
    };
    (0..count).map(|_| file()).collect()
}

fn limits(file: &File) -> Limits {
    let geometry =
        Geometry { memory_align_bytes: 512, logical_block_bytes: 4096, request_bytes_max: 1 << 20 };
    limits_of(file, &geometry).unwrap()
}

/// A stripe with the engine that `IOPATH_TEST_ENGINE` names.
fn stripe(files: &[Arc<File>]) -> Device {
    let engine = std::env::var("IOPATH_TEST_ENGINE").unwrap_or_else(|_| "auto".to_owned());
    let engine: Engine = engine.parse().unwrap();
    let config = EngineConfig { depth: 32, ..EngineConfig::default() };
    let open = |file: &Arc<File>| engine.open(file, &limits(file), &config).unwrap().device;
    let config = StripeConfig { chunk_sectors: CHUNK / 512, ..StripeConfig::default() };
    Striped::new(files.iter().map(open).collect(), &config).unwrap()
}

fn segment(memory: &mut [u8]) -> Segment {
    // SAFETY: no caller in these tests accesses the memory until the request has completed.
    unsafe { Segment::new(NonNull::from(&mut *memory).cast(), memory.len()) }
}

/// Submits one request for each piece of `memory` from `offset` on, all together. Returns the first error.
fn run(device: &mut Device, op: Op, offset: u64, memory: &mut [u8], piece: usize) -> Result<(), IoError> {
    let mut from = offset;
    let mut tags = 0;
    for part in memory.chunks_mut(piece) {
        let extent = Extent::from_bytes(from, part.len() as u64).unwrap();
        device.submit(&Io::new(Tag::from_bits(tags), op, extent, &[segment(part)]), now()).unwrap();
        (from, tags) = (from + part.len() as u64, tags + 1);
    }
    let mut first = Ok(());
    while device.in_flight() > 0 {
        device.commit_and_wait(tags, None).unwrap();
        while let Some(done) = device.poll_completion(now()) {
            first = first.and(done.result);
        }
    }
    first
}

fn pattern(bytes: usize) -> AlignedBuf {
    let mut buffer = AlignedBuf::new(bytes).unwrap();
    for (index, byte) in buffer.iter_mut().enumerate() {
        *byte = (index / 512 * 31 + index % 251) as u8;
    }
    buffer
}

fn dispatched(device: &Device) -> Vec<u64> {
    device.queue_stats().map(|stats| stats.dispatched).collect()
}

#[test]
fn chunks_lie_on_the_members_in_turn() {
    let files = files(3);
    let mut device = stripe(&files);
    assert_eq!(device.limits().capacity * 512, 3 * MEMBER / CHUNK * CHUNK);
    let mut written = pattern(9 * CHUNK as usize);
    run(&mut device, Op::Write, 2 * CHUNK, &mut written, 12_288).unwrap();
    run(&mut device, Op::Flush, 0, &mut [], 1).unwrap();
    for (number, chunk) in written.chunks(CHUNK as usize).enumerate() {
        let place = number + 2;
        let mut there = vec![0; CHUNK as usize];
        files[place % 3].read_exact_at(&mut there, (place / 3) as u64 * CHUNK).unwrap();
        assert!(there == chunk, "chunk {place}");
    }
    let mut read = AlignedBuf::new(written.len()).unwrap();
    run(&mut device, Op::Read, 2 * CHUNK, &mut read, 20_480).unwrap();
    assert!(read[..] == written[..]);
}

#[test]
fn a_sequential_stream_reaches_each_member_as_large_requests() {
    // One large request, or many small ones. Requests that are submitted together are adjacent on each member.
    for piece in [1 << 20, 64 << 10, 16 << 10, 4 << 10] {
        let files = files(4);
        let mut device = stripe(&files);
        let mut memory = pattern(1 << 20);
        let pieces = memory.len() / piece;
        let mut offset = 0;
        // At most as many as the stripe accepts at once.
        let at_once = pieces.min(64) * piece;
        for part in memory.chunks_mut(at_once) {
            run(&mut device, Op::Write, offset, part, piece).unwrap();
            offset += part.len() as u64;
        }
        let requests = pieces.div_ceil(64) as u64;
        assert_eq!(dispatched(&device), [requests; 4], "in pieces of {piece} bytes");
    }
}

#[test]
fn an_error_of_one_member_is_the_error_of_the_request_and_the_others_continue() {
    let files = files(3);
    let mut device = stripe(&files);
    files[1].set_len(CHUNK).unwrap();
    let mut memory = AlignedBuf::new(6 * CHUNK as usize).unwrap();
    assert_eq!(run(&mut device, Op::Read, 0, &mut memory, 6 * CHUNK as usize), Err(IoError::EndOfDevice));
    // The first chunk of the short member is readable, and so are all chunks of the others.
    for chunk in [0, 1, 2, 3, 5] {
        let part = &mut memory[..CHUNK as usize];
        assert_eq!(run(&mut device, Op::Read, chunk * CHUNK, part, CHUNK as usize), Ok(()), "chunk {chunk}");
    }
    let part = &mut memory[..CHUNK as usize];
    assert_eq!(run(&mut device, Op::Read, 4 * CHUNK, part, CHUNK as usize), Err(IoError::EndOfDevice));
}

#[test]
fn a_request_for_one_member_costs_as_much_as_without_a_stripe() {
    let files = files(4);
    let mut device = stripe(&files);
    let mut memory = AlignedBuf::new(16 << 10).unwrap();
    let calls_for = |device: &mut Device, op, offset, memory: &mut [u8]| {
        let before = device.syscalls();
        run(device, op, offset, memory, 4096).unwrap();
        device.syscalls() - before
    };
    // Read once before, so that the file is in the page cache and threads need not wait for each other.
    calls_for(&mut device, Op::Read, 0, &mut memory);
    let one = calls_for(&mut device, Op::Read, 0, &mut memory);
    let mut memory = AlignedBuf::new(4 * CHUNK as usize).unwrap();
    let four = calls_for(&mut device, Op::Read, 0, &mut memory);
    assert!(one <= 3, "{one} system calls for one request to one member");
    // A submission to each member, a collection from each, and the waits for the notifier.
    assert!(four <= 4 * 5, "{four} system calls for one request to each of four members");
}

#[test]
fn members_of_all_kinds_and_none() {
    let disk = |bytes| MemoryDisk::new(&MemoryConfig::of_bytes(bytes)).unwrap();
    let memory = |bytes| Box::new(disk(bytes).open()) as Box<dyn RealDevice>;
    let files = files(2);
    let config = StripeConfig { chunk_sectors: CHUNK / 512, ..StripeConfig::default() };
    let inner = Striped::new(vec![memory(MEMBER), memory(MEMBER)], &config).unwrap();
    let members: Vec<Box<dyn RealDevice>> = vec![Box::new(stripe(&files)), memory(MEMBER), Box::new(inner)];
    let mut device = Striped::new(members, &config).unwrap();
    let mut written = pattern(1 << 20);
    run(&mut device, Op::Write, 4096, &mut written, 100 << 10).unwrap();
    let mut read = AlignedBuf::new(1 << 20).unwrap();
    run(&mut device, Op::Read, 4096, &mut read, 52 << 10).unwrap();
    assert!(read[..] == written[..]);
    let none = Striped::<Box<dyn RealDevice>>::new(Vec::new(), &config);
    assert!(matches!(none, Err(StripedError::Layout(StripeError::NoMembers))));
}
