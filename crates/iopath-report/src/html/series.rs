//! Groups the runs of results for charts: which runs share a chart, which share a line, their names and colours.
//! Does not draw.

use crate::Rw;
use crate::numbers::digits;
use crate::result::RunResult;
use crate::size::format_size;

use super::chart::{HUES, SHADES};
use super::parts::Palette;
use crate::result::{PATH_NAMES, WITHOUT_TARGET};

/// The quantity on the x axis of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dimension {
    /// The block size in bytes.
    Block,
    /// Transfers in flight per job.
    Depth,
}

impl Dimension {
    pub(super) fn of(self, run: &RunResult) -> f64 {
        match self {
            Self::Block => f64::from(run.block_bytes),
            Self::Depth => f64::from(run.io_depth),
        }
    }

    pub(super) const fn in_words(self) -> &'static str {
        match self {
            Self::Block => "block size",
            Self::Depth => "depth",
        }
    }
}

/// A run with its names.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) result: &'a RunResult,
    /// The line it belongs to.
    pub(super) name: String,
    /// Its own name: that of the line, and its place on the line.
    pub(super) label: String,
}

/// Runs that share charts.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) title: String,
    pub(super) runs: Vec<Run<'a>>,
    /// The x axis; none if no quantity has three values or more.
    pub(super) dimension: Option<Dimension>,
}

impl Group<'_> {
    /// The names of the lines, each once, in the order of the runs.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !names.contains(&run.name.as_str()) {
                names.push(&run.name);
            }
        }
        names
    }

    /// Whether transfers per second compare the runs: random or durable ones of one size. Those of several sizes
    /// compare by their bytes.
    pub(super) fn counts_transfers(&self) -> bool {
        let mut results = self.runs.iter().map(|run| run.result);
        let size = self.runs.first().map(|run| run.result.block_bytes);
        results
            .all(|run| (run.rw.starts_with("rand") || run.flushes.is_some()) && Some(run.block_bytes) == size)
    }

    /// The colour of a line, or of a run by its label. On the whole page a path has one hue, and its lines in a chart
    /// are shades of it. Where that does not distinguish the lines, each name has a colour.
    pub(super) fn colour(&self, of: &Run, key: Key, palette: &mut Palette) -> usize {
        let mut keys: Vec<(&str, &str)> = Vec::new();
        for run in &self.runs {
            let entry = (run.result.path.as_str(), key(run));
            if !keys.contains(&entry) {
                keys.push(entry);
            }
        }
        let path = of.result.path.as_str();
        let of_path = |path: &str| keys.iter().filter(|(known, _)| *known == path).count();
        let is_distinct = keys.iter().all(|(known, _)| of_path(known) <= SHADES);
        if of_path(path) == keys.len() && keys.len() > 1 || !is_distinct {
            return palette.colour(key(of));
        }
        let shade = keys.iter().filter(|(known, _)| *known == path).position(|(_, name)| *name == key(of));
        hue(path) + HUES * shade.unwrap_or(0)
    }
}

/// The name of a run in a chart.
pub(super) type Key = for<'a> fn(&'a Run) -> &'a str;

/// The hue of a path: the same on every page. The last one is that of paths which this version does not know.
fn hue(path: &str) -> usize {
    PATH_NAMES.iter().position(|name| *name == path).unwrap_or(HUES - 1).min(HUES - 1)
}

/// Whether the path transfers bytes of a target. A run without one measures the tool.
pub(super) fn has_target(run: &RunResult) -> bool {
    !WITHOUT_TARGET.contains(&run.path.as_str())
}

/// The runs by direction and order, in the order of their first occurrence. `sources` are the names of the files; empty
/// names are not shown.
pub(super) fn groups<'a>(runs: &[(&str, &'a RunResult)]) -> Vec<Group<'a>> {
    let mut keys: Vec<(&str, bool, Option<u64>)> = Vec::new();
    let key_of =
        |run: &'a RunResult| (run.rw.as_str(), run.warm, run.flushes.as_ref().map(|flushes| flushes.every));
    for (_, run) in runs {
        let key = key_of(run);
        if has_target(run) && !keys.contains(&key) {
            keys.push(key);
        }
    }
    // Durable writes are a property of their own: after the groups of transfers.
    keys.sort_by_key(|(.., flush_every)| flush_every.is_some());
    keys.into_iter()
        .map(|key| {
            let of_key = runs.iter().filter(|(_, run)| has_target(run) && key_of(run) == key).copied();
            let runs: Vec<_> = of_key.collect();
            let dimension = dimension(&runs);
            Group { title: title(key), runs: named(&runs, dimension), dimension }
        })
        .collect()
}

