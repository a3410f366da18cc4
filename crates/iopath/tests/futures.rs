//! Futures on a volume: many tasks of many threads agree with an array of bytes, in runtimes without support of this
//! crate; a dropped future, driver or volume releases no memory that is in use, and loses no future.

use crate::support::{options, scratch};
use iopath::buffers::AnyBuf;
use iopath::futures::{BoxedIo, DynAsyncVolume};
use iopath::futures::{Driver, Turn};
use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{
    AlignedBuf, AsyncVolume, BatchOptions, BufferPool, ErrorKind, IoMode, Op, Options, Request, Result,
    Unaligned, Volume,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smol::future::{FutureExt, poll_once};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const TASKS: u64 = 16;
/// The pages of a task.
const PAGES: u64 = 8;
const BYTES: u64 = TASKS * PAGES * PAGE as u64;

fn memory(options: &Options) -> Volume {
    Volume::memory(&MemoryDisk::new(&MemoryConfig::of_bytes(BYTES)).unwrap(), options).unwrap()
}

/// A volume of each kind, in memory and on a file.
pub(crate) fn each(mut check: impl FnMut(&str, &Volume)) {
    let direct = options().write(true).depth(64).cache_bytes(48 * PAGE as u64);
    let kinds = [
        ("direct", direct.clone()),
        ("elevator", direct.clone().elevator("deadline")),
        ("bounced", direct.clone().unaligned(Unaligned::Bounce)),
        ("buffered", direct.clone().mode(IoMode::Buffered)),
        ("beside a page cache", direct.unaligned(Unaligned::Buffered)),
    ];
    for (name, options) in kinds {
        check(&format!("{name}, memory"), &memory(&options));
        if let Some((_directory, path)) = scratch(BYTES) {
            check(&format!("{name}, file"), &Volume::open(&path, &options).unwrap());
        }
    }
}

/// One task: writes its pages and reads them back, several times, with a future dropped now and then.
pub(crate) async fn write_and_read(volume: AsyncVolume, task: u64) {
    let mut page = AlignedBuf::new(PAGE).unwrap();
    for round in 0..6_u8 {
        for at in 0..PAGES {
            page.fill(round ^ (task * PAGES + at) as u8);
            let (result, returned) = volume.write_at(page, (task * PAGES + at) * PAGE as u64).await;
            assert_eq!(result.unwrap(), PAGE);
            page = returned;
        }
        if round % 3 == 2 {
            volume.flush().await.unwrap();
        }
        let dropped = volume.read_at(AlignedBuf::new(PAGE).unwrap(), task * PAGES * PAGE as u64);
        assert!(poll_once(dropped).await.is_none_or(|(result, _)| result.is_ok()));
        for at in 0..PAGES {
            let (result, returned) = volume.read_at(page, (task * PAGES + at) * PAGE as u64).await;
            assert_eq!(result.unwrap(), PAGE);
            page = returned;
            let expected = round ^ (task * PAGES + at) as u8;
            assert!(page.iter().all(|byte| *byte == expected), "task {task}, page {at}, round {round}");
        }
    }
}

/// Runs the tasks on several threads, with fewer requests in the batch than there are tasks.
fn run_tasks(volume: &AsyncVolume) {
    let executor = smol::Executor::new();
    let tasks: Vec<_> = (0..TASKS).map(|task| executor.spawn(write_and_read(volume.clone(), task))).collect();
    let (end, ended) = smol::channel::unbounded::<()>();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| smol::block_on(executor.run(ended.recv())));
        }
        smol::block_on(executor.run(async {
            for task in tasks {
                task.await;
            }
        }));
        drop(end);
    });
}

#[test]
fn tasks_of_many_threads_agree_with_an_array_on_every_volume() {
    each(|_, volume| {
        run_tasks(&AsyncVolume::new(volume, &BatchOptions::new(5, 0)).unwrap());
        run_tasks(&AsyncVolume::new(volume, &BatchOptions::new(64, 0).buffered(false)).unwrap());
    });
}

/// Drives in the reactor of smol.
async fn drive_in_smol(mut driver: Driver) {
    let ready = smol::Async::new(driver.descriptor().unwrap()).unwrap();
    while let Turn::Wait(limit) = driver.turn() {
        let timer = async {
            match limit {
                Some(limit) => drop(smol::Timer::after(limit).await),
                None => smol::future::pending().await,
            }
            Ok(())
        };
        ready.readable().or(timer).await.unwrap();
    }
}

