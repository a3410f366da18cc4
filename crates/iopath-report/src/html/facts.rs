//! Experiments as a page shows them, read from their JSON (docs/experiments.md), and the tone of statements.
//! Unknown keys are ignored. Does not compute anything.

use serde::Deserialize;

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
    pub(super) parameters: Vec<Parameter>,
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

/// A parameter with its value.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) value: String,
    pub(super) source: String,
}

/// A published and a modelled figure.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Row {
    pub(super) what: String,
    pub(super) unit: String,
    pub(super) published: Option<f64>,
    pub(super) ours: f64,
    pub(super) deviation: Option<f64>,
    pub(super) tolerance: f64,
    /// The published spread; a value in it is within the tolerance, too.
    #[serde(default)]
    pub(super) range: Option<[f64; 2]>,
    #[serde(default)]
    pub(super) calibrated: bool,
}

impl Row {
    /// The deviations that count as reproduced, from the lowest to the highest.
    pub(super) fn band(&self) -> [f64; 2] {
        let around = [-self.tolerance, self.tolerance];
        match (self.range, self.published.filter(|published| *published != 0.0)) {
            (Some([low, high]), Some(published)) => {
                let [low, high] = [low, high].map(|end| (end - published) / published.abs());
                [around[0].min(low), around[1].max(high)]
            }
            _ => around,
        }
    }

    /// Whether the figure counts, and is outside its tolerance.
    pub(super) fn tone(&self) -> Tone {
        match self.deviation {
            _ if self.calibrated => Tone::Plain,
            Some(deviation) if (self.band()[0]..=self.band()[1]).contains(&deviation) => Tone::Good,
            Some(_) => Tone::Bad,
            None => Tone::Plain,
        }
    }
}

/// A direction of the effect.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Direction {
    pub(super) text: String,
    pub(super) holds: bool,
}
