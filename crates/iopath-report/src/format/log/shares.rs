//! The shares of devices and streams. In a recording, a stream is a process.

use iopath_log::{DeviceShare, Plain, Report, StreamShare};

use super::super::Medium;
use super::{first, is_of_kernel, ns};
use crate::numbers::{digits, time};
use crate::section::{Columns, Fit, Section};
use crate::value::Value;

/// A latency of a share in nanoseconds: its mean, median, 99th percentile and maximum.
pub(super) struct Latency {
    pub(super) mean: f64,
    pub(super) p50: Option<u64>,
    pub(super) p99: Option<u64>,
    pub(super) max: u64,
}

/// The time of requests at a device.
pub(super) const fn at_device(row: &DeviceShare) -> Latency {
    Latency { mean: row.mean_d2c_ns, p50: row.p50_d2c_ns, p99: row.p99_d2c_ns, max: row.max_d2c_ns }
}

/// The time of bios of a stream.
pub(super) const fn of_bios(row: &StreamShare) -> Latency {
    Latency { mean: row.mean_q2c_ns, p50: row.p50_q2c_ns, p99: row.p99_q2c_ns, max: row.max_q2c_ns }
}

/// Adds the columns of a latency. A narrow terminal omits its maximum (rank `rank + 1`), then its mean (rank `rank`).
pub(super) fn with_latency<R: Copy>(
    columns: Columns<R>,
    mean: &str,
    rank: u8,
    of: impl Fn(R) -> Latency + Copy,
) -> Columns<R> {
    let known = |ns| Value::known(ns, self::ns);
    columns
        .number(mean, move |row| Value::Nanoseconds(of(row).mean))
        .ranked(rank)
        .number("p50", move |row| known(of(row).p50))
        .number("p99", move |row| known(of(row).p99))
        .number("max", move |row| ns(of(row).max))
        .ranked(rank + 1)
}

/// The devices of a recording.
pub(super) fn devices(report: &Report, medium: Medium) -> Section {
    let (rows, more) = first(&report.devices, medium, "devices");
    let any = |of: fn(&DeviceShare) -> u64| rows.iter().any(|row| of(row) > 0);
    let has_levels = any(|row| row.remapped_bios);
    let columns = Columns::of(rows)
        .text("device", |row: &DeviceShare| Plain(&row.device).to_string())
        .number("bios", |row| Value::Count(row.bios))
        .ranked(3)
        .number("passed on", move |row| Value::present(has_levels.then_some(row.remapped_bios), Value::Count))
        .ranked(2)
        .number("requests", |row| Value::Count(row.requests))
        .number("bytes", |row| Value::Size(row.request_bytes))
        .ranked(1)
        .number("busy", |row| Value::Percent(row.busy))
        .number("depth", |row| digits(row.depth_mean))
        .ranked(4);
    let columns = with_latency(columns, "mean D2C", 5, at_device).fit(Fit::Omit);
    let levels = "Bios that a device passes on are bios of the device below, too. The figures below are of all devices \
                  together; iopath log --device NAME selects one.";
    let several = "The figures below are of all devices together; iopath log --device NAME selects one.";
    let note = if has_levels { Some(levels) } else { (report.devices.len() > 1).then_some(several) };
    medium.titled("Devices", columns).with_after(more).with_after(note)
}

/// The streams, or the processes of a recording.
pub(super) fn streams(report: &Report, medium: Medium) -> Section {
    let (rows, more) = first(&report.streams, medium, "streams");
    let is_of_kernel = is_of_kernel(report);
    let columns = Columns::of(rows)
        .text(if is_of_kernel { "process" } else { "stream" }, move |row: &StreamShare| {
            if is_of_kernel { process(row) } else { row.stream.to_string() }
        })
        .number("bios", |row| Value::Count(row.bios))
        .number("bytes", |row| Value::Size(row.bytes))
        .ranked(3)
        .number("share", |row| Value::Percent(row.share))
        .ranked(2)
        .number("done at", |row| ns(row.last_ns))
        .ranked(1);
    let columns = with_latency(columns, "mean Q2C", 4, of_bios).fit(Fit::Omit);
    let of_repeats = if report.repeats.len() > 1 { " (the largest of the repeats)" } else { "" };
    let skew = format!("skew: the last stream finished {} after the first{of_repeats}", time(report.skew_ns));
    if is_of_kernel {
        let own = "* the recorded command, and processes that it started";
        let own = report.streams.iter().any(|row| row.is_own).then_some(own);
        return medium.titled("Processes", columns).with_after(more).with_after(own);
    }
    medium.titled("Streams", columns).with_after(more).with_after([skew])
}

/// The process of a stream, or its number.
pub(super) fn stream_name(report: &Report, stream: u32) -> String {
    let row = report.streams.iter().find(|row| row.stream == stream);
    row.filter(|_| is_of_kernel(report)).map_or_else(|| stream.to_string(), process)
}

/// The command and the number of a process.
pub(super) fn process(row: &StreamShare) -> String {
    let command = row.command.as_deref().unwrap_or("others");
    let own = if row.is_own { "*" } else { "" };
    let pid = row.pid.map_or_else(String::new, |pid| format!(" {pid}"));
    format!("{}{pid}{own}", Plain(command))
}
