//! Errors in a model file. Each names the file, the line, the parameter and the allowed values.

use std::fmt;

use crate::parameter::Parameter;

/// The reason why a model cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// No preset of this name.
    #[error("there is no model `{name}`; presets: {known}; or name a file")]
    UnknownPreset {
        /// The name.
        name: String,
        /// All presets.
        known: String,
    },
    /// No host of this name.
    #[error("there is no host `{name}`; hosts: {known}; or name a file")]
    UnknownHost {
        /// The name.
        name: String,
        /// All hosts.
        known: String,
    },
    /// The text is not TOML.
    #[error("{at}: not TOML: {message}")]
    Syntax {
        /// The position in the text.
        at: Position,
        /// The parser's message.
        message: String,
    },
    /// A name that the model does not have.
    #[error("{at}: `{name}` is not a parameter of this model; known: {known}")]
    Unknown {
        /// The position in the text.
        at: Position,
        /// The name.
        name: String,
        /// The names that are allowed there.
        known: String,
    },
    /// A parameter without default is absent.
    #[error("{at}: `{name}` is missing: {meaning}, {range}")]
    Missing {
        /// The start of the table that lacks it.
        at: Position,
        /// The parameter.
        name: String,
        /// The meaning of the parameter.
        meaning: &'static str,
        /// The allowed values.
        range: Range,
    },
    /// A value outside of the range, or not a number.
    #[error("{at}: `{name}` = {value} is not allowed: {range}")]
    Range {
        /// The position in the text.
        at: Position,
        /// The parameter.
        name: String,
        /// The value as written.
        value: String,
        /// The allowed values.
        range: Range,
    },
    /// A parameter contradicts another one, or a key has the wrong type.
    #[error("{at}: `{name}`: {message}")]
    Conflict {
        /// The position in the text.
        at: Position,
        /// The parameter.
        name: String,
        /// The contradiction.
        message: String,
    },
}

/// A place in a model file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The file.
    pub file: String,
    /// The line, counted from 1; 0 for a value that was set from outside the file.
    pub line: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// The values that a parameter may have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    min: f64,
    max: f64,
    is_whole: bool,
    unit: &'static str,
}

impl From<&Parameter> for Range {
    fn from(parameter: &Parameter) -> Self {
        let Parameter { min, max, is_whole, unit, .. } = *parameter;
        Self { min, max, is_whole, unit: unit.name() }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = if self.is_whole { "a whole number" } else { "a number" };
        write!(f, "{number} from {} to {}", self.min, self.max)?;
        if self.unit.is_empty() { Ok(()) } else { write!(f, ", in {}", self.unit) }
    }
}
