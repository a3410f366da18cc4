//! Batches on buffers of the caller: each type, on each kind of volume, compared with an array of bytes; without a copy
//! where the buffers are aligned; and owned by the batch until the device has completed.

use crate::support::{options, scratch};
use iopath::batch::AnyThread;
use iopath::buffers::AnyBuf;
use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{
    AlignedBuf, Batch, BatchOptions, BufferPool, ErrorKind, IoBuf, IoMode, Op, Options, Request, Unaligned,
    Volume,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

const BYTES: usize = 1 << 18;
const BLOCK: usize = 4096;

fn memory(options: &Options) -> Volume {
    let config = MemoryConfig { memory_align_bytes: 512, ..MemoryConfig::of_bytes(BYTES as u64) };
    Volume::memory(&MemoryDisk::new(&config).unwrap(), options).unwrap()
}

/// A volume of each kind, in memory and on a file, and whether it accepts unaligned requests.
fn each(mut check: impl FnMut(&str, &Volume, bool)) {
    let direct = options().write(true).cache_bytes(1 << 17);
    let kinds = [
        ("direct", direct.clone(), false),
        ("raw", direct.clone().mode(IoMode::Raw), false),
        ("shared queue", direct.clone().elevator("deadline"), false),
        ("bounced", direct.clone().unaligned(Unaligned::Bounce), true),
        ("bounced, shared queue", direct.clone().unaligned(Unaligned::Bounce).elevator("ascend"), true),
        ("buffered", direct.clone().mode(IoMode::Buffered), true),
        ("beside a page cache", direct.unaligned(Unaligned::Buffered), false),
    ];
    for (name, options, is_any) in kinds {
        check(&format!("{name}, memory"), &memory(&options), is_any);
        if let Some((_directory, path)) = scratch(BYTES as u64) {
            check(&format!("{name}, file"), &Volume::open(&path, &options).unwrap(), is_any);
        }
    }
}

/// A buffer for a read of at most `bytes` bytes; not every one of its bytes is initialised.
fn for_read(rng: &mut ChaCha8Rng, bytes: usize, is_any: bool) -> AnyBuf {
    match if is_any { rng.random_range(0..3) } else { 0 } {
        0 => AnyBuf::new(AlignedBuf::new(bytes).unwrap()),
        1 => AnyBuf::new(Vec::with_capacity(bytes)),
        _ => AnyBuf::new(vec![0xEE; bytes].into_boxed_slice()),
    }
}

fn for_write(rng: &mut ChaCha8Rng, bytes: &[u8], is_any: bool) -> AnyBuf {
    match if is_any { rng.random_range(0..3) } else { 0 } {
        0 => {
            let mut aligned = AlignedBuf::new(bytes.len()).unwrap();
            aligned.copy_from_slice(bytes);
            AnyBuf::new(aligned)
        }
        1 => AnyBuf::new(bytes.to_vec()),
        _ => AnyBuf::new(Arc::<[u8]>::from(bytes)),
    }
}

/// The bytes of a buffer, whichever type it has.
fn bytes_of(buffer: AnyBuf) -> Vec<u8> {
    let buffer = match buffer.downcast::<AlignedBuf>() {
        Ok(aligned) => return aligned.to_vec(),
        Err(buffer) => buffer,
    };
    match buffer.downcast::<Vec<u8>>() {
        Ok(bytes) => bytes,
        Err(buffer) => buffer.downcast::<Box<[u8]>>().unwrap().into_vec(),
    }
}

/// Random requests in flight together; overlapping ones are executed in their order.
fn agrees_with_an_array(name: &str, volume: &Volume, is_any: bool, seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut batch: Batch<AnyThread, AnyBuf> = volume.batch_of(&BatchOptions::new(8, 0)).unwrap();
    let mut model = vec![0; BYTES];
    volume.write_zeroes(0, BYTES as u64).unwrap();
    let mut expected = std::collections::BTreeMap::new();
    let check = |batch: &mut Batch<AnyThread, AnyBuf>,
                 expected: &mut std::collections::BTreeMap<u64, Vec<u8>>| {
        let done = batch.wait().unwrap().expect("some are in flight");
        let context = format!("{name}, seed {seed}, request {}", done.token);
        let bytes = done.result.unwrap_or_else(|error| panic!("{context}: {error}"));
        let buffer = done.buffer.expect("each request has a buffer");
        if let Some(expected) = expected.remove(&done.token) {
            assert_eq!(bytes, expected.len(), "{context}");
            assert!(bytes_of(buffer)[..bytes] == expected, "{context}");
        }
    };
    for token in 0..400 {
        while batch.in_flight() >= 8 {
            check(&mut batch, &mut expected);
        }
        let unit = if is_any && rng.random_bool(0.7) { 1 } else { BLOCK };
        let start = rng.random_range(0..BYTES / unit) * unit;
        let bytes = rng.random_range(1..=(4 * BLOCK / unit).min((BYTES - start) / unit)) * unit;
        let (offset, range) = (start as u64, start..start + bytes);
        let queued = if rng.random_bool(0.5) {
            let mut written = vec![0; bytes];
            rng.fill(&mut written[..]);
            model[range].copy_from_slice(&written);
            batch.queue(Request::write_from(for_write(&mut rng, &written, is_any), offset).token(token))
        } else {
            expected.insert(token, model[range].to_vec());
            let buffer = for_read(&mut rng, bytes, is_any);
            batch.queue(Request::read_into(buffer, offset).bytes(bytes).token(token))
        };
        queued.unwrap_or_else(|refused| panic!("{name}, seed {seed}, request {token}: {refused}"));
    }
    while batch.in_flight() > 0 {
        check(&mut batch, &mut expected);
    }
    assert!(expected.is_empty());
    assert!(batch.wait().unwrap().is_none());
}

#[test]
fn random_requests_on_buffers_of_each_type_agree_with_an_array_of_bytes() {
    each(|name, volume, is_any| (0..3).for_each(|seed| agrees_with_an_array(name, volume, is_any, seed)));
}

#[test]
fn aligned_buffers_are_transferred_without_a_copy_and_returned() {
    each(|name, volume, _| {
        let mut batch: Batch<AnyThread, AlignedBuf> = volume.batch_of(&BatchOptions::new(2, 0)).unwrap();
        let mut buffer = AlignedBuf::new(4 * BLOCK).unwrap();
        buffer.fill(7);
        let address = buffer.start();
        batch.queue(Request::write_from(buffer, 0)).unwrap();
        let done = batch.wait().unwrap().unwrap();
        assert_eq!(done.result.unwrap(), 4 * BLOCK, "{name}");
        let mut buffer = done.buffer.unwrap();
        buffer.fill(0);
        batch.queue(Request::read_into(buffer, 0).token(5)).unwrap();
        let done = batch.wait().unwrap().unwrap();
        assert_eq!((done.token, done.result.unwrap()), (5, 4 * BLOCK), "{name}");
        let buffer = done.buffer.unwrap();
        assert!(buffer.start() == address && buffer.iter().all(|byte| *byte == 7), "{name}");
        assert_eq!(batch.bounced(), 0, "{name}");
        assert_eq!(batch.in_flight(), 0);
    });
}

#[test]
fn unaligned_memory_is_refused_with_its_buffer_or_bounced() {
    let aligned_4096 = MemoryConfig { memory_align_bytes: 4096, ..MemoryConfig::of_bytes(BYTES as u64) };
    let disk = MemoryDisk::new(&aligned_4096).unwrap();
    // Of two vectors in a row, at most one starts on a page.
    let unaligned = || {
        let candidates = [Vec::with_capacity(600), Vec::with_capacity(600)];
        candidates.into_iter().find(|bytes: &Vec<u8>| !bytes.as_ptr().addr().is_multiple_of(4096)).unwrap()
    };
    let direct = Options::new().write(true);
    let volume = Volume::memory(&disk, &direct).unwrap();
    let mut batch = volume.batch_of::<Vec<u8>>(&BatchOptions::new(2, 0)).unwrap();
    let refused = batch.queue(Request::read_into(unaligned(), 512).bytes(512)).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::UnalignedMemory { align_bytes: 4096 });
    assert_eq!(refused.buffer.map(|buffer| buffer.capacity()), Some(600));
    let volume = Volume::memory(&disk, &direct.unaligned(Unaligned::Bounce)).unwrap();
    volume.write_at(&[3; 512], 512).unwrap();
    let mut batch = volume.batch_of::<Vec<u8>>(&BatchOptions::new(2, 0)).unwrap();
    batch.queue(Request::read_into(unaligned(), 512).bytes(512)).unwrap();
    let done = batch.wait().unwrap().unwrap();
    assert_eq!((done.result.unwrap(), done.buffer.unwrap()), (512, vec![3; 512]));
    assert_eq!(batch.bounced(), 1);
}

