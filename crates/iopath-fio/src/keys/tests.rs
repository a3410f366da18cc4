//! Tests of the table of keys against the keys of fio, whose names, types and defaults are in
//! `tests/data/fio-keys.csv`.

use iopath_bench::options::KbBase;

use super::*;
use crate::docs_table;
use crate::{JobFile, JobFileError, System};

/// A key of fio.
struct OfFio {
    names: Vec<&'static str>,
    kind: &'static str,
    default: &'static str,
}

/// All keys of fio.
fn keys_of_fio() -> Vec<OfFio> {
    let lines = include_str!("../../tests/data/fio-keys.csv").lines();
    let key = |line: &'static str| {
        let mut fields = line.splitn(3, ';');
        let mut next = || fields.next().expect("a line has three fields");
        OfFio { names: next().split(',').collect(), kind: next(), default: next() }
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
            // A job without a size of blocks, threads or depth is none, and a check needs a time.
            let needs = ["bs", "bsrange", "numjobs", "iodepth", "rate_cycle"];
            let is_none = value == "0" && needs.contains(&key.names[0]);
            if value.is_empty() || is_none {
                continue;
            }
            let line = format!("{}={value}", key.names[0]);
            refused.extend(error_of(&line).map(|error| error.to_string()));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
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
