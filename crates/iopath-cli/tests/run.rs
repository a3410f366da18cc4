//! `iopath run`: results, JSON, exit codes, and errors in one line.

use crate::support::{iopath, json_of, scratch_directory};
use serde_json::Value;
use std::path::Path;

#[test]
fn each_path_reads_and_writes_a_scratch_file_and_leaves_nothing_behind() {
    for path in iopath_bench::paths::PATHS.iter().filter(|row| row.capabilities.needs_target) {
        let Some(directory) = scratch_directory() else { return };
        for rw in ["read", "write", "randread", "randwrite", "rw", "randrw", "rewrite"] {
            let run = iopath(&[
                "run", "--path", path.name, "--rw", rw, "--bs", "16k", "--size", "2m", "--repeat", "2",
            ])
            .args(["--iodepth", "4", "--json", "-", "--target"])
            .arg(directory.path())
            .output()
            .unwrap();
            if String::from_utf8_lossy(&run.stderr).contains("io_uring is refused") {
                eprintln!("skipped: {}: io_uring is refused here", path.name);
                break;
            }
            let report = json_of(&run);
            assert_eq!(report["schema"], "iopath.result/1");
            let result = &report["runs"][0];
            assert_eq!((&result["path"], &result["rw"]), (&path.name.into(), &rw.into()));
            // `rewrite` reads each block and writes it.
            let passes = if rw == "rewrite" { 2 } else { 1 };
            assert_eq!(
                result["bytes"],
                passes * 2 * (2 << 20),
                "{} {rw}: every byte in each repeat",
                path.name
            );
            assert_eq!(result["ios"], passes * 2 * 128);
            assert_eq!(result["repeats"].as_array().map(Vec::len), Some(2));
            assert!(result["iops"]["mean"].as_f64() > Some(0.0));
        }
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 0, "{} left a file behind", path.name);
    }
}

#[test]
fn null_needs_no_target() {
    let run = iopath(&[
        "run",
        "--path",
        "null",
        "--rw",
        "randread",
        "--iodepth",
        "32",
        "--size",
        "64m",
        "--json",
        "-",
    ]);
    let report = json_of(&{ run }.output().unwrap());
    assert_eq!(report["target"], Value::Null);
    assert_eq!(report["runs"][0]["io_depth"], 32);
}

#[test]
fn the_table_goes_to_stdout_and_the_json_to_a_file() {
    let Some(directory) = scratch_directory() else { return };
    let json = directory.path().join("result.json");
    let run = iopath(&["run", "--path", "null", "--size", "16m", "--json"]).arg(&json).output().unwrap();
    assert!(run.status.success());
    let table = String::from_utf8(run.stdout).unwrap();
    assert!(table.contains("IOPS") && table.contains("null"), "{table}");
    assert!(!table.contains('\u{1b}'), "no colours without a terminal");
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(report["runs"][0]["path"], "null");
}

#[test]
fn a_failure_is_one_line_and_exit_code_1() {
    let Some(directory) = scratch_directory() else { return };
    let file = directory.path().join("mine");
    std::fs::write(&file, vec![1; 1 << 20]).unwrap();
    let file = file.to_str().unwrap();
    let missing = directory.path().join("missing");
    let missing = missing.to_str().unwrap();
    let cases: &[(&[&str], &[&str])] = &[
        (&["--path", "kernel-direct", "--target", missing], &["missing does not exist"]),
        (
            &["--path", "kernel-direct", "--target", file, "--bs", "1000"],
            &["1000 bytes", "not a multiple of"],
        ),
        (&["--path", "kernel-buffered", "--target", file, "--rw", "write"], &["destroys", "--overwrite"]),
        (&["--path", "kernel-buffered", "--target", file, "--size", "2m"], &["holds 1 MiB", "2 MiB"]),
        (
            &["--path", "kernel-buffered", "--target", file, "--bs", "1m", "--numjobs", "2"],
            &["holds 1 MiB", "2 MiB", "--numjobs"],
        ),
        (&["--path", "kernel-direct", "--target", "/dev/null"], &["/dev/null"]),
        (&["--path", "kernel-direct", "--target", file, "--json", "/nowhere/at/all"], &["/nowhere/at/all"]),
        (&["--path", "kernel-direct", "--target", file, "--json", file], &["is the target", "--json"]),
        (&["--path", "iopath-direct", "--target", file, "--log", file], &["is the target", "--log"]),
        (&["--path", "null", "--log", "/nowhere/at/all"], &["/nowhere/at/all", "name another file (--log)"]),
    ];
    for (args, parts) in cases {
        let run = iopath(&["run", "--repeat", "1"]).args(*args).output().unwrap();
        let (code, line) = (run.status.code(), last_line(&run.stderr));
        assert_eq!(code, Some(1), "{args:?}: {line}");
        assert!(
            line.starts_with("iopath: ") && parts.iter().all(|text| line.contains(text)),
            "{args:?}: {line}"
        );
    }
    assert!(std::fs::read(file).unwrap().iter().all(|byte| *byte == 1), "the user's file was changed");
}

