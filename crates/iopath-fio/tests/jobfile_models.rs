//! Job files on models in virtual time: groups, clones, ends, logs, and the same bytes from the same file.

use std::fs;
use std::path::{Path, PathBuf};

use iopath_bench::progress::Silent;
use iopath_bench::{LogSettings, Repetitions, Workload};
use iopath_fio::{JobFile, RunSettings, System};
use iopath_log::{Filter, LogReader};
use iopath_report::result::{Clock, Report, RunResult};

fn parse(text: &str) -> JobFile {
    JobFile::parse("f.fio", text.as_bytes(), &System, false).unwrap()
}

fn settings(target: &str) -> RunSettings {
    RunSettings { target: Some(target.into()), ..RunSettings::default() }
}

fn run(target: &str, text: &str) -> Report {
    parse(text).run(&settings(target), &mut Silent).unwrap()
}

fn refused(text: &str) -> String {
    parse(text).run(&RunSettings::default(), &mut Silent).unwrap_err().to_string()
}

fn job<'a>(report: &'a Report, name: &str) -> &'a RunResult {
    report.runs.iter().find(|run| run.job.as_ref().unwrap().name == name).unwrap()
}

#[test]
fn each_job_and_each_group_has_a_result_in_virtual_time() {
    let file = parse(
        "[global]\nfilename=model\\:cloud\nsize=16m\nioengine=libaio\ndirect=1\niodepth=8\n\
         [a]\nrw=randread\n[b]\nrw=write\nnumjobs=2\n[c]\nstonewall\nrw=read\ndirect=0\n[d]\nstonewall\nioengine=psync\n",
    );
    let base = Workload { repetitions: Repetitions::constant(2), ..RunSettings::default().base };
    let report = file.run(&RunSettings { base, ..RunSettings::default() }, &mut Silent).unwrap();
    assert_eq!(report.clock, Clock::Virtual);
    assert!(report.host.is_none(), "no part of the result is of this machine");
    assert_eq!(report.target.as_ref().unwrap().path, "model:cloud");
    let found: Vec<_> = report
        .runs
        .iter()
        .map(|run| {
            let job = run.job.as_ref().unwrap();
            (job.name.as_str(), job.group, &*run.path, run.io_depth, run.jobs, run.ios, run.repeats.len())
        })
        .collect();
    assert_eq!(
        found,
        [
            ("a", 1, "iopath-direct", 8, 1, 2 * 4096, 2),
            ("b", 1, "iopath-direct", 8, 2, 2 * 8192, 2),
            ("c", 2, "iopath-buffered", 1, 1, 2 * 4096, 2),
            ("d", 3, "iopath-direct", 1, 1, 2 * 4096, 2),
        ]
    );
    let groups: Vec<_> = report.groups.iter().map(|group| (group.number, group.ios)).collect();
    assert_eq!(groups, [(1, 2 * 12288), (2, 2 * 4096), (3, 2 * 4096)]);
    assert!(report.runs.iter().all(|run| run.clock == Clock::Virtual && run.cpu.is_none()));
    let target = report.runs[0].job.as_ref().unwrap().target.as_deref();
    assert_eq!(target, Some("model:cloud"));
    // The requests of a job that is alone are its own.
    assert_eq!(report.runs[3].device.unwrap().reads, 2 * 4096);
}

#[test]
fn jobs_share_the_model_that_they_name_and_no_other() {
    let alone = run("model:hdd-20tb", "[a]\nrw=randread\nsize=1g\nruntime=5\ndirect=1\ntime_based\n");
    let both =
        run("model:hdd-20tb", "[global]\nrw=randread\nsize=1g\nruntime=5\ndirect=1\ntime_based\n[a]\n[b]\n");
    let apart = parse(
        "[global]\nrw=randread\nsize=1g\nruntime=5\ndirect=1\ntime_based\n[a]\nfilename=model\\:hdd-20tb\n\
         [b]\nfilename=model\\:hdd-20tb?rotation_rpm=7200\n",
    );
    let apart = apart.run(&RunSettings::default(), &mut Silent).unwrap();
    let iops = |report: &Report| job(report, "a").iops.mean;
    assert!(iops(&both) < 0.8 * iops(&alone), "one disk: {} {}", iops(&both), iops(&alone));
    assert!(iops(&apart) > 0.95 * iops(&alone), "two disks: {} {}", iops(&apart), iops(&alone));
    assert_eq!(apart.more_targets.len(), 1);
}

