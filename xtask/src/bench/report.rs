//! Formats figures as a table or JSON, with a column for reached goals.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::figures::Goal;

/// A measured figure and the figure of its peer.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) unit: &'static str,
    pub(super) peer: &'static str,
    pub(super) value: f64,
    pub(super) peer_value: f64,
    pub(super) goal: Goal,
}

impl Figure {
    /// Our value divided by the peer's.
    fn ratio(&self) -> f64 {
        self.value / self.peer_value
    }
}

/// `[{"name","value","unit","peer","peer_value","ratio"}]`; NaN is null.
pub(super) fn json(figures: &[Figure]) -> String {
    let row = |figure: &Figure| {
        json!({
            "name": figure.name,
            "value": figure.value,
            "unit": figure.unit,
            "peer": figure.peer,
            "peer_value": figure.peer_value,
            "ratio": figure.ratio(),
        })
    };
    let rows: Value = figures.iter().map(row).collect();
    format!("{rows:#}\n")
}

pub(super) fn table(figures: &[Figure]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["figure", "ours", "peer's", "unit", "peer", "ratio", "goal", ""]);
    for column in [1, 2, 5] {
        table.column_mut(column).expect("the header has it").set_cell_alignment(CellAlignment::Right);
    }
    for figure in figures {
        table.add_row([
            figure.name.clone(),
            three_digits(figure.value),
            three_digits(figure.peer_value),
            figure.unit.to_owned(),
            figure.peer.to_owned(),
            format!("{:.3}", figure.ratio()),
            goal(figure.goal),
            verdict(figure.goal.is_reached(figure.ratio())).to_owned(),
        ]);
    }
    table.to_string()
}

fn goal(goal: Goal) -> String {
    match goal {
        Goal::AtLeast(least) => format!(">= {least}"),
        Goal::AtMost(most) => format!("<= {most}"),
        Goal::Within(distance) => format!("1 +- {distance}"),
        Goal::Free => String::new(),
    }
}

fn verdict(reached: Option<bool>) -> &'static str {
    match reached {
        Some(true) => "reached",
        Some(false) => "MISSED",
        None => "",
    }
}

/// Three digits, or all digits before the decimal point.
fn three_digits(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64, goal: Goal) -> Figure {
        Figure { name: "a: IOPS".to_owned(), unit: "I/O/s", peer: "fio", value, peer_value: 100_000.0, goal }
    }

    #[test]
    fn the_json_has_the_documented_keys_and_null_for_missing_figures() {
        let text = json(&[figure(120_000.0, Goal::Free), figure(f64::NAN, Goal::Free)]);
        let rows: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(
            rows[0],
            json!({"name": "a: IOPS", "value": 120_000.0, "unit": "I/O/s", "peer": "fio",
                   "peer_value": 100_000.0, "ratio": 1.2})
        );
        assert!(rows[1]["value"].is_null() && rows[1]["ratio"].is_null());
    }

    #[test]
    fn the_table_shows_missed_goals() {
        let missed = table(&[figure(90_000.0, Goal::AtLeast(1.0))]);
        assert!(missed.contains("0.900") && missed.contains(">= 1") && missed.contains("MISSED"), "{missed}");
        let reached = table(&[figure(97_000.0, Goal::Within(0.05))]);
        assert!(reached.contains("1 +- 0.05") && reached.contains("reached"), "{reached}");
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!([1.234, 56.78, 123_456.7].map(three_digits), ["1.23", "56.8", "123457"]);
    }
}
