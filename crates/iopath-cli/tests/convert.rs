//! `iopath convert`, and the commands that read traces of other programs.

use std::fs;
use std::path::Path;

use crate::support::{iopath, json_of};

const MSR: &str =
    "128166372003061629,hm,0,Read,383496192,32768,113\n128166372016382155,hm,0,Write,2822144,4096,388\n";

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command in a folder; returns its exit code, stdout and stderr.
fn run(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = iopath(args).current_dir(folder).output().unwrap();
    (output.status.code(), lossy(&output.stdout), lossy(&output.stderr))
}

#[test]
fn a_trace_is_written_in_each_format_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("msr.csv"), MSR).unwrap();
    for name in ["a.log", "a.blktrace.0", "a.iolog", "a.csv", "a.pftrace"] {
        let (code, stdout, stderr) = run(folder.path(), &["convert", "msr.csv", name]);
        assert_eq!((code, stdout.as_str()), (Some(0), ""), "{name}: {stderr}");
        assert!(stderr.contains("recorded in 2007") && stderr.contains(" written as "), "{stderr}");
        if name == "a.pftrace" {
            continue;
        }
        let output = iopath(&["log", name, "--json", "-"]).current_dir(folder.path()).output().unwrap();
        assert_eq!(json_of(&output)["flow"]["bios"], 2, "{name}");
    }
    let (code, stdout, _) = run(folder.path(), &["convert", "msr.csv", "-", "--to", "csv"]);
    assert_eq!((code, stdout.lines().count()), (Some(0), 3), "{stdout}");
    assert!(stdout.contains("0,read,749016,64,0,0,11300\n"), "{stdout}");
}

#[test]
fn the_summary_states_what_the_trace_lacks() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.csv"), "1538323199,74656712,16,0,1063\n1538323199,8,16,1,7\n").unwrap();
    let (code, stdout, stderr) = run(folder.path(), &["log", "t.csv"]);
    assert_eq!(code, Some(0), "{stderr}");
    for part in ["note: times are whole seconds", "note: 2 I/Os have no latency", "2 devices"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let (code, stdout, stderr) = run(folder.path(), &["whatif", "t.csv", "--target", "model:hdd-20tb"]);
    assert!(code == Some(0) && stdout.contains("times are whole seconds"), "{stdout}{stderr}");
    let (code, _, stderr) =
        run(folder.path(), &["whatif", "t.csv", "--target", "model:hdd-20tb", "--closed"]);
    assert!(code == Some(1) && stderr.contains("has no completions"), "{stderr}");
}

#[test]
fn a_page_shows_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("msr.csv"), MSR).unwrap();
    let (code, _, stderr) = run(folder.path(), &["report", "msr.csv", "-o", "page.html"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(fs::read_to_string(folder.path().join("page.html")).unwrap().contains("MSR Cambridge"));
}

#[test]
fn no_file_is_replaced_without_force_and_a_failure_leaves_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("msr.csv"), MSR).unwrap();
    fs::write(path("kept.csv"), "mine").unwrap();
    let (code, _, stderr) = run(folder.path(), &["convert", "msr.csv", "kept.csv"]);
    assert!(code != Some(0) && stderr.contains("--force"), "{stderr}");
    assert_eq!(fs::read_to_string(path("kept.csv")).unwrap(), "mine");
    assert_eq!(run(folder.path(), &["convert", "msr.csv", "kept.csv", "--force"]).0, Some(0));
    let (code, _, stderr) = run(folder.path(), &["convert", "msr.csv", "msr.csv", "--force"]);
    assert!(code != Some(0) && stderr.contains("msr.csv"), "{stderr}");
    assert_eq!(fs::read_to_string(path("msr.csv")).unwrap(), MSR);

    fs::write(path("wrong.csv"), format!("{MSR}x\n{MSR}")).unwrap();
    let (code, _, stderr) = run(folder.path(), &["convert", "wrong.csv", "out.blktrace.0"]);
    assert!(code == Some(1) && stderr.contains("wrong.csv line 3: "), "{stderr}");
    assert!(
        !fs::exists(path("out.blktrace.0")).unwrap() || fs::read(path("out.blktrace.0")).unwrap().is_empty()
    );
    let (code, _, stderr) = run(folder.path(), &["convert", "msr.csv", "out.txt"]);
    assert!(code == Some(2) && stderr.contains(".blktrace.NUMBER") && stderr.contains("--to"), "{stderr}");
}
