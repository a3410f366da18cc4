//! A device that counts the requests that it accepts: the disk counters of a modelled disk.

use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, Limits, Op};

use crate::counters::DiskCounters;

/// Counts the reads and writes of another device.
#[derive(Debug)]
pub(crate) struct Counted<D> {
    inner: D,
    counters: DiskCounters,
}

impl<D> Counted<D> {
    pub(super) fn new(inner: D) -> Self {
        let counters = DiskCounters::default();
        Self { inner, counters }
    }

    /// The requests accepted so far.
    pub(super) fn counters(&self) -> DiskCounters {
        self.counters
    }
}

impl<D: BlockDevice> BlockDevice for Counted<D> {
    type Memory = D::Memory;

    #[inline]
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    #[inline]
    fn submit(&mut self, io: &Io<'_, D::Memory>, now: Instant) -> Result<(), Busy> {
        self.inner.submit(io, now)?;
        let counters = &mut self.counters;
        match io.op {
            Op::Read => {
                counters.reads += 1;
                counters.read_bytes += io.extent.bytes();
            }
            Op::Write => {
                counters.writes += 1;
                counters.written_bytes += io.extent.bytes();
            }
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn commit(&mut self, now: Instant) {
        self.inner.commit(now);
    }

    #[inline]
    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.inner.poll_completion(now)
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.inner.poll_timeout()
    }
}
