//! Summaries of request logs for the general formats.

use iopath_log::{Report, Stage};
use iopath_report::size::format_size;
use iopath_report::table::{digits, time};
use serde_json::Value;

use super::{Document, Records, Section, View, names};

impl Document for Report {
    fn text(&self, view: View) -> String {
        view.width.map_or_else(|| self.to_string(), |width| self.page(width).to_string())
    }

    fn json(&self) -> String {
        self.to_json()
    }

    /// A record is a key of the JSON with its value. Elements of lists have their number, from 0.
    fn records(&self) -> Records {
        let value = serde_json::to_value(self).unwrap_or_default();
        let mut rows = Vec::new();
        flatten(String::new(), &value, &mut rows);
        Records::new(&["key", "value"], rows)
    }

    fn sections(&self) -> Vec<Section> {
        let heading = format!(
            "Request log of {}: {} steps in {}, {} missed",
            self.log.target,
            self.selected,
            time(self.span_ns),
            self.missed
        );
        let stages = [
            ("Q2G: waits for a slot", self.stages.q2g),
            ("G2I: in the plug", self.stages.g2i),
            ("I2D: in the elevator", self.stages.i2d),
            ("D2C: at the device", self.stages.d2c),
            ("Q2C: whole", self.stages.q2c),
        ];
        let stage = |(name, stage): (&str, Stage)| {
            let times = [stage.mean_ns as u64, stage.p50_ns, stage.p90_ns, stage.p99_ns, stage.max_ns];
            let counts = [name.to_owned(), stage.count.to_string()];
            [&counts[..], &times.map(time)].concat()
        };
        let ops = self.ops.iter().map(|op| {
            let (bios, requests) = (format_size(op.bio_bytes), format_size(op.request_bytes));
            vec![op.op.to_owned(), op.bios.to_string(), bios, op.requests.to_string(), requests]
        });
        let reasons = self.not_merged.rows().into_iter().zip(self.merges_refused.rows());
        let reasons = reasons.filter(|((_, one), (_, other))| one + other > 0);
        let reasons = reasons.map(|((name, inserted), (_, refused))| {
            vec![name.to_owned(), inserted.to_string(), refused.to_string()]
        });
        let streams = self.streams.iter().map(|stream| {
            vec![
                stream.stream.to_string(),
                stream.bios.to_string(),
                format_size(stream.bytes),
                format!("{:.1}%", stream.share * 100.0),
                time(stream.mean_q2c_ns as u64),
            ]
        });
        let seeks = &self.seeks;
        let seeks = format!(
            "{} of {} requests seek, {} of them backward, by {} on average. In flight: mean {}, maximum {}.",
            seeks.count,
            seeks.requests,
            seeks.backward,
            format_size(seeks.mean_bytes as u64),
            digits(self.depth.mean),
            self.depth.max
        );
        let table = |title: &str, head: &[&str], rows: Vec<Vec<String>>| Section {
            title: title.to_owned(),
            head: names(head),
            rows,
            texts: 1,
            paragraphs: Vec::new(),
        };
        let tables = [
            table("Operations", &["operation", "bios", "bytes", "requests", "bytes"], ops.collect()),
            table(
                "Stages",
                &["stage", "count", "mean", "p50", "p90", "p99", "max"],
                stages.into_iter().map(stage).collect(),
            ),
            table("Not merged", &["reason", "requests", "refused attempts"], reasons.collect()),
            table("Streams", &["stream", "bios", "bytes", "share", "mean latency"], streams.collect()),
        ];
        let heading = Section { paragraphs: vec![heading, seeks], ..Section::default() };
        std::iter::once(heading).chain(tables.into_iter().filter(|table| !table.rows.is_empty())).collect()
    }
}

/// The values of a document with their keys.
fn flatten(key: String, value: &Value, rows: &mut Vec<Vec<String>>) {
    let child = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| flatten(child(name), value, rows));
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                flatten(child(&index.to_string()), value, rows);
            }
        }
        Value::Null => rows.push(vec![key, String::new()]),
        Value::String(text) => rows.push(vec![key, text.clone()]),
        other => rows.push(vec![key, other.to_string()]),
    }
}
