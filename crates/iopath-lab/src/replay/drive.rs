//! Submits the I/Os of one target when they are due, and waits for their completions: one thread. Does not decide when
//! they are due: see `schedule.rs`.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;

use iopath::batch::Refused;
use iopath::{Completion, Error, LocalBatch, PoolBuf, Request};
use iopath_bench::Interruption;
use iopath_core::{Instant, Op, Stream};
use iopath_os::now;
use iopath_report::replay::ReplayTiming;
use rustix::thread::set_current_timer_slack;

use super::contents::Contents;
use super::feed::Arrival;
use super::schedule::Schedule;
use super::tally::Tally;

/// A wait ends this long before an I/O is due: the thread then polls, because the end of a wait is late by the time to
/// schedule the thread.
const POLLED: Duration = Duration::from_micros(50);

/// The longest wait: an interruption is noticed after it.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// An I/O in flight.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    op: Op,
    bytes: u64,
    stream: u32,
    recorded_ns: Option<u64>,
    submitted_ns: u64,
}

/// The submission to one target.
pub(super) struct Driver<'a> {
    batch: LocalBatch,
    /// Buffers of I/Os that are not in flight.
    buffers: Vec<PoolBuf>,
    slots: Vec<Option<InFlight>>,
    free: Vec<u32>,
    schedule: Schedule,
    feed: Receiver<Vec<Arrival>>,
    has_feed_ended: bool,
    timing: ReplayTiming,
    /// Whether each I/O is submitted on its own, so that it does not merge with others.
    is_unmerged: bool,
    contents: Contents,
    tally: Tally,
    /// The time at which the replay of all targets starts.
    start: Instant,
    /// I/Os of all targets that have ended.
    ended: &'a AtomicU64,
    /// Whether an I/O that is due waits for another to complete.
    is_short_of_slots: bool,
}

/// What a driver works with.
pub(super) struct Setup<'a> {
    pub(super) batch: LocalBatch,
    pub(super) depth: u32,
    pub(super) schedule: Schedule,
    pub(super) timing: ReplayTiming,
    pub(super) feed: Receiver<Vec<Arrival>>,
    pub(super) is_unmerged: bool,
    pub(super) contents: Contents,
    pub(super) ended: &'a AtomicU64,
}

impl<'a> Driver<'a> {
    pub(super) fn new(setup: Setup<'a>) -> Self {
        let Setup { batch, depth, schedule, timing, feed, is_unmerged, contents, ended } = setup;
        let buffers = std::iter::from_fn(|| batch.buffer()).collect();
        Self {
            batch,
            buffers,
            slots: vec![None; depth as usize],
            free: (0..depth).rev().collect(),
            schedule,
            feed,
            has_feed_ended: false,
            timing,
            is_unmerged,
            contents,
            tally: Tally::default(),
            start: Instant::ZERO,
            ended,
            is_short_of_slots: false,
        }
    }

