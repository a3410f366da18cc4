//! Tests of the whole table.

use std::ffi::OsStr;

use super::*;
use crate::workload::Workload;

#[test]
fn names_are_unique() {
    for row in options() {
        assert!(row.flag.is_some() || row.key.is_some(), "{row:?}");
        if let Some(name) = row.name() {
            assert_eq!(of_name(name).map(|found| found.help), Some(row.help), "{name}");
            assert!(!row.help.is_empty() && !row.help.ends_with('.'), "{name}");
        }
        let same_field = |other: &&OptionRow| row.field.is_some() && other.field == row.field;
        assert!(options().filter(same_field).count() <= 1, "{row:?}");
    }
}

#[test]
fn options_that_others_require_or_exclude_exist_and_requirements_come_first() {
    let position = |name: &str| options().position(|row| row.name() == Some(name)).unwrap();
    for row in options() {
        for other in row.conflicts {
            position(other);
        }
        if let Some(required) = row.requires {
            assert!(position(required) < position(row.name().unwrap()), "{row:?}");
        }
    }
}

#[test]
fn every_field_of_a_workload_has_an_option() {
    for field in Field::ALL {
        assert!(flag_of(field).is_some(), "{field}");
    }
}

#[test]
fn shown_defaults_are_those_of_a_workload() {
    let mut settings = Settings::default();
    for row in options() {
        if let Some(default) = row.default {
            row.set(&mut settings, &Given::on_command_line(OsStr::new(default))).unwrap();
        }
    }
    let workload = settings.to_workload(4096).unwrap();
    assert_eq!(format!("{workload:?}"), format!("{:?}", Workload::default()));
}
