//! The request queue of one thread: its own, or one that it shares with others. Only forwards calls.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};

use iopath_core::elevator::ElevatorSpec;
use iopath_core::{Extent, Instant, LogSink, Op, QueueStats};

use crate::device::{Notifier, RealDevice, WaitError};
use crate::io_buf::IoBuf;
use crate::jobs::{CompletedJob, Job, Refused};
use crate::pool::PoolBuf;
use crate::runner::{RunError, Runner};
use crate::shared::QueueClient;

/// A thread's own [`Runner`], or its client of a [`SharedQueue`](crate::SharedQueue). Both have these methods, with the
/// same meaning.
#[expect(
    clippy::large_enum_variant,
    reason = "one for each thread or batch; a box would add a pointer to follow at each call"
)]
pub enum ThreadQueue<O: ?Sized + RealDevice, S: ?Sized + RealDevice, B: IoBuf = PoolBuf> {
    /// Its own queue and device.
    Own(Runner<O, B>),
    /// A queue and device that several threads share.
    Shared(QueueClient<S, B>),
}

impl<O: ?Sized + RealDevice, S: ?Sized + RealDevice, B: IoBuf> fmt::Debug for ThreadQueue<O, S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(runner) => runner.fmt(f),
            Self::Shared(client) => client.fmt(f),
        }
    }
}

impl<O: ?Sized + RealDevice, S: ?Sized + RealDevice, B: IoBuf> ThreadQueue<O, S, B> {
    /// Begins a batch at this time: see [`Runner::begin_batch`]. Does nothing for a shared queue, whose time is that of
    /// the thread that dispatches.
    #[inline]
    pub fn begin_batch(&mut self, now: Instant) {
        if let Self::Own(runner) = self {
            runner.begin_batch(now);
        }
    }

    /// The time of the last completions: see [`Runner::now`]. None for a shared queue.
    #[inline]
    pub const fn completed_at(&self) -> Option<Instant> {
        match self {
            Self::Own(runner) => Some(runner.now()),
            Self::Shared(_) => None,
        }
    }

    /// Queues a job: see [`Runner::queue`].
    #[inline]
    pub fn queue(&mut self, job: Job<B>) -> Result<(), Refused<B>> {
        match self {
            Self::Own(runner) => runner.queue(job),
            Self::Shared(client) => client.queue(job),
        }
    }

    /// Submits all queued jobs, without waiting.
    pub fn submit(&mut self) {
        match self {
            Self::Own(runner) => runner.submit(),
            Self::Shared(client) => client.submit(),
        }
    }

    /// Submits all queued jobs and blocks until one has completed: see [`Runner::wait`] and [`QueueClient::wait`].
    pub fn wait(&mut self, gather: u32) -> Result<(), WaitError> {
        match self {
            Self::Own(runner) => runner.wait(gather),
            Self::Shared(client) => client.wait(gather),
        }
    }

