//! The measured figures of a fit, and the deviation of a model from them. `workloads.rs` and `log_replay.rs` provide
//! the figures.

use super::error::FitError;
use iopath_bench::model::ModelTarget;

/// Reads that take longer than this may be mechanical.
pub(crate) const MECHANICAL_NS: f64 = 1e6;

/// Far reads of a mechanical device take at least this multiple of near reads.
pub(crate) const MECHANICAL_RATIO: f64 = 1.25;

/// The cause of the latency, as far as the first workloads show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LatencyCause {
    /// Too short for a rotating disk.
    Electronic,
    /// A rotating disk: the system says so, or far reads take longer than near ones.
    Mechanical,
    /// Long, and the same everywhere: a network, or a disk of which the target is a small part. Models of both are
    /// tried.
    Unknown,
}

/// The use of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The parameters are fitted to it.
    Training,
    /// No parameter is fitted to it. It shows the error of the model, and selects the kind.
    HeldBack,
}

/// A measured figure that a model must predict.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// The workload or class of requests, in words.
    pub(crate) name: String,
    pub(crate) rw: &'static str,
    pub(crate) block_bytes: u64,
    pub(crate) depth: u32,
    pub(crate) part: Part,
    /// Transfers a second, or a latency in nanoseconds.
    pub(crate) measured: f64,
    /// The deviation of a repetition from the median, as a fraction; none if it was measured once.
    pub(crate) noise: Option<f64>,
}

/// A source of figures.
pub(crate) trait Evidence {
    /// All figures.
    fn cases(&self) -> &[Case];

    /// The figures of one part as this model predicts them, in the order of the cases.
    fn predict(&self, model: &ModelTarget, part: Part) -> Result<Vec<f64>, FitError>;
}

/// The figures of one part.
pub(crate) fn cases_of(evidence: &dyn Evidence, part: Part) -> impl Iterator<Item = &Case> {
    evidence.cases().iter().filter(move |case| case.part == part)
}

/// Below this deviation, the score is quadratic. So it has no ridges, on which a search along one variable at a time
/// would stop. Above this deviation, the score is linear, so a few workloads that no model describes do not dominate
/// it.
const SMOOTH: f64 = 0.1;

/// The mean deviation of a model from the figures of a part. Noisy figures have a smaller weight.
pub(crate) fn score(evidence: &dyn Evidence, model: &ModelTarget, part: Part) -> Result<f64, FitError> {
    let predicted = evidence.predict(model, part)?;
    let (mut sum, mut weights) = (0.0, 0.0);
    for (case, predicted) in cases_of(evidence, part).zip(predicted) {
        let weight = 1.0 / (0.1 + case.noise.unwrap_or(0.0));
        let deviation = (predicted / case.measured).ln();
        sum += weight * (deviation.hypot(SMOOTH) - SMOOTH);
        weights += weight;
    }
    let score = if weights > 0.0 { sum / weights } else { f64::INFINITY };
    Ok(if score.is_nan() { f64::INFINITY } else { score })
}

/// The value below which this share of a sample lies; 0 for an empty sample.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = share * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - at.floor())
}

/// The median of a sample; 0 for an empty sample.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}
