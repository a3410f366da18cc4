//! Lists on the command line of `iopath run`: all combinations side by side, in one table and one result.

use crate::support::{iopath, json_of, scratch_directory};
use serde_json::Value;

/// The path, block size and depth of each run.
fn combinations(report: &Value) -> Vec<(&str, u64, u64)> {
    let runs = report["runs"].as_array().unwrap();
    let of = |run: &'_ Value| (run["block_bytes"].as_u64().unwrap(), run["io_depth"].as_u64().unwrap());
    runs.iter().map(|run| (run["path"].as_str().unwrap(), of(run).0, of(run).1)).collect()
}

#[test]
fn all_combinations_are_measured_on_one_target_and_those_that_cannot_run_are_named() {
    let Some(directory) = scratch_directory() else { return };
    let run =
        iopath(&["run", "--path", "kernel-direct,kernel-buffered", "--bs", "1000,4k,64k", "--size", "1m"])
            .args(["--repeat", "2", "--json", "-", "--target"])
            .arg(directory.path())
            .output()
            .unwrap();
    let report = json_of(&run);
    let both = |bytes| [("kernel-direct", bytes, 1), ("kernel-buffered", bytes, 1)];
    let mut expected = [both(4096), both(65536)].concat();
    expected.push(("kernel-buffered", 1000, 1));
    let mut measured = combinations(&report);
    measured.sort_unstable();
    expected.sort_unstable();
    assert_eq!(measured, expected);
    assert!(
        report["runs"].as_array().unwrap().iter().all(|run| run["repeats"].as_array().unwrap().len() == 2)
    );
    assert_eq!(report["skipped"].as_array().unwrap().len(), 1);
    assert_eq!(report["skipped"][0]["workload"], "kernel-direct, 1000 bytes");
    assert!(report["skipped"][0]["reason"].as_str().unwrap().contains("not a multiple of"));
    let scratch = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(scratch, 0, "one scratch file, removed at the end");
    let order = String::from_utf8(run.stderr).unwrap();
    let rounds: Vec<&str> = order.lines().filter(|line| line.contains("measuring, ")).collect();
    assert_eq!(rounds.len(), 10, "{order}");
    assert!(rounds[..5].iter().all(|line| line.contains("measuring, 1 of 2: ")), "{order}");
}

#[test]
fn the_table_has_marks_and_the_skipped_combinations() {
    let run = iopath(&["run", "--path", "null", "--bs", "4k,1000,1m", "--iodepth", "1,32", "--size", "64m"])
        .output()
        .unwrap();
    let table = String::from_utf8(run.stdout).unwrap();
    assert!(
        table.contains('▲') && table.contains('▼') && table.contains("not significantly slower"),
        "{table}"
    );
    assert!(table.contains("skipped: null, 1000 bytes, depth 1: --bs 1000"), "{table}");
    assert_eq!(table.lines().filter(|line| line.trim_start().starts_with("null ")).count(), 4, "{table}");
}

#[test]
fn compare_matches_the_combinations_of_two_results() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let files = ["a", "b"].map(|name| directory.path().join(name));
    for file in &files {
        let mut run = iopath(&["run", "--path", "iopath-direct", "--target", "model:cloud", "--bs", "4k,8k"]);
        run.args(["--rw", "randread,randwrite", "--runtime", "100ms", "--json"]).arg(file);
        assert!(run.output().unwrap().status.success());
    }
    let [a, b] = &files;
    let runs = |file| serde_json::from_slice::<Value>(&std::fs::read(file).unwrap()).unwrap()["runs"].clone();
    assert_eq!(runs(a), runs(b), "virtual time repeats exactly");
    let compared = iopath(&["compare"]).args([a, b]).args(["--json", "-"]).output().unwrap();
    let report = json_of(&compared);
    let text = report.to_string();
    assert!(text.contains("randwrite") && text.contains("8192"), "{text}");
}

#[test]
fn a_log_and_a_list_that_cannot_run_at_all_are_refused() {
    for (args, named) in [
        (&["--bs", "4k,8k", "--log", "x.log"][..], "--log records one workload"),
        (&["--bs", "1000,1001"], "--bs 1000 is not valid"),
        (&["--bs", "4k,0"], "--bs 0 is not valid"),
        (&["--bs", "4k,"], "--bs"),
    ] {
        let run = iopath(&["run", "--path", "null", "--size", "1m"]).args(args).output().unwrap();
        let line = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(2), "{args:?}: {line}");
        assert!(line.contains(named), "{args:?}: {line}");
    }
    assert!(!std::path::Path::new("x.log").exists());
}
