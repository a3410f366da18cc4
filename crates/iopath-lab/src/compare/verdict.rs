//! Compares the samples of paired runs, and decides the verdicts. Does not read or display results.

use iopath_report::compare::Verdict;
use iopath_report::stats::Summary;
use iopath_report::stats::contrast::Contrast;
use iopath_report::stats::holm::{self, Test};
use iopath_report::stats::trimmed::Location;
use iopath_report::stats::{frequency, trend};

use super::data::{IOPS, METRICS, Metric, P99, Run, THROUGHPUT, TIME};
use super::error::CompareError;
use iopath_bench::options::NONE;

/// A repetition that takes this many times as long as the median one is a stall.
pub(super) const STALL: f64 = 2.0;

/// The share of the error rate at which the frequencies of stalls are compared.
const STALLS_SHARE: f64 = 0.2;

/// How the n-th repetitions of both sides relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Design {
    /// Measured at different times.
    Independent,
    /// Measured one directly after the other.
    Paired,
}

/// The two samples of a metric, compared.
#[derive(Debug, Clone)]
pub(super) struct Compared {
    pub(super) metric: Metric,
    /// The names of the base and of the other side.
    pub(super) names: [String; 2],
    /// Trimmed geometric means of A and B; none if a value is 0.
    pub(super) means: Option<[f64; 2]>,
    pub(super) contrast: Option<Contrast>,
    pub(super) counts: [usize; 2],
    /// Repetitions of A and B without any transfer.
    pub(super) stopped: [usize; 2],
    /// Repetitions of A and B that took at least [`STALL`] times as long as the median one.
    pub(super) stalls: [usize; 2],
    /// The logarithm by which the values may change between A and B by their trend alone; 0 without a significant
    /// trend.
    pub(super) drift: f64,
}

/// The decision for one metric.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decision {
    pub(super) verdict: Verdict,
    /// The interval of the logarithm of the ratio.
    pub(super) interval: Option<[f64; 2]>,
    /// For an inconclusive verdict: further repetitions of each side after which it is probably clear.
    pub(super) more: Option<u32>,
    /// A cause other than the interval and the number of repetitions.
    pub(super) reason: Option<String>,
}

/// The metrics of two runs, compared. The first one is primary: it decides. An unknown request is an error.
pub(super) fn compare(
    [a, b]: [&Run; 2],
    names: [&str; 2],
    requested: Option<&str>,
    design: Design,
) -> Result<Vec<Compared>, CompareError> {
    let mut metrics: Vec<Metric> = METRICS
        .into_iter()
        .filter(|metric| a.values(*metric).is_some() && b.values(*metric).is_some())
        .collect();
    let known = || metrics.iter().map(|metric| metric.name).collect::<Vec<_>>().join(", ");
    if metrics.is_empty() {
        let [a, b] = names;
        return Err(CompareError::Selection(format!("{a} and {b} have no metric in common")));
    }
    if let Some(name) = requested.filter(|name| metrics.iter().all(|metric| metric.name != *name)) {
        let [a, b] = names;
        return Err(CompareError::Selection(format!("{a} and {b} have no {name}; use one of: {}", known())));
    }
    drop_redundant(&mut metrics, [a, b], requested);
    let has = |run: &Run, key: &str| run.fact(key).is_some_and(|rate| rate != NONE);
    let has_rate = ["rate", "rate-iops"].iter().any(|key| has(a, key) && has(b, key));
    // A rate fixes the throughput; the latency shows whether the storage keeps up.
    let primary = requested.or((has_rate && metrics.contains(&P99)).then_some(P99.name));
    if let Some(at) = primary.and_then(|name| metrics.iter().position(|metric| metric.name == name)) {
        let primary = metrics.remove(at);
        metrics.insert(0, primary);
    }
    Ok(metrics.into_iter().map(|metric| compare_metric(metric, [a, b], names, design)).collect())
}