#[test]
fn a_task_of_smol_drives() {
    each(|_, volume| {
        let (futures, driver) = AsyncVolume::with_driver(volume, &BatchOptions::new(8, 0)).unwrap();
        let driver = smol::spawn(drive_in_smol(driver));
        run_tasks(&futures);
        drop(futures);
        smol::block_on(driver);
    });
}

/// A runtime of one thread, with tasks that stay on it. The driver has its own thread, which wakes them.
#[test]
fn tasks_of_compio_agree_with_an_array_on_every_volume() {
    each(|_, volume| {
        let futures = AsyncVolume::new(volume, &BatchOptions::new(5, 0)).unwrap();
        let runtime = compio_runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let tasks: Vec<_> =
                (0..TASKS).map(|task| compio_runtime::spawn(write_and_read(futures.clone(), task))).collect();
            for task in tasks {
                assert!(task.await.is_ok(), "the task ends without a panic");
            }
        });
    });
}

/// A storage that is no volume.
#[derive(Debug)]
struct Unusable;

impl DynAsyncVolume for Unusable {
    fn size_bytes(&self) -> u64 {
        0
    }

    fn read_at(&self, buffer: AnyBuf, _: u64) -> BoxedIo<(Result<usize>, AnyBuf)> {
        Box::pin(async { (Ok(0), buffer) })
    }

    fn read_bytes_at(&self, buffer: AnyBuf, _: u64, _: usize) -> BoxedIo<(Result<usize>, AnyBuf)> {
        Box::pin(async { (Ok(0), buffer) })
    }

    fn write_at(&self, buffer: AnyBuf, _: u64) -> BoxedIo<(Result<usize>, AnyBuf)> {
        Box::pin(async { (Ok(0), buffer) })
    }

    fn write_durably_at(&self, buffer: AnyBuf, _: u64) -> BoxedIo<(Result<usize>, AnyBuf)> {
        Box::pin(async { (Ok(0), buffer) })
    }

    fn flush(&self) -> BoxedIo<Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn discard(&self, _: u64, _: u64) -> BoxedIo<Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn write_zeroes(&self, _: u64, _: u64) -> BoxedIo<Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

#[test]
fn a_volume_is_one_of_several_storages_behind_a_trait_object() {
    each(|name, volume| {
        let futures = AsyncVolume::new(volume, &BatchOptions::new(4, 0)).unwrap();
        let storages: [Arc<dyn DynAsyncVolume>; 2] = [Arc::new(futures), Arc::new(Unusable)];
        for (storage, expected) in storages.iter().zip([PAGE, 0]) {
            smol::block_on(async {
                let mut page = AlignedBuf::new(PAGE).unwrap();
                page.fill(7);
                let (written, page) = storage.write_durably_at(AnyBuf::new(page), 8192).await;
                let (_, page) = storage.write_at(page, 4096).await;
                assert_eq!(written.unwrap(), expected, "{name}");
                storage.flush().await.unwrap();
                storage.write_zeroes(0, 4096).await.unwrap();
                let (read, page) = storage.read_at(page, 8192).await;
                assert_eq!(read.unwrap(), expected, "{name}");
                let (read, page) = storage.read_bytes_at(page, 4096, PAGE).await;
                assert_eq!(read.unwrap(), expected, "{name}");
                assert!(page.downcast::<AlignedBuf>().unwrap().iter().all(|byte| *byte == 7), "{name}");
            });
        }
        assert_eq!(storages[0].size_bytes(), BYTES);
    });
}

/// Waits until something holds that another thread causes.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn a_dropped_future_leaves_its_buffer_with_the_driver_until_the_device_has_completed() {
    for options in [
        Options::new().write(true),
        Options::new().write(true).unaligned(Unaligned::Bounce),
        Options::new().write(true).elevator("deadline"),
    ] {
        let faults = Faults::new(1);
        let volume = memory(&options.faults(&faults));
        faults.add(Fault::stuck().on(Op::Write));
        let futures = AsyncVolume::new(&volume, &BatchOptions::new(4, 0)).unwrap();
        let pool = BufferPool::new(1, PAGE).unwrap();
        let mut buffer = pool.take().unwrap();
        buffer.fill(9);
        let timeout = async {
            smol::Timer::after(Duration::from_millis(20)).await;
            None
        };
        // The timeout drops the future of the write.
        let result = smol::block_on(async { Some(futures.write_at(buffer, 0).await) }.or(timeout));
        assert!(result.is_none(), "the write is stuck");
        assert!(pool.take().is_none(), "the buffer was released before its request has completed");
        faults.stop();
        eventually("the return of the buffer", || pool.take().is_some());
        let (read, page) = smol::block_on(futures.read_at(AlignedBuf::new(PAGE).unwrap(), 0));
        assert_eq!(read.unwrap(), PAGE);
        assert!(page.iter().all(|byte| *byte == 9), "the dropped write was not executed");
    }
}

