//! Moves the requests of futures through a batch, and wakes their tasks. Does not wait: the program waits for its
//! descriptor.

use super::table::{Shared, wake_all};
use crate::batch::{Batch, BatchOptions, Completion, Refused, Request};
use crate::driver_threads::{Drive, Turn};
use crate::error::OpenError;
use crate::storage::threading::AnyThread;
use crate::volume::Volume;
use iopath_os::AnyBuf;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

/// Submissions in a turn.
const SUBMISSIONS_MAX: usize = 8;

/// Drives the futures of an [`AsyncVolume`](super::AsyncVolume) in an event loop of the program.
///
/// The loop calls [`Driver::turn`], then waits until the descriptor ([`AsFd`]) is readable, and so on until
/// [`Turn::Ended`]. It never reads from the descriptor.
///
/// Dropping a driver waits for the requests at the device. Futures that have not completed by then, and later ones,
/// fail with [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
///
/// ```no_run
/// use iopath::futures::{Driver, Turn};
/// use rustix::event::{PollFd, PollFlags, poll};
///
/// fn drive(mut driver: Driver) -> std::io::Result<()> {
///     while let Turn::Wait(limit) = driver.turn() {
///         let limit = limit.and_then(|limit| limit.try_into().ok());
///         poll(&mut [PollFd::new(&driver, PollFlags::IN)], limit.as_ref())?;
///     }
///     Ok(())
/// }
/// ```
pub struct Driver {
    batch: Batch<AnyThread, AnyBuf>,
    shared: Arc<Shared>,
    descriptor: OwnedFd,
    depth: usize,
    // Emptied in each turn; kept for their memory.
    taken: Vec<Request<AnyBuf>>,
    done: Vec<Completion<AnyBuf>>,
    wakers: Vec<Waker>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("batch", &self.batch).finish_non_exhaustive()
    }
}

/// A driver, and the table of its futures.
pub(super) fn open(volume: &Volume, options: &BatchOptions) -> Result<(Arc<Shared>, Driver), OpenError> {
    let options = match options.selects_cache() {
        None if volume.has_cache() => options.clone().buffered(true),
        _ => options.clone(),
    };
    let mut batch = volume.batch_of::<AnyBuf>(&options)?;
    let refused = |source| refused(volume, "given a completion descriptor", source);
    let descriptor = batch.completion_fd().map_err(refused)?;
    let notifier = batch.notifier().ok_or_else(|| refused(io::ErrorKind::Unsupported.into()))?;
    let shared = Arc::new(Shared::new(volume, notifier));
    let depth = options.depth() as usize;
    let driver = Driver {
        batch,
        shared: Arc::clone(&shared),
        descriptor,
        depth,
        taken: Vec::new(),
        done: Vec::new(),
        wakers: Vec::new(),
    };
    Ok((shared, driver))
}

pub(super) fn refused(volume: &Volume, what: &'static str, source: io::Error) -> OpenError {
    OpenError::System { path: volume.facts().path.clone(), what, source }
}

impl Driver {
    /// Submits the requests of futures that were polled, and completes those that the device has completed: their
    /// tasks are woken. Does not wait for the device.
    ///
    /// # Panics
    /// If a waker or the drop of a buffer of the program panics: after all tasks were woken.
    pub fn turn(&mut self) -> Turn {
        // This clears the descriptor. Requests that are queued later make it readable again.
        let mut next = self.batch.poll();
        while let Some(done) = next {
            self.done.push(done);
            next = self.batch.next_completed();
        }
        let is_behind = self.submit();
        if let Err(panic) = self.complete() {
            resume_unwind(panic);
        }
        if is_behind {
            return Turn::Wait(Some(Duration::ZERO));
        }
        if self.batch.in_flight() == 0 && self.shared.is_ended() && !self.shared.has_queued() {
            return Turn::Ended;
        }
        Turn::Wait(self.batch.next_timeout())
    }

    /// A duplicate of the descriptor, for event loops that own what they wait for. It stays valid without the driver.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.descriptor.try_clone()
    }

    pub(super) fn uses_cache(&self) -> bool {
        self.batch.is_buffered()
    }

    /// Moves queued requests into the batch while it has room, and submits them together. Returns true if more may be
    /// queued: tasks that add cached reads without end must not keep other tasks from being woken, nor other drivers of
    /// the thread from their turn.
    fn submit(&mut self) -> bool {
        for _ in 0..SUBMISSIONS_MAX {
            let room = self.depth.saturating_sub(self.batch.in_flight() as usize);
            self.shared.take_queued(room, &mut self.taken);
            if self.taken.is_empty() {
                return false;
            }
            for request in self.taken.drain(..) {
                let token = request.token_value();
                if let Err(Refused { error, buffer }) = self.batch.queue(request) {
                    self.done.push(Completion { token, buffer, result: Err(error) });
                }
            }
            self.batch.submit();
            // Requests that are complete already, such as cached reads, leave room for others.
            while let Some(done) = self.batch.next_completed() {
                self.done.push(done);
            }
        }
        true
    }

    /// Completes the futures of the requests in `done`. Returns the first panic of a waker or of the drop of a buffer:
    /// neither keeps other tasks from being woken.
    fn complete(&mut self) -> thread::Result<()> {
        if self.done.is_empty() {
            return Ok(());
        }
        let dropped = self.shared.complete(&mut self.done, &mut self.wakers);
        let woken = wake_all(&mut self.wakers);
        match dropped {
            Some(dropped) => woken.and(catch_unwind(AssertUnwindSafe(|| drop(dropped)))),
            None => woken,
        }
    }
}

impl Drive for Driver {
    fn turn(&mut self) -> Turn {
        Self::turn(self)
    }
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Driver {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.end_driving();
        loop {
            // A panic of the program's code has been reported. It must not keep later futures from completing.
            let _ = self.complete();
            match self.batch.wait() {
                Ok(Some(done)) => self.done.push(done),
                // Or the system refuses to wait: the batch keeps the buffers, which the device may use.
                Ok(None) | Err(_) => break self.shared.fail_lost(),
            }
        }
    }
}
