//! The schema of a fit for other programs, `iopath.fit/1`. An incompatible change needs a new version in [`SCHEMA`].

mod view;

use serde::{Deserialize, Serialize};

use crate::result::{Clock, Host, TargetFacts};

pub use view::noise_text;

/// The name and version of the JSON schema.
pub const SCHEMA: &str = "iopath.fit/1";

/// A fitted model and its error: the complete output of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FitReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The clock of the measured times.
    pub clock: Clock,
    /// The target or log, in words.
    pub source: String,
    /// The machine; none for a model and a log.
    pub host: Option<Host>,
    /// The measured target; none for a log.
    pub target: Option<TargetFacts>,
    /// The log; none for a target.
    pub log: Option<String>,
    /// The kind of model.
    pub kind: String,
    /// Its parameters.
    pub parameters: Vec<FittedParameter>,
    /// The kinds that were tried.
    pub candidates: Vec<CandidateError>,
    /// The number of runs of each workload; 1 for a log.
    pub rounds: u32,
    /// The figures of the training, to which the parameters were fitted.
    pub training: Vec<FittedFigure>,
    /// The figures of the workloads held back, to which no parameter was fitted.
    pub held_back: Vec<FittedFigure>,
    /// The error of the model: the deviations of the figures held back.
    pub error: ErrorSummary,
    /// The deviations of the figures of the training.
    pub training_error: ErrorSummary,
    /// The median deviation of a repetition from the median of its workload, as a fraction; none for single
    /// measurements.
    pub noise: Option<f64>,
    /// The uncertainty of the measured figures (median), as a fraction: the error of a perfect model. None with fewer
    /// than four rounds.
    #[serde(default)]
    pub noise_floor: Option<f64>,
    /// Reasons to doubt the figures, in words.
    pub warnings: Vec<String>,
}

/// A parameter of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FittedParameter {
    /// Its name in the file.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// The source of the value.
    pub source: String,
}

/// A kind of model that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CandidateError {
    /// The kind, and the difference from other candidates of the kind.
    pub name: String,
    /// The weighted mean deviation of the logarithms from those of the training figures.
    pub score: f64,
    /// The same for the figures held back, by which the kind is chosen; none if it is not known.
    #[serde(default)]
    pub held_back: Option<f64>,
    /// The number of models that were simulated.
    pub evaluations: u32,
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Transfers a second.
    Iops,
    /// The median time at the device, in nanoseconds.
    LatencyNs,
}

/// A measured figure and the figure of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FittedFigure {
    /// The workload, or the class of requests of a log.
    pub workload: String,
    /// Direction and order.
    pub rw: String,
    /// The size of a transfer in bytes; for a class, the largest size.
    pub block_bytes: u64,
    /// Transfers in flight; for a class, the largest number.
    pub io_depth: u32,
    /// The unit of the figures.
    pub quantity: Quantity,
    /// The measured figure.
    pub measured: f64,
    /// The figure that the model predicts.
    pub modelled: f64,
    /// The deviation of the model, as a fraction of the measured figure.
    pub deviation: f64,
    /// The median deviation of a repetition without the drift of all workloads from round to round, as a fraction; none
    /// if it was measured once.
    pub noise: Option<f64>,
}

/// Deviations without their signs, as fractions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorSummary {
    /// The median.
    pub median: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The largest.
    pub max: f64,
}

impl FitReport {
    /// The report as indented JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("JSON can represent all fields") + "\n"
    }
}