#[test]
fn delays_rates_limits_and_exitall_hold_in_virtual_time() {
    let report = run(
        "model:cloud",
        "[global]\nsize=64m\ndirect=1\nrw=randread\n[late]\nstartdelay=3\nsize=1m\n\
         [paced]\nrate_iops=100\nruntime=5\ntime_based\n[ramped]\nramp_time=2\nruntime=4\ntime_based\n",
    );
    let seconds = |name| job(&report, name).seconds;
    assert!((4.99..5.1).contains(&seconds("paced")), "{}", seconds("paced"));
    assert_eq!(job(&report, "paced").ios, 500);
    assert!((4.0..4.1).contains(&seconds("ramped")), "{}", seconds("ramped"));
    assert!(
        report.groups[0].seconds > 5.9,
        "the ramp is before the measurement: {}",
        report.groups[0].seconds
    );
    assert_eq!(job(&report, "late").ios, 256);

    let ended = run(
        "model:cloud",
        "[global]\nsize=64m\ndirect=1\n[first]\nrw=read\nruntime=2\ntime_based\nexitall\n\
         [second]\nrw=randwrite\nruntime=100\ntime_based\n[next]\nstonewall\nrw=read\nsize=1m\n",
    );
    let seconds = job(&ended, "second").seconds;
    assert!((1.99..2.1).contains(&seconds), "the first job ends the second one: {seconds}");
    assert_eq!(job(&ended, "next").ios, 256, "the end of a group does not end the next one");
}

#[test]
fn a_job_with_steadystate_ends_and_others_continue() {
    let report = run(
        "model:cloud",
        "[global]\nsize=1g\ndirect=1\nioengine=libaio\nrw=randread\nruntime=30\ntime_based\n\
         [steady]\nss=iops:20%\nss_dur=5\nss_interval=500ms\nnumjobs=2\n[latency]\nss=lat:20%\nss_dur=5\n[other]\n",
    );
    let steady = job(&report, "steady").steady_state.as_ref().unwrap();
    assert!(steady.reached && steady.slope_limit.is_none());
    assert_eq!((steady.interval_seconds, steady.deviation_limit.as_deref()), (0.5, Some("20%")));
    let reached = steady.repeats[0].reached_seconds.unwrap();
    assert!(reached >= 5.0 && (job(&report, "steady").seconds - reached).abs() < 0.1, "{reached}");
    let latency = job(&report, "latency").steady_state.as_ref().unwrap();
    let mean = latency.repeats[0].read.as_ref().expect("a complete window").mean;
    let p50 = job(&report, "latency").latency_ns.p50 as f64;
    assert!(latency.reached && latency.metric == "lat", "{latency:?}");
    assert!((0.2..5.0).contains(&(mean / p50)), "mean {mean} ns, p50 {p50} ns");
    assert!(job(&report, "other").steady_state.is_none());
    assert!((30.0..30.1).contains(&job(&report, "other").seconds));
}

#[test]
fn flushes_and_a_warm_cache_work_as_on_storage() {
    let report = run(
        "model:hdd-20tb",
        "[global]\nsize=1m\n[log]\nrw=write\nfsync=4\n[warm]\nstonewall\nrw=randread\npre_read=1\n",
    );
    assert_eq!(job(&report, "log").flushes.as_ref().unwrap().count, 64);
    assert_eq!(job(&report, "warm").device.unwrap().reads, 0, "all pages are in the cache");
}

/// The log and the result of a job file.
fn logged(directory: &Path, name: &str) -> (Vec<u8>, String) {
    let file: PathBuf = directory.join(name);
    let log = Some(LogSettings { file: file.clone(), limit_bytes: None, accesses: false });
    let base = Workload { log, seed: 7, ..RunSettings::default().base };
    let text = "[global]\nsize=4m\ndirect=1\nioengine=libaio\niodepth=4\n[a]\nrw=randrw\nnumjobs=2\n\
                [b]\nstonewall\nrw=write\nfsync=16\n";
    let settings = RunSettings { base, ..settings("model:ssd-nvme") };
    let report = parse(text).run(&settings, &mut Silent).unwrap();
    (fs::read(&file).unwrap(), report.to_json())
}

#[test]
fn a_log_has_the_requests_of_all_groups_and_is_the_same_in_each_run() {
    let directory = tempfile::tempdir().unwrap();
    let (log, json) = logged(directory.path(), "a");
    assert_eq!((log.clone(), json), logged(directory.path(), "b"));
    let summary = LogReader::new(&log[..]).unwrap().summarise(&Filter::default()).unwrap();
    let text = serde_json::to_string(&summary).unwrap_or_default();
    assert!(!text.is_empty());
}

#[test]
fn files_that_models_cannot_run_are_refused_by_job() {
    let mixed = refused("[a]\nfilename=model\\:cloud\nsize=1m\n[b]\nsize=1m\n");
    assert!(mixed.contains("job `b`") && mixed.contains("all on models"), "{mixed}");
    assert_eq!(fs::read_dir(".").unwrap().filter(|entry| is_scratch(entry.as_ref().unwrap())).count(), 0);
    let paths = refused("[global]\nfilename=model\\:cloud\nsize=1m\n[a]\ndirect=1\n[b]\n");
    assert!(paths.contains("job `a`") && paths.contains("add stonewall"), "{paths}");
    let kernel = refused("[a]\nfilename=model\\:cloud\nsize=1m\nioengine=kernel-direct\n");
    assert!(kernel.contains("kernel-direct") && kernel.contains("iopath-direct"), "{kernel}");
    let verify = refused("[a]\nfilename=model\\:cloud\nsize=1m\nrw=write\nverify=crc32c\n");
    assert!(verify.contains("a model holds no data"), "{verify}");
}

fn is_scratch(entry: &fs::DirEntry) -> bool {
    entry.file_name().to_string_lossy().contains("scratch")
}
