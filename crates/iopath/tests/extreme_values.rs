//! Volumes of every kind with offsets, lengths, sizes and settings at the limits of arithmetic. Each call succeeds or
//! returns a documented error; it does not panic or hang.

#[path = "../../iopath-os/tests/support/edges.rs"]
mod edges;

use crate::own_source::example::CheckedDisk;
use crate::support::{options, scratch};
use edges::{EDGES, SIZE, pairs};
use iopath::mapped::{FileLayout, FileMap, MAPPERS};
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{
    Advice, AlignedBuf, Batch, BatchOptions, Error, ErrorKind, IoError, IoMode, OpenError, Options,
    Readahead, Request, Stream, Unaligned, Volume,
};

const BLOCK: u64 = 4096;

fn modes(options: &Options) -> [(&'static str, Options); 5] {
    let options = options.clone().write(true).cache_bytes(64 * BLOCK);
    [
        ("direct", options.clone()),
        ("raw", options.clone().mode(IoMode::Raw)),
        ("bounced", options.clone().unaligned(Unaligned::Bounce)),
        ("unaligned buffered", options.clone().unaligned(Unaligned::Buffered)),
        ("buffered", options.mode(IoMode::Buffered)),
    ]
}

/// Volumes of `SIZE` bytes of 7, of each kind in each mode: on a disk in memory, on storage of a program,
/// mapped, on a file, on a stripe.
fn each_volume(test: impl Fn(&str, &Volume)) {
    let memory = || {
        let block = MemoryConfig { block_bytes: 4096, ..MemoryConfig::of_bytes(2 * SIZE) };
        MemoryDisk::new(&block).unwrap()
    };
    let check = |name: String, opened: Result<Volume, OpenError>| {
        let volume = opened.unwrap();
        if volume.size_bytes() != SIZE {
            volume.resize(SIZE).unwrap();
        }
        let mut sevens = AlignedBuf::new(SIZE as usize).unwrap();
        sevens.fill(7);
        volume.write_at(&sevens, 0).unwrap();
        test(&name, &volume);
    };
    for (mode, options) in modes(&Options::new()) {
        check(format!("{mode}, memory"), Volume::memory(&memory(), &options));
        let own = Volume::of_source(CheckedDisk::new(2 * SIZE), &options);
        check(format!("{mode}, storage of a program"), own);
        for kind in MAPPERS {
            let disk = memory();
            let layout =
                FileLayout { block_bytes: 4096, size_bytes: SIZE, capacity_bytes: disk.size_bytes() };
            let file = FileMap::fresh(kind.name, &layout).unwrap();
            check(format!("{mode}, {}", kind.name), Volume::memory_mapped(&disk, &file, &options));
        }
    }
    for (mode, options) in modes(&options()) {
        let Some((directory, path)) = scratch(SIZE) else { return };
        check(format!("{mode}, a file"), Volume::open(&path, &options));
        let members = [directory.path().join("a"), directory.path().join("b")];
        let stripe = Volume::open_stripe(&members, 64 << 10, &options.create(SIZE));
        check(format!("{mode}, a stripe"), stripe);
    }
}

/// Whether the error refuses a range outside the volume or an unaligned one.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PastEnd { .. } | ErrorKind::Unaligned { .. } | ErrorKind::UnalignedMemory { .. }
    )
}

