//! The requests that devices pass to the thread of a connection, and its wake-up. It sends nothing.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use super::job::Job;

/// The entry of one connection.
#[derive(Debug)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    wake: OwnedFd,
    /// Requests passed to the connection that have not completed.
    outstanding: AtomicU32,
    /// Whether the connection was established when the device was opened.
    is_used: AtomicBool,
    /// Whether the connection is established at present.
    is_up: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    /// The thread waits for the descriptor, or is about to.
    sleeps: bool,
    /// The thread ends, or has ended.
    is_closed: bool,
}

/// The actions that a thread finds in its mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Jobs,
    Nothing,
    Closed,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            state: Mutex::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            outstanding: AtomicU32::new(0),
            is_used: AtomicBool::new(false),
            is_up: AtomicBool::new(false),
        })
    }

    /// Passes jobs to the thread. Leaves them in `jobs` if the thread has ended. Returns the number of system calls.
    pub(super) fn submit(&self, jobs: &mut VecDeque<Job>) -> u32 {
        let mut state = self.lock();
        if state.is_closed {
            return 0;
        }
        state.jobs.append(jobs);
        let sleeps = std::mem::take(&mut state.sleeps);
        drop(state);
        if sleeps {
            self.ring();
        }
        sleeps.into()
    }

    /// For the thread: takes the jobs. With `sleeps`, and if there are none, the next job makes the descriptor
    /// readable.
    pub(super) fn take(&self, into: &mut VecDeque<Job>, sleeps: bool) -> Taken {
        let mut state = self.lock();
        into.append(&mut state.jobs);
        state.sleeps = sleeps && into.is_empty() && !state.is_closed;
        match (into.is_empty(), state.is_closed) {
            (false, _) => Taken::Jobs,
            (true, true) => Taken::Closed,
            (true, false) => Taken::Nothing,
        }
    }

    /// For the thread: makes the descriptor unreadable.
    pub(super) fn clear(&self) {
        // Fails only if the descriptor is not readable.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    /// Accepts no further jobs.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.ring();
    }

    fn ring(&self) {
        // Fails only if the counter is at its maximum; then the descriptor is readable.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(super) fn outstanding(&self) -> u32 {
        self.outstanding.load(Ordering::Relaxed)
    }

    pub(super) fn add_outstanding(&self) {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sub_outstanding(&self, count: u32) {
        self.outstanding.fetch_sub(count, Ordering::Relaxed);
    }

    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    pub(super) fn set_used(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    pub(super) fn set_up(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::Relaxed);
    }

    /// Ignores poisoning: no panic leaves the state half changed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
