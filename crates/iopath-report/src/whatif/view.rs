//! What every format shows of a study: for each input, a table of figures, tables of the differences, and the verdict.
//! Computes nothing.

use std::fmt::Write as _;

use crate::format::{Document, Medium};
use crate::numbers::{counted, digits, distance, percent, share};
use crate::section::{Columns, Fit, Section, Table};
use crate::value::Value;

use super::figures::{Change, Changes, Figures, METRICS, Metric};
use super::{CellReport, InputReport, WhatIfReport};

/// The tables: their numbers need the least width.
const FIT: Fit = Fit::Break { width_min: 60, width_max: u16::MAX };

/// Marks a difference whose interval includes no difference.
const NOT_SIGNIFICANT: &str = "~";

impl Document for WhatIfReport {
    fn sections(&self, _: Medium) -> Vec<Section> {
        let inputs = self.inputs.iter().flat_map(InputReport::sections);
        let mut sections: Vec<Section> =
            std::iter::once(Section::prose([self.head()])).chain(inputs).collect();
        let changes = self.inputs.iter().flat_map(|input| &input.cells);
        let changes = changes.flat_map(|cell| [cell.against_reference, cell.against_recorded]);
        let mut changes = changes.flatten().flat_map(|changes| changes.all()).flatten();
        if changes.any(|change| mark(&change) == NOT_SIGNIFICANT) {
            sections.push(Section::prose(["~ not significant: the 95% interval includes no difference"]));
        }
        sections.retain(|section| !section.is_empty());
        sections
    }

    /// A record is a cell, with its figures and, for each, the difference from the reference and its interval. The
    /// recorded run is a record without a cell.
    fn records(&self) -> Table {
        let rows = self.inputs.iter().flat_map(|input| {
            let recorded = input.recorded.iter().map(move |figures| Row { input, cell: None, figures });
            let cells =
                input.cells.iter().map(move |cell| Row { input, cell: Some(cell), figures: &cell.figures });
            recorded.chain(cells)
        });
        let mut columns = Columns::of(rows)
            .record("input", |row| &row.input.name)
            .record("cell", |row| row.of_cell(|cell| cell.number))
            .record("alternative", |row| row.cell.map_or("recorded", |cell| &cell.name))
            .record("target", |row| row.of_cell(|cell| &cell.target))
            .record("model_error", |row| row.of_cell(|cell| cell.model_error.median))
            .record("elevator", |row| row.of_cell(|cell| &cell.elevator))
            .record("max_sectors_bytes", |row| row.of_cell(|cell| cell.max_sectors_bytes))
            .record("depth", |row| row.of_cell(|cell| cell.depth))
            .record("merge", |row| row.of_cell(|cell| cell.merge))
            .record("priority", |row| row.of_cell(|cell| &cell.priority))
            .record("readahead", |row| row.of_cell(|cell| cell.readahead.as_ref()))
            .record("cache_bytes", |row| row.of_cell(|cell| cell.cache_bytes))
            .record("reference", |row| row.of_cell(|cell| cell.reference));
        for metric in METRICS {
            columns = columns.record(metric.column(), |row| metric.value(row.figures));
        }
        let sides: [(&str, Side); 2] = [
            ("against_reference", |cell| cell.against_reference),
            ("against_recorded", |cell| cell.against_recorded),
        ];
        for (side, of) in sides {
            for (index, metric) in METRICS.iter().enumerate() {
                let name = format!("{}_{side}", metric.column());
                let change = move |row: Row| row.cell.and_then(of).and_then(|changes| changes.all()[index]);
                let interval = move |row| change(row).and_then(|change| change.interval);
                columns = columns
                    .record(&name, |row| change(row).map(|change| change.fraction))
                    .record(format!("{name}_low"), |row| interval(row).map(|[low, _]| low))
                    .record(format!("{name}_high"), |row| interval(row).map(|[_, high]| high));
            }
        }
        columns.into()
    }

    fn json(&self) -> String {
        self.to_json()
    }
}

/// The differences of a cell from the reference, or from the recorded run.
type Side = fn(&CellReport) -> Option<Changes>;

/// The recorded run, or a cell.
#[derive(Debug, Clone, Copy)]
struct Row<'a> {
    input: &'a InputReport,
    cell: Option<&'a CellReport>,
    figures: &'a Figures,
}

