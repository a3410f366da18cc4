//! Lists of workloads: what a failure or a refusal ends.

use std::fs;
use std::path::{Path, PathBuf};

use iopath_bench::paths::find_path;
use iopath_bench::progress::{Progress, Silent, Stage};
use iopath_bench::{BlockSize, End, Repetitions, Workload};
use iopath_lab::report_all;
use iopath_report::Rw;

fn on_file(file: &Path, rw: Rw, block_bytes: u32) -> Workload {
    Workload {
        path: find_path("iopath-buffered").unwrap(),
        target: Some(file.to_owned()),
        rw,
        block_size: BlockSize::constant(block_bytes),
        end: End::Pass,
        repetitions: Repetitions::constant(2),
        ..Workload::default()
    }
}

/// Removes a file before the second round.
struct Unlink(PathBuf);

impl Progress for Unlink {
    fn stage(&mut self, stage: &Stage) {
        if matches!(stage, Stage::Combination { number: 2, .. }) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn advance(&mut self, _done: f64) {}
}

#[test]
fn what_was_measured_before_the_target_disappeared_stays() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("data");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let list = [on_file(&file, Rw::Read, 4096), on_file(&file, Rw::Read, 8192)];
    let report = report_all(&list, &mut Unlink(file.clone())).unwrap();
    assert!(report.failure.is_some_and(|failure| failure.contains("data")), "{:?}", report.skipped);
    let repetitions: Vec<_> = report.runs.iter().map(|run| run.repeats.len()).collect();
    assert_eq!(repetitions, [1, 1]);
}

#[test]
fn without_the_permission_to_overwrite_the_reads_run_and_the_writes_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("data");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let list = [
        on_file(&file, Rw::Read, 4096),
        on_file(&file, Rw::Write, 4096),
        on_file(&file, Rw::RandWrite, 4096),
    ];
    let report = report_all(&list, &mut Silent).unwrap();
    assert_eq!(report.runs.len(), 1);
    assert_eq!(report.skipped.len(), 2, "{:?}", report.skipped);
    assert!(fs::read(&file).unwrap().iter().all(|byte| *byte == 7), "no write has happened");
    assert!(report_all(&list[1..], &mut Silent).unwrap_err().to_string().contains("overwrit"));
}
