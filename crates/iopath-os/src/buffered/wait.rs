//! Waiting: one thread at a time polls the device for all; the others sleep until their outcome is known.
//! `iopath_core::buffered` decides the outcomes.
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
//! A thread sleeps without a time limit only while another thread will wake it:
//!
//! - The thread that sets an outcome wakes the waiter (`State::advance`), also if the waiter polls
//!   (`State::end_watch`).
//! - While I/O is in flight, a thread polls, or was woken to poll. Every unlock checks that ([`Locked`]): a thread that
//!   ends polling, or leaves I/O in flight, wakes a sleeper to poll next. While the elevator or a busy device holds a
//!   request back until some time, at least one sleeper has a time limit no later than that time.
//! - A thread that lacks a frame sleeps for short times only ([`Starvation`]). A reader that only copies a page does
//!   not report that it has left the frame, and a failed write-back is retried after some time.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use iopath_core::Instant;
use iopath_core::buffered::{NoFrame, Starvation};
use iopath_core::cache::Outcome;

use super::state::State;
use super::waiter::{Role, Waiter};
use super::{BufferedError, CacheShared};
use crate::clock;
use crate::device::{Notifier, WaitError};
use crate::sync::MutexGuard;
use crate::sync::thread;

/// The minimum sleep: a timer for less time costs more than it saves.
const SLEEP_MIN: Duration = Duration::from_micros(100);

/// The locked state. An unlock wakes a sleeper to poll if no other thread does: see the module.
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
        // Without a sleeper nobody can be woken: the next thread that must wait polls the device itself.
        if self.0.asleep == 0 {
            return;
        }
        if thread::panicking() {
            // Sleepers find the poisoned lock and panic as well, so that they do not sleep forever.
            self.0.wake_all();
        } else {
            self.0.wake_next_poller();
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

    /// Polls the device if no other thread does; otherwise sleeps. Ends at `until` at the latest.
    pub(super) fn pause<'a>(
        &'a self,
        state: Locked<'a>,
        waiter: usize,
        until: Option<Instant>,
    ) -> Locked<'a> {
        if state.needs_polling() {
            self.poll_device(state, Some(waiter), until)
        } else {
            self.sleep(state, waiter, until)
        }
    }

    /// Waits for the device for all threads, and handles completions. Returns at `until`, and when another thread has
    /// set the outcome of `waiter`.
    pub(super) fn poll_device<'a>(
        &'a self,
        mut state: Locked<'a>,
        waiter: Option<usize>,
        until: Option<Instant>,
    ) -> Locked<'a> {
        // A completion that the device has reported already need not end the wait below.
        let before = state.reaped;
        state.reap(clock::now());
        if state.reaped != before || !state.has_io() {
            return state;
        }
        debug_assert!(!state.is_polled, "two threads poll the device");
        // Set before the unlock: other threads then sleep, and `wake` ends the wait below instead of unparking.
        (state.is_polled, state.poller) = (true, waiter);
        let due = [until, state.reap_timeout()].into_iter().flatten().min();
        let timeout = due.map(|due| due.saturating_since(clock::now()));
        drop(state);
        let ended = self.watch.wait(timeout);
        let mut state = self.lock();
        // Cleared before `reap`: an outcome of this thread would otherwise end a wait for the device that has ended,
        // and the next poller would return at once.
        (state.is_polled, state.poller) = (false, None);
        if let Err(WaitError { source }) = ended {
            state.broken = Some(source.raw_os_error().unwrap_or_default());
            state.wake_all();
        }
        if until.is_some() {
            // Readers that only copy do not report that they have left a frame.
            state.path.handle_unpinned();
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

    /// Sleeps until another thread wakes the waiter, at most until `until` or until a request that is held back is due.
    fn sleep<'a>(&'a self, mut state: Locked<'a>, waiter: usize, until: Option<Instant>) -> Locked<'a> {
        // The poller has the time of requests that are held back as its own limit.
        let held_until = if state.is_polled { None } else { state.reap_timeout() };
        let wakes_at = [until, held_until].into_iter().flatten().min();
        let sleeper = &mut state.waiters[waiter];
        (sleeper.is_asleep, sleeper.wakes_at) = (true, wakes_at);
        state.asleep += 1;
        drop(state);
        // A thread that wakes this one before it parks leaves the token of the unpark, so the park returns at once.
        match wakes_at {
            Some(time) => thread::park_timeout(time.saturating_since(clock::now()).max(SLEEP_MIN)),
            None => thread::park(),
        }
        let mut state = self.lock();
        state.awaken(waiter);
        // This thread has taken the lock: from here on, an unlock may choose another thread to poll.
        state.next_poller = state.next_poller.filter(|next| *next != waiter);
        if wakes_at.is_some() {
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

    /// Wakes every sleeper, so that it finds the device broken.
    pub(super) fn wake_all(&mut self) {
        self.asleep = 0;
        for (_, waiter) in &mut self.waiters {
            if std::mem::take(&mut waiter.is_asleep)
                && let Role::Thread(thread) = &waiter.role
            {
                thread.unpark();
            }
        }
        self.owners.iter().filter_map(|(_, owner)| owner.notifier.as_ref()).for_each(Notifier::notify);
    }

    /// Wakes the waiter's thread if it sleeps or polls.
    pub(super) fn wake(&mut self, waiter: usize) {
        if self.awaken(waiter) {
            if let Role::Thread(thread) = &self.waiters[waiter].role {
                thread.unpark();
            }
        } else if self.poller == Some(waiter) {
            self.end_watch();
        }
    }

    /// Counts a waiter as awake. Returns whether it slept.
    fn awaken(&mut self, waiter: usize) -> bool {
        let was_asleep = std::mem::take(&mut self.waiters[waiter].is_asleep);
        self.asleep -= u32::from(was_asleep);
        was_asleep
    }

    /// Whether I/O is in flight and no thread waits for it.
    pub(super) fn needs_polling(&self) -> bool {
        !self.is_polled && self.has_io()
    }

    /// Wakes a sleeper to poll next, or to sleep until a request that is held back is due. Does nothing if another
    /// thread does so or was woken for that.
    fn wake_next_poller(&mut self) {
        if self.is_polled
            || self.next_poller.is_some()
            || !(self.needs_polling() || self.lacks_timed_sleeper())
        {
            return;
        }
        // One thread is enough. Until it has taken the lock, further unlocks wake no other one.
        self.next_poller = self.waiters.iter().find(|(_, waiter)| waiter.is_asleep).map(|(number, _)| number);
        if let Some(next) = self.next_poller {
            self.wake(next);
        }
    }

    /// Whether a request is held back until some time and no sleeper wakes by then.
    fn lacks_timed_sleeper(&self) -> bool {
        let wakes_by =
            |waiter: &Waiter, due| waiter.is_asleep && waiter.wakes_at.is_some_and(|time| time <= due);
        let held_until = self.reap_timeout();
        held_until.is_some_and(|due| !self.waiters.iter().any(|(_, waiter)| wakes_by(waiter, due)))
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
