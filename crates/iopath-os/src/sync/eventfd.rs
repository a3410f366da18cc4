//! A counter that one thread waits for, and to which other threads or the kernel add (`eventfd(2)`). An explored build
//! uses `explored_eventfd.rs` instead.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC)?))
    }

    /// Adds one, which ends a wait.
    pub(crate) fn add(&self) {
        // Fails only if the counter would pass 2^64 - 2; then the wait ends anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Waits until the counter is not zero, and resets it; ends at `timeout` and on a handled signal. Returns the
    /// number of system calls.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<u64> {
        let mut calls = 1;
        if let Some(timeout) = timeout {
            // A timeout that does not fit is longer than any wait.
            let timeout = Timespec::try_from(timeout).ok();
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) | Err(Errno::INTR) => return Ok(calls),
                Ok(_) => calls += 1,
                Err(error) => return Err(error.into()),
            }
        }
        match rustix::io::read(&self.0, &mut [0; 8]) {
            Ok(_) | Err(Errno::INTR) => Ok(calls),
            Err(error) => Err(error.into()),
        }
    }
}

impl EventFd {
    pub(crate) fn try_clone(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    #[cfg(test)]
    pub(crate) fn is_readable(&self) -> bool {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&zero)).is_ok_and(|ready| ready > 0)
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
