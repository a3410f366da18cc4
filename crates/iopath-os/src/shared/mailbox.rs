//! The state of a waiting client as other threads see it, and the thread to wake. `wait.rs` decides when a client
//! waits.

use std::sync::PoisonError;

use iopath_core::Instant;

use crate::clock;
use crate::election::Sleep;
use crate::sync::Mutex;
use crate::sync::atomic::AtomicU32;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::sync::thread::{self, Thread};

const AWAKE: u32 = Sleep::Awake as u32;
const ASLEEP: u32 = Sleep::Asleep as u32;
const WOKEN_TO_POLL: u32 = Sleep::WokenToPoll as u32;

/// The state of a client as other threads see it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Mailbox {
    /// A [`Sleep`], of which `Awake` is zero.
    state: AtomicU32,
    /// The number of completions that it waits for.
    wanted: AtomicU32,
    /// The thread of the client.
    thread: Mutex<Option<Thread>>,
}

impl Mailbox {
    /// The number of completions that the client waits for.
    pub(super) fn wanted(&self) -> u32 {
        self.wanted.load(Relaxed)
    }

    /// Sets the number of completions that the client waits for.
    pub(super) fn set_wanted(&self, wanted: u32) {
        // Mostly the same. A store would take the cache line from the holder of the queue.
        if self.wanted.load(Relaxed) != wanted {
            self.wanted.store(wanted, Relaxed);
        }
    }

    /// Announces that the client will sleep: records the thread to wake, and the state.
    pub(super) fn announce(&self) {
        let mut registered = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let current = thread::current();
        if registered.as_ref().is_none_or(|thread| thread.id() != current.id()) {
            *registered = Some(current);
        }
        drop(registered);
        self.state.store(ASLEEP, SeqCst);
    }

    pub(super) fn was_woken_to_poll(&self) -> bool {
        self.state.load(SeqCst) == WOKEN_TO_POLL
    }

    /// A hint: whether the client sleeps, or has announced it.
    pub(super) fn is_asleep(&self) -> bool {
        self.state.load(Relaxed) == ASLEEP
    }

    /// Marks a sleeping client as woken. Returns false if it does not sleep.
    pub(super) fn wake_to(&self, state: Sleep) -> bool {
        // Most clients are awake. The load leaves the cache line to its client; an exchange would take it away.
        self.is_asleep() && self.state.compare_exchange(ASLEEP, state as u32, SeqCst, Relaxed).is_ok()
    }

    pub(super) fn unpark(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = &*thread {
            thread.unpark();
        }
    }

    /// Ends the announcement that the client sleeps. Returns whether it was woken to poll the device.
    pub(super) fn awaken(&self) -> bool {
        self.state.swap(AWAKE, SeqCst) == WOKEN_TO_POLL
    }

    pub(super) fn park(&self, until: Option<Instant>) {
        // An unpark that was meant for an earlier sleep also ends a park, so only the state decides.
        while self.state.load(Acquire) == ASLEEP {
            let Some(until) = until else {
                thread::park();
                continue;
            };
            let left = until.saturating_since(clock::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }
}
