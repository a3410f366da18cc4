//! Formats the results of experiments as text. Each experiment has its published effect, model, figures, directions and
//! log; a table of all follows. Computes no verdict.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement};
use iopath_report::table::{self, digits, ruled};

use super::report::{Row, Verdict};
use super::suite::{ExperimentResult, ExperimentsReport};

/// The number of columns without a terminal, and the limits with one.
const WIDTH: u16 = 100;
const WIDTH_MIN: u16 = 40;
const WIDTH_MAX: u16 = 120;

/// The indent of tables.
const INDENT: u16 = 2;

const LEGEND: &str =
    "* calibrated on this row; it does not count. ! outside the tolerance. + beside the effect";

impl ExperimentsReport {
    /// The report as text for `width` columns (100 if none is given): each experiment, and a table if there are
    /// several.
    pub fn text(&self, width: Option<u16>) -> String {
        let width = width.unwrap_or(WIDTH).clamp(WIDTH_MIN, WIDTH_MAX);
        let mut text = String::new();
        for result in &self.results {
            text.push_str(&experiment(result, width));
            text.push('\n');
        }
        if self.results.len() > 1 {
            text.push_str(&self.table(width));
        }
        text.trim_end().to_owned()
    }

    /// A table with one line for each experiment, and the sums.
    fn table(&self, width: u16) -> String {
        let mut table = ruled();
        table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["id", "effect", "verdict", "rows", "worst", "directions"]);
        for result in &self.results {
            let ExperimentResult { experiment, report, .. } = result;
            let within = report.predictions().filter(|row| row.is_within()).count();
            let holds = report.directions.iter().filter(|direction| direction.holds).count();
            table.add_row([
                experiment.id.to_owned(),
                experiment.title.to_owned(),
                result.verdict().map_or("-", Verdict::name).to_owned(),
                share(within, report.predictions().count()),
                report.worst().map_or_else(|| "-".to_owned(), percent),
                share(holds, report.directions.len()),
            ]);
        }
        for column in table.column_iter_mut().skip(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{}\n\n{}", table.trim_fmt(), wrap(&self.sums(), "", "", width))
    }

    fn sums(&self) -> String {
        if self.results.iter().any(|result| result.target.is_some()) {
            return self.sums_on_storage();
        }
        let reports = || self.results.iter().map(|result| &result.report);
        let count = |wanted| self.results.iter().filter(|result| result.verdict() == Some(wanted)).count();
        let predicted: usize = reports().map(|report| report.predictions().count()).sum();
        let within: usize =
            reports().map(|report| report.predictions().filter(|row| row.is_within()).count()).sum();
        let parameters = self.results.iter().flat_map(|result| result.experiment.parameters);
        // Experiments may share a constant.
        let calibrated: BTreeSet<&str> = parameters
            .clone()
            .filter(|parameter| parameter.is_calibrated())
            .map(|parameter| parameter.source)
            .collect();
        let fitted: BTreeSet<&str> =
            parameters.filter(|parameter| parameter.is_fitted()).map(|parameter| parameter.name).collect();
        format!(
            "{} of {} reproduced, {} partly, {} not. {within} of {predicted} predicted figures are within their \
             tolerance (25%, or the published spread); constants of the experiments: {calibrated} calibrated on \
             one published figure each, {fitted} fitted to a table. Presets of disks and hosts have more: docs/experiments.md.",
            count(Verdict::Reproduced),
            self.results.len(),
            count(Verdict::Partly),
            count(Verdict::NotReproduced),
            calibrated = calibrated.len(),
            fitted = fitted.len(),
        )
    }

    /// The sources published no figures of this storage.
    fn sums_on_storage(&self) -> String {
        let directions = || self.results.iter().flat_map(|result| &result.report.directions);
        format!(
            "{} of {} directions hold on this storage. The sources have no figures of it: docs/experiments.md describes \
             each effect on storage of today.",
            directions().filter(|direction| direction.holds).count(),
            directions().count(),
        )
    }
}

fn experiment(result: &ExperimentResult, width: u16) -> String {
    let ExperimentResult { experiment, report, target, .. } = result;
    let mut text = wrap(&format!("{}: {}", experiment.id, experiment.title), "", "  ", width);
    let _ = write!(text, "{}", wrap(experiment.published, "  Published: ", "    ", width));
    if let Some(target) = target {
        let scratch = if target.is_dir() { "a scratch file in " } else { "" };
        let place = format!("{scratch}{}", target.display());
        text.push_str(&wrap(&place, "  Real storage: ", "    ", width));
    } else {
        text.push_str(&parameters(result, width));
    }
    if !report.rows.is_empty() {
        text.push('\n');
        text.push_str(&rows(&report.rows, width));
    }
    for direction in &report.directions {
        let mark = if direction.holds { "  holds: " } else { "  does not hold: " };
        text.push_str(&wrap(&direction.text, mark, "    ", width));
    }
    if !report.evidence.is_empty() {
        text.push_str("\n  Request log:\n");
        for line in &report.evidence {
            let line = format!("    {}", line.trim_end());
            // The columns of a log line are kept if they fit.
            if line.chars().count() > usize::from(width) {
                text.push_str(&wrap(&line, "    ", "      ", width));
            } else {
                text.extend([&line, "\n"]);
            }
        }
    }
    for note in &report.notes {
        text.push_str(&wrap(note, "  Note: ", "    ", width));
    }
    let verdict = result.verdict().map_or("none: no published figure applies to this setup", Verdict::name);
    let _ = writeln!(text, "  Verdict: {verdict}");
    text
}

