//! Fits a model to real storage. Measures a target, or reads a request log. Searches for the parameters whose
//! simulation has the same figures. States the error of the model on workloads that are held back from the fit.
//!
//! ```text
//!   target ── workloads.rs ──┐           ┌─ search.rs ──▶ parameters ──▶ draft.rs (a file)
//!   log ───── log_replay.rs ─┴─ figures ─┤      ▲  │
//!                                        │      └──┴─ simulation of the same workloads, or a replay of the log
//!                                        └─ held back ──▶ the error of the model
//! ```
//!
//! `plan.rs` lists the workloads. `cloud.rs`, `flash.rs` and `disk.rs` have the variables of the kinds of model. The
//! fit chooses the kind with the smallest error on the workloads held back.

mod candidate;
mod cloud;
mod disk;
mod draft;
mod drift;
mod error;
mod estimates;
mod evidence;
mod flash;
mod log_replay;
mod plan;
mod prepare;
pub mod search;
mod stated;
mod workloads;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iopath_report::fit::{
    CandidateError, ErrorSummary, FitReport, FittedFigure, FittedParameter, Quantity, SCHEMA, noise_text,
};
use iopath_report::numbers::percent;
use iopath_report::result::Clock;
use iopath_trace::{Content, content_of};

use candidate::Candidate;
use draft::Draft;
use estimates::Estimates;
use evidence::{Evidence, LatencyCause, Part, cases_of, median, quantile, score};
use iopath_bench::model::is_model;
use iopath_bench::progress::{Progress, Stage};
use iopath_bench::run::{IDLE_SAMPLE, Lab};
use log_replay::LogReplay;
use plan::Slice;
use prepare::{check_noise, described, prepare, probe, request_max_bytes, too_small};
use search::{Best, minimise};
use workloads::{Workloads, measure};

pub use draft::FILE_START;
pub use error::FitError;
pub use stated::stated_error;

/// The default time limit of a fit.
pub const DEFAULT_TIME: Duration = Duration::from_secs(75);

/// The minimum time limit.
pub const TIME_MIN: Duration = Duration::from_secs(2);

/// The maximum time limit.
pub const TIME_MAX: Duration = Duration::from_secs(86_400);

/// The share of the time limit for measurements. The search has the rest.
const MEASURE_SHARE: f64 = 0.75;

/// The share of the time limit at which the search ends.
const SEARCH_END: f64 = 0.97;

/// The maximum number of transfers of a run of a workload, for each second of the time limit, and its limits.
const IOS_PER_S: f64 = 27.0;
const IOS_MIN: u32 = 250;
const IOS_MAX: u32 = 2000;

/// The number of models to simulate for each kind, for each second of the time limit, and its limits.
const EVALUATIONS_PER_S: f64 = 15.0;
const EVALUATIONS_MIN: u32 = 60;
const EVALUATIONS_MAX: u32 = 1200;

/// Above this noise, the error of the model includes much noise of the measurement.
const NOISE_WARNING: f64 = 0.1;

/// Above this median error on the workloads held back, the fit warns that the model predicts little.
const HELD_BACK_WARNING: f64 = 0.5;

/// The fit refuses a model that deviates by more than this fraction (median) from the training figures.
const TRAINING_ERROR_MAX: f64 = 0.6;

/// The share of the time of a round in which its workloads run.
const ROUND_SHARE: f64 = 0.8;

/// The least time of a run.
const SLICE_MIN: Duration = Duration::from_millis(20);

/// The options of a fit.
#[derive(Debug, Clone)]
pub struct FitOptions {
    /// A directory (for a temporary scratch file), a file, a block device or a model; or a request log.
    pub source: PathBuf,
    /// The time limit. A shorter time also shortens the search.
    pub time: Duration,
    /// Whether a user's file or device may be overwritten.
    pub overwrite: bool,
}

/// A fitted model.
#[derive(Debug, Clone)]
pub struct Fit {
    /// The model file.
    pub file: String,
    /// The model and its error.
    pub report: FitReport,
}

