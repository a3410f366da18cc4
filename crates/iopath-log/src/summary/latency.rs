//! Latencies of the bios of one stream or repeat. The latencies of stages are in `stages.rs`.

use super::histogram::Histogram;

/// Latencies of some bios, with percentiles if there is memory for them.
#[derive(Debug, Clone, Default)]
pub(super) struct Latencies {
    completed: u64,
    /// Wider than a time, so that no sum overflows.
    sum_ns: u128,
    max_ns: u64,
    percentiles: Option<Box<Histogram>>,
}

impl Latencies {
    /// With percentiles: 57 KiB.
    pub(super) fn with_percentiles() -> Self {
        Self { percentiles: Some(Box::new(Histogram::new(Histogram::COARSE_BITS))), ..Self::default() }
    }

    #[inline]
    pub(super) fn add(&mut self, nanos: u64) {
        self.completed += 1;
        self.sum_ns += u128::from(nanos);
        self.max_ns = self.max_ns.max(nanos);
        if let Some(percentiles) = &mut self.percentiles {
            percentiles.add(nanos);
        }
    }

    pub(super) const fn completed(&self) -> u64 {
        self.completed
    }

    pub(super) fn mean_ns(&self) -> f64 {
        if self.completed == 0 { 0.0 } else { self.sum_ns as f64 / self.completed as f64 }
    }

    pub(super) const fn max_ns(&self) -> u64 {
        self.max_ns
    }

    pub(super) fn quantile_ns(&self, share: f64) -> Option<u64> {
        let percentiles = self.percentiles.as_ref().filter(|_| self.completed > 0)?;
        Some(percentiles.quantile(share))
    }
}
