//! `iopath run --log` and `iopath log` as a user meets them.

mod support;

use serde_json::Value;
use support::{iopath, json_of};

#[test]
fn what_a_run_logged_is_summarised_dumped_and_counted_the_same() {
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

    let summary = json_of(&iopath(&["log", "--json"]).arg(&log).output().unwrap());
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
    assert_eq!(dump(&[]), summary["selected"].as_u64().unwrap(), "a line a step");
    let completed = dump(&["--event", "complete"]);
    assert!(
        (ios..ios * 2).contains(&completed),
        "{completed} of {ios}: each bio once, and requests of several"
    );
    assert_eq!(dump(&["--stream", "7"]), 0);
}

#[test]
fn whoever_stops_reading_a_dump_is_no_failure_and_a_full_disk_is() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = directory.path().join("log");
    let run =
        iopath(&["run", "--path", "null", "--size", "64k", "--repeat", "1", "--log"]).arg(&log).output();
    assert!(run.unwrap().status.success());
    for args in [&["log"][..], &["log", "--json"], &["log", "dump"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let run = iopath(args).arg(&log).stdout(writer).output().unwrap();
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success() && stderr.is_empty(), "{args:?}: {stderr}");
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let run = iopath(args).arg(&log).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.code() == Some(1) && stderr.contains("No space left"), "{args:?}: {stderr}");
        assert_eq!(stderr.matches("No space left").count(), 1, "{args:?}: said once: {stderr}");
    }
}

#[test]
fn what_is_no_log_is_refused_in_one_line() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let text = directory.path().join("text");
    std::fs::write(&text, "not a log at all, but long enough to be read as the head of one ".repeat(100))
        .unwrap();
    for (args, code, told) in [
        (vec!["log", text.to_str().unwrap()], 1, "not an iopath log"),
        (vec!["log", "/nowhere"], 1, "/nowhere"),
        (vec!["log"], 2, "<FILE>"),
        (vec!["log", text.to_str().unwrap(), "--event", "coffee"], 2, "coffee"),
        (vec!["run", "--path", "kernel-direct", "--target", "/tmp", "--log", "x"], 2, "takes no --log"),
    ] {
        let run = iopath(&args).output().unwrap();
        let stderr = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(told), "{args:?}: {stderr}");
    }
}

#[test]
fn every_elevator_is_listed_with_its_settings() {
    let list = iopath(&["elevators"]).output().unwrap();
    let text = String::from_utf8(list.stdout).unwrap();
    for kind in iopath_lab::ELEVATORS {
        assert!(text.contains(&format!("{}: {}", kind.name, kind.about)), "{text}");
        assert!(kind.tunables().iter().all(|tunable| text.contains(tunable.name)), "{text}");
    }
}
