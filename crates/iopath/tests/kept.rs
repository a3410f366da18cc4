//! Caches that outlive their volumes in a context. A volume may find the pages of an earlier one only if the file is
//! unchanged.

mod random;

use crate::support::{options, scratch_with};
use iopath::mapped::{FileLayout, FileMap};
use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{Context, IoMode, Op, Options, Volume};
use iopath_os::kernel::{Blocking, Direction, Mmap, Slots, Transfer};
use iopath_os::target::FileVersion;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;

/// Longer than the tick of any clock of timestamps.
const TICKS: Duration = Duration::from_millis(40);

/// A file in a directory of its own, on a filesystem whose files can be compared.
fn file(bytes: &[u8]) -> Option<(tempfile::TempDir, PathBuf)> {
    let (directory, path) = scratch_with(bytes)?;
    if FileVersion::look(&File::open(&path).expect("it exists")).is_none() {
        eprintln!("skipped: the filesystem of {} does not show every change", path.display());
        return None;
    }
    // The first writable volume of a filesystem changes the times of its file.
    drop(open(&path, &options().write(true)));
    // Without multigrain timestamps, a file that has just changed proves nothing.
    thread::sleep(TICKS);
    Some((directory, path))
}

fn keeping(volumes: usize) -> Context {
    let context = Context::new(8 << 20);
    context.keep_closed(volumes);
    context
}

fn buffered(context: &Context) -> Options {
    options().mode(IoMode::Buffered).cache_bytes(1 << 20).context(context)
}

/// The options of a volume whose pages are kept also after a write.
fn locked(context: &Context) -> Options {
    buffered(context).write(true).lock(true)
}

fn read(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0; volume.size_bytes() as usize];
    volume.read_exact_at(&mut bytes, 0).expect("no faults");
    bytes
}

/// The pages that caches with these pages have read.
fn pages_read(volume: &Volume) -> u64 {
    volume.stats().expect("a page cache").cache.pages_read
}

