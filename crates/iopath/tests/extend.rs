//! Writes that extend a volume, against a model and against a plain file.

use crate::support::{filled, options, scratch};
use iopath::log::{LogSink, NoRoom, RecordBatch};
use iopath::mapped::{FileLayout, FileMap, Sector};
use iopath::source::Extent;
use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{AlignedBuf, ErrorKind, IoError, IoMode, Op, Options, Unaligned, Volume};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

const SPAN: usize = 3 << 20;

fn buffered() -> Options {
    options().extend(true).direct(false).cache_bytes(64 * 4096)
}

/// Appends, overwrites, leaves gaps, truncates and flushes. Compares a read after each step.
fn check_against_a_model(name: &str, volume: &Volume, mut check_file: impl FnMut(&[u8])) {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut model = vec![0; volume.size_bytes() as usize];
    let data = filled(1 << 20, 7).to_vec();
    for step in 0..300 {
        let size = model.len();
        let bytes =
            if step % 20 == 0 { random.random_range(1..1 << 20) } else { random.random_range(1..3000) };
        let offset = match random.random_range(0..10) {
            0 => size + random.random_range(0..20_000),
            1 | 2 => random.random_range(0..=size),
            _ => size,
        };
        if offset + bytes <= SPAN {
            let from = random.random_range(0..=data.len() - bytes);
            let source = &data[from..from + bytes];
            if random.random_range(0..30) == 0 {
                volume.write_durably_at(source, offset as u64).unwrap();
            } else {
                volume.write_at(source, offset as u64).unwrap();
            }
            model.resize(size.max(offset + bytes), 0);
            model[offset..offset + bytes].copy_from_slice(source);
        } else {
            let size = random.random_range(0..size);
            volume.resize(size as u64).unwrap();
            model.truncate(size);
        }
        assert_eq!(volume.size_bytes(), model.len() as u64, "{name}, step {step}");
        let start = random.random_range(0..=model.len());
        let mut found = vec![0xee; (model.len() - start).min(50_000) + 100];
        let read = volume.read_at(&mut found, start as u64).unwrap();
        assert_eq!(read, found.len().min(model.len() - start), "{name}, step {step}");
        assert!(found[..read] == model[start..start + read], "{name}, step {step}: bytes from {start} on");
        if random.random_range(0..25) == 0 {
            volume.flush().unwrap();
            check_file(&model);
        }
    }
    let mut found = vec![0xee; model.len()];
    volume.read_exact_at(&mut found, 0).unwrap();
    assert!(found == model, "{name}: at the end");
    volume.flush().unwrap();
    check_file(&model);
}

#[test]
fn writes_extend_every_source_that_can_grow() {
    let modes = [("buffered", buffered()), ("bounced", options().extend(true).unaligned(Unaligned::Bounce))];
    for (name, options) in modes {
        if let Some((_directory, path)) = scratch(1000) {
            let volume = Volume::open(&path, &options).unwrap();
            check_against_a_model(&format!("{name}, a file"), &volume, |model| {
                assert!(std::fs::read(&path).unwrap() == model, "{name}: the file after a flush");
            });
        }
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1000)).unwrap();
        check_against_a_model(name, &Volume::memory(&disk, &options).unwrap(), |model| {
            assert_eq!(disk.size_bytes(), model.len() as u64, "{name}: the disk after a flush");
        });
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(16 << 20)).unwrap();
        let layout = FileLayout { block_bytes: 4096, size_bytes: 1000, capacity_bytes: disk.size_bytes() };
        let file = FileMap::fresh("extent", &layout).unwrap();
        let volume = Volume::memory_mapped(&disk, &file, &options).unwrap();
        check_against_a_model(&format!("{name}, mapped"), &volume, |_| ());
    }
}

#[test]
fn a_buffered_file_is_extended_in_steps_of_the_options() {
    let Some((_directory, path)) = scratch(0) else { return };
    for (step, length) in [(0, 64 << 10), (1, 64 << 10), (100_000, 128 << 10), (4 << 20, 4 << 20)] {
        let volume = Volume::open(&path, &buffered().extend_step(step)).unwrap();
        volume.resize(0).unwrap();
        // With a gap before it, it is written to the cache only.
        volume.write_at(&[1; 100], 1).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), length, "a step of {step} bytes");
        volume.close().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 101);
    }
}

