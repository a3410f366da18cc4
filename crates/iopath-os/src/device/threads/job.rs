//! One request of the threads engine, and the blocking system calls that execute it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use iopath_core::{Completion, Extent, Io, IoError, Op, Tag};

use crate::device::transfer::{Step, Transfer, skip};
use crate::memory::Segment;
use crate::sync::Instant;

use super::cost::Cost;

/// A request with its memory. Allocated once and reused.
#[derive(Debug)]
pub(super) struct Job {
    tag: Tag,
    transfer: Transfer,
    segments: Vec<Segment>,
    result: Result<(), IoError>,
}

impl Job {
    pub(super) fn with_segments_max(segments_max: usize) -> Self {
        let nothing = Io::<Segment>::new(Tag::from_bits(0), Op::Flush, Extent::EMPTY, &[]);
        let transfer = Transfer::new(&nothing, 0);
        Self { tag: nothing.tag, transfer, segments: Vec::with_capacity(segments_max), result: Ok(()) }
    }

    /// Sets the request, for a device of `capacity` sectors.
    ///
    /// # Panics
    /// If the memory is not as long as the extent: the kernel would access memory beyond it.
    pub(super) fn set(&mut self, io: &Io<'_, Segment>, capacity: u64) {
        self.segments.clear();
        self.segments.extend(io.segments());
        let bytes: usize = self.segments.iter().map(|segment| segment.len()).sum();
        let expected = if io.op.has_memory() { io.extent.bytes() } else { 0 };
        assert!(bytes as u64 == expected, "{} of {} has {bytes} bytes of memory", io.op, io.extent);
        self.tag = io.tag;
        self.transfer = Transfer::new(io, capacity);
    }

    /// Whether it is a read or write. Their cost predicts the cost of the next job.
    pub(super) fn transfers(&self) -> bool {
        self.transfer.op.has_memory()
    }

    pub(super) fn completion(&self) -> Completion {
        Completion { tag: self.tag, result: self.result }
    }
}

/// Makes the system calls of jobs, one job after another, on one thread.
#[derive(Debug)]
pub(super) struct Caller {
    file: Arc<File>,
    /// The logical block, in bytes.
    block: u64,
    iovecs: Vec<libc::iovec>,
    syscalls: u64,
}

// SAFETY: the iovecs are used only while a job is executed, by the thread that has the caller, and point to memory
// that any thread may access, as the makers of the segments promised.
unsafe impl Send for Caller {}

impl Caller {
    pub(super) fn new(file: &Arc<File>, block: u64, segments_max: usize) -> Self {
        Self { file: Arc::clone(file), block, iovecs: Vec::with_capacity(segments_max), syscalls: 0 }
    }

    /// Calls made so far.
    pub(super) const fn syscalls(&self) -> u64 {
        self.syscalls
    }

    /// Executes all jobs, and adds the time of a read or write to `cost`.
    pub(super) fn execute_all(&mut self, jobs: &mut VecDeque<Job>, cost: &Cost) {
        let Some(last) = jobs.back() else { return };
        let count = jobs.len() as u32;
        let transfers = last.transfers();
        let started = Instant::now();
        for job in jobs {
            self.execute(job);
        }
        if transfers {
            cost.add(started.elapsed() / count);
        }
    }

    fn execute(&mut self, job: &mut Job) {
        self.iovecs.clear();
        self.iovecs.extend(job.segments.iter().map(|segment| segment.iovec()));
        let Self { file, block, iovecs, syscalls } = self;
        job.result = execute(file, *block, &mut job.transfer, &job.segments, iovecs, syscalls);
    }
}

/// Makes system calls until a request has completed. `iovecs` describe `segments`.
fn execute(
    file: &File,
    block: u64,
    transfer: &mut Transfer,
    segments: &[Segment],
    iovecs: &mut [libc::iovec],
    syscalls: &mut u64,
) -> Result<(), IoError> {
    let mut used_up = 0;
    loop {
        let before = transfer.done();
        *syscalls += 1;
        match transfer.after(call(file, transfer, &iovecs[used_up..]), block) {
            Step::Done(result) => return result,
            Step::Again => {
                let moved = (transfer.done() - before) as usize;
                used_up += skip(&mut iovecs[used_up..], moved);
            }
            Step::ZeroFrom(end) => {
                zero_from(segments, end as usize);
                return Ok(());
            }
        }
    }
}

/// The maximum number of segments of [`transfer_now`].
pub(crate) const OWN_SEGMENTS_MAX: usize = 16;

/// Reads or writes `extent` of a file of `capacity` sectors in the calling thread, and blocks.
///
/// # Panics
/// If the memory is not as long as the extent: the kernel would access memory beyond it.
pub(crate) fn transfer_now(
    file: &File,
    block: u64,
    capacity: u64,
    (op, extent): (Op, Extent),
    segments: &ArrayVec<Segment, OWN_SEGMENTS_MAX>,
) -> Result<(), IoError> {
    let bytes: usize = segments.iter().map(|segment| segment.len()).sum();
    assert!(bytes as u64 == extent.bytes(), "a {op} of {extent} has {bytes} bytes of memory");
    let mut transfer = Transfer::new(&Io::new(Tag::from_bits(0), op, extent, segments), capacity);
    let mut iovecs: ArrayVec<libc::iovec, OWN_SEGMENTS_MAX> =
        segments.iter().map(|segment| segment.iovec()).collect();
    execute(file, block, &mut transfer, segments, &mut iovecs, &mut 0)
}

/// Flushes a file in the calling thread, and blocks: its bytes, and what is needed to find them.
///
/// # Errors
/// The error of the system. Bytes that were written since the last flush may be lost.
pub fn flush_now(file: &File) -> Result<(), IoError> {
    let mut transfer =
        Transfer::new(&Io::<Segment>::new(Tag::from_bits(0), Op::Flush, Extent::EMPTY, &[]), 0);
    execute(file, 1, &mut transfer, &[], &mut [], &mut 0)
}

/// One system call for the rest: bytes moved, or a negative error number.
fn call(file: &File, transfer: &Transfer, rest: &[libc::iovec]) -> i64 {
    let file = file.as_raw_fd();
    let position = transfer.position().cast_signed();
    let iovecs = rest.as_ptr();
    let count = i32::from(rest.len() as u16);
    // SAFETY: the iovecs describe the segments of a request that has not completed. Their makers promised that the
    // memory is valid until then, and writable for a read.
    let returned = unsafe {
        match transfer.op {
            Op::Read => libc::preadv2(file, iovecs, count, position, 0),
            Op::Write => libc::pwritev2(file, iovecs, count, position, transfer.rw_flags()),
            Op::Flush => libc::fdatasync(file) as isize,
            Op::Discard | Op::WriteZeroes => fallocate(file, transfer),
        }
    };
    if returned >= 0 {
        return returned as i64;
    }
    // A failed call sets an error number; EIO if the C library did not.
    -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

fn fallocate(file: RawFd, transfer: &Transfer) -> isize {
    let (position, left) = (transfer.position().cast_signed(), transfer.left().cast_signed());
    // SAFETY: all arguments are numbers.
    unsafe { libc::fallocate(file, transfer.fallocate_mode(), position, left) as isize }
}

/// Zeroes the memory of a read from byte `from` on.
fn zero_from(segments: &[Segment], mut from: usize) {
    for segment in segments {
        // SAFETY: the memory of a read that has not completed; no system call uses it now.
        unsafe { segment.zero_from(from.min(segment.len())) };
        from = from.saturating_sub(segment.len());
    }
}
