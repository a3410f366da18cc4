//! Latencies of the stages, in histograms of constant size. `join.rs` assigns records to stages.

use super::histogram::Histogram;
use super::report;
use super::slots::UNKNOWN;

/// A stage, as btt names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// A bio waits for its request slot.
    Q2g,
    /// The request is in the plug.
    G2i,
    /// The request is in the elevator.
    I2d,
    /// The request is at the device.
    D2c,
    /// The whole time from the queueing of a bio to its completion.
    Q2c,
}

/// Latencies of the five stages.
#[derive(Debug)]
pub(super) struct StageTimes {
    times: [Histogram; 5],
}

impl Default for StageTimes {
    fn default() -> Self {
        Self { times: std::array::from_fn(|_| Histogram::new(Histogram::FINE_BITS)) }
    }
}

impl StageTimes {
    /// A stage has ended; it is counted if its start is known.
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

fn report(latencies: &Histogram) -> report::Stage {
    report::Stage {
        count: latencies.count(),
        // A latency of 0: one reading of the clock for both ends.
        timed: latencies.nonzero(),
        mean_ns: latencies.mean(),
        min_ns: latencies.min(),
        p50_ns: latencies.quantile(0.5),
        p90_ns: latencies.quantile(0.9),
        p99_ns: latencies.quantile(0.99),
        p999_ns: latencies.quantile(0.999),
        max_ns: latencies.max(),
    }
}
