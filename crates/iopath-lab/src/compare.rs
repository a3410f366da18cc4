//! Compares two results, or two commands that run alternately, with confidence intervals and verdicts. The statistics
//! are in `iopath-report/src/stats/contrast.rs`; docs/compare.md gives the reasons of the method. Does not measure.

mod classic;
mod data;
mod error;
mod fio;
mod fio_options;
mod json;
mod live;
pub(crate) mod looks;
mod matching;
mod ours;
mod report;
mod source;
mod verdict;

use iopath_bench::host::this_machine;

use std::path::PathBuf;
use std::time::Duration;

use iopath_report::compare::{Comparison, RunComparison, Verdict, letter};
use iopath_report::html::PageOptions;

use iopath_bench::progress::{Progress, Stage};
use live::{Commands, End, Plan};
use source::Spec;
use verdict::Design;

pub use error::CompareError;

/// The error rate of a comparison.
const ALPHA: f64 = 0.05;

/// The names of all metrics.
pub fn metric_names() -> impl Iterator<Item = &'static str> {
    data::METRICS.into_iter().map(|metric| metric.name)
}

/// A side of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSide {
    /// The name in results.
    pub name: String,
    /// The files or the command.
    pub text: String,
}

/// What files to compare, and how.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// A and B: the files of each, as `FILE[,FILE…][@KEY=VALUE…]`.
    pub sides: [String; 2],
    /// The largest difference that counts as the same, as a fraction above 0.
    pub threshold: f64,
    /// The metric that decides; default: throughput or IOPS, or p99 at a fixed rate.
    pub metric: Option<String>,
    /// Conditions that may differ; `all` permits every difference.
    pub vary: Vec<String>,
}

/// The commands and the limits of a live comparison.
#[derive(Debug, Clone)]
pub struct LiveOptions {
    /// The commands, two or more. Each is compared with the first.
    pub commands: Vec<NamedSide>,
    /// As in [`CompareOptions`].
    pub threshold: f64,
    /// As in [`CompareOptions`].
    pub metric: Option<String>,
    /// The maximum number of executions of each command.
    pub repetitions_max: u32,
    /// The maximum time. No round starts that would probably end later.
    pub time_max: Duration,
    /// The seed of the order within rounds.
    pub seed: u64,
    /// The commands around those that are compared.
    pub around: Around,
}

/// Commands around those of a live comparison. Their times do not count.
#[derive(Debug, Clone, Default)]
pub struct Around {
    /// Executed once before all others.
    pub setup: Option<String>,
    /// Executed before each execution of a compared command.
    pub prepare: Option<String>,
    /// Executed once after all others, also after a failure or a signal.
    pub cleanup: Option<String>,
    /// The executions of each command before those that count.
    pub warmup: u32,
}

/// An execution of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Execution {
    /// The name of the command.
    pub side: String,
    /// Its wall time in seconds.
    pub seconds: f64,
}

/// The end of a live comparison.
#[derive(Debug)]
pub struct LiveEnd {
    /// The comparison of all complete rounds; none without one.
    pub comparison: Option<Comparison>,
    /// The failure that ended it.
    pub error: Option<CompareError>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The executions that ended, in their order; without those of the warm-up.
    pub executions: Vec<Execution>,
}

/// The files that a side of [`compare_files`] names.
///
/// # Errors
/// [`CompareError::Selection`]: the side names no file.
pub fn input_files(side: &str) -> Result<Vec<PathBuf>, CompareError> {
    Ok(Spec::parse(side)?.files.into_iter().map(PathBuf::from).collect())
}

/// Compares the results in files.
///
/// # Errors
/// [`CompareError`]: a file cannot be read, or the results are not comparable.
pub fn compare_files(options: &CompareOptions) -> Result<Comparison, CompareError> {
    let [a, b] = &options.sides;
    let specs = [Spec::parse(a)?, Spec::parse(b)?];
    let files = [specs[0].read()?, specs[1].read()?];
    // A condition that both sides select is an intended difference.
    let selected = specs[0].selection.iter().map(|(key, _)| key);
    let mut vary: Vec<String> =
        selected.filter(|key| specs[1].selection.iter().any(|(other, _)| other == *key)).cloned().collect();
    vary.extend(options.vary.iter().cloned());
    let matched = matching::pair_up([&files[0], &files[1]], [a, b], &vary)?;
    let sides = letters(&options.sides);
    let names = [sides[0].name.as_str(), sides[1].name.as_str()];
    let compare = |[a, b]: &[data::Run; 2]| {
        verdict::compare([a, b], names, options.metric.as_deref(), Design::Independent)
    };
    let compared: Vec<_> = matched.pairs.iter().map(compare).collect::<Result<_, _>>()?;
    let decisions = verdict::decide(&compared, options.threshold.ln_1p(), ALPHA);
    let report = report::report(&sides, options.threshold, &matched.pairs, &compared, decisions);
    let notes = report.notes.iter().cloned().chain(one_execution(&files, &report)).collect();
    let (metric, vary, unmatched) = (options.metric.clone(), options.vary.clone(), matched.unmatched);
    Ok(Comparison { metric, vary, unmatched, notes, ..report })
}

