//! `iopath whatif`: its outputs, its shares, and its refusals. The figures are tested in the lab.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::support::schema::check;
use crate::support::{iopath, json_of};
use serde_json::Value;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A request log of a run on a model.
fn log(directory: &Path) -> String {
    let log = directory.join("run.log").to_str().unwrap().to_owned();
    let run = [
        "run",
        "--path",
        "iopath-direct",
        "--target",
        "model:hdd-20tb",
        "--rw",
        "randrw",
        "--size",
        "1g",
        "--numjobs",
        "2",
        "--iodepth",
        "8",
        "--elevator",
        "deadline",
        "--device-depth",
        "2",
        "--runtime",
        "2",
        "--repeat",
        "1",
        "--log",
        &log,
    ];
    let output = iopath(&run).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    log
}

fn whatif(args: &[&str], directory: &Path) -> Output {
    iopath(&["whatif"]).args(args).current_dir(directory).env("COLUMNS", "200").output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The stderr of a command that must fail, with its exit code.
fn refused(args: &[&str], directory: &Path) -> (String, Option<i32>) {
    let output = whatif(args, directory);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.lines().count() == 1, "{stderr}");
    (stderr, output.status.code())
}

#[test]
fn a_log_is_replayed_with_the_recorded_settings_as_the_reference() {
    let directory = directory();
    let log = log(directory.path());
    let args = [&log, "--elevator", "none,deadline,fair"];
    let text = stdout(&whatif(&args, directory.path()));
    for part in [
        "recorded",
        "deadline, depth 2 (reference)",
        "fair, depth 2",
        "Against the recorded run",
        "Verdict: ",
    ] {
        let part = part.replace(", depth 2", "");
        assert!(text.contains(&part), "{part}: {text}");
    }
    let json = json_of(&whatif(&[&args[..], &["--json", "-"]].concat(), directory.path()));
    check(&json, &args);
    let cells = json["inputs"][0]["cells"].as_array().unwrap();
    let reference = cells.iter().find(|cell| cell["reference"] == true).unwrap();
    assert_eq!((&reference["depth"], &reference["elevator"]), (&2.into(), &"deadline".into()));
    assert_eq!(reference["figures"], json["inputs"][0]["recorded"], "the replay repeats the run");
    let csv = stdout(&whatif(&[&args[..], &["--format", "csv"]].concat(), directory.path()));
    assert_eq!(csv.lines().count(), 5, "{csv}");
    let markdown = stdout(&whatif(&[&args[..], &["--format", "markdown"]].concat(), directory.path()));
    assert!(markdown.contains("| alternative |"), "{markdown}");
}

#[test]
fn lines_of_json_have_one_cell_each() {
    let directory = directory();
    let log = log(directory.path());
    let args = [&log, "--elevator", "none,fair", "--closed", "--json-lines"];
    let lines = stdout(&whatif(&[&args[..], &["-"]].concat(), directory.path()));
    let cells: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = cells.iter().map(|cell| cell["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["deadline", "none", "fair"]);
    assert!(cells.iter().all(|cell| cell["input"] == log.as_str() && cell["figures"]["iops"].is_f64()));
    let text = stdout(&whatif(&[&args[..], &["l.jsonl"]].concat(), directory.path()));
    assert!(text.starts_with("What if: closed loop"), "{text}");
    assert_eq!(fs::read_to_string(directory.path().join("l.jsonl")).unwrap(), lines);
    fs::write(directory.path().join("notes"), "mine").unwrap();
    let (error, _) = refused(&[&args[..], &["notes"]].concat(), directory.path());
    assert!(error.contains("was not written by iopath") && error.contains("--json-lines"), "{error}");
    let (error, code) = refused(&[&args[..], &["-", "--json", "-"]].concat(), directory.path());
    assert_eq!(code, Some(2), "{error}");
}

#[test]
fn shares_of_a_launcher_are_joined_to_the_same_result() {
    let directory = directory();
    let log = log(directory.path());
    let args = [&log, "--elevator", "none,deadline,ascend,fair", "--json", "part-{shard}.json"];
    for rank in ["0", "1", "2"] {
        let output = iopath(&["whatif"])
            .args([&args[..], &["--shard", "auto"]].concat())
            .current_dir(directory.path())
            .envs([("OMPI_COMM_WORLD_RANK", rank), ("OMPI_COMM_WORLD_SIZE", "3")])
            .output()
            .unwrap();
        assert!(stdout(&output).contains("of 4 cells"));
    }
    let parts = ["part-3.json", "part-1.json", "part-2.json"];
    let merged = whatif(&[&["--merge-parts"], &parts[..]].concat(), directory.path());
    let whole = whatif(&args[..3], directory.path());
    assert_eq!(stdout(&merged), stdout(&whole));
    let (error, _) = refused(&["--merge-parts", "part-1.json", "part-3.json"], directory.path());
    assert!(error.contains("the parts lack 1 of 4 cells, the first is cell 1"), "{error}");
    let (error, _) = refused(&["--merge-parts", &log], directory.path());
    assert!(error.contains("is no part of a study"), "{error}");
}

#[test]
fn inputs_that_cannot_be_replayed_are_refused_by_name() {
    let directory = directory();
    let path = directory.path();
    fs::write(path.join("t.csv"), "time_ns,op,sector,sectors\n0,read,0,8\n7,reed,8,8\n").unwrap();
    let (error, code) = refused(&["t.csv", "--target", "model:cloud"], path);
    assert!(error.contains("t.csv line 3, column op: `reed`: use read, write"), "{error}");
    assert_eq!(code, Some(1));
    let (error, code) = refused(&["t.csv"], path);
    assert!(error.contains("--target model:NAME"), "{error}");
    assert_eq!(code, Some(2));
    for (input, message) in
        [("none.log", "cannot open none.log"), (".", "is not a regular file"), ("/dev/zero", "regular file")]
    {
        assert!(refused(&[input, "--target", "model:cloud"], path).0.contains(message), "{input}");
    }
    let (error, _) = refused(&["t.csv", "--readahead", "off"], path);
    assert!(error.contains("no file accesses"), "{error}");
}
