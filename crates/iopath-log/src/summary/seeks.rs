//! How far the head moved: the distance between where one dispatched request ends and the next starts.

use super::report;
use super::times::Times;
use iopath_core::{Extent, Record, SECTOR_BYTES};

/// Distances between requests, in sectors. Of all queues: each has a [`Head`] of its own.
#[derive(Debug)]
pub(super) struct Distances {
    /// Requests that a distance was taken to.
    of: u64,
    backward: u64,
    /// Those that are not zero.
    sectors: Times,
}

impl Default for Distances {
    fn default() -> Self {
        Self { of: 0, backward: 0, sectors: Times::new(Times::FINE_BITS) }
    }
}

impl Distances {
    fn add(&mut self, from: u64, to: u64) {
        self.of += 1;
        if from != to {
            self.sectors.add(from.abs_diff(to));
            self.backward += u64::from(to < from);
        }
    }

    pub(super) fn report(&self) -> report::Seeks {
        let bytes = |share| self.sectors.quantile(share) * SECTOR_BYTES;
        report::Seeks {
            requests: self.of,
            count: self.sectors.count(),
            backward: self.backward,
            mean_bytes: self.sectors.mean() * SECTOR_BYTES as f64,
            p50_bytes: bytes(0.5),
            p90_bytes: bytes(0.9),
            p99_bytes: bytes(0.99),
            max_bytes: self.sectors.max() * SECTOR_BYTES,
        }
    }
}

/// Where the head of one device is.
#[derive(Debug, Default)]
pub(super) struct Head {
    at: Option<u64>,
    /// The last request dispatched: the head has moved only if the device does not give it back.
    next: Option<Extent>,
}

impl Head {
    #[inline]
    pub(super) fn dispatch(&mut self, record: Record, distances: &mut Distances) {
        if record.sectors() > 0 {
            self.settle(distances);
            self.next = Some(record.extent());
        }
    }

    pub(super) fn take_back(&mut self, record: Record) {
        self.next = self.next.filter(|next| *next != record.extent());
    }

    /// The last request has not been given back.
    #[inline]
    pub(super) fn settle(&mut self, distances: &mut Distances) {
        if let Some(extent) = self.next.take() {
            if let Some(at) = self.at {
                distances.add(at, extent.start().0);
            }
            self.at = Some(extent.end().0);
        }
    }
}
