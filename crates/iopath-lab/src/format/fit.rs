//! Fitted models for the general formats.

use iopath_report::table::digits;

use super::{Document, Records, Section, View, names, number};
use crate::fit::{ErrorSummary, FitReport, FittedFigure, Quantity};

impl Document for FitReport {
    fn text(&self, view: View) -> String {
        Self::text(self, view.width)
    }

    fn json(&self) -> String {
        self.to_json()
    }

    /// A record is a figure of the workloads held back, or of the training.
    fn records(&self) -> Records {
        let head = [
            "part",
            "workload",
            "rw",
            "block_bytes",
            "io_depth",
            "quantity",
            "measured",
            "modelled",
            "deviation",
            "noise",
        ];
        let row = |part: &str, figure: &FittedFigure| {
            vec![
                part.to_owned(),
                figure.workload.clone(),
                figure.rw.clone(),
                figure.block_bytes.to_string(),
                figure.io_depth.to_string(),
                figure.quantity.name().to_owned(),
                figure.measured.to_string(),
                figure.modelled.to_string(),
                figure.deviation.to_string(),
                number(figure.noise),
            ]
        };
        let of = |part: &'static str, figures: &'_ [FittedFigure]| -> Vec<Vec<String>> {
            figures.iter().map(|figure| row(part, figure)).collect()
        };
        Records::new(
            &head,
            of("held-back", &self.held_back).into_iter().chain(of("training", &self.training)),
        )
    }

    fn sections(&self) -> Vec<Section> {
        let percent = |fraction: f64| format!("{:.1}%", fraction * 100.0);
        let of = |title: &str, figures: &[FittedFigure], error: ErrorSummary| {
            let row = |figure: &FittedFigure| {
                vec![
                    figure.workload.clone(),
                    figure.quantity.unit().to_owned(),
                    digits(figure.measured),
                    digits(figure.modelled),
                    format!("{:+.1}%", figure.deviation * 100.0),
                    figure.noise.map_or_else(|| "-".to_owned(), percent),
                ]
            };
            let [median, p90, max] = [error.median, error.p90, error.max].map(percent);
            Section {
                title: title.to_owned(),
                head: names(&["workload", "unit", "measured", "modelled", "deviation", "noise"]),
                rows: figures.iter().map(row).collect(),
                texts: 2,
                paragraphs: vec![format!("Error: median {median}, p90 {p90}, largest {max}")],
            }
        };
        let parameters = Section {
            title: format!("Parameters of the model, of kind {}", self.kind),
            head: names(&["parameter", "source", "value"]),
            rows: self
                .parameters
                .iter()
                .map(|one| vec![one.name.clone(), one.source.clone(), digits(one.value)])
                .collect(),
            texts: 2,
            paragraphs: self.warnings.iter().map(|warning| format!("Warning: {warning}")).collect(),
        };
        vec![
            of("Figures held back from the fit", &self.held_back, self.error),
            parameters,
            of("Figures of the fit", &self.training, self.training_error),
        ]
    }
}

impl Quantity {
    /// The name in results.
    const fn name(self) -> &'static str {
        match self {
            Self::Iops => "iops",
            Self::LatencyNs => "latency-ns",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::LatencyNs => "ns",
        }
    }
}
