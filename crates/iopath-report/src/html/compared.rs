//! A comparison on a page: the verdict of each workload, and the differences with their intervals. `compare` computed
//! them.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::facts::Tone;
use super::parts::{Statement, facts};
use crate::compare::{Comparison, MetricComparison, RunComparison, Verdict};
use crate::format::{Document, Medium, page};
use crate::numbers::{change, digits, percent};

/// The largest ratio at the ends of the axis, as a logarithm.
const REACH_MAX: f64 = 4.6;

/// The verdict of each workload.
pub(super) fn statements(compared: &Comparison) -> Vec<Statement> {
    let verdict = |run: &RunComparison| {
        let primary = run.metrics.first()?;
        let difference = match (primary.difference, primary.means) {
            (Some(difference), Some([before, after])) => {
                format!(
                    "{} by {}: {} → {} {}",
                    primary.metric,
                    change(difference),
                    digits(before),
                    digits(after),
                    primary.unit
                )
            }
            _ => primary.metric.clone(),
        };
        let title = title(compared, run);
        let text = match primary.verdict {
            Verdict::Same => {
                format!("{title}: the same within {} ({difference})", percent(compared.threshold))
            }
            Verdict::Inconclusive => format!("{title}: inconclusive ({difference})"),
            verdict => format!("{title}: {}, {difference}", verdict.name()),
        };
        let command = |name: &str| {
            let at = compared.names.iter().position(|known| known == name);
            at.and_then(|at| compared.sides.get(at)).map_or("", String::as_str)
        };
        let (base, side) = (compared.base(), run.side.as_str());
        let mut evidence = format!(
            "{side} is {}, {base} is {}; {} and {} repetitions",
            command(side),
            command(base),
            run.repetitions[0],
            run.repetitions[1]
        );
        if let Some([low, high]) = primary.ci95 {
            let _ = write!(evidence, "; 95% interval {} to {}", change(low), change(high));
        }
        if let Some(more) = primary.more_repetitions {
            let _ = write!(evidence, "; {more} more repetitions of each side are needed");
        }
        if let Some(reason) = &primary.reason {
            let _ = write!(evidence, "; {reason}");
        }
        Some(Statement::new(tone(primary.verdict), "comparison", text, evidence))
    };
    let notes = compared.notes.iter().map(|note| Statement::new(Tone::Warn, "note", note.clone(), ""));
    let mut list: Vec<Statement> = compared.runs.iter().filter_map(verdict).collect();
    // Regressions first, then improvements.
    list.sort_by_key(|statement| match statement.tone {
        Tone::Bad => 0,
        Tone::Good => 1,
        Tone::Warn | Tone::Doubt => 2,
        Tone::Plain => 3,
    });
    list.extend(notes);
    list
}

/// The differences of all metrics, workload by workload.
pub(super) fn section(compared: &Comparison) -> Markup {
    let live = compared.live.as_ref().map_or_else(String::new, |live| {
        let partial = if live.partial { ", partial" } else { "" };
        let unit = if compared.sides.len() > 2 { "rounds in random order" } else { "alternating pairs" };
        format!("{} {unit}, ended by {}{partial}", live.pairs, live.stopped.name())
    });
    let base = format!("{}, the base", compared.base());
    let names = std::iter::once(base.as_str()).chain(compared.names.iter().skip(1).map(String::as_str));
    let mut shown: Vec<(&str, String)> = names.zip(compared.sides.iter().cloned()).collect();
    shown.push(("counts as the same", format!("within {}", percent(compared.threshold))));
    shown.push(("live", live));
    html! {
        (facts(&shown))
        @for run in &compared.runs {
            figure class="card wide" {
                figcaption {
                    h4 { (title(compared, run)) }
                    p class="note" {
                        "Difference of " (run.side) " from " (compared.base())
                        " with its 95% interval. The shaded band counts as the same."
                        @for difference in &run.differences {
                            " " (difference.key) ": " (difference.values[0]) " → " (difference.values[1]) "."
                        }
                    }
                }
                (forest(run, compared.threshold))
            }
        }
        details { summary { "Figures of the comparison" } (page::sections(&compared.sections(Medium::Page))) }
    }
}

