//! Runs several experiments on a few threads, and collects their reports. The text is in `view.rs`.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use iopath_report::result::Host;
use schemars::JsonSchema;
use serde::Serialize;

use super::on_target::{TargetRun, is_directory};
use super::report::{Direction, Report, Row, Verdict};
use super::{EXPERIMENTS, Experiment, OnTarget, Parameter, ParameterError, Settings};
use crate::error::LabError;
use crate::progress::{Progress, Stage};
use crate::run::{IDLE_SAMPLE, Lab};

/// The name and version of the JSON schema.
pub const EXPERIMENTS_SCHEMA: &str = "iopath.experiments/1";

/// The experiments to run.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Their ids, each at most once; empty means all.
    pub ids: Vec<String>,
    /// Values of parameters as `NAME=VALUE`. They need exactly one experiment.
    pub set: Vec<String>,
    /// Real storage: a directory for scratch files, or a file or block device for experiments that only read. None
    /// means models in virtual time.
    pub target: Option<PathBuf>,
}

/// The result of an experiment, with the values of its parameters.
#[derive(Debug, Clone)]
pub struct ExperimentResult {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// The values of its parameters.
    pub settings: Settings,
    /// The rows and directions.
    pub report: Report,
    /// The target; none in virtual time.
    pub target: Option<PathBuf>,
}

impl ExperimentResult {
    /// The verdict of the report. `None` if a parameter is set and no row has a published figure. The source did not
    /// measure such a setup, so a direction that holds in it is not the published effect.
    pub fn verdict(&self) -> Option<Verdict> {
        let is_of_the_source =
            !self.settings.is_any_set() || self.report.rows.iter().any(|row| row.published.is_some());
        self.report.verdict().filter(|_| is_of_the_source)
    }
}

/// The results of experiments, in the order of their selection.
#[derive(Debug, Clone)]
pub struct ExperimentsReport {
    /// The machine; none in virtual time.
    pub host: Option<Host>,
    /// One for each experiment.
    pub results: Vec<ExperimentResult>,
}

/// Runs the selected experiments: in virtual time in parallel, on real storage one after another.
///
/// In virtual time the results depend on the settings alone. Exceptions are rows whose names state that they are
/// measured on this machine.
///
/// # Errors
/// [`LabError`]: an id or parameter is unknown, a value is not valid, or an experiment failed.
pub fn experiments(
    selection: &Selection,
    progress: &mut dyn Progress,
) -> Result<ExperimentsReport, LabError> {
    let chosen = choose(selection)?;
    let (host, results) = match &selection.target {
        Some(target) => {
            let lab = Lab::new(IDLE_SAMPLE, progress);
            (Some(lab.host().clone()), on_target(&chosen, target, &lab, progress))
        }
        None => (None, in_virtual_time(&chosen, progress)),
    };
    Ok(ExperimentsReport { host, results: results? })
}

type Chosen = Vec<(&'static Experiment, Settings)>;

fn choose(selection: &Selection) -> Result<Chosen, LabError> {
    let Selection { ids, set, target } = selection;
    let on_target = target.is_some();
    let is_directory = target.as_deref().map_or(Ok(true), is_directory)?;
    let reads = |experiment: &Experiment| matches!(experiment.on_target, Some(OnTarget::Reads(_)));
    let mut experiments: Vec<&'static Experiment> = Vec::new();
    for id in ids {
        let experiment = Experiment::find(id)?;
        if on_target && !experiment.runs_on_target() {
            return Err(LabError::NotOnTarget { id: experiment.id, known: on_targets() });
        }
        if !is_directory && !reads(experiment) {
            return Err(LabError::NotADirectory { target: target.clone().unwrap_or_default() });
        }
        if !experiments.iter().any(|known| known.id == experiment.id) {
            experiments.push(experiment);
        }
    }
    if ids.is_empty() {
        let suits = |experiment: &&Experiment| match experiment.on_target {
            Some(_) => is_directory || reads(experiment),
            None => !on_target,
        };
        experiments.extend(EXPERIMENTS.iter().filter(suits));
    }
    if !set.is_empty() && experiments.len() != 1 {
        return Err(ParameterError::Several(experiments.len()).into());
    }
    let with_settings = |experiment: &'static Experiment| {
        Settings::new(experiment.parameters, set).map(|settings| (experiment, settings))
    };
    Ok(experiments.into_iter().map(with_settings).collect::<Result<_, _>>()?)
}

fn on_targets() -> Vec<&'static str> {
    EXPERIMENTS
        .iter()
        .filter(|experiment| experiment.runs_on_target())
        .map(|experiment| experiment.id)
        .collect()
}

