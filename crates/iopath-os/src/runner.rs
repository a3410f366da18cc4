//! Runs a request queue on a real device in real time, and keeps the memory of its I/O alive meanwhile.
//!
//! The core decides what happens when, a device carries it out; this asks the clock, waits, and makes the
//! promise of [`Segment::new`]. Memory comes in one of two ways, both safe to use: as a [`PoolBuf`] handed
//! over and given back with the completion, or as a slice borrowed for a call that does not return before
//! the I/O on it has completed.

mod tune;

use iopath_core::{
    Bio, BioDone, Duration, Extent, Instant, IoError, LogSink, Memory, Op, Priority, QueueConfig, QueueStats,
    RequestQueue, Stream, SubmitError,
};
use slab::Slab;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::clock;
use crate::device::{RealDevice, WaitError, Watch};
use crate::memory::Segment;
use crate::pool::PoolBuf;
use crate::sync::thread;

/// A queue, its device, and the memory that is in flight.
///
/// For one thread at a time. Dropping it waits for what is at the device.
#[derive(Debug)]
pub struct Runner<D: ?Sized + RealDevice> {
    // Dropped in this order: the device waits for the I/O on the memory in `lent`.
    device: Box<D>,
    lent: Slab<Lent>,
    queue: RequestQueue<Segment>,
    is_plugged: bool,
    /// The time of the current batch.
    now: Instant,
}

/// What a bio in the queue belongs to; its token is the number here.
#[derive(Debug)]
struct Lent {
    op: Op,
    extent: Extent,
    buffer: Option<PoolBuf>,
    token: u64,
}

/// An I/O to be carried out on a buffer that is handed over for it.
#[derive(Debug)]
pub struct Job {
    /// What to do.
    pub op: Op,
    /// Where; empty for a flush.
    pub extent: Extent,
    /// For reads and writes: at least as long as the extent; its first bytes are used.
    pub buffer: Option<PoolBuf>,
    /// Write only: on the medium when complete.
    pub fua: bool,
    /// Whose it is.
    pub stream: Stream,
    /// How urgent it is, for elevators that heed it.
    pub priority: Priority,
    /// Comes back with the completion.
    pub token: u64,
}

/// A job that has completed.
#[derive(Debug)]
pub struct Finished {
    /// The token it was submitted with.
    pub token: u64,
    /// What was to be done.
    pub op: Op,
    /// Where.
    pub extent: Extent,
    /// The buffer it was submitted with.
    pub buffer: Option<PoolBuf>,
    /// Whole success, or the first error.
    pub result: Result<(), IoError>,
}

/// A job that was not taken. Refusing gives ownership back: the buffer is inside.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// Why.
    pub error: SubmitError<Segment>,
    /// The buffer it was submitted with.
    pub buffer: Option<PoolBuf>,
}