#[test]
fn an_existing_file_is_replaced_only_if_iopath_wrote_it_or_with_force() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [notes, json, log, map] = ["notes", "json", "log", "map"].map(|name| directory.path().join(name));
    std::fs::write(&notes, "my notes").unwrap();
    let null = ["run", "--path", "null", "--size", "1m", "--repeat", "1"];
    let run = |args: &[&str], option: &str, file: &Path, more: &[&str]| {
        let run = iopath(args).arg(option).arg(file).args(more).output().unwrap();
        (run.status.code(), last_line(&run.stderr))
    };
    for _ in 0..2 {
        assert_eq!(run(&null, "--json", &json, &[]).0, Some(0), "new, then ours");
        assert_eq!(run(&null, "--log", &log, &[]).0, Some(0), "new, then ours");
    }
    let summary = ["log", log.to_str().unwrap()];
    let map_of = ["map", json.to_str().unwrap()];
    let (code, line) = run(&map_of, "--json", &map, &[]);
    assert!(code == Some(0) || line.contains("FIEMAP"), "{line}");
    let cases: [(&[&str], &str); 5] = [
        (&null, "--json"),
        (&null, "--log"),
        (&summary, "--json"),
        (&map_of, "--json"),
        (&["survey", "--time", "2s"], "--json"),
    ];
    for (args, option) in cases {
        let (code, line) = run(args, option, &notes, &[]);
        assert!(
            code == Some(1) && line.contains("--force") && line.contains(option),
            "{args:?} {option}: {line}"
        );
        assert_eq!(std::fs::read(&notes).unwrap(), b"my notes", "{args:?} {option}");
    }
    assert_eq!(run(&null, "--json", &log, &[]).0, Some(1), "a log is no result");
    assert_eq!(run(&null, "--log", &json, &[]).0, Some(1), "a result is no log");
    assert_eq!(run(&null, "--json", &notes, &["--force"]).0, Some(0));
    assert!(std::fs::read_to_string(&notes).unwrap().contains("iopath.result"));
}

#[test]
fn json_goes_to_stdout_without_a_file_on_every_command() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let log = directory.path().join("log");
    let null = ["run", "--path", "null", "--size", "1m", "--repeat", "1"];
    assert!(iopath(&null).arg("--log").arg(&log).output().unwrap().status.success());
    let log = ["log", log.to_str().unwrap()];
    for (args, schema) in [(&null[..], "iopath.result/1"), (&log, "iopath.log-summary/2")] {
        for json in [&["--json"][..], &["--json", "-"]] {
            assert_eq!(
                json_of(&iopath(args).args(json).output().unwrap())["schema"],
                schema,
                "{args:?} {json:?}"
            );
        }
        let file = directory.path().join("json");
        let run = iopath(args).arg("--json").arg(&file).output().unwrap();
        let text = String::from_utf8(run.stdout).unwrap();
        assert!(run.status.success() && !text.starts_with('{'), "{args:?}: text on stdout: {text}");
        let value: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(value["schema"], schema);
    }
}

/// SIGHUP is ignored when the program starts, as under `nohup`.
#[test]
fn an_ignored_hangup_stays_ignored() {
    let Some(directory) = scratch_directory() else { return };
    let run = |script: &str| {
        let args = ["run", "--path", "kernel-buffered", "--size", "16m", "--runtime", "2s", "--repeat", "1"];
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_iopath")]).args(args).arg("--target");
        let mut child = crate::support::with_default_signals(shell.arg(directory.path()))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let has_scratch = || std::fs::read_dir(directory.path()).unwrap().count() > 0;
        assert!(crate::support::becomes_true(has_scratch), "no scratch file appears");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
        let status = child.wait().unwrap();
        assert!(!has_scratch(), "the scratch file is removed");
        status
    };
    assert!(run("trap '' HUP; exec \"$0\" \"$@\"").success(), "an ignored SIGHUP ended the program");
    assert!(!run("exec \"$0\" \"$@\"").success(), "SIGHUP ends the program otherwise");
}

