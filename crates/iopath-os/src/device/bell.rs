//! What several devices ring when something is over, and one thread waits for: an eventfd. Says neither what is over
//! nor where.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::{WaitError, Watch};

/// Rung by devices ([`RealDevice::ring_when_over`](crate::RealDevice::ring_when_over)); a clone is the same bell.
///
/// What was rung while nobody waited ends the next wait at once, so that nothing is missed.
#[derive(Debug, Clone)]
pub struct Bell {
    eventfd: Arc<OwnedFd>,
}

impl Bell {
    /// A bell that nobody has rung (`eventfd(2)`).
    pub fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self { eventfd: Arc::new(eventfd) })
    }

    /// Ends the wait, or the next if none is on.
    pub fn ring(&self) {
        // Fails only where it was rung 2^64 - 2 times in vain, and then the wait ends without it.
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }

    /// Waits until it is rung, but no longer than `timeout`, or until a signal has been handled. Returns how many system
    /// calls that took.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<u64> {
        let mut calls = 1;
        if let Some(timeout) = timeout {
            // A time that does not fit is longer than anyone waits.
            let timeout = Timespec::try_from(timeout).ok();
            match poll(&mut [PollFd::new(&self.eventfd, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) | Err(Errno::INTR) => return Ok(calls),
                Ok(_) => calls += 1,
                Err(error) => return Err(error.into()),
            }
        }
        match rustix::io::read(&self.eventfd, &mut [0; 8]) {
            Ok(_) | Err(Errno::INTR) => Ok(calls),
            Err(error) => Err(error.into()),
        }
    }
}

impl Watch for Bell {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        Self::wait(self, timeout)?;
        Ok(())
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_rung_before_ends_the_next_wait_and_no_other() {
        let bell = Bell::new().unwrap();
        bell.ring();
        bell.ring();
        assert_eq!(bell.wait(None).unwrap(), 1);
        assert_eq!(bell.wait(Some(Duration::from_millis(1))).unwrap(), 1, "the time is over");
        bell.ring();
        assert_eq!(bell.wait(Some(Duration::from_secs(60))).unwrap(), 2);
    }

    #[test]
    fn another_thread_ends_a_wait() {
        let bell = Bell::new().unwrap();
        let other = bell.clone();
        let thread = std::thread::spawn(move || other.ring());
        bell.wait(None).unwrap();
        thread.join().unwrap();
    }
}
