//! A device that is opened at its first request. Where devices share rings, it closes while it is unused: see
//! `uring/rings.rs`. Does not choose the device: its owner does.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, IoError, Limits, Op};

use super::{Notifier, RealDevice, RingPool, WaitError, Watch};
use crate::errno::io_error_of;
use crate::memory::Segment;

type Device = Box<dyn RealDevice + Send>;

/// Opens a device with these limits.
type Open = dyn FnMut(&Limits) -> io::Result<Device> + Send;

/// A device that is opened at its first request, and again after it was closed.
///
/// If no device can be opened, a request completes with the error, and the next request opens one again.
pub struct Lazy {
    open: Box<Open>,
    device: Option<Device>,
    limits: Limits,
    /// If many devices have rings of this pool, the device is closed while nothing is in flight.
    rings: Option<RingPool>,
    /// Requests for which no device could be opened.
    failed: VecDeque<Completion>,
    watch: Arc<LazyWatch>,
    notifier: Option<Notifier>,
    /// System calls of closed devices.
    syscalls: u64,
}

/// Waits for the device that is open.
#[derive(Debug, Default)]
struct LazyWatch {
    device: Mutex<Option<Arc<dyn Watch>>>,
    /// The next wait returns at once.
    is_ended: AtomicBool,
}

impl fmt::Debug for Lazy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lazy").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Lazy {
    /// A device that `open` opens. It must accept the requests that fit `limits`, up to `limits.depth_max` of them in
    /// flight, and fill the memory of reads.
    pub fn new(
        limits: Limits,
        rings: Option<RingPool>,
        open: impl FnMut(&Limits) -> io::Result<Device> + Send + 'static,
    ) -> Self {
        Self {
            open: Box::new(open),
            device: None,
            limits,
            rings,
            failed: VecDeque::new(),
            watch: Arc::default(),
            notifier: None,
            syscalls: 0,
        }
    }

    fn device(&mut self, op: Op) -> Result<&mut Device, IoError> {
        if self.device.is_none() {
            let failed = |error: io::Error| io_error_of(op, &error);
            let mut device = (self.open)(&self.limits).map_err(failed)?;
            debug_assert!(device.fills_reads(), "{device:?}");
            if let Some(notifier) = &self.notifier {
                device.set_notifier(notifier).map_err(failed)?;
            }
            *self.watch.device() = Some(device.watch());
            self.device = Some(device);
        }
        Ok(self.device.as_mut().expect("it was opened above"))
    }

    /// Closes the device if it is unused and others lack its ring. No thread watches it: a watch needs a request in
    /// flight, and ends before a thread polls.
    fn close_if_crowded(&mut self) {
        if !self.rings.as_ref().is_some_and(RingPool::is_crowded) {
            return;
        }
        if let Some(device) = self.device.take_if(|device| device.in_flight() == 0) {
            self.syscalls += device.syscalls();
            *self.watch.device() = None;
        }
    }
}

impl BlockDevice for Lazy {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, Segment>, now: Instant) -> Result<(), Busy> {
        match self.device(io.op) {
            Ok(device) => device.submit(io, now),
            Err(error) => {
                self.failed.push_back(Completion { tag: io.tag, result: Err(error) });
                Ok(())
            }
        }
    }

    fn commit(&mut self, now: Instant) {
        if let Some(device) = &mut self.device {
            device.commit(now);
        }
        if !self.failed.is_empty() {
            self.end_watch();
            self.notifier.iter().for_each(Notifier::notify);
        }
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        let failed = self.failed.pop_front();
        let done = failed.or_else(|| self.device.as_mut().and_then(|device| device.poll_completion(now)));
        if done.is_none() {
            self.close_if_crowded();
        }
        done
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.device.as_ref().and_then(BlockDevice::poll_timeout)
    }
}

