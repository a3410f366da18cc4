//! Waits for a ring's completions through its descriptor only. Submits nothing and reads no entry.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use io_uring::IoUring;

use super::enter::{enter, passes};
use crate::device::{WaitError, Watch};

/// A duplicate of the ring's descriptor.
#[derive(Debug)]
pub(super) struct RingWatch {
    ring: OwnedFd,
    syscalls: AtomicU64,
    /// The error with which the system permanently refuses submissions, or 0.
    refused: AtomicI32,
}

impl RingWatch {
    pub(super) fn new(ring: &IoUring) -> io::Result<Self> {
        // SAFETY: the descriptor is open as long as the ring, which outlives this call.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        let ring = fd.as_fd().try_clone_to_owned()?;
        Ok(Self { ring, syscalls: AtomicU64::new(0), refused: AtomicI32::new(0) })
    }

    pub(super) fn syscalls(&self) -> u64 {
        self.syscalls.load(Relaxed)
    }

    /// Makes the next waits fail with `error`, or succeed again.
    pub(super) fn refuse(&self, error: Option<&io::Error>) {
        self.refused.store(error.and_then(io::Error::raw_os_error).unwrap_or_default(), Relaxed);
    }
}

impl Watch for RingWatch {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let refused = self.refused.load(Relaxed);
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused).into());
        }
        self.syscalls.fetch_add(1, Relaxed);
        match enter(self.ring.as_raw_fd(), 0, 1, timeout) {
            Err(error) if !passes(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
