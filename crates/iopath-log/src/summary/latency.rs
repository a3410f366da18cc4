//! Latencies of the bios of one stream or repeat. The latencies of stages are in `stages.rs`.

use super::histogram::Histogram;

/// Latencies of some bios.
#[derive(Debug, Clone)]
pub(super) enum Latencies {
    /// A histogram, which has percentiles.
    Counted(Box<Histogram>),
    /// Sums, where there is no memory for a histogram. The sum is wider than a time, so that it does not overflow.
    Summed { completed: u64, sum_ns: u128, max_ns: u64 },
}

impl Default for Latencies {
    fn default() -> Self {
        Self::Summed { completed: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Latencies {
    /// With percentiles: 29 KiB.
    pub(super) fn with_percentiles() -> Self {
        Self::Counted(Box::new(Histogram::new(Histogram::COARSE_BITS)))
    }

    #[inline]
    pub(super) fn add(&mut self, nanos: u64) {
        match self {
            Self::Counted(histogram) => histogram.add(nanos),
            Self::Summed { completed, sum_ns, max_ns } => {
                *completed += 1;
                *sum_ns += u128::from(nanos);
                *max_ns = nanos.max(*max_ns);
            }
        }
    }

    pub(super) const fn completed(&self) -> u64 {
        match self {
            Self::Counted(histogram) => histogram.count(),
            Self::Summed { completed, .. } => *completed,
        }
    }

    pub(super) fn mean_ns(&self) -> f64 {
        match self {
            Self::Counted(histogram) => histogram.mean(),
            Self::Summed { completed: 0, .. } => 0.0,
            Self::Summed { completed, sum_ns, .. } => *sum_ns as f64 / *completed as f64,
        }
    }

    pub(super) const fn max_ns(&self) -> u64 {
        match self {
            Self::Counted(histogram) => histogram.max(),
            Self::Summed { max_ns, .. } => *max_ns,
        }
    }

    pub(super) fn quantile_ns(&self, share: f64) -> Option<u64> {
        match self {
            Self::Counted(histogram) if histogram.count() > 0 => Some(histogram.quantile(share)),
            _ => None,
        }
    }
}
