//! `iopath fio`: exit codes, formats, files that stay, and the name `fio` of the program.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::iopath;

fn fio(directory: &Path, line: &str) -> Output {
    iopath(&["fio"]).args(line.split_whitespace()).current_dir(directory).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const NULL: &str = "--name=a --ioengine=null --size=400k --rw=randread --output-format=";

/// A directory whose files can have the mark of iopath; none, with a line on stderr, where the filesystem has no
/// extended attributes.
fn with_marks() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = fio(directory.path(), "--name=probe --size=4k --rw=read");
    if stderr(&output).contains("no extended attributes") {
        eprintln!("skipped: {}", stderr(&output));
        return None;
    }
    Some(directory)
}

#[test]
fn each_format_shows_the_same_job() {
    let directory = tempfile::tempdir().unwrap();
    let shown = |format: &str| stdout(&fio(directory.path(), &format!("{NULL}{format}")));
    let json: Value = serde_json::from_str(&shown("json")).unwrap();
    assert_eq!(
        (&json["jobs"][0]["jobname"], &json["jobs"][0]["read"]["total_ios"]),
        (&"a".into(), &100.into())
    );
    assert!(json["jobs"][0]["read"]["clat_ns"]["bins"].is_null());
    let plus: Value = serde_json::from_str(&shown("json+")).unwrap();
    let bins = plus["jobs"][0]["read"]["clat_ns"]["bins"].as_object().unwrap();
    assert_eq!(bins.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), 100);
    let normal = shown("normal");
    assert!(normal.starts_with("a: (groupid=0, jobs=1): err= 0: pid="), "{normal}");
    for part in ["\n  read: IOPS=", "clat percentiles (", "issued rwts: total=100,0,0,0", "   READ: bw="] {
        assert!(normal.contains(part), "{part}: {normal}");
    }
    let both = shown("terse,normal");
    assert!(both.starts_with("3;iopath-") && both.contains("\na: (groupid=0"), "{both}");
    let text = stdout(&fio(directory.path(), "--name=a --ioengine=null --size=400k"));
    assert!(text.trim_start().starts_with("job "), "the text of iopath: {text}");
}

#[test]
fn lines_have_the_fields_of_their_version() {
    let directory = tempfile::tempdir().unwrap();
    // The numbers of fields that fio 3.33 prints.
    for (version, fields) in [(2, 161), (3, 121), (4, 162), (5, 180)] {
        let line = stdout(&fio(directory.path(), &format!("{NULL}terse --terse-version={version}")));
        assert_eq!(line.trim_end().split(';').count(), fields, "{version}: {line}");
    }
}

