//! Experiments as a page shows them, read from their JSON (docs/experiments.md), and the tone of statements.
//! Unknown keys are ignored. Does not compute anything.

use serde::Deserialize;

use crate::experiment::{Direction, JsonParameter, Row};
use crate::result::Origin;

/// How a statement is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// No mark.
    Plain,
    /// An improvement or a success.
    Good,
    /// A reason to doubt.
    Warn,
    /// A statement of low confidence.
    Doubt,
    /// A regression or a failure.
    Bad,
}

impl Tone {
    /// The class of the style sheet.
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Doubt => "doubt",
            Self::Bad => "bad",
        }
    }
}

/// The experiments of `iopath.experiments/1`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Experiments {
    #[serde(default)]
    pub(super) origin: Option<Origin>,
    pub(super) experiments: Vec<Experiment>,
}

/// One experiment.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Experiment {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) verdict: Option<String>,
    pub(super) target: Option<String>,
    pub(super) published: String,
    #[serde(default)]
    pub(super) parameters: Vec<JsonParameter<'static>>,
    #[serde(default)]
    pub(super) rows: Vec<Row>,
    #[serde(default)]
    pub(super) directions: Vec<Direction>,
    #[serde(default)]
    pub(super) evidence: Vec<String>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
}

impl Experiment {
    /// The mark of the verdict.
    pub(super) fn tone(&self) -> Tone {
        match self.verdict.as_deref() {
            Some("reproduced") => Tone::Good,
            Some("not reproduced") => Tone::Bad,
            Some(_) => Tone::Warn,
            None => Tone::Plain,
        }
    }
}
