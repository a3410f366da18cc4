//! Studies of recorded requests for the general formats.

use super::{Document, Records, Section, View, number};
use crate::whatif::{Change, METRICS, WhatIfReport, change_text, name_of, shown};

impl Document for WhatIfReport {
    fn text(&self, view: View) -> String {
        Self::text(self, view.width)
    }

    fn json(&self) -> String {
        self.to_json()
    }

    /// A record is a cell, with its figures and, for each, the difference from the reference and its interval. The
    /// recorded run is a record without a cell.
    fn records(&self) -> Records {
        let mut head: Vec<String> = [
            "input",
            "cell",
            "alternative",
            "target",
            "model_error",
            "elevator",
            "max_sectors_bytes",
            "depth",
        ]
        .into_iter()
        .chain(["merge", "priority", "readahead", "cache_bytes", "reference"])
        .map(str::to_owned)
        .collect();
        head.extend(METRICS.iter().map(|metric| metric.column().to_owned()));
        for side in ["against_reference", "against_recorded"] {
            for metric in METRICS {
                let name = metric.column();
                head.extend(["", "_low", "_high"].map(|end| format!("{name}_{side}{end}")));
            }
        }
        let columns = head.len();
        let mut rows = Vec::new();
        for input in &self.inputs {
            if let Some(recorded) = &input.recorded {
                let mut row = vec![input.name.clone(), String::new(), "recorded".to_owned()];
                row.resize(13, String::new());
                row.extend(METRICS.iter().map(|metric| metric.value(recorded).to_string()));
                row.resize(columns, String::new());
                rows.push(row);
            }
            for cell in &input.cells {
                let mut row = vec![
                    input.name.clone(),
                    cell.number.to_string(),
                    cell.name.clone(),
                    cell.target.clone(),
                    number(cell.model_error.median),
                    cell.elevator.clone(),
                    number(cell.max_sectors_bytes),
                    number(cell.depth),
                    cell.merge.to_string(),
                    cell.priority.clone(),
                    cell.readahead.clone().unwrap_or_default(),
                    number(cell.cache_bytes),
                    cell.reference.to_string(),
                ];
                row.extend(METRICS.iter().map(|metric| metric.value(&cell.figures).to_string()));
                for changes in [cell.against_reference, cell.against_recorded] {
                    let all = changes.map_or([None; 11], |changes| changes.all());
                    row.extend(all.into_iter().flat_map(parts));
                }
                rows.push(row);
            }
        }
        Records { head, rows }
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections = Vec::new();
        let head = |first: &str| -> Vec<String> {
            let titles = METRICS.iter().map(|metric| metric.title);
            std::iter::once(first).chain(titles).map(str::to_owned).collect()
        };
        for input in &self.inputs {
            let named = |name: String, cells: Vec<String>| -> Vec<String> {
                std::iter::once(name).chain(cells).collect()
            };
            let recorded = input.recorded.iter().map(|figures| named("recorded".to_owned(), shown(figures)));
            let cells = input.cells.iter().map(|cell| named(name_of(cell), shown(&cell.figures)));
            let verdict = input.verdict.iter().map(|verdict| format!("Verdict: {}", verdict.text));
            sections.push(Section {
                title: input.head(),
                head: head("alternative"),
                rows: recorded.chain(cells).collect(),
                texts: 1,
                paragraphs: verdict.chain(input.notes.iter().map(|note| format!("Note: {note}"))).collect(),
            });
            let reference = input.cells.iter().find(|cell| cell.reference);
            let titles = [
                reference.map(|cell| format!("Against {}", cell.name)),
                Some("Against the recorded run".into()),
            ];
            for (side, title) in titles.into_iter().enumerate() {
                let rows: Vec<Vec<String>> = input
                    .cells
                    .iter()
                    .filter_map(|cell| {
                        let changes = [cell.against_reference, cell.against_recorded][side]?;
                        let texts = changes.all().into_iter().map(change_text).collect();
                        Some(named(name_of(cell), texts))
                    })
                    .collect();
                if let Some(title) = title.filter(|_| !rows.is_empty()) {
                    let head = head("alternative");
                    sections.push(Section { title, head, rows, texts: 1, paragraphs: Vec::new() });
                }
            }
        }
        sections
    }
}

/// A difference and its interval; empty if they are unknown.
fn parts(change: Option<Change>) -> [String; 3] {
    let [low, high] =
        change.and_then(|change| change.interval).map_or([None; 2], |[low, high]| [Some(low), Some(high)]);
    [number(change.map(|change| change.fraction)), number(low), number(high)]
}
