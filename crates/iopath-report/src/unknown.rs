//! The error of a name that a table does not have.

use thiserror::Error;

/// A name that is not in its table. The message has all names of the table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown {kind} `{name}`; use one of: {}", known.join(", "))]
pub struct UnknownName {
    /// The table in one word, such as `path` or `pattern`.
    pub kind: &'static str,
    /// The name as given.
    pub name: String,
    /// The names in the table.
    pub known: Vec<&'static str>,
}
