//! `iopath compare`: files, live commands, exit codes, refusals, and signals. The statistics are tested in the lab.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{becomes_true, iopath, json_of, with_default_signals};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A result of a model in virtual time.
fn measured(file: &Path, depth: &str) {
    let args =
        ["run", "--path", "iopath-direct", "--target", "model:cloud", "--rw", "randread", "--runtime", "1"];
    let output = iopath(&args).args(["--iodepth", depth, "--json"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn compare(args: &[&str]) -> Output {
    iopath(&["compare"]).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn results_of_runs_are_compared_and_a_regression_has_exit_code_3() {
    let folder = directory();
    let [slow, fast] = ["slow", "fast"].map(|name| folder.path().join(name));
    measured(&slow, "1");
    measured(&fast, "8");
    let [slow, fast] = [slow.to_str().unwrap(), fast.to_str().unwrap()];
    // Three repetitions of a noisy model are the same within a wide threshold only.
    let same = compare(&[slow, slow, "--threshold", "20%"]);
    let shown = text(&same.stdout);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stderr));
    assert!(shown.contains("B is the same within 20% as A (iops; 3 repetitions each)"), "{shown}");
    let refused = compare(&[slow, fast]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(
        text(&refused.stderr),
        "iopath: A and B differ in iodepth (1, 8); name intended differences: --vary iodepth\n"
    );
    let faster = compare(&[slow, fast, "--vary", "iodepth"]);
    assert_eq!((faster.status.code(), text(&faster.stdout).contains("B is faster than A")), (Some(0), true));
    let slower = compare(&[fast, slow, "--vary", "iodepth", "--json", "-"]);
    assert_eq!(slower.status.code(), Some(3));
    let json: Value = serde_json::from_slice(&slower.stdout).unwrap();
    assert_eq!((&json["schema"], &json["regression"]), (&"iopath.compare/1".into(), &true.into()));
    assert_eq!(json["runs"][0]["metrics"][0]["verdict"], "slower");
    let document = include_str!("../../../docs/compare.md");
    let mut keys = Vec::new();
    collect(&json, &mut keys);
    let missing: Vec<_> = keys.iter().filter(|key| !document.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/compare.md does not name {missing:?}");
}

fn collect(value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                keys.push(key.clone());
                collect(value, keys);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, keys)),
        _ => {}
    }
}

#[test]
fn an_input_is_not_replaced_by_the_comparison() {
    let folder = directory();
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    measured(&a, "1");
    measured(&b, "1");
    let before = fs::read(&b).unwrap();
    let [a, b] = [a.to_str().unwrap(), b.to_str().unwrap()];
    let output = compare(&[a, &format!("{a},{b}"), "--json", b]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(fs::read(b).unwrap(), before);
}

#[test]
fn unreadable_files_are_one_line() {
    let folder = directory();
    let notes = folder.path().join("notes");
    fs::write(&notes, "mine").unwrap();
    let notes = notes.to_str().unwrap();
    for (a, message, code) in [
        (notes, "has no known format", 1),
        ("/none/such", "cannot read /none/such", 1),
        ("none@x", "selects no run", 2),
        (folder.path().to_str().unwrap(), "cannot read", 1),
    ] {
        let output = compare(&[a, notes]);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(code), 1), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    }
}

#[test]
fn commands_without_json_are_compared_by_their_wall_time() {
    let output = compare(&["--live", "sleep 0.02", "sleep 0.2", "--json", "-"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["live"]["stopped"], &json["live"]["partial"]), (&"clear".into(), &false.into()));
    assert_eq!(json["runs"][0]["metrics"][0]["metric"], "time");
    assert!(json["live"]["pairs"].as_u64().unwrap() <= 10, "{json}");
}

#[test]
fn commands_with_json_are_compared_by_its_metrics() {
    let program = env!("CARGO_BIN_EXE_iopath");
    let command = |depth: u32| {
        format!(
            "{program} run --path iopath-direct --target model:cloud --rw randread --runtime 1 --iodepth {depth} --json -"
        )
    };
    let output = compare(&["--live", &command(1), &command(8), "--json", "-"]);
    let json = json_of(&output);
    assert_eq!(
        (&json["runs"][0]["metrics"][0]["metric"], &json["live"]["pairs"]),
        (&"iops".into(), &5.into())
    );
    assert_eq!(json["runs"][0]["metrics"][0]["verdict"], "faster");
    assert_eq!(json["runs"][0]["differences"][0]["key"], "iodepth");
}

#[test]
fn a_command_that_fails_ends_the_comparison_with_its_message() {
    let folder = directory();
    let count = folder.path().join("count");
    // B fails from its third execution.
    let b = format!(
        "echo x >> {0}; test $(wc -l < {0}) -lt 3 || {{ echo broken >&2; exit 7; }}",
        count.display()
    );
    let output = compare(&["--live", "true", &b]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.lines().last().unwrap().ends_with("failed (exit status: 7): broken"), "{stderr}");
    let stdout = text(&output.stdout);
    assert!(stdout.contains("partial: 2 pairs") && stdout.contains("ended: a command failed"), "{stdout}");
}

#[test]
fn a_signal_keeps_the_complete_pairs_and_ends_the_command() {
    let folder = directory();
    let mark = folder.path().join("executions");
    // A child of the shell: the signal must reach the whole group.
    let command = format!("echo x >> {}; sleep 0.3; true", mark.display());
    // The first look at the data would be after five pairs.
    let args = ["compare", "--live", &command, "sleep 0.02; true"];
    let mut program = with_default_signals(&iopath(&args));
    let child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let executions = || fs::read_to_string(&mark).unwrap_or_default().lines().count();
    assert!(becomes_true(|| executions() >= 3), "no execution began");
    let started = Instant::now();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(started.elapsed() < Duration::from_secs(60));
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("partial: ") && stdout.contains("ended: interrupted"), "{stdout}");
    let left = Command::new("pgrep").args(["-f", mark.to_str().unwrap()]).output();
    assert!(left.is_err() || left.unwrap().stdout.is_empty(), "the command still runs");
}