#[test]
fn a_request_longer_than_its_buffer_is_refused_with_it() {
    each(|name, volume, _| {
        let mut batch: Batch<AnyThread, AnyBuf> = volume.batch_of(&BatchOptions::new(2, 0)).unwrap();
        let read = Request::read_into(AnyBuf::new(AlignedBuf::new(BLOCK).unwrap()), 0).bytes(2 * BLOCK);
        let write = Request::write_from(AnyBuf::new(AlignedBuf::new(BLOCK).unwrap()), 0).bytes(2 * BLOCK);
        let only_written =
            Request::read_into(AnyBuf::new(Arc::<[u8]>::from(&[0; BLOCK][..])), 0).bytes(BLOCK);
        for request in [read, write, only_written] {
            let op = format!("{name}: {request:?}");
            let refused = batch.queue(request).unwrap_err();
            assert!(
                matches!(
                    refused.error.kind(),
                    ErrorKind::BufferTooSmall { .. } | ErrorKind::UnalignedMemory { .. }
                ),
                "{op}: {refused}"
            );
            assert!(refused.buffer.is_some(), "{op}");
        }
        assert_eq!(batch.in_flight(), 0, "{name}");
    });
}

#[test]
fn a_read_at_the_end_initialises_only_the_bytes_before_it() {
    let volume = memory(&Options::new().write(true).mode(IoMode::Buffered).cache_bytes(1 << 17));
    volume.resize(1000).unwrap();
    let mut batch = volume.batch_of::<Vec<u8>>(&BatchOptions::new(2, 0)).unwrap();
    batch.queue(Request::read_into(Vec::with_capacity(500), 900)).unwrap();
    let done = batch.wait().unwrap().unwrap();
    assert_eq!((done.result.unwrap(), done.buffer.unwrap().len()), (100, 100));
}

