//! Batches through the page cache: on every source, any offset and length, in order, beside direct and blocking I/O.

use crate::support::{filled, options, scratch};
use iopath::mapped::{FileLayout, FileMap};
use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{
    AlignedBuf, BatchOptions, Engine, ErrorKind, IoError, IoMode, Op, OpenError, Options, Request, Unaligned,
    Volume,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

const PAGE: usize = 4096;
const SIZE: usize = 40 * PAGE;

fn buffered(options: Options) -> Options {
    options.mode(IoMode::Buffered).cache_bytes(16 * PAGE as u64).write(true)
}

fn memory(options: &Options) -> Volume {
    let config = MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(SIZE as u64) };
    Volume::memory(&MemoryDisk::new(&config).unwrap(), options).unwrap()
}

/// A buffered volume of `SIZE` zeroes on each kind of source, and on each engine.
fn each(mut check: impl FnMut(&str, &Volume)) {
    for engine in [Engine::Uring, Engine::Threads] {
        // The last page is cut off inside a block.
        let Some((directory, path)) = scratch(SIZE as u64) else { break };
        match Volume::open(&path, &buffered(options()).engine(engine)) {
            Ok(volume) => check("file", &volume),
            Err(error) => eprintln!("skipped: {error}"),
        }
        let other = directory.path().join("other");
        std::fs::copy(&path, &other).unwrap();
        let paths = [&path, &other];
        match Volume::open_stripe(&paths, PAGE as u64, &buffered(options()).engine(engine)) {
            Ok(volume) => check("stripe", &volume),
            Err(error) => eprintln!("skipped: {error}"),
        }
    }
    check("memory", &memory(&buffered(Options::new())));
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    let layout = FileLayout { block_bytes: 4096, size_bytes: SIZE as u64, capacity_bytes: 1 << 20 };
    let file = FileMap::fresh("extent", &layout).unwrap();
    check("mapped", &Volume::memory_mapped(&disk, &file, &buffered(Options::new())).unwrap());
}

/// Random requests in order, against an array of bytes.
fn compare(name: &str, volume: &Volume, seed: u64, rounds: u32) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut model = vec![0; SIZE];
    volume.write_at(&model, 0).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(8, 4 * PAGE).gather(2).plug(3)).unwrap();
    assert!(batch.is_buffered());
    let (mut expected, mut next) = (BTreeMap::new(), 0);
    for _ in 0..rounds {
        while batch.in_flight() < 8 {
            let mut buffer = batch.buffer().unwrap();
            let offset = random.random_range(0..SIZE);
            let bytes = random.random_range(0..=(SIZE - offset).min(4 * PAGE));
            next += 1;
            let request = match random.random_range(0..12) {
                0 => Request::flush(),
                1 => {
                    model[offset..offset + bytes].fill(0);
                    Request::write_zeroes(offset as u64, bytes as u64)
                }
                2..6 => {
                    let value = random.random();
                    buffer[..bytes].fill(value);
                    model[offset..offset + bytes].fill(value);
                    let is_durable = random.random_bool(0.1);
                    Request::write(buffer, offset as u64).bytes(bytes).durable(is_durable)
                }
                _ => {
                    expected.insert(next, model[offset..offset + bytes].to_vec());
                    Request::read(buffer, offset as u64).bytes(bytes)
                }
            };
            if let Err(refused) = batch.queue(request.token(next)) {
                assert_eq!(
                    refused.error.kind(),
                    ErrorKind::BatchFull { depth: 8 },
                    "{name}: {}",
                    refused.error
                );
                break;
            }
        }
        let waits = random.random_range(0..4);
        if random.random() {
            batch.submit();
        }
        for _ in 0..waits {
            let done = if random.random() { batch.wait().unwrap() } else { batch.poll() };
            let Some(done) = done else { break };
            match (expected.remove(&done.token), done.result) {
                (Some(bytes), Ok(count)) => {
                    assert!(
                        count == bytes.len() && done.buffer.unwrap()[..count] == bytes,
                        "{name}: seed {seed}"
                    );
                }
                (None, Err(error)) if error.kind() == ErrorKind::Unsupported => {
                    // No zeroes on this filesystem: the model does not apply any more.
                    eprintln!("skipped: {error}");
                    return;
                }
                (_, result) => drop(result.unwrap()),
            }
        }
    }
    while let Some(done) = batch.wait().unwrap() {
        done.result.unwrap();
    }
    assert_eq!(batch.in_flight(), 0);
    let mut found = AlignedBuf::new(SIZE).unwrap();
    assert_eq!(volume.direct().read_at(&mut found, 0).unwrap(), SIZE);
    assert!(found[..] == model[..], "{name}, seed {seed}: direct I/O sees other bytes");
}

