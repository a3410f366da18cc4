//! The result of `iopath tune --try`, `iopath.tune-trial/1`: candidate settings, and the verdict about the best one.
//! Does not measure.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::format::{Document, Medium};
use crate::numbers::{digits, signed_percent, whole_percent};
use crate::section::{Columns, Section, Table};
use crate::value::Value;

/// The name and version of the schema.
pub const SCHEMA: &str = "iopath.tune-trial/1";

/// The name of the settings before the search.
pub const PRESENT: &str = "present";

/// The result of a trial: the output of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// The verdict about the winner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum TrialVerdict {
    /// Significantly better than the base.
    Better,
    /// The whole interval lies within the threshold.
    Same,
    /// Significantly worse.
    Worse,
    /// Neither, after the maximum number of pairs.
    Inconclusive,
}

impl TrialVerdict {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Same => "same",
            Self::Worse => "worse",
            Self::Inconclusive => "inconclusive",
        }
    }
}

impl CandidateFacts {
    /// The ratio to the present settings, and the removal, in words.
    pub fn in_its_rounds(&self) -> [String; 2] {
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
    pub fn outcome(&self) -> String {
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
