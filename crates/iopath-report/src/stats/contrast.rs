//! The ratio of two samples on the logarithmic scale: estimate, interval, p-value, and the repetitions that a clear
//! answer needs. Does not choose the words of a verdict.
//!
//! Throughputs, latencies and CPU costs are positive, and their noise is proportional to their size, so their
//! logarithms are nearer to a normal distribution than the values. A difference of logarithms is a ratio of geometric
//! means. The means are trimmed, because stalls of the storage are no normal noise: `trimmed.rs`.

use super::student;
use super::trimmed::Location;

/// The share of comparisons that must give a clear answer at the proposed number of repetitions.
const POWER: f64 = 0.90;

/// The share of Welch's degrees of freedom that is used; with different numbers of repetitions, also the ratio of the
/// numbers is. Welch's degrees are estimated from the same few values. In simulations they alone had 5.9% of false
/// alarms for 3 repetitions whose deviations differ by a factor of five, and 6.4% for 3 and 10 repetitions of equal
/// deviations. The degrees of the smaller side are the fewest that can be right.
const CAUTION: f64 = 0.8;

/// The number of repetitions that is no longer proposed.
const PROPOSED_MAX: f64 = 1e6;

/// The estimated logarithm of a ratio of two samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contrast {
    /// The logarithm of the ratio: positive if the second sample is larger.
    pub log_ratio: f64,
    /// The accuracy, unless the samples are too small for an estimate of their variance.
    error: Option<Error>,
}

/// The accuracy of an estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Error {
    /// The standard error of the logarithm.
    standard: f64,
    /// Its degrees of freedom.
    degrees: f64,
    /// The variance that one further repetition of each sample contributes.
    per_repetition: f64,
    /// The degrees of freedom of that variance.
    planned_degrees: f64,
}

impl Contrast {
    /// Compares samples that were measured independently, by the test of Yuen (1974) for trimmed means: Welch's t test,
    /// with the variances and degrees of freedom of trimmed means. The variances may differ. None if a sample is empty
    /// or a value has no logarithm.
    pub fn independent(before: &[f64], after: &[f64]) -> Option<Self> {
        let before = Location::trimmed(&logarithms(before)?)?;
        let after = Location::trimmed(&logarithms(after)?)?;
        let error = before.error_squared.zip(after.error_squared).map(|(first, second)| {
            let sum = first + second;
            let weights = first * first / before.degrees + second * second / after.degrees;
            // Without variance, each number of degrees gives the same interval of width 0.
            let welch = if weights > 0.0 { sum * sum / weights } else { before.degrees + after.degrees };
            let [few, many] = [before.count.min(after.count), before.count.max(after.count)];
            let degrees = (welch * CAUTION * few / many).max(before.degrees.min(after.degrees));
            let planned = [before.planned.unwrap_or(0.0), after.planned.unwrap_or(0.0)];
            let per_repetition = planned[0] + planned[1];
            let weights =
                planned[0].powi(2) / before.planned_degrees + planned[1].powi(2) / after.planned_degrees;
            let welch = if weights > 0.0 { per_repetition.powi(2) / weights } else { degrees };
            let fewest = before.planned_degrees.min(after.planned_degrees);
            let planned_degrees = (welch * CAUTION).max(fewest);
            Error { standard: sum.sqrt(), degrees, per_repetition, planned_degrees }
        });
        Some(Self { log_ratio: after.mean - before.mean, error })
    }

    /// Compares the n-th value of one sample with the n-th value of the other by the trimmed mean of the ratios: an
    /// effect on both cancels out. Ignores values without a partner. None without a pair, or if a ratio has no
    /// logarithm.
    pub fn paired(before: &[f64], after: &[f64]) -> Option<Self> {
        Some(Self::of_ratios(Location::trimmed(&ratios(before, after)?)?))
    }

    /// As [`Contrast::paired`], with the mean of all ratios: for pairs that differ for other reasons than noise, such
    /// as the combinations of a matrix.
    pub fn paired_means(before: &[f64], after: &[f64]) -> Option<Self> {
        Some(Self::of_ratios(Location::mean(&ratios(before, after)?)?))
    }

    fn of_ratios(ratios: Location) -> Self {
        let error = ratios.error_squared.map(|squared| Error {
            standard: squared.sqrt(),
            degrees: ratios.degrees,
            per_repetition: ratios.planned.unwrap_or(0.0),
            planned_degrees: ratios.planned_degrees,
        });
        Self { log_ratio: ratios.mean, error }
    }

