//! A driver on a thread of its own, for programs without an event loop that could drive.

use super::driver::{Driver, Turn};
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::thread::{self, JoinHandle};

/// The thread of a driver.
pub(super) struct DriverThread(JoinHandle<()>);

impl DriverThread {
    pub(super) fn start(driver: Driver) -> io::Result<Self> {
        thread::Builder::new().name("iopath-driver".to_owned()).spawn(move || drive(driver)).map(Self)
    }

    /// Waits for the end of the driver, unless this is its own thread: a waker may drop the last handle.
    pub(super) fn join(self) {
        if self.0.thread().id() != thread::current().id() {
            // A panic of the driver has been reported, and its futures have failed.
            let _ = self.0.join();
        }
    }
}

fn drive(mut driver: Driver) {
    while let Turn::Wait(limit) = driver.turn() {
        let limit = limit.and_then(|limit| limit.try_into().ok());
        match poll(&mut [PollFd::new(&driver, PollFlags::IN)], limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // Without a wait, the futures still complete, at a higher cost.
            Err(_) => thread::yield_now(),
        }
    }
}
