//! Job files on storage of this machine: targets, groups, clones, results. The keys are tested beside their parser.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::Nothing;
use iopath_bench::Workload;
use iopath_bench::progress::{Progress, Sample, Silent, Stage};
use iopath_fio::{JobFile, RunSettings};
use iopath_report::result::Report;

fn parse(text: &str) -> JobFile {
    JobFile::parse("f.fio", text.as_bytes(), &Nothing, false).unwrap()
}

fn run_in(directory: &Path, text: &str) -> Report {
    let settings = RunSettings { target: Some(directory.to_owned()), ..RunSettings::default() };
    let report = parse(text).run(&settings, &mut Silent).unwrap();
    assert_eq!(fs::read_dir(directory).unwrap().count(), 0, "scratch files are removed");
    report
}

fn refused(settings: &RunSettings, text: &str) -> String {
    parse(text).run(settings, &mut Silent).unwrap_err().to_string()
}

#[test]
fn each_job_and_each_group_has_a_result() {
    let directory = tempfile::tempdir().unwrap();
    let report = run_in(
        directory.path(),
        "[global]\nsize=1m\n[a]\nrw=write\n[b]\nrw=randread\nnumjobs=3\nbs=8k\n[c]\nstonewall\nrw=read\nfilename=x\n",
    );
    let found: Vec<_> = report
        .runs
        .iter()
        .map(|run| {
            let job = run.job.as_ref().unwrap();
            (job.name.as_str(), job.group, run.jobs, run.ios, run.bytes)
        })
        .collect();
    // Each clone of `b` transfers the whole size.
    assert_eq!(found, [("a", 1, 1, 256, 1 << 20), ("b", 1, 3, 384, 3 << 20), ("c", 2, 1, 256, 1 << 20)]);
    let groups: Vec<_> =
        report.groups.iter().map(|group| (group.number, group.ios, group.jobs.len())).collect();
    assert_eq!(groups, [(1, 640, 2), (2, 256, 1)]);
    assert!(report.groups.iter().all(|group| group.cpu.is_some()));
    // A job that is alone has the CPU time of its group; others have none of their own.
    assert_eq!(report.runs.iter().map(|run| run.cpu.is_some()).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn jobs_that_name_one_file_share_it() {
    let directory = tempfile::tempdir().unwrap();
    let report = run_in(
        directory.path(),
        "[w]\nfilename=/elsewhere/data\nrw=write\nsize=1m\n[r]\nfilename=/elsewhere/data\nrw=read\nsize=512k\noffset=1m\n[own]\nfilename=b\nsize=64k\n",
    );
    let target = |index: usize| report.runs[index].job.as_ref().unwrap().target.clone().unwrap();
    assert_eq!(target(0), target(1));
    assert_ne!(target(0), target(2));
    let sizes: Vec<u64> =
        report.target.iter().chain(&report.more_targets).map(|target| target.size_bytes).collect();
    assert_eq!(sizes, [(1 << 20) + (512 << 10), 64 << 10], "a file holds the ranges of all its jobs");
}

#[test]
fn clones_without_a_file_have_one_each() {
    let directory = tempfile::tempdir().unwrap();
    let report = run_in(directory.path(), "[a]\nnumjobs=3\nsize=64k\n");
    assert_eq!(report.more_targets.len(), 2);
    assert_eq!(report.runs[0].ios, 48);
}

#[test]
fn a_group_starts_after_the_group_before_it_and_jobs_of_a_group_together() {
    let directory = tempfile::tempdir().unwrap();
    let text = "[global]\nsize=64k\nruntime=300ms\ntime_based\n[a]\n[b]\n[c]\nstonewall\nstartdelay=200ms\n";
    let begin = Instant::now();
    let report = run_in(directory.path(), text);
    assert!(begin.elapsed() >= Duration::from_millis(300 + 500));
    let [together, alone] = &report.groups[..] else { panic!("two groups") };
    assert!((0.29..60.0).contains(&together.seconds), "{}", together.seconds);
    // A delay is not part of the measurement.
    assert!((0.29..60.0).contains(&alone.seconds), "{}", alone.seconds);
    let sum: u64 = report.runs[..2].iter().map(|run| run.ios).sum();
    assert_eq!(together.ios, sum);
}

#[test]
fn the_end_of_a_job_with_exitall_ends_its_group() {
    let directory = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    let text = "[a]\nsize=64k\nexitall\n[b]\nsize=64k\nruntime=600\ntime_based\n";
    let report = run_in(directory.path(), text);
    assert!(begin.elapsed() < Duration::from_secs(120));
    assert_eq!(report.runs[0].ios, 16);
}

#[test]
fn a_ramp_is_not_measured() {
    let directory = tempfile::tempdir().unwrap();
    let text = "[a]\nsize=64k\nruntime=200ms\ntime_based\nramp_time=300ms\n";
    let begin = Instant::now();
    let report = run_in(directory.path(), text);
    assert!(begin.elapsed() >= Duration::from_millis(500));
    assert!((0.19..60.0).contains(&report.runs[0].seconds), "{}", report.runs[0].seconds);
}

#[test]
fn a_null_job_has_no_target() {
    let report = parse("[n]\nioengine=null\nsize=1m\nrw=randread\n")
        .run(&RunSettings::default(), &mut Silent)
        .unwrap();
    assert_eq!(
        (report.target.is_none(), report.runs[0].ios, report.runs[0].path.as_str()),
        (true, 256, "null")
    );
}

#[test]
fn a_file_of_the_user_is_written_with_permission_only() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("data");
    fs::write(&file, vec![7; 64 << 10]).unwrap();
    let text = format!("[global]\nfilename={}\n[r]\n[w]\nstonewall\nrw=write\n", file.display());
    let error = refused(&RunSettings::default(), &text);
    assert!(error.contains("destroys its contents"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), vec![7; 64 << 10]);
    let base = Workload { overwrite: true, ..Workload::default() };
    let settings = RunSettings { base, ..RunSettings::default() };
    let report = parse(&text).run(&settings, &mut Silent).unwrap();
    assert_eq!(
        report.runs.iter().map(|run| run.ios).collect::<Vec<_>>(),
        [48, 48],
        "three repetitions of 16"
    );
    assert_ne!(fs::read(&file).unwrap(), vec![7; 64 << 10]);
    assert_eq!(fs::metadata(&file).unwrap().len(), 64 << 10);
}

#[test]
fn options_replace_the_keys_of_all_jobs() {
    let directory = tempfile::tempdir().unwrap();
    let settings = RunSettings {
        target: Some(directory.path().to_owned()),
        size_bytes: Some(64 << 10),
        // Job a ends by its size, also where the first read of a busy disk takes long.
        runtime: Some(Duration::from_secs(2)),
        ..RunSettings::default()
    };
    let text = "[global]\nsize=100g\nruntime=1h\n[a]\n[b]\nsize=10%\ntime_based\n";
    let begin = Instant::now();
    let report = parse(text).run(&settings, &mut Silent).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(60));
    assert_eq!(report.runs[0].ios, 16);
    assert!(report.runs[1].seconds > 1.9);
}

