//! A summary as one page of text, of ASCII but for the bars. The numbers: `report.rs`.

use super::report::{Depth, Report, Seeks, SizeClass, Slow, Stage, StreamShare};
use crate::text::Plain;
use std::fmt::{self, Formatter};

/// Rows of a list that could be long.
const ROWS_MAX: usize = 8;

/// The widest bar.
const BAR_WIDTH: usize = 30;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        heading(f, self)?;
        ops(f, self)?;
        sizes(f, &self.sizes)?;
        merges(f, self)?;
        seeks(f, &self.seeks)?;
        stages(f, self)?;
        depth(f, &self.depth)?;
        streams(f, self)?;
        slowest(f, &self.slowest)
    }
}

fn heading(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    let Report { log, records, missed, over_limit, .. } = report;
    let or_unknown = |name: &str| Plain(if name.is_empty() { "unknown" } else { name }).to_string();
    writeln!(
        f,
        "log of {}, elevator {}, {} queue{}, {} on the {} clock",
        or_unknown(&log.target),
        or_unknown(&log.elevator),
        report.queues,
        if report.queues == 1 { "" } else { "s" },
        time(report.span_ns as f64),
        Plain(&log.clock),
    )?;
    let missed = if *missed == 0 {
        "none missed".to_owned()
    } else {
        let share = 100.0 * *missed as f64 / (*records as f64 + *missed as f64);
        format!("{} MISSED ({share:.3}%: the rings were full)", count(*missed))
    };
    write!(f, "{} records, {missed}", count(*records))?;
    if *over_limit > 0 {
        write!(f, ", {} after the file reached its limit", count(*over_limit))?;
    }
    let steps = if report.is_filtered { "steps passed the filter" } else { "steps" };
    writeln!(f, ", {} {steps}", count(report.selected))?;
    for change in report.elevators.iter().take(ROWS_MAX) {
        let (at, queue) = (time(change.at_ns as f64), change.queue);
        writeln!(f, "elevator {} from {at} on, queue {queue}", Plain(&change.elevator))?;
    }
    let more = report.events.elevator.saturating_sub(ROWS_MAX as u64);
    if more > 0 {
        writeln!(f, "  and {} more changes of the elevator", count(more))?;
    }
    if let Some(damage) = &report.damage {
        writeln!(f, "WARNING: {damage}")?;
    }
    if report.unjoined > 0 {
        writeln!(f, "{} bios completed whose beginning is not here", count(report.unjoined))?;
    }
    writeln!(f)
}

fn ops(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    writeln!(f, "{:<16}{:>14}{:>12}{:>14}{:>12}{:>12}", "", "bios", "", "requests", "", "mean size")?;
    for row in &report.ops {
        writeln!(
            f,
            "{:<16}{:>14}{:>12}{:>14}{:>12}{:>12}",
            row.op,
            count(row.bios),
            bytes(row.bio_bytes as f64),
            count(row.requests),
            bytes(row.request_bytes as f64),
            bytes(row.request_bytes as f64 / row.requests.max(1) as f64),
        )?;
    }
    for error in &report.errors {
        writeln!(f, "FAILED with errno {}: {} bios", error.errno, count(error.bios))?;
    }
    writeln!(f)
}

fn sizes(f: &mut Formatter<'_>, classes: &[SizeClass]) -> fmt::Result {
    let most = classes.iter().map(|class| class.bios.max(class.requests)).max().unwrap_or(0);
    if most == 0 {
        return Ok(());
    }
    writeln!(f, "{:<10}{:>12}  {:<w$}{:>12}  requests", "size", "bios", "", "", w = BAR_WIDTH)?;
    for class in classes {
        writeln!(
            f,
            "{:<10}{:>12}  {:<w$}{:>12}  {}",
            bytes(class.from_bytes as f64),
            count(class.bios),
            bar(class.bios, most),
            count(class.requests),
            bar(class.requests, most),
            w = BAR_WIDTH,
        )?;
    }
    writeln!(f)
}

