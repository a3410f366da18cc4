//! Tests of the table of keys against the keys of fio, whose names, types and defaults are in
//! `tests/data/fio-keys.csv`.

use iopath_bench::options::{Given, KbBase};

use super::*;
use crate::docs_table;
use crate::{JobFile, JobFileError, System};

/// A key of fio.
struct OfFio {
    names: Vec<&'static str>,
    kind: &'static str,
    default: &'static str,
    /// The names of its values, or the range of its numbers: `0..100`.
    values: &'static str,
}

impl OfFio {
    /// The least and the most of its numbers; none without a range.
    fn range(&self) -> Option<(u64, u64)> {
        let (least, most) = self.values.split_once("..")?;
        Some((least.parse().ok()?, most.parse().ok()?))
    }

    /// Values that fio does not take.
    fn invalid(&self) -> Vec<String> {
        match (self.kind, self.range()) {
            (_, Some((least, most))) => {
                let outside = [least.checked_sub(1), Some(most + 1)].into_iter().flatten();
                outside.map(|number| number.to_string()).chain(["many".to_owned()]).collect()
            }
            _ if !self.values.is_empty() => vec!["bogus".to_owned()],
            ("boolean", _) => ["2", "maybe"].map(str::to_owned).into(),
            ("switch", _) => vec!["maybe".to_owned()],
            ("number", _) => vec!["many".to_owned()],
            _ => Vec::new(),
        }
    }
}

/// All keys of fio.
fn keys_of_fio() -> Vec<OfFio> {
    let lines = include_str!("../../tests/data/fio-keys.csv").lines();
    let key = |line: &'static str| {
        let mut fields = line.splitn(4, ';');
        let mut next = || fields.next().unwrap_or_default();
        OfFio { names: next().split(',').collect(), kind: next(), default: next(), values: next() }
    };
    lines.filter(|line| !line.starts_with('#')).map(key).collect()
}

#[test]
fn each_name_has_one_row() {
    for key in keys() {
        for name in key.names {
            assert_eq!(keys().filter(|other| other.names.contains(name)).count(), 1, "{name}");
            assert_eq!(find(name).unwrap().name(), Some(key.names[0]));
        }
    }
}

#[test]
fn each_key_of_fio_is_run_or_refused_with_its_reason() {
    let all = keys_of_fio();
    assert!(all.len() > 300, "{} keys", all.len());
    for key in &all {
        for name in &key.names {
            let found = find(name).unwrap_or_else(|| panic!("{name} is unknown"));
            let row = found.key().unwrap();
            assert!(!row.mapping.is_empty(), "{name} has no reason");
            assert_eq!(row.is_switch, key.kind == "switch", "{name}: fio takes a value after a space or not");
        }
    }
}

/// The error of a job with this line.
fn error_of(line: &str) -> Option<JobFileError> {
    JobFile::parse("f", format!("[j]\n{line}\n").as_bytes(), &System, false).err()
}

#[test]
fn a_default_of_fio_and_a_function_that_is_off_are_never_refused() {
    let mut refused = Vec::new();
    for key in keys_of_fio() {
        let off = if ["boolean", "switch", "number"].contains(&key.kind) { "0" } else { "" };
        for value in [key.default, off] {
            let is_outside = value == "0" && key.range().is_some_and(|(least, _)| least > 0);
            // A job without a size of blocks, threads or depth is none, and a check needs a time.
            let needs = ["bs", "bsrange", "numjobs", "iodepth", "rate_cycle"];
            let is_none = value == "0" && needs.contains(&key.names[0]);
            if value.is_empty() || is_none || is_outside {
                continue;
            }
            let line = format!("{}={value}", key.names[0]);
            refused.extend(error_of(&line).map(|error| error.to_string()));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn an_invalid_value_of_each_key_is_refused_with_the_key_and_the_valid_ones() {
    let mut accepted = Vec::new();
    for key in keys_of_fio() {
        let name = key.names[0];
        let row = find(name).unwrap().key().unwrap();
        for value in key.invalid() {
            // 0 switches some functions off.
            if row.neutral.contains(&&*value) {
                continue;
            }
            match error_of(&format!("{name}={value}")).map(|error| error.to_string()) {
                None => accepted.push(format!("{name}={value}")),
                Some(error) if row.support == Support::No => assert!(error.contains(name), "{error}"),
                Some(error) => assert!(error.contains(&format!("`{name}={value}`")), "{error}"),
            }
        }
    }
    assert!(accepted.is_empty(), "{}", accepted.join("\n"));
}

#[test]
fn each_value_that_fio_takes_is_run_or_refused_with_its_reason() {
    let mut invalid = Vec::new();
    for key in keys_of_fio().iter().filter(|key| !key.values.contains("..")) {
        let line = |value: &str| format!("{}={value}", key.names[0]);
        let values = key.values.split('|').filter(|value| !value.is_empty());
        invalid.extend(values.filter_map(|value| match error_of(&line(value)) {
            None | Some(JobFileError::Unsupported { .. }) => None,
            Some(error) => Some(error.to_string()),
        }));
    }
    assert!(invalid.is_empty(), "{}", invalid.join("\n"));
}

#[test]
fn neutral_values_are_compared_as_numbers() {
    let key = Key::new(&["a"], Support::No, "no").neutral(&["0", "none"]);
    let is_neutral = |value| key.is_neutral(&Given::in_job_file(value, KbBase::Binary));
    assert!(is_neutral(Some("0")) && is_neutral(Some("0k")) && is_neutral(Some(" none ")));
    assert!(!is_neutral(None) && !is_neutral(Some("1")) && !is_neutral(Some("")));
}

#[test]
fn the_documentation_has_the_table_of_keys() {
    let row = |Key { names, support, mapping, .. }: Key| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        format!("| {} | {} | {mapping} |", names.join(", "), support.name())
    };
    let rows: Vec<String> = keys().map(row).collect();
    docs_table::check("docs/jobfiles.md", "## Keys", &rows);
}