fn parameters(result: &ExperimentResult, width: u16) -> String {
    let mut table = ruled();
    table.set_width(width - INDENT).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["parameter", "value", "unit", "source"]);
    for (parameter, value, is_set) in result.settings.all() {
        let source = if is_set { "set" } else { parameter.source };
        table.add_row([parameter.name, &value, parameter.unit, source]);
    }
    if table.row_count() == 0 { String::new() } else { format!("\n{}", indented(&table.trim_fmt())) }
}

fn rows(rows: &[Row], width: u16) -> String {
    let mut table = ruled();
    table.set_width(width - INDENT).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["figure", "unit", "published", "ours", "deviation", ""]);
    for row in rows {
        let mark = match row {
            row if row.calibrated => "*",
            row if row.is_prediction() && !row.is_within() => "!",
            row if row.is_prediction() && row.secondary => "+",
            _ => "",
        };
        table.add_row([
            row.what.clone(),
            row.unit.to_owned(),
            row.published.map_or_else(|| "-".to_owned(), digits),
            digits(row.ours),
            row.deviation().map_or_else(|| "-".to_owned(), percent),
            mark.to_owned(),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let marked =
        rows.iter().any(|row| row.calibrated || row.is_prediction() && (!row.is_within() || row.secondary));
    let legend = if marked { wrap(LEGEND, "  ", "  ", width) } else { String::new() };
    indented(&table.trim_fmt()) + &legend
}

fn indented(table: &str) -> String {
    table.lines().fold(String::new(), |text, line| text + "  " + line.trim_end() + "\n")
}

fn share(part: usize, of: usize) -> String {
    if of == 0 { "-".to_owned() } else { format!("{part}/{of}") }
}

fn percent(share: f64) -> String {
    format!("{:+.1}%", share * 100.0)
}

/// The words of a text on lines of at most `width` columns.
fn wrap(text: &str, first: &str, rest: &str, width: u16) -> String {
    table::wrap(text, first, rest, usize::from(width.min(WIDTH)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Direction, EXPERIMENTS, Report, Settings};

    fn result() -> ExperimentResult {
        let experiment = &EXPERIMENTS[0];
        let report = Report {
            rows: vec![
                Row::calibrated("throughput, lifted limits", "MB/s", 34.0, 34.1),
                Row::predicted("throughput, classic limits", "MB/s", 26.0, 13.0),
                Row::unpublished("requests", "", 1000.0),
            ],
            directions: vec![Direction::new("lifted > classic", true), Direction::new("a > b", false)],
            evidence: vec!["0.5 Q W 2048+8".to_owned(), "  0.123456789  dispatch  read 2048+256".repeat(2)],
            notes: vec!["A hypothesis about the cause ".repeat(10)],
        };
        let settings = Settings::new(experiment.parameters, &[]).unwrap();
        ExperimentResult { experiment, settings, report, target: None }
    }

    #[test]
    fn every_part_is_shown_and_marked() {
        let text = ExperimentsReport { host: None, results: vec![result()] }.text(None);
        for part in [
            "Published: ",
            "parameter",
            "34.0",
            "-50.0%",
            "holds: lifted > classic",
            "does not hold: a > b",
            "0.5 Q W 2048+8",
            "Note: A hypothesis",
            "Verdict: partly",
            "* calibrated",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn a_setting_without_a_published_figure_has_no_verdict() {
        let mut result = result();
        let set = ["data_mib=1024".to_owned()];
        result.settings = Settings::new(result.experiment.parameters, &set).unwrap();
        assert_eq!(result.verdict(), Some(Verdict::Partly), "rows of the source are left");
        for row in &mut result.report.rows {
            row.published = None;
        }
        assert_eq!((result.verdict(), result.report.verdict()), (None, Some(Verdict::Partly)));
        let text = ExperimentsReport { host: None, results: vec![result.clone(), result] }.text(None);
        assert!(text.contains("Verdict: none: no published figure applies"), "{text}");
        assert!(text.contains("0 of 2 reproduced, 0 partly, 0 not."), "{text}");
    }

    #[test]
    fn lines_fit_the_width() {
        let report = ExperimentsReport { host: None, results: vec![result(), result()] };
        for width in [40, 60, 72, 80, 100, 120, 200] {
            let text = report.text(Some(width));
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(width), "{widest} of {width}:\n{text}");
        }
    }

    #[test]
    fn several_experiments_end_in_a_table_with_the_sums() {
        let text = ExperimentsReport { host: None, results: vec![result(), result()] }.text(None);
        let end = text.rsplit("\n\n").next().unwrap();
        assert!(end.contains("0 of 2 reproduced, 2 partly, 0 not. 0 of 2 predicted figures"), "{end}");
    }

    #[test]
    fn the_sums_of_real_storage_count_directions_only() {
        let on_storage = || {
            let mut result = result();
            result.report.rows = vec![Row::unpublished("throughput", "MB/s", 1000.0)];
            ExperimentResult { target: Some(".".into()), ..result }
        };
        let text = ExperimentsReport { host: None, results: vec![on_storage(), on_storage()] }.text(None);
        let end = text.rsplit("\n\n").next().unwrap();
        assert!(
            end.starts_with("2 of 4 directions hold on this storage.") && !end.contains("0 of 0"),
            "{end}"
        );
    }
}
