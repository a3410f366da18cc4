//! Reads the files of a page: results of any command, and request logs. Recognises the kind by the content, not by the
//! name. Does not interpret them.

use iopath_trace::course::LogFacts;
use std::io;
use std::path::{Path, PathBuf};

use iopath_log::LogError;
use iopath_trace::{Content as Trace, content_of};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use super::facts::Experiments;
use crate::bounded;
use crate::compare::Comparison;
use crate::fit::FitReport;
use crate::map::FileMap;
use crate::replay::ReplayReport;
use crate::result::{Origin, Report};
use crate::sweep::SweepFile;
use crate::tune::{TrialReport, TuneReport};
use crate::whatif::WhatIfReport;

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
        "{} is neither a result (--json FILE of run, survey, compare, experiment, tune, fit, map, replay or whatif; the file of sweep) nor a request log (run --log FILE)",
        file.display()
    )]
    Unknown {
        /// The file.
        file: PathBuf,
    },
    /// It begins like JSON and is none, or has more than one document.
    #[error("{} is not one JSON document: {source}", file.display())]
    Json {
        /// The file.
        file: PathBuf,
        /// The position and the cause.
        source: serde_json::Error,
    },
    /// It is a result of iopath of another kind.
    #[error("{} is of kind {schema}, which a report does not show: {remedy}", file.display())]
    Schema {
        /// The file.
        file: PathBuf,
        /// Its schema.
        schema: String,
        /// The file to name instead, or the kinds that a report shows.
        remedy: &'static str,
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
    Comparison(Box<WithOrigin<Comparison>>),
    Experiments(Experiments),
    Sweep(Box<SweepFile>),
    Settings(Box<WithOrigin<TuneReport>>),
    Trial(Box<WithOrigin<TrialReport>>),
    Fit(Box<WithOrigin<FitReport>>),
    Map(Box<WithOrigin<FileMap>>),
    Replay(Box<WithOrigin<ReplayReport>>),
    WhatIf(Box<WhatIfReport>),
    Log(Box<LogFacts>),
}

/// A document, and the command that wrote it; none in files of earlier versions.
#[derive(Debug)]
pub(super) struct WithOrigin<T> {
    pub(super) origin: Option<Origin>,
    pub(super) document: T,
}

/// What all documents begin with.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    schema: Value,
    #[serde(default)]
    origin: Value,
}

/// The remedy for a document that is not shown.
fn remedy(schema: &str) -> &'static str {
    match schema {
        iopath_log::SUMMARY_SCHEMA => {
            "it is the summary of a request log; name the log itself (run --log FILE)"
        }
        crate::elevators::SCHEMA => {
            "it is the list of elevators and has no figures; `iopath elevators` shows it"
        }
        crate::exports::SCHEMA => {
            "it is the list of exports of a server and has no figures; a client uses it"
        }
        _ => {
            "it shows results of run, survey, sweep, compare, experiment, tune, fit, map, replay and whatif, and request logs"
        }
    }
}

/// Reads a file.
pub(super) fn read(file: &Path) -> Result<Source, PageError> {
    let name = file.to_string_lossy().into_owned();
    let source = |content| Ok(Source { name, path: file.to_owned(), content });
    let cannot_read = |source| PageError::Read { file: file.to_owned(), source };
    let trace = content_of(file).map_err(|error| match error {
        LogError::Open { source, .. } | LogError::Read { source, .. } => cannot_read(source),
        source => PageError::Log { file: file.to_owned(), source },
    })?;
    if !matches!(trace, Trace::Other) {
        let facts =
            LogFacts::read(file).map_err(|source| PageError::Log { file: file.to_owned(), source })?;
        return source(Content::Log(Box::new(facts)));
    }
    let bytes = bounded::read(file, BYTES_MAX).map_err(cannot_read)?;
    source(parse(file, &bytes)?)
}

fn parse(file: &Path, bytes: &[u8]) -> Result<Content, PageError> {
    let unknown = || PageError::Unknown { file: file.to_owned() };
    let is_json = bytes.trim_ascii_start().starts_with(b"{");
    let head: Head = serde_json::from_slice(bytes).map_err(|source| {
        if is_json { PageError::Json { file: file.to_owned(), source } } else { unknown() }
    })?;
    let schema = head.schema.as_str().ok_or_else(unknown)?;
    let document = Document { file, schema, bytes, origin: head.origin };
    match schema {
        crate::result::SCHEMA => document.read().map(Content::Results),
        crate::compare::SCHEMA => document.with_origin().map(Content::Comparison),
        crate::experiment::EXPERIMENTS_SCHEMA => document.read().map(Content::Experiments),
        crate::sweep::SCHEMA => document.read().map(Content::Sweep),
        crate::tune::SCHEMA => document.with_origin().map(Content::Settings),
        crate::tune::TRIAL_SCHEMA => document.with_origin().map(Content::Trial),
        crate::fit::SCHEMA => document.with_origin().map(Content::Fit),
        crate::map::SCHEMA => document.with_origin().map(Content::Map),
        crate::replay::SCHEMA => document.with_origin().map(Content::Replay),
        crate::whatif::SCHEMA => document.read().map(Content::WhatIf),
        other if other.starts_with("iopath.") => {
            Err(PageError::Schema { file: file.to_owned(), schema: schema.to_owned(), remedy: remedy(other) })
        }
        _ => Err(unknown()),
    }
}

/// A document of a known kind.
struct Document<'a> {
    file: &'a Path,
    schema: &'a str,
    bytes: &'a [u8],
    origin: Value,
}

impl Document<'_> {
    fn read<T: DeserializeOwned>(&self) -> Result<T, PageError> {
        serde_json::from_slice(self.bytes).map_err(|source| self.damaged(source))
    }

    fn with_origin<T: DeserializeOwned>(&self) -> Result<Box<WithOrigin<T>>, PageError> {
        let origin = Deserialize::deserialize(&self.origin).map_err(|source| self.damaged(source))?;
        Ok(Box::new(WithOrigin { origin, document: self.read()? }))
    }

    fn damaged(&self, source: serde_json::Error) -> PageError {
        PageError::Damaged { file: self.file.to_owned(), schema: self.schema.to_owned(), source }
    }
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

    /// A page shows each kind of document, or names the remedy.
    #[test]
    fn every_schema_has_a_section_or_a_refusal_with_a_remedy() {
        for row in crate::schema::SCHEMAS {
            let text = message(&format!("{{\"schema\": \"{}\"}}", row.name));
            let is_shown = text.contains(&format!("is not a complete {}", row.name));
            let is_refused = text.contains("does not show: it is the ");
            assert!(is_shown != is_refused, "{text}");
            let expected = [iopath_log::SUMMARY_SCHEMA, crate::elevators::SCHEMA, crate::exports::SCHEMA]
                .contains(&row.name);
            assert_eq!(is_refused, expected, "{text}");
        }
    }

    #[test]
    fn a_file_that_is_no_result_is_named() {
        for content in ["", "notes", "{}", "[1]", "{\"schema\": \"other/1\"}", "{\"schema\": 1}"] {
            assert!(message(content).contains("is neither a result"), "{content}");
        }
        assert!(
            message("{\"schema\": \"iopath.settings-journal/1\"}").contains("kind iopath.settings-journal/1")
        );
        assert!(message("{\"schema\": \"iopath.result/1\"}").contains("not a complete iopath.result/1"));
        let missing = read(Path::new("no-such.json")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read no-such.json: "), "{missing}");
    }
}
