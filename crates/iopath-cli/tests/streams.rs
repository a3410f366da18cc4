//! Streams that cannot be written and limits of file sizes: results reach every destination that can be written, and no
//! file of iopath stays.

use crate::support::{iopath, scratch_directory};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

const SHORT: &str = "run --path null --size 1m --runtime 50ms --repeat 1";

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Executes a line of a shell, in which `$P` is the program, in a directory.
fn shell(line: &str, directory: &Path) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("P", env!("CARGO_BIN_EXE_iopath")).current_dir(directory);
    command.env("NO_COLOR", "1").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The names of hidden files: those of iopath itself are.
fn own_files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('.')).collect()
}

#[test]
fn a_stderr_that_cannot_be_written_loses_no_result() {
    let directory = directory();
    let log = "run --path iopath-direct --target model:hdd-20tb --rw randread --size 1g --runtime 1 --repeat 1 --log r.log";
    let written = shell(&format!("\"$P\" {log}"), directory.path());
    assert!(written.status.success(), "{}", text(&written.stderr));
    let compared = format!(
        "compare --live --threshold 1000% --repetitions-max 2 '\"$P\" {SHORT} --json -' '\"$P\" {SHORT} --json -'"
    );
    let commands = [
        SHORT,
        "survey model:hdd-20tb --time 2s",
        "whatif r.log --elevator deadline --target model:hdd-20tb",
        "sweep --path null --bs 4k --size 64k --runtime 50ms --repeat 1 -o s.json",
        &compared,
    ];
    // The second stderr is a pipe whose reader has ended.
    for (number, command) in commands.iter().enumerate() {
        for (kind, streams) in ["2>/dev/full", "2>&1 >out | true"].iter().enumerate() {
            let json = format!("{number}-{kind}.json");
            // A shell reports the end of the last program of a pipeline: the code is written to a file.
            let line = format!("{{ \"$P\" {command} --json {json}; echo $? >code; }} {streams}");
            let stdout = text(&shell(&line, directory.path()).stdout);
            let code = fs::read_to_string(directory.path().join("code")).unwrap();
            assert_eq!(code.trim(), "0", "{command} {streams}");
            let results = fs::read_to_string(directory.path().join(&json)).unwrap();
            assert!(results.contains("\"schema\": \"iopath."), "{command} {streams}: {results}");
            assert!(kind == 1 || !stdout.trim().is_empty(), "{command}");
        }
    }
}

#[test]
fn a_stdout_that_cannot_be_written_does_not_lose_the_file_of_results() {
    let directory = directory();
    for (streams, code) in [(">/dev/full", "1"), ("| true", "0"), ("2>&1 | true", "0")] {
        let line = format!("rm -f r.json; {{ \"$P\" {SHORT} --json r.json; echo $? >code; }} {streams}");
        shell(&line, directory.path());
        assert_eq!(fs::read_to_string(directory.path().join("code")).unwrap().trim(), code, "{streams}");
        assert!(directory.path().join("r.json").exists(), "{streams}");
    }
}

#[test]
fn a_limit_of_file_sizes_is_named_and_leaves_no_file() {
    let directory = directory();
    let scratch = "ulimit -f 100; \"$P\" run --path kernel-buffered --size 1m --target . --repeat 1";
    let output = shell(scratch, directory.path());
    let line = text(&output.stderr).lines().last().unwrap_or_default().to_owned();
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(
        line.contains("needs 1 MiB, and the limit of file sizes is") && line.contains("ulimit -f"),
        "{line}"
    );
    assert_eq!(own_files(directory.path()), [""; 0]);
    let long = "run --path null --size 1m --bs 4k --runtime 1s --repeat 3 --log r.log --log-accesses";
    let output = shell(&format!("ulimit -f 100; \"$P\" {long}"), directory.path());
    let line = text(&output.stderr).lines().last().unwrap_or_default().to_owned();
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(line.contains("r.log: the limit of file sizes is") && line.contains("it ends after"), "{line}");
    // The limit is one block of 512 or 1024 bytes.
    fs::write(directory.path().join("r.json"), "{\"schema\":\"iopath.result/1\"}").unwrap();
    for (command, file) in
        [(SHORT, "r.json"), ("sweep --path null --bs 4k,8k --size 64k --runtime 50ms -o s.json", "s.json")]
    {
        let line = format!("ulimit -f 1; \"$P\" {command} --json r.json --force");
        let output = shell(&line, directory.path());
        let line = text(&output.stderr).lines().last().unwrap_or_default().to_owned();
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(line.contains(file) && line.contains("the limit of file sizes is"), "{line}");
    }
    assert_eq!(own_files(directory.path()), [""; 0]);
    let former = fs::read_to_string(directory.path().join("r.json")).unwrap();
    assert_eq!(former, "{\"schema\":\"iopath.result/1\"}", "the former results are unchanged");
}

#[test]
fn a_link_under_an_expected_name_is_never_followed() {
    let directory = directory();
    let victim = directory.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    symlink(&victim, directory.path().join("s.json.new")).unwrap();
    let sweep = "\"$P\" sweep --path null --bs 4k --size 64k --runtime 50ms --repeat 1 -o s.json";
    assert!(shell(sweep, directory.path()).status.success());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    let Some(target) = scratch_directory() else { return };
    // The shell has the process id of the program that replaces it.
    let line = format!(
        "ln -s victim iopath-experiment-$$.log; TMPDIR=. exec \"$P\" experiment log --set requests=1000 --target '{}'",
        target.path().display()
    );
    let output = shell(&line, directory.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    assert_eq!(own_files(directory.path()), [""; 0]);
}

#[test]
fn series_do_not_follow_a_link_either() {
    let directory = directory();
    let (victim, jobs) = (directory.path().join("victim"), directory.path().join("jobs.fio"));
    fs::write(&victim, "mine").unwrap();
    fs::write(&jobs, "[a]\nioengine=null\nsize=1m\nwrite_bw_log=series\n").unwrap();
    symlink(&victim, directory.path().join("series_bw.1.log")).unwrap();
    let run = |arguments: &[&str]| {
        let output = iopath(&[&["run", "jobs.fio"], arguments].concat())
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
        output
    };
    let refused = run(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("series_bw.1.log exists"), "{}", text(&refused.stderr));
    let output = run(&["--overwrite"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let series = fs::read_to_string(directory.path().join("series_bw.1.log")).unwrap();
    assert!(series.lines().count() > 0);
}
