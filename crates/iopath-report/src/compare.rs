//! The result of a comparison for other programs, `iopath.compare/1`; docs/compare.md documents each key. Does not
//! decide.

use crate::result::Host;
mod view;

use serde::{Deserialize, Deserializer, Serialize};

/// The name and version of the schema.
pub const SCHEMA: &str = "iopath.compare/1";

/// A complete comparison: the output of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: String,
    /// The files or the command of each side, as given. The first one is the base.
    pub sides: Vec<String>,
    /// The names of the sides, in the order of `sides`: A, B and so on, or those that `--name` gives.
    #[serde(default = "two_names")]
    pub names: Vec<String>,
    /// The machine of a live comparison; none for files, which have their own.
    pub host: Option<Host>,
    /// The largest difference that counts as the same, as a fraction.
    pub threshold: f64,
    /// The metric that was to decide; none for the default.
    pub metric: Option<String>,
    /// Conditions that were permitted to differ.
    pub vary: Vec<String>,
    /// The course of a live comparison; none for files.
    pub live: Option<LiveFacts>,
    /// Each compared workload.
    pub runs: Vec<RunComparison>,
    /// Workloads of A and of B without a partner.
    pub unmatched: [Vec<String>; 2],
    /// Whether the primary metric of any run is worse than in the base.
    pub regression: bool,
    /// Reasons to doubt the verdicts, in words.
    pub notes: Vec<String>,
}

/// The course of a live comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveFacts {
    /// Completed pairs of executions; rounds, if there are more than two commands.
    pub pairs: u32,
    /// Times that the data were evaluated.
    pub looks: u32,
    /// The cause of the end.
    pub stopped: Stopped,
    /// Whether the comparison ended before a clear verdict and before its limits.
    pub partial: bool,
    /// The seed of the order within pairs or rounds.
    pub seed: u64,
}

/// The cause of the end of a live comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Stopped {
    /// Every run has a clear verdict.
    Clear,
    /// The maximum number of repetitions.
    Repetitions,
    /// The maximum time.
    Time,
    /// A signal.
    Interrupted,
    /// A command failed.
    Failed,
}

/// One workload of the base and of another side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunComparison {
    /// The workload in words.
    pub workload: String,
    /// The name of the side that is compared with the base, which is B in the words of all fields.
    #[serde(default = "second_name")]
    pub side: String,
    /// Conditions and settings with different values.
    pub differences: Vec<DifferenceFacts>,
    /// Repetitions of A and of B.
    pub repetitions: [usize; 2],
    /// The metrics. The first one is primary: it decides `regression`.
    pub metrics: Vec<MetricComparison>,
}

/// A condition with different values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DifferenceFacts {
    /// The condition.
    pub key: String,
    /// Its values in A and in B.
    pub values: [String; 2],
}

/// One metric of both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetricComparison {
    /// The name.
    pub metric: String,
    /// The unit of `means`.
    pub unit: String,
    /// Trimmed geometric means of A and of B; none if a value is 0.
    pub means: Option<[f64; 2]>,
    /// The difference of B from A as a fraction of A: the ratio of the means less 1, or of live pairs the trimmed mean
    /// of their ratios.
    pub difference: Option<f64>,
    /// The 95% confidence interval of the difference: of this metric alone, or with Holm's correction if that makes the
    /// verdict inconclusive.
    #[serde(default, deserialize_with = "ends")]
    pub ci95: Option<[f64; 2]>,
    /// The p-value of no difference, without correction for several metrics.
    pub p_value: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// For an inconclusive verdict: further repetitions of each side after which it is probably clear.
    pub more_repetitions: Option<u32>,
    /// A cause of the verdict other than the interval and the number of repetitions.
    pub reason: Option<String>,
}

/// The letter of a side without a name.
pub fn letter(side: usize) -> String {
    char::from(b'A' + u8::try_from(side).unwrap_or(u8::MAX - b'A').min(25)).to_string()
}

fn two_names() -> Vec<String> {
    vec![letter(0), letter(1)]
}

fn second_name() -> String {
    letter(1)
}

/// The ends of an interval. JSON has no infinite number: an end without a bound is null.
fn ends<'de, D: Deserializer<'de>>(json: D) -> Result<Option<[f64; 2]>, D::Error> {
    let ends = Option::<[Option<f64>; 2]>::deserialize(json)?;
    Ok(ends.map(|[low, high]| [low.unwrap_or(f64::NEG_INFINITY), high.unwrap_or(f64::INFINITY)]))
}

impl Stopped {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Repetitions => "repetitions",
            Self::Time => "time",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

impl Comparison {
    /// The name of the base.
    pub fn base(&self) -> &str {
        self.names.first().map_or("A", String::as_str)
    }

    /// Whether each workload of both sides has a partner and a clear verdict.
    pub fn is_conclusive(&self) -> bool {
        let is_clear = |run: &RunComparison| run.metrics[0].verdict != Verdict::Inconclusive;
        self.unmatched.iter().all(Vec::is_empty) && self.runs.iter().all(is_clear)
    }

    /// The comparison as indented JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("JSON can represent all fields") + "\n"
    }
}

/// The outcome of a comparison: B relative to A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Significantly faster.
    Faster,
    /// Significantly slower.
    Slower,
    /// At a significantly lower CPU cost.
    Cheaper,
    /// At a significantly higher CPU cost.
    Costlier,
    /// The whole interval lies within the threshold.
    Same,
    /// Neither.
    Inconclusive,
}

impl Verdict {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Cheaper => "cheaper",
            Self::Costlier => "costlier",
            Self::Same => "same",
            Self::Inconclusive => "inconclusive",
        }
    }

    /// Whether B is worse than A.
    pub fn is_regression(self) -> bool {
        matches!(self, Self::Slower | Self::Costlier)
    }
}
