//! How long each stage took, in histograms of constant size. Which record ends which stage: `join.rs`.

use super::report;
use super::slots::UNKNOWN;
use super::times::Times;

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

/// Times of the five stages.
#[derive(Debug)]
pub(super) struct StageTimes {
    times: [Times; 5],
}

impl Default for StageTimes {
    fn default() -> Self {
        Self { times: std::array::from_fn(|_| Times::new(Times::FINE_BITS)) }
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
        let stage = |stage: Stage| report(&self.times[stage as usize]);
        report::Stages {
            q2g: stage(Stage::Q2g),
            g2i: stage(Stage::G2i),
            i2d: stage(Stage::I2d),
            d2c: stage(Stage::D2c),
            q2c: stage(Stage::Q2c),
        }
    }
}

fn report(times: &Times) -> report::Stage {
    report::Stage {
        count: times.count(),
        mean_ns: times.mean(),
        min_ns: times.min(),
        p50_ns: times.quantile(0.5),
        p90_ns: times.quantile(0.9),
        p99_ns: times.quantile(0.99),
        p999_ns: times.quantile(0.999),
        max_ns: times.max(),
    }
}
