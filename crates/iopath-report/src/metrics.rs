//! Metrics of a running command as text in the format OpenMetrics 1.0. Does not measure, and does not serve them: see
//! `iopath-lab/src/metrics.rs`.

use std::fmt::Write as _;

use crate::result::Latencies;

/// The media type of the text.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Rises only, within a command.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts of values up to each of several bounds.
    Histogram,
    /// Facts, as labels.
    Info,
}

impl MetricKind {
    /// The word in the text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// A family of metrics.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// The name without the suffix of its samples.
    pub name: &'static str,
    /// The type.
    pub kind: MetricKind,
    /// The unit, which is the end of the name; empty for none.
    pub unit: &'static str,
    /// The commands that have it.
    pub commands: &'static str,
    /// The meaning, in one line.
    pub help: &'static str,
}

const fn family(
    name: &'static str,
    kind: MetricKind,
    unit: &'static str,
    commands: &'static str,
    help: &'static str,
) -> Family {
    Family { name, kind, unit, commands, help }
}

/// The program.
pub const BUILD: Family =
    family("iopath_build", MetricKind::Info, "", "run, serve, record", "The version of iopath.");
/// Bytes of transfers.
pub const BYTES: Family = family(
    "iopath_transferred_bytes",
    MetricKind::Counter,
    "bytes",
    "run, serve",
    "Bytes of completed transfers.",
);
/// Transfers.
pub const TRANSFERS: Family =
    family("iopath_transfers", MetricKind::Counter, "", "run, serve", "Completed transfers.");
/// Bytes a second.
pub const THROUGHPUT: Family = family(
    "iopath_throughput_bytes_per_second",
    MetricKind::Gauge,
    "",
    "run, serve",
    "Bytes of transfers in a second, over the last second.",
);
/// Transfers a second.
pub const IOPS: Family = family(
    "iopath_transfers_per_second",
    MetricKind::Gauge,
    "",
    "run, serve",
    "Transfers in a second, over the last second.",
);
/// Latencies of complete repetitions.
pub const LATENCY: Family = family(
    "iopath_latency_seconds",
    MetricKind::Histogram,
    "seconds",
    "run",
    "Latencies of the transfers of complete repetitions.",
);
/// Latencies of the requests of clients.
pub const REQUEST_LATENCY: Family = family(
    "iopath_request_latency_seconds",
    MetricKind::Histogram,
    "seconds",
    "serve",
    "Latencies of the requests of clients, from their arrival to their reply.",
);
/// Complete repetitions.
pub const REPETITIONS: Family =
    family("iopath_repetitions", MetricKind::Counter, "", "run", "Complete repetitions.");
/// The share of the present stage.
pub const PROGRESS: Family = family(
    "iopath_progress_ratio",
    MetricKind::Gauge,
    "ratio",
    "run",
    "The completed share of the present stage, from 0 to 1.",
);
/// CPU time.
pub const CPU: Family = family(
    "iopath_cpu_seconds",
    MetricKind::Counter,
    "seconds",
    "run, serve, record",
    "CPU time of the process.",
);
/// Lost connections to exports.
pub const LOST: Family = family(
    "iopath_lost_connections",
    MetricKind::Counter,
    "",
    "run",
    "Connections to exports that ended, in complete repetitions.",
);
/// Connections to exports that were established again.
pub const RECONNECTS: Family = family(
    "iopath_reconnects",
    MetricKind::Counter,
    "",
    "run",
    "Connections to exports that were established again, in complete repetitions.",
);
/// Clients at present.
pub const CLIENTS: Family =
    family("iopath_clients", MetricKind::Gauge, "", "serve", "Connections of clients at present.");
/// Clients since the start.
pub const ACCEPTED: Family = family(
    "iopath_accepted_connections",
    MetricKind::Counter,
    "",
    "serve",
    "Connections of clients since the start.",
);

/// Bytes of requests of a device.
pub const DEVICE_BYTES: Family = family(
    "iopath_device_bytes",
    MetricKind::Counter,
    "bytes",
    "record",
    "Bytes of the requests that a device got.",
);
/// Requests of a device.
pub const DEVICE_REQUESTS: Family =
    family("iopath_device_requests", MetricKind::Counter, "", "record", "Requests that a device got.");
