//! A fit as text: the kind, its error, and a table of the figures held back. Computes nothing.

use std::fmt::Write as _;

use comfy_table::CellAlignment;

use super::report::{FitReport, FittedFigure, Quantity};
use crate::table::{digits, ruled, time};

impl FitReport {
    /// The report as text.
    pub fn text(&self) -> String {
        let mut text = format!("Model of kind {}, fitted to {}\n", self.kind, self.source);
        let noise = self.noise.map_or_else(String::new, |noise| {
            format!("; a repetition deviates by {} from the median of its workload", percent(noise))
        });
        let _ = writeln!(
            text,
            "Error on {} figures held back from the fit: median {}, p90 {}, largest {}{noise}",
            self.held_back.len(),
            percent(self.error.median),
            percent(self.error.p90),
            percent(self.error.max)
        );
        let _ = writeln!(
            text,
            "Error on the {} figures of the fit: median {}, p90 {}, largest {}\n",
            self.training.len(),
            percent(self.training_error.median),
            percent(self.training_error.p90),
            percent(self.training_error.max)
        );
        text + &table_of(&self.held_back)
    }
}

fn table_of(figures: &[FittedFigure]) -> String {
    let is_latency = figures.iter().any(|figure| figure.quantity == Quantity::LatencyNs);
    let columns = if is_latency {
        ["held back", "measured", "modelled", "deviation", "noise"]
    } else {
        ["held back", "measured IOPS", "modelled IOPS", "deviation", "noise"]
    };
    let shown = |value: f64| if is_latency { time(value.round() as u64) } else { digits(value) };
    let mut table = ruled();
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
