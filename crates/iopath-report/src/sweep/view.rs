//! What every format shows of a sweep: the effect of each axis, a heat map, and the measured cells. Does not measure.

use std::fmt::Write as _;

use crate::format::{Document, Medium};
use crate::numbers::{digits, half_width, whole_percent};
use crate::result::RunResult;
use crate::section::{Columns, Fit, Line, Section, Table};
use crate::shard::Shard;
use crate::size::format_size;
use crate::stats::ratio::{Outcome, Ratio};
use crate::value::Value;

use super::{Cell, SweepFile};

/// The levels of a heat map, from the smallest value to the largest one.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A map whose values differ by less than this share of the largest one has one level.
const FLAT: f64 = 0.05;

/// The quantity of all tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    /// 10^6 bytes per second.
    Rate,
    /// Transfers per second.
    Iops,
}

impl Quantity {
    /// IOPS for random transfers of one size, throughput for all others.
    fn of(file: &SweepFile) -> Self {
        let mut runs = file.cells.iter().filter_map(|cell| cell.run.as_ref());
        let is_random = |run: &RunResult| run.rw.starts_with("rand");
        match runs.next().filter(|first| is_random(first)) {
            Some(first) if runs.all(|run| is_random(run) && run.block_bytes == first.block_bytes) => {
                Self::Iops
            }
            _ => Self::Rate,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rate => "MB/s",
            Self::Iops => "IOPS",
        }
    }

    fn value(self, cell: &Cell) -> Option<f64> {
        let run = cell.run.as_ref()?;
        Some(match self {
            Self::Rate => run.bytes_per_second.mean / 1e6,
            Self::Iops => run.iops.mean,
        })
    }
}

impl Document for SweepFile {
    fn sections(&self, medium: Medium) -> Vec<Section> {
        let quantity = Quantity::of(self);
        let varied: Vec<usize> =
            (0..self.axes.len()).filter(|axis| self.axes[*axis].values.len() > 1).collect();
        let mut sections = vec![Section::prose([self.heading()])];
        sections.extend(varied.iter().map(|axis| self.axis(*axis, quantity)));
        if self.counts()[0] > 0 && !varied.is_empty() {
            sections.extend(self.heat_map(&varied, quantity));
        }
        // A terminal has no room for a row of each cell.
        if medium != Medium::Text {
            sections.push(Section::of(self.measured(&varied)).titled("Cells"));
        }
        if let Some(last) = sections.last_mut() {
            last.after.extend(self.cells.iter().flat_map(|cell| self.remarks(cell)));
        }
        sections
    }

    fn records(&self) -> Table {
        self.cell_records()
    }

    fn json(&self) -> String {
        self.to_json()
    }
}

impl SweepFile {
    /// The target and the progress.
    fn heading(&self) -> String {
        let [measured, skipped] = self.counts();
        // The parameters of a model vary from cell to cell.
        let name = |path: &str| path.split_once('?').map_or(path, |(model, _)| model).to_owned();
        let target = self.target.as_ref().map(|target| {
            let named = match &target.filesystem {
                _ if target.kind == "model" => name(&target.path),
                // The file no longer exists.
                Some(filesystem) if target.scratch => {
                    format!("a scratch file of {} on {filesystem}", format_size(target.size_bytes))
                }
                None if target.scratch => format!("a scratch file of {}", format_size(target.size_bytes)),
                _ => target.path.clone(),
            };
            format!(" of {named}")
        });
        let target = target.unwrap_or_default();
        let open = self.cells.len() - measured - skipped;
        let mut head = format!("Sweep{target}: {} cells", self.cells.len());
        if let Some(Shard { number, count }) = self.shard {
            let _ = write!(head, ", share {number} of {count}");
        }
        let _ = write!(head, ", {measured} measured, {skipped} skipped");
        match self.shard {
            // Most of the open cells are those of other shares.
            Some(_) if !self.complete => head.push_str(", not finished"),
            None if open > 0 => {
                let _ = write!(head, ", {open} not measured yet");
            }
            _ => {}
        }
        let _ = write!(head, "; order from seed {}", self.seed);
        if let Some(device) = &self.device {
            let _ = write!(head, "; settings of {device}");
        }
        head
    }

    /// Why a cell is skipped, and what changed while it was measured.
    fn remarks(&self, cell: &Cell) -> Vec<Line> {
        let name = self.name(cell);
        let skipped = cell.skipped.iter().map(|reason| format!("skipped: {name}: {reason}"));
        let drift = cell.drift.iter().map(|drift| format!("drift: {name}: {drift}"));
        skipped.chain(drift).map(Line::new).collect()
    }

    /// A row is a measured cell.
    fn measured(&self, varied: &[usize]) -> Table {
        let cells = self.cells.iter().filter_map(|cell| Some((cell, cell.run.as_ref()?)));
        let columns = varied.iter().fold(Columns::of(cells), |columns, axis| {
            columns.text(&self.axes[*axis].name, |(cell, _): (&Cell, &RunResult)| &cell.values[*axis])
        });
        columns
            .number("MB/s", |(_, run)| Value::Rate(run.bytes_per_second.mean))
            .number("±95%", |(_, run)| Value::known(half_width(&run.bytes_per_second), Value::Percent))
            .number("IOPS", |(_, run)| run.iops.mean)
            .number("p50", |(_, run)| Value::Nanoseconds(run.latency_ns.p50 as f64))
            .number("p99", |(_, run)| Value::Nanoseconds(run.latency_ns.p99 as f64))
            .number("CPU s/GiB", |(_, run)| run.cpu.as_ref().map(|cpu| cpu.seconds_per_gib))
            .into()
    }

