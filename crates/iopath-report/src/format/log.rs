//! What every format shows of the summary of a request log. `iopath-log` computes the figures. Devices and streams are
//! in `log/shares.rs`.

mod interval;
mod shares;

pub use interval::{interval, interval_lines};

use iopath_log::{AccessCounts, Contents, OpCounts, Plain, Reasons, RepeatShare, Report, Seeks, SizeClass};
use iopath_log::{Slow, Stage};
use serde_json::Value as Json;
use std::collections::BTreeMap;

use super::{Document, Medium, View, text};
use crate::numbers::{count, counted, digits, distance, share, time, whole_percent};
use crate::section::{Columns, Fit, Line, Section, Table};
use crate::value::Value;
use shares::{devices, stream_name, streams};

/// The length of the longest bar of a terminal.
const BAR: usize = 20;

/// The width of a curve that needs no terminal.
const WIDTH: usize = 80;

impl Document for Report {
    /// One line if no I/O passes the filter. The curve of the depth is as wide as the terminal.
    fn text(&self, view: View) -> String {
        self.nothing_passed().map_or_else(
            || text::render(&sections(self, Medium::Text, view.width.map_or(WIDTH, usize::from)), view),
            contents,
        )
    }

    fn sections(&self, medium: Medium) -> Vec<Section> {
        sections(self, medium, WIDTH)
    }

    /// A record is a key of the JSON with its value. Elements of lists have their number, from 0.
    fn records(&self) -> Table {
        let mut rows = Vec::new();
        flatten(String::new(), &serde_json::to_value(self).unwrap_or_default(), &mut rows);
        let rows = rows.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        Columns::of(rows).record("key", |(key, _)| key).record("value", |(_, value)| value).into()
    }

    fn json(&self) -> String {
        self.to_json()
    }
}

