//! The values of every parameter of every experiment: the ends of its range run, or are refused in one line that names
//! the parameter; values outside the range are refused with the range. Nothing panics.

use std::time::{Duration, Instant};

use iopath_bench::progress::Silent;
use iopath_experiments::ExperimentError;
use iopath_experiments::{EXPERIMENTS, Selection, experiments};
use iopath_report::experiment::ParameterKind;

/// Values that keep an experiment short. Those of a heavy experiment are tested alone.
const SHORT: &[(&str, &[&str])] = &[
    ("closest", &["ios=1000"]),
    ("merge", &["seconds=1"]),
    ("bomb", &["seconds=1"]),
    ("copy", &["file_mib=1", "cache_mib=1"]),
    ("bigbio", &["total_mib=1"]),
    ("log", &["requests=1000"]),
    ("freelist", &["total_mib=1"]),
    ("boundary", &["total_mib=8", "io_mib=4"]),
];

/// The experiments of the machine of 2002, with the parameters to test. They share a machine: `skew` tests its
/// parameters, `link` and `cpu` those of their further runs. Small pieces and requests multiply the work of a run.
const MACHINE_2002: &[(&str, &[&str])] = &[
    ("skew", &["pin_ns", "buffer_ns", "block_2_4_bytes", "bio_kib", "file_mib"]),
    ("link", &["readahead_kib", "block_2_5_bytes"]),
    ("cpu", &["pin_ns", "buffer_ns"]),
];

/// Parameters that multiply the work of a run: their upper end takes minutes.
const LONG: &[&str] = &[
    "seconds",
    "requests",
    "ios",
    "total_mib",
    "file_mib",
    "io_mib",
    "data_mib",
    "request_kib",
    "queued",
    "cache_mib",
];

/// A run that takes longer hangs: some take a minute in a build without optimisation on a busy machine.
const RUN_MAX: Duration = Duration::from_secs(1200);

fn run(id: &str, set: &[String]) -> Result<(), ExperimentError> {
    let selection = Selection { ids: vec![id.to_owned()], set: set.to_vec(), target: None };
    experiments(&selection, &mut Silent).map(|report| {
        let rows = &report.results[0].report.rows;
        assert!(rows.iter().all(|row| row.ours.is_finite()), "{id} {set:?}: {rows:?}");
    })
}

#[test]
fn experiment_values_outside_the_range_are_refused_with_the_range() {
    for experiment in EXPERIMENTS {
        for parameter in experiment.parameters {
            let outside: Vec<String> = match parameter.kind {
                ParameterKind::Count { range: (least, most), .. } => least
                    .checked_sub(1)
                    .into_iter()
                    .chain(most.checked_add(1))
                    .map(|value| value.to_string())
                    .chain(["1.5".to_owned()])
                    .collect(),
                ParameterKind::Number { range: (least, most), .. } => {
                    [least - 1.0, most * 2.0 + 1.0].iter().map(ToString::to_string).collect()
                }
                ParameterKind::Choice(_) => Vec::new(),
            };
            let never =
                ["NaN", "inf", "-inf", "-1", "1e308", "1e400", "", "zzz", "99999999999999999999999", "\u{7}"];
            for value in outside.iter().map(String::as_str).chain(never) {
                // Some numbers may be negative.
                if value == "-1"
                    && matches!(parameter.kind, ParameterKind::Number { range, .. } if range.0 <= -1.0)
                {
                    continue;
                }
                let error = run(experiment.id, &[format!("{}={value}", parameter.name)]).unwrap_err();
                let text = error.to_string();
                assert!(error.is_usage() && text.lines().count() <= 1 + value.lines().count(), "{text}");
                assert!(
                    text.contains(parameter.name) && text.contains(&parameter.values()),
                    "{value:?}: {text}"
                );
            }
        }
    }
}

#[test]
fn experiments_run_at_the_ends_of_every_range_or_refuse_them_by_name() {
    for (id, short) in SHORT {
        ends_run_or_are_refused(id, short, &|_| true);
    }
}

#[test]
fn experiments_of_2002_run_at_the_ends_of_every_range_or_refuse_them_by_name() {
    for (id, names) in MACHINE_2002 {
        ends_run_or_are_refused(id, &["data_mib=64"], &|name| names.contains(&name));
    }
}

/// Runs an experiment with both ends of the range of each selected parameter.
fn ends_run_or_are_refused(id: &str, short: &[&str], is_selected: &dyn Fn(&str) -> bool) {
    let experiment = EXPERIMENTS.iter().find(|one| one.id == id).unwrap();
    for parameter in experiment.parameters.iter().filter(|parameter| is_selected(parameter.name)) {
        let values: Vec<String> = match parameter.kind {
            ParameterKind::Count { range: (least, most), .. } => {
                [least, most].map(|end| end.to_string()).into()
            }
            ParameterKind::Number { range: (least, most), .. } => {
                [least, most].map(|end| end.to_string()).into()
            }
            ParameterKind::Choice(of) => of.iter().map(ToString::to_string).collect(),
        };
        let ends = if LONG.contains(&parameter.name) { 1 } else { values.len() };
        for value in &values[..ends] {
            let own = format!("{}={value}", parameter.name);
            let others = short.iter().filter(|set| !set.starts_with(&format!("{}=", parameter.name)));
            let set: Vec<String> = others.map(ToString::to_string).chain([own.clone()]).collect();
            let begun = Instant::now();
            if let Err(error) = run(id, &set) {
                let text = error.to_string();
                assert!(error.is_usage() && text.contains(&own) && text.lines().count() == 1, "{text}");
            }
            assert!(begun.elapsed() < RUN_MAX, "{id} {set:?} took {:?}", begun.elapsed());
        }
    }
}
