//! Runs a request queue on a real device in real time, and keeps the memory of its I/O alive meanwhile.
//!
//! The core decides (`iopath_core::QueuedDevice`); the device executes. The runner reads the clock, waits, and meets
//! the conditions of [`Segment::new`]. Memory has two safe forms: an [`IoBuf`], which the runner owns until the job
//! completes, or a slice borrowed for a call that returns after its I/O has completed.

mod tune;

use iopath_core::{
    Bio, Duration, Extent, Instant, IoError, LogSink, Memory, Op, QueueConfig, QueueStats, QueuedDevice,
    SubmitError,
};
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::clock;
use crate::device::{Notifier, RealDevice, WaitError, Watch};
use crate::io_buf::IoBuf;
use crate::jobs::{CompletedJob, Job, Jobs, Refused};
use crate::memory::Segment;
use crate::pool::PoolBuf;
use crate::sync::thread;

/// The least requests that are submitted before the plug is full or the caller waits. As in `kernel/uring.rs`, which
/// has the measurement.
const EARLY: usize = 4;

/// A queue, its device, and the buffers of the jobs in flight.
///
/// Its use is similar to that of an `io_uring`:
///
/// | call | effect |
/// |---|---|
/// | [`queue`](Runner::queue) | adds a job; plugged, so that adjacent jobs merge |
/// | [`submit`](Runner::submit) | unplugs, and starts the jobs at the device; does not wait |
/// | [`wait`](Runner::wait) | submits, and blocks until a job has completed |
/// | [`reap`](Runner::reap) | collects completions without waiting |
/// | [`poll_completion`](Runner::poll_completion) | takes the next completed job; makes no system call |
/// | [`drain`](Runner::drain) | submits, and blocks until every job has completed |
///
/// For one thread at a time. Drop waits for the requests in flight.
pub struct Runner<D: ?Sized + RealDevice, B = PoolBuf> {
    // Dropped in this order: the device waits for its I/O on the buffers.
    pump: QueuedDevice<Box<D>>,
    jobs: Jobs<B>,
    /// The time of the current batch.
    now: Instant,
}

impl<D: ?Sized + RealDevice, B: IoBuf> fmt::Debug for Runner<D, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

/// An I/O on borrowed memory failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The queue refused it.
    #[error(transparent)]
    Refused(SubmitError<Segment>),
    /// The device reported an error.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl<D: ?Sized + RealDevice> Runner<D> {
    /// A queue with this configuration in front of `device`.
    ///
    /// # Panics
    /// If the device has requests in flight. Their tags could equal tags of the runner's own requests, whose memory
    /// would then be released while it is in use.
    pub fn new(device: Box<D>, config: &QueueConfig) -> Self {
        Self::for_buffers(device, config)
    }
}

impl<D: ?Sized + RealDevice, B: IoBuf> Runner<D, B> {
    /// Does the same as [`Runner::new`], for jobs with buffers of the type `B`.
    ///
    /// # Panics
    /// Panics like [`Runner::new`].
    pub fn for_buffers(device: Box<D>, config: &QueueConfig) -> Self {
        let foreign = device.in_flight();
        assert!(foreign == 0, "the device already has {foreign} requests in flight");
        let jobs = Jobs::new(config.bios_max.min(QueueConfig::SLOTS_MAX), device.fills_reads());
        Self { pump: QueuedDevice::new(device, config), jobs, now: Instant::ZERO }
    }

    /// Begins a batch of jobs at this time, which the caller has just read: [`Runner::queue`] then does not read the
    /// clock for the first job.
    #[inline]
    pub fn begin_batch(&mut self, now: Instant) {
        self.now = now.max(self.now);
        self.pump.plug();
    }

    /// The time at which the runner has last read the clock or begun a batch. After [`Runner::wait`], that of the
    /// completions.
    #[inline]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Queues a job. It stays plugged until [`Runner::submit`] or [`Runner::wait`]. A plug that overflows is dispatched
    /// at once, so that the device starts before the last job of a large batch is queued. So is a plug of four or more
    /// requests while the device has no more than these.
    ///
    /// # Errors
    /// [`Refused`], with the buffer, if the queue is full or the job does not fit the device.
    pub fn queue(&mut self, job: Job<B>) -> Result<(), Refused<B>> {
        // The table owns the buffer before the queue has the bio, and is dropped after the device.
        let bio = self.jobs.start(job);
        self.queue_bio(bio).map_err(|error| self.jobs.refuse(bio.token, error))?;
        if self.is_device_short() {
            self.pump.empty_plug(self.now);
            self.dispatch_and_commit();
        }
        Ok(())
    }

