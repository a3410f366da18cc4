//! Delivers outcomes: to threads that sleep or poll, to queues of requests, and to commands that wait for the cache. No
//! function here waits: see `wait.rs`.
//!
//! A page that a request waited for is pinned until the owner of the request continues it. Otherwise it could be
//! evicted before that, any number of times. The owner may make no further call, or be blocked in a call that lacks a
//! frame itself. So a thread that lacks a frame revokes these pins ([`State::revoke_pins`]). The requests then look up
//! their pages again.

use iopath_core::cache::{DirectStep, Outcome};
use iopath_core::{Extent, IoError, Op, SubmitError};

use super::state::State;
use super::waiter::{Command, RequestId, Role, Waiter};
use crate::clock;
use crate::election::{Polled, Sleep};

/// Marks the tokens of commands among those of page I/Os, which have 32 bits.
const COMMAND: u64 = 1 << 32;

impl State {
    /// Removes the waiter of a request that waits no longer, because it has failed.
    pub(super) fn remove_request(&mut self, waiter: usize) {
        if let Role::Request(request) = self.waiters.remove(waiter).role {
            self.uncount_waiting(request);
        }
    }

    /// The queue of the request was dropped.
    pub(super) fn abandon_request(&mut self, waiter: usize) {
        let role = std::mem::replace(&mut self.waiters[waiter].role, Role::Abandoned);
        if let Role::Request(request) = role {
            self.uncount_waiting(request);
        }
        // A waiter for any frame gets no outcome any more. All other waiters stay until `deliver` removes them.
        if self.path.stop_waiting_for_frame(waiter as u64) {
            self.waiters.remove(waiter);
        }
    }

    /// Unpins the pages of requests that their owners have not continued. Returns whether there was one. For a caller
    /// that lacks a frame.
    pub(super) fn revoke_pins(&mut self) -> bool {
        let mut any = false;
        for (_, owner) in &mut self.owners {
            for (_, outcome) in &mut owner.ready {
                if let Outcome::Pinned(frame) = *outcome {
                    self.path.cache().hot().unpin(frame);
                    *outcome = Outcome::Retry;
                    any = true;
                }
            }
        }
        if any {
            self.path.handle_unpinned();
        }
        any
    }

    /// The queue with that key was dropped.
    pub(super) fn remove_owner(&mut self, key: usize) {
        for (_, command) in &mut self.commands {
            if command.request.is_some_and(|request| request.owner == key) {
                command.request = None;
            }
        }
        let owner = self.owners.remove(key);
        if owner.notifier.is_some() {
            self.waiting_with_notifier -= owner.waiting;
        }
    }

    /// Begins a discard or write of zeroes as soon as the cache allows it; `unit_bytes` as in
    /// [`BufferedPath::begin_direct`](iopath_core::buffered::BufferedPath::begin_direct). The request gets
    /// [`Outcome::Done`] or [`Outcome::Failed`]. [`State::advance`] submits it.
    pub(super) fn begin_command(&mut self, request: RequestId, op: Op, extent: Extent, unit_bytes: u64) {
        self.count_waiting(request);
        let key = self.commands.insert(Command { request: Some(request), op, extent, tag: None });
        let waiter = self.add(Role::Command(key));
        let (offset, bytes) = (extent.offset(), extent.bytes());
        if let DirectStep::Go(tag) = self.path.begin_direct(op, offset, bytes, unit_bytes, waiter as u64) {
            self.waiters.remove(waiter);
            self.commands[key].tag = Some(tag);
            self.due_commands.push_back(key);
        }
    }

    /// The outcome of a waiter is known.
    #[inline]
    pub(super) fn set_outcome(&mut self, waiter: usize, outcome: Outcome) {
        debug_assert!(self.waiters[waiter].outcome.is_none(), "waiter {waiter} has an outcome already");
        if matches!(self.waiters[waiter].role, Role::Thread(_)) {
            self.waiters[waiter].outcome = Some(outcome);
            self.wake(waiter);
        } else {
            self.deliver(waiter, outcome);
        }
    }

