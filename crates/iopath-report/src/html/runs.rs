//! Charts of measured workloads: curves by block size or depth, bars, percentiles, repetitions, heat maps. Which
//! statements follow from the figures is in `run_findings.rs`, the table of all figures in `format/runs.rs`.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Kind, Point, Series};
use super::number::{Quantity, Scale};
use super::parts::{Bar, Heat, Palette, bars, figure, heat};
use super::series::{Dimension, Group, Run};
use crate::numbers::{digits, time};
use crate::result::{Latency, RunResult, Spread};
use crate::size::format_size;

/// More lines than this are not legible.
const LINES_MAX: usize = 8;

/// Latencies of more series show p99 only.
const WITH_MEDIAN_MAX: usize = 4;

/// The place of the maximum on the axis of percentiles, beyond the last one.
const MAX_PLACE: f64 = 4.6;

/// The charts of all groups of runs.
pub(super) fn charts(groups: &[Group], palette: &mut Palette) -> Markup {
    html! {
        @for group in groups {
            section class="group" {
                h3 { (group.title) }
                div class="cards" { (charts_of(group, palette)) }
            }
        }
    }
}

fn charts_of(group: &Group, palette: &mut Palette) -> Markup {
    let is_random = group.counts_transfers();
    let parts: Vec<Markup> = match group.dimension {
        Some(dimension) => vec![
            figure(throughput(group, dimension, is_random, palette)),
            figure(cpu(group, dimension, is_random, palette)),
            figure(latency(group, dimension, palette)),
            map(group, is_random),
        ],
        None if group.runs.len() > 1 => {
            vec![
                throughput_bars(group, is_random, palette),
                cpu_bars(group, is_random, palette),
                flush_bars(group, palette),
            ]
        }
        None => Vec::new(),
    };
    html! {
        @for part in parts { (part) }
        @if group.runs.len() <= LINES_MAX {
            (figure(percentiles(group, palette)))
            (figure(repetitions(group, is_random, palette)))
            (figure(course(group, is_random, palette)))
        }
    }
}

/// MB/s or IOPS with its interval.
fn rate(run: &RunResult, is_random: bool) -> (f64, Option<[f64; 2]>) {
    let Spread { mean, ci95, .. } = if is_random { run.iops } else { run.bytes_per_second };
    let scale = if is_random { 1.0 } else { 1e6 };
    (mean / scale, ci95.map(|[low, high]| [low.max(0.0) / scale, high / scale]))
}

fn unit(is_random: bool) -> &'static str {
    if is_random { "IOPS" } else { "MB/s" }
}

/// The explanation of the intervals.
fn interval_note(group: &Group) -> String {
    let repeats = group.runs.iter().map(|run| run.result.repeats.len()).max().unwrap_or(0);
    match repeats {
        0 | 1 => "One repetition: no intervals.".to_owned(),
        count => format!("Bars: 95% interval of the mean of {count} repetitions."),
    }
}

fn axis_of(group: &Group, dimension: Dimension) -> Axis {
    let mut ticks: Vec<f64> = group.runs.iter().map(|run| dimension.of(run.result)).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    let label = |x: f64| match dimension {
        Dimension::Block => format_size(x as u64),
        Dimension::Depth => format!("{x:.0}"),
    };
    let (name, quantity) = match dimension {
        Dimension::Block => ("block size", Quantity::Bytes),
        Dimension::Depth => ("transfers in flight per job", Quantity::Number),
    };
    let axis = Axis::new(name, quantity, Scale::Log(2));
    if ticks.len() > 9 { axis } else { axis.with_ticks(ticks.into_iter().map(|x| (x, label(x))).collect()) }
}

/// One line for each series, with a value of each run.
fn lines(
    group: &Group,
    dimension: Dimension,
    palette: &mut Palette,
    value: impl Fn(&RunResult) -> Option<(f64, Option<[f64; 2]>)>,
) -> Vec<Series> {
    let mut line = |name: &str| {
        let first = group.runs.iter().find(|run| run.name == name);
        let colour = first.map_or(0, |run| group.colour(run, |run| &run.name, palette));
        let runs = group.runs.iter().filter(|run| run.name == name);
        let points = runs.filter_map(|run| {
            let (y, ends) = value(run.result)?;
            Some(Point { x: dimension.of(run.result), y, ends })
        });
        Series { name: name.to_owned(), colour, kind: Kind::Line, points: points.collect() }
    };
    group.names().into_iter().map(&mut line).collect()
}

