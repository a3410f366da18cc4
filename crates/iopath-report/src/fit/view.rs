//! What every format shows of a fit: the kind, its error, and the figures held back. Computes nothing.

use crate::format::{Document, Medium};
use crate::numbers::percent;
use crate::section::{Columns, Fit, Section, Table};
use crate::value::Value;

use super::{ErrorSummary, FitReport, FittedFigure, FittedParameter, Quantity};

/// The least width of the table: its numbers need it.
const WIDTH_MIN: u16 = 40;

impl Document for FitReport {
    fn sections(&self, medium: Medium) -> Vec<Section> {
        let error = |count: usize, of: &str, ErrorSummary { median, p90, max }: ErrorSummary| {
            let [median, p90, max] = [median, p90, max].map(percent);
            format!("Error on the {count} figures {of}: median {median}, p90 {p90}, largest {max}")
        };
        let noise = self
            .noise
            .map(|noise| format!("Noise of the measurement: {}", noise_text(noise, self.noise_floor)));
        let head = [
            format!("Model of kind {}, fitted to {}", self.kind, self.source),
            error(self.held_back.len(), "held back from the fit", self.error),
            error(self.training.len(), "of the fit", self.training_error),
        ];
        let mut sections =
            vec![Section::prose(head).with_after(noise), section("held back", &self.held_back)];
        if medium != Medium::Text {
            let parameters = Columns::of(&self.parameters)
                .text("parameter", |one: &FittedParameter| &one.name)
                .text("source", |one| &one.source)
                .number("value", |one| one.value);
            let warnings = self.warnings.iter().map(|warning| format!("Warning: {warning}"));
            sections.push(Section::of(parameters).with_after(warnings));
            sections.push(section("of the fit", &self.training));
        }
        sections
    }

    /// A record is a figure of the workloads held back, or of the training.
    fn records(&self) -> Table {
        let held_back = self.held_back.iter().map(|figure| ("held-back", figure));
        let training = self.training.iter().map(|figure| ("training", figure));
        Columns::of(held_back.chain(training))
            .record("part", |(part, _)| part)
            .record("workload", |(_, figure)| &figure.workload)
            .record("rw", |(_, figure)| &figure.rw)
            .record("block_bytes", |(_, figure)| figure.block_bytes)
            .record("io_depth", |(_, figure)| figure.io_depth)
            .record("quantity", |(_, figure)| match figure.quantity {
                Quantity::Iops => "iops",
                Quantity::LatencyNs => "latency-ns",
            })
            .record("measured", |(_, figure)| figure.measured)
            .record("modelled", |(_, figure)| figure.modelled)
            .record("deviation", |(_, figure)| figure.deviation)
            .record("noise", |(_, figure)| figure.noise)
            .into()
    }

    fn json(&self) -> String {
        self.to_json()
    }
}

/// The noise of a measurement in words.
pub fn noise_text(noise: f64, floor: Option<f64>) -> String {
    let noise = format!("a repetition deviates by {} (median) from its workload's median", percent(noise));
    let floor = floor.map(|floor| {
        format!(
            "; the figures themselves are uncertain by {}: the error of a perfect model is about as large",
            percent(floor)
        )
    });
    noise + &floor.unwrap_or_default()
}

fn section(part: &str, figures: &[FittedFigure]) -> Section {
    let is_latency = figures.iter().any(|figure| figure.quantity == Quantity::LatencyNs);
    let unit = if is_latency { "" } else { " IOPS" };
    let kind = if is_latency { Value::Nanoseconds } else { Value::Number };
    let columns = Columns::of(figures)
        .text(part, |figure: &FittedFigure| &figure.workload)
        .number(format!("measured{unit}"), |figure| kind(figure.measured))
        .number(format!("modelled{unit}"), |figure| kind(figure.modelled))
        .number("deviation", |figure| Value::Signed(figure.deviation))
        .number("noise", |figure| Value::known(figure.noise, Value::Percent));
    Section::of(columns.fit(Fit::Break { width_min: WIDTH_MIN, width_max: u16::MAX }))
}
