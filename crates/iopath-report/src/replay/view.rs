//! What every format shows of a replay: recorded and replayed latencies side by side, the lateness, and the failures.
//! Computes nothing.

use crate::format::{Document, Medium};
use crate::numbers::{count, counted, digits, time};
use crate::result::Latency;
use crate::section::{Columns, Section, Table};
use crate::size::format_size;
use crate::value::Value;

use super::{Lateness, ReplayReport, ReplayTiming, ReplayedDevice, ReplayedEvents, ReplayedOperation};

/// A figure of a latency, with its name.
type Figure = (&'static str, fn(&Latency) -> f64);

impl Document for ReplayReport {
    fn sections(&self, medium: Medium) -> Vec<Section> {
        let mut sections = vec![Section::prose([self.head()])];
        for device in &self.devices {
            sections.push(device.figures(self.timing));
            sections.extend(device.failures());
        }
        if medium != Medium::Text {
            let warnings = self.warnings.iter().map(|warning| format!("Warning: {warning}"));
            sections.push(Section::prose(warnings));
        }
        sections
    }

    /// A record is an operation on a target.
    fn records(&self) -> Table {
        let rows =
            self.devices.iter().flat_map(|device| device.operations.iter().map(move |op| (device, op)));
        let mut columns = Columns::of(rows)
            .record("device", |(device, _)| &device.device)
            .record("target", |(device, _)| &device.target.path)
            .record("op", |(_, op)| &op.op)
            .record("ios", |(_, op)| op.ios)
            .record("bytes", |(_, op)| op.bytes)
            .record("failed", |(_, op)| op.failed)
            .record("seconds", |(device, _)| device.seconds);
        let figures: [Figure; 5] = [
            ("mean", |latency| latency.mean),
            ("p50", |latency| latency.p50 as f64),
            ("p90", |latency| latency.p90 as f64),
            ("p99", |latency| latency.p99 as f64),
            ("max", |latency| latency.max as f64),
        ];
        for (name, figure) in figures {
            columns = columns
                .record(format!("recorded_{name}_ns"), |(_, op)| op.recorded_ns.as_ref().map(figure))
                .record(format!("replayed_{name}_ns"), |(_, op)| op.replayed_ns.as_ref().map(figure));
        }
        columns
            .record("late_p50_ns", |(device, _)| device.lateness_ns.map(|late| late.p50))
            .record("late_p99_ns", |(device, _)| device.lateness_ns.map(|late| late.p99))
            .record("late_max_ns", |(device, _)| device.lateness_ns.map(|late| late.max))
            .into()
    }

    fn json(&self) -> String {
        self.to_json()
    }
}

impl ReplayReport {
    fn head(&self) -> String {
        let what = match self.events {
            ReplayedEvents::Queue => "bios as queued",
            ReplayedEvents::Dispatch => "requests as dispatched",
        };
        let when = match self.timing {
            ReplayTiming::Recorded => "at the recorded times".to_owned(),
            ReplayTiming::Closed => "after the recorded completions and think times".to_owned(),
            ReplayTiming::Asap => format!("as fast as possible, {} in flight", self.io_depth),
        };
        #[expect(clippy::float_cmp, reason = "the recorded speed is exactly 1")]
        let is_recorded = self.speed == 1.0;
        let speed = if is_recorded { String::new() } else { format!(", speed {}", digits(self.speed)) };
        let only = if self.reads_only { ", reads only" } else { "" };
        let partial = if self.partial { "; ended early" } else { "" };
        format!(
            "Replay of {}: {what}, {when}{speed}{only}; path {}, elevator {}{partial}",
            self.trace, self.path, self.elevator
        )
    }
}

/// An operation in the recording or in the replay.
#[derive(Clone, Copy)]
struct Row<'a> {
    op: &'a ReplayedOperation,
    run: &'static str,
    latency: Option<&'a Latency>,
}

impl ReplayedDevice {
    fn figures(&self, timing: ReplayTiming) -> Section {
        let rows = self.operations.iter().flat_map(|op| {
            let row = |run, latency| Row { op, run, latency };
            let recorded = op.recorded_ns.as_ref().map(|latency| row("recorded", Some(latency)));
            recorded.into_iter().chain([row("replayed", op.replayed_ns.as_ref())])
        });
        let time = |of: fn(&Latency) -> f64| {
            move |row: Row<'_>| Value::known(row.latency, |latency| Value::Nanoseconds(of(latency)))
        };
        let columns = Columns::of(rows)
            .text("operation", |row| &row.op.op)
            .text("run", |row| row.run)
            .number("I/Os", |row| Value::Count(row.op.ios))
            .number("bytes", |row| Value::Size(row.op.bytes))
            .number("mean", time(|latency| latency.mean))
            .number("p50", time(|latency| latency.p50 as f64))
            .number("p90", time(|latency| latency.p90 as f64))
            .number("p99", time(|latency| latency.p99 as f64))
            .number("max", time(|latency| latency.max as f64));
        let recorded = match timing {
            ReplayTiming::Asap => String::new(),
            _ => format!(" (submissions recorded: {} s)", digits(self.recorded_seconds)),
        };
        let done = format!(
            "{} ({}, {}): {} of {} I/Os in {} s{recorded}, {} IOPS, {} MB/s, {} failed",
            self.name(),
            self.target.kind,
            format_size(self.target.size_bytes),
            count(self.ios),
            count(self.planned),
            digits(self.seconds),
            digits(self.iops),
            digits(self.bytes_per_second / 1e6),
            count(self.failed)
        );
        Section::of(columns).with_before([done]).with_after(self.lateness_ns.as_ref().map(Lateness::text))
    }

    fn failures(&self) -> Option<Section> {
        let errors = self.errors.iter().map(|error| {
            format!("{} failed: {}; the first: {}", counted(error.count, &error.op), error.error, error.first)
        });
        (!self.errors.is_empty()).then(|| Section::prose(errors))
    }
}

impl Lateness {
    /// The lateness in words.
    pub fn text(&self) -> String {
        let [p50, p99, max, gap] = [self.p50, self.p99, self.max, self.mean_gap.round() as u64].map(time);
        let verdict = if self.kept_up {
            format!("within 5% of the mean gap of {gap}")
        } else {
            format!(
                "p99 is more than 5% of the mean gap of {gap}: the replay could not keep up with the times"
            )
        };
        format!("Submissions late: p50 {p50}, p99 {p99}, max {max}; {verdict}")
    }
}
