//! Each value of this crate prints as a few lines for `{:?}`, so that a log of a program with a volume in it stays
//! readable.

use crate::support::{options, scratch};
use iopath::buffers::AnyBuf;
use iopath::elevator::ELEVATORS;
use iopath::log::{RecordBatch, RequestLog};
use iopath::mapped::{Boundary, ExtentMap, FileLayout, FileMap, FreeSpace, IndirectMap, MAPPERS, Space};
use iopath::source::Extent;
use iopath::stats::{BufferedStats, LatencyCounts};
use iopath::stripe::Member;
use iopath::testing::{Damage, Fault, Faults, MemoryConfig, MemoryDisk, MemoryTail};
use iopath::{
    Advice, AlignedBuf, AsyncVolume, BatchOptions, BufferPool, Context, IoError, IoMode, Op, Options,
    Priority, Readahead, Request, Stream, Unaligned, Volume, target,
};
use std::fmt::Debug;

const BYTES: u64 = 64 << 20;

/// Prints a value in both forms.
#[track_caller]
fn is_short(value: &impl Debug) {
    const MAX: usize = 1024;
    let name = std::any::type_name_of_val(value);
    let text = format!("{value:?}");
    assert!(!text.is_empty() && text.len() <= MAX, "{name} prints {} bytes: {}…", text.len(), &text[..MAX]);
}

fn disk() -> MemoryDisk {
    MemoryDisk::new(&MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(BYTES) }).unwrap()
}

#[test]
fn every_handle_of_a_volume_prints_briefly() {
    let disk = disk();
    is_short(&disk);
    is_short(&AlignedBuf::new(1 << 20).unwrap());
    let direct = Options::new().write(true);
    for options in [
        direct.clone(),
        direct.clone().unaligned(Unaligned::Bounce),
        direct.clone().elevator("deadline"),
        direct.mode(IoMode::Buffered).cache_bytes(BYTES),
    ] {
        is_short(&options);
        let volume = Volume::memory(&disk, &options).unwrap();
        volume.write_at(&[1; 4096], 4096).unwrap();
        is_short(&volume);
        is_short(volume.facts());
        is_short(&volume.cursor());
        is_short(&volume.direct());
        let batch_options = BatchOptions::new(256, 65536);
        is_short(&batch_options);
        let mut batch = volume.batch(&batch_options).unwrap();
        let request = Request::read(batch.buffer().unwrap(), 0);
        is_short(&request);
        batch.queue(request).unwrap();
        is_short(&batch);
        is_short(&batch.wait().unwrap().unwrap());
        is_short(&volume.local_batch(&batch_options).unwrap());
        if let Ok(page) = volume.borrow(4096, 4096) {
            is_short(&page);
        }
        if let Some(bytes) = batch.borrow(4096, 4096) {
            is_short(&bytes);
        }
    }
}

#[test]
fn buffers_and_futures_print_briefly() {
    let pool = BufferPool::new(4, 1 << 20).unwrap();
    is_short(&pool);
    is_short(&pool.take().unwrap());
    is_short(&AnyBuf::new(vec![1; 1 << 20]));
    let volume = Volume::memory(&disk(), &Options::new()).unwrap();
    let mut batch = volume.batch_of::<Vec<u8>>(&BatchOptions::new(2, 0)).unwrap();
    let request = Request::read_into(vec![1; 1 << 20], 0);
    is_short(&request);
    batch.queue(request).unwrap();
    is_short(&batch);
    is_short(&batch.wait().unwrap().unwrap());
    is_short(&batch.queue(Request::write_from(vec![1; 1 << 20], 0)).unwrap_err());
    let (futures, driver) = AsyncVolume::with_driver(&volume, &BatchOptions::new(2, 0)).unwrap();
    is_short(&futures);
    is_short(&driver);
    is_short(&futures.read_at(vec![1; 1 << 20], 0));
    is_short(&futures.flush());
}