/// Blocks of one size: throughput and IOPS have the same ratio. The usual one of the two remains.
fn drop_redundant(metrics: &mut Vec<Metric>, [a, b]: [&Run; 2], requested: Option<&str>) {
    if a.fact("bs") != b.fact("bs") || !(metrics.contains(&THROUGHPUT) && metrics.contains(&IOPS)) {
        return;
    }
    let is_random = a.fact("rw").is_some_and(|rw| rw.starts_with("rand"));
    let wants_iops = match requested {
        Some("iops") => true,
        Some("throughput") => false,
        _ => is_random,
    };
    let redundant = if wants_iops { THROUGHPUT } else { IOPS };
    metrics.retain(|metric| *metric != redundant);
}

fn compare_metric(metric: Metric, runs: [&Run; 2], names: [&str; 2], design: Design) -> Compared {
    let [a, b] = runs.map(|run| run.values(metric).unwrap_or_default());
    let contrast = match design {
        Design::Independent => Contrast::independent(a, b),
        Design::Paired => Contrast::paired(a, b),
    };
    let slope =
        trend::significant_slope(a, b).filter(|_| design == Design::Independent && contrast.is_some());
    // From the middle of A to the middle of B, if B follows A; twice as far for a pause of unknown length.
    let drift = slope.map_or(0.0, |slope| slope.abs() * (a.len() + b.len()) as f64);
    let mean = |values: &[f64]| {
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        Location::trimmed(&logs).map_or(f64::NAN, |location| location.mean.exp())
    };
    Compared {
        metric,
        names: names.map(str::to_owned),
        stopped: runs.map(stopped),
        stalls: [a, b].map(|values| stalls(metric, values)),
        means: contrast.map(|_| [mean(a), mean(b)]),
        contrast,
        counts: [a.len(), b.len()],
        drift,
    }
}

/// The repetitions in which no transfer completed.
fn stopped(run: &Run) -> usize {
    let rates = run.values(IOPS).or(run.values(THROUGHPUT)).unwrap_or_default();
    rates.iter().filter(|rate| **rate == 0.0).count()
}

/// The repetitions of a rate or a time that took at least [`STALL`] times as long as the median one. Not of latencies:
/// their percentiles are measures of stalls themselves.
fn stalls(metric: Metric, values: &[f64]) -> usize {
    if ![THROUGHPUT, IOPS, TIME].contains(&metric) {
        return 0;
    }
    let Some(Summary { median, .. }) = Summary::of(values) else { return 0 };
    let is_stall = |value: f64| {
        if metric.is_higher_better { value * STALL <= median } else { value >= median * STALL }
    };
    values.iter().filter(|value| is_stall(**value)).count()
}

/// Decides all metrics of all runs, at an error rate of `alpha` for the primary metrics together, and for the others
/// together. `margin` is the logarithm of the largest ratio that counts as the same.
pub(super) fn decide(runs: &[Vec<Compared>], margin: f64, alpha: f64) -> Vec<Vec<Decision>> {
    let p_value = |compared: &Compared| compared.contrast.and_then(|contrast| contrast.p_value());
    let primary: Vec<Option<f64>> = runs.iter().map(|run| p_value(&run[0])).collect();
    let others: Vec<Option<f64>> = runs.iter().flat_map(|run| &run[1..]).map(p_value).collect();
    let primary = holm::decide(&primary, alpha);
    let mut others = holm::decide(&others, alpha).into_iter();
    let decide_run = |(run, first): (&Vec<Compared>, Test)| {
        let tests = std::iter::once(first).chain(others.by_ref().take(run.len() - 1));
        let stalls_alpha = alpha * STALLS_SHARE / runs.len() as f64;
        let decide = |(one, test): (&Compared, Test)| {
            with_stalls(one, decide_one(one, margin, alpha, test), stalls_alpha)
        };
        run.iter().zip(tests).map(decide).collect()
    };
    runs.iter().zip(primary).map(decide_run).collect()
}

