//! Futures on the volumes of a context, whose drivers share threads.

use crate::source::{
    DeviceRequest, DeviceSetup, Execute, InlineDevice, Limits, OpenedDevice, RealDevice, Source,
};
use crate::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use crate::{
    AlignedBuf, AsyncVolume, BatchOptions, Context, ErrorKind, IoError, IoMode, Op, OpenError, Options,
    Unaligned, Volume,
};
use std::future::Future;
use std::num::NonZero;
use std::pin::pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{self, Wake};
use std::thread;

const PAGE: usize = 4096;

fn volume(options: &Options) -> Volume {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(16 * PAGE as u64)).unwrap();
    Volume::memory(&disk, options).unwrap()
}

fn futures(volume: &Volume) -> AsyncVolume {
    AsyncVolume::new(volume, &BatchOptions::new(4, 0)).unwrap()
}

/// The drivers of each thread.
fn counts(context: &Context) -> Vec<usize> {
    context.driver_threads().counts()
}

async fn write_and_read(volume: &AsyncVolume, seed: usize) {
    let mut page = AlignedBuf::new(PAGE).unwrap();
    for number in 0..8 {
        page.fill((seed + number) as u8);
        let offset = (number * PAGE) as u64;
        let (written, returned) = volume.write_at(page, offset).await;
        assert_eq!(written.unwrap(), PAGE);
        let (read, returned) = volume.read_at(returned, offset).await;
        assert_eq!(read.unwrap(), PAGE);
        assert!(returned.iter().all(|byte| *byte == (seed + number) as u8));
        page = returned;
    }
    volume.flush().await.unwrap();
}

#[test]
fn the_volumes_of_a_context_share_threads() {
    let context = Context::new(16 << 20);
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let options = Options::new().write(true).context(&context);
    for options in [options.clone(), options.mode(IoMode::Buffered)] {
        let volumes: Vec<_> = (0..4 * processors).map(|_| futures(&volume(&options))).collect();
        assert_eq!(counts(&context), vec![4; processors]);
        thread::scope(|scope| {
            for (seed, volume) in volumes.iter().enumerate() {
                scope.spawn(move || smol::block_on(write_and_read(volume, seed)));
            }
        });
        drop(volumes);
        assert_eq!(counts(&context), vec![0; processors], "a dropped volume has left its thread");
    }
}

#[test]
fn a_driver_that_may_wait_for_another_one_has_its_own_thread() {
    let context = Context::new(16 << 20);
    let options = Options::new().write(true).context(&context);
    let bounced = volume(&options.clone().unaligned(Unaligned::Bounce));
    let buffered = volume(&options.mode(IoMode::Buffered));
    let direct = AsyncVolume::new(&buffered, &BatchOptions::new(4, 0).buffered(false)).unwrap();
    // Both write to the same blocks, and each waits for the other.
    let [left, right] = [(); 2].map(|()| futures(&bounced));
    thread::scope(|scope| {
        for volume in [&left, &right] {
            scope.spawn(move || {
                for _ in 0..100 {
                    smol::block_on(volume.write_at(vec![7; 700], 100)).0.unwrap();
                }
            });
        }
        scope.spawn(|| smol::block_on(write_and_read(&direct, 1)));
    });
    assert!(counts(&context).is_empty());
}

/// Drops a volume in the thread of a driver, then panics if it shall.
struct Dropping {
    volume: Mutex<Option<AsyncVolume>>,
    panics: bool,
    woken: Sender<()>,
}

impl Wake for Dropping {
    fn wake(self: Arc<Self>) {
        drop(self.volume.lock().unwrap().take());
        let _ = self.woken.send(());
        assert!(!self.panics, "a waker that shall panic");
    }
}

#[test]
fn a_volume_whose_device_is_stuck_delays_no_other_one_of_its_thread() {
    for panics in [false, true] {
        let context = Context::new(16 << 20);
        let options = Options::new().write(true).context(&context);
        let faults = Faults::new(1);
        faults.add(Fault::stuck().on(Op::Write));
        let stuck = futures(&volume(&options.clone().faults(&faults)));
        let others: Vec<_> = (0..16).map(|_| futures(&volume(&options))).collect();
        let mut write = pin!(stuck.write_at(AlignedBuf::new(PAGE).unwrap(), 0));
        assert!(smol::block_on(smol::future::poll_once(write.as_mut())).is_none());
        if panics {
            // The driver is dropped, which waits for the write.
            let (woken, is_woken) = channel();
            let waker = Arc::new(Dropping { volume: Mutex::default(), panics, woken }).into();
            let mut read = pin!(stuck.read_at(AlignedBuf::new(PAGE).unwrap(), 2 * PAGE as u64));
            assert!(read.as_mut().poll(&mut task::Context::from_waker(&waker)).is_pending());
            is_woken.recv().unwrap();
        }
        others.iter().enumerate().for_each(|(seed, volume)| smol::block_on(write_and_read(volume, seed)));
        drop(others);
        assert_eq!(counts(&context).iter().sum::<usize>(), usize::from(!panics));
        faults.stop();
        smol::block_on(write).0.unwrap();
    }
}

