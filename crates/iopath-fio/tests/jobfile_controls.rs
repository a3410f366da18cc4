//! The controls of jobs in job files: shares of several jobs, latency targets, least rates, series over time,
//! priorities and CPUs. Most tests run on models, in virtual time.

use std::fs;
use std::path::Path;

use crate::support::Nothing;
use iopath_bench::progress::Silent;
use iopath_fio::{JobFile, RunSettings};
use iopath_report::result::{Report, RunResult};

/// Reads of 4 KiB at random offsets of a modelled flash drive.
const ON_MODEL: &str = "[global]\nfilename=model\\:ssd-nvme\nioengine=libaio\ndirect=1\nbs=4k\nsize=1g\nrw=randread\ntime_based\n";

fn try_run(text: &str, settings: &RunSettings) -> Result<Report, String> {
    let file =
        JobFile::parse("f.fio", text.as_bytes(), &Nothing, false).map_err(|error| error.to_string())?;
    file.run(settings, &mut Silent).map_err(|error| error.to_string())
}

fn on_model(text: &str) -> Vec<RunResult> {
    try_run(&format!("{ON_MODEL}{text}"), &RunSettings::default()).unwrap().runs
}

fn in_directory(directory: &Path, text: &str) -> Result<Report, String> {
    let settings = RunSettings { target: Some(directory.to_owned()), ..RunSettings::default() };
    try_run(text, &settings)
}

#[test]
fn jobs_with_a_flow_share_their_transfers_by_weight() {
    let runs = on_model("runtime=2\niodepth=8\n[a]\nflow=1\n[b]\nflow=8\n[alone]\nflow=1\nflow_id=5\n");
    let [a, b, alone] = [0, 1, 2].map(|index| runs[index].ios as f64);
    assert!((b / a / 8.0 - 1.0).abs() < 0.02, "{a} to {b}");
    assert!(alone > 2.0 * a, "a job of another group does not wait: {alone}, {a}");
}

#[test]
fn the_end_of_a_job_frees_the_others_of_its_flow() {
    let runs = on_model("runtime=2\niodepth=8\n[a]\nflow=1\n[b]\nflow=1\nnumber_ios=100\n");
    assert_eq!(runs[1].ios, 100);
    assert!(runs[0].ios > 10_000, "{}", runs[0].ios);
}

#[test]
fn a_job_with_a_flow_does_not_wait_for_a_job_that_has_not_begun() {
    let runs = on_model("runtime=1\n[a]\nflow=1\n[b]\nflow=1\nstartdelay=2\n");
    assert!(runs.iter().all(|run| run.ios > 10_000), "{}, {}", runs[0].ios, runs[1].ios);
}

#[test]
fn a_latency_target_finds_the_largest_depth_that_keeps_it() {
    let search =
        "runtime=60\niodepth=256\nlatency_target=400\nlatency_window=200ms\nlatency_percentile=99\n[a]\n";
    let runs = on_model(search);
    let target = runs[0].latency_target.as_ref().unwrap();
    let [search] = &target.searches[..] else { panic!("one clone: {target:?}") };
    assert!(search.complete && runs[0].seconds < 10.0, "{target:?}, {} s", runs[0].seconds);
    let depth = search.depth.unwrap();
    let p99 = |depth: u32| on_model(&format!("runtime=1\niodepth={depth}\n[a]\n"))[0].latency_ns.p99;
    assert!(p99(depth) <= 420_000, "depth {depth}: {} ns", p99(depth));
    assert!(p99(depth + depth / 8 + 1) > 380_000, "depth {depth}: a larger depth does not keep it");
    let continued = on_model(
        "runtime=10\niodepth=256\nlatency_target=400\nlatency_window=200ms\nlatency_percentile=99\nlatency_run\n[a]\n",
    );
    assert!(continued[0].seconds > 9.9, "it continues with the depth that it found");
    let none = on_model("runtime=10\niodepth=4\nlatency_target=1\nlatency_window=100ms\n[a]\n");
    assert_eq!(none[0].latency_target.as_ref().unwrap().searches[0].depth, None);
}

