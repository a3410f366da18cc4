//! A device that measures its use in each window of a replay, and may have tighter limits than the device beneath.

use std::cell::RefCell;
use std::rc::Rc;

use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, Limits};

use super::tally::{Tally, Usage};

/// The measurements of a device, shared with the replay that owns the queue in front of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Gauge(Rc<RefCell<Readings>>);

#[derive(Debug, Default)]
struct Readings {
    window: usize,
    now: Usage,
    /// The sums of the windows before.
    past: Vec<(usize, Usage)>,
    in_flight: u32,
    busy_since_ns: u64,
    /// The end of the last request.
    head: Option<u64>,
}

impl Gauge {
    /// The requests of a later window begin.
    pub(super) fn begin_window(&self, window: usize, now_ns: u64) {
        let mut readings = self.0.borrow_mut();
        if window <= readings.window {
            return;
        }
        readings.note_busy(now_ns);
        let ended = (readings.window, std::mem::take(&mut readings.now));
        readings.past.push(ended);
        readings.window = window;
    }

    /// Adds the measurements to a tally.
    pub(super) fn add_to(&self, tally: &mut Tally) {
        let readings = self.0.borrow();
        for (window, usage) in readings.past.iter().chain([&(readings.window, readings.now)]) {
            tally.add_usage(*window, usage);
        }
    }
}

impl Readings {
    fn note_busy(&mut self, now_ns: u64) {
        if self.in_flight > 0 {
            self.now.busy_ns += u128::from(now_ns - self.busy_since_ns);
            self.busy_since_ns = now_ns;
        }
    }

    fn begin<M>(&mut self, io: &Io<'_, M>, now_ns: u64) {
        if self.in_flight == 0 {
            self.busy_since_ns = now_ns;
        }
        self.in_flight += 1;
        if !io.op.has_memory() {
            return;
        }
        let start = io.extent.start().0;
        self.now.ios += 1;
        self.now.bytes += io.extent.bytes();
        if let Some(head) = self.head {
            self.now.moves += 1;
            self.now.distance_sectors += u128::from(start.abs_diff(head));
        }
        self.head = Some(io.extent.end().0);
    }

    fn end(&mut self, now_ns: u64) {
        if self.in_flight == 1 {
            self.note_busy(now_ns);
        }
        self.in_flight -= 1;
    }
}

/// The limits that a replay sets below those of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tighter {
    /// The largest request in bytes.
    pub(super) request_bytes_max: Option<u64>,
    /// Whether a request may have only one segment, so that requests cannot merge.
    pub(super) is_unmerged: bool,
}

/// A device with a gauge.
#[derive(Debug)]
pub(super) struct Metered<D> {
    inner: D,
    limits: Limits,
    gauge: Gauge,
}

impl<D: BlockDevice> Metered<D> {
    pub(super) fn new(inner: D, tighter: Tighter, gauge: Gauge) -> Self {
        let below = inner.limits();
        let limits = Limits {
            request_bytes_max: tighter
                .request_bytes_max
                .map_or(below.request_bytes_max, |bytes| bytes.min(below.request_bytes_max)),
            segments_max: if tighter.is_unmerged { 1 } else { below.segments_max },
            ..below.clone()
        };
        Self { inner, limits, gauge }
    }
}

impl<D: BlockDevice> BlockDevice for Metered<D> {
    type Memory = D::Memory;

    #[inline]
    fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline]
    fn submit(&mut self, io: &Io<'_, D::Memory>, now: Instant) -> Result<(), Busy> {
        self.inner.submit(io, now)?;
        self.gauge.0.borrow_mut().begin(io, now.as_nanos());
        Ok(())
    }

    #[inline]
    fn commit(&mut self, now: Instant) {
        self.inner.commit(now);
    }

    #[inline]
    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        let done = self.inner.poll_completion(now)?;
        self.gauge.0.borrow_mut().end(now.as_nanos());
        Some(done)
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.inner.poll_timeout()
    }
}
