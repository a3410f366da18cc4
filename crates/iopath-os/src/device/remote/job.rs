//! One request of a remote device with its memory: the pieces to send, the pieces to receive into, and copies. It makes
//! no system call.

use std::collections::VecDeque;
use std::sync::Arc;

use iopath_core::{Completion, Io, IoError, Op, Tag};

use super::session::RemoteRequest;
use crate::device::completed::Completed;
use crate::memory::Segment;

/// A request with its memory. Allocated once and reused.
#[derive(Debug)]
pub(super) struct Job {
    tag: Tag,
    pub(super) request: RemoteRequest,
    segments: Vec<Segment>,
    result: Result<(), IoError>,
    /// System calls since the last completion.
    pub(super) syscalls: u32,
    /// The device to which it belongs.
    owner: Arc<Completed<Job>>,
}

impl Job {
    pub(super) fn new(segments_max: usize, owner: &Arc<Completed<Self>>) -> Self {
        let request = RemoteRequest { op: Op::Flush, offset: 0, length: 0, fua: false };
        let segments = Vec::with_capacity(segments_max);
        Self {
            tag: Tag::from_bits(0),
            request,
            segments,
            result: Ok(()),
            syscalls: 0,
            owner: Arc::clone(owner),
        }
    }

    /// Sets the request, for an export of `size_bytes`. A request may end after the export, in its last block: the part
    /// beyond is zeroes.
    ///
    /// # Panics
    /// If the memory is not as long as the extent: the kernel would access memory beyond it.
    pub(super) fn set(&mut self, io: &Io<'_, Segment>, size_bytes: u64) {
        self.segments.clear();
        self.segments.extend(io.segments());
        let expected = if io.op.has_memory() { io.extent.bytes() } else { 0 };
        assert!(self.memory_bytes() == expected, "{} of {}: other bytes of memory", io.op, io.extent);
        let (offset, bytes) = (io.extent.offset(), io.extent.bytes());
        let length = bytes.min(size_bytes.saturating_sub(offset));
        let offset = if io.op == Op::Flush { 0 } else { offset };
        (self.tag, self.syscalls) = (io.tag, 0);
        self.request = RemoteRequest { op: io.op, offset, length, fua: io.fua };
    }

    pub(super) fn owner(&self) -> &Arc<Completed<Self>> {
        &self.owner
    }

    fn memory_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len() as u64).sum()
    }

    pub(super) const fn completion(&self) -> Completion {
        Completion { tag: self.tag, result: self.result }
    }

    /// Whether it is a read.
    pub(super) fn reads(&self) -> bool {
        self.request.op == Op::Read
    }

    /// Ends the request. The memory of a read beyond the end of the export becomes zeroes.
    pub(super) fn end(&mut self, result: Result<(), IoError>) {
        if self.reads() && result.is_ok() {
            self.zero(self.request.length, self.memory_bytes());
        }
        self.result = result;
    }

    /// Appends the memory from byte `start` to byte `end`, up to the capacity of `iovecs`. Returns the bytes appended.
    pub(super) fn append_iovecs(
        &self,
        start: u64,
        end: u64,
        iovecs: &mut Vec<libc::iovec>,
        iovecs_max: usize,
    ) -> u64 {
        let (mut at, mut appended) = (0, 0);
        for segment in &self.segments {
            let next = at + segment.len() as u64;
            if next > start && at < end {
                if iovecs.len() == iovecs_max {
                    break;
                }
                let (from, to) = (start.max(at), end.min(next));
                let whole = segment.iovec();
                let iov_base = whole.iov_base.wrapping_byte_add((from - at) as usize);
                iovecs.push(libc::iovec { iov_base, iov_len: (to - from) as usize });
                appended += to - from;
            }
            at = next;
        }
        appended
    }

    /// Appends copies of the bytes of a write from byte `start` to byte `end`.
    pub(super) fn append_bytes(&self, start: u64, end: u64, target: &mut Vec<u8>) {
        assert!(self.request.op == Op::Write, "only writes have data");
        let mut at = 0;
        for segment in &self.segments {
            let next = at + segment.len() as u64;
            let (from, to) = (start.max(at), end.min(next));
            if from < to {
                // SAFETY: the memory of a write that has not completed.
                unsafe { segment.append_to((from - at) as usize, (to - at) as usize, target) };
            }
            at = next;
        }
    }

    /// Copies received bytes into the memory of a read, from byte `start` on.
    ///
    /// # Panics
    /// If the request is no read, or is shorter.
    pub(super) fn fill(&mut self, start: u64, bytes: &[u8]) {
        assert!(self.reads() && start + bytes.len() as u64 <= self.request.length, "data outside of a read");
        let (mut at, end) = (0, start + bytes.len() as u64);
        for segment in &self.segments {
            let next = at + segment.len() as u64;
            let (from, to) = (start.max(at), end.min(next));
            if from < to {
                let part = &bytes[(from - start) as usize..(to - start) as usize];
                // SAFETY: the memory of a read that has not completed; no system call uses it now.
                unsafe { segment.fill_at((from - at) as usize, part) };
            }
            at = next;
        }
    }

    /// Zeroes the memory of a read from byte `start` to byte `end`.
    ///
    /// # Panics
    /// If the request is no read.
    pub(super) fn zero(&mut self, start: u64, end: u64) {
        assert!(self.reads(), "only reads are zeroed");
        let mut at = 0;
        for segment in &self.segments {
            let next = at + segment.len() as u64;
            let (from, to) = (start.max(at), end.min(next));
            if from < to {
                // SAFETY: as in `fill`.
                unsafe { segment.zero((from - at) as usize, (to - at) as usize) };
            }
            at = next;
        }
    }
}

/// Passes completed jobs to their devices, in few calls. `one` is empty between calls.
pub(super) fn deliver(completed: &mut VecDeque<Job>, one: &mut VecDeque<Job>) {
    while let Some(job) = completed.pop_front() {
        let owner = Arc::clone(job.owner());
        one.push_back(job);
        while completed.front().is_some_and(|next| Arc::ptr_eq(next.owner(), &owner)) {
            one.extend(completed.pop_front());
        }
        owner.add(one);
    }
}