#[test]
fn direct_writes_extend_by_whole_blocks() {
    let Some((_directory, path)) = scratch(0) else { return };
    let volume = Volume::open(&path, &options().extend(true)).unwrap();
    for block in 0..4 {
        volume.write_at(&filled(4096, block), block * 4096).unwrap();
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 * 4096);
    let refused = volume.write_at(&filled(4096, 1)[..100], 4 * 4096).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Unaligned { .. }), "{refused}");
    assert_eq!(volume.size_bytes(), 4 * 4096, "a refused write does not extend");
    let mut found = AlignedBuf::new(4096).unwrap();
    volume.read_exact_at(&mut found, 3 * 4096).unwrap();
    assert!(found[..] == filled(4096, 3)[..]);
}

#[test]
fn the_file_is_as_long_as_the_volume_after_flush_close_and_drop() {
    let Some((_directory, path)) = scratch(0) else { return };
    let length = || std::fs::metadata(&path).unwrap().len();
    let volume = Volume::open(&path, &buffered()).unwrap();
    volume.write_at(&[1; 1000], 0).unwrap();
    assert!(length() >= 1000, "the file is never shorter");
    volume.flush().unwrap();
    assert_eq!(length(), 1000);
    volume.write_at(&[2; 1000], 1000).unwrap();
    volume.flush_range(1500, 1).unwrap();
    assert_eq!(length(), 2000);
    volume.write_durably_at(&[3; 1000], 2000).unwrap();
    assert_eq!(length(), 3000);
    volume.write_at(&[4; 1000], 3000).unwrap();
    drop(volume);
    assert_eq!(length(), 4000);
    let found = std::fs::read(&path).unwrap();
    assert!(found.chunks(1000).zip(1_u8..).all(|(part, byte)| part.iter().all(|it| *it == byte)));
}

#[test]
fn a_write_past_the_end_is_refused_by_sources_of_fixed_size() {
    let Some((directory, path)) = scratch(8192) else { return };
    let block = filled(4096, 1);
    let refused = |name: &str, volume: &Volume| {
        let size = volume.size_bytes();
        let error = volume.write_at(&block, size).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::PastEnd { .. }), "{name}: {error}");
        assert_eq!((error.errno(), volume.size_bytes()), (27, size), "{name}: EFBIG");
    };
    refused("raw", &Volume::open(&path, &options().extend(true).mode(IoMode::Raw)).unwrap());
    refused("without the option", &Volume::open(&path, &options().write(true)).unwrap());
    let other = directory.path().join("other");
    std::fs::write(&other, vec![0; 8192]).unwrap();
    refused("a stripe", &Volume::open_stripe(&[&path, &other], 4096, &options().extend(true)).unwrap());
}

/// The system refuses a file of that length.
#[test]
fn a_size_that_the_system_refuses_fails_and_changes_nothing() {
    let Some((_directory, path)) = scratch(1000) else { return };
    let volume = Volume::open(&path, &buffered()).unwrap();
    let error = volume.write_at(&[1], u64::MAX - 1).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Resize { .. }), "{error}");
    assert_eq!(volume.size_bytes(), 1000);
    volume.flush().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1000);
}

