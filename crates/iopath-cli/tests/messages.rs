//! Messages about arguments and inputs: each names the value and a remedy that works. `--quiet`.

use crate::support::iopath;
use std::fs;

/// The last line of stderr of a command that fails with a code.
fn refused(code: i32, args: &[&str]) -> String {
    let output = iopath(args).output().unwrap();
    let lines = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {lines}");
    lines.lines().last().unwrap_or_default().to_owned()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn a_negative_value_is_named_with_its_option() {
    for (option, value) in [("--runtime", "-5s"), ("--size", "-1"), ("--iodepth", "-32")] {
        let line = refused(2, &["run", "--path", "null", option, value]);
        assert!(line.starts_with(&format!("iopath: invalid value '{value}' for {option}")), "{line}");
        assert!(!line.contains("-- -"), "{line}");
    }
}

#[test]
fn a_missing_path_is_answered_with_the_paths() {
    let line = refused(2, &["run", "--target", "/tmp"]);
    assert!(line.contains("--path <PATH>") && line.contains("paths: kernel-buffered, "), "{line}");
}

#[test]
fn a_value_out_of_range_is_answered_with_the_option_the_value_and_the_range() {
    let run = ["run", "--path", "null", "--rw", "randread"];
    for (option, value, valid) in [
        ("--percentage-random", "200", "use 0 to 100"),
        ("--percentage-random", "x", "use 0 to 100"),
        ("--random-distribution", "zipf:x", "zipf:THETA (above 0; 1.1)"),
        ("--random-distribution", "pareto:2", "pareto:POWER (between 0 and 1; 0.2)"),
        ("--random-distribution", "normal:5:7", "a :CENTER from 0 to 1"),
    ] {
        let line = refused(2, &[&run[..], &[option, value]].concat());
        let named = format!("invalid value '{value}' for '{option} ");
        assert!(line.contains(&named) && line.contains(valid) && line.contains("see --help"), "{line}");
    }
}

#[test]
fn binary_input_is_not_quoted() {
    let line = refused(1, &["whatif", env!("CARGO_BIN_EXE_iopath"), "--target", "model:hdd-20tb"]);
    assert!(line.contains("it has binary data") && line.len() < 400, "{line}");
    let directory = directory();
    let file = |name: &str, content: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let packed = file("packed", b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46");
    for command in ["whatif", "log"] {
        let line = refused(1, &[command, &packed]);
        assert!(line.contains("it is compressed with xz: unpack it with unxz"), "{line}");
        let marked = file("marked.log", b"\xef\xbb\xbf\x50\x2a\x4d\x18\0\0\0\0iopath.log");
        let line = refused(1, &[command, &marked]);
        assert!(line.contains("it is a log behind a byte order mark: remove the mark with tail"), "{line}");
    }
    let late = file("late.csv", b"time_ns,op,sector,sectors\n0,r,0,8\n\xff\x01\x1b,r,0,8\n");
    let line = refused(1, &["whatif", &late, "--target", "model:hdd-20tb"]);
    assert!(line.contains("line 3, column time_ns: `3 bytes of binary data`"), "{line}");
    let marked = file("marked.csv", b"\xef\xbb\xbftime_ns,op,sector,sectors\n0,r,0,8\n");
    assert!(iopath(&["whatif", &marked, "--target", "model:hdd-20tb"]).output().unwrap().status.success());
}

#[test]
fn a_colon_in_a_file_name_of_a_job_has_its_escape_in_the_message() {
    let directory = directory();
    let jobs = directory.path().join("jobs.fio");
    let file = directory.path().join("x:y");
    fs::write(&file, [0; 4096]).unwrap();
    fs::write(&jobs, format!("[a]\nioengine=psync\nsize=4k\nfilename={}\n", file.display())).unwrap();
    let line = refused(2, &["run", jobs.to_str().unwrap()]);
    assert!(line.contains(r"`\:` for a colon in a name"), "{line}");
}

#[test]
fn quiet_omits_the_progress_and_keeps_warnings_and_errors() {
    let run = ["run", "--path", "null", "--size", "1m", "--runtime", "50ms", "--repeat", "1"];
    let lines = |more: &[&str]| {
        let output = iopath(&run).args(more).output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let (usual, quiet) = (lines(&[]), lines(&["--quiet"]));
    assert!(usual.contains("measuring, 1 of 1") && !quiet.contains("measuring"), "{quiet}");
    let directory = directory();
    let jobs = directory.path().join("jobs.fio");
    fs::write(&jobs, "[a]\nioengine=null\nsize=64k\nno_such_key=1\n").unwrap();
    let output = iopath(&["run", "--lenient", "-q"]).arg(&jobs).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("no_such_key"), "a warning stays");
    let line = refused(1, &["run", "--path", "kernel-buffered", "--target", "/no/such/file", "-q"]);
    assert!(line.contains("/no/such/file does not exist"), "{line}");
}

#[test]
fn text_in_a_pipe_has_the_width_of_the_manual() {
    let output = |columns: Option<&str>| {
        let mut command = iopath(&["survey", "model:hdd-20tb", "--time", "2s"]);
        match columns {
            None => command.env_remove("COLUMNS"),
            Some(columns) => command.env("COLUMNS", columns),
        };
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        text.lines().map(|line| line.chars().count()).max()
    };
    let (default, wide) = (output(None), output(Some("1000")));
    assert!(default <= Some(80) && wide > Some(80), "{default:?} {wide:?}");
}
