//! Replays of recorded requests: a run on a model and its replay on the same model are the same, figures computed by
//! hand, and results that depend neither on threads nor on shares.

use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use iopath_bench::paths::find_path;
use iopath_bench::progress::Silent;
use iopath_bench::{
    BlockSize, Depth, DeviceDepth, End, Jobs, LogSettings, Rate, RateProcess, Repetitions, Workload,
};
use iopath_lab::whatif::{Axes, WhatIf, merge, parse_elevators};
use iopath_report::Rw;
use iopath_report::format::{Document, View};
use iopath_report::whatif::{CellReport, InputReport, METRICS, WhatIfReport};

const MIB: u64 = 1 << 20;

/// A disk whose figures follow from its parameters: a fixed latency for each request, and one request at a time for
/// depth 1.
fn steady(latency_us: u32, depth: u32) -> String {
    format!(
        "kind = \"cloud\"\ncapacity_gib = 1\nlatency_min_us = {latency_us}\nlatency_p50_us = {latency_us}\n\
         latency_p99_us = {latency_us}\nlatency_max_us = {latency_us}\nsustained_iops = 1e6\nburst_iops = 1e6\n\
         credits = 0\nio_unit_kib = 1024\nsustained_mib_per_s = 1e5\nburst_mib_per_s = 1e5\ncredits_mib = 0\n\
         depth_max = {depth}\n"
    )
}

/// Files of a test.
struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The name of a model in a file.
    fn model(&self, name: &str, text: &str) -> PathBuf {
        PathBuf::from(format!("model:{}", self.write(&format!("{name}.toml"), text).display()))
    }

    /// The log of a workload.
    fn log(&self, name: &str, workload: &Workload) -> PathBuf {
        let file = self.directory.path().join(name);
        let log = Some(LogSettings { file: file.clone(), limit_bytes: None, accesses: false });
        iopath_bench::report(&Workload { log, ..workload.clone() }, &mut Silent).unwrap();
        file
    }
}

fn on(target: impl Into<PathBuf>) -> Workload {
    Workload {
        path: find_path("iopath-direct").unwrap(),
        target: Some(target.into()),
        repetitions: Repetitions::constant(1),
        ..Workload::default()
    }
}

fn study(input: &Path) -> WhatIf {
    WhatIf {
        inputs: vec![input.to_owned()],
        axes: Axes::default(),
        speed: 1.0,
        closed: false,
        seeds: 1,
        by: None,
        wrap: false,
        shard: None,
        threads: Some(1),
    }
}

fn run(study: &WhatIf) -> WhatIfReport {
    study.run(&mut Silent).unwrap()
}

/// The only input of a study.
fn input(study: &WhatIf) -> InputReport {
    run(study).inputs.remove(0)
}

/// The only alternative of a study.
fn cell(study: &WhatIf) -> CellReport {
    input(study).cells.remove(0)
}

fn error(study: &WhatIf) -> String {
    study.run(&mut Silent).unwrap_err().to_string()
}

fn near(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= expected.abs() * tolerance, "{value} is not {expected}");
}

fn with_target(study: WhatIf, target: &Path) -> WhatIf {
    WhatIf { axes: Axes { targets: vec![target.to_owned()], ..study.axes }, ..study }
}

/// The replay of a recorded run on its model, with its settings, has the figures of the run: each request has the same
/// latency. With several queues, the log does not have the order of simultaneous requests of different queues, so
/// figures are close.
fn assert_reproduced(name: &str, workload: &Workload, has_one_queue: bool) {
    let files = Files::new();
    let log = files.log("run.log", workload);
    for closed in [false, true] {
        let input = input(&WhatIf { closed, ..study(&log) });
        let recorded = input.recorded.expect("the log has completions");
        let replayed = input.cells.last().unwrap().figures;
        assert!(input.requests > 100, "{name}: {}", input.requests);
        if has_one_queue {
            assert_eq!(replayed, recorded, "{name}, closed: {closed}");
            continue;
        }
        for metric in METRICS.iter().filter(|metric| !["p99", "p99.9", "seek"].contains(&metric.name)) {
            let [replayed, recorded] = [&replayed, &recorded].map(|figures| metric.value(figures));
            let deviation = (replayed - recorded).abs() / recorded;
            assert!(deviation < 0.1, "{name}, closed: {closed}, {}: {replayed}, not {recorded}", metric.name);
        }
    }
}

