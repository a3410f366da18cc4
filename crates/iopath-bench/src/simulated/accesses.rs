//! Threads that access a page cache in virtual time: recorded accesses, above the cache, queue and model of
//! `buffered.rs`. A thread executes one call at a time; further accesses of the thread wait. Does not decide when
//! accesses are due: the caller implements [`Accesses`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use iopath_core::buffered::Starvation;
use iopath_core::{BlockDevice, Instant, IoError, Stream};
use iopath_model::event_loop::{Process, earlier};

use super::buffered::call::{Call, Caller, Next};
use super::page_io::PageIo;
use super::span::Span;
use crate::path::Transfer;

/// An access of a thread to the file.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// Returned with the completion.
    pub index: usize,
    /// The number of the thread.
    pub thread: u32,
    /// A read or write; none for a flush.
    pub transfer: Option<Transfer>,
}

/// Decides when accesses are due.
pub trait Accesses {
    /// The time of the next access; none if all have begun, or none is due before a completion.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The next access that is due.
    fn poll(&mut self, now: Instant) -> Option<Access>;

    /// An access has completed.
    fn handle_done(&mut self, index: usize, now: Instant);

    /// Whether all accesses have begun.
    fn is_done(&self) -> bool;
}

/// The threads and their page cache.
#[derive(Debug)]
pub struct CachedThreads<D: BlockDevice, A> {
    pages: PageIo<D>,
    accesses: A,
    threads: Vec<Thread>,
    runnable: VecDeque<u32>,
    /// Threads that sleep, each with the number of its sleep.
    sleepers: BinaryHeap<Reverse<(Instant, u32, u64)>>,
    sleeps: u64,
    /// Accesses begun and not completed.
    in_flight: u64,
    failure: Option<(usize, String)>,
}

#[derive(Debug)]
struct Thread {
    call: Call,
    phase: Phase,
    /// The access of the call.
    index: usize,
    waiting: VecDeque<Access>,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Runnable,
    /// The thread waits. The state machine returns its number with the outcome.
    Waiting,
    /// The thread waits for a free frame, and checks again when its sleep ends.
    Starved {
        sleep: u64,
        since: Instant,
        is_idle: bool,
        starvation: Starvation,
    },
    Asleep {
        sleep: u64,
    },
}

impl<D: BlockDevice<Memory = Span>, A: Accesses> CachedThreads<D, A> {
    /// Threads above an empty cache.
    pub(super) fn new(pages: PageIo<D>, threads: usize, accesses: A) -> Self {
        let thread = |_| Thread { call: Call::None, phase: Phase::Idle, index: 0, waiting: VecDeque::new() };
        Self {
            pages,
            accesses,
            threads: (0..threads).map(thread).collect(),
            runnable: VecDeque::new(),
            sleepers: BinaryHeap::new(),
            sleeps: 0,
            in_flight: 0,
            failure: None,
        }
    }

    /// The accesses, or the index of the access that failed and the reason.
    pub fn finish(self) -> Result<A, (usize, String)> {
        self.failure.map_or(Ok(self.accesses), Err)
    }

    /// Moves page I/O, and wakes the threads whose outcomes are known.
    fn pump(&mut self, now: Instant) {
        self.pages.pump(Stream(0), |_| false, now);
        while let Some(ready) = self.pages.path.poll_ready() {
            let number = ready.waiter as u32;
            self.threads[number as usize].call.set_outcome(ready.outcome);
            self.wake(number);
        }
    }

    fn wake(&mut self, number: u32) {
        self.threads[number as usize].phase = Phase::Runnable;
        self.runnable.push_back(number);
    }

    fn wake_sleepers(&mut self, now: Instant) {
        while let Some(&Reverse((_, number, ended))) =
            self.sleepers.peek().filter(|Reverse((until, ..))| *until <= now)
        {
            self.sleepers.pop();
            match &self.threads[number as usize].phase {
                Phase::Asleep { sleep } if *sleep == ended => self.wake(number),
                Phase::Starved { sleep, .. } if *sleep == ended => self.check_starved(number, now),
                // The outcome arrived before the end of the sleep.
                _ => {}
            }
        }
    }

