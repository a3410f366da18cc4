//! How long each stage took, in histograms of constant size. Which record ends which stage: `join.rs`.

use super::report;
use super::slots::UNKNOWN;
use hdrhistogram::Histogram;

/// A stage, as btt names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Queued, till it got a request slot.
    Q2g,
    /// Till it was inserted: in the plug.
    G2i,
    /// Till it was dispatched: in the elevator.
    I2d,
    /// Till it completed: at the device.
    D2c,
    /// Of a bio, from first to last.
    Q2c,
}

/// Times longer than an hour count as an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Times of the five stages.
#[derive(Debug)]
pub(super) struct StageTimes {
    times: [Times; 5],
}

impl Default for StageTimes {
    fn default() -> Self {
        Self { times: std::array::from_fn(|_| Times::new(LONGEST_NS)) }
    }
}

impl StageTimes {
    /// A stage that began and ended, unless its beginning is not known.
    #[inline]
    pub(super) fn add(&mut self, stage: Stage, from_ns: u64, to_ns: u64) {
        if from_ns != UNKNOWN {
            self.times[stage as usize].add(to_ns.saturating_sub(from_ns));
        }
    }

    pub(super) fn report(&self) -> report::Stages {
        let stage = |stage: Stage| self.times[stage as usize].report();
        report::Stages {
            q2g: stage(Stage::Q2g),
            g2i: stage(Stage::G2i),
            i2d: stage(Stage::I2d),
            d2c: stage(Stage::D2c),
            q2c: stage(Stage::Q2c),
        }
    }
}

/// A distribution of times or distances: three digits exact, sum and extremes exact.
#[derive(Debug)]
pub(super) struct Times {
    histogram: Histogram<u64>,
    sum: u128,
    min: u64,
    max: u64,
}

impl Times {
    pub(super) fn new(longest: u64) -> Self {
        let histogram = Histogram::new_with_bounds(1, longest, 3).expect("bounds that a histogram can have");
        Self { histogram, sum: 0, min: u64::MAX, max: 0 }
    }

    #[inline]
    pub(super) fn add(&mut self, value: u64) {
        self.histogram.saturating_record(value);
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub(super) fn mean(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum as f64 / self.count() as f64 }
    }

    pub(super) const fn max(&self) -> u64 {
        self.max
    }

    /// Not above the largest there was, which the histogram rounds up.
    pub(super) fn quantile(&self, share: f64) -> u64 {
        if self.count() == 0 { 0 } else { self.histogram.value_at_quantile(share).min(self.max) }
    }

    fn report(&self) -> report::Stage {
        report::Stage {
            count: self.count(),
            mean_ns: self.mean(),
            min_ns: if self.count() == 0 { 0 } else { self.min },
            p50_ns: self.quantile(0.5),
            p90_ns: self.quantile(0.9),
            p99_ns: self.quantile(0.99),
            p999_ns: self.quantile(0.999),
            max_ns: self.max,
        }
    }
}
