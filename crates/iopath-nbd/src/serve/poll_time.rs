//! How long an event loop polls for events before it sleeps.
//!
//! A client that sends to a sleeping server must wake it, and pays for that in its own system call. So the loop polls
//! while its waits are short, and sleeps at once while they are long. The rule is that of the Linux kernel's halt
//! polling for virtual machines (`halt_poll_ns`): a short wait that the loop slept through doubles the time, and a long
//! wait sets it to zero.

use std::time::Duration;

/// The time to poll before the next sleep.
#[derive(Debug)]
pub(super) struct PollTime {
    current: Duration,
    max: Duration,
}

impl PollTime {
    /// More than a wake-up costs, and less than a disk needs for an I/O.
    const MAX: Duration = Duration::from_micros(10);
    const FIRST: Duration = Duration::from_micros(1);

    /// For a machine with this number of processors. On a single one, the client cannot send while the server polls.
    pub(super) fn new(processors: usize) -> Self {
        let max = if processors > 1 { Self::MAX } else { Duration::ZERO };
        Self { current: Duration::ZERO, max }
    }

    /// The time to poll now; zero: sleep at once.
    pub(super) const fn get(&self) -> Duration {
        self.current
    }

    /// The loop has slept. `waited` is the time since the wait began, with the time of polling.
    pub(super) fn handle_sleep(&mut self, waited: Duration) {
        self.current = if waited > self.max {
            Duration::ZERO
        } else {
            (self.current * 2).max(Self::FIRST).min(self.max)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(4);

    #[test]
    fn short_waits_extend_the_time_up_to_its_maximum() {
        let mut time = PollTime::new(2);
        assert_eq!(time.get(), Duration::ZERO, "an idle server does not poll");
        let mut last = time.get();
        while last < PollTime::MAX {
            time.handle_sleep(SHORT);
            assert!(time.get() > last);
            last = time.get();
        }
        time.handle_sleep(SHORT);
        assert_eq!(time.get(), PollTime::MAX);
    }

    #[test]
    fn a_long_wait_ends_polling() {
        let mut time = PollTime::new(2);
        (0..10).for_each(|_| time.handle_sleep(SHORT));
        time.handle_sleep(Duration::from_secs(1));
        assert_eq!(time.get(), Duration::ZERO);
    }

    #[test]
    fn one_processor_never_polls() {
        let mut time = PollTime::new(1);
        time.handle_sleep(Duration::ZERO);
        time.handle_sleep(SHORT);
        assert_eq!(time.get(), Duration::ZERO);
    }
}
