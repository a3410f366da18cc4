//! A study as text: for each input, a table of figures, tables of the differences, and the verdict. Computes nothing.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement};
use iopath_report::size::format_size;
use iopath_report::table::{digits, ruled, time, wrapped};

use super::figures::{Change, Changes, Figures, METRICS};
use super::report::{CellReport, InputReport, WhatIfReport};

/// The least width of a table: its numbers need it.
const WIDTH_MIN: u16 = 60;

/// Marks a difference whose interval includes no difference.
const NOT_SIGNIFICANT: &str = "~";

impl WhatIfReport {
    /// The report as text for `width` columns; of any width if none is given.
    pub fn text(&self, width: Option<u16>) -> String {
        let mut text = wrapped(&self.head(), width);
        for input in &self.inputs {
            text.push('\n');
            text += &input.text(width);
        }
        let is_marked = text.contains(NOT_SIGNIFICANT);
        if is_marked {
            text += &wrapped("\n~ not significant: the 95% interval includes no difference\n", width);
        }
        text
    }

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
        text + "\n"
    }
}

impl InputReport {
    fn text(&self, width: Option<u16>) -> String {
        let mut text = wrapped(&self.head(), width) + "\n";
        text += &figures_table(self, width);
        text.push('\n');
        if let Some(reference) = self.cells.iter().find(|cell| cell.reference) {
            let title = format!("Against {}", reference.name);
            let rows = self.cells.iter().filter_map(|cell| Some((cell, cell.against_reference?)));
            text += &changes_table(&title, &rows.collect::<Vec<_>>(), width);
        }
        let rows: Vec<_> =
            self.cells.iter().filter_map(|cell| Some((cell, cell.against_recorded?))).collect();
        text += &changes_table("Against the recorded run", &rows, width);
        let mut lines = String::new();
        if let Some(verdict) = &self.verdict {
            let _ = writeln!(lines, "\nVerdict: {}", verdict.text);
        }
        for note in &self.notes {
            let _ = writeln!(lines, "Note: {note}");
        }
        text + &wrapped(lines.trim_end(), width) + "\n"
    }

    /// The input and its models in words.
    pub(crate) fn head(&self) -> String {
        let of = |count: u64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let devices = if self.devices == 1 {
            String::new()
        } else {
            format!(" of {}, each on a model of its own", of(self.devices, "device"))
        };
        let mut models: Vec<String> = Vec::new();
        for cell in &self.cells {
            let error = match cell.model_error.median {
                Some(median) if median > 0.0 => format!("{:.1}%, ", median * 100.0),
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
            if self.accesses {
                of(self.requests, "access").replace("accesss", "accesses")
            } else {
                of(self.requests, "request")
            },
            of(self.streams, "stream"),
            digits(self.seconds),
            models.join("; ")
        )
    }
}

/// The figures of a row, in the order of [`METRICS`].
pub(crate) fn shown(figures: &Figures) -> Vec<String> {
    let at = |ns: f64| time(ns.round() as u64);
    let has_device = figures.device_ios > 0.0;
    let of_device = |text: String| if has_device { text } else { "-".to_owned() };
    vec![
        digits(figures.bytes_per_s / 1e6),
        digits(figures.iops),
        at(figures.mean_ns),
        at(figures.p50_ns),
        at(figures.p99_ns),
        at(figures.p999_ns),
        of_device(format!("{:.0}", figures.device_ios)),
        of_device(iopath_report::table::mean_size(figures.request_bytes)),
        of_device(distance(figures.seek_bytes)),
        of_device(share(figures.utilisation)),
        format!("{:.2}", figures.fairness),
    ]
}

/// A share in percent, with decimals below 10%.
fn share(fraction: f64) -> String {
    let percent = fraction * 100.0;
    if percent < 10.0 { format!("{}%", digits(percent)) } else { format!("{percent:.0}%") }
}

/// A mean distance: whole KiB below 1 MiB.
fn distance(bytes: f64) -> String {
    let bytes = bytes.round() as u64;
    format_size(if bytes < 1 << 20 { bytes >> 10 << 10 } else { bytes })
}

/// A difference in percent, or as a factor from 11 on, with a mark if it is not significant.
pub(crate) fn change_text(change: Option<Change>) -> String {
    let Some(change) = change else { return "-".to_owned() };
    let mark = if change.is_significant() || change.interval.is_none() { "" } else { NOT_SIGNIFICANT };
    if change.fraction >= 10.0 {
        return format!("×{}{mark}", digits(1.0 + change.fraction));
    }
    format!("{:+.1}%{mark}", change.fraction * 100.0)
}

/// The name of an alternative in tables.
pub(crate) fn name_of(cell: &CellReport) -> String {
    if cell.reference { format!("{} (reference)", cell.name) } else { cell.name.clone() }
}

fn figures_table(input: &InputReport, width: Option<u16>) -> String {
    let recorded = input.recorded.iter().map(|figures| ("recorded".to_owned(), shown(figures)));
    let cells = input.cells.iter().map(|cell| (name_of(cell), shown(&cell.figures)));
    table("alternative", recorded.chain(cells), width)
}

fn changes_table(title: &str, rows: &[(&CellReport, Changes)], width: Option<u16>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let shown = rows.iter().map(|(cell, changes)| {
        (name_of(cell), changes.all().into_iter().map(change_text).collect::<Vec<_>>())
    });
    format!("\n{}\n", table(title, shown, width))
}

fn table(title: &str, rows: impl Iterator<Item = (String, Vec<String>)>, width: Option<u16>) -> String {
    let mut table = ruled();
    if let Some(width) = width {
        table.set_width(width.max(WIDTH_MIN)).set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(std::iter::once(title).chain(METRICS.iter().map(|metric| metric.title)));
    for (name, figures) in rows {
        table.add_row(std::iter::once(name).chain(figures));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_percentages_and_large_ones_are_factors() {
        let shown = |fraction, interval| change_text(Some(Change { fraction, interval }));
        assert_eq!(shown(0.123, Some([0.1, 0.2])), "+12.3%");
        assert_eq!(shown(-0.5, Some([-0.6, 0.1])), "-50.0%~");
        assert_eq!(shown(57.5, None), "×58.5");
        assert_eq!(change_text(None), "-");
    }
}
