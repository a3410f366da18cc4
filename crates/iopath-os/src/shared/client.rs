//! A thread's access to a shared queue: keeps the memory of its I/O alive, and counts its jobs in flight. `wait.rs`
//! serves the queue.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::mem::ManuallyDrop;
use std::sync::Arc;

use iopath_core::{Bio, BioDone, Extent, Op, RequestQueue, Sector, SubmitError};

use super::SharedQueue;
use super::core::{bit_of, token};
use super::mailbox::Mailbox;
use super::regular::Pace;
use super::ring::{Consumer, Producer};
use crate::device::{RealDevice, WaitError};
use crate::io_buf::IoBuf;
use crate::jobs::{CompletedJob, Job, Jobs, Refused};
use crate::memory::Segment;
use crate::pool::PoolBuf;
use crate::runner::{AbortOnUnwind, RunError, bios_of, segment, segment_mut};

/// One of the threads that share a [`SharedQueue`]. A thread with a queue of its own uses a [`Runner`](crate::Runner).
///
/// For one thread at a time. Drop waits for its I/O in flight.
pub struct QueueClient<D: ?Sized + RealDevice, B: IoBuf = PoolBuf> {
    queue: SharedQueue<D>,
    number: u32,
    mailbox: Arc<Mailbox>,
    pace: Pace,
    submissions: Producer<Bio<Segment>>,
    completions: Consumer<BioDone>,
    /// Keeps the memory alive. Only the drop of the client drops it, after the I/O has completed.
    jobs: ManuallyDrop<Jobs<B>>,
    bios_max: u32,
    plug_max: u32,
    /// The number of runs of plugged bios that cannot merge with each other.
    plugged: u32,
    /// The operation and the end of the last plugged bio.
    last: Option<(Op, Sector)>,
}

impl<D: ?Sized + RealDevice, B: IoBuf> QueueClient<D, B> {
    pub(super) fn new(
        queue: SharedQueue<D>,
        number: u32,
        mailbox: Arc<Mailbox>,
        (submissions, completions): (Producer<Bio<Segment>>, Consumer<BioDone>),
        jobs: Jobs<B>,
        (bios_max, plug_max): (u32, u32),
    ) -> Self {
        let jobs = ManuallyDrop::new(jobs);
        let plug_max = plug_max.max(1);
        Self {
            queue,
            number,
            mailbox,
            pace: Pace::default(),
            submissions,
            completions,
            jobs,
            bios_max,
            plug_max,
            plugged: 0,
            last: None,
        }
    }

    /// The queue of this client.
    pub const fn shared_queue(&self) -> &SharedQueue<D> {
        &self.queue
    }

    /// Queues a job in the plug. [`QueueClient::submit`], [`QueueClient::wait`], or the overflow of the plug submits
    /// all plugged jobs.
    pub fn queue(&mut self, job: Job<B>) -> Result<(), Refused<B>> {
        // The table owns the buffer before the queue has the bio, and is leaked if the device may still use it: see
        // `drop`.
        let bio = self.jobs.start(job);
        self.check(&bio).map_err(|error| self.jobs.refuse(bio.token, error))?;
        self.plug(bio);
        Ok(())
    }

    /// Submits all plugged jobs, without waiting.
    pub fn submit(&mut self) {
        self.publish();
        self.queue.shared.request_service(bit_of(self.number));
    }

    /// Submits all plugged jobs and waits until [`QueueClient::poll_completion`] has `gather` completions, or the
    /// completions of all jobs if these are fewer. Returns at once if there is a completion already, or no job is in
    /// flight.
    pub fn wait(&mut self, gather: u32) -> Result<(), WaitError> {
        let has_plugged = self.plugged > 0;
        self.publish();
        // The caller handles these completions first. Its plugged bios must not wait in the ring for its next call.
        if self.completions.len() > 0 {
            if has_plugged {
                self.queue.shared.request_service(bit_of(self.number));
            }
            return Ok(());
        }
        self.wait_for(gather.max(1))
    }

