//! A comparison as text. Does not compute.

use std::fmt::Write;

use comfy_table::CellAlignment;
use iopath_report::table::{digits, ruled, wrap};

use super::report::{Comparison, LiveFacts, MetricComparison, RunComparison, Stopped};
use super::verdict::Verdict;

/// The width of notes where the output has none.
const NOTE_WIDTH: usize = 100;

impl Comparison {
    /// Tables of all runs, and the verdict of each. If a table is wider than `width`, it has no means.
    pub fn text(&self, width: Option<u16>) -> String {
        let [a, b] = &self.sides;
        let mut text = format!("A: {a}\nB: {b}\n");
        for run in &self.runs {
            text += &self.run_text(run, width.map_or(usize::MAX, usize::from));
        }
        for (side, workloads) in ["A", "B"].into_iter().zip(&self.unmatched) {
            if !workloads.is_empty() {
                let _ = write!(text, "\nOnly in {side}, not compared: {}\n", workloads.join("; "));
            }
        }
        for note in &self.notes {
            text.push('\n');
            text += &wrap(note, "", "", width.map_or(NOTE_WIDTH, usize::from));
        }
        if let Some(live) = &self.live {
            let _ = write!(text, "\n{}\n", course(live));
        }
        text.trim_end().to_owned()
    }

    fn run_text(&self, run: &RunComparison, width: usize) -> String {
        let mut text = String::from("\n");
        if !run.workload.is_empty() {
            let _ = writeln!(text, "{}", run.workload);
        }
        for difference in &run.differences {
            let [a, b] = &difference.values;
            let _ = writeln!(text, "differs: {}: A {a}, B {b}", difference.key);
        }
        let rows: Vec<[String; COLUMNS.len()]> =
            run.metrics.iter().map(|metric| cells(metric, self.threshold)).collect();
        let all = table(&rows, &[0, 1, 2, 3, 4, 5, 6]);
        let is_wide = all.lines().any(|line| line.chars().count() > width);
        let _ = writeln!(text, "{}", if is_wide { table(&rows, &[0, 4, 5, 6]) } else { all });
        text += &self.sentence(run);
        text.push('\n');
        for (reason, metrics) in corrected(run) {
            text += &wrap(&format!("{}: {reason}", metrics.join(", ")), "", "  ", width.min(NOTE_WIDTH));
        }
        text
    }

    /// The verdict of the primary metric as a sentence.
    pub(crate) fn sentence(&self, run: &RunComparison) -> String {
        let [a, b] = run.repetitions;
        let first = &run.metrics[0];
        let repetitions =
            if a == b { format!("{a} repetitions each") } else { format!("{a} and {b} repetitions") };
        let verdict = match first.verdict {
            Verdict::Same => format!("B is the {} as A", words(first, self.threshold)),
            Verdict::Inconclusive => words(first, self.threshold),
            _ => format!("B is {} than A", words(first, self.threshold)),
        };
        let cause = match (&first.reason, first.verdict) {
            (Some(reason), verdict) if verdict != Verdict::Inconclusive => format!(": {reason}"),
            _ => String::new(),
        };
        format!("{verdict} ({}; {repetitions}){cause}", first.metric)
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

const COLUMNS: [&str; 7] = ["metric", "unit", "A", "B", "difference", "95% interval", "verdict"];

/// A table of some columns. The numbers are in columns 2 to 5.
fn table(rows: &[[String; COLUMNS.len()]], columns: &[usize]) -> String {
    let mut table = ruled();
    table.set_header(columns.iter().map(|column| COLUMNS[*column]));
    table.add_rows(rows.iter().map(|row| columns.iter().map(|column| row[*column].clone())));
    for (column, shown) in columns.iter().zip(table.column_iter_mut()) {
        if (2..6).contains(column) {
            shown.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

fn cells(metric: &MetricComparison, threshold: f64) -> [String; COLUMNS.len()] {
    let mean = |side: usize| metric.means.map_or_else(|| "-".to_owned(), |means| digits(means[side]));
    let verdict = match (metric.verdict, metric.more_repetitions) {
        // The line below the table has the cause for the metric that decides.
        (Verdict::Inconclusive, Some(more)) => format!("inconclusive, {more} more"),
        (Verdict::Inconclusive, None) => "inconclusive".to_owned(),
        _ => words(metric, threshold),
    };
    [
        metric.metric.clone(),
        metric.unit.clone(),
        mean(0),
        mean(1),
        metric.difference.map_or_else(|| "-".to_owned(), percent),
        metric
            .ci95
            .map_or_else(|| "-".to_owned(), |[low, high]| format!("{} … {}", percent(low), percent(high))),
        verdict,
    ]
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

/// A fraction as a percentage with its sign; a ratio for more than a factor of ten.
fn percent(fraction: f64) -> String {
    if fraction > 9.0 {
        return format!("×{}", digits(fraction + 1.0));
    }
    format!("{:+.1}%", fraction * 100.0)
}

fn short(value: f64) -> String {
    format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn course(live: &LiveFacts) -> String {
    let LiveFacts { pairs, looks, stopped, partial, seed } = live;
    let cause = match stopped {
        Stopped::Clear => "the verdict is clear",
        Stopped::Repetitions => "the maximum number of repetitions",
        Stopped::Time => "the maximum time",
        Stopped::Interrupted => "interrupted",
        Stopped::Failed => "a command failed",
    };
    let partial = if *partial { "partial: " } else { "" };
    format!("{partial}{pairs} pairs in random order (seed {seed}), evaluated {looks} times; ended: {cause}")
}