#[test]
fn unwritable_results_are_refused_before_measuring() {
    let directory = tempfile::tempdir().unwrap();
    let run = iopath(&["run", "--path", "null", "--json"]).arg(directory.path()).output().unwrap();
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert_eq!((run.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    let json = directory.path().join("result.json");
    let run = iopath(&["run", "--path", "null", "--bs", "0", "--json"]).arg(&json).output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    assert!(!json.exists(), "a run that fails leaves no file");
}

#[test]
fn a_log_never_replaces_the_target_or_the_results_under_any_name() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [file, hard, soft, new, nowhere] =
        ["mine", "hard", "soft", "new", "nowhere"].map(|name| directory.path().join(name));
    std::fs::write(&file, vec![1; 1 << 20]).unwrap();
    std::fs::hard_link(&file, &hard).unwrap();
    std::os::unix::fs::symlink(&file, &soft).unwrap();
    std::os::unix::fs::symlink("new", &nowhere).unwrap();
    let refused = |args: &[&str], log: &Path, message: &str| {
        let run = iopath(&[&["run", "--size", "1m", "--repeat", "1"], args].concat())
            .arg("--log")
            .arg(log)
            .output()
            .unwrap();
        let line = last_line(&run.stderr);
        assert!(run.status.code() == Some(1) && line.contains(message), "{args:?} {}: {line}", log.display());
        assert!(!new.exists() && nowhere.is_symlink(), "{args:?} {}: leaves a file", log.display());
    };
    for log in [&file, &hard, &soft] {
        let target = ["--path", "iopath-direct", "--target", file.to_str().unwrap()];
        refused(&target, log, "is the target: name another file for the log (--log)");
    }
    let second = format!("model:{}", file.display());
    let targets = ["--path", "iopath-direct", "--target", "model:cloud", "--target", &second];
    refused(&targets, &hard, "is the target: name another file for the log (--log)");
    for json in [&new, &nowhere] {
        let json = ["--path", "null", "--json", json.to_str().unwrap()];
        refused(&json, &new, "is the file for the results (--json): name another file for the log (--log)");
    }
    assert!(std::fs::read(&file).unwrap() == vec![1; 1 << 20], "the user's file was changed");
}

#[test]
fn a_closed_reader_is_a_success_and_a_full_disk_a_failure() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let null = ["run", "--path", "null", "--size", "1m", "--repeat", "1"];
    for args in [&null[..], &["completions", "bash"], &["man"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let run = iopath(args).stdout(writer).output().unwrap();
        assert_eq!(run.status.code(), Some(0), "{args:?}: {}", last_line(&run.stderr));
        let run = iopath(args).stdout(full()).output().unwrap();
        let line = last_line(&run.stderr);
        assert!(run.status.code() == Some(1) && line.contains("cannot write to stdout"), "{args:?}: {line}");
    }
}

#[test]
fn a_file_is_overwritten_only_on_request_and_only_up_to_size() {
    let Some(directory) = scratch_directory() else { return };
    let file = directory.path().join("mine");
    std::fs::write(&file, vec![1; 1 << 20]).unwrap();
    let run = iopath(&["run", "--path", "kernel-direct", "--rw", "write", "--overwrite", "--size", "512k"])
        .args(["--repeat", "1", "--target"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", last_line(&run.stderr));
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(bytes.len(), 1 << 20);
    assert!(bytes[..512 << 10].iter().any(|byte| *byte != 1), "nothing was written");
    assert!(bytes[512 << 10..].iter().all(|byte| *byte == 1), "more than --size was written");
}

#[test]
fn a_signal_removes_the_scratch_file() {
    let Some(directory) = scratch_directory() else { return };
    let mut run =
        iopath(&["run", "--path", "kernel-buffered", "--size", "16m", "--runtime", "60s", "--target"]);
    let mut run = crate::support::with_default_signals(run.arg(directory.path())).spawn().unwrap();
    let has_scratch = || std::fs::read_dir(directory.path()).unwrap().count() > 0;
    assert!(crate::support::becomes_true(has_scratch), "no scratch file appears");
    let pid = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = run.wait().unwrap();
    assert!(!status.success());
    assert!(!has_scratch(), "the scratch file is still there");
}

fn last_line(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr).lines().last().unwrap_or_default().to_owned()
}
