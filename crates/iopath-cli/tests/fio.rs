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
    for bin in bins.keys().map(|bin| bin.parse::<u64>().unwrap()).filter(|bin| *bin >= 128) {
        // fio has 64 bins in each factor of two, and names them by their middle.
        let width = 1 << (bin.ilog2() - 6);
        assert_eq!(bin % width, width / 2, "{bin}");
    }
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

/// The entries of the JSON of jobs on engine `null`.
fn entries(directory: &Path, keys: &str) -> Vec<Value> {
    let line = format!("--ioengine=null --size=400k --rw=randrw --output-format=json+ {keys}");
    let json: Value = serde_json::from_str(&stdout(&fio(directory, &line))).unwrap();
    json["jobs"].as_array().unwrap().clone()
}

#[test]
fn jobs_of_a_group_are_one_entry_as_in_fio() {
    let directory = tempfile::tempdir().unwrap();
    // In fio 3.33, these are the entries a (a and b), c, d (new_group) and e (stonewall); s is left out.
    let jobs = "--group_reporting --name=a --numjobs=3 --rw=randread --name=b --rw=write --bs=8k --name=c --group_reporting=0 \
                --name=d --new_group --name=s --stats=0 --name=e --stonewall";
    let found = entries(directory.path(), jobs);
    let of = |key: &str| found.iter().map(|job| job[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("jobname"), ["a", "c", "d", "e"]);
    assert_eq!(of("groupid"), [0, 0, 1, 2]);
    let first = &found[0];
    assert_eq!((&first["read"]["total_ios"], &first["write"]["total_ios"]), (&300.into(), &50.into()));
    assert_eq!((&first["read"]["clat_ns"]["N"], &first["write"]["clat_ns"]["N"]), (&300.into(), &50.into()));
    assert_eq!(first["job options"]["bs"], "8k", "those of the last job");
    assert!(first["ctx"].is_u64() && first["usr_cpu"].is_f64());
    let classes = ["latency_ns", "latency_us", "latency_ms"].map(|unit| first[unit].as_object().unwrap());
    let percent: f64 = classes.into_iter().flatten().map(|(_, percent)| percent.as_f64().unwrap()).sum();
    assert!((percent - 100.0).abs() < 1e-6, "{percent}");
    let normal = stdout(&fio(
        directory.path(),
        &format!("--ioengine=null --size=400k {jobs}  --output-format=normal"),
    ));
    assert!(normal.contains("a: (groupid=0, jobs=4): err= 0"), "{normal}");
}

#[test]
fn percentiles_and_directions_are_those_of_the_keys() {
    let directory = tempfile::tempdir().unwrap();
    let keys = "--name=a --percentile_list=99:50:99.9 --lat_percentiles=1 --clat_percentiles=0";
    let [job] = &entries(directory.path(), keys)[..] else { panic!("one job") };
    let names: Vec<&String> = job["read"]["lat_ns"]["percentile"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["50.000000", "99.000000", "99.900000"]);
    assert!(job["read"]["clat_ns"]["percentile"].is_null() && job["mixed"].is_null());
    for (value, sections) in [
        ("none", &["read", "write", "trim", "sync"][..]),
        ("mixed", &["mixed"]),
        ("both", &["read", "write", "trim", "sync", "mixed"]),
    ] {
        let [job] = &entries(directory.path(), &format!("--name=a --unified_rw_reporting={value}"))[..]
        else {
            panic!("one job")
        };
        for section in ["read", "write", "trim", "sync", "mixed"] {
            assert_eq!(sections.contains(&section), job.get(section).is_some(), "{value}: {section}");
        }
        let mixed = job["mixed"]["total_ios"].as_u64();
        assert_eq!(mixed, (value != "none").then_some(100), "{value}");
    }
    let lines = |value: &str| {
        let line = format!("{NULL}terse --unified_rw_reporting={value}");
        stdout(&fio(directory.path(), &line)).trim_end().split(';').count()
    };
    // The numbers of fields that fio 3.33 prints.
    assert_eq!(["none", "mixed", "both"].map(lines), [121, 80, 162]);
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
