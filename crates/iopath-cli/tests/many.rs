//! Many jobs, many targets, a narrow terminal, and machines that hide /sys or refuse to write: the program does its
//! work, or refuses it in one line.

use std::fs;
use std::process::{Command, Output};

use crate::loops::MemoryFilesystem;
use crate::support::{iopath, json_of};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The exit code and the last line of stderr.
fn end(output: &Output) -> (Option<i32>, String) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    (output.status.code(), stderr.lines().last().unwrap_or_default().to_owned())
}

#[test]
fn a_thousand_jobs_run_together() {
    let short = ["run", "--path", "null", "--size", "64m", "--runtime", "200ms", "--repeat", "1"];
    let output = iopath(&short).args(["--numjobs", "1000", "--json", "-"]).output().unwrap();
    let (code, line) = end(&output);
    if code == Some(1) && line.contains("cannot start the thread") {
        return eprintln!("skipped: {line}");
    }
    let report = json_of(&output);
    assert_eq!(report["runs"][0]["jobs"], 1000);
    assert!(report["runs"][0]["ios"].as_u64().unwrap() >= 1000, "{}", report["runs"][0]["ios"]);
}

#[test]
fn a_job_file_of_a_thousand_jobs_has_a_result_for_each() {
    let directory = directory();
    let file = directory.path().join("jobs.fio");
    let jobs: Vec<String> = (0..1000).map(|number| format!("[job{number}]\n")).collect();
    fs::write(&file, format!("[global]\nioengine=null\nsize=64k\n{}", jobs.concat())).unwrap();
    let output = iopath(&["run"]).arg(&file).args(["--json", "-"]).output().unwrap();
    let (code, line) = end(&output);
    if code == Some(1) && line.contains("cannot start the thread") {
        return eprintln!("skipped: {line}");
    }
    let report = json_of(&output);
    assert_eq!(report["runs"].as_array().unwrap().len(), 1000);
    assert_eq!(report["groups"][0]["ios"], 16_000);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.lines().all(|line| line.len() < 1000), "the progress names some of the jobs: {stderr}");
}

#[test]
fn a_hundred_targets_are_read_at_the_same_time() {
    let directory = directory();
    let mut command = iopath(&["run", "--path", "kernel-buffered", "--repeat", "1", "--json", "-"]);
    for number in 0..100 {
        let file = directory.path().join(format!("target-{number}"));
        fs::write(&file, vec![7; 64 << 10]).unwrap();
        command.arg("--target").arg(&file);
    }
    let output = command.output().unwrap();
    let (code, line) = end(&output);
    if code == Some(1) && (line.contains("ulimit") || line.contains("cannot start the thread")) {
        return eprintln!("skipped: {line}");
    }
    let report = json_of(&output);
    assert_eq!(report["runs"][0]["targets"].as_array().unwrap().len(), 100);
    assert_eq!(report["runs"][0]["bytes"], 100 * (64 << 10));
}

#[test]
fn tables_fit_twenty_columns() {
    let columns = |command: &mut Command| {
        let output = command.env("COLUMNS", "20").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let file = directory();
    let target = file.path().join("t");
    fs::write(&target, vec![7; 64 << 10]).unwrap();
    let short = ["--path", "null", "--size", "64k", "--repeat", "2"];
    let lists: [&[&str]; 4] =
        [&["run"], &["run", "--bs", "4k,8k"], &["elevators"], &["run", "--preset", "list"]];
    for arguments in lists {
        let mut command = iopath(arguments);
        if arguments[0] == "run" && arguments.last() != Some(&"list") {
            command.args(short);
        }
        let text = columns(&mut command);
        // A word that is wider than the terminal stays whole. A row of a narrow table is a name and a value.
        let lines = text.lines().filter(|line| line.split_whitespace().count() > 3);
        let widest = lines.map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= 60, "{arguments:?}: {widest} columns:\n{text}");
    }
}

/// The program in a mount namespace after these commands of a shell; none where that is refused.
fn in_namespace(setup: &str, arguments: &[&str]) -> Option<Output> {
    let allowed = Command::new("unshare").args(["--mount", "sh", "-c", setup]).output();
    match allowed {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Err(error) => {
            eprintln!("skipped: unshare: {error}");
            return None;
        }
    }
    let script = format!("{setup} && exec \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_iopath")]).args(arguments);
    Some(command.env("NO_COLOR", "1").output().unwrap())
}

#[test]
fn without_sys_and_proc_stat_the_program_measures() {
    let directory = directory();
    let target = directory.path().join("target");
    fs::write(&target, vec![7; 1 << 20]).unwrap();
    let target = target.to_str().unwrap();
    let hide = "mount -t tmpfs tmpfs /sys";
    for path in ["kernel-buffered", "kernel-direct", "iopath-direct", "iopath-buffered"] {
        let arguments = ["run", "--path", path, "--target", target, "--repeat", "1", "--json", "-"];
        let Some(output) = in_namespace(hide, &arguments) else { return };
        let (code, line) = end(&output);
        if code == Some(1) && line.contains("direct I/O") {
            eprintln!("skipped {path}: {line}");
            continue;
        }
        assert_eq!(json_of(&output)["runs"][0]["bytes"], 1 << 20, "{path}");
    }
    let Some(map) = in_namespace(hide, &["map", target]) else { return };
    assert_eq!(end(&map).0, Some(0), "{map:?}");
    let Some(tune) = in_namespace(hide, &["tune", "loop0"]) else { return };
    let (code, line) = end(&tune);
    assert!(code == Some(1) && line.starts_with("iopath: "), "{line}");
}

#[test]
fn a_read_only_directory_is_named_before_any_measurement() {
    let directory = or_skip!(MemoryFilesystem::new("ro,size=1m"));
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let short = ["run", "--path", "null", "--size", "64k", "--repeat", "1"];
    let (json, log, sweep) = (file("r.json"), file("r.log"), file("s.json"));
    let scratch = directory.path().to_str().unwrap();
    let runs: [Vec<&str>; 4] = [
        [&short[..], &["--json", &json]].concat(),
        [&short[..], &["--log", &log]].concat(),
        vec!["run", "--path", "kernel-buffered", "--size", "64k", "--target", scratch],
        vec!["sweep", "--path", "null", "--size", "64k", "--bs", "4k,8k", "--output", &sweep],
    ];
    for arguments in runs {
        let output = iopath(&arguments).output().unwrap();
        let (code, line) = end(&output);
        assert_eq!(code, Some(1), "{arguments:?}: {line}");
        assert!(line.contains(scratch) && line.contains("ead-only"), "{arguments:?}: {line}");
        assert!(output.stdout.is_empty(), "{arguments:?} has measured");
    }
}