/// The amount of work.
#[derive(Debug, Clone, Copy)]
struct Effort {
    ios_max: u64,
    evaluations: u32,
    /// The end of the search, if it comes before the last evaluation: on a slow machine, or with a model that takes
    /// long to simulate.
    deadline: Option<Instant>,
}

/// The models that the search simulates of each kind even after its deadline.
const EVALUATIONS_FEWEST: u32 = 8;

impl Effort {
    fn of(time: Duration) -> Self {
        let of = |per_s: f64, min: u32, max: u32| ((time.as_secs_f64() * per_s) as u32).clamp(min, max);
        Self {
            ios_max: of(IOS_PER_S, IOS_MIN, IOS_MAX).into(),
            evaluations: of(EVALUATIONS_PER_S, EVALUATIONS_MIN, EVALUATIONS_MAX),
            deadline: Instant::now().checked_add(time.mul_f64(SEARCH_END)),
        }
    }
}

/// Fits a model to a target or a log.
///
/// # Errors
/// [`FitError`]: the target cannot be measured, or the data do not determine a model.
pub fn fit(options: &FitOptions, progress: &mut dyn Progress) -> Result<Fit, FitError> {
    let effort = Effort::of(options.time);
    if is_log(&options.source) {
        fit_log(options, effort, progress)
    } else {
        fit_target(options, effort, progress)
    }
}

/// Whether the name is that of a request log or a trace. Returns false if it cannot be read; opening the target then
/// reports the error.
fn is_log(source: &Path) -> bool {
    let has_requests = |content| !matches!(content, Content::Other);
    !is_model(source) && source.is_file() && content_of(source).is_ok_and(has_requests)
}

fn fit_log(options: &FitOptions, effort: Effort, progress: &mut dyn Progress) -> Result<Fit, FitError> {
    let log = LogReplay::read(&options.source)?;
    if log.is_mechanical() {
        return Err(FitError::MechanicalLog { log: options.source.clone() });
    }
    let estimates = log.estimates().expect("a log with cases has a class");
    let candidates = without_mechanics(&estimates);
    let found = choose(&log, candidates, effort, &options.source, progress)?;
    let report = FitReport {
        log: Some(options.source.display().to_string()),
        warnings: log.warnings.clone(),
        ..found.report(&log, Quantity::LatencyNs)?
    };
    Ok(found.finish(report, &format!("request log {}", options.source.display())))
}

fn fit_target(options: &FitOptions, effort: Effort, progress: &mut dyn Progress) -> Result<Fit, FitError> {
    let begun = Instant::now();
    let (target, writes) = prepare(options, progress)?;
    let lab = target.model().is_none().then(|| Lab::new(IDLE_SAMPLE.min(options.time / 10), progress));
    let probe = probe(&target, lab.as_ref(), options, progress)?;
    let align = target.direct_align_bytes()?;
    let plan = plan::plan(target.size_bytes(), align, probe.latency, writes);
    let deadline = begun + options.time.mul_f64(MEASURE_SHARE);
    let time = match &lab {
        // One round ends before the deadline.
        Some(_) => probe.slice.min(slice_max(deadline.saturating_duration_since(Instant::now()), plan.len())),
        None => probe.slice,
    };
    let slice = Slice { time, ios_max: effort.ios_max };
    let runs = measure(&target, lab.as_ref(), &plan, slice, deadline, progress)?;
    let workloads = Workloads::new(runs, slice);
    let noise = workloads.runs.noise;
    check_noise(&options.source, noise)?;
    let request_max_bytes = request_max_bytes(&target);
    let estimates = Estimates::of(&workloads, target.size_bytes(), request_max_bytes);
    let estimates = estimates.ok_or_else(|| too_small(&options.source, target.size_bytes()))?;
    let mut candidates: Vec<Candidate> = match probe.latency {
        LatencyCause::Electronic => Vec::new(),
        LatencyCause::Mechanical | LatencyCause::Unknown => disk::candidates(&workloads, &estimates),
    };
    candidates.extend(without_mechanics(&estimates));
    let found = choose(&workloads, candidates, effort, &options.source, progress)?;
    let mut warnings = workloads.runs.warnings.clone();
    if let Some(noise) = noise.filter(|noise| *noise > NOISE_WARNING) {
        warnings.push(format!(
            "the measurement is noisy: a repetition deviates by {:.0}% (median) from the median of its workload; the stated \
             error includes this noise", noise * 100.0
        ));
    }
    if lab.is_some() && noise.is_none() {
        warnings.push(format!(
            "the noise of the measurement is unknown: {} of the 3 rounds that it needs; use a longer time",
            workloads.runs.rounds
        ));
    }
    if !writes {
        warnings.push(
            "writes were not measured: the model serves them as reads (--overwrite measures them)".to_owned(),
        );
    }
    let facts = target.facts();
    let report = FitReport {
        clock: if lab.is_some() { Clock::Real } else { Clock::Virtual },
        host: lab.as_ref().and_then(|lab| lab.host().cloned()),
        target: facts.clone(),
        rounds: workloads.runs.rounds,
        noise,
        noise_floor: workloads.noise_floor(),
        warnings,
        ..found.report(&workloads, Quantity::Iops)?
    };
    let measured = facts
        .as_ref()
        .map_or_else(|| options.source.display().to_string(), |facts| described(facts, &options.source));
    Ok(found.finish(report, &measured))
}

