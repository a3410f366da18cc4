//! The thread that polls the device for queues of requests whose owners wait in an event loop: no thread of the program
//! waits in the device on their behalf. One for each cache, started with the first completion descriptor. It sleeps
//! while no such request waits.

use std::sync::{Arc, PoisonError};

use super::CacheShared;
use crate::election::Polled;
use crate::sync::thread;

impl CacheShared {
    /// Starts the thread unless it runs.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(super) fn start_poller(self: &Arc<Self>) -> std::io::Result<()> {
        let mut poller = self.poller.lock().unwrap_or_else(PoisonError::into_inner);
        if poller.is_none() {
            let shared = Arc::clone(self);
            let builder = thread::Builder::new().name("iopath-poll".to_owned());
            *poller = Some(builder.spawn(move || shared.poll_in_background())?);
        }
        Ok(())
    }

    /// Ends the thread. The cache is closing.
    pub(super) fn stop_poller(&self) {
        let Some(poller) = self.poller.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            // The thread sleeps as a waiter or polls the device, which `wake` ends, or it is parked without work, which
            // the `unpark` below ends.
            if let Some(waiter) = state.background {
                state.wake(waiter);
            }
        }
        poller.thread().unpark();
        // Fails only if the thread has panicked, which was reported at that time.
        let _ = poller.join();
    }

    fn poll_in_background(&self) {
        let mut state = self.lock();
        let waiter = state.add_waiter();
        state.background = Some(waiter);
        while !state.is_closing {
            if state.waiting_with_notifier == 0 || state.broken.is_some() {
                state.idle_poller = Some(thread::current());
                drop(state);
                thread::park();
                state = self.lock();
                state.idle_poller = None;
            } else {
                state = self.pause(state, waiter, None);
            }
        }
        state.background = None;
        state.waiters.remove(waiter);
    }
}