    fn sleep(&mut self, number: u32, until: Instant) -> u64 {
        self.sleeps += 1;
        self.sleepers.push(Reverse((until, number, self.sleeps)));
        self.sleeps
    }

    fn begin_due(&mut self, now: Instant) {
        while let Some(access) = self.accesses.poll(now) {
            self.in_flight += 1;
            let thread = &mut self.threads[access.thread as usize];
            thread.waiting.push_back(access);
            if let Phase::Idle = thread.phase {
                self.wake(access.thread);
            }
        }
    }

    /// Runs a thread until it waits, sleeps or has no access.
    fn run_thread(&mut self, number: u32, now: Instant) {
        loop {
            let Self { pages: PageIo { path, .. }, threads, accesses, in_flight, .. } = self;
            let thread = &mut threads[number as usize];
            if thread.call.is_done() {
                *in_flight -= 1;
                accesses.handle_done(thread.index, now);
                thread.call = Call::None;
            }
            if let Call::None = thread.call {
                let Some(access) = thread.waiting.pop_front() else {
                    thread.phase = Phase::Idle;
                    return;
                };
                thread.index = access.index;
                thread.call = match access.transfer {
                    Some(transfer) => Call::new(transfer, path),
                    None => Call::Flush { is_begun: false, outcome: None, started: None },
                };
            }
            let mut caller = Caller { path, waiter: number.into(), is_timed: false };
            match thread.call.step(&mut caller, now) {
                Ok(Next::Made | Next::Work(_)) => continue,
                Ok(Next::End) => {
                    thread.call = Call::Done;
                    continue;
                }
                Ok(Next::Wait) => self.wait(number, now),
                Ok(Next::Sleep(until)) => {
                    let sleep = self.sleep(number, until);
                    self.threads[number as usize].phase = Phase::Asleep { sleep };
                }
                Err(error) => self.fail(number, error),
            }
            return;
        }
    }

    #[cold]
    fn fail(&mut self, number: u32, error: IoError) {
        let index = self.threads[number as usize].index;
        self.failure.get_or_insert_with(|| (index, error.to_string()));
    }

    fn wait(&mut self, number: u32, now: Instant) {
        self.threads[number as usize].phase = Phase::Waiting;
        self.pages.unplugger.handle_wait();
        if self.pages.path.is_starved(number.into()) {
            self.starve(number, Starvation::default(), now);
        }
    }

    fn starve(&mut self, number: u32, mut starvation: Starvation, now: Instant) {
        let sleep = self.sleep(number, starvation.next_check(now));
        let is_idle = self.pages.queue.queue().in_flight() == 0;
        self.threads[number as usize].phase = Phase::Starved { sleep, since: now, is_idle, starvation };
    }

    /// A thread that waits for a frame checks again, or fails after its time limit.
    fn check_starved(&mut self, number: u32, now: Instant) {
        let phase = std::mem::replace(&mut self.threads[number as usize].phase, Phase::Waiting);
        let Phase::Starved { since, is_idle, mut starvation, .. } = phase else { return };
        self.pages.path.handle_unpinned();
        if is_idle {
            starvation.handle_idle(now - since);
        }
        if self.pages.path.fail_starved(number.into(), &starvation).is_some() {
            let index = self.threads[number as usize].index;
            self.failure.get_or_insert_with(|| (index, "no page of the cache is free".to_owned()));
        } else if self.pages.path.is_starved(number.into()) {
            self.starve(number, starvation, now);
        }
    }
}

impl<D: BlockDevice<Memory = Span>, A: Accesses> Process for CachedThreads<D, A> {
    fn advance(&mut self, now: Instant) {
        loop {
            self.pump(now);
            self.wake_sleepers(now);
            self.begin_due(now);
            if self.runnable.is_empty() || self.failure.is_some() {
                return;
            }
            while let Some(number) = self.runnable.pop_front() {
                self.run_thread(number, now);
                self.pages.handle_windows();
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let sleep = self.sleepers.peek().map(|Reverse((until, ..))| *until);
        earlier(earlier(self.pages.poll_timeout(), sleep), self.accesses.poll_timeout())
    }

    fn is_done(&self) -> bool {
        (self.in_flight == 0 && self.accesses.is_done()) || self.failure.is_some()
    }
}
