//! The state under the lock: the state machine of the buffered path, the queue and device that execute its steps, and
//! the threads that wait. All decisions are in `iopath_core::buffered`. No other file of `buffered/` calls the runner.

use std::collections::VecDeque;
use std::sync::Arc;

use iopath_core::buffered::{BufferedPath, Frames, PageBio, Step};
use iopath_core::cache::{Frame, IoTag};
use iopath_core::elevator::ElevatorSpec;
use iopath_core::{Extent, Instant, IoError, LogSink, Op, QueueStats, SubmitError};
use slab::Slab;

use super::arena::Arena;
use super::demand::{Demand, MemoryOwner};
use super::waiter::{Command, Flusher, OwnFlush, Owner, Poller, Reported, Role, Waiter};
use crate::device::{RealDevice, Watch};
use crate::election::{Election, Polled, Sleep};
use crate::memory::Segment;
use crate::runner::Runner;
use crate::sync::atomic::AtomicBool;
use crate::tail::Tail;

/// The arena as the state machine uses it. Only the state machine may have one.
#[derive(Debug)]
pub(super) struct DeviceFrames(Arc<Arena>);

/// The buffered path, its device, and the threads that wait.
#[derive(Debug)]
pub(super) struct State {
    // Dropped first: the device waits for the I/O on the arena.
    runner: Runner<dyn RealDevice + Send>,
    pub(super) path: BufferedPath<DeviceFrames>,
    arena: Arc<Arena>,
    /// For the bytes after the last whole block of the volume.
    pub(super) tail: Option<Arc<dyn Tail>>,
    /// The owner of the memory, if the budget changes.
    pub(super) owner_of_memory: Option<MemoryOwner>,
    pub(super) waiters: Slab<Waiter>,
    /// Queues of requests.
    pub(super) owners: Slab<Owner>,
    /// Requests that wait for an outcome, of queues with a notifier.
    pub(super) waiting_with_notifier: u32,
    /// Discards and writes of zeroes of requests.
    pub(super) commands: Slab<Command>,
    /// The commands that may begin.
    pub(super) due_commands: VecDeque<usize>,
    /// The number of waiters whose threads sleep.
    pub(super) asleep: u32,
    pub(super) election: Election,
    /// Bios that have completed.
    pub(super) reaped: u64,
    /// The error number with which the system refuses further I/O.
    pub(super) broken: Option<i32>,
    /// The number of calls of [`State::advance`]. While it does not change, no thread uses the cache.
    pub(super) activity: u64,
    pub(super) is_closing: bool,
    /// Dirty pages are not written back at the end.
    pub(super) is_abandoned: bool,
    pub(super) own_flush: OwnFlush,
    pub(super) flusher: Flusher,
    /// As in [`CacheShared`](super::CacheShared), which reads it without the lock.
    pub(super) has_flusher: Arc<AtomicBool>,
    pub(super) reported: Reported,
    /// The thread that polls for event loops.
    pub(super) poller: Poller,
}

impl Frames for DeviceFrames {
    type Memory = Segment;

    fn memory(&self, frame: Frame, bytes: u64) -> Segment {
        // SAFETY: the state machine requests the memory of frames of I/Os only. Until the I/O completes, the page cache
        // admits no thread to a frame that is being read, and no writer to a frame that is being written. The arena
        // outlives the runner.
        unsafe { self.0.segment(frame, bytes as usize) }
    }
}

impl DeviceFrames {
    pub(super) const fn new(arena: Arc<Arena>) -> Self {
        Self(arena)
    }
}

impl State {
    pub(super) fn new(
        runner: Runner<dyn RealDevice + Send>,
        path: BufferedPath<DeviceFrames>,
        arena: Arc<Arena>,
        tail: Option<Box<dyn Tail>>,
        demand: Option<Arc<dyn Demand>>,
    ) -> Self {
        Self {
            runner,
            path,
            arena,
            tail: tail.map(Arc::from),
            owner_of_memory: demand.map(MemoryOwner::new),
            waiters: Slab::with_capacity(64),
            owners: Slab::new(),
            waiting_with_notifier: 0,
            commands: Slab::new(),
            due_commands: VecDeque::new(),
            asleep: 0,
            election: Election::default(),
            reaped: 0,
            broken: None,
            activity: 0,
            is_closing: false,
            is_abandoned: false,
            own_flush: OwnFlush::default(),
            flusher: Flusher::Awake,
            has_flusher: Arc::default(),
            reported: Reported::default(),
            poller: Poller::default(),
        }
    }

    /// Closes the device, and returns the pages with their memory.
    pub(super) fn close(self) -> (BufferedPath<DeviceFrames>, Arc<Arena>) {
        let Self { runner, path, arena, .. } = self;
        // First: the device waits for the I/O on the arena.
        drop(runner);
        (path, arena)
    }

    /// Releases the memory of frames.
    ///
    /// # Safety
    /// As for [`Arena::release`].
    pub(super) unsafe fn release(&self, frames: &mut [Frame]) {
        // SAFETY: the caller's promise.
        unsafe { self.arena.release(frames) }
    }

    /// Executes all steps of the state machine, and wakes the waiters whose outcomes are known. Does not poll the
    /// device.
    pub(super) fn advance(&mut self, now: Instant) {
        self.activity += 1;
        loop {
            self.execute_steps(now);
            self.follow_budget();
            // The queue itself completes some bios: flushes of a device without a write cache.
            if self.take_completions(now) {
                continue;
            }
            while let Some(ready) = self.path.poll_ready() {
                self.set_outcome(ready.waiter as usize, ready.outcome);
            }
            // Outcomes make commands due. A command may end at once, and make further steps possible.
            if self.due_commands.is_empty() || !self.submit_commands() {
                break;
            }
            self.runner.submit();
        }
    }