/// The busy time of a device.
pub const DEVICE_BUSY: Family = family(
    "iopath_device_busy_ratio",
    MetricKind::Gauge,
    "ratio",
    "record",
    "The share of the last interval with a request at the device, from 0 to 1.",
);
/// Requests at a device.
pub const DEVICE_DEPTH: Family = family(
    "iopath_device_depth",
    MetricKind::Gauge,
    "",
    "record",
    "The mean number of requests at the device in the last interval.",
);
/// Latencies of a device.
pub const DEVICE_LATENCY: Family = family(
    "iopath_device_latency_seconds",
    MetricKind::Gauge,
    "seconds",
    "record",
    "The median and the 99th percentile of the time of requests at the device in the last interval.",
);
/// Events of the kernel.
pub const EVENTS: Family = family(
    "iopath_recorded_events",
    MetricKind::Counter,
    "",
    "record",
    "Events of the kernel that were read.",
);
/// Events that were lost.
pub const LOST_EVENTS: Family = family(
    "iopath_lost_events",
    MetricKind::Counter,
    "",
    "record",
    "Events of the kernel that found no room in a ring.",
);

/// All families, in the order of the text.
pub const FAMILIES: [&Family; 21] = [
    &BUILD,
    &BYTES,
    &TRANSFERS,
    &THROUGHPUT,
    &IOPS,
    &LATENCY,
    &REQUEST_LATENCY,
    &REPETITIONS,
    &PROGRESS,
    &CPU,
    &LOST,
    &RECONNECTS,
    &CLIENTS,
    &ACCEPTED,
    &DEVICE_BYTES,
    &DEVICE_REQUESTS,
    &DEVICE_BUSY,
    &DEVICE_DEPTH,
    &DEVICE_LATENCY,
    &EVENTS,
    &LOST_EVENTS,
];

/// The bounds of the histogram are these powers of two of a nanosecond, at which classes of latencies begin: 1 µs to
/// 34 s.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=35;

/// The classes of a histogram: below each bound, and the rest.
pub const CLASSES: usize = 27;

/// Labels of a sample: names and values.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// Samples of metrics, for one text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metrics {
    /// The samples of each family, as lines.
    lines: Vec<(&'static str, String)>,
}

impl Metrics {
    /// Adds a number. The labels of a counter or a gauge occur once in its family.
    pub fn add(&mut self, family: &'static Family, labels: Labels, value: f64) {
        let suffix = match family.kind {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        self.line(family, suffix, labels, None, value);
    }

    /// Adds a histogram of latencies.
    pub fn add_latencies(&mut self, family: &'static Family, labels: Labels, latencies: &Latencies) {
        let (mut classes, mut sum_ns) = ([0u64; CLASSES], 0.0);
        for (latency_ns, count) in latencies.classes() {
            sum_ns += latency_ns as f64 * count as f64;
            // The first power above the latency.
            let power = (u64::BITS - latency_ns.leading_zeros()).max(*BOUNDS.start());
            let class = &mut classes[((power - BOUNDS.start()) as usize).min(CLASSES - 1)];
            *class = class.saturating_add(count);
        }
        self.add_histogram(family, labels, &classes, sum_ns / 1e9);
    }

    /// Adds a histogram of latencies: their number below each of the bounds, 1.024 µs to 34 s in factors of two, and
    /// above the bound before it; the last class is without a bound.
    pub fn add_histogram(
        &mut self,
        family: &'static Family,
        labels: Labels,
        classes: &[u64; CLASSES],
        sum_seconds: f64,
    ) {
        let mut below = 0u64;
        for (power, count) in BOUNDS.map(Some).chain([None]).zip(classes) {
            below = below.saturating_add(*count);
            let bound = power.map_or_else(|| "+Inf".to_owned(), |power| number((1u64 << power) as f64 / 1e9));
            self.line(family, "_bucket", labels, Some(&bound), below as f64);
        }
        self.line(family, "_count", labels, None, below as f64);
        self.line(family, "_sum", labels, None, sum_seconds);
    }

    fn line(
        &mut self,
        family: &'static Family,
        suffix: &str,
        labels: Labels,
        bound: Option<&str>,
        value: f64,
    ) {
        let mut line = format!("{}{suffix}", family.name);
        let le = bound.map(|bound| ("le", bound));
        let mut labels = labels.iter().copied().chain(le).peekable();
        if labels.peek().is_some() {
            let pairs: Vec<String> =
                labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let _ = write!(line, "{{{}}}", pairs.join(","));
        }
        let _ = write!(line, " {}", number(value));
        self.lines.push((family.name, line));
    }

    /// The text: each family that has samples, and the end.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for family in FAMILIES {
            let mut lines = self.lines.iter().filter(|(name, _)| *name == family.name).peekable();
            if lines.peek().is_none() {
                continue;
            }
            let _ = writeln!(text, "# TYPE {} {}", family.name, family.kind.name());
            if !family.unit.is_empty() {
                let _ = writeln!(text, "# UNIT {} {}", family.name, family.unit);
            }
            let _ = writeln!(text, "# HELP {} {}", family.name, escaped(family.help));
            lines.for_each(|(_, line)| {
                let _ = writeln!(text, "{line}");
            });
        }
        text + "# EOF\n"
    }
}