#[test]
fn a_job_below_its_least_rate_ends_with_a_warning() {
    let runs = on_model("runtime=20\n[slow]\nrate=1m\nrate_min=2m\n[kept]\nrate=2m\nrate_min=1m\n");
    assert!((2.0..3.1).contains(&runs[0].seconds), "{}", runs[0].seconds);
    let warned = |run: &RunResult| run.warnings.iter().any(|warning| warning.contains("rate_min is 2097152"));
    assert!(warned(&runs[0]), "{:?}", runs[0].warnings);
    assert!(runs[1].seconds > 19.9 && !warned(&runs[1]), "{} s, {:?}", runs[1].seconds, runs[1].warnings);
}

#[test]
fn a_mixed_pattern_has_a_rate_for_reads_and_one_for_writes() {
    let runs = on_model("rw=randrw\nruntime=10\niodepth=4\nrate_iops=300,100\n[a]\n");
    let directions = runs[0].directions.as_ref().unwrap();
    let [reads, writes] = [&directions.read, &directions.write].map(|one| one.ios as f64 / runs[0].seconds);
    assert!((reads / 300.0 - 1.0).abs() < 0.02 && (writes / 100.0 - 1.0).abs() < 0.02, "{reads}, {writes}");
    // As in fio, the other direction has no limit.
    for (rate, limited) in [("300,0", 0), (",300", 1)] {
        let runs = on_model(&format!("rw=randrw\nruntime=10\niodepth=4\nrate_iops={rate}\n[a]\n"));
        let directions = runs[0].directions.as_ref().unwrap();
        let rates = [&directions.read, &directions.write].map(|one| one.ios as f64 / runs[0].seconds);
        assert!((rates[limited] / 300.0 - 1.0).abs() < 0.02, "{rate}: {rates:?}");
        assert!(rates[1 - limited] > 3000.0, "{rate}: {rates:?}");
    }
}

#[test]
fn series_over_time_have_a_file_for_each_clone() {
    let directory = tempfile::tempdir().unwrap();
    let name = directory.path().join("s").display().to_string().replace(':', "\\:");
    let keys =
        format!("runtime=2\nnumber_ios=1000\nwrite_lat_log={name}\nwrite_iops_log={name}\nlog_offset=1\n");
    let runs = on_model(&format!("{keys}[a]\n[b]\nnumjobs=2\nlog_avg_msec=10\n"));
    let lines = |file: &str| fs::read_to_string(directory.path().join(file)).unwrap().lines().count() as u64;
    assert_eq!(lines("s_lat.1.log"), runs[0].ios);
    assert_eq!((lines("s_clat.1.log"), lines("s_iops.1.log")), (1000, 1000));
    let intervals = lines("s_iops.3.log");
    assert!(intervals > 1 && intervals < 100, "{intervals}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 9, "three kinds for each of three clones");
    let mut settings = RunSettings::default();
    settings.base.repetitions = iopath_bench::Repetitions::constant(2);
    let refused = try_run(&format!("{ON_MODEL}{keys}[a]\n"), &settings).unwrap_err();
    assert!(refused.contains("remove --repeat"), "{refused}");
}

#[test]
fn a_series_that_cannot_be_written_keeps_the_results() {
    let runs = on_model("number_ios=100\nruntime=1\n[a]\nwrite_bw_log=/missing-directory/s\n[b]\n");
    assert_eq!((runs[0].ios, runs[1].ios), (100, 100));
    let warned = "cannot write the series to /missing-directory/s_bw.1.log";
    assert!(runs[0].warnings.iter().any(|warning| warning.starts_with(warned)), "{:?}", runs[0].warnings);
}

#[test]
fn a_latency_target_may_limit_the_depth_of_a_rate() {
    let runs = on_model(
        "runtime=5\niodepth=64\nrate_iops=200000\nlatency_target=300\nlatency_window=50ms\nlatency_run\n[a]\n",
    );
    let search = &runs[0].latency_target.as_ref().unwrap().searches[0];
    assert!(search.complete && search.depth.is_some_and(|depth| depth > 1), "{search:?}");
}

#[test]
fn a_long_sleep_of_a_flow_ends_with_the_job() {
    let runs = on_model("runtime=1\n[a]\nflow=1\n[b]\nflow=1\nflow_sleep=10000000s\n");
    assert!(runs.iter().all(|run| run.ios > 0 && (run.seconds - 1.0).abs() < 0.01), "{:?}", runs[0].seconds);
    let huge = try_run(&format!("{ON_MODEL}[a]\nflow=9223372036854775808\n"), &RunSettings::default());
    assert!(huge.unwrap_err().contains("0 to 1000"));
}

#[test]
fn zones_have_a_size_and_room_for_a_transfer() {
    let refused = |keys: &str| {
        try_run(&format!("{ON_MODEL}runtime=1\n[a]\n{keys}"), &RunSettings::default()).unwrap_err()
    };
    assert!(refused("zonemode=strided\n").contains("add zonesize"));
    assert!(refused("zonemode=none\nzonesize=64k\n").contains("remove zonesize"));
    let small = refused("zonesize=64k\nzonerange=2k\n");
    assert!(small.contains("a zone of 2048 bytes is smaller than a transfer"), "{small}");
}

#[test]
fn a_job_may_end_all_groups() {
    let text = "runtime=1\n[a]\nexitall\nexit_what=all\nnumber_ios=10\n[b]\n[later]\nstonewall\n";
    let runs = on_model(text);
    assert_eq!(runs.len(), 2);
    assert!(
        runs[0].warnings.iter().any(|warning| warning.contains("exit_what=all")),
        "{:?}",
        runs[0].warnings
    );
    assert_eq!(on_model(&text.replace("=all", "=stonewall")).len(), 3);
}

#[test]
fn a_sequence_repeats_its_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let report = in_directory(
        directory.path(),
        "[a]\nrw=randread\nbs=4k\nsize=48k\nio_size=24k\nrandom_distribution=sequence:2,0,1\n",
    );
    assert_eq!(report.unwrap().runs[0].ios, 6);
}

