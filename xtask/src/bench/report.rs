//! Formats figures as a table or JSON, with a verdict on each goal.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::figures::Goal;
use super::samples::{Ratio, Samples};

/// A figure of a peer whose rounds spread more than this, between their quartiles, is no measure for ours.
const SPREAD_MAX: f64 = 0.15;

/// A measured figure and the figure of its peer.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) unit: &'static str,
    pub(super) peer: &'static str,
    pub(super) value: Samples,
    pub(super) peer_value: Samples,
    pub(super) goal: Goal,
    /// Cores that other programs kept busy before the rounds; none where nothing was observed.
    pub(super) others: Option<f64>,
}

/// Whether a figure reaches its goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No goal: for information.
    Free,
    /// The whole interval reaches it, or the median if there are too few rounds for an interval.
    Reached,
    /// The whole interval misses it.
    Missed,
    /// The interval contains the goal.
    Unclear,
    /// The rounds of the peer differ too much.
    NotComparable,
}

impl Figure {
    /// Our value divided by the peer's.
    fn ratio(&self) -> Ratio {
        self.value.ratio_to(&self.peer_value)
    }

    pub(super) fn verdict(&self) -> Verdict {
        if self.peer_value.spread() > SPREAD_MAX {
            return Verdict::NotComparable;
        }
        let Ratio { median, interval } = self.ratio();
        let (low, high) = interval.unwrap_or((median, median));
        // The ratio of the interval that is nearest to equality reaches a distance from it, if any does.
        match [low, high, 1.0_f64.max(low).min(high)].map(|ratio| self.goal.is_reached(ratio)) {
            [None, ..] => Verdict::Free,
            [Some(true), Some(true), _] => Verdict::Reached,
            [Some(false), Some(false), Some(false)] => Verdict::Missed,
            _ => Verdict::Unclear,
        }
    }
}

/// `[{"name","value","unit","peer","peer_value","peer_spread","ratio","ratio_low","ratio_high","verdict","others"}]`;
/// what is not known is null.
pub(super) fn json(figures: &[Figure]) -> String {
    let row = |figure: &Figure| {
        let Ratio { median, interval } = figure.ratio();
        json!({
            "name": figure.name,
            "value": figure.value.median(),
            "unit": figure.unit,
            "peer": figure.peer,
            "peer_value": figure.peer_value.median(),
            "peer_spread": figure.peer_value.spread(),
            "ratio": median,
            "ratio_low": interval.map(|(low, _)| low),
            "ratio_high": interval.map(|(_, high)| high),
            "verdict": figure.verdict().text(),
            "others": figure.others,
        })
    };
    let rows: Value = figures.iter().map(row).collect();
    format!("{rows:#}\n")
}

pub(super) fn table(figures: &[Figure]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let head = ["figure", "ours", "peer's", "unit", "peer", "ratio", "±95%", "goal", "verdict", "others"];
    table.set_header(head);
    for column in [1, 2, 5, 6, 9] {
        table.column_mut(column).expect("the header has it").set_cell_alignment(CellAlignment::Right);
    }
    for figure in figures {
        let verdict = figure.verdict();
        let Ratio { median, interval } = figure.ratio();
        let (ratio, interval) = if verdict == Verdict::NotComparable {
            (format!("± {:.0}%", figure.peer_value.spread() * 100.0), String::new())
        } else {
            let shown = interval.map(|(low, high)| format!("{low:.3} to {high:.3}"));
            (format!("{median:.3}"), shown.unwrap_or_default())
        };
        table.add_row([
            figure.name.clone(),
            three_digits(figure.value.median()),
            three_digits(figure.peer_value.median()),
            figure.unit.to_owned(),
            figure.peer.to_owned(),
            ratio,
            interval,
            goal(figure.goal),
            verdict.text().to_owned(),
            figure.others.map_or_else(String::new, |cores| format!("{cores:.1}")),
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

impl Verdict {
    const fn text(self) -> &'static str {
        match self {
            Self::Free => "",
            Self::Reached => "reached",
            Self::Missed => "MISSED",
            Self::Unclear => "unclear",
            Self::NotComparable => "not comparable",
        }
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

    fn figure(values: &[f64], peer_values: &[f64], goal: Goal) -> Figure {
        Figure {
            name: "a: IOPS".to_owned(),
            unit: "I/O/s",
            peer: "fio",
            value: Samples::new(values.to_vec()),
            peer_value: Samples::new(peer_values.to_vec()),
            goal,
            others: Some(0.5),
        }
    }

    #[test]
    fn the_json_has_the_documented_keys_and_null_for_what_is_not_known() {
        let text =
            json(&[figure(&[120_000.0], &[100_000.0], Goal::Free), figure(&[f64::NAN], &[1.0], Goal::Free)]);
        let rows: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(
            rows[0],
            json!({"name": "a: IOPS", "value": 120_000.0, "unit": "I/O/s", "peer": "fio", "peer_value": 100_000.0,
                   "peer_spread": 0.0, "ratio": 1.2, "ratio_low": null, "ratio_high": null, "verdict": "",
                   "others": 0.5})
        );
        assert!(rows[1]["value"].is_null() && rows[1]["ratio"].is_null());
    }

    #[test]
    fn the_interval_decides_where_there_is_one() {
        let peer = [100.0; 7];
        let of = |values: [f64; 7], goal| figure(&values, &peer, goal).verdict();
        let around = [97.0, 98.0, 99.0, 101.0, 102.0, 103.0, 104.0];
        assert_eq!(of(around, Goal::AtLeast(0.96)), Verdict::Reached);
        assert_eq!(of(around, Goal::AtLeast(1.0)), Verdict::Unclear);
        assert_eq!(of(around, Goal::AtMost(0.9)), Verdict::Missed);
        assert_eq!(of(around, Goal::Within(0.05)), Verdict::Reached);
        assert_eq!(of([90.0, 91.0, 92.0, 100.0, 108.0, 109.0, 110.0], Goal::Within(0.05)), Verdict::Unclear);
        assert_eq!(of(around, Goal::Free), Verdict::Free);
        assert_eq!(figure(&[99.0], &[100.0], Goal::AtLeast(1.0)).verdict(), Verdict::Missed);
    }

    #[test]
    fn a_peer_that_differs_from_itself_is_no_measure() {
        let wild = figure(&[100.0; 7], &[60.0, 70.0, 80.0, 100.0, 120.0, 130.0, 140.0], Goal::AtLeast(2.0));
        assert_eq!(wild.verdict(), Verdict::NotComparable);
        let shown = table(&[wild]);
        assert!(shown.contains("not comparable") && shown.contains("± 50%"), "{shown}");
        assert!(!shown.contains("MISSED"), "{shown}");
    }

    #[test]
    fn the_table_shows_the_goal_and_the_verdict() {
        let missed = table(&[figure(&[90_000.0], &[100_000.0], Goal::AtLeast(1.0))]);
        assert!(missed.contains("0.900") && missed.contains(">= 1") && missed.contains("MISSED"), "{missed}");
        let reached = table(&[figure(&[97_000.0; 7], &[100_000.0; 7], Goal::Within(0.05))]);
        assert!(reached.contains("1 +- 0.05") && reached.contains("0.970 to 0.970"), "{reached}");
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!([1.234, 56.78, 123_456.7].map(three_digits), ["1.23", "56.8", "123457"]);
    }
}