/// Drops batches with writes and reads in flight, and uses their memory again at once. The kernel must neither read nor
/// write it then: each page on the medium has the bytes of one write, and the memory keeps what the program writes.
#[test]
fn a_dropped_batch_releases_no_memory_that_the_kernel_uses() {
    const PAGES: u32 = 16;
    let Some((_directory, path)) = scratch(BYTES as u64) else { return };
    for options in [options(), options().engine(iopath::Engine::Threads), options().elevator("deadline")] {
        let volume = Volume::open(&path, &options.write(true).depth(PAGES)).unwrap();
        let pool = BufferPool::new(PAGES, BLOCK).unwrap();
        let take = |byte: u8| {
            let mut buffer = pool.take().expect("the dropped batch has released all");
            buffer.fill(byte);
            buffer
        };
        for round in 1..40_u8 {
            let mut batch = volume.batch(&BatchOptions::new(PAGES, 0).pool(&pool)).unwrap();
            for page in 0..PAGES {
                batch.queue(Request::write(take(round), u64::from(page) * BLOCK as u64)).unwrap();
            }
            batch.submit();
            drop(batch);
            let mut batch = volume.batch(&BatchOptions::new(PAGES, 0).pool(&pool)).unwrap();
            for page in 0..PAGES {
                batch.queue(Request::read(take(0), u64::from(page) * BLOCK as u64)).unwrap();
            }
            batch.submit();
            drop(batch);
            let buffers: Vec<_> = (0..PAGES).map(|_| take(0xAA)).collect();
            let mut page = AlignedBuf::new(BLOCK).unwrap();
            for number in 0..PAGES {
                volume.read_exact_at(&mut page, u64::from(number) * BLOCK as u64).unwrap();
                assert!(page.iter().all(|byte| *byte == round), "round {round}, page {number}: {}", page[0]);
            }
            assert!(buffers.iter().all(|buffer| buffer.iter().all(|byte| *byte == 0xAA)), "round {round}");
        }
    }
}

/// The same memory of other owners, with requests that the device has not begun.
#[test]
fn a_dropped_batch_drops_the_buffers_of_all_its_requests() {
    for options in
        [Options::new(), Options::new().elevator("deadline"), Options::new().unaligned(Unaligned::Bounce)]
    {
        let faults = Faults::new(1);
        let volume = memory(&options.write(true).faults(&faults));
        faults.add(Fault::stuck().on(Op::Write));
        let bytes: Arc<[u8]> = Arc::from(&[5; BLOCK][..]);
        let pool = BufferPool::new(1, BLOCK).unwrap();
        let mut batch: Batch<AnyThread, AnyBuf> = volume.batch_of(&BatchOptions::new(2, 0)).unwrap();
        batch.queue(Request::write_from(AnyBuf::new(pool.take().unwrap()), 0)).unwrap();
        let shared = Request::write_from(AnyBuf::new(Arc::clone(&bytes)), BLOCK as u64);
        // Its memory may be unaligned.
        let is_queued = batch.queue(shared).is_ok();
        batch.submit();
        assert!(pool.take().is_none());
        assert_eq!(Arc::strong_count(&bytes), if is_queued { 2 } else { 1 });
        let dropped = std::thread::spawn(move || drop(batch));
        faults.stop();
        dropped.join().unwrap();
        assert_eq!((pool.take().is_some(), Arc::strong_count(&bytes)), (true, 1));
    }
}

