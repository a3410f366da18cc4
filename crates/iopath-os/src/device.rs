//! Devices that run in real time: the trait that adds waiting to [`BlockDevice`], and the list of devices.

mod completed;
mod fault;
mod inline;
mod lazy;
mod mapped;
mod memory;
mod notifier;
mod null;
mod remote;
mod stripe;
mod threads;
mod timed;
mod transfer;
mod uring;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use iopath_core::BlockDevice;

use crate::memory::Segment;

pub use fault::{Faults, Faulty};
pub use inline::{DeviceRequest, Execute, InlineDevice};
pub use iopath_core::Fault;
pub use lazy::Lazy;
pub use mapped::{FileMap, FileMapError, Mapped, MappedError};
pub use memory::{MemoryConfig, MemoryDevice, MemoryDisk, MemoryTail};
pub use notifier::Notifier;
pub use null::Null;
pub use remote::{
    Incoming, Losses, Outgoing, Remote, RemoteAddress, RemoteDevice, RemoteEncryption, RemoteError,
    RemoteEvent, RemoteFacts, RemoteProtocol, RemoteRequest, RemoteSession, RemoteSocket, WeakRemote,
};
pub use stripe::{Striped, StripedError};
pub use threads::flush_now;
pub(crate) use threads::{OWN_SEGMENTS_MAX, transfer_now};
pub use threads::{Threads, ThreadsConfig};
pub use timed::{Timed, Timing};
pub use uring::{AnyThread, OneThread, RingPool, Uring, UringConfig};
pub(crate) use uring::{Refused, Stage};

/// A block device that a thread can wait for.
///
/// ```text
/// while let Some(io) = queue.poll_dispatch(now) { … device.submit(&io, now) … }
/// device.commit_and_wait(1, None)?;
/// while let Some(done) = device.poll_completion(now) { queue.handle_completion(…) }
/// ```
///
/// # Three ways to wait
/// [`RealDevice::commit_and_wait`] is for the thread that uses the device. A [`Watch`] is for a thread that waits while
/// other threads use the device, and a [`Notifier`] for a thread that waits for several devices. A device may hold
/// completions that neither watch nor notifier announces. So [`BlockDevice::commit`] announces them: **when `commit`
/// returns, every completion that [`BlockDevice::poll_completion`] could return ends the wait in progress, or the next
/// one.** That includes requests that `commit` executed in the calling thread, requests that completed at submission,
/// and completions left by an earlier call. A later completion ends the wait without `commit`.
///
/// So the order is: poll until `None`, `commit`, wait. Polling may submit the rest of a short transfer, and `commit`
/// starts it.
///
/// Every wait must end at [`BlockDevice::poll_timeout`] at the latest, if the device returns a time. At that time the
/// device has work without a notification, such as a retry of requests for which the system had no memory.
///
/// # Safety
/// The caller reuses a request's memory after its completion. So a device reports a request as completed only when
/// neither kernel nor threads will access its memory again. Drop waits until this holds for all requests. Each request
/// counts in [`RealDevice::in_flight`] from its submission until its completion is returned, once. A read that
/// completes without an error has initialised all of its memory, unless [`RealDevice::fills_reads`] is false.
pub unsafe trait RealDevice: BlockDevice<Memory = Segment> + fmt::Debug {
    /// Commits as [`BlockDevice::commit`], and waits until `completions` requests, or all in flight if these are fewer,
    /// are ready for [`BlockDevice::poll_completion`]. With `io_uring` that is one system call.
    ///
    /// Returns early, perhaps without a completion, when `timeout` has passed, a signal was handled, or a request must
    /// be continued. Then poll, and wait again.
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError>;

    /// A handle to wait for this device while other threads use it: see [`Watch`]. By default each wait returns at
    /// once. That is correct for a device that completes requests in `commit`; for other devices it is a busy loop.
    fn watch(&self) -> Arc<dyn Watch> {
        Arc::new(NoWait)
    }

