//! Values of one side of a comparison, one for each round, and the ratio of two sides. Does not measure.

/// Without this many pairs, the interval of the median would not have its confidence.
const PAIRS_MIN: usize = 6;

/// The values of one side, in the order of the rounds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Samples(Vec<f64>);

/// The ratio of two sides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    pub(super) median: f64,
    /// The interval that contains the median of all rounds with a confidence of at least 95%; none with fewer than six
    /// pairs.
    pub(super) interval: Option<(f64, f64)>,
}

impl Samples {
    /// # Panics
    /// Without a value.
    pub(super) fn new(values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "a side has a value for each round");
        Self(values)
    }

    /// A figure that was not measured in these rounds: published, or a limit.
    pub(super) fn constant(value: f64) -> Self {
        Self(vec![value])
    }

    /// The same rounds in another unit.
    pub(super) fn map(&self, convert: impl Fn(f64) -> f64) -> Self {
        Self(self.0.iter().copied().map(convert).collect())
    }

    pub(super) fn median(&self) -> f64 {
        median(self.0.clone())
    }

    /// The distance of the quartiles as a share of the median: half of all rounds lie within it. 0 for a constant.
    pub(super) fn spread(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * (sorted.len() - 1) as f64;
            let (low, part) = (place.floor() as usize, place.fract());
            let high = sorted[(low + 1).min(sorted.len() - 1)];
            sorted[low] + (high - sorted[low]) * part
        };
        (at(0.75) - at(0.25)) / self.median()
    }

    /// Our values divided by those of the peer, round by round: load on the machine that lasts for both sides of a
    /// round cancels out.
    pub(super) fn ratio_to(&self, peer: &Self) -> Ratio {
        let of_round = |round: usize| self.0[round] / peer.0.get(round).unwrap_or(&peer.0[0]);
        let is_paired = peer.0.len() == self.0.len() || peer.0.len() == 1;
        if !is_paired {
            return Ratio { median: self.median() / peer.median(), interval: None };
        }
        let mut ratios: Vec<f64> = (0..self.0.len()).map(of_round).collect();
        ratios.sort_by(f64::total_cmp);
        let outside = outside(ratios.len());
        let interval = outside.map(|outside| (ratios[outside], ratios[ratios.len() - 1 - outside]));
        Ratio { median: median(ratios), interval }
    }
}

/// The number of ordered values to leave out at each end, so that the rest contains the median with a confidence of at
/// least 95%: the sign test. None for too few values.
fn outside(values: usize) -> Option<usize> {
    if values < PAIRS_MIN {
        return None;
    }
    let mut binomial = (0..values).map(|_| 0.5).product::<f64>();
    let mut tail = binomial;
    let mut outside = 0;
    loop {
        binomial *= (values - outside) as f64 / (outside + 1) as f64;
        tail += binomial;
        if tail > 0.025 {
            return Some(outside);
        }
        outside += 1;
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        Samples::new(values.to_vec())
    }

    #[test]
    fn the_median_does_not_depend_on_the_order() {
        assert!((median(vec![9.0, 1.0, 5.0]) - 5.0).abs() < f64::EPSILON);
        assert!((median(vec![4.0, 1.0, 2.0, 9.0]) - 3.0).abs() < f64::EPSILON);
    }

    #[test]
    fn load_on_both_sides_of_a_round_cancels_out() {
        let ours = samples(&[2.0, 4.0, 8.0, 2.0, 2.0, 2.0, 2.0]);
        let peer = samples(&[1.0, 2.0, 4.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(ours.ratio_to(&peer), Ratio { median: 2.0, interval: Some((2.0, 2.0)) });
    }

    /// Known values of the sign test: 7 values need all of them, 9 leave out one at each end, 12 leave out two.
    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        assert_eq!(
            [5, 6, 7, 8, 9, 11, 12, 15, 17, 25].map(outside),
            [None, Some(0), Some(0), Some(0), Some(1), Some(1), Some(2), Some(3), Some(4), Some(7),]
        );
    }

    #[test]
    fn a_constant_is_the_peer_of_every_round() {
        let ratio = samples(&[1.0, 2.0, 3.0]).ratio_to(&Samples::constant(2.0));
        assert_eq!(ratio, Ratio { median: 1.0, interval: None });
    }

    #[test]
    fn the_spread_ignores_one_outlier() {
        assert!((samples(&[10.0, 10.0, 10.0, 11.0, 10.0, 10.0, 90.0]).spread() - 0.05).abs() < 1e-9);
        assert!((samples(&[6.0, 8.0, 10.0, 12.0, 14.0]).spread() - 0.4).abs() < 1e-9);
        assert!(Samples::constant(3.0).spread().abs() < f64::EPSILON);
    }
}