#[test]
fn a_process_left_in_the_background_does_not_delay_the_end_of_its_command() {
    let started = Instant::now();
    let left = "sleep 600 & echo started";
    let output = compare(&["--live", left, "sleep 0.05", "--repetitions-max", "2", "--json", "-"]);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(120), "{took:?}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&json["live"]["pairs"], &json["runs"][0]["metrics"][0]["metric"]),
        (&2.into(), &"time".into())
    );
    let time = json["runs"][0]["metrics"][0]["means"][0].as_f64().unwrap();
    assert!(time < 0.4, "the time of the command alone: {time}");
    let notes = json["notes"].to_string();
    assert!(notes.contains("A left a process in the background"), "{notes}");
}

#[test]
fn output_that_is_not_one_json_object_is_timed_with_a_note() {
    for (printed, note) in [
        ("echo 12 seconds", "The output of A is not one JSON object"),
        (r#"printf '{"a": 1}\n{"a": 2}\n'"#, "The output of A is not one JSON object"),
        (r#"printf '{"a": 1}\n'"#, "The output of A is JSON of neither iopath nor fio"),
        (r#"printf '{"schema": "iopath.result/1"'"#, "The output of A is not one JSON object"),
    ] {
        let output = compare(&["--live", printed, "true", "--repetitions-max", "2"]);
        let shown = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!([Some(0), Some(3)].contains(&output.status.code()), "{printed}: {}", text(&output.stderr));
        assert!(shown.contains(note) && shown.contains("its wall time is compared"), "{shown}");
    }
    let silent = compare(&["--live", "true", "true", "--repetitions-max", "2"]);
    assert!(!text(&silent.stdout).contains("its wall time is compared"), "no output, no note");
}

#[test]
fn a_signal_leaves_time_for_the_cleanup_of_every_process() {
    for signals in [&[Signal::INT][..], &[Signal::HUP, Signal::TERM]] {
        let folder = directory();
        let [begun, cleaned] = ["begun", "cleaned"].map(|name| folder.path().join(name));
        // The shell ends with SIGTERM at once, and its child needs some time.
        let command = format!(
            "(trap 'sleep 0.4; echo x > {}; exit' TERM; echo x > {}; while :; do sleep 0.05; done) & wait",
            cleaned.display(),
            begun.display()
        );
        let mut program = with_default_signals(&iopath(&["compare", "--live", &command, "sleep 0.02"]));
        let child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        assert!(becomes_true(|| begun.exists()), "no execution began");
        for signal in signals {
            kill_process(Pid::from_child(&child), *signal).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        assert!(output.status.code().is_some_and(|code| code > 128), "{}", text(&output.stderr));
        assert!(cleaned.exists(), "the child was killed before its cleanup ended: {signals:?}");
    }
}

#[test]
fn a_second_signal_ends_a_command_that_ignores_the_first() {
    let folder = directory();
    let begun = folder.path().join("begun");
    let command = format!("trap '' TERM; echo x > {}; while :; do sleep 0.05; done", begun.display());
    let mut program = with_default_signals(&iopath(&["compare", "--live", &command, &command]));
    let mut child = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(becomes_true(|| begun.exists()), "no execution began");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(child.try_wait().unwrap().is_none(), "SIGTERM is ignored");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let started = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn strict_refuses_a_comparison_without_a_verdict() {
    let folder = directory();
    let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
    let run =
        ["run", "--path", "iopath-direct", "--target", "model:cloud", "--rw", "randread", "--runtime", "1"];
    for file in [&one, &two] {
        let output = iopath(&run).args(["--repeat", "1", "--json"]).arg(file).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let [one, two] = [one.to_str().unwrap(), two.to_str().unwrap()];
    assert_eq!(compare(&[one, two]).status.code(), Some(0), "one repetition has no interval");
    assert_eq!(compare(&[one, two, "--strict"]).status.code(), Some(4));
    let live = ["--live", "true", "sleep 0.4", "--repetitions-max", "14", "--strict"];
    assert_eq!(compare(&live).status.code(), Some(3), "a regression keeps its code");
}

#[test]
fn a_comparison_has_every_general_format() {
    let folder = directory();
    let file = folder.path().join("result");
    measured(&file, "1");
    let file = file.to_str().unwrap();
    let shown = |format: &str| {
        let output = compare(&[file, file, "--format", format]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(shown("table"), text(&compare(&[file, file]).stdout));
    let json: Value = serde_json::from_str(&shown("json")).unwrap();
    assert_eq!(json["origin"]["tool"], "iopath");
    let csv = shown("csv");
    assert_eq!(csv.lines().count(), 1 + json["runs"][0]["metrics"].as_array().unwrap().len(), "{csv}");
    assert!(shown("markdown").contains("| iops | IOPS |"));
    let refused = compare(&[file, file, "--format", "fio-json"]);
    assert_eq!(refused.status.code(), Some(2), "a comparison has no jobs");
    let refused = compare(&[file, file, "--format", "csv", "--json", "-"]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0));
    assert!(text(&refused.stderr).contains("both write to stdout"), "{}", text(&refused.stderr));
}

#[test]
fn fio_results_are_compared() {
    if Command::new("fio").arg("--version").output().is_err() {
        eprintln!("skipped: fio is not installed");
        return;
    }
    let folder = directory();
    let fio = format!(
        "fio --name=j --ioengine=null --rw=randread --bs=4k --size=16m --runtime=100ms --output-format=json --directory={}",
        folder.path().display()
    );
    let args = ["--live", &fio, &fio, "--repetitions-max", "3", "--json", "-"];
    let output = compare(&args);
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let metrics: Vec<&str> = json["runs"][0]["metrics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["metric"].as_str().unwrap())
        .collect();
    assert!(metrics.contains(&"iops") && metrics.contains(&"latency"), "{metrics:?}");
}

#[test]
fn several_named_commands_are_compared_with_the_first() {
    let folder = directory();
    let times = folder.path().join("times.csv");
    let base = ["--live", "true", "sleep 0.3", "sleep 0.6", "--repetitions-max", "7"];
    let labels = ["--name", "nothing", "--name", "short", "--name", "long"];
    let all = |more: &[&str]| compare(&[&base[..], &labels, more].concat());
    let output = all(&["--json", "-", "--times", times.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["names"], serde_json::json!(["nothing", "short", "long"]));
    assert_eq!(json["sides"], serde_json::json!(["true", "sleep 0.3", "sleep 0.6"]));
    let sides: Vec<(&str, &str)> = json["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| (run["side"].as_str().unwrap(), run["metrics"][0]["verdict"].as_str().unwrap()))
        .collect();
    assert_eq!(sides, [("short", "slower"), ("long", "slower")]);
    // Each round has each command once.
    let csv = fs::read_to_string(&times).unwrap();
    let names: Vec<&str> = csv.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
    for round in names.chunks(3) {
        let mut round = round.to_vec();
        round.sort_unstable();
        assert_eq!(round, ["long", "nothing", "short"], "{csv}");
    }
    let table = text(&all(&[]).stdout);
    assert!(table.contains("nothing: true") && table.contains("long is slower than nothing"), "{table}");
    assert!(table.contains("difference from nothing"), "{table}");
    let csv = text(&all(&["--format", "csv"]).stdout);
    let side = csv.lines().next().unwrap().split(',').position(|name| name == "side").unwrap();
    let sides: Vec<&str> = csv.lines().skip(1).map(|line| line.split(',').nth(side).unwrap()).collect();
    assert_eq!(sides, ["short", "long"], "{csv}");
    assert!(text(&all(&["--format", "markdown"]).stdout).contains("| long |"));
    for (wrong, message) in [
        (&["--live", "true", "true", "--name", "one"][..], "1 names for 2 commands"),
        (&["--live", "true", "true", "--name", "one", "--name", "one"], "two commands have this name"),
        (&["a", "b", "c"], "--live"),
    ] {
        let output = compare(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
}

#[test]
fn commands_around_those_of_a_live_comparison_run_in_their_order_and_the_times_are_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    let times = directory.path().join("times.csv");
    let step = |name: &str| format!("echo {name} >> {}", trace.display());
    let live = |b: &str| {
        let _ = fs::remove_file(&trace);
        let options = ["--repetitions-max", "2", "--warmup", "1", "--times", times.to_str().unwrap()];
        let around = [step("setup"), step("prepare"), step("cleanup")];
        let [setup, prepare, cleanup] = &around;
        let commands =
            ["--live", &step("A"), b, "--setup", setup, "--prepare", prepare, "--cleanup", cleanup];
        let output = compare(&[&commands[..], &options[..]].concat());
        (output, fs::read_to_string(&trace).unwrap())
    };
    let (output, text) = live(&step("B"));
    assert!(output.status.success(), "{output:?}");
    let steps: Vec<&str> = text.lines().collect();
    assert_eq!((steps[0], steps[steps.len() - 1]), ("setup", "cleanup"));
    let executed = &steps[1..steps.len() - 1];
    assert_eq!(executed.len(), 12, "a warm-up and two pairs, each with its preparation: {steps:?}");
    assert!(executed.chunks(2).all(|pair| pair[0] == "prepare" && pair[1] != "prepare"), "{steps:?}");
    let csv = fs::read_to_string(&times).unwrap();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("execution,side,seconds"));
    let mut sides: Vec<&str> = lines.map(|line| line.split(',').nth(1).unwrap()).collect();
    sides.sort_unstable();
    assert_eq!(sides, ["A", "A", "B", "B"]);
    // The cleanup follows a failure, too.
    let (output, text) = live("false");
    assert_eq!((output.status.code(), text.lines().last()), (Some(1), Some("cleanup")));
    let failing = ["--live", "true", "true", "--setup", "echo broken >&2; exit 3"];
    let output = compare(&failing);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--setup: `echo broken"), "{output:?}");
}