/// Without care, the system ends a process that exceeds its limit by a signal.
#[test]
fn a_limit_on_the_length_of_files_is_an_error_and_not_a_signal() {
    const LIMIT: u64 = 3 << 19;
    const FILE: &str = "IOPATH_TEST_LIMITED_FILE";
    const OPEN: &str = "the file is open";
    if let Some(path) = std::env::var_os(FILE) {
        let limit = Rlimit { current: Some(LIMIT), ..getrlimit(Resource::Fsize) };
        setrlimit(Resource::Fsize, limit).unwrap();
        let volume = Volume::open(path.as_ref() as &std::path::Path, &buffered()).unwrap();
        let block = filled(4096, 1);
        while volume.size_bytes() < LIMIT {
            // The first step of the file is below the limit, the second is not.
            volume.write_at(&block, volume.size_bytes()).unwrap();
        }
        let error = volume.write_at(&[1], LIMIT).unwrap_err();
        assert_eq!((error.errno(), volume.size_bytes()), (27, LIMIT), "EFBIG: {error}");
        assert_eq!(volume.resize(LIMIT + 1).unwrap_err().errno(), 27);
        volume.flush().unwrap();
        // The first append after a flush passes the cache.
        let error = volume.write_at(&[1], LIMIT).unwrap_err();
        assert_eq!((error.errno(), volume.size_bytes()), (27, LIMIT), "EFBIG: {error}");
        // A file that is longer already, made so by a process without the limit.
        let path = std::path::Path::new(&path).with_file_name("long");
        let volume = Volume::open(&path, &buffered()).unwrap();
        assert_eq!(volume.size_bytes(), 0);
        println!("{OPEN}");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * LIMIT);
        let error = volume.write_at(&[1], LIMIT).unwrap_err();
        assert_eq!((error.errno(), volume.size_bytes()), (27, 0), "EFBIG: {error}");
        volume.write_at(&block, 0).unwrap();
        return volume.flush().unwrap();
    }
    let Some((_directory, path)) = scratch(0) else { return };
    let name = "extend::a_limit_on_the_length_of_files_is_an_error_and_not_a_signal";
    let long = path.with_file_name("long");
    std::fs::write(&long, []).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(FILE, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let _ = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(OPEN)));
    std::fs::File::options().write(true).open(&long).unwrap().set_len(2 * LIMIT).unwrap();
    drop(child.stdin.take());
    // Reads to the end, so that the child is never blocked by a full pipe.
    lines.for_each(drop);
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(std::fs::metadata(&long).unwrap().len(), 2 * LIMIT);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), LIMIT);
}

/// Steps of the file are the handle's own to cut. Bytes of another handle are not.
#[test]
fn a_file_that_another_handle_made_longer_is_not_cut() {
    let Some((_directory, path)) = scratch(0) else { return };
    let length = || std::fs::metadata(&path).unwrap().len();
    let append = |bytes: usize| {
        let mut other = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        other.write_all(&vec![9; bytes]).unwrap();
    };
    let volume = Volume::open(&path, &buffered()).unwrap();
    // So large that the file grows by a step.
    volume.write_at(&vec![1; 100_000], 0).unwrap();
    let step = length();
    assert!(step > 100_000);
    append(3 << 20);
    let others = step..step + (3 << 20);
    assert_eq!(length(), others.end);
    volume.flush().unwrap();
    assert_eq!(length(), others.end, "a flush cuts it");
    volume.write_at(&[2; 1000], 100_000).unwrap();
    assert_eq!(length(), others.end, "a write that extends the volume cuts it");
    volume.write_at(&vec![2; 100_000], 101_000).unwrap();
    assert_eq!(length(), others.end, "a large write that extends the volume cuts it");
    drop(volume);
    assert_eq!(length(), others.end, "a drop cuts it");
    let found = std::fs::read(&path).unwrap();
    assert!(found[..100_000].iter().all(|byte| *byte == 1));
    assert!(found[100_000..201_000].iter().all(|byte| *byte == 2));
    assert!(found[others.start as usize..].iter().all(|byte| *byte == 9));
}

/// A volume without a page cache has no steps. It extends the file only if the file is too short.
#[test]
fn a_write_without_a_page_cache_does_not_cut_a_file_that_another_handle_made_longer() {
    for (name, options) in [("direct", options()), ("bounced", options().unaligned(Unaligned::Bounce))] {
        let Some((_directory, path)) = scratch(4096) else { return };
        let volume = Volume::open(&path, &options.extend(true)).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(6 * 4096).unwrap();
        for block in 1..8 {
            volume.write_at(&filled(4096, block), block * 4096).unwrap();
            assert_eq!(volume.size_bytes(), (block + 1) * 4096, "{name}");
            let length = std::fs::metadata(&path).unwrap().len();
            assert_eq!(length, volume.size_bytes().max(6 * 4096), "{name}, block {block}");
        }
        volume.flush().unwrap();
        drop(volume);
        let found = std::fs::read(&path).unwrap();
        assert_eq!(found.len(), 8 * 4096, "{name}");
        for (block, part) in (1..8).zip(found.chunks(4096).skip(1)) {
            assert!(part == &filled(4096, block)[..], "{name}, block {block}");
        }
    }
}

