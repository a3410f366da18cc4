//! Whether storage or memory served a cold run, on real mounts: overlay, tmpfs, loop, and rewrites of a cached file.
//! Skips with a line what the machine lacks.

use crate::loops::{Alone, Cleanup, Killed, Loop, run, text};
use crate::support::{iopath, json_of};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;

/// The single run of a report.
fn measure(target: &Path, args: &[&str]) -> Value {
    let output = iopath(&["run", "--json", "-", "--repeat", "2", "--target", text(target)])
        .args(args)
        .output()
        .unwrap();
    json_of(&output)["runs"][0].clone()
}

/// The report of a survey with a finding about the cache. On a busy machine, a short survey leaves measurements out.
fn survey(target: &Path) -> Value {
    let attempt = |time: &str| {
        json_of(&iopath(&["survey", "--time", time, "--json", "-", text(target)]).output().unwrap())
    };
    let has_finding = |report: &Value| {
        report["findings"].as_array().unwrap().iter().any(|finding| finding["id"] == "cache")
    };
    let longer = || ["12s", "48s"].into_iter().map(attempt).find(has_finding);
    Some(attempt("3s"))
        .filter(has_finding)
        .or_else(longer)
        .expect("a survey of memory has a finding about it")
}

fn has_warning(run: &Value, words: &str) -> bool {
    run["warnings"].as_array().unwrap().iter().any(|warning| warning.as_str().unwrap().contains(words))
}

/// Bytes that storage read for the repeat that read least.
fn least_storage_read(run: &Value) -> u64 {
    let repeats = run["repeats"].as_array().unwrap();
    repeats.iter().map(|repeat| repeat["storage_read_bytes"].as_u64().unwrap_or(0)).min().unwrap()
}

/// Whether the filesystem of the build has a disk, and the kernel counts this process's I/O.
fn has_storage(directory: &Path) -> bool {
    let run = measure(directory, &["--path", "kernel-buffered", "--size", "8m", "--bs", "64k"]);
    let is_counted = run["served_by"] == "storage";
    if !is_counted {
        eprintln!("skipped: the build lies in memory, or no counter shows its I/O: {}", run["warnings"]);
    }
    is_counted
}

#[test]
fn a_cold_run_on_an_overlay_reads_from_storage_each_time() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !has_storage(dir.path()) {
        return;
    }
    let at = |name: &str| dir.path().join(name);
    for name in ["lower", "upper", "work", "m"] {
        fs::create_dir(at(name)).unwrap();
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        text(&at("lower")),
        text(&at("upper")),
        text(&at("work"))
    );
    if let Err(why) = run("mount", &["-t", "overlay", "overlay", "-o", &options, text(&at("m"))]) {
        return eprintln!("skipped: no overlay here: {why}");
    }
    let mut cleanup = Cleanup::default();
    cleanup.add(&["umount", text(&at("m"))]);
    let run = measure(&at("m"), &["--path", "kernel-buffered", "--size", "16m", "--bs", "64k"]);
    assert_eq!(run["served_by"], "storage", "{run:#}");
    assert!(least_storage_read(&run) >= 15 * MIB, "{run:#}");
}

#[test]
fn reads_of_a_loop_device_reach_the_disk_beneath_each_time() {
    let alone = or_skip!(Alone::wait());
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !has_storage(dir.path()) {
        return;
    }
    let image = dir.path().join("image");
    fs::write(&image, noise(32 * MIB)).unwrap();
    let device = or_skip!(run("losetup", &["--find", "--show", "--direct-io=off", text(&image)]));
    let mut cleanup = Cleanup::default();
    cleanup.add(&["losetup", "--detach", &device]);
    // Attaching the image has read it, and the first repeat reads it again.
    fs::read(&image).unwrap();
    let device = Path::new(&device);
    for path in ["kernel-buffered", "kernel-direct"] {
        let run = measure(device, &["--path", path, "--bs", "64k"]);
        assert!(least_storage_read(&run) >= 31 * MIB, "{path}: {run:#}");
        assert_eq!(run["served_by"], "storage", "{path}: {run:#}");
    }
    let again = measure(device, &["--path", "kernel-direct", "--bs", "64k", "--runtime", "500ms"]);
    let bytes = again["bytes"].as_u64().unwrap();
    if bytes > 100 * MIB {
        assert_eq!(again["served_by"], "memory", "several passes: {again:#}");
        assert!(has_warning(&again, "storage read"), "{again:#}");
    }
    drop(alone);
}

