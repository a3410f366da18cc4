//! What every format shows of a comparison. Does not compute.

use crate::format::{Document, Medium};
use crate::numbers::change;
use crate::section::{Columns, Fit, Line, Section, Table};
use crate::value::Value;

use super::{Comparison, LiveFacts, MetricComparison, RunComparison, Stopped, Verdict};

impl Document for Comparison {
    fn sections(&self, _: Medium) -> Vec<Section> {
        let sides = self.names.iter().zip(&self.sides).map(|(name, text)| format!("{name}: {text}"));
        let mut sections = vec![Section::prose(sides)];
        if self.sides.len() > 2 {
            sections.extend(self.summaries());
        }
        sections.extend(self.runs.iter().map(|run| self.run_section(run)));
        for (side, workloads) in self.names.iter().zip(&self.unmatched) {
            let only = format!("Only in {side}, not compared: {}", workloads.join("; "));
            sections.push(Section::prose(Some(only).filter(|_| !workloads.is_empty())));
        }
        let note = |note: &String| Section::prose([Line::new(note).labelled("", "")]);
        sections.extend(self.notes.iter().map(note));
        let unit = if self.sides.len() > 2 { "rounds" } else { "pairs" };
        sections.push(Section::prose(self.live.as_ref().map(|live| course(live, unit))));
        sections.retain(|section| !section.is_empty());
        sections
    }

    fn records(&self) -> Table {
        let rows = self.runs.iter().flat_map(|run| run.metrics.iter().map(move |metric| (run, metric)));
        self.columns([self.base(), "B"], rows.collect())
    }

    fn json(&self) -> String {
        self.to_json()
    }
}

type Row<'a> = (&'a RunComparison, &'a MetricComparison);

impl Comparison {
    /// The metrics of some runs, with the heads of the columns of both means.
    fn columns(&self, heads: [&str; 2], rows: Vec<Row>) -> Table {
        let [a, b] = heads;
        let interval = |[low, high]: [f64; 2]| format!("{} … {}", change(low), change(high)).into();
        Columns::of(rows)
            .record("workload", |(run, _): Row| &run.workload)
            .record("side", |(run, _)| &run.side)
            .text("metric", |(_, metric)| &metric.metric)
            .recorded("metric")
            .text("unit", |(_, metric)| &metric.unit)
            .recorded("unit")
            .ranked(1)
            .record("primary", |(run, metric)| std::ptr::eq(&raw const run.metrics[0], metric))
            .record("repetitions_a", |(run, _)| run.repetitions[0])
            .record("repetitions_b", |(run, _)| run.repetitions[1])
            .number(a, |(_, metric)| metric.means.map(|[a, _]| a))
            .recorded("mean_a")
            .ranked(1)
            .number(b, |(_, metric)| metric.means.map(|[_, b]| b))
            .recorded("mean_b")
            .ranked(1)
            .number("difference", |(_, metric)| Value::known(metric.difference, Value::Change))
            .recorded("difference")
            .number("95% interval", |(_, metric)| Value::known(metric.ci95, interval))
            .record("difference_low", |(_, metric)| metric.ci95.map(|[low, _]| low))
            .record("difference_high", |(_, metric)| metric.ci95.map(|[_, high]| high))
            .record("p_value", |(_, metric)| metric.p_value)
            .text("verdict", |(_, metric)| self.verdict(metric))
            .record("verdict", |(_, metric)| metric.verdict.name())
            .record("more_repetitions", |(_, metric)| metric.more_repetitions)
            .record("reason", |(_, metric)| metric.reason.as_ref())
            .record("differing", |(run, _)| {
                run.differences.iter().map(|one| one.key.as_str()).collect::<Vec<_>>().join(" ")
            })
            .fit(Fit::Omit)
            .into()
    }

    fn run_section(&self, run: &RunComparison) -> Section {
        let differences = run.differences.iter().map(|difference| {
            let [a, b] = &difference.values;
            format!("differs: {}: {} {a}, {} {b}", difference.key, self.base(), run.side)
        });
        let corrected = corrected(run).into_iter();
        let corrected =
            corrected.map(|(reason, metrics)| Line::paragraph(format!("{}: {reason}", metrics.join(", "))));
        let rows = run.metrics.iter().map(|metric| (run, metric)).collect();
        let several = (self.sides.len() > 2).then_some(&run.side);
        let title: Vec<&String> =
            [several, Some(&run.workload)].into_iter().flatten().filter(|part| !part.is_empty()).collect();
        Section::of(self.columns([self.base(), &run.side], rows))
            .titled(title.into_iter().map(String::as_str).collect::<Vec<_>>().join(": "))
            .with_before(differences)
            .with_after([self.sentence(run)])
            .with_after(corrected)
    }