/// A value of a label, or a help text.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        format!("{value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::openmetrics::{Sample, parse};

    #[test]
    fn every_family_passes_a_strict_parser() {
        let mut latencies = Latencies::default();
        for (latency_ns, count) in [(0, 1), (1023, 2), (1024, 3), (1_000_000, 4), (u64::MAX, 5)] {
            latencies.record(latency_ns, count);
        }
        let mut metrics = Metrics::default();
        for family in FAMILIES {
            let hostile = "a \"name\" with \\ and\nlines, {=}";
            if family.kind == MetricKind::Histogram {
                metrics.add_latencies(family, &[], &latencies);
                metrics.add_latencies(family, &[("target", hostile)], &Latencies::default());
            } else {
                metrics.add(family, &[("target", hostile)], 1.5);
                metrics.add(family, &[("target", "b")], 1e15);
            }
        }
        let text = metrics.text();
        let samples = parse(&text).unwrap_or_else(|problem| panic!("{problem}\n{text}"));
        let names: std::collections::BTreeSet<&str> = samples.iter().map(|one| one.family.as_str()).collect();
        assert_eq!(names.len(), FAMILIES.len(), "{text}");
        let bucket = |bound: &str| {
            let is_it = |one: &&Sample| {
                one.name == "iopath_latency_seconds_bucket"
                    && one.labels == [("le".to_owned(), bound.to_owned())]
            };
            samples.iter().find(is_it).unwrap_or_else(|| panic!("{bound}: {text}")).value
        };
        assert_eq!(
            [bucket("0.000001024"), bucket("0.000002048"), bucket("+Inf")].map(|count| count as u64),
            [3, 6, 15]
        );
        assert_eq!(parse(&Metrics::default().text()).unwrap(), []);
    }

    #[test]
    fn the_strict_parser_refuses_what_the_format_forbids() {
        for (text, problem) in [
            ("# TYPE a counter\na_total 1\n", "EOF"),
            ("# TYPE a counter\na 1\n# EOF\n", "_total"),
            ("a 1\n# EOF\n", "TYPE"),
            ("# TYPE a gauge\na 1\na 2\n# EOF\n", "twice"),
            ("# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\na{x=\"1\"} 1\n# EOF\n", "family"),
            ("# TYPE a gauge\n# UNIT a bytes\na 1\n# EOF\n", "unit"),
            ("# TYPE a gauge\na{x=\"1} 1\n# EOF\n", "label"),
            ("# TYPE a gauge\na one\n# EOF\n", "number"),
            ("# TYPE a counter\na_total -1\n# EOF\n", "negative"),
            (
                "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_count 1\na_sum 1\n# EOF\n",
                "falls",
            ),
            ("# TYPE a histogram\na_bucket{le=\"1\"} 1\na_count 1\na_sum 1\n# EOF\n", "+Inf"),
            ("# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_count 2\na_sum 1\n# EOF\n", "count"),
            ("# EOF\n# TYPE a gauge\n", "EOF"),
        ] {
            let found = parse(text).unwrap_err();
            assert!(found.contains(problem), "{found}: {text}");
        }
    }

    #[test]
    fn the_documentation_has_each_family() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let page = std::fs::read_to_string(page).unwrap();
        for Family { name, kind, commands, help, .. } in FAMILIES {
            let row = format!("| `{name}` | {} | {commands} | {help} |", kind.name());
            assert!(page.contains(&row), "{row}");
        }
    }
}
