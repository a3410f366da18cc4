//! Reads the files of a page: results of any command, and request logs. Recognises the kind by the content, not by the
//! name. Does not interpret them.

use std::io;
use std::path::{Path, PathBuf};

use iopath_log::{LogError, is_log};
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use super::facts::{Compared, Experiments};
use super::log_series::LogFacts;
use crate::bounded;
use crate::result::Report;
use crate::sweep::SweepFile;

/// The largest file of results.
const BYTES_MAX: u64 = 256 << 20;

/// A file that a page cannot show. The message is one line with the name of the file.
#[derive(Debug, Error)]
pub enum PageError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is neither a result nor a log.
    #[error(
        "{} is neither a result (--json FILE of run, survey, compare or experiment; the file of sweep) nor a request log (run --log FILE)",
        file.display()
    )]
    Unknown {
        /// The file.
        file: PathBuf,
    },
    /// It is a result of iopath of another kind.
    #[error("{} is of kind {schema}, which a report does not show; it shows results of run, survey, sweep, compare and experiment, and request logs", file.display())]
    Schema {
        /// The file.
        file: PathBuf,
        /// Its schema.
        schema: String,
    },
    /// It has the schema, but not its keys.
    #[error("{} is not a complete {schema}: {source}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Its schema.
        schema: String,
        /// The missing or wrong key.
        source: serde_json::Error,
    },
    /// The log cannot be read.
    #[error("{}: {source}", file.display())]
    Log {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: LogError,
    },
}

/// A file with its content.
#[derive(Debug)]
pub(super) struct Source {
    /// The name as given; bytes that are not UTF-8 are replaced.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) content: Content,
}

/// The content by its kind.
#[derive(Debug)]
pub(super) enum Content {
    Results(Box<Report>),
    Comparison(Box<Compared>),
    Experiments(Experiments),
    Sweep(Box<SweepFile>),
    Log(Box<LogFacts>),
}

/// Reads a file.
pub(super) fn read(file: &Path) -> Result<Source, PageError> {
    let name = file.to_string_lossy().into_owned();
    let source = |content| Ok(Source { name, path: file.to_owned(), content });
    let cannot_read = |source| PageError::Read { file: file.to_owned(), source };
    if is_log(file).map_err(cannot_read)? {
        let facts =
            LogFacts::read(file).map_err(|source| PageError::Log { file: file.to_owned(), source })?;
        return source(Content::Log(Box::new(facts)));
    }
    let bytes = bounded::read(file, BYTES_MAX).map_err(cannot_read)?;
    source(parse(file, &bytes)?)
}

fn parse(file: &Path, bytes: &[u8]) -> Result<Content, PageError> {
    let unknown = || PageError::Unknown { file: file.to_owned() };
    let value: Value = serde_json::from_slice(bytes).map_err(|_| unknown())?;
    let schema = value.get("schema").and_then(Value::as_str).ok_or_else(unknown)?.to_owned();
    match schema.as_str() {
        crate::result::SCHEMA => typed(file, schema, value).map(Content::Results),
        crate::compare::SCHEMA => typed(file, schema, value).map(Content::Comparison),
        crate::experiment::EXPERIMENTS_SCHEMA => typed(file, schema, value).map(Content::Experiments),
        crate::sweep::SCHEMA => typed(file, schema, value).map(Content::Sweep),
        other if other.starts_with("iopath.") => Err(PageError::Schema { file: file.to_owned(), schema }),
        _ => Err(unknown()),
    }
}

fn typed<T: DeserializeOwned>(file: &Path, schema: String, value: Value) -> Result<T, PageError> {
    serde_json::from_value(value).map_err(|source| PageError::Damaged {
        file: file.to_owned(),
        schema,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(content: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let message = read(file.path()).unwrap_err().to_string();
        assert!(message.contains(file.path().to_str().unwrap()), "{message}");
        assert!(!message.contains('\n'), "{message}");
        message
    }

    #[test]
    fn a_file_that_is_no_result_is_named() {
        for content in ["", "notes", "{}", "[1]", "{\"schema\": \"other/1\"}", "{\"schema\": 1}"] {
            assert!(message(content).contains("is neither a result"), "{content}");
        }
        assert!(message("{\"schema\": \"iopath.map/1\"}").contains("kind iopath.map/1"));
        assert!(message("{\"schema\": \"iopath.result/1\"}").contains("not a complete iopath.result/1"));
        let missing = read(Path::new("no-such.json")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read no-such.json: "), "{missing}");
    }
}
