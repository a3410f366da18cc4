//! What every format shows of experiments. Each has its published effect, model, figures, directions and log; a table
//! of all follows. Computes no verdict.

use std::collections::BTreeSet;

use crate::format::{Document, Medium, View, text};
use crate::section::{Columns, Fit, Line, Section, Table};
use crate::value::Value;

use super::{Direction, ExperimentResult, ExperimentsReport, JsonParameter, Report, Row, Verdict};

/// The least width of the text.
const WIDTH_MIN: u16 = 40;

/// The indent of tables.
const INDENT: usize = 2;

const FIT: Fit = Fit::Break { width_min: WIDTH_MIN, width_max: 120 };
const FIT_INDENTED: Fit = Fit::Break { width_min: WIDTH_MIN - 2, width_max: 118 };

const LEGEND: &str =
    "* calibrated on this row; it does not count. ! outside the tolerance. + beside the effect";

impl Document for ExperimentsReport {
    fn text(&self, View { width, is_fancy }: View) -> String {
        let width = width.map(|width| width.max(WIDTH_MIN));
        text::render(&self.sections(Medium::Text), View { width, is_fancy })
    }

    /// Each experiment, and a table if there are several.
    fn sections(&self, _: Medium) -> Vec<Section> {
        let mut sections: Vec<Section> = self.results.iter().flat_map(sections).collect();
        if self.results.len() > 1 {
            sections.push(Section::of(self.table()));
            sections.push(Section::prose([Line::paragraph(self.sums()).labelled("", "")]));
        }
        sections
    }

    /// A record is a row or a direction. `holds` of a row states that it is within its tolerance; it is empty without a
    /// published figure.
    fn records(&self) -> Table {
        fn of_row<V: Into<Value>>(of: impl Fn(&Row) -> V) -> impl Fn((&ExperimentResult, Record)) -> Value {
            move |(_, record)| match record {
                Record::Row(row) => of(row).into(),
                Record::Direction(_) => Value::Absent,
            }
        }
        let rows = self.results.iter().flat_map(|result| {
            let rows = result.report.rows.iter().map(move |row| (result, Record::Row(row)));
            rows.chain(result.report.directions.iter().map(move |one| (result, Record::Direction(one))))
        });
        Columns::of(rows)
            .record("experiment", |(result, _)| result.id)
            .record("verdict", |(result, _)| result.verdict().map(Verdict::name))
            .record("kind", |(_, record)| match record {
                Record::Row(_) => "row",
                Record::Direction(_) => "direction",
            })
            .record("what", |(_, record)| match record {
                Record::Row(row) => &row.what,
                Record::Direction(direction) => &direction.text,
            })
            .record("unit", of_row(|row| row.unit.to_string()))
            .record("published", of_row(|row| row.published))
            .record("ours", of_row(|row| row.ours))
            .record("deviation", of_row(Row::deviation))
            .record("tolerance", of_row(|row| row.tolerance))
            .record("calibrated", of_row(|row| row.calibrated))
            .record("secondary", of_row(|row| row.secondary))
            .record("holds", |(_, record)| match record {
                Record::Row(row) => row.published.map(|_| row.is_within()),
                Record::Direction(direction) => Some(direction.holds),
            })
            .into()
    }

    fn json(&self) -> String {
        self.to_json()
    }
}

