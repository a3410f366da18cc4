//! The thread that writes back what is old, and sees to write-back when nobody comes by. Threads that read and write do
//! all else themselves: while they are about, this one stays out of the way.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::state::State;
use super::{Buffered, Shared};
use crate::clock;
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

impl State {
    /// Wakes the flusher if there is work for it: to be called when pages may have become dirty.
    pub(super) fn wake_flusher(&mut self) {
        if self.cache.dirty_pages() > 0
            && let Some(flusher) = self.resting_flusher.take()
        {
            flusher.unpark();
        }
    }

    fn is_idle(&self) -> bool {
        self.cache.dirty_pages() == 0 && !self.runner.needs_reaping()
    }
}

impl Shared {
    fn flush_in_background(&self) {
        let mut state = self.lock();
        let mut was_idle = false;
        while !state.is_closing {
            // Not at once: a program that flushes after each write would wake this thread with each.
            if was_idle && state.is_idle() {
                state.resting_flusher = Some(thread::current());
                drop(state);
                thread::park();
                state = self.lock();
                was_idle = state.resting_flusher.is_some();
                continue;
            }
            state.resting_flusher = None;
            was_idle = state.is_idle();
            let seen = state.steps;
            drop(state);
            thread::park_timeout(ROUND);
            state = self.lock();
            if state.steps != seen {
                continue;
            }
            state.now = clock::now();
            state.come_by();
            while !state.is_closing && state.needs_polling() && state.broken.is_none() {
                state = self.poll_device(state, None, None);
            }
        }
    }
}
