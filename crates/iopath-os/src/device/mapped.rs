//! A mapped file on a real device: waits for the device, and for other engines that change the same file. The core
//! executes the requests ([`MappedDevice`]). The lock around the shared file is in `mapped/file.rs`.

mod file;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use iopath_core::mapped::{self, MappedDevice};
use iopath_core::mapper::{Boundary, PlanError};
use iopath_core::{
    BlockDevice, Busy, Completion, Duration, Instant, Io, IoError, Limits, Op, QueueStats, Tag,
};

use super::{Notifier, RealDevice, WaitError, Watch};
use crate::clock;
use crate::errno::io_error_of;
use crate::memory::Segment;
use crate::sync::thread;
use file::Host;

pub use file::{FileMap, FileMapError};

/// A mapped file on a real device, as a device: see [`MappedDevice`]. A wait also ends when a task that waited for
/// another engine can continue.
#[derive(Debug)]
pub struct Mapped<D: RealDevice> {
    device: MappedDevice<D, Host>,
    notifier: Notifier,
    /// `READY`, `DEVICE` or `ENGINES`, for the thread in a watch.
    watched: Arc<AtomicU8>,
    /// System calls made by waits for the notifier.
    waits: u64,
}

/// The reason why a file cannot be used on a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MappedError {
    /// The file does not fit the device.
    #[error(transparent)]
    File(#[from] mapped::MappedError),
    /// The process cannot wait for other engines on the file.
    #[error("cannot wait for changes by other engines ({0}); raise the limit of open files (ulimit -n)")]
    Notifier(#[source] io::Error),
}

impl From<PlanError> for MappedError {
    fn from(error: PlanError) -> Self {
        Self::File(error.into())
    }
}

impl<D: RealDevice> Mapped<D> {
    /// The file on `device`. `boundary` selects the effect of a mapping's boundary flag.
    ///
    /// # Panics
    /// If the device has requests in flight: it would report their completions to this device.
    pub fn new(device: D, file: &FileMap, boundary: Boundary) -> Result<Self, MappedError> {
        assert!(device.in_flight() == 0, "{device:?} already has requests in flight");
        let notifier = Notifier::new().map_err(MappedError::Notifier)?;
        let host = file.add_engine(&notifier);
        let id = host.id;
        let device = MappedDevice::new(device, host, id, boundary)?;
        Ok(Self { device, notifier, watched: Arc::new(AtomicU8::new(READY)), waits: 0 })
    }

    /// The statistics of the queue in front of the device.
    pub const fn queue_stats(&self) -> &QueueStats {
        self.device.queue_stats()
    }

    /// Resizes the file. Added bytes read as zeroes; space past a new end is released. Waits for changes past the old
    /// or the new end, and for no other I/O.
    ///
    /// # Errors
    /// [`IoError::Unsupported`] for a file of fixed size; EFBIG if the map cannot address the size; and errors of the
    /// device.
    ///
    /// # Panics
    /// If requests are in flight on this engine.
    pub fn resize(&mut self, size_bytes: u64) -> Result<(), IoError> {
        assert!(self.in_flight() == 0, "requests are in flight");
        self.device.resize(Tag::from_bits(0), size_bytes, clock::now());
        loop {
            self.commit_and_wait(1, None).map_err(|error| io_error_of(Op::Flush, &error.source))?;
            if let Some(done) = self.poll_completion(clock::now()) {
                return done.result;
            }
        }
    }

    const fn below(&self) -> &D {
        self.device.below().device()
    }

    /// Publishes the event that a thread in a watch must wait for.
    fn publish(&self) {
        let state = if self.device.ready() > 0 {
            READY
        } else if self.below().in_flight() > 0 {
            DEVICE
        } else if self.device.is_blocked() {
            ENGINES
        } else {
            READY
        };
        let before = self.watched.swap(state, Ordering::AcqRel);
        if before == ENGINES && state != ENGINES && Arc::strong_count(&self.watched) > 1 {
            // The thread that waits for other engines must wait for the device from now on.
            self.notifier.notify();
        }
    }

    /// Waits until a task can advance.
    fn wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        let in_flight = self.below().in_flight();
        if in_flight > 0 {
            return self.device.device_mut().commit_and_wait(completions.min(in_flight), timeout);
        }
        if self.device.is_blocked() {
            self.waits += self.notifier.wait(timeout)?;
        } else {
            // The device cannot accept a request yet, and has no request of this queue in flight.
            thread::sleep(timeout.expect("requests that are neither at the device nor blocked have a time"));
        }
        Ok(())
    }
}

