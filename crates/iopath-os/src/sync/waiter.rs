//! One wait of a thread in an explored run: on a condition variable, or for a time.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

/// A wait that ends once: by a notification or by a timer.
pub(super) struct Waiter {
    state: AtomicU8,
    /// Gets its only permit when the wait ends. The thread's park token is not used, since it belongs to the code that
    /// parks.
    ended: BatchSemaphore,
}

const WAITS: u8 = 0;
const NOTIFIED: u8 = 1;
const TIMED_OUT: u8 = 2;

impl Waiter {
    pub(super) const fn new() -> Self {
        Self { state: AtomicU8::new(WAITS), ended: BatchSemaphore::const_new(0, Fairness::StrictlyFair) }
    }

    pub(super) fn wait(&self) {
        // Fails only for a closed semaphore.
        let _ = self.ended.acquire_blocking(1);
    }

    /// Ends the wait unless it has ended. Returns whether this call ended it.
    pub(super) fn notify(&self) -> bool {
        self.end(NOTIFIED)
    }

    /// Ends the wait unless it has ended.
    pub(super) fn time_out(&self) {
        self.end(TIMED_OUT);
    }

    pub(super) fn has_timed_out(&self) -> bool {
        self.state.load(SeqCst) == TIMED_OUT
    }

    fn end(&self, state: u8) -> bool {
        let ends = self.state.compare_exchange(WAITS, state, SeqCst, SeqCst).is_ok();
        if ends {
            self.ended.release(1);
        }
        ends
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("state", &self.state).finish_non_exhaustive()
    }
}
