//! Jobs: the I/O that a thread queues and the completions that it polls, and the table of those in flight. `runner.rs`
//! and `shared/client.rs` submit and complete the jobs.

use std::fmt;

use iopath_core::{Bio, BioDone, Extent, IoError, Memory, Op, Priority, Stream, SubmitError};

use crate::io_buf::{IoBuf, segment_of, space_bytes, zeroed};
use crate::memory::Segment;
use crate::pool::PoolBuf;

/// An I/O on a buffer that the queue owns until the I/O has completed.
pub struct Job<B = PoolBuf> {
    /// The operation.
    pub op: Op,
    /// The sectors; empty for a flush.
    pub extent: Extent,
    /// For reads and writes only: at least as long as the extent. Only its first bytes are used.
    pub buffer: Option<B>,
    /// For writes only: the data is on the medium at completion.
    pub fua: bool,
    /// The stream of the job.
    pub stream: Stream,
    /// Its priority, for elevators that order by it.
    pub priority: Priority,
    /// Returned with the completion.
    pub token: u64,
}

/// A completed job.
pub struct CompletedJob<B = PoolBuf> {
    /// The job's token.
    pub token: u64,
    /// The job's operation.
    pub op: Op,
    /// The job's extent.
    pub extent: Extent,
    /// The job's buffer. After a read without an error, the bytes of the extent are initialised.
    pub buffer: Option<B>,
    /// Success of the whole job, or the first error.
    pub result: Result<(), IoError>,
}

/// A job that the queue refused. The error returns the buffer.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Refused<B = PoolBuf> {
    /// The reason.
    pub error: SubmitError<Segment>,
    /// The job's buffer.
    pub buffer: Option<B>,
}

impl<B> fmt::Debug for Job<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, extent, token, .. } = self;
        f.debug_struct("Job")
            .field("op", op)
            .field("extent", extent)
            .field("token", token)
            .finish_non_exhaustive()
    }
}

impl<B> fmt::Debug for CompletedJob<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, extent, token, result, .. } = self;
        let mut debug = f.debug_struct("CompletedJob");
        debug.field("op", op).field("extent", extent).field("token", token).field("result", result);
        debug.finish_non_exhaustive()
    }
}

impl<B> fmt::Debug for Refused<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

/// The jobs in flight, by number. It owns their buffers: the owner of the table drops it only when no device uses them.
///
/// A job is written to its slot field by field. A copy of the whole job would use loads wider than the stores that have
/// just written its fields. Such loads wait for the stores, which costs more than the rest of the insertion.
pub(crate) struct Jobs<B = PoolBuf> {
    slots: Vec<Slot<B>>,
    /// Slots without a job; the slot released last is used next.
    free: Vec<u32>,
    /// See [`RealDevice::fills_reads`](crate::RealDevice::fills_reads).
    fills_reads: bool,
}

struct Slot<B> {
    op: Op,
    extent: Extent,
    buffer: Option<B>,
    token: u64,
    is_used: bool,
    is_cancelled: bool,
}

impl<B: IoBuf> Jobs<B> {
    /// A table with space for `jobs_max` jobs in flight and for one more that the queue refuses. Within this limit it
    /// allocates nothing.
    pub(crate) fn new(jobs_max: u32, fills_reads: bool) -> Self {
        let slots = jobs_max as usize + 1;
        Self { slots: Vec::with_capacity(slots), free: Vec::with_capacity(slots), fills_reads }
    }