    /// The next completed job; makes no system call.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<CompletedJob<B>> {
        match self {
            Self::Own(runner) => runner.poll_completion(),
            Self::Shared(client) => client.poll_completion(),
        }
    }

    /// Cancels a job with this token: see [`Runner::cancel`].
    pub fn cancel(&mut self, token: u64) -> bool {
        match self {
            Self::Own(runner) => runner.cancel(token),
            Self::Shared(client) => client.cancel(token),
        }
    }

    /// Collects completions without waiting. Plugged jobs stay plugged.
    pub fn reap(&mut self) {
        match self {
            Self::Own(runner) => runner.reap(),
            Self::Shared(client) => client.reap(),
        }
    }

    /// Submits all queued jobs and blocks until every job of this thread has completed.
    pub fn drain(&mut self) -> Result<(), WaitError> {
        match self {
            Self::Own(runner) => runner.drain(),
            Self::Shared(client) => client.drain(),
        }
    }

    /// Jobs of this thread that were queued and not yet returned by [`ThreadQueue::poll_completion`].
    pub fn in_flight(&self) -> u32 {
        match self {
            Self::Own(runner) => runner.in_flight(),
            Self::Shared(client) => client.in_flight(),
        }
    }

    /// Reads `extent` into `memory`: see [`Runner::read`].
    ///
    /// # Panics
    /// If jobs are in flight.
    pub fn read(&mut self, extent: Extent, memory: &mut [u8]) -> Result<(), RunError> {
        match self {
            Self::Own(runner) => runner.read(extent, memory),
            Self::Shared(client) => client.read(extent, memory),
        }
    }

    /// Writes `memory` to `extent`: see [`Runner::write`].
    ///
    /// # Panics
    /// If jobs are in flight.
    pub fn write(&mut self, extent: Extent, memory: &[u8], fua: bool) -> Result<(), RunError> {
        match self {
            Self::Own(runner) => runner.write(extent, memory, fua),
            Self::Shared(client) => client.write(extent, memory, fua),
        }
    }

    /// Reads `extent` into several buffers: see [`Runner::read_vectored`].
    ///
    /// # Panics
    /// If jobs are in flight.
    pub fn read_vectored(&mut self, extent: Extent, memory: &mut [IoSliceMut<'_>]) -> Result<(), RunError> {
        match self {
            Self::Own(runner) => runner.read_vectored(extent, memory),
            Self::Shared(client) => client.read_vectored(extent, memory),
        }
    }

    /// Writes several buffers to `extent`: see [`Runner::write_vectored`].
    ///
    /// # Panics
    /// If jobs are in flight.
    pub fn write_vectored(
        &mut self,
        extent: Extent,
        memory: &[IoSlice<'_>],
        fua: bool,
    ) -> Result<(), RunError> {
        match self {
            Self::Own(runner) => runner.write_vectored(extent, memory, fua),
            Self::Shared(client) => client.write_vectored(extent, memory, fua),
        }
    }

    /// Executes a flush, discard or write-zeroes, and returns when it has completed.
    ///
    /// # Panics
    /// If jobs are in flight, or the operation needs memory.
    pub fn command(&mut self, op: Op, extent: Extent) -> Result<(), RunError> {
        match self {
            Self::Own(runner) => runner.command(op, extent),
            Self::Shared(client) => client.command(op, extent),
        }
    }

    /// Sets the capacity of a thread's own queue and device. Does nothing for a shared queue: use
    /// [`SharedQueue::set_capacity`](crate::SharedQueue::set_capacity), so that no thread sets an outdated capacity.
    pub fn set_capacity(&mut self, sectors: u64) {
        if let Self::Own(runner) = self {
            runner.set_capacity(sectors);
        }
    }

    /// From now on, records every step of the queue in `sink`; for a shared queue, the steps of all threads.
    pub fn start_log(&mut self, sink: Box<dyn LogSink>) {
        match self {
            Self::Own(runner) => runner.start_log(sink),
            Self::Shared(client) => client.shared_queue().start_log(sink),
        }
    }

    /// Ends the log: the queue passes the pending records to its sink and drops it. A shared queue evaluates `is_ours`
    /// while no thread can replace its sink, and keeps the sink if that is false.
    pub fn end_log_if(&mut self, is_ours: impl FnOnce() -> bool) {
        match self {
            Self::Own(runner) => {
                if is_ours() {
                    runner.end_log();
                }
            }
            Self::Shared(client) => client.shared_queue().end_log_if(is_ours),
        }
    }

    /// Notifies `notifier` when [`ThreadQueue::reap`] has work: see [`Runner::set_notifier`].
    ///
    /// # Errors
    /// Returns the errors of [`Runner::set_notifier`]; and [`std::io::ErrorKind::Unsupported`] for a shared queue.
    pub fn set_notifier(&mut self, notifier: &Notifier) -> std::io::Result<()> {
        match self {
            Self::Own(runner) => runner.set_notifier(notifier),
            Self::Shared(_) => Err(std::io::ErrorKind::Unsupported.into()),
        }
    }

    /// The time at which [`ThreadQueue::reap`] has work without a notification: see [`Runner::poll_timeout`]. A shared
    /// queue has no notifier.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Own(runner) => runner.poll_timeout(),
            Self::Shared(_) => None,
        }
    }

    /// The elevator of the queue and its current settings.
    pub fn elevator(&self) -> ElevatorSpec {
        match self {
            Self::Own(runner) => runner.elevator().clone(),
            Self::Shared(client) => client.shared_queue().elevator(),
        }
    }

    /// The statistics of the queue; of a shared queue, for all threads.
    pub fn stats(&self) -> QueueStats {
        match self {
            Self::Own(runner) => *runner.stats(),
            Self::Shared(client) => client.shared_queue().stats(),
        }
    }

    /// The number of system calls for I/O so far; with a shared queue, of all threads.
    pub fn syscalls(&self) -> u64 {
        match self {
            Self::Own(runner) => runner.syscalls(),
            Self::Shared(client) => client.shared_queue().syscalls(),
        }
    }
}