#[test]
fn a_future_that_no_driver_has_seen_is_dropped_with_its_buffer() {
    let volume = memory(&Options::new().write(true));
    let (futures, driver) = AsyncVolume::with_driver(&volume, &BatchOptions::new(4, 0)).unwrap();
    let pool = BufferPool::new(1, PAGE).unwrap();
    let write = futures.write_at(pool.take().unwrap(), 0);
    assert!(smol::block_on(poll_once(write)).is_none());
    assert!(pool.take().is_some());
    drop(futures);
    let mut driver = driver;
    assert_eq!(driver.turn(), Turn::Ended);
}

#[test]
fn without_a_driver_futures_fail_and_return_their_buffers() {
    let volume = memory(&Options::new().write(true));
    let (futures, driver) = AsyncVolume::with_driver(&volume, &BatchOptions::new(4, 0)).unwrap();
    let mut early = Box::pin(futures.write_at(vec![7; PAGE], 0));
    assert!(smol::block_on(poll_once(&mut early)).is_none());
    drop(driver);
    for future in [early, Box::pin(futures.write_at(vec![8; PAGE], 0))] {
        let (result, buffer) = smol::block_on(future);
        assert_eq!((result.unwrap_err().kind(), buffer.len()), (ErrorKind::Cancelled, PAGE));
    }
    assert_eq!(smol::block_on(futures.flush()).unwrap_err().kind(), ErrorKind::Cancelled);
}

/// A waker that counts, and panics if it is told so.
#[derive(Default)]
struct Woken {
    times: AtomicU32,
    panics: bool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.times.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "a waker of the program panics");
    }
}

/// Polls a future for the first time.
fn begin(future: &mut (impl Future + Unpin), woken: &Arc<Woken>) {
    let waker = Arc::clone(woken).into();
    assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
}

#[test]
fn a_waker_that_panics_keeps_no_other_task_from_being_woken() {
    let volume = memory(&Options::new().write(true));
    for has_driver in [true, false] {
        let (futures, mut driver) = AsyncVolume::with_driver(&volume, &BatchOptions::new(4, 0)).unwrap();
        let (bad, good) = (Arc::new(Woken { panics: true, ..Woken::default() }), Arc::default());
        let mut tasks = [0; 3].map(|_| futures.read_at(AlignedBuf::new(PAGE).unwrap(), 0));
        for (task, woken) in tasks.iter_mut().zip([&good, &bad, &good]) {
            begin(task, woken);
        }
        if has_driver {
            eventually("the panic", || catch_unwind(AssertUnwindSafe(|| driver.turn())).is_err());
            eventually("the wake-ups", || {
                driver.turn();
                good.times.load(Ordering::Relaxed) == 2
            });
        }
        drop(driver);
        assert_eq!([&bad, &good].map(|woken| woken.times.load(Ordering::Relaxed)), [1, 2]);
        for task in tasks {
            assert_eq!(smol::block_on(task).0.is_ok(), has_driver);
        }
    }
}

