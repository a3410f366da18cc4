//! Requests that threads have completed for a device, and the waits for them. It executes nothing.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::Duration;

use super::{Notifier, WaitError, Watch};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// The completed requests of one device. Threads add them, and the device collects them.
#[derive(Debug)]
pub(super) struct Completed<J> {
    state: Mutex<State<J>>,
    enough: Condvar,
}

#[derive(Debug)]
struct State<J> {
    jobs: VecDeque<J>,
    /// Wake the waiting device at this many jobs; 0 while it does not wait.
    wanted: usize,
    /// End the wait with fewer.
    ends_watch: bool,
    /// Notified of each completed job.
    notifier: Option<Notifier>,
}

impl<J> Completed<J> {
    /// An empty list, with memory for `depth` jobs.
    pub(super) fn new(depth: usize) -> Self {
        let jobs = VecDeque::with_capacity(depth);
        let state = State { jobs, wanted: 0, ends_watch: false, notifier: None };
        Self { state: Mutex::new(state), enough: Condvar::new() }
    }

    /// Completed jobs that were not collected.
    pub(super) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Takes the completed jobs; `into` is empty.
    pub(super) fn collect(&self, into: &mut VecDeque<J>) {
        std::mem::swap(&mut self.lock().jobs, into);
    }

    /// Waits until `wanted` jobs have completed, `timeout` has passed or [`Completed::end_watch`] is called.
    pub(super) fn wait_for(&self, wanted: usize, timeout: Option<Duration>) {
        let mut state = self.lock();
        state.wanted = wanted;
        let too_few = |state: &mut State<J>| state.jobs.len() < wanted && !state.ends_watch;
        let mut state = match timeout {
            Some(timeout) => {
                let result = self.enough.wait_timeout_while(state, timeout, too_few);
                result.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.enough.wait_while(state, too_few).unwrap_or_else(PoisonError::into_inner),
        };
        state.wanted = 0;
        state.ends_watch = false;
    }

    /// Ends the wait in progress, or the next one.
    pub(super) fn end_watch(&self) {
        self.lock().ends_watch = true;
        self.enough.notify_one();
    }

    /// Sets the notifier for completed jobs.
    pub(super) fn set_notifier(&self, notifier: &Notifier) {
        self.lock().notifier = Some(notifier.clone());
    }

    /// Adds completed jobs for the device to collect, and ends a wait for them.
    pub(super) fn add(&self, jobs: &mut VecDeque<J>) {
        let mut state = self.lock();
        state.jobs.append(jobs);
        if let Some(notifier) = &state.notifier {
            // Notifies each time: an earlier notification may have ended a wait already, and a notification without a
            // waiter makes no system call.
            notifier.notify();
        }
        let enough = state.wanted > 0 && state.jobs.len() >= state.wanted;
        drop(state);
        if enough {
            self.enough.notify_one();
        }
    }

    /// Ignores poisoning: no panic leaves the state half changed.
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J: std::fmt::Debug + Send> Watch for Completed<J> {
    fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.wait_for(1, timeout);
        Ok(())
    }
}
