//! Refusals of a target: before a large scratch file is written, and after the target disappears during a run.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use iopath_bench::paths::find_path;
use iopath_bench::progress::{Silent, Stage};
use iopath_bench::{BenchError, BlockSize, Lab, Progress, Repetitions, Target, Workload};

/// Records the stages, and removes a file when a given stage begins.
#[derive(Default)]
struct Watch {
    stages: Vec<Stage>,
    remove_after: Option<(Stage, PathBuf)>,
}

impl Progress for Watch {
    fn stage(&mut self, stage: &Stage) {
        if let Some((_, path)) = self.remove_after.take_if(|(after, _)| after == stage) {
            fs::remove_file(path).unwrap();
        }
        self.stages.push(stage.clone());
    }

    fn advance(&mut self, _share: f64) {}
}

#[test]
fn unaligned_blocks_are_refused_before_a_scratch_file_is_filled() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for path in ["kernel-direct", "kernel-uring"] {
        let workload = Workload {
            path: find_path(path).unwrap(),
            target: Some(directory.path().to_owned()),
            block_size: BlockSize::constant(1000),
            size_bytes: Some(1_000_000),
            ..Workload::default()
        };
        let mut watch = Watch::default();
        match Target::prepare(&workload, &mut watch) {
            Err(BenchError::Unaligned { block_bytes: 1000, .. }) => {}
            Err(BenchError::Direct(error)) => eprintln!("skipped {path}: {error}"),
            other => panic!("{path}: {other:?}"),
        }
        assert_eq!(watch.stages, [], "{path}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "{path} leaves nothing");
    }
}

#[test]
fn a_target_that_is_removed_between_two_repetitions_is_reported_as_gone() {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(file.path(), vec![7; 1 << 20]).unwrap();
    let path = file.into_temp_path();
    let workload = Workload {
        target: Some(path.to_path_buf()),
        block_size: BlockSize::constant(64 << 10),
        repetitions: Repetitions::constant(2),
        ..Workload::default()
    };
    let target = Target::prepare(&workload, &mut Silent).unwrap();
    let first = Stage::Repeat { number: 1, count: 2 };
    let mut watch = Watch { remove_after: Some((first, path.to_path_buf())), ..Watch::default() };
    let error =
        Lab::new(Duration::from_millis(1), &mut Silent).run(&workload, &target, &mut watch).unwrap_err();
    assert!(matches!(error, BenchError::Gone { .. }), "{error}");
    assert!(
        error.to_string().ends_with("no longer exists: it was removed or renamed during the run"),
        "{error}"
    );
    path.keep().unwrap();
}
