//! A request log on a page: depth, throughput, sizes, offsets, seeks and latencies over time, and the totals.
//! `iopath log` prints the same totals as text.

use iopath_log::Report;
use iopath_trace::course::{Course, LogFacts, Span, class_start};
use maud::{Markup, html};

use super::chart::{Axis, Chart, Kind, Point, Series};
use super::facts::Tone;
use super::number::{Quantity, Scale};
use super::parts::{Bar, Statement, bars, facts, figure};
use crate::format::{Document, Medium, page};
use crate::numbers::{digits, share, time};
use crate::size::format_size;

const NANOS: f64 = 1e9;

/// The columns of the latency map.
const COLUMNS_MAX: usize = 120;

/// The statements about a log.
pub(super) fn statements(log: &LogFacts) -> Vec<Statement> {
    let Report { flow, depth, seeks, stages, ops, .. } = &log.summary;
    let sum = |of: fn(&iopath_log::OpCounts) -> u64| ops.iter().map(of).sum::<u64>();
    let (requests, bytes) = (sum(|op| op.requests), sum(|op| op.request_bytes));
    let mut list = Vec::new();
    if requests > 0 {
        let text = format!(
            "{} requests of {} on average reached the device, {} in flight on average",
            digits(requests as f64),
            format_size((bytes as f64 / requests as f64 / 512.0).round() as u64 * 512),
            digits(depth.mean)
        );
        let evidence = format!(
            "from {} bios, {} of them merged; most in flight: {}; device time p50 {}, p99 {}",
            digits(flow.bios as f64),
            share(flow.merged as f64 / flow.bios.max(1) as f64),
            depth.max,
            timed(stages.d2c.count, stages.d2c.p50_ns),
            timed(stages.d2c.count, stages.d2c.p99_ns)
        );
        list.push(Statement::new(Tone::Plain, "requests", text, evidence));
    }
    if seeks.requests > 0 {
        let seeking = share(seeks.count as f64 / seeks.requests as f64);
        let text = format!("{seeking} of the requests do not begin where their predecessor ends");
        let evidence = format!(
            "distance p50 {}, p99 {}; {} of these seeks lead backward",
            format_size(seeks.p50_bytes),
            format_size(seeks.p99_bytes),
            share(seeks.backward as f64 / seeks.count.max(1) as f64)
        );
        list.push(Statement::new(Tone::Plain, "seeks", text, evidence));
    }
    let waits =
        [("in the plug", stages.g2i), ("in the elevator", stages.i2d), ("for a request slot", stages.q2g)];
    let (place, longest) = waits
        .into_iter()
        .max_by(|a, b| (a.1.mean_ns * a.1.count as f64).total_cmp(&(b.1.mean_ns * b.1.count as f64)))
        .unwrap_or(waits[0]);
    let whole = stages.q2c.mean_ns * stages.q2c.count as f64;
    let waiting = if whole > 0.0 { longest.mean_ns * longest.count as f64 / whole } else { 0.0 };
    if waiting > 0.1 {
        let text = format!("Requests wait {place}: {} of the time of all bios", share(waiting));
        list.push(Statement::new(
            Tone::Plain,
            "waiting",
            text,
            format!("mean {}, p99 {}", time(longest.mean_ns as u64), time(longest.p99_ns)),
        ));
    }
    for error in &log.summary.errors {
        list.push(Statement::new(
            Tone::Bad,
            "errors",
            format!("{} bios failed with errno {}", error.bios, error.errno),
            "",
        ));
    }
    if log.summary.missed > 0 || log.summary.over_limit > 0 {
        let text = format!("The log lacks {} records", log.summary.missed + log.summary.over_limit);
        list.push(Statement::new(
            Tone::Warn,
            "incomplete",
            text,
            "the counts are too low, and some latencies are unknown",
        ));
    }
    if let Some(damage) = &log.summary.damage {
        list.push(Statement::new(
            Tone::Warn,
            "damaged",
            damage.to_string(),
            "the page shows the part before the damage",
        ));
    }
    list
}

/// The charts and tables. `number` distinguishes the logs of a page.
pub(super) fn section(log: &LogFacts, number: usize) -> Markup {
    let charts = over_time(&log.course, &log.summary, &format!("log{number}"));
    html! {
        (conditions(log))
        div class="cards" {
            @for chart in charts { (figure(chart)) }
            (latency_map(&log.course))
            (sizes(&log.summary))
            (reasons(&log.summary))
        }
        (page::sections(&log.summary.sections(Medium::Page)))
    }
}

fn conditions(log: &LogFacts) -> Markup {
    let Report { log: info, records, span_ns, queues, repeats, .. } = &log.summary;
    let clock =
        if info.clock == "virtual" { "virtual time, on a model".to_owned() } else { info.clock.clone() };
    facts(&[
        ("target", info.target.clone()),
        ("I/O scheduler", info.elevator.clone()),
        ("clock", clock),
        ("written by", info.written_by.clone()),
        ("records", format!("{} of {queues} queues", digits(*records as f64))),
        ("time", time(*span_ns)),
        ("repetitions", if repeats.is_empty() { String::new() } else { repeats.len().to_string() }),
        ("one point of a line", time(log.course.span_ns)),
    ])
}