fn noise(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn rewrites_that_the_page_cache_absorbs_draw_a_warning() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = measure(
        dir.path(),
        &["--path", "kernel-mmap", "--rw", "write", "--size", "4m", "--bs", "64k", "--runtime", "1"],
    );
    if run["bytes"].as_u64().unwrap() < 100 * MIB {
        return eprintln!("skipped: too slow for rewrites in the cache");
    }
    assert_eq!(run["served_by"], "memory", "{run:#}");
    assert!(has_warning(&run, "later writes replaced cached bytes before storage wrote them"), "{run:#}");
    let once =
        measure(dir.path(), &["--path", "kernel-mmap", "--rw", "write", "--size", "16m", "--bs", "64k"]);
    assert!(!has_warning(&once, "later writes"), "{once:#}");
}

#[test]
fn a_file_in_memory_is_served_by_memory_and_no_survey_recommends_it() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return eprintln!("skipped: no /dev/shm") };
    let run = measure(dir.path(), &["--path", "kernel-buffered", "--size", "16m", "--bs", "64k"]);
    if run["served_by"] == "storage" {
        return eprintln!("skipped: /dev/shm does not lie in memory");
    }
    assert_eq!(run["served_by"], "memory", "{run:#}");
    let report = survey(dir.path());
    let findings = report["findings"].as_array().unwrap();
    let ids: Vec<&str> = findings.iter().map(|finding| finding["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"cache") && ids.contains(&"no-disk"), "{ids:?}");
    for id in [
        "sequential-read",
        "sequential-write",
        "random-read",
        "random-write",
        "durable-write",
        "mixed",
        "direct-read",
        "direct-write",
    ] {
        assert!(!ids.contains(&id), "{id} recommends memory: {findings:#?}");
    }
}

/// A program that reads a file from its disk until it is dropped. Its last `dd` ends by itself.
fn reader(file: &Path) -> Killed {
    let script = format!("while dd if={} of=/dev/null bs=256k iflag=direct; do :; done", text(file));
    Killed(Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).spawn().unwrap())
}

#[test]
fn reads_of_other_programs_from_the_disk_beneath_a_loop_device_do_not_count() {
    if fs::read_to_string("/proc/2/io").is_err()
        || fs::read_to_string("/proc/2/comm").unwrap() != "kthreadd\n"
    {
        return eprintln!("skipped: the counters of kernel threads are not visible (needs root)");
    }
    let alone = or_skip!(Alone::wait());
    let device = or_skip!(Loop::new(&alone, 32, &["--direct-io=off"]));
    let file = device.dir().join("read-by-another-program");
    fs::write(&file, noise(32 * MIB)).unwrap();
    let _reader = reader(&file);
    for path in ["kernel-buffered", "kernel-direct"] {
        // A sparse image: no read reaches a disk.
        let run = measure(&device.device, &["--path", path, "--bs", "64k", "--runtime", "500ms"]);
        assert_eq!(run["served_by"], "memory", "{path}: {run:#}");
        assert!(least_storage_read(&run) < 16 * MIB, "{path}: {run:#}");
    }
}

#[test]
fn the_survey_of_a_loop_device_ranks_only_runs_that_the_disk_beneath_served() {
    let alone = or_skip!(Alone::wait());
    let device = or_skip!(Loop::new(&alone, 32, &["--direct-io=off"]));
    // A sparse image: no read reaches a disk.
    let report = survey(&device.device);
    let runs = report["runs"].as_array().unwrap();
    assert!(!runs.iter().any(|run| run["served_by"] == "storage"), "{runs:#?}");
    let findings = report["findings"].to_string();
    assert!(
        findings.contains("memory, not storage, served") && !findings.contains("\"sequential-read\""),
        "{findings}"
    );
    assert!(!findings.contains("no head moves"), "{findings}");
}