/// Concurrent appends, reads and flushes: afterwards the file contains each record completely.
#[test]
fn threads_append_and_read_concurrently() {
    const RECORD: usize = 777;
    let Some((_directory, path)) = scratch(0) else { return };
    let volume = &Volume::open(&path, &buffered()).unwrap();
    let next = &std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                for _ in 0..2000 {
                    let record = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    volume.write_at(&[record as u8 | 1; RECORD], record * RECORD as u64).unwrap();
                }
            });
        }
        scope.spawn(move || {
            let mut found = [0; 5000];
            while volume.size_bytes() < 4000 * RECORD as u64 {
                let from = volume.size_bytes().saturating_sub(5000);
                let read = volume.read_at(&mut found, from).unwrap();
                for (byte, at) in found[..read].iter().zip(from..) {
                    let record = (at / RECORD as u64) as u8 | 1;
                    assert!(*byte == record || *byte == 0, "{byte} at {at}");
                }
            }
        });
        scope.spawn(move || {
            for _ in 0..20 {
                volume.flush().unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
    });
    volume.flush().unwrap();
    let found = std::fs::read(&path).unwrap();
    assert_eq!(found.len(), 4000 * RECORD);
    for (part, record) in found.chunks(RECORD).zip(0_u64..) {
        assert!(part.iter().all(|byte| *byte == record as u8 | 1), "record {record}");
    }
}

/// A process that dies leaves the page cache of the kernel as it is, also the bytes of appends that pass that of
/// iopath.
#[test]
fn a_killed_process_leaves_what_it_flushed_and_no_other_bytes_than_its_own() {
    const FILE: &str = "IOPATH_TEST_KILLED_FILE";
    const START: &str = "IOPATH_TEST_KILLED_START";
    let byte_at = |at: u64| (at % 251) as u8 + 1;
    if let Some(path) = std::env::var_os(FILE) {
        let start: u64 = std::env::var(START).unwrap().parse().unwrap();
        let volume = Volume::open(path.as_ref() as &std::path::Path, &buffered()).unwrap();
        volume.resize(start).unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(start);
        loop {
            let end = volume.size_bytes();
            let bytes = if random.random_range(0..20) == 0 { 100_000 } else { random.random_range(1..9000) };
            volume.write_at(&(end..end + bytes).map(byte_at).collect::<Vec<_>>(), end).unwrap();
            if random.random_range(0..3) > 0 {
                volume.flush().unwrap();
                println!("\nend {}", volume.size_bytes());
            }
        }
    }
    let Some((_directory, path)) = scratch(0) else { return };
    let mut flushed = 0;
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["extend::a_killed_process_leaves_what_it_flushed_and_no_other_bytes_than_its_own"])
            .args(["--exact", "--nocapture"])
            .envs([(FILE, path.as_os_str()), (START, flushed.to_string().as_ref())])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ends = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .filter_map(|line| line.ok()?.strip_prefix("end ")?.parse().ok());
        for _ in 0..2 + 3 * round {
            flushed = ends.next().expect("the child appends until it is killed");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        flushed = ends.last().unwrap_or(flushed);
        let found = std::fs::read(&path).unwrap();
        assert!(found.len() as u64 >= flushed, "round {round}: {} of {flushed} bytes", found.len());
        for (byte, at) in found.iter().zip(0..) {
            let is_own = *byte == byte_at(at);
            assert!(is_own || at >= flushed && *byte == 0, "round {round}: {byte} at {at} of {flushed}");
        }
    }
}

/// The first write extends the volume and fails late. Before it fails, the second write writes to the gap before it.
#[test]
fn a_failed_write_that_extends_loses_no_write_of_another_thread() {
    const BYTES: usize = 32 << 20;
    const FAILS: u64 = (BYTES as u64) / 512;
    let faults = Faults::new(1);
    faults.add(Fault::error(IoError::Media).on(Op::Write).within(Extent::new(Sector(FAILS), 8).unwrap()));
    let data = &filled(BYTES, 1);
    for round in 0..5 {
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(4096)).unwrap();
        let volume = &Volume::memory(&disk, &options().extend(true).faults(&faults)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let error = volume.write_at(data, 8192).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Io(IoError::Media)), "{error}");
            });
            while volume.size_bytes() == 4096 {
                std::hint::spin_loop();
            }
            volume.write_at(&filled(4096, 9), 4096).unwrap();
        });
        let mut found = AlignedBuf::new(4096).unwrap();
        volume.read_exact_at(&mut found, 4096).unwrap();
        assert!(found[..] == filled(4096, 9)[..], "round {round}: a completed write is lost");
    }
}

