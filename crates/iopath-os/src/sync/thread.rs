//! Threads of an explored build: those of `shuttle`, with timeouts of the virtual clock.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

pub use shuttle::thread::{Builder, JoinHandle, Thread, current, panicking, park, scope, spawn, yield_now};

use super::time::{self, Wakes};
use super::waiter::Waiter;

/// Does the same as [`std::thread::park_timeout`].
pub fn park_timeout(timeout: Duration) {
    let _timer = time::arm(timeout, Wakes::Parked(current()));
    park();
}

/// Does the same as [`std::thread::sleep`].
pub fn sleep(time: Duration) {
    let waiter = Arc::new(Waiter::new());
    let _timer = time::arm(time, Wakes::Waiter(Arc::clone(&waiter)));
    waiter.wait();
}

/// The same number on every machine, so that a seed determines the schedule.
pub fn available_parallelism() -> std::io::Result<NonZero<usize>> {
    const PROCESSORS: NonZero<usize> = NonZero::new(4).unwrap();
    Ok(PROCESSORS)
}

/// The number of the calling task, if the caller is a task.
pub(crate) fn task_number() -> Option<usize> {
    shuttle::current::try_get_current_task().map(usize::from)
}