fn over_time(course: &Course, summary: &Report, group: &str) -> Vec<Chart> {
    let marks: Vec<_> = course
        .repeats
        .iter()
        .map(|(repeat, ns)| (*ns as f64 / NANOS, format!("repetition {repeat}")))
        .collect();
    let marks = if marks.len() > 1 { marks } else { Vec::new() };
    let chart = |title: &str, note: &str, y: Axis, series: Vec<Series>| Chart {
        title: title.to_owned(),
        note: note.to_owned(),
        x: Axis::new("seconds from the begin of the log", Quantity::Number, Scale::Linear),
        y,
        series,
        marks: marks.clone(),
        group: Some(group.to_owned()),
    };
    let seconds = course.span_ns as f64 / NANOS;
    let middle = |index: usize| (index as f64 + 0.5) * seconds;
    let trace = |name: &str, colour, value: &dyn Fn(&Span) -> Option<f64>| Series {
        name: name.to_owned(),
        colour,
        kind: Kind::Trace,
        points: (0..)
            .zip(&course.spans)
            .filter_map(|(index, span)| Some(Point::new(middle(index), value(span)?)))
            .collect(),
    };
    let wrote = course.spans.iter().any(|span| span.requests[1] > 0);
    let read = course.spans.iter().any(|span| span.requests[0] > 0);
    let sides = |value: &dyn Fn(&Span, usize) -> Option<f64>| {
        let names = [("reads", 0, read), ("writes", 1, wrote)];
        let used = names.into_iter().filter(|(_, _, is_used)| *is_used);
        used.map(|(name, side, _)| trace(name, side, &|span| value(span, side))).collect::<Vec<_>>()
    };
    let depth_seconds = summary.depth.span_ns as f64 / NANOS;
    let depth = Series {
        name: "in flight".to_owned(),
        colour: 0,
        kind: Kind::Trace,
        points: (0..)
            .zip(&summary.depth.means)
            .map(|(index, mean)| Point::new((f64::from(index) + 0.5) * depth_seconds, *mean))
            .collect(),
    };
    let offsets = |name: &str, colour, wanted: bool| {
        let samples =
            course.spans.iter().flat_map(|span| &span.samples).filter(|(_, _, is_write)| *is_write == wanted);
        let points = samples.map(|(ns, offset, _)| Point::new(*ns as f64 / NANOS, *offset as f64)).collect();
        Series { name: name.to_owned(), colour, kind: Kind::Dots, points }
    };
    let mut latencies =
        vec![trace("p50", 0, &|span| percentile(span, 0.5)), trace("p99", 1, &|span| percentile(span, 0.99))];
    latencies.retain(|series| !series.points.is_empty());
    vec![
        chart(
            "Requests in flight",
            "Mean of each span of time, at the device.",
            Axis::new("requests", Quantity::Number, Scale::Linear),
            vec![depth],
        ),
        chart(
            "Throughput",
            "Bytes of dispatched requests.",
            Axis::new("MB/s", Quantity::Number, Scale::Linear),
            sides(&|span, side| Some(span.bytes[side] as f64 / seconds / 1e6)),
        ),
        chart(
            "Request size",
            "Mean of the dispatched requests. Logarithmic.",
            Axis::new("size", Quantity::Bytes, Scale::Log(2)),
            sides(&|span, side| {
                (span.requests[side] > 0).then(|| span.bytes[side] as f64 / span.requests[side] as f64)
            }),
        ),
        chart(
            "Offsets",
            "Some of the requests: a line is sequential, a cloud is random.",
            Axis::new("offset", Quantity::Bytes, Scale::Linear),
            vec![offsets("reads", 0, false), offsets("writes", 1, true)],
        ),
        chart(
            "Seek distance",
            "Mean distance from the end of the previous request of the same queue. Logarithmic; sequential spans have no point.",
            Axis::new("distance", Quantity::Bytes, Scale::Log(2)),
            vec![trace("mean distance", 2, &|span| {
                (span.distance_bytes > 0).then(|| span.distance_bytes as f64 / span.followers.max(1) as f64)
            })],
        ),
        chart(
            "Device latency",
            "From dispatch to completion, to half an octave. Logarithmic.",
            Axis::new("latency", Quantity::Nanoseconds, Scale::Log(10)),
            latencies,
        ),
    ]
}

/// A percentile of the latencies of a span; none without completions.
fn percentile(span: &Span, share: f64) -> Option<f64> {
    let total: u64 = span.latencies.iter().map(|count| u64::from(*count)).sum();
    let wanted = (total as f64 * share).ceil() as u64;
    let mut seen = 0;
    let class = span.latencies.iter().position(|count| {
        seen += u64::from(*count);
        total > 0 && seen >= wanted.max(1)
    })?;
    // The middle of the class.
    Some((class_start(class) * class_start(class + 1)).sqrt())
}

