//! The examples of fio for block I/O on local files and devices: which of them run, and why the others are refused. Uses the
//! examples on this machine, in the directory of the environment variable `FIO_EXAMPLES` or of the package `fio`; skipped
//! without them.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::{iopath, scratch_directory};

/// The examples that run.
const RUN: &[&str] = &[
    "aio-read",
    "backwards-read",
    "basic-verify",
    "fio-rand-RW",
    "fio-rand-read",
    "fio-rand-write",
    "fio-seq-RW",
    "fio-seq-read",
    "fio-seq-write",
    "fsx",
    "iometer-file-access-server",
    "jesd219",
    "null",
    "rand-zones",
    "ssd-test",
    "steadystate",
    "tiobench-example",
    "waitfor",
    "zipf",
];

/// The examples that are refused, with the key or value in the message.
const REFUSED: &[(&str, &str)] = &[
    ("1mbs_clients", "ratemin"),
    ("atomic-verify", "atomic"),
    ("butterfly", "flow"),
    ("cmdprio-bssplit", "write_lat_log"),
    ("cmdprio-percentage", "write_lat_log"),
    ("cross-stripe-verify", "verify_dump"),
    ("dedupe-global", "dedupe_mode"),
    ("disk-zone-profile", "zonemode"),
    ("enospc-pressure", "continue_on_error"),
    ("example_latency_steadystate", "write_lat_log"),
    ("exitwhat", "exit_what=stonewall"),
    ("fixed-rate-submission", "io_submit_mode"),
    ("flow", "flow"),
    ("latency-profile", "latency_target"),
    ("numa", "numa_cpu_nodes"),
    ("poisson-rate-submission", "io_submit_mode"),
    ("sequence-distribution", "random_distribution"),
    ("sprandom", "sprandom"),
    ("ssd-steadystate", "write_bw_log"),
    ("surface-scan", "verify_pattern"),
];

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
    let run = |file: &Path| {
        let text = fs::read_to_string(file).unwrap();
        // The path works where io_uring is refused.
        let path: &[&str] = if text.contains("libaio") { &["--path", "kernel-direct"] } else { &[] };
        let mut run = iopath(&["run"]);
        run.arg(file)
            .args(["--size", "1m", "--runtime", "200ms"])
            .args(path)
            .arg("--target")
            .arg(target.path());
        let output = run.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for name in RUN {
        let Some(file) = example(&directory, name) else { continue };
        let (code, lines) = run(&file);
        assert_eq!(code, Some(0), "{name}: {lines}");
    }
    for (name, key) in REFUSED {
        let Some(file) = example(&directory, name) else { continue };
        let (code, lines) = run(&file);
        assert_eq!(code, Some(2), "{name}: {lines}");
        assert!(lines.contains(key), "{name}: {lines}");
    }
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0, "an example left a file");
}
