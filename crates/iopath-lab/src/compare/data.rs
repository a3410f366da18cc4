//! The data of a comparison, independent of the format of its source: workloads with facts and samples. Does not read
//! files.

use std::collections::BTreeSet;
use std::fmt::Write;

use iopath_report::Rw;
use iopath_report::size::format_size;

/// A quantity with one value per repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Metric {
    /// The name in results and options.
    pub(crate) name: &'static str,
    /// The unit of displayed values.
    pub(crate) unit: &'static str,
    /// The number by which a stored value is divided for display.
    pub(crate) scale: u64,
    /// Whether a larger value is better.
    pub(crate) is_higher_better: bool,
    /// Whether the metric is a cost: its verdicts are then `cheaper` and `costlier`.
    pub(crate) is_cost: bool,
}

const fn metric(name: &'static str, unit: &'static str, scale: u64, is_higher_better: bool) -> Metric {
    Metric { name, unit, scale, is_higher_better, is_cost: false }
}

/// Bytes per second.
pub(crate) const THROUGHPUT: Metric = metric("throughput", "MB/s", 1_000_000, true);
/// Transfers per second.
pub(crate) const IOPS: Metric = metric("iops", "IOPS", 1, true);
/// The mean latency in nanoseconds.
pub(crate) const LATENCY: Metric = metric("latency", "µs", 1000, false);
/// Percentiles of the latency in nanoseconds.
pub(crate) const P50: Metric = metric("p50", "µs", 1000, false);
/// See [`P50`].
pub(crate) const P90: Metric = metric("p90", "µs", 1000, false);
/// See [`P50`].
pub(crate) const P99: Metric = metric("p99", "µs", 1000, false);
/// See [`P50`].
pub(crate) const P999: Metric = metric("p999", "µs", 1000, false);
/// CPU seconds per GiB.
pub(crate) const CPU: Metric = Metric { is_cost: true, ..metric("cpu", "s/GiB", 1, false) };
/// The wall time of a command in seconds.
pub(crate) const TIME: Metric = metric("time", "s", 1, false);

/// All metrics, in the order of a table.
pub(crate) const METRICS: [Metric; 9] = [THROUGHPUT, IOPS, TIME, LATENCY, P50, P90, P99, P999, CPU];

/// The key of the medium that served a run.
pub(crate) const SERVED_BY: &str = "served-by";

/// The key of the latency whose percentiles fio recorded.
pub(crate) const LATENCY_OF: &str = "latency-of";

/// The key of the number of clones that a result contains.
pub(crate) const CLONES: &str = "clones";

/// The key of direct I/O.
pub(crate) const DIRECT: &str = "direct";

/// The key of the file or device.
pub(crate) const TARGET: &str = "target";

/// The key of the group of a job: it may change, but distinguishes jobs that are equal otherwise.
pub(crate) const GROUP: &str = "group";

/// The target of a run that iopath makes and removes. fio makes a file of the name in the job instead.
pub(crate) const SCRATCH: &str = "scratch file";

/// Conditions that do not distinguish the workloads of a file: they may be unknown, or are to be equal in both
/// partners.
const OF_PARTNERS: [&str; 3] = [SERVED_BY, LATENCY_OF, CLONES];

/// A condition of a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) key: String,
    pub(crate) value: String,
    /// Whether a comparison of different values is refused. Other facts are settings that people vary; a difference is
    /// shown.
    pub(crate) is_identity: bool,
}

/// The value of a fact as text.
#[derive(Debug)]
pub(crate) struct Value(String);

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self(text.clone())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self(flag.to_string())
    }
}

/// One workload of a source.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Run {
    facts: Vec<Fact>,
    /// The values of each metric, one per repetition.
    pub(crate) samples: Vec<(Metric, Vec<f64>)>,
}

impl Run {
    /// Adds a fact that must be equal on both sides.
    pub(crate) fn identity(&mut self, key: &str, value: impl Into<Value>) {
        self.facts.push(Fact { key: key.to_owned(), value: value.into().0, is_identity: true });
    }

