//! Runs a request queue on a real device in real time, and keeps the memory of its I/O alive meanwhile.
//!
//! The core decides what happens when, a device carries it out; this asks the clock, waits, and makes the
//! promise of [`Segment::new`]. Memory comes in one of two ways, both safe to use: as a [`PoolBuf`] handed
//! over and given back with the completion, or as a slice borrowed for a call that does not return before
//! the I/O on it is over.

use iopath_core::{
    Bio, Duration, Extent, Instant, IoError, Memory, Op, QueueConfig, QueueStats, RequestQueue, Stream,
    SubmitError, UnknownElevator,
};
use slab::Slab;
use std::ptr::NonNull;

use crate::clock;
use crate::device::{RealDevice, WaitError};
use crate::memory::Segment;
use crate::pool::PoolBuf;

/// How long a request that is over waits for others to be over at most.
pub const LINGER: Duration = Duration::from_micros(200);

/// A queue, its device, and the memory that is under way.
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
    /// Comes back with the completion.
    pub token: u64,
}

/// A job that is over.
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
    pub fn new(device: Box<D>, config: &QueueConfig) -> Result<Self, UnknownElevator> {
        let queue = RequestQueue::new(device.limits().clone(), config)?;
        let lent = Slab::with_capacity(config.bios_max as usize);
        Ok(Self { device, lent, queue, is_plugged: false, now: Instant::ZERO })
    }

    /// Takes a job. It is plugged: [`Runner::hand_over`] or [`Runner::wait`] sends it off with all others.
    pub fn submit(&mut self, job: Job) -> Result<(), Refused> {
        self.plug();
        let Job { op, extent, buffer, fua, stream, token } = job;
        let memory = match &buffer {
            Some(buffer) if op.has_memory() => {
                // SAFETY: the buffer is kept in `lent` until the bio is over; if this is dropped or unwinds
                // before, the device goes first, and waits.
                let whole = unsafe { buffer.segment() };
                Some(whole.slice(0, extent.bytes().min(whole.bytes())))
            }
            _ => None,
        };
        let entry = self.lent.vacant_entry();
        let bio = Bio { op, extent, memory, fua, stream, token: entry.key() as u64 };
        match self.queue.submit_bio(bio, self.now) {
            Ok(()) => {
                entry.insert(Lent { op, extent, buffer, token });
                Ok(())
            }
            Err(error) => Err(Refused { error, buffer }),
        }
    }

    /// Sends off what was submitted, without waiting.
    pub fn hand_over(&mut self) {
        self.dispatch();
        self.device.commit(self.now);
    }

    /// Sends off what was submitted and waits until [`Runner::poll`] has something to give. Returns at once
    /// when there is nothing to wait for.
    ///
    /// Waits for up to `gather` requests to be over, but not longer for that than [`LINGER`]: requests that
    /// are over together are followed by others that go off together, and each system call, interrupt and
    /// doorbell of the device serves more of them.
    pub fn wait(&mut self, gather: u32) -> Result<(), WaitError> {
        while self.queue.completions() == 0 && self.queue.bios_in() > 0 {
            self.dispatch();
            let due = self.queue.poll_timeout().map(|due| due.saturating_since(clock::now()));
            if gather > 1 {
                self.device.commit_and_wait(gather, Some(due.unwrap_or(LINGER).min(LINGER)))?;
                self.collect();
                if self.queue.completions() > 0 {
                    break;
                }
            }
            self.device.commit_and_wait(1, due)?;
            self.collect();
        }
        Ok(())
    }

    /// The next job that is over, as far as [`Runner::wait`] or [`Runner::look`] have seen it.
    pub fn poll(&mut self) -> Option<Finished> {
        let done = self.queue.poll_completion()?;
        let Lent { op, extent, buffer, token } = self.lent.remove(done.token as usize);
        Some(Finished { token, op, extent, buffer, result: done.result })
    }

    /// Sees which jobs are over, without waiting.
    pub fn look(&mut self) {
        self.collect();
    }

    /// Jobs taken and not yet given back by [`Runner::poll`].
    pub const fn jobs_in(&self) -> u32 {
        self.queue.bios_in()
    }

    /// Reads `extent` into `memory`, which is as long, and returns when that is over.
    ///
    /// # Panics
    /// If jobs are under way: borrowed and handed-over memory do not go through one runner at a time.
    pub fn read(&mut self, extent: Extent, memory: &mut [u8]) -> Result<(), RunError> {
        // SAFETY: `run` returns when the I/O is over, and the borrow lasts till then.
        let segment = unsafe { Segment::new(NonNull::from(&mut *memory).cast(), memory.len()) };
        self.run(Bio::read(extent, segment, 0))
    }

    /// Writes `memory`, which is as long, to `extent`, and returns when that is over; with `fua` on the medium.
    ///
    /// # Panics
    /// As [`Runner::read`].
    pub fn write(&mut self, extent: Extent, memory: &[u8], fua: bool) -> Result<(), RunError> {
        // SAFETY: `run` returns when the I/O is over, and the borrow lasts till then; writes only look at it.
        let segment = unsafe { Segment::new(NonNull::from(memory).cast(), memory.len()) };
        self.run(Bio { fua, ..Bio::write(extent, segment, 0) })
    }

    /// Carries out a flush, discard or write-zeroes and returns when that is over.
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

    /// The queue, to change its elevator or look at its limits.
    pub const fn queue(&self) -> &RequestQueue<Segment> {
        &self.queue
    }

    fn run(&mut self, bio: Bio<Segment>) -> Result<(), RunError> {
        assert!(self.queue.bios_in() == 0, "jobs are under way");
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
        Ok(done.result?)
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
        self.unplug();
        self.queue.handle_timeout(self.now);
        while let Some(io) = self.queue.poll_dispatch(self.now) {
            if let Err(busy) = self.device.submit(&io, self.now) {
                self.queue.requeue(busy.tag, self.now);
            }
        }
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
