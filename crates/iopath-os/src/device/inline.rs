//! A device over storage of a program that executes each request in the thread that submits it. Orders nothing: see the
//! queue of the core.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use iopath_core::{BlockDevice, Busy, Completion, Duration, Instant, Io, IoError, Limits, Op};

use super::{Notifier, RealDevice, WaitError};
use crate::memory::Segment;

/// Storage of a program that executes requests at once, in the calling thread: under an [`InlineDevice`].
pub trait Execute: fmt::Debug {
    /// Executes a request.
    ///
    /// A read fills all of its memory, or the caller sees the previous content of the rest. A write is visible to all
    /// later reads. After a flush, or when a forced write ([`DeviceRequest::is_forced`]) has returned, the bytes of
    /// completed writes are durable, as far as the storage has durable bytes. A request may lie past the end after the
    /// storage has become shorter: [`IoError::EndOfDevice`].
    ///
    /// # Errors
    /// The request failed; a part of it may be executed.
    fn execute(&mut self, request: &mut DeviceRequest<'_>) -> Result<(), IoError>;
}

/// A request for [`Execute`], with access to its memory.
#[derive(Debug)]
pub struct DeviceRequest<'a> {
    io: &'a Io<'a, Segment>,
}

impl DeviceRequest<'_> {
    /// The operation.
    pub const fn op(&self) -> Op {
        self.io.op
    }

    /// The first byte on the device.
    pub const fn offset(&self) -> u64 {
        self.io.extent.offset()
    }

    /// The length in bytes: whole blocks, and 0 for a flush.
    pub const fn bytes(&self) -> u64 {
        self.io.extent.bytes()
    }

    /// The bytes on the device, as a range of a slice.
    pub const fn range(&self) -> Range<usize> {
        self.offset() as usize..(self.offset() + self.bytes()) as usize
    }

    /// Whether a write must be durable when it has completed. Only for a device with [`Limits::fua`].
    pub const fn is_forced(&self) -> bool {
        self.io.fua
    }

    /// Copies `source` to the memory of a read, from byte `at` of the request on.
    ///
    /// # Panics
    /// If the request is no read, or `source` reaches past its end.
    pub fn fill(&mut self, at: usize, source: &[u8]) {
        assert!(self.io.op == Op::Read, "{} has no memory to fill", self.io.op);
        self.each(at, source.len(), |segment, at, part| {
            // SAFETY: the request has not completed. The maker of the segment promised that until its completion the
            // memory is valid and may be written, and no other code uses it.
            unsafe { segment.fill_at(at, &source[part]) }
        });
    }

    /// Copies the bytes of a write, from byte `at` of the request on, to `target`.
    ///
    /// # Panics
    /// If the request is no write, or `target` is longer than the rest.
    pub fn copy_to(&self, at: usize, target: &mut [u8]) {
        assert!(self.io.op == Op::Write, "{} has no bytes to copy", self.io.op);
        self.each(at, target.len(), |segment, at, part| {
            // SAFETY: the request has not completed. The maker of the segment promised that until its completion the
            // memory is valid, initialised, and no code writes to it.
            unsafe { segment.copy_at(at, &mut target[part]) }
        });
    }

    /// Calls `act` with each segment of the `bytes` bytes from `at` on, the first byte in the segment, and the part of
    /// the `bytes`.
    fn each(&self, at: usize, bytes: usize, mut act: impl FnMut(Segment, usize, Range<usize>)) {
        let (mut skip, mut done) = (at, 0);
        for segment in self.io.segments() {
            let here = segment.len().saturating_sub(skip).min(bytes - done);
            if here > 0 {
                act(segment, skip, done..done + here);
            }
            done += here;
            skip = skip.saturating_sub(segment.len());
        }
        assert!(done == bytes, "{bytes} bytes from {at} on reach past {}", self.io.extent);
    }
}

