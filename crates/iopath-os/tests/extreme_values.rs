//! Every public function of this crate with an offset, length or count, called with numbers at which arithmetic
//! overflows. Each call succeeds or returns a documented error; it does not panic or wrap, and does not report success
//! for I/O that was not done.

#[path = "support/edges.rs"]
mod edges;

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use iopath_core::cache::CacheConfig;
use iopath_core::mapper::{Boundary, FileLayout, MAPPERS};
use iopath_core::readahead::ReadaheadConfig;
use iopath_core::{Extent, IoError, Limits, Op, QueueConfig, Sector};
use iopath_os::kernel::{Direction, Mmap, OneAtATime, Pread, Slots, Stamp, Transfer, Uring};
use iopath_os::target::extents::first_unwritten;
use iopath_os::target::{drop_cached, residency, signature};
use iopath_os::{
    Advice, AlignedBuf, BufferPool, Buffered, BufferedConfig, BufferedError, Fault, Faults, Faulty, FileMap,
    Geometry, Mapped, MemoryConfig, MemoryDisk, NoMemory, Notifier, Null, OneThread, RealDevice, RunError,
    Runner, Tail, Threads, ThreadsConfig, UringConfig, limits_of,
};

use edges::{EDGES, SIZE, pairs};

type Device = dyn RealDevice + Send;

/// Whether a disk of `size_bytes` in memory is small or refused. Other sizes use too much memory for a test.
fn is_cheap(size_bytes: u64) -> bool {
    !(SIZE + 4096..1 << 55).contains(&size_bytes)
}

fn open(size_bytes: u64) -> (MemoryDisk, Buffered) {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(size_bytes)).unwrap();
    let config = BufferedConfig {
        cache: CacheConfig { frames: 64, ..CacheConfig::default() },
        readahead: Some(ReadaheadConfig {
            budget_bytes: 64 << 10,
            request_bytes: 16 << 10,
            ..Default::default()
        }),
        tail: Some(Box::new(disk.tail())),
        ..BufferedConfig::of_bytes(size_bytes)
    };
    let opened: Result<_, NoMemory> = Buffered::new(config, |_| {
        let device: Box<Device> = Box::new(disk.open());
        Ok(Runner::new(device, &QueueConfig::default()))
    });
    (disk, opened.unwrap())
}

