//! The exports of `iopath serve` for other programs, as JSON of schema `iopath.serve/1`. Does not serve: see
//! `iopath-lab/src/serve.rs`.

use serde::Serialize;

/// The name and version of the schema.
pub const SCHEMA: &str = "iopath.serve/1";

/// The exports of a server that accepts connections: the complete output of `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exports {
    /// [`SCHEMA`].
    pub schema: String,
    /// The process that serves.
    pub pid: u32,
    /// Each export, in the order of the targets.
    pub exports: Vec<Export>,
}

/// An export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Export {
    /// The file or device, as given.
    pub target: String,
    /// The URI for clients.
    pub uri: String,
}

impl Exports {
    /// The exports of this process.
    pub fn of_process(exports: Vec<Export>) -> Self {
        Self { schema: SCHEMA.to_owned(), pid: std::process::id(), exports }
    }

    /// The document as indented JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("JSON can represent all fields") + "\n"
    }
}
