//! The examples of fio for block I/O on local files and devices: which of them run, and why the others are refused.
//! Uses the examples on this machine, in the directory of the environment variable `FIO_EXAMPLES` or of the package
//! `fio`; skipped without them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{iopath, scratch_directory};

/// The examples that run.
const RUN: &[&str] = &[
    "1mbs_clients",
    "aio-read",
    "backwards-read",
    "basic-verify",
    "butterfly",
    "cmdprio-bssplit",
    "cmdprio-percentage",
    "cross-stripe-verify",
    "dedupe-global",
    "disk-zone-profile",
    "enospc-pressure",
    "example_latency_steadystate",
    "exitwhat",
    "fio-rand-RW",
    "fio-rand-read",
    "fio-rand-write",
    "fio-seq-RW",
    "fio-seq-read",
    "fio-seq-write",
    "fixed-rate-submission",
    "flow",
    "fsx",
    "iometer-file-access-server",
    "jesd219",
    "latency-profile",
    "null",
    "poisson-rate-submission",
    "rand-zones",
    "sequence-distribution",
    "ssd-steadystate",
    "ssd-test",
    "steadystate",
    "surface-scan",
    "tiobench-example",
    "waitfor",
    "zipf",
];

/// The examples that are refused, with the key or value in the message.
const REFUSED: &[(&str, &str)] = &[("atomic-verify", "atomic"), ("sprandom", "sprandom")];

/// Jobs of `cross-stripe-verify` access ranges that are 124 GiB apart.
const SPARSE_BYTES: u64 = 4 << 40;

fn examples() -> Option<PathBuf> {
    let of_package = PathBuf::from("/usr/share/doc/fio/examples");
    let directory = std::env::var_os("FIO_EXAMPLES").map_or(of_package, PathBuf::from);
    if directory.is_dir() {
        return Some(directory);
    }
    eprintln!("skipped: {} does not exist; FIO_EXAMPLES names the examples of fio", directory.display());
    None
}

/// The job file of an example; none if this version of fio lacks it.
fn example(directory: &Path, name: &str) -> Option<PathBuf> {
    let file = directory.join(format!("{name}.fio"));
    let found = file.is_file();
    if !found {
        eprintln!("skipped: no example {name}");
    }
    found.then_some(file)
}

#[test]
fn the_documentation_lists_each_example_with_its_outcome() {
    let docs = include_str!("../../../docs/jobfiles.md");
    let names = RUN.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    assert!(docs.contains(&format!("| {names} | run |")), "docs/jobfiles.md lacks: {names}");
    for (name, _) in REFUSED {
        let row = docs.lines().find(|line| line.contains(&format!("`{name}`")) && line.contains("refused:"));
        assert!(row.is_some(), "docs/jobfiles.md lacks {name}");
    }
}

#[test]
fn each_example_runs_or_is_refused_by_a_key() {
    let (Some(directory), Some(target)) = (examples(), scratch_directory()) else { return };
    let (sparse, series) = (target.path().join("sparse"), tempfile::tempdir().unwrap());
    let sparse_size = fs::File::create(&sparse).and_then(|file| file.set_len(SPARSE_BYTES));
    let has_node = |node: u32| Path::new(&format!("/sys/devices/system/node/node{node}")).exists();
    let run = |name: &str, file: &Path| {
        let text = fs::read_to_string(file).unwrap();
        // The path works where io_uring is refused. Only io_uring has priorities of single transfers.
        let is_synchronous = text.contains("libaio") && !text.contains("cmdprio");
        let path: &[&str] = if is_synchronous { &["--path", "kernel-direct"] } else { &[] };
        let on: &[&OsStr] = match name {
            "1mbs_clients" => &["--target".as_ref(), "model:hdd-20tb".as_ref()],
            "cross-stripe-verify" => &["--target".as_ref(), sparse.as_ref(), "--overwrite".as_ref()],
            _ => &["--target".as_ref(), target.path().as_ref()],
        };
        let mut run = iopath(&["run"]);
        // Series over time lie in the current directory.
        run.current_dir(series.path())
            .arg(file)
            .args(["--size", "4m", "--runtime", "200ms"])
            .args(path)
            .args(on);
        let output = run.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for name in RUN {
        let Some(file) = example(&directory, name) else { continue };
        if *name == "cross-stripe-verify" && sparse_size.is_err() {
            eprintln!("skipped: {name}: no sparse file of 4 TiB here");
            continue;
        }
        let (code, lines) = run(name, &file);
        if name.contains("cmdprio") && lines.contains("io_uring is refused") {
            eprintln!("skipped: {name}: {lines}");
            continue;
        }
        assert_eq!(code, Some(0), "{name}: {lines}");
    }
    if let Some(file) = example(&directory, "numa") {
        let (code, lines) = run("numa", &file);
        let is_refused = code == Some(1) && lines.contains("numa_");
        assert!(code == Some(0) || (!has_node(1) && is_refused), "numa: {lines}");
    }
    for (name, key) in REFUSED {
        let Some(file) = example(&directory, name) else { continue };
        let (code, lines) = run(name, &file);
        assert_eq!(code, Some(2), "{name}: {lines}");
        assert!(lines.contains(key), "{name}: {lines}");
    }
    fs::remove_file(sparse).unwrap();
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0, "an example left a file");
    let written = fs::read_dir(series.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let (logs, others): (Vec<OsString>, Vec<OsString>) =
        written.partition(|name| name.to_string_lossy().ends_with(".log"));
    assert!(others.is_empty() && logs.contains(&"fioa-steady-state_bw.2.log".into()), "{logs:?}, {others:?}");
}
