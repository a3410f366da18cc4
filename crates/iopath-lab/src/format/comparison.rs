//! Comparisons for the general formats.

use iopath_report::table::digits;

use super::{Document, Records, Section, View, number};
use crate::compare::{Comparison, MetricComparison};

const COLUMNS: [&str; 16] = [
    "workload",
    "metric",
    "unit",
    "primary",
    "repetitions_a",
    "repetitions_b",
    "mean_a",
    "mean_b",
    "difference",
    "difference_low",
    "difference_high",
    "p_value",
    "verdict",
    "more_repetitions",
    "reason",
    "differing",
];

impl Document for Comparison {
    fn text(&self, view: View) -> String {
        Self::text(self, view.width)
    }

    fn json(&self) -> String {
        self.to_json()
    }

    fn records(&self) -> Records {
        let mut rows = Vec::new();
        for run in &self.runs {
            let differing = run.differences.iter().map(|one| one.key.as_str()).collect::<Vec<_>>().join(" ");
            for (index, metric) in run.metrics.iter().enumerate() {
                let MetricComparison { metric: name, unit, means, difference, ci95, p_value, .. } = metric;
                let end = |index: usize| number(ci95.map(|ends| ends[index]));
                rows.push(vec![
                    run.workload.clone(),
                    name.clone(),
                    unit.clone(),
                    (index == 0).to_string(),
                    run.repetitions[0].to_string(),
                    run.repetitions[1].to_string(),
                    number(means.map(|means| means[0])),
                    number(means.map(|means| means[1])),
                    number(*difference),
                    end(0),
                    end(1),
                    number(*p_value),
                    metric.verdict.name().to_owned(),
                    number(metric.more_repetitions),
                    number(metric.reason.as_ref()),
                    differing.clone(),
                ]);
            }
        }
        Records::new(&COLUMNS, rows)
    }

    fn sections(&self) -> Vec<Section> {
        let [a, b] = &self.sides;
        let mut sections =
            vec![Section { paragraphs: vec![format!("A: {a}"), format!("B: {b}")], ..Section::default() }];
        let head = ["metric", "unit", "verdict", "A", "B", "difference", "95% interval"];
        for run in &self.runs {
            let row = |metric: &MetricComparison| {
                let percent = |fraction: f64| format!("{:+.1}%", fraction * 100.0);
                let mean =
                    |side: usize| metric.means.map_or_else(|| "-".to_owned(), |means| digits(means[side]));
                let interval = |[low, high]: [f64; 2]| format!("{} … {}", percent(low), percent(high));
                vec![
                    metric.metric.clone(),
                    metric.unit.clone(),
                    metric.verdict.name().to_owned(),
                    mean(0),
                    mean(1),
                    metric.difference.map_or_else(|| "-".to_owned(), percent),
                    metric.ci95.map_or_else(|| "-".to_owned(), interval),
                ]
            };
            let differences = run.differences.iter().map(|one| {
                let [a, b] = &one.values;
                format!("Differs: {}: A {a}, B {b}", one.key)
            });
            sections.push(Section {
                title: run.workload.clone(),
                head: head.map(str::to_owned).to_vec(),
                rows: run.metrics.iter().map(row).collect(),
                texts: 3,
                paragraphs: std::iter::once(self.sentence(run)).chain(differences).collect(),
            });
        }
        for (side, workloads) in ["A", "B"].into_iter().zip(&self.unmatched) {
            if !workloads.is_empty() {
                let text = format!("Only in {side}, not compared: {}", workloads.join("; "));
                sections.push(Section { paragraphs: vec![text], ..Section::default() });
            }
        }
        if !self.notes.is_empty() {
            sections.push(Section { paragraphs: self.notes.clone(), ..Section::default() });
        }
        sections
    }
}
