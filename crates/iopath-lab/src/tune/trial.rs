//! `iopath tune --try`: measures candidate settings on a workload, and keeps the best one if it is better with
//! confidence. The search is in `halving.rs`.

use std::fmt::Write as _;
use std::path::Path;

use iopath_report::format::{Document, Medium};
use iopath_report::numbers::{digits, signed_percent, whole_percent};
use iopath_report::section::{Columns, Section, Table};
use iopath_report::value::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::change::set;
use super::halving::{Limits, Outcome, TrialVerdict, search};
use crate::device_settings::{Change, Session, SettingName, SettingsDevice, Until};
use crate::error::LabError;
use crate::jobfile::JobFileError;
use crate::progress::{Progress, Stage};
use crate::settings_error::SettingsError;
use crate::signals::Interruption;
use crate::sweep::{Axis, product};

/// The name and version of the schema.
pub const SCHEMA: &str = "iopath.tune-trial/1";

/// The name of the settings before the search.
const PRESENT: &str = "present";

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
    /// [`JobFileError`]: the workload cannot run.
    fn measure(&mut self) -> Result<f64, JobFileError>;
}

/// The result of a trial: the output of `--json`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct TrialReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The kernel's name of the disk.
    pub device: String,
    /// The unit of `mean`.
    pub unit: String,
    /// The present settings first, then the candidates.
    pub candidates: Vec<CandidateFacts>,
    /// The candidate that was compared with the present settings; none without one.
    pub winner: Option<String>,
    /// The verdict about it.
    pub verdict: TrialVerdict,
    /// The difference of the winner from the present settings in the confirmation, as a fraction.
    pub difference: f64,
    /// The interval of the difference.
    pub ci95: Option<[f64; 2]>,
    /// Pairs of the confirmation.
    pub pairs: u32,
    /// Whether the settings of the winner are set now.
    pub set: bool,
    /// Candidates that the device does not accept, with the reason, and settings that another program changed.
    pub notes: Vec<String>,
    /// Whether a signal or a failure ended the search: `candidates` has the measurements before it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
    /// The error that ended the search. Not in the JSON.
    #[serde(skip)]
    pub failure: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A candidate.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CandidateFacts {
    /// Its settings, or `present`.
    pub settings: String,
    /// The geometric mean of its measurements in the rounds; none without one.
    pub mean: Option<f64>,
    /// Its measurements in the rounds.
    pub repetitions: usize,
    /// The round that removed it, from 1; none for the winner and the present settings.
    pub removed: Option<u32>,
    /// Its ratio to the present settings in the rounds that measured it. `mean` is not comparable with that of another
    /// candidate: the rounds differ. None for the present settings and before the end of a round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_present: Option<f64>,
    /// The lowest ratio that the round kept which removed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_from: Option<f64>,
}

