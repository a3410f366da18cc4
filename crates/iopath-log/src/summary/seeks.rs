//! Distances between requests at the device. `timeline.rs` orders the requests.

use super::histogram::Histogram;
use super::report;
use iopath_core::SECTOR_BYTES;

/// Distances between consecutive requests, in sectors.
#[derive(Debug)]
pub(super) struct Distances {
    /// Requests with a predecessor.
    requests: u64,
    backward: u64,
    /// Distances other than 0.
    sectors: Histogram,
}

impl Default for Distances {
    fn default() -> Self {
        Self { requests: 0, backward: 0, sectors: Histogram::new(Histogram::FINE_BITS) }
    }
}

impl Distances {
    fn add(&mut self, from: u64, to: u64) {
        self.requests += 1;
        if from != to {
            self.sectors.add(from.abs_diff(to));
            self.backward += u64::from(to < from);
        }
    }

    pub(super) fn report(&self) -> report::Seeks {
        let bytes = |share| self.sectors.quantile(share) * SECTOR_BYTES;
        report::Seeks {
            requests: self.requests,
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

/// The position of the device's head, if known.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Head {
    at: Option<u64>,
}

impl Head {
    /// The device executes a request. Requests without sectors (flushes) do not move the head.
    #[inline]
    pub(super) fn access(&mut self, sector: u64, sectors: u64, distances: &mut Distances) {
        if sectors == 0 {
            return;
        }
        if let Some(at) = self.at {
            distances.add(at, sector);
        }
        self.at = Some(sector + sectors);
    }
}
