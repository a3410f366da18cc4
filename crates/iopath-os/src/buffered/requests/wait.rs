//! Waits of the owner, and of requests for a frame. The rules by which threads wait: `../wait.rs`.

use std::sync::Arc;
use std::time::Duration;

use iopath_core::buffered::Starvation;
use iopath_core::{Instant, Op};

use super::CacheQueue;
use crate::buffered::state::State;
use crate::clock;
use crate::device::WaitError;
use crate::election::Polled;
use crate::io_buf::IoBuf;

/// The interval at which an event loop polls while a request waits for a frame. A reader that only copies a page does
/// not report that it has left the frame, so no event announces a free frame.
const STARVED_POLL: Duration = Duration::from_millis(1);

/// The interval at which an event loop polls while no thread does so for it.
const UNPOLLED_POLL: Duration = Duration::from_millis(1);

impl<B: IoBuf> CacheQueue<B> {
    /// Submits, and blocks until `gather` requests have completed, or all requests in flight if these are fewer.
    ///
    /// # Errors
    /// If the system refuses further I/O of the device.
    pub fn wait(&mut self, gather: u32) -> Result<(), WaitError> {
        self.submit();
        let shared = Arc::clone(&self.shared);
        while self.completed.len() < gather.max(1) as usize && !self.requests.is_empty() {
            // Outcomes that arrived since the last call woke no thread, so they are collected before this one sleeps.
            let mut state = shared.lock();
            self.collect(&mut state);
            if self.runnable.is_empty() && self.completed.len() < gather.max(1) as usize {
                if let Some(errno) = state.broken {
                    return Err(WaitError { source: std::io::Error::from_raw_os_error(errno) });
                }
                let until = self.wait_end(clock::now());
                let thread = state.add_waiter();
                state.owners[self.owner].thread = Some(thread);
                state = shared.pause(state, thread, until);
                state.owners[self.owner].thread = None;
                state.waiters.remove(thread);
                self.collect(&mut state);
            }
            drop(state);
            self.run();
        }
        Ok(())
    }

    /// The maximum time for which an event loop may wait for a notification before it polls; `None` for no limit.
    pub fn next_timeout(&self) -> Option<Duration> {
        let now = clock::now();
        let pause = self.pause_end.filter(|_| !self.paused.is_empty());
        let pause = pause.map(|end| end.saturating_since(now));
        let starved = (self.starved > 0).then_some(STARVED_POLL);
        let unpolled = (self.polls_itself && !self.requests.is_empty()).then_some(UNPOLLED_POLL);
        [pause, starved, unpolled].into_iter().flatten().min()
    }

    /// The request waits for an outcome.
    pub(super) fn waits(&mut self, key: u32, waiter: usize, state: &mut State) {
        state.count_waiting(self.id(key));
        self.ensure_poller(state);
        let request = &mut self.requests[key as usize];
        request.waiter = Some(waiter);
        request.is_starved = state.path.is_starved(waiter as u64);
        self.starved += u32::from(request.is_starved);
    }

    /// Requests wait from now on: if the owner is an event loop, a thread polls for it.
    pub(super) fn ensure_poller(&mut self, state: &mut State) {
        if self.notifier.is_some() {
            self.polls_itself = self.shared.ensure_poller(state).is_err();
        }
    }

    /// The outcome of the request is known.
    pub(super) fn stops_waiting(&mut self, key: u32) {
        let request = &mut self.requests[key as usize];
        request.waiter = None;
        self.starved -= u32::from(std::mem::take(&mut request.is_starved));
    }

    /// Fails requests that have waited for a frame for too long while no I/O was in flight.
    pub(super) fn check_starved(&mut self, state: &mut State) {
        if self.starved == 0 {
            if self.starved_since.take().is_some() {
                self.starvation = Starvation::default();
                self.idle_since = None;
            }
            return;
        }
        let now = clock::now();
        let since = *self.starved_since.get_or_insert(now);
        if now.saturating_since(since) >= STARVED_POLL && state.revoke_pins() {
            self.starved_since = Some(now);
            state.advance(now);
            return;
        }
        if let Some(since) = self.idle_since {
            self.starvation.handle_idle(now.saturating_since(since));
        }
        self.idle_since = (!state.has_io()).then_some(now);
        let starved = self.requests.iter().filter(|(_, request)| request.is_starved);
        let starved: Vec<(u32, usize)> =
            starved.filter_map(|(key, request)| Some((key as u32, request.waiter?))).collect();
        for (key, waiter) in starved {
            if let Some(no_frame) = state.path.fail_starved(waiter as u64, &self.starvation) {
                state.remove_request(waiter);
                self.stops_waiting(key);
                self.complete(key, Err(no_frame.into()));
            }
        }
    }

    /// The time at which a wait ends even if no request can continue.
    fn wait_end(&mut self, now: Instant) -> Option<Instant> {
        let pause = self.pause_end.filter(|_| !self.paused.is_empty());
        let check = (self.starved > 0).then(|| self.starvation.next_check(now));
        [pause, check].into_iter().flatten().min()
    }

    /// Ends the reads that have begun or could begin. Requests that had to follow them begin.
    pub(super) fn abandon_reads(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        self.collect(&mut state);
        let mut reads: Vec<u32> = self.plugged.drain(..).collect();
        let requests = &self.requests;
        self.runnable.retain(|key| {
            let is_read = requests[*key as usize].op == Op::Read;
            if is_read {
                reads.push(*key);
            }
            !is_read
        });
        let waiting = requests.iter().filter(|(_, request)| request.op == Op::Read);
        let waiting = waiting.filter_map(|(key, request)| Some((key as u32, request.waiter?)));
        for (key, waiter) in waiting {
            state.abandon_request(waiter);
            reads.push(key);
        }
        drop(state);
        for key in reads {
            if let Some(frame) = self.requests[key as usize].pinned.take() {
                shared.unpin(frame);
            }
            self.stops_waiting(key);
            self.complete(key, Ok(0));
        }
    }
}
