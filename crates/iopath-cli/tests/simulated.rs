//! `iopath run` on a modelled target: its output, its log, and its end by a signal. The refusals are in usage.trycmd.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{becomes_true, iopath, json_of, with_default_signals};
use serde_json::Value;

/// `iopath run` on the model of a virtual disk, without the engine that other tests select.
fn run(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iopath"));
    command.args(["run", "--target", "model:cloud"]).args(args).env("NO_COLOR", "1");
    command
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn the_result_says_virtual_and_has_nothing_of_this_machine() {
    let args =
        ["--path", "iopath-direct", "--rw", "randread", "--iodepth", "16", "--runtime", "5", "--json", "-"];
    let output = run(&args).output().unwrap();
    let json = json_of(&output);
    let run = &json["runs"][0];
    assert_eq!((&json["clock"], &run["clock"]), (&Value::from("virtual"), &Value::from("virtual")));
    assert_eq!((&json["host"], &run["cpu"], &run["served_by"]), (&Value::Null, &Value::Null, &Value::Null));
    assert_eq!((&json["target"]["path"], &json["target"]["kind"]), (&"model:cloud".into(), &"model".into()));
    assert_eq!(run["warnings"], Value::Array(Vec::new()));
    let iops = run["iops"]["mean"].as_f64().unwrap();
    assert!((2900.0..3100.0).contains(&iops), "the cap of the virtual disk: {iops}");
}

#[test]
fn the_table_says_virtual_time() {
    let output = run(&["--path", "iopath-buffered", "--size", "8m"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("virtual time"), "{text}");
}

#[test]
fn each_format_of_a_run_is_alone_on_stdout_and_the_json_in_its_file() {
    let directory = directory();
    let file = directory.path().join("result.json");
    let shown = |format: &str| {
        let args = [
            "--path",
            "iopath-direct",
            "--rw",
            "randrw",
            "--size",
            "1m",
            "--force",
            "--format",
            format,
            "--json",
        ];
        let output = run(&args).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(json["schema"], "iopath.result/1", "{format}");
        String::from_utf8(output.stdout).unwrap()
    };
    let fio: Value = serde_json::from_str(&shown("fio-json")).unwrap();
    assert_eq!(fio["jobs"][0]["job options"]["rw"], "randrw");
    let json: Value = serde_json::from_str(&shown("json")).unwrap();
    assert_eq!(json["origin"]["tool"], "iopath");
    assert!(shown("csv").starts_with("part,job,") && shown("markdown").starts_with("| path |"));
    assert!(shown("perftest").contains("blocksize") && shown("table").contains("virtual time"));
}

#[test]
fn iopath_log_reads_the_log_of_a_model() {
    let directory = directory();
    let log = directory.path().join("log");
    let args = [
        "--path",
        "iopath-raw",
        "--rw",
        "randrw",
        "--numjobs",
        "2",
        "--elevator",
        "deadline",
        "--size",
        "4m",
    ];
    let output = run(&args).args(["--json", "-", "--log"]).arg(&log).output().unwrap();
    let ios = json_of(&output)["runs"][0]["ios"].as_u64().unwrap();
    let summary = json_of(&iopath(&["log"]).arg(&log).arg("--json").output().unwrap());
    assert_eq!((&summary["missed"], summary["damage"].is_null()), (&Value::from(0), true), "{summary}");
    // The final flush of each job and repetition is a bio, too.
    assert_eq!(summary["stages"]["q2c"]["count"], ios + 2 * 3);
    let page = String::from_utf8(iopath(&["log"]).arg(&log).output().unwrap().stdout).unwrap();
    assert!(page.contains("log of model:cloud") && page.contains("on the virtual clock"), "{page}");
}

/// The log depends on the seed alone: two processes at the same time and a third one after them, in other time zones,
/// write the same bytes.
#[test]
fn processes_with_the_same_seed_write_the_same_log() {
    let directory = directory();
    let file = |name: &str| directory.path().join(name);
    let command = |name: &str, zone: &str, seed: &str| {
        let args = ["--path", "iopath-direct", "--rw", "randrw", "--numjobs", "3", "--iodepth", "8"];
        let mut command = run(&args);
        command.args(["--elevator", "deadline", "--runtime", "2", "--repeat", "2", "--seed", seed, "--log"]);
        command.arg(file(name)).env("TZ", zone).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let together = [("one", "UTC"), ("two", "Asia/Tokyo")]
        .map(|(name, zone)| command(name, zone, "7").spawn().unwrap())
        .map(|mut child| child.wait().unwrap());
    assert!(together.iter().all(std::process::ExitStatus::success));
    assert!(command("three", "America/Lima", "7").status().unwrap().success());
    assert!(command("four", "UTC", "8").status().unwrap().success());
    let log = |name: &str| std::fs::read(file(name)).unwrap();
    assert!(log("one") == log("two") && log("one") == log("three"), "the logs of one seed differ");
    assert!(log("one") != log("four"), "another seed writes another log");
}

#[test]
fn results_do_not_replace_the_file_of_the_model() {
    let directory = directory();
    let model = directory.path().join("disk.toml");
    std::fs::write(&model, "base = \"cloud\"\n").unwrap();
    let output = iopath(&["run", "--path", "iopath-buffered", "--size", "1m", "--force", "--target"])
        .arg(format!("model:{}", model.display()))
        .arg("--json")
        .arg(&model)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("disk.toml is the target"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&model).unwrap(), "base = \"cloud\"\n");
}

#[test]
fn a_signal_ends_a_long_run_and_completes_its_log() {
    let directory = directory();
    let log = directory.path().join("log");
    let args = ["--path", "iopath-direct", "--rw", "randread", "--runtime", "100y", "--repeat", "1"];
    for (with_log, signal) in [(true, rustix::process::Signal::INT), (false, rustix::process::Signal::TERM)] {
        let mut command = run(&args);
        if with_log {
            command.arg("--log").arg(&log);
        }
        let mut child =
            with_default_signals(&command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let has_begun = || !with_log || size(&log) > 100_000;
        assert!(becomes_true(has_begun), "the log grows while it is written");
        if !with_log {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
    }
    let summary = json_of(&iopath(&["log"]).arg(&log).arg("--json").output().unwrap());
    assert!(summary["damage"].is_null() && summary["records"].as_u64().unwrap() > 10_000, "{summary}");
}

fn size(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |about| about.len())
}

#[test]
fn an_injected_error_names_its_cause_in_the_model() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("faulty.toml");
    std::fs::write(&file, "kind = \"faulty\"\nerror_one_in = 1\ndevice.base = \"cloud\"\n").unwrap();
    let target = format!("model:{}", file.display());
    let output =
        iopath(&["run", "--path", "iopath-direct", "--size", "1m", "--target", &target]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    // The log of this machine's kernel has no cause.
    assert!(
        stderr.contains("kind faulty") && stderr.contains("offset 0") && !stderr.contains("dmesg"),
        "{stderr}"
    );
}