fn title((rw, warm, flush_every): (&str, bool, Option<u64>)) -> String {
    let name = match rw.parse::<Rw>() {
        Ok(Rw::Read) => "Sequential reads",
        Ok(Rw::Write) => "Sequential writes",
        Ok(Rw::RandRead) => "Random reads",
        Ok(Rw::RandWrite) => "Random writes",
        Ok(Rw::Rw) => "Sequential reads and writes",
        Ok(Rw::RandRw) => "Random reads and writes",
        _ => rw,
    };
    let flushes = match flush_every {
        None => String::new(),
        Some(1) => ", durable: a flush after each".to_owned(),
        Some(every) => format!(", a flush after every {every} writes"),
    };
    format!("{name}{flushes}{}", if warm { ", from warm caches" } else { "" })
}

fn dimension(runs: &[(&str, &RunResult)]) -> Option<Dimension> {
    let has_three = |dimension: &Dimension| {
        let mut values: Vec<u64> = runs.iter().map(|(_, run)| dimension.of(run) as u64).collect();
        values.sort_unstable();
        values.dedup();
        values.len() >= 3
    };
    [Dimension::Block, Dimension::Depth].into_iter().find(has_three)
}

/// A property of a run that may be part of its name.
type Property = fn(&str, &RunResult) -> Option<String>;

/// The properties in the order in which a name gets them: the first three if they vary, the others until it is unique.
const PROPERTIES: [(Property, Option<Dimension>); 13] = [
    (|source, _| Some(source.to_owned()).filter(|source| !source.is_empty()), None),
    (|_, run| run.job.as_ref().map(|job| job.name.clone()), None),
    (|_, run| Some(run.path.clone()), None),
    (|_, run| Some(format_size(run.block_bytes.into())), Some(Dimension::Block)),
    (|_, run| Some(format!("depth {}", run.io_depth)), Some(Dimension::Depth)),
    (|_, run| Some(format!("{} jobs", run.jobs)), None),
    (|_, run| run.rate_iops.map(|rate| format!("{} IOPS asked", digits(rate))), None),
    (|_, run| run.think_ns.map(|ns| format!("think time {}", crate::numbers::time(ns))), None),
    (|_, run| run.cache.as_ref().filter(|cache| cache.borrow).map(|_| "borrowed".to_owned()), None),
    (|_, run| run.cache.as_ref().map(|cache| format!("cache {}", format_size(cache.cache_bytes))), None),
    (|_, run| run.block_sizes.as_ref().map(|sizes| format!("sizes {sizes}")), None),
    (|_, run| Some(run.workload.as_ref()?.text("distribution")?.to_owned()), None),
    (|_, run| Some(run.workload.as_ref()?.text("elevator")?.to_owned()), None),
];

const ALWAYS: usize = 3;

