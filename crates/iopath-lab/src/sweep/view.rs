//! A sweep as text: a table for each axis and a heat map. Does not measure.

use std::fmt::Write as _;

use comfy_table::CellAlignment;
use iopath_report::result::RunResult;
use iopath_report::size::format_size;
use iopath_report::stats::ratio::{Outcome, Ratio};
use iopath_report::table::{digits, ruled, wrapped};

use super::file::{Cell, SweepFile};

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

impl SweepFile {
    /// The sweep as text for `width` columns; of any width if none is given.
    pub fn text(&self, width: Option<u16>) -> String {
        let quantity = Quantity::of(self);
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
        let mut head =
            format!("Sweep{target}: {} cells, {measured} measured, {skipped} skipped", self.cells.len());
        if open > 0 {
            let _ = write!(head, ", {open} not measured yet");
        }
        let _ = write!(head, "; order from seed {}", self.seed);
        if let Some(device) = &self.device {
            let _ = write!(head, "; settings of {device}");
        }
        let mut text = wrapped(&head, width);
        let is_several = |axis: &&usize| self.axes[**axis].values.len() > 1;
        let varied: Vec<usize> =
            (0..self.axes.len()).collect::<Vec<_>>().iter().filter(is_several).copied().collect();
        for axis in &varied {
            text += &self.axis_table(*axis, quantity);
        }
        if measured > 0 && !varied.is_empty() {
            text += &self.heat_map(&varied, quantity, width);
        }
        for cell in &self.cells {
            if let Some(reason) = &cell.skipped {
                text += &wrapped(&format!("\nskipped: {}: {reason}", self.name(cell)), width);
            }
            for drift in &cell.drift {
                text += &wrapped(&format!("\ndrift: {}: {drift}", self.name(cell)), width);
            }
        }
        text
    }

    /// The effect of one axis: geometric means over the combinations of the other axes that have all its values.
    fn axis_table(&self, axis: usize, quantity: Quantity) -> String {
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
            return format!(
                "\n\n{name}: no combination of the other values was measured with all of its values"
            );
        }
        let means: Vec<f64> = (0..values.len()).map(|value| mean(&of_value(value))).collect();
        let best = (0..values.len()).max_by(|a, b| means[*a].total_cmp(&means[*b])).unwrap_or(0);
        let mut table = ruled();
        table.set_header([name.as_str(), quantity.name(), "of the best", "95%", ""]);
        for (index, value) in values.iter().enumerate() {
            let ratio = Ratio::of(&of_value(index), &of_value(best));
            let interval = ratio.and_then(|ratio| ratio.ci95).filter(|_| index != best);
            let mark = match ratio.map(|ratio| ratio.outcome()) {
                _ if index == best => "▲",
                Some(Outcome::Lower) => "▼",
                Some(Outcome::NotDifferent) => "△",
                _ => "",
            };
            let percent = |fraction: f64| format!("{:.0}%", fraction * 100.0);
            table.add_row([
                self.axes[axis].values[*value].clone(),
                digits(means[index]),
                percent(means[index] / means[best]),
                interval.map_or_else(
                    || "-".to_owned(),
                    |[low, high]| format!("{}–{}", percent(low), percent(high)),
                ),
                mark.to_owned(),
            ]);
        }
        for column in table.column_iter_mut().skip(1).take(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let combinations = groups.len();
        let plural = if combinations == 1 { "" } else { "s" };
        let note = format!(
            "geometric mean over {combinations} combination{plural} of the other values; ▲ best, ▼ significantly lower, △ not \
             significantly different"
        );
        format!("\n\n{}\n{note}", table.trim_fmt())
    }

    /// All measured cells. The columns are the block sizes, or else the axis with the most values.
    fn heat_map(&self, varied: &[usize], quantity: Quantity, width: Option<u16>) -> String {
        let is_block = |axis: &&usize| self.axes[**axis].name == "bs";
        let most = varied.iter().max_by_key(|axis| self.axes[**axis].values.len());
        let Some(columns) = varied.iter().find(is_block).or(most) else { return String::new() };
        let others: Vec<usize> = varied.iter().filter(|axis| *axis != columns).copied().collect();
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
        let name = &self.axes[*columns].name;
        let values = &self.axes[*columns].values;
        let grid = |head: String, top: Vec<&str>, lines: Vec<(String, Vec<String>)>| {
            let mut table = ruled();
            table.set_header(std::iter::once(head.as_str()).chain(top));
            for (label, cells) in lines {
                table.add_row(std::iter::once(label).chain(cells));
            }
            for column in table.column_iter_mut().skip(1) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            table.trim_fmt()
        };
        let lines =
            rows.iter().map(|(label, cells)| (label.clone(), cells.iter().map(|cell| shown(cell)).collect()));
        let mut map = grid(head.clone(), values.iter().map(String::as_str).collect(), lines.collect());
        let widest = map.lines().map(|line| line.chars().count()).max();
        if width.is_some_and(|width| widest > Some(width.into())) && values.len() > rows.len() {
            // Turned by a quarter, the map of a narrow terminal is as wide as it has rows.
            let lines = values.iter().enumerate().map(|(index, value)| {
                (value.clone(), rows.iter().map(|(_, cells)| shown(cells[index])).collect())
            });
            map = grid(
                format!("{name} \\ {head}"),
                rows.iter().map(|(label, _)| label.as_str()).collect(),
                lines.collect(),
            );
        }
        format!("\n\n{} by {name}\n{map}", quantity.name())
    }
}
