//! Waits for a ring's completions through its descriptor only. Submits nothing and reads no entry.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use io_uring::IoUring;

use super::enter::{enter, passes};
use crate::device::{WaitError, Watch};

/// A duplicate of the ring's descriptor.
#[derive(Debug)]
pub(super) struct RingWatch {
    ring: OwnedFd,
    syscalls: AtomicU64,
    /// The next wait returns at once.
    is_ended: AtomicBool,
}

impl RingWatch {
    pub(super) fn new(ring: &IoUring) -> io::Result<Self> {
        // SAFETY: the descriptor is open as long as the ring, which outlives this call.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        let ring = fd.as_fd().try_clone_to_owned()?;
        Ok(Self { ring, syscalls: AtomicU64::new(0), is_ended: AtomicBool::new(false) })
    }

    pub(super) fn syscalls(&self) -> u64 {
        self.syscalls.load(Relaxed)
    }

    /// Ends the next wait without the kernel, which has refused the ring.
    pub(super) fn end_next(&self) {
        self.is_ended.store(true, Relaxed);
    }
}

impl Watch for RingWatch {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        if self.is_ended.swap(false, Relaxed) {
            return Ok(());
        }
        self.syscalls.fetch_add(1, Relaxed);
        match enter(self.ring.as_raw_fd(), 0, 1, timeout) {
            Err(error) if !passes(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
