//! Waits for a ring's completions without the ring: by its descriptor alone. Submits nothing and reads no entry.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use io_uring::{EnterFlags, IoUring, types};

use super::is_passing;
use crate::device::{WaitError, Watch};

/// A descriptor of its own for the ring.
#[derive(Debug)]
pub(super) struct RingWatch {
    ring: OwnedFd,
    syscalls: AtomicU64,
}

impl RingWatch {
    pub(super) fn new(ring: &IoUring) -> io::Result<Self> {
        // SAFETY: the descriptor is open as long as the ring, which outlives this call.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        Ok(Self { ring: fd.as_fd().try_clone_to_owned()?, syscalls: AtomicU64::new(0) })
    }

    pub(super) fn syscalls(&self) -> u64 {
        self.syscalls.load(Relaxed)
    }
}

impl Watch for RingWatch {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.syscalls.fetch_add(1, Relaxed);
        let time = types::Timespec::from(timeout.unwrap_or_default());
        let args = types::SubmitArgs::new().timespec(&time);
        let (mut flags, mut arg, mut arg_bytes) = (EnterFlags::GETEVENTS, std::ptr::null(), 0);
        if timeout.is_some() {
            flags |= EnterFlags::EXT_ARG;
            arg = std::ptr::from_ref(&args).cast::<libc::c_void>();
            arg_bytes = size_of_val(&args);
        }
        // SAFETY: submits nothing and waits for one completion; the argument, if the flag says that there is one,
        // and the time that it points to outlive the call.
        let entered = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.ring.as_raw_fd(),
                0_u32,
                1_u32,
                flags.bits(),
                arg,
                arg_bytes,
            )
        };
        match io::Error::last_os_error() {
            error if entered < 0 && !error.raw_os_error().is_some_and(is_passing) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
