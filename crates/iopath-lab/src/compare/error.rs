//! Reasons why results cannot be compared. Each message names the file, the key or the command.

use std::io;

use thiserror::Error;

/// Results cannot be read, or are not comparable.
#[derive(Debug, Error)]
pub enum CompareError {
    /// A file cannot be read.
    #[error("cannot read {file}: {source}{}", if is_missing(source) { "; `iopath run --json FILE` writes a result" } else { "" })]
    Read {
        /// The file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The file begins like JSON and is none.
    #[error("{file} is not valid JSON: {source}")]
    Json {
        /// The file.
        file: String,
        /// The position and the cause.
        source: serde_json::Error,
    },
    /// No known format.
    #[error(
        "{file} has no known format: use a result of iopath (--json), fio's JSON (--output-format=json), or a table of \
         block sizes with the seconds of each repetition"
    )]
    Format {
        /// The file.
        file: String,
    },
    /// A value of a file is missing or has another type.
    #[error("{file}: {key}: {problem}")]
    Key {
        /// The file, or the command that printed the JSON.
        file: String,
        /// The key, or the line.
        key: String,
        /// The problem.
        problem: String,
    },
    /// An option has a value that does not suit the results.
    #[error("{0}")]
    Selection(String),
    /// The two sides were measured under different conditions.
    #[error(
        "A and B differ in {}; name intended differences: --vary {}",
        differences.iter().map(|(key, a, b)| format!("{key} ({a}, {b})")).collect::<Vec<_>>().join(", "),
        differences.iter().map(|(key, ..)| key.as_str()).collect::<Vec<_>>().join(",")
    )]
    Different {
        /// Each differing condition, with its value in A and in B.
        differences: Vec<(String, String, String)>,
    },
    /// A command cannot be started, or failed.
    #[error("{side}: `{command}` {problem}")]
    Command {
        /// The name of the side, or the option that names the command.
        side: String,
        /// The command.
        command: String,
        /// The problem.
        problem: String,
    },
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

impl CompareError {
    /// Whether the arguments are invalid for these results.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Selection(_))
    }
}