/// The candidates: all combinations of lists `NAME=A,B`, or without lists each setting alone with other values.
///
/// # Errors
/// [`LabError`]: a name or a value is wrong, or there are too many combinations.
pub fn candidates(device: &SettingsDevice, lists: &[String]) -> Result<Vec<Vec<Change>>, LabError> {
    let mut axes: Vec<Axis> = Vec::new();
    for text in lists {
        let (name, list) = text.split_once('=').ok_or_else(|| SettingsError::Form(text.clone()))?;
        let name = SettingName::find(name)?;
        if axes.iter().any(|axis| axis.name == name.as_str()) {
            return Err(SettingsError::Twice(name.to_string()).into());
        }
        axes.push(Axis::parse(name.as_str(), list)?);
    }
    let change = |name: &str, value: &str| -> Result<Change, LabError> {
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
/// [`JobFileError`]: the workload cannot run, no candidate can be set, or the settings are not restored.
pub fn try_settings(
    device: SettingsDevice,
    candidates: &[Vec<Change>],
    limits: &Limits,
    measure: &mut dyn Measure,
    progress: &mut dyn Progress,
) -> Result<TrialReport, JobFileError> {
    let name = device.name().to_owned();
    let mut session = Session::begin(device, Until::Exit).map_err(LabError::from)?;
    let mut notes: Vec<String> = session.take_leftovers().iter().map(ToString::to_string).collect();
    let searched = search_on(&session, &name, candidates, limits, measure, &mut notes, progress);
    // First: settings that are not restored are worse than any failure of a measurement.
    session.end().map_err(LabError::from)?;
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
        set(Path::new(&name), better, false, &mut notes).map_err(LabError::from)?;
    }
    Ok(TrialReport {
        schema: SCHEMA.to_owned(),
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
type Searched<'a> = (Vec<&'a [Change]>, Outcome, Option<JobFileError>);

/// Searches among the candidates that the device accepts. The last settings stay.
///
/// # Errors
/// [`JobFileError`]: no candidate can be set, or the first measurement failed.
fn search_on<'a>(
    session: &Session,
    device: &str,
    candidates: &'a [Vec<Change>],
    limits: &Limits,
    measure: &mut dyn Measure,
    notes: &mut Vec<String>,
    progress: &mut dyn Progress,
) -> Result<Searched<'a>, JobFileError> {
    let mut valid: Vec<&[Change]> = Vec::new();
    for candidate in candidates {
        match session.set(candidate) {
            Ok(()) => valid.push(candidate),
            Err(error) if is_refusal(&error) => notes.push(format!("{}: {error}", text_of(candidate))),
            Err(error) => return Err(LabError::from(error).into()),
        }
    }
    if valid.is_empty() {
        let reason = notes.first().cloned().unwrap_or_else(|| "each value is the present one".to_owned());
        let reason = format!("no candidate can be set ({reason})");
        return Err(LabError::from(SettingsError::NoDevice { device: device.to_owned(), reason }).into());
    }
    let mut count = 0;
    let (outcome, error) = search(valid.len(), limits, |number| {
        count += 1;
        let changes = if number == 0 { &[][..] } else { valid[number - 1] };
        progress.stage(&Stage::Trial { number: count, candidate: text_of(changes) });
        session.set(changes).map_err(LabError::from)?;
        let value = measure.measure()?;
        notes.extend(session.drift().iter().map(|drift| format!("{}: {drift}", text_of(changes))));
        Ok::<f64, JobFileError>(value)
    });
    // After a request, no winner is set, even if the last measurement was complete.
    let interrupted = || Interruption::is_requested().then(|| LabError::Interrupted.into());
    match error.or_else(interrupted) {
        Some(error) if outcome.values.iter().all(Vec::is_empty) => Err(error),
        error => Ok((valid, outcome, error)),
    }
}

fn is_interruption(error: &JobFileError) -> bool {
    matches!(error, JobFileError::Lab(LabError::Interrupted))
}

/// Whether the device refuses one candidate and may accept others.
fn is_refusal(error: &SettingsError) -> bool {
    matches!(
        error,
        SettingsError::Value { .. }
            | SettingsError::Write { .. }
            | SettingsError::Rounded { .. }
            | SettingsError::Missing { .. }
    )
}

fn text_of(changes: &[Change]) -> String {
    if changes.is_empty() {
        return PRESENT.to_owned();
    }
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

impl CandidateFacts {
    /// The ratio to the present settings, and the removal, in words.
    pub(crate) fn in_its_rounds(&self) -> [String; 2] {
        let removed = match (self.removed, self.kept_from) {
            (Some(round), Some(kept)) => {
                format!("round {round}, which kept {} and more", whole_percent(kept))
            }
            (Some(round), None) => format!("round {round}"),
            (None, _) => String::new(),
        };
        let share = self.of_present.map_or_else(|| "-".to_owned(), whole_percent);
        [if self.settings == PRESENT { whole_percent(1.0) } else { share }, removed]
    }
}

impl TrialReport {
    /// The report as indented JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("JSON can represent all fields") + "\n"
    }

    fn columns(&self) -> Columns<&CandidateFacts> {
        let of_winner = |candidate: &CandidateFacts, value: Value| match self.winner.as_ref() {
            Some(winner) if *winner == candidate.settings => value,
            _ => Value::Absent,
        };
        Columns::of(&self.candidates)
            .record("device", |_| &self.device)
            .text("candidate", |candidate| &candidate.settings)
            .recorded("settings")
            .record("unit", |_| &self.unit)
            .record("mean", |candidate| candidate.mean)
            .number("of the present", |candidate| {
                let [share, _] = candidate.in_its_rounds();
                share
            })
            .number("measured", |candidate| Value::from(candidate.repetitions).marked("×"))
            .recorded("repetitions")
            .text("removed", |candidate| {
                let [_, removed] = candidate.in_its_rounds();
                removed
            })
            .record("removed_in_round", |candidate| candidate.removed)
            .record("of_present", |candidate| candidate.of_present)
            .record("kept_from", |candidate| candidate.kept_from)
            .record("verdict", move |candidate| of_winner(candidate, self.verdict.name().into()))
            .record("difference", move |candidate| of_winner(candidate, self.difference.into()))
            .record("difference_low", move |candidate| {
                of_winner(candidate, self.ci95.map(|[low, _]| low).into())
            })
            .record("difference_high", move |candidate| {
                of_winner(candidate, self.ci95.map(|[_, high]| high).into())
            })
            .record("pairs", move |candidate| of_winner(candidate, self.pairs.into()))
    }

    /// The meaning of the ratios, with the mean of the present settings.
    fn rounds(&self) -> String {
        let present = self.candidates.first().and_then(|candidate| candidate.mean);
        let present = present.map_or_else(String::new, |mean| format!(" ({} {})", digits(mean), self.unit));
        format!(
            "Each candidate is compared with the present settings{present} in the same rounds; a round keeps the better \
             half. Ratios of different rounds are not comparable."
        )
    }

    /// The difference of the winner, and the verdict, in two sentences.
    pub(crate) fn outcome(&self) -> String {
        if self.partial {
            let cause = if self.failure.is_some() { "failed" } else { "was interrupted" };
            return format!("The search {cause}. All settings of {} are as before.", self.device);
        }
        let winner = self.winner.as_deref().unwrap_or("none");
        let interval = self.ci95.map_or_else(String::new, |[low, high]| {
            format!(", interval {} to {}", signed_percent(low), signed_percent(high))
        });
        let mut end = format!(
            "{winner} against the present settings, {} new pairs: {}{interval}\n",
            self.pairs,
            signed_percent(self.difference)
        );
        let device = &self.device;
        let _ = match self.verdict {
            TrialVerdict::Better => {
                write!(end, "Better with confidence, and set. Undo: iopath tune {device} --restore")
            }
            TrialVerdict::Same => write!(end, "Not better. All settings of {device} are as before."),
            TrialVerdict::Worse => write!(end, "Worse. All settings of {device} are as before."),
            TrialVerdict::Inconclusive => write!(
                end,
                "Inconclusive. All settings of {device} are as before. More pairs (--repetitions-max) or longer measurements \
                 (--runtime) may decide."
            ),
        };
        end
    }
}

impl Document for TrialReport {
    fn sections(&self, medium: Medium) -> Vec<Section> {
        // The program prints them on stderr.
        let notes = self.notes.iter().filter(|_| medium == Medium::Markdown);
        vec![
            Section::of(self.columns()).with_after([self.rounds()]),
            Section::prose([self.outcome()]).with_after(notes),
        ]
    }

    /// A record is a candidate. The record of the winner has the verdict of the confirmation.
    fn records(&self) -> Table {
        self.columns().into()
    }

    fn json(&self) -> String {
        self.to_json()
    }
}
