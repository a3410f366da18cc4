//! The figures of one interval of a recording in progress: tables for a terminal, or a line for each device.

use iopath_log::{DeviceShare, Interval, Plain, StreamShare};

use super::super::{View, text};
use super::shares::{at_device, of_bios, process, with_latency};
use crate::numbers::{count, digits, time, whole_percent};
use crate::section::{Columns, Fit, Section};
use crate::value::Value;

/// The devices and processes of an interval, each with at most `rows_max` rows.
pub fn interval(interval: &Interval, rows_max: usize, view: View) -> String {
    let devices = Columns::of(interval.devices.iter().take(rows_max))
        .text("device", |row: &DeviceShare| Plain(&row.device).to_string())
        .number("requests/s", |row| Value::Number(per_second(interval, row.requests)))
        .number("MB/s", |row| Value::Rate(per_second(interval, row.request_bytes)))
        .number("mean size", |row| Value::MeanSize(mean(row.request_bytes, row.requests)))
        .ranked(2)
        .number("busy", |row| Value::WholePercent(row.busy))
        .number("depth", |row| digits(row.depth_mean))
        .ranked(1);
    let processes = Columns::of(interval.processes.iter().take(rows_max))
        .text("process", process)
        .number("bios/s", |row: &StreamShare| Value::Number(per_second(interval, row.bios)))
        .number("MB/s", |row| Value::Rate(per_second(interval, row.bytes)))
        .number("mean size", |row| Value::MeanSize(mean(row.bytes, row.bios)))
        .ranked(2)
        .number("share", |row| Value::WholePercent(row.share));
    let sections = [
        Section::of(with_latency(devices, "mean D2C", 3, at_device).fit(Fit::Omit)),
        Section::of(with_latency(processes, "mean Q2C", 3, of_bios).fit(Fit::Omit)),
    ];
    text::render(&sections, view)
}

/// A line for each device, with the process that moved the most bytes.
pub fn interval_lines(interval: &Interval) -> Vec<String> {
    let busiest = interval.processes.first().map_or_else(String::new, |row| {
        let bytes = per_second(interval, row.bytes) / 1e6;
        format!("; most bytes: {} {} MB/s", process(row), digits(bytes))
    });
    let known = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), time);
    let line = |row: &DeviceShare| {
        format!(
            "{}: {} requests/s, {} MB/s, busy {}, depth {}, D2C mean {}, p50 {}, p99 {}, max {}",
            Plain(&row.device),
            count(per_second(interval, row.requests).round() as u64),
            digits(per_second(interval, row.request_bytes) / 1e6),
            whole_percent(row.busy),
            digits(row.depth_mean),
            time(row.mean_d2c_ns.round() as u64),
            known(row.p50_d2c_ns),
            known(row.p99_d2c_ns),
            time(row.max_d2c_ns),
        )
    };
    interval.devices.iter().map(|row| line(row) + &busiest).collect()
}

fn per_second(interval: &Interval, number: u64) -> f64 {
    number as f64 / (interval.span_ns.max(1) as f64 / 1e9)
}

fn mean(sum: u64, number: u64) -> f64 {
    sum as f64 / number.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Interval {
        let device = DeviceShare {
            queue: 0,
            device: "sda".to_owned(),
            number: "8:0".to_owned(),
            bios: 400,
            bytes: 4 << 20,
            requests: 200,
            request_bytes: 4 << 20,
            remapped_bios: 0,
            remapped_bytes: 0,
            busy: 0.5,
            depth_mean: 1.5,
            depth_max: 4,
            completed: 200,
            mean_d2c_ns: 1.5e6,
            p50_d2c_ns: Some(1_000_000),
            p99_d2c_ns: Some(9_000_000),
            max_d2c_ns: 12_000_000,
        };
        let process = StreamShare {
            stream: 1,
            pid: Some(77),
            command: Some("db".to_owned()),
            is_own: false,
            bios: 400,
            bytes: 4 << 20,
            share: 1.0,
            completed: 400,
            first_ns: 0,
            last_ns: 0,
            mean_q2c_ns: 2e6,
            p50_q2c_ns: None,
            p99_q2c_ns: None,
            max_q2c_ns: 12_000_000,
        };
        Interval { span_ns: 2_000_000_000, devices: vec![device], processes: vec![process] }
    }

    #[test]
    fn figures_are_for_each_second() {
        let [line] = &interval_lines(&sample())[..] else { panic!("one device, one line") };
        assert_eq!(
            line,
            "sda: 100 requests/s, 2.10 MB/s, busy 50%, depth 1.50, D2C mean 1.50 ms, p50 1.00 ms, p99 9.00 ms, \
             max 12.0 ms; most bytes: db 77 2.10 MB/s"
        );
        let text = interval(&sample(), 8, View::plain(Some(100)));
        let row =
            |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
        assert!(row("sda").contains("100") && row("sda").contains("50%"), "{text}");
        assert!(row("db 77").contains("200") && row("db 77").contains("100%"), "{text}");
    }

    #[test]
    fn an_interval_without_io_has_no_line() {
        let idle = Interval { span_ns: 1, devices: Vec::new(), processes: Vec::new() };
        assert!(interval_lines(&idle).is_empty());
        assert_eq!(interval(&idle, 8, View::plain(None)), "");
    }
}
