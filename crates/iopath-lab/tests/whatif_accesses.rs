//! Replays of file accesses from a log: the second level of a log reproduces a run through the page cache, and predicts
//! runs with another readahead or cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use iopath_bench::paths::find_path;
use iopath_bench::progress::Silent;
use iopath_bench::{BlockSize, CacheSettings, End, Jobs, LogSettings, Readahead, Repetitions, Workload};
use iopath_lab::whatif::{Axes, WhatIf};
use iopath_log::{Filter, LogReader};
use iopath_report::Rw;
use iopath_report::format::{Document as _, View};
use iopath_report::result::RunResult;
use iopath_report::whatif::InputReport;

const MIB: u64 = 1 << 20;

/// Two sequential readers of 16 KiB through a page cache of iopath, with pauses.
fn readers(readahead: Readahead) -> Workload {
    Workload {
        path: find_path("iopath-buffered").unwrap(),
        target: Some("model:hdd-20tb".into()),
        rw: Rw::Read,
        block_size: BlockSize::new(16384_u32).unwrap(),
        jobs: Jobs::new(2_u32).unwrap(),
        size_bytes: Some(4096 * MIB),
        end: End::Time(Duration::from_secs(4)),
        think: Duration::from_micros(500),
        cache: CacheSettings { readahead: Some(readahead), ..CacheSettings::default() },
        repetitions: Repetitions::constant(1),
        ..Workload::default()
    }
}

fn measured(workload: &Workload, log: Option<&Path>) -> RunResult {
    let log = log.map(|file| LogSettings { file: file.to_owned(), limit_bytes: None, accesses: true });
    let report = iopath_bench::report(&Workload { log, ..workload.clone() }, &mut Silent).unwrap();
    report.runs.into_iter().next().unwrap()
}

fn study(log: &Path, axes: Axes) -> WhatIf {
    WhatIf {
        inputs: vec![log.to_owned()],
        axes,
        speed: 1.0,
        closed: true,
        seeds: 1,
        by: None,
        wrap: false,
        shard: None,
        threads: Some(1),
    }
}

fn input(study: &WhatIf) -> InputReport {
    study.run(&mut Silent).unwrap().inputs.remove(0)
}

fn log_in(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("run.log")
}

#[test]
fn accesses_of_one_run_predict_runs_with_another_readahead() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory);
    let recorded = measured(&readers(Readahead::Linux(128 << 10)), Some(&log));
    let readaheads = vec![Readahead::Off, Readahead::Linux(128 << 10), Readahead::Linux(2 << 20)];
    let input = input(&study(&log, Axes { readaheads: readaheads.clone(), ..Axes::default() }));
    assert!(input.accesses && input.requests > 1000, "{} requests", input.requests);
    assert_eq!(input.cells.len(), 3, "the recorded settings are one of the alternatives");
    let of_recorded = input.recorded.unwrap();
    assert!((of_recorded.bytes_per_s / recorded.bytes_per_second.mean - 1.0).abs() < 0.02);
    for (cell, readahead) in input.cells.iter().zip(readaheads) {
        let run = measured(&readers(readahead), None);
        let (predicted, measured) = (cell.figures.bytes_per_s, run.bytes_per_second.mean);
        let deviation = predicted / measured - 1.0;
        assert!(deviation.abs() < 0.05, "{readahead:?}: {predicted} predicted, {measured} measured");
    }
    let [off, _, large] = [0, 1, 2].map(|index| input.cells[index].figures.bytes_per_s);
    assert!(large > 5.0 * off, "readahead must matter in this test: {off}, {large}");
}

#[test]
fn a_log_without_accesses_refuses_another_readahead_and_names_the_option() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory);
    let settings = LogSettings { file: log.clone(), limit_bytes: None, accesses: false };
    let workload = Workload { log: Some(settings), ..readers(Readahead::Auto) };
    iopath_bench::report(&workload, &mut Silent).unwrap();
    let axes = Axes { readaheads: vec![Readahead::Off], ..Axes::default() };
    let error = study(&log, axes).run(&mut Silent).unwrap_err().to_string();
    assert!(error.contains("--log-accesses"), "{error}");
    assert!(!input(&study(&log, Axes::default())).accesses, "requests are replayed");
}

#[test]
fn accesses_and_requests_are_counted_apart() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory);
    let workload =
        Workload { rw: Rw::RandRw, flush_every: std::num::NonZeroU64::new(10), ..readers(Readahead::Off) };
    let result = measured(&workload, Some(&log));
    let report = LogReader::open(&log).unwrap().summarise(&Filter::default()).unwrap();
    let access = report.file_access.as_ref().unwrap();
    let of = |op: &str| access.ops.iter().find(|one| one.op == op).unwrap();
    assert_eq!(of("read").accesses + of("write").accesses, result.ios);
    assert_eq!(of("read").bytes + of("write").bytes, result.bytes);
    assert_eq!(of("flush").completed, result.flushes.unwrap().count);
    assert_eq!((report.queues, report.unjoined, access.unjoined), (1, 0, 0));
    let page = report.text(View::plain(Some(100)));
    assert!(page.contains("file access") && page.contains("1 queue,"), "{page}");
    let reads = Filter { events: vec![iopath_core::log::Event::Access], ..Filter::default() };
    let mut lines = Vec::new();
    LogReader::open(&log).unwrap().dump(&reads, &mut lines).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    assert!(lines.lines().next().unwrap().contains("16384 bytes at "), "{lines}");
    assert_eq!(lines.lines().count() as u64, access.ops.iter().map(|one| one.accesses).sum::<u64>());
}

#[test]
fn kernel_paths_log_accesses_only() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory);
    let workload = Workload {
        path: find_path("kernel-buffered").unwrap(),
        target: Some(directory.path().to_owned()),
        size_bytes: Some(MIB),
        repetitions: Repetitions::constant(1),
        ..Workload::default()
    };
    let result = measured(&workload, Some(&log));
    let report = LogReader::open(&log).unwrap().summarise(&Filter::default()).unwrap();
    assert_eq!(report.file_access.unwrap().ops[0].completed, result.ios);
    assert_eq!((report.log.elevator.as_str(), report.queues, report.events.queue), ("", 0, 0));
    let axes = Axes {
        targets: vec!["model:hdd-20tb".into()],
        readaheads: vec![Readahead::Off, Readahead::Auto],
        ..Axes::default()
    };
    let input = input(&study(&log, axes));
    assert_eq!((input.cells.len(), input.accesses), (2, true));
    let error = study(&log, Axes::default()).run(&mut Silent).unwrap_err().to_string();
    assert!(error.contains("name a model"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "only the log remains");
}