fn merges(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    let events = &report.events;
    let merged = events.back_merge + events.front_merge;
    writeln!(
        f,
        "merged {}: back {}, front {}, of these {} request with request",
        count(merged),
        count(events.back_merge),
        count(events.front_merge),
        count(report.requests_joined),
    )?;
    let refusals = report.refusals.rows();
    let total: u64 = refusals.iter().map(|(_, refused)| refused).sum();
    writeln!(f, "not merged {}{}", count(total), if total > 0 { ", because of" } else { "" })?;
    for (reason, refused) in refusals.into_iter().filter(|(_, refused)| *refused > 0) {
        let share = 100.0 * refused as f64 / total as f64;
        writeln!(f, "  {reason:<18}{:>14}{share:>7.1}%  {}", count(refused), bar(refused, total))?;
    }
    let plugged = report.plug.requests as f64 / report.plug.unplugs.max(1) as f64;
    let others = [
        ("bios held for order", events.hold),
        ("bios split", report.bios_split),
        ("waits for a slot", events.slot_wait),
        ("given back by the device", events.requeue),
        ("tried again alone", events.retry),
        ("waits for a flush", events.flush),
    ];
    writeln!(f, "unplugged {} times, {plugged:.1} requests each", count(report.plug.unplugs))?;
    for (what, times) in others.into_iter().filter(|(_, times)| *times > 0) {
        writeln!(f, "{what} {}", count(times))?;
    }
    writeln!(f)
}

fn seeks(f: &mut Formatter<'_>, seeks: &Seeks) -> fmt::Result {
    let share = 100.0 * seeks.count as f64 / seeks.requests.max(1) as f64;
    write!(f, "seeks {} of {} requests ({share:.0}%)", count(seeks.count), count(seeks.requests))?;
    if seeks.count > 0 {
        write!(
            f,
            ", {} backward\n  distance: mean {}, p50 {}, p90 {}, p99 {}, max {}",
            count(seeks.backward),
            bytes(seeks.mean_bytes),
            bytes(seeks.p50_bytes as f64),
            bytes(seeks.p90_bytes as f64),
            bytes(seeks.p99_bytes as f64),
            bytes(seeks.max_bytes as f64),
        )?;
    }
    writeln!(f, "\n")
}

fn stages(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    let stages = &report.stages;
    writeln!(
        f,
        "{:<22}{:>12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "stage", "count", "mean", "p50", "p90", "p99", "p99.9", "max"
    )?;
    let rows: [(&str, &Stage); 5] = [
        ("Q2G order and slots", &stages.q2g),
        ("G2I plug", &stages.g2i),
        ("I2D elevator", &stages.i2d),
        ("D2C device", &stages.d2c),
        ("Q2C bio, whole", &stages.q2c),
    ];
    for (name, stage) in rows {
        let Stage { mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns, .. } = *stage;
        write!(f, "{name:<22}{:>12}{:>10}", count(stage.count), time(mean_ns))?;
        for nanos in [p50_ns, p90_ns, p99_ns, p999_ns, max_ns] {
            write!(f, "{:>10}", time(nanos as f64))?;
        }
        writeln!(f)?;
    }
    writeln!(f)
}

fn depth(f: &mut Formatter<'_>, depth: &Depth) -> fmt::Result {
    let line: String = depth.means.iter().map(|mean| spark(*mean, f64::from(depth.max))).collect();
    writeln!(
        f,
        "at the device: mean {:.1}, max {}; each column {}",
        depth.mean,
        depth.max,
        time(depth.span_ns as f64)
    )?;
    writeln!(f, "  {line}\n")
}