#[test]
fn ranges_outside_the_volume_are_refused_by_every_operation() {
    each_volume(|name, volume| {
        let mut buffer = AlignedBuf::new(3 * BLOCK as usize).unwrap();
        buffer.fill(7);
        for offset in EDGES {
            for bytes in [0, 1, 101, BLOCK, 2 * BLOCK + 1, 3 * BLOCK] {
                let what = || format!("{name}: {bytes} bytes at {offset}");
                let inside = SIZE.saturating_sub(offset).min(bytes);
                let part = &mut buffer[..bytes as usize];
                let reads = [volume.read_at(part, offset), volume.direct().read_at(part, offset)];
                for read in reads {
                    match read {
                        Ok(read) => assert!(read as u64 == inside, "{read} of {}", what()),
                        Err(error) => assert!(is_refusal(&error), "{}: {error}", what()),
                    }
                }
                assert!(part.iter().all(|byte| *byte == 7), "{}", what());
                let writes = [
                    volume.write_at(part, offset),
                    volume.write_durably_at(part, offset),
                    volume.direct().write_at(part, offset),
                    volume.direct().write_durably_at(part, offset),
                ];
                for written in writes {
                    match written {
                        Ok(()) => assert!(inside == bytes, "{}", what()),
                        Err(error) => assert!(is_refusal(&error), "{}: {error}", what()),
                    }
                }
            }
        }
        for (offset, bytes) in pairs() {
            let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= SIZE);
            let what = || format!("{name}: {bytes} bytes at {offset}");
            if !is_inside {
                for done in [volume.discard(offset, bytes), volume.write_zeroes(offset, bytes)] {
                    match done {
                        Ok(()) => assert!(bytes == 0, "{}", what()),
                        Err(error) => assert!(is_refusal(&error), "{}: {error}", what()),
                    }
                }
            }
            for advice in [Advice::WillNeed, Advice::DontNeed, Advice::Sequential, Advice::Normal] {
                match volume.advise(offset, bytes, advice) {
                    Ok(()) => {}
                    Err(error) => assert!(error.kind() == ErrorKind::NotBuffered, "{}: {error}", what()),
                }
            }
            let few = bytes.min(16 * BLOCK) as usize;
            match volume.borrow(offset, if offset < SIZE { few } else { bytes as usize }) {
                Ok(guard) => {
                    assert_eq!(guard.len() as u64, SIZE.saturating_sub(offset).min(few as u64), "{}", what());
                    assert!(guard.slices().all(|slice| slice.iter().all(|byte| *byte == 7)), "{}", what());
                }
                Err(error) => assert!(error.kind() == ErrorKind::NotBuffered, "{}: {error}", what()),
            }
        }
        volume.flush().unwrap();
        let mut all = AlignedBuf::new(SIZE as usize).unwrap();
        assert_eq!(volume.read_at(&mut all, 0).unwrap(), SIZE as usize);
        assert!(all.iter().all(|byte| *byte == 7), "{name}: a byte has changed");
    });
}

/// Waits for the request in flight, if there is one. Returns its number of bytes.
fn completed_bytes(batch: &mut Batch) -> Option<usize> {
    let done = batch.wait().unwrap()?;
    Some(done.result.unwrap())
}

#[test]
fn a_batch_accepts_ranges_inside_the_volume_and_returns_the_buffer_of_others() {
    each_volume(|name, volume| {
        let options = BatchOptions::new(2, BLOCK as usize).gather(u32::MAX).plug(u32::MAX);
        let mut batch = volume.batch(&options.stream(Stream(u32::MAX))).unwrap();
        for weight in [0, u32::MAX] {
            volume.set_weight(Stream(weight), weight);
        }
        for (offset, bytes) in pairs() {
            let inside = SIZE.saturating_sub(offset).min(bytes);
            let what = || format!("{name}: {bytes} bytes at {offset}");
            for writes in [false, true] {
                let mut buffer = batch.buffer().expect("both are free");
                buffer.fill(7);
                let request = if writes {
                    Request::write(buffer, offset).durable(true)
                } else {
                    Request::read(buffer, offset)
                };
                match batch.queue(request.bytes(bytes as usize).token(u64::MAX)) {
                    Ok(()) => {
                        let moved = completed_bytes(&mut batch).expect("one is in flight") as u64;
                        assert!(moved == inside && (moved == bytes || !writes), "{moved} of {}", what());
                    }
                    Err(refused) => {
                        assert!(refused.buffer.is_some(), "{}", what());
                        let is_too_long = matches!(refused.error.kind(), ErrorKind::BufferTooSmall { .. });
                        assert!(is_too_long || is_refusal(&refused.error), "{}: {}", what(), refused.error);
                    }
                }
            }
            if bytes > 0 && offset.checked_add(bytes).is_none_or(|end| end > SIZE) {
                let refused = batch.queue(Request::discard(offset, bytes)).expect_err("past the end");
                assert!(is_refusal(&refused.error), "{}: {}", what(), refused.error);
            }
            assert_eq!(batch.in_flight(), 0);
        }
    });
}

