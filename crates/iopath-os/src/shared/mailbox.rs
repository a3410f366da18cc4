//! How the threads of a shared queue see a client that waits: its state, and the thread to wake. Does not decide when a
//! client waits: see `wait.rs`.

use std::sync::PoisonError;

use iopath_core::Instant;

use crate::clock;
use crate::sync::Mutex;
use crate::sync::atomic::AtomicU32;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::sync::thread::{self, Thread};

/// The client runs, or polls the device.
pub(super) const AWAKE: u32 = 0;
/// It sleeps, or is about to.
pub(super) const ASLEEP: u32 = 1;
/// It was woken to poll the device.
pub(super) const ON_DUTY: u32 = 2;

/// How other threads see a client.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Mailbox {
    pub(super) state: AtomicU32,
    /// How many completions it waits for.
    pub(super) wanted: AtomicU32,
    /// The thread that waits for it.
    thread: Mutex<Option<Thread>>,
}

/// The thread that waits for the device on behalf of all.
#[derive(Debug)]
pub(super) struct Poller {
    pub(super) client: u32,
    /// It waits by the device's watch. Otherwise nothing is at the device, and it sleeps until `until`.
    pub(super) is_watching: bool,
    pub(super) until: Option<Instant>,
}

impl Mailbox {
    /// Notes which thread to wake.
    pub(super) fn register(&self) {
        let mut registered = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let current = thread::current();
        if registered.as_ref().is_none_or(|thread| thread.id() != current.id()) {
            *registered = Some(current);
        }
    }

    /// Marks the client, which sleeps, as woken; false if it does not sleep.
    pub(super) fn wake_to(&self, state: u32) -> bool {
        self.state.load(Relaxed) == ASLEEP
            && self.state.compare_exchange(ASLEEP, state, SeqCst, Relaxed).is_ok()
    }

    pub(super) fn unpark(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = &*thread {
            thread.unpark();
        }
    }

    /// Ends the announcement that the client sleeps. True if it was woken to poll the device.
    pub(super) fn awaken(&self) -> bool {
        self.state.swap(AWAKE, SeqCst) == ON_DUTY
    }

    pub(super) fn park(&self, until: Option<Instant>) {
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
