//! Experiments on real storage, in small: the workloads run on scratch files, and nothing is left behind. Figures in
//! virtual time are tested in the file of each experiment.

use iopath_bench::BenchError;
use iopath_bench::progress::Silent;
use iopath_experiments::{ExperimentError, Selection, experiments};

/// The rows of an experiment in a fresh directory; none if the directory cannot do direct I/O.
fn rows(id: &str, set: &[&str]) -> Option<Vec<(String, f64)>> {
    let directory = tempfile::tempdir().unwrap();
    let selection = Selection {
        ids: vec![id.to_owned()],
        set: set.iter().map(ToString::to_string).collect(),
        target: Some(directory.path().to_owned()),
    };
    let report = match experiments(&selection, &mut Silent) {
        Ok(report) => report,
        Err(error @ ExperimentError::Bench(BenchError::Direct(_))) => {
            eprintln!("skipped {id}: {error}");
            return None;
        }
        Err(error) => panic!("{id}: {error}"),
    };
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "scratch files are removed");
    let report = &report.results[0].report;
    assert!(!report.directions.is_empty(), "{id}");
    assert!(report.rows.iter().all(|row| row.published.is_none() && row.ours.is_finite()), "{report:?}");
    Some(report.rows.iter().map(|row| (row.what.clone(), row.ours)).collect())
}

#[test]
fn copy_measures_each_test_on_both_paths() {
    let Some(rows) = rows("copy", &["file_mib=8", "cache_mib=4"]) else { return };
    assert_eq!(rows.len(), 12);
    assert!(rows.iter().all(|(what, ours)| what.starts_with("CPU") || *ours > 0.0), "{rows:?}");
}

#[test]
fn bigbio_compares_whole_writes_with_pieces() {
    let Some(rows) = rows("bigbio", &["total_mib=8"]) else { return };
    assert!((rows[0].1 - rows[1].1 / rows[2].1).abs() < 1e-9, "{rows:?}");
}

#[test]
fn log_compares_runs_with_and_without_it() {
    let Some(rows) = rows("log", &["requests=2000"]) else { return };
    assert!((rows[0].1 - (rows[2].1 / rows[3].1 - 1.0) * 100.0).abs() < 1e-9, "{rows:?}");
    assert!((0.0..=100.0).contains(&rows[1].1), "{rows:?}");
}