#[test]
fn keys_that_are_not_valid_together_are_refused_with_the_job() {
    let directory = tempfile::tempdir().unwrap();
    let settings = RunSettings { target: Some(directory.path().to_owned()), ..RunSettings::default() };
    for (keys, named) in [
        ("ioengine=mmap\ndirect=1\nsize=1m", "a mapped file has no direct I/O"),
        ("size=1m\nrate=1m\nrate_iops=5", "rate and rate_iops exclude each other"),
        ("filename=a:b\nopendir=.\nsize=1k", "holds no block of 4096 bytes"),
        ("size=10%", "a percentage needs a file that exists"),
        ("size=1m\nnumjobs=5000", "numjobs 5000 is not valid; use 1 to 4096"),
        ("size=1m\niodepth=20000", "iodepth 20000 is not valid; use 1 to 16384"),
        ("size=2g\nbs=2g", "bs 2147483648 is not valid"),
    ] {
        let error = refused(&settings, &format!("\n[j]\n{keys}\n"));
        assert!(error.starts_with("f.fio:2: job `j`: ") && error.contains(named), "{error}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn only_the_last_values_of_jobs_that_run_must_be_in_range() {
    let directory = tempfile::tempdir().unwrap();
    let settings = RunSettings { target: Some(directory.path().to_owned()), ..RunSettings::default() };
    let text = "[global]\nsize=64k\nnumjobs=5000\n[a]\nnumjobs=2\n[b]\nnumjobs=1\niodepth=20000\n";
    let selected = |name: &str| {
        let mut file = parse(text);
        file.select(&[name.to_owned()]).unwrap();
        file.run(&settings, &mut Silent)
    };
    assert_eq!(selected("a").unwrap().runs[0].jobs, 2);
    let error = selected("b").unwrap_err().to_string();
    assert_eq!(error, "f.fio:6: job `b`: iodepth 20000 is not valid; use 1 to 16384");
}

#[test]
fn a_job_with_fsync_has_the_latencies_of_its_flushes() {
    let directory = tempfile::tempdir().unwrap();
    let text = "[global]\nsize=64k\nrw=write\n[w]\nfsync=5\nnumjobs=2\n[r]\nstonewall\nrw=read\nfdatasync=1\n[n]\nfsync=0\n";
    let report = run_in(directory.path(), text);
    // Of the 16 writes of a clone, the last does not complete a group of five.
    let flushes = report.runs[0].flushes.as_ref().unwrap();
    assert_eq!((flushes.every, flushes.count), (5, 2 * 3));
    assert!(flushes.latency_ns.min > 0);
    assert!(report.runs[1..].iter().all(|run| run.flushes.is_none()), "reads need no flush");
}

/// Counts the scratch files that are made.
#[derive(Default)]
struct Scratches(usize);

impl Progress for Scratches {
    fn stage(&mut self, stage: &Stage) {
        self.0 += usize::from(matches!(stage, Stage::Scratch { .. }));
    }

    fn advance(&mut self, _done: f64) {}
}

#[test]
fn caches_stay_filled_for_the_targets_of_jobs_with_pre_read_only() {
    let directory = tempfile::tempdir().unwrap();
    let report = run_in(
        directory.path(),
        "[global]\nsize=64k\n[warm]\npre_read=1\nfilename=a\n[cold]\nfilename=b\n[same]\nfilename=a\n",
    );
    let dropped = |index: usize| report.runs[index].repeats[0].cached_before_bytes.is_some();
    assert_eq!([dropped(0), dropped(1), dropped(2)], [false, true, false]);
    let is_warned = |index: usize| {
        report.runs[index].warnings.iter().any(|warning| warning.contains("job warm has pre_read"))
    };
    assert_eq!([is_warned(0), is_warned(1), is_warned(2)], [false, false, true]);
}

#[test]
fn a_job_that_exitall_ends_before_its_measurement_is_kept_and_marked() {
    let directory = tempfile::tempdir().unwrap();
    let text = "[a]\nsize=64k\nexitall\n[b]\nsize=64k\nruntime=600\ntime_based\nramp_time=60\n";
    let mut report = run_in(directory.path(), text);
    assert_eq!((report.runs[0].ios, report.runs[1].ios), (16, 0));
    assert!(report.runs[1].iops.mean.abs() < f64::EPSILON, "{:?}", report.runs[1].iops);
    let warning = "job b ended before its measurement began in 1 of 1 repetitions";
    assert!(
        report.runs[1].warnings.iter().any(|text| text.starts_with(warning)),
        "{:?}",
        report.runs[1].warnings
    );
    assert_eq!(report.groups[0].ios, 16);
    // The use of the disks is of the formats of fio alone.
    report.groups[0].disks.clear();
    let json: Report = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json, report, "all figures are numbers");
}

#[test]
fn cached_bytes_are_of_the_target_of_the_job() {
    let memory = Path::new("/dev/shm");
    let Ok(in_memory) = tempfile::tempdir_in(memory) else {
        eprintln!("skipped: {} is missing", memory.display());
        return;
    };
    let on_disk = tempfile::tempdir().unwrap();
    let cached = |directories: &[&Path]| {
        let job = |(number, directory): (usize, &&Path)| {
            format!("[{number}]\nsize=64k\ndirectory={}\n", directory.display())
        };
        let text: String = directories.iter().enumerate().map(job).collect();
        let report = parse(&text).run(&RunSettings::default(), &mut Silent).unwrap();
        let bytes = |run: &iopath_report::result::RunResult| run.repeats[0].cached_before_bytes.unwrap();
        report.runs.iter().map(bytes).collect::<Vec<u64>>()
    };
    let (memory, disk) = (cached(&[in_memory.path()])[0], cached(&[on_disk.path()])[0]);
    if memory == disk {
        eprintln!("skipped: both directories keep the same bytes in the page cache");
        return;
    }
    assert_eq!(cached(&[in_memory.path(), on_disk.path()]), [memory, disk]);
    assert_eq!(cached(&[on_disk.path(), in_memory.path()]), [disk, memory]);
}

#[test]
fn spellings_of_one_new_file_are_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    std::os::unix::fs::symlink("new", path.join("link")).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let (path, more) = (path.display(), format!("{}/../{name}/new", path.display()));
    let text = format!(
        "[global]\nsize=64k\n[a]\nfilename={path}/new\n[b]\nfilename={more}\n[c]\nfilename={path}/link\n"
    );
    let report = parse(&text).run(&RunSettings::default(), &mut Silent).unwrap();
    assert!(report.more_targets.is_empty(), "{:?}", report.more_targets);
    assert_eq!(report.runs.len(), 3);
}