/// The contents of the volume.
fn all(buffered: &Buffered) -> Vec<u8> {
    let mut bytes = vec![0; buffered.size_bytes() as usize];
    assert_eq!(buffered.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

#[test]
fn a_buffered_write_past_the_end_is_an_error_and_no_byte_changes() {
    for size in [SIZE, SIZE - 100] {
        let (_disk, buffered) = open(size);
        buffered.write_at(&vec![7; size as usize], 0).unwrap();
        for offset in EDGES {
            for bytes in [0, 1, 101, 4096, 8192, 20_000] {
                let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= size);
                let written = buffered.write_at(&vec![7; bytes as usize], offset);
                match written {
                    Ok(()) => assert!(is_inside || bytes == 0, "{bytes} bytes at {offset} of {size}"),
                    Err(BufferedError::Io(IoError::EndOfDevice)) => assert!(!is_inside),
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert!(all(&buffered) == vec![7; size as usize]);
        buffered.flush().unwrap();
        assert_eq!(buffered.stats().cache.dirty, 0);
    }
}

#[test]
fn reads_borrows_and_advice_at_any_offset_stay_inside_the_volume() {
    let (_disk, buffered) = open(SIZE);
    buffered.write_at(&[7; 4096], SIZE - 4096).unwrap();
    for (offset, bytes) in pairs() {
        let readable = SIZE.saturating_sub(offset).min(bytes);
        let mut buffer = vec![1; bytes.min(20_000) as usize];
        let expected = readable.min(buffer.len() as u64) as usize;
        assert_eq!(buffered.read_at(&mut buffer, offset).unwrap(), expected, "{bytes} bytes at {offset}");
        // At most the size of the cache: a larger range cannot be borrowed at once.
        let wanted = if readable > 64 << 10 { 64 << 10 } else { bytes as usize };
        let borrowed = buffered.borrow(offset, wanted).unwrap();
        assert_eq!(borrowed.len() as u64, readable.min(wanted as u64), "{wanted} bytes at {offset}");
        drop(borrowed);
        for advice in [
            Advice::WillNeed,
            Advice::DontNeed,
            Advice::Sequential,
            Advice::Random,
            Advice::NoReuse,
            Advice::Normal,
        ] {
            buffered.advise(offset, bytes, advice);
        }
        buffered.flush_range(offset, bytes).unwrap();
    }
    // Advice past the end reads no page.
    buffered.advise(0, u64::MAX, Advice::DontNeed);
    let before = buffered.stats().cache.pages_read;
    EDGES.into_iter().filter(|edge| *edge >= SIZE).for_each(|edge| {
        buffered.advise(edge, u64::MAX, Advice::WillNeed);
        buffered.advise(edge, 0, Advice::WillNeed);
    });
    assert_eq!(buffered.stats().cache.pages_read, before);
}

#[test]
fn direct_io_drops_only_cached_pages_inside_its_range() {
    for (offset, bytes) in pairs() {
        let (_disk, buffered) = open(SIZE);
        buffered.write_at(&[7; 8192], 0).unwrap();
        for op in [Op::Read, Op::Write, Op::WriteZeroes, Op::Flush] {
            drop(buffered.begin_direct(op, offset, bytes).unwrap());
        }
        buffered.write_at(&[8; 8192], 0).unwrap();
        drop(buffered.begin_direct(Op::Discard, offset, bytes).unwrap());
        // If the cache dropped a page, the device still has the earlier data, since it has discarded nothing.
        let is_dropped =
            |page: u64| offset <= page * 4096 && offset.saturating_add(bytes) >= (page + 1) * 4096;
        let read = all(&buffered);
        for page in [0, 1] {
            let held = read[page as usize * 4096];
            assert!(held == 8 || is_dropped(page), "page {page}: {bytes} bytes at {offset}");
        }
    }
}

#[test]
fn a_buffered_volume_has_any_size_that_the_resize_closure_allows() {
    for edge in EDGES.into_iter().filter(|edge| is_cheap(*edge)) {
        let (disk, buffered) = open(SIZE);
        buffered.write_at(&[7; 100], 0).unwrap();
        let resized = buffered.resize(edge, || disk.resize(edge)).unwrap();
        assert_eq!(buffered.size_bytes(), if resized.is_ok() { edge } else { SIZE }, "{edge}");
        assert!(resized.is_ok() || edge > 1 << 30, "{edge}");
        buffered.flush().unwrap();
        // If the closure allows more than the device has, the device returns the error.
        buffered.resize(edge, || Ok::<_, NoMemory>(())).unwrap().unwrap();
        assert_eq!(buffered.size_bytes(), edge);
        let mut buffer = [0; 512];
        let _ = buffered.read_at(&mut buffer, edge.saturating_sub(512));
        let _ = buffered.write_at(&buffer, edge.saturating_sub(512));
        buffered.advise(edge.saturating_sub(8192), u64::MAX, Advice::WillNeed);
        let _ = buffered.flush();
    }
}

#[test]
fn a_disk_in_memory_accepts_any_size_and_offset_or_returns_an_error() {
    for (size_bytes, cache_bytes) in pairs().filter(|(size, _)| is_cheap(*size)) {
        let config = MemoryConfig { cache_bytes: cache_bytes / 64, ..MemoryConfig::of_bytes(size_bytes) };
        let made = MemoryDisk::new(&config);
        assert!(made.is_ok() || size_bytes > SIZE + 1 || cache_bytes > 1 << 40, "{config:?}");
        let Ok(disk) = made else { continue };
        for offset in EDGES {
            let end = offset.checked_add(100).filter(|end| *end <= size_bytes);
            assert_eq!(disk.tail().write_all_at(&[1; 100], offset).is_ok(), end.is_some(), "{offset}");
        }
        let mut runner = Runner::new(Box::new(disk.open()), &QueueConfig::default());
        let mut memory = [0; 512];
        for capacity in [runner_end(size_bytes), u64::MAX] {
            runner.set_capacity(capacity);
            for start in EDGES.into_iter().chain([Sector::MAX.0 - 1]) {
                let Some(extent) = Extent::new(Sector(start), 1) else { continue };
                let read = runner.read(extent, &mut memory);
                let written = runner.write(extent, &memory, true);
                let zeroed = runner.command(Op::WriteZeroes, extent);
                let is_inside = extent.end().0 <= runner_end(size_bytes);
                for result in [read, written, zeroed] {
                    match result {
                        Ok(()) => assert!(is_inside, "{extent} of {size_bytes} bytes"),
                        Err(RunError::Io(IoError::EndOfDevice) | RunError::Refused(_)) => assert!(!is_inside),
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        }
    }
    let disk = MemoryDisk::new(&MemoryConfig { cache_bytes: SIZE, ..MemoryConfig::of_bytes(SIZE) }).unwrap();
    for edge in EDGES.into_iter().filter(|edge| *edge <= SIZE || *edge >= 1 << 55) {
        assert_eq!(disk.resize(edge).is_ok(), edge <= SIZE, "{edge}");
        assert_eq!(disk.size_bytes(), if edge <= SIZE { edge } else { SIZE });
        disk.resize(SIZE).unwrap();
    }
    for block_bytes in [0, 1, 511, u32::MAX] {
        let _ = MemoryDisk::new(&MemoryConfig { block_bytes, ..MemoryConfig::of_bytes(100) });
    }
}

fn runner_end(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(512)
}

#[test]
fn too_much_memory_is_an_error() {
    for (count, bytes) in [
        (u32::MAX, 1),
        (u32::MAX, 1 << 30),
        (1, usize::MAX),
        (1, (1 << 30) + 1),
        (0, usize::MAX),
        (u32::MAX, 0),
    ] {
        assert!(BufferPool::new(count, bytes).is_err(), "{count} buffers of {bytes}");
    }
    assert!(BufferPool::new(0, 0).unwrap().take().is_none());
    for len in [usize::MAX, usize::MAX - 4095, isize::MAX as usize, isize::MAX as usize + 1] {
        assert!(AlignedBuf::new(len).is_err(), "{len} bytes");
    }
    for (depth, block_bytes) in [(u32::MAX, u32::MAX), (1 << 20, u32::MAX)] {
        assert!(Slots::new(depth, block_bytes, |_| panic!("nothing to fill")).is_err());
    }
}

/// A file of `SIZE` bytes.
fn file() -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(SIZE).unwrap();
    file
}

#[test]
fn kernel_paths_refuse_ranges_outside_the_file() {
    let slots = || Slots::new(1, 4096, |_| ()).unwrap();
    for offset in EDGES {
        for (direction, bytes) in [(Direction::Read, 4096), (Direction::Read, 1)] {
            let transfer = Transfer { direction, offset, bytes };
            let is_inside = offset.checked_add(bytes.into()).is_some_and(|end| end <= SIZE);
            let mut pread = OneAtATime::new(Pread::new(file(), u32::MAX), slots());
            assert_eq!(pread.run(0, transfer).is_ok(), is_inside, "pread of {transfer:?}");
            let mut mapped = OneAtATime::new(Mmap::new(file(), SIZE, true).unwrap(), slots());
            assert_eq!(mapped.run(0, transfer).is_ok(), is_inside, "a mapping, {transfer:?}");
            let Ok(mut ring) = Uring::new(file(), slots(), 1) else { continue };
            let mut done = Vec::new();
            let ran = ring
                .submit(0, transfer)
                .and_then(|()| ring.reap(&mut done))
                .and_then(|()| done.pop().map_or(Ok(()), |done| done.result));
            assert_eq!(ran.is_ok(), is_inside, "io_uring, {transfer:?}");
        }
        // A write far past the end extends the file or fails. It never writes to another offset.
        let mut written = file();
        let copy = written.try_clone().unwrap();
        let transfer = Transfer { direction: Direction::Write, offset, bytes: 4096 };
        if offset > 1 << 55 {
            let mut pread = OneAtATime::new(Pread::new(copy.try_clone().unwrap(), 1), slots());
            assert!(pread.run(0, transfer).is_err());
            if let Ok(mut ring) = Uring::new(copy, slots(), 1) {
                let mut done = Vec::new();
                let ran = ring.submit(0, transfer).and_then(|()| ring.reap(&mut done));
                assert!(ran.is_err() || done.iter().all(|done| done.result.is_err()), "{offset}");
            }
            let mut bytes = Vec::new();
            written.read_to_end(&mut bytes).unwrap();
            assert!(bytes == vec![0; SIZE as usize], "{offset}");
        }
        Stamp::default().put(&mut [0; 100], offset);
        if offset > SIZE {
            assert!(Mmap::new(file(), offset, false).is_err() || offset < 1 << 47, "{offset} bytes");
        }
    }
}

#[test]
fn file_properties_for_any_range_stay_inside_the_file() {
    let file = file();
    for (start, end) in pairs() {
        let pages = residency(&file, start..end).unwrap().pages;
        assert!(pages <= SIZE.div_ceil(4096) && drop_cached(&file, start..end).unwrap().pages == pages);
        assert!(signature::find(&file, start).map_or(true, |found| found.is_empty()), "{start}");
        let extent = iopath_os::target::extents::FileExtent {
            logical: start,
            physical: end,
            bytes: end,
            flags: iopath_os::target::extents::ExtentFlags::default(),
        };
        assert!(extent.logical_range().end >= start);
        assert!(first_unwritten(&[extent], end).is_none_or(|first| first < end));
        let tail: Box<dyn Tail> = Box::new(file.try_clone().unwrap());
        assert!(start <= 1 << 55 || tail.write_all_at(&[1], start).is_err(), "{start}");
    }
    for (bytes, align) in pairs() {
        let geometry = Geometry {
            memory_align_bytes: align as u32,
            logical_block_bytes: 4096,
            request_bytes_max: bytes,
        };
        let limits = limits_of(&file, &geometry).unwrap();
        assert!(limits.request_bytes_max >= 4096 && limits.capacity == SIZE / 512);
    }
}

#[test]
fn devices_and_waits_accept_any_count() {
    let most = u32::MAX;
    let limits = Limits { depth_max: most, segments_max: u16::MAX, ..Limits::with_capacity(SIZE / 512) };
    let config = QueueConfig {
        bios_max: 64,
        requests_max: 64,
        depth: most,
        plug_requests_max: most,
        ..Default::default()
    };
    let extent = Extent::from_bytes(SIZE - 4096, 4096).unwrap();
    let mut devices: Vec<Box<Device>> = vec![Box::new(Null::new(limits.clone()))];
    for (depth, threads_max) in [(0, 0), (most, 1), (2, most)] {
        let file = Arc::new(file());
        devices.push(Box::new(Threads::new(file, &limits, &ThreadsConfig { depth, threads_max }).unwrap()));
    }
    for device in devices {
        let mut runner = Runner::new(device, &config);
        runner.read(extent, &mut [0; 4096]).unwrap();
        runner.wait(most).unwrap();
        runner.drain().unwrap();
    }
    for depth in [0, most] {
        let ring =
            iopath_os::Uring::<OneThread>::new(Arc::new(file()), &limits, &UringConfig { depth, pool: None });
        let Ok(ring) = ring else { continue };
        let mut runner = Runner::new(Box::new(ring), &config);
        for start in [0, Sector::MAX.0 - 1] {
            let extent = Extent::new(Sector(start), 1).unwrap();
            runner.set_capacity(u64::MAX);
            assert_eq!(runner.read(extent, &mut [0; 512]).is_ok(), start == 0);
        }
    }
    let notifier = Notifier::new().unwrap();
    for timeout in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(i64::MAX as u64)] {
        notifier.notify();
        notifier.wait(Some(timeout)).unwrap();
    }
    for (one_in, times) in [(0, 0), (0, u64::MAX), (u64::MAX, u64::MAX)] {
        let faults = Faults::new(u64::MAX);
        faults.add(Fault::short().one_in(one_in).times(times).within(Extent::EMPTY));
        faults.add(Fault::short().one_in(one_in).times(times));
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(SIZE)).unwrap();
        let mut runner = Runner::new(Box::new(Faulty::new(Box::new(disk.open()), &faults)), &config);
        runner.read(extent, &mut [0; 4096]).unwrap();
    }
}

#[test]
fn a_mapped_file_has_any_size_that_its_map_has() {
    for kind in MAPPERS {
        for size_bytes in EDGES {
            for capacity_bytes in [SIZE, u64::MAX] {
                let layout = FileLayout { block_bytes: 4096, size_bytes, capacity_bytes };
                let Ok(file) = FileMap::fresh(kind.name, &layout) else { continue };
                let disk = MemoryDisk::new(&MemoryConfig::of_bytes(SIZE)).unwrap();
                let Ok(mut mapped) = Mapped::new(disk.open(), &file, Boundary::Once) else { continue };
                for edge in EDGES {
                    let before = file.size_bytes();
                    let resized = mapped.resize(edge);
                    let size = if resized.is_ok() { edge } else { before };
                    assert_eq!(file.size_bytes(), size, "{} of {before} to {edge}: {resized:?}", kind.name);
                    assert!(file.limits_on(&disk.limits()).unwrap().capacity <= Sector::MAX.0);
                }
            }
        }
    }
}