#[test]
fn exit_codes_are_those_of_fio() {
    let directory = tempfile::tempdir().unwrap();
    for (line, code, shows) in [
        ("--version", 0, "fio-3."),
        ("--help", 0, "--cmdhelp"),
        ("--cmdhelp=iodepth", 0, "--iodepth"),
        ("--cmdhelp", 0, "write_hist_log"),
        ("--enghelp", 0, "io_uring"),
        ("--parse-only --name=a --size=1g --filename=never", 0, ""),
        ("--showcmd --name=a --rw=read", 0, "fio --name=a --rw=read"),
        ("", 1, "no job"),
        ("--name=a --frob=1", 1, "unknown option --frob"),
        ("--name=a --rw=sideways", 1, "`rw=sideways` is not valid"),
        ("--name=a --rw=write --size=4k --readonly", 1, "--readonly"),
        ("missing.fio", 1, "cannot read job file missing.fio"),
    ] {
        let output = fio(directory.path(), line);
        assert_eq!(output.status.code(), Some(code), "{line}: {}", stderr(&output));
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
        assert!(text.contains(shows), "{line}: {text}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing ran");
}

#[test]
fn a_file_that_it_creates_stays_and_may_be_written_again() {
    let Some(directory) = with_marks() else { return };
    let line = "--name=t --rw=randwrite --size=256k --filename=x";
    for _ in 0..2 {
        stdout(&fio(directory.path(), line));
    }
    let size = || fs::metadata(directory.path().join("x")).unwrap().len();
    assert_eq!(size(), 256 << 10);
    stdout(&fio(directory.path(), "--name=t --rw=write --size=512k --filename=x"));
    assert_eq!(size(), 512 << 10, "a larger job replaces it");
    stdout(&fio(directory.path(), "--name=t --rw=read --filename=x"));
    stdout(&fio(directory.path(), "--name=t --rw=read --size=64k --numjobs=2"));
    assert!(directory.path().join("t.0.0").is_file() && directory.path().join("t.1.0").is_file());
    stdout(&fio(directory.path(), "--name=t --rw=read --size=64k --filename=x --unlink=1"));
    assert!(!directory.path().join("x").exists());
}

#[test]
fn a_file_of_the_user_is_read_and_never_written() {
    let Some(directory) = with_marks() else { return };
    let file = directory.path().join("mine");
    fs::write(&file, vec![7; 64 << 10]).unwrap();
    stdout(&fio(directory.path(), "--name=t --rw=read --filename=mine"));
    // The key of fio permits nothing.
    let output = fio(directory.path(), "--name=t --rw=write --filename=mine --overwrite=1");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("--allow-overwrite"), "{}", stderr(&output));
    assert_eq!(fs::read(&file).unwrap(), vec![7; 64 << 10]);
    stdout(&fio(directory.path(), "--name=t --rw=write --filename=mine --allow-overwrite"));
    assert_ne!(fs::read(&file).unwrap(), vec![7; 64 << 10]);
    // A file that iopath created belongs to the user after a change.
    stdout(&fio(directory.path(), "--name=t --rw=write --size=64k --filename=x"));
    fs::write(directory.path().join("x"), vec![8; 64 << 10]).unwrap();
    assert_eq!(fio(directory.path(), "--name=t --rw=write --size=64k --filename=x").status.code(), Some(1));
    assert_eq!(fs::read(directory.path().join("x")).unwrap(), vec![8; 64 << 10]);
}

#[test]
fn results_go_to_a_file_unless_it_is_one_of_the_user() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("out");
    for format in ["json", "normal", "terse", "json"] {
        let output = fio(directory.path(), &format!("{NULL}{format} --output=out"));
        assert_eq!(stdout(&output), "", "{format}");
        assert!(fs::metadata(&file).unwrap().len() > 0, "{format}");
    }
    fs::write(&file, "my notes").unwrap();
    let output = fio(directory.path(), &format!("{NULL}json --output=out"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&file).unwrap(), "my notes");
}

#[test]
fn jobs_may_come_from_standard_input_and_files_are_only_created_on_request() {
    let Some(directory) = with_marks() else { return };
    let mut command = iopath(&["fio", "--output-format=json", "--size=64k", "-"]);
    let mut child = command
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"[a]\nioengine=null\n[b]\nioengine=null\n").unwrap();
    let json: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(json["jobs"].as_array().unwrap().len(), 2);
    let output =
        fio(directory.path(), "--name=p --filename=made --size=128k --create_only=1 --output-format=json");
    assert_eq!(serde_json::from_str::<Value>(&stdout(&output)).unwrap()["jobs"], serde_json::json!([]));
    assert_eq!(fs::metadata(directory.path().join("made")).unwrap().len(), 128 << 10);
}

#[test]
fn a_program_of_the_name_fio_takes_the_arguments_of_fio() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("fio");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_iopath"), &link).unwrap();
    let output =
        Command::new(&link).args(["--name=a", "--ioengine=null", "--size=4k", "--minimal"]).output().unwrap();
    assert!(stdout(&output).starts_with("3;iopath-"));
    assert_eq!(Command::new(&link).arg("--frob=1").output().unwrap().status.code(), Some(1));
}
