//! `iopath run` and signals: complete repetitions are kept, logs are closed, scratch files are removed.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{becomes_true, iopath, json_of, with_default_signals};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn spawn(command: &Command) -> Child {
    with_default_signals(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Reads lines of stderr until one contains the first of these words, then until one contains the next, and so on.
fn read_until(stderr: &mut impl BufRead, marks: &[&str]) -> String {
    let mut lines = String::new();
    for mark in marks {
        let mut from = lines.len();
        while !lines[from..].contains(mark) {
            from = lines.len();
            assert!(stderr.read_line(&mut lines).unwrap() > 0, "the process ended before {mark}: {lines}");
        }
    }
    lines
}

/// Sends a signal after these lines of progress, and returns the end of the process.
fn interrupted(mut child: Child, marks: &[&str], signal: Signal) -> std::process::Output {
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut lines = read_until(&mut stderr, marks);
    if marks.last() == Some(&FIRST) {
        // The line comes before the first transfers, and a part of a repetition is a result if it has any.
        std::thread::sleep(Duration::from_millis(500));
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    stderr.read_to_string(&mut lines).unwrap();
    std::process::Output { stderr: lines.into_bytes(), ..child.wait_with_output().unwrap() }
}

/// The progress of the first repetition.
const FIRST: &str = "measuring, 1 of ";

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn report(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// 1000 repetitions of 200 ms each without a device, after the idle sample.
const LONG: [&str; 9] = ["run", "--path", "null", "--size", "1m", "--runtime", "200ms", "--repeat", "1000"];

#[test]
fn the_complete_repetitions_are_printed_and_written_and_marked_as_partial() {
    let directory = directory();
    for (signal, lists) in [(Signal::INT, false), (Signal::TERM, true), (Signal::HUP, false)] {
        let json = directory.path().join(format!("{}.json", signal.as_raw()));
        let mut command = iopath(&LONG);
        command.arg("--json").arg(&json);
        if lists {
            command.args(["--bs", "4k,8k"]);
        }
        let output = interrupted(spawn(&command), &["measuring, 4 of 1000"], signal);
        assert_eq!(output.status.signal(), Some(signal.as_raw()), "{output:?}");
        let (table, lines) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(table.contains("IOPS") && table.contains("null"), "{table}\n{lines}");
        assert!(
            lines.contains("interrupted: ") && lines.contains("of 1000 repetitions are complete"),
            "{lines}"
        );
        for run in report(&json)["runs"].as_array().unwrap() {
            assert_eq!(run["partial"], true);
            let repeats = run["repeats"].as_array().unwrap();
            assert!((1..1000).contains(&repeats.len()), "{}", repeats.len());
            let complete = repeats.iter().all(|repeat| repeat["seconds"].as_f64().unwrap() >= 0.2);
            assert!(complete, "an incomplete repetition is not a result: {repeats:?}");
        }
    }
}

#[test]
fn a_job_file_keeps_the_groups_before_a_signal() {
    let directory = directory();
    let (file, json) = (directory.path().join("jobs.fio"), directory.path().join("result.json"));
    let jobs = "[global]\nioengine=null\nsize=1m\n[first]\n[second]\nstonewall\ntime_based\nruntime=100\n[third]\nstonewall\n";
    std::fs::write(&file, jobs).unwrap();
    let mut command = iopath(&["run"]);
    command.arg(&file).arg("--json").arg(&json);
    let output = interrupted(spawn(&command), &["group 2 of 3", FIRST], Signal::INT);
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{output:?}");
    let report = report(&json);
    let names: Vec<&Value> =
        report["runs"].as_array().unwrap().iter().map(|run| &run["job"]["name"]).collect();
    assert_eq!(names, ["first", "second"]);
    assert_eq!((&report["runs"][0]["partial"], &report["runs"][1]["partial"]), (&Value::Null, &true.into()));
    let lines = String::from_utf8_lossy(&output.stderr);
    assert!(lines.contains("interrupted in group 2 of 3: later groups did not run"), "{lines}");
    assert!(lines.contains("second: interrupted: 0 of 1 repetitions are complete"), "{lines}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("first"));
}

/// Fails unless the first repetition of the first run was cut off, and the figures are those of its part.
fn check_cut_off(output: &std::process::Output, json: &Path) {
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{output:?}");
    let lines = String::from_utf8_lossy(&output.stderr);
    assert!(lines.contains("repetitions are complete; the figures are of the first "), "{lines}");
    let report = report(json);
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1, "{report}");
    assert_eq!((&runs[0]["partial"], &runs[0]["repeats"][0]["cut_off"]), (&true.into(), &true.into()));
    let [ios, seconds] = ["ios", "seconds"].map(|name| runs[0]["repeats"][0][name].as_f64().unwrap());
    assert!(ios > 0.0 && seconds > 0.0, "{}", runs[0]["repeats"]);
    let warnings = runs[0]["warnings"].to_string();
    assert!(warnings.contains("interrupted: 0 of "), "{warnings}");
}

#[test]
fn a_first_repetition_that_is_cut_off_is_the_result_and_the_scratch_file_is_removed() {
    let directory = directory();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let json = directory.path().join("r.json");
    let on_scratch = ["run", "--path", "kernel-buffered", "--size", "1m", "--runtime", "100s", "--target"];
    let lists = ["run", "--path", "null", "--bs", "4k,8k", "--size", "1m", "--runtime", "100s"];
    let model = ["run", "--path", "iopath-direct", "--rw", "randread", "--runtime", "10000000s"];
    let file = directory.path().join("jobs.fio");
    std::fs::write(
        &file,
        "[global]\nsize=1g\nrw=randread\ntime_based\nruntime=10000000\n[first]\n[second]\n",
    )
    .unwrap();
    let jobs = |target: &str| {
        let mut command = iopath(&["run"]);
        command.arg(&file).args(["--path", "iopath-direct", "--target", target]);
        command
    };
    let mut commands = vec![iopath(&lists)];
    let mut scratch = iopath(&on_scratch);
    scratch.arg(place.path()).args(["--format", "csv"]);
    commands.push(scratch);
    commands.push(iopath(&[&model[..], &["--target", "model:hdd-20tb"]].concat()));
    for mut command in commands {
        command.arg("--json").arg(&json);
        let output = interrupted(spawn(&command), &[FIRST], Signal::INT);
        check_cut_off(&output, &json);
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(
            table.contains("null") || table.contains("kernel-buffered") || table.contains("IOPS"),
            "{table}"
        );
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    let mut command = jobs("model:hdd-20tb");
    command.arg("--json").arg(&json);
    let output = interrupted(spawn(&command), &[FIRST], Signal::INT);
    let lines = String::from_utf8_lossy(&output.stderr);
    assert!(lines.contains("first: interrupted: 0 of 1 repetitions are complete"), "{lines}");
    let report = report(&json);
    let cut_off = report["runs"].as_array().unwrap().iter().map(|run| run["repeats"][0]["cut_off"] == true);
    assert_eq!(cut_off.collect::<Vec<_>>(), [true, true]);
    assert!(report["groups"][0]["ios"].as_u64() > Some(0));
}

#[test]
fn a_sweep_shows_the_cells_so_far_and_measures_the_one_that_was_cut_off_again() {
    let directory = directory();
    let file = directory.path().join("s.json");
    let mut command =
        iopath(&["sweep", "--path", "null", "--bs", "4k..512k", "--size", "1m", "--repeat", "1"]);
    command.args(["--runtime", "800ms", "--output"]).arg(&file);
    let child = spawn(&command);
    let has_cell = || {
        let sweep = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        let has_run = |cells: &Vec<Value>| cells.iter().any(|cell| !cell["run"].is_null());
        sweep.is_some_and(|sweep| sweep["cells"].as_array().is_some_and(has_run))
    };
    assert!(becomes_true(has_cell), "no cell was measured");
    let output = interrupted(child, &[], Signal::INT);
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{output:?}");
    let (text, lines) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("not measured yet") && text.contains("MB/s"), "{text}");
    assert_eq!(lines.matches("sweep --resume").count(), 1, "{lines}");
    let sweep = report(&file);
    assert_eq!(sweep["complete"], false);
    let cells = sweep["cells"].as_array().unwrap();
    assert!(cells.iter().all(|cell| cell["run"].is_null() || cell["run"]["partial"].is_null()), "{sweep}");
    assert!(
        cells.iter().any(|cell| !cell["run"].is_null()) && cells.iter().any(|cell| cell["run"].is_null())
    );
}

#[test]
fn a_log_cut_off_by_a_signal_is_complete_up_to_it() {
    let directory = directory();
    let log = directory.path().join("log");
    let mut command = iopath(&LONG);
    command.args(["--rate-iops", "2000", "--log"]).arg(&log);
    let output = interrupted(spawn(&command), &["measuring, 8 of 1000"], Signal::INT);
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{output:?}");
    let summary = json_of(&iopath(&["log"]).arg(&log).arg("--json").output().unwrap());
    assert!(summary["damage"].is_null() && summary["records"].as_u64().unwrap() > 1000, "{summary}");
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    // A FIFO without a reader blocks the output of the results, so the first signal alone does not end the process.
    let directory = directory();
    let fifo = directory.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let mut command = iopath(&LONG);
    command.arg("--json").arg(&fifo);
    let mut child = spawn(&command);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    read_until(&mut stderr, &["measuring, 2 of 1000"]);
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(child.try_wait().unwrap().is_none(), "it waits for the reader of the results");
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let command =
        iopath(&["run", "--path", "null", "--size", "1m", "--runtime", "1s", "--repeat", "1", "--json"]);
    let mut wrapped = Command::new("env");
    wrapped.arg("--ignore-signal=HUP").arg(command.get_program()).args(command.get_args());
    let child = wrapped.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let report = json_of(&interrupted(child, &[FIRST], Signal::HUP));
    assert_eq!(report["runs"][0]["partial"], Value::Null);
}
