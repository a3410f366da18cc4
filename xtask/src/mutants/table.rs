//! The result of a mutant: as a line, and as a row of the table in docs/simulator.md, between two markers.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::workspace;

const FILE: &str = "docs/simulator.md";
const BEGIN: &str = "<!-- mutants: begin -->";
const END: &str = "<!-- mutants: end -->";

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
            None => ("not found".to_owned(), "–".to_owned(), String::new()),
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

/// Replaces the table.
pub(super) fn write(rows: &[Row], seconds: u64) -> Result<()> {
    let path = workspace::root().join(FILE);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}"))?;
    let found = rows.iter().filter(|row| row.found.is_some()).count();
    let mut table = format!(
        "{found} of {} mutants found, at most {seconds} s each.\n\n\
         | mutant | bug | rule | seconds | calls | the simulator reports |\n\
         | --- | --- | --- | ---: | ---: | --- |\n",
        rows.len()
    );
    for row in rows {
        table.push_str(&row.cells());
    }
    let text =
        replaced(&text, &table).with_context(|| format!("{FILE} has no lines `{BEGIN}` and `{END}`"))?;
    std::fs::write(&path, text).with_context(|| format!("cannot write {FILE}"))
}

/// The text with the part between the markers replaced.
fn replaced(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_replaces_the_text_between_the_markers() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replaced(&text, "table\n").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\n\ntable\n\n{END}\nb\n"));
        assert_eq!(replaced(&new, "table\n").as_deref(), Some(&*new));
        assert_eq!(replaced("no markers", "table"), None);
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