/// Each thread runs the next experiment. An experiment runs on one thread with random numbers of its own, so the number
/// of threads does not change a result.
fn in_virtual_time(chosen: &Chosen, progress: &mut dyn Progress) -> Result<Vec<ExperimentResult>, LabError> {
    let count = chosen.len();
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(count);
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut reports: Vec<Option<Result<Report, LabError>>> = chosen.iter().map(|_| None).collect();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((experiment, settings)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = (experiment.run)(settings);
                    if sender.send((experiment.id, report)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (number, (id, report)) in (1..).zip(receiver) {
            let of = |(experiment, _): &(&Experiment, Settings)| experiment.id == id;
            let index = chosen.iter().position(of).expect("a thread runs chosen experiments only");
            reports[index] = Some(report);
            progress.stage(&Stage::Experiment { id, number, count });
            progress.advance(f64::from(number) / count as f64);
        }
    });
    let finished = chosen.iter().zip(reports).map(|((experiment, settings), report)| {
        let report = report.expect("the scope has waited for every experiment");
        let report = report.map_err(|error| with_settings(experiment.id, settings, error))?;
        Ok(ExperimentResult { experiment, settings: settings.clone(), report, target: None })
    });
    finished.collect()
}

/// The error with the parameters that are set: they have caused it, and it may name a quantity that follows from them.
fn with_settings(id: &'static str, settings: &Settings, error: LabError) -> LabError {
    if !settings.is_any_set()
        || !matches!(error, LabError::Workload(_) | LabError::Model(_) | LabError::Unaligned { .. })
    {
        return error;
    }
    let set = settings.all().filter(|(_, _, is_set)| *is_set);
    let set: Vec<String> = set.map(|(parameter, value, _)| format!("{}={value}", parameter.name)).collect();
    LabError::Setting { id, set: set.join(" "), source: Box::new(error) }
}

fn on_target(
    chosen: &Chosen,
    target: &Path,
    lab: &Lab,
    progress: &mut dyn Progress,
) -> Result<Vec<ExperimentResult>, LabError> {
    let mut results = Vec::new();
    for (number, (experiment, settings)) in (1..).zip(chosen) {
        progress.stage(&Stage::Experiment { id: experiment.id, number, count: chosen.len() });
        let run = experiment.on_target.expect("the selection has only experiments for targets").function();
        let report = run(&mut TargetRun::new(lab, target, settings, progress))?;
        let target = Some(target.to_owned());
        results.push(ExperimentResult { experiment, settings: settings.clone(), report, target });
    }
    Ok(results)
}

/// A row in JSON.
#[derive(Debug, JsonSchema, Serialize)]
struct JsonRow<'a> {
    what: &'a str,
    unit: &'a str,
    published: Option<f64>,
    ours: f64,
    deviation: Option<f64>,
    tolerance: f64,
    range: Option<[f64; 2]>,
    calibrated: bool,
    secondary: bool,
}

impl<'a> JsonRow<'a> {
    fn new(row: &'a Row) -> Self {
        let Row { what, unit, published, ours, tolerance, range, calibrated, secondary } = row;
        let deviation = row.deviation();
        let (published, ours, tolerance) = (*published, *ours, *tolerance);
        let (range, calibrated, secondary) = (*range, *calibrated, *secondary);
        Self { what, unit, published, ours, deviation, tolerance, range, calibrated, secondary }
    }
}

#[derive(Debug, JsonSchema, Serialize)]
struct JsonParameter<'a> {
    name: &'a str,
    unit: &'a str,
    value: String,
    set: bool,
    source: &'a str,
}

#[derive(Debug, JsonSchema, Serialize)]
struct JsonExperiment<'a> {
    id: &'a str,
    title: &'a str,
    verdict: Option<Verdict>,
    target: Option<&'a Path>,
    published: &'a str,
    parameters: Vec<JsonParameter<'a>>,
    rows: Vec<JsonRow<'a>>,
    directions: &'a [Direction],
    evidence: &'a [String],
    notes: &'a [String],
}

/// The results as JSON.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ExperimentsDocument<'a> {
    schema: &'a str,
    host: Option<&'a Host>,
    experiments: Vec<JsonExperiment<'a>>,
}

impl ExperimentsReport {
    /// The results as JSON of [`EXPERIMENTS_SCHEMA`].
    pub fn to_json(&self) -> String {
        let experiments = self.results.iter().map(json).collect();
        let json = ExperimentsDocument { schema: EXPERIMENTS_SCHEMA, host: self.host.as_ref(), experiments };
        serde_json::to_string_pretty(&json).expect("the report has only strings and finite numbers") + "\n"
    }
}

fn json(result: &ExperimentResult) -> JsonExperiment<'_> {
    let ExperimentResult { experiment, settings, report, target } = result;
    let Experiment { id, title, published, .. } = experiment;
    let parameter = |(parameter, value, set): (&'static Parameter, String, bool)| JsonParameter {
        name: parameter.name,
        unit: parameter.unit,
        value,
        set,
        source: if set { "set" } else { parameter.source },
    };
    JsonExperiment {
        id,
        title,
        verdict: result.verdict(),
        target: target.as_deref(),
        published,
        parameters: settings.all().map(parameter).collect(),
        rows: report.rows.iter().map(JsonRow::new).collect(),
        directions: &report.directions,
        evidence: &report.evidence,
        notes: &report.notes,
    }
}