    /// The interval of the logarithm that misses the true value with probability `alpha`. None if the samples are too
    /// small.
    pub fn interval(&self, alpha: f64) -> Option<[f64; 2]> {
        let Error { standard, degrees, .. } = self.error?;
        // 0 times an infinite quantile is no number; a width of 0 stays 0.
        let half =
            if standard > 0.0 { student::quantile(1.0 - alpha / 2.0, degrees) * standard } else { 0.0 };
        Some([self.log_ratio - half, self.log_ratio + half])
    }

    /// The two-sided p-value of a ratio of 1. None if the samples are too small.
    pub fn p_value(&self) -> Option<f64> {
        let Error { standard, degrees, .. } = self.error?;
        Some(match standard > 0.0 {
            true => student::two_sided_p(self.log_ratio / standard, degrees),
            false if self.log_ratio == 0.0 => 1.0,
            false => 0.0,
        })
    }

    /// The repetitions of each sample after which nine of ten comparisons are clear: a true ratio of `margin` (a
    /// logarithm) or more is significant, and the interval of a true ratio of 1 lies within the margin.
    ///
    /// This is the first stage of Stein's two-stage procedure (1945): the quantiles have the degrees of freedom of the
    /// observed variance, so that a variance estimated from three repetitions is not trusted like a known one. None if
    /// the variance is unknown or the number is beyond reason.
    pub fn repetitions_needed(&self, margin: f64) -> Option<u32> {
        let Error { planned_degrees: degrees, per_repetition, .. } = self.error?;
        let beta = 1.0 - POWER;
        let quantiles = student::quantile(0.975, degrees) + student::quantile(1.0 - beta / 2.0, degrees);
        // A variance of 0 has two equal values per sample as its least evidence.
        let needed = (per_repetition * (quantiles / margin).powi(2)).ceil().max(2.0);
        (needed <= PROPOSED_MAX).then_some(needed as u32)
    }
}

/// The logarithms of the ratios of pairs; none if a ratio has none.
fn ratios(before: &[f64], after: &[f64]) -> Option<Vec<f64>> {
    logarithms(&after.iter().zip(before).map(|(after, before)| after / before).collect::<Vec<_>>())
}

/// The logarithms; none if a value has none.
fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    logs.iter().all(|log| log.is_finite()).then_some(logs)
}

#[cfg(test)]
mod tests {
    use super::super::noise::{KINDS, Noise};
    use super::*;