#[test]
fn a_waker_may_drop_volumes_of_its_thread_and_its_panic_ends_only_its_own_driver() {
    for panics in [false, true] {
        let context = Context::new(16 << 20);
        let options = Options::new().write(true).context(&context);
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let [first, second, third] = [(); 3].map(|()| {
            // One driver of each kind at each thread.
            let volumes: Vec<_> = (0..processors).map(|_| futures(&volume(&options))).collect();
            volumes
        });
        let [mut second, mut third] = [second, third].map(Vec::into_iter);
        for volume in &first {
            let dropped = second.next();
            let (woken, is_woken) = channel();
            let waker = Arc::new(Dropping { volume: Mutex::new(dropped), panics, woken });
            let mut read = pin!(volume.read_at(AlignedBuf::new(PAGE).unwrap(), 0));
            let polled = read.as_mut().poll(&mut task::Context::from_waker(&waker.into()));
            assert!(polled.is_pending());
            is_woken.recv().unwrap();
            assert_eq!(smol::block_on(read).0.unwrap(), PAGE, "it was complete before the panic");
            let later = smol::block_on(volume.flush());
            assert_eq!(
                later.map_err(|error| error.kind()),
                if panics { Err(ErrorKind::Cancelled) } else { Ok(()) }
            );
            smol::block_on(write_and_read(&third.next().unwrap(), 3));
        }
    }
}

#[test]
fn a_waker_that_drops_the_last_handle_closes_no_page_cache_on_a_shared_thread() {
    let context = Context::new(16 << 20);
    let options = Options::new().write(true).context(&context);
    let faults = Faults::new(1);
    let dirty = volume(&options.clone().mode(IoMode::Buffered).faults(&faults));
    dirty.write_at(&[7; PAGE], 0).unwrap();
    faults.add(Fault::stuck().on(Op::Write));
    let dropped = Some(futures(&dirty));
    drop(dirty);
    let others: Vec<_> = (0..16).map(|_| futures(&volume(&options))).collect();
    let (woken, is_woken) = channel();
    let waker = Arc::new(Dropping { volume: Mutex::new(dropped), panics: false, woken }).into();
    let mut read = pin!(others[0].read_at(AlignedBuf::new(PAGE).unwrap(), 0));
    assert!(read.as_mut().poll(&mut task::Context::from_waker(&waker)).is_pending());
    is_woken.recv().unwrap();
    others.iter().enumerate().for_each(|(seed, volume)| smol::block_on(write_and_read(volume, seed)));
    faults.stop();
}

/// Storage of the program that waits for a future of another volume.
#[derive(Debug, Clone)]
struct Below(AsyncVolume);

impl Execute for Below {
    fn execute(&mut self, request: &mut DeviceRequest<'_>) -> Result<(), IoError> {
        let read = self.0.read_bytes_at(AlignedBuf::new(PAGE).unwrap(), 0, request.range().len());
        let (result, page) = smol::block_on(read);
        result.map_err(|_| IoError::Gone)?;
        request.fill(0, &page);
        Ok(())
    }
}

impl Source for Below {
    fn limits(&self) -> Limits {
        Limits { request_bytes_max: PAGE as u64, ..Limits::with_capacity(16) }
    }

    fn open(&self, setup: &DeviceSetup) -> Result<OpenedDevice<dyn RealDevice + Send>, OpenError> {
        Ok(OpenedDevice::new(Box::new(InlineDevice::new(self.clone(), setup.limits.clone()))))
    }
}

#[test]
fn storage_of_the_program_may_wait_for_a_volume_of_the_same_context() {
    let context = Context::new(16 << 20);
    let options = Options::new().write(true).context(&context);
    let below = futures(&volume(&options));
    smol::block_on(below.write_at(vec![7; PAGE], 0)).0.unwrap();
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let above: Vec<_> = (0..processors)
        .map(|_| futures(&Volume::of_source(Below(below.clone()), &options).unwrap()))
        .collect();
    for volume in &above {
        let (read, page) = smol::block_on(volume.read_at(AlignedBuf::new(PAGE).unwrap(), 0));
        assert_eq!(read.unwrap(), PAGE);
        assert!(page.iter().all(|byte| *byte == 7));
    }
}
