//! What is refused, and when: before anything large is written, and by what has happened since the run began.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use iopath_lab::progress::{Silent, Stage};
use iopath_lab::{Lab, LabError, Place, Progress, Workload};

/// Notes the stages, and removes a file when one of them comes.
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
fn blocks_that_direct_io_does_not_take_are_refused_before_a_scratch_file_is_filled() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for path in ["kernel-direct", "kernel-uring"] {
        let workload = Workload {
            path: path.to_owned(),
            target: Some(directory.path().to_owned()),
            block_bytes: 1000,
            size_bytes: Some(1_000_000),
            ..Workload::default()
        };
        let row = workload.check().unwrap();
        let mut watch = Watch::default();
        match Place::prepare(&workload, row, &mut watch) {
            Err(LabError::Unaligned { block_bytes: 1000, .. }) => {}
            Err(LabError::Direct(error)) => eprintln!("skipped {path}: {error}"),
            other => panic!("{path}: {other:?}"),
        }
        assert_eq!(watch.stages, [], "{path}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "{path} leaves nothing");
    }
}

#[test]
fn a_target_that_is_removed_between_two_repeats_is_gone() {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(file.path(), vec![7; 1 << 20]).unwrap();
    let path = file.into_temp_path();
    let workload = Workload {
        path: "kernel-buffered".to_owned(),
        target: Some(path.to_path_buf()),
        block_bytes: 64 << 10,
        repeat: 2,
        ..Workload::default()
    };
    let place = Place::prepare(&workload, workload.check().unwrap(), &mut Silent).unwrap();
    let first = Stage::Repeat { number: 1, count: 2 };
    let mut watch = Watch { remove_after: Some((first, path.to_path_buf())), ..Watch::default() };
    let error =
        Lab::new(Duration::from_millis(1), &mut Silent).run(&workload, &place, &mut watch).unwrap_err();
    assert!(matches!(error, LabError::Gone { .. }), "{error}");
    assert!(error.to_string().ends_with("is gone: it was removed or renamed since the run began"), "{error}");
    path.keep().unwrap();
}
