//! A device whose medium is memory. Copies at submission; has no cache to lose and survives nothing.

use std::collections::VecDeque;

use iopath_core::{
    BlockDevice, Busy, Completion, Duration, Extent, Instant, Io, IoError, Limits, Op, SECTOR_BYTES,
};

use super::{Bell, RealDevice, WaitError};
use crate::aligned::{AlignedBuf, NoMemory};
use crate::memory::Segment;

/// The most requests at once.
const DEPTH_MAX: u32 = 1024;

/// Bytes in memory behind the face of a disk. Zeroes at first.
#[derive(Debug)]
pub struct Ram {
    bytes: AlignedBuf,
    limits: Limits,
    over: VecDeque<Completion>,
}

impl Ram {
    /// A disk of `sectors` sectors.
    pub fn new(sectors: u64) -> Result<Self, NoMemory> {
        let bytes = sectors
            .checked_mul(SECTOR_BYTES)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| NoMemory { bytes: usize::MAX, source: std::io::ErrorKind::OutOfMemory.into() })?;
        let limits = Limits {
            depth_max: DEPTH_MAX,
            discard_bytes_max: bytes as u64,
            write_zeroes_bytes_max: bytes as u64,
            ..Limits::with_capacity(sectors)
        };
        let over = VecDeque::with_capacity(DEPTH_MAX as usize);
        Ok(Self { bytes: AlignedBuf::new(bytes)?, limits, over })
    }

    fn carry_out(&mut self, io: &Io<'_, Segment>) -> Result<(), IoError> {
        let range = self.range(io.extent).ok_or(IoError::EndOfDevice)?;
        let medium = &mut self.bytes[range];
        match io.op {
            Op::Read | Op::Write => transfer(io, medium),
            Op::Discard | Op::WriteZeroes => medium.fill(0),
            Op::Flush => {}
        }
        Ok(())
    }

    fn range(&self, extent: Extent) -> Option<std::ops::Range<usize>> {
        let range = extent.offset() as usize..extent.offset() as usize + extent.bytes() as usize;
        (range.end <= self.bytes.len()).then_some(range)
    }
}

fn transfer(io: &Io<'_, Segment>, medium: &mut [u8]) {
    let mut rest = medium;
    for segment in io.segments() {
        let (part, after) = rest.split_at_mut(segment.len());
        // SAFETY: whoever made the segment promised that the memory is there and ours until this request completes,
        // which it has not; which of the two directions it is for, they chose with the operation.
        unsafe {
            if io.op == Op::Read {
                segment.fill_from(part);
            } else {
                segment.copy_to(part);
            }
        }
        rest = after;
    }
    assert!(rest.is_empty(), "{} of {} came with {} bytes too few", io.op, io.extent, rest.len());
}

impl BlockDevice for Ram {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    /// # Panics
    /// If the request's memory is not as long as its extent: a bug of the caller.
    fn submit(&mut self, io: &Io<'_, Segment>, _now: Instant) -> Result<(), Busy> {
        if self.over.len() >= DEPTH_MAX as usize {
            return Err(Busy { tag: io.tag });
        }
        let result = self.carry_out(io);
        self.over.push_back(Completion { tag: io.tag, result });
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {}

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        self.over.pop_front()
    }
}

// SAFETY: copies before it reports a request as over, and keeps nothing of one that is.
unsafe impl RealDevice for Ram {
    fn commit_and_wait(&mut self, _completions: u32, _timeout: Option<Duration>) -> Result<(), WaitError> {
        Ok(())
    }

    fn in_flight(&self) -> u32 {
        self.over.len() as u32
    }

    fn syscalls(&self) -> u64 {
        0
    }

    /// Never rings: what it takes is over at once.
    fn ring_when_over(&mut self, _bell: &Bell) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::Tag;
    use std::ptr::NonNull;

    fn segment(memory: &mut [u8]) -> Segment {
        // SAFETY: the device is done with it when `submit` returns, and the memory is looked at only then.
        unsafe { Segment::new(NonNull::from(&mut *memory).cast(), memory.len()) }
    }

    fn run(device: &mut Ram, op: Op, offset: u64, bytes: u64, memory: &[Segment]) -> Result<(), IoError> {
        let extent = Extent::from_bytes(offset, bytes).unwrap();
        device.submit(&Io::new(Tag::from_bits(7), op, extent, memory), Instant::ZERO).unwrap();
        device.poll_completion(Instant::ZERO).unwrap().result
    }

    #[test]
    fn reads_what_was_written_across_segments() {
        let mut device = Ram::new(16).unwrap();
        let mut data: Vec<u8> = (0..2048).map(|i| (i % 251) as u8).collect();
        let expected = data.clone();
        let (a, b) = data.split_at_mut(512);
        assert_eq!(run(&mut device, Op::Write, 1024, 2048, &[segment(a), segment(b)]), Ok(()));
        let mut back = vec![1; 4096];
        assert_eq!(run(&mut device, Op::Read, 0, 4096, &[segment(&mut back)]), Ok(()));
        assert!(back[..1024].iter().all(|&byte| byte == 0));
        assert_eq!(back[1024..3072], expected);
        assert_eq!(run(&mut device, Op::Discard, 1024, 512, &[]), Ok(()));
        assert_eq!(run(&mut device, Op::Read, 1024, 1024, &[segment(&mut back[..1024])]), Ok(()));
        assert!(back[..512].iter().all(|&byte| byte == 0));
        assert_eq!(back[512..1024], expected[512..1024]);
    }

    #[test]
    fn past_its_end_is_an_error() {
        let mut device = Ram::new(2).unwrap();
        let mut memory = [0; 1024];
        assert_eq!(run(&mut device, Op::Read, 512, 1024, &[segment(&mut memory)]), Err(IoError::EndOfDevice));
    }
}
