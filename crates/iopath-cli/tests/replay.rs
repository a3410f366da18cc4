//! `iopath replay`: what was recorded is submitted, in its order, where it fits; nothing is written without permission.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Output, Stdio};

use crate::serving::Serving;
use crate::support::schema::check;
use crate::support::{iopath_without_engine as iopath, json_of, scratch_directory, with_default_signals};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const MIB: usize = 1 << 20;

/// Runs a command in a folder.
fn run(folder: &Path, args: &[&str]) -> Output {
    iopath(args).current_dir(folder).output().unwrap()
}

fn succeeds(folder: &Path, args: &[&str]) -> Output {
    let output = run(folder, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    output
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The result of a replay, checked against its schema.
fn replayed(folder: &Path, args: &[&str]) -> Value {
    let args = [&["replay"], args, &["--json", "-"]].concat();
    let document = json_of(&run(folder, &args));
    check(&document, &args);
    document
}

/// The message of a replay that is refused.
fn refused(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, &[&["replay"], args].concat());
    assert!(!output.status.success(), "{args:?} was not refused");
    let message = stderr(&output);
    assert!(!message.contains("panicked"), "{message}");
    message.lines().last().unwrap_or_default().to_owned()
}

/// Writes the log `a.log` of random reads and writes of 4 KiB in 1 MiB, in virtual time.
fn record(folder: &Path) {
    let run = ["run", "--path", "iopath-direct", "--target", "model:ssd-nvme", "--size", "1m", "--bs", "4k"];
    let more = ["--rw", "randrw", "--iodepth", "4", "--runtime", "20ms", "--repeat", "1", "--log", "a.log"];
    succeeds(folder, &[&run[..], &more].concat());
}

/// Operation, offset and length of each bio of a log, in the order of their queueing.
fn ios(folder: &Path, log: &str) -> Vec<String> {
    let output = succeeds(folder, &["convert", log, "-", "--to", "iolog"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let words = |line: &str| line.split(' ').skip(2).map(str::to_owned).collect::<Vec<_>>().join(" ");
    text.lines().map(words).filter(|line| line.split(' ').count() == 3).collect()
}

#[test]
fn a_replay_has_the_recorded_ios_in_their_order() {
    let Some(folder) = scratch_directory() else { return };
    let folder = folder.path();
    record(folder);
    fs::write(folder.join("disk"), vec![7; MIB]).unwrap();
    let recorded = ios(folder, "a.log");
    assert!(recorded.len() > 100, "{}", recorded.len());
    for timing in ["recorded", "closed", "asap"] {
        let args = ["a.log", "--target", "disk", "--overwrite", "--timing", timing, "--log", "b.log"];
        let report = replayed(folder, &args);
        // The order of streams that run at the same time is that of their completions.
        if timing != "closed" {
            assert_eq!(ios(folder, "b.log"), recorded, "{timing}");
        }
        let device = &report["devices"][0];
        assert_eq!(device["planned"], recorded.len(), "{timing}");
        assert_eq!((&device["ios"], &device["failed"]), (&device["planned"], &Value::from(0)), "{timing}");
        let bytes: usize =
            recorded.iter().map(|io| io.split(' ').nth(2).unwrap().parse::<usize>().unwrap()).sum();
        assert_eq!(device["bytes"], bytes, "{timing}");
        for op in device["operations"].as_array().unwrap() {
            // The model has no cache to flush.
            assert!(op["recorded_ns"]["p99"].as_u64().unwrap() > 0 || op["op"] == "flush", "{op}");
            assert!(op["replayed_ns"]["p99"].as_u64().unwrap() > 0, "{op}");
        }
        assert_eq!(device["lateness_ns"].is_object(), timing != "asap", "{timing}");
    }
}

#[test]
fn the_ios_of_several_jobs_are_in_the_order_of_time() {
    let Some(folder) = scratch_directory() else { return };
    let folder = folder.path();
    let run = ["run", "--path", "iopath-direct", "--target", "model:ssd-nvme", "--size", "1m", "--bs", "4k"];
    let more = ["--rw", "randread", "--numjobs", "3", "--runtime", "20ms", "--repeat", "1", "--log", "a.log"];
    succeeds(folder, &[&run[..], &more].concat());
    let output = succeeds(folder, &["convert", "a.log", "-", "--to", "iolog"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let reads = text.lines().filter(|line| line.contains(" read "));
    let times: Vec<u64> = reads.map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert!(times.len() > 100 && times.is_sorted(), "{times:?}");
    let report = replayed(folder, &["a.log", "--target", "."]);
    assert_eq!(report["devices"][0]["ios"], times.len());
}

#[test]
fn the_trace_is_no_target_of_writes() {
    let Some(folder) = scratch_directory() else { return };
    let folder = folder.path();
    record(folder);
    let before = fs::read(folder.join("a.log")).unwrap();
    std::os::unix::fs::symlink("a.log", folder.join("link")).unwrap();
    for target in ["a.log", "link"] {
        let message = refused(folder, &["a.log", "--target", target, "--overwrite", "--fit", "wrap"]);
        assert!(message.contains("a.log is the trace"), "{message}");
    }
    assert!(fs::read(folder.join("a.log")).unwrap() == before);
}

#[test]
fn bios_merge_and_requests_do_not() {
    let Some(folder) = scratch_directory() else { return };
    let folder = folder.path();
    fs::write(folder.join("t.csv"), "time_ns,op,sector,sectors,latency_ns\n0,read,0,8,9\n0,read,8,8,9\n")
        .unwrap();
    for (events, requests) in [("queue", 1), ("dispatch", 2)] {
        let args = ["t.csv", "--target", ".", "--events", events, "--timing", "asap", "--log", "b.log"];
        assert_eq!(replayed(folder, &args)["devices"][0]["ios"], 2, "{events}");
        let log = json_of(&run(folder, &["log", "b.log", "--json", "-"]));
        assert_eq!(log["ops"][0]["requests"], requests, "{events}: {log}");
    }
}

#[test]
fn text_and_page_have_both_latencies_and_the_lateness() {
    let Some(folder) = scratch_directory() else { return };
    let folder = folder.path();
    record(folder);
    let args = ["replay", "a.log", "--target", ".", "--events", "dispatch", "--json", "r.json"];
    let text = String::from_utf8(succeeds(folder, &args).stdout).unwrap();
    for part in [
        "Replay of a.log: requests as dispatched, at the recorded times",
        "recorded",
        "replayed",
        "Submissions late: p50",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    succeeds(folder, &["report", "r.json", "-o", "r.html"]);
    let page = fs::read_to_string(folder.join("r.html")).unwrap();
    assert!(page.contains("Replay of a.log") && page.contains("Submissions late: p50"));
    let csv = succeeds(folder, &["replay", "a.log", "--target", "model:ssd-nvme", "--format", "csv"]).stdout;
    let csv = String::from_utf8(csv).unwrap();
    assert!(csv.starts_with("device,target,op,ios,bytes,failed,"), "{csv}");
    assert_eq!(csv.lines().count(), 4, "{csv}");
}

#[test]
fn nothing_is_written_without_permission() {
    let Some(folder) = scratch_directory() else { return };
    let folder = folder.path();
    fs::write(
        folder.join("t.csv"),
        "time_ns,op,sector,sectors\n0,write,0,8\n10,read,8,8\n20,flush,,\n30,discard,0,8\n",
    )
    .unwrap();
    fs::write(folder.join("disk"), vec![7; 1 << 16]).unwrap();
    let content = || fs::read(folder.join("disk")).unwrap();
    let message = refused(folder, &["t.csv", "--target", "disk"]);
    for part in ["3 writes, discards and flushes", "disk", "--overwrite", "--reads-only"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let report = replayed(folder, &["t.csv", "--target", "disk", "--reads-only"]);
    assert_eq!((&report["devices"][0]["ios"], &report["reads_only"]), (&Value::from(1), &Value::from(true)));
    assert_eq!(content(), vec![7; 1 << 16]);
    // A scratch file and a model need no permission, and the file is removed.
    assert_eq!(replayed(folder, &["t.csv", "--target", "."])["devices"][0]["ios"], 4);
    let args = ["replay", "t.csv", "--target", "model:ssd-nvme", "--json", "-"];
    let output = run(folder, &args);
    // The model has no discards: that failure is counted, and the rest is replayed.
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let device = &report["devices"][0];
    assert_eq!((&device["ios"], &device["failed"]), (&Value::from(3), &Value::from(1)), "{report}");
    assert_eq!(
        (&device["errors"][0]["op"], &device["errors"][0]["count"]),
        (&Value::from("discard"), &Value::from(1))
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("1 I/O failed"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(folder).unwrap().count(), 2);
}

#[test]
fn a_seed_writes_the_same_bytes_and_every_operation_is_kept() {
    let Some(folder) = scratch_directory() else { return };
    let folder = folder.path();
    let text = "time_ns,op,sector,sectors\n0,write,0,8\n10,write,8,16\n20,write,0,8\n30,flush,,\n40,write-zeroes,32,8\n\
                50,discard,40,8\n60,read,0,8\n";
    fs::write(folder.join("t.csv"), text).unwrap();
    let written = |seed| {
        fs::write(folder.join("disk"), vec![7; 1 << 16]).unwrap();
        let args = [
            "t.csv",
            "--target",
            "disk",
            "--overwrite",
            "--seed",
            seed,
            "--timing",
            "asap",
            "--log",
            "b.log",
        ];
        let report = replayed(folder, &[&args[..], &["--iodepth", "1"]].concat());
        let ops = report["devices"][0]["operations"].as_array().unwrap().clone();
        let done: Vec<_> = ops.iter().map(|op| op["op"].as_str().unwrap().to_owned()).collect();
        assert_eq!(done, ["read", "write", "flush", "discard", "write-zeroes"], "{report}");
        assert_eq!(ios(folder, "b.log"), ios(folder, "t.csv"));
        fs::read(folder.join("disk")).unwrap()
    };
    let first = written("1");
    assert_eq!(first, written("1"));
    assert_ne!(first, written("2"));
    assert_ne!(first[..4096], [7; 4096]);
    assert_eq!(first[32 * 512..40 * 512], [0; 4096]);
    assert!(first[48 * 512..].iter().all(|byte| *byte == 7));
}

#[test]
fn ios_beyond_the_target_are_rejected_wrapped_or_scaled() {
    let Some(folder) = scratch_directory() else { return };
    let folder = folder.path();
    // Up to 100 MiB on a target of 10 MiB.
    let mut lines = vec!["time_ns,op,sector,sectors".to_owned()];
    lines.extend((0..100).map(|number| format!("{number},read,{},8", number * 2048)));
    fs::write(folder.join("t.csv"), lines.join("\n") + "\n").unwrap();
    fs::write(folder.join("disk"), vec![7; 10 * MIB]).unwrap();
    let message = refused(folder, &["t.csv", "--target", "disk"]);
    let end = 99 * MIB + 4096;
    for part in [end.to_string(), (10 * MIB).to_string(), "--fit wrap".to_owned()] {
        assert!(message.contains(&part), "{part}: {message}");
    }
    for (fit, first) in [("wrap", [0, MIB, 2 * MIB]), ("scale", [0, 0, 0])] {
        let args = [
            "t.csv",
            "--target",
            "disk",
            "--fit",
            fit,
            "--log",
            "b.log",
            "--timing",
            "asap",
            "--iodepth",
            "1",
        ];
        assert_eq!(replayed(folder, &args)["devices"][0]["ios"], 100, "{fit}");
        let offsets: Vec<usize> =
            ios(folder, "b.log").iter().map(|io| io.split(' ').nth(1).unwrap().parse().unwrap()).collect();
        assert_eq!(offsets[..3], first, "{fit}");
        assert!(offsets.iter().all(|offset| offset + 4096 <= 10 * MIB), "{fit}: {offsets:?}");
    }
    fs::write(folder.join("large.csv"), "time_ns,op,sector,sectors\n0,read,8,64\n").unwrap();
    let message = refused(folder, &["large.csv", "--target", "disk", "--fit", "wrap", "--size", "16k"]);
    assert!(message.contains("32 KiB at byte 4096") && message.contains("16 KiB"), "{message}");
}

#[test]
fn recorded_devices_are_replayed_on_targets_in_order() {
    let Some(folder) = scratch_directory() else { return };
    let folder = folder.path();
    fs::write(
        folder.join("t.csv"),
        "time_ns,op,sector,sectors,disk\n0,read,0,8,3\n10,read,8,8,5\n20,read,16,8,3\n30,read,24,8,9\n",
    )
    .unwrap();
    for disk in ["one", "two"] {
        fs::write(folder.join(disk), vec![7; 1 << 16]).unwrap();
    }
    let message = refused(folder, &["t.csv", "--target", "one"]);
    assert!(message.contains("3 devices for 1 target") && message.contains("--device"), "{message}");
    let message = refused(folder, &["t.csv", "--target", "one", "--device", "none"]);
    assert!(message.contains("device none") && message.contains("(2 I/Os)"), "{message}");
    let names: Vec<String> = {
        let all = ["t.csv", "--target", "one", "--target", "two", "--target", "one"];
        let report = replayed(folder, &all);
        let devices = report["devices"].as_array().unwrap().clone();
        assert_eq!(
            devices.iter().map(|device| device["ios"].as_u64().unwrap()).collect::<Vec<_>>(),
            [2, 1, 1]
        );
        devices.iter().map(|device| device["device"].as_str().unwrap().to_owned()).collect()
    };
    let args = ["t.csv", "--device", &names[2], "--target", "one", "--device", &names[0], "--target", "two"];
    let report = replayed(folder, &args);
    for (device, target, ios) in [(0, "one", 1), (1, "two", 2)] {
        let device = &report["devices"][device];
        assert!(device["target"]["path"].as_str().unwrap().ends_with(target), "{device}");
        assert_eq!(device["ios"], ios);
    }
}

#[test]
fn exports_and_stripes_are_targets() {
    let Some(folder) = scratch_directory() else { return };
    let folder = folder.path();
    record(folder);
    for disk in ["one", "two"] {
        fs::write(folder.join(disk), vec![7; MIB]).unwrap();
    }
    let stripe = "stripe:64k:one,two";
    let report = replayed(folder, &["a.log", "--target", stripe, "--overwrite", "--timing", "asap"]);
    assert_eq!(report["devices"][0]["ios"], report["devices"][0]["planned"]);
    // The scratch directory may have a path that is too long for a socket.
    let sockets = tempfile::tempdir().unwrap();
    let (file, socket) = (folder.join("one"), sockets.path().join("s"));
    let (file, socket) = (file.to_str().unwrap(), socket.to_str().unwrap());
    let mut serving = Serving::start(&["serve", file, "--writable", "--unix", socket]);
    let uri = serving.line();
    let uri = uri.split(' ').next().unwrap();
    let report = replayed(folder, &["a.log", "--target", uri, "--overwrite", "--timing", "closed"]);
    assert_eq!(report["devices"][0]["target"]["kind"], "remote export");
    assert_eq!(report["devices"][0]["ios"], report["devices"][0]["planned"]);
    drop(serving.end(Signal::TERM));
}

#[test]
fn times_select_ios_and_a_closed_loop_needs_latencies() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(
        folder.join("t.csv"),
        "time_ns,op,sector,sectors\n0,read,0,8\n1000000,read,8,8\n2000000,read,0,8\n",
    )
    .unwrap();
    let model = ["t.csv", "--target", "model:ssd-nvme"];
    let with = |more: &[&'static str]| [&model[..], more].concat();
    let report = replayed(folder, &with(&["--from", "1ms", "--to", "2ms"]));
    assert_eq!(report["devices"][0]["planned"], 1);
    assert!(refused(folder, &with(&["--from", "5ms"])).contains("none of them is selected"));
    assert!(refused(folder, &with(&["--timing", "closed"])).contains("--timing recorded"));
    assert!(refused(folder, &with(&["--timing", "asap", "--speed", "2"])).contains("--speed"));
    assert!(refused(folder, &with(&["--path", "kernel-direct"])).contains("iopath-direct"));
    assert!(refused(folder, &["no.csv", "--target", "."]).contains("no.csv"));
}

#[test]
fn a_trace_that_is_wrong_in_the_middle_ends_with_its_error_and_keeps_the_results() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(
        folder.join("t.csv"),
        "time_ns,op,sector,sectors\n0,read,0,8\n10,read,8,8\n20,read,x,8\n30,read,0,8\n",
    )
    .unwrap();
    let output = run(folder, &["replay", "t.csv", "--target", "model:ssd-nvme", "--json", "-"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("t.csv line 4"), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["devices"][0]["ios"], &report["partial"]), (&Value::from(2), &Value::from(true)));
    assert!(report["failure"].as_str().unwrap().contains("line 4"), "{report}");
}

#[test]
fn hostile_traces_are_refused_or_replayed_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    record(folder);
    let log = fs::read(folder.join("a.log")).unwrap();
    let mut cases: Vec<Vec<u8>> = (0..12).map(|part| log[..log.len() * part / 12].to_vec()).collect();
    for place in (0..log.len()).step_by(log.len() / 12 + 1) {
        let mut damaged = log.clone();
        damaged[place] ^= 0x55;
        cases.push(damaged);
    }
    for line in [
        "18446744073709551615,read,281474976710655,16777215,18446744073709551615",
        "0,write,281474976710655,1,0",
        "5,discard,0,16777215,1\n0,read,0,0,1\n0,flush,,,",
        "0,read,1,1,1\n0,read,18446744073709551615,8,1",
    ] {
        cases.push(format!("time_ns,op,sector,sectors,latency_ns\n{line}\n").into_bytes());
    }
    for (number, case) in cases.iter().enumerate() {
        fs::write(folder.join("t"), case).unwrap();
        for timing in ["asap", "closed"] {
            let args = ["replay", "t", "--target", "model:ssd-nvme", "--fit", "wrap", "--timing", timing];
            let output = run(folder, &args);
            assert!(matches!(output.status.code(), Some(0 | 1)), "case {number}: {}", stderr(&output));
            assert!(!stderr(&output).contains("panicked"), "case {number}: {}", stderr(&output));
        }
    }
}

#[test]
fn a_signal_keeps_what_was_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // The second I/O is due in an hour.
    fs::write(folder.join("t.csv"), "time_ns,op,sector,sectors\n0,read,0,8\n3600000000000,read,8,8\n")
        .unwrap();
    let mut command = iopath(&["replay", "t.csv", "--target", "model:ssd-nvme", "--json", "r.json"]);
    command.current_dir(folder);
    let mut command = with_default_signals(&command);
    let mut child =
        command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("replaying 2 I/Os") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the process ended");
    }
    // The line comes before the first I/O.
    std::thread::sleep(std::time::Duration::from_millis(500));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{rest}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 of 2 I/Os"), "{output:?}");
    let report: Value = serde_json::from_slice(&fs::read(folder.join("r.json")).unwrap()).unwrap();
    assert_eq!((&report["devices"][0]["ios"], &report["partial"]), (&Value::from(1), &Value::from(true)));
    assert!(rest.contains("interrupted"), "{rest}");
}