impl<D: RealDevice> BlockDevice for Mapped<D> {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        self.device.limits()
    }

    /// # Panics
    /// If a segment is not whole blocks: a bug of the caller.
    fn submit(&mut self, io: &Io<'_, Segment>, now: Instant) -> Result<(), Busy> {
        self.device.submit(io, now)
    }

    fn commit(&mut self, now: Instant) {
        self.device.dispatch(now);
        self.publish();
        if self.device.ready() > 0 {
            // The device below does not announce these completions, for example reads of holes.
            self.notifier.notify();
        }
        self.device.device_mut().commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        let had_ready = self.device.ready() > 0;
        let done = self.device.poll_completion(now);
        if !had_ready {
            self.publish();
        }
        done
    }

    /// The time of the device below. The watch announces its completions, and the notifier announces other engines.
    fn poll_timeout(&self) -> Option<Instant> {
        self.device.below().poll_timeout()
    }
}

// SAFETY: a request has completed when each of its bios has. Each bio was either executed by the device below, which
// keeps this promise, or never begun. Zeroes are written to the memory of a request before it completes. When this is
// dropped, the device is dropped first and waits for its requests; bios in the queue were never begun.
unsafe impl<D: RealDevice> RealDevice for Mapped<D> {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        let mut now = clock::now();
        let end = timeout.map(|timeout| now + timeout);
        loop {
            self.device.advance(now);
            self.publish();
            let missing = completions.min(self.in_flight()).saturating_sub(self.device.ready());
            if missing == 0 || end.is_some_and(|end| end <= now) {
                break;
            }
            let due = [end, self.poll_timeout()].into_iter().flatten().min();
            self.wait(missing, due.map(|due| due.saturating_since(now)))?;
            now = clock::now();
        }
        self.device.device_mut().commit(now);
        Ok(())
    }

    fn watch(&self) -> Arc<dyn Watch> {
        let watched = Arc::clone(&self.watched);
        let notifier = self.notifier.clone();
        Arc::new(MappedWatch { watched, notifier, below: self.below().watch() })
    }

    /// Ends a wait for the notifier and a wait for the device: the watch may be in either.
    fn end_watch(&mut self) {
        self.notifier.notify();
        self.device.device_mut().end_watch();
    }

    /// Sets the end of the file. The device below keeps its size.
    fn set_capacity(&mut self, sectors: u64) {
        self.device.set_capacity(sectors);
    }

    fn in_flight(&self) -> u32 {
        self.device.in_flight()
    }

    fn syscalls(&self) -> u64 {
        self.waits + self.below().syscalls()
    }

    fn fills_reads(&self) -> bool {
        self.below().fills_reads()
    }

    fn set_notifier(&mut self, notifier: &Notifier) -> io::Result<()> {
        self.device.device_mut().set_notifier(notifier)?;
        self.device.host().set_notifier(notifier);
        self.notifier = notifier.clone();
        Ok(())
    }
}

/// The event that a thread in a watch waits for: none, the device below, or engines that change the file.
const READY: u8 = 0;
const DEVICE: u8 = 1;
const ENGINES: u8 = 2;

#[derive(Debug)]
struct MappedWatch {
    watched: Arc<AtomicU8>,
    notifier: Notifier,
    below: Arc<dyn Watch>,
}

impl Watch for MappedWatch {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        match self.watched.load(Ordering::Acquire) {
            READY => Ok(()),
            DEVICE => self.below.wait(timeout),
            _ => Watch::wait(&self.notifier, timeout),
        }
    }
}
