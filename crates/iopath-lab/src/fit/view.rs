//! A fit as text: the kind, its error, and a table of the figures held back. Computes nothing.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement};
use iopath_report::table::{digits, ruled, time, wrapped};

use super::report::{FitReport, FittedFigure, Quantity};

/// The least width of the table: its numbers need it.
const WIDTH_MIN: u16 = 40;

impl FitReport {
    /// The report as text for `width` columns; of any width if none is given.
    pub fn text(&self, width: Option<u16>) -> String {
        let mut text = format!("Model of kind {}, fitted to {}\n", self.kind, self.source);
        for (figures, of, error) in [
            (&self.held_back, "held back from the fit", self.error),
            (&self.training, "of the fit", self.training_error),
        ] {
            let [median, p90, max] = [error.median, error.p90, error.max].map(percent);
            let _ = writeln!(
                text,
                "Error on the {} figures {of}: median {median}, p90 {p90}, largest {max}",
                figures.len()
            );
        }
        if let Some(noise) = self.noise {
            let _ = writeln!(text, "Noise of the measurement: {}", noise_text(noise, self.noise_floor));
        }
        wrapped(&text, width) + "\n" + &table_of(&self.held_back, width)
    }
}

/// The noise of a measurement in words.
pub(super) fn noise_text(noise: f64, floor: Option<f64>) -> String {
    let mut text = format!("a repetition deviates by {} (median) from its workload's median", percent(noise));
    if let Some(floor) = floor {
        let _ = write!(
            text,
            "; the figures themselves are uncertain by {}: the error of a perfect model is about as large",
            percent(floor)
        );
    }
    text
}

fn table_of(figures: &[FittedFigure], width: Option<u16>) -> String {
    let is_latency = figures.iter().any(|figure| figure.quantity == Quantity::LatencyNs);
    let columns = if is_latency {
        ["held back", "measured", "modelled", "deviation", "noise"]
    } else {
        ["held back", "measured IOPS", "modelled IOPS", "deviation", "noise"]
    };
    let shown = |value: f64| if is_latency { time(value.round() as u64) } else { digits(value) };
    let mut table = ruled();
    if let Some(width) = width {
        table.set_width(width.max(WIDTH_MIN)).set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(columns);
    for figure in figures {
        table.add_row([
            figure.workload.clone(),
            shown(figure.measured),
            shown(figure.modelled),
            format!("{:+.1}%", figure.deviation * 100.0),
            figure.noise.map_or_else(|| "-".to_owned(), percent),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn percent(fraction: f64) -> String {
    format!("{:.1}%", fraction * 100.0)
}