    /// The effect of one axis: geometric means over the combinations of the other axes that have all its values.
    fn axis(&self, axis: usize, quantity: Quantity) -> Section {
        let all = self.axes[axis].values.len();
        // A value that no cell could have leaves the comparison of the others.
        let measured = |value: &usize| {
            let has = |cell: &&Cell| cell.values[axis] == self.axes[axis].values[*value];
            self.cells.iter().filter(has).any(|cell| cell.run.is_some())
        };
        let values: Vec<usize> = (0..all).filter(measured).collect();
        let stride: usize = self.axes[axis + 1..].iter().map(|axis| axis.values.len()).product();
        // The last axis varies fastest: cells that differ in this axis only are `stride` apart.
        let starts = (0..self.cells.len()).filter(|number| (number / stride).is_multiple_of(all));
        let group = |start: usize| -> Option<Vec<f64>> {
            values.iter().map(|value| quantity.value(&self.cells[start + value * stride])).collect()
        };
        let groups: Vec<Vec<f64>> = starts.filter_map(group).collect();
        let of_value = |value: usize| -> Vec<f64> { groups.iter().map(|group| group[value]).collect() };
        let mean =
            |values: &[f64]| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp();
        let name = &self.axes[axis].name;
        if groups.is_empty() {
            return Section::prose([format!(
                "{name}: no combination of the other values was measured with all of its values"
            )]);
        }
        let means: Vec<f64> = (0..values.len()).map(|value| mean(&of_value(value))).collect();
        let best = (0..values.len()).max_by(|a, b| means[*a].total_cmp(&means[*b])).unwrap_or(0);
        let ratio = |index: usize| Ratio::of(&of_value(index), &of_value(best));
        let columns = Columns::of(0..values.len())
            .text(name, |index| &self.axes[axis].values[values[index]])
            .number(quantity.name(), |index| means[index])
            .number("of the best", |index| Value::WholePercent(means[index] / means[best]))
            .number("95%", |index| {
                let interval = ratio(index).and_then(|ratio| ratio.ci95).filter(|_| index != best);
                interval.map(|[low, high]| format!("{}–{}", whole_percent(low), whole_percent(high)))
            })
            .text("", |index| match ratio(index).map(|ratio| ratio.outcome()) {
                _ if index == best => "▲",
                Some(Outcome::Lower) => "▼",
                Some(Outcome::NotDifferent) => "△",
                _ => "",
            });
        let combinations = groups.len();
        let plural = if combinations == 1 { "" } else { "s" };
        Section::of(columns).with_after([format!(
            "geometric mean over {combinations} combination{plural} of the other values; ▲ best, ▼ significantly lower, △ \
             not significantly different"
        )])
    }

    /// All measured cells. The columns are the block sizes, or else the axis with the most values.
    fn heat_map(&self, varied: &[usize], quantity: Quantity) -> Option<Section> {
        let is_block = |axis: &&usize| self.axes[**axis].name == "bs";
        let most = varied.iter().max_by_key(|axis| self.axes[**axis].values.len());
        let across = varied.iter().find(is_block).or(most)?;
        let others: Vec<usize> = varied.iter().filter(|axis| *axis != across).copied().collect();
        let label = |cell: &Cell| -> String {
            let parts = others.iter().map(|axis| cell.values[*axis].clone());
            parts.collect::<Vec<_>>().join(" ")
        };
        let mut rows: Vec<(String, Vec<&Cell>)> = Vec::new();
        for cell in &self.cells {
            let label = label(cell);
            match rows.iter_mut().find(|(known, _)| *known == label) {
                Some((_, cells)) => cells.push(cell),
                None => rows.push((label, vec![cell])),
            }
        }
        let known = || self.cells.iter().filter_map(|cell| quantity.value(cell));
        let (most, least) = (known().fold(0.0, f64::max), known().fold(f64::INFINITY, f64::min));
        let shown = |cell: &Cell| match quantity.value(cell) {
            Some(value) => {
                let range = most - least;
                let share = if range > most * FLAT { (value - least) / range } else { 1.0 };
                let level = (share * LEVELS.len() as f64).ceil() as usize;
                format!("{} {}", LEVELS[level.clamp(1, LEVELS.len()) - 1], digits(value))
            }
            None if cell.skipped.is_some() => "skipped".to_owned(),
            None => "-".to_owned(),
        };
        let head = others.iter().map(|axis| self.axes[*axis].name.as_str()).collect::<Vec<_>>().join(" ");
        let (name, values) = (&self.axes[*across].name, &self.axes[*across].values);
        // Turned by a quarter, the map of a narrow terminal is as wide as it has rows.
        let fit = if values.len() > rows.len() {
            Fit::Turn { corner: Some(format!("{name} \\ {head}")) }
        } else {
            Fit::Keep
        };
        let columns = Columns::of(&rows).text(head, |(label, _)| label).fit(fit);
        let map = (0..).zip(values).fold(columns, |columns, (index, value)| {
            let index: usize = index;
            columns.number(value, |(_, cells)| shown(cells[index]))
        });
        Some(Section::of(map).titled(format!("{} by {name}", quantity.name())))
    }
}
