//! `iopath survey` from the command line: tables, JSON, cleanup, refusals.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const MIB: u64 = 1 << 20;

/// The signal of exit code 130 in a shell.
const SIGINT: i32 = 2;

/// Short, because other tests run at the same time.
const TIME: &str = "3s";

fn iopath(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iopath"));
    command.arg("survey").args(arguments).stdin(Stdio::null());
    command
}

fn survey(target: &Path, arguments: &[&str]) -> Output {
    iopath(arguments).arg(target).output().unwrap()
}

/// Surveys until the result is complete, each time for longer: on a busy machine, a short survey leaves measurements
/// out.
fn survey_until(target: &Path, arguments: &[&str], is_complete: impl Fn(&Output) -> bool) -> Output {
    let mut output = None;
    for seconds in [3, 12, 48] {
        let time = format!("{seconds}s");
        let measured = survey(target, &[arguments, &["--time", &time]].concat());
        let is_over = is_complete(&measured);
        output = Some(measured);
        if is_over {
            break;
        }
    }
    output.expect("there is a first attempt")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// The JSON of a successful survey.
fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn has_writes(report: &Value) -> bool {
    let is_write = |run: &Value| run["rw"].as_str().unwrap().contains('w');
    report["runs"].as_array().unwrap().iter().any(is_write)
}

fn has_runs(output: &Output) -> bool {
    !json(output)["runs"].as_array().unwrap().is_empty()
}

#[test]
fn a_survey_has_findings_and_tables_in_eighty_columns_and_the_same_as_json() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("result.json");
    let parts = [
        "Findings\n 1. ",
        " confidence",
        "Sequential reads: MB/s",
        "Sequential writes, flush included: MB/s",
        "Random reads of 4 KiB\n",
        "Random writes of 4 KiB, flush included\n",
        "Random transfers of 4 KiB, 70% reads",
        "Durable writes of 4 KiB",
        "▲ fastest",
    ];
    let output = survey_until(directory.path(), &["--json", file.to_str().unwrap()], |output| {
        parts.iter().all(|part| text(&output.stdout).contains(part))
    });
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in parts {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    assert!(!shown.contains('\x1b'), "{shown}");
    let findings = shown.lines().skip_while(|line| *line != "Findings").skip(1);
    let findings: Vec<&str> = findings.take_while(|line| !line.starts_with("Their reasons")).collect();
    let is_third = |three: &[&str]| three[1..].iter().all(|line| line.starts_with("    "));
    assert!(!findings.windows(3).any(is_third), "a finding has more than two lines:\n{shown}");
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    let report: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["schema"], "iopath.result/1");
    assert!(report["findings"].as_array().unwrap().len() >= 2, "{:#}", report["findings"]);
    for finding in report["findings"].as_array().unwrap() {
        for key in ["id", "text", "evidence"] {
            assert!(!finding[key].as_str().unwrap().is_empty(), "{finding}");
        }
        assert!(["high", "medium", "low"].contains(&finding["confidence"].as_str().unwrap()), "{finding}");
    }
    assert!(report["runs"].as_array().unwrap().iter().all(|run| run["path"] != "null"), "only with --all");
    assert!(has_writes(&report));
    assert_eq!(report["target"]["scratch"], true);
    assert!(shown.find("Findings") < shown.find("Sequential reads: MB/s"), "findings come first:\n{shown}");
    assert!(!shown.contains("null (no device)"), "{shown}");
    let runs = report["runs"].as_array().unwrap();
    let durable: Vec<&Value> = runs.iter().filter(|run| run["flushes"].is_object()).collect();
    assert!(durable.iter().all(|run| run["flushes"]["every"] == 1) && !durable.is_empty(), "{durable:#?}");
    let mixed = runs.iter().find(|run| run["rw"] == "randrw").unwrap();
    let [reads, ios] = [&mixed["directions"]["read"]["ios"], &mixed["ios"]].map(|ios| ios.as_f64().unwrap());
    assert!(ios < 100.0 || (0.5..0.9).contains(&(reads / ios)), "70% of {ios} are reads: {reads}");
    assert_eq!(names(directory.path()), ["result.json"], "no scratch file remains");
    let progress = text(&output.stderr);
    assert!(progress.contains("round 1 of") && progress.lines().count() < 20, "{progress}");
    assert!(!progress.contains('\x1b'), "{progress}");
}

