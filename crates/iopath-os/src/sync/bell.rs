//! The bell of an explored build, in the place of `device/bell.rs`: a count behind a lock instead of an eventfd. Has no
//! descriptor, so a ring refuses to ring it.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::{WaitError, Watch};
use crate::sync::{Condvar, Mutex};

/// As the bell of normal builds.
#[derive(Debug, Clone)]
pub struct Bell {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    rung: Mutex<u64>,
    is_rung: Condvar,
}

impl Bell {
    /// A bell that nobody has rung. Never fails.
    pub fn new() -> io::Result<Self> {
        Ok(Self { shared: Arc::default() })
    }

    /// Ends the wait, or the next if none is in progress.
    pub fn ring(&self) {
        *self.shared.rung.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        // As an eventfd wakes each reader, of which one takes the count.
        self.shared.is_rung.notify_all();
    }

    /// Waits until it is rung, at most `timeout`. Returns the system calls that a bell of a normal build takes.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<u64> {
        let rung = self.shared.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let is_silent = |rung: &mut u64| *rung == 0;
        let mut rung = match timeout {
            Some(timeout) => {
                let waited = self.shared.is_rung.wait_timeout_while(rung, timeout, is_silent);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.shared.is_rung.wait_while(rung, is_silent).unwrap_or_else(PoisonError::into_inner),
        };
        *rung = 0;
        Ok(1)
    }
}

impl Watch for Bell {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        Self::wait(self, timeout)?;
        Ok(())
    }
}

impl AsRawFd for Bell {
    /// No descriptor: the kernel refuses it.
    fn as_raw_fd(&self) -> RawFd {
        -1
    }
}