    /// The primary metric of all sides, workload by workload.
    fn summaries(&self) -> Vec<Section> {
        let others = self.sides.len() - 1;
        let of_workload = |runs: &[RunComparison]| {
            let rows = std::iter::once((self.base(), None, runs.first()))
                .chain(runs.iter().map(|run| (run.side.as_str(), Some(run), Some(run))));
            let metric = |run: &RunComparison| run.metrics[0].clone();
            let head = runs.first().map(metric).map_or_else(String::new, |first| first.metric);
            let interval = |[low, high]: [f64; 2]| format!("{} … {}", change(low), change(high)).into();
            let table =
                Columns::of(rows.collect::<Vec<(&str, Option<&RunComparison>, Option<&RunComparison>)>>())
                    .text("command", |(name, ..)| name)
                    .number(head, |(_, other, run)| {
                        run.and_then(|run| run.metrics[0].means)
                            .map(|means| means[usize::from(other.is_some())])
                    })
                    .text("unit", |(.., run)| run.map_or("", |run| run.metrics[0].unit.as_str()))
                    .number(format!("difference from {}", self.base()), |(_, other, _)| {
                        Value::known(other.and_then(|run| run.metrics[0].difference), Value::Change)
                    })
                    .number("95% interval", |(_, other, _)| {
                        Value::known(other.and_then(|run| run.metrics[0].ci95), interval)
                    })
                    .text("verdict", |(_, other, _)| match other {
                        Some(run) => self.verdict(&run.metrics[0]),
                        None => "base".to_owned(),
                    })
                    .fit(Fit::Keep);
            Section::of(table).titled(runs.first().map_or("", |run| run.workload.as_str()))
        };
        self.runs.chunks(others).map(of_workload).collect()
    }

    /// The verdict of the primary metric as a sentence.
    fn sentence(&self, run: &RunComparison) -> String {
        let [a, b] = run.repetitions;
        let first = &run.metrics[0];
        let repetitions =
            if a == b { format!("{a} repetitions each") } else { format!("{a} and {b} repetitions") };
        let verdict = match first.verdict {
            Verdict::Same => {
                format!("{} is the {} as {}", run.side, words(first, self.threshold), self.base())
            }
            Verdict::Inconclusive => words(first, self.threshold),
            _ => format!("{} is {} than {}", run.side, words(first, self.threshold), self.base()),
        };
        let cause = match (&first.reason, first.verdict) {
            (Some(reason), verdict) if verdict != Verdict::Inconclusive => format!(": {reason}"),
            _ => String::new(),
        };
        format!("{verdict} ({}; {repetitions}){cause}", first.metric)
    }

    /// A verdict in a table. The line below the table has the cause for the metric that decides.
    fn verdict(&self, metric: &MetricComparison) -> String {
        match (metric.verdict, metric.more_repetitions) {
            (Verdict::Inconclusive, Some(more)) => format!("inconclusive, {more} more"),
            (Verdict::Inconclusive, None) => "inconclusive".to_owned(),
            _ => words(metric, self.threshold),
        }
    }
}

/// The causes of inconclusive verdicts that further repetitions may change, each with its metrics.
fn corrected(run: &RunComparison) -> Vec<(&str, Vec<&str>)> {
    let mut causes: Vec<(&str, Vec<&str>)> = Vec::new();
    for metric in run.metrics.iter().filter(|metric| metric.more_repetitions.is_some()) {
        let Some(reason) = metric.reason.as_deref() else { continue };
        match causes.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, metrics)) => metrics.push(&metric.metric),
            None => causes.push((reason, vec![&metric.metric])),
        }
    }
    causes
}

/// The verdict in words.
fn words(metric: &MetricComparison, threshold: f64) -> String {
    match metric.verdict {
        Verdict::Faster => "faster".to_owned(),
        Verdict::Slower => "slower".to_owned(),
        Verdict::Cheaper => "cheaper".to_owned(),
        Verdict::Costlier => "costlier".to_owned(),
        Verdict::Same => format!("same within {}%", short(threshold * 100.0)),
        Verdict::Inconclusive => match (&metric.reason, metric.more_repetitions) {
            (Some(reason), None) => format!("inconclusive: {reason}"),
            (_, Some(1)) => "inconclusive: 1 more repetition needed".to_owned(),
            (_, Some(more)) => format!("inconclusive: {more} more repetitions needed"),
            (None, None) => "inconclusive: the variation is too large".to_owned(),
        },
    }
}

fn short(value: f64) -> String {
    format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The course of a live comparison; `unit` names one execution of each command.
fn course(live: &LiveFacts, unit: &str) -> String {
    let LiveFacts { pairs, looks, stopped, partial, seed } = live;
    let cause = match stopped {
        Stopped::Clear => "the verdict is clear",
        Stopped::Repetitions => "the maximum number of repetitions",
        Stopped::Time => "the maximum time",
        Stopped::Interrupted => "interrupted",
        Stopped::Failed => "a command failed",
    };
    let partial = if *partial { "partial: " } else { "" };
    format!("{partial}{pairs} {unit} in random order (seed {seed}), evaluated {looks} times; ended: {cause}")
}
