//! Each value of this crate prints as a few lines for `{:?}`, so that a log of a program with a volume in it stays
//! readable, also with the longest paths. A type that the crate exports and that is not printed here fails the test.

mod exported;

use crate::support::{options, scratch};
use exported::Printed;
use iopath::buffers::{AnyBuf, SharedMemory};
use iopath::elevator::ELEVATORS;
use iopath::engine::{EngineError, Reason};
use iopath::log::{AccessLog, LogSink, NoRoom, RecordBatch, RequestLog, StepLog};
use iopath::mapped::{
    DirtyMetadata, ExtentMap, FileLayout, FileMap, FreeSpace, IndirectMap, MAPPERS, MappedError, Space,
};
use iopath::remote::{RemoteAddress, RemoteEvent, RemoteFacts};
use iopath::source::{
    DeviceRequest, DeviceSetup, Execute, Extent, InlineDevice, Limits, Notifier, OpenedDevice, RealDevice,
    Segment, Source, SourceError, WaitError,
};
use iopath::stats::{BufferedStats, LatencyCounts};
use iopath::stripe::{Member, StripeError, StripedError};
use iopath::target::{DioError, Refusal, TableError, Target, TargetError};
use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk, MemoryTail};
use iopath::{
    AlignedBuf, AsyncVolume, BatchOptions, BufferPool, Context, Engine, IoError, IoMode, Op, OpenError,
    Options, Request, Unaligned, Volume,
};
use rustix::fs::{MemfdFlags, memfd_create};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const BYTES: u64 = 64 << 20;

/// Exported names without a value to print, and values that other tests print.
const NOT_HERE: &[&str] = &[
    // Traits.
    "iopath::DynAsyncVolume",
    "iopath::Source",
    "iopath::Threading",
    "iopath_core::BlockDevice",
    "iopath_core::LogSink",
    "iopath_core::Mapper",
    "iopath_core::Space",
    "iopath_os::Execute",
    "iopath_os::IoBuf",
    "iopath_os::IoBufMut",
    "iopath_os::RemoteEncryption",
    "iopath_os::RemoteProtocol",
    "iopath_os::RemoteSession",
    "iopath_os::RemoteSocket",
    "iopath_os::Tail",
    "iopath_os::Watch",
    // Other names of types.
    "iopath::BoxedIo",
    "iopath::LocalBatch",
    "iopath::PageGuard",
    "iopath::Result",
    "iopath_os::EngineError",
    // In the tests of its feature, `tokio`.
    "iopath::AsyncCursor",
    // Only a device receives it: the test of this name in `iopath-core`.
    "iopath_core::Io",
    "iopath_core::Segments",
    // Needs a server or a model: the tests of the devices in `iopath-os`.
    "iopath_os::Remote",
    "iopath_os::RemoteDevice",
    "iopath_os::RemoteError",
    "iopath_os::Timing",
    "iopath_os::WeakRemote",
    // Not each machine shows a disk: the tests of targets in `iopath-os`.
    "iopath_os::Disk",
    "iopath_os::Partition",
    "iopath_os::Scheduler",
    // An `Engine` and a `Reason`, which are printed. Only a system that restricts `io_uring` makes one.
    "iopath_os::Fallback",
];

#[test]
fn every_exported_type_prints_briefly() {
    let mut printed = Printed::default();
    print_handles_of_volumes(&mut printed);
    print_buffers_and_futures(&mut printed);
    print_maps_and_faults_with_many_entries(&mut printed);
    print_counters(&mut printed);
    print_values_and_tables(&mut printed);
    print_errors_of_long_paths(&mut printed);
    print_a_source_of_the_program(&mut printed);
    if print_a_file_with_a_long_path(&mut printed) {
        let missing = printed.missing(NOT_HERE);
        assert!(missing.is_empty(), "print a value of each exported type: {missing:?}");
    }
}

fn disk() -> MemoryDisk {
    MemoryDisk::new(&MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(BYTES) }).unwrap()
}

