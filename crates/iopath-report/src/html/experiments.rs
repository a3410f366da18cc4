//! Experiments on a page: verdicts, published and modelled figures. `experiment` computed them.

use maud::{Markup, html};

use super::facts::{Experiment, Experiments, Tone};
use super::parts::Statement;
use crate::experiment::Row;
use crate::experiment::view::{figures, parameters};
use crate::format::page;
use crate::numbers::signed_percent;

/// Deviations beyond this are drawn at the end of the scale.
const REACH: f64 = 1.0;

/// One statement for all experiments, and one for each that is not reproduced.
pub(super) fn statements(of: &Experiments) -> Vec<Statement> {
    let verdicts = of.experiments.iter().filter(|experiment| experiment.verdict.is_some()).count();
    let reproduced = of.experiments.iter().filter(|experiment| experiment.tone() == Tone::Good).count();
    let tone = if reproduced == verdicts { Tone::Good } else { Tone::Plain };
    let rows: Vec<&Row> = of.experiments.iter().flat_map(|experiment| &experiment.rows).collect();
    let predictions = || rows.iter().filter(|row| row.is_prediction());
    let within = predictions().filter(|row| row.is_within()).count();
    let text = format!("{reproduced} of {verdicts} published effects are reproduced");
    let evidence = format!(
        "{within} of {} predicted figures are within their tolerance; calibrated figures do not count",
        predictions().count()
    );
    let mut list = vec![Statement::new(tone, "experiments", text, evidence)];
    for experiment in
        of.experiments.iter().filter(|experiment| matches!(experiment.tone(), Tone::Warn | Tone::Bad))
    {
        let verdict = experiment.verdict.as_deref().unwrap_or_default();
        let text = format!("{}: {} – {verdict}", experiment.id, experiment.title);
        let missing: Vec<&str> = experiment
            .directions
            .iter()
            .filter(|direction| !direction.holds)
            .map(|direction| direction.text.as_str())
            .collect();
        let evidence =
            if missing.is_empty() { String::new() } else { format!("does not hold: {}", missing.join("; ")) };
        list.push(Statement::new(experiment.tone(), "experiment", text, evidence));
    }
    list
}

pub(super) fn section(of: &Experiments) -> Markup {
    html! { @for experiment in &of.experiments { (one(experiment)) } }
}

fn one(experiment: &Experiment) -> Markup {
    let drawn: Vec<&Row> = experiment.rows.iter().filter(|row| row.deviation().is_some()).collect();
    html! {
        section class="experiment" {
            h3 {
                (experiment.id) ": " (experiment.title) " "
                @if let Some(verdict) = &experiment.verdict { span class=(format!("badge {}", experiment.tone().class())) { (verdict) } }
            }
            p { (experiment.published) }
            @if let Some(target) = &experiment.target { p class="note" { "Measured on " (target) } }
            @if !drawn.is_empty() {
                figure class="card wide" {
                    figcaption {
                        h4 { "Deviation from the published figures" }
                        p class="note" { "The shaded band is the tolerance. Hollow: calibrated, does not count." }
                    }
                    div class="bars" {
                        @for row in drawn { (deviation(row)) }
                        div class="row" { div {} div class="forest-axis" { span { "−100%" } span { "0" } span { "+100%" } } }
                    }
                }
            }
            @if !experiment.directions.is_empty() {
                ul class="directions" {
                    @for direction in &experiment.directions {
                        li class=(if direction.holds { "good" } else { "bad" }) {
                            b { (if direction.holds { "holds" } else { "does not hold" }) } " " (direction.text)
                        }
                    }
                }
            }
            @for note in &experiment.notes { p class="note" { (note) } }
            details {
                summary { "Figures, evidence and parameters" }
                (page::sections(&[figures(&experiment.rows)]))
                @if !experiment.evidence.is_empty() { pre tabindex="0" { (experiment.evidence.join("\n")) } }
                (page::sections(&[parameters(&experiment.parameters)]))
            }
        }
    }
}

/// The mark of a figure that counts.
fn tone(row: &Row) -> Tone {
    match row.is_within() {
        _ if !row.is_prediction() => Tone::Plain,
        true => Tone::Good,
        false => Tone::Bad,
    }
}

/// The deviations that count as reproduced, from the lowest to the highest.
fn band(row: &Row) -> [f64; 2] {
    let around = [-row.tolerance, row.tolerance];
    match (row.range, row.published.filter(|published| *published != 0.0)) {
        (Some(range), Some(published)) => {
            let [low, high] = range.map(|end| (end - published) / published.abs());
            [around[0].min(low), around[1].max(high)]
        }
        _ => around,
    }
}

fn deviation(row: &Row) -> Markup {
    let place = |value: f64| ((value / REACH).clamp(-1.0, 1.0) + 1.0) * 50.0;
    let value = row.deviation().unwrap_or(0.0);
    let band = band(row).map(place);
    html! { div class="row" {
        div class="bar-name" { (row.what) }
        div class=(format!("forest {}", tone(row).class())) {
            div class="band" style=(format!("left:{:.2}%;width:{:.2}%", band[0], band[1] - band[0])) {}
            div class="zero" {}
            div class=(if row.calibrated { "estimate hollow" } else { "estimate" }) style=(format!("left:{:.2}%", place(value))) {}
        }
        div class="bar-value" { (signed_percent(value)) }
    } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_that_is_not_reproduced_is_a_statement() {
        let of: Experiments = serde_json::from_value(serde_json::json!({"experiments": [
            {"id": "link", "title": "a link", "verdict": "reproduced", "target": null, "published": "8 disks",
             "rows": [{"what": "rate", "unit": "MB/s", "published": 100.0, "ours": 110.0, "deviation": 0.1,
                       "tolerance": 0.25, "range": [60.0, 100.0], "calibrated": false, "secondary": false}]},
            {"id": "dip", "title": "a dip", "verdict": "partly", "target": null, "published": "a fall",
             "directions": [{"text": "a > b", "holds": false}]}
        ]}))
        .unwrap();
        let list = statements(&of);
        assert_eq!(list[0].text, "1 of 2 published effects are reproduced");
        assert!(list[0].evidence.starts_with("1 of 1 predicted"), "{list:#?}");
        assert_eq!(list[1].evidence, "does not hold: a > b");
        assert!(section(&of).into_string().contains("+10.0%"));
        let [below, above] = band(&of.experiments[0].rows[0]);
        assert!((below + 0.4).abs() < 1e-9 && (above - 0.25).abs() < 1e-9, "{below} {above}");
    }
}