/// An I/O on borrowed memory that failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The queue did not take it.
    #[error(transparent)]
    Refused(SubmitError<Segment>),
    /// The device could not do it.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl<D: ?Sized + RealDevice> Runner<D> {
    /// A queue of that configuration in front of `device`.
    ///
    /// # Panics
    /// If the device has requests already: their tags could be those of the runner's own, whose memory would be
    /// given back while it is in use.
    pub fn new(device: Box<D>, config: &QueueConfig) -> Self {
        let foreign = device.in_flight();
        assert!(foreign == 0, "the device has {foreign} requests of somebody else's");
        let queue = RequestQueue::new(device.limits().clone(), config);
        let lent = Slab::with_capacity(config.bios_max.min(QueueConfig::SLOTS_MAX) as usize);
        Self { device, lent, queue, is_plugged: false, now: Instant::ZERO }
    }

    /// Takes a job. It is plugged: [`Runner::hand_over`] or [`Runner::wait`] sends it off with all others, or
    /// the next jobs do when they are more requests than the plug holds: the device need not be idle until the
    /// last is there.
    pub fn submit(&mut self, job: Job) -> Result<(), Refused> {
        self.plug();
        let Job { op, extent, buffer, fua, stream, priority, token } = job;
        let memory = match &buffer {
            Some(buffer) if op.has_memory() => {
                // SAFETY: the buffer is kept in `lent` until the bio has completed; if this is dropped or unwinds
                // before, the device goes first, and waits.
                let whole = unsafe { buffer.segment() };
                Some(whole.slice(0, extent.bytes().min(whole.bytes())))
            }
            _ => None,
        };
        // Lent before the queue sees it: whatever happens there, the memory stays.
        let number = self.lent.insert(Lent { op, extent, buffer, token });
        let bio = Bio { op, extent, memory, fua, stream, priority, token: number as u64 };
        self.take(bio).map_err(|error| Refused { error, buffer: self.lent.remove(number).buffer })
    }

    /// Sends off what was submitted, without waiting.
    pub fn hand_over(&mut self) {
        self.unplug();
        self.dispatch();
        self.device.commit(self.now);
    }

    /// Sends off what was submitted and waits until [`Runner::poll`] has something to give. Returns at once
    /// when there is nothing to wait for.
    ///
    /// Waits until `gather` requests have completed, or all that are at the device: others follow them together, and
    /// each system call, interrupt and doorbell of the device serves more of them. There is no time limit to
    /// that, since setting a timer for each wait would cost more than it saves, in a virtual machine above all.
    pub fn wait(&mut self, gather: u32) -> Result<(), WaitError> {
        self.unplug();
        while self.queue.completions() == 0 && self.queue.bios_in() > 0 {
            self.wait_for_device(gather)?;
        }
        Ok(())
    }

    /// The next job that has completed, as far as [`Runner::wait`] or [`Runner::look`] have seen it.
    pub fn poll(&mut self) -> Option<Finished> {
        let BioDone { token, result } = self.queue.poll_completion()?;
        self.rest_log_if_idle();
        let Lent { op, extent, buffer, token } = self.lent.remove(token as usize);
        Some(Finished { token, op, extent, buffer, result })
    }

    /// Sees which jobs have completed, without waiting. What was sent off goes on: as some have completed, the device takes
    /// those it had no room for. What is plugged stays so.
    pub fn look(&mut self) {
        self.collect();
        self.dispatch();
        self.device.commit(self.now);
    }

    /// Waits until all that was submitted has completed. [`Runner::poll`] gives it afterwards.
    pub fn settle(&mut self) -> Result<(), WaitError> {
        self.unplug();
        while self.queue.bios_in() as usize > self.queue.completions() {
            self.wait_for_device(u32::MAX)?;
        }
        Ok(())
    }

    /// Jobs taken and not yet given back by [`Runner::poll`].
    pub const fn jobs_in(&self) -> u32 {
        self.queue.bios_in()
    }

    /// Reads `extent` into `memory`, which is as long, and returns when that has completed.
    ///
    /// # Panics
    /// If jobs are in flight: borrowed and handed-over memory do not go through one runner at a time.
    pub fn read(&mut self, extent: Extent, memory: &mut [u8]) -> Result<(), RunError> {
        // SAFETY: `run` returns when the I/O has completed, and the borrow lasts till then.
        let segment = unsafe { Segment::new(NonNull::from(&mut *memory).cast(), memory.len()) };
        self.run(Bio::read(extent, segment, 0))
    }

    /// Writes `memory`, which is as long, to `extent`, and returns when that has completed; with `fua` on the medium.
    ///
    /// # Panics
    /// As [`Runner::read`].
    pub fn write(&mut self, extent: Extent, memory: &[u8], fua: bool) -> Result<(), RunError> {
        // SAFETY: `run` returns when the I/O has completed, and the borrow lasts till then; writes only look at it.
        let segment = unsafe { Segment::new(NonNull::from(memory).cast(), memory.len()) };
        self.run(Bio { fua, ..Bio::write(extent, segment, 0) })
    }

    /// Carries out a flush, discard or write-zeroes and returns when that has completed.
    ///
    /// # Panics
    /// As [`Runner::read`], and if the operation needs memory.
    pub fn command(&mut self, op: Op, extent: Extent) -> Result<(), RunError> {
        assert!(!op.has_memory(), "{op} needs memory");
        self.run(Bio { op, ..Bio::discard(extent, 0) })
    }

    /// System calls made for I/O so far.
    pub fn syscalls(&self) -> u64 {
        self.device.syscalls()
    }

    /// What the queue has done so far.
    pub const fn stats(&self) -> &QueueStats {
        self.queue.stats()
    }

    /// Tells `sink` of every step of every I/O from now on.
    pub fn start_log(&mut self, sink: Box<dyn LogSink>) {
        self.queue.start_log(sink);
    }

    /// Takes an I/O on memory that whoever made the segment keeps alive; plugged as by [`Runner::submit`].
    pub(crate) fn submit_segment(
        &mut self,
        op: Op,
        extent: Extent,
        memory: Option<Segment>,
        token: u64,
    ) -> Result<(), SubmitError<Segment>> {
        self.plug();
        let number = self.lent.insert(Lent { op, extent, buffer: None, token });
        let (fua, stream, priority) = (false, Stream(0), Priority::default());
        let bio = Bio { op, extent, memory, fua, stream, priority, token: number as u64 };
        self.take(bio).inspect_err(|_| {
            self.lent.remove(number);
        })
    }

    /// A way to wait for the device while others have this runner.
    pub(crate) fn watch(&self) -> Arc<dyn Watch> {
        self.device.watch()
    }

    /// See [`RealDevice::end_watch`].
    pub(crate) fn end_watch(&mut self) {
        self.device.end_watch();
    }

    /// Whether the queue does nothing but hand I/O on: it has no elevator and no log.
    pub(crate) fn is_plain(&self) -> bool {
        self.queue.elevator() == "none" && !self.queue.is_logged()
    }

    /// Requests at the device, and bios that have completed and not yet looked at: a flush of what has no cache has completed at
    /// once.
    pub(crate) fn in_flight(&self) -> u32 {
        self.device.in_flight() + self.queue.completions() as u32
    }

    /// When [`Runner::look`] has something to do although a watch says nothing. A wait by the watch ends then at the
    /// latest.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        // Bios that the queue has ended by itself have completed now, and no device knows of them.
        let over = (self.queue.completions() > 0).then_some(self.now);
        [over, self.queue.poll_timeout(), self.device.poll_timeout()].into_iter().flatten().min()
    }

    /// The same, with a device that ends after `sectors` sectors from now on: of a file that was resized.
    pub fn ending_at(&mut self, sectors: u64) -> &mut Self {
        if self.queue.limits().capacity != sectors {
            self.device.set_capacity(sectors);
            self.queue.set_capacity(sectors);
        }
        self
    }

    fn take(&mut self, bio: Bio<Segment>) -> Result<(), SubmitError<Segment>> {
        self.queue.submit_bio(bio, self.now)?;
        if self.queue.has_dispatchable() {
            self.dispatch();
            self.device.commit(self.now);
        }
        Ok(())
    }

    fn run(&mut self, bio: Bio<Segment>) -> Result<(), RunError> {
        assert!(self.queue.bios_in() == 0, "jobs are in flight");
        let on_unwind = AbortOnUnwind;
        self.plug();
        let submitted = self.queue.submit_bio(bio, self.now);
        if submitted.is_ok() && self.wait(1).is_err() {
            // The kernel holds the caller's memory and will not say when it is done with it: no way on.
            std::process::abort();
        }
        std::mem::forget(on_unwind);
        submitted.map_err(RunError::Refused)?;
        let done = self.queue.poll_completion().expect("wait returns when the only bio is over");
        self.rest_log_if_idle();
        Ok(done.result?)
    }

    /// Nobody knows when the next I/O comes: till then the log has what the queue holds back.
    fn rest_log_if_idle(&mut self) {
        if self.queue.bios_in() == 0 {
            self.queue.rest_log();
        }
    }

    /// Plugs for the first bio of a batch; all of a batch bear its time.
    fn plug(&mut self) {
        if !self.is_plugged {
            self.is_plugged = true;
            self.now = clock::now();
            self.queue.plug();
        }
    }

    fn unplug(&mut self) {
        if self.is_plugged {
            self.is_plugged = false;
            self.queue.unplug(self.now);
        }
    }

    fn dispatch(&mut self) {
        self.queue.handle_timeout(self.now);
        while let Some(io) = self.queue.poll_dispatch(self.now) {
            if let Err(busy) = self.device.submit(&io, self.now) {
                self.queue.requeue(busy.tag, self.now);
            }
        }
    }

    /// Gives the device what it takes, and waits until `gather` requests have completed or something else is due.
    fn wait_for_device(&mut self, gather: u32) -> Result<(), WaitError> {
        self.dispatch();
        let due = self.queue.poll_timeout().map(|due| due.saturating_since(clock::now()));
        if self.device.in_flight() > 0 {
            self.device.commit_and_wait(gather.max(1), due)?;
        } else {
            self.sleep(due);
        }
        self.collect();
        Ok(())
    }

    /// Waits for the elevator, which holds everything back: a device with nothing to do would return at once.
    ///
    /// # Panics
    /// If it says not how long: a bug of the elevator.
    fn sleep(&self, due: Option<Duration>) {
        let elevator = self.queue.elevator();
        let due = due.unwrap_or_else(|| panic!("{elevator} holds everything back and says not how long"));
        thread::sleep(due);
    }

    fn collect(&mut self) {
        self.now = clock::now();
        while let Some(over) = self.device.poll_completion(self.now) {
            self.queue.handle_completion(over.tag, over.result, self.now);
        }
    }
}

/// Ends the process rather than let a panic unwind past memory that the kernel still writes to.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod waits;
