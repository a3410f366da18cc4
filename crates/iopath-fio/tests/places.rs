//! The table of options in docs/run.md: where each option holds.

#[path = "../../iopath-bench/tests/support/docs_table.rs"]
mod docs_table;

use iopath_bench::options::{Form, OptionRow, of_name, options};
use iopath_bench::path::Capabilities;
use iopath_bench::paths::PATHS;
use iopath_bench::place::{Medium, Place};
use iopath_fio::keys;

/// Why an option does not hold somewhere; none if it does.
fn because(row: &OptionRow, reason: impl Fn(Place) -> Option<&'static str>) -> Option<&'static str> {
    // An option that requires another one holds where that one does.
    let required = row.requires.and_then(of_name);
    let places = row.places.iter().chain(required.iter().flat_map(|row| row.places));
    places.copied().find_map(reason)
}

/// The paths on which an option holds, of those with some capability.
fn paths(row: &OptionRow, among: fn(Capabilities) -> bool) -> Vec<&'static str> {
    let holds = |capabilities: Capabilities| {
        let media = [Medium::Local, Medium::Model];
        row.places.iter().all(|place| media.iter().any(|medium| capabilities.include(*place, *medium)))
    };
    let rows = PATHS.iter().filter(|path| among(path.capabilities) && holds(path.capabilities));
    rows.map(|path| path.name).collect()
}

#[test]
fn the_documentation_has_the_table_of_places() {
    const YES: &str = "yes";
    let line = |row: &OptionRow| {
        let key = row.key.map(|key| key.names[0]);
        let name = format!("`{}`", row.flag.or(key).unwrap_or_default());
        let on_command_line = if row.flag.is_some() { YES } else { "job file" };
        let of_several = |place| (place == Place::OneWorkload).then_some("a log records one workload");
        let in_sweep = match row.form {
            Form::List(..) => "axis",
            _ => because(row, of_several).unwrap_or(on_command_line),
        };
        let other = || {
            let other = keys().find(|key| key.mapping.contains(&name));
            other.expect("a key names the option that job files lack").names[0]
        };
        let in_job_file = match (key, row.is_of_job_file) {
            (Some(key), false) => format!("`{key}`"),
            (Some(key), true) => format!("`{key}`; option"),
            (None, true) => "option".to_owned(),
            (None, false) => format!("see `{}`", other()),
        };
        let models_only = |place| (place == Place::Model).then_some("models only");
        let on_export = |place| match place {
            Place::Local(reason) => Some(reason),
            place => models_only(place),
        };
        let on_model = |place| match place {
            Place::Storage(reason) | Place::Local(reason) => Some(reason),
            _ => None,
        };
        let all = paths(row, |_| true);
        let has_path = !paths(row, Capabilities::runs_on_models).is_empty();
        let elsewhere = if has_path { YES } else { "no such path" };
        let cells = [
            because(row, models_only).unwrap_or(YES),
            because(row, on_export).unwrap_or(elsewhere),
            because(row, on_model).unwrap_or(elsewhere),
            &if all.len() == PATHS.len() { "all".to_owned() } else { all.join(", ") },
        ];
        format!(
            "| {name} | {on_command_line} | {on_command_line} | {in_sweep} | {in_job_file} | {} |",
            cells.join(" | ")
        )
    };
    let rows: Vec<String> = options().map(line).collect();
    docs_table::check("docs/run.md", "## Where each option holds", &rows);
}
