//! Completes every request at once and moves no byte: measures the cost of the path itself.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

use iopath_core::{BlockDevice, Busy, Completion, Duration, Instant, Io, Limits, Memory, Tag};

use super::{Notifier, RealDevice, WaitError};
use crate::memory::Segment;

/// Memory for this many requests is allocated at the start, if the limits allow as many.
const DEPTH_USUAL: u32 = 1 << 16;

/// A device with a size and no data. Reads leave the memory unchanged.
pub struct Null<M = Segment> {
    limits: Limits,
    over: VecDeque<Tag>,
    notifier: Option<Notifier>,
    memory: PhantomData<fn(M)>,
}

impl<M> fmt::Debug for Null<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Null").field("over", &self.over.len()).finish_non_exhaustive()
    }
}

impl<M: Memory> Null<M> {
    /// A device with these limits.
    pub fn new(limits: Limits) -> Self {
        let over = VecDeque::with_capacity(limits.depth_max.min(DEPTH_USUAL) as usize);
        Self { limits, over, notifier: None, memory: PhantomData }
    }
}

impl<M: Memory> BlockDevice for Null<M> {
    type Memory = M;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, M>, _now: Instant) -> Result<(), Busy> {
        if self.over.len() >= self.limits.depth_max as usize {
            return Err(Busy { tag: io.tag });
        }
        self.over.push_back(io.tag);
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {
        if let Some(notifier) = self.notifier.as_ref().filter(|_| !self.over.is_empty()) {
            notifier.notify();
        }
    }

    fn poll_completion(&mut self, _now: Instant) -> Option<Completion> {
        let Some(tag) = self.over.pop_front() else {
            // Starts over at the front of its memory, which is in the cache of the processor.
            self.over.clear();
            return None;
        };
        Some(Completion { tag, result: Ok(()) })
    }
}

// SAFETY: accesses no memory.
unsafe impl RealDevice for Null<Segment> {
    fn commit_and_wait(&mut self, _completions: u32, _timeout: Option<Duration>) -> Result<(), WaitError> {
        Ok(())
    }

    fn in_flight(&self) -> u32 {
        self.over.len() as u32
    }

    fn syscalls(&self) -> u64 {
        0
    }

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
    use iopath_core::{Extent, LengthOnly, Op};

    #[test]
    fn takes_depth_requests_and_completes_each_once() {
        let mut device = Null::<LengthOnly>::new(Limits { depth_max: 2, ..Limits::with_capacity(8) });
        let extent = Extent::from_bytes(0, 512).unwrap();
        let io = |bits| Io::new(Tag::from_bits(bits), Op::Read, extent, &[]);
        assert!(device.submit(&io(1), Instant::ZERO).is_ok());
        assert!(device.submit(&io(2), Instant::ZERO).is_ok());
        assert_eq!(device.submit(&io(3), Instant::ZERO), Err(Busy { tag: Tag::from_bits(3) }));
        let tags: Vec<u32> = std::iter::from_fn(|| device.poll_completion(Instant::ZERO))
            .map(|done| done.tag.to_bits())
            .collect();
        assert_eq!(tags, [1, 2]);
    }
}