#[test]
fn threads_have_cpus_and_priorities() {
    let directory = tempfile::tempdir().unwrap();
    let keys = "[a]\nrw=read\nsize=64k\ncpus_allowed=0\nprio=7\nnice=1\nnuma_mem_policy=local\n";
    assert_eq!(in_directory(directory.path(), keys).unwrap().runs[0].ios, 16);
    let missing = in_directory(directory.path(), "[a]\nrw=read\nsize=64k\ncpus_allowed=1000\n").unwrap_err();
    assert!(missing.contains("cpus_allowed: the system refuses [1000]"), "{missing}");
}

#[test]
fn single_transfers_have_priorities_on_a_path_that_supports_them() {
    let directory = tempfile::tempdir().unwrap();
    let text = |engine: &str| {
        format!(
            "[a]\nrw=randrw\nbssplit=4k/50:8k/50\nsize=256k\ndirect=1\nioengine={engine}\niodepth=4\n\
             cmdprio_bssplit=4k/20/2/7:4k/30/3/0:8k/0,8k/100\ncmdprio_class=2\ncmdprio=1\n"
        )
    };
    match in_directory(directory.path(), &text("io_uring")) {
        Ok(report) => assert_eq!(report.runs[0].bytes, 256 << 10),
        Err(error) if error.contains("io_uring is refused") || error.contains("direct I/O") => {
            eprintln!("skipped: {error}");
        }
        Err(error) => panic!("{error}"),
    }
    let refused = in_directory(directory.path(), &text("psync")).unwrap_err();
    assert!(refused.contains("path kernel-direct has no priorities of single transfers"), "{refused}");
}

#[test]
fn the_time_between_checks_of_the_least_rate_is_not_zero() {
    let error = try_run(
        &format!("{ON_MODEL}runtime=1\n[a]\nrate_iops_min=1\nrate_cycle=0\n"),
        &RunSettings::default(),
    )
    .unwrap_err();
    for part in ["f.fio:12:", "rate_cycle", "0", "1 or more"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn the_priority_shares_of_a_size_are_at_most_100_percent() {
    let parse = |split: &str| {
        let text = format!("[a]\nfilename=x\ncmdprio_bssplit={split}\n");
        JobFile::parse("f.fio", text.as_bytes(), &Nothing, false).map_err(|error| error.to_string())
    };
    assert!(parse("4k/60:4k/40:8k/100,4k/100").is_ok());
    for split in ["4k/60:4k/41", "8k/1,4k/60/1/0:8k/1:4k/41/2/0"] {
        let error = parse(split).err().unwrap();
        for part in ["f.fio:3", "cmdprio_bssplit", split, "100"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
