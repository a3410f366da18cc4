//! The thread that writes back dirty pages when no other thread uses the cache. Threads that read and write perform
//! write-back themselves, and this thread stays out of their way.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::state::State;
use super::{Buffered, Shared};
use crate::clock;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::thread;

/// How long I/O may be in flight that no thread waits for, as writers leave it behind: then the flusher polls the device, so
/// that write-back continues.
const UNPOLLED_MAX: Duration = Duration::from_millis(250);

/// The shortest sleep of the flusher while pages are dirty: pages that are due one after another, or fail over and over,
/// are written back together. A thread that lacks a frame checks more often itself.
const SLEEP_MIN: Duration = Duration::from_millis(20);

impl Buffered {
    /// Starts the thread with the first write. If the system refuses one, threads that use the cache write old pages back.
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
    /// Wakes the flusher if it has work. Call it when pages may have become dirty.
    pub(super) fn wake_flusher(&mut self) {
        if self.path.cache().dirty_pages() > 0
            && let Some(flusher) = self.parked_flusher.take()
        {
            flusher.unpark();
        }
    }

    fn is_idle(&self) -> bool {
        self.path.cache().dirty_pages() == 0 && !self.has_io()
    }

    /// How long the flusher sleeps: until a page is due, and no longer than I/O may stay in flight unpolled.
    fn flusher_sleep(&self) -> Duration {
        let due = self.path.poll_timeout().map(|due| due.saturating_since(clock::now()));
        due.map_or(UNPOLLED_MAX, |due| due.clamp(SLEEP_MIN, UNPOLLED_MAX))
    }
}

impl Shared {
    fn flush_in_background(&self) {
        let mut state = self.lock();
        let mut was_idle = false;
        while !state.is_closing {
            // The flusher parks only after a sleep in which the cache stayed idle: a program that flushes after each write
            // would wake it with each write.
            if was_idle && state.is_idle() {
                state.parked_flusher = Some(thread::current());
                drop(state);
                thread::park();
                state = self.lock();
                was_idle = state.parked_flusher.is_some();
                continue;
            }
            state.parked_flusher = None;
            was_idle = state.is_idle();
            let (sleep, activity) = (state.flusher_sleep(), state.activity);
            drop(state);
            thread::park_timeout(sleep);
            state = self.lock();
            let now = clock::now();
            let is_due = state.path.poll_timeout().is_some_and(|due| due <= now);
            if !is_due && state.activity != activity {
                continue;
            }
            state.poll(now);
            while !state.is_closing && state.needs_polling() && state.broken.is_none() {
                state = self.poll_device(state, None, None);
            }
        }
    }
}
