//! `iopath tune --try`: measures candidate settings on a workload, and keeps the best one if it is better with
//! confidence. The search is in `halving.rs`.

use iopath_report::tune::{CandidateFacts, PRESENT, TRIAL_SCHEMA, TrialReport};
use std::path::Path;

use iopath_report::sweep::Axis;
use iopath_report::tune::TrialVerdict;

use super::change::set;
use super::error::TuneError;
use super::halving::{Limits, Outcome, search};
use crate::sweep::{parse_axis, product};
use iopath_bench::device_settings::SettingsError;
use iopath_bench::device_settings::{Change, Session, SettingName, SettingsDevice, Until};
use iopath_bench::error::BenchError;
use iopath_bench::progress::{Progress, Stage};
use iopath_bench::signals::Interruption;

/// The maximum number of candidates.
const CANDIDATES_MAX: usize = 64;

/// Values of the default candidates: each setting alone.
const DEFAULTS: [(&str, &[&str]); 3] = [
    ("nr_requests", &["64", "256", "1024"]),
    ("max_sectors_kb", &["128", "512", "1280"]),
    ("read_ahead_kb", &["128", "512", "2048", "8192"]),
];

/// One measurement with the present settings.
pub trait Measure {
    /// The unit of the values.
    fn unit(&self) -> &'static str;

    /// Measures the workload once. The larger the value, the better.
    ///
    /// # Errors
    /// [`TuneError`]: the workload cannot run.
    fn measure(&mut self) -> Result<f64, TuneError>;
}

/// The candidates: all combinations of lists `NAME=A,B`, or without lists each setting alone with other values.
///
/// # Errors
/// [`TuneError`]: a name or a value is wrong, or there are too many combinations.
pub fn candidates(device: &SettingsDevice, lists: &[String]) -> Result<Vec<Vec<Change>>, TuneError> {
    let mut axes: Vec<Axis> = Vec::new();
    for text in lists {
        let (name, list) = text.split_once('=').ok_or_else(|| SettingsError::Form(text.clone()))?;
        let name = SettingName::find(name)?;
        if axes.iter().any(|axis| axis.name == name.as_str()) {
            return Err(SettingsError::Twice(name.to_string()).into());
        }
        axes.push(parse_axis(name.as_str(), list)?);
    }
    let change = |name: &str, value: &str| -> Result<Change, TuneError> {
        let name = SettingName::find(name)?;
        Ok(Change { value: name.parse(value)?, name })
    };
    let settings = device.settings();
    let is_present = |change: &Change| {
        settings.iter().any(|setting| setting.name == change.name && setting.value == change.value)
    };
    let mut candidates: Vec<Vec<Change>> = Vec::new();
    if lists.is_empty() {
        let schedulers = device.choices(&SettingName::find("scheduler")?);
        for scheduler in &schedulers {
            candidates.push(vec![change("scheduler", scheduler)?]);
        }
        for (name, value) in
            DEFAULTS.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)))
        {
            candidates.push(vec![change(name, value)?]);
        }
    } else {
        for indices in product(&axes)? {
            let changes =
                axes.iter().zip(&indices).map(|(axis, index)| change(&axis.name, &axis.values[*index]));
            candidates.push(changes.collect::<Result<_, _>>()?);
        }
    }
    candidates.retain(|candidate| !candidate.iter().all(is_present));
    if candidates.len() > CANDIDATES_MAX {
        let (name, value) = ("--try".to_owned(), format!("{} combinations", candidates.len()));
        return Err(SettingsError::Value {
            name,
            value,
            values: format!("at most {CANDIDATES_MAX} candidates"),
        }
        .into());
    }
    Ok(candidates)
}

