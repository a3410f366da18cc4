//! Runs a request queue on a real device in real time, and keeps the memory of its I/O alive meanwhile.
//!
//! The core decides what happens when, a device carries it out; this asks the clock, waits, and makes the
//! promise of [`Segment::new`]. Memory comes in one of two ways, both safe to use: as a [`PoolBuf`] handed
//! over and given back with the completion, or as a slice borrowed for a call that does not return before
//! the I/O on it is over.

use iopath_core::{
    Bio, Extent, Instant, IoError, LogSink, Memory, Op, Priority, QueueConfig, QueueStats, RequestQueue,
    Stream, SubmitError,
};
use slab::Slab;
use std::ptr::NonNull;

use crate::clock;
use crate::device::{RealDevice, WaitError};
use crate::memory::Segment;
use crate::pool::PoolBuf;

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
    ///
    /// # Panics
    /// If the device has requests already: their tags could be those of the runner's own, whose memory would be
    /// given back while it is in use.
    pub fn new(device: Box<D>, config: &QueueConfig) -> Self {
        let foreign = device.in_flight();
        assert!(foreign == 0, "the device has {foreign} requests of somebody else's");
        let queue = RequestQueue::new(device.limits().clone(), config);
        let lent = Slab::with_capacity(config.bios_max as usize);
        Self { device, lent, queue, is_plugged: false, now: Instant::ZERO }
    }

    /// Takes a job. It is plugged: [`Runner::hand_over`] or [`Runner::wait`] sends it off with all others, or
    /// the next jobs do when they are more requests than the plug holds: the device need not be idle until the
    /// last is there.
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
        // Lent before the queue sees it: whatever happens there, the memory stays.
        let number = self.lent.insert(Lent { op, extent, buffer, token });
        let bio =
            Bio { op, extent, memory, fua, stream, priority: Priority::default(), token: number as u64 };
        if let Err(error) = self.queue.submit_bio(bio, self.now) {
            return Err(Refused { error, buffer: self.lent.remove(number).buffer });
        }
        if self.queue.has_dispatchable() {
            self.dispatch();
            self.device.commit(self.now);
        }
        Ok(())
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
    /// Waits until `gather` requests are over, or all that are at the device: others follow them together, and
    /// each system call, interrupt and doorbell of the device serves more of them. There is no time limit to
    /// that, since setting a timer for each wait would cost more than it saves, in a virtual machine above all.
    pub fn wait(&mut self, gather: u32) -> Result<(), WaitError> {
        self.unplug();
        while self.queue.completions() == 0 && self.queue.bios_in() > 0 {
            self.dispatch();
            let due = self.queue.poll_timeout().map(|due| due.saturating_since(clock::now()));
            self.device.commit_and_wait(gather.max(1), due)?;
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

    /// Sees which jobs are over, without waiting. What was sent off goes on: as some are over, the device takes
    /// those it had no room for. What is plugged stays so.
    pub fn look(&mut self) {
        self.collect();
        self.dispatch();
        self.device.commit(self.now);
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

    /// Tells `sink` of every step of every I/O from now on.
    pub fn start_log(&mut self, sink: Box<dyn LogSink>) {
        self.queue.start_log(sink);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{MemoryConfig, MemoryDevice, MemoryDisk};
    use crate::pool::BufferPool;
    use iopath_core::{BlockDevice, Io, Tag};

    fn device(sectors: u64) -> MemoryDevice {
        MemoryDisk::new(&MemoryConfig::of_bytes(sectors * 512)).unwrap().open()
    }

    fn runner(sectors: u64) -> Runner<MemoryDevice> {
        let config = QueueConfig { bios_max: 4, ..QueueConfig::default() };
        Runner::new(Box::new(device(sectors)), &config)
    }

    fn extent(block: u64, blocks: u64) -> Extent {
        Extent::from_bytes(block * 4096, blocks * 4096).unwrap()
    }

    fn job(op: Op, block: u64, buffer: PoolBuf, token: u64) -> Job {
        Job { op, extent: extent(block, 1), buffer: Some(buffer), fua: false, stream: Stream(0), token }
    }

    #[test]
    fn a_buffer_comes_back_with_its_token_and_what_was_read() {
        let (mut runner, pool) = (runner(64), BufferPool::new(4, 4096).unwrap());
        for token in 0..4 {
            let mut buffer = pool.take().unwrap();
            buffer.fill(token as u8 + 1);
            runner.submit(job(Op::Write, token, buffer, token)).unwrap();
        }
        assert!(pool.take().is_none(), "all are lent");
        runner.wait(1).unwrap();
        while let Some(done) = runner.poll() {
            done.result.unwrap();
        }
        runner.submit(job(Op::Read, 2, pool.take().unwrap(), 9)).unwrap();
        runner.wait(1).unwrap();
        let done = runner.poll().unwrap();
        assert_eq!((done.token, done.extent, runner.jobs_in()), (9, extent(2, 1), 0));
        assert!(done.buffer.unwrap().iter().all(|byte| *byte == 3));
    }

    #[test]
    fn refusing_gives_the_buffer_back() {
        let (mut runner, pool) = (runner(64), BufferPool::new(1, 4096).unwrap());
        let refused = runner.submit(job(Op::Read, 8, pool.take().unwrap(), 0)).unwrap_err();
        assert!(matches!(refused.error, SubmitError::OutOfRange { capacity: 64, .. }), "{refused}");
        assert!(refused.buffer.is_some() && runner.jobs_in() == 0);
        let small = Job { extent: extent(0, 2), ..job(Op::Read, 0, refused.buffer.unwrap(), 0) };
        let refused = runner.submit(small).unwrap_err();
        assert!(matches!(refused.error, SubmitError::MemoryMismatch { memory_bytes: 4096, .. }), "{refused}");
    }

    #[test]
    fn borrowed_memory_is_written_and_read() {
        let mut runner = runner(64);
        let written: Vec<u8> = (0..8192_u32).map(|index| (index % 251) as u8).collect();
        runner.write(extent(1, 2), &written, true).unwrap();
        let mut read = vec![0; 8192];
        runner.read(extent(1, 2), &mut read).unwrap();
        assert_eq!(read, written);
        assert!(
            matches!(runner.read(extent(1, 1), &mut read), Err(RunError::Refused(_))),
            "length and extent differ"
        );
        runner.command(Op::Flush, Extent::EMPTY).unwrap();
    }

    #[test]
    fn dropped_with_jobs_under_way_it_gives_their_buffers_back() {
        let (mut runner, pool) = (runner(64), BufferPool::new(1, 4096).unwrap());
        runner.submit(job(Op::Read, 0, pool.take().unwrap(), 0)).unwrap();
        drop(runner);
        assert!(pool.take().is_some());
    }

    #[test]
    #[should_panic(expected = "2 requests of somebody else's")]
    fn a_device_with_requests_of_somebody_elses_is_not_taken() {
        let mut device = device(64);
        for bits in [1, 2] {
            let flush = Io::new(Tag::from_bits(bits), Op::Flush, Extent::EMPTY, &[]);
            device.submit(&flush, clock::now()).unwrap();
        }
        // Their completions would pass for those of the runner's own, and give away memory that is in use.
        let _ = Runner::new(Box::new(device), &QueueConfig::default());
    }
}
