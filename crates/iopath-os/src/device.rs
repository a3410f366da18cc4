//! The devices that run in real time: what they have beyond [`BlockDevice`], and which there are.

mod bell;
mod fault;
mod mapped;
mod memory;
mod null;
mod stripe;
mod threads;
mod transfer;
mod uring;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use iopath_core::BlockDevice;

use crate::memory::Segment;

pub use bell::Bell;
pub use fault::{Faults, Faulty};
pub use iopath_core::Fault;
pub use mapped::{FileMap, FileMapError, Mapped, MappedError};
pub use memory::{MemoryConfig, MemoryDevice, MemoryDisk, MemoryTail};
pub use null::Null;
pub use stripe::{Striped, StripedError};
pub(crate) use threads::{OWN_SEGMENTS_MAX, read_now};
pub use threads::{Threads, ThreadsConfig};
pub use uring::{AnyThread, OneThread, Uring, UringConfig};
pub(crate) use uring::{Refused, Stage};

/// A block device on which one can wait.
///
/// ```text
/// while let Some(io) = queue.poll_dispatch(now) { … device.submit(&io, now) … }
/// device.commit_and_wait(1, None)?;
/// while let Some(done) = device.poll_completion(now) { queue.handle_completion(…) }
/// ```
///
/// # Three ways to wait
/// [`RealDevice::commit_and_wait`] is for the thread that has the device. A [`Watch`] is for one that leaves the device to
/// others meanwhile, and a [`Bell`] for one that waits for several devices. The last two know nothing of what the device
/// keeps for itself, so [`BlockDevice::commit`] tells them: **when `commit` returns, everything that
/// [`BlockDevice::poll_completion`] could give at that moment ends the wait that is on, or the next one.** That holds for
/// requests that `commit` carried out in the calling thread, for those that had completed when they were submitted, and for
/// completions that an earlier call left. What has completed later ends the wait by itself.
///
/// So the order is: poll until nothing comes, `commit`, wait. Polling may submit the rest of a short transfer again, and
/// the `commit` after it hands that over.
///
/// A wait of either kind ends at [`BlockDevice::poll_timeout`] at the latest, if the device names a time: then it has
/// something to do that nothing announces, such as requests that the system had no memory for.
///
/// # Safety
/// Whoever gets a completion gives the request's memory to others. So a request is reported as over only when nothing
/// will read or write its memory any more, and a device that is dropped waits until that is so for all it took. Each
/// request taken counts in [`RealDevice::in_flight`] until it is given back, once.
pub unsafe trait RealDevice: BlockDevice<Memory = Segment> + fmt::Debug {
    /// Hands over what was submitted, as [`BlockDevice::commit`] does, and waits until `completions` requests (or
    /// all, if fewer are in flight) are ready for [`BlockDevice::poll_completion`]. With `io_uring` that is one system
    /// call for all of it.
    ///
    /// Returns early, perhaps with nothing ready, when `timeout` has passed, a signal has been handled, or a
    /// request needs to be continued: poll, then wait again.
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError>;

    /// A way to wait for this device while others have it: see [`Watch`]. Unless a device says otherwise, each wait
    /// returns at once: right for a device whose requests have completed when they are committed, correct but a busy loop for
    /// any other.
    fn watch(&self) -> Arc<dyn Watch> {
        Arc::new(NothingToWaitFor)
    }

    /// Ends the wait of a [`Watch`] that is in progress, or the next one: its thread has got from another one what it
    /// waits for. Nothing to do for a device whose watch returns at once.
    fn end_watch(&mut self) {}

    /// The device ends after `sectors` sectors from now on: the file that it stands on was resized. Ignored by
    /// devices whose size is their own.
    fn set_capacity(&mut self, _sectors: u64) {}

    /// Requests taken and not yet given back by [`BlockDevice::poll_completion`].
    fn in_flight(&self) -> u32;

    /// System calls made so far for I/O: for tests and for the price of an I/O.
    fn syscalls(&self) -> u64;

    /// Rings `bell` from now on, for a thread that waits for several devices. To be called before the first request.
    ///
    /// The device rings whenever a request becomes ready to be polled, or has to be polled to go on, after
    /// [`BlockDevice::poll_completion`] last returned `None`; and in each [`BlockDevice::commit`] after which anything is
    /// ready. It may ring in vain.
    ///
    /// # Errors
    /// If the device has no way to ring, or the system refuses it.
    fn ring_when_over(&mut self, bell: &Bell) -> std::io::Result<()>;
}

// SAFETY: does what is inside does.
unsafe impl<D: ?Sized + RealDevice> RealDevice for Box<D> {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        (**self).commit_and_wait(completions, timeout)
    }

    fn watch(&self) -> Arc<dyn Watch> {
        (**self).watch()
    }

    fn end_watch(&mut self) {
        (**self).end_watch();
    }

    fn set_capacity(&mut self, sectors: u64) {
        (**self).set_capacity(sectors);
    }

    fn in_flight(&self) -> u32 {
        (**self).in_flight()
    }

    fn syscalls(&self) -> u64 {
        (**self).syscalls()
    }

    fn ring_when_over(&mut self, bell: &Bell) -> std::io::Result<()> {
        (**self).ring_when_over(bell)
    }
}

/// Waits for a device to which other threads may hand requests meanwhile, by `submit` and `commit`.
///
/// One thread waits at a time, and no other polls completions until it is back: what it waits for would be gone. Before
/// the wait begins, what was submitted must have been committed, after the last poll, and one request must be in flight.
pub trait Watch: fmt::Debug + Send + Sync {
    /// Returns when a completion is ready, at once if one is ready already; when the device must be polled to go on; when
    /// [`RealDevice::end_watch`] is called; or when `timeout` has passed. It may return early. `timeout` must not be later
    /// than [`BlockDevice::poll_timeout`].
    ///
    /// A request that is handed in during the wait ends it, too, if the device can tell the waiting thread. A device on
    /// top of another ([`Mapped`]) may be unable to: then the first request that was in flight before does.
    ///
    /// # Errors
    /// If the system refuses to wait, or has refused for good what was committed.
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError>;
}

#[derive(Debug)]
struct NothingToWaitFor;

impl Watch for NothingToWaitFor {
    fn wait(&self, _timeout: Option<Duration>) -> Result<(), WaitError> {
        Ok(())
    }
}

/// The system refused to take requests or to wait. What was submitted stays submitted.
#[derive(Debug, thiserror::Error)]
#[error("the system refuses to go on with I/O ({source}); what is in flight cannot be waited for")]
pub struct WaitError {
    /// What the system said (`io_uring_enter(2)`).
    #[from]
    pub source: std::io::Error,
}

/// A kind of device of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceKind {
    /// What it is called in options and results.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
}

/// The devices of this crate.
pub const DEVICES: &[DeviceKind] = &[
    DeviceKind { name: "uring", about: "a file or block device through io_uring" },
    DeviceKind { name: "threads", about: "a file or block device through preadv2 and pwritev2 on threads" },
    DeviceKind { name: "memory", about: "bytes in memory, with a write cache that a crash loses" },
    DeviceKind { name: "mapped", about: "a file on one of these, wherever its blocks lie" },
    DeviceKind { name: "stripe", about: "several of these as one, chunk by chunk (RAID 0)" },
    DeviceKind { name: "null", about: "completes everything at once and moves no byte" },
];
