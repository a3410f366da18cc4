//! `iopath run --log` and `iopath log`.

use crate::support::{iopath, json_of};
use serde_json::Value;

#[test]
fn summary_dump_and_result_of_a_run_agree() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = directory.path().join("log");
    let run = iopath(&[
        "run",
        "--path",
        "null",
        "--rw",
        "randread",
        "--iodepth",
        "8",
        "--size",
        "4m",
        "--repeat",
        "1",
    ])
    .args(["--elevator", "ascend", "--json", "-", "--log"])
    .arg(&log)
    .output()
    .unwrap();
    let ios = json_of(&run)["runs"][0]["ios"].as_u64().unwrap();

    let summary = json_of(&iopath(&["log"]).arg(&log).arg("--json").output().unwrap());
    assert_eq!((&summary["missed"], summary["damage"].is_null()), (&Value::from(0), true), "{summary}");
    assert!(summary["records"].as_u64().unwrap() > ios);
    assert_eq!(summary["stages"]["q2c"]["count"], ios);

    let page = iopath(&["log"]).arg(&log).output().unwrap();
    assert!(page.status.success());
    assert!(String::from_utf8(page.stdout).unwrap().contains("ascend"));

    let dump = |filter: &[&str]| {
        let dump = iopath(&["log", "dump"]).arg(&log).args(filter).output().unwrap();
        assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
        String::from_utf8(dump.stdout).unwrap().lines().count() as u64
    };
    assert_eq!(dump(&[]), summary["selected"].as_u64().unwrap(), "one line for each event");
    let completed = dump(&["--event", "complete"]);
    assert!(
        (ios..ios * 2).contains(&completed),
        "{completed} of {ios}: each bio once, and requests of several"
    );
    let empty = dump(&["--stream", "7"]);
    assert_eq!(empty, 0);
}

#[test]
fn a_closed_reader_is_a_success_and_a_full_disk_a_failure() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = directory.path().join("log");
    let run =
        iopath(&["run", "--path", "null", "--size", "64k", "--repeat", "1", "--log"]).arg(&log).output();
    assert!(run.unwrap().status.success());
    for (args, last) in [(&["log"][..], None), (&["log"], Some("--json")), (&["log", "dump"], None)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let run = iopath(args).arg(&log).args(last).stdout(writer).output().unwrap();
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success() && stderr.is_empty(), "{args:?}: {stderr}");
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let run = iopath(args).arg(&log).args(last).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.code() == Some(1) && stderr.contains("No space left"), "{args:?}: {stderr}");
        assert_eq!(stderr.matches("No space left").count(), 1, "{args:?}: once: {stderr}");
    }
}

#[test]
fn other_files_are_refused_in_one_line() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let text = directory.path().join("text");
    std::fs::write(&text, "not a log at all, but long enough to be read as the head of one ".repeat(100))
        .unwrap();
    for (args, code, message) in [
        (vec!["log", text.to_str().unwrap()], 1, "it is no request log, and no trace that iopath reads"),
        (vec!["log", "/nowhere"], 1, "/nowhere"),
        (vec!["log"], 2, "<FILE>"),
        (vec!["log", text.to_str().unwrap(), "--event", "coffee"], 2, "coffee"),
        (
            vec!["run", "--path", "kernel-direct", "--target", "/tmp", "--log", "x"],
            2,
            "does not accept --log",
        ),
    ] {
        let run = iopath(&args).output().unwrap();
        let stderr = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(message), "{args:?}: {stderr}");
    }
}

#[test]
fn every_elevator_is_listed_with_its_settings() {
    let list = iopath(&["elevators"]).output().unwrap();
    let text = String::from_utf8(list.stdout).unwrap();
    for kind in iopath_bench::ELEVATORS {
        assert!(text.contains(&format!("{}: {}", kind.name, kind.about)), "{text}");
        assert!(kind.tunables().iter().all(|tunable| text.contains(tunable.name)), "{text}");
    }
}

/// Runs a workload of two repetitions and returns its log.
fn logged(directory: &tempfile::TempDir, jobs: &str) -> std::path::PathBuf {
    let log = directory.path().join("log");
    let args = ["run", "--path", "null", "--size", "1m", "--repeat", "2", "--numjobs", jobs, "--log"];
    assert!(iopath(&args).arg(&log).output().unwrap().status.success());
    log
}

#[test]
fn a_filter_that_matches_nothing_is_one_line_with_the_content_of_the_log() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = logged(&directory, "2");
    let run = |args: &[&str]| {
        let output = iopath(args).arg(&log).args(["--stream", "7"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (page, _) = run(&["log"]);
    assert_eq!(page.lines().count(), 1, "{page}");
    assert!(page.contains("streams 0, 1") && page.contains("repeats 1, 2"), "{page}");
    let (dump, line) = run(&["log", "dump"]);
    assert!(dump.is_empty() && line.contains("streams 0, 1"), "{dump}{line}");
    let json = iopath(&["log"]).arg(&log).args(["--stream", "7", "--json"]).output().unwrap();
    assert!(String::from_utf8_lossy(&json.stderr).contains("no I/O passes the filter"));
    assert_eq!(json_of(&json)["flow"]["bios"], 0);
}

#[test]
fn repetitions_of_a_run_are_distinguished() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = logged(&directory, "1");
    let summary =
        |args: &[&str]| json_of(&iopath(&["log"]).arg(&log).args(args).arg("--json").output().unwrap());
    let both = summary(&[]);
    let numbers: Vec<_> = both["repeats"].as_array().unwrap().iter().map(|row| &row["repeat"]).collect();
    assert_eq!(numbers, [1, 2], "{both:#}");
    assert_eq!((&both["repeats"][0]["bios"], &both["flow"]["bios"]), (&256.into(), &512.into()));
    assert_eq!(summary(&["--repeat", "2"])["flow"]["bios"], 256);
    let page = iopath(&["log"]).arg(&log).output().unwrap();
    assert!(String::from_utf8(page.stdout).unwrap().contains("2 repeats"));
}

#[test]
fn a_log_is_read_from_stdin() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = std::fs::File::open(logged(&directory, "1")).unwrap();
    let summary = json_of(&iopath(&["log", "-", "--json"]).stdin(log).output().unwrap());
    assert_eq!(summary["flow"]["bios"], 512);
}

#[test]
fn the_page_is_as_wide_as_the_terminal() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = logged(&directory, "1");
    for columns in [50_usize, 80, 120] {
        let page = iopath(&["log"]).arg(&log).env("COLUMNS", columns.to_string()).output().unwrap();
        let page = String::from_utf8(page.stdout).unwrap();
        let widest = page.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(page.contains("D2C") && widest <= columns, "{widest} of {columns} columns:\n{page}");
    }
}