    /// Submits all queued jobs to the device, without waiting.
    pub fn submit(&mut self) {
        self.pump.unplug(self.now);
        self.dispatch_and_commit();
    }

    /// Submits all queued jobs and blocks until [`Runner::poll_completion`] has a job. Returns at once when no job is
    /// in flight.
    ///
    /// Waits for `gather` requests to complete, or for all requests at the device if these are fewer. Then each system
    /// call, interrupt and doorbell of the device serves several requests. There is no time limit: a timer for each
    /// wait would cost more than it saves, above all in a virtual machine.
    pub fn wait(&mut self, gather: u32) -> Result<(), WaitError> {
        if self.pump.is_plugged() && self.pump.queue().completions() > 0 {
            self.submit();
            return Ok(());
        }
        self.pump.unplug(self.now);
        while self.pump.queue().completions() == 0 && self.pump.queue().bios_in() > 0 {
            self.wait_for_device(gather)?;
        }
        Ok(())
    }

    /// The next completed job, as of the last [`Runner::wait`], [`Runner::reap`] or [`Runner::drain`].
    pub fn poll_completion(&mut self) -> Option<CompletedJob<B>> {
        loop {
            let done = self.pump.poll_completion()?;
            self.publish_log_if_idle();
            if !self.jobs.take_cancelled(done) {
                return Some(self.jobs.finish(done));
            }
        }
    }

    /// Cancels a job with this token: [`Runner::poll_completion`] will not return it. Its buffer is dropped when the
    /// device has completed it. `false` if there is none in flight.
    pub fn cancel(&mut self, token: u64) -> bool {
        self.jobs.cancel(token)
    }

    /// Collects completions without waiting, and dispatches further requests to the device. Plugged jobs stay plugged.
    pub fn reap(&mut self) {
        self.collect();
        self.dispatch_and_commit();
    }

    /// Submits all queued jobs and blocks until every job has completed. [`Runner::poll_completion`] returns them
    /// afterwards.
    pub fn drain(&mut self) -> Result<(), WaitError> {
        self.pump.unplug(self.now);
        while self.pump.queue().bios_in() as usize > self.pump.queue().completions() {
            self.wait_for_device(u32::MAX)?;
        }
        Ok(())
    }

    /// Jobs queued and not yet returned by [`Runner::poll_completion`].
    pub const fn in_flight(&self) -> u32 {
        self.pump.queue().bios_in()
    }

    /// Reads `extent` into `memory`, which has the same length, and returns when the I/O has completed.
    ///
    /// # Panics
    /// If jobs are in flight: owned and borrowed memory are not mixed in one runner.
    pub fn read(&mut self, extent: Extent, memory: &mut [u8]) -> Result<(), RunError> {
        // SAFETY: `run` returns after the I/O has completed, and the borrow lasts until then.
        let segment = unsafe { segment_mut(memory) };
        self.run(Bio::read(extent, segment, 0))
    }

    /// Writes `memory`, which has the same length, to `extent`, and returns when the I/O has completed; with `fua`,
    /// when the data is on the medium.
    ///
    /// # Panics
    /// Panics like [`Runner::read`].
    pub fn write(&mut self, extent: Extent, memory: &[u8], fua: bool) -> Result<(), RunError> {
        // SAFETY: `run` returns after the I/O has completed, and the borrow lasts until then; a write only reads
        // memory.
        let segment = unsafe { segment(memory) };
        self.run(Bio { fua, ..Bio::write(extent, segment, 0) })
    }