    /// Waits for the first I/Os of the trace, before the replay starts.
    pub(super) fn prepare(&mut self) {
        // The default of 50 µs would make each wait late by as much.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        if let Ok(chunk) = self.feed.recv() {
            self.schedule.extend(chunk);
        }
    }

    /// Replays until the end of the trace or an interruption. Returns the figures, and the failure to wait for the
    /// target, if there is one.
    pub(super) fn run(mut self, start: Instant) -> (Tally, Option<Error>) {
        self.start = start;
        // Before the start, `now_ns` is 0, and so would be latencies.
        while now() < start {
            std::hint::spin_loop();
        }
        let failure = self.run_to_end().err();
        (self.tally, failure)
    }

    fn run_to_end(&mut self) -> Result<(), Error> {
        loop {
            self.fill();
            let is_stopped = Interruption::is_requested();
            if !is_stopped {
                self.submit();
            }
            if self.in_flight() == 0 && (is_stopped || self.has_feed_ended && self.schedule.is_empty()) {
                self.tally.is_stopped = is_stopped && !(self.has_feed_ended && self.schedule.is_empty());
                return Ok(());
            }
            if self.in_flight() > 0
                && let Some(done) = self.batch.poll()
            {
                self.complete_all(done);
            } else {
                self.wait(is_stopped)?;
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn now_ns(&self) -> u64 {
        now().saturating_since(self.start).as_nanos() as u64
    }

    /// Takes what the reader has read.
    fn fill(&mut self) {
        while !self.has_feed_ended && self.schedule.has_room() {
            match self.feed.try_recv() {
                Ok(chunk) => self.schedule.extend(chunk),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.has_feed_ended = true,
            }
        }
    }

    /// Submits the I/Os that are due.
    fn submit(&mut self) {
        let mut has_queued = false;
        loop {
            let now_ns = self.now_ns();
            let Some(&slot) = self.free.last() else {
                let is_due = self.schedule.poll_timeout().is_some_and(|due_ns| due_ns <= now_ns);
                if is_due && !std::mem::replace(&mut self.is_short_of_slots, true) {
                    self.tally.depth_waits += 1;
                }
                break;
            };
            let Some((arrival, due_ns)) = self.schedule.poll(now_ns) else { break };
            self.is_short_of_slots = false;
            self.tally.submitted(&arrival, due_ns, now_ns);
            has_queued |= self.queue(slot, &arrival, now_ns);
            if self.is_unmerged && std::mem::take(&mut has_queued) {
                self.batch.submit();
            }
        }
        if has_queued {
            self.batch.submit();
        }
    }

    /// Returns whether the batch has accepted the I/O.
    fn queue(&mut self, slot: u32, arrival: &Arrival, now_ns: u64) -> bool {
        let Arrival { op, is_fua, place, stream, recorded_ns, .. } = *arrival;
        let bytes = place.bytes as usize;
        let request = match op {
            Op::Flush => Request::flush(),
            Op::Discard => Request::discard(place.offset, place.bytes),
            Op::WriteZeroes => Request::write_zeroes(place.offset, place.bytes),
            Op::Read | Op::Write => {
                let mut buffer = self.buffers.pop().expect("there is a buffer for each slot");
                if op == Op::Read {
                    Request::read(buffer, place.offset).bytes(bytes)
                } else {
                    self.contents.fill(&mut buffer[..bytes], place.offset);
                    Request::write(buffer, place.offset).bytes(bytes).durable(is_fua)
                }
            }
        };
        match self.batch.queue(request.token(slot.into()).stream(Stream(stream))) {
            Ok(()) => {
                self.free.pop();
                // After the content of a write was made.
                let submitted_ns = self.now_ns();
                let io = InFlight { op, bytes: place.bytes, stream, recorded_ns, submitted_ns };
                self.slots[slot as usize] = Some(io);
                true
            }
            Err(Refused { error, buffer, .. }) => {
                self.buffers.extend(buffer);
                self.tally.failed(op, &error);
                self.end(stream, recorded_ns, now_ns);
                false
            }
        }
    }

    /// Completes this I/O, and all others that have completed with it.
    fn complete_all(&mut self, first: Completion) {
        let now_ns = self.now_ns();
        let mut next = Some(first);
        while let Some(done) = next {
            self.complete(done, now_ns);
            next = self.batch.next_completed();
        }
    }

    fn complete(&mut self, done: Completion, now_ns: u64) {
        let Completion { token, buffer, result, .. } = done;
        self.buffers.extend(buffer);
        let Some(io) = self.slots.get_mut(token as usize).and_then(Option::take) else { return };
        self.free.push(token as u32);
        match result {
            Ok(_) => {
                let latency_ns = now_ns.saturating_sub(io.submitted_ns);
                self.tally.completed(io.op, io.bytes, latency_ns, io.recorded_ns);
            }
            Err(error) => self.tally.failed(io.op, &error),
        }
        self.end(io.stream, io.recorded_ns, now_ns);
    }

    fn end(&mut self, stream: u32, recorded_ns: Option<u64>, now_ns: u64) {
        // A link counts the completions that the recording has.
        if recorded_ns.is_some() {
            self.schedule.handle_done(stream, now_ns);
        }
        self.tally.ended_ns = now_ns;
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for a completion, at most until shortly before the next I/O is due.
    fn wait(&mut self, is_stopped: bool) -> Result<(), Error> {
        let due_ns = self.schedule.poll_timeout().filter(|_| !is_stopped && !self.free.is_empty());
        let left = due_ns.map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(self.now_ns())));
        let limit = left.map_or(WAIT_MAX, |left| left.saturating_sub(POLLED).min(WAIT_MAX));
        if limit.is_zero() {
            std::hint::spin_loop();
            return Ok(());
        }
        if self.in_flight() > 0 {
            if let Some(done) = self.batch.wait_timeout(limit)? {
                self.complete_all(done);
            }
        } else if due_ns.is_some() {
            thread::sleep(limit);
        } else if !self.has_feed_ended && self.schedule.has_room() {
            match self.feed.recv_timeout(limit) {
                Ok(chunk) => {
                    self.schedule.extend(chunk);
                    let is_late = self.schedule.poll_timeout().is_some_and(|due_ns| due_ns < self.now_ns());
                    self.tally.trace_waits += u64::from(is_late && self.timing != ReplayTiming::Asap);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.has_feed_ended = true,
            }
        }
        Ok(())
    }
}