    /// Submits the commands that the cache has allowed. Returns whether there was one.
    pub(super) fn submit_commands(&mut self) -> bool {
        let mut any = false;
        while let Some(key) = self.due_commands.front().copied() {
            let Command { op, extent, .. } = self.commands[key];
            match self.queue_command(op, extent, COMMAND | key as u64) {
                Ok(()) => {}
                // The next completion makes room.
                Err(SubmitError::QueueFull(_)) => break,
                Err(SubmitError::Unsupported(_)) => self.end_command(key, Err(IoError::Unsupported)),
                Err(_) => self.end_command(key, Err(IoError::EndOfDevice)),
            }
            self.due_commands.pop_front();
            any = true;
        }
        any
    }

    /// Handles the completion with that token, if it is one of a command.
    #[inline]
    pub(super) fn complete_command(&mut self, token: u64, result: Result<(), IoError>) -> bool {
        let is_command = token & COMMAND != 0;
        if is_command {
            self.path.handle_room();
            self.end_command((token & !COMMAND) as usize, result);
        }
        is_command
    }

    #[cold]
    fn deliver(&mut self, waiter: usize, outcome: Outcome) {
        match (self.waiters.remove(waiter).role, outcome) {
            (Role::Request(request), outcome) => {
                let outcome = self.pin(outcome);
                self.notify(request, outcome);
            }
            (Role::Command(key), Outcome::Direct(tag)) => {
                self.commands[key].tag = Some(tag);
                self.due_commands.push_back(key);
            }
            (Role::Command(key), Outcome::Failed(error)) => self.end_command(key, Err(error)),
            (Role::Command(_), other) => unreachable!("the outcome of a command is {other:?}"),
            // No owner will continue with the page, so its pin ends here.
            (Role::Thread(_) | Role::Abandoned, outcome) => {
                if let Outcome::Pinned(frame) = self.pin(outcome)
                    && self.path.cache().hot().unpin(frame)
                {
                    self.path.handle_unpinned();
                }
            }
        }
    }

    /// Pins the page of a waiting writer instead of assigning it to the writer.
    fn pin(&mut self, outcome: Outcome) -> Outcome {
        if let Outcome::Writable(frame) = outcome {
            self.path.abandon_write(frame, clock::now());
            return Outcome::Pinned(frame);
        }
        outcome
    }

    /// A command has completed, or could not begin.
    fn end_command(&mut self, key: usize, result: Result<(), IoError>) {
        let Command { request, tag, .. } = self.commands.remove(key);
        if let Some(tag) = tag {
            self.path.end_direct(tag);
        }
        if let Some(request) = request {
            self.notify(request, result.err().map_or(Outcome::Done, Outcome::Failed));
        }
    }

    /// A request can continue.
    fn notify(&mut self, request: RequestId, outcome: Outcome) {
        self.uncount_waiting(request);
        let owner = &mut self.owners[request.owner];
        owner.ready.push((request.request, outcome));
        if let Some(notifier) = &owner.notifier {
            notifier.notify();
        }
        if let Some(thread) = owner.thread {
            self.wake(thread);
        }
    }

    /// A request waits from now on: its outcome, or [`State::remove_request`], ends that.
    pub(super) fn count_waiting(&mut self, request: RequestId) {
        let owner = &mut self.owners[request.owner];
        owner.waiting += 1;
        self.waiting_with_notifier += u32::from(owner.notifier.is_some());
    }

    fn uncount_waiting(&mut self, request: RequestId) {
        let owner = &mut self.owners[request.owner];
        owner.waiting -= 1;
        self.waiting_with_notifier -= u32::from(owner.notifier.is_some());
    }

    pub(super) fn add(&mut self, role: Role) -> usize {
        self.waiters.insert(Waiter { role, outcome: None, sleep: Sleep::Awake, is_flush: false })
    }
}