    /// Reads `extent` into several buffers, which have its length together, and returns when the I/O has completed. The
    /// plug merges their bios, as far as the limits of the device allow.
    ///
    /// # Panics
    /// Panics like [`Runner::read`].
    pub fn read_vectored(&mut self, extent: Extent, memory: &mut [IoSliceMut<'_>]) -> Result<(), RunError> {
        // SAFETY: `run_vectored` returns after the I/O has completed, and the borrows last until then.
        self.run_vectored(Op::Read, extent, memory.iter_mut().map(|part| unsafe { segment_mut(part) }), false)
    }

    /// Writes several buffers, which have its length together, to `extent`: see [`Runner::write`].
    ///
    /// # Panics
    /// Panics like [`Runner::read`].
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
    /// Panics like [`Runner::read`], and if the operation needs memory.
    pub fn command(&mut self, op: Op, extent: Extent) -> Result<(), RunError> {
        assert!(!op.has_memory(), "{op} needs memory");
        self.run(Bio { op, ..Bio::discard(extent, 0) })
    }

    /// System calls made for I/O so far.
    pub fn syscalls(&self) -> u64 {
        self.pump.device().syscalls()
    }

    /// The queue's statistics.
    pub const fn stats(&self) -> &QueueStats {
        self.pump.queue().stats()
    }

    /// From now on, records every step of every I/O in `sink`.
    pub fn start_log(&mut self, sink: Box<dyn LogSink>) {
        self.pump.queue_mut().start_log(sink);
    }

    /// Passes the pending records to the sink and drops it.
    pub fn end_log(&mut self) {
        self.pump.queue_mut().end_log();
    }

    /// Queues an I/O on a segment that the caller keeps alive until the I/O has completed. It stays plugged until
    /// [`Runner::submit`], or until the plug overflows: the page cache queues all its I/O at once, and a further system
    /// call would cost more than the device gains by an earlier submission.
    pub(crate) fn queue_segment(
        &mut self,
        op: Op,
        extent: Extent,
        memory: Option<Segment>,
        token: u64,
    ) -> Result<(), SubmitError<Segment>> {
        let bio = self.jobs.start_segment(op, extent, memory, token);
        self.queue_bio(bio).map_err(|error| self.jobs.refuse(bio.token, error).error)
    }

    /// A handle to wait for the device while other threads use this runner.
    pub(crate) fn watch(&self) -> Arc<dyn Watch> {
        self.pump.device().watch()
    }

    /// See [`RealDevice::end_watch`].
    pub(crate) fn end_watch(&mut self) {
        self.pump.device_mut().end_watch();
    }

    /// Whether I/O may bypass the queue without an effect: the queue has no elevator and no log.
    pub(crate) fn is_plain(&self) -> bool {
        self.pump.queue().elevator() == "none" && !self.pump.queue().is_logged()
    }

    /// Whether the queue passes flushes to the device, instead of completing them itself.
    pub(crate) fn has_volatile_cache(&self) -> bool {
        self.pump.queue().limits().volatile_cache
    }

    /// Whether a thread should reap: the device has requests in flight, or completed bios wait to be polled. Requests
    /// that the elevator holds back do not count, since only time advances them: see [`Runner::poll_timeout`].
    pub(crate) fn needs_reaping(&self) -> bool {
        self.pump.device().in_flight() > 0 || self.pump.queue().completions() > 0
    }

    /// Sets the notifier for work of [`Runner::reap`]: see [`RealDevice::set_notifier`]. Call it before the first job.
    ///
    /// # Errors
    /// If the device cannot notify, or the system refuses.
    pub fn set_notifier(&mut self, notifier: &Notifier) -> std::io::Result<()> {
        self.pump.device_mut().set_notifier(notifier)
    }

    /// The time at which [`Runner::reap`] has work that no watch or notifier announces. A wait by the watch must end at
    /// this time at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        // The queue itself completes some bios, such as the flush of a device without a cache. No device announces
        // these.
        let completed = (self.pump.queue().completions() > 0).then_some(self.now);
        [completed, self.pump.poll_timeout()].into_iter().flatten().min()
    }

    /// Sets the capacity of queue and device after a resize of the file.
    pub fn set_capacity(&mut self, sectors: u64) -> &mut Self {
        if self.pump.queue().limits().capacity != sectors {
            self.pump.device_mut().set_capacity(sectors);
            self.pump.queue_mut().set_capacity(sectors);
        }
        self
    }

    fn queue_bio(&mut self, bio: Bio<Segment>) -> Result<(), SubmitError<Segment>> {
        self.start_batch();
        self.pump.submit_bio(bio, self.now)?;
        if self.pump.queue().has_dispatchable() {
            self.dispatch_and_commit();
        }
        Ok(())
    }

    /// Whether the plug holds back as many requests as the device has, and enough for a system call. Many devices
    /// complete requests in bursts, so a caller that answers a burst with a new batch finds the device idle.
    fn is_device_short(&self) -> bool {
        let plugged = self.pump.queue().plugged();
        plugged >= EARLY && plugged >= self.pump.device().in_flight() as usize
    }

