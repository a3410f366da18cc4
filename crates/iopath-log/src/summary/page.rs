//! A summary as one page of text. The numbers are in `report.rs`.

mod layout;

use super::report::{
    Contents, Depth, EventCounts, FileAccess, Reasons, Report, Seeks, SizeClass, Slow, Stage, StreamShare,
};
use crate::text::Plain;
use layout::{Column, Table, bar, bar_width, bytes, count, sparkline, time, wrap};
use std::fmt::{self, Display, Formatter};

/// Rows of a list that may be long.
const ROWS_MAX: usize = 8;

/// The width of a page without a terminal.
const WIDTH: usize = 100;

/// A report as a page of text, at most as wide as a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    report: &'a Report,
    width: usize,
}

impl Report {
    /// The report as a page for a terminal of `columns`. With fewer than 40 columns, lines may be longer.
    pub fn page(&self, columns: u16) -> Page<'_> {
        Page { report: self, width: usize::from(columns) }
    }

    /// Whether a filter was given and no step of a bio or request passes it.
    pub const fn is_empty(&self) -> bool {
        self.is_filtered && self.events.of_io() == 0
    }
}

impl EventCounts {
    /// Steps of bios, requests, accesses and the plug: all but changes of the elevator.
    const fn of_io(&self) -> u64 {
        let Self { queue, hold, split, slot_wait, get, back_merge, front_merge, no_merge, .. } = *self;
        let Self {
            plug, unplug, insert, dispatch, requeue, complete, flush, retry, access, access_end, ..
        } = *self;
        let joins = back_merge + front_merge + no_merge;
        let starts = queue + hold + split + slot_wait + get + plug + unplug + insert;
        joins + starts + dispatch + requeue + complete + flush + retry + access + access_end
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Page { report: self, width: WIDTH }.fmt(f)
    }
}

impl Display for Page<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { report, width } = *self;
        if let Some(contents) = report.contents.as_ref().filter(|_| report.is_empty()) {
            return writeln!(f, "{contents}");
        }
        heading(f, report, width)?;
        repeats(f, report, width)?;
        file_access(f, report, width)?;
        ops(f, report, width)?;
        sizes(f, &report.sizes, width)?;
        flow(f, report, width)?;
        seeks(f, &report.seeks, width)?;
        stages(f, report, width)?;
        depth(f, &report.depth, width)?;
        streams(f, report, width)?;
        slowest(f, &report.slowest, width)
    }
}

/// One line for a filter that matches nothing.
impl Display for Contents {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let numbers = |numbers: &[u32]| {
            let shown: Vec<String> = numbers.iter().take(ROWS_MAX).map(u32::to_string).collect();
            let rest = if numbers.len() > ROWS_MAX { ", ..." } else { "" };
            format!("{}{rest}", shown.join(", "))
        };
        write!(
            f,
            "no I/O passes the filter; the log has {} steps from 0 s to {}",
            count(self.steps),
            time(self.last_ns as f64)
        )?;
        if !self.streams.is_empty() {
            write!(f, ", streams {}", numbers(&self.streams))?;
        }
        if self.end_sector > 0 {
            write!(f, ", sectors {} to {}", self.first_sector, self.end_sector - 1)?;
        }
        if self.repeats.len() > 1 {
            write!(f, ", repeats {}", numbers(&self.repeats))?;
        }
        write!(f, ", events {}", self.events.join(", "))
    }
}

