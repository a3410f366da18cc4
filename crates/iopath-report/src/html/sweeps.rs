//! A sweep on a page: heat map, curves, skipped cells. `sweep` measured it.

use maud::{Markup, html};

use super::facts::Tone;
use super::number::{Quantity, Scale};
use super::parts::{Heat, Palette, Statement, facts, heat};
use super::series::{Group, groups};
use super::{run_findings, runs};
use crate::format::runs::sections;
use crate::format::{Medium, page};
use crate::result::RunResult;
use crate::sweep::{OF_WORKLOAD, SweepFile};

/// The measured cells, each with the values of its settings in words.
fn measured(sweep: &SweepFile) -> Vec<(String, &RunResult)> {
    let settings = |values: &[String]| {
        let of = sweep.axes.iter().zip(values);
        let of = of.filter(|(axis, _)| axis.values.len() > 1 && !OF_WORKLOAD.contains(&axis.name.as_str()));
        of.map(|(axis, value)| format!("{} {value}", axis.name)).collect::<Vec<_>>().join(", ")
    };
    sweep.cells.iter().filter_map(|cell| Some((settings(&cell.values), cell.run.as_ref()?))).collect()
}

fn with_groups<T>(sweep: &SweepFile, use_groups: impl FnOnce(&[Group]) -> T) -> T {
    let measured = measured(sweep);
    let named: Vec<(&str, &RunResult)> = measured.iter().map(|(name, run)| (name.as_str(), *run)).collect();
    use_groups(&groups(&named))
}

/// The best cells, and reasons to doubt.
pub(super) fn statements(sweep: &SweepFile) -> Vec<Statement> {
    let mut list = with_groups(sweep, run_findings::of_groups);
    if !sweep.complete {
        let left = sweep.cells.iter().filter(|cell| !cell.is_done()).count();
        let text = format!("The sweep is incomplete: {left} of {} cells are missing", sweep.cells.len());
        list.push(Statement::new(Tone::Warn, "incomplete", text, "iopath sweep --resume FILE measures them"));
    }
    for drift in sweep.cells.iter().flat_map(|cell| &cell.drift) {
        list.push(Statement::new(
            Tone::Warn,
            "drift",
            drift.clone(),
            "another program changed a setting while a cell ran",
        ));
    }
    list
}

pub(super) fn section(sweep: &SweepFile, palette: &mut Palette) -> Markup {
    let lists = sweep.axes.iter().map(|axis| (axis.name.as_str(), axis.values.join(", ")));
    let lists: Vec<(&str, String)> = lists.chain([("order from seed", sweep.seed.to_string())]).collect();
    let cells: Vec<RunResult> = sweep.cells.iter().filter_map(|cell| cell.run.clone()).collect();
    // One group of runs with an x axis has a map of its own.
    let has_map = with_groups(sweep, |groups| matches!(groups, [group] if group.dimension.is_some()));
    let charts = with_groups(sweep, |groups| runs::charts(groups, palette));
    let skipped =
        || sweep.cells.iter().filter_map(|cell| Some((cell.values.join(", "), cell.skipped.as_ref()?)));
    html! {
        (facts(&lists))
        @if !has_map { (map(sweep)) }
        (charts)
        h3 { "All figures" }
        (page::sections(&sections(&cells, Medium::Page)))
        @if skipped().next().is_some() {
            h4 { "Skipped" }
            ul { @for (values, reason) in skipped() { li { (values) ": " (reason) } } }
        }
    }
}

/// The longest list across, the combinations of all others down.
fn map(sweep: &SweepFile) -> Markup {
    let longest = sweep.axes.iter().enumerate().max_by_key(|(_, axis)| axis.values.len());
    let Some((across, axis)) = longest else { return Markup::default() };
    let is_random = measured(sweep).iter().all(|(_, run)| run.rw.starts_with("rand"));
    let name_of = |values: &[String]| {
        let others = values
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != across && sweep.axes[*index].values.len() > 1);
        others.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", ")
    };
    let mut rows: Vec<(String, Vec<Option<f64>>)> = Vec::new();
    for cell in sweep.cells.iter().filter(|cell| cell.values.len() == sweep.axes.len()) {
        let name = name_of(&cell.values);
        let at = rows.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            rows.push((name, vec![None; axis.values.len()]));
            rows.len() - 1
        });
        let rate = |run: &RunResult| if is_random { run.iops.mean } else { run.bytes_per_second.mean / 1e6 };
        if let Some(column) = axis.values.iter().position(|value| *value == cell.values[across]) {
            rows[at].1[column] = cell.run.as_ref().map(rate);
        }
    }
    let unit = if is_random { "IOPS" } else { "MB/s" };
    heat(&Heat {
        title: format!("{unit} by {}", axis.name),
        note: "The frame marks the highest value; – was not measured.".to_owned(),
        corner: axis.name.clone(),
        columns: axis.values.clone(),
        rows,
        quantity: Quantity::Number,
        scale: Scale::Linear,
        low_is_good: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rw;
    use crate::fixtures::run;
    use crate::sweep::Axis;

    const BAD: &str = "<script>alert(1)</script>";

    fn sweep() -> SweepFile {
        let list = |values: [&str; 2]| values.map(str::to_owned).to_vec();
        let axes = vec![
            Axis { name: "bs".to_owned(), values: list(["4k", "64k"]) },
            Axis { name: "scheduler".to_owned(), values: list(["none", BAD]) },
        ];
        let cells = ["4k", "64k"].iter().flat_map(|bs| ["none", BAD].map(|value| list([bs, value])));
        let mut sweep = SweepFile::new(Vec::new(), 7, axes, cells.collect());
        let rates = [100.0, 200.0, 900.0];
        for ((cell, rate), block) in sweep.cells.iter_mut().zip(rates).zip([4096, 4096, 65536]) {
            cell.run = Some(run("kernel-direct", Rw::Read, block, 1, &[rate, rate + 1.0, rate - 1.0], 0.5));
        }
        sweep.cells[3].skipped = Some(BAD.to_owned());
        sweep
    }

    #[test]
    fn a_cell_of_the_map_is_the_rate_of_its_values() {
        let html = section(&sweep(), &mut Palette::default()).into_string();
        for part in [">100<", ">200<", ">900<", "td class=\"none\"", "scheduler none", "&lt;script&gt;"] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains(BAD), "a value is markup");
    }

    #[test]
    fn an_incomplete_sweep_is_a_statement() {
        let list = statements(&sweep());
        assert!(list[0].text.contains("64 KiB") && list[0].text.contains("is the fastest"), "{list:#?}");
        assert!(list.iter().any(|statement| statement.text.contains("0 of 4 cells")), "{list:#?}");
    }
}