/// The content of a log in which no I/O passes a filter, in one line.
pub fn contents(contents: &Contents) -> String {
    let Contents { steps, last_ns, streams, first_sector, end_sector, events, repeats } = contents;
    let numbers = |numbers: &[u32]| {
        let max = rows_max(Medium::Text);
        let shown: Vec<String> = numbers.iter().take(max).map(u32::to_string).collect();
        format!("{}{}", shown.join(", "), if numbers.len() > max { ", ..." } else { "" })
    };
    let parts = [
        Some(format!("the log has {} steps from 0 s to {}", count(*steps), time(*last_ns))),
        (!streams.is_empty()).then(|| format!("streams {}", numbers(streams))),
        (*end_sector > 0).then(|| format!("sectors {first_sector} to {}", end_sector - 1)),
        (repeats.len() > 1).then(|| format!("repeats {}", numbers(repeats))),
        Some(format!("events {}", events.join(", "))),
    ];
    format!("no I/O passes the filter; {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// All parts, for a terminal of this width or another medium. A page has facts and charts instead of some of them.
fn sections(report: &Report, medium: Medium, width: usize) -> Vec<Section> {
    let unless_page = |section| if medium == Medium::Page { Section::default() } else { section };
    let mut sections = vec![
        unless_page(Section::prose(heading(report))),
        repeats(report, medium),
        devices(report, medium),
        if is_of_kernel(report) { streams(report, medium) } else { Section::default() },
        accesses(report, medium),
        operations(report, medium),
        unless_page(sizes(&report.sizes, medium)),
        Section::prose(flow(report)),
        reasons(report, medium),
        Section::prose(seeks(&report.seeks)),
        stages(report, medium),
        unless_page(depth(report, medium, width)),
        if is_of_kernel(report) { Section::default() } else { streams(report, medium) },
        slowest(report, medium),
    ];
    sections.retain(|section| !section.is_empty());
    sections
}

/// The rows that a medium shows of a list.
fn rows_max(medium: Medium) -> usize {
    if medium == Medium::Text { 8 } else { 64 }
}

/// The first rows of a list, and a line about the others.
fn first<'a, T>(list: &'a [T], medium: Medium, rows: &str) -> (&'a [T], Option<String>) {
    let (first, others) = list.split_at(list.len().min(rows_max(medium)));
    let more = format!("and {} more {rows}", count(others.len() as u64));
    (first, (!others.is_empty()).then_some(more))
}

fn ns(ns: u64) -> Value {
    Value::Nanoseconds(ns as f64)
}

/// The share of a part; none of nothing.
fn part_of(part: u64, whole: u64) -> Value {
    Value::present((whole > 0).then(|| part as f64 / whole as f64), Value::Percent)
}

/// A bar of a terminal. The smallest part has a bar.
fn bar(part: u64, whole: u64, medium: Medium) -> Value {
    let length = (part as f64 / whole.max(1) as f64 * BAR as f64).ceil() as usize;
    Value::present((medium == Medium::Text).then(|| "#".repeat(length.min(BAR))), Value::Text)
}

/// The origin and the extent of the log, and reasons to doubt the figures.
fn heading(report: &Report) -> Vec<String> {
    let Report { log, records, missed, over_limit, selected, out_of_order, unjoined, .. } = report;
    let or_unknown = |name: &str| Plain(if name.is_empty() { "unknown" } else { name }).to_string();
    let repeats = (!report.repeats.is_empty()).then(|| counted(report.repeats.len() as u64, "repeat") + ", ");
    let queues = if is_of_kernel(report) {
        counted(report.queues as u64, "device")
    } else {
        counted(report.queues as u64, "queue")
    };
    let mut lines = vec![format!(
        "{} {}, elevator {}, {}, {}{} on the {} clock",
        if is_of_kernel(report) { "recording of" } else { "log of" },
        or_unknown(&log.target),
        or_unknown(&log.elevator),
        queues,
        repeats.unwrap_or_default(),
        time(report.span_ns),
        Plain(&log.clock),
    )];
    let missed_share = share(*missed as f64 / (*records as f64 + *missed as f64));
    let missed = match count(*missed) {
        _ if *missed == 0 => "none missed".to_owned(),
        missed if is_of_kernel(report) => format!("{missed} MISSED"),
        missed => format!("{missed} MISSED ({missed_share}: the rings were full)"),
    };
    let dropped = format!(", {} after the file reached its size limit", count(*over_limit));
    lines.push(format!(
        "{} records, {missed}{}; {} {}, from {} to {} after the log began",
        count(*records),
        if *over_limit > 0 { &dropped } else { "" },
        count(*selected),
        if report.is_filtered { "steps pass the filter" } else { "steps" },
        time(report.first_ns),
        time(report.last_ns),
    ));
    let max = rows_max(Medium::Text);
    lines.extend(report.elevators.iter().take(max).map(|change| {
        let elevator = Plain(&change.elevator);
        format!("elevator {elevator} from {} on, queue {}", time(change.at_ns), change.queue)
    }));
    let more = report.events.elevator.saturating_sub(max as u64);
    lines.extend((more > 0).then(|| format!("and {} more changes of the elevator", count(more))));
    lines.extend(notes(report));
    lines.extend(losses(report));
    lines.extend(report.damage.map(|damage| format!("WARNING: {damage}")));
    lines.extend((*out_of_order > 0).then(|| {
        format!(
            "WARNING: {} device events came too late in the file to be ordered across queues; depth and seeks are \
             approximate",
            count(*out_of_order)
        )
    }));
    let unjoined = (*unjoined > 0).then(|| counted(*unjoined, "bio"));
    lines.extend(unjoined.map(|bios| format!("{bios} completed without a start in the log")));
    lines
}

/// Whether each queue is a device, and each stream a process.
fn is_of_kernel(report: &Report) -> bool {
    report.log.has_devices()
}

/// What the format of a trace lacks or hides, and what was found while reading it.
fn notes(report: &Report) -> impl Iterator<Item = String> {
    report.log.notes.iter().chain(&report.notes).map(|note| format!("note: {}", Plain(note)))
}

/// The events that the recorder lost, and what that means for the figures.
fn losses(report: &Report) -> Option<String> {
    let mut by_event = BTreeMap::<&str, u64>::new();
    for loss in &report.losses {
        let sum = by_event.entry(&loss.event).or_default();
        *sum = sum.saturating_add(loss.lost);
    }
    let named = by_event.iter().map(|(event, lost)| format!("{} {}", count(*lost), Plain(event)));
    let named: Vec<_> = named.take(rows_max(Medium::Text)).collect();
    (!named.is_empty()).then(|| {
        format!(
            "WARNING: the recorder LOST events: {}; counts, bytes, depth and busy time are too low, and latencies are of \
             the I/Os that were in flight during no loss",
            named.join(", ")
        )
    })
}

fn repeats(report: &Report, medium: Medium) -> Section {
    let (rows, more) = first(&report.repeats, medium, "repeats");
    let known = |ns| Value::known(ns, self::ns);
    let columns = Columns::of(rows)
        .text("repeat", |row: &RepeatShare| match row.repeat {
            0 => "before".into(),
            number => Value::from(number),
        })
        .number("from", |row| ns(row.first_ns))
        .ranked(3)
        .number("time", |row| ns(row.last_ns.saturating_sub(row.first_ns)))
        .ranked(1)
        .number("bios", |row| Value::Count(row.bios))
        .number("bytes", |row| Value::Size(row.bytes))
        .ranked(2)
        .number("mean Q2C", |row| Value::Nanoseconds(row.mean_q2c_ns))
        .ranked(4)
        .number("p50", move |row| known(row.p50_q2c_ns))
        .number("p99", move |row| known(row.p99_q2c_ns))
        .number("max", |row| ns(row.max_q2c_ns))
        .ranked(5)
        .number("skew", |row| ns(row.skew_ns))
        .ranked(6)
        .fit(Fit::Omit);
    let all = "The figures below are of all repeats together; iopath log --repeat N selects one.";
    medium.titled("Repeats", columns).with_after(more).with_after((!rows.is_empty()).then_some(all))
}

fn accesses(report: &Report, medium: Medium) -> Section {
    let Some(access) = &report.file_access else { return Section::default() };
    let columns = Columns::of(&access.ops)
        .text("file access", |row: &AccessCounts| row.op)
        .number("accesses", |row| Value::Count(row.accesses))
        .number("bytes", |row| Value::Size(row.bytes))
        .ranked(1)
        .number("mean size", |row| Value::MeanSize(row.bytes as f64 / row.accesses.max(1) as f64))
        .ranked(2)
        .number("mean", |row| Value::Nanoseconds(row.mean_ns))
        .number("p50", |row| ns(row.p50_ns))
        .number("p99", |row| ns(row.p99_ns))
        .number("max", |row| ns(row.max_ns))
        .ranked(3)
        .fit(Fit::Omit);
    let failed = access.ops.iter().filter(|row| row.failed > 0);
    let failed = failed.map(|row| format!("FAILED: {} of {} accesses", count(row.failed), row.op));
    let unjoined = format!("{} accesses ended without a start in the log", count(access.unjoined));
    let unjoined = (access.unjoined > 0).then_some(unjoined);
    medium.titled("Accesses", columns).with_after(failed).with_after(unjoined)
}

fn operations(report: &Report, medium: Medium) -> Section {
    let columns = Columns::of(&report.ops)
        .text("operation", |row: &OpCounts| row.op)
        .number("bios", |row| Value::Count(row.bios))
        .number("bytes", |row| Value::Size(row.bio_bytes))
        .ranked(1)
        .number("requests", |row| Value::Count(row.requests))
        .number("bytes", |row| Value::Size(row.request_bytes))
        .ranked(2)
        .number("mean size", |row| Value::MeanSize(row.request_bytes as f64 / row.requests.max(1) as f64))
        .ranked(3)
        .fit(Fit::Omit);
    let failed = report.errors.iter();
    let failed = failed.map(|one| format!("FAILED with errno {}: {}", one.errno, counted(one.bios, "bio")));
    medium.titled("Operations", columns).with_after(failed)
}

fn sizes(classes: &[SizeClass], medium: Medium) -> Section {
    // Flushes have no size.
    let sized = || classes.iter().filter(|class| class.from_bytes > 0);
    let most = sized().map(|class| class.bios.max(class.requests)).max().unwrap_or(0);
    let columns = Columns::of(sized())
        .text("size", |class| Value::Size(class.from_bytes))
        .number("bios", |class| Value::Count(class.bios))
        .text("", |class| bar(class.bios, most, medium))
        .ranked(1)
        .number("requests", |class| Value::Count(class.requests))
        .text("", |class| bar(class.requests, most, medium))
        .ranked(1)
        .fit(Fit::Omit);
    medium.titled("Sizes", columns)
}

/// The outcome of the bios, and what delayed them.
fn flow(report: &Report) -> Vec<String> {
    let Report { flow, events, plug, .. } = report;
    let of = |what: &str, total: u64, outcomes: &[(&str, u64)]| {
        let shown = outcomes.iter().filter(|(_, number)| *number > 0);
        let shown: Vec<String> = shown.map(|(name, number)| format!("{} {name}", count(*number))).collect();
        (total > 0).then(|| format!("{what} {}: {}", count(total), shown.join(", ")))
    };
    let bios = [
        ("with a request of their own", flow.own_request),
        ("merged", flow.merged),
        ("split", flow.split),
        ("flushes", flow.flushes),
        ("pending or unknown", flow.pending),
    ];
    let pending = flow.pieces.saturating_sub(flow.pieces_own_request + flow.pieces_merged);
    let pieces = [
        ("with a request of their own", flow.pieces_own_request),
        ("merged", flow.pieces_merged),
        ("pending or unknown", pending),
    ];
    let others = [
        ("bios held for ordering", events.hold),
        ("waits for a request slot", events.slot_wait),
        ("requeued by the device", events.requeue),
        ("retries after an error", events.retry),
        ("waits for a flush", events.flush),
    ];
    let merges = format!(
        "merges {}: back {}, front {}; request-to-request merges: {}",
        count(events.back_merge + events.front_merge),
        count(events.back_merge),
        count(events.front_merge),
        count(flow.requests_joined),
    );
    let plugged = plug.requests as f64 / plug.unplugs.max(1) as f64;
    let unplugged = format!("unplugged {} times, {plugged:.1} requests each", count(plug.unplugs));
    let others = others.into_iter().filter(|(_, times)| *times > 0);
    [of("bios", flow.bios, &bios), of("pieces of split bios", flow.pieces, &pieces)]
        .into_iter()
        .flatten()
        .chain([merges, unplugged])
        .chain(others.map(|(name, times)| format!("{name}: {}", count(times))))
        .collect()
}

/// Why requests were not merged: those that were inserted, and attempts.
fn reasons(report: &Report, medium: Medium) -> Section {
    let [inserted, refused] = [&report.not_merged, &report.merges_refused].map(Reasons::total);
    let rows = report.not_merged.rows().into_iter().zip(report.merges_refused.rows());
    let rows = rows.filter(|((_, inserted), (_, refused))| inserted + refused > 0);
    let columns = Columns::of(rows.map(|((name, inserted), (_, refused))| (name, inserted, refused)))
        .text("reason", |(name, ..)| name)
        .number("inserted", |(_, requests, _)| Value::Count(requests))
        .number("share", |(_, requests, _)| part_of(requests, inserted))
        .ranked(2)
        .text("", |(_, requests, _)| bar(requests, inserted, medium))
        .ranked(1)
        .number("refused", |(.., attempts)| Value::present((refused > 0).then_some(attempts), Value::Count))
        .number("share", |(.., attempts)| part_of(attempts, refused))
        .ranked(2)
        .fit(Fit::Omit);
    let (requests, attempts) = (count(inserted), count(refused));
    let totals = format!("requests inserted unmerged: {requests}; merge attempts refused: {attempts}");
    medium.titled("Not merged", columns).with_before([totals])
}

fn seeks(seeks: &Seeks) -> Vec<Line> {
    let Seeks { requests, count: seeking, backward, .. } = *seeks;
    let backward = (seeking > 0).then(|| format!(", {} backward", count(backward)));
    let head = format!(
        "seeks in dispatch order across all queues: {} of {} ({}){}",
        count(seeking),
        counted(requests, "request"),
        whole_percent(seeking as f64 / requests.max(1) as f64),
        backward.unwrap_or_default(),
    );
    let distances = format!(
        "distance: mean {}, p50 {}, p90 {}, p99 {}, max {}",
        distance(seeks.mean_bytes),
        distance(seeks.p50_bytes as f64),
        distance(seeks.p90_bytes as f64),
        distance(seeks.p99_bytes as f64),
        distance(seeks.max_bytes as f64),
    );
    let distances = (seeking > 0).then(|| Line::new(distances).labelled("  ", "    "));
    std::iter::once(Line::new(head)).chain(distances).collect()
}

/// The latency of each stage of the path. A log need not have the events at both of its ends.
fn stages(report: &Report, medium: Medium) -> Section {
    fn timed(of: impl Fn(&Stage) -> f64) -> impl Fn((&str, &Stage)) -> Value {
        move |(_, stage)| Value::known((stage.timed > 0).then(|| of(stage)), Value::Nanoseconds)
    }
    let stages = &report.stages;
    let rows = [
        ("Q2G ordering, slots", &stages.q2g),
        ("G2I plug", &stages.g2i),
        ("I2D elevator", &stages.i2d),
        ("D2C device", &stages.d2c),
        ("Q2C whole bio", &stages.q2c),
    ];
    let columns = Columns::of(rows)
        .text("stage", |(name, _)| name)
        .number("count", |(_, stage)| Value::Count(stage.count))
        .ranked(1)
        .number("mean", timed(|stage| stage.mean_ns))
        .ranked(2)
        .number("p50", timed(|stage| stage.p50_ns as f64))
        .number("p90", timed(|stage| stage.p90_ns as f64))
        .ranked(4)
        .number("p99", timed(|stage| stage.p99_ns as f64))
        .number("p99.9", timed(|stage| stage.p999_ns as f64))
        .ranked(5)
        .number("max", timed(|stage| stage.max_ns as f64))
        .ranked(3)
        .fit(Fit::Omit);
    let untimed = rows.iter().any(|(_, stage)| stage.count > 0 && stage.timed == 0);
    let note = "A stage without times began and ended at the same clock reading.";
    medium.titled("Stages", columns).with_after(untimed.then_some(note))
}

/// The requests in flight; on a terminal over time, as a curve that fits into `width`.
fn depth(report: &Report, medium: Medium, width: usize) -> Section {
    const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let depth = &report.depth;
    let group = depth.means.len().div_ceil(width.saturating_sub(2).max(1)).max(1);
    let level = |means: &[f64]| {
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        LEVELS[((mean / f64::from(depth.max.max(1)) * 8.0).ceil() as usize).min(8)]
    };
    let curve: String = depth.means.chunks(group).map(level).collect();
    let column_ns = depth.span_ns.saturating_mul(group as u64);
    let drawn = (medium == Medium::Text).then(|| format!("; each column {}", time(column_ns)));
    let head = format!(
        "requests in flight at the device, all queues: mean {}, max {}{}",
        digits(depth.mean),
        depth.max,
        drawn.as_deref().unwrap_or_default(),
    );
    let curve = drawn.map(|_| Line::new(curve.trim_end()).labelled("  ", ""));
    Section::prose([head]).with_after(curve)
}

/// The slowest bios. Bios of one batch that took equally long are one row.
fn slowest(report: &Report, medium: Medium) -> Section {
    let is_of_kernel = is_of_kernel(report);
    let device = |queue: u16| {
        let device = report.devices.iter().find(|device| device.queue == queue);
        device.map_or_else(|| queue.to_string(), |device| Plain(&device.device).to_string())
    };
    let columns = Columns::of(first(&report.slowest, medium, "").0)
        .number("Q2C", |slow: &Slow| ns(slow.q2c_ns))
        .number("D2C", |slow| Value::known(slow.d2c_ns, ns))
        .ranked(1)
        .number("queued at", |slow| ns(slow.queued_ns))
        .ranked(2)
        .number("bios", |slow| Value::Count(slow.bios))
        .text("operation", |slow| slow.op)
        .ranked(5)
        .text("sectors", |slow| format!("{} + {}", slow.sector, slow.sectors))
        .number(if is_of_kernel { "process" } else { "stream" }, |slow| stream_name(report, slow.stream))
        .ranked(4)
        .number(if is_of_kernel { "device" } else { "queue" }, |slow| device(slow.queue))
        .ranked(3)
        .number("errno", |slow| Value::present((slow.errno > 0).then_some(slow.errno), Value::from))
        .fit(Fit::Omit);
    Section::of(columns).titled("Slowest bios")
}

/// The values of a document with their keys.
fn flatten(key: String, value: &Json, rows: &mut Vec<(String, String)>) {
    let child = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    match value {
        Json::Object(fields) => {
            fields.iter().for_each(|(name, value)| flatten(child(name), value, rows));
        }
        Json::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                flatten(child(&index.to_string()), value, rows);
            }
        }
        Json::Null => rows.push((key, String::new())),
        Json::String(text) => rows.push((key, text.clone())),
        other => rows.push((key, other.to_string())),
    }
}

#[cfg(test)]
mod tests;