/// The workload, and the side if there are several.
fn title(compared: &Comparison, run: &RunComparison) -> String {
    match (compared.sides.len() > 2, run.workload.as_str()) {
        (false, workload) => workload.to_owned(),
        (true, "") => run.side.clone(),
        (true, workload) => format!("{}: {workload}", run.side),
    }
}

/// One line for each metric: the interval, the estimate, the verdict.
fn forest(run: &RunComparison, threshold: f64) -> Markup {
    let ends = run.metrics.iter().flat_map(|metric| {
        let ends = metric.ci95.into_iter().flatten();
        ends.chain(metric.difference)
    });
    // Twice as much and half as much have the same distance from the middle.
    let log = |difference: f64| difference.max(-0.99).ln_1p();
    let most =
        ends.filter(|end| end.is_finite()).map(|end| log(end).abs()).fold(log(threshold) * 2.0, f64::max);
    let reach = (most * 1.08).min(REACH_MAX);
    let place = |value: f64| ((log(value) / reach).clamp(-1.0, 1.0) + 1.0) * 50.0;
    let css = |from: f64, to: f64| format!("left:{from:.2}%;width:{:.2}%", (to - from).max(0.3));
    let line = |metric: &MetricComparison| {
        let [low, high] = metric.ci95.map_or([0.0, 100.0], |ends| ends.map(place));
        html! { div class="row" {
            div class="bar-name" { (metric.metric) }
            div class=(format!("forest {}", tone(metric.verdict).class())) {
                div class="band" style=(css(place(-threshold), place(threshold))) {}
                div class="zero" {}
                @if metric.ci95.is_some() { div class="interval" style=(css(low, high)) {} }
                @if let Some(difference) = metric.difference {
                    div class="estimate" style=(format!("left:{:.2}%", place(difference))) {}
                }
            }
            div class="bar-value" {
                (metric.difference.map_or_else(|| "–".to_owned(), change)) " " span class=(tone(metric.verdict).class()) { (metric.verdict.name()) }
            }
        } }
    };
    html! {
        div class="bars" {
            @for metric in &run.metrics { (line(metric)) }
            div class="row" { div {} div class="forest-axis" { span { (change((-reach).exp_m1())) } span { "0" } span { (change(reach.exp_m1())) } } }
        }
    }
}

/// Whether B is significantly worse, or better.
fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Faster | Verdict::Cheaper => Tone::Good,
        Verdict::Slower | Verdict::Costlier => Tone::Bad,
        Verdict::Inconclusive => Tone::Warn,
        Verdict::Same => Tone::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(verdict: &str, difference: f64) -> Comparison {
        let json = serde_json::json!({
            "schema": "iopath.compare/1", "host": null, "metric": null, "vary": [], "sides": ["a.json", "b.json"], "threshold": 0.03, "live": null,
            "runs": [{
                "workload": "kernel-direct, read", "differences": [], "repetitions": [5, 5],
                "metrics": [{
                    "metric": "throughput", "unit": "MB/s", "means": [100.0, 100.0 * (1.0 + difference)],
                    "difference": difference, "ci95": [difference - 0.01, null], "p_value": 0.01,
                    "verdict": verdict, "more_repetitions": null, "reason": null
                }]
            }],
            "unmatched": [[], ["other"]], "regression": false, "notes": ["each side is one execution"]
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_regression_is_marked_and_comes_first() {
        let list = statements(&compared("slower", -0.25));
        assert_eq!(list[0].tone, Tone::Bad);
        assert!(list[0].text.contains("slower, throughput by -25.0%: 100 → 75"), "{list:#?}");
        assert!(list[0].evidence.contains("95% interval -26.0% to unbounded"), "{list:#?}");
        assert_eq!(list[1].text, "each side is one execution");
        assert!(statements(&compared("same", 0.001))[0].text.contains("the same within 3.0%"));
    }

    #[test]
    fn intervals_lie_on_the_axis() {
        let html = section(&compared("slower", -0.25)).into_string();
        assert!(html.contains("class=\"interval\"") && html.contains("class=\"estimate\""), "{html}");
        assert!(html.contains("Only in B, not compared: other"), "{html}");
    }
}