/// Measures candidates, and sets the best one if it is better with confidence, until `iopath tune --restore`. Otherwise
/// all settings are as before. A signal or a failure after the first measurement ends the search with a partial report.
///
/// # Errors
/// [`TuneError`]: the workload cannot run, no candidate can be set, or the settings are not restored.
pub fn try_settings(
    device: SettingsDevice,
    candidates: &[Vec<Change>],
    limits: &Limits,
    measure: &mut dyn Measure,
    progress: &mut dyn Progress,
) -> Result<TrialReport, TuneError> {
    let name = device.name().to_owned();
    let mut session = Session::begin(device, Until::Exit)?;
    let mut notes: Vec<String> = session.take_leftovers().iter().map(ToString::to_string).collect();
    let searched = search_on(&session, &name, candidates, limits, measure, &mut notes, progress);
    // First: settings that are not restored are worse than any failure of a measurement.
    session.end()?;
    let (valid, outcome, error) = searched?;
    let mean = |values: &[f64]| {
        let logs = values.iter().map(|value| value.ln()).sum::<f64>();
        (!values.is_empty()).then(|| (logs / values.len() as f64).exp())
    };
    let all = std::iter::once(&[][..]).chain(valid.iter().copied());
    let facts = all.enumerate().map(|(number, changes)| CandidateFacts {
        settings: text_of(changes),
        mean: mean(&outcome.values[number]),
        repetitions: outcome.values[number].len(),
        removed: outcome.removed[number].map(|removal| removal.round),
        of_present: outcome.ratios[number],
        kept_from: outcome.removed[number].map(|removal| removal.kept_from),
    });
    let winner = outcome.winner.map(|number| valid[number - 1]);
    let better = winner.filter(|_| error.is_none() && outcome.verdict == TrialVerdict::Better);
    if let Some(better) = better {
        set(Path::new(&name), better, false, &mut notes)?;
    }
    Ok(TrialReport {
        schema: TRIAL_SCHEMA.to_owned(),
        unit: measure.unit().to_owned(),
        candidates: facts.collect(),
        winner: winner.map(text_of),
        verdict: outcome.verdict,
        difference: outcome.difference,
        ci95: outcome.interval,
        pairs: outcome.pairs,
        set: better.is_some(),
        device: name,
        notes,
        partial: error.is_some(),
        failure: error.filter(|error| !is_interruption(error)).map(|error| error.to_string()),
    })
}

/// The candidates that the device accepts, the outcome of the search among them, and the error that ended it.
type Searched<'a> = (Vec<&'a [Change]>, Outcome, Option<TuneError>);

/// Searches among the candidates that the device accepts. The last settings stay.
///
/// # Errors
/// [`TuneError`]: no candidate can be set, or the first measurement failed.
fn search_on<'a>(
    session: &Session,
    device: &str,
    candidates: &'a [Vec<Change>],
    limits: &Limits,
    measure: &mut dyn Measure,
    notes: &mut Vec<String>,
    progress: &mut dyn Progress,
) -> Result<Searched<'a>, TuneError> {
    let mut valid: Vec<&[Change]> = Vec::new();
    for candidate in candidates {
        match session.set(candidate) {
            Ok(()) => valid.push(candidate),
            Err(error) if error.is_refusal() => notes.push(format!("{}: {error}", text_of(candidate))),
            Err(error) => return Err(error.into()),
        }
    }
    if valid.is_empty() {
        let reason = notes.first().cloned().unwrap_or_else(|| "each value is the present one".to_owned());
        let reason = format!("no candidate can be set ({reason})");
        return Err(SettingsError::NoDevice { device: device.to_owned(), reason }.into());
    }
    let mut count = 0;
    let (outcome, error) = search(valid.len(), limits, |number| {
        count += 1;
        let changes = if number == 0 { &[][..] } else { valid[number - 1] };
        progress.stage(&Stage::Trial { number: count, candidate: text_of(changes) });
        session.set(changes)?;
        let value = measure.measure()?;
        notes.extend(session.drift().iter().map(|drift| format!("{}: {drift}", text_of(changes))));
        Ok::<f64, TuneError>(value)
    });
    // After a request, no winner is set, even if the last measurement was complete.
    let interrupted = || Interruption::is_requested().then(|| BenchError::Interrupted.into());
    match error.or_else(interrupted) {
        Some(error) if outcome.values.iter().all(Vec::is_empty) => Err(error),
        error => Ok((valid, outcome, error)),
    }
}

fn is_interruption(error: &TuneError) -> bool {
    matches!(error.bench(), Some(BenchError::Interrupted))
}

fn text_of(changes: &[Change]) -> String {
    if changes.is_empty() {
        return PRESENT.to_owned();
    }
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