#[test]
fn one_pool_serves_batches_of_several_volumes_and_threads() {
    let pool = BufferPool::on_first_use(4, BLOCK).unwrap();
    let volumes = [memory(&Options::new().write(true)), memory(&Options::new().write(true))];
    let (directory, path) = match scratch(BYTES as u64) {
        Some((directory, path)) => (Some(directory), Some(path)),
        None => (None, None),
    };
    let file = path.map(|path| Volume::open(&path, &options().write(true)).unwrap());
    let mut numbers = std::collections::BTreeSet::new();
    std::thread::scope(|scope| {
        for (volume, byte) in volumes.iter().chain(&file).zip(1_u8..) {
            let pool = pool.clone();
            scope.spawn(move || {
                let mut batch = volume.batch(&BatchOptions::new(1, 0).pool(&pool)).unwrap();
                let mut buffer = loop {
                    match batch.buffer() {
                        Some(buffer) => break buffer,
                        None => std::thread::yield_now(),
                    }
                };
                buffer.fill(byte);
                batch.queue(Request::write(buffer, 0)).unwrap();
                let done = batch.wait().unwrap().unwrap();
                assert_eq!(done.result.unwrap(), BLOCK);
            });
        }
    });
    // A buffer that one batch has read is written by another.
    let mut first = volumes[0].batch(&BatchOptions::new(1, 0).pool(&pool)).unwrap();
    let mut second = volumes[1].batch(&BatchOptions::new(1, 0).pool(&pool)).unwrap();
    first.queue(Request::read(first.buffer().unwrap(), 0)).unwrap();
    let buffer = first.wait().unwrap().unwrap().buffer.unwrap();
    numbers.insert(buffer.number());
    second.queue(Request::write(buffer, BLOCK as u64)).unwrap();
    let buffer = second.wait().unwrap().unwrap().buffer.unwrap();
    numbers.insert(buffer.number());
    assert_eq!(numbers.len(), 1, "it is the same buffer");
    let mut block = AlignedBuf::new(BLOCK).unwrap();
    volumes[1].read_exact_at(&mut block, BLOCK as u64).unwrap();
    assert!(block.iter().all(|byte| *byte == 1));
    drop(directory);
}

/// A batch and other threads write parts of the same blocks, each its own bytes.
#[test]
fn bounced_writes_of_batches_and_threads_to_one_block_are_all_kept() {
    let volume = memory(&Options::new().write(true).unaligned(Unaligned::Bounce));
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let volume = volume.clone();
            scope.spawn(move || {
                let mut batch = volume.batch_of::<Vec<u8>>(&BatchOptions::new(4, 0)).unwrap();
                for place in (thread * 4..8192).step_by(16) {
                    if thread % 2 == 0 {
                        volume.write_at(&[thread as u8 + 1; 4], place as u64).unwrap();
                        continue;
                    }
                    let request = Request::write_from(vec![thread as u8 + 1; 4], place as u64);
                    batch.queue(request).unwrap();
                    // Whole blocks beside: their locks are held until they are reaped.
                    let far = (16384 + thread * 8192) as u64;
                    batch.queue(Request::write_from(vec![7; 512], far)).unwrap();
                    while batch.wait().unwrap().is_some_and(|done| done.result.is_ok()) {}
                }
            });
        }
    });
    let mut bytes = vec![0; 8192];
    volume.read_exact_at(&mut bytes, 0).unwrap();
    for (place, byte) in bytes.iter().enumerate() {
        assert_eq!(usize::from(*byte), place / 4 % 4 + 1, "byte {place}");
    }
}

#[test]
fn overlapping_bounced_writes_of_one_batch_need_no_reaping_between() {
    let volume = memory(&Options::new().write(true).unaligned(Unaligned::Bounce));
    let mut batch = volume.batch_of::<Vec<u8>>(&BatchOptions::new(8, 0)).unwrap();
    for (token, byte) in (1..=6_u8).enumerate() {
        let bytes = if byte % 2 == 0 { 100 } else { 1024 };
        batch.queue(Request::write_from(vec![byte; bytes], 0).token(token as u64)).unwrap();
    }
    let mut completed = 0;
    while let Some(done) = batch.wait().unwrap() {
        done.result.unwrap();
        completed += 1;
    }
    let mut bytes = vec![0; 1024];
    volume.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((completed, bytes[99], bytes[100], bytes[1023]), (6, 6, 5, 5));
}

