//! The result of a mutant: as a line, and as a row of the table in docs/simulator.md, between two markers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::workspace;

const FILE: &str = "docs/simulator.md";
const BEGIN: &str = "<!-- mutants: begin -->";
const END: &str = "<!-- mutants: end -->";

/// The last cells of a mutant that was not found.
const NOT_FOUND: &str = "| not found | – |  |";

/// The longest message in a row, in characters.
const MESSAGE_MAX: usize = 100;

/// The result of one mutant.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) bug: String,
    pub(super) rule: String,
    /// `None` if the simulator ended without a failure.
    pub(super) found: Option<Found>,
}

/// A failure that the simulator found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Rounded up, so at least 1.
    seconds: u64,
    /// Calls in the runs before the failing one, if the simulator printed the number.
    calls: Option<u64>,
    /// The violated invariant, or the message of the panic.
    failure: String,
}

impl Row {
    pub(super) fn line(&self) -> String {
        match &self.found {
            Some(Found { seconds, calls, failure }) => {
                let calls = calls.map_or(String::new(), |count| format!(", after {count} calls"));
                format!("{}: found in {seconds} s{calls}: {failure}", self.name)
            }
            None => format!("{}: NOT FOUND", self.name),
        }
    }

    fn cells(&self) -> String {
        let Self { name, bug, rule, found } = self;
        let (seconds, calls, failure) = match found {
            Some(Found { seconds, calls, failure }) => (
                seconds.to_string(),
                calls.map_or_else(|| "–".to_owned(), |count| count.to_string()),
                failure.replace('|', "\\|"),
            ),
            None => return format!("| `{name}` | {bug} | {rule} {NOT_FOUND}\n"),
        };
        format!("| `{name}` | {bug} | {rule} | {seconds} | {calls} | {failure} |\n")
    }
}

/// The failure that the output of the simulator reports.
pub(super) fn found_of(output: &str, took: Duration) -> Found {
    // `seed 7 fails at event 12: rule 1: …`, and at the end `sim: 3 runs, seeds 7 to 9, 1234 calls (…`.
    let failure = output.lines().find_map(|line| {
        let (seed, message) = line.strip_prefix("seed ")?.split_once(": ")?;
        seed.contains(" fails").then_some(message)
    });
    let summary = output.lines().find_map(|line| line.strip_prefix("sim: "));
    let calls = summary.and_then(|line| line.split(", ").find_map(|part| part.split_once(" calls")));
    let calls = calls.and_then(|(count, _)| count.parse().ok());
    let failure = failure.unwrap_or("it ended without a report").chars().take(MESSAGE_MAX).collect();
    Found { seconds: took.as_secs() + u64::from(took.subsec_nanos() > 0), calls, failure }
}

/// Replaces the rows of these mutants in the table. The other rows stay, except those of no mutant in `names`.
pub(super) fn write(rows: &[Row], names: &[String], seconds: u64) -> Result<()> {
    let path = workspace::root().join(FILE);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}"))?;
    let text = replaced(&text, rows, names, seconds)
        .with_context(|| format!("{FILE} has no lines `{BEGIN}` and `{END}`"))?;
    std::fs::write(&path, text).with_context(|| format!("cannot write {FILE}"))
}

/// The text with these rows in the table between the markers.
fn replaced(text: &str, rows: &[Row], names: &[String], seconds: u64) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (old, after) = rest.split_once(END)?;
    let row_of =
        |line: &str| Some((line.strip_prefix("| `")?.split_once('`')?.0.to_owned(), format!("{line}\n")));
    let mut lines: BTreeMap<String, String> = old.lines().filter_map(row_of).collect();
    lines.extend(rows.iter().map(|row| (row.name.clone(), row.cells())));
    lines.retain(|name, _| names.contains(name));
    let found = lines.values().filter(|line| !line.contains(NOT_FOUND)).count();
    let count = lines.len();
    let table: String = lines.into_values().collect();
    Some(format!(
        "{before}{BEGIN}\n\n{found} of {count} mutants found, at most {seconds} s each.\n\n\
         | mutant | bug | rule | seconds | calls | the simulator reports |\n\
         | --- | --- | --- | ---: | ---: | --- |\n{table}\n{END}{after}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_replace_those_of_the_same_mutants_between_the_markers() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let row = |name: &str, found: Option<u64>| {
            let found = found.map(|seconds| Found { seconds, calls: None, failure: "rule 1".into() });
            Row { name: name.into(), bug: "Bug.".into(), rule: "1".into(), found }
        };
        let text = format!("x\n{BEGIN}\nold\n| `gone` | Bug. | 1 | 1 | – | rule 1 |\n{END}\ny\n");
        let rows = [row("c", Some(7)), row("a", None)];
        let new = replaced(&text, &rows, &names, 60).unwrap();
        assert!(new.starts_with(&format!("x\n{BEGIN}\n\n1 of 2 mutants found, at most 60 s each.\n")));
        let table = "| --- |\n| `a` | Bug. | 1 | not found | – |  |\n| `c` | Bug. | 1 | 7 | – | rule 1 |\n\n";
        assert!(new.ends_with(&format!("{table}{END}\ny\n")), "{new}");
        assert_eq!(replaced(&new, &rows, &names, 60).as_deref(), Some(&*new));

        let newer = replaced(&new, &[row("a", Some(9)), row("b", Some(1))], &names, 60).unwrap();
        assert!(newer.contains("3 of 3 mutants") && newer.contains("| `c` | Bug. | 1 | 7 |"), "{newer}");
        assert!(newer.contains("| `a` | Bug. | 1 | 9 |"), "{newer}");
        assert_eq!(replaced("no markers", &rows, &names, 60), None);
    }

    #[test]
    fn a_failure_is_the_message_of_the_simulator() {
        let took = Duration::from_millis(1500);
        let output = "seed 7 fails at event 12: rule 1: a read\nagain: …\n\n\
                      sim: 3 runs, seeds 7 to 9, 1234 calls (99 a second), 0 failed\n";
        let found = Found { seconds: 2, calls: Some(1234), failure: "rule 1: a read".into() };
        assert_eq!(found_of(output, took), found);
        assert_eq!(found_of("", took).failure, "it ended without a report");
    }
}
