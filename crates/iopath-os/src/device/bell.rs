//! A bell that several devices ring for completions and one thread waits for: an eventfd, and an atomic that saves the
//! system call while no thread waits. It does not identify the request or the device.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use super::{WaitError, Watch};
use crate::sync::EventFd;
use crate::sync::atomic::{AtomicU32, Ordering};

/// A bell that devices ring ([`RealDevice::set_bell`](crate::RealDevice::set_bell)). A clone is the same bell.
///
/// A ring while no thread waits ends the next wait at once, so no ring is lost. Several rings may end only one wait: the
/// woken thread polls each device until it returns `None`, then waits again.
///
/// A ring costs a system call only while a thread waits. The descriptor ([`AsRawFd`]) is only for the kernel, which rings
/// by writing to it: [`Bell::ring`] does not always make it readable.
#[derive(Debug, Clone)]
pub struct Bell {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    eventfd: EventFd,
    /// `RUNG`, and `WAITER` for each thread that waits.
    state: AtomicU32,
}

/// The bell was rung, and no wait has ended since.
const RUNG: u32 = 1;
const WAITER: u32 = 2;

impl Bell {
    /// A bell that has not been rung (`eventfd(2)`).
    pub fn new() -> io::Result<Self> {
        Ok(Self { shared: Arc::new(Shared { eventfd: EventFd::new()?, state: AtomicU32::new(0) }) })
    }

    /// Ends the wait in progress, or the next one.
    pub fn ring(&self) {
        // Either order of this and the waiter's `fetch_add` is safe: the later one sees the earlier.
        let before = self.shared.state.fetch_or(RUNG, Ordering::AcqRel);
        if before & RUNG == 0 && before >= WAITER {
            self.shared.eventfd.add();
        }
    }

    /// Waits until a ring, `timeout` or a handled signal. Returns the number of system calls: none if it was rung before.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<u64> {
        let before = self.shared.state.fetch_add(WAITER, Ordering::AcqRel);
        let waited = if before & RUNG == 0 { self.shared.eventfd.wait(timeout) } else { Ok(0) };
        // A later ring ends the next wait. The polls after this wait see the cause of every earlier ring.
        self.shared.state.fetch_and(!RUNG, Ordering::AcqRel);
        self.shared.state.fetch_sub(WAITER, Ordering::AcqRel);
        waited
    }

    /// From now on, makes the descriptor readable at each ring. For programs that wait for it in an event loop instead
    /// of calling [`Bell::wait`]. Call [`Bell::clear`] before each poll of the devices.
    pub fn arm(&self) {
        self.shared.state.fetch_add(WAITER, Ordering::AcqRel);
    }

    /// Makes the descriptor unreadable until the next ring. Later polls see the cause of every earlier ring.
    ///
    /// # Errors
    /// If the system refuses to read the descriptor.
    pub fn clear(&self) -> io::Result<()> {
        // In this order. A ring between the two leaves the descriptor readable, which costs one more poll. The other order
        // would consume the mark of such a ring and leave it set, and later rings would not mark the descriptor again.
        self.shared.eventfd.wait(Some(Duration::ZERO))?;
        self.shared.state.fetch_and(!RUNG, Ordering::AcqRel);
        Ok(())
    }

    /// A duplicate of the descriptor, to wait on.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.shared.eventfd.try_clone()
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
        self.shared.eventfd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_ends_the_next_wait_and_no_other() {
        let bell = Bell::new().unwrap();
        bell.ring();
        bell.ring();
        assert_eq!(bell.wait(None).unwrap(), 0, "without a system call");
        assert_eq!(bell.wait(Some(Duration::from_millis(1))).unwrap(), 1, "the timeout has passed");
        bell.ring();
        assert_eq!(bell.wait(Some(Duration::from_secs(60))).unwrap(), 0);
    }

    #[test]
    fn the_kernel_rings_by_the_descriptor() {
        let bell = Bell::new().unwrap();
        bell.shared.eventfd.add();
        assert_eq!(bell.wait(None).unwrap(), 1);
        bell.shared.eventfd.add();
        assert_eq!(bell.wait(Some(Duration::from_secs(60))).unwrap(), 2);
    }

    #[test]
    fn an_armed_bell_is_readable_from_a_ring_until_it_is_cleared() {
        let bell = Bell::new().unwrap();
        let is_readable = || bell.shared.eventfd.is_readable();
        bell.arm();
        for _ in 0..2 {
            assert!(!is_readable());
            bell.ring();
            bell.ring();
            assert!(is_readable());
            bell.clear().unwrap();
        }
        assert!(!is_readable());
    }

    /// Two threads take turns and wake each other by bells: a lost ring stops both.
    #[test]
    fn no_ring_between_two_threads_is_lost() {
        const TURNS: u32 = 20_000;
        let bells = [Bell::new().unwrap(), Bell::new().unwrap()];
        let turn = Arc::new(AtomicU32::new(0));
        let (ended, all_ended) = std::sync::mpsc::channel();
        for mine in 0..2 {
            let (bells, turn, ended) = (bells.clone(), Arc::clone(&turn), ended.clone());
            std::thread::spawn(move || {
                for number in (mine..TURNS).step_by(2) {
                    while turn.load(Ordering::Relaxed) != number {
                        // Every other turn with a timeout, which takes another path through the wait.
                        let limit = (number & 2 == 0).then_some(Duration::from_secs(60));
                        bells[mine as usize].wait(limit).unwrap();
                    }
                    turn.store(number + 1, Ordering::Relaxed);
                    bells[1 - mine as usize].ring();
                }
                let _ = ended.send(());
            });
        }
        for _ in 0..2 {
            let waited = all_ended.recv_timeout(Duration::from_secs(30));
            assert!(waited.is_ok(), "a ring was lost in turn {}", turn.load(Ordering::Relaxed));
        }
    }
}
