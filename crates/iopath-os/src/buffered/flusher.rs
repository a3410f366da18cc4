//! The thread that writes back dirty pages when no other thread uses the cache. Threads that read and write perform
//! write-back themselves, and this thread does not compete with them. Caches that share their memory share one thread:
//! `shared_flusher.rs`.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use iopath_core::Instant;

use super::CacheShared;
use super::shared_flusher::UNPOLLED_MAX;
use super::state::State;
use super::waiter::Flusher;
use crate::clock;
use crate::election::Polled;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::thread;

/// The minimum sleep of the flusher while pages are dirty, so that pages that are due one after another, or fail
/// repeatedly, are written back together. A thread that lacks a frame checks more often.
const SLEEP_MIN: Duration = Duration::from_millis(20);

impl CacheShared {
    /// Starts the thread unless it runs. Call it after a write: the visits of a shared thread may have ended before the
    /// pages became dirty. If the system refuses a thread, the threads that use the cache write old pages back.
    pub(super) fn start_flusher(self: &Arc<Self>) {
        if self.has_flusher.load(Relaxed) {
            return;
        }
        if let Some(background) = &self.background {
            // Before the visit, which may clear it.
            if !self.has_flusher.swap(true, Relaxed) && !background.start(self) {
                self.has_flusher.store(false, Relaxed);
            }
            return;
        }
        let mut flusher = self.flusher.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_flusher.load(Relaxed) {
            return;
        }
        self.has_flusher.store(true, Relaxed);
        let shared = Arc::clone(self);
        let builder = thread::Builder::new().name("iopath-flush".to_owned());
        *flusher = builder.spawn(move || shared.flush_in_background()).ok();
    }
}

impl State {
    /// Wakes the flusher if it has work. Call it when pages may have become dirty.
    pub(super) fn wake_flusher(&mut self) {
        if self.path.cache().dirty_pages() == 0 {
            return;
        }
        let lacks_flusher = self.lacks_flusher();
        match (&self.flusher, &mut self.owner_of_memory) {
            (Flusher::Parked(thread), _) => {
                thread.unpark();
                self.flusher = Flusher::Awake;
            }
            // The owner makes the shared thread visit it.
            (_, Some(owner)) if lacks_flusher => owner.notify(),
            _ => {}
        }
    }

    /// Whether there is work for the flusher, and its visits have ended.
    pub(super) fn lacks_flusher(&self) -> bool {
        matches!(self.flusher, Flusher::Ended)
            && !self.has_flusher.load(Relaxed)
            && self.path.cache().dirty_pages() > 0
    }

    /// Whether a page is due to be written.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.path.poll_timeout().is_some_and(|due| due <= now)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.path.cache().dirty_pages() == 0 && !self.has_io()
    }

    /// The sleep of the flusher: until a page is due, but at most [`UNPOLLED_MAX`] while I/O is in flight.
    pub(super) fn flusher_sleep(&self) -> Duration {
        let due = self.path.poll_timeout().map(|due| due.saturating_since(clock::now()));
        due.map_or(UNPOLLED_MAX, |due| due.clamp(SLEEP_MIN, UNPOLLED_MAX))
    }
}

impl CacheShared {
    fn flush_in_background(&self) {
        let mut state = self.lock();
        if self.reporter.get().is_some() {
            state.reported.flusher = Some(thread::current());
        }
        let mut was_idle = false;
        while !state.is_closing {
            state = self.report(state);
            // The flusher parks only after a sleep in which the cache stayed idle. Otherwise a program that flushes
            // after each write would wake it with each write.
            if was_idle && state.is_idle() {
                state.flusher = Flusher::Parked(thread::current());
                drop(state);
                thread::park();
                state = self.lock();
                was_idle = matches!(state.flusher, Flusher::Parked(_));
                continue;
            }
            state.flusher = Flusher::Awake;
            was_idle = state.is_idle();
            let sleep = state.flusher_sleep();
            let activity = state.activity;
            drop(state);
            thread::park_timeout(sleep);
            state = self.lock();
            let now = clock::now();
            if !state.is_due(now) && state.activity != activity {
                continue;
            }
            state.poll(now);
            let waiter = state.add_waiter();
            while !state.is_closing && state.needs_polling() && state.broken.is_none() {
                state = self.pause(state, waiter, None);
            }
            state.waiters.remove(waiter);
        }
    }
}