fn print_handles_of_volumes(printed: &mut Printed) {
    let disk = disk();
    printed.short(&disk);
    printed.short(&AlignedBuf::new(1 << 20).unwrap());
    let direct = Options::new().write(true);
    for options in [
        direct.clone(),
        direct.clone().unaligned(Unaligned::Bounce),
        direct.clone().elevator("deadline"),
        direct.mode(IoMode::Buffered).cache_bytes(BYTES),
    ] {
        printed.short(&options);
        let volume = Volume::memory(&disk, &options).unwrap();
        volume.write_at(&[1; 4096], 4096).unwrap();
        printed.short(&volume);
        printed.short(volume.facts());
        printed.short(&volume.cursor());
        printed.short(&volume.direct());
        let batch_options = BatchOptions::new(256, 65536);
        printed.short(&batch_options);
        let mut batch = volume.batch(&batch_options).unwrap();
        let request = Request::read(batch.buffer().unwrap(), 0);
        printed.short(&request);
        batch.queue(request).unwrap();
        printed.short(&batch);
        printed.short(&batch.wait().unwrap().unwrap());
        printed.short(&volume.local_batch(&batch_options).unwrap());
        if let Ok(page) = volume.borrow(4096, 4096) {
            printed.short(&page);
        }
        if let Some(bytes) = batch.borrow(4096, 4096) {
            printed.short(&bytes);
        }
    }
}

fn print_buffers_and_futures(printed: &mut Printed) {
    let pool = BufferPool::new(4, 1 << 20).unwrap();
    printed.short(&pool);
    printed.short(&pool.take().unwrap());
    printed.short(&AnyBuf::new(vec![1; 1 << 20]));
    let volume = Volume::memory(&disk(), &Options::new()).unwrap();
    let mut batch = volume.batch_of::<Vec<u8>>(&BatchOptions::new(2, 0)).unwrap();
    let request = Request::read_into(vec![1; 1 << 20], 0);
    printed.short(&request);
    batch.queue(request).unwrap();
    printed.short(&batch);
    printed.short(&batch.wait().unwrap().unwrap());
    printed.short(&batch.queue(Request::write_from(vec![1; 1 << 20], 0)).unwrap_err());
    let (futures, driver) = AsyncVolume::with_driver(&volume, &BatchOptions::new(2, 0)).unwrap();
    printed.short(&futures);
    printed.short(&driver);
    printed.short(&futures.read_at(vec![1; 1 << 20], 0));
    printed.short(&futures.flush());
}

fn print_maps_and_faults_with_many_entries(printed: &mut Printed) {
    let layout = FileLayout { block_bytes: 4096, size_bytes: BYTES, capacity_bytes: 2 * BYTES };
    let mut extents = ExtentMap::new(&layout).unwrap();
    for block in 0..1000 {
        let extent = Extent::from_bytes(block * 8192, 4096).unwrap();
        assert!(extents.add(block * 4096, extent, true));
    }
    printed.short(&extents);
    printed.short(&IndirectMap::new(&layout).unwrap());
    let mut free = FreeSpace::default();
    (0..1000).for_each(|block| free.release(Extent::from_bytes(block * 8192, 4096).unwrap()));
    printed.short(&free);
    for mapper in MAPPERS {
        printed.short(&FileMap::fresh(mapper.name, &layout).unwrap());
    }
    let faults = Faults::new(1);
    printed.short(&faults);
    let volume = Volume::memory(&disk(), &Options::new().faults(&faults)).unwrap();
    printed.short(&volume);
}

