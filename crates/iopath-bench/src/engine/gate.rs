//! The phases of a repetition, and the gate at which its threads wait for them. Runs no jobs.

use std::sync::{Condvar, Mutex, PoisonError};

/// The phases of a repetition, in order. The measured phase is `Run`: threads connect before it and drop their
/// connections after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Phase {
    #[default]
    Connect,
    Run,
    /// The counters were read: connections may be dropped.
    Drop,
    /// The repetition has ended, or a job has no thread or no connection: threads end.
    Leave,
}

/// Jobs wait here for the next phase, which only the coordinator sets. The number of waiting threads is not fixed.
#[derive(Debug, Default)]
pub(super) struct Gate {
    phase: Mutex<Phase>,
    changed: Condvar,
}

impl Gate {
    pub(super) fn set(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
        self.changed.notify_all();
    }

    /// Waits for this phase or a later one, and returns the present phase.
    pub(super) fn wait_for(&self, phase: Phase) -> Phase {
        let present = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let reached = self.changed.wait_while(present, |present| *present < phase);
        *reached.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the last phase when it is dropped.
pub(super) struct Leave<'a>(pub(super) &'a Gate);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.set(Phase::Leave);
    }
}