#[test]
fn errors_of_requests_return_their_buffers() {
    let volume = memory(&Options::new());
    let futures = AsyncVolume::new(&volume, &BatchOptions::new(4, 0)).unwrap();
    let (result, buffer) = smol::block_on(futures.write_at(vec![7; PAGE], 0));
    assert_eq!((result.unwrap_err().kind(), buffer), (ErrorKind::ReadOnly, vec![7; PAGE]));
    let (result, buffer) = smol::block_on(futures.read_at(Vec::with_capacity(PAGE), 1));
    assert!(matches!(result.unwrap_err().kind(), ErrorKind::Unaligned { .. }));
    assert!(buffer.is_empty() && buffer.capacity() == PAGE);
    let (result, buffer) = smol::block_on(futures.read_bytes_at(Vec::with_capacity(PAGE), BYTES - 512, PAGE));
    assert_eq!((result.unwrap(), buffer.len()), (512, 512), "a read ends with the volume");
}

#[test]
fn the_thread_ends_with_the_last_handle_and_releases_the_volume() {
    let Some((_directory, path)) = scratch(BYTES) else { return };
    let options = options().write(true).lock(true);
    for _ in 0..3 {
        let volume = Volume::open(&path, &options).unwrap();
        let futures = AsyncVolume::new(&volume, &BatchOptions::new(4, 0)).unwrap();
        let other = futures.clone();
        smol::block_on(futures.write_at(AlignedBuf::new(PAGE).unwrap(), 0)).0.unwrap();
        drop((futures, volume));
        smol::block_on(other.flush()).unwrap();
        // The next lock would fail if the driver still held the volume.
        drop(other);
    }
}

/// A driver in the smallest event loop: poll(2).
#[test]
fn a_loop_of_the_program_drives_futures_of_other_threads() {
    let volume = memory(&Options::new().write(true));
    let (futures, mut driver) = AsyncVolume::with_driver(&volume, &BatchOptions::new(2, 0)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let tasks: Vec<_> = (0..4).map(|task| Box::pin(write_and_read(futures.clone(), task))).collect();
            smol::block_on(async {
                for task in tasks {
                    task.await;
                }
            });
        });
        while let Turn::Wait(limit) = driver.turn() {
            let limit = Timespec::try_from(limit.unwrap_or(Duration::from_secs(60))).unwrap();
            let ready = poll(&mut [PollFd::new(&driver, PollFlags::IN)], Some(&limit)).unwrap();
            assert!(ready == 1 || limit.tv_sec < 60, "the driver was not woken");
        }
    });
}

fn is_shared<T: Send + Sync + Clone + 'static>(_: &T) {}
fn is_send<F: Future + Send + Unpin>(_: &F) {}

#[test]
fn handles_and_futures_have_the_traits_that_runtimes_require() {
    let volume = memory(&Options::new());
    let futures = AsyncVolume::new(&volume, &BatchOptions::new(4, 0)).unwrap();
    is_shared(&futures);
    is_send(&futures.read_at(vec![0; PAGE], 0));
    is_send(&futures.flush());
    assert_eq!(futures.volume().size_bytes(), BYTES);
}

#[test]
fn requests_of_no_bytes_complete_on_every_volume() {
    each(|name, volume| {
        for with_descriptor in [false, true] {
            let mut batch = volume.batch_of::<Vec<u8>>(&BatchOptions::new(4, 0)).unwrap();
            if with_descriptor {
                batch.completion_fd().unwrap();
            }
            for _ in 0..2 {
                batch.queue(Request::read_into(Vec::new(), 0)).unwrap();
                batch.queue(Request::write_from(Vec::new(), 0)).unwrap();
                batch.queue(Request::discard(0, 0)).unwrap();
                batch.queue(Request::write_zeroes(0, 0)).unwrap();
                assert_eq!(batch.in_flight(), 4, "{name}");
                let full = batch.queue(Request::discard(0, 0)).unwrap_err();
                assert!(matches!(full.error.kind(), ErrorKind::BatchFull { .. }), "{name}: {full}");
                for _ in 0..4 {
                    assert_eq!(batch.wait().unwrap().unwrap().result.unwrap(), 0, "{name}");
                }
                assert_eq!(batch.in_flight(), 0, "{name}");
            }
        }
        let volume = AsyncVolume::new(volume, &BatchOptions::new(4, 0)).unwrap();
        smol::block_on(async {
            volume.discard(0, 0).await.unwrap();
            volume.write_zeroes(4096, 0).await.unwrap();
            assert_eq!(volume.read_at(Vec::new(), 0).await.0.unwrap(), 0, "{name}");
            assert_eq!(volume.write_at(Vec::new(), 0).await.0.unwrap(), 0, "{name}");
        });
    });
}