    /// The next completed job.
    pub fn poll_completion(&mut self) -> Option<CompletedJob<B>> {
        loop {
            let done = self.completions.pop()?;
            if !self.jobs.take_cancelled(done) {
                return Some(self.jobs.finish(done));
            }
        }
    }

    /// Cancels a job with this token: see [`Runner::cancel`](crate::Runner::cancel).
    pub fn cancel(&mut self, token: u64) -> bool {
        self.jobs.cancel(token)
    }

    /// Collects completions for all clients, without waiting. Plugged jobs stay plugged.
    pub fn reap(&mut self) {
        self.completions.release();
        self.queue.shared.reap();
    }

    /// Submits all plugged jobs and waits until every job has completed. [`QueueClient::poll_completion`] returns them
    /// afterwards.
    pub fn drain(&mut self) -> Result<(), WaitError> {
        self.publish();
        self.wait_for(u32::MAX)
    }

    /// Jobs queued and not yet returned by [`QueueClient::poll_completion`].
    pub fn in_flight(&self) -> u32 {
        self.jobs.len() as u32
    }

    /// Reads `extent` into `memory`, which has the same length, and returns when the I/O has completed.
    ///
    /// # Panics
    /// If jobs are in flight.
    pub fn read(&mut self, extent: Extent, memory: &mut [u8]) -> Result<(), RunError> {
        // SAFETY: `run` returns when the I/O has completed, and the borrow lasts until then.
        let segment = unsafe { segment_mut(memory) };
        self.run(Bio::read(extent, segment, 0))
    }

    /// Writes `memory`, which has the same length, to `extent`, and returns when the I/O has completed; with `fua`,
    /// when the data is on the medium.
    ///
    /// # Panics
    /// Panics like [`QueueClient::read`].
    pub fn write(&mut self, extent: Extent, memory: &[u8], fua: bool) -> Result<(), RunError> {
        // SAFETY: `run` returns when the I/O has completed, and the borrow lasts until then; a write only reads it.
        let segment = unsafe { segment(memory) };
        self.run(Bio { fua, ..Bio::write(extent, segment, 0) })
    }

