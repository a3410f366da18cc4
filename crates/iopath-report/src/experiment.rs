//! The results of experiments, `iopath.experiments/1`: published figures beside ours. Runs no model.

mod effect;
mod settings;
pub(crate) mod view;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::result::Host;

pub use effect::{Direction, Report, Row, Verdict};
pub use settings::{Parameter, ParameterError, ParameterKind, Settings};

/// The name and version of the JSON schema.
pub const EXPERIMENTS_SCHEMA: &str = "iopath.experiments/1";

/// The result of an experiment, with the values of its parameters.
#[derive(Debug, Clone)]
pub struct ExperimentResult {
    /// The name on command lines.
    pub id: &'static str,
    /// The effect in a few words.
    pub title: &'static str,
    /// The effect as published, with the source.
    pub published: &'static str,
    /// The values of its parameters.
    pub settings: Settings,
    /// The rows and directions.
    pub report: Report,
    /// The target; none in virtual time.
    pub target: Option<PathBuf>,
}

impl ExperimentResult {
    /// The verdict of the report. `None` if a parameter is set and no row has a published figure. The source did not
    /// measure such a setup, so a direction that holds in it is not the published effect.
    pub fn verdict(&self) -> Option<Verdict> {
        let is_of_the_source =
            !self.settings.is_any_set() || self.report.rows.iter().any(|row| row.published.is_some());
        self.report.verdict().filter(|_| is_of_the_source)
    }
}

/// The results of experiments, in the order of their selection.
#[derive(Debug, Clone)]
pub struct ExperimentsReport {
    /// The machine; none in virtual time.
    pub host: Option<Host>,
    /// One for each experiment.
    pub results: Vec<ExperimentResult>,
}

/// A row in JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct JsonRow<'a> {
    what: &'a str,
    unit: &'a str,
    published: Option<f64>,
    ours: f64,
    deviation: Option<f64>,
    tolerance: f64,
    range: Option<[f64; 2]>,
    calibrated: bool,
    secondary: bool,
}

impl<'a> JsonRow<'a> {
    fn new(row: &'a Row) -> Self {
        let Row { what, unit, published, ours, tolerance, range, calibrated, secondary } = row;
        let deviation = row.deviation();
        let (published, ours, tolerance) = (*published, *ours, *tolerance);
        let (range, calibrated, secondary) = (*range, *calibrated, *secondary);
        Self { what, unit, published, ours, deviation, tolerance, range, calibrated, secondary }
    }
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct JsonParameter<'a> {
    name: Cow<'a, str>,
    unit: Cow<'a, str>,
    value: String,
    set: bool,
    source: Cow<'a, str>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct JsonExperiment<'a> {
    id: &'a str,
    title: &'a str,
    verdict: Option<Verdict>,
    target: Option<&'a Path>,
    published: &'a str,
    parameters: Vec<JsonParameter<'a>>,
    rows: Vec<JsonRow<'a>>,
    directions: &'a [Direction],
    evidence: &'a [String],
    notes: &'a [String],
}

/// The results as JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExperimentsDocument<'a> {
    schema: &'a str,
    host: Option<&'a Host>,
    experiments: Vec<JsonExperiment<'a>>,
}

impl ExperimentsReport {
    /// The results as JSON of [`EXPERIMENTS_SCHEMA`].
    pub fn to_json(&self) -> String {
        let experiments = self.results.iter().map(json).collect();
        let json = ExperimentsDocument { schema: EXPERIMENTS_SCHEMA, host: self.host.as_ref(), experiments };
        serde_json::to_string_pretty(&json).expect("the report has only strings and finite numbers") + "\n"
    }
}

fn json(result: &ExperimentResult) -> JsonExperiment<'_> {
    let ExperimentResult { id, title, published, settings, report, target } = result;
    JsonExperiment {
        id,
        title,
        verdict: result.verdict(),
        target: target.as_deref(),
        published,
        parameters: parameters(settings),
        rows: report.rows.iter().map(JsonRow::new).collect(),
        directions: &report.directions,
        evidence: &report.evidence,
        notes: &report.notes,
    }
}

/// The parameters with their values. The source of a value that a user set is `set`.
fn parameters(settings: &Settings) -> Vec<JsonParameter<'static>> {
    let all = settings.all().map(|(parameter, value, set)| JsonParameter {
        name: parameter.name.into(),
        unit: parameter.unit.into(),
        value,
        set,
        source: if set { "set" } else { parameter.source }.into(),
    });
    all.collect()
}
