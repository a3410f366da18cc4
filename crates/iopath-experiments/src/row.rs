//! The row of an experiment: its texts, its parameters and its functions.

use std::path::PathBuf;

use iopath_report::experiment::{ExperimentResult, Parameter, Report, Settings};

use super::error::ExperimentError;
use super::on_target::TargetRun;

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
    pub(crate) run: fn(&Settings) -> Result<Report, ExperimentError>,
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

type RunOnTarget = fn(&mut TargetRun<'_>) -> Result<Report, ExperimentError>;

impl OnTarget {
    pub(crate) const fn function(self) -> RunOnTarget {
        match self {
            Self::Reads(run) | Self::Writes(run) => run,
        }
    }
}

impl Experiment {
    /// The result of a run with these settings; `target` is none in virtual time.
    pub(crate) fn result(
        &self,
        settings: &Settings,
        report: Report,
        target: Option<PathBuf>,
    ) -> ExperimentResult {
        let Self { id, title, published, .. } = *self;
        ExperimentResult { id, title, published, settings: settings.clone(), report, target }
    }

    /// Whether it also runs on real storage.
    pub fn runs_on_target(&self) -> bool {
        self.on_target.is_some()
    }
}
