//! Stripes as targets: of files, of directories and of models, in lists, in job files and with several at the same
//! time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use iopath_bench::paths::find_path;
use iopath_bench::progress::Silent;
use iopath_bench::{BenchError, BlockSize, Depth, End, Repetitions, Verify, Workload};
use iopath_fio::{JobFile, RunSettings, System};
use iopath_report::Rw;
use iopath_report::result::Report;

const MIB: u64 = 1 << 20;

fn on(target: impl Into<PathBuf>, path: &str) -> Workload {
    Workload {
        path: find_path(path).unwrap(),
        target: Some(target.into()),
        repetitions: Repetitions::constant(1),
        ..Workload::default()
    }
}

fn report(workload: &Workload) -> Result<Report, BenchError> {
    iopath_bench::report(workload, &mut Silent)
}

/// Two files, and their stripe. None where direct I/O is refused.
fn two_files() -> Option<(tempfile::TempDir, PathBuf)> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for name in ["a", "b"] {
        fs::write(directory.path().join(name), vec![0; MIB as usize]).unwrap();
    }
    let probe = on(directory.path().join("a"), "iopath-direct");
    if let Err(error) = report(&Workload { size_bytes: Some(4096), ..probe }) {
        eprintln!("skipped: no direct I/O here: {error}");
        return None;
    }
    let target = stripe(&[&directory.path().join("a"), &directory.path().join("b")]);
    Some((directory, target))
}

fn stripe(members: &[&Path]) -> PathBuf {
    let members: Vec<_> = members.iter().map(|member| member.to_str().unwrap()).collect();
    format!("stripe:64k:{}", members.join(",")).into()
}

#[test]
fn both_files_of_a_stripe_hold_their_chunks_of_the_data() {
    let Some((directory, target)) = two_files() else { return };
    for path in ["iopath-direct", "iopath-buffered", "iopath-raw"] {
        let workload = Workload {
            rw: Rw::Write,
            block_size: BlockSize::constant(32 << 10),
            verify: Some(Verify::default()),
            overwrite: true,
            ..on(&target, path)
        };
        let report = report(&workload).unwrap();
        let facts = report.target.unwrap();
        assert_eq!((&*facts.kind, facts.size_bytes, facts.scratch), ("stripe", 2 * MIB, false), "{path}");
        let verify = report.runs[0].verify.clone().unwrap();
        assert_eq!((verify.bytes, verify.faults()), (2 * MIB, 0), "{path}");
        for name in ["a", "b"] {
            let content = fs::read(directory.path().join(name)).unwrap();
            let chunks: Vec<_> = content.chunks(64 << 10).collect();
            assert!(chunks.iter().all(|chunk| chunk.iter().any(|byte| *byte != 0)), "{path}: {name}");
            fs::write(directory.path().join(name), vec![0; MIB as usize]).unwrap();
        }
    }
}

#[test]
fn a_stripe_of_directories_has_a_scratch_file_in_each() {
    let [Some((first, _)), Some((second, _))] = [two_files(), two_files()] else { return };
    let target = stripe(&[first.path(), second.path()]);
    let workload = Workload { rw: Rw::RandRw, size_bytes: Some(3 * MIB), ..on(target, "iopath-direct") };
    let report = report(&workload).unwrap();
    let facts = report.target.unwrap();
    assert!(facts.scratch && facts.size_bytes == 3 * MIB && report.runs[0].bytes == 3 * MIB, "{facts:?}");
    for directory in [&first, &second] {
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "the scratch files are removed");
    }
}

#[test]
fn stripes_work_in_lists_in_job_files_and_side_by_side() {
    let Some((directory, target)) = two_files() else { return };
    let lists = [("iopath-direct", 4096), ("iopath-direct", 65536), ("kernel-uring", 4096)];
    let each =
        lists.map(|(path, bytes)| Workload { block_size: BlockSize::constant(bytes), ..on(&target, path) });
    let listed = iopath_lab::report_all(&each, &mut Silent).unwrap();
    assert_eq!(listed.runs.iter().map(|run| run.bytes).collect::<Vec<_>>(), [2 * MIB, 2 * MIB]);
    assert!(
        listed.skipped[0].reason.contains("path kernel-uring does not access stripes"),
        "{:?}",
        listed.skipped
    );

    let name = target.to_str().unwrap().replace(':', "\\:");
    let text = format!("[a]\nfilename={name}\nioengine=iopath-direct\nrw=randread\nsize=1m\n");
    let jobs = JobFile::parse("f", text.as_bytes(), &System, false).unwrap();
    let ran = jobs.run(&RunSettings::default(), &mut Silent).unwrap();
    assert_eq!((ran.runs[0].bytes, &*ran.target.unwrap().kind), (MIB, "stripe"));

    let other = directory.path().join("b");
    let both = Workload { more_targets: vec![other], ..on(directory.path().join("a"), "iopath-direct") };
    assert_eq!(report(&both).unwrap().runs[0].targets.len(), 2);
    let Some((_more, second)) = two_files() else { return };
    let both = report(&Workload { more_targets: vec![second], ..on(&target, "iopath-direct") }).unwrap();
    assert_eq!(both.runs[0].targets.iter().map(|one| one.bytes).collect::<Vec<_>>(), [2 * MIB, 2 * MIB]);
}

#[test]
fn a_stripe_that_cannot_be_used_is_refused() {
    let refused = |workload: &Workload| report(workload).unwrap_err().to_string();
    for (target, named) in [
        ("stripe:4k:a", "two members"),
        ("stripe:x:a,b", "the chunk is a size"),
        ("stripe:64k:model:cloud,/tmp", "all models"),
        ("stripe:64k:model:cloud,model:hdd-20tb", "the same model"),
    ] {
        assert!(report(&on(target, "iopath-direct")).unwrap_err().is_usage());
        let text = refused(&on(target, "iopath-direct"));
        assert!(text.contains(named), "{target}: {text}");
    }
    let Some((_directory, target)) = two_files() else { return };
    let text = refused(&Workload { rw: Rw::Write, ..on(&target, "iopath-direct") });
    assert!(text.contains("overwrite"), "{text}");
    let text = refused(&Workload { size_bytes: Some(4 * MIB), ..on(&target, "iopath-direct") });
    assert!(text.contains("stripe:65536:") || text.contains("/a"), "{text}");
}

#[test]
fn a_stripe_of_models_has_the_rate_of_its_members() {
    let iops = |target: &str, more: &[&str]| {
        let workload = Workload {
            rw: Rw::RandRead,
            depth: Depth::constant(64),
            end: End::Time(Duration::from_secs(10)),
            more_targets: more.iter().map(PathBuf::from).collect(),
            ..on(target, "iopath-direct")
        };
        report(&workload).unwrap().runs[0].iops.mean
    };
    let one = iops("model:fc15k-2002", &[]);
    let name = "stripe:128k:model:fc15k-2002,model:fc15k-2002,model:fc15k-2002,model:fc15k-2002";
    let four = iops(name, &[]);
    // 64 in flight on one disk, 16 on each of four.
    assert!(four > 2.0 * one && four < 4.0 * one, "{one} {four}");
    let both = iops(name, &[name]);
    assert!((1.9..2.1).contains(&(both / four)), "{four} {both}");
    let with = iops("stripe:128k:model:fc15k-2002?rotation_rpm=7200,model:fc15k-2002?rotation_rpm=7200", &[]);
    let without = iops("stripe:128k:model:fc15k-2002,model:fc15k-2002", &[]);
    assert!(with < without, "{with} {without}");
}