    /// Polls the device for completions, then advances.
    pub(super) fn reap(&mut self, now: Instant) {
        self.runner.reap();
        self.take_completions(now);
        self.advance(now);
    }

    /// Advances the state machine. Polls the device first, unless a thread already waits for it.
    pub(super) fn poll(&mut self, now: Instant) {
        if self.election.is_watched() {
            self.advance(now);
        } else {
            self.reap(now);
        }
    }

    /// Returns a handle to wait for the device without the lock.
    pub(super) fn watch(&self) -> Arc<dyn Watch> {
        self.runner.watch()
    }

    /// Whether the queue has I/O, in flight or held back by the elevator.
    pub(super) fn has_bios(&self) -> bool {
        self.runner.in_flight() > 0
    }

    /// Whether a read may bypass the queue: the queue would neither order nor log it, and no write is in flight.
    pub(super) fn may_bypass_queue(&self) -> bool {
        !self.path.is_writing() && self.runner.is_plain()
    }

    /// Whether the queue passes flushes to the device.
    pub(super) fn has_volatile_cache(&self) -> bool {
        self.runner.has_volatile_cache()
    }

    /// Passes a new end of the volume to the queue and the device.
    pub(super) fn set_device_end(&mut self) {
        self.runner.set_capacity(self.path.geometry().sectors());
    }

    /// Queues a discard or write of zeroes.
    pub(super) fn queue_command(
        &mut self,
        op: Op,
        extent: Extent,
        token: u64,
    ) -> Result<(), SubmitError<Segment>> {
        self.runner.queue_segment(op, extent, None, token)
    }

    /// The counters of the queue.
    pub(super) fn queue_stats(&self) -> QueueStats {
        *self.runner.stats()
    }

    /// System calls made for I/O so far.
    pub(super) fn syscalls(&self) -> u64 {
        self.runner.syscalls()
    }

    pub(super) fn follow(&mut self, spec: &ElevatorSpec) {
        self.runner.follow(spec);
    }

    pub(super) fn start_log(&mut self, sink: Box<dyn LogSink>) {
        self.runner.start_log(sink);
    }

    fn execute_steps(&mut self, now: Instant) {
        let mut is_plugged = false;
        while let Some(step) = self.path.poll_step(now) {
            match step {
                Step::Submit(bio) if bio.op == Op::Flush && self.take_flush(bio.tag) => {}
                Step::Submit(bio) => {
                    self.submit(bio, now);
                    is_plugged = true;
                }
                // SAFETY: the frame is being read into: no thread reads it, and the device reads into the part before.
                Step::Zero { frame, from } => unsafe { self.arena.zero(frame, from) },
                Step::WriteTail { tag, frame, from, bytes, offset } => {
                    // SAFETY: the frame is being written: no thread writes to it.
                    let bytes = unsafe { self.arena.bytes(frame, from, bytes) };
                    let written = match &self.tail {
                        Some(tail) => tail.write_all_at(bytes, offset).map_err(IoError::from),
                        None => Err(IoError::Alignment),
                    };
                    self.path.handle_completion(tag, written, now);
                    if written.is_err() {
                        self.wake_reporter();
                    }
                }
            }
        }
        if is_plugged {
            self.runner.submit();
        }
    }

    fn submit(&mut self, bio: PageBio<Segment>, now: Instant) {
        let PageBio { tag, op, extent, memory } = bio;
        let refused: Result<(), SubmitError<Segment>> =
            self.runner.queue_segment(op, extent, memory, u64::from(tag.0));
        if let Err(why) = refused {
            self.path.handle_refused(bio, &why, now);
        }
    }

    /// Passes the completions of the queue to the state machine. Returns whether there were any.
    fn take_completions(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(done) = self.runner.poll_completion() {
            any = true;
            self.reaped += 1;
            if self.complete_command(done.token, done.result) {
                continue;
            }
            self.path.handle_completion(IoTag(done.token as u32), done.result, now);
            self.handle_result(done.op, done.result);
        }
        any
    }

    /// Handles a write or flush that has failed: after a flush, drops the kernel's copies, and wakes the flusher.
    /// Reports both.
    pub(super) fn handle_result(&mut self, op: Op, result: Result<(), IoError>) {
        if result.is_err() && op != Op::Read {
            if op == Op::Flush {
                if let Some(tail) = &self.tail {
                    tail.handle_failed_flush();
                }
                // Pages are dirty again.
                self.wake_flusher();
            }
            self.wake_reporter();
        }
    }
}

impl Polled for State {
    fn election(&mut self) -> &mut Election {
        &mut self.election
    }

    fn has_io(&self) -> bool {
        self.runner.needs_reaping()
    }

    fn due(&self) -> Option<Instant> {
        self.runner.poll_timeout()
    }

    fn end_watch(&mut self) {
        self.runner.end_watch();
    }

    fn numbers_end(&self) -> usize {
        self.waiters.capacity()
    }

    fn was_woken_to_poll(&self, waiter: usize) -> bool {
        self.waiters.get(waiter).is_some_and(|waiter| waiter.sleep == Sleep::WokenToPoll)
    }

    fn wake_to(&mut self, waiter: usize, state: Sleep) -> bool {
        let Some(Waiter { role: Role::Thread(thread), sleep, .. }) = self.waiters.get_mut(waiter) else {
            return false;
        };
        let is_woken = *sleep == Sleep::Asleep;
        if is_woken {
            *sleep = state;
            self.asleep -= 1;
            thread.unpark();
        }
        is_woken
    }
}