#[derive(Debug, Clone, Copy)]
enum Record<'a> {
    Row(&'a Row),
    Direction(&'a Direction),
}

impl ExperimentsReport {
    /// One line for each experiment.
    fn table(&self) -> Columns<&ExperimentResult> {
        let within = |report: &Report| report.predictions().filter(|row| row.is_within()).count();
        let holds = |report: &Report| report.directions.iter().filter(|direction| direction.holds).count();
        Columns::of(&self.results)
            .text("id", |result: &ExperimentResult| result.id)
            .text("effect", |result| result.title)
            .text("verdict", |result| result.verdict().map(Verdict::name))
            .number("rows", |result| share(within(&result.report), result.report.predictions().count()))
            .number("worst", |result| Value::known(result.report.worst(), Value::Signed))
            .number("directions", |result| share(holds(&result.report), result.report.directions.len()))
            .fit(FIT)
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
        let parameters = self.results.iter().flat_map(|result| result.settings.parameters());
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

/// The published effect, the parameters, the figures, the request log, notes and the verdict.
fn sections(result: &ExperimentResult) -> Vec<Section> {
    let ExperimentResult { id, title, published, report, target, .. } = result;
    let labelled = |label: &'static str| move |text: &str| Line::paragraph(text).labelled(label, "    ");
    let place = target.as_ref().map(|target| {
        let scratch = if target.is_dir() { "a scratch file in " } else { "" };
        labelled("  Real storage: ")(&format!("{scratch}{}", target.display()))
    });
    let mut sections = vec![
        Section::prose([labelled("  Published: ")(published)])
            .with_after(place)
            .titled(format!("{id}: {title}")),
    ];
    if target.is_none() {
        sections.push(parameters(&super::parameters(&result.settings)));
    }
    sections.push(figures(&report.rows));
    let directions = report.directions.iter().map(|direction| {
        labelled(if direction.holds { "  holds: " } else { "  does not hold: " })(&direction.text)
    });
    let mut end: Vec<Line> = directions.collect();
    if !report.evidence.is_empty() {
        push(&mut sections, std::mem::take(&mut end));
        end.push(Line::new("  Request log:"));
        // The columns of a log line are kept if they fit.
        let log = report.evidence.iter().map(|line| Line::new(line.trim_end()).labelled("    ", "      "));
        end.extend(log);
        sections.push(Section::default());
    }
    end.extend(report.notes.iter().map(|note| labelled("  Note: ")(note)));
    let verdict = result.verdict().map_or("none: no published figure applies to this setup", Verdict::name);
    end.push(labelled("  Verdict: ")(verdict));
    push(&mut sections, end);
    sections.retain(|section| !section.is_empty());
    sections
}

/// Adds lines below the last section.
fn push(sections: &mut [Section], lines: Vec<Line>) {
    sections.last_mut().expect("the title is a section").after.extend(lines);
}

/// The parameters with their values.
pub(crate) fn parameters(parameters: &[JsonParameter]) -> Section {
    let columns = Columns::of(parameters)
        .text("parameter", |parameter: &JsonParameter| &*parameter.name)
        .text("value", |parameter| &parameter.value)
        .text("unit", |parameter| &*parameter.unit)
        .text("source", |parameter| &*parameter.source);
    Section::of(columns.fit(FIT_INDENTED).indent(INDENT))
}

/// The published figures beside ours, and the meaning of the marks.
pub(crate) fn figures(rows: &[Row]) -> Section {
    let columns = Columns::of(rows)
        .text("figure", |row: &Row| &row.what)
        .text("unit", |row| &*row.unit)
        .number("published", |row| row.published)
        .number("ours", |row| row.ours)
        .number("deviation", |row| Value::known(row.deviation(), Value::Signed))
        .text("", mark);
    let is_marked = rows.iter().any(|row| !mark(row).is_empty());
    let legend = is_marked.then(|| Line::paragraph(LEGEND).labelled("  ", "  "));
    Section::of(columns.fit(FIT_INDENTED).indent(INDENT)).with_after(legend)
}

fn mark(row: &Row) -> &'static str {
    match row {
        row if row.calibrated => "*",
        row if row.is_prediction() && !row.is_within() => "!",
        row if row.is_prediction() && row.secondary => "+",
        _ => "",
    }
}

fn share(part: usize, of: usize) -> Value {
    if of == 0 { Value::Unknown } else { format!("{part}/{of}").into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Direction, Parameter, Report, Settings};

    static PARAMETERS: &[Parameter] = &[
        Parameter::count("data_mib", "MiB", 10_000, (1, 1 << 20), "a list, 2002"),
        Parameter::count("limit", "", 128, (1, 8192), "calibrated on throughput, lifted limits"),
    ];

    fn result() -> ExperimentResult {
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
        let settings = Settings::new(PARAMETERS, &[]).unwrap();
        ExperimentResult {
            id: "link",
            title: "limits of an elevator on one disk",
            published: "Lifted limits reach 34 MB/s and the classic ones 26 MB/s, on one disk with two streams (a list, 2002).",
            settings,
            report,
            target: None,
        }
    }

    #[test]
    fn every_part_is_shown_and_marked() {
        let text = ExperimentsReport { host: None, results: vec![result()] }.text(View::plain(None));
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
        result.settings = Settings::new(PARAMETERS, &set).unwrap();
        assert_eq!(result.verdict(), Some(Verdict::Partly), "rows of the source are left");
        for row in &mut result.report.rows {
            row.published = None;
        }
        assert_eq!((result.verdict(), result.report.verdict()), (None, Some(Verdict::Partly)));
        let text =
            ExperimentsReport { host: None, results: vec![result.clone(), result] }.text(View::plain(None));
        assert!(text.contains("Verdict: none: no published figure applies"), "{text}");
        assert!(text.contains("0 of 2 reproduced, 0 partly, 0 not."), "{text}");
    }

    #[test]
    fn lines_fit_the_width() {
        let report = ExperimentsReport { host: None, results: vec![result(), result()] };
        for width in [40, 60, 72, 80, 100, 120, 200] {
            let text = report.text(View::plain(Some(width)));
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(width), "{widest} of {width}:\n{text}");
        }
    }

    #[test]
    fn several_experiments_end_in_a_table_with_the_sums() {
        let text =
            ExperimentsReport { host: None, results: vec![result(), result()] }.text(View::plain(None));
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
        let text = ExperimentsReport { host: None, results: vec![on_storage(), on_storage()] }
            .text(View::plain(None));
        let end = text.rsplit("\n\n").next().unwrap();
        assert!(
            end.starts_with("2 of 4 directions hold on this storage.") && !end.contains("0 of 0"),
            "{end}"
        );
    }
}
