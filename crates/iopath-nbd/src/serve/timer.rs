//! A timer of an event loop with the resolution of the clock: `epoll_wait(2)` waits for whole milliseconds, longer than
//! many modelled disks need for a request.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A descriptor that becomes readable at the end of a time.
#[derive(Debug)]
pub(super) struct Timer {
    descriptor: OwnedFd,
    is_set: bool,
}

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self { descriptor: timerfd_create(TimerfdClockId::Monotonic, flags)?, is_set: false })
    }

    /// Sets the time until the descriptor becomes readable, above zero; `None`: never. A descriptor that was readable
    /// is not readable afterwards.
    pub(super) fn set(&mut self, time: Option<Duration>) -> io::Result<()> {
        if time.is_none() && !self.is_set {
            return Ok(());
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value =
            time.map_or(Ok(zero), Timespec::try_from).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let time_left = Itimerspec { it_interval: zero, it_value };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &time_left)?;
        self.is_set = time.is_some();
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
