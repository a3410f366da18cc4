//! Waiting: one thread at a time polls the device for all; the others sleep until their outcome is known.
//! `iopath_core::buffered` decides the outcomes, `election.rs` which thread polls.
//!
//! ```text
//!   lock ─▶ outcome known? ─ yes ─▶ return it
//!              │ no
//!              ├─ I/O is in flight and no thread polls: poll the device, without the lock
//!              └─ else: sleep, without the lock
//! ```
//!
//! There is no thread for I/O: a thread that needs a page waits for it in the system call that reads it.
//!
//! # No lost wake-up
//!
//! `election.rs` proves it: a thread changes its state under the lock, each unlock ensures that a thread polls
//! ([`Locked`]), and a thread that has slept or polled takes the lock. Two waits have no event, only a time limit:
//!
//! - A thread that lacks a frame sleeps for short times only ([`Starvation`]). A reader that only copies a page does
//!   not report that it has left the frame, and a failed write-back is retried after some time.
//! - A thread that submits I/O and waits for none may be the only one. The flusher polls for it after a while.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use iopath_core::Instant;
use iopath_core::buffered::{NoFrame, Starvation};
use iopath_core::cache::Outcome;

use super::state::State;
use super::waiter::Role;
use super::{BufferedError, CacheShared};
use crate::clock;
use crate::device::{Notifier, WaitError};
use crate::election::{Pause, Polled, SLEEPER, Sleep, WATCHER};
use crate::sync::MutexGuard;
use crate::sync::thread;

/// The minimum sleep: a timer for less time costs more than it saves.
const SLEEP_MIN: Duration = Duration::from_micros(100);

/// The locked state. An unlock ensures that a thread polls.
#[derive(Debug)]
pub(super) struct Locked<'a>(pub(super) MutexGuard<'a, State>);

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // No thread can be woken: the next one that must wait polls the device itself.
        if self.0.asleep == 0 && !self.0.election.is_polled() {
            return;
        }
        if thread::panicking() {
            // Sleepers find the poisoned lock and panic as well, so that they do not sleep forever.
            self.0.wake_all();
        } else {
            self.0.ensure_polled();
        }
    }
}