#[test]
fn random_requests_agree_with_an_array_of_bytes_on_every_source() {
    each(|name, volume| (0..2).for_each(|seed| compare(name, volume, seed, 150)));
}

#[test]
fn the_mode_of_the_volume_selects_the_way_and_an_option_overrides_it() {
    let is_buffered = |volume: &Volume, options: BatchOptions| volume.batch(&options).unwrap().is_buffered();
    let batch = BatchOptions::new(1, PAGE);
    let volume = memory(&buffered(Options::new()));
    assert!(is_buffered(&volume, batch.clone()) && !is_buffered(&volume, batch.clone().buffered(false)));
    assert!(volume.local_batch(&batch).unwrap().is_buffered());
    // Direct, with a page cache for unaligned I/O.
    let volume = memory(&Options::new().unaligned(Unaligned::Buffered));
    assert!(!is_buffered(&volume, batch.clone()) && is_buffered(&volume, batch.clone().buffered(true)));
    let volume = memory(&Options::new());
    assert!(!is_buffered(&volume, batch.clone()));
    let error = volume.batch(&batch.buffered(true)).unwrap_err();
    assert!(matches!(error, OpenError::NotBuffered(_)), "{error}");
    assert!(error.to_string().contains("IoMode::Buffered"), "{error}");
}

#[test]
fn a_batch_write_past_the_end_is_refused_with_the_calls_that_extend() {
    let volume = memory(&buffered(Options::new()).extend(true));
    let size = volume.size_bytes();
    for is_buffered in [true, false] {
        let mut batch = volume.batch(&BatchOptions::new(1, PAGE).buffered(is_buffered)).unwrap();
        let refused = batch.queue(Request::write(batch.buffer().unwrap(), size)).unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::PastEnd { size_bytes: size });
        for remedy in ["Volume::resize", "Volume::write_at with Options::extend"] {
            assert!(refused.error.to_string().contains(remedy), "{}", refused.error);
        }
        assert_eq!(volume.size_bytes(), size);
    }
    // The first remedy, then the second.
    let mut batch = volume.batch(&BatchOptions::new(1, PAGE)).unwrap();
    volume.resize(size + PAGE as u64).unwrap();
    volume.write_at(&[7; PAGE], size + PAGE as u64).unwrap();
    for offset in [size, size + PAGE as u64] {
        batch.queue(Request::write(batch.buffer().unwrap(), offset)).unwrap();
        assert_eq!(batch.wait().unwrap().unwrap().result.unwrap(), PAGE);
    }
}

#[test]
fn invalid_requests_are_refused_with_their_buffer() {
    let volume = memory(&buffered(Options::new()).extend(true));
    let mut batch = volume.batch(&BatchOptions::new(2, PAGE)).unwrap();
    let end = SIZE as u64;
    let buffer = batch.buffer().unwrap();
    let refused = batch.queue(Request::write(buffer, end - 1)).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::PastEnd { size_bytes: end });
    let refused = batch.queue(Request::read(refused.buffer.unwrap(), 0).bytes(PAGE + 1)).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::BufferTooSmall { buffer_bytes: PAGE as u64 });
    let refused = batch.queue(Request::write(refused.buffer.unwrap(), u64::MAX)).unwrap_err();
    assert!(matches!(refused.error.kind(), ErrorKind::PastEnd { .. }));
    assert!(batch.queue(Request::discard(u64::MAX - 5, 10)).is_err());
    // A read is cut off at the end of the volume.
    batch.queue(Request::read(refused.buffer.unwrap(), end - 3)).unwrap();
    assert_eq!(batch.wait().unwrap().unwrap().result.unwrap(), 3);
    batch.queue(Request::read(batch.buffer().unwrap(), u64::MAX)).unwrap();
    assert_eq!(batch.wait().unwrap().unwrap().result.unwrap(), 0);
    assert!(batch.wait().unwrap().is_none());
    let volume = memory(&Options::new().mode(IoMode::Buffered));
    let mut batch = volume.batch(&BatchOptions::new(1, PAGE)).unwrap();
    for request in [Request::flush(), Request::discard(0, 1), Request::write(batch.buffer().unwrap(), 0)] {
        assert_eq!(batch.queue(request).unwrap_err().error.kind(), ErrorKind::ReadOnly);
    }
}