    /// Reads `extent` into several buffers: see [`Runner::read_vectored`](crate::Runner::read_vectored).
    ///
    /// # Panics
    /// Panics like [`QueueClient::read`].
    pub fn read_vectored(&mut self, extent: Extent, memory: &mut [IoSliceMut<'_>]) -> Result<(), RunError> {
        // SAFETY: `run_vectored` returns after the I/O has completed, and the borrows last until then.
        self.run_vectored(Op::Read, extent, memory.iter_mut().map(|part| unsafe { segment_mut(part) }), false)
    }

    /// Writes several buffers to `extent`: see [`Runner::write_vectored`](crate::Runner::write_vectored).
    ///
    /// # Panics
    /// Panics like [`QueueClient::read`].
    pub fn write_vectored(
        &mut self,
        extent: Extent,
        memory: &[IoSlice<'_>],
        fua: bool,
    ) -> Result<(), RunError> {
        // SAFETY: as above; a write only reads memory.
        self.run_vectored(Op::Write, extent, memory.iter().map(|part| unsafe { segment(part) }), fua)
    }

    /// Executes a flush, discard or write-zeroes, and returns when it has completed.
    ///
    /// # Panics
    /// Panics like [`QueueClient::read`], and if the operation needs memory.
    pub fn command(&mut self, op: Op, extent: Extent) -> Result<(), RunError> {
        assert!(!op.has_memory(), "{op} needs memory");
        self.run(Bio { op, ..Bio::discard(extent, 0) })
    }

    fn run(&mut self, bio: Bio<Segment>) -> Result<(), RunError> {
        assert!(self.jobs.is_empty(), "jobs are in flight");
        // A panic here unwinds. The same panic below would abort the process.
        self.queue.shared.assert_usable();
        let Bio { op, extent, memory, fua, .. } = bio;
        let bio = Bio { fua, ..self.jobs.start_segment(op, extent, memory, 0) };
        self.check(&bio).map_err(|error| RunError::Refused(self.jobs.refuse(bio.token, error).error))?;
        let on_unwind = AbortOnUnwind;
        self.plug(bio);
        if self.drain().is_err() {
            // The kernel uses the caller's memory, and no completion will report the end of that use.
            std::process::abort();
        }
        std::mem::forget(on_unwind);
        let done = self.poll_completion().expect("the only job has completed");
        Ok(done.result?)
    }

    fn run_vectored(
        &mut self,
        op: Op,
        extent: Extent,
        parts: impl Iterator<Item = Segment>,
        fua: bool,
    ) -> Result<(), RunError> {
        assert!(self.jobs.is_empty(), "jobs are in flight");
        self.queue.shared.assert_usable();
        let on_unwind = AbortOnUnwind;
        let mut result = Ok(());
        for Bio { op, extent, memory, fua, .. } in bios_of(op, extent, parts, fua) {
            if self.jobs.len() >= self.bios_max as usize {
                result = result.and(self.drain_borrowed());
            }
            let bio = Bio { fua, ..self.jobs.start_segment(op, extent, memory, 0) };
            let checked =
                self.check(&bio).map_err(|error| RunError::Refused(self.jobs.refuse(bio.token, error).error));
            let is_refused = checked.is_err();
            result = result.and(checked);
            if is_refused {
                break;
            }
            self.plug(bio);
        }
        result = result.and(self.drain_borrowed());
        std::mem::forget(on_unwind);
        result
    }

    /// Waits for all I/O on borrowed memory. The first error, if there was one.
    fn drain_borrowed(&mut self) -> Result<(), RunError> {
        if self.drain().is_err() {
            // As in `run`.
            std::process::abort();
        }
        let mut result = Ok(());
        while let Some(done) = self.poll_completion() {
            result = result.and(done.result.map_err(RunError::Io));
        }
        result
    }

    /// Checks the bio of a job that was started, against the limits of the client and of the device.
    #[inline]
    fn check(&self, bio: &Bio<Segment>) -> Result<(), SubmitError<Segment>> {
        if self.jobs.len() > self.bios_max as usize {
            return Err(SubmitError::QueueFull(*bio));
        }
        RequestQueue::check_bio(&self.queue.shared.limits, self.queue.capacity(), bio)
    }

    /// Writes a bio that was checked to the ring. Submits the earlier ones first if the plug is full.
    #[inline]
    fn plug(&mut self, bio: Bio<Segment>) {
        let joins = self.last == Some((bio.op, bio.extent.start()));
        if !joins {
            if self.plugged >= self.plug_max {
                self.submit();
            }
            self.plugged += 1;
        }
        self.last = Some((bio.op, bio.extent.end()));
        self.submissions.push(Bio { token: token(self.number, bio.token as u32), ..bio });
    }

    /// Publishes the plugged bios, and the room of polled completions, to the queue.
    fn publish(&mut self) {
        self.completions.release();
        (self.plugged, self.last) = (0, None);
        self.submissions.publish();
    }

    /// Waits until this number of completions is available, or the completions of all jobs.
    fn wait_for(&mut self, wanted: u32) -> Result<(), WaitError> {
        let wanted = wanted.min(self.in_flight());
        let completions = &self.completions;
        if completions.len() >= wanted {
            return Ok(());
        }
        let waiter = (&*self.mailbox, &mut self.pace);
        self.queue.shared.wait(self.number, waiter, wanted, || completions.len() >= wanted)
    }
}

impl<D: ?Sized + RealDevice, B: IoBuf> Drop for QueueClient<D, B> {
    /// Waits for the I/O in flight. If the wait for the device fails, or a thread has panicked while it held the queue,
    /// the memory stays allocated forever, since the device may still write to it.
    fn drop(&mut self) {
        let is_usable = !self.queue.shared.core.is_poisoned();
        if !is_usable || self.drain().is_err() {
            return;
        }
        // The device has no job of this client any more, so its memory may go.
        drop(std::mem::take(&mut *self.jobs));
        self.queue.shared.with(|core| core.clients[self.number as usize] = None);
    }
}

impl<D: ?Sized + RealDevice, B: IoBuf> fmt::Debug for QueueClient<D, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueClient").field("number", &self.number).finish_non_exhaustive()
    }
}
