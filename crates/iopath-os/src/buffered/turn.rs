//! Waiting. Of all threads that wait, one waits for the device on behalf of all, without the lock, so that others get
//! their hits and hand in their I/O meanwhile; the rest sleep until it, or whoever has what they want, wakes them.
//!
//! ```text
//!   lock ─▶ outcome there? ─ yes ─▶ pass the turn on, return
//!              │ no
//!              ├─ somebody drives, or nothing is at the device: unlock, sleep, lock
//!              └─ else: drive: unlock, wait for the device, lock, collect, wake whose turn has come
//! ```
//!
//! There is no thread for I/O and no timer: who needs a page waits for it in the system call that brings it.

use std::time::Duration;

use iopath_core::cache::Outcome;

use super::state::State;
use super::{BufferedError, Shared};
use crate::clock;
use crate::device::WaitError;
use crate::sync::{MutexGuard, thread};

pub(super) type Guard<'a> = MutexGuard<'a, State>;

/// For how long a thread waits for a frame before it takes it that all are borrowed for good.
const STARVED_MAX: Duration = Duration::from_secs(10);

/// For how long if write-back fails: what failed is tried again only after some while.
const UNWRITABLE_MAX: Duration = Duration::from_secs(1);

/// How soon it looks whether that is still so: a reader who merely copies is out of its frame by then, unless it was
/// put to sleep in there, so it looks again after twice as long, and so on.
const NAP_MIN: Duration = Duration::from_micros(100);

/// It looks this often at least.
const NAP_MAX: Duration = Duration::from_secs(1);

impl Shared {
    /// Waits until the waiter's turn has come, and strikes it off the list.
    pub(super) fn wait<'a>(
        &'a self,
        mut state: Guard<'a>,
        waiter: usize,
    ) -> Result<(Guard<'a>, Outcome), BufferedError> {
        let (mut asleep, mut nap) = (Duration::ZERO, NAP_MIN);
        loop {
            if let Some(outcome) = state.waiters[waiter].outcome {
                state.waiters.remove(waiter);
                state.pass_on();
                // A flush of the device that failed has made pages dirty again.
                self.rouse_flusher(&mut state);
                return Ok((state, outcome));
            }
            if let Some(errno) = state.broken {
                return Err(WaitError { source: std::io::Error::from_raw_os_error(errno) }.into());
            }
            if state.is_driven {
                drop(state);
                thread::park();
                state = self.lock();
            } else if state.runner.in_flight() == 0 {
                // Whoever has what is waited for is another thread of the program, or an elevator for some time.
                let start = clock::now();
                let due = state.runner.poll_timeout().map(|due| due.saturating_since(start));
                drop(state);
                thread::park_timeout(due.map_or(nap, |due| due.clamp(NAP_MIN, nap)));
                state = self.lock();
                // Readers who merely copy do not say when they leave a frame.
                state.cache.handle_unpinned();
                state.now = clock::now();
                state.come_by();
                asleep += clock::now().saturating_since(start);
                nap = (nap * 2).min(NAP_MAX);
                if let Some(error) = state.no_frame_for(asleep)
                    && state.cache.stop_starving(waiter as u64)
                {
                    state.waiters.remove(waiter);
                    return Err(error);
                }
            } else {
                state = self.drive(state);
            }
        }
    }

    /// Waits for the device on behalf of all, and tells everybody.
    pub(super) fn drive<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        // What is over already need not be waited for, and would not wake who waits.
        let before = state.ended;
        state.collect();
        if state.ended != before || state.runner.in_flight() == 0 {
            return state;
        }
        state.is_driven = true;
        let timeout = state.runner.poll_timeout().map(|due| due.saturating_since(clock::now()));
        drop(state);
        let waited = self.watch.wait(timeout);
        let mut state = self.lock();
        state.is_driven = false;
        if let Err(WaitError { source }) = waited {
            state.broken = Some(source.raw_os_error().unwrap_or_default());
            state.wake_all();
        }
        state.collect();
        state
    }

    /// Keeps a writer from writing faster than the device can, by what it owes.
    pub(super) fn pay<'a>(&'a self, mut state: Guard<'a>, debt: Duration) -> Guard<'a> {
        let due = clock::now() + debt;
        while clock::now() < due {
            if state.is_driven || state.runner.in_flight() == 0 {
                drop(state);
                thread::sleep(due.saturating_since(clock::now()));
                state = self.lock();
            } else {
                state = self.drive(state);
            }
        }
        state.pass_on();
        state
    }
}

impl State {
    /// What to say to somebody who has slept that long without a frame, if it is time to.
    fn no_frame_for(&self, asleep: Duration) -> Option<BufferedError> {
        let unwritable = if asleep >= UNWRITABLE_MAX { self.cache.unwritable() } else { None };
        match unwritable {
            Some((pages, source)) => Some(BufferedError::Unwritable { pages, source }),
            None if asleep >= STARVED_MAX => {
                Some(BufferedError::AllBorrowed { pages: self.cache.config().frames })
            }
            None => None,
        }
    }
}