fn decide_one(compared: &Compared, margin: f64, alpha: f64, test: Test) -> Decision {
    let inconclusive = |interval, more, reason: Option<String>| Decision {
        verdict: Verdict::Inconclusive,
        interval,
        more,
        reason,
    };
    let Some(contrast) = compared.contrast else {
        return stop(compared)
            .unwrap_or_else(|| inconclusive(None, None, Some("a value of 0 has no ratio".to_owned())));
    };
    let Some([low, high]) = contrast.interval(alpha) else {
        // Two values have a variance, and three have one of some use.
        let fewest = compared.counts.iter().min().map_or(0, |count| *count as u32);
        return inconclusive(None, Some(3u32.saturating_sub(fewest).max(1)), None);
    };
    let with_drift = |[low, high]: [f64; 2]| [low - compared.drift, high + compared.drift];
    let [low, high] = with_drift([low, high]);
    let interval = Some([low, high]);
    let clear = |verdict| Decision { verdict, interval, more: None, reason: None };
    if -margin <= low && high <= margin {
        return clear(Verdict::Same);
    }
    let excludes_one = low > 0.0 || high < 0.0;
    if excludes_one && test.is_significant {
        let is_better = (contrast.log_ratio > 0.0) == compared.metric.is_higher_better;
        return clear(match (compared.metric.is_cost, is_better) {
            (false, true) => Verdict::Faster,
            (false, false) => Verdict::Slower,
            (true, true) => Verdict::Cheaper,
            (true, false) => Verdict::Costlier,
        });
    }
    if compared.drift > 0.0 {
        return inconclusive(
            interval,
            None,
            Some("the values change from repetition to repetition; use --live".to_owned()),
        );
    }
    // The interval that decides, else the line would contradict its verdict.
    let of_all = excludes_one.then(|| contrast.interval(test.alpha).map(with_drift)).flatten();
    let reason = of_all.map(|_| {
        let Test { family, .. } = test;
        format!("the interval is that of {family} comparisons together (Holm); alone it excludes 0")
    });
    let [low, high] = of_all.unwrap_or([low, high]);
    inconclusive(Some([low, high]), more(compared, &contrast, (high - low) / 2.0, margin), reason)
}

/// The decision with regard to stalls. The trimmed means do not contain them, so a side that stalls significantly more
/// often is slower even if its other repetitions are not.
fn with_stalls(compared: &Compared, decision: Decision, alpha: f64) -> Decision {
    let p = frequency::p_value(compared.stalls, compared.counts);
    if p.is_none_or(|p| p > alpha) {
        return decision;
    }
    let ([stalls_a, stalls_b], [a, b]) = (compared.stalls, compared.counts);
    let is_worse = stalls_b * a > stalls_a * b;
    let [name_a, name_b] = &compared.names;
    let text = format!(
        "{stalls_a} of {a} repetitions of {name_a} and {stalls_b} of {b} of {name_b} took at least {STALL} times as long as the median"
    );
    let verdict = match decision.verdict {
        Verdict::Faster if is_worse => Verdict::Inconclusive,
        Verdict::Slower if !is_worse => Verdict::Inconclusive,
        _ if is_worse => Verdict::Slower,
        _ => Verdict::Faster,
    };
    Decision { verdict, interval: decision.interval, more: None, reason: Some(text) }
}

/// The decision if only one side has repetitions without a transfer. Such a repetition is a failure and not noise: its
/// rate has no logarithm, and its latency no bound. None for a cost, and if both sides have such repetitions or neither
/// has.
fn stop(compared: &Compared) -> Option<Decision> {
    let (verdict, index) = match compared.stopped {
        _ if compared.metric.is_cost => return None,
        [0, stopped] if stopped > 0 => (Verdict::Slower, 1),
        [stopped, 0] if stopped > 0 => (Verdict::Faster, 0),
        _ => return None,
    };
    let (stopped, all, side) = (compared.stopped[index], compared.counts[index], &compared.names[index]);
    let reason = Some(format!("no transfer completed in {stopped} of {all} repetitions of {side}"));
    Some(Decision { verdict, interval: None, more: None, reason })
}

/// Further repetitions of each side: those that the variance requires, or those that reduce the interval until the
/// observed ratio, if it is the true one, has a clear verdict.
fn more(compared: &Compared, contrast: &Contrast, half: f64, margin: f64) -> Option<u32> {
    let count = f64::from(u32::try_from(*compared.counts.iter().min()?).ok()?);
    let observed = contrast.log_ratio.abs();
    let clear_half = observed.max(margin - observed);
    let needed =
        f64::from(contrast.repetitions_needed(margin)?).max((count * (half / clear_half).powi(2)).ceil());
    Some((needed - count).clamp(1.0, 1e6) as u32)
}
