//! Re-enacts published effects of the I/O path: `iopath experiment`. Each effect has one row in [`EXPERIMENTS`] and one
//! file below `experiment/`.
//!
//! An experiment contains the published figures, the parameters of the model with their sources, and a function that
//! runs the model in virtual time. The queue, elevators, page cache and log of the library produce the effect; no code
//! of the path depends on an experiment. `report.rs` computes the verdict, `view.rs` formats the text. This file runs
//! no model.

mod bigbio;
mod bomb;
mod boundary;
mod closest;
mod copy;
mod cpu;
mod dip;
mod elevator_limits;
mod extending;
mod extent;
mod fc_2002;
mod freelist;
mod link;
mod log;
mod loop_reads;
mod merge;
mod on_target;
mod published;
mod remote;
mod skew;
mod suite;
mod unplug;

use std::path::PathBuf;

use iopath_report::UnknownName;
use iopath_report::experiment::{ExperimentResult, Parameter, Report, Settings};

use crate::error::LabError;

pub use on_target::TargetRun;
pub use suite::{Selection, experiments};

/// A published effect, and the model that re-enacts it.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// The name on command lines.
    pub id: &'static str,
    /// The effect in a few words.
    pub title: &'static str,
    /// The effect as published, in one or two sentences, with the source: author, list or title, year.
    pub published: &'static str,
    /// The parameters of the setup and of the model.
    pub parameters: &'static [Parameter],
    /// Runs the model in virtual time. If the caller changed a parameter, the report has the rows of that setting.
    pub(crate) run: fn(&Settings) -> Result<Report, LabError>,
    /// Runs the same workloads on real storage; none if the effect needs the hardware of the source.
    pub(crate) on_target: Option<OnTarget>,
}

/// The function that runs an experiment on real storage.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OnTarget {
    /// On a directory, file or block device. It writes to no file but a scratch file.
    Reads(RunOnTarget),
    /// On scratch files in a directory.
    Writes(RunOnTarget),
}

type RunOnTarget = fn(&mut TargetRun<'_>) -> Result<Report, LabError>;

impl OnTarget {
    pub(crate) const fn function(self) -> RunOnTarget {
        match self {
            Self::Reads(run) | Self::Writes(run) => run,
        }
    }
}

/// The experiments, in the order of the final table.
pub static EXPERIMENTS: &[Experiment] = &[
    link::ROW,
    cpu::ROW,
    skew::ROW,
    bigbio::ROW,
    boundary::ROW,
    extent::ROW,
    unplug::ROW,
    dip::ROW,
    copy::ROW,
    merge::ROW,
    bomb::ROW,
    closest::ROW,
    freelist::ROW,
    log::ROW,
];

impl Experiment {
    /// The experiment with this id.
    ///
    /// # Errors
    /// [`UnknownName`] with the known ids.
    pub fn find(id: &str) -> Result<&'static Self, UnknownName> {
        EXPERIMENTS.iter().find(|experiment| experiment.id == id).ok_or_else(|| UnknownName {
            kind: "experiment",
            name: id.to_owned(),
            known: EXPERIMENTS.iter().map(|experiment| experiment.id).collect(),
        })
    }

    /// The result of a run with these settings; `target` is none in virtual time.
    fn result(&self, settings: &Settings, report: Report, target: Option<PathBuf>) -> ExperimentResult {
        let Self { id, title, published, .. } = *self;
        ExperimentResult { id, title, published, settings: settings.clone(), report, target }
    }

    /// Whether it also runs on real storage.
    pub fn runs_on_target(&self) -> bool {
        self.on_target.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const DOCUMENTATION: &str = include_str!("../../../docs/experiments.md");
    const README: &str = include_str!("../../../README.md");

    #[test]
    fn ids_are_unique_and_found() {
        let mut seen = BTreeSet::new();
        for experiment in EXPERIMENTS {
            assert!(seen.insert(experiment.id), "{} occurs twice", experiment.id);
            assert_eq!(Experiment::find(experiment.id).unwrap().id, experiment.id);
        }
        let text = Experiment::find("none-such").unwrap_err().to_string();
        assert!(text.contains("`none-such`") && text.contains(EXPERIMENTS[0].id), "{text}");
    }

    #[test]
    fn published_text_names_its_source_with_a_year() {
        for Experiment { id, published, title, .. } in EXPERIMENTS {
            let years = published.split(|c: char| !c.is_ascii_digit()).filter(|word| word.len() == 4);
            assert!(years.into_iter().any(|year| year.starts_with("19") || year.starts_with("20")), "{id}");
            assert!(!title.is_empty() && !title.ends_with('.'), "{id}");
        }
    }

    #[test]
    fn parameters_have_unique_names_a_source_and_a_default_in_their_range() {
        for Experiment { id, parameters, .. } in EXPERIMENTS {
            let mut seen = BTreeSet::new();
            for parameter in *parameters {
                let name = parameter.name;
                assert!(seen.insert(name), "{id}: {name} occurs twice");
                assert!(parameter.source.len() > 3, "{id}: {name} has no source");
                assert!(parameter.is_consistent(), "{id}: {name}");
            }
            Settings::new(parameters, &[]).unwrap();
        }
    }

    #[test]
    fn a_constant_is_calibrated_on_one_figure_and_the_figure_on_one_constant() {
        for Experiment { id, parameters, .. } in EXPERIMENTS {
            let calibrated = parameters.iter().filter(|parameter| parameter.is_calibrated());
            let mut seen = BTreeSet::new();
            for parameter in calibrated {
                assert!(seen.insert(parameter.source), "{id}: two constants are {}", parameter.source);
            }
        }
    }

    /// The row of an experiment in the table of verdicts, the first table of a page with such rows.
    fn verdict_row<'a>(page: &'a str, id: &str) -> Option<&'a str> {
        page.lines().find(|line| line.starts_with(&format!("| `{id}` |")) && line.matches(" | ").count() == 5)
    }

    #[test]
    fn the_readme_has_the_verdicts_of_the_documentation() {
        for Experiment { id, .. } in EXPERIMENTS {
            let row = verdict_row(DOCUMENTATION, id);
            assert!(row.is_some(), "docs/experiments.md has no verdict of {id}");
            assert_eq!(verdict_row(README, id), row, "README.md");
        }
    }

    #[test]
    fn the_documentation_has_a_heading_for_each_experiment() {
        let headings: Vec<&str> = DOCUMENTATION.lines().filter(|line| line.starts_with("## ")).collect();
        for Experiment { id, .. } in EXPERIMENTS {
            let heading = format!("## {id}");
            let found = headings
                .iter()
                .filter(|line| **line == heading || line.starts_with(&(heading.clone() + ":")));
            assert_eq!(found.count(), 1, "docs/experiments.md: `{heading}: …`");
        }
    }
}