fn heading(f: &mut Formatter<'_>, report: &Report, width: usize) -> fmt::Result {
    let Report { log, records, missed, over_limit, .. } = report;
    let or_unknown = |name: &str| Plain(if name.is_empty() { "unknown" } else { name }).to_string();
    let first = format!(
        "log of {}, elevator {}, {}{}, {} on the {} clock",
        or_unknown(&log.target),
        or_unknown(&log.elevator),
        plural(report.queues as u64, "queue"),
        if report.repeats.is_empty() {
            String::new()
        } else {
            format!(", {}", plural(report.repeats.len() as u64, "repeat"))
        },
        time(report.span_ns as f64),
        Plain(&log.clock),
    );
    wrap(f, &first, width)?;
    let missed = if *missed == 0 {
        "none missed".to_owned()
    } else {
        let share = 100.0 * *missed as f64 / (*records as f64 + *missed as f64);
        format!("{} MISSED ({share:.3}%: the rings were full)", count(*missed))
    };
    let dropped = match over_limit {
        0 => String::new(),
        _ => format!(", {} after the file reached its size limit", count(*over_limit)),
    };
    let second = format!(
        "{} records, {missed}{dropped}; {} {}, from {} to {} after the log began",
        count(*records),
        count(report.selected),
        if report.is_filtered { "steps pass the filter" } else { "steps" },
        time(report.first_ns as f64),
        time(report.last_ns as f64),
    );
    wrap(f, &second, width)?;
    for change in report.elevators.iter().take(ROWS_MAX) {
        let at = time(change.at_ns as f64);
        let queue = change.queue;
        wrap(f, &format!("elevator {} from {at} on, queue {queue}", Plain(&change.elevator)), width)?;
    }
    let more = report.events.elevator.saturating_sub(ROWS_MAX as u64);
    if more > 0 {
        writeln!(f, "  and {} more changes of the elevator", count(more))?;
    }
    if let Some(damage) = &report.damage {
        wrap(f, &format!("WARNING: {damage}"), width)?;
    }
    if report.out_of_order > 0 {
        let text = format!(
            "WARNING: {} device events came too late in the file to be ordered across queues; depth and seeks are \
             approximate",
            count(report.out_of_order)
        );
        wrap(f, &text, width)?;
    }
    if report.unjoined > 0 {
        let text = format!("{} bios completed whose start is not in the log", count(report.unjoined));
        wrap(f, &text, width)?;
    }
    writeln!(f)
}

fn repeats(f: &mut Formatter<'_>, report: &Report, width: usize) -> fmt::Result {
    if report.repeats.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        Column::left("repeat"),
        Column::right("from").rank(2),
        Column::right("time"),
        Column::right("bios"),
        Column::right("bytes").rank(1),
        Column::right("mean Q2C").rank(3),
        Column::right("p50"),
        Column::right("p99"),
        Column::right("max").rank(4),
        Column::right("skew").rank(5),
    ]);
    for row in report.repeats.iter().take(ROWS_MAX) {
        table.row([
            if row.repeat == 0 { "before".to_owned() } else { row.repeat.to_string() },
            time(row.first_ns as f64),
            time((row.last_ns - row.first_ns) as f64),
            count(row.bios),
            bytes(row.bytes as f64),
            time(row.mean_q2c_ns),
            or_dash(row.p50_q2c_ns),
            or_dash(row.p99_q2c_ns),
            time(row.max_q2c_ns as f64),
            time(row.skew_ns as f64),
        ]);
    }
    table.write(f, width)?;
    more(f, report.repeats.len(), "repeats")?;
    wrap(f, "The numbers below are of all repeats together; --repeat N selects one.", width)?;
    writeln!(f)
}

fn file_access(f: &mut Formatter<'_>, report: &Report, width: usize) -> fmt::Result {
    let Some(FileAccess { ops, unjoined }) = &report.file_access else { return Ok(()) };
    let mut table = Table::new([
        Column::left("file access"),
        Column::right("accesses"),
        Column::right("bytes").rank(1),
        Column::right("mean size").rank(2),
        Column::right("mean"),
        Column::right("p50"),
        Column::right("p99"),
        Column::right("max").rank(3),
    ]);
    for row in ops {
        table.row([
            row.op.to_owned(),
            count(row.accesses),
            bytes(row.bytes as f64),
            bytes(row.bytes as f64 / row.accesses.max(1) as f64),
            time(row.mean_ns),
            time(row.p50_ns as f64),
            time(row.p99_ns as f64),
            time(row.max_ns as f64),
        ]);
    }
    table.write(f, width)?;
    for row in ops.iter().filter(|row| row.failed > 0) {
        writeln!(f, "FAILED: {} of {} accesses", count(row.failed), row.op)?;
    }
    if *unjoined > 0 {
        let text = format!("{} accesses ended whose start is not in the log", count(*unjoined));
        wrap(f, &text, width)?;
    }
    writeln!(f)
}