#[test]
fn the_report_fits_the_width_of_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    for columns in ["20", "200"] {
        let output =
            iopath(&["--time", TIME]).arg(directory.path()).env("COLUMNS", columns).output().unwrap();
        let shown = text(&output.stdout);
        // A word that is wider than the terminal, such as a path, stays whole.
        let lines = shown.lines().filter(|line| line.split_whitespace().count() > 1);
        let widest = lines.map(|line| line.chars().count()).max().unwrap();
        let most: usize = columns.parse().unwrap();
        assert!(widest <= most, "{widest} of {columns} columns:\n{shown}");
        assert!(columns != "200" || widest > 80, "findings use the width: {widest} of {columns}\n{shown}");
    }
}

#[test]
fn a_file_is_written_to_only_with_permission() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), vec![7; 4 * MIB as usize]).unwrap();
    let report = json(&survey_until(file.path(), &["--json", "-"], has_runs));
    assert!(!has_writes(&report) && report["runs"][0].is_object(), "{report:#}");
    assert_eq!(fs::read(file.path()).unwrap(), vec![7; 4 * MIB as usize]);
    let left_out = report["left_out"].to_string();
    for part in ["random writes", "fsync", "mixed", "is only read"] {
        assert!(left_out.contains(part), "{part}: {left_out}");
    }
    let writes = |output: &Output| has_writes(&json(output));
    let report = json(&survey_until(file.path(), &["--json", "-", "--overwrite"], writes));
    assert!(has_writes(&report));
    let bytes = fs::read(file.path()).unwrap();
    assert!(bytes.len() as u64 == 4 * MIB && bytes[0..4096] != [7; 4096]);
}

#[test]
fn an_interrupt_keeps_the_measurements_so_far() {
    let directory = tempfile::tempdir().unwrap();
    let (json, errors) = (directory.path().join("result.json"), directory.path().join("errors"));
    let mut command = iopath(&["--time", "60s", "--json"]);
    command.arg(&json).arg(directory.path());
    let child = crate::support::with_default_signals(&command)
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !fs::read_to_string(&errors).unwrap().contains("round 1 of") {
        assert!(begun.elapsed() < Duration::from_secs(120), "no round began");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_secs(5));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(SIGINT), "{}", fs::read_to_string(&errors).unwrap());
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(!report["runs"].as_array().unwrap().is_empty(), "{report:#}");
    assert!(report["left_out"].to_string().contains("interrupted after "), "{}", report["left_out"]);
    let shown = text(&output.stdout);
    assert!(shown.contains("Left out") && shown.contains("interrupted after"), "{shown}");
    let mut names = names(directory.path());
    names.sort();
    assert_eq!(names, ["errors", "result.json"], "no scratch file remains");
}

#[test]
fn an_interrupt_removes_the_scratch_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = crate::support::with_default_signals(iopath(&["--time", "60s"]).arg(directory.path()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while names(directory.path()).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(120), "no scratch file was made");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(names(directory.path())[0].starts_with(".iopath-scratch-"));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let status = child.wait().unwrap();
    assert!(status.signal() == Some(SIGINT) || status.code() == Some(130), "{status}");
    assert_eq!(names(directory.path()), Vec::<String>::new());
}

/// Checks the exit code, and that the message has each part.
fn assert_refused(output: &Output, code: i32, parts: &[&str]) {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    for part in parts {
        assert!(errors.contains(part), "{part:?} is missing in {errors}");
    }
    assert!(errors.lines().all(|line| line.starts_with("iopath: ")), "{errors}");
}

#[test]
fn a_missing_small_or_wrong_target_is_named() {
    assert_refused(&survey(Path::new("/no/such/place"), &[]), 1, &["/no/such/place does not exist"]);
    assert_refused(&survey(Path::new("/dev/null"), &[]), 1, &["/dev/null", "character device"]);
    let small = tempfile::NamedTempFile::new().unwrap();
    fs::write(small.path(), "small").unwrap();
    let name = small.path().to_str().unwrap();
    assert_refused(&survey(small.path(), &["--time", "2"]), 1, &[name, "5 bytes", "64 KiB"]);
}

#[test]
fn the_tool_is_measured_and_explained_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let has_null = |output: &Output| {
        let report = json(output);
        report["runs"].as_array().unwrap().iter().any(|run| run["path"] == "null")
    };
    let report = json(&survey_until(directory.path(), &["--all", "--json", "-"], has_null));
    let findings = report["findings"].to_string();
    assert!(findings.contains("tool-cost"), "{findings}");
}