/// Sides without names of their own: A, B and so on.
pub(crate) fn letters(texts: &[String]) -> Vec<NamedSide> {
    texts.iter().enumerate().map(|(at, text)| NamedSide { name: letter(at), text: text.clone() }).collect()
}

/// Commands with names.
///
/// # Errors
/// [`CompareError::Selection`]: some commands have a name and others none.
pub fn named(texts: &[String], names: &[String]) -> Result<Vec<NamedSide>, CompareError> {
    let mut sides = letters(texts);
    if !names.is_empty() && names.len() != texts.len() {
        return Err(CompareError::Selection(format!(
            "--name: {} names for {} commands; give one for each, or none",
            names.len(),
            texts.len()
        )));
    }
    for (side, name) in sides.iter_mut().zip(names) {
        side.name.clone_from(name);
    }
    Ok(sides)
}

/// Compares two files for a page of results: its option `compare`.
///
/// # Errors
/// In words: a file cannot be read, or the results are not comparable.
pub fn compare_for_page(page: &PageOptions, files: [String; 2]) -> Result<Comparison, String> {
    let options =
        CompareOptions { sides: files, threshold: page.threshold, metric: None, vary: page.vary.clone() };
    compare_files(&options).map_err(|error| error.to_string())
}

/// The note for a difference between two executions: the repetitions of one do not show how much executions differ.
fn one_execution(files: &[Vec<Vec<data::Run>>; 2], report: &Comparison) -> Option<String> {
    let is_different =
        |run: &RunComparison| !matches!(run.metrics[0].verdict, Verdict::Same | Verdict::Inconclusive);
    let is_real = files.iter().flatten().flatten().all(|run| run.fact("clock") != Some("virtual"));
    let is_one_each = files.iter().all(|side| side.len() == 1);
    (is_one_each && is_real && report.runs.iter().any(is_different)).then(|| {
        "Each side is one execution: a change of the machine or the storage between them counts as a difference. \
         --live, or several files a side that were measured alternately, exclude it."
            .to_owned()
    })
}

/// Executes commands alternately, and compares the results of each with those of the first: those in their JSON
/// (iopath's or fio's), or their wall time.
///
/// # Errors
/// [`CompareError`]: fewer than two commands, names that are not distinct, or signals that cannot be handled. Failures
/// of commands are in the end.
pub fn compare_live(options: &LiveOptions, progress: &mut dyn Progress) -> Result<LiveEnd, CompareError> {
    distinct(&options.commands)?;
    let mut commands = Commands::new(options.commands.clone(), options.around.clone(), options.time_max)
        .map_err(|source| CompareError::Read { file: "signals".to_owned(), source })?;
    let plan = Plan {
        sides: options.commands.clone(),
        threshold: options.threshold,
        metric: options.metric.as_deref(),
        rounds_max: options.repetitions_max.max(1),
        seed: options.seed,
    };
    let (comparison, error) = match commands.begin() {
        Ok(()) => live::run(&plan, &mut commands, |number| {
            progress.stage(&Stage::Pair { number, max: plan.rounds_max, commands: plan.sides.len() });
        }),
        Err(End::Interrupted) => (None, None),
        Err(End::Failed(error)) => (None, Some(error)),
    };
    let error = error.or(commands.end().err());
    let (metric, host) = (options.metric.clone(), Some(this_machine(None)));
    let comparison = comparison.map(|mut comparison| {
        comparison.notes.append(&mut commands.notes());
        Comparison { host, metric, ..comparison }
    });
    Ok(LiveEnd { comparison, error, signal: commands.received, executions: commands.executions })
}

/// Refuses names that do not distinguish the commands.
fn distinct(commands: &[NamedSide]) -> Result<(), CompareError> {
    if commands.len() < 2 {
        return Err(CompareError::Selection("a live comparison needs two commands or more".to_owned()));
    }
    for (at, command) in commands.iter().enumerate() {
        if commands[..at].iter().any(|other| other.name == command.name) {
            return Err(CompareError::Selection(format!(
                "--name {}: two commands have this name; each needs one of its own",
                command.name
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
