//! The schema of a study for other programs, `iopath.whatif/1`. An incompatible change needs a new version in
//! [`SCHEMA`]. `parts.rs` joins the parts of a study.

mod figures;
mod view;

use serde::{Deserialize, Serialize};

use crate::result::Origin;
use crate::shard::Shard;

pub use figures::{Better, Change, Changes, Figures, METRICS, Metric};

/// The name and version of the JSON schema.
pub const SCHEMA: &str = "iopath.whatif/1";

/// The first characters of the lines of [`WhatIfReport::to_json_lines`].
pub const LINES_START: &str = "{\"input\":";

/// A study, or a part of one: the complete output of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhatIfReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// The command that wrote the file; only in files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The share of the cells in this part; null if all cells are present.
    pub shard: Option<Shard>,
    /// The study.
    pub study: Study,
    /// The inputs, in the order of the command line. A part has only inputs of its cells.
    pub inputs: Vec<InputReport>,
}

/// The options that all cells share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Study {
    /// A checksum of inputs, alternatives and options: parts of one study have the same.
    pub id: String,
    /// The number of cells.
    pub cells: u64,
    /// Whether requests follow the completions of their stream; otherwise they are due at their recorded times.
    pub closed: bool,
    /// The speed: 0.1 stretches the recorded times by ten.
    pub speed: f64,
    /// The number of seeds of the model.
    pub seeds: u32,
    /// The figure that decides the verdict.
    pub by: String,
}

/// A recorded input and its replays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InputReport {
    /// Its number on the command line, from 0.
    pub number: u64,
    /// The file.
    pub name: String,
    /// Whether it is a request log: the reference has the recorded settings, unless a list replaces the model.
    pub log: bool,
    /// Recorded requests.
    pub requests: u64,
    /// Recorded devices. Each has a model of its own.
    pub devices: u64,
    /// Streams.
    pub streams: u64,
    /// Whether the requests are accesses to a file above a page cache.
    pub accesses: bool,
    /// The time from the first to the last submission, in seconds.
    pub seconds: f64,
    /// Windows of the resampling.
    pub windows: u64,
    /// The recorded run; null if the input has no completions. Figures of the device are 0 if the input does not have
    /// them.
    pub recorded: Option<Figures>,
    /// The alternatives.
    pub cells: Vec<CellReport>,
    /// The comparison of the alternatives; null in a part.
    pub verdict: Option<Verdict>,
    /// Facts that limit the conclusions, in words.
    pub notes: Vec<String>,
}

/// The replay of an input with one alternative.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellReport {
    /// The number of the cell in the study, from 0.
    pub number: u64,
    /// The values that differ between the alternatives.
    pub name: String,
    /// Whether the other alternatives are compared with this one.
    pub reference: bool,
    /// The model.
    pub target: String,
    /// The error of the model.
    pub model_error: ModelError,
    /// The elevator with its settings.
    pub elevator: String,
    /// The largest request in bytes; null for that of the model.
    pub max_sectors_bytes: Option<u64>,
    /// The maximum number of requests in flight at the device; null for that of the model.
    pub depth: Option<u32>,
    /// Whether requests merge.
    pub merge: bool,
    /// The priorities; empty if all are best effort.
    pub priority: String,
    /// The readahead of the page cache; null for the default, and without a page cache.
    pub readahead: Option<String>,
    /// The memory of the page cache in bytes; null for the default, and without a page cache.
    pub cache_bytes: Option<u64>,
    /// The figures: the means of all seeds.
    pub figures: Figures,
    /// The differences from the reference; null for the reference.
    pub against_reference: Option<Changes>,
    /// The differences from the recorded run; null if it is unknown.
    pub against_recorded: Option<Changes>,
}

/// The error of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelError {
    /// The median deviation of its figures from measured ones, as a fraction; null if it is unknown.
    pub median: Option<f64>,
    /// Its source, in words.
    pub source: String,
}

impl WhatIfReport {
    /// Reads [`WhatIfReport::to_json`]. The schema is for the caller to check.
    ///
    /// # Errors
    /// The position and the cause: it is not one JSON document, or a key is missing or wrong.
    pub fn from_json(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    /// The report as indented JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("JSON can represent all fields") + "\n"
    }

    /// One line of JSON for each cell: the fields of the cell, and the name of its input.
    pub fn to_json_lines(&self) -> String {
        let mut lines = String::new();
        for input in &self.inputs {
            for cell in &input.cells {
                let line = Line { input: &input.name, recorded: input.recorded.as_ref(), cell };
                lines += &serde_json::to_string(&line).expect("JSON can represent all fields");
                lines.push('\n');
            }
        }
        lines
    }
}

/// The comparison of all alternatives of an input by one figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// The figure that decides.
    pub by: String,
    /// The error of the model, as a fraction: the larger of the stated error and, for a log of the modelled device, the
    /// deviation of the replay with the recorded settings from the recorded run. Null if no error is stated.
    pub error: Option<f64>,
    /// The best alternative; null if there is no difference from others.
    pub winner: Option<String>,
    /// The alternatives that do not differ from the best, the best first.
    pub best: Vec<String>,
    /// The verdict in words.
    pub text: String,
}

/// A line of [`WhatIfReport::to_json_lines`].
#[derive(Serialize)]
struct Line<'a> {
    input: &'a str,
    recorded: Option<&'a Figures>,
    #[serde(flatten)]
    cell: &'a CellReport,
}