// SAFETY: the device that is open executes the requests, and keeps the promises. It is closed, by its drop, only after
// all its requests have completed. A request that no device got has accessed no memory, and completes with an error.
unsafe impl RealDevice for Lazy {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        match &mut self.device {
            Some(device) if self.failed.is_empty() => device.commit_and_wait(completions, timeout),
            Some(device) => device.commit_and_wait(0, Some(Duration::ZERO)),
            None => Ok(()),
        }
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.watch) as Arc<dyn Watch>
    }

    fn end_watch(&mut self) {
        match &mut self.device {
            Some(device) => device.end_watch(),
            None => self.watch.is_ended.store(true, Ordering::Release),
        }
    }

    fn set_capacity(&mut self, sectors: u64) {
        self.limits.capacity = sectors;
        if let Some(device) = &mut self.device {
            device.set_capacity(sectors);
        }
    }

    fn in_flight(&self) -> u32 {
        self.failed.len() as u32 + self.device.as_ref().map_or(0, RealDevice::in_flight)
    }

    fn syscalls(&self) -> u64 {
        self.syscalls + self.device.as_ref().map_or(0, RealDevice::syscalls)
    }

    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()> {
        if let Some(device) = &mut self.device {
            device.set_notifier(notifier)?;
        }
        self.notifier = Some(notifier.clone());
        Ok(())
    }
}

impl LazyWatch {
    fn device(&self) -> MutexGuard<'_, Option<Arc<dyn Watch>>> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch for LazyWatch {
    /// Returns at once if no device is open: then no request is in flight, or one has failed.
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        if self.is_ended.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let device = self.device().clone();
        device.map_or(Ok(()), |device| device.wait(timeout))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use iopath_core::{Extent, Tag};

    use super::*;
    use crate::aligned::AlignedBuf;
    use crate::clock::now;
    use crate::device::{MemoryConfig, MemoryDisk};
    use crate::runner::segment_mut;

    const BLOCK: usize = 4096;

    fn read(device: &mut Lazy, memory: &mut AlignedBuf) -> Result<(), IoError> {
        // SAFETY: the device completes the read before the memory is used again.
        let segment = unsafe { segment_mut(memory) };
        let extent = Extent::from_bytes(0, BLOCK as u64).unwrap();
        device.submit(&Io::new(Tag::from_bits(1), Op::Read, extent, &[segment]), now()).unwrap();
        assert_eq!(device.in_flight(), 1);
        device.commit(now());
        device.watch().wait(None).unwrap();
        let done = device.poll_completion(now()).unwrap();
        assert!(device.poll_completion(now()).is_none() && device.in_flight() == 0);
        done.result
    }

    #[test]
    fn a_device_is_opened_at_the_first_request_and_again_after_an_error() {
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 16)).unwrap();
        let opened = Arc::new(AtomicU32::new(0));
        let mut device = Lazy::new(disk.limits(), None, {
            let opened = Arc::clone(&opened);
            move |limits| {
                assert_eq!(limits.capacity, 64, "the size at that time");
                if opened.fetch_add(1, Ordering::Relaxed) == 0 {
                    return Err(io::Error::from_raw_os_error(libc::EMFILE));
                }
                Ok(Box::new(disk.open_with(limits.clone())))
            }
        });
        device.set_capacity(64);
        assert_eq!((device.in_flight(), device.syscalls(), opened.load(Ordering::Relaxed)), (0, 0, 0));
        let mut memory = AlignedBuf::new(BLOCK).unwrap();
        read(&mut device, &mut memory).unwrap_err();
        read(&mut device, &mut memory).unwrap();
        read(&mut device, &mut memory).unwrap();
        assert_eq!(opened.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_end_of_a_watch_before_the_first_request_ends_the_next_one() {
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 16)).unwrap();
        let mut device =
            Lazy::new(disk.limits(), None, move |limits| Ok(Box::new(disk.open_with(limits.clone()))));
        device.end_watch();
        assert!(device.watch.is_ended.load(Ordering::Relaxed));
        device.watch().wait(None).unwrap();
        assert!(!device.watch.is_ended.load(Ordering::Relaxed));
    }
}