#[test]
fn a_replay_on_the_recorded_model_has_the_recorded_latencies() {
    for target in ["model:cloud", "model:hdd-20tb", "model:ssd-nvme", "model:sata-2006"] {
        for (elevator, jobs, depth) in
            [("none", 1_u32, 1_u32), ("none", 3, 8), ("deadline", 4, 16), ("fair", 2, 4)]
        {
            // The order of simultaneous requests decides the seeks of a disk.
            let has_one_queue = elevator != "none" || jobs == 1;
            if !has_one_queue && !["model:cloud", "model:ssd-nvme"].contains(&target) {
                continue;
            }
            for rw in [Rw::RandRw, Rw::Read] {
                let workload = Workload {
                    rw,
                    jobs: Jobs::new(jobs).unwrap(),
                    depth: Depth::new(depth).unwrap(),
                    elevator: Some(elevator.parse().unwrap()),
                    device_depth: (elevator != "none").then(|| DeviceDepth::new(4_u32).unwrap()),
                    size_bytes: Some(64 * MIB),
                    end: End::Time(Duration::from_millis(if target == "model:ssd-nvme" {
                        100
                    } else {
                        2000
                    })),
                    block_size: BlockSize::new(16384_u32).unwrap(),
                    ..on(target)
                };
                assert_reproduced(
                    &format!("{target} {elevator} {jobs} {depth} {}", rw.name()),
                    &workload,
                    elevator != "none" || jobs == 1,
                );
            }
        }
    }
}

#[test]
fn a_replay_of_requests_at_random_times_has_the_recorded_latencies() {
    let workload = Workload {
        rw: Rw::RandRw,
        rate: Some(Rate::Ios(NonZeroU64::new(150).unwrap())),
        rate_process: RateProcess::Poisson,
        depth: Depth::new(32_u32).unwrap(),
        elevator: Some("closest".parse().unwrap()),
        size_bytes: Some(1024 * MIB),
        end: End::Time(Duration::from_secs(10)),
        ..on("model:hdd-20tb")
    };
    assert_reproduced("poisson", &workload, true);
}

#[test]
fn figures_of_a_trace_computed_by_hand() {
    let files = Files::new();
    let model = files.model("steady", &steady(1000, 1));
    // Each request takes 1 ms, one after another: the latencies are 1, 1.5 and 1 ms; the last ends at 11 ms.
    let trace = files
        .write("t.csv", "time_ns,op,sector,sectors\n0,read,0,8\n500000,write,800,16\n10000000,read,0,8\n");
    let study = with_target(study(&trace), &model);
    let figures = cell(&study).figures;
    near(figures.mean_ns, (1.0 + 1.5 + 1.0) / 3.0 * 1e6, 1e-3);
    near(figures.bytes_per_s, 16384.0 / 11e-3, 1e-3);
    near(figures.iops, 3.0 / 11e-3, 1e-3);
    near(figures.utilisation, 3.0 / 11.0, 1e-3);
    near(figures.device_ios, 3.0, 0.0);
    near(figures.request_bytes, 16384.0 / 3.0, 1e-9);
    // From 8 to 800, and from 816 back to 0.
    near(figures.seek_bytes, 804.0 * 512.0, 1e-9);
    // At a tenth of the speed, no request waits for another.
    let slow = cell(&WhatIf { speed: 0.1, ..study.clone() }).figures;
    near(slow.mean_ns, 1e6, 1e-3);
    near(slow.iops, 3.0 / 101e-3, 1e-3);
    // Without a limit of one request at a time, none waits either.
    let wide = files.model("wide", &steady(1000, 8));
    near(cell(&with_target(study.clone(), &wide)).figures.mean_ns, 1e6, 1e-3);
    let axes = Axes { targets: vec![wide], depths: vec![1, 8], ..Axes::default() };
    let depths = input(&WhatIf { axes, ..study }).cells;
    near(depths[0].figures.mean_ns, 3.5e6 / 3.0, 1e-3);
    near(depths[1].figures.mean_ns, 1e6, 1e-3);
}

#[test]
fn limits_of_requests_and_merges_are_alternatives() {
    let files = Files::new();
    let model = files.model("steady", &steady(1000, 1));
    // While the first request is at the device, four adjacent ones wait in the elevator.
    let trace = files.write(
        "t.csv",
        "time_ns,op,sector,sectors\n0,read,9000,8\n1000,read,0,8\n2000,read,8,8\n3000,read,16,8\n4000,read,24,8\n",
    );
    let axes = Axes {
        targets: vec![model],
        elevators: parse_elevators("deadline").unwrap(),
        max_sectors_bytes: vec![4096, 8192, MIB],
        merges: vec![true, false],
        ..Axes::default()
    };
    let cells = input(&WhatIf { axes, ..study(&trace) }).cells;
    let of = |name: &str| cells.iter().find(|cell| cell.name == name).unwrap().figures.device_ios;
    let shown: Vec<f64> =
        ["max 1 MiB", "max 8 KiB", "max 4 KiB", "max 1 MiB, unmerged"].into_iter().map(of).collect();
    assert_eq!(shown, [2.0, 3.0, 5.0, 5.0]);
}

