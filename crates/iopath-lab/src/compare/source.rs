//! Reads one side of a comparison: files of any known format, and a selection of their runs. Does not compare.

use std::path::Path;

use serde_json::Value;

use super::data::Run;
use super::json::Node;
use super::{classic, fio, ours};
use crate::bounded;
use crate::compare_error::CompareError;
use crate::size::parse_size;

/// The files of one side, as given: `FILE[,FILE…][@KEY=VALUE…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) files: Vec<String>,
    /// Runs without these facts are left out.
    pub(super) selection: Vec<(String, String)>,
}

impl Spec {
    /// Parses an argument. An existing file with this name is that file, even if the name has commas or `@`.
    pub(super) fn parse(text: &str) -> Result<Self, CompareError> {
        if Path::new(text).exists() {
            return Ok(Self { files: vec![text.to_owned()], selection: Vec::new() });
        }
        let mut parts = text.split('@');
        let files = parts.next().unwrap_or_default();
        let selection = parts.map(|part| match part.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(CompareError::Selection(format!(
                "`@{part}` in {text} selects no run; write FILE@KEY=VALUE, for example FILE@path=kernel-direct"
            ))),
        });
        let files: Vec<String> = if Path::new(files).exists() {
            vec![files.to_owned()]
        } else {
            files.split(',').filter(|file| !file.is_empty()).map(str::to_owned).collect()
        };
        if files.is_empty() {
            return Err(CompareError::Selection(format!("`{text}` names no file")));
        }
        Ok(Self { selection: selection.collect::<Result<_, _>>()?, files })
    }

    /// The selected runs of each file.
    pub(super) fn read(&self) -> Result<Vec<Vec<Run>>, CompareError> {
        self.files.iter().map(|file| self.select(file, read_file(file)?)).collect()
    }

    fn select(&self, file: &str, runs: Vec<Run>) -> Result<Vec<Run>, CompareError> {
        let mut left = runs;
        for (key, value) in &self.selection {
            let mut known: Vec<String> =
                left.iter().filter_map(|run| run.fact(key).map(str::to_owned)).collect();
            left.retain(|run| run.fact(key).is_some_and(|known| is_same(known, value)));
            if left.is_empty() {
                known.sort();
                known.dedup();
                let message = if known.is_empty() {
                    format!("no run of {file} has a {key} (@{key}={value})")
                } else {
                    format!("no run of {file} has {key} {value}; known are: {}", known.join(", "))
                };
                return Err(CompareError::Selection(message));
            }
        }
        Ok(left)
    }
}

/// Whether two texts are one value: sizes have several spellings.
fn is_same(a: &str, b: &str) -> bool {
    a == b || matches!((parse_size(a), parse_size(b)), (Ok(a), Ok(b)) if a == b)
}

/// The largest file of results.
const BYTES_MAX: u64 = 256 << 20;

fn read_file(file: &str) -> Result<Vec<Run>, CompareError> {
    let bytes = bounded::read(Path::new(file), BYTES_MAX)
        .map_err(|source| CompareError::Read { file: file.to_owned(), source })?;
    let text = String::from_utf8_lossy(&bytes);
    parse(file, &text)
}

/// The runs of a text of any known format.
pub(super) fn parse(file: &str, text: &str) -> Result<Vec<Run>, CompareError> {
    if let Some(json) = json_of(text) {
        return parse_json(file, json);
    }
    let runs = match classic::read_text(file, text)? {
        Some(runs) => Some(runs),
        None => classic::read_csv(file, text)?,
    };
    runs.ok_or_else(|| CompareError::Format { file: file.to_owned() })
}

/// The runs of a JSON document.
pub(super) fn parse_json(file: &str, json: &str) -> Result<Vec<Run>, CompareError> {
    let value: Value =
        serde_json::from_str(json).map_err(|source| CompareError::Json { file: file.to_owned(), source })?;
    let root = Node::root(file, &value);
    if fio::is_fio(&root) {
        fio::read(&root)
    } else if ours::is_ours(&root) {
        ours::read(&root)
    } else {
        Err(CompareError::Format { file: file.to_owned() })
    }
}

/// The JSON object in an output. fio prints warnings before it and sometimes behind it, on lines of their own.
pub(super) fn json_of(text: &str) -> Option<&str> {
    let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
    let start = starts.into_iter().find(|start| text[*start..].starts_with('{'))?;
    let json = &text[start..];
    let end = json.rfind("\n}").map_or(json.len(), |at| at + 2);
    Some(&json[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_names_files_and_selects_runs() {
        let spec = Spec::parse("none-a.json,none-b.json@path=x@bs=4096").unwrap();
        assert_eq!(spec.files, ["none-a.json", "none-b.json"]);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(spec.selection, [pair("path", "x"), pair("bs", "4096")]);
        for bad in ["none@", "none@path", "none@=x", "", ","] {
            assert!(Spec::parse(bad).unwrap_err().is_usage(), "{bad}");
        }
    }

    #[test]
    fn a_file_whose_name_has_commas_is_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("a,b@c=d.json");
        std::fs::write(&name, "{}").unwrap();
        let spec = Spec::parse(name.to_str().unwrap()).unwrap();
        assert_eq!((spec.files.len(), spec.selection.len()), (1, 0));
    }

    #[test]
    fn lines_around_the_json_of_fio_are_skipped() {
        assert_eq!(json_of("note: both iodepth\n{\n \"a\": 1\n}\nfio: bye\n"), Some("{\n \"a\": 1\n}"));
        assert_eq!(json_of("{\"a\": 1}\n"), Some("{\"a\": 1}\n"));
        assert_eq!(json_of("no { here"), None);
    }
}