/// The time of a run if a round of `workloads` is to end within `left`. The rest of a round is preparation and flushes.
fn slice_max(left: Duration, workloads: usize) -> Duration {
    (left.mul_f64(ROUND_SHARE) / workloads.max(1) as u32).max(SLICE_MIN)
}

fn without_mechanics(estimates: &Estimates) -> Vec<Candidate> {
    let mut candidates = cloud::candidates(estimates);
    candidates.push(flash::candidate(estimates));
    candidates
}

/// The best model, and the results of all candidates.
struct Found {
    draft: Draft,
    tried: Vec<CandidateError>,
}

/// Searches the parameters of each candidate in the training figures, and chooses the one with the smallest deviation
/// from the figures held back: a kind with more parameters follows the training more closely, and predicts no better.
fn choose(
    evidence: &dyn Evidence,
    candidates: Vec<Candidate>,
    effort: Effort,
    source: &Path,
    progress: &mut dyn Progress,
) -> Result<Found, FitError> {
    let mut tried = Vec::new();
    let mut best: Option<(f64, Draft)> = None;
    let kinds = candidates.len();
    for (number, Candidate { name, variables, draft }) in candidates.into_iter().enumerate() {
        progress.stage(&Stage::Fit { model: name });
        // Each kind has an equal share of the time that is left.
        let until = effort.deadline.map(|deadline| {
            let now = Instant::now();
            now + deadline.saturating_duration_since(now) / (kinds - number) as u32
        });
        let mut evaluations = 0;
        let found: Best = minimise(&variables, effort.evaluations, |values| {
            if evaluations >= EVALUATIONS_FEWEST && until.is_some_and(|until| Instant::now() >= until) {
                // No better than the best one, so the search ends where it is.
                return Ok(f64::INFINITY);
            }
            evaluations += 1;
            progress.advance(f64::from(evaluations) / f64::from(effort.evaluations));
            // Values that contradict each other are not a valid model.
            draft(values).model().map_or(Ok(f64::INFINITY), |model| score(evidence, &model, Part::Training))
        })?;
        let draft = draft(&found.values);
        let held_back = match draft.model() {
            Ok(model) if found.score.is_finite() => Some(score(evidence, &model, Part::HeldBack)?),
            _ => None,
        };
        let held_back = held_back.filter(|score| score.is_finite());
        tried.push(CandidateError { name: name.to_owned(), score: found.score, held_back, evaluations });
        let chosen_by = held_back.unwrap_or(found.score);
        if best.as_ref().is_none_or(|(score, _)| chosen_by < *score) {
            best = Some((chosen_by, draft));
        }
    }
    let none = |error| FitError::NoModel { source_name: source.to_owned(), error };
    let (_, draft) = best.filter(|(score, _)| score.is_finite()).ok_or_else(|| none(f64::INFINITY))?;
    let found = Found { draft, tried };
    let error = summary(&found.figures(evidence, Part::Training, Quantity::Iops)?);
    if error.median > TRAINING_ERROR_MAX {
        return Err(none(error.median));
    }
    Ok(found)
}