impl<'a> Row<'a> {
    fn of_cell<V: Into<Value>>(self, of: impl FnOnce(&'a CellReport) -> V) -> Value {
        Value::known(self.cell, |cell| of(cell).into())
    }
}

impl WhatIfReport {
    fn head(&self) -> String {
        let study = &self.study;
        let timing = if study.closed {
            "closed loop: think times and dependencies of each stream"
        } else {
            "open loop: recorded times"
        };
        let mut text = format!("What if: {timing}");
        if (study.speed - 1.0).abs() > 0.0 {
            let _ = write!(text, ", speed {}", study.speed);
        }
        if let Some(shard) = self.shard {
            let _ = write!(text, "; share {} of {}, of {} cells", shard.number, shard.count, study.cells);
        }
        text
    }
}

impl InputReport {
    fn sections(&self) -> Vec<Section> {
        let reference = self.cells.iter().find(|cell| cell.reference);
        let against = reference.map(|cell| format!("Against {}", cell.name));
        let verdict = self.verdict.iter().map(|verdict| format!("Verdict: {}", verdict.text));
        vec![
            Section::of(self.figures()).titled(self.head()),
            Section::of(self.changes(&against.unwrap_or_default(), |cell| cell.against_reference)),
            Section::of(self.changes("Against the recorded run", |cell| cell.against_recorded)),
            Section::prose(verdict).with_after(self.notes.iter().map(|note| format!("Note: {note}"))),
        ]
    }

    fn figures(&self) -> Columns<Row<'_>> {
        let recorded = self.recorded.iter().map(|figures| Row { input: self, cell: None, figures });
        let cells =
            self.cells.iter().map(|cell| Row { input: self, cell: Some(cell), figures: &cell.figures });
        let name = |row: Row| row.cell.map_or_else(|| "recorded".to_owned(), name_of);
        let columns = Columns::of(recorded.chain(cells)).text("alternative", name).fit(FIT);
        METRICS
            .iter()
            .fold(columns, |columns, metric| columns.number(metric.title, |row| metric.shown(row.figures)))
    }

    fn changes(&self, title: &str, of: Side) -> Columns<(&CellReport, Changes)> {
        let rows = self.cells.iter().filter_map(|cell| Some((cell, of(cell)?)));
        let columns = Columns::of(rows).text(title, |(cell, _)| name_of(cell)).fit(FIT);
        (0..).zip(METRICS).fold(columns, |columns, (index, metric)| {
            let index: usize = index;
            columns.number(metric.title, move |(_, changes)| {
                Value::known(changes.all()[index], |change| {
                    Value::Change(change.fraction).marked(mark(&change))
                })
            })
        })
    }

    /// The input and its models in words.
    pub fn head(&self) -> String {
        let devices = if self.devices == 1 {
            String::new()
        } else {
            format!(" of {}, each on a model of its own", counted(self.devices, "device"))
        };
        let mut models: Vec<String> = Vec::new();
        for cell in &self.cells {
            let error = match cell.model_error.median {
                Some(median) if median > 0.0 => format!("{}, ", percent(median)),
                Some(_) => "none, ".to_owned(),
                None => String::new(),
            };
            let model = format!("{} (error: {error}{})", cell.target, cell.model_error.source);
            if !models.contains(&model) {
                models.push(model);
            }
        }
        format!(
            "{}: {} on {}{devices}, {} s; {}",
            self.name,
            counted(self.requests, if self.accesses { "access" } else { "request" }),
            counted(self.streams, "stream"),
            digits(self.seconds),
            models.join("; ")
        )
    }
}

impl Metric {
    /// A figure for readers. Figures of the device need requests at the device.
    fn shown(&self, figures: &Figures) -> Value {
        let value = self.value(figures);
        match self.name {
            "device-ios" | "request-size" | "seek" | "utilisation" if figures.device_ios <= 0.0 => {
                Value::Unknown
            }
            "throughput" => Value::Rate(value),
            "mean" | "p50" | "p99" | "p99.9" => Value::Nanoseconds(value),
            "device-ios" => Value::Integer(value.round() as u64),
            "request-size" => Value::MeanSize(value),
            "seek" => distance(value).into(),
            "utilisation" => share(value).into(),
            "fairness" => Value::Index(value),
            _ => Value::Number(value),
        }
    }
}

/// The mark of a difference that is not significant.
fn mark(change: &Change) -> &'static str {
    if change.is_significant() || change.interval.is_none() { "" } else { NOT_SIGNIFICANT }
}

/// The name of an alternative in tables.
fn name_of(cell: &CellReport) -> String {
    if cell.reference { format!("{} (reference)", cell.name) } else { cell.name.clone() }
}