#[test]
fn a_cursor_appends() {
    let Some((_directory, path)) = scratch(0) else { return };
    let volume = Volume::open(&path, &buffered()).unwrap();
    let mut cursor = volume.cursor();
    for line in 0..1000 {
        writeln!(cursor, "line {line}").unwrap();
    }
    cursor.flush().unwrap();
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(found.lines().zip(0..).all(|(found, line)| found == format!("line {line}")));
    assert_eq!(found.lines().count(), 1000);
}

/// Counts the work, not the time. Each flush makes the file as long as the volume, and no page is read or written back.
#[test]
fn small_appends_with_a_flush_each_write_no_page_back() {
    let Some((_directory, path)) = scratch(0) else { return };
    let data = filled(1 << 20, 3).to_vec();
    let mut done = 0;
    // Log records, frames of a WAL of SQLite, records of a block and less.
    for (number, bytes) in
        [24, 4096, 24, 4096, 1, 512, 4095, 60_000, 100].iter().cycle().take(200).enumerate()
    {
        let volume = Volume::open(&path, &buffered().cache_bytes(4 << 20)).unwrap();
        let read = volume.stats().unwrap().cache.pages_read;
        for _ in 0..10.min((data.len() - done) / bytes) {
            volume.write_at(&data[done..done + bytes], done as u64).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), (done + bytes) as u64);
            volume.flush().unwrap();
            let mut found = vec![0; *bytes];
            volume.read_exact_at(&mut found, done as u64).unwrap();
            assert!(found == data[done..done + bytes], "file {number}");
            done += bytes;
        }
        let cache = volume.stats().unwrap().cache;
        assert_eq!(cache.pages_written, 0, "{cache:?}");
        // The last page that an earlier volume has written.
        assert!(cache.pages_read - read <= 1, "{cache:?}");
        let bios = volume.queue_stats().cache.map_or(0, |queue| queue.bios);
        assert!(bios <= cache.pages_read, "{bios} bios: a flush went to the queue");
        volume.close().unwrap();
    }
    assert!(done > 900_000 && std::fs::read(&path).unwrap() == data[..done]);
}

/// The caller writes one range and flushes by system calls of its own, unless the queue has a log.
#[test]
fn a_lone_flush_passes_the_queue_only_without_a_log() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let volume = Volume::open(&path, &buffered()).unwrap();
    let bios = || volume.queue_stats().cache.unwrap().bios;
    volume.write_at(&filled(8192, 1), 0).unwrap();
    volume.flush().unwrap();
    assert_eq!(bios(), 0);
    // Two ranges are at the device at the same time.
    volume.write_at(&filled(4096, 2), 0).unwrap();
    volume.write_at(&filled(4096, 3), 1 << 18).unwrap();
    volume.flush().unwrap();
    assert_eq!(bios(), 2);
    volume.start_log(Box::new(Discarded)).unwrap();
    volume.write_at(&filled(4096, 4), 4096).unwrap();
    volume.write_at(&[5; 100], 1 << 20).unwrap();
    volume.flush().unwrap();
    assert!(bios() >= 4, "{} bios", bios());
    let found = std::fs::read(&path).unwrap();
    assert!(found[..4096] == filled(4096, 2)[..] && found[4096..8192] == filled(4096, 4)[..]);
    assert!(found[1 << 18..][..4096] == filled(4096, 3)[..] && found[1 << 20..] == [5; 100]);
}

#[derive(Debug)]
struct Discarded;

impl LogSink for Discarded {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        std::mem::take(batch);
        Ok(())
    }
}

