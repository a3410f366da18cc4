//! Whether predictions have the order of measurements, wherever the measurements differ. Measures nothing.

use std::fmt;

/// The figures of one measurement or prediction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    pub(super) mb_per_s: f64,
    pub(super) p99_ms: f64,
}

/// Measurements of one setting.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    rates: Vec<f64>,
    p99_ms: Vec<f64>,
}

impl Measured {
    pub(super) fn push(&mut self, figures: Figures) {
        self.rates.push(figures.mb_per_s);
        self.p99_ms.push(figures.p99_ms);
    }

    /// The median throughput.
    pub(super) fn rate(&self) -> f64 {
        median(&self.rates)
    }

    /// The lowest and the highest throughput.
    pub(super) fn rates(&self) -> [f64; 2] {
        let of = |pick: fn(f64, f64) -> f64| self.rates.iter().copied().reduce(pick).unwrap_or(0.0);
        [of(f64::min), of(f64::max)]
    }

    pub(super) fn p99_ms(&self) -> f64 {
        median(&self.p99_ms)
    }

    /// Whether all measurements of one setting exceed all of the other: with three rounds each, the probability of that
    /// by chance is 1 in 10.
    fn differs_from(&self, other: &Self) -> bool {
        let ([low, high], [other_low, other_high]) = (self.rates(), other.rates());
        low > other_high || other_low > high
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

/// Pairs of settings whose measurements differ, and their predictions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Agreement {
    pub(super) pairs: usize,
    /// The pairs with another order in the predictions.
    pub(super) disagreeing: Vec<(String, String)>,
}

impl Agreement {
    /// Compares settings, each with its measurements and its predicted throughput.
    pub(super) fn of(settings: &[(String, &Measured, f64)]) -> Self {
        let mut agreement = Self::default();
        for (index, (name, measured, predicted)) in settings.iter().enumerate() {
            for (other, other_measured, other_predicted) in &settings[index + 1..] {
                // A scheduler of the kernel and its elevator have the same prediction.
                let is_one_prediction = (predicted - other_predicted).abs() < f64::EPSILON;
                if is_one_prediction || !measured.differs_from(other_measured) {
                    continue;
                }
                agreement.pairs += 1;
                let is_faster = measured.rate() > other_measured.rate();
                if is_faster != (predicted > other_predicted) {
                    agreement.disagreeing.push((name.clone(), other.clone()));
                }
            }
        }
        agreement
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pairs, disagreeing } = self;
        write!(
            f,
            "{pairs} pairs of settings with different predictions differ in all rounds; the predicted order agrees in {} of them",
            pairs - disagreeing.len()
        )?;
        if disagreeing.is_empty() {
            return f.write_str(".");
        }
        let pairs: Vec<String> =
            disagreeing.iter().map(|(one, other)| format!("{one} and {other}")).collect();
        write!(f, ". Not in: {}.", pairs.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rates: [f64; 3]) -> Measured {
        let mut measured = Measured::default();
        for rate in rates {
            measured.push(Figures { mb_per_s: rate, p99_ms: 1.0 });
        }
        measured
    }

    #[test]
    fn only_pairs_that_differ_in_all_rounds_count() {
        let [slow, fast, near] = [[1.0, 1.1, 1.2], [2.0, 2.1, 2.2], [1.15, 1.3, 1.25]].map(measured);
        let row = |name: &str, measured, predicted| (name.to_owned(), measured, predicted);
        let agreement =
            Agreement::of(&[row("slow", &slow, 1.0), row("fast", &fast, 3.0), row("near", &near, 0.5)]);
        assert_eq!(agreement, Agreement { pairs: 2, disagreeing: Vec::new() }, "slow and near overlap");
        let wrong = Agreement::of(&[row("slow", &slow, 3.0), row("fast", &fast, 1.0)]);
        assert_eq!(wrong.disagreeing, [("slow".to_owned(), "fast".to_owned())]);
        assert!(wrong.to_string().ends_with("0 of them. Not in: slow and fast."), "{wrong}");
        assert_eq!(Agreement::of(&[row("slow", &slow, 3.0), row("fast", &fast, 3.0)]).pairs, 0);
        let [low, high] = fast.rates();
        assert!((fast.rate() - 2.1).abs() + (low - 2.0).abs() + (high - 2.2).abs() < 1e-9);
    }
}
