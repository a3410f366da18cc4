//! Experiments for the general formats.

use iopath_report::table::digits;

use super::{Document, Records, Section, View, number};
use crate::experiment::{ExperimentResult, ExperimentsReport, Row, Verdict};

const COLUMNS: [&str; 12] = [
    "experiment",
    "verdict",
    "kind",
    "what",
    "unit",
    "published",
    "ours",
    "deviation",
    "tolerance",
    "calibrated",
    "secondary",
    "holds",
];

impl Document for ExperimentsReport {
    fn text(&self, view: View) -> String {
        Self::text(self, view.width)
    }

    fn json(&self) -> String {
        self.to_json()
    }

    /// A record is a row or a direction. `holds` of a row states that it is within its tolerance; it is empty without a
    /// published figure.
    fn records(&self) -> Records {
        let mut rows = Vec::new();
        for result in &self.results {
            let first = [result.experiment.id.to_owned(), number(result.verdict().map(Verdict::name))];
            for row in &result.report.rows {
                // The column `holds` takes the range into account.
                let Row { what, unit, published, ours, tolerance, calibrated, secondary, range: _ } = row;
                let of_row = [
                    "row".to_owned(),
                    what.clone(),
                    (*unit).to_owned(),
                    number(*published),
                    ours.to_string(),
                    number(row.deviation()),
                    tolerance.to_string(),
                    calibrated.to_string(),
                    secondary.to_string(),
                    number(published.map(|_| row.is_within())),
                ];
                rows.push([&first[..], &of_row].concat());
            }
            for direction in &result.report.directions {
                let mut of_direction = vec![String::new(); COLUMNS.len() - first.len()];
                "direction".clone_into(&mut of_direction[0]);
                of_direction[1].clone_from(&direction.text);
                of_direction[9] = direction.holds.to_string();
                rows.push([&first[..], &of_direction].concat());
            }
        }
        Records::new(&COLUMNS, rows)
    }

    fn sections(&self) -> Vec<Section> {
        self.results.iter().map(section).collect()
    }
}

fn section(result: &ExperimentResult) -> Section {
    let ExperimentResult { experiment, report, .. } = result;
    let row = |row: &Row| {
        let mark = match (row.calibrated, row.secondary, row.published.is_some() && !row.is_within()) {
            (true, ..) => " (calibrated)",
            (_, _, true) => " (outside the tolerance)",
            (_, true, _) => " (beside the effect)",
            _ => "",
        };
        vec![
            row.what.clone() + mark,
            row.unit.to_owned(),
            row.published.map_or_else(|| "-".to_owned(), digits),
            digits(row.ours),
            row.deviation().map_or_else(|| "-".to_owned(), |share| format!("{:+.1}%", share * 100.0)),
        ]
    };
    let head = ["figure", "unit", "published", "ours", "deviation"].map(str::to_owned).to_vec();
    let verdict = result.verdict().map(|verdict| format!("Verdict: {}", verdict.name()));
    let directions = report.directions.iter().map(|direction| {
        let holds = if direction.holds { "Holds" } else { "Does not hold" };
        format!("{holds}: {}", direction.text)
    });
    Section {
        title: format!("{}: {}", experiment.id, experiment.title),
        head: if report.rows.is_empty() { Vec::new() } else { head },
        rows: report.rows.iter().map(row).collect(),
        texts: 2,
        paragraphs: directions.chain(verdict).chain(report.notes.iter().cloned()).collect(),
    }
}