    pub(crate) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bio of a job. The table owns the job's buffer until [`Jobs::finish`] or [`Jobs::refuse`]. The token of the
    /// bio is the number of the job.
    #[expect(
        clippy::inline_always,
        reason = "a call would return the bio through memory, and the reader would wait for the stores: see `Jobs`"
    )]
    #[inline(always)]
    pub(crate) fn start(&mut self, job: Job<B>) -> Bio<Segment> {
        let Job { op, extent, buffer, fua, stream, priority, token } = job;
        let number = self.insert(op, extent, buffer, token);
        // The address is taken in the slot: a move of a box would end the validity of an earlier one.
        let memory = match &mut self.slots[number as usize].buffer {
            Some(buffer) if op.has_memory() => {
                if op == Op::Read && !self.fills_reads && (buffer.init_bytes() as u64) < extent.bytes() {
                    let bytes = space_bytes(buffer).min(extent.bytes() as usize);
                    zeroed(buffer, bytes);
                }
                // SAFETY: the buffer stays in this table, and is not used, until the bio has completed or was refused.
                // The table is dropped after the device, which waits for its requests, or leaked.
                let whole = unsafe { segment_of(buffer, op) };
                whole.map(|whole| whole.slice(0, extent.bytes().min(whole.bytes())))
            }
            _ => None,
        };
        Bio { op, extent, memory, fua, stream, priority, token: number.into() }
    }

    /// Does the same as [`Jobs::start`], for memory that the caller keeps alive until the job has completed.
    pub(crate) fn start_segment(
        &mut self,
        op: Op,
        extent: Extent,
        memory: Option<Segment>,
        token: u64,
    ) -> Bio<Segment> {
        let token = self.insert(op, extent, None, token).into();
        Bio { op, extent, memory, fua: false, stream: Stream(0), priority: Priority::default(), token }
    }

    /// Cancels a job with this token. Its buffer stays in the table until the bio has completed, and its completion is
    /// then for nobody: see [`Jobs::take_cancelled`]. `false` if there is none. O(jobs).
    pub(crate) fn cancel(&mut self, token: u64) -> bool {
        let mut slots = self.slots.iter_mut();
        let slot = slots.find(|slot| slot.is_used && !slot.is_cancelled && slot.token == token);
        slot.map(|slot| slot.is_cancelled = true).is_some()
    }

    /// Removes the job of a completed bio if it was cancelled.
    #[inline]
    pub(crate) fn take_cancelled(&mut self, done: BioDone) -> bool {
        let is_cancelled = std::mem::take(&mut self.slots[done.token as usize].is_cancelled);
        if is_cancelled {
            drop(self.finish(done));
        }
        is_cancelled
    }

    /// Removes a job whose bio has completed.
    ///
    /// # Panics
    /// If no job has that number.
    #[inline]
    pub(crate) fn finish(&mut self, done: BioDone) -> CompletedJob<B> {
        self.finish_with(done, true)
    }

    fn finish_with(&mut self, done: BioDone, has_run: bool) -> CompletedJob<B> {
        let number = done.token as u32;
        let slot = &mut self.slots[number as usize];
        assert!(std::mem::take(&mut slot.is_used), "there is no job {number}");
        self.free.push(number);
        let mut buffer = slot.buffer.take();
        if let (Op::Read, Ok(()), true, Some(buffer)) = (slot.op, done.result, has_run, &mut buffer) {
            // SAFETY: the bio had as many bytes of memory as its extent; the device has written all of them, or `start`
            // has zeroed them.
            unsafe { buffer.set_init(slot.extent.bytes() as usize) };
        }
        CompletedJob { token: slot.token, op: slot.op, extent: slot.extent, buffer, result: done.result }
    }

    /// Removes the job of that number, whose bio was refused.
    #[cold]
    pub(crate) fn refuse(&mut self, token: u64, error: SubmitError<Segment>) -> Refused<B> {
        Refused { error, buffer: self.finish_with(BioDone { token, result: Ok(()) }, false).buffer }
    }

    #[inline]
    fn insert(&mut self, op: Op, extent: Extent, buffer: Option<B>, token: u64) -> u32 {
        let number = match self.free.pop() {
            Some(number) => number,
            None => self.add_slot(),
        };
        let slot = &mut self.slots[number as usize];
        slot.op = op;
        slot.extent = extent;
        slot.buffer = buffer;
        slot.token = token;
        slot.is_used = true;
        number
    }

    #[cold]
    fn add_slot(&mut self) -> u32 {
        let number = self.slots.len() as u32;
        self.slots.push(Slot {
            op: Op::Flush,
            extent: Extent::EMPTY,
            buffer: None,
            token: 0,
            is_used: false,
            is_cancelled: false,
        });
        number
    }
}

impl<B> Default for Jobs<B> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), fills_reads: true }
    }
}

#[cfg(all(test, not(iopath_explore)))]
mod tests {
    use super::*;
    use crate::pool::BufferPool;

    fn job(token: u64, buffer: Option<PoolBuf>) -> Job {
        Job {
            op: Op::Read,
            extent: Extent::from_bytes(4096, 4096).unwrap(),
            buffer,
            fua: false,
            stream: Stream(0),
            priority: Priority::default(),
            token,
        }
    }

    fn done(token: u64) -> BioDone {
        BioDone { token, result: Ok(()) }
    }

    #[test]
    fn a_job_keeps_its_buffer_until_it_has_completed_and_its_number_is_used_again() {
        let pool = BufferPool::new(2, 8192).unwrap();
        let mut jobs = Jobs::new(1, true);
        let bios = [7, 8].map(|token| jobs.start(job(token, pool.take())));
        assert_eq!((bios.map(|bio| bio.token), jobs.len(), pool.take().is_none()), ([0, 1], 2, true));
        assert_eq!(bios.map(|bio| bio.memory.unwrap().bytes()), [4096; 2]);
        let finished = jobs.finish(done(0));
        assert_eq!((finished.token, finished.op, finished.buffer.is_some()), (7, Op::Read, true));
        drop(finished);
        assert_eq!(jobs.start(job(9, pool.take())).token, 0);
        assert_eq!([0, 1].map(|number| jobs.finish(done(number)).token), [9, 8]);
        assert!(jobs.is_empty());
    }

    #[test]
    fn no_insertion_within_the_limit_allocates() {
        let mut jobs = Jobs::new(3, true);
        let capacity = jobs.slots.capacity();
        let tokens = [1, 2, 3, 4].map(|token| jobs.start(job(token, None)).token);
        for token in tokens {
            jobs.finish(done(token));
        }
        assert_eq!((jobs.slots.capacity(), jobs.len()), (capacity, 0));
    }

    #[test]
    fn a_cancelled_job_keeps_its_buffer_until_its_bio_has_completed() {
        let pool = BufferPool::new(1, 4096).unwrap();
        let mut jobs = Jobs::new(2, true);
        let bios = [7, 7].map(|token| jobs.start(job(token, pool.take())));
        assert!(jobs.cancel(7) && jobs.cancel(7));
        assert!(!jobs.cancel(7) && !jobs.cancel(8), "each job is cancelled once");
        assert!(pool.take().is_none());
        assert!(jobs.take_cancelled(done(bios[0].token)));
        assert!(pool.take().is_some());
        assert_eq!(jobs.start(job(9, None)).token, 0, "the slot is used again");
        assert!(!jobs.take_cancelled(done(0)) && jobs.take_cancelled(done(1)));
        assert_eq!((jobs.finish(done(0)).token, jobs.is_empty()), (9, true));
    }

    #[test]
    #[should_panic(expected = "there is no job 0")]
    fn a_job_completes_once() {
        let mut jobs = Jobs::new(1, true);
        let bio = jobs.start(job(0, None));
        jobs.finish(done(bio.token));
        jobs.finish(done(bio.token));
    }
}