fn throughput(group: &Group, dimension: Dimension, is_random: bool, palette: &mut Palette) -> Chart {
    let title = format!("{} by {}", if is_random { "I/O rate" } else { "Throughput" }, dimension.in_words());
    Chart {
        title,
        note: interval_note(group),
        x: axis_of(group, dimension),
        y: Axis::new(unit(is_random), Quantity::Number, Scale::Linear),
        series: lines(group, dimension, palette, |run| Some(rate(run, is_random))),
        marks: Vec::new(),
        group: None,
    }
}

fn cpu(group: &Group, dimension: Dimension, is_random: bool, palette: &mut Palette) -> Chart {
    let label = if is_random { "CPU µs per I/O" } else { "CPU seconds per GiB" };
    let cost = |run: &RunResult| {
        let cpu = run.cpu?;
        Some((if is_random { cpu.microseconds_per_io } else { cpu.seconds_per_gib }, None))
    };
    Chart {
        title: format!("CPU cost by {}", dimension.in_words()),
        note: "Logarithmic. Lower is cheaper.".to_owned(),
        x: axis_of(group, dimension),
        y: Axis::new(label, Quantity::Number, Scale::Log(10)),
        series: lines(group, dimension, palette, cost),
        marks: Vec::new(),
        group: None,
    }
}

fn latency(group: &Group, dimension: Dimension, palette: &mut Palette) -> Chart {
    let names = group.names().len();
    let percentile = |series: Vec<Series>, label: &str, kind| {
        let rename =
            move |series: Series| Series { name: format!("{}, {label}", series.name), kind, ..series };
        series.into_iter().map(rename).collect::<Vec<_>>()
    };
    let p99 = lines(group, dimension, palette, |run| Some((run.latency_ns.p99 as f64, None)));
    let mut series = Vec::new();
    if names <= WITH_MEDIAN_MAX {
        let p50 = lines(group, dimension, palette, |run| Some((run.latency_ns.p50 as f64, None)));
        series.extend(percentile(p50, "p50", Kind::Line));
    }
    series.extend(percentile(p99, "p99", if series.is_empty() { Kind::Line } else { Kind::Dashed }));
    Chart {
        title: format!("Latency by {}", dimension.in_words()),
        note: "Logarithmic. From submission to completion of one transfer.".to_owned(),
        x: axis_of(group, dimension),
        y: Axis::new("latency", Quantity::Nanoseconds, Scale::Log(10)),
        series,
        marks: Vec::new(),
        group: None,
    }
}

