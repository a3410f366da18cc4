//! The thread that writes back what is old, and sees to write-back when nobody comes by. Threads that read and write do
//! all else themselves: while they are about, this one stays out of the way.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::turn::Guard;
use super::{Buffered, Shared};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::thread;

/// How often it looks while something is dirty.
const ROUND: Duration = Duration::from_millis(250);

impl Buffered {
    /// Starts the thread with the first write. Where none can be had, old pages are written when somebody comes by.
    pub(super) fn start_flusher(&self) {
        if self.shared.has_flusher.load(Relaxed) {
            return;
        }
        let mut flusher = self.flusher.lock().unwrap_or_else(PoisonError::into_inner);
        if flusher.is_none() {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("iopath-flush".to_owned());
            *flusher = builder.spawn(move || shared.flush_in_background()).ok();
        }
        self.shared.has_flusher.store(true, Relaxed);
    }
}

impl Shared {
    /// Wakes the flusher if there is work for it: to be called by whoever may have made pages dirty.
    pub(super) fn rouse_flusher(&self, state: &mut Guard<'_>) {
        if state.is_flusher_at_rest && state.cache.dirty_pages() > 0 {
            state.is_flusher_at_rest = false;
            self.dirt.notify_one();
        }
    }

    fn flush_in_background(&self) {
        let mut state = self.lock();
        let mut was_idle = false;
        while !state.is_closing {
            let is_idle = state.cache.dirty_pages() == 0 && state.runner.in_flight() == 0;
            // Not at once: a program that flushes after each write would wake this thread with each.
            if is_idle && was_idle {
                state.is_flusher_at_rest = true;
                let woken = self.dirt.wait(state);
                state = woken.expect("a thread panicked in the page cache, whose state is unknown now");
                was_idle = false;
                continue;
            }
            state.is_flusher_at_rest = false;
            was_idle = is_idle;
            let seen = state.steps;
            let woken = self.dirt.wait_timeout(state, ROUND);
            state = woken.expect("a thread panicked in the page cache, whose state is unknown now").0;
            if state.steps != seen || state.is_driven {
                continue;
            }
            state.collect();
            while !state.is_closing
                && !state.is_driven
                && state.runner.in_flight() > 0
                && state.broken.is_none()
            {
                state = self.drive(state);
            }
            state.pass_on();
        }
    }
}