#[test]
fn a_file_that_cannot_be_run_is_refused_before_a_scratch_file_is_filled() {
    let directory = tempfile::tempdir().unwrap();
    let settings = RunSettings { target: Some(directory.path().to_owned()), ..RunSettings::default() };
    for (keys, named) in [
        ("[a]\nsize=64k\n[b]\nstonewall\nsize=64k\nbs=128k\n", "holds no block of 131072 bytes"),
        ("[a]\nsize=64k\nfilename=x\n[b]\nfilename=x\nsize=64k\niodepth=20000\n", "iodepth 20000"),
        ("[a]\nsize=64k\ndirect=1\nnumjobs=2\noffset_increment=100\n", "offset 100 is not a multiple of"),
    ] {
        let mut scratches = Scratches::default();
        let parsed = JobFile::parse("f.fio", keys.as_bytes(), &Nothing, false);
        let error = parsed.and_then(|file| file.run(&settings, &mut scratches)).unwrap_err().to_string();
        if error.contains("does not support direct I/O") {
            eprintln!("skipped: {error}");
            continue;
        }
        assert!(error.contains(named), "{error}");
        assert_eq!(scratches.0, 0, "{keys}");
    }
}

#[test]
fn a_rate_is_kept_with_several_transfers_in_flight() {
    let directory = tempfile::tempdir().unwrap();
    for engine in ["libaio", "iopath-direct"] {
        for (process, slat) in [("linear", true), ("poisson", false)] {
            let text = format!(
                "[a]\nsize=1m\nrw=randread\ndirect=1\nioengine={engine}\niodepth=8\nnumber_ios=200\nrate_iops=1000\n\
                 rate_process={process}\nslat_percentiles={}\n",
                u8::from(slat)
            );
            let settings =
                RunSettings { target: Some(directory.path().to_owned()), ..RunSettings::default() };
            let report = match parse(&text).run(&settings, &mut Silent) {
                Ok(report) => report,
                Err(error) => {
                    eprintln!("skipped: {engine}: {error}");
                    continue;
                }
            };
            let run = &report.runs[0];
            // The last transfer starts 199 ms after the first; a busy machine may start it later.
            assert_eq!(run.ios, 200);
            let least = if process == "linear" { 0.199 } else { 0.12 };
            assert!((least..10.0).contains(&run.seconds), "{engine} {process}: {}", run.seconds);
            // As in fio, a latency counts from the submission; that from the time of the rate is beside it.
            let due = run.due_ns.as_ref().unwrap();
            assert!(due.mean >= run.latency_ns.mean && run.closed_loop_ns.is_none(), "{due:?}");
            assert_eq!(run.submissions.is_some(), slat && engine == "libaio");
            if let Some(parts) = &run.submissions {
                assert_eq!(parts.submission_distribution.count, 200);
                let sum = parts.submission_ns.mean + parts.completion_ns.mean;
                assert!((sum / run.latency_ns.mean - 1.0).abs() < 0.01, "{parts:?} {:?}", run.latency_ns);
            }
        }
    }
}

