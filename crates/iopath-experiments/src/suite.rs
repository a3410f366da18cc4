//! Runs several experiments on a few threads, and collects their reports. The text is in `iopath-report`.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use iopath_report::experiment::{ExperimentResult, ExperimentsReport, ParameterError, Report, Settings};

use super::error::ExperimentError;
use super::on_target::{TargetRun, is_directory};
use super::registry::EXPERIMENTS;
use super::row::{Experiment, OnTarget};
use iopath_bench::error::BenchError;
use iopath_bench::progress::{Progress, Stage};
use iopath_bench::run::{IDLE_SAMPLE, Lab};

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

/// Runs the selected experiments: in virtual time in parallel, on real storage one after another.
///
/// In virtual time the results depend on the settings alone. Exceptions are rows whose names state that they are
/// measured on this machine.
///
/// # Errors
/// [`ExperimentError`]: an id or parameter is unknown, a value is not valid, or an experiment failed.
pub fn experiments(
    selection: &Selection,
    progress: &mut dyn Progress,
) -> Result<ExperimentsReport, ExperimentError> {
    let chosen = choose(selection)?;
    let (host, results) = match &selection.target {
        Some(target) => {
            let lab = Lab::new(IDLE_SAMPLE, progress);
            (lab.host().cloned(), on_target(&chosen, target, &lab, progress))
        }
        None => (None, in_virtual_time(&chosen, progress)),
    };
    Ok(ExperimentsReport { host, results: results? })
}

type Chosen = Vec<(&'static Experiment, Settings)>;

fn choose(selection: &Selection) -> Result<Chosen, ExperimentError> {
    let Selection { ids, set, target } = selection;
    let on_target = target.is_some();
    let is_directory = target.as_deref().map_or(Ok(true), is_directory)?;
    let reads = |experiment: &Experiment| matches!(experiment.on_target, Some(OnTarget::Reads(_)));
    let mut experiments: Vec<&'static Experiment> = Vec::new();
    for id in ids {
        let experiment = Experiment::find(id)?;
        if on_target && !experiment.runs_on_target() {
            return Err(ExperimentError::NotOnTarget { id: experiment.id, known: on_targets() });
        }
        if !is_directory && !reads(experiment) {
            return Err(ExperimentError::NotADirectory { target: target.clone().unwrap_or_default() });
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
fn in_virtual_time(
    chosen: &Chosen,
    progress: &mut dyn Progress,
) -> Result<Vec<ExperimentResult>, ExperimentError> {
    let count = chosen.len();
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(count);
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut reports: Vec<Option<Result<Report, ExperimentError>>> = chosen.iter().map(|_| None).collect();
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
        Ok(experiment.result(settings, report, None))
    });
    finished.collect()
}

/// The error with the parameters that are set: they have caused it, and it may name a quantity that follows from them.
fn with_settings(id: &'static str, settings: &Settings, error: ExperimentError) -> ExperimentError {
    let source = match error {
        ExperimentError::Bench(
            error @ (BenchError::Workload(_) | BenchError::Model(_) | BenchError::Unaligned { .. }),
        ) if settings.is_any_set() => Box::new(error),
        other => return other,
    };
    let set = settings.all().filter(|(_, _, is_set)| *is_set);
    let set: Vec<String> = set.map(|(parameter, value, _)| format!("{}={value}", parameter.name)).collect();
    ExperimentError::Setting { id, set: set.join(" "), source }
}

fn on_target(
    chosen: &Chosen,
    target: &Path,
    lab: &Lab,
    progress: &mut dyn Progress,
) -> Result<Vec<ExperimentResult>, ExperimentError> {
    let mut results = Vec::new();
    for (number, (experiment, settings)) in (1..).zip(chosen) {
        progress.stage(&Stage::Experiment { id: experiment.id, number, count: chosen.len() });
        let run = experiment.on_target.expect("the selection has only experiments for targets").function();
        let report = run(&mut TargetRun::new(lab, target, settings, progress))?;
        let target = Some(target.to_owned());
        results.push(experiment.result(settings, report, target));
    }
    Ok(results)
}