#[test]
fn a_closed_replay_keeps_dependencies_and_an_open_one_the_times() {
    let files = Files::new();
    let [fast, slow] =
        [("fast", 1000), ("slow", 3000)].map(|(name, latency)| files.model(name, &steady(latency, 1)));
    // One request at a time, with 1 ms of thought after each: 600 requests in 1.2 s.
    let workload = Workload {
        rw: Rw::RandRead,
        think: Duration::from_millis(1),
        end: End::Time(Duration::from_millis(1200)),
        ..on(fast)
    };
    let log = files.log("run.log", &workload);
    let study = with_target(study(&log), &slow);
    let closed = input(&WhatIf { closed: true, ..study.clone() });
    let recorded = closed.recorded.unwrap();
    near(recorded.iops, 500.0, 0.01);
    // 3 ms of latency and 1 ms of thought.
    near(closed.cells[0].figures.iops, 250.0, 0.01);
    near(closed.cells[0].figures.mean_ns, 3e6, 1e-3);
    near(closed.cells[0].against_recorded.unwrap().iops.unwrap().fraction, -0.5, 0.01);
    // A request each 2 ms, and 3 ms for each: the n-th request waits for n ms.
    let open = cell(&study).figures;
    near(open.iops, 333.0, 0.01);
    near(open.mean_ns, 3e6 + 1e6 * closed.requests as f64 / 2.0, 0.01);
}

#[test]
fn each_disk_of_a_trace_is_a_model_of_its_own() {
    let files = Files::new();
    let model = files.model("steady", &steady(1000, 1));
    let lines = "0,read,0,8,0\n0,read,0,8,1\n0,read,0,8,2\n0,read,0,8,3\n".repeat(10);
    let trace = files.write("t.csv", &format!("time_ns,op,sector,sectors,disk\n{lines}"));
    let input = input(&with_target(study(&trace), &model));
    assert_eq!((input.devices, input.streams), (4, 4));
    // Ten requests of each disk, one after another: 1 to 10 ms.
    near(input.cells[0].figures.mean_ns, 5.5e6, 1e-3);
    near(input.cells[0].figures.iops, 40.0 / 10e-3, 1e-3);
    near(input.cells[0].figures.fairness, 1.0, 1e-9);
}

/// A log and a trace with three alternatives each.
fn matrix(files: &Files) -> WhatIf {
    let workload = Workload {
        rw: Rw::RandRw,
        jobs: Jobs::new(4_u32).unwrap(),
        depth: Depth::new(8_u32).unwrap(),
        size_bytes: Some(512 * MIB),
        end: End::Time(Duration::from_secs(1)),
        ..on("model:cloud")
    };
    let log = files.log("run.log", &workload);
    let line = |number: u64| {
        let sector = number * 7_919_000 % 1_800_000 / 8 * 8;
        format!("{},{},{sector},8,{}\n", number * 300_000, ["read", "write"][number as usize % 2], number % 3)
    };
    let lines: String = (0..800).map(line).collect();
    let trace = files.write("t.csv", &format!("time_ns,op,sector,sectors,stream\n{lines}"));
    let axes = Axes {
        targets: vec![PathBuf::from("model:cloud")],
        elevators: parse_elevators("none,deadline,ascend").unwrap(),
        ..Axes::default()
    };
    WhatIf { axes, inputs: vec![log, trace], seeds: 3, ..study(Path::new("")) }
}

#[test]
fn results_depend_neither_on_threads_nor_on_shares() {
    let files = Files::new();
    let study = matrix(&files);
    let whole = run(&study);
    let cells: Vec<usize> = whole.inputs.iter().map(|input| input.cells.len()).collect();
    assert_eq!(cells, [3, 3]);
    assert!(whole.inputs.iter().all(|input| input.verdict.is_some()));
    assert_eq!(run(&WhatIf { threads: Some(4), ..study.clone() }), whole);
    for count in [2, 7] {
        let part = |number: u64| {
            let shard = Some(format!("{number}/{count}").parse().unwrap());
            let part = run(&WhatIf { shard, ..study.clone() });
            files.write(&format!("{number}-{count}.json"), &part.to_json())
        };
        // In another order than that of the shares.
        let parts: Vec<PathBuf> = (1..=count).rev().map(part).collect();
        let merged = merge(&parts).unwrap();
        assert_eq!(merged.to_json(), whole.to_json(), "{count} shares");
        assert_eq!(merged.to_json_lines(), whole.to_json_lines());
        assert_eq!(merged.text(View::plain(Some(100))), whole.text(View::plain(Some(100))));
        let missing = merge(&parts[..1]).unwrap_err().to_string();
        assert!(missing.contains("of 6 cells"), "{missing}");
        let twice = merge(&[parts[count as usize - 1].clone(), parts[count as usize - 1].clone()]);
        assert!(twice.unwrap_err().to_string().contains("name each part once"));
    }
    let other = run(&WhatIf { seeds: 2, shard: "2/2".parse().ok(), ..study });
    let other = files.write("other.json", &other.to_json());
    let mixed = merge(&[files.directory.path().join("1-2.json"), other]).unwrap_err();
    assert!(mixed.to_string().contains("of another study"), "{mixed}");
}