/// The names of runs: properties that vary, until each point of a line is unique.
fn named<'a>(runs: &[(&str, &'a RunResult)], dimension: Option<Dimension>) -> Vec<Run<'a>> {
    let varies = |property: Property| {
        let mut values = runs.iter().map(|(source, run)| property(source, run));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    // Files of different workloads are one line: their name is needed only if they have a workload in common.
    let same = |a: &RunResult, b: &RunResult| {
        PROPERTIES.iter().skip(1).all(|(property, _)| property("", a) == property("", b))
    };
    let has_rivals = (0..runs.len())
        .any(|at| (0..at).any(|before| runs[at].0 != runs[before].0 && same(runs[at].1, runs[before].1)));
    let mut names: Vec<Vec<String>> = vec![Vec::new(); runs.len()];
    let place = |run: &RunResult| dimension.map(|dimension| dimension.of(run).to_bits());
    for (index, (property, own)) in PROPERTIES.into_iter().enumerate() {
        let is_unique = (0..runs.len()).all(|at| {
            (0..at).all(|before| names[at] != names[before] || place(runs[at].1) != place(runs[before].1))
        });
        let is_axis = own.is_some() && own == dimension;
        let is_idle_source = index == 0 && !has_rivals;
        if is_axis || is_idle_source || !varies(property) || (index >= ALWAYS && is_unique) {
            continue;
        }
        for (name, (source, run)) in names.iter_mut().zip(runs) {
            name.extend(property(source, run));
        }
    }
    let mut known: Vec<(String, Option<u64>)> = Vec::new();
    let run = |(name, (_, run)): (Vec<String>, &(&str, &'a RunResult))| {
        let mut name = if name.is_empty() { run.path.clone() } else { name.join(", ") };
        // Nothing that a result states distinguishes them.
        let alike = known.iter().filter(|one| **one == (name.clone(), place(run))).count();
        known.push((name.clone(), place(run)));
        if alike > 0 {
            name = format!("{name}, {}", alike + 1);
        }
        let at = match dimension {
            Some(Dimension::Block) => format!("{name}, {}", format_size(run.block_bytes.into())),
            Some(Dimension::Depth) => format!("{name}, depth {}", run.io_depth),
            None => name.clone(),
        };
        Run { result: run, name, label: at }
    };
    names.into_iter().zip(runs).map(run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{run, with_flushes};

    #[test]
    fn runs_of_three_block_sizes_are_lines_by_path() {
        let runs: Vec<RunResult> = [
            ("kernel-direct", 4096),
            ("kernel-direct", 8192),
            ("kernel-direct", 16384),
            ("iopath-direct", 4096),
        ]
        .map(|(path, block)| run(path, Rw::Read, block, 1, &[1.0], 0.1))
        .into();
        let sources: Vec<(&str, &RunResult)> = runs.iter().map(|run| ("", run)).collect();
        let groups = groups(&sources);
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].dimension, Some(Dimension::Block));
        assert_eq!(groups[0].names(), ["kernel-direct", "iopath-direct"]);
        assert_eq!(groups[0].runs[0].label, "kernel-direct, 4 KiB");
    }

    #[test]
    fn a_name_has_what_distinguishes_its_runs() {
        let runs: Vec<RunResult> = [(4096, 1), (4096, 8), (65536, 1), (65536, 8)]
            .map(|(block, depth)| run("kernel-uring", Rw::RandRead, block, depth, &[1.0], 0.1))
            .into();
        let sources: Vec<(&str, &RunResult)> = runs.iter().map(|run| ("", run)).collect();
        let names = groups(&sources).remove(0);
        assert_eq!(names.dimension, None);
        assert_eq!(names.names(), ["4 KiB, depth 1", "4 KiB, depth 8", "64 KiB, depth 1", "64 KiB, depth 8"]);
    }

    #[test]
    fn files_with_the_same_workload_are_lines_of_their_own() {
        let one = run("kernel-uring", Rw::RandRead, 4096, 1, &[1.0], 0.1);
        let groups = groups(&[("a.json", &one), ("b.json", &one)]);
        assert_eq!(groups[0].names(), ["a.json", "b.json"]);
    }

    #[test]
    fn files_of_different_sizes_are_one_line() {
        let runs = [4096, 8192, 16384].map(|block| run("kernel-uring", Rw::Read, block, 1, &[1.0], 0.1));
        let groups = groups(&[("a.json", &runs[0]), ("b.json", &runs[1]), ("c.json", &runs[2])]);
        assert_eq!(groups[0].names(), ["kernel-uring"]);
    }

    #[test]
    fn a_path_without_a_target_has_no_chart() {
        let null = run("null", Rw::RandRead, 4096, 1, &[1.0], 0.1);
        assert!(groups(&[("", &null)]).is_empty());
    }

    #[test]
    fn durable_writes_are_a_group_of_their_own() {
        let runs = [
            run("kernel-direct", Rw::Write, 4096, 1, &[450.0], 0.1),
            with_flushes(run("kernel-direct", Rw::Write, 4096, 1, &[1.0], 0.1)),
        ];
        let groups = groups(&[("", &runs[0]), ("", &runs[1])]);
        let titles: Vec<&str> = groups.iter().map(|group| group.title.as_str()).collect();
        assert_eq!(titles, ["Sequential writes", "Sequential writes, durable: a flush after each"]);
        assert!(groups.iter().all(|group| group.runs.len() == 1));
    }

    #[test]
    fn a_path_has_one_hue_on_the_page_and_each_line_of_a_chart_its_colour() {
        let shapes = [
            ("kernel-direct", Rw::RandRead, 1),
            ("kernel-uring", Rw::RandRead, 1),
            ("kernel-uring", Rw::RandRead, 32),
            ("iopath-direct", Rw::Read, 1),
            ("kernel-uring", Rw::Read, 8),
            ("kernel-uring", Rw::Write, 1),
            ("kernel-uring", Rw::Write, 2),
        ];
        let of = |(path, rw, depth)| run(path, rw, 4096, depth, &[1.0], 0.1);
        let runs: Vec<RunResult> = shapes.into_iter().map(of).collect();
        let sources: Vec<(&str, &RunResult)> = runs.iter().map(|run| ("", run)).collect();
        let mut palette = Palette::default();
        let mut uring = Vec::new();
        for group in groups(&sources).iter().take(2) {
            let mut colours = Vec::new();
            for run in &group.runs {
                let colour = group.colour(run, |run| &run.label, &mut palette);
                assert!(!colours.contains(&colour), "{}: two lines of one colour", group.title);
                colours.push(colour);
                uring.extend(Some(colour % HUES).filter(|_| run.result.path == "kernel-uring"));
            }
        }
        assert!(uring.len() == 3 && uring.iter().all(|hue| *hue == uring[0]), "{uring:?}");
        let one_path = &groups(&sources)[2];
        let colours: Vec<usize> =
            one_path.runs.iter().map(|run| one_path.colour(run, |run| &run.label, &mut palette)).collect();
        assert_ne!(colours[0], colours[1]);
    }

    #[test]
    fn no_two_points_of_a_chart_have_one_name() {
        let copied = run("iopath-buffered", Rw::RandRead, 4096, 1, &[1.0], 0.1);
        let runs = [copied.clone(), copied.clone(), copied];
        let sources: Vec<(&str, &RunResult)> = runs.iter().map(|run| ("", run)).collect();
        assert_eq!(
            groups(&sources)[0].names(),
            ["iopath-buffered", "iopath-buffered, 2", "iopath-buffered, 3"]
        );
    }
}
