//! The origin of a result: the program, the time and the command line, so that the result can be measured again.

use std::env;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The program that wrote a result, and the command that measured it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Origin {
    /// The name of the program: `iopath`.
    pub tool: String,
    /// Its version.
    pub version: String,
    /// The start of the command, UTC, as in RFC 3339.
    pub started: String,
    /// The arguments of the command, the program first; bytes that are not UTF-8 are replaced.
    pub command: Vec<String>,
}

impl Origin {
    /// This process, whose command started at this time.
    pub fn of_process(started: SystemTime) -> Self {
        Self {
            tool: "iopath".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: humantime::format_rfc3339_millis(started).to_string(),
            command: env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        }
    }

    /// A document of iopath with this origin after its schema. A document that is not an object with a schema first,
    /// one key a line, is returned as it is.
    pub fn stamp(&self, json: &str) -> String {
        let head = json.split_inclusive('\n').take(2).map(str::len).sum::<usize>();
        let Some((head, rest)) = json.split_at_checked(head).filter(|(head, _)| head.ends_with("\",\n"))
        else {
            return json.to_owned();
        };
        if !head.starts_with("{\n  \"schema\": ") {
            return json.to_owned();
        }
        let origin = serde_json::to_string_pretty(self).expect("strings are JSON").replace('\n', "\n  ");
        format!("{head}  \"origin\": {origin},\n{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Report;

    #[test]
    fn a_stamped_document_has_its_origin_and_is_otherwise_the_same() {
        let origin = Origin::of_process(SystemTime::UNIX_EPOCH);
        assert_eq!(origin.started, "1970-01-01T00:00:00.000Z");
        let report = Report::new(None, None, Vec::new());
        let stamped: Report = serde_json::from_str(&origin.stamp(&report.to_json())).unwrap();
        assert_eq!(stamped, Report { origin: Some(origin.clone()), ..report });
        for other in ["", "[1]\n", "{}", "{\n  \"a\": 1,\n  \"b\": 2\n}\n"] {
            assert_eq!(origin.stamp(other), other);
        }
    }
}