/// Latencies over time: each cell is a span of time and a class of latencies.
fn latency_map(course: &Course) -> Markup {
    let width = course.spans.len().div_ceil(COLUMNS_MAX).max(1);
    let columns: Vec<Vec<u64>> = course
        .spans
        .chunks(width)
        .map(|spans| {
            let classes = spans.iter().map(|span| span.latencies.len()).max().unwrap_or(0);
            let count = |class: usize| {
                spans.iter().filter_map(|span| span.latencies.get(class)).map(|count| u64::from(*count)).sum()
            };
            (0..classes).map(count).collect()
        })
        .collect();
    let used =
        || columns.iter().flat_map(|column| column.iter().enumerate().filter(|(_, count)| **count > 0));
    let (Some(low), Some(high), Some(most)) = (
        used().map(|(class, _)| class).min(),
        used().map(|(class, _)| class).max(),
        used().map(|(_, count)| *count).max(),
    ) else {
        return Markup::default();
    };
    let (left, top, bottom, whole, height) = (62.0, 6.0, 40.0, 1040.0, 300.0);
    let (cell_width, cell_height) =
        ((whole - left - 6.0) / columns.len() as f64, (height - top - bottom) / (high - low + 1) as f64);
    let y = |class: usize| height - bottom - (class - low + 1) as f64 * cell_height;
    // About six labels.
    let every = ((high - low) / 6 + 1).next_multiple_of(2);
    let seconds = course.span_ns as f64 * course.spans.len() as f64 / NANOS;
    html! {
        figure class="card wide" {
            figcaption {
                h4 { "Device latency over time" }
                p class="note" { "Each cell counts requests by the time of their completion and their latency; darker is more. Logarithmic." }
            }
            svg class="chart map" viewBox=(format!("0 0 {whole} {height}")) role="img" aria-label="Latency heat map" {
                @for class in (low..=high).filter(|class| (class - low) % every == 0) {
                    text class="tick" x=(left - 7.0) y=(format!("{:.1}", y(class) + cell_height)) text-anchor="end" { (time(class_start(class) as u64)) }
                }
                @for (label, share, anchor) in [("0 s".to_owned(), 0.0, "start"), (format!("{} s", digits(seconds / 2.0)), 0.5, "middle"), (format!("{} s", digits(seconds)), 1.0, "end")] {
                    text class="tick" x=(format!("{:.1}", left + share * (whole - left - 6.0))) y=(height - bottom + 18.0) text-anchor=(anchor) { (label) }
                }
                @for (index, column) in columns.iter().enumerate() {
                    @for (class, count) in column.iter().enumerate().filter(|(_, count)| **count > 0) {
                        @let shade = ((*count as f64).ln_1p() / (most as f64).ln_1p()).max(0.08);
                        rect x=(format!("{:.1}", left + index as f64 * cell_width)) y=(format!("{:.1}", y(class)))
                            width=(format!("{:.1}", cell_width + 0.3)) height=(format!("{:.1}", cell_height + 0.3))
                            fill-opacity=(format!("{shade:.2}")) {}
                    }
                }
            }
        }
    }
}

/// How many bios and requests have which size.
fn sizes(summary: &Report) -> Markup {
    let name =
        |from: u64| if from == 0 { "no data".to_owned() } else { format!("from {}", format_size(from)) };
    let list: Vec<Bar> = summary
        .sizes
        .iter()
        .flat_map(|class| {
            [("bios", class.bios, 3), ("requests", class.requests, 0)]
                .map(|(kind, count, colour)| (class.from_bytes, kind, count, colour))
        })
        .filter(|(_, _, count, _)| *count > 0)
        .map(|(from, kind, count, colour)| Bar {
            name: format!("{} {kind}", name(from)),
            value: count as f64,
            ends: None,
            text: digits(count as f64),
            colour,
        })
        .collect();
    bars("Sizes", "Bios of the caller, and requests at the device, by powers of two.", &list)
}

/// Why requests were not merged.
fn reasons(summary: &Report) -> Markup {
    let used = summary.not_merged.rows().into_iter().filter(|(_, count)| *count > 0);
    let bar = |(name, count): (&str, u64)| Bar {
        name: name.to_owned(),
        value: count as f64,
        ends: None,
        text: digits(count as f64),
        colour: 4,
    };
    bars(
        "Why requests were not merged",
        "Requests inserted into the elevator, by reason.",
        &used.map(bar).collect::<Vec<_>>(),
    )
}

/// A time of a stage. A log need not have the events at both of its ends.
fn timed(count: u64, ns: u64) -> String {
    if count == 0 { "not recorded".to_owned() } else { time(ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_that_no_record_times_has_no_times() {
        assert_eq!([timed(0, 0), timed(1, 0)], ["not recorded", "0 ns"]);
    }

    #[test]
    fn a_percentile_is_within_its_class() {
        let mut span = Span::default();
        assert_eq!(percentile(&span, 0.5), None);
        span.latencies = vec![0; 80];
        span.latencies[20] = 99;
        span.latencies[40] = 1;
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| percentile(&span, share).unwrap());
        assert!((1024.0..1536.0).contains(&p50) && (1024.0..1536.0).contains(&p99), "{p50} {p99}");
        assert!(max >= f64::from(1 << 20), "{max}");
    }
}