#[test]
fn requests_that_a_model_cannot_execute_are_refused_with_both_sizes() {
    let files = Files::new();
    let model = files.model("steady", &steady(1000, 1));
    let head = "time_ns,op,sector,sectors\n";
    let far = files.write("far.csv", &format!("{head}0,read,3000000,8\n1,read,8,8\n"));
    let far = with_target(study(&far), &model);
    let text = error(&far);
    assert!(text.contains("up to sector 3000008") && text.contains("has 2097152 sectors"), "{text}");
    assert!(text.contains("--wrap"), "{text}");
    near(cell(&WhatIf { wrap: true, ..far }).figures.device_ios, 2.0, 0.0);
    let trim = files.write("trim.csv", &format!("{head}0,discard,0,8\n1,read,8,8\n2,write-zeroes,0,8\n"));
    let report = run(&with_target(study(&trim), &model));
    near(report.inputs[0].cells[0].figures.device_ios, 1.0, 0.0);
    assert_eq!(
        report.inputs[0].notes,
        ["2 discards are not replayed, writes of zeroes included: models have neither"]
    );
    let trim = files.write("only_trim.csv", &format!("{head}0,discard,0,8\n"));
    assert!(error(&with_target(study(&trim), &model)).contains("has no requests"));
    let none = files.write("none.csv", &format!("{head}0,read,0,8\n"));
    assert!(error(&study(&none)).contains("--target model:"));
    assert!(error(&WhatIf { closed: true, ..with_target(study(&none), &model) }).contains("latency_ns"));
    assert!(error(&with_target(study(&none), Path::new("disk.img"))).contains("is no model"));
    let readahead = Axes { readaheads: vec![iopath_bench::Readahead::Off], ..Axes::default() };
    let text = error(&WhatIf { axes: readahead, ..study(&none) });
    assert!(text.contains("no file accesses"), "{text}");
}

#[test]
fn the_recorded_settings_are_the_reference_even_if_no_list_has_them() {
    let files = Files::new();
    let workload = Workload {
        rw: Rw::RandRead,
        depth: Depth::new(8_u32).unwrap(),
        elevator: Some("deadline".parse().unwrap()),
        size_bytes: Some(256 * MIB),
        end: End::Time(Duration::from_secs(2)),
        ..on("model:hdd-20tb")
    };
    let log = files.log("run.log", &workload);
    let axes = Axes { elevators: parse_elevators("none,closest").unwrap(), ..Axes::default() };
    let input = input(&WhatIf { axes, ..study(&log) });
    let names: Vec<_> = input.cells.iter().map(|cell| (cell.name.as_str(), cell.reference)).collect();
    assert_eq!(names, [("deadline", true), ("none", false), ("closest", false)]);
    assert_eq!(input.cells[0].model_error.median, Some(0.0), "the log was recorded on this model");
    let changes = input.cells[0].against_recorded.unwrap();
    near(changes.mean.unwrap().fraction.abs(), 0.0, 0.0);
}

