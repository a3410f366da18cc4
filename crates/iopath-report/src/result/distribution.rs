//! The distribution of latencies: percentiles and classes as fio has them. [`Latency`](super::Latency) has the few
//! figures of a table.

use serde::{Deserialize, Serialize};

use super::Latencies;

/// The percentiles of a distribution: the ones that fio prints by default.
pub const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// The bounds of the classes within a factor of 1000.
const BOUNDS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// The distribution of the timed transfers, over all repetitions.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatencyDistribution {
    /// Transfers that were timed.
    pub count: u64,
    /// The standard deviation, in nanoseconds.
    pub stddev: f64,
    /// A latency in nanoseconds for each of [`PERCENTILES`].
    pub percentiles: Vec<u64>,
    /// The classes that are not empty: the upper bound in nanoseconds, included, and the number of transfers. The
    /// bounds are 2, 4, 10, 20, 50, 100, 250, 500, 750 and 1000 ns, µs and ms, and 2 s; the last class has no bound.
    pub classes: Vec<(Option<u64>, u64)>,
    /// The latencies themselves. Not in the JSON: empty in a result that was read.
    #[serde(skip)]
    pub latencies: Latencies,
}

/// A result that was read is equal to the one that was written, although it lacks the latencies.
impl PartialEq for LatencyDistribution {
    fn eq(&self, other: &Self) -> bool {
        let figures = |one: &Self| (one.count, one.stddev.to_bits());
        figures(self) == figures(other)
            && self.percentiles == other.percentiles
            && self.classes == other.classes
    }
}

impl LatencyDistribution {
    /// The distribution of these latencies.
    pub fn of(latencies: &Latencies) -> Self {
        let all = latencies.count();
        let mut classes = Vec::new();
        let mut below = 0;
        for bound in bounds() {
            let count = latencies.count_to(bound);
            if count > below {
                classes.push((Some(bound), count - below));
            }
            below = count;
        }
        if all > below {
            classes.push((None, all - below));
        }
        Self {
            count: all,
            stddev: latencies.stddev_ns(),
            percentiles: PERCENTILES.iter().map(|percent| latencies.quantile_ns(percent / 100.0)).collect(),
            classes,
            latencies: latencies.clone(),
        }
    }
}

/// The upper bounds of all classes but the last, in nanoseconds.
fn bounds() -> impl Iterator<Item = u64> {
    let units = [1, 1_000, 1_000_000];
    units.into_iter().flat_map(|unit| BOUNDS.map(|bound| bound * unit)).chain([2_000_000_000])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_latency_is_in_one_class_and_the_percentiles_rise() {
        let mut latencies = Latencies::default();
        for latency_ns in [1, 2, 3, 999, 1_000, 1_001, 3_000_000_000] {
            latencies.record(latency_ns, 1);
        }
        let LatencyDistribution { count, classes, percentiles, stddev, .. } =
            LatencyDistribution::of(&latencies);
        assert_eq!(count, 7);
        assert_eq!(classes, [(Some(2), 2), (Some(4), 1), (Some(1_000), 2), (Some(2_000), 1), (None, 1)]);
        assert_eq!(percentiles.len(), PERCENTILES.len());
        assert!(percentiles.is_sorted() && percentiles[6] == 999 && stddev > 1e9, "{percentiles:?} {stddev}");
        let empty = LatencyDistribution::of(&Latencies::default());
        assert_eq!((empty.count, empty.classes.len(), empty.stddev), (0, 0, 0.0));
    }
}
