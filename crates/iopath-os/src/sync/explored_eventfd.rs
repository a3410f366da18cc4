//! The counter of an explored build, instead of `eventfd.rs`: a number under a lock, with a virtual timeout. It has no
//! descriptor, so an `io_uring` refuses to write to it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::PoisonError;
use std::time::Duration;

use super::lock::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct EventFd {
    count: Mutex<u64>,
    added: Condvar,
}

impl EventFd {
    #[expect(clippy::unnecessary_wraps, reason = "as that of normal builds")]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    pub(crate) fn add(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        // All readers wake; one takes the count.
        self.added.notify_all();
    }

    #[expect(clippy::unnecessary_wraps, reason = "as that of normal builds")]
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<u64> {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let is_zero = |count: &mut u64| *count == 0;
        let mut count = match timeout {
            Some(timeout) => {
                let waited = self.added.wait_timeout_while(count, timeout, is_zero);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.added.wait_while(count, is_zero).unwrap_or_else(PoisonError::into_inner),
        };
        *count = 0;
        Ok(1)
    }
}

impl EventFd {
    #[expect(clippy::unused_self, reason = "as that of normal builds")]
    pub(crate) fn try_clone(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl AsRawFd for EventFd {
    /// No descriptor: the kernel refuses it.
    fn as_raw_fd(&self) -> RawFd {
        -1
    }
}
