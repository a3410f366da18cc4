//! A modelled disk for the unit tests of the block layer. It has a time for each request and no bytes.

use super::device::{BlockDevice, Busy, Completion, Io};
use super::limits::Limits;
use super::request::Tag;
use crate::memory::{LengthOnly, Memory};
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// The time from commit to completion of a request.
pub(crate) const SERVICE: Duration = Duration::from_micros(100);

/// Completes each request [`SERVICE`] after its commit, and counts the sectors moved.
pub(crate) struct TimedDisk {
    pub(crate) limits: Limits,
    /// The most requests in flight. It refuses others.
    pub(crate) depth: usize,
    /// Not yet committed.
    pub(crate) submitted: Vec<Tag>,
    /// With the time of completion.
    pub(crate) in_flight: VecDeque<(Instant, Tag)>,
    pub(crate) sectors_moved: u64,
}

impl TimedDisk {
    /// A disk of 512 MiB.
    pub(crate) fn new(depth: usize, block_bytes: u32) -> Self {
        let limits = Limits { logical_block_bytes: block_bytes, ..Limits::with_capacity(1 << 20) };
        Self { limits, depth, submitted: Vec::new(), in_flight: VecDeque::new(), sectors_moved: 0 }
    }
}

impl BlockDevice for TimedDisk {
    type Memory = LengthOnly;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, LengthOnly>, _now: Instant) -> Result<(), Busy> {
        assert!(self.limits.is_whole_blocks(io.extent), "{} is not whole blocks", io.extent);
        assert_eq!(io.segments().map(|segment| segment.bytes()).sum::<u64>(), io.extent.bytes());
        if self.submitted.len() + self.in_flight.len() >= self.depth {
            return Err(Busy { tag: io.tag });
        }
        self.submitted.push(io.tag);
        self.sectors_moved += io.extent.sectors();
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        self.in_flight.extend(self.submitted.drain(..).map(|tag| (now + SERVICE, tag)));
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        let (due, tag) = *self.in_flight.front()?;
        (due <= now).then(|| self.in_flight.pop_front())?;
        Some(Completion { tag, result: Ok(()) })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.front().map(|(due, _)| *due)
    }
}