#[test]
fn a_model_is_surveyed_in_virtual_time() {
    let survey = || json(&survey(Path::new("model:cloud"), &["--json", "-", "--time", "60s"]));
    let report = survey();
    assert_eq!((&report["clock"], &report["host"]), (&Value::from("virtual"), &Value::Null));
    let ids: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["id"].as_str().unwrap())
        .collect();
    assert!(ids.contains(&"sequential-read") && ids.contains(&"random-write"), "{ids:?}");
    assert!(ids.contains(&"durable-write"), "{ids:?}");
    assert!(report["left_out"].to_string().contains("page caches"), "{}", report["left_out"]);
    assert_refused(&self::survey(Path::new("model:no-such"), &[]), 2, &["`no-such`"]);
}

#[test]
fn a_stripe_is_refused_by_name() {
    let target = "stripe:128k:a,b";
    assert_refused(&survey(Path::new(target), &[]), 2, &[target, "survey a member"]);
}

#[test]
fn an_option_of_run_is_refused_with_the_command_that_has_it() {
    let parts = ["has no --bs", "use iopath run --bs"];
    assert_refused(&survey(Path::new("."), &["--bs", "4k"]), 2, &parts);
    assert_refused(&survey(Path::new("."), &["--bogus"]), 2, &["unexpected argument '--bogus'"]);
}

/// A tmpfs of a given size in MiB; unmounted when dropped.
struct SmallFilesystem(tempfile::TempDir);

impl SmallFilesystem {
    fn new(mib: u64) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={mib}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(directory.path()).status();
        mounted.is_ok_and(|mounted| mounted.success()).then_some(Self(directory))
    }
}

impl Drop for SmallFilesystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_filesystem_is_refused_with_options_that_survey_has() {
    let Some(small) = SmallFilesystem::new(33) else { return eprintln!("skipped: no tmpfs can be mounted") };
    let output = survey(small.0.path(), &["--time", "2s"]);
    assert_refused(&output, 1, &["a scratch file", "name another directory"]);
    assert!(!text(&output.stderr).contains("--size"), "{}", text(&output.stderr));
}

#[test]
fn too_little_time_is_a_usage_error() {
    assert_refused(&survey(Path::new("."), &["--time", "1s"]), 2, &["--time", "the minimum is 2 s"]);
    assert_refused(&survey(Path::new("."), &["--time", "soon"]), 2, &["--time", "`soon` is not a time"]);
}

#[test]
fn a_directory_without_permission_to_write_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(directory.path().join("x"), "").is_ok() {
        // Root may write everywhere except in /proc.
        assert_refused(&survey(Path::new("/proc"), &["--time", "2s"]), 1, &["/proc"]);
        return;
    }
    let name = directory.path().to_str().unwrap();
    assert_refused(&survey(directory.path(), &["--time", "2s"]), 1, &["no permission", name]);
}

/// A loop device over a file, detached when dropped.
struct Loop(String);

impl Loop {
    /// None, with a line about it, without a loop device.
    fn over(file: &Path) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        match output {
            Ok(output) if output.status.success() => Some(Self(text(&output.stdout).trim().to_owned())),
            _ => {
                eprintln!("skipped: no loop device (root and losetup are needed)");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_device_is_only_read_without_permission_to_overwrite() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..16 * MIB).map(|index| ((index * 2_654_435_761) >> 13) as u8).collect();
    fs::write(file.path(), &bytes).unwrap();
    let Some(device) = Loop::over(file.path()) else { return };
    let report = json(&survey_until(Path::new(&device.0), &["--json", "-"], has_runs));
    assert!(!has_writes(&report) && report["runs"][0].is_object(), "{report:#}");
    assert_eq!(report["target"]["kind"], "block device");
    assert_eq!(fs::read(file.path()).unwrap(), bytes, "not a byte was written");
    let writes = |output: &Output| has_writes(&json(output));
    let report = json(&survey_until(Path::new(&device.0), &["--json", "-", "--overwrite"], writes));
    assert!(has_writes(&report));
}

#[test]
fn a_device_with_a_filesystem_is_not_written_to_even_with_permission() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), vec![0; 16 * MIB as usize]).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(file.path()).status();
    if !made.is_ok_and(|made| made.success()) {
        eprintln!("skipped: there is no mkfs.ext4");
        return;
    }
    let Some(device) = Loop::over(file.path()) else { return };
    let output = survey(Path::new(&device.0), &["--time", TIME, "--overwrite"]);
    assert_refused(&output, 1, &[device.0.as_str(), "ext4"]);
}