/// The warning about a model that fits its training but predicts little. `median` is the median error on the workloads
/// held back.
fn prediction_warning(median: f64) -> Option<String> {
    (median > HELD_BACK_WARNING).then(|| {
        format!(
            "the model predicts little: its median error on the workloads held back is {:.0}%; repeat the fit on an idle \
             machine, with a longer time",
            median * 100.0
        )
    })
}

impl Found {
    fn figures(
        &self,
        evidence: &dyn Evidence,
        part: Part,
        quantity: Quantity,
    ) -> Result<Vec<FittedFigure>, FitError> {
        let predicted = evidence.predict(&self.draft.model()?, part)?;
        let figure = |(case, modelled): (&evidence::Case, f64)| FittedFigure {
            workload: case.name.clone(),
            rw: case.rw.to_owned(),
            block_bytes: case.block_bytes,
            io_depth: case.depth,
            quantity,
            measured: case.measured,
            modelled,
            deviation: modelled / case.measured - 1.0,
            noise: case.noise,
        };
        Ok(cases_of(evidence, part).zip(predicted).map(figure).collect())
    }

    /// The report, without the fields that depend on the source.
    fn report(&self, evidence: &dyn Evidence, quantity: Quantity) -> Result<FitReport, FitError> {
        let training = self.figures(evidence, Part::Training, quantity)?;
        let held_back = self.figures(evidence, Part::HeldBack, quantity)?;
        let parameters = self.draft.lines.iter().map(|line| FittedParameter {
            name: line.name.to_owned(),
            value: line.value,
            source: line.source.clone(),
        });
        Ok(FitReport {
            schema: SCHEMA.to_owned(),
            clock: Clock::Real,
            source: String::new(),
            host: None,
            target: None,
            log: None,
            kind: self.draft.kind.to_owned(),
            parameters: parameters.collect(),
            candidates: self.tried.clone(),
            rounds: 1,
            error: summary(&held_back),
            training_error: summary(&training),
            training,
            held_back,
            noise: None,
            noise_floor: None,
            warnings: Vec::new(),
        })
    }

    /// The model file, with the error of the model in its comment.
    fn finish(self, report: FitReport, measured: &str) -> Fit {
        let mut report = FitReport { source: measured.to_owned(), ..report };
        report.warnings.extend(prediction_warning(report.error.median));
        let mut comment = vec![
            format!("{} {} to {measured}", FILE_START.trim_start_matches("# "), env!("CARGO_PKG_VERSION")),
            stated::held_back_line(report.held_back.len(), &report.error),
            format!(
                "Error on the {} figures of the training: median {}.",
                report.training.len(),
                percent(report.training_error.median)
            ),
        ];
        if let Some(noise) = report.noise {
            let noise = noise_text(noise, report.noise_floor);
            comment.push(format!("Noise of {} repetitions: {noise}.", report.rounds));
        }
        comment.extend(report.warnings.iter().map(|warning| format!("Warning: {warning}")));
        Fit { file: self.draft.text(&format!("fitted to {measured}"), &comment), report }
    }
}

/// Summarises the deviations without their signs.
fn summary(figures: &[FittedFigure]) -> ErrorSummary {
    let deviations: Vec<f64> = figures.iter().map(|figure| figure.deviation.abs()).collect();
    ErrorSummary {
        median: median(&deviations),
        p90: quantile(&deviations, 0.9),
        max: deviations.iter().copied().fold(0.0, f64::max),
    }
}

#[cfg(test)]
mod tests;