fn open(path: &Path, options: &Options) -> Volume {
    Volume::open(path, options).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Reads a file through a volume and closes it, so that its pages are kept.
fn keep(path: &Path, options: &Options, context: &Context) {
    let volume = open(path, options);
    assert_eq!(read(&volume), fs::read(path).expect("it exists"));
    let kept = context.stats().kept_caches;
    volume.close().expect("no faults");
    assert_eq!(context.stats().kept_caches, kept + 1, "the pages are kept");
}

fn writable(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("it exists")
}

/// Repeats `act` until it returns true.
fn until(what: &str, mut act: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !act() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Stores bytes through a mapping.
fn store(mapping: &mut Mmap, byte: u8, offset: u64, bytes: u32) {
    let mut slots = Slots::new(1, bytes, |buffer| buffer.fill(byte)).expect("memory").without_stamps();
    let transfer = Transfer { direction: Direction::Write, offset, bytes };
    mapping.run(&mut slots, 0, transfer).expect("the file has these bytes");
}

#[test]
fn the_pages_of_a_closed_volume_serve_the_next_one_without_an_open_descriptor() {
    let Some((_directory, path)) = file(&vec![7; 10 * PAGE + 100]) else { return };
    let context = keeping(3);
    let volume = open(&path, &locked(&context));
    read(&volume);
    volume.write_at(&[8; 5000], 6000).expect("no faults");
    volume.flush().expect("no faults");
    let expected = read(&volume);
    thread::sleep(TICKS);
    volume.close().expect("no faults");
    let stats = context.stats();
    assert_eq!((stats.volumes, stats.kept_caches, stats.kept_bytes), (0, 1, 11 * PAGE as u64));
    assert_eq!((stats.used_bytes, stats.budget_bytes), (stats.kept_bytes, 0));
    // The system executes no file that is open for writing.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("the file is ours");
    until("the file is open", || {
        let error = std::process::Command::new(&path).spawn().expect_err("it is no program");
        error.raw_os_error() != Some(rustix::io::Errno::TXTBSY.raw_os_error())
    });
    let volume = open(&path, &locked(&context));
    assert_eq!((read(&volume), context.stats().reopened), (expected.clone(), 0), "ctime has changed");
    let read_so_far = pages_read(&volume);
    thread::sleep(TICKS);
    drop(volume);
    for round in 1..4 {
        let volume = open(&path, &locked(&context));
        assert_eq!(read(&volume), expected);
        assert_eq!(pages_read(&volume), read_so_far, "no page was read again");
        assert_eq!(context.stats().reopened, round);
        assert_eq!((context.stats().kept_caches, context.stats().kept_bytes), (0, 0));
    }
}

#[test]
fn without_a_lock_the_file_must_have_been_unchanged_for_a_while() {
    let Some((_directory, path)) = file(&[7; 3 * PAGE]) else { return };
    let context = keeping(3);
    let options = buffered(&context);
    read(&open(&path, &options));
    assert_eq!(context.stats().kept_caches, 0, "a write may have been in progress");
    thread::sleep(Duration::from_millis(2100));
    keep(&path, &options, &context);
    assert_eq!(read(&open(&path, &options)), [7; 3 * PAGE]);
    assert_eq!(context.stats().reopened, 1);
    // Neither does a volume without a lock know that all writes were its own.
    let volume = open(&path, &options.clone().write(true));
    assert_eq!(read(&volume), [7; 3 * PAGE]);
    assert_eq!(context.stats().reopened, 2, "a writable volume gets the pages, too");
    volume.write_at(&[9; 10], 10).expect("no faults");
    volume.close().expect("no faults");
    assert_eq!(context.stats().kept_caches, 0);
    assert_eq!(read(&open(&path, &options))[10..20], [9; 10]);
}

#[test]
fn pages_are_kept_only_if_the_context_is_told_to() {
    let Some((_directory, path)) = file(&[7; PAGE]) else { return };
    let context = Context::new(1 << 20);
    open(&path, &locked(&context)).close().expect("no faults");
    read(&open(&path, &locked(&context)));
    assert_eq!(context.stats().kept_caches, 0);
    context.keep_closed(1);
    keep(&path, &locked(&context), &context);
    context.keep_closed(0);
    assert_eq!((context.stats().kept_caches, context.stats().kept_bytes), (0, 0));
    assert_eq!(read(&open(&path, &locked(&context))), [7; PAGE]);
    assert_eq!(context.stats().reopened, 0);
}

/// What another program can do to a file. Returns the expected bytes.
type Change = (&'static str, fn(&Path, Vec<u8>) -> Vec<u8>);

const CHANGES: &[Change] = &[
    ("write", |path, mut bytes| {
        bytes[100] ^= 1;
        writable(path).write_all_at(&bytes[100..101], 100).expect("space");
        bytes
    }),
    ("write, then restore mtime", |path, mut bytes| {
        let file = writable(path);
        let modified = file.metadata().expect("it exists").modified().expect("a time");
        bytes[5000] ^= 1;
        file.write_all_at(&bytes[5000..5001], 5000).expect("space");
        file.set_modified(modified).expect("the file is ours");
        bytes
    }),
    ("direct write", |path, mut bytes| {
        let volume = open(path, &options().write(true));
        let page = crate::support::filled(PAGE, 1);
        bytes[PAGE..2 * PAGE].copy_from_slice(&page);
        volume.write_at(&page, PAGE as u64).expect("no faults");
        volume.close().expect("no faults");
        bytes
    }),
    ("truncate", |path, mut bytes| {
        bytes.truncate(bytes.len() - 10);
        writable(path).set_len(bytes.len() as u64).expect("space");
        bytes
    }),
    ("truncate and extend", |path, mut bytes| {
        let (file, size) = (writable(path), bytes.len());
        file.set_len(PAGE as u64).expect("space");
        file.set_len(size as u64).expect("space");
        bytes[PAGE..].fill(0);
        bytes
    }),
    ("append", |path, mut bytes| {
        bytes.extend([5; 20]);
        fs::write(path, &bytes).expect("space");
        bytes
    }),
    ("punch a hole", |path, mut bytes| {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(writable(path), flags, 0, PAGE as u64).is_ok() {
            bytes[..PAGE].fill(0);
        }
        bytes
    }),
    ("rename another file over it", |path, mut bytes| {
        bytes.reverse();
        let other = path.with_extension("other");
        fs::write(&other, &bytes).expect("space");
        let modified = fs::metadata(path).and_then(|about| about.modified()).expect("it exists");
        writable(&other).set_modified(modified).expect("the file is ours");
        fs::rename(&other, path).expect("the directory is ours");
        bytes
    }),
    ("remove and create", |path, mut bytes| {
        fs::remove_file(path).expect("it exists");
        bytes.reverse();
        fs::write(path, &bytes).expect("space");
        bytes
    }),
    ("copy into it", |path, mut bytes| {
        let other = path.with_extension("other");
        bytes[..200].fill(6);
        fs::write(&other, &bytes[..200]).expect("space");
        let (from, to) = (File::open(&other).expect("it exists"), writable(path));
        if rustix::fs::copy_file_range(&from, None, &to, None, 200).is_err() {
            to.write_all_at(&bytes[..200], 0).expect("space");
        }
        fs::remove_file(&other).expect("it exists");
        bytes
    }),
    ("store through a new mapping", |path, mut bytes| {
        let mut mapping = Mmap::new(writable(path), bytes.len() as u64, true).expect("a mapping");
        store(&mut mapping, 0xAA, 50, 30);
        bytes[50..80].fill(0xAA);
        bytes
    }),
];

#[test]
fn each_change_of_a_closed_file_is_noticed() {
    let first: Vec<u8> = (0..3 * PAGE + 50).map(|byte| (byte % 251) as u8).collect();
    for (what, change) in CHANGES {
        let Some((_directory, path)) = file(&first) else { return };
        let context = keeping(3);
        for volume in [locked(&context), buffered(&context).lock(true)] {
            keep(&path, &volume, &context);
            let expected = change(&path, fs::read(&path).expect("it exists"));
            assert_eq!(fs::read(&path).expect("it exists"), expected, "{what}");
            thread::sleep(TICKS);
            assert!(read(&open(&path, &volume)) == expected, "{what}");
            assert_eq!(context.stats().reopened, 0, "{what}");
            context.keep_closed(0);
            context.keep_closed(3);
        }
    }
}

/// A store into a page that is dirty in the kernel already does not set ctime.
#[test]
fn a_store_through_a_mapping_that_was_used_before_the_close_is_noticed() {
    let Some((_directory, path)) = file(&[1; 3 * PAGE]) else { return };
    let context = keeping(3);
    let mut mapping = Mmap::new(writable(&path), 3 * PAGE as u64, true).expect("a mapping");
    let mut expected = fs::read(&path).expect("it exists");
    for (is_writable, byte, offset) in
        [(false, 3, 30), (true, 4, PAGE + 60), (false, 5, 2 * PAGE), (true, 6, 0)]
    {
        let options = buffered(&context).lock(true).write(is_writable);
        // Dirty before the volume reads it.
        store(&mut mapping, 2, offset as u64, 10);
        thread::sleep(TICKS);
        keep(&path, &options, &context);
        store(&mut mapping, byte, offset as u64 + 5, 10);
        expected[offset..offset + 5].fill(2);
        expected[offset + 5..offset + 15].fill(byte);
        assert!(read(&open(&path, &options)) == expected, "the store of {byte}");
        context.keep_closed(0);
        context.keep_closed(3);
    }
    assert_eq!(context.stats().reopened, 0);
}

#[test]
fn a_change_while_a_volume_is_open_is_noticed_by_the_next_one() {
    let Some((_directory, path)) = file(&[1; 3 * PAGE]) else { return };
    let context = keeping(3);
    let options = buffered(&context).lock(true);
    let volume = open(&path, &options);
    read(&volume);
    writable(&path).write_all_at(&[2; 10], 5000).expect("space");
    volume.close().expect("no faults");
    assert_eq!(context.stats().kept_caches, 0);
    assert_eq!(read(&open(&path, &options))[5000..5010], [2; 10]);
}

#[test]
fn pages_of_several_volumes_on_one_file_are_kept_only_if_none_has_written() {
    let Some((_directory, path)) = file(&[1; 3 * PAGE]) else { return };
    let context = keeping(3);
    let first = open(&path, &locked(&context));
    read(&first);
    let second = open(&path, &buffered(&context).write(true).second_cache(true));
    read(&second);
    second.write_at(&[2; 10], 5000).expect("no faults");
    second.close().expect("no faults");
    first.write_at(&[3; 10], 100).expect("no faults");
    first.close().expect("no faults");
    assert_eq!(context.stats().kept_caches, 0, "the first has not seen the write of the second");
    thread::sleep(TICKS);
    let shared = buffered(&context).lock(true);
    let both = [open(&path, &shared), open(&path, &shared)];
    for volume in &both {
        assert_eq!(read(volume)[5000..5010], [2; 10]);
    }
    drop(both);
    assert_eq!(context.stats().kept_caches, 1, "both have the same pages");
}

/// A volume of the context that ignores the lock writes a page that another has in its cache, and is closed.
#[test]
fn pages_of_a_volume_that_has_written_are_not_kept_if_another_volume_could_write_in_any_mode() {
    let Some((_directory, path)) = file(&vec![1; 8 * PAGE]) else { return };
    let context = keeping(3);
    let direct = options().write(true).context(&context);
    let page = crate::support::filled(PAGE, 2);
    let layout =
        FileLayout { block_bytes: PAGE as u32, size_bytes: 4 * PAGE as u64, capacity_bytes: 8 * PAGE as u64 };
    let map = FileMap::fresh("extent", &layout).expect("a map");
    let others: [(&str, &dyn Fn() -> Volume); 4] = [
        ("direct", &|| open(&path, &direct)),
        ("from a file", &|| Volume::from_file(writable(&path), &direct).expect("a file")),
        ("stripe", &|| Volume::open_stripe(&[&path], PAGE as u64, &direct).expect("a file")),
        ("mapped", &|| Volume::open_mapped(&path, &map, &direct).expect("it fits")),
    ];
    for (what, other) in others {
        for is_first in [false, true] {
            let early = is_first.then(other);
            let volume = open(&path, &locked(&context));
            read(&volume);
            let other = early.unwrap_or_else(other);
            other.write_at(&page, 0).expect("no faults");
            drop(other);
            volume.write_at(&[3; 10], 5 * PAGE as u64).expect("no faults");
            volume.flush().expect("no faults");
            thread::sleep(TICKS);
            volume.close().expect("no faults");
            assert_eq!(context.stats().kept_caches, 0, "{what}");
            let expected = fs::read(&path).expect("it exists");
            assert!(read(&open(&path, &buffered(&context))) == expected, "{what}");
        }
    }
    // One that only reads does not matter.
    let reader = open(&path, &options().context(&context));
    let volume = open(&path, &locked(&context));
    volume.write_at(&[4; 10], 0).expect("no faults");
    volume.flush().expect("no faults");
    thread::sleep(TICKS);
    volume.close().expect("no faults");
    assert_eq!(context.stats().kept_caches, 1);
    drop(reader);
}

#[test]
fn pages_are_kept_also_if_readahead_is_in_flight() {
    let bytes: Vec<u8> = (0..256 * PAGE).map(|byte| (byte / 100 % 251) as u8).collect();
    let Some((_directory, path)) = file(&bytes) else { return };
    let context = keeping(3);
    let options = buffered(&context).lock(true).cache_bytes(2 << 20);
    for round in 0..20 {
        for elevator in ["none", "deadline"] {
            let volume = open(&path, &options.clone().elevator(elevator));
            let mut page = vec![0; PAGE];
            for number in 0..2 + round {
                volume.read_exact_at(&mut page, (number * PAGE) as u64).expect("no faults");
            }
            drop(volume);
            assert_eq!(context.stats().kept_caches, 1, "{elevator}, round {round}");
            let volume = open(&path, &options);
            assert!(read(&volume) == bytes);
            assert_eq!(context.stats().kept_caches, 0, "it has the pages");
            volume.abandon().expect("the only handle");
        }
    }
    assert_eq!(context.stats().reopened, 40);
}

#[test]
fn pages_that_are_not_on_the_medium_or_in_doubt_are_not_kept() {
    let Some((_directory, path)) = file(&[1; 3 * PAGE]) else { return };
    let context = keeping(9);
    let unflushed = open(&path, &locked(&context));
    unflushed.write_at(&[2; 10], 100).expect("no faults");
    drop(unflushed);
    assert_eq!(context.stats().kept_caches, 0, "not flushed");
    let abandoned = open(&path, &locked(&context));
    read(&abandoned);
    abandoned.abandon().expect("the only handle");
    assert_eq!(context.stats().kept_caches, 0, "abandoned");
    let faults = Faults::new(1);
    let volume = open(&path, &locked(&context).faults(&faults));
    read(&volume);
    faults.add(Fault::error(iopath::IoError::Media).on(Op::Write).times(1));
    volume.write_at(&[3; 10], 100).expect("into the cache");
    assert!(volume.flush().is_err());
    drop(volume);
    assert_eq!(context.stats().kept_caches, 0, "with faults");
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).expect("memory");
    read(&Volume::memory(&disk, &buffered(&context)).expect("memory"));
    read(&Volume::open_stripe(&[&path], 4096, &buffered(&context)).expect("a file"));
    assert_eq!(context.stats().kept_caches, 0, "no file");
}

#[test]
fn pages_are_for_volumes_with_the_same_cache() {
    let Some((_directory, path)) = file(&vec![1; 5 * PAGE]) else { return };
    let context = keeping(3);
    let first = locked(&context);
    keep(&path, &first, &context);
    for other in [
        first.clone().page_bytes(16 << 10),
        first.clone().cache_bytes(2 << 20),
        first.clone().readahead(iopath::Readahead::Off),
    ] {
        let volume = open(&path, &other);
        assert_eq!(read(&volume), vec![1; 5 * PAGE]);
        assert_eq!(context.stats().reopened, 0);
        volume.abandon().expect("the only handle");
    }
    // Neither the engine nor the elevator is part of the cache.
    read(&open(&path, &first.clone().elevator("deadline").depth(3)));
    assert_eq!(context.stats().reopened, 1);
    // Advice is.
    let volume = open(&path, &first);
    volume.advise(0, 0, iopath::Advice::Random).expect("a page cache");
    volume.advise(0, 0, iopath::Advice::NoReuse).expect("a page cache");
    drop(volume);
    assert_eq!(context.stats().reopened, 2);
}

#[test]
fn a_new_cache_gets_more_than_its_minimum_although_kept_pages_fill_the_memory() {
    let Some((directory, path)) = file(&vec![1; 256 * PAGE]) else { return };
    let context = keeping(9);
    let options = buffered(&context).lock(true);
    let paths = [0, 1].map(|number| directory.path().join(number.to_string()));
    for copy in &paths {
        fs::copy(&path, copy).expect("space");
    }
    thread::sleep(TICKS);
    for copy in &paths {
        keep(copy, &options, &context);
    }
    let memory = 512 * PAGE as u64;
    context.set_memory_bytes(memory);
    assert_eq!(context.stats().kept_bytes, memory);
    let volume = open(&path, &options);
    volume.warm().expect("memory");
    let stats = context.stats();
    assert!(stats.budget_bytes >= 64 * PAGE as u64, "{stats:?}");
    assert!(stats.budget_bytes + stats.kept_bytes <= memory, "{stats:?}");
}

#[test]
fn the_longest_closed_caches_go_first() {
    let Some((directory, path)) = file(&vec![1; 32 * PAGE]) else { return };
    let context = keeping(2);
    let options = buffered(&context).lock(true).readahead(iopath::Readahead::Off);
    let paths = [0, 1, 2].map(|number| directory.path().join(number.to_string()));
    for copy in &paths {
        fs::copy(&path, copy).expect("space");
    }
    thread::sleep(TICKS);
    for copy in &paths {
        read(&open(copy, &options));
    }
    let stats = context.stats();
    assert_eq!((stats.kept_caches, stats.kept_bytes), (2, 64 * PAGE as u64), "at most two");
    context.set_memory_bytes(40 * PAGE as u64);
    let stats = context.stats();
    assert_eq!((stats.kept_caches, stats.kept_bytes), (2, 40 * PAGE as u64), "the first is smaller");
    context.set_memory_bytes(10 * PAGE as u64);
    let stats = context.stats();
    assert_eq!((stats.kept_caches, stats.kept_bytes), (1, 10 * PAGE as u64));
    context.set_memory_bytes(64 * PAGE as u64);
    for (reopened, copy) in [(0, &paths[0]), (0, &paths[1]), (1, &paths[2])] {
        let volume = open(copy, &options);
        assert_eq!(read(&volume), vec![1; 32 * PAGE]);
        assert_eq!(context.stats().reopened, reopened);
        volume.abandon().expect("the only handle");
    }
    // Open volumes need the memory more.
    keep(&path, &options, &context);
    let busy = [&paths[0], &paths[1]].map(|copy| open(copy, &options));
    until("pages of a closed volume are kept", || {
        for volume in &busy {
            assert_eq!(read(volume), vec![1; 32 * PAGE]);
        }
        context.stats().kept_caches == 0
    });
}