/// Latency by percentile. Equal distances on the axis are equal ratios of slower transfers: half, a tenth, a hundredth.
fn percentiles(group: &Group, palette: &mut Palette) -> Chart {
    let place = |percent: f64| -(1.0 - percent / 100.0).log10();
    let line = |run: &Run, colour| {
        let Latency { p50, p90, p99, p999, max, .. } = run.result.latency_ns;
        let mut points = match &run.result.latency_distribution {
            Some(all) => {
                let known = crate::result::PERCENTILES.iter().zip(&all.percentiles);
                known.filter(|(percent, _)| **percent >= 50.0).map(|(percent, ns)| (*percent, *ns)).collect()
            }
            None => vec![(50.0, p50), (90.0, p90), (99.0, p99), (99.9, p999)],
        };
        points.retain(|(_, ns)| *ns > 0);
        let points = points.into_iter().map(|(percent, ns)| Point::new(place(percent), ns as f64));
        Series {
            name: run.label.clone(),
            colour,
            kind: Kind::Line,
            points: points.chain([Point::new(MAX_PLACE, max as f64)]).collect(),
        }
    };
    let named = [(50.0, "p50"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99.9"), (99.99, "p99.99")];
    let ticks = named.map(|(percent, label)| (place(percent), label.to_owned())).into_iter();
    let ticks = ticks.chain([(MAX_PLACE, "max".to_owned())]).collect();
    let series = group.runs.iter().map(|run| line(run, group.colour(run, |run| &run.label, palette)));
    Chart {
        title: "Latency percentiles".to_owned(),
        note: "Logarithmic. Share of transfers that complete within the latency.".to_owned(),
        x: Axis::new("percentile", Quantity::Number, Scale::Linear).with_ticks(ticks),
        y: Axis::new("latency", Quantity::Nanoseconds, Scale::Log(10)),
        series: series.collect(),
        marks: Vec::new(),
        group: None,
    }
}

/// The rate of each repetition, in order: a trend or a stall is visible here. Empty below three repetitions.
fn repetitions(group: &Group, is_random: bool, palette: &mut Palette) -> Chart {
    let line = |run: &Run, colour| {
        let value = |repeat: &crate::result::Repeat| {
            if is_random { repeat.iops } else { repeat.bytes_per_second / 1e6 }
        };
        let points = (1..)
            .zip(&run.result.repeats)
            .map(|(number, repeat)| Point::new(f64::from(number), value(repeat)));
        Series { name: run.label.clone(), colour, kind: Kind::Line, points: points.collect() }
    };
    let long = group.runs.iter().filter(|run| run.result.repeats.len() >= 3);
    let series: Vec<Series> =
        long.map(|run| line(run, group.colour(run, |run| &run.label, palette))).collect();
    let count = series.iter().map(|series| series.points.len()).max().unwrap_or(0);
    let every = count.div_ceil(10).max(1);
    let ticks = (1..=count).step_by(every).map(|number| (number as f64, number.to_string())).collect();
    Chart {
        title: "Course over the repetitions".to_owned(),
        note: "A trend or a single slow repetition reduces the meaning of the mean.".to_owned(),
        x: Axis::new("repetition", Quantity::Number, Scale::Linear).with_ticks(ticks),
        y: Axis::new(unit(is_random), Quantity::Number, Scale::Linear),
        series,
        marks: Vec::new(),
        group: None,
    }
}

/// The rate over time, one repetition after another. Empty unless the repetitions of a run are long enough.
fn course(group: &Group, is_random: bool, palette: &mut Palette) -> Chart {
    let line = |run: &Run, colour| {
        let (mut points, mut begin) = (Vec::new(), 0.0);
        for repeat in &run.result.repeats {
            let Some(course) = &repeat.course else { continue };
            let length = course.interval_seconds;
            // The I/Os of an interval follow from its bytes.
            let scale = if is_random { repeat.ios as f64 / repeat.bytes.max(1) as f64 } else { 1e-6 };
            for (number, bytes) in course.bytes.iter().enumerate() {
                points
                    .push(Point::new(begin + (number as f64 + 0.5) * length, *bytes as f64 * scale / length));
            }
            begin += length * course.bytes.len() as f64;
        }
        Series { name: run.label.clone(), colour, kind: Kind::Trace, points }
    };
    let series =
        group.runs.iter().map(|run| line(run, group.colour(run, |run| &run.label, palette))).collect();
    // The begins of the repetitions of a single run; several runs have different ones.
    let marks = match &group.runs[..] {
        [run] if run.result.repeats.len() > 1 => {
            let courses = run.result.repeats.iter().filter_map(|repeat| repeat.course.as_ref());
            let lengths = courses.map(|course| course.interval_seconds * course.bytes.len() as f64);
            let begins = lengths.scan(0.0, |end, length| Some(std::mem::replace(end, *end + length)));
            (1..).zip(begins).map(|(number, begin)| (begin, format!("repetition {number}"))).collect()
        }
        _ => Vec::new(),
    };
    Chart {
        title: "Course over time".to_owned(),
        note: "Repetitions one after another, without the time between them.".to_owned(),
        x: Axis::new("measured time, s", Quantity::Number, Scale::Linear),
        y: Axis::new(unit(is_random), Quantity::Number, Scale::Linear),
        series,
        marks,
        group: None,
    }
}

fn throughput_bars(group: &Group, is_random: bool, palette: &mut Palette) -> Markup {
    let bar = |run: &Run| {
        let (value, ends) = rate(run.result, is_random);
        let spread =
            ends.map_or_else(String::new, |[low, high]| format!(" ± {}", digits((high - low) / 2.0)));
        let text = format!("{}{spread} {}", digits(value), unit(is_random));
        Bar {
            name: run.label.clone(),
            value,
            ends,
            text,
            colour: group.colour(run, |run| &run.label, palette),
        }
    };
    let list: Vec<Bar> = group.runs.iter().map(bar).collect();
    bars(if is_random { "I/O rate" } else { "Throughput" }, &interval_note(group), &list)
}

fn cpu_bars(group: &Group, is_random: bool, palette: &mut Palette) -> Markup {
    let bar = |run: &Run| {
        let cpu = run.result.cpu?;
        let (value, unit) =
            if is_random { (cpu.microseconds_per_io, "µs/IO") } else { (cpu.seconds_per_gib, "s/GiB") };
        let text = format!("{} {unit}", digits(value));
        Some(Bar {
            name: run.label.clone(),
            value,
            ends: None,
            text,
            colour: group.colour(run, |run| &run.label, palette),
        })
    };
    let list: Vec<Bar> = group.runs.iter().filter_map(bar).collect();
    bars("CPU cost", "Lower is cheaper.", &list)
}

/// The median latency of the flushes.
fn flush_bars(group: &Group, palette: &mut Palette) -> Markup {
    let bar = |run: &Run| {
        let latency = run.result.flushes.as_ref()?.latency_ns;
        Some(Bar {
            name: run.label.clone(),
            value: latency.p50 as f64,
            ends: None,
            text: format!("{}, p99 {}", time(latency.p50), time(latency.p99)),
            colour: group.colour(run, |run| &run.label, palette),
        })
    };
    let list: Vec<Bar> = group.runs.iter().filter_map(bar).collect();
    bars("Flush latency", "Median; not a part of the latency of the writes.", &list)
}

/// The rate of each series and size as a heat map, from two series and three sizes on.
fn map(group: &Group, is_random: bool) -> Markup {
    let Some(dimension) = group.dimension else { return Markup::default() };
    let names = group.names();
    let mut xs: Vec<f64> = group.runs.iter().map(|run| dimension.of(run.result)).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    if names.len() < 2 || xs.len() < 3 {
        return Markup::default();
    }
    let cell = |name: &str, x: f64| {
        let found =
            group.runs.iter().find(|run| run.name == name && dimension.of(run.result).total_cmp(&x).is_eq());
        found.map(|run| rate(run.result, is_random).0)
    };
    let rows = names.iter().map(|name| ((*name).to_owned(), xs.iter().map(|x| cell(name, *x)).collect()));
    let label = |x: &f64| match dimension {
        Dimension::Block => format_size(*x as u64),
        Dimension::Depth => format!("depth {x:.0}"),
    };
    heat(&Heat {
        title: format!("{} at a glance", if is_random { "I/O rate" } else { "Throughput" }),
        note: format!("{}; the frame marks the highest value.", unit(is_random)),
        corner: String::new(),
        columns: xs.iter().map(label).collect(),
        rows: rows.collect(),
        quantity: Quantity::Number,
        scale: Scale::Linear,
        low_is_good: false,
    })
}

/// The figures of one run, as large numbers.
pub(super) fn tiles(run: &RunResult) -> Markup {
    let is_random = run.rw.starts_with("rand");
    let (value, ends) = rate(run, is_random);
    let spread = ends.map_or_else(String::new, |[low, high]| format!("± {}", digits((high - low) / 2.0)));
    let Latency { p50, p99, .. } = run.latency_ns;
    let mut tiles = vec![
        (digits(value), unit(is_random), spread),
        (time(p50), "p50", String::new()),
        (time(p99), "p99", String::new()),
    ];
    if let Some(cpu) = run.cpu {
        let (value, unit) = if is_random {
            (cpu.microseconds_per_io, "CPU µs per I/O")
        } else {
            (cpu.seconds_per_gib, "CPU s per GiB")
        };
        tiles.push((digits(value), unit, String::new()));
    }
    html! {
        div class="tiles" {
            @for (value, unit, spread) in tiles {
                div class="tile" { span class="value" { (value) } span class="unit" { (unit) " " (spread) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::series::groups;
    use super::*;
    use crate::Rw;
    use crate::fixtures::run;
    use crate::result::Course;

    #[test]
    fn the_course_over_time_has_each_repetition_and_marks_its_begin() {
        let mut measured = run("kernel-direct", Rw::Read, 4096, 1, &[100.0, 200.0], 0.1);
        for (repeat, bytes) in measured.repeats.iter_mut().zip([vec![1_000_000, 3_000_000], vec![2_000_000]])
        {
            repeat.course = Some(Course { interval_seconds: 0.5, bytes });
        }
        let groups = groups(&[("", &measured)]);
        let chart = course(&groups[0], false, &mut Palette::default());
        let points: Vec<(f64, f64)> = chart.series[0].points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(points, [(0.25, 2.0), (0.75, 6.0), (1.25, 4.0)], "MB/s in the middle of each interval");
        let marks: Vec<(f64, &str)> = chart.marks.iter().map(|(at, label)| (*at, label.as_str())).collect();
        assert_eq!(marks, [(0.0, "repetition 1"), (1.0, "repetition 2")]);
        measured.repeats.iter_mut().for_each(|repeat| repeat.course = None);
        let groups = super::super::series::groups(&[("", &measured)]);
        assert!(course(&groups[0], false, &mut Palette::default()).cleaned().is_empty());
    }
}