    fn run(&mut self, bio: Bio<Segment>) -> Result<(), RunError> {
        assert!(self.in_flight() == 0, "jobs are in flight");
        let on_unwind = AbortOnUnwind;
        self.start_batch();
        let submitted = self.pump.submit_bio(bio, self.now);
        if submitted.is_ok() && self.wait(1).is_err() {
            // The kernel uses the caller's memory and cannot report the end of that use. So there is no safe way to
            // return.
            std::process::abort();
        }
        std::mem::forget(on_unwind);
        submitted.map_err(RunError::Refused)?;
        let done = self.pump.poll_completion().expect("the only bio has completed when wait returns");
        self.publish_log_if_idle();
        Ok(done.result?)
    }

    fn run_vectored(
        &mut self,
        op: Op,
        extent: Extent,
        parts: impl Iterator<Item = Segment>,
        fua: bool,
    ) -> Result<(), RunError> {
        assert!(self.in_flight() == 0, "jobs are in flight");
        let on_unwind = AbortOnUnwind;
        let mut result = Ok(());
        for bio in bios_of(op, extent, parts, fua) {
            self.start_batch();
            let mut submitted = self.pump.submit_bio(bio, self.now);
            if matches!(submitted, Err(SubmitError::QueueFull(_))) {
                result = result.and(self.drain_borrowed());
                self.start_batch();
                submitted = self.pump.submit_bio(bio, self.now);
            }
            if result.is_err() || submitted.is_err() {
                result = result.and(submitted.map_err(RunError::Refused));
                break;
            }
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
        while let Some(done) = self.pump.poll_completion() {
            result = result.and(done.result.map_err(RunError::Io));
        }
        self.publish_log_if_idle();
        result
    }

    /// Publishes the records that the queue holds back, since the next I/O may come much later.
    fn publish_log_if_idle(&mut self) {
        if self.in_flight() == 0 {
            self.pump.queue_mut().publish_log();
        }
    }

    /// Reads the clock for the first bio of a batch; all bios of a batch have its time.
    fn start_batch(&mut self) {
        if !self.pump.is_plugged() {
            self.now = clock::now();
        }
    }

    fn dispatch_and_commit(&mut self) {
        self.pump.dispatch(self.now);
        self.pump.commit(self.now);
    }

    /// Dispatches, and waits until `gather` requests have completed or the elevator has a request due.
    fn wait_for_device(&mut self, gather: u32) -> Result<(), WaitError> {
        self.pump.dispatch(self.now);
        let due = self.pump.queue().poll_timeout().map(|due| due.saturating_since(clock::now()));
        if self.pump.device().in_flight() > 0 {
            self.pump.device_mut().commit_and_wait(gather.max(1), due)?;
        } else {
            self.sleep(due);
        }
        self.collect();
        Ok(())
    }

    /// Sleeps until the elevator has a request due. A wait in the idle device would return at once.
    ///
    /// # Panics
    /// If the elevator returns no time: a bug of the elevator.
    fn sleep(&self, due: Option<Duration>) {
        let elevator = self.pump.queue().elevator();
        let due = due.unwrap_or_else(|| panic!("{elevator} holds all requests back and names no time"));
        thread::sleep(due);
    }

    fn collect(&mut self) {
        self.now = clock::now();
        self.pump.collect(self.now);
    }
}

/// The bios of consecutive parts of an extent.
pub(crate) fn bios_of(
    op: Op,
    extent: Extent,
    parts: impl Iterator<Item = Segment>,
    fua: bool,
) -> impl Iterator<Item = Bio<Segment>> {
    let mut offset = extent.offset();
    parts.filter(|part| part.bytes() > 0).map(move |part| {
        // The bio of a part that is no whole number of sectors is refused: its memory differs in length.
        let extent = Extent::from_bytes(offset, part.bytes()).unwrap_or(Extent::EMPTY);
        offset = offset.saturating_add(part.bytes());
        Bio { op, fua, ..Bio::read(extent, part, 0) }
    })
}

/// # Safety
/// The conditions of [`Segment::new`] for memory that is written from.
pub(crate) unsafe fn segment(memory: &[u8]) -> Segment {
    // SAFETY: the caller's promise.
    unsafe { Segment::new(NonNull::from(memory).cast(), memory.len()) }
}

/// # Safety
/// The conditions of [`Segment::new`] for memory that is read into.
pub(crate) unsafe fn segment_mut(memory: &mut [u8]) -> Segment {
    let bytes = memory.len();
    // SAFETY: the caller's promise.
    unsafe { Segment::new(NonNull::from(memory).cast(), bytes) }
}

/// Aborts the process if a panic would unwind past memory that the kernel still writes to.
pub(crate) struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod waits;