/// A device over storage of a program. It executes each request at its submission.
pub struct InlineDevice<E> {
    storage: E,
    limits: Limits,
    over: VecDeque<Completion>,
    notifier: Option<Notifier>,
}

/// Without the storage, whose output the program determines.
impl<E> fmt::Debug for InlineDevice<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineDevice").field("over", &self.over.len()).finish_non_exhaustive()
    }
}

impl<E: Execute> InlineDevice<E> {
    /// A device with these limits.
    pub fn new(storage: E, limits: Limits) -> Self {
        Self { storage, limits, over: VecDeque::new(), notifier: None }
    }
}

impl<E: Execute> BlockDevice for InlineDevice<E> {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, Segment>, _now: Instant) -> Result<(), Busy> {
        if self.over.len() >= self.limits.depth_max as usize {
            return Err(Busy { tag: io.tag });
        }
        let result = self.storage.execute(&mut DeviceRequest { io });
        self.over.push_back(Completion { tag: io.tag, result });
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {
        if let Some(notifier) = self.notifier.as_ref().filter(|_| !self.over.is_empty()) {
            notifier.notify();
        }
    }

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        self.over.pop_front()
    }
}

// SAFETY: the storage has access to memory only during `execute`, before the request is reported as completed.
unsafe impl<E: Execute> RealDevice for InlineDevice<E> {
    fn commit_and_wait(&mut self, _completions: u32, _timeout: Option<Duration>) -> Result<(), WaitError> {
        Ok(())
    }

    fn set_capacity(&mut self, sectors: u64) {
        self.limits.capacity = sectors;
    }

    fn in_flight(&self) -> u32 {
        self.over.len() as u32
    }

    fn syscalls(&self) -> u64 {
        0
    }

    /// The program may fill less than the whole memory.
    fn fills_reads(&self) -> bool {
        false
    }

    /// Notifies in `commit`: every request has completed by then.
    fn set_notifier(&mut self, notifier: &Notifier) -> std::io::Result<()> {
        self.notifier = Some(notifier.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::{Extent, Tag};
    use std::ptr::NonNull;

    fn segment(memory: &mut [u8]) -> Segment {
        // SAFETY: the tests keep the memory while they use the segment, and access it only afterwards.
        unsafe { Segment::new(NonNull::from(&mut *memory).cast(), memory.len()) }
    }

    #[test]
    fn a_request_gives_access_to_each_byte_of_its_segments() {
        let mut memory: Vec<u8> = (0..2048).map(|byte| (byte / 7) as u8).collect();
        let before = memory.clone();
        let (one, two) = memory.split_at_mut(512);
        let segments = [segment(two), segment(one)];
        let extent = Extent::from_bytes(4096, 2048).unwrap();
        let write = Io::new(Tag::from_bits(0), Op::Write, extent, &segments);
        let request = DeviceRequest { io: &write };
        assert_eq!(request.range(), 4096..6144);
        let mut copy = vec![0; 1000];
        request.copy_to(1000, &mut copy);
        let expected: Vec<u8> = before[512..].iter().chain(&before[..512]).copied().collect();
        assert_eq!(copy, expected[1000..2000]);
        let read = Io::new(Tag::from_bits(0), Op::Read, extent, &segments);
        DeviceRequest { io: &read }.fill(1000, &[7; 1048]);
        assert!(memory[..512].iter().all(|byte| *byte == 7));
        assert!(memory[512..1512] == before[512..1512] && memory[1512..].iter().all(|byte| *byte == 7));
    }

    #[test]
    #[should_panic(expected = "reach past")]
    fn a_request_gives_no_access_past_its_end() {
        let mut memory = vec![0; 512];
        let segments = [segment(&mut memory)];
        let io = Io::new(Tag::from_bits(0), Op::Read, Extent::from_bytes(0, 512).unwrap(), &segments);
        DeviceRequest { io: &io }.fill(1, &[0; 512]);
    }
}