#[test]
fn maps_and_faults_with_many_entries_print_briefly() {
    let layout = FileLayout { block_bytes: 4096, size_bytes: BYTES, capacity_bytes: 2 * BYTES };
    let mut extents = ExtentMap::new(&layout).unwrap();
    for block in 0..1000 {
        let extent = Extent::from_bytes(block * 8192, 4096).unwrap();
        assert!(extents.add(block * 4096, extent, true));
    }
    is_short(&extents);
    is_short(&IndirectMap::new(&layout).unwrap());
    let mut free = FreeSpace::default();
    (0..1000).for_each(|block| free.release(Extent::from_bytes(block * 8192, 4096).unwrap()));
    is_short(&free);
    for mapper in MAPPERS {
        is_short(&FileMap::fresh(mapper.name, &layout).unwrap());
    }
    let faults = Faults::new(1);
    is_short(&faults);
    let volume = Volume::memory(&disk(), &Options::new().faults(&faults)).unwrap();
    is_short(&volume);
}

#[test]
fn the_facts_of_a_real_file_and_of_its_disk_print_briefly() {
    let Some((directory, path)) = scratch(1 << 20) else { return };
    for mode in [IoMode::Direct, IoMode::Buffered] {
        let volume = Volume::open(&path, &options().write(true).mode(mode).cache_bytes(1 << 20)).unwrap();
        is_short(volume.facts());
        is_short(&volume.facts().target);
        is_short(&volume.facts().target.filesystem);
        is_short(&volume.facts().target.backing);
        is_short(&volume);
        is_short(&volume.range_support());
        is_short(&volume.read_at(&mut [0; 100], 1 << 30));
        is_short(&volume.write_at(&[0; 100], 1 << 30).unwrap_err());
        is_short(&volume.clone().try_close());
        is_short(&volume.try_lock_range(0, 4096));
    }
    for wrong in [directory.path(), &path.join("missing")] {
        is_short(&Volume::open(wrong, &options()).unwrap_err());
    }
    is_short(&Volume::open(&path, &options().elevator("fastest")).unwrap_err());
    // A disk with everything that sysfs can show, as on a server.
    let machine = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    for disk in machine.map(|disk| std::path::Path::new("/dev").join(disk.file_name())) {
        if let Ok(target) = target::Target::inspect(&disk) {
            is_short(&target);
            is_short(&target.backing);
        }
    }
}

#[test]
fn counters_print_briefly_also_when_they_are_large() {
    let disk = disk();
    let context = Context::new(64 << 20);
    is_short(&context);
    is_short(&context.stats());
    let volume = Volume::memory(&disk, &Options::new().direct(false).context(&context)).unwrap();
    volume.read_exact_at(&mut [0; 8192], 0).unwrap();
    is_short(&volume.stats());
    is_short(&volume.queue_stats());
    let mut stats = BufferedStats::default();
    (stats.hits, stats.cache.hits, stats.readahead_bytes) = (u64::MAX, u64::MAX, u64::MAX);
    is_short(&stats);
    is_short(&volume.queue_stats().total());
    let counts = LatencyCounts::default();
    (0..1000).for_each(|_| counts.record(std::time::Duration::from_micros(10)));
    is_short(&counts);
    is_short(&counts.get());
    is_short(&context);
}

#[test]
fn values_and_tables_print_briefly() {
    for elevator in ELEVATORS {
        is_short(&elevator);
        is_short(&iopath::elevator::ElevatorSpec::new(*elevator));
        is_short(&iopath::elevator::ElevatorSpec::new(*elevator).tunables().next());
    }
    for mapper in MAPPERS {
        is_short(mapper);
    }
    is_short(&(IoMode::Raw, Unaligned::Bounce, Readahead::Linux(u64::MAX), Boundary::Once, Advice::WillNeed));
    is_short(&(
        Priority::Idle,
        Stream(1),
        Op::WriteZeroes,
        IoError::NoSpace,
        Damage::NotWritten(Extent::from_bytes(0, 512).unwrap()),
    ));
    is_short(&Fault::error(IoError::Media).on(Op::Read).times(1));
    is_short(&Member::Path(std::path::Path::new("/data/file")));
    is_short(&MemoryConfig::of_bytes(1 << 40));
    is_short(&RecordBatch::default());
    is_short(&RequestLog::new(|| unreachable!("no queue")));
    is_short(&disk().limits());
    let tail: MemoryTail = disk().tail();
    is_short(&tail);
    let options = Options::new().context(&Context::new(1 << 20)).faults(&Faults::new(1));
    is_short(&options.on_write_error(|_| ()));
}