#[test]
fn errors_of_the_device_name_their_request() {
    let faults = Faults::new(1);
    let volume = memory(&buffered(Options::new()).faults(&faults));
    volume.write_at(&filled(SIZE, 1), 0).unwrap();
    volume.flush().unwrap();
    volume.advise(0, SIZE as u64, iopath::Advice::DontNeed).unwrap();
    faults.add(Fault::error(IoError::Media).on(Op::Read));
    let mut batch = volume.batch(&BatchOptions::new(4, PAGE)).unwrap();
    batch.queue(Request::read(batch.buffer().unwrap(), 5000).token(1)).unwrap();
    let done = batch.wait().unwrap().unwrap();
    let error = done.result.unwrap_err();
    assert_eq!((done.token, error.kind()), (1, ErrorKind::Io(IoError::Media)));
    assert_eq!((error.op(), error.offset(), error.bytes()), (Some(Op::Read), 5000, PAGE as u64));
    faults.clear();
    faults.add(Fault::error(IoError::Media).on(Op::Write));
    batch.queue(Request::write(batch.buffer().unwrap(), 0).durable(true).token(2)).unwrap();
    batch.queue(Request::write_zeroes(20_000, 50_000).token(3)).unwrap();
    let mut kinds = BTreeMap::new();
    while let Some(done) = batch.wait().unwrap() {
        kinds.insert(done.token, done.result.map_err(|error| error.kind()));
    }
    assert_eq!(kinds[&2], Err(ErrorKind::Io(IoError::Media)));
    // The page of the failed write is still in the cache.
    faults.clear();
    // Fails if write-back in flight has failed.
    batch.queue(Request::flush()).unwrap();
    drop(batch.wait().unwrap().unwrap().result);
    batch.queue(Request::flush()).unwrap();
    batch.wait().unwrap().unwrap().result.unwrap();
}

#[test]
fn a_durable_write_and_a_flush_survive_a_crash() {
    let config = MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(SIZE as u64) };
    let disk = MemoryDisk::new(&config).unwrap();
    let volume = Volume::memory(&disk, &buffered(Options::new())).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(8, PAGE)).unwrap();
    let write = |value: u8, offset| {
        let mut buffer = batch.buffer().unwrap();
        buffer.fill(value);
        Request::write(buffer, offset)
    };
    let requests = [write(1, 100), write(2, 20_000).durable(true), write(3, 40_000)];
    for request in requests {
        batch.queue(request).unwrap();
    }
    while let Some(done) = batch.wait().unwrap() {
        done.result.unwrap();
    }
    disk.crash(|versions| versions - 1);
    let after = Volume::memory(&disk, &buffered(Options::new())).unwrap();
    let byte = |offset| {
        let mut byte = [0];
        after.read_exact_at(&mut byte, offset).unwrap();
        byte[0]
    };
    assert_eq!((byte(20_000), byte(20_000 + PAGE as u64 - 1)), (2, 2));
    let mut batch = after.batch(&BatchOptions::new(8, PAGE)).unwrap();
    let mut buffer = batch.buffer().unwrap();
    buffer.fill(4);
    batch.queue(Request::write(buffer, 50_001)).unwrap();
    assert!(batch.wait().unwrap().unwrap().result.is_ok());
    batch.queue(Request::flush()).unwrap();
    assert!(batch.wait().unwrap().unwrap().result.is_ok());
    disk.crash(|versions| versions - 1);
    let last = Volume::memory(&disk, &Options::new().mode(IoMode::Buffered)).unwrap();
    let mut bytes = [0; 3];
    last.read_exact_at(&mut bytes, 50_000).unwrap();
    assert_eq!(bytes, [0, 4, 4]);
}

#[test]
fn a_batch_reads_ahead_for_a_sequential_reader() {
    let Some((_directory, path)) = scratch(4 << 20) else { return };
    let volume = Volume::open(&path, &options().mode(IoMode::Buffered).cache_bytes(8 << 20)).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(1, PAGE)).unwrap();
    for page in 0..1024 {
        batch.queue(Request::read(batch.buffer().unwrap(), page * PAGE as u64)).unwrap();
        assert_eq!(batch.wait().unwrap().unwrap().result.unwrap(), PAGE);
    }
    let stats = volume.stats().unwrap();
    assert!(stats.cache.readahead > 900 && stats.cache.misses < 100, "{stats:?}");
}