#[test]
fn a_job_has_several_sizes_gaps_and_runs() {
    let directory = tempfile::tempdir().unwrap();
    let report = run_in(
        directory.path(),
        "[global]\nsize=1m\n[split]\nrw=randrw\nbssplit=4k/50:16k/50,8k\n[gap]\nstonewall\nrw=read:12k\n\
         [back]\nrw=read:-8k\n[run]\nrw=randread:8\nnumber_ios=64\n[range]\nrw=write\nbsrange=4k-64k\n\
         [verified]\nstonewall\nrw=randwrite\nbssplit=4k/50:16k/50\nverify=crc32c\n",
    );
    let bytes: Vec<u64> = report.runs.iter().map(|run| run.bytes).collect();
    assert_eq!(bytes, [1 << 20, 1 << 20, 1 << 20, 256 << 10, 1 << 20, 1 << 20]);
    assert_eq!(report.runs[0].block_sizes.as_deref(), Some("4096/50:16384/50,8192/100"));
    assert_eq!(report.runs[1].block_sizes, None);
    assert_eq!(report.runs[5].verify.as_ref().unwrap().faults(), 0);
}

/// The stages at the times of samples: those of the live view.
#[derive(Default)]
struct Shown {
    stage: String,
    at_samples: Vec<String>,
}

impl Progress for Shown {
    fn stage(&mut self, stage: &Stage) {
        self.stage = stage.to_string();
    }

    fn advance(&mut self, _done: f64) {}

    fn sample(&mut self, _sample: &Sample) {
        self.at_samples.push(self.stage.clone());
    }
}

#[test]
fn the_stage_while_jobs_run_is_the_measurement() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = RunSettings { target: Some(directory.path().to_owned()), ..RunSettings::default() };
    settings.base.repetitions = iopath_bench::Repetitions::new(2_u32).unwrap();
    let mut shown = Shown::default();
    let text = "[a]\nioengine=psync\nsize=64k\nrw=read\ntime_based\nruntime=400ms\n";
    parse(text).run(&settings, &mut shown).unwrap();
    shown.at_samples.dedup();
    assert_eq!(shown.at_samples, ["measuring, 1 of 2", "measuring, 2 of 2"]);
}