impl CacheShared {
    /// Waits for the outcome of `waiter`, and removes it from the list.
    pub(super) fn wait<'a>(
        &'a self,
        mut state: Locked<'a>,
        waiter: usize,
    ) -> Result<(Locked<'a>, Outcome), BufferedError> {
        let mut starvation = Starvation::default();
        loop {
            // An outcome that is known stays valid if the device has broken since, so this check comes first.
            if let Some(outcome) = state.waiters[waiter].outcome {
                state.waiters.remove(waiter);
                if let Outcome::Unwritable { pages, source } = outcome {
                    return Err(BufferedError::Unwritable { pages, source });
                }
                return Ok((state, outcome));
            }
            if let Some(errno) = state.broken {
                return Err(WaitError { source: std::io::Error::from_raw_os_error(errno) }.into());
            }
            if !state.path.is_starved(waiter as u64) {
                state = self.pause(state, waiter, None);
                continue;
            }
            // Pages that requests have not continued with yet may be all that is missing; they are read again later.
            if state.revoke_pins() {
                state.advance(clock::now());
                continue;
            }
            let start = clock::now();
            // Only time without I/O counts as starvation, since a completion can free a frame.
            let is_idle = !state.has_io();
            state = self.pause(state, waiter, Some(starvation.next_check(start)));
            if is_idle {
                starvation.handle_idle(clock::now().saturating_since(start));
            }
            if let Some(no_frame) = state.path.fail_starved(waiter as u64, &starvation) {
                state.waiters.remove(waiter);
                return Err(no_frame.into());
            }
        }
    }

    /// Polls the device if no other thread does; otherwise sleeps. Ends when another thread has set the outcome of
    /// `waiter`, and at `until` at the latest.
    pub(super) fn pause<'a>(
        &'a self,
        mut state: Locked<'a>,
        waiter: usize,
        until: Option<Instant>,
    ) -> Locked<'a> {
        if state.needs_polling() {
            // A completion that the device has reported already need not end a wait.
            let before = state.reaped;
            state = self.reap(state, waiter);
            if state.reaped != before || !state.has_io() {
                return state;
            }
        }
        match state.elect(waiter, until) {
            Pause::Watch(until) => self.watch_device(state, waiter, until),
            Pause::SleepUntil(until) => {
                state = self.sleep(state, waiter, Some(until));
                state.election.handle_back(SLEEPER);
                state
            }
            Pause::Sleep => self.sleep(state, waiter, until),
        }
    }

    /// Waits for the device for all threads, and handles completions.
    fn watch_device<'a>(&'a self, state: Locked<'a>, waiter: usize, until: Option<Instant>) -> Locked<'a> {
        drop(state);
        let ended = self.watch.wait(until.map(|until| until.saturating_since(clock::now())));
        let mut state = self.lock();
        // Before `reap`: an outcome of this thread would otherwise end a wait for the device that has ended, and the
        // next poller would return at once.
        state.election.handle_back(WATCHER);
        if let Err(WaitError { source }) = ended {
            state.broken = Some(source.raw_os_error().unwrap_or_default());
            state.wake_all();
        }
        if until.is_some() {
            // Readers that only copy do not report that they have left a frame.
            state.path.handle_unpinned();
        }
        self.reap(state, waiter)
    }

    /// Polls the device for completions. A thread that waits for a flush may perform it, once its writes have
    /// completed.
    fn reap<'a>(&'a self, mut state: Locked<'a>, waiter: usize) -> Locked<'a> {
        if state.waiters[waiter].is_flush {
            return self.act_for_flush(state, State::reap);
        }
        state.reap(clock::now());
        state
    }

    /// Pauses a writer that is faster than the device.
    pub(super) fn pause_writer<'a>(&'a self, mut state: Locked<'a>, pause: Duration) -> Locked<'a> {
        let due = clock::now() + pause;
        let waiter = state.add_waiter();
        while clock::now() < due && state.broken.is_none() {
            state = self.pause(state, waiter, Some(due));
        }
        state.waiters.remove(waiter);
        state
    }

    /// Sleeps until another thread wakes the waiter, at most until `until`.
    fn sleep<'a>(&'a self, mut state: Locked<'a>, waiter: usize, until: Option<Instant>) -> Locked<'a> {
        state.waiters[waiter].sleep = Sleep::Asleep;
        state.asleep += 1;
        drop(state);
        // A thread that wakes this one before it parks leaves the token of the unpark, so the park returns at once.
        match until {
            Some(time) => thread::park_timeout(time.saturating_since(clock::now()).max(SLEEP_MIN)),
            None => thread::park(),
        }
        let mut state = self.lock();
        let slept = std::mem::replace(&mut state.waiters[waiter].sleep, Sleep::Awake);
        state.asleep -= u32::from(slept == Sleep::Asleep);
        if until.is_some() {
            // Readers that only copy do not report that they have left a frame, and requests may be due.
            state.path.handle_unpinned();
            state.poll(clock::now());
        }
        state
    }
}

impl State {
    /// Adds the calling thread to the list of waiters.
    pub(super) fn add_waiter(&mut self) -> usize {
        self.add(Role::Thread(thread::current()))
    }

    /// Wakes every thread and owner, so that it finds the device broken.
    pub(super) fn wake_all(&mut self) {
        self.wake_waiters();
        self.owners.iter().filter_map(|(_, owner)| owner.notifier.as_ref()).for_each(Notifier::notify);
    }

    /// Whether I/O is in flight and no thread waits for it.
    pub(super) fn needs_polling(&self) -> bool {
        !self.election.is_watched() && self.has_io()
    }
}

impl From<NoFrame> for BufferedError {
    fn from(no_frame: NoFrame) -> Self {
        match no_frame {
            NoFrame::AllBorrowed { pages } => Self::AllBorrowed { pages },
            NoFrame::Unwritable { pages, source } => Self::Unwritable { pages, source },
        }
    }
}