fn ops(f: &mut Formatter<'_>, report: &Report, width: usize) -> fmt::Result {
    let mut table = Table::new([
        Column::left("operation"),
        Column::right("bios"),
        Column::right("bytes").rank(1),
        Column::right("requests"),
        Column::right("bytes").rank(2),
        Column::right("mean size").rank(3),
    ]);
    for row in &report.ops {
        table.row([
            row.op.to_owned(),
            count(row.bios),
            bytes(row.bio_bytes as f64),
            count(row.requests),
            bytes(row.request_bytes as f64),
            bytes(row.request_bytes as f64 / row.requests.max(1) as f64),
        ]);
    }
    table.write(f, width)?;
    for error in &report.errors {
        writeln!(f, "FAILED with errno {}: {}", error.errno, plural(error.bios, "bio"))?;
    }
    writeln!(f)
}

fn sizes(f: &mut Formatter<'_>, classes: &[SizeClass], width: usize) -> fmt::Result {
    let classes = || classes.iter().filter(|class| class.from_bytes > 0);
    let most = classes().map(|class| class.bios.max(class.requests)).max().unwrap_or(0);
    if most == 0 {
        return Ok(());
    }
    // Five columns: the two columns of counts are at most as wide as `most`.
    let used = 8 + 2 * count(most).len().max(8) + 8;
    let bar_width = bar_width(width, used, 2);
    let mut table = Table::new([
        Column::left("size"),
        Column::right("bios"),
        Column::left("").rank(1),
        Column::right("requests"),
        Column::left("").rank(1),
    ]);
    for class in classes() {
        table.row([
            bytes(class.from_bytes as f64),
            count(class.bios),
            bar(class.bios, most, bar_width),
            count(class.requests),
            bar(class.requests, most, bar_width),
        ]);
    }
    table.write(f, width)?;
    writeln!(f)
}

fn flow(f: &mut Formatter<'_>, report: &Report, width: usize) -> fmt::Result {
    let (flow, events) = (&report.flow, &report.events);
    let outcomes = |total: u64, outcomes: &[(&str, u64)]| {
        let shown = outcomes.iter().filter(|(_, number)| *number > 0);
        let shown: Vec<String> = shown.map(|(name, number)| format!("{} {name}", count(*number))).collect();
        format!("{}: {}", count(total), if shown.is_empty() { "none".to_owned() } else { shown.join(", ") })
    };
    if flow.bios > 0 {
        let of_bios = [
            ("with a request of their own", flow.own_request),
            ("merged", flow.merged),
            ("split", flow.split),
            ("flushes", flow.flushes),
            ("pending or unknown", flow.pending),
        ];
        wrap(f, &format!("bios {}", outcomes(flow.bios, &of_bios)), width)?;
    }
    if flow.pieces > 0 {
        let pending = flow.pieces - flow.pieces_own_request - flow.pieces_merged;
        let of_pieces = [
            ("with a request of their own", flow.pieces_own_request),
            ("merged", flow.pieces_merged),
            ("pending or unknown", pending),
        ];
        wrap(f, &format!("pieces of split bios {}", outcomes(flow.pieces, &of_pieces)), width)?;
    }
    let merges = format!(
        "merges {}: back {}, front {}; request-to-request merges: {}",
        count(events.back_merge + events.front_merge),
        count(events.back_merge),
        count(events.front_merge),
        count(flow.requests_joined),
    );
    wrap(f, &merges, width)?;
    reasons(f, "requests inserted unmerged", &report.not_merged, width)?;
    reasons(f, "merge attempts refused", &report.merges_refused, width)?;
    let plugged = report.plug.requests as f64 / report.plug.unplugs.max(1) as f64;
    let unplugs = count(report.plug.unplugs);
    wrap(f, &format!("unplugged {unplugs} times, {plugged:.1} requests each"), width)?;
    let others = [
        ("bios held for ordering", events.hold),
        ("waits for a request slot", events.slot_wait),
        ("requeued by the device", events.requeue),
        ("retries after an error", events.retry),
        ("waits for a flush", events.flush),
    ];
    for (name, times) in others.into_iter().filter(|(_, times)| *times > 0) {
        writeln!(f, "{name}: {}", count(times))?;
    }
    writeln!(f)
}