    /// Adds a fact that may differ.
    pub(crate) fn setting(&mut self, key: &str, value: impl Into<Value>) {
        self.facts.push(Fact { key: key.to_owned(), value: value.into().0, is_identity: false });
    }

    /// Adds a fact that must be equal on both sides, instead of one with this name.
    pub(crate) fn replace(&mut self, key: &str, value: &str) {
        self.facts.retain(|fact| fact.key != key);
        self.identity(key, value);
    }

    /// Adds a metric, if each repetition has its value.
    pub(crate) fn sample(&mut self, metric: Metric, values: Option<Vec<f64>>) {
        self.samples.extend(values.map(|values| (metric, values)));
    }

    pub(crate) fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// The value of a fact.
    pub(crate) fn fact(&self, key: &str) -> Option<&str> {
        self.facts.iter().find(|fact| fact.key == key).map(|fact| fact.value.as_str())
    }

    /// The values of a metric.
    pub(crate) fn values(&self, metric: Metric) -> Option<&[f64]> {
        let (_, values) = self.samples.iter().find(|(known, _)| *known == metric)?;
        Some(values)
    }

    /// The conditions that distinguish the workloads of a file.
    pub(crate) fn distinguishing(&self) -> impl Iterator<Item = &str> {
        let is = |fact: &&Fact| fact.is_identity && !OF_PARTNERS.contains(&fact.key.as_str());
        self.facts.iter().filter(is).map(|fact| fact.key.as_str())
    }

    /// The values of some conditions, as a text that is equal for equal values.
    pub(crate) fn signature(&self, keys: &BTreeSet<String>) -> String {
        let value = |key: &str| self.facts.iter().find(|fact| fact.is_identity && fact.key == key);
        keys.iter().fold(String::new(), |mut text, key| {
            let _ = writeln!(text, "{key:?}={:?}", value(key).map(|fact| &fact.value));
            text
        })
    }

    /// The workload in words: the facts that describe the transfers.
    pub(crate) fn workload(&self) -> String {
        let names = ["job", GROUP, "path", "engine", "rw", "direction", "bs", "iodepth", "numjobs"];
        let shown = names.iter().filter_map(|name| {
            let fact = self.facts.iter().find(|fact| fact.key == *name)?;
            match *name {
                "bs" | "iodepth" | "numjobs" => Some(format!("{name} {}", fact.value)),
                GROUP => fact.is_identity.then(|| format!("{name} {}", fact.value)),
                // The pattern states its only direction.
                "direction" => only_direction(self.fact("rw")).is_none().then(|| fact.value.clone()),
                _ => Some(fact.value.clone()),
            }
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// A fact with different values on the two sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) key: String,
    pub(crate) values: [String; 2],
    pub(crate) is_identity: bool,
}

/// The facts that both runs have with different values.
pub(crate) fn differences(a: &Run, b: &Run) -> Vec<Difference> {
    let is_one_tool = a.fact("tool") == b.fact("tool");
    // fio states no path, and its direct I/O is a condition.
    let is_one_path = a.fact("path").zip(b.fact("path")).is_none_or(|(a, b)| a == b);
    let differing = a.facts.iter().filter_map(|fact| {
        let other = b.facts.iter().find(|other| other.key == fact.key && other.value != fact.value)?;
        let values = [fact.value.clone(), other.value.clone()];
        let is_made_by_tool = fact.key == TARGET && !is_one_tool && values.iter().any(|one| one == SCRATCH);
        let is_identity = fact.is_identity && other.is_identity;
        // The path determines it.
        let is_of_path = fact.key == DIRECT && !is_one_path;
        (!is_made_by_tool && !is_of_path).then(|| Difference { key: fact.key.clone(), values, is_identity })
    });
    differing.collect()
}

/// The direction of all transfers of a pattern.
pub(crate) fn only_direction(rw: Option<&str>) -> Option<&'static str> {
    rw?.parse::<Rw>().ok()?.only_direction()
}

/// The range of a workload.
pub(crate) fn range(start_bytes: u64, end_bytes: u64) -> String {
    format!("{}..{}", format_size(start_bytes), format_size(end_bytes))
}
