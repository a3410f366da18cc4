//! Hosts that are slower than the others, by a test in pairs. The statistics are those of comparisons.

use iopath_report::stats::contrast::Contrast;
use iopath_report::stats::holm;

/// The probability of a false alarm, over all hosts.
const ALPHA: f64 = 0.05;

/// A host against the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Verdict {
    /// Its throughput per rank, divided by the mean of the other hosts.
    pub(super) ratio: f64,
    /// Whether it is significantly below 1.
    pub(super) is_slower: bool,
}

/// Each host against the mean of the others. `rates` has the throughput per rank of each host in each repetition.
/// Nothing for a single host, and none for a host without a rate.
pub(super) fn verdicts(rates: &[Vec<f64>]) -> Vec<Option<Verdict>> {
    if rates.len() < 2 {
        return vec![None; rates.len()];
    }
    let repetitions = rates[0].len();
    let sums: Vec<f64> = (0..repetitions).map(|repeat| rates.iter().map(|host| host[repeat]).sum()).collect();
    let contrast = |host: &Vec<f64>| {
        let others = (rates.len() - 1) as f64;
        let others: Vec<f64> = sums.iter().zip(host).map(|(sum, own)| (sum - own) / others).collect();
        Contrast::paired(&others, host)
    };
    let contrasts: Vec<Option<Contrast>> = rates.iter().map(contrast).collect();
    let p_values: Vec<Option<f64>> = contrasts.iter().map(|one| one.and_then(|one| one.p_value())).collect();
    let tests = holm::decide(&p_values, ALPHA);
    let verdict = |(contrast, test): (&Option<Contrast>, &holm::Test)| {
        let ratio = (*contrast)?.log_ratio.exp();
        Some(Verdict { ratio, is_slower: test.is_significant && ratio < 1.0 })
    };
    contrasts.iter().zip(&tests).map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_that_is_slower_in_each_repetition_is_named() {
        let slow =
            [vec![100.0, 101.0, 99.0, 100.5], vec![99.5, 100.0, 100.0, 99.0], vec![80.0, 81.0, 79.5, 80.5]];
        let slow = verdicts(&slow);
        let named: Vec<bool> = slow.iter().map(|one| one.unwrap().is_slower).collect();
        assert_eq!(named, [false, false, true]);
        assert!((slow[2].unwrap().ratio - 0.8).abs() < 0.01);
        let noisy = [vec![100.0, 50.0, 120.0], vec![90.0, 110.0, 60.0]];
        assert!(verdicts(&noisy).iter().all(|one| !one.unwrap().is_slower));
        assert_eq!(verdicts(&[vec![1.0, 2.0]]), [None]);
        // One repetition has no variance, and a host that moved nothing has no ratio.
        assert!(verdicts(&[vec![1.0], vec![9.0]]).iter().all(|one| !one.unwrap().is_slower));
        assert_eq!(verdicts(&[vec![0.0, 0.0], vec![1.0, 1.0]])[0], None);
    }
}