/// A directory whose path has about 2,000 bytes. The directory that is dropped last removes all.
fn long_directory(below: &Path) -> PathBuf {
    let path = (0..8).fold(below.to_owned(), |path, _| path.join("d".repeat(240)));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// False if this machine has no filesystem with direct I/O.
fn print_a_file_with_a_long_path(printed: &mut Printed) -> bool {
    let Some((directory, _)) = scratch(1 << 20) else { return false };
    let long = long_directory(directory.path());
    let path = long.join("volume");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    for mode in [IoMode::Direct, IoMode::Buffered] {
        let volume = Volume::open(&path, &options().write(true).mode(mode).cache_bytes(1 << 20)).unwrap();
        printed.short(volume.facts());
        printed.short(&*volume.facts().target);
        printed.short(&volume.facts().target.filesystem);
        printed.short(&volume.facts().target.backing);
        printed.short(&volume);
        printed.short(&volume.range_support());
        printed.short(&volume.read_at(&mut [0; 100], 1 << 30));
        printed.short(&volume.write_at(&[0; 100], 1 << 30).unwrap_err());
        printed.short(&volume.direct());
        printed.short(&volume.cursor());
        printed.short(&volume.batch(&BatchOptions::new(2, 4096)).unwrap());
        printed.short(&AsyncVolume::new(&volume, &BatchOptions::new(2, 4096)).unwrap());
        printed.short(&volume.clone().try_close());
        printed.short(&volume.try_lock_range(0, 4096));
    }
    for wrong in [&long, &path.join("missing")] {
        printed.short(&Volume::open(wrong, &options()).unwrap_err());
    }
    printed.short(&Volume::open(&path, &options().elevator("fastest".repeat(1000))).unwrap_err());
    printed.short(&Member::Path(&path));
    // A disk with everything that sysfs can show, as on a server.
    let machine = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    for disk in machine.map(|disk| Path::new("/dev").join(disk.file_name())) {
        if let Ok(target) = Target::inspect(&disk) {
            printed.short(&target);
            printed.short(&target.backing);
        }
    }
    true
}

fn print_errors_of_long_paths(printed: &mut Printed) {
    let path = || PathBuf::from("/long".repeat(400));
    let text = || "long".repeat(500);
    let source = || io::Error::other("long".repeat(500));
    for error in [
        OpenError::Directory(path()),
        OpenError::SecondCache(path()),
        OpenError::TooLarge { path: path(), size_bytes: u64::MAX },
        OpenError::System { path: path(), what: "opened for reading", source: source() },
        OpenError::ReadOnlyExport { server: text() },
        OpenError::of_source(text()),
    ] {
        printed.short(&error);
        printed.short(&io::Error::from(error));
    }
    printed.short(&TargetError::NotATarget { path: path(), kind: "socket" });
    printed.short(&DioError::Refused { path: path(), filesystem: text() });
    printed.short(&TableError::Malformed { path: path(), line: 1, text: text() });
    let holders = vec![text(); 100];
    printed.short(&Refusal::Held { target: path(), subject: text(), holders });
    printed.short(&Refusal::Swap { target: path(), subject: text(), area: path() });
    printed.short(&RemoteAddress::Unix(path()));
    printed.short(&RemoteAddress::Tcp(vec!["[::1]:10809".parse().unwrap(); 1000]));
    printed.short(&text().parse::<Engine>().unwrap_err());
    printed.short(&EngineError::NoThread(io::ErrorKind::WouldBlock.into()));
    printed.short(&SourceError::System(source()));
    printed.short(&WaitError::from(io::Error::from_raw_os_error(5)));
    printed.short(&StripedError::Layout(StripeError::NoMembers));
    printed.short(&StripeError::NoMembers);
    printed.short(&MappedError::Notifier(io::Error::from_raw_os_error(24)));
    printed.short(&BufferPool::new(1, 2 << 30).unwrap_err());
    let layout = FileLayout { block_bytes: 4096, size_bytes: BYTES, capacity_bytes: 2 * BYTES };
    printed.short(&FileMap::fresh(&text(), &layout).unwrap_err());
    let elevator = Options::new().elevator(text());
    printed.short(&elevator);
    match Volume::memory(&disk(), &elevator) {
        Err(OpenError::Elevator(error)) => printed.short(&error),
        other => panic!("an unknown elevator: {other:?}"),
    }
    // A volume that cannot be closed, and its errors of write-back.
    let (faults, reports) = (Faults::new(1), Arc::new(Mutex::new(Vec::new())));
    let receiver = reports.clone();
    let options =
        Options::new().write(true).mode(IoMode::Buffered).faults(&faults).on_write_error(move |error| {
            receiver.lock().unwrap().push(error.clone());
        });
    let volume = Volume::memory(&disk(), &options).unwrap();
    faults.add(Fault::error(IoError::Media).on(Op::Write));
    volume.write_at(&[1; 100], 0).unwrap();
    printed.short(&volume.try_close().unwrap_err());
    printed.short(reports.lock().unwrap().first().expect("a report of the failed write"));
}

/// Storage of a program with a long name, and a device that prints its requests.
#[derive(Clone)]
struct Printer(Arc<Mutex<Printed>>);

impl std::fmt::Debug for Printer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Printer")
    }
}

impl Source for Printer {
    fn limits(&self) -> Limits {
        Limits::with_capacity(1 << 20)
    }

    fn name(&self) -> PathBuf {
        PathBuf::from("long".repeat(500))
    }

