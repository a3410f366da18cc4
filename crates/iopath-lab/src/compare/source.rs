//! Reads one side of a comparison: files of any known format, and a selection of their runs. Does not compare.

use std::path::Path;

use iopath_report::bounded;
use iopath_report::size::parse_size;
use serde_json::Value;

use super::data::Run;
use super::error::CompareError;
use super::json::Node;
use super::{classic, fio, ours};

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

    /// The selected runs of each document. A file may have several, such as those of a loop with one output.
    pub(super) fn read(&self) -> Result<Vec<Vec<Run>>, CompareError> {
        let mut all = Vec::new();
        for file in &self.files {
            for runs in read_file(file)? {
                all.push(self.select(file, runs)?);
            }
        }
        Ok(all)
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

fn read_file(file: &str) -> Result<Vec<Vec<Run>>, CompareError> {
    let bytes = bounded::read(Path::new(file), BYTES_MAX)
        .map_err(|source| CompareError::Read { file: file.to_owned(), source })?;
    let text = String::from_utf8_lossy(&bytes);
    parse(file, &text)
}

/// The runs of each document of a text of any known format.
pub(super) fn parse(file: &str, text: &str) -> Result<Vec<Vec<Run>>, CompareError> {
    let documents = json_of(text);
    if !documents.is_empty() {
        return documents.into_iter().map(|json| parse_json(file, json)).collect();
    }
    let runs = match classic::read_text(file, text)? {
        Some(runs) => Some(runs),
        None => classic::read_csv(file, text)?,
    };
    runs.map(|runs| vec![runs]).ok_or_else(|| CompareError::Format { file: file.to_owned() })
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

/// The JSON objects in an output. fio prints warnings before an object and sometimes behind it, on lines of their own.
/// The last one may be damaged.
pub(super) fn json_of(text: &str) -> Vec<&str> {
    let (mut objects, mut rest) = (Vec::new(), text);
    loop {
        let mut starts = std::iter::once(0).chain(rest.match_indices('\n').map(|(at, _)| at + 1));
        let Some(start) = starts.find(|start| rest[*start..].starts_with('{')) else { return objects };
        rest = &rest[start..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<serde::de::IgnoredAny>();
        let is_whole = matches!(values.next(), Some(Ok(_)));
        let end = if is_whole { values.byte_offset() } else { rest.len() };
        objects.push(&rest[..end]);
        // Another object may begin on the line on which one ends.
        rest = rest[end..].trim_start_matches([' ', '\t', '\r']);
    }
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
        assert_eq!(json_of("note: both iodepth\n{\n \"a\": 1\n}\nfio: bye\n"), ["{\n \"a\": 1\n}"]);
        assert_eq!(json_of("{\"a\": 1}\n"), ["{\"a\": 1}"]);
        assert_eq!(json_of("{}\nfio: two\n{\"b\": 2}{\"c\"\n"), ["{}", "{\"b\": 2}", "{\"c\"\n"]);
        assert!(json_of("no { here").is_empty());
    }
}