    const TRIALS: u32 = 4000;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6 * b.abs().max(1.0)
    }

    #[test]
    fn a_known_comparison() {
        // Logarithms 1, 2, 3 and 3, 5, 7: means 2 and 5, variances 1 and 4, standard error sqrt(5/3), Welch's degrees
        // (5/3)^2 / ((1/3)^2/2 + (4/3)^2/2) = 2.941, of which 80% are used.
        let values = |logs: [f64; 3]| logs.map(f64::exp);
        let contrast = Contrast::independent(&values([1.0, 2.0, 3.0]), &values([3.0, 5.0, 7.0])).unwrap();
        let error = contrast.error.unwrap();
        assert!(near(contrast.log_ratio, 3.0) && near(error.standard, (5.0f64 / 3.0).sqrt()), "{error:?}");
        assert!(near(error.degrees, 0.8 * 25.0 / 8.5), "{error:?}");
        let paired = Contrast::paired(&values([1.0, 2.0, 3.0]), &values([3.0, 5.0, 7.0])).unwrap();
        assert!(near(paired.log_ratio, 3.0) && near(paired.error.unwrap().standard, (1.0f64 / 3.0).sqrt()));
    }

    #[test]
    fn a_stall_neither_hides_a_difference_nor_feigns_one() {
        let quiet = [100.0, 101.0, 99.0, 100.5, 99.5];
        let stalled = [100.0, 101.0, 99.0, 100.5, 11.0];
        let slower = quiet.map(|rate| rate * 0.9);
        let p = |a: &[f64], b: &[f64]| {
            [Contrast::independent(a, b), Contrast::paired(a, b)].map(|one| one.unwrap().p_value().unwrap())
        };
        assert!(p(&quiet, &stalled).iter().all(|p| *p > 0.3), "{:?}", p(&quiet, &stalled));
        assert!(p(&stalled, &slower).iter().all(|p| *p < 0.01), "{:?}", p(&stalled, &slower));
        // Pairs of a matrix have no noise to ignore.
        let of_all = Contrast::paired_means(&quiet, &stalled).unwrap();
        assert!(near(of_all.log_ratio, (11.0f64 / 99.5).ln() / 5.0), "{of_all:?}");
    }

    #[test]
    fn one_value_has_no_interval_and_zero_has_no_ratio() {
        let single = Contrast::independent(&[1.0], &[2.0, 2.1]).unwrap();
        assert_eq!(
            (single.interval(0.05), single.p_value(), single.repetitions_needed(0.03)),
            (None, None, None)
        );
        assert_eq!(Contrast::independent(&[1.0, 0.0], &[2.0, 2.1]), None);
        assert_eq!(Contrast::independent(&[], &[2.0]), None);
        assert_eq!(Contrast::paired(&[1.0, 0.0], &[2.0, 2.1]), None);
    }

    #[test]
    fn samples_without_variance_are_equal_or_different() {
        let equal = Contrast::independent(&[2.0, 2.0], &[2.0, 2.0]).unwrap();
        assert_eq!((equal.interval(0.05), equal.p_value()), (Some([0.0, 0.0]), Some(1.0)));
        let other = Contrast::independent(&[2.0, 2.0], &[4.0, 4.0]).unwrap();
        assert_eq!(other.p_value(), Some(0.0));
        assert_eq!(other.repetitions_needed(0.03), Some(2));
    }

    /// The share of A/A comparisons whose interval excludes a ratio of 1.
    fn false_alarms(noise: Noise, repetitions: [usize; 2]) -> f64 {
        let alarms = (0..TRIALS).filter(|trial| {
            let samples = noise.samples(u64::from(*trial), repetitions, 1.0);
            let contrast = Contrast::independent(&samples[0], &samples[1]).unwrap();
            contrast.p_value().unwrap() < 0.05
        });
        alarms.count() as f64 / f64::from(TRIALS)
    }

    #[test]
    fn false_alarms_of_independent_samples_are_at_most_5_percent() {
        // Three standard errors of the measured share above 5%.
        let limit = 0.05 + 3.0 * (0.05 * 0.95 / f64::from(TRIALS)).sqrt();
        for noise in KINDS {
            for repetitions in [[3, 3], [5, 5], [10, 10], [3, 4], [4, 6], [3, 10], [10, 3], [5, 10]] {
                let share = false_alarms(noise, repetitions);
                eprintln!("false alarms, {noise:?}, {repetitions:?}: {:.2}%", share * 100.0);
                assert!(share <= limit, "{noise:?} {repetitions:?}: {share}");
            }
        }
    }

    /// The first contrast of a trial, and the one after the repetitions that it proposes.
    fn proposed(noise: Noise, trial: u32, round: u64, count: usize) -> (Contrast, usize) {
        let samples = noise.samples(u64::from(trial) + (round << 32), [count, count], 1.05);
        let contrast = Contrast::independent(&samples[0], &samples[1]).unwrap();
        (contrast, contrast.repetitions_needed(1.05f64.ln()).unwrap() as usize)
    }

    #[test]
    fn a_true_change_is_found_at_the_proposed_repetitions() {
        let mut shares = Vec::new();
        for noise in KINDS {
            // Three repetitions have no tails: a stall among them multiplies the proposal.
            for pilot in [3, 5, 10].into_iter().filter(|pilot| *pilot > 3 || !noise.has_stalls()) {
                let (mut found, mut proposals) = (0, Vec::new());
                for trial in 0..TRIALS / 4 {
                    let (_, needed) = proposed(noise, trial, 0, pilot);
                    proposals.push(needed);
                    let (second, _) = proposed(noise, trial, 1, needed);
                    found += u32::from(second.interval(0.05).unwrap()[0] > 0.0);
                }
                let share = f64::from(found) / f64::from(TRIALS / 4);
                proposals.sort_unstable();
                let median = proposals[proposals.len() / 2];
                eprintln!("power, {noise:?}, pilot {pilot}, {median} repetitions: {:.1}%", share * 100.0);
                shares.push((noise, pilot, share));
            }
        }
        for (noise, pilot, share) in shares {
            // Pilots that lack the outliers, which are one in ten, do not know of them.
            let limit = if noise == Noise::Outliers { 0.85 } else { 0.9 };
            assert!(share >= limit, "{noise:?} {pilot}: {share}");
        }
    }
}
