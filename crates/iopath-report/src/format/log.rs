//! What every format shows of the summary of a request log.

use iopath_log::{OpCounts, Report, Stage, StreamShare};
use serde_json::Value as Json;

use super::{Document, Medium, View};
use crate::numbers::{digits, time};
use crate::section::{Columns, Section, Table};
use crate::size::format_size;
use crate::value::Value;

/// The streams that a document shows.
const STREAMS_MAX: usize = 64;

impl Document for Report {
    /// The page of the log.
    fn text(&self, view: View) -> String {
        view.width.map_or_else(|| self.to_string(), |width| self.page(width).to_string())
    }

    /// The tables of Markdown and of a page, which has further charts.
    fn sections(&self, medium: Medium) -> Vec<Section> {
        let mut sections = Vec::new();
        if medium != Medium::Page {
            sections.push(Section::prose(heading(self)));
            sections.push(Section::of(operations(&self.ops)).titled("Operations"));
        }
        sections.push(Section::of(stages(self)).titled("Stages"));
        if medium != Medium::Page {
            sections.push(Section::of(reasons(self)).titled("Not merged"));
        }
        if self.streams.len() > 1 || medium != Medium::Page {
            let skew = format!("The last stream ended {} after the first one.", time(self.skew_ns));
            let skew = (self.streams.len() > 1).then_some(skew);
            sections.push(Section::of(streams(&self.streams)).titled("Streams").with_before(skew));
        }
        sections.retain(|section| !section.is_empty());
        sections
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

/// The extent of the log, its seeks and its depth.
fn heading(report: &Report) -> [String; 2] {
    let Report { log, selected, span_ns, missed, seeks, depth, .. } = report;
    [
        format!("Request log of {}: {selected} steps in {}, {missed} missed", log.target, time(*span_ns)),
        format!(
            "{} of {} requests seek, {} of them backward, by {} on average. In flight: mean {}, maximum {}.",
            seeks.count,
            seeks.requests,
            seeks.backward,
            format_size(seeks.mean_bytes as u64),
            digits(depth.mean),
            depth.max
        ),
    ]
}

fn operations(ops: &[OpCounts]) -> Columns<&OpCounts> {
    Columns::of(ops)
        .text("operation", |op| op.op)
        .number("bios", |op| op.bios)
        .number("bytes", |op| Value::Size(op.bio_bytes))
        .number("requests", |op| op.requests)
        .number("bytes", |op| Value::Size(op.request_bytes))
}

/// The latency of each stage of the path. A log need not have the events at both of its ends.
fn stages(report: &Report) -> Table {
    fn timed(of: impl Fn(&Stage) -> f64) -> impl Fn((&str, &Stage)) -> Value {
        move |(_, stage)| if stage.count == 0 { Value::Unknown } else { Value::Nanoseconds(of(stage)) }
    }
    let stages = &report.stages;
    let rows: [(&str, &Stage); 5] = [
        ("Q2G: waits for a slot", &stages.q2g),
        ("G2I: in the plug", &stages.g2i),
        ("I2D: in the elevator", &stages.i2d),
        ("D2C: at the device", &stages.d2c),
        ("Q2C: whole", &stages.q2c),
    ];
    Columns::of(rows)
        .text("stage", |(name, _)| name)
        .number("count", |(_, stage)| stage.count)
        .number("mean", timed(|stage| stage.mean_ns))
        .number("p50", timed(|stage| stage.p50_ns as f64))
        .number("p90", timed(|stage| stage.p90_ns as f64))
        .number("p99", timed(|stage| stage.p99_ns as f64))
        .number("p99.9", timed(|stage| stage.p999_ns as f64))
        .number("max", timed(|stage| stage.max_ns as f64))
        .into()
}

/// Why requests were not merged.
fn reasons(report: &Report) -> Columns<(&str, u64, u64)> {
    let rows = report.not_merged.rows().into_iter().zip(report.merges_refused.rows());
    let rows = rows.map(|((name, inserted), (_, refused))| (name, inserted, refused));
    Columns::of(rows.filter(|(_, inserted, refused)| inserted + refused > 0))
        .text("reason", |(name, ..)| name)
        .number("requests", |(_, inserted, _)| inserted)
        .number("refused attempts", |(.., refused)| refused)
}

fn streams(streams: &[StreamShare]) -> Columns<&StreamShare> {
    let known = |ns: Option<u64>| Value::known(ns, |ns| Value::Nanoseconds(ns as f64));
    Columns::of(&streams[..streams.len().min(STREAMS_MAX)])
        .text("stream", |stream| stream.stream.to_string())
        .number("bios", |stream| stream.bios)
        .number("bytes", |stream| Value::Size(stream.bytes))
        .number("share of bytes", |stream| Value::Percent(stream.share))
        .number("mean", |stream| Value::Nanoseconds(stream.mean_q2c_ns))
        .number("p50", move |stream| known(stream.p50_q2c_ns))
        .number("p99", move |stream| known(stream.p99_q2c_ns))
        .number("max", |stream| Value::Nanoseconds(stream.max_q2c_ns as f64))
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