#[test]
fn a_volume_accepts_any_size_that_its_source_accepts() {
    each_volume(|name, volume| {
        for edge in EDGES {
            if name.ends_with("memory") && (2 * SIZE..1 << 55).contains(&edge) {
                // More memory than a test should use.
                continue;
            }
            let before = volume.size_bytes();
            match volume.resize(edge) {
                Ok(()) => assert_eq!(volume.size_bytes(), edge, "{name}"),
                Err(error) => {
                    let is_documented = matches!(
                        error.kind(),
                        ErrorKind::Resize { .. } | ErrorKind::Io(IoError::Os(_) | IoError::NoSpace)
                    );
                    assert!(is_documented && volume.size_bytes() == before, "{name} to {edge}: {error}");
                }
            }
            let size = volume.size_bytes();
            let mut buffer = AlignedBuf::new(BLOCK as usize).unwrap();
            for offset in [0, size.saturating_sub(1) / BLOCK * BLOCK, size, u64::MAX / BLOCK * BLOCK] {
                let there = size.saturating_sub(offset).min(BLOCK);
                match volume.read_at(&mut buffer, offset) {
                    Ok(read) => assert_eq!(read as u64, there, "{name} of {size} at {offset}"),
                    Err(error) => assert!(is_refusal(&error), "{name} of {size} at {offset}: {error}"),
                }
            }
            let _ = volume.advise(0, u64::MAX, Advice::DontNeed);
        }
        // Shrink it: dropping the volume must not fill a sparse file.
        let _ = volume.resize(SIZE);
    });
}

#[test]
fn settings_out_of_range_are_clamped_or_refused() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(SIZE)).unwrap();
    let base = Options::new().write(true).cache_bytes(64 * BLOCK);
    let mut opened = 0;
    for edge in EDGES {
        let edge32 = u32::try_from(edge).unwrap_or(u32::MAX);
        for (_, mode) in modes(&base) {
            for options in [
                mode.clone().depth(edge32),
                mode.clone().request_bytes_max(edge),
                mode.clone().request_bytes_max(edge).readahead(Readahead::Bytes(edge)),
                mode.clone().page_bytes(edge32),
                mode.clone().cache_bytes(edge),
            ] {
                if (1 << 30..1 << 55).contains(&edge) && options_take_memory(&options, edge) {
                    continue;
                }
                match Volume::memory(&disk, &options) {
                    Ok(volume) => {
                        opened += 1;
                        volume.write_at(&AlignedBuf::new(2 * BLOCK as usize).unwrap(), BLOCK).unwrap();
                        let mut buffer = AlignedBuf::new(3 * BLOCK as usize).unwrap();
                        assert_eq!(volume.read_at(&mut buffer, 0).unwrap(), buffer.len());
                    }
                    Err(OpenError::PageSize { .. } | OpenError::CacheSize { .. } | OpenError::Memory(_)) => {}
                    Err(error) => panic!("{options:?}: {error}"),
                }
            }
        }
        let volume = Volume::memory(&disk, &base).unwrap();
        for (io_depth, buffer_bytes) in [(1, edge as usize), (edge32, 1), (edge32, edge as usize)] {
            // More memory than a test should use.
            if u64::from(io_depth).saturating_mul(buffer_bytes.max(4096) as u64) > 64 << 20
                && edge < u32::MAX.into()
            {
                continue;
            }
            match volume.batch(&BatchOptions::new(io_depth, buffer_bytes)) {
                Ok(batch) => assert!(batch.buffer().is_some()),
                Err(error) => assert!(matches!(error, OpenError::Memory(_)), "{error}"),
            }
        }
    }
    assert!(opened > 100, "{opened}");
    let Some((directory, path)) = scratch(SIZE) else { return };
    for edge in EDGES.into_iter().filter(|edge| *edge > 1 << 55) {
        let error = Volume::open(&path, &options().create(edge)).unwrap_err();
        assert!(matches!(error, OpenError::System { .. }), "{edge}: {error}");
    }
    let members = [directory.path().join("a"), directory.path().join("b")];
    for (chunk, bytes) in pairs() {
        if (2 * SIZE..1 << 55).contains(&bytes) || (2 * SIZE..1 << 55).contains(&chunk) {
            continue;
        }
        match Volume::open_stripe(&members, chunk, &options().create(bytes)) {
            Ok(volume) => assert!(volume.size_bytes() % chunk == 0),
            Err(OpenError::Chunk { .. } | OpenError::Stripe(_) | OpenError::System { .. }) => {}
            Err(error) => panic!("chunks of {chunk}, {bytes} bytes: {error}"),
        }
    }
}

/// Whether these options request about `edge` bytes of memory: the system may have that much.
fn options_take_memory(options: &Options, edge: u64) -> bool {
    format!("{options:?}").contains(&format!("cache_bytes: {edge},"))
}
