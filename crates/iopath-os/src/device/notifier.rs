//! Notifications of completions from several devices to one waiting thread: an eventfd, and an atomic that saves the
//! system call while no thread waits. A notification does not identify the request or the device.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use super::{WaitError, Watch};
use crate::sync::EventFd;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Notifies one thread of completions of any number of devices
/// ([`RealDevice::set_notifier`](crate::RealDevice::set_notifier)). A clone is the same notifier.
///
/// A notification while no thread waits ends the next wait at once, so no notification is lost. Several notifications
/// may end only one wait: the woken thread polls each device until it returns `None`, then waits again.
///
/// A notification costs a system call only while a thread waits. The descriptor ([`AsRawFd`]) is only for the kernel,
/// which notifies by writing to it: [`Notifier::notify`] does not always make it readable.
#[derive(Debug, Clone)]
pub struct Notifier {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    eventfd: EventFd,
    /// `NOTIFIED`, and `WAITER` for each thread that waits.
    state: AtomicU32,
}

/// There was a notification, and no wait has ended since.
const NOTIFIED: u32 = 1;
const WAITER: u32 = 2;

impl Notifier {
    /// A notifier without a notification (`eventfd(2)`).
    pub fn new() -> io::Result<Self> {
        Ok(Self { shared: Arc::new(Shared { eventfd: EventFd::new()?, state: AtomicU32::new(0) }) })
    }

    /// Ends the wait in progress, or the next one.
    pub fn notify(&self) {
        // Either order of this and the waiter's `fetch_add` is safe: the later one sees the earlier.
        let before = self.shared.state.fetch_or(NOTIFIED, Ordering::AcqRel);
        if before & NOTIFIED == 0 && before >= WAITER {
            self.shared.eventfd.add();
        }
    }

    /// Waits for a notification, `timeout` or a handled signal. Returns the number of system calls: none if there was a
    /// notification before.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<u64> {
        let before = self.shared.state.fetch_add(WAITER, Ordering::AcqRel);
        let waited = if before & NOTIFIED == 0 { self.shared.eventfd.wait(timeout) } else { Ok(0) };
        // A later notification ends the next wait. The polls after this wait see the cause of every earlier
        // notification.
        self.shared.state.fetch_and(!NOTIFIED, Ordering::AcqRel);
        self.shared.state.fetch_sub(WAITER, Ordering::AcqRel);
        waited
    }

    /// From now on, makes the descriptor readable at each notification. For programs that wait for it in an event loop
    /// instead of calling [`Notifier::wait`]. Call [`Notifier::clear`] before each poll of the devices.
    pub fn arm(&self) {
        self.shared.state.fetch_add(WAITER, Ordering::AcqRel);
    }

    /// Makes the descriptor unreadable until the next notification. Later polls see the cause of every earlier
    /// notification.
    ///
    /// # Errors
    /// If the system refuses to read the descriptor.
    pub fn clear(&self) -> io::Result<()> {
        // In this order. A notification between the two statements leaves the descriptor readable, which costs one more
        // poll. In the other order, the read would consume the mark of such a notification while the state keeps
        // `NOTIFIED`, and later notifications would not mark the descriptor again.
        self.shared.eventfd.wait(Some(Duration::ZERO))?;
        self.shared.state.fetch_and(!NOTIFIED, Ordering::AcqRel);
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

impl Watch for Notifier {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        Self::wait(self, timeout)?;
        Ok(())
    }
}

impl AsRawFd for Notifier {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.eventfd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_ends_the_next_wait_and_no_other() {
        let notifier = Notifier::new().unwrap();
        notifier.notify();
        notifier.notify();
        assert_eq!(notifier.wait(None).unwrap(), 0, "without a system call");
        assert_eq!(notifier.wait(Some(Duration::from_millis(1))).unwrap(), 1, "the timeout has passed");
        notifier.notify();
        assert_eq!(notifier.wait(Some(Duration::from_secs(60))).unwrap(), 0);
    }

    #[test]
    fn the_kernel_notifies_by_the_descriptor() {
        let notifier = Notifier::new().unwrap();
        notifier.shared.eventfd.add();
        assert_eq!(notifier.wait(None).unwrap(), 1);
        notifier.shared.eventfd.add();
        assert_eq!(notifier.wait(Some(Duration::from_secs(60))).unwrap(), 2);
    }

    #[test]
    fn an_armed_notifier_is_readable_from_a_notification_until_it_is_cleared() {
        let notifier = Notifier::new().unwrap();
        let is_readable = || notifier.shared.eventfd.is_readable();
        notifier.arm();
        for _ in 0..2 {
            assert!(!is_readable());
            notifier.notify();
            notifier.notify();
            assert!(is_readable());
            notifier.clear().unwrap();
        }
        assert!(!is_readable());
    }

    /// Two threads alternate and notify each other: a lost notification stops both.
    #[test]
    fn no_notification_between_two_threads_is_lost() {
        const TURNS: u32 = 20_000;
        let notifiers = [Notifier::new().unwrap(), Notifier::new().unwrap()];
        let turn = Arc::new(AtomicU32::new(0));
        let (ended, all_ended) = std::sync::mpsc::channel();
        for mine in 0..2 {
            let notifiers = notifiers.clone();
            let turn = Arc::clone(&turn);
            let ended = ended.clone();
            std::thread::spawn(move || {
                for number in (mine..TURNS).step_by(2) {
                    while turn.load(Ordering::Relaxed) != number {
                        // Every other turn with a timeout, which takes another path through the wait.
                        let limit = (number & 2 == 0).then_some(Duration::from_secs(60));
                        notifiers[mine as usize].wait(limit).unwrap();
                    }
                    turn.store(number + 1, Ordering::Relaxed);
                    notifiers[1 - mine as usize].notify();
                }
                let _ = ended.send(());
            });
        }
        for _ in 0..2 {
            let waited = all_ended.recv_timeout(Duration::from_secs(30));
            assert!(waited.is_ok(), "a notification was lost in turn {}", turn.load(Ordering::Relaxed));
        }
    }
}