#[test]
fn a_closed_replay_predicts_runs_with_other_elevators() {
    const ELEVATORS: &str = "ascend,two-list,closest,deadline,fair";
    let random = Workload {
        rw: Rw::RandRw,
        jobs: Jobs::new(4_u32).unwrap(),
        depth: Depth::new(8_u32).unwrap(),
        device_depth: Some(DeviceDepth::new(2_u32).unwrap()),
        size_bytes: Some(20 << 30),
        end: End::Time(Duration::from_secs(30)),
        block_size: BlockSize::new(16_384_u32).unwrap(),
        ..on("model:sata-2006")
    };
    let streams = Workload {
        rw: Rw::Read,
        depth: Depth::new(4_u32).unwrap(),
        device_depth: Some(DeviceDepth::new(1_u32).unwrap()),
        size_bytes: Some(4 << 30),
        end: End::Time(Duration::from_secs(20)),
        block_size: BlockSize::new(65_536_u32).unwrap(),
        ..Workload { target: Some("model:fc15k-2002".into()), ..random.clone() }
    };
    for workload in [random, streams] {
        let files = Files::new();
        let with =
            |elevator: &str| Workload { elevator: Some(elevator.parse().unwrap()), ..workload.clone() };
        let log = files.log("run.log", &with("deadline"));
        let axes = Axes { elevators: parse_elevators(ELEVATORS).unwrap(), ..Axes::default() };
        let predicted = input(&WhatIf { closed: true, axes, ..study(&log) });
        for (elevator, cell) in ELEVATORS.split(',').zip(&predicted.cells) {
            let measured = iopath_bench::run(&with(elevator), &mut Silent).unwrap().bytes_per_second.mean;
            let deviation = cell.figures.bytes_per_s / measured - 1.0;
            assert!(deviation.abs() < 0.05, "{elevator}: {deviation:+.3} of {measured}");
        }
    }
}

#[test]
fn the_stated_error_of_a_model_file_is_in_the_verdict() {
    let files = Files::new();
    let comment = "# Fitted by iopath 1 to a disk\n\
        # Error on 19 figures held back from the fit: median 5.4%, p90 23.6%, largest 57.3%.\n";
    let model = files.model("fitted", &(comment.to_owned() + &steady(1000, 1)));
    let lines: String = (0..400_u32).fold(String::new(), |lines, number| {
        lines + &format!("{},read,{},8\n", number * 900_000, number * 8)
    });
    let trace = files.write("t.csv", &format!("time_ns,op,sector,sectors\n{lines}"));
    let axes = Axes { targets: vec![model], merges: vec![true, false], ..Axes::default() };
    let input = input(&WhatIf { axes, ..study(&trace) });
    near(input.cells[0].model_error.median.unwrap(), 0.054, 1e-9);
    let verdict = input.verdict.unwrap();
    near(verdict.error.unwrap(), 0.054, 1e-9);
    assert!(verdict.text.ends_with("The error of the model is 5.4%."), "{}", verdict.text);
}

#[test]
fn accesses_are_replayed_through_the_page_cache() {
    const ACCESSES: u64 = 1024;
    let files = Files::new();
    let readahead = [iopath_bench::Readahead::Off, iopath_bench::Readahead::Linux(128 << 10)];
    // A reader that does not pause: each access follows the one before by a nanosecond.
    let lines = (0..ACCESSES).fold(String::new(), |lines, number| {
        lines + &format!("{},read,{},16384,1\n", number * 2, number * 16_384)
    });
    let trace = files.write("t.csv", &format!("time_ns,op,offset,bytes,latency_ns\n{lines}"));
    let axes = Axes {
        targets: vec!["model:sata-2006".into()],
        readaheads: readahead.to_vec(),
        caches_bytes: vec![64 * MIB],
        ..Axes::default()
    };
    let input = input(&WhatIf { closed: true, axes, ..study(&trace) });
    assert!(input.accesses, "{input:?}");
    for (readahead, cell) in readahead.into_iter().zip(&input.cells) {
        let cache = iopath_bench::CacheSettings {
            cache_bytes: Some(64 * MIB),
            readahead: Some(readahead),
            ..iopath_bench::CacheSettings::default()
        };
        let workload = Workload {
            path: find_path("iopath-buffered").unwrap(),
            rw: Rw::Read,
            block_size: BlockSize::new(16_384_u32).unwrap(),
            size_bytes: Some(ACCESSES * 16_384),
            cache,
            ..on("model:sata-2006")
        };
        let measured = iopath_bench::run(&workload, &mut Silent).unwrap();
        near(cell.figures.bytes_per_s, measured.bytes_per_second.mean, 0.01);
        let device = measured.device.unwrap();
        near(cell.figures.device_ios, device.reads as f64, 0.01);
    }
    let [off, linux] = [0, 1].map(|cell: usize| input.cells[cell].figures);
    near(off.device_ios, ACCESSES as f64, 0.0);
    assert!(linux.device_ios < off.device_ios / 4.0 && linux.p50_ns < off.p50_ns, "{linux:?} {off:?}");
    let both = files.write("both.csv", "time_ns,op,offset,bytes,sector,sectors\n0,read,0,8,0,8\n");
    assert!(error(&study(&both)).contains("remove one pair"));
    let part = files.write("part.csv", "time_ns,op,offset\n0,read,0\n");
    assert!(error(&study(&part)).contains("has no column bytes"));
}
