//! Full disks, targets that shrink, and closed streams: a clear line, no remains, and the results so far. Tests that
//! mount print a line and are skipped where that is refused.

use crate::loops::{MemoryFilesystem, text};
use crate::support::{becomes_true, iopath, json_of};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A filesystem of 256 KiB in memory.
struct Small(MemoryFilesystem);

impl Small {
    fn new() -> Result<Self, String> {
        MemoryFilesystem::new("size=256k").map(Self)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Occupies all free space.
    fn fill(&self) {
        let filled = fs::write(self.file("fill"), vec![1; 1 << 20]);
        assert!(filled.is_err(), "the filesystem has no limit");
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// The exit code and the last line of stderr.
fn end(output: &Output) -> (Option<i32>, String) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    (output.status.code(), stderr.lines().last().unwrap_or_default().to_owned())
}

const SHORT: [&str; 9] = ["run", "--path", "null", "--size", "1m", "--runtime", "50ms", "--repeat", "1"];

#[test]
fn a_full_disk_leaves_no_remains_and_keeps_former_results() {
    let small = or_skip!(Small::new());
    let former = small.file("former.json");
    assert!(iopath(&SHORT).arg("--json").arg(&former).status().unwrap().success());
    let before = fs::read(&former).unwrap();
    small.fill();
    for name in ["former.json", "new.json"] {
        let output = iopath(&SHORT).arg("--json").arg(small.file(name)).output().unwrap();
        let (code, line) = end(&output);
        assert_eq!(code, Some(1), "{line}");
        assert!(line.contains(name) && line.contains("(--json): No space left on device"), "{line}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("IOPS"), "the table is printed");
    }
    let (code, line) = end(&iopath(&SHORT).arg("--log").arg(small.file("log")).output().unwrap());
    assert!(code == Some(1) && line.contains("cannot open log") && line.contains("No space"), "{line}");
    let report = iopath(&["report"]).arg(&former).arg("-o").arg(small.file("page.html")).output().unwrap();
    let (code, line) = end(&report);
    assert!(code == Some(1) && line.contains("page.html") && line.contains("No space"), "{line}");
    assert_eq!(small.names(), ["fill", "former.json"]);
    assert!(fs::read(&former).unwrap() == before, "the former results are lost");
}

#[test]
fn a_disk_that_a_log_fills_keeps_the_results_and_the_log_so_far() {
    let small = or_skip!(Small::new());
    let log = small.file("log");
    let mut command = iopath(&["run", "--path", "null", "--rw", "randread", "--runtime", "1500ms"]);
    command.args(["--rate-iops", "200000", "--repeat", "2", "--log"]).arg(&log);
    let output = command.output().unwrap();
    let (code, line) = end(&output);
    assert_eq!(code, Some(1), "{line}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("IOPS") && table.contains("null"), "{table}");
    let summary = json_of(&iopath(&["log"]).arg(&log).arg("--json").output().unwrap());
    let records = summary["records"].as_u64().unwrap();
    let parts = [
        "cannot write log",
        text(&log),
        "No space left on device",
        &format!("it ends after {records} records"),
        "the results have the complete repetitions",
    ];
    assert!(records > 1000 && parts.iter().all(|part| line.contains(part)), "{records} records: {line}");
    assert_eq!(fs::metadata(&log).unwrap().len(), 256 << 10, "the log fills the disk");
}

#[test]
fn a_full_disk_beneath_a_mapped_hole_is_no_failed_device() {
    let small = or_skip!(Small::new());
    let target = small.file("sparse");
    fs::File::create(&target).unwrap().set_len(1 << 20).unwrap();
    let mut command =
        iopath(&["run", "--path", "kernel-mmap", "--rw", "write", "--repeat", "1", "--overwrite"]);
    let (code, line) = end(&command.arg("--target").arg(&target).output().unwrap());
    assert_eq!(code, Some(1), "{line}");
    assert!(line.contains("No space left on device") && line.contains("free some space"), "{line}");
}

/// Runs until stderr has `line`, then truncates the target. The output after the end.
fn shrunk(command: &mut Command, target: &Path, line: &str) -> Output {
    let errors = tempfile::NamedTempFile::new().unwrap();
    let child = command.stdout(Stdio::piped()).stderr(errors.reopen().unwrap()).spawn().unwrap();
    let begun = becomes_true(|| fs::read_to_string(errors.path()).unwrap().contains(line));
    fs::File::options().write(true).open(target).unwrap().set_len(64 << 10).unwrap();
    let mut output = child.wait_with_output().unwrap();
    output.stderr = fs::read(errors.path()).unwrap();
    assert!(begun, "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn a_target_that_shrinks_keeps_the_complete_repetitions() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (target, json) = (directory.path().join("target"), directory.path().join("r.json"));
    for sizes in ["4k", "4k,8k"] {
        fs::write(&target, vec![7; 8 << 20]).unwrap();
        let mut command = iopath(&["run", "--path", "kernel-buffered", "--rw", "randread", "--bs", sizes]);
        command.args(["--runtime", "200ms", "--repeat", "100", "--target"]);
        command.arg(&target).arg("--json").arg(&json);
        let output = shrunk(&mut command, &target, "measuring, 3 of 100");
        let (code, line) = end(&output);
        assert_eq!(code, Some(1), "{line}");
        assert!(line.contains(text(&target)) && line.contains("shrank during the run"), "{line}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains("failed: ") && stderr.contains("of 100 repetitions are complete"),
            "{stderr}"
        );
        assert!(String::from_utf8_lossy(&output.stdout).contains("IOPS"), "the table is printed");
        let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        for run in report["runs"].as_array().unwrap() {
            assert_eq!(run["partial"], true);
            let repeats = run["repeats"].as_array().unwrap().len();
            assert!((2..100).contains(&repeats), "{repeats}");
        }
    }
}

#[test]
fn a_failure_in_a_later_group_keeps_the_groups_before_it() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = |name: &str| directory.path().join(name);
    let (target, json, jobs) = (file("target"), file("r.json"), file("jobs.fio"));
    fs::write(&target, vec![7; 8 << 20]).unwrap();
    let keys = format!("filename={}\nrw=randread\ntime_based\nruntime=60\n", target.display());
    fs::write(
        &jobs,
        format!("[first]\nioengine=null\nsize=1m\n[second]\nstonewall\n{keys}[third]\nstonewall\n{keys}"),
    )
    .unwrap();
    let mut command = iopath(&["run"]);
    command.arg(&jobs).arg("--json").arg(&json);
    let output = shrunk(&mut command, &target, "group 2 of 3");
    let (code, line) = end(&output);
    assert_eq!(code, Some(1), "{line}");
    assert!(line.contains(text(&target)) && line.contains("shrank during the run"), "{line}");
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let names: Vec<&Value> =
        report["runs"].as_array().unwrap().iter().map(|run| &run["job"]["name"]).collect();
    assert_eq!((names, report["groups"].as_array().unwrap().len()), (vec![&Value::from("first")], 1));
    let warnings = report["runs"][0]["warnings"].to_string();
    assert!(
        warnings.contains("failed in group 2 of 3: it has no results, and later groups did not run"),
        "{warnings}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("first"), "the table is printed");
}

#[test]
fn a_sweep_on_a_full_disk_ends_with_one_line() {
    let small = or_skip!(Small::new());
    small.fill();
    let mut command =
        iopath(&["sweep", "--path", "null", "--bs", "4k,8k", "--size", "64k", "--runtime", "50ms"]);
    let (code, line) = end(&command.args(["--output"]).arg(small.file("sweep.json")).output().unwrap());
    assert_eq!(code, Some(1), "{line}");
    assert!(line.contains("sweep.json") && line.contains("No space left on device"), "{line}");
    assert_eq!(small.names(), ["fill"]);
}

/// The devices that disappear during a run: a loop device whose file shrinks.
#[test]
fn a_device_that_loses_its_medium_keeps_the_complete_repetitions() {
    let alone = or_skip!(crate::loops::Alone::wait());
    let device = or_skip!(crate::loops::Loop::new(&alone, 8, &[]));
    let json = tempfile::NamedTempFile::new().unwrap();
    let name = text(&device.device).to_owned();
    for path in ["kernel-direct", "iopath-direct"] {
        let arguments = ["run", "--path", path, "--rw", "randread", "--runtime", "200ms", "--repeat", "100"];
        fs::File::options().write(true).open(&device.image).unwrap().set_len(8 << 20).unwrap();
        let mut command = iopath(&arguments);
        command.args(["--force", "--target", &name, "--json"]).arg(json.path());
        let output = shrunk(&mut command, &device.image, "measuring, 3 of 100");
        let (code, line) = end(&output);
        if code == Some(1) && line.contains("direct I/O") {
            eprintln!("skipped {path}: {line}");
            continue;
        }
        assert_eq!(code, Some(1), "{path}: {line}");
        assert!(
            line.contains(&name) && line.contains("the results have the complete repetitions"),
            "{path}: {line}"
        );
        let report: Value = serde_json::from_slice(&fs::read(json.path()).unwrap()).unwrap();
        assert_eq!(report["runs"][0]["partial"], true, "{path}");
    }
}

#[test]
fn closed_and_full_streams_are_no_panic() {
    let program = env!("CARGO_BIN_EXE_iopath");
    for arguments in ["elevators", "man", "--help", "--version", "run --help", "completions bash"] {
        let shell = |streams: &str| {
            let line = format!("'{program}' {arguments} {streams}");
            end(&Command::new("sh").args(["-c", &line]).output().unwrap())
        };
        assert_eq!(shell(">&-").0, Some(0), "{arguments}");
        assert_eq!(shell("<&- >/dev/null").0, Some(0), "{arguments}");
        assert_eq!(shell("2>&- >/dev/null").0, Some(0), "{arguments}");
        if Path::new("/dev/full").exists() {
            let (code, line) = shell(">/dev/full");
            assert!(code == Some(1) && line.contains("cannot write to stdout"), "{arguments}: {line}");
        }
    }
}

/// A name with control characters and one that changes the writing direction.
const HOSTILE: &str = "no such\n\u{1b}[2J\u{7}\u{9b}31m\u{202e}file";

/// Fails if a text could control the terminal.
fn check_plain(text: &[u8], arguments: &[&str]) {
    let text = std::str::from_utf8(text).unwrap();
    let is_refused = |letter: &char| letter.is_control() && *letter != '\n' || *letter == '\u{202e}';
    assert_eq!(text.chars().filter(is_refused).count(), 0, "{arguments:?}: {text:?}");
}

#[test]
fn names_of_files_do_not_control_the_terminal() {
    let missing = format!("/tmp/{HOSTILE}");
    let run_on = ["run", "--path", "kernel-buffered", "--size", "64k", "--repeat", "1", "--target"];
    for arguments in [&run_on[..], &["survey"], &["map"], &["log"], &["report", "-o", "-"], &["compare", "a"]]
    {
        let output = iopath(arguments).arg(&missing).output().unwrap();
        assert!(end(&output).0.is_some_and(|code| code > 0), "{arguments:?}");
        check_plain(&output.stderr, arguments);
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let target = directory.path().join(HOSTILE);
    fs::write(&target, vec![7; 1 << 16]).unwrap();
    for arguments in [&run_on[..], &["map"], &["map", "--json", "-"]] {
        let output = iopath(arguments).arg(&target).output().unwrap();
        assert_eq!(end(&output).0, Some(0), "{arguments:?}");
        check_plain(&output.stderr, arguments);
        check_plain(&output.stdout, arguments);
    }
    let map = json_of(&iopath(&["map", "--json", "-"]).arg(&target).output().unwrap());
    assert_eq!(map["path"].as_str(), target.to_str(), "an escape in JSON has the same value");
}