    fn open(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError> {
        let device = InlineDevice::new(self.clone(), setup.limits.clone());
        let mut printed = self.0.lock().unwrap();
        printed.short(setup);
        printed.short(&device);
        let opened: OpenedDevice<dyn RealDevice + Send> = OpenedDevice::new(Box::new(device));
        printed.short(&opened);
        Ok(opened)
    }
}

impl Execute for Printer {
    fn execute(&mut self, request: &mut DeviceRequest<'_>) -> Result<(), IoError> {
        self.0.lock().unwrap().short(request);
        Ok(())
    }
}

fn print_a_source_of_the_program(printed: &mut Printed) {
    let storage = Printer(Arc::new(Mutex::new(std::mem::take(printed))));
    let source: Arc<dyn Source> = Arc::new(storage.clone());
    let volume = Volume::of_source(source.clone(), &Options::new()).unwrap();
    volume.read_at(&mut AlignedBuf::new(1 << 20).unwrap(), 0).unwrap();
    *printed = std::mem::take(&mut *storage.0.lock().unwrap());
    printed.short(&volume);
    printed.short(&Member::Source(&source));
}

fn print_counters(printed: &mut Printed) {
    let disk = disk();
    let context = Context::new(64 << 20);
    printed.short(&context);
    printed.short(&context.stats());
    let volume = Volume::memory(&disk, &Options::new().direct(false).context(&context)).unwrap();
    volume.read_exact_at(&mut [0; 8192], 0).unwrap();
    printed.short(&volume.stats());
    printed.short(&volume.queue_stats());
    let mut stats = BufferedStats::default();
    (stats.hits, stats.cache.hits, stats.readahead_bytes) = (u64::MAX, u64::MAX, u64::MAX);
    printed.short(&stats);
    printed.short(&volume.queue_stats().total());
    let counts = LatencyCounts::default();
    (0..1000).for_each(|_| counts.record(std::time::Duration::from_micros(10)));
    printed.short(&counts);
    printed.short(&counts.get());
    printed.short(&context);
}

fn print_values_and_tables(printed: &mut Printed) {
    for elevator in ELEVATORS {
        printed.short(&elevator);
        printed.short(&iopath::elevator::ElevatorSpec::new(*elevator));
        printed.short(&iopath::elevator::ElevatorSpec::new(*elevator).tunables().next());
    }
    for mapper in MAPPERS {
        printed.short(mapper);
    }
    print_copy_types(printed);
    printed.short(&Notifier::new().unwrap());
    printed.short(&AccessLog::new(Box::new(Forget)));
    printed.short(&StepLog::new(Box::new(Forget)));
    printed.short(&RemoteFacts::new(BYTES, disk().limits()));
    printed.short(&RemoteEvent::Ready(Some(Box::new(RemoteFacts::new(u64::MAX, disk().limits())))));
    let file = std::fs::File::from(memfd_create("shared", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(1 << 20).unwrap();
    let shared = Arc::new(SharedMemory::map(&file, 0, 1 << 20).unwrap());
    printed.short(&shared);
    printed.short(&shared.buffer(0, 1 << 20));
    printed.short(&DirtyMetadata {
        extent: Extent::from_bytes(0, 4096).unwrap(),
        bytes: vec![0xEE; 4096].into(),
    });
    let device = disk().open();
    printed.short(&device);
    printed.short(&Fault::error(IoError::Media).on(Op::Read).times(1));
    printed.short(&MemoryConfig::of_bytes(1 << 40));
    printed.short(&RecordBatch::default());
    printed.short(&RequestLog::new(|| unreachable!("no queue")));
    printed.short(&disk().limits());
    let tail: MemoryTail = disk().tail();
    printed.short(&tail);
    let options = Options::new().context(&Context::new(1 << 20)).faults(&Faults::new(1));
    printed.short(&options.on_write_error(|_| ()));
}

/// A log that keeps nothing.
#[derive(Debug)]
struct Forget;

impl LogSink for Forget {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        *batch = RecordBatch::default();
        Ok(())
    }
}

fn print_copy_types(printed: &mut Printed) {
    macro_rules! copy {
        ($($name:ty),+ $(,)?) => {$(printed.copy::<$name>();)+};
    }
    use iopath::{elevator, futures, log, mapped, remote, source, stats, target, testing};
    copy!(iopath::Advice, iopath::ErrorKind, IoError, IoMode, Op, iopath::Priority, iopath::Readahead);
    copy!(iopath::RangeSupport, iopath::Stream, Unaligned, Engine, Reason, futures::Turn);
    copy!(log::Access, log::Event, log::NoMerge, NoRoom, log::Record, log::Side, log::Step, log::Subject);
    copy!(log::UnknownCode, elevator::ElevatorKind, testing::Damage);
    copy!(mapped::Boundary, Extent, FileLayout, mapped::FileRange, mapped::Identity, mapped::Location);
    copy!(mapped::MapError, mapped::MapperKind, mapped::Mapping, mapped::Metadata, mapped::Sector);
    copy!(remote::Incoming, remote::Instant, remote::Losses, remote::Outgoing, remote::RemoteRequest);
    copy!(source::Busy, source::Completion, Segment, source::Tag, source::WriteStopped);
    copy!(
        target::AlignmentSource,
        target::DeviceNumber,
        target::DioAlignment,
        target::Discard,
        target::FileId
    );
    copy!(target::Kind, target::WriteCache, stats::CacheStats, stats::ReadaheadStats);
}