fn streams(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    writeln!(
        f,
        "{:<8}{:>12}{:>12}{:>8}{:>12}{:>12}{:>10}{:>10}{:>10}",
        "stream", "bios", "", "share", "done at", "mean Q2C", "p50", "p99", "max"
    )?;
    for row in report.streams.iter().take(ROWS_MAX) {
        let StreamShare { stream, bios, share, last_ns, mean_q2c_ns, max_q2c_ns, .. } = *row;
        let (size, percent) = (bytes(row.bytes as f64), 100.0 * share);
        let (done, mean, max) = (time(last_ns as f64), time(mean_q2c_ns), time(max_q2c_ns as f64));
        let or_none = |nanos: Option<u64>| nanos.map_or_else(|| "-".to_owned(), |nanos| time(nanos as f64));
        let (p50, p99) = (or_none(row.p50_q2c_ns), or_none(row.p99_q2c_ns));
        write!(f, "{stream:<8}{:>12}{size:>12}{percent:>7.1}%{done:>12}{mean:>12}", count(bios))?;
        writeln!(f, "{p50:>10}{p99:>10}{max:>10}")?;
    }
    if report.streams.len() > ROWS_MAX {
        writeln!(f, "  and {} more streams", count((report.streams.len() - ROWS_MAX) as u64))?;
    }
    writeln!(f, "skew: the last stream ended {} after the first\n", time(report.skew_ns as f64))
}

fn slowest(f: &mut Formatter<'_>, slowest: &[Slow]) -> fmt::Result {
    writeln!(f, "slowest bios")?;
    for slow in slowest.iter().take(ROWS_MAX) {
        let Slow { queued_ns, q2c_ns, stream, op, sector, sectors, .. } = *slow;
        write!(
            f,
            "  {:>9}  {op} {sector} + {sectors}, stream {stream}, at {}",
            time(q2c_ns as f64),
            time(queued_ns as f64)
        )?;
        if let Some(nanos) = slow.d2c_ns {
            write!(f, ", {} of it at the device", time(nanos as f64))?;
        }
        if slow.errno != 0 {
            write!(f, ", errno {}", slow.errno)?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// `1234567` as `1,234,567`.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let first = (digits.len() - 1) % 3 + 1;
    let mut text = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        text.push(',');
        text.extend(group.iter().map(|digit| char::from(*digit)));
    }
    text
}

/// Three digits and a unit.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let (size, unit) =
        units.iter().rev().find(|(size, _)| value >= *size).or(units.first()).copied().unwrap_or((1.0, ""));
    let value = value / size;
    let decimals = match value {
        _ if size <= 1.0 || value >= 99.95 => 0,
        _ if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

fn time(nanos: f64) -> String {
    scaled(nanos, &[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")])
}

fn bytes(bytes: f64) -> String {
    const KIB: f64 = 1024.0;
    let units = [(1.0, "B"), (KIB, "KiB"), (KIB.powi(2), "MiB"), (KIB.powi(3), "GiB"), (KIB.powi(4), "TiB")];
    scaled(bytes, &units)
}

fn bar(part: u64, whole: u64) -> String {
    let width = (part as f64 / whole.max(1) as f64 * BAR_WIDTH as f64).ceil() as usize;
    "#".repeat(width)
}

/// An eighth to eight eighths of `max`.
fn spark(value: f64, max: f64) -> char {
    const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let level = if max > 0.0 { (value / max * 8.0).ceil() } else { 0.0 };
    LEVELS[(level as usize).min(8)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_to_be_read() {
        assert_eq!((count(0), count(999), count(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        assert_eq!(
            (time(0.0), time(999.0), time(1500.0)),
            ("0 ns".into(), "999 ns".into(), "1.50 us".into())
        );
        assert_eq!((time(12.34e6), time(123.4e9)), ("12.3 ms".into(), "123 s".into()));
        assert_eq!((bytes(512.0), bytes(4096.0)), ("512 B".into(), "4.00 KiB".into()));
    }

    #[test]
    fn a_bar_shows_the_least_and_the_most() {
        assert_eq!((bar(0, 100).len(), bar(1, 100).len(), bar(100, 100).len()), (0, 1, BAR_WIDTH));
        assert_eq!(
            (spark(0.0, 8.0), spark(0.1, 8.0), spark(8.0, 8.0), spark(1.0, 0.0)),
            (' ', '▁', '█', ' ')
        );
    }
}
