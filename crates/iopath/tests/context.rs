//! Volumes whose page caches share the memory of a context.

use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{Context, IoMode, OpenError, Options, Volume};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::thread;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const MIN_BYTES: u64 = 16 * PAGE;
/// A limit for waits that end in milliseconds.
const LONG: Duration = Duration::from_secs(60);

fn disk(bytes: u64) -> MemoryDisk {
    MemoryDisk::new(&MemoryConfig::of_bytes(bytes)).expect("memory")
}

fn open(disk: &MemoryDisk, context: &Context) -> Volume {
    let options = Options::new().mode(IoMode::Buffered).write(true).context(context);
    Volume::memory(disk, &options).expect("the context has memory")
}

/// Reads all pages of a volume. Returns how many the cache did not have.
fn scan(volume: &Volume) -> u64 {
    let misses = || volume.stats().expect("a page cache").cache.pages_read;
    let before = misses();
    let mut page = [0; PAGE as usize];
    for offset in (0..volume.size_bytes()).step_by(PAGE as usize) {
        volume.read_exact_at(&mut page, offset).expect("no faults");
    }
    misses() - before
}

/// Repeats `act` until it returns true.
fn until(what: &str, mut act: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !act() {
        assert!(begun.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn many_volumes_keep_their_bytes_in_little_memory() {
    const VOLUMES: usize = 60;
    const BYTES: usize = 1 << 20;
    const MEMORY: u64 = 8 << 20;
    let context = Context::new(MEMORY);
    let disks: Vec<_> = (0..VOLUMES).map(|_| disk(BYTES as u64)).collect();
    let volumes: Vec<_> = disks.iter().map(|disk| open(disk, &context)).collect();
    let mut models = vec![vec![0_u8; BYTES]; VOLUMES];
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for step in 0..20_000_u32 {
        let volume = random.random_range(0..VOLUMES);
        let bytes = random.random_range(1..20_000);
        let start = random.random_range(0..=BYTES - bytes);
        let part = start..start + bytes;
        if random.random() {
            models[volume][part.clone()].fill(step as u8);
            volumes[volume].write_at(&models[volume][part], start as u64).expect("no faults");
        } else {
            let mut found = vec![0; bytes];
            volumes[volume].read_exact_at(&mut found, start as u64).expect("no faults");
            assert!(found == models[volume][part], "step {step}: volume {volume}, {bytes} bytes at {start}");
        }
    }
    for volume in &volumes {
        volume.flush().expect("no faults");
    }
    until("clean pages exceed the memory", || context.stats().used_bytes <= MEMORY);
    let stats = context.stats();
    assert_eq!((stats.memory_bytes, stats.volumes), (MEMORY, VOLUMES));
    assert!(stats.budget_bytes <= MEMORY, "{stats:?}");
    drop(volumes);
    assert_eq!((context.stats().volumes, context.stats().budget_bytes), (0, 0));
    for (disk, model) in disks.iter().zip(&models) {
        let volume = Volume::memory(disk, &Options::new()).expect("it opened before");
        let mut found = iopath::AlignedBuf::new(BYTES).expect("memory");
        volume.read_exact_at(&mut found, 0).expect("no faults");
        assert!(found[..] == model[..], "bytes are lost");
    }
}

#[test]
fn a_busy_volume_gets_the_memory_of_an_idle_one() {
    let context = Context::new(8 << 20);
    let (idle, busy) = (disk(8 << 20), disk(6 << 20));
    let idle = open(&idle, &context);
    until("a volume alone gets all memory", || scan(&idle) == 0);
    let busy = open(&busy, &context);
    until("a busy volume gets what it needs", || scan(&busy) == 0);
    assert!(context.stats().budget_bytes <= 8 << 20);
    assert!(scan(&idle) > 0, "its pages were evicted");
}

#[test]
fn busy_volumes_share_the_memory() {
    let context = Context::new(8 << 20);
    let disks = [disk(16 << 20), disk(3 << 20)];
    let [large, small] = disks.each_ref().map(|disk| open(disk, &context));
    scan(&large);
    // A scan of the large volume never ends to evict, and the small one fits its fair share.
    until("a volume below its share gets memory", || {
        scan(&large);
        scan(&small) == 0
    });
}

#[test]
fn less_memory_is_released_at_once_and_no_dirty_or_borrowed_page_is_lost() {
    let context = Context::new(8 << 20);
    let disk = disk(4 << 20);
    let volume = open(&disk, &context);
    until("it gets all memory", || scan(&volume) == 0);
    let borrowed = volume.borrow(0, 20 * PAGE as usize).expect("cached");
    volume.write_at(&vec![7; 30 * PAGE as usize], 40 * PAGE).expect("no faults");
    context.set_memory_bytes(0);
    let used = context.stats().used_bytes;
    // The 30 dirty pages are released as the flusher writes them back, which it does now.
    assert!((20 * PAGE..=60 * PAGE).contains(&used), "{used} bytes");
    assert!(borrowed.slices().flatten().all(|byte| *byte == 0));
    drop(borrowed);
    volume.flush().expect("no faults");
    scan(&volume);
    until("the minimum is left", || {
        context.set_memory_bytes(0);
        context.stats().used_bytes <= MIN_BYTES
    });
    let mut found = vec![0; 30 * PAGE as usize];
    volume.read_exact_at(&mut found, 40 * PAGE).expect("no faults");
    assert!(found.iter().all(|byte| *byte == 7));
}

#[test]
fn caches_work_in_a_context_with_less_than_a_page_for_each() {
    let context = Context::new(10_000);
    let disks: Vec<_> = (0..20_u8).map(|_| disk(1 << 20)).collect();
    let volumes: Vec<_> = disks.iter().map(|disk| open(disk, &context)).collect();
    for (volume, byte) in volumes.iter().zip(0..) {
        volume.write_at(&vec![byte; 100_000], 5000).expect("no faults");
    }
    for (volume, byte) in volumes.iter().zip(0..) {
        let mut found = vec![255; 100_000];
        volume.read_exact_at(&mut found, 5000).expect("no faults");
        assert!(found.iter().all(|found| *found == byte));
        volume.flush().expect("no faults");
    }
    until("each keeps a page", || {
        context.set_memory_bytes(10_000);
        context.stats().used_bytes <= 20 * PAGE
    });
}

#[test]
fn a_volume_that_is_not_used_has_no_cache() {
    let context = Context::new(1 << 20);
    let disks: Vec<_> = (0..3).map(|_| disk(1 << 20)).collect();
    let first = open(&disks[0], &context);
    let others = [open(&disks[1], &context), open(&disks[2], &context)];
    let caches = context.stats().volumes;
    assert!(caches <= 1, "only the first volume of the process has opened its cache");
    for volume in &others {
        assert_eq!(volume.facts().engine, first.facts().engine);
        assert_eq!(volume.stats().expect("it has a cache").hits, 0);
        assert!(!volume.accept_loss().expect("it has a cache"));
    }
    let [used, unused] = others;
    used.write_at(&[3; 10], 7).expect("no faults");
    assert_eq!(context.stats().volumes, caches + 1, "a write opens the cache");
    unused.close().expect("no faults");
    used.close().expect("no faults");
    let mut found = [0; 10];
    open(&disks[1], &context).read_exact_at(&mut found, 7).expect("no faults");
    assert_eq!(found, [3; 10]);
}

#[test]
fn dirty_pages_of_a_dropped_volume_are_written_back_and_those_of_an_abandoned_one_are_not() {
    let context = Context::new(1 << 20);
    let disk = disk(1 << 20);
    let volume = open(&disk, &context);
    volume.write_at(&[1; 100], 50).expect("no faults");
    drop(volume);
    let volume = open(&disk, &context);
    let mut found = [0; 100];
    volume.read_exact_at(&mut found, 50).expect("no faults");
    assert_eq!(found, [1; 100]);
    volume.write_at(&[2; 100], 50).expect("no faults");
    volume.abandon().expect("the only handle");
    assert_eq!(context.stats().volumes, 0);
    open(&disk, &context).read_exact_at(&mut found, 50).expect("no faults");
    assert_eq!(found, [1; 100]);
}

/// The volume opens its cache after the file has another path, and another file has its path.
#[test]
fn a_file_that_was_renamed_or_removed_before_its_first_write_is_written_itself() {
    const BYTES: usize = 5000;
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let create = |name: &str| std::fs::write(path(name), [1; BYTES]).expect("a file");
    let context = Context::new(1 << 20);
    let options = Options::new().mode(IoMode::Buffered).write(true).context(&context);
    create("first");
    let _first = match Volume::open(path("first"), &options) {
        Ok(volume) => volume,
        Err(why) => return println!("skipped: {why}"),
    };
    create("old");
    let renamed = Volume::open(path("old"), &options).expect("as the first");
    std::fs::rename(path("old"), path("new")).expect("a free name");
    create("old");
    create("removed");
    let removed = Volume::open(path("removed"), &options).expect("as the first");
    std::fs::remove_file(path("removed")).expect("it exists");
    assert!(context.stats().volumes <= 1, "neither has opened its cache");
    for volume in [&renamed, &removed] {
        volume.write_at(&[2; 900], 4100).expect("no faults");
        volume.flush().expect("no faults");
        let mut found = [0; BYTES];
        volume.read_exact_at(&mut found, 0).expect("no faults");
        assert!(found[..4100].iter().all(|byte| *byte == 1) && found[4100..].iter().all(|byte| *byte == 2));
    }
    let new = std::fs::read(path("new")).expect("it exists");
    assert!(new.len() == BYTES && new[4100..].iter().all(|byte| *byte == 2));
    let old = std::fs::read(path("old")).expect("it exists");
    assert!(old == [1; BYTES], "another file was written");
}

#[test]
fn options_are_checked_when_a_volume_is_opened() {
    let context = Context::new(1 << 20);
    let disk = disk(1 << 20);
    let _first = open(&disk, &context);
    let options = Options::new().mode(IoMode::Buffered).context(&context);
    let small = Volume::memory(&disk, &options.clone().cache_bytes(1)).expect_err("less than 16 pages");
    assert!(matches!(small, OpenError::CacheSize { cache_bytes: 1, .. }), "{small}");
    let caches = context.stats().volumes;
    let volume = Volume::memory(&disk, &options).expect("valid options");
    assert_eq!(context.stats().volumes, caches);
    volume.warm().expect("memory");
    assert_eq!(context.stats().volumes, caches + 1);
}

/// The thread of an idle cache ends, and a later write starts it again.
#[test]
fn pages_are_written_back_in_the_background_also_after_a_pause() {
    let context = Context::new(1 << 20);
    let disk = disk(1 << 20);
    let volume = open(&disk, &context);
    for pause in [Duration::ZERO, Duration::from_secs(1)] {
        thread::sleep(pause);
        volume.write_at(&[1; 100], 50).expect("no faults");
        until("the page stays dirty", || volume.stats().expect("a page cache").cache.dirty == 0);
    }
}

/// The last handle may be that of a volume.
#[test]
fn a_context_lives_as_long_as_its_volumes() {
    let disk = disk(1 << 20);
    let volume = open(&disk, &Context::new(1 << 20));
    assert!(scan(&volume) > 0);
}