#[test]
fn an_event_loop_is_notified_of_a_bounced_write_that_was_executed_at_once() {
    let volume = memory(&Options::new().write(true).unaligned(Unaligned::Bounce));
    let mut batch = volume.batch_of::<Vec<u8>>(&BatchOptions::new(8, 0)).unwrap();
    let _descriptor = batch.completion_fd().unwrap();
    batch.queue(Request::write_from(vec![1; 3], 5)).unwrap();
    assert_eq!(batch.next_timeout(), Some(Duration::ZERO));
    assert_eq!(batch.poll().map(|done| done.result.unwrap()), Some(3));
    assert_eq!((batch.next_timeout(), batch.in_flight()), (None, 0));
    let mut buffer = Vec::with_capacity(4);
    assert_eq!(buffer.init_bytes(), 0);
    buffer.extend_from_slice(&[0; 4]);
    volume.read_exact_at(&mut buffer, 4).unwrap();
    assert_eq!(buffer, [0, 1, 1, 1]);
}

#[cfg(feature = "bytes")]
#[test]
fn buffers_of_the_crate_bytes_are_written_and_read() {
    use bytes::{Bytes, BytesMut};
    each(|name, volume, is_any| {
        if !is_any {
            return;
        }
        let mut batch: Batch<AnyThread, AnyBuf> = volume.batch_of(&BatchOptions::new(2, 0)).unwrap();
        let shared = Bytes::from(vec![4; 3000]);
        // One byte into its allocation: no alignment.
        batch.queue(Request::write_from(AnyBuf::new(shared.slice(1..)), 77)).unwrap();
        batch.wait().unwrap().unwrap().result.unwrap();
        batch.queue(Request::read_into(AnyBuf::new(BytesMut::with_capacity(2999)), 77).bytes(2999)).unwrap();
        let done = batch.wait().unwrap().unwrap();
        assert_eq!(done.buffer.unwrap().downcast::<BytesMut>().unwrap(), &shared[1..], "{name}");
    });
}

#[test]
fn bounced_batches_that_write_the_same_blocks_in_opposite_order_do_not_wait_for_each_other() {
    const FAR: u64 = 1 << 16;
    let volume = memory(&options().write(true).unaligned(Unaligned::Bounce));
    let have_queued = Arc::new(Barrier::new(2));
    let (end, ended) = mpsc::channel();
    for order in [[0, FAR], [FAR, 0]] {
        let (volume, have_queued, end) = (volume.clone(), Arc::clone(&have_queued), end.clone());
        std::thread::spawn(move || {
            let mut batch = volume.batch(&BatchOptions::new(2, BLOCK)).unwrap();
            batch.queue(Request::write(batch.buffer().unwrap(), order[0])).unwrap();
            have_queued.wait();
            batch.queue(Request::write(batch.buffer().unwrap(), order[1])).unwrap();
            let done = std::iter::from_fn(|| batch.wait().unwrap());
            end.send(done.filter(|done| done.result.is_ok()).count()).unwrap();
        });
    }
    for _ in 0..2 {
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(2), "the batches wait for each other");
    }
}

#[test]
fn buffers_without_a_byte_are_returned() {
    each(|name, volume, is_any| {
        let mut batch = volume.batch_of::<AnyBuf>(&BatchOptions::new(4, 0)).unwrap();
        for offset in [0, 1, BYTES as u64] {
            let is_taken = is_any || offset != 1;
            let requests = [
                Request::read_into(AnyBuf::new(Vec::new()), offset),
                Request::read_into(AnyBuf::new(Vec::new().into_boxed_slice()), offset),
                Request::write_from(AnyBuf::new(Vec::new()), offset),
                Request::write_from(AnyBuf::new(&b""[..]), offset),
            ];
            for request in requests {
                let what = format!("{name}: {request:?}");
                let (result, buffer) = match batch.queue(request) {
                    Ok(()) => batch.wait().unwrap().map(|done| (done.result, done.buffer)).unwrap(),
                    Err(refused) => (Err(refused.error), refused.buffer),
                };
                assert!(buffer.is_some(), "{what}");
                assert_eq!(result.ok(), is_taken.then_some(0), "{what}");
            }
        }
        assert_eq!(batch.in_flight(), 0, "{name}");
    });
}