    /// Ends the wait of a [`Watch`] in progress, or the next one. Does nothing if the device's watch returns at once.
    fn end_watch(&mut self) {}

    /// Sets the capacity after a resize of the file. Devices of fixed size ignore it.
    fn set_capacity(&mut self, _sectors: u64) {}

    /// Requests submitted and not yet returned by [`BlockDevice::poll_completion`].
    fn in_flight(&self) -> u32;

    /// System calls made for I/O so far.
    fn syscalls(&self) -> u64;

    /// Whether a read that completes without an error has written all of its memory.
    fn fills_reads(&self) -> bool {
        true
    }

    /// Sets the notifier of the device, for a thread that waits for several devices. Call it before the first request.
    ///
    /// The device notifies whenever a request becomes ready to be polled, or must be polled to continue, after
    /// [`BlockDevice::poll_completion`] last returned `None`; and in each [`BlockDevice::commit`] after which a request
    /// is ready. It may notify without need.
    ///
    /// # Errors
    /// If the device cannot notify, or the system refuses.
    fn set_notifier(&mut self, notifier: &Notifier) -> std::io::Result<()>;
}

// SAFETY: forwards to the inner device.
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

    fn fills_reads(&self) -> bool {
        (**self).fills_reads()
    }

    fn set_notifier(&mut self, notifier: &Notifier) -> std::io::Result<()> {
        (**self).set_notifier(notifier)
    }
}

/// Waits for a device while other threads submit and commit requests.
///
/// One thread waits at a time. No other thread may poll completions until the wait has ended, since it could take the
/// completion that the wait is for. Before the wait begins, the submitted requests must have been committed, after the
/// last poll, and one request must be in flight.
pub trait Watch: fmt::Debug + Send + Sync {
    /// Returns when a completion is ready or a request must be polled to continue, when [`RealDevice::end_watch`] is
    /// called, or when `timeout` has passed. It may return early. `timeout` must not be later than
    /// [`BlockDevice::poll_timeout`].
    ///
    /// The completion of a request submitted during the wait also ends the wait, if the device can notify the waiting
    /// thread. A device on top of another ([`Mapped`]) may be unable to do so; then the first completion of an earlier
    /// request ends the wait.
    ///
    /// # Errors
    /// If the system refuses to wait.
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError>;
}

#[derive(Debug)]
struct NoWait;

impl Watch for NoWait {
    fn wait(&self, _timeout: Option<Duration>) -> Result<(), WaitError> {
        Ok(())
    }
}

/// The system refuses to wait for requests that it has accepted: they stay in flight. Requests that it never accepted
/// complete with an error instead.
#[derive(Debug, thiserror::Error)]
#[error("the system refuses further I/O ({source}); I/O in flight cannot be awaited")]
#[non_exhaustive]
pub struct WaitError {
    /// The system's error (`io_uring_enter(2)`).
    #[from]
    pub source: std::io::Error,
}

/// A kind of device of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceKind {
    /// Its name in options and results.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
}

/// The devices of this crate.
pub const DEVICES: &[DeviceKind] = &[
    DeviceKind { name: "uring", about: "a file or block device through io_uring" },
    DeviceKind { name: "threads", about: "a file or block device through preadv2 and pwritev2 on threads" },
    DeviceKind { name: "memory", about: "bytes in memory, with a write cache that a crash loses" },
    DeviceKind {
        name: "timed",
        about: "bytes in memory, each request at the time at which a modelled device completes it",
    },
    DeviceKind { name: "mapped", about: "a file on one of these, mapped to blocks anywhere on the device" },
    DeviceKind { name: "stripe", about: "several of these as one, chunk by chunk (RAID 0)" },
    DeviceKind { name: "remote", about: "an export of a server, over sockets" },
    DeviceKind { name: "program", about: "storage of a program that executes each request at once" },
    DeviceKind { name: "null", about: "completes every request at once and moves no byte" },
];