fn reasons(f: &mut Formatter<'_>, title: &str, reasons: &Reasons, width: usize) -> fmt::Result {
    let total = reasons.total();
    let by_reason = if total > 0 { ", by reason" } else { "" };
    wrap(f, &format!("{title}: {}{by_reason}", count(total)), width)?;
    let bar_width = bar_width(width, 2 + 16 + 12 + 8 + 2, 1);
    for (reason, number) in reasons.rows().into_iter().filter(|(_, number)| *number > 0) {
        let share = 100.0 * number as f64 / total as f64;
        let bar = bar(number, total, bar_width);
        let line = format!("  {reason:<16}{:>12}{share:>7.1}%  {bar}", count(number));
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

fn seeks(f: &mut Formatter<'_>, seeks: &Seeks, width: usize) -> fmt::Result {
    let share = 100.0 * seeks.count as f64 / seeks.requests.max(1) as f64;
    let backward = match seeks.count {
        0 => String::new(),
        _ => format!(", {} backward", count(seeks.backward)),
    };
    let line = format!(
        "seeks in dispatch order across all queues: {} of {} ({share:.0}%){backward}",
        count(seeks.count),
        plural(seeks.requests, "request"),
    );
    wrap(f, &line, width)?;
    if seeks.count > 0 {
        let distance = format!(
            "  distance: mean {}, p50 {}, p90 {}, p99 {}, max {}",
            bytes(seeks.mean_bytes),
            bytes(seeks.p50_bytes as f64),
            bytes(seeks.p90_bytes as f64),
            bytes(seeks.p99_bytes as f64),
            bytes(seeks.max_bytes as f64),
        );
        wrap(f, &distance, width)?;
    }
    writeln!(f)
}

fn stages(f: &mut Formatter<'_>, report: &Report, width: usize) -> fmt::Result {
    let stages = &report.stages;
    let mut table = Table::new([
        Column::left("stage"),
        Column::right("count").rank(1),
        Column::right("mean").rank(2),
        Column::right("p50"),
        Column::right("p90").rank(4),
        Column::right("p99"),
        Column::right("p99.9").rank(5),
        Column::right("max").rank(3),
    ]);
    let rows: [(&str, &Stage); 5] = [
        ("Q2G ordering, slots", &stages.q2g),
        ("G2I plug", &stages.g2i),
        ("I2D elevator", &stages.i2d),
        ("D2C device", &stages.d2c),
        ("Q2C whole bio", &stages.q2c),
    ];
    for (name, stage) in rows {
        let is_timed = stage.timed > 0;
        let cell = |nanos: f64| if is_timed { time(nanos) } else { "-".to_owned() };
        table.row([
            name.to_owned(),
            count(stage.count),
            cell(stage.mean_ns),
            cell(stage.p50_ns as f64),
            cell(stage.p90_ns as f64),
            cell(stage.p99_ns as f64),
            cell(stage.p999_ns as f64),
            cell(stage.max_ns as f64),
        ]);
    }
    table.write(f, width)?;
    if rows.iter().any(|(_, stage)| stage.count > 0 && stage.timed == 0) {
        wrap(f, "- the stage began and ended at the same clock reading: it was not timed", width)?;
    }
    writeln!(f)
}

fn depth(f: &mut Formatter<'_>, depth: &Depth, width: usize) -> fmt::Result {
    let line = sparkline(&depth.means, f64::from(depth.max), width.saturating_sub(2));
    let columns = line.chars().count().max(1);
    let column_ns = depth.span_ns * depth.means.len().div_ceil(columns) as u64;
    let text = format!(
        "requests in flight at the device, all queues: mean {:.1}, max {}; each column {}",
        depth.mean,
        depth.max,
        time(column_ns as f64)
    );
    wrap(f, &text, width)?;
    writeln!(f, "  {}\n", line.trim_end())
}

fn streams(f: &mut Formatter<'_>, report: &Report, width: usize) -> fmt::Result {
    let mut table = Table::new([
        Column::left("stream"),
        Column::right("bios"),
        Column::right("bytes").rank(3),
        Column::right("share").rank(2),
        Column::right("done at").rank(1),
        Column::right("mean Q2C").rank(4),
        Column::right("p50"),
        Column::right("p99"),
        Column::right("max").rank(5),
    ]);
    for row in report.streams.iter().take(ROWS_MAX) {
        let StreamShare { stream, bios, share, last_ns, mean_q2c_ns, max_q2c_ns, .. } = *row;
        table.row([
            stream.to_string(),
            count(bios),
            bytes(row.bytes as f64),
            format!("{:.1}%", 100.0 * share),
            time(last_ns as f64),
            time(mean_q2c_ns),
            or_dash(row.p50_q2c_ns),
            or_dash(row.p99_q2c_ns),
            time(max_q2c_ns as f64),
        ]);
    }
    table.write(f, width)?;
    more(f, report.streams.len(), "streams")?;
    let of_repeats = if report.repeats.len() > 1 { " (the largest of the repeats)" } else { "" };
    let skew =
        format!("skew: the last stream finished {} after the first{of_repeats}", time(report.skew_ns as f64));
    wrap(f, &skew, width)?;
    writeln!(f)
}

fn slowest(f: &mut Formatter<'_>, slowest: &[Slow], width: usize) -> fmt::Result {
    writeln!(f, "slowest bios")?;
    for slow in slowest.iter().take(ROWS_MAX) {
        let Slow { bios, queued_ns, q2c_ns, queue, stream, op, sector, sectors, .. } = *slow;
        let what = if bios == 1 {
            format!("{op} {sector} + {sectors}")
        } else {
            format!("{} {op} bios like {sector} + {sectors}", count(bios))
        };
        let at_device = slow.d2c_ns.map(|nanos| format!(", {} at the device", time(nanos as f64)));
        let errno = (slow.errno != 0).then(|| format!(", errno {}", slow.errno));
        let line = format!(
            "  {:>9}  {what}, stream {stream}, queue {queue}, queued at {}{}{}",
            time(q2c_ns as f64),
            time(queued_ns as f64),
            at_device.unwrap_or_default(),
            errno.unwrap_or_default(),
        );
        wrap(f, &line, width)?;
    }
    Ok(())
}

/// The rest of a list of `len` rows.
fn more(f: &mut Formatter<'_>, len: usize, rows: &str) -> fmt::Result {
    match len.checked_sub(ROWS_MAX) {
        None | Some(0) => Ok(()),
        Some(rest) => writeln!(f, "  and {} more {rows}", count(rest as u64)),
    }
}

fn or_dash(nanos: Option<u64>) -> String {
    nanos.map_or_else(|| "-".to_owned(), |nanos| time(nanos as f64))
}

fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}