/// The filesystem refuses the append, which then waits in the cache for space.
#[test]
fn appends_to_a_full_filesystem_fail_at_the_flush_and_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=256k", "none"];
    let mounted = Command::new("mount").args(mount).arg(directory.path()).stderr(Stdio::null()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no filesystem can be mounted");
    }
    let path = directory.path().join("file");
    std::fs::write(&path, []).unwrap();
    if let Ok(volume) = Volume::open(&path, &buffered().cache_bytes(4 << 20)) {
        let mut model = Vec::new();
        for number in 0..100_u8 {
            volume.write_at(&[number | 1; 5000], model.len() as u64).unwrap();
            model.extend([number | 1; 5000]);
            let mut found = vec![0; model.len()];
            volume.read_exact_at(&mut found, 0).unwrap();
            assert!(found == model, "append {number}");
        }
        let error = volume.flush().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io(IoError::NoSpace)), "{error}");
        volume.resize(100_000).unwrap();
        model.truncate(100_000);
        volume.write_at(&[7; 3000], 100_000).unwrap();
        model.extend([7; 3000]);
        volume.flush().unwrap();
        assert!(std::fs::read(&path).unwrap() == model);
        volume.close().unwrap();
    }
    assert!(Command::new("umount").arg(directory.path()).status().unwrap().success());
}

/// After appends that pass the cache, pages change in the cache, and appends reach the next step.
#[test]
fn bytes_appended_past_the_cache_can_be_overwritten_and_cut_off() {
    let Some((_directory, path)) = scratch(0) else { return };
    let volume = Volume::open(&path, &buffered()).unwrap();
    let mut model = Vec::new();
    let mut random = ChaCha8Rng::seed_from_u64(11);
    for step in 0..2000 {
        let bytes = random.random_range(1..6000);
        let byte = step as u8 | 1;
        match random.random_range(0..12) {
            0 if !model.is_empty() => {
                let at = random.random_range(0..model.len());
                let end = model.len().min(at + bytes);
                volume.write_at(&vec![byte; end - at], at as u64).unwrap();
                model[at..end].fill(byte);
            }
            1 => {
                let size = random.random_range(0..=model.len());
                volume.resize(size as u64).unwrap();
                model.truncate(size);
            }
            2 => {
                volume.write_at(&[byte; 10], model.len() as u64 + 3).unwrap();
                model.extend([0; 3].into_iter().chain([byte; 10]));
            }
            3..6 => volume.flush().unwrap(),
            // A borrowed page keeps its bytes while the page is appended to.
            6 if !model.is_empty() => {
                let last = model.len() - 1;
                let borrowed = volume.borrow(last as u64, 1).unwrap();
                volume.write_at(&vec![byte; bytes], model.len() as u64).unwrap();
                assert_eq!(borrowed.as_slice(), Some(&model[last..]), "step {step}");
                model.resize(model.len() + bytes, byte);
            }
            7 => {
                let from = random.random_range(0..=model.len());
                let mut found = vec![9; model.len() - from + 10];
                let read = volume.read_at(&mut found, from as u64).unwrap();
                assert!(found[..read] == model[from..], "step {step}");
            }
            _ => {
                volume.write_at(&vec![byte; bytes], model.len() as u64).unwrap();
                model.resize(model.len() + bytes, byte);
            }
        }
    }
    let cache = volume.stats().unwrap().cache;
    assert!(cache.appended > 500 && cache.pages_written > 50, "both ways are used: {cache:?}");
    volume.close().unwrap();
    assert!(std::fs::read(&path).unwrap() == model);
}

/// Counts the work, not the time, which depends on the load of the machine. An append that resizes the file changes its
/// length, and writes its last page back.
#[test]
fn appends_move_the_end_of_the_file_in_steps_and_write_each_page_about_once() {
    const COUNT: u64 = 20_000;
    let Some((_directory, path)) = scratch(0) else { return };
    let volume = Volume::open(&path, &buffered().cache_bytes(64 << 20)).unwrap();
    let mut lengths = BTreeSet::new();
    for number in 0..COUNT {
        volume.write_at(&[number as u8; 1000], number * 1000).unwrap();
        if number * 1000 > 1 << 20 {
            // Those of the first step may pass the cache.
            lengths.insert(std::fs::metadata(&path).unwrap().len());
        }
    }
    volume.flush().unwrap();
    let cache = volume.stats().unwrap().cache;
    let (mib, pages) = (COUNT * 1000 / (1 << 20), COUNT * 1000 / 4096);
    assert!(lengths.len() as u64 <= mib + 1, "{} lengths of a file of {mib} MiB", lengths.len());
    assert!(cache.pages_written <= 2 * pages, "{cache:?} for {pages} pages");
    // The last page of the appends that did without the cache.
    assert!(cache.pages_read <= 1, "{cache:?}");
}
